"""Zero weights are a candidate of every fit: no answer has an objective above theirs."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.certificate import Certificate
from maxmargin.core.kernel_oracle import Multiclass
from maxmargin.data.opening import open_examples
from maxmargin.report.page import certified
from maxmargin.structures.chain.problem import HiddenChains
from maxmargin.structures.constituency.formats import read_trees

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(40, 3))
CLASSES = RANDOM.integers(3, size=40)
SEQUENCES = [RANDOM.normal(size=(4, 3)) for _ in range(12)]
LABELS = [RANDOM.integers(3, size=4) for _ in range(12)]
PATHS = [(x, [(0, 1), (1, 2), (2, 3)]) for x in SEQUENCES]
TREES = read_trees("(S (X (A a) (B b)) (C c)) (S (A a) (Y (B b) (C c)))") * 3

STRUCTURED = [
    "auto", "dual-coordinate", "frank-wolfe", "n-slack", "one-slack", "partial-linearization",
    "exponentiated-gradient", mm.Online(), mm.FrankWolfe(block=False),
]  # fmt: skip


def hopeless(C=1e-6, **options):
    """Fits on noise, in which hardly anything can be learned with so small a C."""
    common = {"C": C} | options
    for solver in STRUCTURED:
        yield mm.SequenceTagger(solver=solver, **common), SEQUENCES, LABELS
    yield mm.LinearClassifier(**common), ROWS, CLASSES
    yield mm.LinearClassifier(formulation="one-vs-rest", **common), ROWS, CLASSES
    yield mm.LinearClassifier(formulation="weston-watkins", **common), ROWS, CLASSES
    yield mm.LinearClassifier(**common), open_examples(ROWS, CLASSES), None
    yield mm.SequenceTagger(**common), open_examples(SEQUENCES, LABELS), None
    yield mm.GraphLabeler(**common), PATHS, LABELS
    yield mm.GrammarParser(**common), TREES, None
    yield mm.KernelStructuredSVM(Multiclass(), **common), ROWS, CLASSES
    solver = mm.MiniBatchDual()
    yield mm.KernelStructuredSVM(Multiclass(), solver=solver, **common), ROWS, CLASSES
    yield mm.MultilabelClassifier(**common), ROWS, np.eye(3, dtype=int)[CLASSES]
    yield mm.OrdinalClassifier(**common), ROWS, CLASSES
    yield mm.LatentStructuredSVM(HiddenChains(3, 3, 1), **common), SEQUENCES, LABELS


def fitted(model, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X) if y is None else model.fit(X, y)
    return model, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("case", [*hopeless()], ids=lambda case: type(case[0]).__name__)
def test_where_zero_is_as_good_the_fit_says_so(case):
    model, messages = fitted(*case)
    certificate = model.certificate_
    assert certificate.at_zero is not None
    assert certificate.dual <= certificate.primal * (1 + 1e-12)
    assert certificate.primal <= certificate.at_zero
    assert any("no weights whose objective is below that of zero weights" in m for m in messages)
    assert "hardly better" in certified(model)


@pytest.mark.parametrize(
    "case", [*hopeless(C=1.0, max_iter=1, tol=1e-9)], ids=lambda case: type(case[0]).__name__
)
def test_a_fit_that_is_stopped_is_not_worse_than_zero(case):
    model, _ = fitted(*case)
    scaled = type(model)(**(model.get_params(deep=False) | {"C": 1e-9, "tol": 0.5}))
    at_zero = fitted(scaled, *case[1:])[0].certificate_.at_zero / 1e-9
    assert model.certificate_.primal <= at_zero * (1 + 1e-9)


def test_a_fit_that_is_stopped_says_it_with_the_reason():
    model = mm.SequenceTagger(C=1.0, time_limit=1e-9)
    _, messages = fitted(model, SEQUENCES, LABELS)
    assert len(messages) == 1
    assert "time limit" in messages[0]
    assert "kept, hardly better than zero weights." in messages[0]


def test_where_weights_are_better_nothing_is_said():
    X = np.vstack([ROWS, ROWS + 10.0])
    y = np.repeat([0, 1], len(ROWS))
    model, messages = fitted(mm.LinearClassifier(), X, y)
    assert model.certificate_.at_zero is None
    assert not messages
    assert "All-zero weights" not in certified(model)


def test_one_oracle_pass_at_most_and_mostly_none():
    calls = []

    class Classes(mm.Problem):
        def joint_feature(self, x, y):
            return np.outer(np.arange(3) == y, x).ravel()

        def loss(self, y, z):
            return float(y != z)

        def inference(self, x, w):
            return int(np.argmax(w.reshape(3, -1) @ x))

        def loss_augmented_inference(self, x, y, w):
            calls.append(not w.any())
            return int(np.argmax(w.reshape(3, -1) @ x + (np.arange(3) != y)))

    X = np.eye(3)[CLASSES] + 0.1 * ROWS
    at_zero = []
    for C in (10.0, 1e-6):
        calls.clear()
        fitted(mm.StructuredSVM(Classes(), C=C), X, CLASSES.tolist())
        at_zero.append(sum(calls[-2 * len(X) :]))
    assert at_zero == [0, len(X)]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), C=st.floats(1e-6, 1e3), tol=st.sampled_from([1e-3, 0.1, 0.5]))
def test_no_objective_is_above_that_of_zero_weights(seed, C, tol):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(20, 3)), np.r_[0, 1, 2, random.integers(3, size=17)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger = mm.SequenceTagger(C=C, tol=tol).fit([X], [y])
        classifier = mm.LinearClassifier(C=C, tol=tol).fit(X, y)
    for model in (tagger, classifier):
        assert model.certificate_.primal <= 20 * C * (1 + 1e-12)
        assert model.certificate_.dual <= model.certificate_.primal * (1 + 1e-9)


def test_certificates_of_parts_add_up():
    clear, close = Certificate(5.0, 4.0), Certificate(1.0, 1.0, at_zero=1.0)
    assert (clear + close).at_zero is None
    assert (close + close).at_zero == 2.0

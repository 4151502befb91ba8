"""What holds for all estimators: names of parameters, labels of one kind, numbers that overflow."""

import inspect

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from every_estimator import CASES, EDGES, GRAPHS, LABELS, ROWS, SEQUENCES, TAGS, estimators

import maxmargin as mm
from maxmargin.core.inputs import LARGEST
from maxmargin.core.kernel_oracle import Multiclass

pytestmark = pytest.mark.filterwarnings("ignore")


def test_every_estimator_has_a_case():
    assert estimators() == sorted(CASES)


def assert_one_sentence(error):
    message = str(error)
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 400


# The names X and y.


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("method", ["fit", "partial_fit", "score"])
def test_inputs_are_x_and_outputs_are_y(name, method):
    function = getattr(getattr(mm, name), method, None)
    if function is not None:
        assert list(inspect.signature(function).parameters)[1:3] == ["X", "y"]


@pytest.mark.parametrize("name", sorted(CASES))
def test_all_can_be_given_by_name(name):
    case = CASES[name]()
    model = case.model.fit(X=case.X, y=case.y, **case.more)
    if hasattr(model, "score"):
        assert np.isfinite(model.score(X=case.X, y=case.y, **case.more))
    if hasattr(model, "predict"):
        assert len(model.predict(X=case.X)) == len(case.X)
    if hasattr(model, "partial_fit"):
        if name == "GrammarParser":
            model.set_params(grammar=model.grammar_)
        model.partial_fit(X=case.X, y=case.y, **case.more)


# Numbers whose squares overflow.


def certified(model):
    """Whether a fit has a certificate that is finite and right."""
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return True
    # The dual is a bound from below, to rounding.
    close = 1e-9 * abs(certificate.primal)
    return np.isfinite([certificate.primal, certificate.dual]).all() and (
        certificate.dual <= certificate.primal + close
    )


WITH_NUMBERS = sorted(name for name, make in CASES.items() if make().scale is not None)


@pytest.mark.diagonal
@pytest.mark.parametrize("name", WITH_NUMBERS)
@pytest.mark.parametrize("factor", [1e-300, 1e-160, 1e40, 1e52, 1e154, 1e160, 1e300, -1e307])
def test_features_of_any_size(name, factor):
    """A certificate that is finite and right, or a sentence; both from `fit` and `partial_fit`."""
    case = CASES[name]()
    X = case.scale(case.X, factor)
    for method in ("fit", "partial_fit"):
        model = CASES[name]().model
        if not hasattr(model, method):
            continue
        more = dict(case.more)
        if method == "partial_fit" and "classes" in inspect.signature(model.partial_fit).parameters:
            more["classes"] = ["a", "b", "c"] if name == "HierarchicalClassifier" else range(3)
        model.set_params(**({"max_iter": 20} if hasattr(model, "max_iter") else {}))
        try:
            getattr(model, method)(X, case.y, **more)
        except ValueError as error:
            caught = error
        else:
            online = method == "partial_fit" and name.startswith("Linear")  # has no primal value
            assert online or certified(model)
            continue
        assert abs(factor) > 1e50 / 100
        assert_one_sentence(caught)
        assert "overflow" in str(caught)
        # What was learned before a user's problem failed is kept.
        assert name.endswith("StructuredSVM") or not hasattr(model, "certificate_")


def test_the_place_and_the_value_are_named():
    X = ROWS.copy()
    X[7, 2] = -3e300
    with pytest.raises(ValueError, match=r"X has -3e\+300 at row 7, column 2, but squares of numb"):
        mm.LinearClassifier().fit(X, LABELS)
    with pytest.raises(ValueError, match=r"X has -3e\+300 at row 7, column 2"):
        mm.KernelStructuredSVM(Multiclass()).fit(sp.csr_array(X), LABELS)
    rows = [ROWS[:4], X[4:12]]
    with pytest.raises(ValueError, match=r"-3e\+300 at sequence 1, position 3, column 2"):
        mm.SequenceTagger().fit(rows, [LABELS[:4], LABELS[4:12]])
    with pytest.raises(ValueError, match=r"Graph 0 has -3e\+300 at column 2 of node 3"):
        mm.GraphLabeler().fit([(X[4:8], EDGES)], [LABELS[4:8]])
    with pytest.raises(ValueError, match=r"1e\+300 at sequence 0, position 1, column"):
        mm.SequenceTagger().fit([[{"a": 1.0}, {"a": 1e300}]], [["x", "y"]])
    tagger = mm.SequenceTagger().fit([[{"a": 1.0}, {"a": 2.0}]], [["x", "y"]])
    with pytest.raises(ValueError, match="overflow"):
        tagger.predict([[{"a": 1e300}]])


@pytest.mark.parametrize("size", [1e40, 1e100, 1e160, 1e308])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_targets_of_any_size(size, sign):
    y = np.where(np.arange(24) == 5, sign * size, LABELS)
    source = mm.data.open_examples(ROWS, y)
    for arguments in ((ROWS, y), (source,)):
        model = mm.LinearRegressor(max_iter=50)
        if size <= LARGEST:
            assert certified(model.fit(*arguments))
            continue
        with pytest.raises(
            ValueError, match=r"y\[5\] is -?1e\+\d+, but beyond 1e\+50 sums"
        ) as raised:
            model.fit(*arguments)
        assert_one_sentence(raised.value)


WEIGHTED = sorted(
    name
    for name in CASES
    if "sample_weight" in inspect.signature(getattr(mm, name).fit).parameters
    and name != "PerformanceClassifier"
)


@pytest.mark.diagonal
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("size", [1e-300, 1e35, 1e200, 1e308])
@pytest.mark.parametrize("where", ["C", "sample_weight"])
def test_costs_of_any_size(name, size, where):
    case = CASES[name]()
    model = case.model.set_params(max_iter=2 if name == "PoseEstimator" else 15)
    more = dict(case.more)
    n = 6 if name == "Ranker" else len(case.X)
    if where == "C":
        model.set_params(C=size)
    else:
        more["sample_weight"] = np.where(np.arange(n) == 1, size, 1.0)
    try:
        model.fit(case.X, case.y, **more)
    except ValueError as error:
        caught = error
    else:
        assert certified(model)
        return
    assert size > 1e40
    assert_one_sentence(caught)
    assert "overflow" in str(caught)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (mm.LinearClassifier(loss_matrix={(0, 1): 1e300}), r"loss_matrix\[0, 1\] is 1e\+300, but"),
        (mm.LinearClassifier(margins=1e300), r"margins\[0\] is 1e\+300, but beyond"),
        (mm.LinearClassifier(margins={0: 1e300}), r"margins\[0\] is 1e\+300, but beyond"),
        (mm.LinearClassifier(class_weight={0: 1e45}), "C times the weights adds up to"),
        (mm.LinearClassifier(intercept_scaling=1e300), r"intercept_scaling is 1e\+300, but its"),
        (mm.LinearClassifier(prior=(np.full(3, 1e300), None)), "The prior scales"),
        (mm.LinearClassifier(prior=(None, np.full(3, 1e300))), "The prior scales"),
        (mm.PerformanceClassifier(intercept_scaling=1e300), "intercept_scaling"),
        (mm.OrdinalClassifier(loss=1e300 * (1 - np.eye(3))), r"loss_matrix\[0, 1\] is 1e\+300"),
        (
            mm.KernelStructuredSVM(Multiclass(), kernel="polynomial", degree=300),
            "PolynomialKernel gives",
        ),
        (
            mm.KernelStructuredSVM(Multiclass(), kernel=lambda A, B: 1e200 * A @ B.T),
            "scale the fea",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parameters_that_overflow(model, match):
    y = LABELS % 2 if isinstance(model, mm.PerformanceClassifier) else LABELS
    with pytest.raises(ValueError, match=match) as raised:
        model.fit(100 * ROWS, y)
    assert_one_sentence(raised.value)


# Columns of data frames.

NAMES = ["height", "width", "depth"]


def frame(rows):
    return pd.DataFrame(rows, columns=NAMES)


def frames_of(name, reverse=False):
    """Data with names, perhaps with the columns in another order."""
    order = NAMES[::-1] if reverse else NAMES
    if name == "SequenceTagger":
        return [frame(rows)[order] for rows in SEQUENCES]
    if name == "GraphLabeler":
        return [(frame(rows)[order], edges) for rows, edges in GRAPHS]
    if name == "LatentClassifier":
        return [frame(rows)[order] for rows in CASES[name]().X]
    return frame(ROWS)[order]


ON_ROWS = sorted(set(WITH_NUMBERS) - {"StructuredSVM", "LatentStructuredSVM", "PoseEstimator"})


@pytest.mark.parametrize("name", ON_ROWS)
def test_columns_in_another_order_are_refused(name):
    case = CASES[name]()
    model = case.model.fit(frames_of(name), case.y, **case.more)
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == NAMES
    other = frames_of(name, reverse=True)
    scoring = {"y": case.y, **case.more}
    calls = {"predict": {}, "decision_function": {}, "transform": {}, "score": scoring}
    for method, more in calls.items():
        if hasattr(model, method):
            with pytest.raises(ValueError, match=r"feature names should match|must be in the same"):
                getattr(model, method)(other, **more)
    if hasattr(model, "partial_fit"):
        more = dict(case.more)
        if "classes" in inspect.signature(model.partial_fit).parameters:
            more["classes"] = sorted({str(y) for y in case.y}) if name[0] == "H" else range(3)
        learner = CASES[name]().model.partial_fit(frames_of(name), case.y, **more)
        with pytest.raises(ValueError, match=r"feature names should match|must be in the same"):
            learner.partial_fit(other, case.y, **case.more)
    # Training anew on matrices forgets the names.
    model.fit(CASES[name]().X, case.y, **case.more)
    assert not hasattr(model, "feature_names_in_")


def test_columns_of_one_matrix_with_lengths():
    lengths = [len(tags) for tags in TAGS]
    model = mm.SequenceTagger().fit(frame(ROWS), LABELS, lengths=lengths)
    assert model.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(frame(ROWS)[NAMES[::-1]], lengths=lengths)
    mixed = [frame(SEQUENCES[0]), frame(SEQUENCES[1])[NAMES[::-1]]]
    with pytest.raises(ValueError, match=r"Part 1 of X has the columns .* but part 0 has"):
        mm.SequenceTagger().fit(mixed, TAGS[:2])


# Labels of several kinds.

LABELLED = sorted(name for name, make in CASES.items() if make().labels is not None)


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda k: "q" if k == 1 else int(k), "mixes numbers and strings, such as "),
        (lambda k: "q" if k == 1 else 1.5 + k, "mixes numbers and strings, such as "),
        (lambda k: [b"a", b"b", b"c"][k], r"holds byte strings, such as b'.': decode them"),
        (lambda k: b"a" if k == 1 else "q", r"holds byte strings, such as b'a': decode them"),
    ],
    ids=["numbers and text", "decimals and text", "bytes", "bytes and text"],
)
def test_labels_are_of_one_kind(name, make, match):
    case = CASES[name]()
    y = case.labels(make)
    with pytest.raises(ValueError, match=match) as raised:
        case.model.fit(case.X, y, **case.more)
    assert_one_sentence(raised.value)
    if name not in ("MultilabelClassifier", "DependencyParser", "SequenceTagger", "GraphLabeler"):
        with pytest.raises(ValueError, match=match):
            CASES[name]().model.fit(case.X, np.array(y, dtype=object), **case.more)
    if "bytes" in match and isinstance(y[0], bytes):
        with pytest.raises(ValueError, match=match):
            CASES[name]().model.fit(case.X, np.array(y), **case.more)


def test_kinds_may_not_differ_between_sequences():
    y = [["a"] * 4, *TAGS[1:]]
    for model, X in ((mm.SequenceTagger(), SEQUENCES), (mm.GraphLabeler(), GRAPHS)):
        with pytest.raises(ValueError, match=r"y mixes numbers and strings, such as \d and 'a'"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="mixes numbers and strings"):
        mm.SequenceTagger().fit(mm.data.open_examples(list(zip(SEQUENCES, y, strict=True))))


def test_classes_are_of_one_kind():
    for model in (mm.LinearClassifier(), mm.OrdinalClassifier()):
        with pytest.raises(ValueError, match="classes mixes numbers and strings"):
            model.partial_fit(ROWS, LABELS, classes=[0, 1, "q"])
    with pytest.raises(ValueError, match="classes mixes numbers and strings"):
        mm.OrdinalClassifier(classes=[0, "1", 2]).fit(ROWS, LABELS)
    with pytest.raises(ValueError, match="classes holds byte strings"):
        mm.KernelStructuredSVM(Multiclass(classes=[b"a", b"b"])).fit(ROWS, LABELS)
    names = pd.DataFrame(np.eye(3, dtype=int)[LABELS], columns=["a", 1, "c"])
    with pytest.raises(ValueError, match="The columns of y mixes numbers and strings"):
        mm.MultilabelClassifier().fit(ROWS, names)


def test_void_is_of_any_kind():
    y = [["sea", "land", None, "sea"], ["land", None, "sea", "land"]]
    model = mm.GraphLabeler(void=None).fit(GRAPHS[:2], y)
    assert list(model.classes_) == ["land", "sea"]
    y = [["sea", "land", -1, "sea"], ["land", -1, "sea", "land"]]
    model = mm.GraphLabeler(void=-1).fit(GRAPHS[:2], y)
    assert list(model.classes_) == ["land", "sea"]


@pytest.mark.parametrize(
    "position",
    [
        {b"word": 1.0},
        {"word": b"the"},
        {"word": [b"the"]},
        {"word": {b"the": 1.0}},
        ["a", b"the"],
    ],
    ids=str,
)
def test_names_of_features_are_no_bytes(position):
    X = [[{"a": 1.0}, position if isinstance(position, dict) else {"a": 1.0}]]
    if isinstance(position, list):
        X = [[["a"], position]]
    with pytest.raises(
        ValueError, match=r"Sequence 0, position 1: .* byte string.*: decode it"
    ) as r:
        mm.SequenceTagger().fit(X, [["x", "y"]])
    assert_one_sentence(r.value)


# Parameters that would be ignored.


def test_beta_is_for_f1():
    case = CASES["PerformanceClassifier"]()
    with pytest.raises(ValueError, match="loss='error' takes no beta: it is for 'f1'") as raised:
        mm.PerformanceClassifier(loss="error", beta=2.0).fit(case.X, case.y)
    assert_one_sentence(raised.value)


@pytest.mark.parametrize("loss", ["pairwise", "ndcg"])
def test_threshold_is_for_relevant_or_not(loss):
    case = CASES["Ranker"]()
    with pytest.raises(ValueError, match=f"threshold is for .* not for '{loss}'") as raised:
        mm.Ranker(loss=loss, threshold=2.0).fit(case.X, case.y, **case.more)
    assert_one_sentence(raised.value)


@pytest.mark.parametrize("name", sorted(n for n in CASES if hasattr(getattr(mm, n), "partial_fit")))
def test_partial_fit_keeps_no_checkpoint_and_says_so(name, tmp_path):
    case = CASES[name]()
    more = dict(case.more)
    if "classes" in inspect.signature(case.model.partial_fit).parameters:
        more["classes"] = ["a", "b", "c"] if name == "HierarchicalClassifier" else range(3)
    if name == "GrammarParser":
        case.model.set_params(grammar=CASES[name]().model.fit(case.X).grammar_)
    model = case.model.set_params(checkpoint=tmp_path / "state")
    with pytest.raises(ValueError, match="partial_fit keeps no checkpoint") as raised:
        model.partial_fit(case.X, case.y, **more)
    assert_one_sentence(raised.value)

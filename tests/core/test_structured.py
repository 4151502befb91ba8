"""Problems in plain Python: what they may return, and what they are told when it is wrong."""

import math
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from structured_referee import Case, Chains, compiled_chains, random_chains, random_classes

from maxmargin import Cuts, OneSlack, ProblemError, StructuredSVM
from maxmargin.core.oracle import Threads
from maxmargin.core.python_oracle import PythonOracle, make_oracle
from maxmargin.solvers.loop import Stopping
from maxmargin.training.fit import SOLVERS

CASE = random_classes(0)
GOOD = CASE.problem
N_FEATURES = len(GOOD.joint_feature(CASE.X[0], CASE.Y[0]))
EVERYONE = np.arange(len(CASE.X))

METHODS = (
    "joint_feature",
    "loss",
    "inference",
    "loss_augmented_inference",
    "slack_rescaled_inference",
)


class Mine(SimpleNamespace):
    """A good problem, but for the methods that are given."""

    def __init__(self, **methods):
        super().__init__(**{name: getattr(GOOD, name) for name in METHODS} | methods)


def fit(problem, case=CASE, **options):
    return StructuredSVM(problem, **options).fit(case.X, case.Y, sample_weight=case.C)


def one_sentence(error):
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 300
    return message


def on_example_3(wrong, right):
    """`wrong` for the fourth input alone."""
    return lambda x, *rest: wrong(x, *rest) if x is CASE.X[3] else right(x, *rest)


def feature(wrong):
    return {"joint_feature": on_example_3(wrong, GOOD.joint_feature)}


def loss_augmented_inference(wrong):
    return {"loss_augmented_inference": on_example_3(wrong, GOOD.loss_augmented_inference)}


def loss(wrong):
    """For the outputs of the fourth example alone, which no other example has."""

    def mine(y_true, y):
        return wrong(y_true, y) if isinstance(y, np.int8) else GOOD.loss(y_true, y)

    return {"loss": mine} | loss_augmented_inference(
        lambda *args: np.int8(GOOD.loss_augmented_inference(*args))
    )


BAD = {
    "separate raises": (
        loss_augmented_inference(lambda *_: dict[str, int]()["key"]),
        "loss_augmented_inference .* raised KeyError",
    ),
    "separate writes": (
        loss_augmented_inference(lambda x, y, w: w.sort()),
        "loss_augmented_inference .* read-only",
    ),
    "no such output": (
        loss_augmented_inference(lambda *_: 99),
        "joint_feature .* raised IndexError",
    ),
    "loss raises": (loss(lambda *_: 1 / 0), "loss .* raised ZeroDivisionError"),
    "loss negative": (loss(lambda *_: -0.5), r"loss .* -0\.5"),
    "loss NaN": (loss(lambda *_: math.nan), "loss .* nan"),
    "loss infinite": (loss(lambda *_: math.inf), "loss .* inf"),
    "loss a string": (loss(lambda *_: "much"), "loss .* must be a finite number"),
    "loss nothing": (loss(lambda *_: None), "loss .* must be a finite number"),
    "loss an array": (loss(lambda *_: np.ones(2)), "loss .* must be a finite number"),
    "feature raises": (feature(lambda x, y: x[99]), "joint_feature .* raised IndexError"),
    "feature longer": (feature(lambda x, y: np.ones(99)), "joint_feature .* 99 .* 12 "),
    "feature NaN": (feature(lambda x, y: np.full(N_FEATURES, np.nan)), "joint_feature .* NaN"),
    "feature words": (feature(lambda x, y: ["word"] * N_FEATURES), "joint_feature .* numbers"),
    "feature ragged": (feature(lambda x, y: [[1.0], [2.0, 3.0]]), "joint_feature .* numbers"),
    "feature sparse NaN": (
        feature(lambda x, y: sp.csr_array(np.full((1, N_FEATURES), np.nan))),
        "joint_feature .* NaN",
    ),
    "feature sparse longer": (feature(lambda x, y: sp.csr_array((1, 99))), "joint_feature .* 99 "),
}


def test_a_loss_of_the_truth_is_refused():
    with pytest.raises(ProblemError, match=r"loss of Mine must be zero .* for example 0 it is 1"):
        fit(Mine(loss=lambda y_true, y: 1.0))


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named(name):
    methods, sentence = BAD[name]
    with pytest.raises(ProblemError, match=sentence) as error:
        fit(Mine(**methods), tol=1e-4)
    message = one_sentence(error)
    assert "of Mine" in message
    assert "example 3" in message


def test_a_search_that_ends_below_the_truth():
    problem = Mine(**loss_augmented_inference(lambda x, y_true, w: (y_true + 1) % 3))
    oracle = PythonOracle(problem, CASE.X, CASE.Y, CASE.C)
    weights = 10.0 * GOOD.joint_feature(CASE.X[3], CASE.Y[3])  # the truth is far ahead
    with pytest.raises(
        ProblemError,
        match=r"inference of Mine .* example 3, .* below .* true output",
    ):
        oracle.separate(weights, EVERYONE, Threads(1))


@pytest.mark.parametrize("wrong", ["word", ["word"] * 3, [[1.0], [2.0, 3.0]], None, 1.0])
def test_the_very_first_features_are_no_numbers(wrong):
    with pytest.raises(ProblemError, match=r"joint_feature of Mine must return .* example 0"):
        fit(Mine(joint_feature=lambda x, y: wrong))


def test_features_of_varying_length_are_not_blamed_on_the_search():
    def joint_feature(x, y):
        return np.ones(12 + y)

    def loss_augmented_inference(x, y_true, w):
        return max(range(3), key=lambda y: joint_feature(x, y) @ w + GOOD.loss(y_true, y))

    other = next(i for i, y in enumerate(CASE.Y) if y != CASE.Y[0])
    lengths = f"returned {12 + CASE.Y[other]} features for example {other} .* {12 + CASE.Y[0]} for"
    with pytest.raises(ProblemError, match=f"joint_feature of Mine {lengths} the first") as error:
        fit(Mine(joint_feature=joint_feature, loss_augmented_inference=loss_augmented_inference))
    one_sentence(error)


def test_predictions_that_fail_tell_for_which_example():
    model = fit(Mine(inference=on_example_3(lambda x, w: x[99], GOOD.inference)))
    with pytest.raises(ProblemError, match=r"inference of Mine raised IndexError for example 3: "):
        model.predict(CASE.X)


def test_errors_tell_where_they_came_from():
    with pytest.raises(ProblemError) as error:
        fit(Mine(**BAD["separate raises"][0]))
    assert isinstance(error.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("X", "Y", "sentence"),
    [
        (CASE.X, CASE.Y[:-1], "X has 12 inputs but y has 11 outputs"),
        ([], [], "X is empty"),
    ],
)
def test_lengths(X, Y, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        StructuredSVM(GOOD).fit(X, Y)
    one_sentence(error)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"solver": "bundle"}, "'solver' parameter of StructuredSVM .*'auto'"),
        ({"solver": OneSlack}, "'solver' parameter"),
        ({"rescaling": "both"}, "'rescaling' parameter"),
        ({"problem": object()}, "'problem' parameter .* 'loss_augmented_inference'"),
        ({"problem": Chains}, r"problem is the class Chains itself: .* Chains\(\)\."),
        ({"n_jobs": 0}, "n_jobs is 0"),
    ],
)
def test_parameters(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        StructuredSVM(**{"problem": GOOD} | options).fit(CASE.X, CASE.Y)


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        (np.zeros(12), "All sample weights are zero"),
        (np.r_[1.0, -1.0, np.ones(10)], r"sample_weight\[1\] is -1\.0"),
        (np.ones(5), "each of the 12 samples"),
    ],
)
def test_sample_weights(weight, sentence):
    with pytest.raises(ValueError, match=sentence):
        StructuredSVM(GOOD).fit(CASE.X, CASE.Y, sample_weight=weight)


def test_slack_rescaling():
    case = random_classes(0, rescaling="slack")
    found = fit(case.problem, case, rescaling="slack", tol=1e-5)
    assert found.certificate_.primal == pytest.approx(case.optimum.value, rel=1e-4)


def test_a_fit():
    found = fit(GOOD, C=0.5, tol=1e-5)
    half = CASE.with_cost(0.5 * CASE.C)
    assert found.status_ == "converged"
    assert found.certificate_.primal == pytest.approx(half.optimum.value, rel=1e-4)
    assert found.n_iter_ == len(found.history_)
    answers = found.predict(CASE.X)
    assert answers == [GOOD.inference(x, found.weights_) for x in CASE.X]
    assert found.score(CASE.X, CASE.Y) == pytest.approx(
        -np.mean([GOOD.loss(y, z) for y, z in zip(CASE.Y, answers, strict=True)])
    )
    assert_allclose(
        found.decision_function(CASE.X),
        [max(GOOD.joint_feature(x, y) @ found.weights_ for y in GOOD.outputs(x)) for x in CASE.X],
    )


def test_predicting_before_fitting():
    with pytest.raises(NotFittedError):
        StructuredSVM(GOOD).predict(CASE.X)


def test_a_warm_start_goes_on_where_the_last_fit_ended():
    model = StructuredSVM(GOOD, tol=1e-5, warm_start=True).fit(CASE.X, CASE.Y)
    first = model.n_iter_
    assert model.fit(CASE.X, CASE.Y).n_iter_ < first
    model.set_params(C=3.0).fit(CASE.X, CASE.Y)
    case = CASE.with_cost(np.full(len(CASE.X), 3.0))
    assert model.certificate_.primal == pytest.approx(case.optimum.value, rel=1e-4)
    model.fit(CASE.X[:5], CASE.Y[:5])  # other data: a cold start
    few = Case(GOOD, CASE.X[:5], CASE.Y[:5], np.full(5, 3.0))
    assert model.certificate_.primal == pytest.approx(few.optimum.value, rel=1e-4)


def test_a_warm_start_with_other_data_of_the_same_size():
    one, two = (random_chains(1, n=6, shortest=m, longest=m) for m in (2, 4))
    model = StructuredSVM(one.problem, tol=1e-5, warm_start=True).fit(one.X, one.Y)
    model.fit(two.X, two.Y)
    case = two.with_cost(np.ones(6))
    assert model.certificate_.primal == pytest.approx(case.optimum.value, rel=1e-4)


def test_stopping_early_warns():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 iterations"):
        fit(GOOD, max_iter=1, tol=1e-9)


def failing_after(n_calls):
    calls = count(1)

    def infer(*args):
        if next(calls) > n_calls:
            raise MemoryError("no more")
        return GOOD.loss_augmented_inference(*args)

    return Mine(loss_augmented_inference=infer)


@pytest.mark.parametrize(
    "solver", sorted(set(SOLVERS) - {"partial-linearization", "exponentiated-gradient"})
)
def test_what_was_learned_before_a_failure_is_kept(solver):
    # So many calls that at least one round is whole; "online" makes up to four an example in each.
    calls = 100 if solver == "online" else 40
    model = StructuredSVM(failing_after(calls), solver=solver, tol=1e-9)
    with pytest.raises(
        ProblemError, match=r"loss_augmented_inference of Mine raised MemoryError .*: no more"
    ):
        model.fit(CASE.X, CASE.Y, sample_weight=CASE.C)
    assert model.status_ == "failed"
    assert model.certificate_.primal == np.inf
    assert model.certificate_.dual <= CASE.optimum.value
    assert model.history_
    assert len(model.predict(CASE.X)) == len(CASE.X)
    assert CASE.objective(model.weights_) < CASE.objective(np.zeros(N_FEATURES))


def sparse_rows():
    def columns_twice(row):
        """Every entry as the sum of two."""
        at = np.arange(len(row))
        halves = np.r_[0.5 * row, 0.5 * row]
        return sp.coo_array((halves, (np.zeros(2 * len(row), int), np.r_[at, at])))

    return {
        "list": list,
        "row": lambda row: row[None],
        "integers and floats": lambda row: row.astype(object),
        "csr": lambda row: sp.csr_array(row[None]),
        "csc": lambda row: sp.csc_matrix(row[None]),
        "coo with repeats": columns_twice,
        "one-dimensional": sp.coo_array,
        "explicit zeros": lambda row: sp.csr_array(
            (row, np.arange(len(row)), [0, len(row)]), shape=(1, len(row))
        ),
    }


@pytest.mark.parametrize("form", sparse_rows())
def test_features_in_any_form(form):
    as_form = sparse_rows()[form]
    problem = Mine(joint_feature=lambda x, y: as_form(GOOD.joint_feature(x, y)))
    expected = fit(GOOD, tol=1e-4)
    found = fit(problem, tol=1e-4)
    assert_allclose(found.weights_, expected.weights_, atol=1e-10)
    assert_allclose(found.decision_function(CASE.X), expected.decision_function(CASE.X), atol=1e-9)


def batched(xs, y_true, w):
    part = Case(GOOD, xs, y_true, np.ones(len(xs))).oracle()
    return part.separate(np.array(w), np.arange(len(xs)), Threads(1))


def changed(**parts):
    def cuts(xs, y_true, w):
        right = batched(xs, y_true, w)
        return right._replace(
            **{name: change(getattr(right, name)) for name, change in parts.items()}
        )

    return cuts


def inferred(cuts):
    """What the training set makes of a batch; the weights have neighbours in memory."""
    oracle = PythonOracle(Mine(cuts=cuts), CASE.X, CASE.Y, CASE.C)
    weights = np.zeros(1000)[: oracle.n_features]
    return oracle.separate(weights, EVERYONE, Threads(1))


def test_batched_searches():
    calls = []

    def cuts(xs, y_true, w):
        calls.append(len(xs))
        return batched(xs, y_true, w)

    problem = Mine(cuts=cuts, loss_augmented_inference=None)
    result = OneSlack().solve(
        make_oracle(problem, CASE.X, CASE.Y, CASE.C, "margin"), Stopping(1e-5)
    )
    assert result.certificate.primal == pytest.approx(CASE.optimum.value, rel=1e-4)
    assert set(calls) == {len(CASE.X)}


@pytest.mark.parametrize(
    ("cuts", "sentence"),
    [
        (lambda *_: 1 / 0, "raised ZeroDivisionError for the examples 0 to 11"),
        (lambda *_: None, "raised TypeError for the examples 0 to 11"),
        (lambda xs, ys, w: batched(xs[:5], ys[:5], w), "each of the 12 examples .* returned 5"),
        (
            changed(losses=lambda a: a - 9.0),
            r"returned .* for example 0, .* below that of the true output",
        ),
        (changed(losses=lambda a: np.nan * a), "NaN"),
        (changed(values=lambda a: np.nan * a), "NaN"),
        (changed(columns=lambda a: a + np.uint32(N_FEATURES)), "column"),
        (changed(columns=lambda a: a[:-1]), "starts that rise"),
    ],
)
def test_batched_searches_that_are_wrong(cuts, sentence):
    with pytest.raises(ProblemError, match=f"cuts of Mine .*{sentence}") as error:
        inferred(cuts)
    one_sentence(error)


@pytest.mark.parametrize("part", ["starts", "columns", "values", "losses"])
def test_batched_searches_may_use_other_number_types(part):
    narrow = np.float32 if part in ("values", "losses") else np.int32
    found = inferred(changed(**{part: lambda a: a.astype(narrow)}))
    expected = inferred(batched)
    weights = np.random.default_rng(0).normal(size=N_FEATURES)
    assert_allclose(found.slopes(weights), expected.slopes(weights), rtol=1e-5)


def test_a_problem_may_bring_its_own_training_set():
    case = random_chains(3)

    class Compiled(Chains):
        def make_oracle(self, X, Y, C, rescaling):
            assert rescaling == "margin"
            return compiled_chains(Case(self, X, Y, C))

    options = {name: getattr(case.problem, name) for name in ("bias", "ends", "normalized")}
    found = fit(Compiled(case.problem.matrix, **options), case, tol=1e-5)
    assert found.certificate_.primal == pytest.approx(case.optimum.value, rel=1e-4)


def test_planes_of_outputs_are_those_of_the_pieces():
    for rescaling in ("margin", "slack"):
        case = random_classes(2, rescaling=rescaling)
        psi, losses = case.pieces
        for y in range(len(losses[0])):
            cuts = case.oracle().cuts_of(EVERYONE, [y] * len(EVERYONE))
            assert isinstance(cuts, Cuts)
            for i in EVERYONE:
                entries = slice(cuts.starts[i], cuts.starts[i + 1])
                row = np.zeros(psi.shape[2])
                np.add.at(row, cuts.columns[entries], cuts.values[entries])
                assert_allclose(row, psi[i, y], atol=1e-12)
            assert_allclose(cuts.losses, losses[:, y])


def test_a_point_that_takes_too_much_is_cut_back_and_not_certified():
    oracle = CASE.oracle()
    point = OneSlack().solve(oracle, Stopping(1e-2)).dual_point
    assert oracle.dual(point) == oracle.dual(oracle.feasible(point))
    greedy = point._replace(coef=3.0 * point.coef)
    with pytest.raises(ValueError, match="not feasible"):
        oracle.dual(greedy)
    cut = oracle.feasible(greedy)
    used = np.bincount(cut.examples, cut.coef, minlength=len(CASE.X))
    assert (used <= CASE.C * (1.0 + 1e-12)).all()
    assert oracle.dual(cut) <= CASE.optimum.value

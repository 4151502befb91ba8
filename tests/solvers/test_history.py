"""Every iteration of every solver has an objective, and says whether it was evaluated."""

import math
import warnings

import numpy as np
import pytest
from distributed_problems import Classes, class_data
from latent_problems import Instances, random_bags
from linear_problems import random_case
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from structured_referee import compiled_chains, random_chains

import maxmargin as mm
from maxmargin.core.kernel_oracle import Multiclass
from maxmargin.core.linear import OneVersusRest, ScalarProblem
from maxmargin.core.python_oracle import make_oracle
from maxmargin.core.registry import as_named_now
from maxmargin.core.result import Iteration
from maxmargin.data.sources import Examples, Source
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import SequentialDual
from maxmargin.structures.dependency.formats import DependencySentence
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import ThreadEngine
from maxmargin.training.fit import SOLVERS, make_solver
from maxmargin.training.partitions import Partition
from maxmargin.training.shards import shard_oracle

IRIS, SPECIES = load_iris(return_X_y=True)
IRIS, SPECIES = IRIS[::2], SPECIES[::2]
RANDOM = np.random.default_rng(0)
WORDS = [RANDOM.normal(size=(n, 4)) for n in RANDOM.integers(1, 6, size=30)]
TAGS = [(rows[:, :3] + 0.5 * RANDOM.normal(size=(len(rows), 3))).argmax(axis=1) for rows in WORDS]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
NODES = [np.repeat(RANDOM.integers(0, 2, 2), 2) for _ in range(20)]
GRAPHS = [(one[:, None] + 0.7 * RANDOM.normal(size=(4, 1)), RING) for one in NODES]
QUERIES = np.repeat(np.arange(6), 10)
DOCUMENTS = RANDOM.normal(size=(60, 3))
LEVELS = np.clip(np.round(DOCUMENTS[:, 0] + RANDOM.normal(size=60)), 0, 2)
TREES = (
    "(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NN town))))))",
    "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))",
    "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN man))))",
)
SENTENCE = DependencySentence(
    ("the", "dog", "chases", "cats"), ("DET", "NOUN", "VERB", "NOUN"), (2, 3, 0, 3)
)
BAGS, KINDS = random_bags(0, n=30, d=4, k=3, most=5)
SETS = [{int(one), int(one > 0)} for one in SPECIES]
TAXONOMY = {0: "iris", 1: "large", 2: "large", "large": "iris"}

STRUCTURED = {
    "tagger": (mm.SequenceTagger(C=0.3), (WORDS, TAGS)),
    "graphs": (mm.GraphLabeler(C=0.3), (GRAPHS, NODES)),
    "label sets": (mm.MultilabelClassifier(C=0.1), (IRIS, SETS)),
    "ordinal": (mm.OrdinalClassifier(C=0.1), (IRIS, SPECIES)),
    "taxonomy": (mm.HierarchicalClassifier(C=0.1, taxonomy=TAXONOMY), (IRIS, SPECIES)),
    "ranker": (mm.Ranker(C=0.5), (DOCUMENTS, LEVELS, QUERIES)),
    "performance": (mm.PerformanceClassifier(C=0.1), (IRIS, SPECIES == 1)),
    "grammar": (mm.GrammarParser(C=0.1), (TREES,)),
    "dependencies": (mm.DependencyParser(C=1.0, n_features=256), ([SENTENCE] * 3,)),
    "latent bags": (mm.LatentClassifier(C=0.1), (BAGS, KINDS)),
    "latent problem": (
        mm.LatentStructuredSVM(Instances(1.0 - np.eye(3)), C=0.1, max_imputations=5),
        (BAGS, KINDS),
    ),
}
LISTED = {"tagger", "graphs", "latent problem"}
"""Those whose outputs the solvers that keep distributions can list."""

DISTRIBUTIONS = {"partial-linearization", "exponentiated-gradient"}

PAIRS = [
    (name, solver)
    for name in STRUCTURED
    for solver in SOLVERS
    if solver not in DISTRIBUTIONS or name in LISTED
]

VARIANTS = {
    "frank-wolfe, all together": mm.FrankWolfe(block=False),
    "frank-wolfe, sampled": mm.FrankWolfe(gap_sampling=True, evaluate_every=1000),
    "frank-wolfe, never evaluated": mm.FrankWolfe(evaluate_every=1000),
    "dual-coordinate, evaluated": mm.DualCoordinate(bound="true"),
    "n-slack, eager": mm.NSlack(update_every=3),
    "one-slack, no cache": mm.OneSlack(cache=0),
    "one-slack, line search": mm.OneSlack(line_search=True),
    "partial-linearization, all together": mm.PartialLinearization(block=False),
    "partial-linearization, batches": mm.PartialLinearization(batch_size=4, temperature=0.3),
    "online, one pass": mm.Online(passes=1),
    "online, gap": mm.Online(schedule="gap"),
}


def fitted(model, *data, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.set_params(**parameters).fit(*data)


def assert_objectives(history, certificate, factor=2.0):
    """Finite everywhere, no exact one below the dual, and the last one near the certificate."""
    assert history
    assert all(math.isfinite(line.objective) for line in history)
    rounding = 1e-9 * abs(certificate.primal) + 1e-12
    exact = [line for line in history if line.exact]
    assert all(line.objective >= line.dual - rounding for line in exact)
    assert all(line.objective >= line.primal - rounding for line in exact)
    assert history[-1].objective <= factor * certificate.primal + rounding
    assert history[-1].objective >= certificate.primal / factor - rounding


@pytest.mark.diagonal
@pytest.mark.parametrize(("name", "solver"), PAIRS)
def test_all_estimators_with_all_solvers(name, solver):
    model, data = STRUCTURED[name]
    model = fitted(model, *data, solver=solver, tol=0.01, max_iter=300)
    assert_objectives(model.history_, model.certificate_)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_solvers(name):
    model = mm.SequenceTagger(C=0.3, tol=0.01, max_iter=300, solver=VARIANTS[name])
    model = fitted(model, WORDS, TAGS)
    assert_objectives(model.history_, model.certificate_)


@pytest.mark.parametrize("solver", ["auto", "frank-wolfe", "n-slack", "one-slack", "online"])
def test_estimates_follow_the_objective_of_the_weights(solver):
    """At the weights of each iteration, evaluated here: near the end the estimate is close."""
    oracle = compiled_chains(random_chains(3, n=40, longest=5))
    pairs = []

    def look(line, weights):
        pairs.append((line, oracle.primal(weights())))

    result = make_solver(solver).solve(oracle, Stopping(1e-4, 200), on_iteration=look)
    late = [(line, primal) for line, primal in pairs if line.relative_gap <= 0.05]
    assert late
    for line, primal in late:
        assert_allclose(line.objective, primal, rtol=0.3)
    assert_objectives(result.history, result.certificate, 1.1)


FORMULATIONS = ["crammer-singer", "weston-watkins", "one-vs-rest"]


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_linear_classifiers(formulation, n_jobs):
    model = mm.LinearClassifier(C=0.5, formulation=formulation, n_jobs=n_jobs).fit(IRIS, SPECIES)
    assert_objectives(model.history_, model.certificate_, 1.1)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_regressors_and_two_classes(nonnegative):
    model = mm.LinearRegressor(C=0.5, nonnegative=nonnegative).fit(IRIS[:, :3], IRIS[:, 3])
    assert_objectives(model.history_, model.certificate_, 1.1)
    model = mm.LinearClassifier(C=0.5, nonnegative=nonnegative).fit(IRIS, SPECIES == 1)
    assert_objectives(model.history_, model.certificate_, 1.1)


@pytest.mark.parametrize("kind", ["crammer-singer", "weston-watkins", "hinge", "regression"])
def test_linear_estimates_are_the_objective_once_nothing_moves(kind):
    """With an origin, rows of zeros and costs of zero; all are visited in every iteration."""
    problem = random_case(kind, 0, with_origin=True).problem
    result = SequentialDual(skip_idle_examples=False).solve(problem, Stopping(-1.0, 2000))
    late = [line for line in result.history[-50:] if not line.exact]
    assert late
    for line in late:
        assert_allclose(line.objective, result.certificate.primal, rtol=1e-5)


def test_one_versus_rest_counts_the_classes_that_are_still_to_come():
    """The objective is that of all weights, of which those of later classes are zero."""
    signs = np.where(SPECIES[:, None] == np.arange(3), 1.0, -1.0)
    ones = np.ones(len(IRIS))
    parts = tuple(ScalarProblem.hinge(column, ones, 0.5 * ones, X=IRIS) for column in signs.T)
    problem, lines = OneVersusRest(parts), []

    def look(line, weights):
        lines.append(line)
        assert line.exact
        assert_allclose(line.objective, problem.primal(weights()))
        assert line.primal == line.objective

    SequentialDual().solve(problem, Stopping(), on_iteration=look)
    assert len(lines) == 3


class Digits(Source):
    def batches(self):
        X, y = load_digits(return_X_y=True)
        for at in range(0, 600, 150):
            yield Examples(X[at : min(at + 150, 600)] / 16, y[at : min(at + 150, 600)])


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_streams_estimate_the_first_pass_and_evaluate_the_others(formulation):
    model = mm.LinearClassifier(tol=0.01, formulation=formulation).fit(Digits())
    assert_objectives(model.history_, model.certificate_)
    assert [line.exact for line in model.history_] == [False] + [True] * (len(model.history_) - 1)
    first = model.history_[0].objective
    assert model.certificate_.primal / 5 < first < 5 * model.certificate_.primal


@pytest.mark.parametrize("model", [mm.LinearClassifier(), mm.LinearRegressor()])
def test_partial_fit_estimates_the_objective_of_all_batches(model):
    X, y = load_digits(return_X_y=True)
    X = X / 16
    for at in range(0, 1000, 250):
        known = {"classes": range(10)} if isinstance(model, mm.LinearClassifier) else {}
        model.partial_fit(X[at : at + 250], y[at : at + 250], **known)
    whole = type(model)().fit(X[:1000], y[:1000]).certificate_.primal
    assert all(math.isfinite(line.objective) and not line.exact for line in model.history_)
    assert whole / 2 < model.history_[-1].objective < 2 * whole


def test_partial_fit_of_structures_estimates_the_objective_of_all_calls():
    tagger = mm.SequenceTagger(C=0.3)
    for at in range(0, 30, 10):
        tagger.partial_fit(WORDS[at : at + 10], TAGS[at : at + 10], classes=range(3))
    objectives = [line.objective for line in tagger.history_]
    whole = mm.SequenceTagger(C=0.3).fit(WORDS, TAGS).certificate_.primal
    assert np.isfinite(objectives).all()
    assert whole / 2 < objectives[-1] < 3 * whole


def test_online_from_a_stream():
    tagger = mm.StructuredSVM(ThreeClasses(), C=0.1, solver="online", tol=0.01)

    class Rows(Source):
        def batches(self):
            for at in range(0, 75, 25):
                yield Examples(IRIS[at : at + 25], SPECIES[at : at + 25].tolist())

    model = fitted(tagger, Rows())
    assert_objectives(model.history_, model.certificate_)


class ThreeClasses(mm.Problem):
    def joint_feature(self, x, y):
        return np.outer(np.arange(3) == y, x).ravel()

    def loss(self, y_true, y):
        return float(y_true != y)

    def inference(self, x, w):
        return int(np.argmax(w.reshape(3, -1) @ x))

    def loss_augmented_inference(self, x, y_true, w):
        return int(np.argmax(w.reshape(3, -1) @ x + (np.arange(3) != y_true)))


class KernelClasses(mm.KernelProblem):
    def outputs(self, x):
        return [0, 1, 2]

    def loss(self, y_true, y):
        return float(y_true != y)

    def part(self, x, y):
        return x

    def label(self, y):
        return np.eye(3)[y]


@pytest.mark.parametrize("steps", ["qp", "smo"])
def test_kernels_of_structures(steps):
    solver = mm.MiniBatchDual(steps=steps, batch_size=7)
    model = mm.KernelStructuredSVM(KernelClasses(), C=0.1, solver=solver, tol=0.01)
    model = fitted(model, list(IRIS), SPECIES.tolist(), max_iter=2000)
    assert_objectives(model.history_, model.certificate_)
    assert not model.history_[0].exact


def test_kernels_of_classes():
    model = mm.KernelStructuredSVM(Multiclass(), C=0.1).fit(IRIS, SPECIES)
    assert_objectives(model.history_, model.certificate_, 1.1)
    assert model.history_[-1].exact


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "solver",
    [DistributedDual(), DistributedDual(staleness=0, local_passes=0.25), DistributedOneSlack()],
    ids=["dual", "short moves", "one-slack"],
)
@pytest.mark.parametrize("n_shards", [1, 3])
def test_shards(solver, n_shards):
    X, y = class_data(40)
    owns = [np.arange(part, len(X), n_shards) for part in range(n_shards)]
    parts = [Partition([X[i] for i in own], [y[i] for i in own], None, own) for own in owns]

    def bound(X, y, weight):
        return make_oracle(Classes(), X, y, np.ones(len(X)), "margin")

    with ThreadEngine(n_shards) as engine:
        oracle = shard_oracle(engine, parts, bound, n_shards, "classes")
        result = solver.solve(oracle, Stopping(0.01))
        oracle.shards.close()
    assert hasattr(result.history[0], "sent")
    assert_objectives(result.history, result.certificate)


@pytest.mark.parametrize("solver", SOLVERS)
def test_out_of_time_in_the_first_pass(solver):
    model = mm.SequenceTagger(C=0.3, solver=solver, time_limit=1e-9, tol=1e-9)
    model = fitted(model, WORDS, TAGS)
    assert all(math.isfinite(line.objective) for line in model.history_)


def test_iterations_of_earlier_versions_have_their_estimate_as_objective():
    first = {"seconds": 1.0, "oracle_calls": 2, "cache_hits": 3, "primal": math.inf, "dual": 4.0}
    line = Iteration(**as_named_now({**first, "planes": 5, "expected": 6.0}))
    assert (line.cuts, line.objective, line.exact) == (5, 6.0, False)
    later = as_named_now({**first, "planes": 5, "objective": 7.0, "expected": None})
    assert Iteration(**later).objective == 7.0
    assert line.objective_gap == pytest.approx(1.0 / 3.0)


class StopBelow:
    """Ends a fit when its objective, estimated or not, is below a value."""

    def __init__(self, objective):
        self.objective = objective

    def setup(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...
    def teardown(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        line = getattr(context, "iteration", None)
        return line is not None and line.objective < self.objective


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (mm.LinearClassifier(tol=1e-9), (IRIS, SPECIES)),
        (mm.SequenceTagger(C=0.3, tol=1e-9), (WORDS, TAGS)),
        (mm.SequenceTagger(C=0.3, tol=1e-9, solver="one-slack"), (WORDS, TAGS)),
    ],
    ids=["linear", "auto", "one-slack"],
)
def test_callbacks_stop_on_the_objective(model, data):
    whole = fitted(clone(model), *data)
    below = 1.5 * whole.certificate_.primal
    stopped = fitted(model.set_callbacks(StopBelow(below)), *data)
    assert stopped.status_ == "stopped by a callback"
    assert len(stopped.history_) < len(whole.history_)
    assert [line.objective < below for line in stopped.history_][-2:] == [False, True]
    assert stopped.certificate_.relative_gap > 1e-9


def test_the_function_of_a_solver_stops_on_the_objective():
    oracle = compiled_chains(random_chains(3, n=40, longest=5))

    def good_enough(line, weights):
        return line.objective < 1.2 * line.dual

    result = mm.Auto().solve(oracle, Stopping(1e-9), on_iteration=good_enough)
    assert result.status == "stopped by a callback"
    assert result.history[-1].objective_gap < 0.2 < result.history[-2].objective_gap + 0.05

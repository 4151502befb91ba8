"""Slack rescaling by searches for margin rescaling: against all outputs, and in training."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from structured_referee import Case, compiled_chains, random_chains, random_classes, widen

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.core.python_oracle import PythonOracle, make_oracle
from maxmargin.core.result import Status
from maxmargin.core.slack_rescaling import SlackRescaledOracle
from maxmargin.solvers.loop import Stopping
from maxmargin.training.fit import make_solver

seeds = st.integers(0, 2**32 - 1)
SOLVERS = ["auto", "dual-coordinate", "frank-wolfe", "n-slack", "one-slack"]


def corners_of_hull(losses, violations):
    """Places of the upper right corners of the points' convex hull, by trying many directions."""
    slopes = [
        (violations[a] - violations[b]) / (losses[b] - losses[a])
        for a in range(len(losses))
        for b in range(len(losses))
        if losses[b] > losses[a] and violations[a] > violations[b]
    ]
    cuts = sorted({0.0, *slopes, 2.0 * max(slopes, default=1.0)})
    between = [0.5 * (low + high) for low, high in pairwise(cuts)]
    return {int(np.argmax(violations + slope * losses)) for slope in between}


@settings(max_examples=60, deadline=None)
@given(seed=seeds, scale=st.sampled_from([0.0, 0.1, 1.0, 10.0]), order=st.integers(1, 2))
def test_slacks_are_the_best_of_the_hull_and_enclosed(seed, scale, order):
    case = random_chains(seed, n=4, shortest=0, order=order)
    oracle = SlackRescaledOracle(compiled_chains(case))
    psi, losses = case.pieces
    weights = scale * np.random.default_rng(seed).normal(size=psi.shape[2])
    wide = widen(weights, oracle.margin.layout)
    cuts = oracle.separate(wide, np.arange(4), Threads(1))
    slacks = losses * (1.0 - psi @ weights)
    found = cuts.slopes(wide)
    rounding = 1e-9 * (1.0 + scale)
    assert (found >= 0.0).all()
    assert (found <= slacks.max(axis=1) + rounding).all()
    assert (found + cuts.suboptimality >= slacks.max(axis=1) - rounding).all()
    for i in range(4):
        for corner in corners_of_hull(losses[i], 1.0 - psi[i] @ weights):
            # The walk ends where less than a millionth is to be gained.
            assert found[i] >= slacks[i, corner] * (1.0 - 1e-5) - rounding
    again = oracle.cuts_of(np.arange(4), cuts.outputs)
    assert_allclose(again.slopes(wide), found, rtol=1e-12, atol=1e-12)


@pytest.mark.diagonal
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_certificates_enclose_the_optimum(solver, seed):
    case = random_classes(seed, rescaling="slack")
    margin = PythonOracle(case.problem, case.X, case.Y, case.C)
    oracle = SlackRescaledOracle(margin)
    result = make_solver(solver).solve(oracle, Stopping(1e-4, 300, None))
    certificate, optimum = result.certificate, case.optimum.value
    assert certificate.relaxed
    if solver != "frank-wolfe":  # which takes its time
        assert result.status in (Status.CONVERGED, Status.RELAXED)
    assert certificate.dual <= optimum * (1 + 1e-8)
    assert certificate.primal >= case.objective(result.weights) * (1 - 1e-9)
    # Corners of the hull are most of what there is to learn from.
    assert case.objective(result.weights) <= 1.1 * optimum


def test_listed_outputs_make_expectations_possible():
    case = random_classes(0, rescaling="slack")
    oracle = SlackRescaledOracle(PythonOracle(case.problem, case.X, case.Y, case.C))
    result = make_solver("partial-linearization").solve(oracle, Stopping(1e-2, 500, None))
    assert result.certificate.dual <= case.optimum.value * (1 + 1e-8)
    assert case.objective(result.weights) <= 1.02 * case.optimum.value


def test_nothing_but_the_truth():
    chains = random_chains(0, n=3, k=2, longest=1).problem
    empty = Case(chains, [np.zeros((0, 3))] * 2, [(), ()], np.ones(2))
    oracle = SlackRescaledOracle(PythonOracle(chains, empty.X, empty.Y, empty.C))
    cuts = oracle.separate(np.ones(oracle.n_features), np.arange(2), Threads(1))
    assert cuts.outputs == [None, None]
    assert_array_equal(cuts.losses, 0.0)
    assert_array_equal(cuts.suboptimality, 0.0)
    assert len(cuts.values) == 0


def test_an_own_search_comes_first():
    case = random_classes(0)
    given_search = make_oracle(case.problem, case.X, case.Y, case.C, "slack")
    assert isinstance(given_search, PythonOracle)
    assert given_search.exact


def relaxed_fit(model, *data):
    """The fit of a model whose searches may leave a gap open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


TREES = [
    "(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NN town))))))",
    "(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (PP (IN in) (NP (NN town))))",
    "(S (NP (PRP I)) (VP (VBD saw) (NP (DT a) (NN man)) (PP (IN in) (NP (NN town)))))",
]
SENTENCES = [
    [("the", "DET"), ("dog", "NOUN"), ("barks", "VERB")],
    [("dogs", "NOUN"), ("chase", "VERB"), ("cats", "NOUN")],
]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
ROWS = [np.array([[1.0], [0.8], [0.9], [0.1]]), np.array([[-1.0], [-0.8], [-0.9], [0.0]])]
LABELS = [["land"] * 4, ["sea"] * 4]
ESTIMATORS = {
    "graph": (mm.GraphLabeler, {}, ([(rows, RING) for rows in ROWS], LABELS)),
    "relaxed graph": (
        mm.GraphLabeler,
        {"inference_method": "relaxed"},
        ([(rows, RING) for rows in ROWS], LABELS),
    ),
    "grammar": (mm.GrammarParser, {"horizontal": 0}, (TREES,)),
    "dependencies": (mm.DependencyParser, {}, (SENTENCES, [[2, 3, 0], [2, 0, 2]])),
    "ranking": (
        mm.Ranker,
        {"loss": "map"},
        (np.array([[1.0, 0], [0, 1], [0.5, 0.6], [0.9, 0.2]]), [2, 0, 1, 0], [0, 0, 0, 0]),
    ),
    "second order": (mm.SequenceTagger, {"order": 2}, (ROWS, LABELS)),
    "pair features": (mm.SequenceTagger, {"pair_features": "all"}, (ROWS, LABELS)),
    "costs": (mm.SequenceTagger, {"loss": [[0.0, 1.0], [3.0, 0.0]]}, (ROWS, LABELS)),
}


@pytest.mark.parametrize(("estimator", "options", "data"), ESTIMATORS.values(), ids=ESTIMATORS)
def test_estimators(estimator, options, data):
    model = relaxed_fit(estimator(C=10.0, rescaling="slack", **options), *data)
    assert model.certificate_.relaxed
    assert model.status_ in ("converged", "relaxed")
    assert -1e-9 <= model.certificate_.relative_gap < 1.0
    # Not the same model: the losses of some mistakes are not one.
    other = estimator(C=0.1, **options).fit(*data)
    model = relaxed_fit(estimator(C=0.1, rescaling="slack", **options), *data)
    assert model.certificate_.dual != pytest.approx(other.certificate_.dual, rel=1e-3)


@pytest.mark.parametrize(
    ("estimator", "options", "data"),
    [
        (mm.GrammarParser, {"loss": "zero-one"}, (TREES,)),
        (mm.Ranker, {"loss": "pairwise"}, ESTIMATORS["ranking"][2]),
        (mm.SequenceTagger, {"loss": "zero-one"}, (ROWS, LABELS)),
    ],
)
def test_margin_and_slack_agree_where_every_mistake_costs_one(estimator, options, data):
    margin = estimator(**options).fit(*data)
    slack = estimator(rescaling="slack", **options).fit(*data)
    assert slack.certificate_.primal == margin.certificate_.primal
    assert slack.certificate_.dual == margin.certificate_.dual

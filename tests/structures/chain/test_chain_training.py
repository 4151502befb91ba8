"""Compiled chains against all labellings of the same sequences, one by one, in plain Python."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, compiled_chains, narrow, random_chains, widen

from maxmargin.compiled.threads import Threads
from maxmargin.core.result import Status
from maxmargin.core.stopping import Stopping
from maxmargin.solvers.auto import Auto
from maxmargin.solvers.cutting_plane import NSlack

ONE = Threads(1)

LOSSES = {
    "costs": {},
    "costs by length": {"normalized": True},
    "count": {"counting": True, "normalized": False},
    "zero-one": {"zero_one": True},
    "second order": {"order": 2},
    "features tied to pairs": {"n_tied": 2},
    "slack": {"counting": True, "rescaling": "slack"},
}

seeds = st.integers(0, 2**32 - 1)


def blocks_of(training):
    return np.arange(training.n_blocks, dtype=np.int64)


def dense(planes, training):
    """The planes as rows, in the layout of plain Python."""
    rows = np.zeros((len(planes.losses), training.n_features))
    owners = np.repeat(np.arange(len(rows)), np.diff(planes.starts))
    np.add.at(rows, (owners, planes.columns), planes.values)
    return np.array([narrow(row, training.layout) for row in rows])


def as_bytes(y):
    return np.array(y, dtype=np.uint16).tobytes()


def piece_of(case, i, output):
    """The referee's ``psi`` and ``loss`` of an output in bytes."""
    y = tuple(np.frombuffer(output, dtype=np.uint16).tolist())
    j = case.problem.outputs(case.X[i]).index(y)
    psi, losses = case.pieces
    return psi[i, j], losses[i, j]


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=20, deadline=None)
@example(seed=22711837, bias=False, ends=False, sparse=True, k=5, n_threads=1)  # an empty row alone
@given(
    seed=seeds,
    bias=st.booleans(),
    ends=st.booleans(),
    sparse=st.booleans(),
    k=st.sampled_from([1, 2, 3, 5]),
    n_threads=st.integers(1, 3),
)
def test_searches_find_the_best_of_all_labellings(loss, seed, bias, ends, sparse, k, n_threads):
    options = LOSSES[loss] | {"bias": bias, "ends": ends, "k": k, "longest": 5 if k < 4 else 3}
    case = random_chains(seed, n=5, shortest=0, **options)
    training = compiled_chains(case, sparse)
    random = np.random.default_rng(seed)
    psi, losses = case.pieces
    for scale in (0.0, 0.1, 1.0, 10.0):
        weights = scale * random.normal(size=psi.shape[2])
        blocks = random.permutation(5)[: random.integers(1, 6)]
        with Threads(n_threads) as threads:
            planes = training.planes(widen(weights, training.layout), blocks, threads)
        rows = dense(planes, training)
        for row, found, b, output in zip(rows, planes.losses, blocks, planes.outputs, strict=True):
            expected, expected_loss = piece_of(case, b, output)
            assert_allclose(row, expected, atol=1e-12)
            assert found == pytest.approx(expected_loss, abs=1e-12)
        hinges = (losses - psi @ weights).max(axis=1)
        slopes = planes.slopes(widen(weights, training.layout))
        assert_allclose(np.maximum(slopes, 0.0), hinges[blocks], atol=1e-10 * (1.0 + scale))
        assert training.primal(widen(weights, training.layout)) == pytest.approx(
            case.objective(weights), rel=1e-10, abs=1e-10
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_planes_of_all_labellings(loss, sparse):
    for seed in range(3):
        case = random_chains(seed, n=6, shortest=0, **LOSSES[loss])
        training = compiled_chains(case, sparse)
        psi, losses = case.pieces
        pairs = [
            (i, j, y) for i, x in enumerate(case.X) for j, y in enumerate(case.problem.outputs(x))
        ]
        order = np.random.default_rng(seed).permutation(len(pairs))  # blocks repeat, in any order
        which, places, outputs = zip(*(pairs[o] for o in order), strict=True)
        planes = training.planes_of(np.array(which), [as_bytes(y) for y in outputs])
        assert_allclose(dense(planes, training), psi[which, places], atol=1e-12)
        assert_allclose(planes.losses, losses[which, places], atol=1e-12)
        assert planes.outputs == [as_bytes(y) for y in outputs]


def test_the_truth_makes_an_empty_plane():
    training = compiled_chains(random_chains(0))
    truths = np.split(training.labels, training.sequences.ends[1:-1])
    planes = training.planes_of(blocks_of(training), [y.tobytes() for y in truths])
    assert not planes.starts.any()
    assert not planes.losses.any()


@pytest.mark.parametrize("loss", LOSSES)
def test_planes_do_not_depend_on_threads_or_on_company(loss):
    case = random_chains(1, n=40, **LOSSES[loss])
    training = compiled_chains(case)
    weights = widen(np.random.default_rng(0).normal(size=case.pieces[0].shape[2]), training.layout)
    everyone = blocks_of(training)
    expected = training.planes(weights, everyone, ONE)
    for n_threads in (2, 3, 64):
        with Threads(n_threads) as threads:
            found = training.planes(weights, everyone, threads)
        for one, other in zip(found[:4], expected[:4], strict=True):
            assert_array_equal(one, other)
        assert found.outputs == expected.outputs
    backwards = training.planes(weights, everyone[::-1].copy(), ONE)
    assert backwards.outputs == expected.outputs[::-1]
    assert_array_equal(dense(backwards, training)[::-1], dense(expected, training))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_and_sparse_rows_of_either_width(dtype):
    case = random_chains(2)
    rounded = Case(case.problem, [x.astype(dtype).astype(float) for x in case.X], case.Y, case.cost)
    weights = np.random.default_rng(0).normal(size=case.pieces[0].shape[2])
    for sparse in (False, True):
        training = compiled_chains(case, sparse, dtype)
        assert training.primal(widen(weights, training.layout)) == pytest.approx(
            rounded.objective(weights), rel=1e-12
        )


def test_more_blocks_than_are_valued_at_a_time():
    case = random_chains(3, n=2500, longest=2)
    training = compiled_chains(case)
    weights = np.random.default_rng(0).normal(size=case.pieces[0].shape[2])
    assert len(training.chunks()) == 3
    assert_array_equal(np.concatenate(training.chunks()), blocks_of(training))
    assert training.primal(widen(weights, training.layout)) == pytest.approx(
        case.objective(weights), rel=1e-10
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_optimum_is_the_referees(loss, sparse):
    case = random_chains(7, shortest=0, **LOSSES[loss])
    training = compiled_chains(case, sparse)
    result = Auto().solve(training, Stopping(1e-5))
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2e-5)
    assert result.certificate.dual <= case.optimum.value * (1.0 + 1e-9)
    weights = narrow(result.weights, training.layout)
    assert case.objective(weights) == pytest.approx(result.certificate.primal, rel=1e-12)


def empty_sequences():
    case = random_chains(0)
    return compiled_chains(
        Case(case.problem, [x[:0] for x in case.X], [y[:0] for y in case.Y], case.cost)
    )


@pytest.mark.parametrize(
    "solver",
    [
        NSlack(),
        Auto(),
    ],
)
def test_nothing_but_empty_sequences(solver):
    training = empty_sequences()
    assert training.search_work == 0.0
    assert training.planes_of(blocks_of(training), [b""] * training.n_blocks).outputs == [b""] * 8
    result = solver.solve(training, Stopping())
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == 0.0


def test_outputs_of_other_lengths_are_refused():
    training = compiled_chains(random_chains(0))
    longer = [as_bytes([0] * (n + 1)) for n in training.sequences.lengths]
    with pytest.raises(ValueError, match="length"):
        training.planes_of(blocks_of(training), longer)

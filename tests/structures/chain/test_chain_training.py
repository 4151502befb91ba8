"""Compiled chains against all labellings of the same sequences, one by one, in plain Python."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, compiled_chains, narrow, random_chains, widen

from maxmargin.core.oracle import Threads
from maxmargin.core.result import Status
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.cutting_plane import NSlack
from maxmargin.solvers.loop import Stopping

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


def blocks_of(oracle):
    return np.arange(oracle.n_examples, dtype=np.int64)


def dense(cuts, oracle):
    """The planes as rows, in the layout of plain Python."""
    rows = np.zeros((len(cuts.losses), oracle.n_features))
    owners = np.repeat(np.arange(len(rows)), np.diff(cuts.starts))
    np.add.at(rows, (owners, cuts.columns), cuts.values)
    return np.array([narrow(row, oracle.layout) for row in rows])


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
    oracle = compiled_chains(case, sparse)
    random = np.random.default_rng(seed)
    psi, losses = case.pieces
    for scale in (0.0, 0.1, 1.0, 10.0):
        weights = scale * random.normal(size=psi.shape[2])
        blocks = random.permutation(5)[: random.integers(1, 6)]
        with Threads(n_threads) as threads:
            cuts = oracle.separate(widen(weights, oracle.layout), blocks, threads)
        rows = dense(cuts, oracle)
        for row, found, b, output in zip(rows, cuts.losses, blocks, cuts.outputs, strict=True):
            expected, expected_loss = piece_of(case, b, output)
            assert_allclose(row, expected, atol=1e-12)
            assert found == pytest.approx(expected_loss, abs=1e-12)
        hinges = (losses - psi @ weights).max(axis=1)
        slopes = cuts.slopes(widen(weights, oracle.layout))
        assert_allclose(np.maximum(slopes, 0.0), hinges[blocks], atol=1e-10 * (1.0 + scale))
        assert oracle.primal(widen(weights, oracle.layout)) == pytest.approx(
            case.objective(weights), rel=1e-10, abs=1e-10
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_planes_of_all_labellings(loss, sparse):
    for seed in range(3):
        case = random_chains(seed, n=6, shortest=0, **LOSSES[loss])
        oracle = compiled_chains(case, sparse)
        psi, losses = case.pieces
        pairs = [
            (i, j, y) for i, x in enumerate(case.X) for j, y in enumerate(case.problem.outputs(x))
        ]
        order = np.random.default_rng(seed).permutation(len(pairs))  # blocks repeat, in any order
        which, places, outputs = zip(*(pairs[o] for o in order), strict=True)
        cuts = oracle.cuts_of(np.array(which), [as_bytes(y) for y in outputs])
        assert_allclose(dense(cuts, oracle), psi[which, places], atol=1e-12)
        assert_allclose(cuts.losses, losses[which, places], atol=1e-12)
        assert cuts.outputs == [as_bytes(y) for y in outputs]


def test_the_truth_makes_an_empty_plane():
    oracle = compiled_chains(random_chains(0))
    y_true = np.split(oracle.labels, oracle.sequences.ends[1:-1])
    cuts = oracle.cuts_of(blocks_of(oracle), [y.tobytes() for y in y_true])
    assert not cuts.starts.any()
    assert not cuts.losses.any()


@pytest.mark.parametrize("loss", LOSSES)
def test_planes_do_not_depend_on_threads_or_on_company(loss):
    case = random_chains(1, n=40, **LOSSES[loss])
    oracle = compiled_chains(case)
    weights = widen(np.random.default_rng(0).normal(size=case.pieces[0].shape[2]), oracle.layout)
    everyone = blocks_of(oracle)
    expected = oracle.separate(weights, everyone, ONE)
    for n_threads in (2, 3, 64):
        with Threads(n_threads) as threads:
            found = oracle.separate(weights, everyone, threads)
        for one, other in zip(found[:4], expected[:4], strict=True):
            assert_array_equal(one, other)
        assert found.outputs == expected.outputs
    backwards = oracle.separate(weights, everyone[::-1].copy(), ONE)
    assert backwards.outputs == expected.outputs[::-1]
    assert_array_equal(dense(backwards, oracle)[::-1], dense(expected, oracle))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_and_sparse_rows_of_either_width(dtype):
    case = random_chains(2)
    rounded = Case(case.problem, [x.astype(dtype).astype(float) for x in case.X], case.Y, case.C)
    weights = np.random.default_rng(0).normal(size=case.pieces[0].shape[2])
    for sparse in (False, True):
        oracle = compiled_chains(case, sparse, dtype)
        assert oracle.primal(widen(weights, oracle.layout)) == pytest.approx(
            rounded.objective(weights), rel=1e-12
        )


def test_more_blocks_than_are_valued_at_a_time():
    case = random_chains(3, n=2500, longest=2)
    oracle = compiled_chains(case)
    weights = np.random.default_rng(0).normal(size=case.pieces[0].shape[2])
    assert len(oracle.chunks()) == 3
    assert_array_equal(np.concatenate(oracle.chunks()), blocks_of(oracle))
    assert oracle.primal(widen(weights, oracle.layout)) == pytest.approx(
        case.objective(weights), rel=1e-10
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_optimum_is_the_referees(loss, sparse):
    case = random_chains(7, shortest=0, **LOSSES[loss])
    oracle = compiled_chains(case, sparse)
    result = Auto().solve(oracle, Stopping(1e-5))
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2e-5)
    assert result.certificate.dual <= case.optimum.value * (1.0 + 1e-9)
    weights = narrow(result.weights, oracle.layout)
    assert case.objective(weights) == pytest.approx(result.certificate.primal, rel=1e-12)


def empty_sequences():
    case = random_chains(0)
    return compiled_chains(
        Case(case.problem, [x[:0] for x in case.X], [y[:0] for y in case.Y], case.C)
    )


@pytest.mark.parametrize(
    "solver",
    [
        NSlack(),
        Auto(),
    ],
)
def test_nothing_but_empty_sequences(solver):
    oracle = empty_sequences()
    assert oracle.oracle_work == 0.0
    assert oracle.cuts_of(blocks_of(oracle), [b""] * oracle.n_examples).outputs == [b""] * 8
    result = solver.solve(oracle, Stopping())
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == 0.0


def test_outputs_of_other_lengths_are_refused():
    oracle = compiled_chains(random_chains(0))
    longer = [as_bytes([0] * (n + 1)) for n in oracle.sequences.lengths]
    with pytest.raises(ValueError, match="length"):
        oracle.cuts_of(blocks_of(oracle), longer)

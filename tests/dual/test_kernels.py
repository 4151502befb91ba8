"""Kernels against their formulas, the tables that grow, the cache, and kernels that are none."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.core.kernel import (
    FunctionKernel,
    JointKernel,
    KernelError,
    LinearKernel,
    NewOutputs,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    check_gram,
    make_kernel,
)
from maxmargin.dual.kernel_cuts import GrowingGram, KernelCuts
from maxmargin.solvers.kernel_classes_dual import KernelRowCache

FORMULAS = {
    LinearKernel(): lambda a, b: a @ b,
    PolynomialKernel(degree=3, gamma=0.5, coef0=2.0): lambda a, b: (0.5 * a @ b + 2.0) ** 3,
    RBFKernel(gamma=0.7): lambda a, b: np.exp(-0.7 * np.sum((a - b) ** 2)),
}


def random_rows(seed, n=9, d=4):
    random = np.random.default_rng(seed)
    return random.normal(size=(n, d)) * (random.random((n, d)) < 0.7)


@pytest.mark.parametrize("kernel", FORMULAS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_values_are_those_of_the_formula(kernel, form):
    A, B = random_rows(0), random_rows(1, n=5)
    formula = FORMULAS[kernel]
    expected = [[formula(a, b) for b in B] for a in A]
    assert_allclose(kernel(form(A), form(B)), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", FORMULAS, ids=lambda kernel: kernel.name)
def test_single_precision_stays_single(kernel):
    A = random_rows(0).astype(np.float32)
    values = kernel(A, A)
    assert values.dtype == np.float32
    assert_allclose(values, kernel(A.astype(float), A.astype(float)), rtol=1e-4, atol=1e-5)


def test_kernels_by_name():
    assert make_kernel("linear") == LinearKernel()
    assert make_kernel("rbf", gamma=0.3) == RBFKernel(0.3)
    assert make_kernel("polynomial", 0.3, 2, 0.5) == PolynomialKernel(2, 0.3, 0.5)
    assert isinstance(make_kernel(np.dot), FunctionKernel)
    with pytest.raises(KernelError, match=r"no kernel 'sigmoid'.*'linear'"):
        make_kernel("sigmoid")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_gamma_by_scale_is_scikit_learns(form):
    X = random_rows(3)
    assert RBFKernel().fitted(form(X)).gamma == pytest.approx(1.0 / (X.shape[1] * X.var()))
    assert RBFKernel().fitted(np.ones((3, 2))).gamma == 1.0


def test_functions_of_users():
    A, B = random_rows(0), random_rows(1, n=5)
    vectorised = FunctionKernel(lambda a, b: a @ b.T)
    pairwise = FunctionKernel(lambda a, b: float(a @ b), pairwise=True)
    assert_allclose(vectorised(A, B), A @ B.T)
    assert_allclose(pairwise(pairwise.rows(A), pairwise.rows(B)), A @ B.T)
    joint = JointKernel(lambda x, y, x2, y2: x * x2 + (y == y2))
    rows = joint.rows([(1.0, "a"), (2.0, "b")])
    assert_array_equal(joint(rows, rows), [[2.0, 2.0], [2.0, 5.0]])


def test_function_that_returns_no_numbers():
    rows = random_rows(0)
    with pytest.raises(KernelError, match=r"the kernel <lambda> must return an array of shape \(9"):
        FunctionKernel(lambda a, b: a)(rows, rows)
    with pytest.raises(KernelError, match="must return a number, but returned"):
        FunctionKernel(lambda a, b: "x", pairwise=True)(rows, rows)


def test_things_that_are_no_rows():
    with pytest.raises(KernelError, match="RBFKernel compares rows of numbers"):
        RBFKernel().rows(["a", "bc"])
    assert FunctionKernel(min, pairwise=True).rows(["a", "bc"]).dtype == object


def test_products_are_made_of_names_and_functions():
    product = ProductKernel("linear", RBFKernel(2.0))
    assert (product.parts, product.labels) == (LinearKernel(), RBFKernel(2.0))


# Kernels that are none


def test_asymmetric_kernel_is_named():
    gram = np.eye(3)
    gram[0, 2] = 0.5
    with pytest.raises(KernelError, match=r"mine is not symmetric: .* 0.5 one way and 0 the other"):
        check_gram(gram, "mine")


def test_indefinite_kernel_is_named():
    rows = random_rows(0)
    distances = ((rows[:, None] - rows) ** 2).sum(axis=2)
    with pytest.raises(KernelError, match=r"mine is not positive semi-definite.*eigenvalue -"):
        check_gram(-distances, "mine")


def test_nan_is_named():
    with pytest.raises(KernelError, match="mine gives NaN or infinity"):
        check_gram(np.array([[np.nan]]), "mine")


def test_rounding_is_forgiven():
    rows = random_rows(0, n=60, d=3)
    check_gram(rows @ rows.T, "mine")
    check_gram(RBFKernel(1e-6)(rows, rows), "mine")


def large_only_when_apart(a, b):
    """Looks like a kernel among rows of the same kind."""
    same = a[:, None, 0] == b[:, 0]
    return np.where(same, 1.0 + (a @ b.T), 3.0 + (a @ b.T))


def test_indefinite_kernel_is_found_while_it_grows():
    table = GrowingGram(FunctionKernel(large_only_when_apart))
    table.add(np.zeros((3, 1)))
    with pytest.raises(KernelError, match="large_only_when_apart is not positive semi-definite"):
        table.add(0.1 * np.ones((3, 1)))


def test_asymmetric_kernel_is_found_while_it_grows():
    table = GrowingGram(FunctionKernel(lambda a, b: np.exp(-np.maximum(a - b.T, 0.0))))
    table.add(np.array([[0.0]]))
    with pytest.raises(KernelError, match="not symmetric"):
        table.add(np.array([[1.0]]))


# The table


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), form=st.sampled_from([np.asarray, sp.csr_array]))
def test_table_grows_by_new_times_all(seed, form):
    random = np.random.default_rng(seed)
    pool = random_rows(seed, n=150)
    pool = pool[np.unique(pool, axis=0, return_index=True)[1]]
    table, kernel = GrowingGram(RBFKernel(0.5)), RBFKernel(0.5)
    most = 0
    for _ in range(6):
        which = random.integers(0, len(pool), random.integers(1, 40))
        before = len(table)
        numbers = table.add(form(pool[which]))
        most += (len(table) - before) * len(table) + 1  # one more, to see that it is symmetric
        kept = table.rows.toarray() if sp.issparse(table.rows) else table.rows
        assert_array_equal(kept[numbers], pool[which])
        assert len(np.unique(kept, axis=0)) == len(kept) == len(table)
        assert_allclose(table.gram, kernel(kept, kept), atol=1e-12)
        assert table.evaluations <= most
        if random.random() < 0.3:
            stay = np.sort(random.permutation(len(table))[: len(table) // 2 + 1])
            expected = kept[stay]
            table.keep(stay)
            kept = table.rows.toarray() if sp.issparse(table.rows) else table.rows
            assert_array_equal(kept, expected)
            assert_allclose(table.gram, kernel(kept, kept), atol=1e-12)


def test_objects_are_kept_once():
    kernel = FunctionKernel(lambda a, b: float(len(set(a) & set(b))), pairwise=True)
    table = GrowingGram(kernel)
    assert_array_equal(table.add(kernel.rows(["ab", "bc", "ab"])), [0, 1, 0])
    assert_array_equal(table.add(kernel.rows(["bc", "c"])), [1, 2])
    pairs = GrowingGram(FunctionKernel(lambda a, b: float(a[1] == b[1]), pairwise=True))
    first, second = [np.zeros(2), "y"], [np.zeros(2), "y"]  # equal, as far as anybody can tell
    rows = pairs.kernel.rows([tuple(first), tuple(second), (np.ones(2), "y")])
    assert_array_equal(pairs.add(rows), [0, 0, 1])


# The cache


def test_cache_is_bounded_and_right():
    X = random_rows(0, n=50)
    kernel = RBFKernel(0.4)
    gram = kernel(X, X)
    cache = KernelRowCache(kernel, X, max_bytes=10 * 50 * 8, least=4)
    assert cache.values.shape == (10, 50)
    assert_allclose(cache.diagonal, gram.diagonal())
    random = np.random.default_rng(0)
    for _ in range(60):
        rows = random.permutation(50)[: random.integers(1, 5)]
        assert_allclose(cache.values[cache.slots(rows)], gram[rows])


def test_cache_drops_what_was_used_least_recently():
    X = random_rows(0, n=6)
    cache = KernelRowCache(RBFKernel(0.4), X, max_bytes=3 * 6 * 8, least=2)
    for row in (0, 1, 2, 0):
        cache.slots(np.array([row]))
    before = cache.evaluations
    cache.slots(np.array([3]))  # in the place of 1
    assert cache.evaluations == before + 6
    cache.slots(np.array([0, 2]))
    assert cache.evaluations == before + 6
    cache.slots(np.array([1]))
    assert cache.evaluations == before + 12


# Steps over outputs in hand


def outputs(blocks, rows, losses):
    n = len(blocks)
    return NewOutputs(
        np.asarray(blocks), list(range(n)), np.asarray(losses, dtype=float), rows,
        np.zeros((n, 1)), np.zeros(n),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_steps_never_lower_the_dual_and_keep_the_scores(seed):
    random = np.random.default_rng(seed)
    n, C = 6, random.uniform(0.1, 2.0, 6)
    cuts = KernelCuts(C, ProductKernel(RBFKernel(0.3), "linear"))
    cuts.labels.add(np.ones((1, 1)))
    y_true = outputs(np.arange(n), random.normal(size=(n, 3)), np.zeros(n))
    dual = 0.0
    for _ in range(4):
        m = int(random.integers(1, 8))
        new = outputs(random.integers(0, n, m), random.normal(size=(m, 3)), random.random(m))
        new = new._replace(labels=np.ones((m, 1)))
        cuts.add(new, y_true._replace(labels=np.ones((n, 1))).take)
        assert cuts.dual == pytest.approx(dual, abs=1e-12)
        gap, _ = cuts.solve(None, 1e-9, 10_000)
        assert gap <= 1e-9
        assert cuts.dual >= dual - 1e-12
        dual = cuts.dual
        atoms = cuts.atoms
        assert (atoms.coef >= 0.0).all()
        assert_allclose(np.bincount(atoms.examples, weights=atoms.coef)[atoms.examples],
                        C[atoms.examples], rtol=1e-9)  # fmt: skip
        gram = cuts.parts.gram[np.ix_(atoms.parts, atoms.parts)]
        gram = gram * cuts.labels.gram[np.ix_(atoms.labels, atoms.labels)]
        assert_allclose(atoms.scores, gram @ cuts.factors, atol=1e-10)
        highest = [
            max(atoms.losses[k] + atoms.scores[k] for k in np.flatnonzero(atoms.examples == i))
            - atoms.scores[np.flatnonzero((atoms.examples == i) & atoms.is_true_output)[0]]
            for i in np.unique(atoms.examples)
        ]
        assert_allclose(cuts.slacks()[np.unique(atoms.examples)], highest, atol=1e-12)


def test_idle_outputs_go_with_their_rows():
    cuts = KernelCuts(np.ones(2), ProductKernel("linear", "linear"))
    y_true = outputs([0, 1], np.array([[1.0, 0.0], [0.0, 1.0]]), [0.0, 0.0])
    y_true = y_true._replace(labels=np.ones((2, 1)))
    new = outputs([0, 0, 1], np.array([[0.0, 1.0], [0.5, 0.0], [-1.0, 0.0]]), [1.0, 0.0, 0.0])
    cuts.add(new._replace(labels=np.ones((3, 1))), y_true.take)
    cuts.solve(None, 1e-12, 1000)
    for _ in range(3):
        cuts.note_idle()
    assert len(cuts) == 3
    dual = cuts.dual
    cuts.drop_idle(4)
    assert len(cuts) == 3  # not idle for long enough
    cuts.drop_idle(3)
    assert len(cuts) == 1
    assert len(cuts.parts) == 2
    assert cuts.dual == dual
    cuts.add(new._replace(labels=np.ones((3, 1))), y_true.take)  # they may come back
    assert len(cuts) == 3
    assert cuts.dual == dual

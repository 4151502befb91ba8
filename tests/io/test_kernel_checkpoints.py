"""Checkpoints of kernel solves: killed, they go on to the same answer, bit for bit."""

import dataclasses
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from pose_scenes import hooks
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.kernel import (
    FunctionKernel,
    JointKernel,
    KernelProblem,
    ProductKernel,
    RBFKernel,
)
from maxmargin.core.kernel_oracle import ClassOracle, KernelClasses, KernelOracle, Multiclass
from maxmargin.core.state import capture, restore
from maxmargin.io.checkpoint import Checkpoint, CheckpointWarning
from maxmargin.solvers.kernel_classes_dual import KernelClassesDual, KernelRowCache
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.mini_batch_dual import MiniBatchDual

pytestmark = pytest.mark.filterwarnings("error::maxmargin.CheckpointWarning")

ROUNDS = 25


class KilledError(BaseException):
    pass


def killer(after):
    """Ends a solve in its round `after`, before the checkpoint of that round."""
    left = [after]

    def on_iteration(line, model):
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        return False

    return on_iteration


class Levels(KernelProblem):
    def outputs(self, x):
        return [0, 1, 2]

    def loss(self, y_true, y):
        return abs(y_true - y)


def levels(kernel=None, form=np.asarray, rescaling="margin"):
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 2))
    Y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.2]).tolist()
    kernel = kernel or ProductKernel(RBFKernel(0.5), RBFKernel(0.3))
    return KernelOracle(Levels(), form(X), Y, np.full(40, 2.0), kernel, rescaling)


def of_both(x, y, x2, y2):
    return float(np.exp(-0.5 * np.sum((x - x2) ** 2)) * (y == y2))


def classes(loss=None):
    random = np.random.default_rng(1)
    X, labels = random.normal(size=(300, 3)), random.integers(0, 4, 300)
    loss = 1.0 - np.eye(4) if loss is None else loss
    return ClassOracle(KernelClasses(np.arange(4), loss), X, labels, np.ones(300), RBFKernel(0.5))


CASES = {
    "mini-batches": (levels, MiniBatchDual(batch_size=7, prune_every=3, max_idle=2)),
    "several outputs": (levels, MiniBatchDual(batch_size=3, outputs_per_call=2, diversity=0.3)),
    "closed-form steps": (levels, MiniBatchDual(steps="smo", batch_size=5)),
    "slack": (lambda: levels(rescaling="slack"), MiniBatchDual(batch_size=7)),
    "epsilon": (levels, MiniBatchDual(batch_size=7, epsilon=1e-3)),
    "CSR rows": (lambda: levels(form=sp.csr_array), MiniBatchDual(batch_size=7)),
    "pairs of inputs and outputs": (
        lambda: levels(JointKernel(of_both)),
        MiniBatchDual(batch_size=7, prune_every=2, max_idle=1),
    ),
    "classes": (classes, KernelClassesDual()),
    "classes, few kernel rows": (classes, KernelClassesDual(cache_bytes=1)),
}


def solve(case, on_iteration=None, checkpoint=None, **options):
    make, solver = CASES[case]
    stopping = Stopping(**({"tol": 1e-9, "max_iter": ROUNDS} | options))
    return solver.solve(make(), stopping, on_iteration=on_iteration, checkpoint=checkpoint)


def assert_same_model(found, expected):
    for name in ("parts", "labels", "factors"):
        one, other = getattr(found, name), getattr(expected, name)
        if sp.issparse(one):
            one, other = one.toarray(), other.toarray()
        if one.dtype == object:
            one, other = list(map(repr, one)), list(map(repr, other))
        assert_array_equal(one, other)


def assert_same(found, expected):
    assert_same_model(found.weights, expected.weights)
    assert found.certificate == expected.certificate
    assert found.status == expected.status
    timeless = [
        [dataclasses.replace(line, seconds=0.0) for line in result.history]
        for result in (found, expected)
    ]
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize("case", CASES)
def test_killed_solves_go_on_to_the_same_answer(case, tmp_path):
    path = tmp_path / "run.checkpoint"
    expected = solve(case)
    assert len(expected.history) > 9
    for after in [0, 1, 7]:
        with pytest.raises(KilledError):
            solve(case, killer(after), Checkpoint(path, every=0.0, resume=True))
    found = solve(case, checkpoint=Checkpoint(path, every=0.0, resume=True))
    assert_same(found, expected)
    # The last state is there, too: nothing is left to do.
    again = solve(case, checkpoint=Checkpoint(path, resume=True))
    assert_same(again, expected)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("case", CASES)
def test_converged_solves_are_not_solved_again(case, tmp_path):
    path = tmp_path / "run.checkpoint"
    options = {"tol": 1e-2, "max_iter": 1000}
    expected = solve(case, checkpoint=Checkpoint(path), **options)
    assert expected.status == "converged"
    iterations = []
    found = solve(
        case, lambda *line: bool(iterations.append(line)), Checkpoint(path, resume=True), **options
    )
    assert not iterations
    assert_same(found, expected)


def test_kernel_rows_come_back_bit_for_bit():
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    random = np.random.default_rng(1)
    cache, other = (KernelRowCache(RBFKernel(0.4), X, 20 * 60 * 4, 8) for _ in range(2))
    for _ in range(30):
        cache.slots(random.permutation(60)[: random.integers(1, 9)])
    tree, arrays = capture(cache)
    restore(tree, {name: array.copy() for name, array in arrays.items()}, other)
    held = cache.row_in >= 0
    assert_array_equal(other.values[held], cache.values[held])
    assert_array_equal(other.slot_of, cache.slot_of)
    for _ in range(5):
        rows = random.permutation(60)[:8]
        assert_array_equal(cache.slots(rows), other.slots(rows))
        assert cache.evaluations == other.evaluations


@pytest.mark.parametrize(
    ("case", "make", "sentence"),
    [
        ("mini-batches", lambda: levels(RBFKernel(0.5)), "other data, or of another C, loss"),
        ("mini-batches", lambda: levels(rescaling="slack"), "other data, or of another C, loss"),
        ("classes", lambda: classes(2.0 - 2.0 * np.eye(4)), "other data, or of another C, loss"),
    ],
)
def test_other_data_are_refused(case, make, sentence, tmp_path):
    path = tmp_path / "run.checkpoint"
    solve(case, checkpoint=Checkpoint(path), max_iter=2)
    with pytest.raises(ValueError, match=sentence):
        CASES[case][1].solve(make(), Stopping(tol=1e-9), checkpoint=Checkpoint(path, resume=True))


class Killer:
    """A callback that ends the process, nearly."""

    def setup(self, estimator, context):
        self.left = 3

    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, *arguments, **more): ...

    def on_fit_task_end(self, *arguments, **more):
        self.left -= 1
        if self.left < 0:
            raise KilledError


def common_letters(a, b):
    return float(len(set(a) & set(b)))


WORDS = ["abab", "abba", "babab", "cdcd", "cddc", "dcdcd", "abcd", "bcbc"]
ESTIMATORS = {
    "problem": (
        lambda **options: mm.KernelStructuredSVM(
            Levels(), kernel=ProductKernel(RBFKernel(0.5), RBFKernel(0.3)), **options
        ),
        lambda: (levels().X, levels().Y),
    ),
    "classes": (
        lambda **options: mm.KernelStructuredSVM(Multiclass(), gamma=0.5, **options),
        lambda: (classes().X, classes().labels),
    ),
    "words": (
        lambda **options: mm.KernelStructuredSVM(
            Multiclass(), kernel=FunctionKernel(common_letters, pairwise=True), **options
        ),
        lambda: (WORDS, list("aaabbbcc")),
    ),
    "poses": (
        lambda **options: mm.PoseEstimator(window=16, n_angles=8, **options),
        lambda: hooks(12),
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name, tmp_path):
    make, data = ESTIMATORS[name]
    options = {"tol": 1e-7, "max_iter": 9}
    kept = {"checkpoint": Checkpoint(tmp_path / "run", every=0.0, resume=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = make(**options).fit(*data())
        with pytest.raises(KilledError):
            make(**options, **kept).set_callbacks(Killer()).fit(*data())
        found = make(**options, **kept).fit(*data())
    assert_same_model(found.model_, expected.model_)
    assert found.certificate_ == expected.certificate_
    assert found.n_iter_ == expected.n_iter_


class Odd:
    """An output that has no plain form."""


def test_outputs_without_a_plain_form_are_named(tmp_path):
    odd = Odd()

    class Strange(KernelProblem):
        def outputs(self, x):
            return [odd]

        def loss(self, y_true, y):
            return float(y_true is not y)

        def label(self, y):
            return float(y is odd)

    model = mm.KernelStructuredSVM(Strange(), kernel=ProductKernel("linear", "linear"))
    model.set_params(checkpoint=tmp_path / "run")
    with pytest.warns(CheckpointWarning, match="Odd"):
        model.fit(np.eye(2), [None, None])
    assert not (tmp_path / "run").exists()

"""Checkpoints: a solve that was killed goes on to the same answer, bit for bit."""

import dataclasses
import errno
import json
import math
import os
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from linear_problems import KINDS, random_case
from numpy.testing import assert_array_equal
from safetensors.numpy import save_file
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from structured_referee import compiled_chains, random_chains, random_classes

import maxmargin as mm
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.linear import OneVersusRest, ScalarProblem
from maxmargin.core.slack_rescaling import SlackRescaledOracle
from maxmargin.core.state import UnwritableError, capture, restore
from maxmargin.io import checkpoint as checkpoint_module
from maxmargin.io.checkpoint import Checkpoint, CheckpointWarning
from maxmargin.io.files import read_tensors, write_tensors
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.graph.problem import GraphLabelling
from maxmargin.structures.rows.oracle import Classes

pytestmark = pytest.mark.filterwarnings("error::maxmargin.CheckpointWarning")

SOLVERS = {
    "auto": mm.Auto(),
    "dual-coordinate": mm.DualCoordinate(),
    "frank-wolfe": mm.FrankWolfe(evaluate_every=3),
    "pairwise": mm.FrankWolfe(step="pairwise", cache_sweeps=2, gap_sampling=True),
    "batch": mm.FrankWolfe(block=False),
    "n-slack": mm.NSlack(update_every=3),
    "one-slack": mm.OneSlack(),
    "one-slack-steps": mm.OneSlack(line_search=True, cache=0),
    "partial-linearization": mm.PartialLinearization(),
    "fixed-temperature": mm.PartialLinearization(temperature=0.3, block=False),
    "online": mm.Online(),
    "exponentiated-gradient": mm.ExponentiatedGradient(),
}
ROUNDS = 25


class KilledError(BaseException):
    pass


def solve(oracle, solver, on_iteration=None, checkpoint=None, **options):
    stopping = Stopping(**({"tol": 1e-9, "max_iter": ROUNDS} | options))
    return solver.solve(oracle, stopping, on_iteration=on_iteration, checkpoint=checkpoint)


def killer(after):
    """Ends a solve in its round `after`, before the checkpoint of that round."""
    left = [after]

    def on_iteration(line, weights):
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        return False

    return on_iteration


def assert_same(found, expected):
    assert_array_equal(found.weights, expected.weights)
    assert found.certificate == expected.certificate
    assert found.status == expected.status
    timeless = [
        [dataclasses.replace(line, seconds=0.0) for line in result.history]
        for result in (found, expected)
    ]
    assert timeless[0] == timeless[1]
    seconds = [line.seconds for line in found.history]
    assert seconds == sorted(seconds)


def chains():
    return compiled_chains(random_chains(3, n=12, longest=5))


@pytest.mark.parametrize("name", SOLVERS)
def test_killed_solves_go_on_to_the_same_answer(name, tmp_path):
    solver, path = SOLVERS[name], tmp_path / "run.checkpoint"
    expected = solve(chains(), solver)
    for after in [0, 1, 4, 5]:
        with pytest.raises(KilledError):
            solve(chains(), solver, killer(after), Checkpoint(path, every=0.0, resume=True))
    found = solve(chains(), solver, checkpoint=Checkpoint(path, every=0.0, resume=True))
    assert_same(found, expected)
    # The last state is there, too: nothing is left to do.
    again = solve(chains(), solver, checkpoint=Checkpoint(path, resume=True))
    assert_same(again, expected)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def classes():
    case = random_classes(1)
    return case.oracle()


def graphs(inference_method="exact"):
    random = np.random.default_rng(0)
    edges = np.array([(u, v) for u in range(5) for v in range(u)])
    X = [(random.normal(size=(5, 2)), edges) for _ in range(8)]
    Y = [random.integers(0, 3, 5) for _ in X]
    return GraphLabelling(3, inference_method=inference_method).make_oracle(X, Y, np.ones(8))


def relaxed_graphs():
    return graphs("relaxed")


TRAINING = {
    "plain Python": classes,
    "graphs": graphs,
    "relaxed searches that remember": relaxed_graphs,
    "slack rescaling": lambda: SlackRescaledOracle(relaxed_graphs()),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("solver", ["auto", "one-slack", "partial-linearization"])
def test_other_training_sets(name, solver, tmp_path):
    make, path = TRAINING[name], tmp_path / "run.checkpoint"
    if solver == "partial-linearization" and name not in ("plain Python", "graphs"):
        pytest.skip("needs exact searches")
    expected = solve(make(), SOLVERS[solver], max_iter=8)
    with pytest.raises(KilledError):
        solve(make(), SOLVERS[solver], killer(1), Checkpoint(path, 0.0), max_iter=8)
    checkpoint = Checkpoint(path, 0.0, resume=True)
    found = solve(make(), SOLVERS[solver], checkpoint=checkpoint, max_iter=8)
    assert_same(found, expected)


LINEAR = {
    "plain": mm.SequentialDual(),
    "not averaged": mm.SequentialDual(averaging=False, skip_idle_examples=False),
    "not accelerated": mm.SequentialDual(acceleration=False, skip_small_violations=False),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("solver", LINEAR.values(), ids=LINEAR)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_linear_problems(solver, kind, nonnegative, tmp_path):
    def problem():
        return random_case(kind, 2, bias=1.0, nonnegative=nonnegative, n=60).problem

    path = tmp_path / "run.checkpoint"
    options = {"tol": 1e-6, "max_iter": 400}
    expected = solve(problem(), solver, **options)
    for after in [0, 1, 7]:
        checkpoint = Checkpoint(path, 0.0, resume=True)
        with pytest.raises(KilledError):
            solve(problem(), solver, killer(after), checkpoint, **options)
    for _ in range(2):
        checkpoint = Checkpoint(path, 0.0, resume=True)
        found = solve(problem(), solver, checkpoint=checkpoint, **options)
        assert_same(found, expected)
        assert_array_equal(found.dual_point, expected.dual_point)


def test_parts_that_are_done_are_not_solved_again(tmp_path):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(80, 4)), random.integers(0, 5, 80)
    signs = np.where(y[:, None] == np.arange(5), 1.0, -1.0)
    parts = tuple(
        ScalarProblem.hinge(column, np.ones(80), np.ones(80), X=X, bias=1.0) for column in signs.T
    )
    path = tmp_path / "run.checkpoint"
    options = {"tol": 1e-4, "max_iter": 300}
    expected = solve(OneVersusRest(parts), mm.SequentialDual(), **options)
    with pytest.raises(KilledError):
        solve(
            OneVersusRest(parts), mm.SequentialDual(), killer(2), Checkpoint(path, 0.0), **options
        )
    iterations = []
    found = solve(
        OneVersusRest(parts),
        mm.SequentialDual(),
        lambda line, weights: bool(iterations.append(line)),
        Checkpoint(path, 0.0, resume=True),
        **options,
    )
    assert len(iterations) == 3  # the third was under way
    assert_same(found, expected)


def test_streams(tmp_path):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 4)), random.integers(0, 3, 60)
    path = tmp_path / "run.checkpoint"

    def stream():
        return mm.SourceStream.of(
            Classes(4, 3), mm.data.open_examples(X, y, batch_bytes=20 * 32), C=1.0
        )

    options = {"tol": 1e-9, "max_iter": 6}
    expected = solve(stream(), mm.Online(), **options)
    with pytest.raises(KilledError):
        solve(stream(), mm.Online(), killer(2), Checkpoint(path, 0.0), **options)
    found = solve(stream(), mm.Online(), checkpoint=Checkpoint(path, 0.0, resume=True), **options)
    assert_same(found, expected)


ESTIMATORS = {
    "classifier": (mm.LinearClassifier, {}),
    "one-vs-rest": (mm.LinearClassifier, {"formulation": "one-vs-rest"}),
    "nonnegative": (mm.LinearClassifier, {"nonnegative": True}),
    "regressor": (mm.LinearRegressor, {}),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("estimator", "options"), ESTIMATORS.values(), ids=ESTIMATORS)
def test_linear_estimators(estimator, options, streamed, tmp_path, monkeypatch):
    monkeypatch.setattr("maxmargin.training.linear_streams.SMALL_BATCH", 1)
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 5))
    y = (
        random.normal(size=300)
        if estimator is mm.LinearRegressor
        else random.choice(["a", "b", "c"], 300)
    )
    source = mm.data.open_examples(X, y, batch_bytes=60 * 40)
    data = [source] if streamed else [X, y]
    options = options | {"tol": 1e-7, "max_iter": 12, "C": 1.0}

    path = tmp_path / "run.checkpoint"
    kept = {"checkpoint": Checkpoint(path, every=0.0, resume=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = estimator(**options).fit(*data)
        with pytest.raises(KilledError):
            estimator(**options, **kept).set_callbacks(AfterRounds(3, kill)).fit(*data)
        assert path.exists()
        found = estimator(**options, **kept).fit(*data)
    assert_same_model(found, expected)


def kill():
    raise KilledError


class AfterRounds:
    """A callback that does something after so many rounds and the next one."""

    def __init__(self, iterations, do):
        self.left, self.do = iterations, do

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, *arguments, **more):
        pass

    def on_fit_task_end(self, *arguments, **more):
        self.left -= 1
        if self.left == -1:
            self.do()


def assert_same_model(found, expected):
    assert_array_equal(found.coef_, expected.coef_)
    assert found.certificate_ == expected.certificate_
    assert found.n_iter_ == expected.n_iter_


@pytest.fixture
def usual_interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("model", [mm.LinearClassifier(), mm.SequenceTagger()], ids=str)
def test_ctrl_c_keeps_the_round(model, tmp_path, usual_interrupts):
    """However long the time between checkpoints is; and the next fit goes on from there."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(300, 5)), random.choice(["a", "b", "c"], 300)
    data = (X, y) if isinstance(model, mm.LinearClassifier) else ([*X[:, None]], [*y[:, None]])
    model.set_params(tol=1e-7, max_iter=12)
    path = tmp_path / "run.checkpoint"
    stopped = clone(model).set_params(checkpoint=Checkpoint(path, every=1e9))
    stopped.set_callbacks(AfterRounds(3, partial(signal.raise_signal, signal.SIGINT)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = clone(model).fit(*data)
        stopped.fit(*data)
        assert stopped.status_ == "interrupted"
        assert stopped.n_iter_ == 4
        found = clone(model).set_params(checkpoint=Checkpoint(path, resume=True)).fit(*data)
    assert_same_model(found, expected)


def test_a_second_ctrl_c_comes_at_once(tmp_path, usual_interrupts):
    class ImpatientError(Exception):
        pass

    def twice():
        signal.raise_signal(signal.SIGINT)
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImpatientError from None

    X, y = np.eye(3), ["a", "b", "c"]
    model = mm.LinearClassifier(tol=1e-12, checkpoint=tmp_path / "run.checkpoint")
    with pytest.raises(ImpatientError):
        model.set_callbacks(AfterRounds(0, twice)).fit(X, y)


def test_more_rounds_and_another_time_limit_are_no_other_parameters(tmp_path):
    path = tmp_path / "run.checkpoint"
    solve(chains(), SOLVERS["auto"], checkpoint=Checkpoint(path), max_iter=3)
    checkpoint = Checkpoint(path, resume=True)
    found = solve(chains(), SOLVERS["auto"], checkpoint=checkpoint, time_limit=1000.0)
    assert_same(found, solve(chains(), SOLVERS["auto"]))


def test_time_before_counts_in_the_history_but_not_for_the_limit(tmp_path):
    path = tmp_path / "run.checkpoint"
    first = solve(chains(), SOLVERS["auto"], checkpoint=Checkpoint(path), max_iter=3)
    stopping = Stopping(tol=1e-9, max_iter=6, time_limit=100.0)
    again = SOLVERS["auto"].solve(chains(), stopping, checkpoint=Checkpoint(path, resume=True))
    assert again.history[:3] == first.history
    assert again.history[3].seconds > first.history[2].seconds
    assert stopping.seconds > first.history[2].seconds
    stopping.earlier = 1000.0
    assert not stopping.out_of_time


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_writes_are_not_more_often_than_asked_for(every, tmp_path, monkeypatch):
    writes = []
    monkeypatch.setattr(checkpoint_module, "write_tensors", lambda *_: writes.append(None))
    solve(chains(), SOLVERS["auto"], checkpoint=Checkpoint(tmp_path / "run", every), max_iter=5)
    assert len(writes) == (5 if every == 0.0 else 1)  # the last state is always kept


def other_chains():
    case = random_chains(3, n=12, longest=5)
    case.X[-1] = case.X[-1] + 1e-9
    return compiled_chains(case)


@pytest.mark.parametrize(
    ("make", "solver", "options", "sentence"),
    [
        (other_chains, mm.Auto(), {}, "of other data, or of another C, loss or the like: "),
        (chains, mm.Auto(max_steps=3), {}, r"of other parameters \(solver Auto\("),
        (chains, mm.OneSlack(), {}, r"of other parameters \(solver Auto\("),
        (chains, mm.Auto(), {"tol": 1e-3}, r"of other parameters \(tol 1e-09, not 0.001\)"),
    ],
)
def test_other_data_or_parameters_are_refused(make, solver, options, sentence, tmp_path):
    path = tmp_path / "run.checkpoint"
    solve(chains(), mm.Auto(), checkpoint=Checkpoint(path), max_iter=2)
    with pytest.raises(ValueError, match=sentence) as error:
        solve(make(), solver, checkpoint=Checkpoint(path, resume=True), **options)
    assert "\n" not in str(error.value)
    assert path.exists()
    # Without resume=True the file is for the new solve.
    assert len(solve(make(), solver, checkpoint=Checkpoint(path), max_iter=2).history) == 2


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "foreign", "newer"])
def test_damaged_files_are_refused(damage, tmp_path):
    path = tmp_path / "run.checkpoint"
    solve(chains(), mm.Auto(), checkpoint=Checkpoint(path), max_iter=2)
    raw = path.read_bytes()
    if damage == "newer":
        header, arrays = read_tensors(path)
        write_tensors(path, header | {"format": 99}, arrays)
    elif damage == "foreign":
        save_file({"a": np.zeros(3)}, path)
    else:
        path.write_bytes({"cut": raw[: len(raw) // 2], "empty": b"", "garbage": b"x" * 999}[damage])
    with pytest.raises(ValueError, match=r"damaged|another version") as error:
        solve(chains(), mm.Auto(), checkpoint=Checkpoint(path, resume=True))
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_training_goes_on_if_nothing_can_be_written(tmp_path, monkeypatch):
    expected = solve(chains(), mm.Auto())
    nowhere = Checkpoint(tmp_path / "missing" / "run", 0.0)
    with pytest.warns(CheckpointWarning, match="could not be written, and training goes on"):
        assert_same(solve(chains(), mm.Auto(), checkpoint=nowhere), expected)

    path = tmp_path / "run"
    solve(chains(), mm.Auto(), checkpoint=Checkpoint(path), max_iter=2)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(CheckpointWarning, match="No space left"):
        assert_same(solve(chains(), mm.Auto(), checkpoint=Checkpoint(path, 0.0)), expected)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


class Odd:
    """An output that has no plain form."""


def test_outputs_without_a_plain_form_are_named(tmp_path):
    odd = Odd()

    class Strange(mm.Problem):
        def joint_feature(self, x, y):
            return np.array([float(y is odd)])

        def loss(self, y_true, y):
            return float(y_true is not y)

        def inference(self, x, w):
            return odd

        def loss_augmented_inference(self, x, y_true, w):
            return odd

    model = mm.StructuredSVM(Strange(), checkpoint=tmp_path / "run", max_iter=3)
    with pytest.warns(CheckpointWarning, match="type Odd have no plain form"):
        model.fit([0, 1], [None, None])
    assert not (tmp_path / "run").exists()


def test_states_of_all_kinds_come_back():
    shared = np.arange(3.0)
    point = DualPoint(np.arange(2), np.ones(2), [b"ab", None])
    value = [
        None, True, 7, 2**80, 0.1, math.inf, "text", b"raw", (1, [2.0]), {"a": 1, 3: (4,)},
        shared, shared, point, [b"x", b"", None], np.float64(0.5),
        sp.csr_array(np.eye(2)), Certificate(2.0, 1.0), np.array(["a", "bc"]),
    ]  # fmt: skip
    tree, arrays = capture(value)
    back = restore(json.loads(json.dumps(tree)), arrays)
    assert back[:10] == value[:10]
    assert back[10] is back[11]
    assert_array_equal(back[10], shared)
    assert isinstance(back[12], DualPoint)
    assert back[12].outputs == point.outputs
    assert back[13:15] == value[13:15]
    assert_array_equal(back[15].toarray(), np.eye(2))
    assert back[16] == value[16]
    assert_array_equal(back[17], value[17])
    for bad in (object(), np.array([object()]), Odd):
        with pytest.raises(UnwritableError):
            capture([bad])
    for foreign in (["named", "os:stat_result", []], ["data", "maxmargin.core.state:capture", {}]):
        with pytest.raises(ValueError, match="no kind of value"):
            restore(foreign, {})


SCRIPT = """
import sys
import numpy as np
import maxmargin as mm
random = np.random.default_rng(0)
X = [random.normal(size=(6, 5)) for _ in range(200)]
w = random.normal(size=(5, 4))
y = [np.argmax(x @ w + random.normal(size=(6, 4)), axis=1) for x in X]
checkpoint = mm.Checkpoint(sys.argv[1], every=0.0, resume=True) if len(sys.argv) > 1 else None
model = mm.SequenceTagger(C=3.0, tol=1e-6, checkpoint=checkpoint)
mm.SequenceTagger(max_iter=1, tol=1e9).fit(X[:2], y[:2])  # loads what is compiled
print("started", flush=True)
model.fit(X, y)
print(model.coef_.tobytes().hex(), model.certificate_, model.n_iter_)
"""


@pytest.mark.parametrize("times", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_killed_at_any_moment(times, tmp_path):
    """A process that is killed again and again, at random moments, ends with the same answer."""
    random = np.random.default_rng(times)
    expected = run_script(None)
    path = tmp_path / "run.checkpoint"
    kills = 0
    for _ in range(times):
        with start_script(path) as process:
            assert process.stdout.readline() == "started\n"
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=random.uniform(0.0, 1.0))
            kills += process.poll() is None
            process.kill()
    assert kills >= 1
    assert run_script(path) == expected
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def start_script(path):
    command = [sys.executable, "-c", SCRIPT, *([] if path is None else [path])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_script(path):
    with start_script(path) as process:
        output = process.stdout.read().split("\n", 1)
    assert process.returncode == 0
    return output[1]

"""A wrong problem is never silent: `check_problem` finds mistakes, and a fit warns of them."""

import signal
import threading
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from latent_problems import Instances, WrongInstances, random_bags
from problem_mutants import (
    MISTAKES,
    RIGHT,
    FourClasses,
    RandomTies,
    SignOfLoss,
    SinglePrecision,
    TruthAlways,
    Wrapped,
    changes_maximum,
    made,
)
from structured_referee import random_chains, random_classes

import maxmargin as mm
from maxmargin.core.latent import PythonLatentOracle
from maxmargin.core.oracle import Threads
from maxmargin.core.oracle_check import EVERY, FIRST, OracleChecker
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.chain.problem import HiddenChains
from maxmargin.structures.graph.problem import GraphLabelling
from maxmargin.structures.multilabel.problem import LabelSets
from maxmargin.structures.ordinal.problem import Ordinal
from maxmargin.structures.rows.oracle import Classes
from maxmargin.training.fit import SOLVERS


def check(problem, X, Y, **options):
    return mm.check_problem(problem, X, Y, verbose=False, **options)


def told(report):
    return [str(line) for line in report.failures]


def warned(fit):
    """The warnings about a problem that a fit gives, and the error that ends it, if any."""
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fit()
        except mm.ProblemError as raised:
            error = raised
    return [w for w in caught if issubclass(w.category, mm.ProblemWarning)], error


# Mistakes


@pytest.mark.diagonal
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
@pytest.mark.parametrize("name", RIGHT)
def test_every_mistake_is_found(name, mistake, seed):
    problem, X, Y = made(name, seed)
    report = check(mistake(problem), X, Y, seed=seed)
    assert not report.ok
    assert report.failures


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "mistake", [m for m in MISTAKES if changes_maximum(m)], ids=lambda m: m.__name__
)
@pytest.mark.parametrize("name", RIGHT)
def test_a_fit_notices_that_a_maximum_is_missed(name, mistake):
    problem, X, Y = made(name, 0)
    caught, error = warned(lambda: mm.StructuredSVM(mistake(problem), max_iter=30).fit(X, Y))
    assert caught or error
    assert len(caught) <= 1


@pytest.mark.parametrize("mistake", [SignOfLoss, TruthAlways])
@pytest.mark.parametrize("solver", sorted(set(SOLVERS)))
def test_every_solver_warns(solver, mistake):
    problem, X, Y = made("selection", 1, n=12)
    model = mm.StructuredSVM(mistake(problem), solver=solver, max_iter=20)
    caught, error = warned(lambda: model.fit(X, Y))
    assert caught or error


@pytest.mark.diagonal
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RIGHT)
def test_right_problems_raise_no_alarm(name, seed):
    problem, X, Y = made(name, seed)
    for right in (problem, RandomTies(problem), SinglePrecision(problem)):
        report = check(right, X, Y, seed=seed)
        assert report.ok, told(report)
        mm.StructuredSVM(right, max_iter=20, tol=1e-2).fit(X, Y)


# What a fit says


@pytest.mark.parametrize("mistake", [SignOfLoss, TruthAlways])
def test_the_warning_names_method_example_and_numbers(mistake):
    problem, X, Y = made("classes", 0)
    with pytest.warns(mm.ProblemWarning) as caught:
        model = mm.StructuredSVM(mistake(problem)).fit(X, Y)
    assert model.certificate_.primal == 0.0  # which is what makes it a trap
    message = str(caught[0].message)
    assert "\n" not in message
    assert (
        f"loss_augmented_inference of {mistake.__name__} does not find the maximum: for example "
        in message
    )
    assert "mm.check_problem(problem, X, y)" in message
    assert caught[0].filename == __file__


def test_bits_and_counts_do_not_change(monkeypatch):
    problem, X, Y = made("chain", 3)
    one = mm.StructuredSVM(problem, C=0.5).fit(X, Y)
    monkeypatch.setattr(PythonOracle, "_compared", lambda self, cuts, *_: cuts)
    other = mm.StructuredSVM(problem, C=0.5).fit(X, Y)
    assert one.weights_.tobytes() == other.weights_.tobytes()
    assert [r.oracle_calls for r in one.history_] == [r.oracle_calls for r in other.history_]
    assert one.certificate_ == other.certificate_


class Counting(Wrapped):
    def __init__(self, right):
        super().__init__(right)
        self.inferred_best = self.separated = 0

    def inference(self, x, w):
        self.inferred_best += 1
        return super().inference(x, w)

    def loss_augmented_inference(self, x, y_true, w):
        self.separated += 1
        return super().loss_augmented_inference(x, y_true, w)


@pytest.mark.parametrize("solver", ["auto", "one-slack", "online", "frank-wolfe"])
def test_it_costs_a_few_per_cent(solver):
    problem, X, Y = made("classes", 0, n=300)
    counting = Counting(problem)
    mm.StructuredSVM(counting, solver=solver, max_iter=20, tol=1e-2).fit(X, Y)
    assert 0 < counting.inferred_best <= 2 * FIRST + 1.5 * counting.separated / EVERY + 3


def test_it_costs_little_where_examples_come_one_by_one():
    problem, X, Y = made("classes", 0, n=300)
    counting = Counting(problem)
    model = mm.StructuredSVM(counting)
    for x, y in zip(X, Y, strict=True):
        model.partial_fit([x], [y])
    assert 0 < counting.inferred_best <= 2 * FIRST + 1.5 * counting.separated / EVERY + 3


def test_an_inference_that_fails_is_a_warning():
    class NoDecode(FourClasses):
        def inference(self, x, w):
            raise IndexError("no such class")

    _, X, Y = made("classes", 0)
    with pytest.warns(
        mm.ProblemWarning, match=r"inference of NoDecode raised IndexError for example"
    ):
        model = mm.StructuredSVM(NoDecode()).fit(X, Y)
    assert model.status_ == "converged"


def test_an_inference_that_fails_at_random_weights_only_is_none():
    class Picky(FourClasses):
        def inference(self, x, w):
            if np.abs(w).max(initial=0.0) > 0.9:
                raise ValueError("weights are too large")
            return super().inference(x, w)

    _, X, Y = made("classes", 0)
    mm.StructuredSVM(Picky(), C=0.01).fit(X, Y)


def test_an_inference_that_is_no_maximum():
    class Lowest(FourClasses):
        def inference(self, x, w):
            return int(np.argmin(w.reshape(4, -1) @ x))

    _, X, Y = made("classes", 0, n=200)
    with pytest.warns(mm.ProblemWarning, match=r"inference of Lowest does not find the maximum"):
        mm.StructuredSVM(Lowest()).fit(X, Y)


class Batched(FourClasses):
    def cuts(self, xs, y_true, w):
        part = PythonOracle(FourClasses(), xs, y_true, np.ones(len(xs)))
        part.checker = None
        return part.separate(np.array(w), np.arange(len(xs)), Threads(1))


class BatchedWrongSign(Batched):
    def cuts(self, xs, y_true, w):
        found = [
            int(np.argmax(w.reshape(4, -1) @ x - np.abs(np.arange(4) - y)))
            for x, y in zip(xs, y_true, strict=True)
        ]
        part = PythonOracle(FourClasses(), xs, y_true, np.ones(len(xs)))
        return part.cuts_of(np.arange(len(xs)), found)


class BatchedOtherLoss(Batched):
    def cuts(self, xs, y_true, w):
        right = super().cuts(xs, y_true, w)
        return right._replace(losses=2.0 * right.losses)


def test_batches_are_watched():
    _, X, Y = made("classes", 0)
    solver = mm.Auto(batch_size=8)
    mm.StructuredSVM(Batched(), solver=solver).fit(X, Y)
    assert check(Batched(), X, Y).ok
    with pytest.warns(mm.ProblemWarning, match="cuts of BatchedWrongSign does not find"):
        mm.StructuredSVM(BatchedWrongSign(), solver=solver).fit(X, Y)
    report = check(BatchedWrongSign(), X, Y)
    assert [line.name for line in report.failures] == ["cuts: the highest score plus loss"]
    caught, _ = warned(
        lambda: mm.StructuredSVM(BatchedOtherLoss(), solver=solver, max_iter=20).fit(X, Y)
    )
    assert "cuts of BatchedOtherLoss does not agree" in str(caught[0].message)
    assert "cuts: agree with joint_feature and loss" in told(check(BatchedOtherLoss(), X, Y))[0]


@pytest.mark.parametrize(
    ("engine", "solver"),
    [
        pytest.param("threads", mm.DistributedDual(), id="dual-threads"),
        pytest.param("processes", "one-slack", id="one-slack-processes"),
        pytest.param(
            "processes", mm.DistributedDual(), id="dual-processes", marks=pytest.mark.slow
        ),
    ],
)
def test_shards_tell_the_driver(engine, solver):
    problem, X, Y = made("classes", 0)
    model = mm.StructuredSVM(TruthAlways(problem), engine=engine, n_jobs=2, solver=solver)
    with pytest.warns(mm.ProblemWarning) as caught:
        model.fit(X, Y)
    assert len(caught) == 1
    example = int(str(caught[0].message).split("for example ")[1].split()[0])
    output = int(str(caught[0].message).split("that of ")[1].split(",")[0])
    assert Y[example] == output  # by its number among all: the truth is what it found
    mm.StructuredSVM(problem, engine=engine, n_jobs=2, solver=solver).fit(X, Y)


def test_streams_are_watched():
    problem, X, Y = made("classes", 0)
    source = mm.data.FunctionSource(lambda: zip(X, Y, strict=True), batch_examples=8)
    mm.StructuredSVM(problem).fit(source)
    with pytest.warns(mm.ProblemWarning) as caught:
        mm.StructuredSVM(SignOfLoss(problem)).fit(source)
    assert len(caught) == 1
    model = mm.StructuredSVM(SignOfLoss(problem))
    caught, _ = warned(
        lambda: [model.partial_fit(X[k : k + 8], Y[k : k + 8]) for k in range(0, 40, 8)]
    )
    assert len(caught) == 1


def test_slack_rescaling_is_watched():
    case = random_classes(0, rescaling="slack")
    mm.StructuredSVM(case.problem, rescaling="slack").fit(case.X, case.Y)

    class NeverTheLast(Wrapped):
        def slack_rescaled_inference(self, x, y_true, w):
            found = case.problem.slack_rescaled_inference(x, y_true, w)
            return y_true if found == len(case.problem.matrix) - 1 else found

    wrong = NeverTheLast(case.problem)
    caught, _ = warned(
        lambda: mm.StructuredSVM(wrong, rescaling="slack", max_iter=30).fit(case.X, case.Y)
    )
    assert "has a slack that is" in str(caught[0].message)
    assert "slack_rescaled_inference: the highest slack" in told(check(wrong, case.X, case.Y))[0]
    # Without a search of its own, it is that for margins that is watched.
    problem, X, Y = made("classes", 0)
    caught, _ = warned(lambda: mm.StructuredSVM(TruthAlways(problem), rescaling="slack").fit(X, Y))
    assert caught


# Latent problems


@pytest.mark.parametrize("kind", [Instances, WrongInstances])
def test_latent_problems(kind):
    matrix = 1.0 - np.eye(3)
    X, Y = random_bags(0)
    assert check(kind(matrix), X, Y).ok
    mm.LatentStructuredSVM(kind(matrix)).fit(X, Y)

    class Wrong(kind):
        def loss_augmented_inference(self, x, y_true, w):
            return self._best(self._scores(x, w) - self.matrix[y_true][:, None])

        def loss_augmented_inference_wrong(self, x, y_true, w):
            return (int(y_true) + 1) % 3, 0

    class WrongCompletion(kind):
        def latent(self, x, y_true, w):
            return int(self._scores(x, w)[y_true].argmin())

    failed = told(check(Wrong(matrix), X, Y))
    assert any("loss_augmented_inference: the highest score plus loss" in line for line in failed)
    assert any("loss_augmented_inference_wrong: the highest" in line for line in failed)
    assert any("latent: the highest" in line for line in told(check(WrongCompletion(matrix), X, Y)))
    wrong = Wrong(matrix)
    caught, _ = warned(lambda: mm.LatentStructuredSVM(wrong, restarts=3).fit(X, Y))
    assert len(caught) == 1
    assert "loss_augmented_inference of Wrong does not find the maximum" in str(caught[0].message)


class Careless(Instances):
    """An oracle that looks at some of the pairs only, and says so."""

    exact = False

    def loss_augmented_inference(self, x, y_true, w):
        y = (y_true + 1 + int(100 * abs(x[0, 0]))) % len(self.matrix)
        return int(y), int(self._scores(x, w)[y].argmax())

    def latent(self, x, y_true, w):
        return 0


class CarelessWithBounds(Careless):
    """The same, with a bound of what it misses."""

    def cuts(self, xs, y_true, w):
        found = [
            self.loss_augmented_inference(x, y, w) for x, (y, _) in zip(xs, y_true, strict=True)
        ]
        rows, losses, suboptimality = [], [], []
        for x, (y, h), pair in zip(xs, y_true, found, strict=True):
            rows.append(self.joint_feature(x, y, h) - self.joint_feature(x, *pair))
            losses.append(self.loss(y, pair[0]))
            best = (self._scores(x, w) + self.matrix[y][:, None]).max()
            suboptimality.append(max(best - self.joint_feature(x, *pair) @ w - losses[-1], 0.0))
        width = len(rows[0])
        starts, columns = np.arange(len(rows) + 1) * width, np.tile(np.arange(width), len(rows))
        return starts, columns, np.concatenate(rows), losses, found, np.array(suboptimality)


@pytest.mark.diagonal
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [Careless, CarelessWithBounds])
def test_a_relaxed_oracle_may_fall_below_the_truth(kind, seed):
    problem = kind(1.0 - np.eye(3))
    X, Y = random_bags(seed)
    model = mm.LatentStructuredSVM(problem, C=2.0, max_iter=50).fit(X, Y)
    certificate = model.certificate_
    assert certificate.relaxed
    assert 0.0 <= certificate.dual <= certificate.primal
    assert (np.diff(model.objectives_) <= 1e-9).all()
    # The least value of the convex problem with these imputations, found by an exact oracle.
    exact = Instances(problem.matrix)
    latent = PythonLatentOracle(exact, X, Y, np.full(len(X), 2.0))
    oracle = latent.imputed(model.imputations_)
    best = mm.Auto().solve(oracle, Stopping(1e-6)).certificate
    assert certificate.dual <= best.primal * (1 + 1e-9)
    if kind is CarelessWithBounds:
        assert certificate.primal >= best.dual * (1 - 1e-9)
    assert check(problem, X, Y).ok


# Reports


def test_a_report(capsys):
    problem, X, Y = made("classes", 0)
    report = mm.check_problem(SignOfLoss(problem), X, Y, n_examples=4)
    printed = capsys.readouterr().out
    assert printed == f"{report}\n"
    lines = printed.splitlines()
    assert lines[0] == "SignOfLoss on 4 examples: 1 of 9 checks FAILED"
    assert len(lines) == 10
    (failed,) = [line for line in lines if line.startswith("FAILED")]
    assert "loss_augmented_inference: the highest score plus loss: example " in failed
    assert all(line.startswith(("ok ", "FAILED")) for line in lines[1:])
    assert len(report.examples) == 4
    mm.check_problem(problem, X, Y, verbose=False)
    assert not capsys.readouterr().out


def test_errors_name_method_and_example():
    problem, X, Y = made("classes", 0)
    x = X[7]

    class Breaks(Wrapped):
        def inference(self, given, w):
            return {}["key"] if given is x else super().inference(given, w)

    report = check(Breaks(problem), X, Y, n_examples=40)
    (failed,) = report.failures
    assert failed.name == "inference: raises no error"
    assert failed.failures[0] == "example 7: it raised KeyError: 'key'"


@pytest.mark.parametrize(
    ("methods", "line"),
    [
        ({"joint_feature": lambda x, y: np.ones(3 + (y == 2))}, "joint_feature: finite numbers"),
        ({"joint_feature": lambda x, y: "words"}, "joint_feature: finite numbers"),
        ({"loss": lambda y_true, y: None}, "loss: a finite number"),
        ({"loss": lambda y_true, y: np.inf}, "loss: a finite number"),
        (
            {"loss_augmented_inference": lambda x, y_true, w: w.sort()},
            "loss_augmented_inference: raises no error",
        ),
        ({"outputs": lambda x: [0, 1]}, "outputs: hold what the inferences find"),
        ({"outputs": lambda x: []}, "outputs: hold what the inferences find"),
        ({"k_best": lambda x, w, k: [0]}, "k_best: the 4 highest"),
        ({"k_best": lambda x, w, k: [0, 0, 0, 0]}, "k_best: the 4 highest"),
        ({"k_best": lambda x, w, k: [0, 1, 2, 3]}, "k_best: the 4 highest"),
        ({"cuts": lambda xs, y_true, w: 1 / 0}, "cuts: agree with"),
        ({"make_oracle": lambda X, Y, C, rescaling: 1 / 0}, "make_oracle: its cuts"),
    ],
)
def test_what_is_wrong_is_named(methods, line):
    problem, X, Y = made("classes", 0)
    wrong = Wrapped(problem)
    wrong.__dict__.update(methods)
    assert any(line in told_line for told_line in told(check(wrong, X, Y)))


def test_a_training_set_of_its_own_is_compared():
    problem, X, Y = made("classes", 0)

    class Bound(FourClasses):
        scale = 1.0

        def make_oracle(self, X, Y, C, rescaling):
            other = type(self)()
            other.joint_feature = lambda x, y: self.scale * problem.joint_feature(x, y)
            return PythonOracle(other, X, Y, C, rescaling)

    assert check(Bound(), X, Y).ok
    wrong = Bound()
    wrong.scale = 2.0
    assert [line.name for line in check(wrong, X, Y).failures] == [
        "make_oracle: its cuts are as violated as those of loss_augmented_inference"
    ]


class Relaxed(Wrapped):
    exact = False

    def loss_augmented_inference(self, x, y_true, w):
        return self.right.inference(x, w)


def test_relaxed_inferences_are_noted():
    problem, X, Y = made("chain", 0)
    report = check(Relaxed(problem), X, Y)
    assert report.ok
    (noted,) = [line for line in report.checks if line.notes]
    assert noted.name == "loss_augmented_inference: the highest score plus loss"
    assert noted.notes[0].startswith("not exact, it misses up to ")
    assert "\nnote    loss_augmented_inference: the highest score plus loss: not exact" in str(
        report
    )
    mm.StructuredSVM(Relaxed(problem), max_iter=5).fit(X, Y)


def test_a_suboptimality_bound_that_is_too_small_is_found():
    _, X, Y = made("classes", 0)

    class Admits(Batched):
        exact = False
        suboptimality = 10.0

        def cuts(self, xs, y_true, w):
            found = [self.inference(x, w) for x in xs]
            part = PythonOracle(FourClasses(), xs, y_true, np.ones(len(xs)))
            cuts = part.cuts_of(np.arange(len(xs)), found)
            return cuts._replace(suboptimality=np.full(len(xs), self.suboptimality))

    assert check(Admits(), X, Y).ok
    liar = Admits()
    liar.suboptimality = 1e-3
    (failed,) = check(liar, X, Y).failures
    assert failed.name == "cuts: the highest score plus loss"
    assert "its suboptimality bound is 0.001" in failed.failures[0]


def test_outputs_of_other_examples_prove_nothing():
    """Each input has outputs of its own, which the features of others can be made with as well."""

    class Choice(mm.Problem):
        def joint_feature(self, x, y):
            return np.array([len(y), y.count("a"), x[0].count(y[0])], dtype=float)

        def loss(self, y_true, y):
            return float(y_true != y)

        def inference(self, x, w):
            return max(x[1:], key=lambda y: self.joint_feature(x, y) @ w)

        def loss_augmented_inference(self, x, y_true, w):
            return max(x[1:], key=lambda y: self.joint_feature(x, y) @ w + self.loss(y_true, y))

    X = [("house", "mouse", "horse"), ("light", "line", "night"), ("tree", "tea", "free")]
    report = check(Choice(), X, ["mouse", "night", "free"])
    assert report.ok
    assert any("could find it for this input" in str(line) for line in report.checks)
    mm.StructuredSVM(Choice()).fit(X, ["mouse", "night", "free"])


def test_kernel_problems():
    class Levels(mm.KernelProblem):
        def outputs(self, x):
            return [0, 1, 2]

        def loss(self, y_true, y):
            return abs(y_true - y)

    class OtherLosses(Levels):
        def losses(self, y_true, candidates):
            return 2.0 * super().losses(y_true, candidates)

    class OtherParts(Levels):
        def candidates(self, x):
            return super().candidates(x)._replace(parts=[np.zeros_like(x)])

    class TruthCosts(Levels):
        def loss(self, y_true, y):
            return 1.0 + abs(y_true - y)

    X, Y = np.arange(8.0).reshape(-1, 1), [0, 1, 2, 1, 0, 1, 2, 1]
    kernel = mm.ProductKernel(mm.RBFKernel(gamma=1.0), mm.RBFKernel(gamma=0.5))
    assert check(Levels(), X, Y).ok
    mm.KernelStructuredSVM(Levels(), kernel=kernel).fit(X, Y)
    for wrong, line in (
        (OtherLosses, "losses of OtherLosses does not agree with loss"),
        (OtherParts, "candidates of OtherParts does not agree with part"),
        (TruthCosts, "loss of TruthCosts must be zero for the true output"),
    ):
        assert not check(wrong(), X, Y).ok
        model = mm.KernelStructuredSVM(wrong(), kernel=kernel, max_iter=50)
        caught, _ = warned(lambda model=model: model.fit(X, Y))
        assert len(caught) == 1
        assert line in str(caught[0].message)


@pytest.mark.parametrize(
    ("problem", "X", "Y", "sentence"),
    [
        (FourClasses, [1], [1], "problem is the class FourClasses itself"),
        (object(), [1], [1], "object is no problem"),
        (FourClasses(), [1, 2], [1], "X has 2 inputs, y has 1 outputs"),
        (FourClasses(), [], [], "one example at least"),
    ],
)
def test_what_cannot_be_checked(problem, X, Y, sentence):
    with pytest.raises(ValueError, match=sentence):
        mm.check_problem(problem, X, Y)


def test_ctrl_c():
    problem, X, Y = made("classes", 0)

    class Slow(Wrapped):
        calls = 0

        def inference(self, x, w):
            self.calls += 1
            if self.calls == 2:
                signal.raise_signal(signal.SIGINT)
            return super().inference(x, w)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            mm.check_problem(Slow(problem), X, Y)
        if threading.current_thread() is threading.main_thread():
            with pytest.warns(UserWarning, match="stopped by an interrupt"):
                mm.StructuredSVM(Slow(problem)).fit(X, Y)
    finally:
        signal.signal(signal.SIGINT, before)


def built_in(name, random):
    X = random.normal(size=(12, 4))
    classes = random.integers(3, size=12)
    sequences = [random.normal(size=(m, 2)) for m in random.integers(1, 5, 8)]
    labels = [random.integers(3, size=len(x)) for x in sequences]
    arcs = [random.normal(size=(4, 4, 3)) for _ in range(6)]
    if name == "classes":
        return Classes(4, 3), X, classes
    if name == "ordinal":
        return Ordinal(4, 3), X, classes
    if name == "hidden chains":
        return HiddenChains(2, 3, 2), sequences, labels
    if name.startswith("label sets"):
        sets = random.integers(2, size=(12, 3))
        return LabelSets(4, 3, [(0, 1)], loss=name.split()[-1]), X, sets
    if name == "sparse rows":
        return Classes(4, 3), sp.csr_array(X), classes
    if name == "chains":
        case = random_chains(int(random.integers(100)))
        return case.problem, case.X, case.Y
    n_labels = 2 if name == "labelled trees" else None
    trees = mm.DependencyTrees("non-projective", n_labels=n_labels)
    outputs = trees.outputs(arcs[0])
    return trees, arcs, [outputs[k] for k in random.integers(len(outputs), size=len(arcs))]


BUILT_IN = [
    "classes", "ordinal", "hidden chains", "label sets hamming", "label sets f1",
    "label sets zero-one", "chains", "trees", "labelled trees",
]  # fmt: skip


@pytest.mark.diagonal
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_built_in_is_right(name, seed):
    report = check(*built_in(name, np.random.default_rng(seed)), seed=seed)
    assert report.ok, told(report)


@pytest.mark.parametrize("inference", ["auto", "relaxed"])
def test_graphs_are_right(inference):
    random = np.random.default_rng(0)
    X = [(random.normal(size=(4, 2)), np.array([[0, 1], [1, 2], [2, 3], [3, 0]])) for _ in range(6)]
    Y = [random.integers(3, size=4) for _ in X]
    problem = GraphLabelling(3, inference_method=inference)
    report = check(problem, X, Y)
    assert report.ok, told(report)


def test_a_checker_is_copied_as_a_new_one():
    import copy

    checker = OracleChecker()
    checker.sentence = "wrong"
    assert copy.deepcopy(checker).sentence is None


def test_what_is_true_need_not_be_found():
    """Inference chooses from a grid that the true outputs do not lie on."""

    class Grid(mm.Problem):
        def joint_feature(self, x, y):
            return np.array([x * y, y, y * y])

        def loss(self, y_true, y):
            return abs(y_true - y)

        def inference(self, x, w):
            return max([0.0, 1.0, 2.0], key=lambda y: self.joint_feature(x, y) @ w)

        def loss_augmented_inference(self, x, y_true, w):
            return max(
                [0.0, 1.0, 2.0, y_true],
                key=lambda y: self.joint_feature(x, y) @ w + self.loss(y_true, y),
            )

    random = np.random.default_rng(0)
    X = random.normal(size=30).tolist()
    Y = [0.4 + abs(x) % 1.0 for x in X]
    report = check(Grid(), X, Y)
    assert report.ok, told(report)
    assert any("if inference could find it" in str(line) for line in report.checks)
    mm.StructuredSVM(Grid(), C=10.0).fit(X, Y)

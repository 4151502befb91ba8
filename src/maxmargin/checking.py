"""`check_problem`: whether a problem keeps its contract.

Outputs found by any inference, at any weights, and the true one are candidates: none may have a
higher score, or score plus loss, than what (loss-augmented) inference returns.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.core.kernel import Candidates, KernelProblem, ListsCandidates, n_rows
from maxmargin.core.latent import HasLatent, InfersWrongOnly, PythonLatentOracle, as_pair
from maxmargin.core.oracle import ONE_THREAD
from maxmargin.core.oracle_check import ROUNDING, Candidate, Objective, candidate_of_cut, objective
from maxmargin.core.problem import (
    HasKBest,
    InfersBatches,
    ListsOutputs,
    MakesOracle,
    as_inputs,
    check_instance,
    is_exact,
    renumbered,
    rescales_slack,
)
from maxmargin.core.python_oracle import PythonOracle, as_row

MAX_LISTED = 1000
"""Outputs of one input that are checked; of more, a random sample."""

MAX_LENGTH, MAX_EXPECTED = 6, 1e5
"""Length of the shortest output, and expected number of outputs, up to which they are listed."""

K_BEST = 4
"""Outputs that `k_best` is asked for."""

SCALES = (0.1, 1.0, 10.0)
"""Of random weights; at 1, scores are about as large as losses."""

WEIGHTS_PER_SCALE = 3

REPEATED = 4
"""Weights at which every inference is called twice."""

FROM_OTHERS = 5
"""True outputs of other examples that are tried as candidates."""

TRUE = "a true output"
"""Source of true outputs."""

GOALS = {
    "inference": ("score", ""),
    "loss_augmented_inference": ("score plus loss", ""),
    "slack_rescaled_inference": ("slack", ""),
    "cuts": ("score plus loss", ""),
    "loss_augmented_inference_wrong": ("score plus loss", " of a wrong output"),
    "latent": ("score", " of a true output"),
}
"""What each inference maximises, and over which outputs if not over all."""


@dataclass(frozen=True)
class ProblemCheck:
    """One thing that was checked.

    Parameters
    ----------
    name : str
        The method, and what must hold.
    tries : int
        How often it was tried.
    failures : tuple of str
        What was wrong, with the number of the example.
    notes : tuple of str
        What is no proof of a mistake, but worth knowing.
    """

    name: str
    tries: int
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.failures

    def __str__(self) -> str:
        text = self.failures or self.notes
        verdict = "ok" if not text else "note" if self.ok else "FAILED"
        more = f" (and {len(text) - 1} more)" if len(text) > 1 else ""
        detail = f": {text[0]}{more}" if text else f" ({self.tries} tries)"
        return f"{verdict:<7} {self.name}{detail}"


@dataclass(frozen=True)
class ProblemReport:
    """Result of `check_problem`.

    Parameters
    ----------
    problem : str
        Name of the class.
    examples : tuple of int
        Indices of the examples that were checked.
    checks : tuple of ProblemCheck
    """

    problem: str
    examples: tuple[int, ...]
    checks: tuple[ProblemCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> list[ProblemCheck]:
        """The checks that failed."""
        return [check for check in self.checks if not check.ok]

    def __str__(self) -> str:
        failed = len(self.failures)
        verdict = f"{failed} of {len(self.checks)} checks FAILED" if failed else "ok"
        head = f"{self.problem} on {len(self.examples)} examples: {verdict}"
        return "\n".join([head, *map(str, self.checks)])


def check_problem(
    problem: Any, X: Any, y: Any, *, n_examples: int = 10, seed: int = 0, verbose: bool = True
) -> ProblemReport:
    """Check that a problem keeps its contract, before a certificate relies on it.

    On a sample of the examples, at zero weights and at random weights of several scales: joint
    features are finite and of one length; losses are zero for the true output and never negative;
    methods return the same when called again; `inference` finds no lower score, and
    `loss_augmented_inference` no lower score plus loss, than any known output: the true one, those
    found at any weights, and all of ``outputs(x)``. Optional methods (`slack_rescaled_inference`,
    `k_best`, `cuts`, `make_oracle`, and those of a `LatentProblem` or `KernelProblem`) are checked,
    too.

    Where a problem says ``exact = False``, a maximum that was not found is only noted, unless it is
    beyond the `suboptimality` of its cuts.

    Parameters
    ----------
    problem : Problem, LatentProblem or KernelProblem
    X, y : sequence of length n_samples
        Inputs and their true outputs.
    n_examples : int, default=10
        How many of them to check, with about forty calls of each inference.
    seed : int, default=0
        Of the sample and of the random weights.
    verbose : bool, default=True
        Print the report.

    Returns
    -------
    report : ProblemReport
        ``report.ok``, and ``report.failures``.

    See Also
    --------
    Problem : What to write.
    ProblemWarning : Given by a fit that notices a contradiction.

    Examples
    --------
    The sign of the loss is wrong:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> class ThreeClasses(mm.Problem):
    ...     def joint_feature(self, x, y):
    ...         return np.outer(np.arange(3) == y, x).ravel()
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    ...     def inference(self, x, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x))
    ...     def loss_augmented_inference(self, x, y_true, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x - (np.arange(3) != y_true)))
    >>> report = mm.check_problem(ThreeClasses(), np.eye(3), [0, 1, 2], verbose=False)
    >>> report.ok
    False
    >>> [check.name for check in report.failures]
    ['loss_augmented_inference: the highest score plus loss']
    """
    check_instance(problem)
    X, n = as_inputs(X), n_rows(y)
    if n_rows(X) != n or not n or n_examples < 1:
        raise ValueError(
            f"check_problem needs as many outputs as inputs, and one example at least, but X has "
            f"{n_rows(X)} inputs, y has {n} outputs and n_examples is {n_examples}."
        )
    random = np.random.default_rng(seed)
    examples = np.sort(random.permutation(n)[:n_examples]).tolist()
    checks = _kind_of(problem)(problem, X, y, examples, random)
    checks.run()
    report = ProblemReport(type(problem).__name__, tuple(examples), checks.closed())
    if verbose:
        print(report)
    return report


def _kind_of(problem: Any) -> "type[_Checks]":
    methods = ("joint_feature", "inference", "loss_augmented_inference", "loss")
    if all(hasattr(problem, name) for name in methods):
        return _ProblemChecks
    if isinstance(problem, KernelProblem | ListsCandidates):
        return _KernelProblemChecks
    raise ValueError(
        f"{type(problem).__name__} is no problem: write the methods of Problem, LatentProblem or "
        f"KernelProblem."
    )


class _Broken(Exception):  # noqa: N818
    """A method has failed, and the failure has been recorded."""


class _Checks:
    """The checks of a report, by name, and calls of methods that record their failures."""

    def __init__(
        self, problem: Any, X: Any, Y: Any, examples: list[int], random: np.random.Generator
    ) -> None:
        self.problem, self.X, self.Y, self.examples, self.random = problem, X, Y, examples, random
        self.exact = is_exact(problem)
        self.tries: Counter[str] = Counter()
        self.failures: defaultdict[str, list[str]] = defaultdict(list)
        self.notes: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        """What is no failure, and how bad it is."""

    def run(self) -> None:
        raise NotImplementedError

    def closed(self) -> tuple[ProblemCheck, ...]:
        """The checks as the report has them, the worst notes first."""
        found = []
        for name, tries in self.tries.items():
            notes = sorted(self.notes[name], key=lambda note: -note[0])
            failures = tuple(self.failures[name])
            found.append(ProblemCheck(name, tries, failures, tuple(text for _, text in notes)))
        return tuple(found)

    def expect(self, ok: bool, name: str, failure: str) -> None:
        """Count a try, and record what was wrong if it failed."""
        self.tries[name] += 1
        if not ok:
            self.failures[name].append(" ".join(failure.split()))

    def failed(self, name: str, i: int, what: str) -> NoReturn:
        """Record a failure after which an answer cannot be used."""
        self.expect(False, name, f"example {i}: {what}")
        raise _Broken

    def call(self, method: str, i: int, *arguments: Any) -> Any:
        """What a method returns; if it raises, that is a failure of its own."""
        try:
            return getattr(self.problem, method)(*arguments)
        except Exception as error:
            self.failed(f"{method}: raises no error", i, _raised(error))

    def checked_loss(self, i: int, y: Any) -> float:
        """The loss of an output, computed twice."""
        first, again = (self.call("loss", i, self.Y[i], y) for _ in range(2))
        name = "loss: a finite number, never negative"
        try:
            loss, other = float(first), float(again)
        except (TypeError, ValueError):
            self.failed(name, i, f"it is {first!r:.60} for the output {y!r:.60}")
        text = f"it is {loss:g} for the output {y!r:.60}"
        if not (np.isfinite(loss) and loss >= 0.0):
            self.failed(name, i, text)
        self.expect(True, name, "")
        changed = f"example {i}: {text}, then {other:g}"
        self.expect(other == loss, "loss: the same when called again", changed)
        return loss

    def check_true_loss(self, i: int) -> None:
        """The loss of the true output must be zero."""
        with suppress(_Broken):
            loss = self.checked_loss(i, self.Y[i])
            self.expect(
                loss == 0.0, "loss: zero for the true output", f"example {i}: it is {loss:g}"
            )


class _KernelProblemChecks(_Checks):
    """Of a `KernelProblem`, whose outputs are enumerated: its methods have to agree."""

    def run(self) -> None:
        for i in self.examples:
            self.check_true_loss(i)
            with suppress(_Broken):
                self.check_outputs(i)

    def check_outputs(self, i: int) -> None:
        outputs = list(self.call("outputs", i, self.X[i]))
        self.expect(bool(outputs), "outputs: there are some", f"example {i}: none")
        losses = np.array([self.checked_loss(i, y) for y in outputs[:MAX_LISTED]])
        name = "outputs: hold the true one"
        self.expect(True, name, "")
        if len(losses) == len(outputs) and not (losses == 0.0).any():
            note = float(losses.min(initial=np.inf)), f"example {i}: none has a loss of zero"
            self.notes[name].append(note)
        candidates: Candidates = self.call("candidates", i, self.X[i])
        name = "candidates: agree with outputs, part and label"
        n = len(candidates.outputs)
        if n != len(outputs):
            self.failed(name, i, f"there are {n}, but outputs(x) has {len(outputs)}")
        places = (candidates.part_of, candidates.parts), (candidates.label_of, candidates.labels)
        for at, rows in places:
            if len(at) != n or not all(0 <= place < n_rows(rows) for place in at):
                self.failed(name, i, "part_of or label_of points at nothing")
        agree = "losses: agree with loss"
        losses = np.asarray(self.call("losses", i, self.Y[i], candidates))
        if losses.shape != (n,):
            self.failed(agree, i, f"their shape is {losses.shape}")
        for c, y in enumerate(candidates.outputs[:MAX_LISTED]):
            loss = self.checked_loss(i, y)
            text = f"example {i}: {losses[c]:.6g} for the output {y!r:.60}, not {loss:.6g}"
            self.expect(abs(losses[c] - loss) <= ROUNDING * (1.0 + loss), agree, text)
            own = self.call("part", i, self.X[i], y), self.call("label", i, y)
            for what, mine, (at, rows) in zip(("part", "label"), own, places, strict=True):
                listed = rows[at[c]]
                text = f"the {what} of the output {y!r:.60} is {listed!r:.60}, not {mine!r:.60}"
                self.expect(_close(mine, listed), name, f"example {i}: {text}")


@dataclass(slots=True, eq=False)
class _Known(Candidate):
    """An output of an example, and how it is known."""

    source: str
    proven: bool = True
    """Whether it is certainly an output of this example."""


@dataclass(frozen=True, eq=False)
class _At:
    """Weights with a name, read-only as in a fit."""

    name: str
    weights: Floats

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

    def rounding(self, *candidates: Candidate) -> float:
        """By how much values of outputs at these weights may be off."""
        return ROUNDING * sum(one.terms(self.weights) + one.loss for one in candidates)


class _Answer(NamedTuple):
    """What an inference returned."""

    method: str
    i: int
    at: _At
    found: _Known
    value: Objective
    """What the inference maximises."""
    admitted: float | None
    """Its own suboptimality bound."""

    @property
    def where(self) -> str:
        """Where it was found."""
        return f"example {self.i}, {self.at.name}"


class _ProblemChecks(_Checks):
    """Of a `Problem`, or of a `LatentProblem`, whose outputs are pairs with a latent variable."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.latent = isinstance(self.problem, HasLatent)
        optional = {
            "slack_rescaled_inference": not self.latent and rescales_slack(self.problem),
            "latent": self.latent,
            "loss_augmented_inference_wrong": isinstance(self.problem, InfersWrongOnly),
        }
        self.methods = ["inference", "loss_augmented_inference"]
        self.methods += [name for name, there in optional.items() if there]
        self.width: int | None = None
        self.pool: dict[int, list[_Known]] = {}
        """Known outputs of each example whose methods work; the first is a true one."""
        self.listed: dict[int, list[_Known]] = {}
        """All outputs, where the problem lists them."""
        self.everywhere: list[_At] = []
        self.answers: list[_Answer] = []
        self.first: dict[tuple[str, int, _At], _Answer] = {}
        """What each inference returned when it was called for the first time."""
        self.k_bests: dict[tuple[int, _At], list[_Known]] = {}

    def run(self) -> None:
        for i in self.examples:
            self.check_true_loss(i)
            with suppress(_Broken):
                self.pool[i] = [self.candidate(i, y, TRUE) for y in self.y_true(i)]
        if self.width is None:
            return
        if isinstance(self.problem, ListsOutputs):
            self.list_outputs()
        elif not self.latent:  # a latent variable of another example says nothing
            self.borrow_outputs()
        self.infer_at(_At("zero weights", np.zeros(self.width)))
        rows = (one.values for pool in self.pool.values() for one in pool)
        unit = self.typical_loss() / _typical(float(np.linalg.norm(row)) for row in rows)
        for scale in np.repeat(SCALES, WEIGHTS_PER_SCALE) * unit:
            weights = scale * self.random.normal(size=self.width)
            self.infer_at(_At(f"random weights of scale {scale:.2g}", weights))
        for i in self.pool:
            for at in self.weights_towards(i):
                self.infer(i, at)
        for at in reversed(self.everywhere[:: max(1, len(self.everywhere) // REPEATED)]):
            for i in self.pool:
                self.infer(i, at)
        for i, (y_true, *_) in self.pool.items():
            with suppress(_Broken):
                self.check_again(i, y_true, "after some inferences it is not for the true output")
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        if isinstance(self.problem, InfersBatches):
            self.check_cuts(X, Y)
        if isinstance(self.problem, MakesOracle):
            self.check_make_oracle(X, Y)
        self.reached = {i: {one.key for one in self.listed.get(i, [])} for i in self.pool}
        for answer in self.answers:
            if answer.method == "inference":
                self.reached[answer.i].add(answer.found.key)
        for answer in self.answers:
            self.judge(answer)
            self.judge_list(answer)
        for (i, at), found in self.k_bests.items():
            wrong = self.wrong_k_best(i, at, found)
            name = f"k_best: the {K_BEST} highest scores, highest first"
            self.expect_best(wrong is None, name, f"example {i}, {at.name}: {wrong}", 0.0)

    def expect_best(self, ok: bool, name: str, failure: str, how_bad: float) -> None:
        """Count a try of a maximum; where inference is not exact, one that fails is noted."""
        if not ok and not self.exact:
            self.notes[name].append((how_bad, failure))
        self.expect(ok or not self.exact, name, failure)

    # Candidates

    def y_true(self, i: int) -> list[Any]:
        """The true output; those with two latent variables, where there are any."""
        if not self.latent:
            return [self.Y[i]]
        drawn = [self.call("init_latent", i, self.X[i], self.Y[i], self.random) for _ in range(2)]
        return [(self.Y[i], h) for h in drawn]

    def candidate(self, i: int, y: Any, source: str, proven: bool = True) -> _Known:
        """An output with its joint features and its loss, each computed twice."""
        columns, values = self.row(i, y)
        found = _Known(columns, values, 0.0, y, source, proven)
        self.check_again(i, found, f"it is not for the output {y!r:.60}")
        found.loss = self.checked_loss(i, y[0] if self.latent else y)
        return found

    def check_again(self, i: int, known: _Known, text: str) -> None:
        """Joint features must be the same when computed again."""
        columns, values = self.row(i, known.output)
        same = np.array_equal(columns, known.columns) and np.array_equal(values, known.values)
        self.expect(same, "joint_feature: the same when called again", f"example {i}: {text}")

    def row(self, i: int, y: Any) -> tuple[NDArray[np.uint32], Floats]:
        given = self.call("joint_feature", i, self.X[i], *(y if self.latent else (y,)))
        name, text = "joint_feature: finite numbers, always as many", f"for the output {y!r:.60}"
        try:
            columns, values, width = as_row(given)
        except (TypeError, ValueError):
            self.failed(name, i, f"it is {given!r:.60} {text}")
        self.width = self.width or width
        if width != self.width:
            self.failed(name, i, f"there are {width} {text}, but {self.width} before")
        if not np.isfinite(values).all():
            self.failed(name, i, f"there is NaN or infinity {text}")
        self.expect(True, name, "")
        return columns, values

    def list_outputs(self) -> None:
        """Make listed outputs candidates, of small examples first, while listing is quick."""
        size, count = 1, 1
        sizes = {i: math.prod(_kind(self.Y[i])[1]) for i in self.pool}
        for i in sorted(sizes, key=lambda i: sizes[i]):
            bigger = sizes[i] / size
            if (size == 1 and bigger > MAX_LENGTH) or count**bigger > MAX_EXPECTED:
                return
            with suppress(_Broken):
                outputs = list(self.call("outputs", i, self.X[i]))
                if not outputs:
                    self.failed("outputs: hold what the inferences find", i, "there are none")
                size, count = max(sizes[i], 1), len(outputs)
                if count > MAX_LISTED:
                    outputs = [outputs[k] for k in self.random.permutation(count)[:MAX_LISTED]]
                listed = [self.candidate(i, y, "of outputs(x)") for y in outputs]
                self.pool[i] += listed
                if count <= MAX_LISTED:
                    self.listed[i] = listed

    def borrow_outputs(self) -> None:
        """True outputs of other examples are candidates that may not be outputs of this one."""
        for i in self.pool:
            some = self.random.permutation(n_rows(self.Y))[:50].tolist()
            alike = [j for j in some if j != i and _kind(self.Y[j]) == _kind(self.Y[i])]
            for j in alike[:FROM_OTHERS]:
                # With checks of its own: if methods fail, it is no output of this example.
                apart = type(self)(self.problem, self.X, self.Y, [i], self.random)
                apart.width = self.width
                with suppress(_Broken):
                    source = f"the true output of example {j}"
                    self.pool[i].append(apart.candidate(i, self.Y[j], source, proven=False))

    def typical_loss(self) -> float:
        return _typical(one.loss for pool in self.pool.values() for one in pool)

    def weights_towards(self, i: int) -> Iterator[_At]:
        """Weights that put the true output above some candidate, and below it."""
        y_true, candidates = self.pool[i][0], self.pool[i][1:]
        for k in self.random.permutation(len(candidates))[:3].tolist():
            direction = np.zeros(self.width or 0)
            np.add.at(direction, y_true.columns, y_true.values)
            np.subtract.at(direction, candidates[k].columns, candidates[k].values)
            square = float(direction @ direction)
            if square > 0.0:
                direction *= 2.0 * self.typical_loss() / square
                yield _At("weights for the true output", direction)
                yield _At("weights against the true output", -direction)
                return

    # Inference

    def infer_at(self, at: _At) -> None:
        self.everywhere.append(at)
        for i in self.pool:
            self.infer(i, at)

    def infer(self, i: int, at: _At) -> None:
        """Call every inference; what it finds is a candidate from now on."""
        for method in self.methods:
            with suppress(_Broken):
                given = (self.X[i],) if method == "inference" else (self.X[i], self.Y[i])
                y = self.output(method, i, self.call(method, i, *given, at.weights))
                answer = self.answered(method, i, at, y)
                before = self.first.setdefault((method, i, at), answer)
                if before is answer:
                    self.know(i, [answer.found])
                    continue
                # Called again, it must be as good; of equal outputs it may return any.
                first, second = answer.value(before.found), answer.value(answer.found)
                apart = abs(first - second)
                ok = not apart > at.rounding(before.found, answer.found)
                text = f"{answer.where}: {first:.6g}, then {second:.6g}"
                self.expect_best(ok, f"{method}: as good when called again", text, apart)
        if isinstance(self.problem, HasKBest) and (i, at) not in self.k_bests:
            with suppress(_Broken):
                outputs = list(self.call("k_best", i, self.X[i], at.weights, K_BEST))
                self.k_bests[i, at] = [self.candidate(i, y, "found by k_best") for y in outputs]
                self.know(i, self.k_bests[i, at])

    def output(self, method: str, i: int, answer: Any) -> Any:
        """What an inference returned, if it is an output."""
        if method == "latent":
            return self.Y[i], answer
        try:
            return as_pair(answer) if self.latent else answer
        except TypeError as error:
            self.failed(f"{method}: returns a pair (y, h)", i, str(error))

    def answered(
        self, method: str, i: int, at: _At, y: Any, admitted: float | None = None
    ) -> _Answer:
        """Record what an inference returned."""
        found = self.candidate(i, y, f"found by {method}")
        own = self.pool[i][0].score(at.weights)
        value = objective(GOALS[method][0], at.weights, own)
        self.answers.append(_Answer(method, i, at, found, value, admitted))
        return self.answers[-1]

    def know(self, i: int, found: list[_Known]) -> None:
        """Add candidates, unless there are equal ones."""
        keys = {one.key for one in self.pool[i] if one.proven}
        self.pool[i] += [one for one in found if one.key not in keys]

    # Comparisons

    def rivals(self, answer: _Answer) -> list[_Known]:
        """Known outputs that an inference maximises over."""
        known = self.pool[answer.i]
        if answer.method == "loss_augmented_inference_wrong":
            return [one for one in known if one.loss > 0.0]
        if answer.method == "latent":
            return [one for one in known if _same(one.output[0], self.Y[answer.i])]
        return known

    def proves(self, answer: _Answer, one: _Known) -> bool:
        """Whether a better output refutes an answer; a true one only once inference returned it."""
        unreached = one.source == TRUE and one.key not in self.reached[answer.i]
        return one.proven and not (answer.method == "inference" and unreached)

    def judge(self, answer: _Answer) -> None:
        """No known output may be better than what an inference returned."""
        method, i, at, found, value, admitted = answer
        name = f"{method}: the highest {''.join(GOALS[method])}"
        rivals = self.rivals(answer)
        proven = [one for one in rivals if self.proves(answer, one)]
        best = max(proven, key=value, default=found)
        missed, rounding = value(best) - value(found), at.rounding(best, found)
        ok = not missed > rounding
        text = (
            f"{answer.where}: it returned {found.output!r:.60} with {value(found):.6g}, but "
            f"{best.output!r:.60} ({best.source}) has {value(best):.6g}"
        )
        if not ok and not self.exact and (admitted is None or missed <= admitted + rounding):
            self.notes[name].append((missed, f"not exact, it misses up to {missed:.3g}: {text}"))
            ok = True
        if admitted is not None:
            text += f", and its suboptimality bound is {admitted:.3g}"
        self.expect(ok, name, text)
        highest = max(value(best), value(found))
        for one in rivals:
            above = value(one) - highest
            if above > at.rounding(one, found) and not self.proves(answer, one):
                note = (
                    f"{answer.where}: {one.output!r:.60} ({one.source}) would be {above:.3g} "
                    f"higher, if {method} could find it for this input"
                )
                self.notes[name].append((above, note))
        if method == "loss_augmented_inference_wrong":
            text = f"example {i}: it is {found.loss:g} for {found.output!r:.60}"
            self.expect(found.loss > 0.0, f"{method}: its loss is positive", text)

    def judge_list(self, answer: _Answer) -> None:
        """What an inference finds must not be above all outputs that are listed."""
        if answer.i not in self.listed:
            return
        value, found = answer.value, answer.found
        # The true output may be left out of the list: solvers add it.
        best = max([*self.listed[answer.i], self.pool[answer.i][0]], key=value)
        above = value(found) - value(best)
        text = f"{found.output!r:.60} ({found.source}) is {above:.3g} above all of them"
        ok = not above > answer.at.rounding(best, found)
        self.expect(ok, "outputs: hold what the inferences find", f"{answer.where}: {text}")

    def wrong_k_best(self, i: int, at: _At, found: list[_Known]) -> str | None:
        """The best outputs must be the best ones, the best first, each once."""
        if not 1 <= len(found) <= K_BEST:
            return f"there are {len(found)} outputs"
        if any(_same(one.output, other.output) for one, other in combinations(found, 2)):
            return "an output is there twice"
        scores, rounding = [one.score(at.weights) for one in found], at.rounding(*found)
        if any(after > before + rounding for before, after in pairwise(scores)):
            return f"the scores {[round(score, 6) for score in scores]} rise"
        # Outputs need not be comparable; those with other features are others for sure.
        mine = {one.key[:2] for one in found}
        others = [one for one in self.pool[i] if one.proven and one.key[:2] not in mine]
        least = scores[-1] if len(found) == K_BEST else -np.inf
        missed = max(others, key=lambda one: one.score(at.weights), default=None)
        if missed is None or missed.score(at.weights) <= least + rounding:
            return None
        score = missed.score(at.weights)
        return f"{missed.output!r:.60} ({missed.source}), with {score:.6g}, is missing"

    # Oracles

    def check_cuts(self, X: list[Any], Y: list[Any]) -> None:
        """Cuts of a batch must be those of their outputs; whether maximal is judged later."""
        name, examples = "cuts: agree with joint_feature and loss", list(self.pool)
        C = np.ones(len(X))
        try:
            if self.latent:
                drawn = [known[0].output[1] for known in self.pool.values()]
                oracle: PythonOracle = PythonLatentOracle(self.problem, X, Y, C).imputed(drawn)
            else:
                oracle = PythonOracle(self.problem, X, Y, C)
        except Exception as error:
            self.expect(False, name, f"no oracle can be made of this sample: {_raised(error)}")
            return
        oracle.checker = None
        for at in self.everywhere:
            try:
                cuts = oracle.separate(at.weights, np.arange(len(X)), ONE_THREAD)
            except Exception as error:
                self.expect(False, name, f"{at.name}: {renumbered(str(error), examples)}")
                continue
            for k, i in enumerate(examples):
                wrong = ""
                try:
                    oracle.check_agreement(k, candidate_of_cut(cuts, k, by_slack=False))
                except Exception as error:
                    wrong = f"{at.name}: {renumbered(str(error), examples)}"
                self.expect(not wrong, name, wrong)
                bounds = cuts.suboptimality
                admitted = None if bounds is None else float(bounds[k])
                with suppress(_Broken):
                    self.answered("cuts", i, at, cuts.outputs[k], admitted)

    def check_make_oracle(self, X: list[Any], Y: list[Any]) -> None:
        """The problem's own oracle must find cutting planes as violated as its methods do."""
        methods = f"loss_augmented_inference{' and latent' if self.latent else ''}"
        name = f"make_oracle: its cuts are as violated as those of {methods}"
        examples, C = np.arange(len(X)), np.ones(len(X))
        try:
            if self.latent:
                own = self.problem.make_oracle(X, Y, C)
                first = own.init_latent(np.random.default_rng(0))
                oracle = own.imputed(first)
            else:
                oracle = self.problem.make_oracle(X, Y, C, "margin")
            if oracle.n_features != self.width:
                text = f"there are {oracle.n_features} features, but joint_feature has {self.width}"
                self.expect(False, name, text)
                return
            for at in self.everywhere:
                if self.latent:
                    oracle = own.imputed(own.impute(at.weights, first, ONE_THREAD))
                cuts = oracle.separate(at.weights, examples, ONE_THREAD)
                slopes = cuts.slopes(at.weights)
                again = oracle.cuts_of(examples, cuts.outputs).slopes(at.weights)
                bounds = cuts.suboptimality
                if bounds is None:
                    bounds = np.full(len(X), 0.0 if oracle.exact else np.inf)
                for k, i in enumerate(self.pool):
                    best, imputed = (
                        self.first.get((method, i, at))
                        for method in ("loss_augmented_inference", "latent")
                    )
                    if best is None or (self.latent and imputed is None):
                        continue
                    true = self.pool[i][0] if imputed is None else imputed.found
                    expected = best.value(best.found) - true.score(at.weights)
                    rounding = at.rounding(true, best.found) + ROUNDING
                    # An inexact `loss_augmented_inference` may miss what the oracle finds.
                    above = slopes[k] > expected + rounding and self.exact
                    below = slopes[k] + bounds[k] < expected - rounding
                    bad = above or below or abs(slopes[k] - again[k]) > rounding
                    text = f"example {i}, {at.name}: {slopes[k]:.6g}, made anew {again[k]:.6g}, but"
                    self.expect(not bad, name, f"{text} {expected:.6g} by {methods}")
        except Exception as error:
            self.expect(False, name, _raised(error))


def _raised(error: BaseException) -> str:
    return f"it raised {type(error).__name__}: {error}"


def _typical(numbers: Iterable[float]) -> float:
    """The mean of those that are positive, or 1."""
    positive = [number for number in numbers if number > 0.0]
    return float(np.mean(positive)) if positive else 1.0


def _kind(y: Any) -> tuple[type, tuple[int, ...]]:
    """Type of an output, and its shape or length if it has one."""
    if isinstance(y, np.ndarray):
        return type(y), tuple(y.shape)
    return type(y), (len(y),) if isinstance(y, Sized) and not isinstance(y, str) else ()


def _same(one: Any, other: Any) -> bool:
    """Whether two objects are equal, as far as they can be compared."""
    try:
        return bool(np.array_equal(one, other))
    except Exception:
        return bool(one == other)


def _close(one: Any, other: Any) -> bool:
    """Whether two rows, or whatever a kernel compares, are the same up to rounding."""
    try:
        dense = [a.toarray() if sp.issparse(a) else np.asarray(a) for a in (one, other)]
        first, second = (np.ravel(a).astype(np.float64) for a in dense)
    except (TypeError, ValueError):
        return _same(one, other)
    size = ROUNDING * (1.0 + float(np.abs(first).max(initial=0.0)))
    return first.shape == second.shape and np.allclose(first, second, rtol=0.0, atol=size)

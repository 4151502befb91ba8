"""A `Problem` tried at several weights, with every output that is found as a rival of the others.

Every output that any inference finds for an input, at whatever weights, is an output of that input,
and so is its true one. None of them may have a higher score than what inference returns, nor a
higher score plus loss than what loss-augmented inference does.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.checking.more import K_BEST, judge_top, try_cuts, try_make_oracle
from maxmargin.checking.sheet import Answer, At, Broken, Candidate, Sheet
from maxmargin.core.kernel import n_rows
from maxmargin.core.oracle_check import ROUNDING
from maxmargin.core.problem import RescalesSlack
from maxmargin.core.python_oracle import PythonOracle, as_row

Floats = NDArray[np.float64]

SCALES = (0.1, 1.0, 10.0)
"""Of random weights; at 1, scores are about as large as losses."""

WEIGHTS_PER_SCALE = 3

ASKED_AGAIN = 4
"""Weights at which every inference is asked twice."""

MOST_LISTED = 1000
"""Outputs of one input that are tried one by one; of more, a random sample."""

TRUE = "a true output"
"""How true outputs are known."""

MOST_UNLISTED, MOST_EXPECTED = 6, 1e5
"""Places of the smallest output, and outputs that are expected, up to which they are listed."""

FROM_OTHERS = 5
"""True outputs of other examples that are tried as rivals."""


Value = Callable[[Candidate], float]


class Trial(Sheet):
    """A `Problem`."""

    def __init__(
        self, problem: Any, X: Any, Y: Any, examples: list[int], random: np.random.Generator
    ) -> None:
        super().__init__(problem, X, Y, examples, random)
        self.width: int | None = None
        self.pool: dict[int, list[Candidate]] = {}
        """Known outputs of each example whose methods work; the first is a true one."""
        self.answers: list[Answer] = []
        self.listed: dict[int, list[Candidate]] = {}
        """All outputs, where the problem lists them."""
        self.tops: list[tuple[int, At, list[Candidate]]] = []

    # What latent problems do otherwise

    oracle_calls: ClassVar[tuple[str, ...]] = ("inference", "loss_augmented_inference")

    def feature(self, i: int, y: Any) -> Any:
        return self.ask("joint_feature", i, self.X[i], y)

    def checked_output_loss(self, i: int, y: Any) -> float:
        return self.checked_loss(i, y)

    def y_true(self, i: int) -> list[Any]:
        """Outputs that are true."""
        return [self.Y[i]]

    def output(self, method: str, i: int, answer: Any) -> Any:
        """What an inference returned, if it is an output."""
        return answer

    def inferred(self, method: str, i: int, weights: Floats) -> Any:
        if method == "inference":
            return self.ask(method, i, self.X[i], weights)
        return self.ask(method, i, self.X[i], self.Y[i], weights)

    # The trial

    def run(self) -> None:
        """Try everything."""
        for i in self.examples:
            self.begin(i)
        if self.width is None:
            return
        if hasattr(self.problem, "outputs"):
            self.list_outputs()
        else:
            self.borrow_outputs()
        everywhere = [At("zero weights", _fixed(np.zeros(self.width)))]
        self.infer_all(everywhere[0])
        for at in self.random_weights():
            everywhere.append(at)
            self.infer_all(at)
        for i in self.pool:
            for at in self.directed_weights(i):
                self.infer(i, at)
        for at in reversed(everywhere[:: max(1, len(everywhere) // ASKED_AGAIN)]):
            self.infer_all(at, again=True)
        for i in self.pool:
            self.compare_true_output_again(i)
        if hasattr(self.problem, "cuts"):
            try_cuts(self, self.plain_training, everywhere)
        if hasattr(self.problem, "make_oracle"):
            self.try_make_oracle(everywhere)
        self.true_keys = {
            i: {candidate.key for candidate in pool if candidate.source == TRUE}
            for i, pool in self.pool.items()
        }
        self.reached = {
            i: {candidate.key for candidate in self.listed.get(i, [])} for i in self.pool
        }
        for method, i, _, found, _ in self.answers:
            if method == "inference":
                self.reached[i].add(found.key)
        for answer in self.answers:
            self.judge(answer)
            self.judge_list(answer)
        for top in self.tops:
            judge_top(self, *top)

    def begin(self, i: int) -> None:
        """What is known of an example before any inference."""
        with suppress(Broken):
            self.check_true_loss(i, self.Y[i])
        with suppress(Broken):
            self.pool[i] = [self.candidate(i, y_true, TRUE) for y_true in self.y_true(i)]

    def candidate(self, i: int, y: Any, source: str, proven: bool = True) -> Candidate:
        """An output with its features and its loss, each asked for twice."""
        columns, values = self.row(i, y)
        other_columns, other_values = self.row(i, y)
        same = np.array_equal(columns, other_columns) and np.array_equal(values, other_values)
        told = f"example {i}: it is not for the output {y!r:.60}"
        self.line("joint_feature: the same when asked again").tried(None if same else told)
        return Candidate(y, columns, values, self.checked_output_loss(i, y), source, proven)

    def row(self, i: int, y: Any) -> tuple[NDArray[np.uint32], Floats]:
        given = self.feature(i, y)
        name = "joint_feature: finite numbers, always as many"
        told = f"for the output {y!r:.60}"
        try:
            columns, values, width = as_row(given)
        except (TypeError, ValueError):
            self.failed(name, i, f"it is {given!r:.60} {told}")
        self.width = self.width or width
        if width != self.width:
            self.failed(name, i, f"there are {width} {told}, but {self.width} before")
        if not np.isfinite(values).all():
            self.failed(name, i, f"there is NaN or infinity {told}")
        self.line(name).tried(None)
        return columns, values

    def list_outputs(self) -> None:
        """Outputs that the problem lists are rivals, all of them.

        The smallest examples come first: how many outputs these have tells of which it would take
        for ever.
        """
        size, count = 1, 1
        for i in sorted(self.pool, key=lambda i: _size(self.Y[i])):
            bigger = _size(self.Y[i]) / size
            if (size == 1 and bigger > MOST_UNLISTED) or count**bigger > MOST_EXPECTED:
                return
            with suppress(Broken):
                size, count = max(_size(self.Y[i]), 1), max(self.list_outputs_of(i), 1)

    def list_outputs_of(self, i: int) -> int:
        """Let the outputs of an example be rivals; says how many there are."""
        outputs = list(self.ask("outputs", i, self.X[i]))
        n = len(outputs)
        if not n:
            self.failed("outputs: hold what the inferences find", i, "there are none")
        if n > MOST_LISTED:
            outputs = [outputs[k] for k in self.random.permutation(n)[:MOST_LISTED]]
        listed = [self.candidate(i, y, "of outputs(x)") for y in outputs]
        self.pool[i] += listed
        if n <= MOST_LISTED:
            self.listed[i] = listed
        return n

    def borrow_outputs(self) -> None:
        """True outputs of other examples may be outputs of this one, too, but nobody knows."""
        for i in self.pool:
            some = self.random.permutation(n_rows(self.Y))[:50].tolist()
            alike = [j for j in some if j != i and _alike(self.Y[j], self.Y[i])]
            for j in alike[:FROM_OTHERS]:
                # On a sheet of its own: if methods fail for it, it is none of this one's.
                apart = type(self)(self.problem, self.X, self.Y, [i], self.random)
                apart.width = self.width
                with suppress(Broken):
                    source = f"the true output of example {j}"
                    self.pool[i].append(apart.candidate(i, self.Y[j], source, proven=False))

    # Weights

    def random_weights(self) -> Iterator[At]:
        """Scores as large as losses, much smaller and much larger."""
        assert self.width is not None
        unit = self.typical_loss() / self.typical_norm()
        for scale in SCALES:
            for _ in range(WEIGHTS_PER_SCALE):
                weights = scale * unit * self.random.normal(size=self.width)
                yield At(f"random weights of scale {scale * unit:.2g}", _fixed(weights))

    def directed_weights(self, i: int) -> Iterator[At]:
        """Weights at which the true output is ahead of some rival, and the other way round."""
        y_true, candidates = self.pool[i][0], self.pool[i][1:]
        for k in self.random.permutation(len(candidates))[:3].tolist():
            direction = np.zeros(self.width or 0)
            np.add.at(direction, y_true.columns, y_true.values)
            np.subtract.at(direction, candidates[k].columns, candidates[k].values)
            square = float(direction @ direction)
            if square > 0.0:
                direction *= 2.0 * self.typical_loss() / square
                yield At("weights for the true output", _fixed(direction))
                yield At("weights against the true output", _fixed(-direction))
                return

    def typical_loss(self) -> float:
        losses = [
            candidate.loss
            for pool in self.pool.values()
            for candidate in pool
            if candidate.loss > 0.0
        ]
        return float(np.mean(losses)) if losses else 1.0

    def typical_norm(self) -> float:
        candidates = (candidate for pool in self.pool.values() for candidate in pool)
        norms = [float(np.linalg.norm(candidate.values)) for candidate in candidates]
        norms = [norm for norm in norms if norm > 0.0]
        return float(np.mean(norms)) if norms else 1.0

    # Searches

    def infer_all(self, at: At, again: bool = False) -> None:
        for i in self.pool:
            self.infer(i, at, again)

    def infer(self, i: int, at: At, again: bool = False) -> None:
        """Let all inferences answer; what they find is known from now on."""
        for method in (*self.oracle_calls, *self.optional_calls()):
            with suppress(Broken):
                answer = self.output(method, i, self.inferred(method, i, at.weights))
                found = self.candidate(i, answer, f"found by {method}")
                self.answers.append(Answer(method, i, at, found))
                if again:
                    self.compare_again(self.answers[-1])
                else:
                    self.know(i, [found])
        if hasattr(self.problem, "k_best") and not again:
            with suppress(Broken):
                self.infer_k_best(i, at)

    def know(self, i: int, found: list[Candidate]) -> None:
        """Let outputs be rivals of others from now on, unless their like already is."""
        keys = {candidate.key for candidate in self.pool[i] if candidate.proven}
        self.pool[i] += [candidate for candidate in found if candidate.key not in keys]

    def infer_k_best(self, i: int, at: At) -> None:
        outputs = list(self.ask("k_best", i, self.X[i], at.weights, K_BEST))
        found = [self.candidate(i, y, "found by top") for y in outputs]
        self.know(i, found)
        self.tops.append((i, at, found))

    def optional_calls(self) -> list[str]:
        return ["slack_rescaled_inference"] if isinstance(self.problem, RescalesSlack) else []

    def found(self, method: str, at: At) -> dict[int, Candidate]:
        """What an inference found at some weights, for each example."""
        mine = (each for each in self.answers if each.method == method and each.at is at)
        return {each.i: each.found for each in mine}

    def compare_again(self, answer: Answer) -> None:
        """Asked again, an inference must be as good; of equal ones, it may take any."""
        before = next(
            other
            for other in self.answers
            if (other.method, other.i) == (answer.method, answer.i) and other.at is answer.at
        )
        if before is answer:
            return
        value = self.value_of(answer)
        missed = abs(value(before.found) - value(answer.found))
        bad = missed > self.rounding(answer.at, before.found, answer.found)
        told = f"example {answer.i}, {answer.at.name}: {value(before.found):.6g}, then "
        told += f"{value(answer.found):.6g}"
        line = self.line(f"{answer.method}: as good when asked again")
        if bad and not self.exact:
            line.note(missed, told)
        line.tried(told if bad and self.exact else None)

    def compare_true_output_again(self, i: int) -> None:
        """After all searches, features must be the same as before."""
        with suppress(Broken):
            y_true = self.pool[i][0]
            columns, values = self.row(i, y_true.output)
            same = np.array_equal(columns, y_true.columns) and np.array_equal(values, y_true.values)
            told = f"example {i}: after some inferences it is not for the true output"
            self.line("joint_feature: the same when asked again").tried(None if same else told)

    # Verdicts

    def value_of(self, answer: Answer) -> Value:
        """What an inference is to maximise."""
        weights = answer.at.weights
        if answer.method == "inference":
            return lambda candidate: candidate.score(weights)
        if answer.method == "slack_rescaled_inference":
            own = self.pool[answer.i][0].score(weights)
            return lambda candidate: candidate.loss * (1.0 + candidate.score(weights) - own)
        return lambda candidate: candidate.loss + candidate.score(weights)

    def rounding(self, at: At, *candidates: Candidate) -> float:
        return ROUNDING * sum(candidate.terms(at.weights) for candidate in candidates)

    def competitors_of(self, answer: Answer) -> list[Candidate]:
        """Outputs that an inference must not have missed."""
        return self.pool[answer.i]

    def as_candidate(self, answer: Answer, candidate: Candidate) -> Candidate:
        """A true output need not be among what inference chooses from, unless it was there once."""
        i, key = answer.i, candidate.key
        if answer.method != "inference" or key not in self.true_keys[i] or key in self.reached[i]:
            return candidate
        return candidate._replace(proven=False)

    goals: ClassVar[dict[str, str]] = {
        "inference": "the highest score",
        "loss_augmented_inference": "the highest score plus loss",
        "slack_rescaled_inference": "the highest slack",
        "cuts": "the highest score plus loss",
        "loss_augmented_inference_wrong": "the highest score plus loss of a wrong output",
        "latent": "the highest score of a true output",
    }

    def judge(self, answer: Answer) -> None:
        method, i, at, found, admitted = answer
        line, value = self.line(f"{method}: {self.goals[method]}"), self.value_of(answer)
        candidates = [
            self.as_candidate(answer, candidate) for candidate in self.competitors_of(answer)
        ]
        proven = [candidate for candidate in candidates if candidate.proven]
        best = max(proven, key=value, default=found)
        missed = value(best) - value(found)
        rounding = self.rounding(at, best, found)
        told = (
            f"example {i}, {at.name}: it returned {found.output!r:.60} with {value(found):.6g}, "
            f"but {best.output!r:.60} ({best.source}) has {value(best):.6g}"
        )
        may_miss = np.inf if admitted is None else admitted + rounding
        if missed > rounding and not self.exact and missed <= may_miss:
            line.note(missed, f"relaxed, it misses up to {missed:.3g}: {told}")
            missed = 0.0
        elif missed > rounding and admitted is not None:
            told += f", and its excess admits {admitted:.3g} only"
        line.tried(told if missed > rounding else None)
        self.judge_borrowed(answer, candidates, max(value(best), value(found)))

    def judge_borrowed(self, answer: Answer, candidates: list[Candidate], highest: float) -> None:
        """An output of another example that would be higher is no proof, but worth a look."""
        value, method = self.value_of(answer), answer.method
        for candidate in candidates:
            missed = value(candidate) - highest
            if not candidate.proven and missed > self.rounding(answer.at, candidate, answer.found):
                self.line(f"{method}: {self.goals[method]}").note(
                    missed,
                    f"example {answer.i}, {answer.at.name}: {candidate.output!r:.60} "
                    f"({candidate.source}) would be {missed:.3g} higher, if {method} could "
                    f"find it for this input",
                )

    def judge_list(self, answer: Answer) -> None:
        """What an inference finds must not be above all outputs that are listed."""
        listed = self.listed.get(answer.i)
        if not listed:
            return
        value = self.value_of(answer)
        # The true output may be left out: solvers add it.
        best = max([*listed, self.pool[answer.i][0]], key=value)
        above = value(answer.found) - value(best)
        told = f"example {answer.i}, {answer.at.name}: {answer.found.output!r:.60} "
        told += f"({answer.found.source}) is {above:.3g} above all of them"
        bad = above > self.rounding(answer.at, best, answer.found)
        self.line("outputs: hold what the inferences find").tried(told if bad else None)

    # Training sets

    def plain_training(self) -> PythonOracle:
        """The examples as solvers see them, so far as `make_oracle` does not make another."""
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        return PythonOracle(self.problem, X, Y, np.ones(len(X)))

    def try_make_oracle(self, everywhere: list[At]) -> None:
        """Compare a training set of the problem's own with its methods."""
        try_make_oracle(self, everywhere)


def _fixed(weights: Floats) -> Floats:
    """Weights that nobody can write to, as a fit gives them."""
    weights.flags.writeable = False
    return weights


def _size(y: Any) -> int:
    """How many places an output has, if it has any."""
    if isinstance(y, np.ndarray):
        return int(y.size)
    return 1 if isinstance(y, str) or not hasattr(y, "__len__") else len(y)


def _alike(one: Any, other: Any) -> bool:
    """Whether two outputs are of the same kind, and of the same size if they have one."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return bool(one.shape == other.shape)
    if isinstance(one, str) or not hasattr(one, "__len__"):
        return True
    return len(one) == len(other)

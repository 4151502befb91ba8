"""Checks of the inferences of a `Problem` or `LatentProblem` at several weights.

Every output that any inference finds for an input, at whatever weights, is an output of that input,
and so is its true one. None of them may have a higher score than what inference returns, nor a
higher score plus loss than what loss-augmented inference does.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.checking.contract import (
    MAX_LISTED,
    Answer,
    At,
    Broken,
    Candidate,
    ContractChecks,
    Floats,
    Objective,
    in_words,
    same,
)
from maxmargin.core.cuts import Cuts
from maxmargin.core.kernel import n_rows
from maxmargin.core.latent import ImputedOracle, PythonLatentOracle, as_pair
from maxmargin.core.oracle import Oracle
from maxmargin.core.oracle_check import ROUNDING
from maxmargin.core.problem import (
    HasKBest,
    InfersBatches,
    ListsOutputs,
    MakesOracle,
    renumbered,
    rescales_slack,
)
from maxmargin.core.python_oracle import PythonOracle, as_row
from maxmargin.core.threads import Threads

ONE_THREAD = Threads(1)

K_BEST = 4
"""Outputs that `k_best` is asked for."""

SCALES = (0.1, 1.0, 10.0)
"""Of random weights; at 1, scores are about as large as losses."""

WEIGHTS_PER_SCALE = 3

REPEATED = 4
"""Weights at which every inference is called twice."""

TRUE = "a true output"
"""Source of true outputs."""

MAX_LENGTH, MAX_EXPECTED = 6, 1e5
"""Length of the shortest output, and expected number of outputs, up to which they are listed."""

FROM_OTHERS = 5
"""True outputs of other examples that are tried as candidates."""


class ProblemChecks(ContractChecks):
    """Of a `Problem`."""

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
        self.k_bests: list[tuple[int, At, list[Candidate]]] = []

    # What a latent problem does differently

    oracle_calls: ClassVar[tuple[str, ...]] = ("inference", "loss_augmented_inference")

    def feature(self, i: int, y: Any) -> Any:
        return self.call("joint_feature", i, self.X[i], y)

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
            return self.call(method, i, self.X[i], weights)
        return self.call(method, i, self.X[i], self.Y[i], weights)

    def run(self) -> None:
        """All checks."""
        for i in self.examples:
            self.begin(i)
        if self.width is None:
            return
        if isinstance(self.problem, ListsOutputs):
            self.list_outputs()
        else:
            self.borrow_outputs()
        everywhere = [At("zero weights", _fixed(np.zeros(self.width)))]
        self.infer_all(everywhere[0])
        for at in self.random_weights():
            everywhere.append(at)
            self.infer_all(at)
        for i in self.pool:
            for at in self.weights_towards(i):
                self.infer(i, at)
        for at in reversed(everywhere[:: max(1, len(everywhere) // REPEATED)]):
            self.infer_all(at, again=True)
        for i in self.pool:
            self.compare_true_output_again(i)
        if isinstance(self.problem, InfersBatches):
            self.check_cuts(everywhere)
        if isinstance(self.problem, MakesOracle):
            self.check_make_oracle(everywhere)
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
        for k_best in self.k_bests:
            self.judge_k_best(*k_best)

    def begin(self, i: int) -> None:
        """What is known of an example before any inference."""
        with suppress(Broken):
            self.check_true_loss(i, self.Y[i])
        with suppress(Broken):
            self.pool[i] = [self.candidate(i, y_true, TRUE) for y_true in self.y_true(i)]

    def candidate(self, i: int, y: Any, source: str, proven: bool = True) -> Candidate:
        """An output with its joint features and its loss, each computed twice."""
        columns, values = self.row(i, y)
        other_columns, other_values = self.row(i, y)
        same = np.array_equal(columns, other_columns) and np.array_equal(values, other_values)
        text = f"example {i}: it is not for the output {y!r:.60}"
        self.check("joint_feature: the same when called again").tried(None if same else text)
        return Candidate(y, columns, values, self.checked_output_loss(i, y), source, proven)

    def row(self, i: int, y: Any) -> tuple[NDArray[np.uint32], Floats]:
        given = self.feature(i, y)
        name = "joint_feature: finite numbers, always as many"
        text = f"for the output {y!r:.60}"
        try:
            columns, values, width = as_row(given)
        except (TypeError, ValueError):
            self.failed(name, i, f"it is {given!r:.60} {text}")
        self.width = self.width or width
        if width != self.width:
            self.failed(name, i, f"there are {width} {text}, but {self.width} before")
        if not np.isfinite(values).all():
            self.failed(name, i, f"there is NaN or infinity {text}")
        self.check(name).tried(None)
        return columns, values

    def list_outputs(self) -> None:
        """Make all outputs that the problem lists candidates.

        The smallest examples come first: from how many outputs these have it is seen where listing
        would take too long.
        """
        size, count = 1, 1
        for i in sorted(self.pool, key=lambda i: _size(self.Y[i])):
            bigger = _size(self.Y[i]) / size
            if (size == 1 and bigger > MAX_LENGTH) or count**bigger > MAX_EXPECTED:
                return
            with suppress(Broken):
                size, count = max(_size(self.Y[i]), 1), max(self.list_outputs_of(i), 1)

    def list_outputs_of(self, i: int) -> int:
        """Make the outputs of an example candidates; returns how many there are."""
        outputs = list(self.call("outputs", i, self.X[i]))
        n = len(outputs)
        if not n:
            self.failed("outputs: hold what the inferences find", i, "there are none")
        if n > MAX_LISTED:
            outputs = [outputs[k] for k in self.random.permutation(n)[:MAX_LISTED]]
        listed = [self.candidate(i, y, "of outputs(x)") for y in outputs]
        self.pool[i] += listed
        if n <= MAX_LISTED:
            self.listed[i] = listed
        return n

    def borrow_outputs(self) -> None:
        """True outputs of other examples are candidates that may not be outputs of this one."""
        for i in self.pool:
            some = self.random.permutation(n_rows(self.Y))[:50].tolist()
            alike = [j for j in some if j != i and _alike(self.Y[j], self.Y[i])]
            for j in alike[:FROM_OTHERS]:
                # With checks of its own: if methods fail, it is no output of this example.
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

    def weights_towards(self, i: int) -> Iterator[At]:
        """Weights that put the true output above some candidate, and below it."""
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

    # Inference

    def infer_all(self, at: At, again: bool = False) -> None:
        for i in self.pool:
            self.infer(i, at, again)

    def infer(self, i: int, at: At, again: bool = False) -> None:
        """Call every inference; what it finds is a candidate from now on."""
        for method in (*self.oracle_calls, *self.optional_calls()):
            with suppress(Broken):
                answer = self.output(method, i, self.inferred(method, i, at.weights))
                found = self.candidate(i, answer, f"found by {method}")
                self.answers.append(Answer(method, i, at, found))
                if again:
                    self.compare_again(self.answers[-1])
                else:
                    self.know(i, [found])
        if isinstance(self.problem, HasKBest) and not again:
            with suppress(Broken):
                self.infer_k_best(i, at)

    def know(self, i: int, found: list[Candidate]) -> None:
        """Add candidates, unless there are equal ones."""
        keys = {candidate.key for candidate in self.pool[i] if candidate.proven}
        self.pool[i] += [candidate for candidate in found if candidate.key not in keys]

    def infer_k_best(self, i: int, at: At) -> None:
        outputs = list(self.call("k_best", i, self.X[i], at.weights, K_BEST))
        found = [self.candidate(i, y, "found by k_best") for y in outputs]
        self.know(i, found)
        self.k_bests.append((i, at, found))

    def optional_calls(self) -> list[str]:
        return ["slack_rescaled_inference"] if rescales_slack(self.problem) else []

    def found(self, method: str, at: At) -> dict[int, Candidate]:
        """What an inference found at some weights, for each example."""
        mine = (each for each in self.answers if each.method == method and each.at is at)
        return {each.i: each.found for each in mine}

    def compare_again(self, answer: Answer) -> None:
        """Called again, an inference must be as good; of equal outputs it may return any."""
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
        text = f"example {answer.i}, {answer.at.name}: {value(before.found):.6g}, then "
        text += f"{value(answer.found):.6g}"
        line = self.check(f"{answer.method}: as good when called again")
        if bad and not self.exact:
            line.note(missed, text)
        line.tried(text if bad and self.exact else None)

    def compare_true_output_again(self, i: int) -> None:
        """After all inferences, joint features must be what they were."""
        with suppress(Broken):
            y_true = self.pool[i][0]
            columns, values = self.row(i, y_true.output)
            same = np.array_equal(columns, y_true.columns) and np.array_equal(values, y_true.values)
            text = f"example {i}: after some inferences it is not for the true output"
            self.check("joint_feature: the same when called again").tried(None if same else text)

    # Comparisons

    def value_of(self, answer: Answer) -> Objective:
        """What an inference maximises."""
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
        """Outputs that an inference maximises over."""
        return self.pool[answer.i]

    def as_candidate(self, answer: Answer, candidate: Candidate) -> Candidate:
        """A true output need not be one that inference can return, unless it did once."""
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
        line, value = self.check(f"{method}: {self.goals[method]}"), self.value_of(answer)
        candidates = [
            self.as_candidate(answer, candidate) for candidate in self.competitors_of(answer)
        ]
        proven = [candidate for candidate in candidates if candidate.proven]
        best = max(proven, key=value, default=found)
        missed = value(best) - value(found)
        rounding = self.rounding(at, best, found)
        text = (
            f"example {i}, {at.name}: it returned {found.output!r:.60} with {value(found):.6g}, "
            f"but {best.output!r:.60} ({best.source}) has {value(best):.6g}"
        )
        may_miss = np.inf if admitted is None else admitted + rounding
        if missed > rounding and not self.exact and missed <= may_miss:
            line.note(missed, f"not exact, it misses up to {missed:.3g}: {text}")
            missed = 0.0
        elif missed > rounding and admitted is not None:
            text += f", and its suboptimality bound is {admitted:.3g}"
        line.tried(text if missed > rounding else None)
        self.judge_borrowed(answer, candidates, max(value(best), value(found)))

    def judge_borrowed(self, answer: Answer, candidates: list[Candidate], highest: float) -> None:
        """A higher output of another example is no proof of a mistake, but worth a note."""
        value, method = self.value_of(answer), answer.method
        for candidate in candidates:
            missed = value(candidate) - highest
            if not candidate.proven and missed > self.rounding(answer.at, candidate, answer.found):
                self.check(f"{method}: {self.goals[method]}").note(
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
        # The true output may be left out of the list: solvers add it.
        best = max([*listed, self.pool[answer.i][0]], key=value)
        above = value(answer.found) - value(best)
        text = f"example {answer.i}, {answer.at.name}: {answer.found.output!r:.60} "
        text += f"({answer.found.source}) is {above:.3g} above all of them"
        bad = above > self.rounding(answer.at, best, answer.found)
        self.check("outputs: hold what the inferences find").tried(text if bad else None)

    # Oracles

    def plain_oracle(self) -> PythonOracle:
        """The oracle that solvers get if the problem does not make its own."""
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        return PythonOracle(self.problem, X, Y, np.ones(len(X)))

    def judge_k_best(self, i: int, at: At, found: list[Candidate]) -> None:
        """The best outputs must be the best ones, the best first, each once."""
        line = self.check(f"k_best: the {K_BEST} highest scores, highest first")
        wrong = self._wrong_k_best(i, at, found)
        if wrong is not None and not self.exact:
            line.note(0.0, f"example {i}, {at.name}: {wrong}")
            wrong = None
        line.tried(None if wrong is None else f"example {i}, {at.name}: {wrong}")

    def _wrong_k_best(self, i: int, at: At, found: list[Candidate]) -> str | None:
        if not 1 <= len(found) <= K_BEST:
            return f"there are {len(found)} outputs"
        if any(same(one.output, other.output) for one, other in combinations(found, 2)):
            return "an output is there twice"
        scores, rounding = (
            [candidate.score(at.weights) for candidate in found],
            self.rounding(at, *found),
        )
        if any(after > before + rounding for before, after in pairwise(scores)):
            return f"the scores {[round(score, 6) for score in scores]} rise"
        # Outputs need not be comparable; those with other features are others for sure.
        mine = {candidate.key[0] for candidate in found}
        others = [each for each in self.pool[i] if each.proven and each.key[0] not in mine]
        least = scores[-1] if len(found) == K_BEST else -np.inf
        missed = max(others, key=lambda candidate: candidate.score(at.weights), default=None)
        if missed is None or missed.score(at.weights) <= least + rounding:
            return None
        score = missed.score(at.weights)
        return f"{missed.output!r:.60} ({missed.source}), with {score:.6g}, is missing"

    def check_cuts(self, everywhere: Sequence[At]) -> None:
        """Cuts of a batch must be those of their outputs; whether maximal is judged later."""
        name = "cuts: agree with joint_feature and loss"
        examples = list(self.pool)
        try:
            oracle = self.plain_oracle()
        except Exception as error:
            self.check(name).tried(f"no oracle can be made of this sample: {in_words(error)}")
            return
        oracle.checker = None
        for at in everywhere:
            try:
                cuts = oracle.separate(at.weights, np.arange(len(examples)), ONE_THREAD)
            except Exception as error:
                self.check(name).tried(f"{at.name}: {renumbered(str(error), examples)}")
                continue
            for k, i in enumerate(examples):
                with suppress(Broken):
                    self._check_cut(name, i, at, cuts, k)

    def _check_cut(self, name: str, i: int, at: At, cuts: Cuts, k: int) -> None:
        found, loss = self.candidate(i, cuts.outputs[k], "found by cuts"), float(cuts.losses[k])
        apart = self._distance(i, found, cuts, k)
        bad = apart > ROUNDING or abs(loss - found.loss) > ROUNDING * (1.0 + found.loss)
        text = f"example {i}, {at.name}: for {found.output!r:.60} the loss is {loss:.6g}, not "
        text += f"{found.loss:.6g}, and the features are {apart:.3g} off"
        self.check(name).tried(text if bad else None)
        admitted = None if cuts.suboptimality is None else float(cuts.suboptimality[k])
        self.answers.append(Answer("cuts", i, at, found, admitted))

    def _distance(self, i: int, found: Candidate, cuts: Cuts, k: int) -> float:
        """Relative distance of a cut from joint_feature of y_true less that of its output."""
        y_true, entries = self.pool[i][0], slice(cuts.starts[k], cuts.starts[k + 1])
        difference = np.zeros(self.width or 0)
        np.add.at(difference, y_true.columns, y_true.values)
        np.subtract.at(difference, found.columns, found.values)
        size = 1.0 + float(np.abs(difference).max(initial=0.0))
        np.subtract.at(difference, cuts.columns[entries], cuts.values[entries])
        return float(np.abs(difference).max(initial=0.0)) / size

    def check_make_oracle(self, everywhere: Sequence[At]) -> None:
        """The problem's own oracle must find cuts as violated as its methods do."""
        line = self.check(
            "make_oracle: its cuts are as violated as those of loss_augmented_inference"
        )
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        try:
            oracle: Oracle = self.problem.make_oracle(X, Y, np.ones(len(X)), "margin")
            if oracle.n_features != self.width:
                text = f"there are {oracle.n_features} features, but joint_feature has {self.width}"
                line.tried(text)
                return
            for at in everywhere:
                for wrong in self._wrong_slopes(oracle, at):
                    line.tried(wrong)
        except Exception as error:
            line.tried(f"it raised {in_words(error)}")

    def _wrong_slopes(self, oracle: Oracle, at: At) -> list[str | None]:
        """For each example, what is wrong with its cut, or None."""
        examples = np.arange(len(self.pool))
        cuts = oracle.separate(at.weights, examples, ONE_THREAD)
        slopes = cuts.slopes(at.weights)
        again = oracle.cuts_of(examples, cuts.outputs).slopes(at.weights)
        found = self.found("loss_augmented_inference", at)
        wrong: list[str | None] = []
        for k, i in enumerate(self.pool):
            if i not in found:
                continue
            y_true, best = self.pool[i][0], found[i]
            expected = best.loss + best.score(at.weights) - y_true.score(at.weights)
            admitted = np.inf if not oracle.exact and cuts.suboptimality is None else 0.0
            admitted += 0.0 if cuts.suboptimality is None else float(cuts.suboptimality[k])
            rounding = self.rounding(at, y_true, best) + ROUNDING
            # An inexact `loss_augmented_inference` may miss what the oracle finds.
            above = slopes[k] > expected + rounding and self.exact
            below = slopes[k] + admitted < expected - rounding
            bad = above or below or abs(slopes[k] - again[k]) > rounding
            text = f"example {i}, {at.name}: {slopes[k]:.6g}, made anew {again[k]:.6g}, but "
            text += f"{expected:.6g} by loss_augmented_inference"
            wrong.append(text if bad else None)
        return wrong


class LatentProblemChecks(ProblemChecks):
    """Of a `LatentProblem`: outputs are pairs of an output and a latent variable."""

    oracle_calls: ClassVar[tuple[str, ...]] = ("inference", "loss_augmented_inference", "latent")

    def feature(self, i: int, pair: Any) -> Any:
        return self.call("joint_feature", i, self.X[i], *pair)

    def checked_output_loss(self, i: int, pair: Any) -> float:
        return self.checked_loss(i, pair[0])

    def y_true(self, i: int) -> list[Any]:
        drawn = [self.call("init_latent", i, self.X[i], self.Y[i], self.random) for _ in range(2)]
        return [(self.Y[i], h) for h in drawn]

    def output(self, method: str, i: int, answer: Any) -> Any:
        if method == "latent":
            return self.Y[i], answer
        try:
            return as_pair(answer)
        except TypeError as error:
            self.failed(f"{method}: returns a pair (y, h)", i, str(error))

    def optional_calls(self) -> list[str]:
        return [name for name in ("loss_augmented_inference_wrong",) if hasattr(self.problem, name)]

    def borrow_outputs(self) -> None:
        """A latent variable of another example says nothing here."""

    def competitors_of(self, answer: Answer) -> list[Candidate]:
        candidates = self.pool[answer.i]
        if answer.method == "loss_augmented_inference_wrong":
            return [candidate for candidate in candidates if candidate.loss > 0.0]
        if answer.method == "latent":
            return [
                candidate for candidate in candidates if same(candidate.output[0], self.Y[answer.i])
            ]
        return candidates

    def value_of(self, answer: Answer) -> Objective:
        if answer.method == "latent":
            return lambda candidate: candidate.score(answer.at.weights)
        return super().value_of(answer)

    def judge(self, answer: Answer) -> None:
        super().judge(answer)
        if answer.method == "loss_augmented_inference_wrong":
            text = (
                f"example {answer.i}: it is {answer.found.loss:g} for {answer.found.output!r:.60}"
            )
            bad = answer.found.loss <= 0.0
            self.check("loss_augmented_inference_wrong: its loss is positive").tried(
                text if bad else None
            )

    def plain_oracle(self) -> ImputedOracle:
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        latent = PythonLatentOracle(self.problem, X, Y, np.ones(len(X)))
        return latent.imputed([candidates[0].output[1] for candidates in self.pool.values()])

    def check_make_oracle(self, everywhere: Sequence[At]) -> None:
        """With the best imputations, hinges must be those of its methods."""
        line = self.check(
            "make_oracle: its hinges are those of loss_augmented_inference and latent"
        )
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        try:
            latent = self.problem.make_oracle(X, Y, np.ones(len(X)))
            first = latent.init_latent(np.random.default_rng(0))
            for at in everywhere:
                oracle = latent.imputed(latent.impute(at.weights, first, ONE_THREAD))
                cuts = oracle.separate(at.weights, np.arange(len(X)), ONE_THREAD)
                for text in self.wrong_hinges(at, np.maximum(cuts.slopes(at.weights), 0.0)):
                    line.tried(text)
        except Exception as error:
            line.tried(f"it raised {in_words(error)}")

    def wrong_hinges(self, at: At, hinges: Floats) -> list[str | None]:
        """For each example, what is wrong with its hinge, or None."""
        separated, imputed = (
            self.found("loss_augmented_inference", at),
            self.found("latent", at),
        )
        wrong: list[str | None] = []
        for k, i in enumerate(self.pool):
            if i in separated and i in imputed:
                best, y_true = separated[i], imputed[i]
                expected = best.loss + best.score(at.weights) - y_true.score(at.weights)
                bad = abs(hinges[k] - expected) > self.rounding(at, best, y_true) + ROUNDING
                text = f"example {i}, {at.name}: {hinges[k]:.6g}, not {expected:.6g}"
                wrong.append(text if bad and self.exact else None)
        return wrong


def _fixed(weights: Floats) -> Floats:
    """Weights that are read-only, as in a fit."""
    weights.flags.writeable = False
    return weights


def _size(y: Any) -> int:
    """Length of an output, if it has one."""
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

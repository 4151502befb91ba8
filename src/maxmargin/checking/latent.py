"""A `LatentProblem` tried at several weights."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.checking.sheet import Answer, At, Rival, in_words, same
from maxmargin.checking.trial import Trial, Value
from maxmargin.compiled.threads import Threads
from maxmargin.core.latent import CompletedTrainingSet, PythonLatentTrainingSet, as_pair
from maxmargin.core.oracle_check import ROUNDING

Floats = NDArray[np.float64]

ONE_THREAD = Threads(1)


class LatentTrial(Trial):
    """A `LatentProblem`: outputs are pairs of an output and a latent variable."""

    searches: ClassVar[tuple[str, ...]] = ("decode", "separate", "complete")

    def feature(self, i: int, pair: Any) -> Any:
        return self.ask("joint_feature", i, self.X[i], *pair)

    def checked_output_loss(self, i: int, pair: Any) -> float:
        return self.checked_loss(i, pair[0])

    def truths(self, i: int) -> list[Any]:
        drawn = [self.ask("initial", i, self.X[i], self.Y[i], self.random) for _ in range(2)]
        return [(self.Y[i], h) for h in drawn]

    def output(self, method: str, i: int, answer: Any) -> Any:
        if method == "complete":
            return self.Y[i], answer
        try:
            return as_pair(answer)
        except TypeError as error:
            self.failed(f"{method}: returns a pair (y, h)", i, str(error))

    def optional_searches(self) -> list[str]:
        return [name for name in ("separate_wrong",) if hasattr(self.problem, name)]

    def borrow_outputs(self) -> None:
        """A latent variable of another example says nothing here."""

    def rivals_of(self, answer: Answer) -> list[Rival]:
        rivals = self.pool[answer.i]
        if answer.method == "separate_wrong":
            return [rival for rival in rivals if rival.loss > 0.0]
        if answer.method == "complete":
            return [rival for rival in rivals if same(rival.output[0], self.Y[answer.i])]
        return rivals

    def value_of(self, answer: Answer) -> Value:
        if answer.method == "complete":
            return lambda rival: rival.score(answer.at.weights)
        return super().value_of(answer)

    def judge(self, answer: Answer) -> None:
        super().judge(answer)
        if answer.method == "separate_wrong":
            told = (
                f"example {answer.i}: it is {answer.found.loss:g} for {answer.found.output!r:.60}"
            )
            bad = answer.found.loss <= 0.0
            self.line("separate_wrong: its loss is positive").tried(told if bad else None)

    def plain_training(self) -> CompletedTrainingSet:
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        latent = PythonLatentTrainingSet(self.problem, X, Y, np.ones(len(X)))
        return latent.completed([rivals[0].output[1] for rivals in self.pool.values()])

    def try_bind(self, everywhere: list[At]) -> None:
        """With the best completions, hinges must be those of separate and complete."""
        line = self.line("bind: its hinges are those of separate and complete")
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        try:
            latent = self.problem.bind(X, Y, np.ones(len(X)))
            first = latent.initial(np.random.default_rng(0))
            for at in everywhere:
                training = latent.completed(latent.complete(at.weights, first, ONE_THREAD))
                planes = training.planes(at.weights, np.arange(len(X)), ONE_THREAD)
                for told in self.wrong_hinges(at, np.maximum(planes.slopes(at.weights), 0.0)):
                    line.tried(told)
        except Exception as error:
            line.tried(f"it raised {in_words(error)}")

    def wrong_hinges(self, at: At, hinges: Floats) -> list[str | None]:
        """For each example, what is wrong with its hinge, or None."""
        separated, completed = self.found("separate", at), self.found("complete", at)
        wrong: list[str | None] = []
        for k, i in enumerate(self.pool):
            if i in separated and i in completed:
                best, truth = separated[i], completed[i]
                expected = best.loss + best.score(at.weights) - truth.score(at.weights)
                bad = abs(hinges[k] - expected) > self.rounding(at, best, truth) + ROUNDING
                told = f"example {i}, {at.name}: {hinges[k]:.6g}, not {expected:.6g}"
                wrong.append(told if bad and not self.relaxed else None)
        return wrong

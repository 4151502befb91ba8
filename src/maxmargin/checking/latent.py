"""A `LatentProblem` tried at several weights."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.checking.sheet import Answer, At, Candidate, in_words, same
from maxmargin.checking.trial import Trial, Value
from maxmargin.core.latent import ImputedOracle, PythonLatentOracle, as_pair
from maxmargin.core.oracle_check import ROUNDING
from maxmargin.core.threads import Threads

Floats = NDArray[np.float64]

ONE_THREAD = Threads(1)


class LatentTrial(Trial):
    """A `LatentProblem`: outputs are pairs of an output and a latent variable."""

    oracle_calls: ClassVar[tuple[str, ...]] = ("inference", "loss_augmented_inference", "latent")

    def feature(self, i: int, pair: Any) -> Any:
        return self.ask("joint_feature", i, self.X[i], *pair)

    def checked_output_loss(self, i: int, pair: Any) -> float:
        return self.checked_loss(i, pair[0])

    def y_true(self, i: int) -> list[Any]:
        drawn = [self.ask("init_latent", i, self.X[i], self.Y[i], self.random) for _ in range(2)]
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

    def value_of(self, answer: Answer) -> Value:
        if answer.method == "latent":
            return lambda candidate: candidate.score(answer.at.weights)
        return super().value_of(answer)

    def judge(self, answer: Answer) -> None:
        super().judge(answer)
        if answer.method == "loss_augmented_inference_wrong":
            told = (
                f"example {answer.i}: it is {answer.found.loss:g} for {answer.found.output!r:.60}"
            )
            bad = answer.found.loss <= 0.0
            self.line("loss_augmented_inference_wrong: its loss is positive").tried(
                told if bad else None
            )

    def plain_training(self) -> ImputedOracle:
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        latent = PythonLatentOracle(self.problem, X, Y, np.ones(len(X)))
        return latent.imputed([candidates[0].output[1] for candidates in self.pool.values()])

    def try_make_oracle(self, everywhere: list[At]) -> None:
        """With the best imputations, hinges must be those of separate and complete."""
        line = self.line("make_oracle: its hinges are those of separate and complete")
        X, Y = [self.X[i] for i in self.pool], [self.Y[i] for i in self.pool]
        try:
            latent = self.problem.make_oracle(X, Y, np.ones(len(X)))
            first = latent.init_latent(np.random.default_rng(0))
            for at in everywhere:
                oracle = latent.imputed(latent.impute(at.weights, first, ONE_THREAD))
                cuts = oracle.separate(at.weights, np.arange(len(X)), ONE_THREAD)
                for told in self.wrong_hinges(at, np.maximum(cuts.slopes(at.weights), 0.0)):
                    line.tried(told)
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
                told = f"example {i}, {at.name}: {hinges[k]:.6g}, not {expected:.6g}"
                wrong.append(told if bad and self.exact else None)
        return wrong

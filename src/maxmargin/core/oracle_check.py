"""Checks of a user's oracle while it trains.

A certificate is as good as loss-augmented inference. MAP inference maximises over the same outputs,
so neither may miss what the other found, nor what was found at other weights.
"""

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import Cuts

if TYPE_CHECKING:
    from maxmargin.core.kernel import NewOutputs
    from maxmargin.core.kernel_oracle import KernelOracle
    from maxmargin.core.python_oracle import PythonOracle


ROUNDING = 1e-5
"""Relative to the terms, how far a maximum may be missed: scores may be of single precision."""

FIRST, EVERY = 3, 50
"""Answers at first that are all compared; then, one in so many on average."""

MAX_FEATURES_AT_RANDOM = 1 << 20
"""Features up to which first answers are also compared with those at random weights."""

EXTRA_RANDOM_WEIGHTS = 4
"""How many more of these are tried where no output violates zero weights."""

MAX_CANDIDATES, MAX_ENTRIES = 8, 1 << 22
"""Outputs that are remembered of an example, and entries of all of them."""

REMEMBERED_ONE_IN = 32
"""One in so many examples has its outputs remembered."""

ADVICE = "run mm.check_problem(problem, X, y) to see more"


class ProblemWarning(UserWarning):
    """The inferences of a problem contradict each other, so its certificate proves nothing.

    Given at most once in a fit, which goes on. The problem in the examples of `check_problem`,
    where the sign of the loss is wrong, is one that a fit warns of.

    See Also
    --------
    maxmargin.check_problem : Finds what is wrong.
    """


@dataclass(slots=True, eq=False)
class Candidate:
    """An output with its features, or these less those of the true output."""

    columns: NDArray[np.uint32]
    values: Floats
    loss: float
    output: Any

    @property
    def key(self) -> tuple[bytes, bytes, float]:
        """Hashable identity, since outputs need not be comparable."""
        return self.columns.tobytes(), self.values.tobytes(), self.loss

    def score(self, weights: Floats) -> float:
        """Its score, less that of the true output where the features are."""
        return float(self.values @ weights[self.columns])

    def terms(self, weights: Floats) -> float:
        """Sum of the absolute terms of its score."""
        return float(np.abs(self.values) @ np.abs(weights[self.columns]))


Objective = Callable[[Candidate], float]


def objective(what: str, weights: Floats, y_true_score: float = 0.0) -> Objective:
    """What an inference maximises: the "score", "score plus loss" or "slack" of an output."""
    if what == "slack":
        return lambda one: one.loss * (1.0 + one.score(weights) - y_true_score)
    if what == "score plus loss":
        return lambda one: one.loss + one.score(weights)
    return lambda one: one.score(weights)


class OracleChecker:
    """Compares a few answers of an oracle, with its own random numbers, and warns once."""

    __slots__ = ("_calls", "_next", "_random", "_seen", "sentence", "warned")

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._calls = self._seen = self._next = 0
        self.sentence: str | None = None
        self.warned = False

    def __reduce__(self) -> Any:
        return OracleChecker, ()

    def warn(self) -> None:
        if self.sentence is not None and not self.warned:
            self.warned = True
            warnings.warn(self.sentence, ProblemWarning, stacklevel=_frames_of_ours())

    def check(self, oracle: "PythonOracle", cuts: Cuts, weights: Floats, examples: Order) -> None:
        """Check cuts that loss-augmented inference found at `weights`; never raises."""
        due = self._due(len(examples))
        for k, i in enumerate(examples.tolist()):
            if k in due or i in oracle.known:
                found = candidate_of_cut(cuts, k, oracle.by_slack)
                self._try(self._compare, oracle, i, found, weights, due.get(k))

    def check_listed(self, oracle: "KernelOracle", outputs: "NewOutputs") -> None:
        """Check what was found by enumerating the outputs of examples."""
        for k in self._due(len(outputs.losses)):
            self._try(oracle.check_agreement, outputs.take(np.array([k])))

    def _try(self, check: Callable[..., None], *arguments: Any) -> None:
        """Check, unless something has been found wrong before; what is raised is wrong, too."""
        if self.sentence is None:
            try:
                check(*arguments)
            except Exception as error:
                self._complain(str(error))

    def _due(self, n: int) -> dict[int, bool]:
        """Which of the next `n` answers to check, and which are among the first."""
        begin, self._calls = self._calls, self._calls + n
        due = {}
        while self._next < self._calls:
            due[self._next - begin] = self._seen < FIRST
            self._seen += 1
            early = self._seen < FIRST
            self._next += 1 if early else int(self._random.integers(1, 2 * EVERY))
        return due

    def _compare(
        self, oracle: "PythonOracle", i: int, found: Candidate, weights: Floats, due: bool | None
    ) -> None:
        """Compare an answer with known outputs and, if `due`, with that of MAP inference."""
        known = list(oracle.known.get(i, {}).values())
        mine = [found] if found.loss > 0.0 or found.values.any() else []
        others = []
        if due is not None:
            oracle.check_agreement(i, found)
            answer = oracle.candidate(i, oracle.inferred_best(i, weights))
            # The true output counts only if inference has found it once: it need not be among
            # those that inference maximises over.
            self._check_maximum(oracle, i, [*mine, *known], answer, weights, "score")
            none_violates = found.loss == 0.0 and not weights.any()
            tries = due + EXTRA_RANDOM_WEIGHTS * none_violates
            others = [answer]
            for _ in range(tries if oracle.n_features <= MAX_FEATURES_AT_RANDOM else 0):
                at_random = self._random.normal(size=oracle.n_features)
                with suppress(Exception):  # it may fail at weights that no fit reaches
                    others.append(oracle.candidate(i, oracle.inferred_best(i, at_random)))
        rivals = [one for one in [*known, *others] if oracle.is_candidate(one)]
        what = "slack" if oracle.by_slack else "score plus loss"
        self._check_maximum(oracle, i, rivals, found, weights, what)
        # Outputs of as many examples are remembered as memory allows if all are as large as this.
        room = MAX_ENTRIES // (MAX_CANDIDATES * (1 + len(found.values)))
        room = min(room, 1 + oracle.n_examples // REMEMBERED_ONE_IN)
        if i in oracle.known or len(oracle.known) < room:
            kept = oracle.known.setdefault(i, {})
            kept.update((one.key, one) for one in [*mine, *others])
            while len(kept) > MAX_CANDIDATES:
                kept.pop(list(kept)[int(self._random.integers(len(kept)))])

    def _check_maximum(
        self,
        oracle: "PythonOracle",
        i: int,
        candidates: list[Candidate],
        found: Candidate,
        weights: Floats,
        what: str,
    ) -> None:
        """Note a contradiction if an output is higher than what inference found."""
        value = objective(what, weights)
        best = max(candidates, key=value, default=found)
        missed = value(best) - value(found)
        terms = best.terms(weights) + found.terms(weights) + oracle.true_terms(i, weights)
        if oracle.by_slack:
            terms *= max(best.loss, found.loss)
        if missed > ROUNDING * (terms + best.loss + found.loss):
            method = oracle.inference_name if what == "score" else oracle.oracle_name
            self._complain(
                f"{method} does not find the maximum: for example {oracle.first + i} the output "
                f"{best.output!r:.80}, whose loss is {best.loss:.3g}, has a {what} that is "
                f"{missed:.3g} higher than that of {found.output!r:.80}, whose loss is "
                f"{found.loss:.3g}"
            )

    def _complain(self, what: str) -> None:
        self.sentence = f"{' '.join(what.split()).rstrip('.')}: {ADVICE}."


def candidate_of_cut(cuts: Cuts, k: int, by_slack: bool) -> Candidate:
    """What was found for one of the examples of a batch."""
    entries, loss = slice(cuts.starts[k], cuts.starts[k + 1]), float(cuts.losses[k])
    # With a loss of zero, all of the cut is zero.
    factor = -1.0 / loss if by_slack and loss > 0.0 else -1.0
    return Candidate(
        cuts.columns[entries].copy(), factor * cuts.values[entries], loss, cuts.outputs[k]
    )


def _frames_of_ours() -> int:
    """Stack level of the caller of this package."""
    level, frame, ours = 1, sys._getframe(1), ("maxmargin", "sklearn")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ours:
        level, frame = level + 1, frame.f_back
    return level

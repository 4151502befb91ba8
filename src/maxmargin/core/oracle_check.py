"""Checks a user's oracle while it trains: its two inferences must not contradict each other.

A certificate is as good as loss-augmented inference. One that misses an output, or has the sign of
the loss wrong, gets a perfect certificate for useless weights. But inference (`inference`) and
loss-augmented inference (`loss_augmented_inference`) maximise over the same outputs, so each checks
the other: what one finds, the other must not have missed. Besides, whatever was found for an
example at other weights is still an output of it.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.cuts import Cuts
from maxmargin.core.kernel import NewOutputs

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

ROUNDING = 1e-5
"""By how much a maximum may seem to be missed, relative to the sizes of the terms: features and
scores may be of single precision."""

FIRST, EVERY = 3, 50
"""The first answers are all compared; from then on, one in so many, on average."""

MAX_FEATURES_AT_RANDOM = 1 << 20
"""Up to so many features, the first answers are compared with those at random weights, too."""

EXTRA_RANDOM_WEIGHTS = 4
"""Of these, how many more are tried where no output violates zero weights."""

MAX_CANDIDATES, MAX_ENTRIES = 8, 1 << 22
"""Outputs of an example that are remembered, and entries of all of them."""

REMEMBERED_ONE_IN = 32
"""One in so many of the examples has its outputs remembered: comparing takes time, too."""

ADVICE = "run mm.check_problem(problem, X, y) to see more"


class ProblemWarning(UserWarning):
    """The inferences of a problem contradict each other, so its certificate proves nothing.

    Given at most once in a fit, which goes on.

    See Also
    --------
    maxmargin.check_problem : Finds what is wrong.

    Examples
    --------
    A sign that is wrong in the loss-augmented inference:

    >>> import warnings
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
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = mm.StructuredSVM(ThreeClasses()).fit(np.eye(3), [0, 1, 2])
    >>> [warning.category.__name__ for warning in caught]
    ['ProblemWarning']
    """


class Candidate(NamedTuple):
    """An output of an example, beside the true one.

    Parameters
    ----------
    columns, values : ndarray of shape (n_entries,)
        Features of the true output less those of this one.
    loss : float
    output : object
    """

    columns: NDArray[np.uint32]
    values: Floats
    loss: float
    output: Any

    def score(self, weights: Floats) -> float:
        """Its score less that of the true output."""
        return -float(self.values @ weights[self.columns])

    def terms(self, weights: Floats) -> float:
        """Sum of the absolute terms of its score."""
        return float(np.abs(self.values) @ np.abs(weights[self.columns]))


class CheckedOracle(Protocol):
    """The oracle of a problem that a user wrote."""

    n_features: int
    by_slack: bool
    known: dict[int, dict[Any, Candidate]]
    """Outputs of some examples that were found before, at whatever weights."""
    first: int
    """How many examples come before those of this oracle."""

    @property
    def n_examples(self) -> int: ...

    @property
    def oracle_name(self) -> str: ...

    @property
    def inference_name(self) -> str: ...

    def candidate(self, i: int, y: Any) -> Candidate:
        """Any output of an example."""

    def inferred_best(self, i: int, weights: Floats) -> Any:
        """What inference finds."""

    def is_candidate(self, candidate: Candidate) -> bool:
        """Whether loss-augmented inference has to beat it."""

    def true_terms(self, i: int, weights: Floats) -> float:
        """Sum of the absolute terms of the score of the true output."""

    def check_agreement(self, i: int, found: Candidate) -> None:
        """Check that the true output's loss is zero, and that a cut is that of its output."""


class CheckedKernelOracle(Protocol):
    """The oracle of a kernel problem, which enumerates all outputs."""

    def check_agreement(self, outputs: NewOutputs) -> None:
        """Check that what was computed for all outputs is what each gives alone."""


class OracleChecker:
    """Compares some of the answers of an oracle, within a budget, and warns once.

    It does not change the fit: it has a random generator of its own and counts no oracle calls. It
    costs a call of `inference` for the first three answers and for two in a hundred of the rest,
    and one at random weights for the first three.

    It has no attributes that a checkpoint would take for data.
    """

    __slots__ = ("_calls", "_next", "_random", "_seen", "sentence", "warned")

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._calls = self._seen = self._next = 0
        self.sentence: str | None = None
        """What is wrong."""
        self.warned = False

    def __reduce__(self) -> Any:
        return OracleChecker, ()

    def warn(self) -> None:
        """Warn of what is wrong, if that has not been done."""
        if self.sentence is not None and not self.warned:
            self.warned = True
            warnings.warn(self.sentence, ProblemWarning, stacklevel=_frames_of_ours())

    def check(self, oracle: CheckedOracle, cuts: Cuts, weights: Floats, examples: Order) -> None:
        """Check cuts that loss-augmented inference found at these weights; never raises."""
        if self.sentence is not None:
            return
        due = dict(self._due(len(examples)))
        for k, i in enumerate(examples.tolist()):
            if k not in due and i not in oracle.known:
                continue
            try:
                found = _competitor_of(cuts, k, oracle.by_slack)
                self._compare(oracle, i, found, weights, due.get(k))
            except Exception as error:
                self._complain(str(error).rstrip("."))
            if self.sentence is not None:
                return

    def check_listed(self, oracle: CheckedKernelOracle, outputs: NewOutputs) -> None:
        """Check what was found by enumerating the outputs of examples."""
        if self.sentence is not None:
            return
        for k, _ in self._due(len(outputs.losses)):
            try:
                oracle.check_agreement(outputs.take(np.array([k])))
            except Exception as error:
                self._complain(str(error).rstrip("."))
                return

    def _due(self, n: int) -> Iterator[tuple[int, bool]]:
        """Which of the next `n` answers to check, and whether it is one of the first."""
        begin, self._calls = self._calls, self._calls + n
        while self._next < self._calls:
            yield self._next - begin, self._seen < FIRST
            self._seen += 1
            early = self._seen < FIRST
            self._next += 1 if early else int(self._random.integers(1, 2 * EVERY))

    def _compare(
        self, oracle: CheckedOracle, i: int, found: Candidate, weights: Floats, due: bool | None
    ) -> None:
        """Compare an answer with known outputs; if it is `due`, with what inference finds, too."""
        candidates = list(oracle.known.get(i, {}).values())
        before = len(candidates)
        mine = [found] if found.loss > 0.0 or found.values.any() else []
        if due is not None:
            oracle.check_agreement(i, found)
            answer = oracle.candidate(i, oracle.inferred_best(i, weights))
            self._check_score(oracle, i, [*mine, *candidates], answer, weights)
            none_violates = found.loss == 0.0 and not weights.any()
            tries = due + EXTRA_RANDOM_WEIGHTS * none_violates
            candidates = [*candidates, answer, *self._at_random(oracle, i, tries)]
        self._check_value(oracle, i, candidates, found, weights)
        if i in oracle.known or len(oracle.known) < _most_examples(oracle, found):
            self._remember(oracle.known.setdefault(i, {}), [*mine, *candidates[before:]])

    def _remember(self, known: dict[Any, Candidate], found: list[Candidate]) -> None:
        """Keep outputs, each once: they need not be comparable, but their cuts are."""
        for candidate in found:
            known[candidate.loss, candidate.columns.tobytes(), candidate.values.tobytes()] = (
                candidate
            )
        while len(known) > MAX_CANDIDATES:
            known.pop(list(known)[int(self._random.integers(len(known)))])

    def _at_random(self, oracle: CheckedOracle, i: int, tries: int) -> Iterator[Candidate]:
        """What inference finds at random weights."""
        for _ in range(tries if oracle.n_features <= MAX_FEATURES_AT_RANDOM else 0):
            weights = self._random.normal(size=oracle.n_features)
            with suppress(Exception):  # it may fail at weights that no fit reaches
                yield oracle.candidate(i, oracle.inferred_best(i, weights))

    def _check_score(
        self,
        oracle: CheckedOracle,
        i: int,
        candidates: list[Candidate],
        answer: Candidate,
        weights: Floats,
    ) -> None:
        """Inference must find a score no lower than that of any output.

        The true output counts only if inference itself has found it once: it need not be among
        those that inference maximises over.
        """
        if not candidates:
            return
        best = max(candidates, key=lambda candidate: candidate.score(weights))
        missed = best.score(weights) - answer.score(weights)
        if missed > ROUNDING * _size(oracle, i, best, answer, weights):
            self._complain(
                f"{oracle.inference_name} does not find the maximum: for example "
                f"{oracle.first + i} the output {best.output!r:.80} has a score that is "
                f"{missed:.3g} higher than that of {answer.output!r:.80}",
            )

    def _check_value(
        self,
        oracle: CheckedOracle,
        i: int,
        candidates: list[Candidate],
        found: Candidate,
        weights: Floats,
    ) -> None:
        """Loss-augmented inference must find a value no lower than that of any output."""

        def value(candidate: Candidate) -> float:
            score = candidate.score(weights)
            return candidate.loss * (1.0 + score) if oracle.by_slack else candidate.loss + score

        candidates = [candidate for candidate in candidates if oracle.is_candidate(candidate)]
        if not candidates:
            return
        best = max(candidates, key=value)
        missed = value(best) - value(found)
        if missed > ROUNDING * _size(oracle, i, best, found, weights):
            what = "slack" if oracle.by_slack else "score plus loss"
            self._complain(
                f"{oracle.oracle_name} does not find the maximum: for example "
                f"{oracle.first + i} the output {best.output!r:.80}, whose loss is "
                f"{best.loss:.3g}, has a {what} that is {missed:.3g} higher than that of "
                f"{found.output!r:.80}, whose loss is {found.loss:.3g}",
            )

    def _complain(self, what: str) -> None:
        self.sentence = f"{' '.join(what.split())}: {ADVICE}."


def _competitor_of(cuts: Cuts, k: int, by_slack: bool) -> Candidate:
    """What was found for one of the examples of a batch."""
    entries = slice(cuts.starts[k], cuts.starts[k + 1])
    columns, values, loss = cuts.columns[entries], cuts.values[entries], cuts.losses[k]
    # With a loss of zero, all of the cut is zero.
    factor = 1.0 / loss if by_slack and loss > 0.0 else 1.0
    return Candidate(columns.copy(), factor * values, float(loss), cuts.outputs[k])


def _most_examples(oracle: CheckedOracle, found: Candidate) -> int:
    """Of how many examples outputs are remembered, if all have as many features as this one."""
    enough_memory = MAX_ENTRIES // (MAX_CANDIDATES * (1 + len(found.values)))
    return min(enough_memory, 1 + oracle.n_examples // REMEMBERED_ONE_IN)


def _size(
    oracle: CheckedOracle, i: int, one: Candidate, other: Candidate, weights: Floats
) -> float:
    """How large the terms are that two values are sums of."""
    terms = one.terms(weights) + other.terms(weights) + oracle.true_terms(i, weights)
    if oracle.by_slack:
        terms *= max(one.loss, other.loss)
    return terms + one.loss + other.loss


def _frames_of_ours() -> int:
    """The stack level of whoever has called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    return level


def _is_ours(name: str) -> bool:
    return name.split(".")[0] in ("maxmargin", "sklearn")

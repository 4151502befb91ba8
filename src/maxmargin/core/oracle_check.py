"""A look at some answers of a user's oracle while it trains, whether its two inferences agree.

A certificate is as good as loss-augmented inference. One that forgets an output, or has the sign of
the loss wrong, gets a perfect certificate for weights that are worth nothing. But inference
(`inference`) and loss-augmented inference (`loss_augmented_inference`) look for maxima over the
same outputs, so each is a referee of the other: what one finds, the other must not have missed.
Besides, whatever was found for an example at other weights is still an output of it.
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
"""Relative to the sizes of the terms, by how much a maximum may seem to be missed: features and
scores may be of single precision."""

FIRST = 3
"""Answers that are looked at from the beginning, at once."""

EVERY = 50
"""From then on, one in so many, on average."""

MOST_FEATURES = 1 << 20
"""Up to so many, the first looks also try random weights."""

MORE_TRIES = 4
"""Random weights that are tried besides where nothing at all seems to violate zero weights."""

MOST_COMPETITORS, MOST_ENTRIES = 8, 1 << 22
"""Outputs of an example that are remembered, and entries of all of them."""

PART = 32
"""One in so many of the examples has its outputs remembered: it takes time, too."""

ADVICE = "run mm.check_problem(problem, X, y) to see more"


class ProblemWarning(UserWarning):
    """The inferences of a problem contradict each other, so its certificate is worth nothing.

    Comes at most once in a fit, which goes on.

    See Also
    --------
    maxmargin.check_problem : Looks for what is wrong.

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


class Competitor(NamedTuple):
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
        """How large the terms are that the score is made of."""
        return float(np.abs(self.values) @ np.abs(weights[self.columns]))


class Watched(Protocol):
    """The training set of a problem that somebody wrote."""

    n_features: int
    by_slack: bool
    known: dict[int, dict[Any, Competitor]]
    """Outputs of some examples that were found before, at whatever weights."""
    first: int
    """How many examples come before those of this training set."""

    @property
    def n_examples(self) -> int: ...

    @property
    def oracle_name(self) -> str: ...

    @property
    def inference_name(self) -> str: ...

    def competitor(self, i: int, y: Any) -> Competitor:
        """Any output of an example."""

    def inferred_best(self, i: int, weights: Floats) -> Any:
        """What inference finds."""

    def competes(self, competitor: Competitor) -> bool:
        """Whether loss-augmented inference has to beat it."""

    def true_terms(self, i: int, weights: Floats) -> float:
        """How large the terms are that the score of the true output is made of."""

    def check_agreement(self, i: int, found: Competitor) -> None:
        """See to it that loss is zero for the truth, and that a plane is that of its output."""


class Listing(Protocol):
    """The training set of a kernel problem, which lists all outputs."""

    def check_agreement(self, outputs: NewOutputs) -> None:
        """See to it that what was listed for an output is what is made of it one by one."""


class OracleWatch:
    """Compares some of the answers of an oracle, within a budget, and warns once.

    The fit does not notice: it has a random generator of its own and counts no oracle calls. What
    it costs are `inference` for the first three answers and for two in a hundred of the rest, and
    `inference` at random weights for the first three.

    Without attributes that a checkpoint would take for data.
    """

    __slots__ = ("_calls", "_looks", "_next", "_random", "sentence", "told")

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._calls = self._looks = self._next = 0
        self.sentence: str | None = None
        """What is wrong."""
        self.told = False

    def __reduce__(self) -> Any:
        return OracleWatch, ()

    def warn(self) -> None:
        """Warn of what is wrong, if that has not been done."""
        if self.sentence is not None and not self.told:
            self.told = True
            warnings.warn(self.sentence, ProblemWarning, stacklevel=_frames_of_ours())

    def see(self, oracle: Watched, cuts: Cuts, weights: Floats, examples: Order) -> None:
        """Look at what loss-augmented inference has found at these weights.

        Never raises, whatever the problem does: that is for the fit itself to find.
        """
        if self.sentence is not None:
            return
        due = dict(self._due(len(examples)))
        for k, i in enumerate(examples.tolist()):
            if k not in due and i not in oracle.known:
                continue
            try:
                found = _competitor_of(cuts, k, oracle.by_slack)
                self._look(oracle, i, found, weights, due.get(k))
            except Exception as error:
                self._complain(str(error).rstrip("."))
            if self.sentence is not None:
                return

    def see_listed(self, oracle: Listing, outputs: NewOutputs) -> None:
        """Look at what was found by trying all outputs of examples, whether it is what it seems."""
        if self.sentence is not None:
            return
        for k, _ in self._due(len(outputs.losses)):
            try:
                oracle.check_agreement(outputs.take(np.array([k])))
            except Exception as error:
                self._complain(str(error).rstrip("."))
                return

    def _due(self, n: int) -> Iterator[tuple[int, bool]]:
        """Which of the next `n` answers to look at, and whether it is one of the first."""
        begin, self._calls = self._calls, self._calls + n
        while self._next < self._calls:
            yield self._next - begin, self._looks < FIRST
            self._looks += 1
            early = self._looks < FIRST
            self._next += 1 if early else int(self._random.integers(1, 2 * EVERY))

    def _look(
        self, oracle: Watched, i: int, found: Competitor, weights: Floats, due: bool | None
    ) -> None:
        """Compare an answer with what is known; if it is `due`, with what inference finds, too."""
        competitors = list(oracle.known.get(i, {}).values())
        before = len(competitors)
        mine = [found] if found.loss > 0.0 or found.values.any() else []
        if due is not None:
            oracle.check_agreement(i, found)
            answer = oracle.competitor(i, oracle.inferred_best(i, weights))
            self._check_score(oracle, i, [*mine, *competitors], answer, weights)
            none_violates = found.loss == 0.0 and not weights.any()
            tries = due + MORE_TRIES * none_violates
            competitors = [*competitors, answer, *self._at_random(oracle, i, tries)]
        self._check_value(oracle, i, competitors, found, weights)
        if i in oracle.known or len(oracle.known) < _most_examples(oracle, found):
            self._remember(oracle.known.setdefault(i, {}), [*mine, *competitors[before:]])

    def _remember(self, known: dict[Any, Competitor], found: list[Competitor]) -> None:
        """Keep outputs, each once: they need not be comparable, but planes are."""
        for competitor in found:
            known[competitor.loss, competitor.columns.tobytes(), competitor.values.tobytes()] = (
                competitor
            )
        while len(known) > MOST_COMPETITORS:
            known.pop(list(known)[int(self._random.integers(len(known)))])

    def _at_random(self, oracle: Watched, i: int, tries: int) -> Iterator[Competitor]:
        """What inference finds at random weights."""
        for _ in range(tries if oracle.n_features <= MOST_FEATURES else 0):
            weights = self._random.normal(size=oracle.n_features)
            with suppress(Exception):  # at weights that no fit has come to, it may fail
                yield oracle.competitor(i, oracle.inferred_best(i, weights))

    def _check_score(
        self,
        oracle: Watched,
        i: int,
        competitors: list[Competitor],
        answer: Competitor,
        weights: Floats,
    ) -> None:
        """Inference must find a score no lower than that of any output.

        The true one is among them only if inference itself has found it once: what is true need
        not be among what it chooses from.
        """
        if not competitors:
            return
        best = max(competitors, key=lambda competitor: competitor.score(weights))
        missed = best.score(weights) - answer.score(weights)
        if missed > ROUNDING * _size(oracle, i, best, answer, weights):
            self._complain(
                f"{oracle.inference_name} does not find the maximum: for example "
                f"{oracle.first + i} the output {best.output!r:.80} has a score that is "
                f"{missed:.3g} higher than that of {answer.output!r:.80}",
            )

    def _check_value(
        self,
        oracle: Watched,
        i: int,
        competitors: list[Competitor],
        found: Competitor,
        weights: Floats,
    ) -> None:
        """Loss-augmented inference must find a value no lower than that of any output."""

        def value(competitor: Competitor) -> float:
            score = competitor.score(weights)
            return competitor.loss * (1.0 + score) if oracle.by_slack else competitor.loss + score

        competitors = [competitor for competitor in competitors if oracle.competes(competitor)]
        if not competitors:
            return
        best = max(competitors, key=value)
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


def _competitor_of(cuts: Cuts, k: int, by_slack: bool) -> Competitor:
    """What was found for one of the examples of a batch."""
    entries = slice(cuts.starts[k], cuts.starts[k + 1])
    columns, values, loss = cuts.columns[entries], cuts.values[entries], cuts.losses[k]
    # With a loss of zero, all of the plane is zero.
    factor = 1.0 / loss if by_slack and loss > 0.0 else 1.0
    return Competitor(columns.copy(), factor * values, float(loss), cuts.outputs[k])


def _most_examples(oracle: Watched, found: Competitor) -> int:
    """Of how many examples outputs are remembered, if all have as many features as this one."""
    enough_memory = MOST_ENTRIES // (MOST_COMPETITORS * (1 + len(found.values)))
    return min(enough_memory, 1 + oracle.n_examples // PART)


def _size(oracle: Watched, i: int, one: Competitor, other: Competitor, weights: Floats) -> float:
    """How large the terms are of which two values are made."""
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

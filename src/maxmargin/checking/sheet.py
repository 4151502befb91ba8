"""The lines of a report on a problem, and calls of its methods that write them when they fail."""

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.problem import is_exact

Floats = NDArray[np.float64]


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

    See Also
    --------
    maxmargin.check_problem
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
        told = self.failures or self.notes
        verdict = "ok" if not told else "note" if self.ok else "FAILED"
        more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
        detail = f": {told[0]}{more}" if told else f" ({self.tries} tries)"
        return f"{verdict:<7} {self.name}{detail}"


class Broken(Exception):  # noqa: N818
    """A method has failed, and the line that tells so has been written."""


class Line:
    """A check under way."""

    def __init__(self, name: str) -> None:
        self.name, self.tries = name, 0
        self.failures: list[str] = []
        self.notes: list[tuple[float, str]] = []

    def tried(self, failure: str | None) -> bool:
        """Count a try, and say whether it was one that did not fail."""
        self.tries += 1
        if failure is not None:
            self.failures.append(" ".join(failure.split()))
        return failure is None

    def note(self, how_bad: float, text: str) -> None:
        """What is no failure; the worst is told first."""
        self.notes.append((how_bad, text))

    def closed(self) -> ProblemCheck:
        """The check as the report has it."""
        notes = [text for _, text in sorted(self.notes, key=lambda note: -note[0])]
        return ProblemCheck(self.name, self.tries, tuple(self.failures), tuple(notes))


class Candidate(NamedTuple):
    """An output of an example: its joint features, its loss, and how it is known."""

    output: Any
    columns: NDArray[np.uint32]
    values: Floats
    loss: float
    source: str
    proven: bool = True
    """Whether it is certain that it is an output of this example."""

    def score(self, weights: Floats) -> float:
        """Its score."""
        return float(self.values @ weights[self.columns])

    @property
    def key(self) -> tuple[bytes, float]:
        """What tells it from others: outputs need not be comparable, features and losses are."""
        return self.columns.tobytes() + self.values.tobytes(), self.loss

    def terms(self, weights: Floats) -> float:
        """How large the terms are that score and loss are made of."""
        return float(np.abs(self.values) @ np.abs(weights[self.columns])) + abs(self.loss)


class At(NamedTuple):
    """Weights with a name."""

    name: str
    weights: Floats


class Answer(NamedTuple):
    """What an inference returned."""

    method: str
    i: int
    at: At
    found: Candidate
    admitted: float | None = None
    """How much it may have missed, as it says itself."""


class Sheet:
    """The lines of a report, and calls of methods that write them when they fail."""

    def __init__(
        self, problem: Any, X: Any, Y: Any, examples: list[int], random: np.random.Generator
    ) -> None:
        self.problem, self.X, self.Y, self.examples, self.random = problem, X, Y, examples, random
        self.exact = is_exact(problem)
        self.lines: dict[str, Line] = {}

    def line(self, name: str) -> Line:
        """A line of the report, by its name."""
        return self.lines.setdefault(name, Line(name))

    def ask(self, method: str, i: int, *arguments: Any) -> Any:
        """What a method returns; if it raises, that is a failure of its own."""
        try:
            answer = getattr(self.problem, method)(*arguments)
        except Exception as error:
            self.failed(f"{method}: raises no error", i, f"it raised {in_words(error)}")
        return answer

    def failed(self, name: str, i: int, what: str) -> NoReturn:
        """Write a failure, after which there is nothing more to be made of an answer."""
        self.line(name).tried(f"example {i}: {what}")
        raise Broken

    def checked_loss(self, i: int, y: Any) -> float:
        """The loss of an output, asked for twice."""
        first, again = (self.ask("loss", i, self.Y[i], y) for _ in range(2))
        name = "loss: a finite number, never negative"
        try:
            loss, other = float(first), float(again)
        except (TypeError, ValueError):
            self.failed(name, i, f"it is {first!r:.60} for the output {y!r:.60}")
        bad = not (np.isfinite(loss) and loss >= 0.0)
        told = f"example {i}: it is {loss:g} for the output {y!r:.60}"
        if not self.line(name).tried(told if bad else None):
            raise Broken
        self.line("loss: the same when asked again").tried(
            None if other == loss else f"{told}, then {other:g}"
        )
        return loss

    def check_true_loss(self, i: int, y: Any) -> None:
        """The loss of a true output must be zero."""
        loss = self.checked_loss(i, y)
        told = f"example {i}: it is {loss:g}"
        self.line("loss: zero for the true output").tried(told if loss != 0.0 else None)


def in_words(error: BaseException) -> str:
    """An error in a few words."""
    return f"{type(error).__name__}: {error}"


def same(one: Any, other: Any) -> bool:
    """Whether two objects are equal, as far as they can be compared."""
    try:
        return bool(np.array_equal(one, other))
    except Exception:
        return bool(one == other)

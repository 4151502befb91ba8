"""What is recorded of a check, and checks that problems of all kinds share.

Those of a `KernelProblem`, whose outputs are enumerated, need no more.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.kernel import Candidates, n_rows
from maxmargin.core.oracle_check import ROUNDING
from maxmargin.core.problem import is_exact

Floats = NDArray[np.float64]

MAX_LISTED = 1000
"""Outputs of one input that are checked; of more, a random sample."""


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
        text = self.failures or self.notes
        verdict = "ok" if not text else "note" if self.ok else "FAILED"
        more = f" (and {len(text) - 1} more)" if len(text) > 1 else ""
        detail = f": {text[0]}{more}" if text else f" ({self.tries} tries)"
        return f"{verdict:<7} {self.name}{detail}"


class Broken(Exception):  # noqa: N818
    """A method has failed, and the failure has been recorded."""


class Check:
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
        """What is no failure; the worst is text first."""
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
    """Whether it is certainly an output of this example."""

    def score(self, weights: Floats) -> float:
        """Its score."""
        return float(self.values @ weights[self.columns])

    @property
    def key(self) -> tuple[bytes, float]:
        """Its identity: outputs need not be comparable, features and losses are."""
        return self.columns.tobytes() + self.values.tobytes(), self.loss

    def terms(self, weights: Floats) -> float:
        """Sum of the absolute terms of its score and loss."""
        return float(np.abs(self.values) @ np.abs(weights[self.columns])) + abs(self.loss)


Objective = Callable[[Candidate], float]


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
    """Its own suboptimality bound."""


class ContractChecks:
    """The checks of a report, and calls of methods that record their failures."""

    def __init__(
        self, problem: Any, X: Any, Y: Any, examples: list[int], random: np.random.Generator
    ) -> None:
        self.problem, self.X, self.Y, self.examples, self.random = problem, X, Y, examples, random
        self.exact = is_exact(problem)
        self.checks: dict[str, Check] = {}

    def run(self) -> None:
        """All checks."""
        raise NotImplementedError

    def check(self, name: str) -> Check:
        """A check of the report, by its name."""
        return self.checks.setdefault(name, Check(name))

    def call(self, method: str, i: int, *arguments: Any) -> Any:
        """What a method returns; if it raises, that is a failure of its own."""
        try:
            answer = getattr(self.problem, method)(*arguments)
        except Exception as error:
            self.failed(f"{method}: raises no error", i, f"it raised {in_words(error)}")
        return answer

    def failed(self, name: str, i: int, what: str) -> NoReturn:
        """Record a failure after which an answer cannot be used."""
        self.check(name).tried(f"example {i}: {what}")
        raise Broken

    def checked_loss(self, i: int, y: Any) -> float:
        """The loss of an output, computed twice."""
        first, again = (self.call("loss", i, self.Y[i], y) for _ in range(2))
        name = "loss: a finite number, never negative"
        try:
            loss, other = float(first), float(again)
        except (TypeError, ValueError):
            self.failed(name, i, f"it is {first!r:.60} for the output {y!r:.60}")
        bad = not (np.isfinite(loss) and loss >= 0.0)
        text = f"example {i}: it is {loss:g} for the output {y!r:.60}"
        if not self.check(name).tried(text if bad else None):
            raise Broken
        self.check("loss: the same when called again").tried(
            None if other == loss else f"{text}, then {other:g}"
        )
        return loss

    def check_true_loss(self, i: int, y: Any) -> None:
        """The loss of a true output must be zero."""
        loss = self.checked_loss(i, y)
        text = f"example {i}: it is {loss:g}"
        self.check("loss: zero for the true output").tried(text if loss != 0.0 else None)


def in_words(error: BaseException) -> str:
    """An error in a few words."""
    return f"{type(error).__name__}: {error}"


def same(one: Any, other: Any) -> bool:
    """Whether two objects are equal, as far as they can be compared."""
    try:
        return bool(np.array_equal(one, other))
    except Exception:
        return bool(one == other)


class KernelProblemChecks(ContractChecks):
    """Of a `KernelProblem`, whose outputs are enumerated: its methods have to agree."""

    def run(self) -> None:
        for i in self.examples:
            with suppress(Broken):
                self.check_true_loss(i, self.Y[i])
            with suppress(Broken):
                self.check_outputs(i)

    def check_outputs(self, i: int) -> None:
        outputs = list(self.call("outputs", i, self.X[i]))
        self.check("outputs: there are some").tried(None if outputs else f"example {i}: none")
        losses = np.array([self.checked_loss(i, y) for y in outputs[:MAX_LISTED]])
        if len(losses) == len(outputs) and not (losses == 0.0).any():
            self.check("outputs: hold the true one").note(
                float(losses.min(initial=np.inf)), f"example {i}: none has a loss of zero"
            )
        self.check("outputs: hold the true one").tried(None)
        candidates: Candidates = self.call("candidates", i, self.X[i])
        name = "candidates: agree with outputs, part and label"
        n = len(candidates.outputs)
        if n != len(outputs):
            self.failed(name, i, f"there are {n}, but outputs(x) has {len(outputs)}")
        places = (candidates.part_of, candidates.parts), (candidates.label_of, candidates.labels)
        for at, rows in places:
            if len(at) != n or not all(0 <= place < n_rows(rows) for place in at):
                self.failed(name, i, "part_of or label_of points at nothing")
        self.check_losses(i, candidates)
        for c in range(min(n, MAX_LISTED)):
            self.check_candidate(name, i, candidates, c)

    def check_losses(self, i: int, candidates: Candidates) -> None:
        name = "losses: agree with loss"
        losses = np.asarray(self.call("losses", i, self.Y[i], candidates))
        if losses.shape != (len(candidates.outputs),):
            self.failed(name, i, f"their shape is {losses.shape}")
        for y, loss in list(zip(candidates.outputs, losses, strict=True))[:MAX_LISTED]:
            own = self.checked_loss(i, y)
            text = f"example {i}: {loss:.6g} for the output {y!r:.60}, not {own:.6g}"
            bad = not abs(loss - own) <= ROUNDING * (1.0 + own)
            self.check(name).tried(text if bad else None)

    def check_candidate(self, name: str, i: int, candidates: Candidates, c: int) -> None:
        y = candidates.outputs[c]
        part, label = self.call("part", i, self.X[i], y), self.call("label", i, y)
        for what, own, rows, at in (
            ("part", part, candidates.parts, candidates.part_of[c]),
            ("label", label, candidates.labels, candidates.label_of[c]),
        ):
            bad = not _close(own, rows[at])
            text = f"example {i}: the {what} of the output {y!r:.60} is {rows[at]!r:.60}, not "
            self.check(name).tried(f"{text}{own!r:.60}" if bad else None)


def _close(one: Any, other: Any) -> bool:
    """Whether two rows, or whatever a kernel compares, are the same up to rounding."""
    try:
        dense = [np.asarray(a.todense() if hasattr(a, "todense") else a) for a in (one, other)]
        first, second = (np.ravel(a).astype(np.float64) for a in dense)
    except (TypeError, ValueError):
        return same(one, other)
    size = ROUNDING * (1.0 + float(np.abs(first).max(initial=0.0)))
    return first.shape == second.shape and np.allclose(first, second, rtol=0.0, atol=size)

"""A `KernelProblem`, whose outputs are all tried, so its methods have to agree."""

from contextlib import suppress
from typing import Any

import numpy as np

from maxmargin.checking.sheet import Broken, Sheet, same
from maxmargin.core.kernel import Candidates, n_rows
from maxmargin.core.oracle_check import ROUNDING

MOST_LISTED = 1000
"""Outputs of one input that are tried one by one."""


class KernelTrial(Sheet):
    """A `KernelProblem`: all outputs are tried, so there is no inference to be wrong."""

    def run(self) -> None:
        for i in self.examples:
            with suppress(Broken):
                self.check_true_loss(i, self.Y[i])
            with suppress(Broken):
                self.try_outputs(i)

    def try_outputs(self, i: int) -> None:
        outputs = list(self.ask("outputs", i, self.X[i]))
        self.line("outputs: there are some").tried(None if outputs else f"example {i}: none")
        losses = np.array([self.checked_loss(i, y) for y in outputs[:MOST_LISTED]])
        if len(losses) == len(outputs) and not (losses == 0.0).any():
            self.line("outputs: hold the true one").note(
                float(losses.min(initial=np.inf)), f"example {i}: none has a loss of zero"
            )
        self.line("outputs: hold the true one").tried(None)
        candidates: Candidates = self.ask("candidates", i, self.X[i])
        name = "candidates: agree with outputs, part and label"
        n = len(candidates.outputs)
        if n != len(outputs):
            self.failed(name, i, f"there are {n}, but outputs(x) has {len(outputs)}")
        places = (candidates.part_of, candidates.parts), (candidates.label_of, candidates.labels)
        for at, rows in places:
            if len(at) != n or not all(0 <= place < n_rows(rows) for place in at):
                self.failed(name, i, "part_of or label_of points at nothing")
        self.try_losses(i, candidates)
        for c in range(min(n, MOST_LISTED)):
            self.try_candidate(name, i, candidates, c)

    def try_losses(self, i: int, candidates: Candidates) -> None:
        name = "losses: agree with loss"
        losses = np.asarray(self.ask("losses", i, self.Y[i], candidates))
        if losses.shape != (len(candidates.outputs),):
            self.failed(name, i, f"their shape is {losses.shape}")
        for y, loss in list(zip(candidates.outputs, losses, strict=True))[:MOST_LISTED]:
            own = self.checked_loss(i, y)
            told = f"example {i}: {loss:.6g} for the output {y!r:.60}, not {own:.6g}"
            bad = not abs(loss - own) <= ROUNDING * (1.0 + own)
            self.line(name).tried(told if bad else None)

    def try_candidate(self, name: str, i: int, candidates: Candidates, c: int) -> None:
        y = candidates.outputs[c]
        part, label = self.ask("part", i, self.X[i], y), self.ask("label", i, y)
        for what, own, rows, at in (
            ("part", part, candidates.parts, candidates.part_of[c]),
            ("label", label, candidates.labels, candidates.label_of[c]),
        ):
            bad = not _close(own, rows[at])
            told = f"example {i}: the {what} of the output {y!r:.60} is {rows[at]!r:.60}, not "
            self.line(name).tried(f"{told}{own!r:.60}" if bad else None)


def _close(one: Any, other: Any) -> bool:
    """Whether two rows, or whatever a kernel compares, are the same up to rounding."""
    try:
        dense = [np.asarray(a.todense() if hasattr(a, "todense") else a) for a in (one, other)]
        first, second = (np.ravel(a).astype(np.float64) for a in dense)
    except (TypeError, ValueError):
        return same(one, other)
    size = ROUNDING * (1.0 + float(np.abs(first).max(initial=0.0)))
    return first.shape == second.shape and np.allclose(first, second, rtol=0.0, atol=size)

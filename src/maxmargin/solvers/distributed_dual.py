"""DistributedDual: shards ascend the dual side by side; what they find is added up safely."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from maxmargin.dual.registry import registered
from maxmargin.engines.threads import Threads
from maxmargin.solvers.auto import Auto
from maxmargin.solvers.distributed_end import certified_on_shards
from maxmargin.solvers.distributed_run import DistributedRun
from maxmargin.solvers.result import Result, Status
from maxmargin.solvers.stopping import Stopping
from maxmargin.solvers.structured import StructuredSolver


@registered("DistributedDual")
@dataclass(frozen=True, kw_only=True)
class DistributedDual(StructuredSolver):
    """Dual ascent on shards of the data, in the style of CoCoA+ (Ma et al., 2015).

    Every shard searches, and moves the dual variables of its own examples, as `Auto` does, with its
    moves counted several times, because others move as well. What it has moved is sent back and
    added up with an exact line search, so that the dual never falls. With one shard this
    is `Auto`.

    Parameters
    ----------
    local : Auto
        What shards do.
    scale : float, default=None
        How many times shards count their own moves: with their number, all moves can be taken
        whole; with less, moves are longer. None finds out on the way.
    share : float, default=None
        Passes over its examples that a shard makes between two messages; None chooses it so that
        messages cost a tenth of the time, about.
    staleness : int, default=2
        Moves with searches that a shard may be ahead of the slowest. 0 lets all wait for all: then,
        with `share` given, the same seed and number of shards give the same bits.
    patience : float, default=600
        Seconds without an answer after which a shard is made again in another place.

    See Also
    --------
    Auto, OneSlack

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> from maxmargin.solvers.distributed_dual import DistributedDual
    >>> X, y = [np.eye(3), np.eye(3)[::-1], np.eye(3)[1:]], ["abc", "cba", "bc"]
    >>> tagger = mm.SequenceTagger(solver=DistributedDual(), n_jobs=2).fit(X, [list(s) for s in y])
    >>> tagger.certificate_.relative_gap <= 1e-3
    True
    """

    local: Auto = field(default_factory=Auto)
    scale: float | None = None
    share: float | None = None
    staleness: int = 2
    patience: float = 600.0

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale >= 1.0:
            raise ValueError(f"scale must be at least 1, but is {self.scale}.")
        if self.share is not None and not self.share > 0.0:
            raise ValueError(f"share must be positive, but is {self.share}.")
        if self.staleness < 0:
            raise ValueError(f"staleness must not be negative, but is {self.staleness}.")

    def _start(
        self, training: Any, stopping: Stopping, threads: Threads, seed: int
    ) -> tuple[DistributedRun, Iterator[None]]:
        run = DistributedRun(training, stopping, threads, seed, self)
        return run, self._rounds(run)

    def _rounds(self, run: DistributedRun) -> Iterator[None]:
        while True:
            run.advance()
            if run.is_new_pass() and run.looks_done():
                run.value()
            yield

    def _end(self, run: DistributedRun, status: Status) -> Result:
        def certify(status: Status) -> Result:
            result = super(DistributedDual, self)._end(run, status)
            if run.training.lists_point:
                return replace(result, dual_point=run.listed_point())
            return result

        return certified_on_shards(run, status, certify, lambda: self._rounds(run))

"""Online: new examples are explored, and those in hand get another look in between."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from maxmargin.core.certificate import Certificate
from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import ProblemError
from maxmargin.core.registry import registered
from maxmargin.core.result import Result, Status, Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.plane_cache import PlaneCache
from maxmargin.solvers.loop import CheckpointFile, OnIteration, uncertified
from maxmargin.solvers.online_run import StreamRun
from maxmargin.solvers.stream import InMemory, Stream
from maxmargin.solvers.structured import StructuredSolver

SCHEDULES = ("larank", "gap", "one-pass")

UPDATES_AGAIN = 10
"""Of cached examples for each new one, in LaRank's schedule."""

FINER = 0.5
"""From pass to pass, the cached problem is solved to this part of the gap that was seen."""


@registered("Online")
@dataclass(frozen=True, kw_only=True)
class Online(StructuredSolver):
    """Online dual coordinate descent of Ramanan (2013), algorithm 2.

    A stream of examples is explored: each is searched for its most violating plane, and those that
    violate enter a cache, with an exact step on their coefficients. In between, examples of the
    cache are revisited: some for each new one, or all whenever the duality gap of the cached
    problem is above a tolerance, as in the paper. After a pass the cache is optimised, from where
    it was, and what has no coefficient leaves it. Only the cache is in memory. Further passes go
    over the same examples again. In the end one pass values the weights and the dual point over all
    of them.

    Parameters
    ----------
    passes : int, default=None
        Most passes over the examples; None goes on until the gap is closed.
    schedule : {"larank", "gap", "one-pass"}, default="larank"
        When examples of the cache are revisited: ten of them, at random, for each new one, as in
        LaRank; all when their gap is above `tol_cache`; or never.
    tol_cache : float, default=0.01
        Relative duality gap of the cached problem that is good enough to explore further; after a
        pass it is solved to this or to the tolerance, whichever is less. Later passes lower it to
        half of the gap that they saw.
    bound : {"tracked", "true"}, default="tracked"
        How the gap of the cached problem is known while it is optimised: from the hinges seen on
        the way, with a look at all of it only when they promise the end; or by such a look after
        every sweep.
    cache_bytes : int, default=2**30
        Most memory of the cache. When it is used up, planes of the same example are merged; when
        that is not enough, examples are frozen (see docs/theory-structured.md).
    oracle_calls : int, default=4
        Most searches for one example while it is at hand: one that violates may have several
        planes.
    max_idle : int, default=50
        Optimisations of the cache after which a plane whose coefficient stayed zero is dropped, if
        memory lasts; the paper has 1.
    acceleration : bool, default=True
        Extrapolate between sweeps of the cache.
    max_sweeps : int, default=50
        Most sweeps of one optimisation.
    max_steps : int, default=10
        Most steps of one visit.
    batch_size : int, default=None
        Searches made at the same weights; None chooses by their work and what was seen.
    shuffle : bool, default=True
        Explore the examples that are in memory at the same time in random order.

    See Also
    --------
    DualCoordinate : Algorithm 1, on data in memory.
    """

    requires: ClassVar[tuple[type, ...]] = (Oracle, Stream)

    passes: int | None = None
    schedule: str = "larank"
    tol_cache: float = 0.01
    bound: str = "tracked"
    cache_bytes: int = 1 << 30
    oracle_calls: int = 4
    max_idle: int = 50
    acceleration: bool = True
    max_sweeps: int = 50
    max_steps: int = 10
    batch_size: int | None = None
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {SCHEDULES}, but is {self.schedule!r}.")
        if self.bound not in ("tracked", "true"):
            raise ValueError(f"bound must be 'tracked' or 'true', but is {self.bound!r}.")

    def solve(
        self,
        oracle: Any,
        stopping: Stopping,
        *,
        n_jobs: int = 1,
        seed: int = 0,
        start: Any = None,
        on_iteration: OnIteration | None = None,
        checkpoint: CheckpointFile | None = None,
    ) -> Result:
        """Train on a training set or on a `Stream`; see `StructuredSolver.solve`.

        On a stream, Ctrl-C while the certificate is made gives the weights without it.
        """
        if self.passes is not None:
            stopping = replace(stopping, max_iter=min(self.passes, stopping.max_iter))
        result = super().solve(
            oracle,
            stopping,
            n_jobs=n_jobs,
            seed=seed,
            start=start,
            on_iteration=on_iteration,
            checkpoint=checkpoint,
        )
        if result.status is Status.MAX_ITER and result.iterations == self.passes:
            return replace(result, status=Status.PASSES)
        return result

    def finish(self, run: StreamRun, status: Status) -> Result:
        in_memory = isinstance(run.oracle, Oracle)
        return super().finish(run, status) if in_memory else _certified(run, status)

    def start(
        self,
        oracle: Oracle | Stream,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        comes_back: bool = True,
    ) -> StreamRun:
        """A run with an empty cache; `comes_back` if examples will be seen again."""
        stream = InMemory(oracle) if isinstance(oracle, Oracle) else oracle
        return StreamRun(
            oracle,
            stream,
            stopping,
            threads,
            seed,
            PlaneCache(stream.n_features, self.cache_bytes, comes_back),
            self,
        )

    def iterate(self, run: StreamRun) -> None:
        self.explore(run)
        seen = Certificate(run.expected, run.dual).relative_gap
        run.tol_cache = min(run.tol_cache, FINER * max(seen, 0.5 * run.tol))
        if run.passes != self.passes and run.looks_done():
            run.value()

    def explore(self, run: StreamRun) -> None:
        """One pass over the run's stream, and the cache optimised in the end."""
        for batch, some in run.mini_batches():
            run.explore(batch, some)
            if self.schedule == "gap" and run.cached_gap > run.tol_cache:
                run.optimize(run.tol_cache)
            elif self.schedule == "larank" and run.cache.n_examples:
                run.update_again(
                    run.random.integers(run.cache.n_examples, size=UPDATES_AGAIN * len(some))
                )
        if self.schedule != "one-pass":
            run.optimize(min(run.tol_cache, run.tol))


def _certified(run: StreamRun, status: Status) -> Result:
    """The best weights and the dual point, valued anew in one pass over the stream."""
    run.settle()
    point = run.point()
    candidates = run.candidates if run.best is None else [run.best, *run.candidates]
    certificate = Certificate(math.inf, run.dual, not run.stream.exact)
    weights = run.answer()
    # Zero weights have an objective of at least the linear term, which mostly tells.
    linear = run.dual + run.half_square
    tol = run.stopping.relative_tol(linear)
    enough = (1.0 - tol) * linear
    zero = np.zeros(run.stream.n_features)
    if not run.expected < enough:
        candidates.append(zero)
    try:
        primals, dual = run.stream.evaluate(candidates, point, run.threads)
        if min(primals) >= enough and candidates[-1] is not zero:
            candidates.append(zero)
            primals += run.stream.evaluate([zero], point, run.threads)[0]
        best = int(np.argmin(primals))
        weights = candidates[best]
        certificate = Certificate(primals[best], dual, not run.stream.exact)
        if candidates[-1] is zero:
            certificate = certificate.compared_with_zero(primals[-1], tol)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except ProblemError as error:
        error.result = uncertified(run, point)
        raise
    if run.stopping.is_enough(certificate.primal, certificate.dual):
        status = Status.CONVERGED
    return Result(weights, point, certificate, status, len(run.history), run.history)

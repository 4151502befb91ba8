"""The state of an online solve: a cache of planes, and the moves that explore or improve it."""

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.cuts import slopes
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.oracle import Hinges
from maxmargin.core.result import Status, Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.plane_cache import PlaneCache
from maxmargin.dual.working_set import StepRule
from maxmargin.solvers.momentum import Momentum
from maxmargin.solvers.stream import Batch, DualPointOfStream, FrozenPoint, Stream
from maxmargin.solvers.structured import ADD_ONLY, MOST_WORK, TrackedRun

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

AVERAGE_BELOW = 1 << 22
"""Weights up to which their average is kept, too: beyond, it would cost too much memory."""

NOTABLE = 0.1
"""Blocks with less than this part of the mean gap are left out of sweeps."""

STALE = 0.02
"""A batch is searched at the same weights, which are to be made of nearly as many examples: of its
size it is this part of what was seen."""

TINY = 1e-300

PRUNE_AFTER = 1.25
"""Growth of the cache after which planes without a coefficient are looked for."""


class Options(Protocol):
    """What a run takes from its solver; see `Online`."""

    @property
    def tol_cache(self) -> float: ...

    @property
    def bound(self) -> str: ...

    @property
    def oracle_calls(self) -> int: ...

    @property
    def max_idle(self) -> int: ...

    @property
    def max_sweeps(self) -> int: ...

    @property
    def max_steps(self) -> int: ...

    @property
    def acceleration(self) -> bool: ...

    @property
    def batch_size(self) -> int | None: ...

    @property
    def shuffle(self) -> bool: ...


class StreamRun(TrackedRun):
    """One online solve.

    Parameters
    ----------
    oracle : Any
        What values weights and dual points in the end: the training set, or the stream.
    stream : Stream
    stopping, threads, seed
        See `Run`.
    cache : PlaneCache
    options : Options
    """

    state_names = (*TrackedRun.state_names, "cache", "tol_cache", "seen", "pruned_to")

    def __init__(
        self,
        oracle: Any,
        stream: Stream,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        cache: PlaneCache,
        options: Options,
    ) -> None:
        averaging = oracle.n_features <= AVERAGE_BELOW
        super().__init__(oracle, stopping, threads, seed, averaging)
        self.stream, self.cache, self.options = stream, cache, options
        self.checker = stream.checker
        self.rule = StepRule(max_steps=options.max_steps)
        self.tol_cache = options.tol_cache
        """Relative gap of the cached problem that is good enough at present."""
        self.momentum = Momentum(self, options.acceleration)
        self.seen = 0
        """Examples that were explored, again and again those of further passes."""
        self.hinges = 0.0
        """Sum of cost times hinge as explored in this pass, at changing weights."""
        self.pruned_to = 0

    @property
    def dual(self) -> float:
        return self.cache.dual

    @property
    def n_cuts(self) -> int:
        return self.cache.n_cuts

    @property
    def candidates(self) -> list[Floats]:
        if self.average is None or not self.snapshots[0]:
            return [self.weights]
        return [self.weights, self.average]

    @property
    def tol(self) -> float:
        """Relative gap that is good enough in the end."""
        return self.stopping.relative_tol(self.dual)

    @property
    def must_stop(self) -> bool:
        """Whether there is no time left, or somebody has cancelled."""
        return self.stopping.out_of_time or self.stopping.cancelled.is_set()

    def is_whole(self, status: Status | None) -> bool:
        return status not in (Status.TIME_LIMIT, Status.INTERRUPTED)

    def point(self) -> DualPointOfStream:
        listed, frozen = self.cache.point(), self.cache.frozen
        if frozen is None:
            return listed
        return FrozenPoint(listed, frozen.copy())

    def resume(self, start: DualPointOfStream) -> None:
        listed = start.listed if isinstance(start, FrozenPoint) else start
        if not isinstance(listed, DualPoint):
            raise ValueError("The point is no list of outputs with coefficients.")
        if isinstance(start, FrozenPoint):
            self._resume_frozen(start)
        for first, oracle in self.stream.batches():
            last = first + oracle.n_examples
            which = np.flatnonzero((listed.examples >= first) & (listed.examples < last))
            if not len(which):
                continue
            self.cache.look_at(first, last)
            examples, coef = listed.examples[which] - first, np.maximum(listed.coef[which], 0.0)
            room = np.maximum(oracle.C - self.cache.spent(np.arange(first, last)), 0.0)
            used = np.bincount(examples, coef, oracle.n_examples)
            coef *= np.minimum(1.0, room / np.maximum(used, TINY))[examples]
            cuts = oracle.cuts_of(examples, [listed.outputs[k] for k in which])
            C = oracle.C[examples]
            self.cache.put_in(examples + first, C, cuts, coef, self.weights)
        self.cache.recount(self.weights)

    def _resume_frozen(self, start: FrozenPoint) -> None:
        """Take the frozen sum over, as much of it as is feasible now."""
        frozen = start.frozen.copy()
        if frozen.vector.shape != self.weights.shape:
            raise ValueError("The point belongs to other features.")
        most = 1.0
        for first, oracle in self.stream.batches():
            spent = frozen.spent[first : first + oracle.n_examples]
            share = spent / np.maximum(oracle.C[: len(spent)], TINY)
            most = max(most, float(share.max(initial=0.0)))
        self.cache.take_over(frozen, 1.0 / most, self.weights)

    def release(self) -> None:
        super().release()
        del self.cache, self.average

    def attach(self, stream: Stream, stopping: Stopping, threads: Threads) -> None:
        """Go on with other examples; the cache stays."""
        self.oracle: Any = stream
        self.stream, self.stopping, self.threads = stream, stopping, threads
        self.checker = stream.checker

    def detach(self) -> None:
        """Let go of the examples, and of what cannot be copied."""
        self.settle()
        self.cache.prune(self.weights, self.options.max_idle)
        self.cache.recount(self.weights)
        del self.oracle, self.stream, self.stopping, self.threads

    # Exploring

    def mini_batches(self) -> Iterator[tuple[Batch, Order]]:
        """All examples, so many at a time as are searched at the same weights.

        Ends before the end of the stream when there is no time left.
        """
        self.hinges = 0.0
        self.cache.begin_pass()
        for batch in self.stream.batches():
            n = batch.oracle.n_examples
            self.cache.look_at(batch.first, batch.first + n)
            order = (
                self.random.permutation(n) if self.options.shuffle else np.arange(n, dtype=np.int64)
            )
            start = 0
            while start < n:
                size = self._batch_size(batch)
                yield batch, order[start : start + size]
                start += size
                if self.must_stop:
                    if math.isinf(self.estimate):
                        self.estimate = self.hinges
                    return
        self.cache.end_pass(self.weights)
        self.estimate = self.hinges
        self.passes += 1

    def _batch_size(self, batch: Batch) -> int:
        if self.options.batch_size is not None:
            return self.options.batch_size
        each = batch.oracle.oracle_work
        if each is None:
            return 1
        return max(1, min(int(MOST_WORK / max(each, 1.0)), int(STALE * self.seen)))

    def explore(self, batch: Batch, some: Order) -> None:
        """Search for planes of new examples, and take in those that violate.

        Examples that did are searched again while they are at hand: by and by other outputs of
        theirs violate most.
        """
        first, oracle = batch
        for turn in range(self.options.oracle_calls):
            cuts = oracle.separate(self.weights, some, self.threads)
            gradient = slopes(cuts, self.weights)
            self.calls += len(some)
            if turn == 0:
                self.seen += len(some)
                self.hinges += oracle.hinges(cuts, self.weights, some).most
                self.cache.renew(first + some, cuts, gradient)
            hard = np.flatnonzero((gradient > 0.0) & (oracle.C[some] > 0.0))
            owners, C = first + some[hard], oracle.C[some[hard]]
            self.cache.take_in(owners, C, cuts.take(hard), self.weights, self.rule)
            some = some[hard] if turn == 0 else some
            if not len(hard):
                break
        if self.cache.n_examples > PRUNE_AFTER * self.pruned_to + 64:
            self.prune()
        self.best_dual = max(self.best_dual, self.dual)

    # Improving what is in the cache

    @property
    def cached_certificate(self) -> Certificate:
        """Of the cached problem as it was seen: the gap of each block at its last visit.

        The dual value also bounds the objective of all that was seen. The primal one does not.
        """
        gap = float(self.cache.gaps.sum()) + max(-self.cache.frozen_slope(self.weights), 0.0)
        return Certificate(self.dual + gap, self.dual)

    @property
    def cached_gap(self) -> float:
        """Its relative gap."""
        return self.cached_certificate.relative_gap

    def look(self) -> Certificate:
        """The same at the present weights, by a look at every block."""
        self.cache.update(np.arange(self.cache.n_examples), self.weights, ADD_ONLY)
        return self.cached_certificate

    def update_again(self, examples: Order) -> None:
        """Steps over the planes in hand of some blocks, one after the other."""
        self.hits += len(examples)
        self.cache.update(examples, self.weights, self.rule)
        self.cache.thaw(self.weights)

    def sweep(self) -> None:
        """Revisit every block whose gap is worth it, in random order."""
        gaps = self.cache.gaps
        self.update_again(self.random.permutation(np.flatnonzero(gaps >= NOTABLE * gaps.mean())))
        self.snapshot()

    def optimize(self, tol: float) -> None:
        """Sweep until the gap of the cached problem is at most `tol`, then prune."""
        assert self.momentum is not None
        self.snapshots[0] = 0
        self.momentum.restart()
        for _ in range(self.options.max_sweeps if self.cache.n_examples else 0):
            self.momentum.apply()
            self.sweep()
            self.momentum.settle()
            looks_done = self.options.bound == "true" or self.cached_gap <= tol
            if self.must_stop or (looks_done and self.look().relative_gap <= tol):
                break
        self.settle()
        self.prune()

    def prune(self) -> None:
        """Forget planes without a coefficient, and examples without planes."""
        self.settle()
        self.cache.prune(self.weights, self.options.max_idle)
        self.cache.recount(self.weights)
        self.pruned_to = self.cache.n_examples

    def extrapolate(self, momentum: float) -> None:
        """See `Extrapolable`."""
        self.cache.extrapolate(momentum, self.weights)

    def revert(self) -> None:
        """See `Extrapolable`."""
        self.cache.revert(self.weights)

    def restart(self) -> None:
        """See `Extrapolable`."""
        self.cache.extrapolate(0.0, self.weights)

    # Valuing

    def value(self) -> None:
        """Value the last weights and their average in one pass; planes at the last are kept."""
        self.best_dual = max(self.best_dual, self.dual)
        self.passes_valued = self.passes
        candidates = self.candidates
        hinges = [Hinges(0.0, 0.0)] * len(candidates)
        for first, oracle in self.stream.batches():
            self.cache.look_at(first, first + oracle.n_examples)
            for some in oracle.chunks():
                for k, weights in enumerate(candidates):
                    cuts = oracle.separate(weights, some, self.threads)
                    self.calls += len(some)
                    hinges[k] += oracle.hinges(cuts, weights, some)
                    if k == 0:
                        C = oracle.C[some]
                        hard = np.flatnonzero((slopes(cuts, weights) > 0.0) & (C > 0.0))
                        self.cache.take_in(
                            first + some[hard], C[hard], cuts.take(hard), weights, ADD_ONLY
                        )
                if self.must_stop:
                    return
        for weights, each in zip(candidates, hinges, strict=True):
            self.offer(weights, each)

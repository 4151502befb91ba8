"""Online: dual coordinate descent on a stream of examples; Ramanan (2013), algorithm 2.

It minimises P(w) of structured.py over a stream of batches, by steps on its n-slack dual. Cutting
planes of examples that violate are kept in a bounded cache; all others have zero coefficients, so
the dual value bounds the optimum over the whole stream.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from maxmargin.compiled.rows import slopes
from maxmargin.core.arrays import Floats, Order, dot
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Hinges, Oracle, Threads
from maxmargin.core.oracle_check import OracleChecker
from maxmargin.core.problem import ProblemError
from maxmargin.core.registry import registered
from maxmargin.core.result import Result, Status
from maxmargin.dual.cut_cache import CutCache, Frozen
from maxmargin.dual.cut_table import StepRule
from maxmargin.solvers.loop import Momentum, Stopping, uncertified
from maxmargin.solvers.structured import (
    ADD_ONLY,
    AVERAGE_BELOW,
    LEAST_PART_OF_MEAN_GAP,
    MOST_WORK,
    StructuredSolver,
    TrackedRun,
)

ROUNDING = 1e-9
"""How far above C, relatively, rounding may push the coefficients of an example."""

CHUNK = 1024
"""Examples whose cutting planes are in memory at the same time."""


class FrozenPoint(NamedTuple):
    """A feasible dual point: listed outputs, and the frozen sum of all other cutting planes."""

    listed: DualPoint
    frozen: Frozen

    def dual(self, oracle: Oracle) -> float:
        """Dual value, with the listed cutting planes made anew."""
        return Evaluation(self, oracle.n_features).add(oracle, 0).total


DualPointOfStream = DualPoint | FrozenPoint


class Evaluation:
    """The dual value of a point, summed over batches; ValueError if it is not feasible."""

    def __init__(self, point: DualPointOfStream, n_features: int) -> None:
        self.weights, self.linear = np.zeros(n_features), 0.0
        self.spent = np.zeros(0)
        self.evaluated = 0
        if isinstance(point, FrozenPoint):
            self.weights += point.frozen.vector
            self.linear += float(point.frozen.loss[0])
            self.spent = point.frozen.spent
            point = point.listed
        order = np.argsort(point.examples, kind="stable")
        self.positions, self.coef = point.examples[order], point.coef[order]
        self.outputs = [point.outputs[k] for k in order]

    def add(self, oracle: Oracle, first: int) -> "Evaluation":
        """Add the cutting planes of a batch from position `first` on."""
        last = first + oracle.n_examples
        low, high = np.searchsorted(self.positions, [first, last])
        examples, coef = self.positions[low:high] - first, self.coef[low:high]
        used = np.bincount(examples, weights=coef, minlength=oracle.n_examples).astype(np.float64)
        spent = self.spent[first:last]
        used[: len(spent)] += spent
        if (coef < 0.0).any() or (used > oracle.C * (1.0 + ROUNDING)).any():
            raise ValueError("The dual point is not feasible.")
        for start in range(0, len(examples), CHUNK):
            some = slice(start, start + CHUNK)
            cuts = oracle.cuts_of(examples[some], self.outputs[low:high][some])
            cuts.add_to(self.weights, coef[some])
            self.linear += float(coef[some] @ cuts.losses)
        self.evaluated += len(examples)
        return self

    @property
    def total(self) -> float:
        """The dual value; ValueError if examples of the point did not come."""
        if self.evaluated != len(self.positions):
            raise ValueError(
                f"The source ended before example {self.positions[-1]}, which it gave before: it "
                f"must give the same examples in the same order on every pass."
            )
        return self.linear - 0.5 * dot(self.weights, self.weights)


class Batch(NamedTuple):
    """Oracle of examples in memory, and the stream position of the first."""

    first: int
    oracle: Oracle

    def separated(
        self, candidates: Sequence[Floats], hinges: list[Hinges], threads: Threads
    ) -> Iterator[tuple[Order, list[Cuts]]]:
        """Chunks of examples with their cuts at each of some weights; adds up the `hinges`."""
        for some in self.oracle.chunks():
            found = [self.oracle.separate(weights, some, threads) for weights in candidates]
            for k, (weights, cuts) in enumerate(zip(candidates, found, strict=True)):
                hinges[k] += self.oracle.hinges(cuts, weights, some)
            yield some, found


class Stream(ABC):
    """Examples that come in the same batches on every pass, known by their position."""

    oracle_state: Any = None
    """Oracle calls of a stream remember nothing."""

    checker: OracleChecker | None = None
    """Checks the answers of a user's oracle in all batches; see `Oracle`."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """All batches from the beginning."""

    @property
    def content(self) -> Any:
        """What tells these examples and their oracle from others, for fingerprints."""
        return next(self.batches()).oracle.content

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return next(self.batches()).oracle.n_features

    @property
    def exact(self) -> bool:
        """Whether the oracle always finds the most violated cut."""
        return next(self.batches()).oracle.exact

    def evaluate(
        self, candidates: Sequence[Floats], point: DualPointOfStream, threads: Threads
    ) -> tuple[list[float], float]:
        """Primal value of each of some weights, and dual value of a point, in one pass."""
        evaluation = Evaluation(point, self.n_features)
        hinges = [Hinges(0.0, 0.0)] * len(candidates)
        for batch in self.batches():
            evaluation.add(batch.oracle, batch.first)
            for _ in batch.separated(candidates, hinges, threads):
                pass
        primals = [
            0.5 * dot(weights, weights) + each.most
            for weights, each in zip(candidates, hinges, strict=True)
        ]
        return primals, evaluation.total


class InMemory(Stream):
    """An oracle in memory as a stream of one batch from position `first` on."""

    def __init__(
        self, oracle: Oracle, first: int = 0, checker: OracleChecker | None = None
    ) -> None:
        self.oracle, self.first = oracle, first
        oracle.check_from(first, checker)
        self.checker = oracle.checker

    def batches(self) -> Iterator[Batch]:
        yield Batch(self.first, self.oracle)


BATCH_PER_SEEN = 0.02
"""Oracle calls at the same weights, as a part of the examples seen: weights should lag little."""

TINY = 1e-300

PRUNE_AFTER = 1.25
"""Growth of the cache after which it is pruned."""


class StreamRun(TrackedRun):
    """One online solve; `oracle`, in memory or a stream, evaluates the answer."""

    state_names = (*TrackedRun.state_names, "cache", "tol_cache", "seen", "pruned_to")

    def __init__(
        self,
        oracle: Oracle | Stream,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        options: "Online",
        comes_back: bool,
    ) -> None:
        averaging = oracle.n_features <= AVERAGE_BELOW
        super().__init__(oracle, stopping, threads, seed, averaging)  # type: ignore[arg-type]
        self.stream = stream = InMemory(oracle) if isinstance(oracle, Oracle) else oracle
        self.cache = CutCache(stream.n_features, options.cache_bytes, comes_back)
        self.options = options
        self.checker = stream.checker
        self.rule = StepRule(max_steps=options.max_steps)
        self.tol_cache = options.tol_cache
        """Relative gap to which the cached problem is solved at present."""
        self.momentum = Momentum(self, options.acceleration)
        self.seen = 0
        """Examples explored so far, counted again in each pass."""
        self.hinges = 0.0
        """Sum of C times hinge as explored in this pass, at changing weights."""
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
        """Relative gap asked of the result."""
        return self.stopping.relative_tol(self.dual)

    @property
    def must_stop(self) -> bool:
        return self.stopping.out_of_time or self.stopping.cancelled.is_set()

    def is_whole(self, status: Status | None) -> bool:
        return status not in (Status.TIME_LIMIT, Status.INTERRUPTED)

    def point(self) -> DualPointOfStream:
        listed, frozen = self.cache.point(), self.cache.frozen
        return listed if frozen is None else FrozenPoint(listed, frozen.copy())

    def resume(self, start: DualPointOfStream) -> None:
        listed, frozen = start if isinstance(start, FrozenPoint) else (start, None)
        if not isinstance(listed, DualPoint):
            raise ValueError("The point is no list of outputs with coefficients.")
        if frozen is not None:
            self._resume_frozen(frozen.copy())
        for first, oracle in self.stream.batches():
            last = first + oracle.n_examples
            which = np.flatnonzero((listed.examples >= first) & (listed.examples < last))
            if not len(which):
                continue
            self.cache.look_at(first, last)
            outputs = [listed.outputs[k] for k in which]
            own = DualPoint(listed.examples[which] - first, listed.coef[which], outputs)
            own = own.feasible(np.maximum(oracle.C - self.cache.spent(np.arange(first, last)), 0.0))
            cuts, C = oracle.cuts_of(own.examples, own.outputs), oracle.C[own.examples]
            self.cache.put_in(own.examples + first, C, cuts, own.coef, self.weights)
        self.cache.recount(self.weights)

    def _resume_frozen(self, frozen: Frozen) -> None:
        """Take over the frozen sum, scaled down to be feasible."""
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
        """Go on with other examples, and the same cache."""
        self.oracle: Any = stream
        self.stream, self.stopping, self.threads = stream, stopping, threads
        self.checker = stream.checker

    def detach(self) -> None:
        """Release the examples and what cannot be copied."""
        self.settle()
        self.cache.prune(self.weights, self.options.max_idle)
        self.cache.recount(self.weights)
        del self.oracle, self.stream, self.stopping, self.threads

    # Exploring

    def mini_batches(self) -> Iterator[tuple[Batch, Order]]:
        """All examples, in batches for oracle calls at the same weights, until time is up."""
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
        return max(1, min(int(MOST_WORK / max(each, 1.0)), int(BATCH_PER_SEEN * self.seen)))

    def explore(self, batch: Batch, some: Order) -> None:
        """Call the oracle for new examples, again for those that violate, and cache the cuts."""
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
        """Of the cached problem at the last updates; only the dual bounds that of all examples."""
        gap = float(self.cache.gaps.sum()) + max(-self.cache.frozen_slope(self.weights), 0.0)
        return Certificate(self.dual + gap, self.dual)

    def look(self) -> Certificate:
        """The same at the present weights."""
        self.cache.update(np.arange(self.cache.n_examples), self.weights, ADD_ONLY)
        return self.cached_certificate

    def update_again(self, examples: Order) -> None:
        """Block updates of some examples with the working set."""
        self.hits += len(examples)
        self.cache.update(examples, self.weights, self.rule)
        self.cache.thaw(self.weights)

    def sweep(self) -> None:
        """Sweep the working set, examples with a gap worth it, in random order."""
        gaps = self.cache.gaps
        worth = np.flatnonzero(gaps >= LEAST_PART_OF_MEAN_GAP * gaps.mean())
        self.update_again(self.random.permutation(worth))
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
            looks_done = self.options.bound == "true" or self.cached_certificate.relative_gap <= tol
            if self.must_stop or (looks_done and self.look().relative_gap <= tol):
                break
        self.settle()
        self.prune()

    def prune(self) -> None:
        """Drop cutting planes without a coefficient, and examples without cutting planes."""
        self.settle()
        self.cache.prune(self.weights, self.options.max_idle)
        self.cache.recount(self.weights)
        self.pruned_to = self.cache.n_examples

    def extrapolate(self, momentum: float) -> None:
        self.cache.extrapolate(momentum, self.weights)

    def revert(self) -> None:
        self.cache.revert(self.weights)

    def restart(self) -> None:
        self.cache.extrapolate(0.0, self.weights)

    # Evaluating

    def evaluate(self) -> None:
        """Evaluate the last weights and their average in one pass; cuts at the last are kept."""
        self.best_dual = max(self.best_dual, self.dual)
        self.passes_evaluated = self.passes
        candidates = self.candidates
        hinges = [Hinges(0.0, 0.0)] * len(candidates)
        for batch in self.stream.batches():
            first, oracle = batch
            self.cache.look_at(first, first + oracle.n_examples)
            for some, (cuts, *_) in batch.separated(candidates, hinges, self.threads):
                self.calls += len(candidates) * len(some)
                C = oracle.C[some]
                hard = np.flatnonzero((slopes(cuts, self.weights) > 0.0) & (C > 0.0))
                owners, cuts = first + some[hard], cuts.take(hard)
                self.cache.take_in(owners, C[hard], cuts, self.weights, ADD_ONLY)
                if self.must_stop:
                    return
        for weights, each in zip(candidates, hinges, strict=True):
            self.offer(weights, each)


SCHEDULES = ("larank", "gap", "one-pass")

UPDATES_AGAIN = 10
"""Updates of cached examples for each new one, in LaRank's schedule."""

CACHE_PART_OF_GAP = 0.5
"""Later passes solve the cached problem to this part of the gap they saw."""


@registered("Online")
@dataclass(frozen=True, kw_only=True)
class Online(StructuredSolver):
    """Online dual coordinate descent of Ramanan (2013), algorithm 2.

    The oracle is called for each example of a stream; violated cutting planes enter a cache, with
    an exact step on their coefficients. In between, cached examples are updated again. After a pass
    the cache is optimised and pruned. Only the cache is in memory; further passes go over the same
    examples, and a last one evaluates the weights and the dual point over all of them.

    Parameters
    ----------
    passes : int, default=None
        Most passes over the examples; None goes on until the gap is closed.
    schedule : {"larank", "gap", "one-pass"}, default="larank"
        When cached examples are updated again: ten of them, at random, for each new one, as in
        LaRank; all when their gap is above `tol_cache`, as in the paper; or never.
    tol_cache : float, default=0.01
        Relative duality gap to which the cached problem is solved, after a pass at most the
        tolerance; later passes lower it to half of the gap that they saw.
    bound : {"tracked", "true"}, default="tracked"
        How the gap of the cached problem is known while it is optimised: from the hinges seen on
        the way, or by a look at all of it after every sweep.
    cache_bytes : int, default=2**30
        Most memory of the cache. Beyond, cutting planes of the same example are merged, then
        examples frozen (see docs/theory-structured.md).
    oracle_calls : int, default=4
        Most oracle calls for one example while it is in memory.
    max_idle : int, default=50
        Optimisations of the cache after which a cutting plane whose coefficient stayed zero is
        dropped, if memory lasts; the paper has 1.
    acceleration : bool, default=True
        Extrapolate between sweeps of the cache.
    max_sweeps : int, default=50
        Most sweeps of one optimisation.
    max_steps : int, default=10
        Most steps of one update.
    batch_size : int, default=None
        Oracle calls made at the same weights; None chooses by their work and what was seen.
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

    def finish(self, run: StreamRun, status: Status) -> Result:
        in_memory = isinstance(run.oracle, Oracle)
        result = super().finish(run, status) if in_memory else _certified(run, status)
        if result.status is Status.MAX_ITER and result.iterations == self.passes:
            return replace(result, status=Status.PASSES)
        return result

    def start(
        self,
        oracle: Oracle | Stream,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        comes_back: bool = True,
    ) -> StreamRun:
        """A run with an empty cache; `comes_back` if examples will be seen again."""
        if self.passes is not None:
            stopping = replace(stopping, max_iter=min(self.passes, stopping.max_iter))
        return StreamRun(oracle, stopping, threads, seed, self, comes_back)

    def iterate(self, run: StreamRun) -> None:
        self.explore(run)
        seen = Certificate(run.expected, run.dual).relative_gap
        run.tol_cache = min(run.tol_cache, CACHE_PART_OF_GAP * max(seen, 0.5 * run.tol))
        if run.passes != self.passes and run.looks_done():
            run.evaluate()

    def explore(self, run: StreamRun) -> None:
        """One pass over the stream, after which the cache is optimised."""
        for batch, some in run.mini_batches():
            run.explore(batch, some)
            if self.schedule == "gap":
                if run.cached_certificate.relative_gap > run.tol_cache:
                    run.optimize(run.tol_cache)
            elif self.schedule == "larank" and run.cache.n_examples:
                run.update_again(
                    run.random.integers(run.cache.n_examples, size=UPDATES_AGAIN * len(some))
                )
        if self.schedule != "one-pass":
            run.optimize(min(run.tol_cache, run.tol))


def _certified(run: StreamRun, status: Status) -> Result:
    """The best weights and the dual point, evaluated anew in one pass over the stream."""
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

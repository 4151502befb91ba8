"""What the distributed dual method keeps with each shard, and what it does there.

A shard ascends the dual over its own blocks as if nobody else did, from the weights that it was
sent, with one difference: it counts its own moves `scale` times. To keep its coefficients times
`scale` is all that this takes. They then add up to at most ``scale * C``, every step is that of
the plain problem, and the weights here move by `scale` times what they would.
"""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Hinges, Oracle
from maxmargin.core.result import Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.working_set import BlockUpdate, StepRule, WorkingSet
from maxmargin.solvers.block_coordinate import ENTRY_COST, Auto
from maxmargin.solvers.loop import Momentum
from maxmargin.solvers.structured import BlockRun
from maxmargin.training.shards import Delta

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


SWEEPS, LITTLE = 5, 0.3
"""Most sweeps of a move without searches, which ends when they gain less than this part."""


class Orders(NamedTuple):
    """What a shard is told before it does something.

    Parameters
    ----------
    taken : float
        What part of its last move counts.
    delta : Delta
        To the weights that it knows, with that part of its move added.
    scale : float
        How many times to count its moves from now on.
    share : float
        Passes of searches over its blocks to make; none if it is only to sweep planes in hand.
    momentum : float
        How much further to go first along the last move.
    restart : bool
        For a lone shard: whether to forget where the last moves went.
    seconds : float or None
        How long it may take at most, about.
    """

    taken: float
    delta: Delta
    scale: float
    share: float = 0.0
    momentum: float = 0.0
    restart: bool = False
    seconds: float | None = None

    @property
    def nbytes(self) -> int:
        """What has to be sent."""
        return self.delta.nbytes


class Move(NamedTuple):
    """What a shard has done.

    Parameters
    ----------
    delta : Delta
        To the weights that it was sent: `scale` times ``sum change * psi`` is added to them.
    linear : float
        Change of the dual's linear term.
    scale : float
    progress : Progress
    """

    delta: Delta
    linear: float
    scale: float
    progress: "Progress"

    @property
    def nbytes(self) -> int:
        """What has to be sent."""
        return self.delta.nbytes


class Progress(NamedTuple):
    """What a shard has done so far, all in all, and the time that its last move took.

    Parameters
    ----------
    passes : float
    estimate : float
        Sum of cost times hinge as seen in the last pass of searches.
    calls, hits : int
        Searches, and visits from planes in hand.
    cuts : int
    share : float
        Passes of the last move.
    effort : float
        Multiplications of the last move, about; none if it only came to rest.
    seconds, oracle_seconds : float
        Of the last move, and of the searches in it.
    """

    passes: float
    estimate: float
    calls: int
    hits: int
    cuts: int
    share: float
    effort: float
    seconds: float
    oracle_seconds: float


def accepted(old: Floats, new: Floats, part: float) -> Floats:
    """The way from `old` to `new`, gone in part; the same bits for whoever asks."""
    return new if part == 1.0 else old + part * (new - old)


class ShardCuts(WorkingSet):
    """A working set that remembers where a move began, and can change its scale."""

    def __init__(self, totals: Floats, n_features: int) -> None:
        super().__init__(totals, n_features)
        self.gaps[:] = 0.0  # of blocks that were never visited, sweeps have nothing to expect
        self.hold()

    def hold(self) -> None:
        """A move begins here."""
        self._held, self._held_linear = self._table.coef.copy(), self.linear

    @property
    def moved(self) -> float:
        """Change of the linear term since."""
        return self.linear - self._held_linear

    def shorten(self, part: float) -> None:
        """Take back all but a part of the move."""
        coef = self._table.coef
        coef *= part
        coef[: len(self._held)] += (1.0 - part) * self._held
        self.linear = self._held_linear + part * self.moved

    def rescale(self, factor: float) -> None:
        """Other units for coefficients and what they may add up to."""
        for array in (self._table.coef, self._table.previous, self._table.totals):
            array *= factor
        self.linear *= factor

    def recount(self, weights: Floats) -> None:
        """Bring the dual value up to date where weights have come from elsewhere."""
        self._moved(0.0, weights)


class ShardRun(BlockRun):
    """The run of a shard, which may stop in the middle of a pass."""

    working_set: ShardCuts

    def __init__(self, oracle: Oracle, seed: Any, averaging: bool, options: Auto) -> None:
        super().__init__(oracle, Stopping(), Threads(1), seed, options.batch_size, averaging)
        self.working_set = ShardCuts(oracle.C.copy(), oracle.n_features)
        self.scale = 1.0
        self.options = options
        self.oracle_seconds = self.effort = 0.0
        self._left: Order = np.zeros(0, dtype=np.int64)
        self._loss = 0.0

    def following(self, share: float) -> Order:
        """The next blocks of the pass: so large a part of all, or what is left."""
        if not len(self._left):
            self._left, self._loss = self.shuffled, 0.0
        n = max(1, math.ceil(share * self.oracle.n_examples))
        order, self._left = self._left[:n], self._left[n:]
        return order

    def infer(self, order: Order, rule: StepRule) -> BlockUpdate:
        passes, estimate = self.passes, self.estimate
        found = super().infer(order, rule)
        self.effort += self.options.inference_effort(self, order, found)
        self._loss += found.loss / self.scale
        if not len(self._left):
            self.estimate = self._loss
            return found
        self.passes, self.estimate = passes, estimate
        if math.isinf(estimate):
            self.note_hinges(self._loss, np.setdiff1d(self.everything, self._left))
        return found

    def sweep(self, order: Order, rule: StepRule) -> BlockUpdate:
        swept = super().sweep(order, rule)
        self.effort += ENTRY_COST * swept.work
        return swept

    def _found(self, order: Order, weights: Floats) -> Iterator[tuple[Order, Cuts]]:
        found = super()._found(order, weights)
        while True:
            started = time.perf_counter()
            item = next(found, None)
            self.oracle_seconds += time.perf_counter() - started
            if item is None:
                return
            yield item


class DualShard:
    """What the distributed dual method keeps with a shard.

    Parameters
    ----------
    oracle : TrainingSet
        The examples of the shard.
    options : Auto
        How to ascend.
    seed : int
    number : int
        Of the shard.
    n_shards : int
        A lone one is its own master: nobody shortens its moves, and they may go on
        from one order to the next.
    averaging : bool
    """

    def __init__(
        self,
        oracle: Oracle,
        options: Auto,
        seed: int,
        number: int,
        n_shards: int,
        averaging: bool,
    ) -> None:
        self.options, self.lone = options, n_shards == 1
        own_seed = seed if number == 0 else [seed, number]
        self.run = ShardRun(oracle, own_seed, averaging, options)
        # What several find together is extrapolated by the driver's orders.
        accelerated = options.acceleration and self.lone
        self.momentum = self.run.momentum = Momentum(self.run, accelerated)
        self.base = self.run.weights.copy()
        """The weights that were sent."""

    def go(self, orders: Orders) -> Move:
        """Make so many passes, or parts of one."""
        run, started = self.run, time.perf_counter()
        self._follow(orders)
        run.oracle_seconds, run.effort = 0.0, 1.0
        if orders.share > 0.0:
            run.working_set.drop_idle(self.options.max_idle)
        run.working_set.hold()
        if not self.lone:
            run.extrapolate(orders.momentum)
        done = 0.0
        while done < orders.share and not run.stopping.out_of_time:
            order = run.following(orders.share - done)
            self.options.improve(run, self.momentum, order)
            done += len(order) / run.oracle.n_examples
        if orders.share == 0.0:
            self._sweep()
        return self._move(started, done)

    def _sweep(self) -> None:
        """Sweep the planes in hand until that gains little."""
        rule, first = StepRule(max_steps=self.options.max_steps), 0.0
        for _ in range(SWEEPS):
            gain = self.run.sweep(self.options.notable(self.run), rule).gain
            first = first or gain
            if gain <= LITTLE * first:
                break

    def rest(self, orders: Orders) -> Move:
        """End an extrapolation that is under way."""
        started = time.perf_counter()
        self._follow(orders)
        self.run.oracle_seconds = self.run.effort = 0.0
        self.run.working_set.hold()
        self.run.settle()
        return self._move(started, 0.0)

    def value(self, orders: Orders) -> tuple[Hinges, Progress]:
        """Sum of cost times hinge at the weights that are sent; planes found are kept."""
        self._follow(orders)
        return self.value_at(self.run.weights)

    def value_at(self, weights: Floats) -> tuple[Hinges, Progress]:
        """The same at any weights."""
        started = time.perf_counter()
        self.run.oracle_seconds = self.run.effort = 0.0
        hinges = self.run.infer_at(weights)
        return hinges, self._progress(started, 1.0)

    def known(self, orders: Orders) -> float:
        """What that sum is at least, at the weights that are sent, as the planes in hand tell."""
        self._follow(orders)
        return self.known_at(self.run.weights)

    def known_at(self, weights: Floats) -> float:
        """The same at any weights."""
        return self.run.working_set.hinges(weights) / self.run.scale

    def average(self) -> Floats:
        """Average of the weights in the course of the moves here."""
        assert self.run.average is not None
        return self.run.average

    def resume(self, point: DualPoint) -> Move:
        """Take over a dual point, before anything else happened; the move is from zero."""
        started = time.perf_counter()
        self._set_scale(1.0)  # that of the point
        self.run.working_set.hold()
        self.run.resume(point)
        return self._move(started, 0.0)

    def point(self) -> DualPoint:
        """The dual point; a move that nobody has taken yet is part of it."""
        point = self.run.working_set.point()
        return point._replace(coef=point.coef / self.run.scale)

    def _follow(self, orders: Orders) -> None:
        run, cuts = self.run, self.run.working_set
        run.stopping = Stopping(time_limit=orders.seconds)
        self.base = accepted(self.base, run.weights, orders.taken / run.scale).copy()
        orders.delta.apply(self.base)
        if orders.taken != 1.0:
            cuts.shorten(orders.taken)
        self._set_scale(orders.scale)
        run.weights[:] = self.base
        if not self.lone:
            cuts.recount(run.weights)
        if orders.restart:
            self.momentum.restart()

    def _set_scale(self, scale: float) -> None:
        if scale != self.run.scale:
            self.run.working_set.rescale(scale / self.run.scale)
            self.run.scale = scale

    def _move(self, started: float, share: float) -> Move:
        run = self.run
        return Move(
            Delta.between(self.base, run.weights),
            run.working_set.moved / run.scale,
            run.scale,
            self._progress(started, share),
        )

    def _progress(self, started: float, share: float) -> Progress:
        run = self.run
        seconds = time.perf_counter() - started
        return Progress(
            run.passes, run.estimate, run.calls, run.hits, run.n_cuts, share, run.effort,
            seconds, run.oracle_seconds,
        )  # fmt: skip

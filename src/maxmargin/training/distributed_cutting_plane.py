"""OneSlack on shards: each sums its own cuts, the driver solves the quadratic program.

What a summed cut is made of stays in the shards, under its number; each request says which are
still in use.
"""

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Hinges, Oracle, Threads
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.solvers.cutting_plane import (
    OneSlack,
    SummedCut,
    SummedCuts,
    SummedRun,
    joined_recipes,
)
from maxmargin.solvers.loop import SolverRun, Stopping
from maxmargin.training.shards import (
    ClusterIteration,
    Delta,
    LostShardError,
    ResidentPoint,
    ShardedOracle,
    certified_on_shards,
    retried,
)


@registered("DistributedOneSlack")
@dataclass(frozen=True, kw_only=True)
class DistributedOneSlack(OneSlack):
    """`OneSlack` with the data, and the cached constraints, in shards."""

    on_shards: ClassVar[bool] = True

    def start(
        self, oracle: Any, stopping: Stopping, threads: Threads, seed: int
    ) -> "ShardedSummedRun":
        return ShardedSummedRun(oracle, stopping, threads, seed)

    def finish(self, run: Any, status: Status) -> Result:
        return certified_on_shards(super().finish, run, status, self)


_NOTHING = Hinges(0.0, 0.0)


class PartialCut(NamedTuple):
    """What the examples of a shard add to a summed cut."""

    vector: Delta
    """To a vector of zeros."""
    loss: float
    hinges: Hinges

    @property
    def nbytes(self) -> int:
        return self.vector.nbytes


class SummedShard:
    """What `OneSlack` keeps with a shard: its cache, and what summed cuts are made of."""

    def __init__(self, oracle: Oracle) -> None:
        self.run = SummedRun(oracle, Stopping(), Threads(1), 0)
        self.recipes: dict[int, DualPoint] = {}
        self.mix: dict[int, float] = {}

    def separate(self, number: int, used: list[int], delta: Delta, cache: int) -> PartialCut:
        """Call the oracle for all examples, at the weights that the delta makes."""
        delta.apply(self.run.weights)
        return self._kept(number, used, *self.run.found_cut(cache))

    def cached(self, number: int, used: list[int], delta: Delta) -> PartialCut:
        """The sum of the most violated cached constraints."""
        delta.apply(self.run.weights)
        return self._kept(number, used, self.run.cached_cut())

    def resume(self, number: int, point: DualPoint) -> PartialCut:
        """A cut from coefficients of an earlier solve."""
        oracle = self.run.oracle
        return self._kept(number, [], SummedCut.of(oracle, oracle.feasible(point)))

    def recompute(self, numbers: list[int]) -> list[PartialCut]:
        """Cuts of these numbers; nothing for unknown ones."""
        recipes = [self.recipes.get(number, joined_recipes([])) for number in numbers]
        return [self._part(SummedCut.of(self.run.oracle, recipe)) for recipe in recipes]

    def set_mix(self, mix: dict[int, float]) -> None:
        """Set the coefficient of each summed cut in the dual point."""
        self.mix = mix

    def point(self) -> DualPoint:
        mix = self.mix.items()
        return joined_recipes([(c, self.recipes[n]) for n, c in mix if n in self.recipes])

    def _kept(
        self, number: int, used: list[int], cut: SummedCut, hinges: Hinges = _NOTHING
    ) -> PartialCut:
        self.recipes = {n: recipe for n, recipe in self.recipes.items() if n in used}
        self.recipes[number] = cut.recipe
        return self._part(cut, hinges)

    def _part(self, cut: SummedCut, hinges: Hinges = _NOTHING) -> PartialCut:
        return PartialCut(Delta.between(np.zeros_like(cut.vector), cut.vector), cut.loss, hinges)


class ShardedSummedRun(SummedRun):
    """A run of `OneSlack` whose cuts are summed where the examples are."""

    # The point comes first: if a shard is lost while it is fetched, the run knows of a lower dual.
    state_names = ("listed", *SolverRun.state_names, "best", "guess", "least_primal")

    oracle: ShardedOracle  # type: ignore[assignment]

    def __init__(
        self, oracle: ShardedOracle, stopping: Stopping, threads: Threads, seed: int
    ) -> None:
        super().__init__(oracle, stopping, threads, seed)
        self.shards = oracle.shards
        oracle.traffic()  # what was sent before is none of this run's
        self.number = 0
        self._sent = np.zeros(oracle.n_features)
        for shard in range(len(self.shards)):
            self.shards.ask(shard, "begin", SummedShard)
        self.shards.gathered()
        if self.shards.lost:
            self.recover()

    def found_cut(self, cache: int) -> tuple[SummedCut, Hinges]:
        cut, hinges = self._asked("separate", cache)
        self.calls += self.oracle.n_examples
        return cut, hinges

    def cached_cut(self) -> SummedCut:
        return self._asked("cached")[0]

    @retried
    def _asked(self, method: str, *arguments: Any) -> tuple[SummedCut, Hinges]:
        delta = Delta.between(self._sent, self.weights)
        self._sent[:] = self.weights
        self.oracle.sent += delta.nbytes * len(self.shards)
        self.number += 1
        asked = method, self.number, self._used, delta, *arguments
        return self._added(self.number, self.shards.ask_all("do", *asked))

    def check_resumed(self) -> None:
        """Shards have evaluated the point when they took it over."""

    @property
    def _used(self) -> list[int]:
        return list(self.cuts.kept.recipes)  # type: ignore[arg-type]

    def _added(self, number: int, parts: list[PartialCut]) -> tuple[SummedCut, Hinges]:
        """Sum of the partial cuts of the shards, under its number."""
        vector, loss, hinges = np.zeros(self.oracle.n_features), 0.0, _NOTHING
        for part in parts:
            vector[part.vector.entries] += part.vector.values
            loss, hinges = loss + part.loss, hinges + part.hinges
            self.oracle.received += part.nbytes
        return SummedCut(vector, loss, number), hinges  # type: ignore[arg-type]

    def recover(self) -> None:
        """Make lost shards again; cuts go on without what these had added."""
        self.detach_best()
        everyone = self._recomputed()
        kept, self.cuts = self.cuts.kept, SummedCuts()
        for k, number in enumerate(kept.recipes):
            cut, _ = self._added(number, [parts[k] for parts in everyone])  # type: ignore[arg-type]
            self.cuts.add(cut, float(kept.coef[k]))
        self.cuts.set_weights(self.weights)
        self.best_dual = self.dual  # a point that is lost proves nothing
        self._sent = np.full(len(self.weights), np.nan)  # so that all of them are sent

    def _recomputed(self) -> list[list[PartialCut]]:
        """Partial cuts of each shard, once none is lost."""
        while True:
            self.shards.restore(lambda shard: ("begin", SummedShard))
            with suppress(LostShardError):
                return self.shards.ask_all("do", "recompute", self._used)

    @retried
    def point(self) -> Any:
        kept = self.cuts.kept
        mix = {n: float(c) for n, c in zip(kept.recipes, kept.coef, strict=True) if c > 0.0}
        self.shards.ask_all("do", "set_mix", mix)
        return ResidentPoint()

    @retried
    def listed_point(self) -> DualPoint:
        """The coefficients of all examples, fetched from the shards."""
        self.point()
        return self.oracle.join(self.shards.ask_all("do", "point"))

    @retried
    def resume(self, start: DualPoint) -> None:
        self.number += 1
        for shard, part in enumerate(self.oracle.split(start)):
            self.shards.ask(shard, "do", "resume", self.number, part)
        parts = [answer.value for answer in self.shards.wait()]
        self.cuts.add(self._added(self.number, parts)[0], coef=1.0)
        self.cuts.set_weights(self.weights)

    listed = property(listed_point, resume)

    def state(self) -> Any:
        return self

    def as_iteration(self) -> Iteration:
        line, traffic = asdict(super().as_iteration()), self.oracle.traffic()
        return ClusterIteration(**line, **traffic, updates=len(self.shards))

    def release(self) -> None:
        """Nothing: if a shard is lost while its point is certified, training goes on."""

"""OneSlack on shards: each sums up its own planes, the quadratic program stays with the driver.

What a summed plane is made of stays in the shards, under its number. They hear with each question
which numbers are still in use.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.threads import Threads
from maxmargin.core.problem import Hinges, TrainingSet
from maxmargin.core.registry import registered
from maxmargin.core.result import Result, Round, Status
from maxmargin.core.stopping import Stopping
from maxmargin.dual.summed import SummedPlane, SummedPlanes
from maxmargin.dual.working_set import DualPoint
from maxmargin.solvers.cutting_plane import NO_BLOCKS, OneSlack, SummedRun
from maxmargin.solvers.loop import IterativeRun
from maxmargin.training.distributed_links import ClusterRound, certified_on_shards
from maxmargin.training.sharded_oracle import ResidentPoint, ShardedTrainingSet
from maxmargin.training.shards import LostShardError, Patch

Floats = NDArray[np.float64]


@registered("DistributedOneSlack")
@dataclass(frozen=True, kw_only=True)
class DistributedOneSlack(OneSlack):
    """`OneSlack` with the data in shards; what it does is the same.

    Parameters
    ----------
    cache, accept, line_search, precision, max_idle
        As in `OneSlack`; caches of planes are kept with the shards.

    See Also
    --------
    OneSlack, DistributedDual
    """

    def _start(
        self, training: Any, stopping: Stopping, threads: Threads, seed: int
    ) -> tuple["ShardedSummedRun", Iterator[None]]:
        run = ShardedSummedRun(training, stopping, threads, seed)
        return run, self._rounds(run)

    def _end(self, run: Any, status: Status) -> Result:
        def certify(status: Status) -> Result:
            result: Result = super(DistributedOneSlack, self)._end(run, status)
            if run.training.lists_point:
                return replace(result, dual_point=run.listed)
            return result

        return certified_on_shards(run, status, certify, lambda: self._rounds(run))


class Part(NamedTuple):
    """A shard's part of a summed plane."""

    vector: Patch
    """To a vector of zeros."""
    loss: float
    hinges: Hinges

    @property
    def nbytes(self) -> int:
        """What has to be sent."""
        return self.vector.nbytes


class SummedShard:
    """What `OneSlack` keeps with a shard: its cache, and what planes are made of.

    Parameters
    ----------
    training : TrainingSet
        The examples of the shard.
    """

    def __init__(self, training: TrainingSet) -> None:
        self.run = SummedRun(training, Stopping(), Threads(1), 0)
        self.recipes: dict[int, DualPoint] = {}
        self.mix: dict[int, float] = {}

    def searched(self, number: int, used: list[int], patch: Patch, cache: int) -> Part:
        """Search all examples at the weights that the patch makes."""
        patch.apply(self.run.weights)
        return self._kept(number, used, *self.run.searched_plane(cache))

    def cached(self, number: int, used: list[int], patch: Patch) -> Part:
        """The sum of the most violating planes in the cache."""
        patch.apply(self.run.weights)
        return self._kept(number, used, self.run.cached_plane(), Hinges(0.0, 0.0))

    def resume(self, number: int, point: DualPoint) -> Part:
        """A plane from coefficients of an earlier solve."""
        return self._kept(number, [], self._summed(self.run.training.feasible(point)), _NOTHING)

    def again(self, numbers: list[int]) -> list[Part]:
        """Planes of these numbers; nothing for those that are not known here."""
        empty = DualPoint(NO_BLOCKS, np.zeros(0), [])
        planes = [self._summed(self.recipes.get(number, empty)) for number in numbers]
        return [self._part(plane, _NOTHING) for plane in planes]

    def set_mix(self, mix: dict[int, float]) -> None:
        """How much each plane counts in the dual point."""
        self.mix = mix

    def point(self) -> DualPoint:
        """The dual point over the examples here."""
        used = [(c, self.recipes[n]) for n, c in self.mix.items() if n in self.recipes]
        return DualPoint(
            blocks=np.concatenate([NO_BLOCKS, *(recipe.blocks for _, recipe in used)]),
            coef=np.concatenate([np.zeros(0), *(coef * recipe.coef for coef, recipe in used)]),
            outputs=[output for _, recipe in used for output in recipe.outputs],
        )

    def _summed(self, recipe: DualPoint) -> SummedPlane:
        training = self.run.training
        vector = np.zeros(training.n_features)
        planes = training.planes_of(recipe.blocks, recipe.outputs)
        planes.add_to(vector, recipe.coef)
        return SummedPlane(vector, float(recipe.coef @ planes.losses), recipe)

    def _kept(self, number: int, used: list[int], plane: SummedPlane, hinges: Hinges) -> Part:
        self.recipes = {n: recipe for n, recipe in self.recipes.items() if n in used}
        self.recipes[number] = plane.recipe
        return self._part(plane, hinges)

    def _part(self, plane: SummedPlane, hinges: Hinges) -> Part:
        nothing = np.zeros(self.run.training.n_features)
        return Part(Patch.between(nothing, plane.vector), plane.loss, hinges)


_NOTHING = Hinges(0.0, 0.0)


class ShardedSummedRun(SummedRun):
    """A run of `OneSlack` whose planes are summed up where the examples are."""

    # The point comes first: if a shard is lost while it is fetched, the run knows of a lower dual.
    state_names = ("listed", *IterativeRun.state_names, "best", "guess", "least_primal")

    training: ShardedTrainingSet  # type: ignore[assignment]

    def __init__(
        self, training: ShardedTrainingSet, stopping: Stopping, threads: Threads, seed: int
    ) -> None:
        super().__init__(training, stopping, threads, seed)
        self.shards = training.shards
        self.number = 0
        self._crossed = training.sent, training.received
        self._sent = np.zeros(training.n_features)
        try:
            self.shards.ask_all("begin", SummedShard)
        except LostShardError as lost:
            self.recover(lost.number)

    def searched_plane(self, cache: int) -> tuple[SummedPlane, Hinges]:
        plane, hinges = self._asked("searched", cache)
        self.calls += self.training.n_blocks
        return plane, hinges

    def cached_plane(self) -> SummedPlane:
        return self._asked("cached")[0]

    def _asked(self, method: str, *arguments: Any) -> tuple[SummedPlane, Hinges]:
        while True:
            patch = Patch.between(self._sent, self.weights)
            self._sent[:] = self.weights
            self.training.sent += patch.nbytes * len(self.shards)
            self.number += 1
            try:
                parts = self.shards.ask_all(
                    "do", method, self.number, self._used, patch, *arguments
                )
            except LostShardError as lost:
                self.recover(lost.number)
                continue
            return self._added(self.number, parts)

    def check_resumed(self) -> None:
        """Shards have evaluated the point when they took it over."""

    @property
    def _used(self) -> list[int]:
        return list(self.planes.kept.recipes)  # type: ignore[arg-type]

    def _added(self, number: int, parts: list[Part]) -> tuple[SummedPlane, Hinges]:
        """The plane of which shards have sent their parts, under its number."""
        vector, loss, hinges = np.zeros(self.training.n_features), 0.0, _NOTHING
        for part in parts:
            vector[part.vector.places] += part.vector.values
            loss, hinges = loss + part.loss, hinges + part.hinges
            self.training.received += part.nbytes
        return SummedPlane(vector, loss, number), hinges  # type: ignore[arg-type]

    def recover(self, *shards: int) -> None:
        """Make lost shards again; planes go on without what these had put into them."""
        self.detach_best()
        everyone = self._parts_of_all(set(shards))
        kept, self.planes = self.planes.kept, SummedPlanes()
        for k, number in enumerate(kept.recipes):
            plane, _ = self._added(number, [parts[k] for parts in everyone])  # type: ignore[arg-type]
            self.planes.add(plane, float(kept.coef[k]))
        self.planes.set_weights(self.weights)
        self.best_dual = self.dual  # a point that nobody has any more proves nothing
        self._sent = np.full(len(self.weights), np.nan)  # so that all of them are sent

    def _parts_of_all(self, lost: set[int]) -> list[list[Part]]:
        """What each shard has put into the planes, once none is lost."""
        while True:
            try:
                for shard in sorted(lost):
                    self.shards.make(shard)
                    self.shards.wait()
                    self.shards.ask(shard, "begin", SummedShard)
                    self.shards.wait()
                    lost.discard(shard)
                return self.shards.ask_all("do", "again", self._used)
            except LostShardError as error:
                lost.add(error.number)

    def point(self) -> Any:
        kept = self.planes.kept
        mix = {n: float(c) for n, c in zip(kept.recipes, kept.coef, strict=True) if c > 0.0}
        while True:
            try:
                self.shards.ask_all("do", "set_mix", mix)
                return ResidentPoint()
            except LostShardError as lost:
                self.recover(lost.number)

    @property
    def listed(self) -> DualPoint:
        """The dual point with the coefficients of all examples, fetched from the shards."""
        while True:
            self.point()
            try:
                return self.training.join(self.shards.ask_all("do", "point"))
            except LostShardError as lost:
                self.recover(lost.number)

    @listed.setter
    def listed(self, point: DualPoint) -> None:
        self.resume(point)

    def resume(self, start: DualPoint) -> None:
        parts = self.training.split(start)
        while True:
            self.number += 1
            for shard, part in enumerate(parts):
                self.shards.ask(shard, "do", "resume", self.number, part)
            try:
                plane, _ = self._added(self.number, self.shards.wait())
                break
            except LostShardError as lost:
                self.recover(lost.number)
        self.planes.add(plane, coef=1.0)
        self.planes.set_weights(self.weights)

    def state(self) -> Any:
        return self

    def as_round(self) -> Round:
        before, self._crossed = self._crossed, (self.training.sent, self.training.received)
        return ClusterRound(
            **asdict(super().as_round()),
            sent=self._crossed[0] - before[0],
            received=self._crossed[1] - before[1],
            moves=len(self.shards),
        )

    def release(self) -> None:
        """Nothing: if a shard is lost while its point is certified, it all goes on."""

"""Cutting planes: a quadratic program over the planes found so far, solved again and again."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from maxmargin.compiled.threads import Threads
from maxmargin.core.conforming import check_shape
from maxmargin.core.problem import Hinges, TrainingSet
from maxmargin.core.registry import registered
from maxmargin.core.stopping import Stopping
from maxmargin.dual.summed import SummedPlane, SummedPlanes
from maxmargin.dual.working_set import DualPoint, StepRule, WorkingSet
from maxmargin.solvers.structured import ADD_ONLY, BlockRun, Run, StructuredSolver

MOST_HITS = 500
"""Planes from the cache after which a true search is due: the bar they pass is an old one."""

CHEAP, DEAR = 0.5, 0.2
"""Part of the last violation that is asked of a plane from the cache, where searches are next to no
work, and where they are nearly all of it."""

FINER = 0.5
"""Cached planes that violate by less than this part of the tolerance leave a search to be made: it
may find the gap closed."""

NO_BLOCKS = np.zeros(0, dtype=np.int64)
MOST_SWEEPS = 1000
"""Sweeps after which a quadratic program is left as it is: the next will go on."""


@registered("NSlack")
@dataclass(frozen=True, kw_only=True)
class NSlack(StructuredSolver):
    """The n-slack cutting plane method of Joachims, Finley and Yu (2009), one slack a block.

    Between evaluations, the objective in the history is estimated: the dual value plus the gap that
    the oracle calls of the pass found.

    Parameters
    ----------
    update_every : int, default=100
        New planes after which the quadratic program over all planes is solved again.
    precision : float, default=0.1
        Solve it to this part of the gap that the searches found.
    max_idle : int, default=50
        Rounds after which a plane whose coefficient stayed zero is dropped.

    See Also
    --------
    OneSlack, DualCoordinate, Auto
    """

    update_every: int = 100
    precision: float = 0.1
    max_idle: int = 50

    def _start(
        self, training: TrainingSet, stopping: Stopping, threads: Threads, seed: int
    ) -> tuple[BlockRun, Iterator[None]]:
        run = BlockRun(training, stopping, threads, seed, self.update_every)
        return run, self._rounds(run)

    def _rounds(self, run: BlockRun) -> Iterator[None]:
        rule = StepRule(max_steps=100)
        while True:
            solved = run.n_planes
            found = 0.0
            for start in range(0, run.training.n_blocks, self.update_every):
                blocks = run.everything[start : start + self.update_every]
                found += run.search(blocks, ADD_ONLY).gap
                if run.n_planes - solved >= self.update_every:
                    self._solve(run, rule)
                    solved = run.n_planes
            run.gap = found
            self._solve(run, rule)
            run.estimate_from_gaps(run.gap)
            run.value_if_done()
            run.working_set.drop_idle(self.max_idle)
            yield

    def _solve(self, run: BlockRun, rule: StepRule) -> None:
        """Sweep until the gap over the planes in hand is small beside that of the searches."""
        for sweep in range(MOST_SWEEPS):
            left = run.sweep(run.shuffled, rule).gap
            enough = self.precision * (run.gap if np.isfinite(run.gap) else abs(run.dual))
            if (sweep and left <= enough) or run.stopping.out_of_time:
                return


@registered("OneSlack")
@dataclass(frozen=True, kw_only=True)
class OneSlack(StructuredSolver):
    """The 1-slack cutting plane method of Joachims, Finley and Yu (2009).

    One slack for all blocks together: each round adds a single plane, the sum over the blocks of
    their most violating ones. The planes stay few however many examples there are. The objective in
    the history is exact whenever the oracle was called. When a cached plane did, it is estimated:
    the dual value plus the violation that the last oracle calls found, but no less than the cache
    shows it to be.

    Parameters
    ----------
    cache : int, default=10
        Planes kept for each block, of which a violated sum is tried first; 0 searches always.
    accept : float, default=None
        Violation that a sum from the cache must have, as part of that of the last searches. None
        asks for less the more work searches are beside the rest of a round: for half of it where
        they are cheap, for a fifth where they are nearly all.
    line_search : bool, default=False
        Instead of the quadratic program, one exact step towards the new plane.
    precision : float, default=0.1
        Solve the quadratic program to this part of the gap.
    max_idle : int, default=50
        Rounds after which a plane whose coefficient stayed zero is dropped.

    See Also
    --------
    NSlack, Auto
    """

    cache: int = 10
    accept: float | None = None
    line_search: bool = False
    precision: float = 0.1
    max_idle: int = 50

    def _start(
        self, training: TrainingSet, stopping: Stopping, threads: Threads, seed: int
    ) -> tuple["SummedRun", Iterator[None]]:
        run = SummedRun(training, stopping, threads, seed)
        return run, self._rounds(run)

    def _rounds(self, run: "SummedRun") -> Iterator[None]:
        while True:
            run.hits_in_a_row += 1
            from_cache = self.cache and run.hits_in_a_row <= MOST_HITS
            plane = run.cached_plane() if from_cache else None
            if plane is not None and run.violation(plane) > run.asked(self.accept):
                run.hits += run.training.n_blocks
                run.estimate(plane)
            else:
                run.hits_in_a_row = 0
                plane, hinges = run.searched_plane(self.cache)
                run.last_violation = run.violation(plane)
                run.offer(run.weights, hinges)
            run.planes.add(plane)
            if self.line_search:
                run.planes.step_towards_best()
            else:
                run.planes.solve(self.precision * max(run.last_violation, 0.0))
            run.planes.drop_idle(self.max_idle)
            run.planes.set_weights(run.weights)
            yield


class SummedRun(Run):
    """A run whose planes are sums over all blocks, with a cache of each block's own."""

    state_names = (
        *Run.state_names, "planes", "block_planes", "last_violation", "hits_in_a_row"
    )  # fmt: skip

    def __init__(
        self, training: TrainingSet, stopping: Stopping, threads: Threads, seed: int
    ) -> None:
        super().__init__(training, stopping, threads, seed)
        self.planes = SummedPlanes()
        self.block_planes = WorkingSet(training.cost, training.n_features)
        self.last_violation = 0.0
        self._expected = math.inf
        self.hits_in_a_row = MOST_HITS  # none yet, so that the first plane is a searched one

    @property
    def dual(self) -> float:
        return self.planes.dual

    @property
    def n_planes(self) -> int:
        return len(self.planes)

    @property
    def expected(self) -> float:
        return self._expected

    def estimate(self, cached: SummedPlane) -> None:
        """Estimate the objective of the present weights, of which a cached plane is a bound."""
        bound = self.half_square + self.loss_of(cached)
        self._expected = max(bound, self.dual + self.last_violation)

    def choose_as_expected(self) -> None:
        """Let the best weights that were evaluated be the answer: estimates are of older ones."""
        self.best = self.answer()

    def check_resumed(self) -> None:
        n_features = self.training.n_features
        for vector in self.planes.kept.vectors:
            check_shape("a cutting plane", vector, *vector.shape[:-1], n_features)
            if vector.ndim > 1 + sp.issparse(vector):
                raise ValueError("a cutting plane is no vector")
        super().check_resumed()

    def point(self) -> DualPoint:
        used = self.planes.used
        return DualPoint(
            blocks=np.concatenate([NO_BLOCKS, *(recipe.blocks for _, recipe in used)]),
            coef=np.concatenate([np.zeros(0), *(coef * recipe.coef for coef, recipe in used)]),
            outputs=[output for _, recipe in used for output in recipe.outputs],
        )

    def resume(self, start: DualPoint) -> None:
        start = self.training.feasible(start)
        vector = np.zeros(self.training.n_features)
        planes = self.training.planes_of(start.blocks, start.outputs)
        planes.add_to(vector, start.coef)
        self.planes.add(SummedPlane(vector, float(start.coef @ planes.losses), start), coef=1.0)
        self.planes.set_weights(self.weights)

    def loss_of(self, plane: SummedPlane) -> float:
        """``loss - <w, psi>``; of a plane found by searches, the sum of cost times hinge."""
        return plane.loss - float(self.weights @ plane.vector)

    def violation(self, plane: SummedPlane) -> float:
        """How far a plane lies above those in hand at the present weights."""
        return self.loss_of(plane) - max(0.0, float(self.planes.slopes.max(initial=0.0)))

    def asked(self, accept: float | None) -> float:
        """Violation that a plane from the cache must have to save a search.

        It must close a good part of the gap that is known to be left, and one that matters.
        """
        part = self._fair_part if accept is None else accept
        return max(part * self.last_violation, FINER * self.stopping.allowed_gap(self.dual))

    @property
    def _fair_part(self) -> float:
        """Part of a searched plane's violation at which a cached one gains as much for its work.

        Besides searches, a round multiplies the new plane with those in hand.
        """
        each = self.training.search_work
        if each is None:  # made by Python, which takes far longer than all else
            return DEAR
        searches = each * self.training.n_blocks
        products = float(self.training.n_features * len(self.planes))
        return min(max(products / max(products + searches, 1.0), DEAR), CHEAP)

    def searched_plane(self, cache: int) -> tuple[SummedPlane, Hinges]:
        """The sum of what a search finds for each block, and the sum of cost times hinge."""
        training = self.training
        vector = np.zeros(training.n_features)
        loss, hinges = 0.0, Hinges(0.0, 0.0)
        parts, costs, outputs = [], [], []
        for blocks in training.chunks():
            planes = training.planes(self.weights, blocks, self.threads)
            hinges += training.hinges(planes, self.weights, blocks)
            counts = np.flatnonzero(planes.slopes(self.weights) > 0.0)
            cost = np.zeros(len(blocks))
            cost[counts] = training.cost[blocks[counts]]
            planes.add_to(vector, cost)
            loss += float(cost @ planes.losses)
            parts.append(blocks[counts])
            costs.append(cost[counts])
            outputs += [planes.outputs[k] for k in counts]
            self.calls += len(blocks)
            if cache:
                self.block_planes.visit(blocks, self.weights, ADD_ONLY, planes)
        if cache:
            self.block_planes.keep_latest(cache)
        recipe = DualPoint(np.concatenate(parts), np.concatenate(costs), outputs)
        return SummedPlane(vector, loss, recipe), hinges

    def cached_plane(self) -> SummedPlane:
        """The sum of the most violating planes in the cache."""
        vector = np.zeros(self.training.n_features)
        loss, recipe = self.block_planes.add_best(self.weights, vector)
        return SummedPlane(vector, loss, recipe)

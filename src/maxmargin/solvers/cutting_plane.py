"""Cutting-plane training with n slacks or with one; Joachims, Finley and Yu (2009).

NSlack (algorithms 1 and 2) solves the n-slack dual of structured.py on a working set. OneSlack
(algorithms 3 and 4, with the cache of section 4) minimises the same P(w) with one slack,

    min   1/2 |w|^2 + xi
    s.t.  xi >= sum_i C_i [loss_i(y_i) - <w, psi_i(y_i)>]   for every choice of outputs y_1 .. y_n
    max   sum_k a_k loss_k - 1/2 |w|^2,    w = sum_k a_k psi_k,    a >= 0,    sum_k a_k <= 1

with (psi_k, loss_k) the summed cutting planes found so far. Their C is n times ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import add_to
from maxmargin.core.arrays import Floats, check_shape, dot
from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Hinges, Oracle, Threads
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful
from maxmargin.dual.cut_table import StepRule
from maxmargin.dual.gram import frank_wolfe_step, pairwise_steps
from maxmargin.dual.output_cuts import working_set_of
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.structured import ADD_ONLY, BlockRun, Run, StructuredSolver

MOST_STEPS = 20_000
DENSE_ABOVE = 0.5
"""Share of non-zeros above which a summed cut is stored as a dense vector."""


class SummedCut(NamedTuple):
    """A cutting plane summed over examples, and the coefficients it was summed with."""

    vector: Floats
    loss: float
    recipe: DualPoint

    @classmethod
    def of(cls, oracle: Oracle, recipe: DualPoint) -> "SummedCut":
        vector = np.zeros(oracle.n_features)
        cuts = oracle.cuts_of(recipe.examples, recipe.outputs)
        add_to(vector, cuts, recipe.coef)
        return cls(vector, float(recipe.coef @ cuts.losses), recipe)


def joined_recipes(used: Sequence[tuple[float, DualPoint]]) -> DualPoint:
    """The dual point of summed cuts with these coefficients."""
    return DualPoint(
        examples=np.concatenate([np.zeros(0, np.int64), *(recipe.examples for _, recipe in used)]),
        coef=np.concatenate([np.zeros(0), *(coef * recipe.coef for coef, recipe in used)]),
        outputs=[output for _, recipe in used for output in recipe.outputs],
    )


@registered("SummedPlanes")
class _Kept(NamedTuple):
    """All that is known of the cuts, replaced as a whole: Ctrl-C may come at any moment."""

    vectors: tuple[Any, ...] = ()
    recipes: tuple[DualPoint, ...] = ()
    losses: Floats = np.zeros(0)
    coef: Floats = np.zeros(0)
    idle: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    gram: Floats = np.zeros((0, 0))


class SummedCuts(Stateful):
    """Working set of summed cuts: Gram matrix, and coefficients that add up to at most one."""

    state_names = ("kept",)

    def __init__(self) -> None:
        self.kept = _Kept()

    def check_state(self) -> None:
        """Refuse cutting planes that are not as many as their coefficients."""
        kept = self.kept
        for name in ("losses", "coef", "idle"):
            check_shape(name, getattr(kept, name), len(self))
        check_shape("gram", kept.gram, len(self), len(self))
        if len(kept.recipes) != len(self) or not all(hasattr(v, "shape") for v in kept.vectors):
            raise ValueError("the summed cutting planes are not as many as what they are made of")

    def __len__(self) -> int:
        return len(self.kept.vectors)

    def point(self) -> DualPoint:
        """The dual point of the cuts with a coefficient."""
        kept = zip(self.kept.coef, self.kept.recipes, strict=True)
        return joined_recipes([(coef, recipe) for coef, recipe in kept if coef > 0.0])

    @property
    def slopes(self) -> Floats:
        """``loss - <w, psi>`` of each cutting plane."""
        kept = self.kept
        return np.asarray(kept.losses - kept.gram @ kept.coef)

    @property
    def dual(self) -> float:
        kept = self.kept
        return float(kept.losses @ kept.coef) - 0.5 * float(kept.coef @ kept.gram @ kept.coef)

    def add(self, cut: SummedCut, coef: float = 0.0) -> None:
        kept, vector = self.kept, cut.vector
        m = len(self)
        gram = np.empty((m + 1, m + 1))
        gram[:m, :m] = kept.gram
        others = map(_entries, kept.vectors)
        gram[m, :m] = gram[:m, m] = [values @ vector[places] for places, values in others]
        gram[m, m] = dot(vector, vector)
        dense = np.count_nonzero(vector) > DENSE_ABOVE * len(vector)
        self.kept = _Kept(
            vectors=(*kept.vectors, vector if dense else sp.csr_array(vector[None, :])),
            recipes=(*kept.recipes, cut.recipe),
            losses=np.append(kept.losses, cut.loss),
            coef=np.append(kept.coef, coef),
            idle=np.append(kept.idle, 0),
            gram=gram,
        )

    def solve(self, tolerance: float) -> None:
        """Solve the quadratic program until no pair violates by `tolerance`."""
        kept = self.kept
        _solve(kept.gram.ravel(), len(self), self.slopes, kept.coef, tolerance, MOST_STEPS)

    def step_towards_best(self) -> None:
        """An exact step towards the cutting plane of the largest slope."""
        kept = self.kept
        _step(kept.gram.ravel(), len(self), self.slopes, kept.coef)

    def drop_idle(self, max_idle: int) -> None:
        """Drop cuts whose coefficient was zero at the last `max_idle` calls."""
        old = self.kept
        idle = np.where(old.coef > 0.0, 0, old.idle + 1)
        stay = np.flatnonzero((idle == 0) | (idle < max_idle))
        self.kept = _Kept(
            vectors=tuple(old.vectors[j] for j in stay),
            recipes=tuple(old.recipes[j] for j in stay),
            losses=old.losses[stay],
            coef=old.coef[stay],
            idle=idle[stay],
            gram=np.ascontiguousarray(old.gram[np.ix_(stay, stay)]),
        )

    def set_weights(self, weights: Floats) -> None:
        """``weights = sum coef * psi``."""
        weights[:] = 0.0
        for coef, vector in zip(self.kept.coef, self.kept.vectors, strict=True):
            if coef > 0.0:
                places, values = _entries(vector)
                weights[places] += coef * values


def _entries(vector: Any) -> tuple[Any, Floats]:
    """Where a stored vector has values, and which."""
    return (vector.indices, vector.data) if sp.issparse(vector) else (slice(None), vector)


@compiled
def _solve(gram, size, slopes, coef, tolerance, max_steps):  # type: ignore[no-untyped-def]
    gain, _ = pairwise_steps(gram, 0, size, size, slopes, coef, 1.0, tolerance, max_steps)
    return gain


@compiled
def _step(gram, size, slopes, coef):  # type: ignore[no-untyped-def]
    return frank_wolfe_step(gram, 0, size, size, slopes, coef, 1.0, False)


MOST_HITS = 500
"""Cached cuts in a row after which the oracle is called: their bar is an old violation."""

HIGHEST_ACCEPT, LOWEST_ACCEPT = 0.5, 0.2
"""Part of the last violation asked of a cached cut: where oracle calls are cheap, and expensive."""

ACCEPT_PER_TOLERANCE = 0.5
"""Violation below which a cached cut is not used, as part of the tolerance."""

MOST_SWEEPS = 1000
"""Most sweeps of one quadratic program; the next goes on."""


@registered("NSlack")
@dataclass(frozen=True, kw_only=True)
class NSlack(StructuredSolver):
    """The n-slack cutting plane method of Joachims, Finley and Yu (2009), one slack an example.

    Between evaluations, the objective in the history is the dual value plus the gap that the oracle
    calls of the pass found.

    Parameters
    ----------
    update_every : int, default=100
        New cutting planes after which the quadratic program over the working set is solved again.
    precision : float, default=0.1
        Solve it to this part of the gap that the oracle calls found.
    max_idle : int, default=50
        Iterations after which a cutting plane whose coefficient stayed zero is dropped.

    See Also
    --------
    OneSlack, DualCoordinate, Auto
    """

    update_every: int = 100
    precision: float = 0.1
    max_idle: int = 50

    def start(self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int) -> BlockRun:
        return BlockRun(oracle, stopping, threads, seed, self.update_every)

    def iterate(self, run: BlockRun) -> None:
        solved = run.n_cuts
        found = 0.0
        for start in range(0, run.oracle.n_examples, self.update_every):
            examples = run.everything[start : start + self.update_every]
            found += run.infer(examples, ADD_ONLY).gap
            if run.n_cuts - solved >= self.update_every:
                self._solve_qp(run)
                solved = run.n_cuts
        run.gap = found
        self._solve_qp(run)
        run.estimate_from_gaps(run.gap)
        run.evaluate_if_done()
        run.working_set.drop_idle(self.max_idle)

    def _solve_qp(self, run: BlockRun) -> None:
        """Sweep the working set until its gap is small beside that of the oracle calls."""
        rule = StepRule(max_steps=100)
        for sweep in range(MOST_SWEEPS):
            left = run.sweep(run.shuffled, rule).gap
            enough = self.precision * (run.gap if np.isfinite(run.gap) else abs(run.dual))
            if (sweep and left <= enough) or run.stopping.out_of_time:
                return


@registered("OneSlack")
@dataclass(frozen=True, kw_only=True)
class OneSlack(StructuredSolver):
    """The 1-slack cutting plane method of Joachims, Finley and Yu (2009).

    Each iteration adds one cutting plane, the sum of the most violated ones of all examples: the
    working set stays small however many examples there are. After iterations with cached cutting
    planes, the objective in the history is estimated by the violation that the last oracle calls
    found.

    Parameters
    ----------
    cache : int, default=10
        Cutting planes kept for each example, of which a violated sum is tried first; 0 always calls
        the oracle.
    accept : float, default=None
        Violation that a sum from the cache must have, as part of that of the last oracle calls.
        None is from a half, where oracle calls are cheap, to a fifth, where they are nearly all of
        the work.
    line_search : bool, default=False
        Instead of the quadratic program, one exact step towards the new cutting plane.
    precision : float, default=0.1
        Solve the quadratic program to this part of the gap.
    max_idle : int, default=50
        Iterations after which a cutting plane whose coefficient stayed zero is dropped.

    See Also
    --------
    NSlack, Auto
    """

    cache: int = 10
    accept: float | None = None
    line_search: bool = False
    precision: float = 0.1
    max_idle: int = 50

    def start(self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int) -> "SummedRun":
        return SummedRun(oracle, stopping, threads, seed)

    def iterate(self, run: "SummedRun") -> None:
        run.hits_in_a_row += 1
        from_cache = self.cache and run.hits_in_a_row <= MOST_HITS
        cut = run.cached_cut() if from_cache else None
        if cut is not None and run.violation(cut) > run.asked(self.accept):
            run.hits += run.oracle.n_examples
            run.estimate(cut)
        else:
            run.hits_in_a_row = 0
            cut, hinges = run.found_cut(self.cache)
            run.last_violation = run.violation(cut)
            run.offer(run.weights, hinges)
        run.cuts.add(cut)
        if self.line_search:
            run.cuts.step_towards_best()
        else:
            run.cuts.solve(self.precision * max(run.last_violation, 0.0))
        run.cuts.drop_idle(self.max_idle)
        run.cuts.set_weights(run.weights)


class SummedRun(Run):
    """A run of the 1-slack method, with a cache of each example's own cutting planes."""

    state_names = (
        *Run.state_names, "cuts", "example_cuts", "last_violation", "hits_in_a_row"
    )  # fmt: skip

    expected = math.inf

    def __init__(self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int) -> None:
        super().__init__(oracle, stopping, threads, seed)
        self.cuts = SummedCuts()
        self.example_cuts = working_set_of(oracle)
        self.last_violation = 0.0
        self.hits_in_a_row = MOST_HITS  # so that the first cutting plane is one of oracle calls

    @property
    def dual(self) -> float:
        return self.cuts.dual

    @property
    def n_cuts(self) -> int:
        return len(self.cuts)

    def estimate(self, cached: SummedCut) -> None:
        """Estimate the objective; a cached cut bounds it from below."""
        bound = self.half_square + self.loss_of(cached)
        self.expected = max(bound, self.dual + self.last_violation)

    def choose_as_expected(self) -> None:
        """Let the best evaluated weights be the answer: estimates are of older ones."""
        self.best = self.answer()

    def check_resumed(self) -> None:
        n_features = self.oracle.n_features
        for vector in self.cuts.kept.vectors:
            check_shape("a cutting plane", vector, *vector.shape[:-1], n_features)
            if vector.ndim > 1 + sp.issparse(vector):
                raise ValueError("a cutting plane is no vector")
        super().check_resumed()

    def point(self) -> DualPoint:
        return self.cuts.point()

    def resume(self, start: DualPoint) -> None:
        self.cuts.add(SummedCut.of(self.oracle, self.oracle.feasible(start)), coef=1.0)
        self.cuts.set_weights(self.weights)

    def loss_of(self, cut: SummedCut) -> float:
        """``loss - <w, psi>``; of a cut of oracle calls, the sum of C times hinge."""
        return cut.loss - dot(self.weights, cut.vector)

    def violation(self, cut: SummedCut) -> float:
        """How far a cut lies above the working set at the present weights."""
        return self.loss_of(cut) - max(0.0, float(self.cuts.slopes.max(initial=0.0)))

    def asked(self, accept: float | None) -> float:
        """Violation that a cached cut must have."""
        part = self._fair_part if accept is None else accept
        least = ACCEPT_PER_TOLERANCE * self.stopping.allowed_gap(self.dual)
        return max(part * self.last_violation, least)

    @property
    def _fair_part(self) -> float:
        """Part of an oracle call's violation at which a cached cut gains as much for its work."""
        each = self.oracle.oracle_work
        if each is None:  # made by Python, which takes far longer than all else
            return LOWEST_ACCEPT
        oracle_calls = each * self.oracle.n_examples
        products = float(self.oracle.n_features * len(self.cuts))
        return min(max(products / max(products + oracle_calls, 1.0), LOWEST_ACCEPT), HIGHEST_ACCEPT)

    def found_cut(self, cache: int) -> tuple[SummedCut, Hinges]:
        """The summed cut of oracle calls, and the sum of C times hinge."""
        oracle = self.oracle
        vector = np.zeros(oracle.n_features)
        loss, hinges = 0.0, Hinges(0.0, 0.0)
        recipes = []
        for examples in oracle.chunks():
            cuts = oracle.separate(self.weights, examples, self.threads)
            hinges += oracle.hinges(cuts, self.weights, examples)
            counts = np.flatnonzero(cuts.slopes(self.weights) > 0.0)
            C = np.zeros(len(examples))
            C[counts] = oracle.C[examples[counts]]
            add_to(vector, cuts, C)
            loss += float(C @ cuts.losses)
            outputs = [cuts.outputs[k] for k in counts]
            recipes.append((1.0, DualPoint(examples[counts], C[counts], outputs)))
            self.calls += len(examples)
            if cache:
                self.example_cuts.update(examples, self.weights, ADD_ONLY, cuts)
        if cache:
            self.example_cuts.keep_latest(cache)
        return SummedCut(vector, loss, joined_recipes(recipes)), hinges

    def cached_cut(self) -> SummedCut:
        """The sum of the most violated cached cuts."""
        vector = np.zeros(self.oracle.n_features)
        loss, recipe = self.example_cuts.add_best(self.weights, vector)
        return SummedCut(vector, loss, recipe)

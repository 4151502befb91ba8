"""StreamedDual and OnlineDual: dual coordinate ascent on examples that come in batches.

They solve the linear problems of sequential_dual.py by the same steps on the same duals, with a
cache of rows whose coefficients still change (as in Ramanan, 2013, algorithm 2). Most examples of a
batch soon rest in a corner of their feasible set; those that move, about as many as weights, adapt
to the batches that follow, which saves passes. Of others only non-zero coefficients are stored.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.rows import measured_rows
from maxmargin.core.arrays import Floats, check_finite, check_indices, check_shape, check_types
from maxmargin.core.certificate import Certificate
from maxmargin.core.linear import LinearProblem, MulticlassProblem, OneVersusRest
from maxmargin.core.oracle import ONE_THREAD, Threads
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.core.state import Stateful, alike
from maxmargin.dual.explicit import LinearDual, SharedWeights, make_dual
from maxmargin.dual.sweeps import DUE, WAIT
from maxmargin.solvers.loop import Solver, SolverRun, Stopping

Item = TypeVar("Item")


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, each read in a thread while the one before is in use."""
    end = object()
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, items, end)
        while (item := following.result()) is not end:
            following = reader.submit(next, items, end)
            yield item  # type: ignore[misc]
            del item  # so that its memory is free before the next is waited for


Fractions = NDArray[np.float32]
Steps = NDArray[np.unsignedinteger]


class SummedObjective:
    """Values of some weights, one array for each part, and of a dual point, summed over batches."""

    def __init__(self, candidates: Sequence[list[Floats]]) -> None:
        self.candidates = candidates
        n_parts = len(candidates[0])
        self._losses = np.zeros((n_parts, len(candidates)))
        self._linear = [0.0] * n_parts
        self._sums: list[Floats] = [np.zeros_like(weights) for weights in candidates[0]]
        self._geometry: tuple[LinearProblem, ...] = ()

    def add(
        self, batch: LinearProblem | OneVersusRest, dual_coefs: Sequence[Floats | None]
    ) -> None:
        """Add a batch; None stands for coefficients that are all zero."""
        self._geometry = self._geometry or _without_examples(batch.parts)
        for m, (part, dual_coef) in enumerate(zip(batch.parts, dual_coefs, strict=True)):
            for c, candidate in enumerate(self.candidates):
                self._losses[m, c] += part.total_loss(candidate[m])
            if dual_coef is not None:
                self._linear[m] += part.linear(dual_coef)
                self._sums[m] += replace(part, origin=None).unclipped_weights(dual_coef)

    def primals(self) -> Floats:
        """Primal values of shape (n_parts, n_candidates)."""
        penalties = [
            [part.penalty(candidate[m]) for candidate in self.candidates]
            for m, part in enumerate(self._geometry)
        ]
        return np.asarray(penalties) + self._losses

    def unclipped(self) -> list[Floats]:
        """``u(B)`` of each part."""
        return [
            sums.copy() if part.origin is None else part.origin + sums
            for part, sums in zip(self._geometry, self._sums, strict=True)
        ]

    def dual(self) -> float:
        values = zip(self._geometry, self._linear, self.unclipped(), strict=True)
        return sum(part.dual_of_sums(linear, unclipped) for part, linear, unclipped in values)


def _without_examples(parts: Sequence[LinearProblem]) -> tuple[LinearProblem, ...]:
    """The geometry of problems."""
    return tuple(part.some(np.zeros(0, dtype=np.intp)) for part in parts)


_MOST_CELLS = 1 << 28
"""Largest matrix of which a file says no more than the shape."""


@registered("StoredCoefficients", check="check")
class StoredCoefficients(NamedTuple):
    """Non-zero coefficients as fractions of C, without those of the true classes.

    `lowest`, `highest` and `between` are steps between places, in the flattened matrix, of
    fractions of -1, 1 and all others. Most are at a bound and take a byte or two.
    """

    shape: tuple[int, int]
    lowest: NDArray[Any]
    highest: NDArray[Any]
    between: NDArray[Any]
    fractions: Fractions

    @classmethod
    def of(cls, fractions: Fractions) -> "StoredCoefficients":
        """From a dense matrix of fractions."""
        flat = fractions.ravel()
        low, high = flat == -1.0, flat == 1.0
        between = np.flatnonzero((flat != 0.0) & ~low & ~high)
        lowest, highest = _steps(np.flatnonzero(low)), _steps(np.flatnonzero(high))
        return cls(fractions.shape, lowest, highest, _steps(between), flat[between])

    def check(self) -> None:
        """Raise ValueError if places lie outside the matrix."""
        size = math.prod(self.shape)
        if len(self.shape) != 2 or min(self.shape) < 0 or size > _MOST_CELLS:
            raise ValueError("the coefficients of a block are more than a block can have")
        check_shape("fractions", self.fractions, len(self.between))
        for name in ("lowest", "highest", "between"):
            steps = getattr(self, name)
            last = float(steps.sum(dtype=np.float64))
            if steps.dtype.kind != "u" or steps.ndim != 1 or last >= max(size, 1):
                raise ValueError(f"{name} coefficients stand outside their matrix")

    def dense(self) -> Fractions:
        result = np.zeros(self.shape, dtype=np.float32)
        flat = result.ravel()
        flat[_places(self.lowest)] = -1.0
        flat[_places(self.highest)] = 1.0
        flat[_places(self.between)] = self.fractions
        return result

    def restore(self, problem: LinearProblem) -> Floats:
        """Feasible coefficients for the examples of `problem`."""
        return problem.feasible(self.dense() * problem.C[:, None])

    @property
    def n_stored(self) -> int:
        return len(self.lowest) + len(self.highest) + len(self.between)


def _steps(places: NDArray[np.intp]) -> Steps:
    steps = np.diff(places, prepend=0)
    return steps.astype(np.min_scalar_type(int(steps.max(initial=0))))


def _places(steps: Steps) -> NDArray[np.int64]:
    return np.cumsum(steps, dtype=np.int64)


def fractions_of(problem: LinearProblem, dual_coef: Floats) -> Fractions:
    """The dense matrix of fractions that `StoredCoefficients` stores."""
    own_too = not isinstance(problem, MulticlassProblem)
    needed = dual_coef if own_too else np.minimum(dual_coef, 0.0)
    cost = problem.C[:, None]
    return np.divide(needed, cost, out=np.zeros_like(needed), where=cost > 0.0).astype(np.float32)


Rows = NDArray[np.int32]

LONGEST_WAIT = 63
"""Sweeps after which even an idle example is updated again."""

_OWN = ("coef", "linear", "losses", "updates", "iteration", "random")
"""Attributes of batches that belong to their examples, not to the weights."""

ROOM_AFTER_THINNING = 0.75
"""Share of its memory that a full cache uses after rows were dropped."""

SMALL_PORTION = 0.05
"""Share of the memory below which a batch is dropped as a whole."""

WORTH_COPYING = 0.7
"""Share of a batch's examples below which those that move are copied, to release the others."""


class BatchDual:
    """The dual state of the examples `rows` of a batch, for each part; weights are shared."""

    def __init__(
        self,
        parts: Sequence[LinearProblem],
        rows: Rows,
        weights: Sequence[SharedWeights],
        starts: Sequence[Floats | None],
        seed: int,
        losses: Sequence[Floats] = (),
    ) -> None:
        self.rows, self.seed, self.weights = rows, seed, weights
        X = parts[0].X
        measured = measured_rows(X, parts[0].bias)
        self.duals: list[LinearDual] = [
            # One copy of the features for all parts.
            make_dual(replace(part, X=X), measured, start, LONGEST_WAIT, seed + m, shared)
            for m, (part, start, shared) in enumerate(zip(parts, starts, weights, strict=True))
        ]
        for dual, known in zip(self.duals, losses, strict=False):
            dual.losses = known
        entries = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
        per_row = [dual.coef.itemsize * dual.n_columns + 128 for dual in self.duals]
        self.nbytes = int(entries + len(rows) * sum(per_row))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> list[LinearProblem]:
        return [dual.problem for dual in self.duals]

    @property
    def dual_coefs(self) -> list[Floats]:
        return [dual.dual_coef for dual in self.duals]

    @property
    def linear(self) -> float:
        """Linear term of the dual."""
        return sum(dual.linear for dual in self.duals)

    @property
    def loss(self) -> float:
        """Sum of C times loss, as of the last updates."""
        return sum(float(dual.losses.sum()) for dual in self.duals)

    def sweep(self, threads: Threads) -> int:
        """Update the examples that are due; returns how many, averaged over the parts."""

        def sweep_one(dual: LinearDual, threads: Threads = ONE_THREAD) -> int:
            order, dual.threads = dual.due_examples(), threads
            dual.sweep(order, 0.0)
            dual.iteration += 1
            return len(order)

        if len(self.duals) == 1:
            return sweep_one(self.duals[0], threads)
        return sum(threads.map(sweep_one, self.duals)) // len(self.duals)

    def moving(self) -> Rows:
        """Examples that moved, or were in no corner, at their last update, in some part."""
        moving = [
            (b.updates[:, WAIT] == 0) & (b.updates[:, DUE] <= b.iteration + LONGEST_WAIT)
            for b in self.duals
        ]
        return np.flatnonzero(np.any(moving, axis=0)).astype(np.int32)

    def some(self, examples: Rows) -> "BatchDual":
        """The state of some of these examples, their features copied."""
        return BatchDual(
            [part.some(examples) for part in self.parts],
            self.rows[examples],
            self.weights,
            [coef[examples] for coef in self.dual_coefs],
            self.seed,
            [dual.losses[examples] for dual in self.duals],
        )

    def joined(self, other: "BatchDual") -> "BatchDual":
        """The state of the examples of two batches."""
        both = list(zip(self.duals, other.duals, strict=True))
        return BatchDual(
            [one.problem.joined([two.problem]) for one, two in both],
            np.concatenate([self.rows, other.rows]),
            self.weights,
            [np.vstack([one.dual_coef, two.dual_coef]) for one, two in both],
            self.seed,
            [np.concatenate([one.losses, two.losses]) for one, two in both],
        )

    def fractions(self) -> list[Fractions]:
        """Coefficients of each part as `StoredCoefficients` takes them."""
        return [fractions_of(dual.problem, dual.dual_coef) for dual in self.duals]

    def round_coefs(self) -> None:
        """Round the coefficients as `fractions` does."""
        for dual, fractions in zip(self.duals, self.fractions(), strict=True):
            dual.set_coef(fractions * dual.problem.C[:, None])

    @property
    def plain(self) -> tuple[Any, ...]:
        """Plain data of all but the weights."""
        states = [[getattr(dual, name) for name in _OWN] for dual in self.duals]
        return self.parts, self.rows, self.seed, states

    @classmethod
    def of_plain(cls, plain: Sequence[Any], weights: Sequence[SharedWeights]) -> "BatchDual":
        """Inverse of `plain`, on weights that contain the coefficients."""
        parts, rows, seed, states = plain
        n_rows, n_outputs = parts[0].weights_shape
        if n_rows > len(weights[0].weights) or n_outputs != weights[0].n_outputs:
            raise ValueError("cached rows have more features or outputs than there are weights")
        batch = cls(parts, rows, weights, [None] * len(parts), seed)
        check_shape("rows", rows, parts[0].n_samples)
        for dual, state in zip(batch.duals, states, strict=True):
            for name, value in zip(_OWN, state, strict=True):
                if not alike(getattr(dual, name), value):
                    raise ValueError(f"{name} of cached rows is of another type")
                setattr(dual, name, value)
        return batch

    def __getstate__(self) -> dict[str, Any]:
        """What the batches are made of; compiled code must not see arrays that pickle has made."""
        return {"plain": self.plain, "weights": self.weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(self.of_plain(**state)))


LetGo = Callable[[int, BatchDual, Rows], None]


SWEEPS = 5
"""Sweeps over a batch in memory, each followed by as many updates of cached rows. Noisy MNIST (C =
0.1, 40 batches, 5 % cached): the dual is 2.7 % below the optimum after two passes, 1.3 % with
twenty."""

SPARE_ROWS = 1.25
"""Factor of spare room in the weights for new features."""


def _kind_of(parts: Sequence[LinearProblem]) -> tuple[type, int, int]:
    return type(parts[0]), len(parts), parts[0].n_outputs


class BatchLearner(Stateful):
    """Dual coordinate steps on batches as they come, with a cache of rows of earlier ones."""

    state_names = (
        "updates", "cache_updates", "linear", "loss", "model", "_random", "_turn", "plain_cache",
    )  # fmt: skip

    def __init__(self, cache_bytes: int, seed: int) -> None:
        self.cache_bytes, self.seed = cache_bytes, seed
        self.updates = self.cache_updates = 0
        """Updates of examples so far, and of cached ones among them."""
        self._begin(())

    def _begin(self, parts: Sequence[LinearProblem]) -> None:
        self.weights = [SharedWeights(part) for part in parts]
        self.geometry = _without_examples(parts)
        self.linear = self.loss = 0.0
        """Linear term of the dual, and C times loss as of the last updates."""
        self.cache: dict[int, BatchDual] = {}
        """Rows of earlier batches that still move, by the number of the batch."""
        self._random = np.random.default_rng(self.seed)
        self._turn = 0

    @property
    def model(self) -> tuple[Any, ...]:
        """What the weights are for, and their arrays."""
        return self.geometry, [[getattr(w, name) for name in w.state_names] for w in self.weights]

    @model.setter
    def model(self, model: tuple[Any, ...]) -> None:
        self.geometry = model[0]
        self.weights = [SharedWeights(part) for part in self.geometry]
        for weights, values in zip(self.weights, model[1], strict=True):
            width = weights.unclipped.shape[1]
            for name, value in zip(weights.state_names, values, strict=True):
                if not alike(getattr(weights, name), value, may_grow=True):
                    raise ValueError(f"{name} of the weights is of another type")
                setattr(weights, name, value)
            for name in ("unclipped", "weights", "average"):
                check_shape(name, getattr(weights, name), len(weights.unclipped), width)

    @property
    def plain_cache(self) -> list[tuple[Any, ...]]:
        """The cached rows as plain data."""
        return [(number, *batch.plain) for number, batch in self.cache.items()]

    @plain_cache.setter
    def plain_cache(self, batches: list[tuple[Any, ...]]) -> None:
        self.cache = {number: BatchDual.of_plain(plain, self.weights) for number, *plain in batches}

    def prepare(self, parts: Sequence[LinearProblem]) -> bool:
        """Prepare for a batch; False if its outputs differ, and all that was learned is lost."""
        if not self.geometry or _kind_of(parts) != _kind_of(self.geometry):
            self._begin(parts)
            return False
        n_rows = parts[0].weights_shape[0]
        if n_rows > len(self.weights[0].weights):
            self.resize(int(n_rows * SPARE_ROWS))
        return True

    def resize(self, n_rows: int) -> None:
        """Resize the weights to so many features, the constant one included."""
        for weights in self.weights:
            weights.resize(n_rows)

    def load(
        self, number: int, parts: Sequence[LinearProblem], starts: Sequence[Floats] | None
    ) -> BatchDual:
        """The dual state of a batch; the weights contain the coefficients `starts` already."""
        rows = np.arange(parts[0].n_samples, dtype=np.int32)
        seed = self.seed + 7919 * (number + 1)
        batch = BatchDual(parts, rows, self.weights, starts or [None] * len(parts), seed)
        if starts is None:
            self.linear += batch.linear  # of rows without features, which are settled at once
        return batch

    def learn(self, batch: BatchDual, threads: Threads) -> None:
        """Sweep a batch and, with it, the cached rows."""
        before = batch.linear
        try:
            for _ in range(SWEEPS):
                self.updates += batch.sweep(threads)
                self._sweep_cache(len(batch), threads)
        finally:
            self.linear += batch.linear - before
            self.loss += batch.loss

    def polish(self, n_updates: int, enough: float, threads: Threads) -> None:
        """Sweep the cached rows until a sweep gains less than `enough`, or all updates are made."""
        left, dual = n_updates, self.dual
        while left > 0 and self.cache:
            left -= self._sweep_cache(sum(map(len, self.cache.values())), threads)
            before, dual = dual, self.dual
            if dual - before < enough:
                return

    def _sweep_cache(self, n_updates: int, threads: Threads) -> int:
        """Sweep cached batches in turn for about `n_updates`; returns how many there were."""
        batches = list(self.cache.values())
        updated, linear, loss = 0, 0.0, 0.0
        for _ in batches:
            if updated >= n_updates:
                break
            batch = batches[self._turn % len(batches)]
            self._turn += 1
            linear, loss = linear - batch.linear, loss - batch.loss
            updated += batch.sweep(threads)
            linear, loss = linear + batch.linear, loss + batch.loss
        self.updates += updated
        self.cache_updates += updated
        self.linear += linear
        self.loss += loss
        return updated

    @property
    def nbytes(self) -> int:
        """Memory of the cached rows."""
        return sum(batch.nbytes for batch in self.cache.values())

    def keep(self, number: int, batch: BatchDual, let_go: LetGo = lambda *_: None) -> None:
        """Cache the moving rows of a batch; `let_go` is told which rows are dropped."""
        self._put(number, batch, batch.moving())
        while self.nbytes > self.cache_bytes:
            self._thin(let_go)

    def _put(self, number: int, batch: BatchDual, examples: Rows) -> None:
        if len(examples):
            self.cache[number] = batch.some(examples)

    def _thin(self, let_go: LetGo) -> None:
        """Drop idle rows, then others at random; small batches as a whole, which saves copies."""
        stay = {number: batch.moving() for number, batch in self.cache.items()}
        for number, batch in self.cache.items():
            if len(stay[number]) >= WORTH_COPYING * len(batch):
                stay[number] = np.arange(len(batch), dtype=np.int32)
        left = sum(len(stay[b]) * p.nbytes / len(p) for b, p in self.cache.items())
        share = min(1.0, ROOM_AFTER_THINNING * self.cache_bytes / max(left, 1.0))
        for number, examples in stay.items():
            batch = self.cache[number]
            large = batch.nbytes > SMALL_PORTION * self.cache_bytes
            chosen = self._random.random(len(examples) if large else 1) < share
            examples = examples[np.broadcast_to(chosen, len(examples))]
            if len(examples) < len(batch):
                gone = np.ones(len(batch), dtype=bool)
                gone[examples] = False
                let_go(number, batch, np.flatnonzero(gone).astype(np.int32))
                del self.cache[number]
                self._put(number, batch, examples)

    def join_small(self) -> None:
        """Join the last cached batches while the last is not much smaller than the one before."""
        while len(self.cache) > 1:
            (before, one), (last, two) = list(self.cache.items())[-2:]
            if len(one) > 2 * len(two):
                return
            del self.cache[before], self.cache[last]
            self.cache[before] = one.joined(two)

    @property
    def dual(self) -> float:
        """Dual value of all coefficients, by the account of the sweeps."""
        sums = zip(self.geometry, self.unclipped(), strict=True)
        return self.linear + sum(part.dual_of_sums(0.0, unclipped) for part, unclipped in sums)

    @property
    def expected(self) -> float:
        """Estimated objective over the batches so far, with `loss` as it was seen."""
        weights = self.clipped(self.unclipped())
        pairs = zip(self.geometry, weights, strict=True)
        return self.loss + sum(part.penalty(own) for part, own in pairs)

    def unclipped(self) -> list[Floats]:
        """``origin + X' coef`` of each part, copied."""
        return [shared.without_padding(shared.unclipped) for shared in self.weights]

    def clipped(self, unclipped: list[Floats]) -> list[Floats]:
        """Weights of `unclipped`; the same arrays unless they must be nonnegative."""
        if not self.weights[0].nonnegative:
            return unclipped
        return [np.vstack([np.maximum(sums[:-1], 0.0), sums[-1:]]) for sums in unclipped]

    def correct(self, wrong: list[Floats], right: list[Floats]) -> None:
        """Subtract the rounding errors by which `unclipped` was `wrong` at an earlier time."""
        for shared, before, exact in zip(self.weights, wrong, right, strict=True):
            shared.unclipped[:, : shared.n_outputs] += exact - before
            shared.clip()

    def prior_weights(self) -> list[Floats]:
        """The best weights of each part without any example."""
        return [
            np.zeros_like(average) if part.origin is None else part.prior_weights()
            for part, average in zip(self.geometry, self.average(), strict=True)
        ]

    def average(self) -> list[Floats]:
        """The average of recent weights of each part, copied."""
        return [shared.without_padding(shared.average) for shared in self.weights]


BATCH_SETTLED = 0.05
"""Cached rows have settled when a sweep over them gains less than this times `tol`, relatively."""

UPDATES_AGAIN = 4
"""Most updates of cached rows for each update of a batch. One pass over MNIST (C = 0.1) ends 4.3 %
above the optimum without any, 2.2 % with four, and no nearer with eight."""


class OnlineDual:
    """Learns from one batch after the other, for ``partial_fit``.

    Coefficients of rows that leave memory stay in the weights, so the dual remains a lower bound.
    """

    def __init__(self, cache_bytes: int, seed: int) -> None:
        self.learner = BatchLearner(cache_bytes, seed)
        self.calls = 0

    def learn(
        self, problem: LinearProblem | OneVersusRest, n_jobs: int | None, stopping: Stopping
    ) -> None:
        """Learn from a batch with the same features and outputs, then sweep the cached rows."""
        learner = self.learner
        updates = learner.updates
        learner.prepare(problem.parts)
        batch = learner.load(self.calls, problem.parts, None)
        with Threads(n_jobs) as threads:
            try:
                learner.learn(batch, threads)
            finally:
                learner.keep(self.calls, batch)
                learner.join_small()
                self.calls += 1
            most = UPDATES_AGAIN * (learner.updates - updates)
            learner.polish(most, BATCH_SETTLED * stopping.allowed_gap(learner.dual), threads)

    @property
    def weights(self) -> Floats:
        return np.hstack(self.learner.average())

    @property
    def certificate(self) -> Certificate:
        """A lower bound only; the objective is unknown without the earlier examples."""
        return Certificate(math.inf, self.learner.dual)

    def as_iteration(self, seconds: float) -> Iteration:
        batches = self.learner.cache.values()
        coefs = [coef for batch in batches for coef in batch.dual_coefs]
        return Iteration(
            seconds=seconds,
            oracle_calls=self.learner.updates,
            cache_hits=self.learner.cache_updates,
            primal=math.inf,
            dual=self.learner.dual,
            cuts=sum(int(np.count_nonzero(coef)) for coef in coefs),
            objective=self.learner.expected,
        )


SETTLED = 1e-3
"""Cached rows have settled when a sweep gains less than this times `tol`, relatively; the bar is
four times lower in each further pass."""

RESUMED = 1e-5
"""Relative difference that rounding may cause between values kept and evaluated anew."""

BatchProblem = LinearProblem | OneVersusRest
Stored = tuple[StoredCoefficients, ...]
"""Coefficients of a batch, for each part of the problem."""


@registered("LateCoefficients")
class _Late(NamedTuple):
    """Coefficients of some rows of a batch, newer than the stored ones."""

    rows: NDArray[np.int32]
    coefs: list[StoredCoefficients]


@registered("StreamedDual")
@dataclass(frozen=True, kw_only=True)
class StreamedDual(Solver):
    """Dual coordinate ascent on batches of examples that need not be in memory all at once.

    In memory are one batch (and the next, which a thread reads meanwhile), the weights, the
    non-zero dual coefficients, and rows of earlier batches that still move. Each batch is swept a
    few times, and the cached rows with it. Every pass but the first also evaluates, from the data
    alone, the weights and the dual point it began with: the objective in the history is exact, of
    the weights before the pass, but in the first pass estimated with the losses at the time.

    Parameters
    ----------
    cache_bytes : int, default=2**27
        Memory for rows of earlier batches. Less takes more passes; 0 keeps none.

    See Also
    --------
    maxmargin.LinearClassifier, maxmargin.LinearRegressor : ``fit(source)`` and ``partial_fit``.
    SequentialDual : For data in memory.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import maxmargin as mm
    >>> class Parts(mm.data.Source):
    ...     def batches(self):
    ...         X, y = load_digits(return_X_y=True)
    ...         for at in range(0, len(y), 500):
    ...             yield mm.data.Examples(X[at : at + 500] / 16, y[at : at + 500])
    >>> solver = mm.StreamedDual(cache_bytes=1_000_000)
    >>> model = mm.LinearClassifier(tol=0.01, solver=solver).fit(Parts())
    >>> model.certificate_.relative_gap <= 0.01
    True
    """

    cache_bytes: int = 1 << 27

    def start(
        self,
        oracle: Callable[[], Iterator[BatchProblem | None]],
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> "StreamedRun":
        """A run over the sum of the problems that ``oracle()`` yields; an iteration is a pass.

        None stands for a batch of which nothing can be made yet. In the first pass problems may get
        more features, or more outputs, which starts anew; later passes must yield the same
        examples. For checkpoints `oracle` must have a `content` and be `Stateful`.
        """
        return StreamedRun(oracle, stopping, threads, seed, self.cache_bytes)

    def iterate(self, run: "StreamedRun") -> None:
        run.read(learn=True)

    def finish(self, run: "StreamedRun", status: Status) -> Result:
        # What the last pass has learned is not evaluated yet, and after Ctrl-C nothing may be.
        if status in (Status.MAX_ITER, Status.INTERRUPTED) or not run.best:
            while not run.surveyed:
                run.evaluate()
            run.evaluate()
        return run.result(Status.CONVERGED if run.is_done else status)


class StreamedRun(SolverRun):
    """One solve: the learner, stored coefficients, and the best answer so far."""

    state_names: ClassVar[tuple[str, ...]] = (
        "learner", "oracle", "stored", "late", "n_rows", "surveyed", "best", "best_primals",
        "at_zero", "best_dual", "history",
    )  # fmt: skip

    def __init__(
        self,
        oracle: Callable[[], Iterator[BatchProblem | None]],
        stopping: Stopping,
        threads: Threads,
        seed: int,
        cache_bytes: int,
    ) -> None:
        super().__init__(oracle, stopping, threads, seed)
        self.learner = BatchLearner(cache_bytes, seed)
        self.stored: list[Stored | None] = []
        self.late: dict[int, list[_Late]] = {}
        self.n_rows = 0
        self.surveyed = False
        self.best: list[Floats] = []
        self.best_primals: list[float] = []
        self.at_zero = math.inf
        """Objective of zero weights; infinite before it is evaluated."""

    def check_state(self) -> None:
        """Refuse coefficients or weights of wrong types."""
        state = {"stored": self.stored, "late": self.late, "best": self.best}
        types = list[Stored | None], dict[int, list[_Late]], list[Floats]
        check_types("the state", state, dict(zip(state, types, strict=True)))
        known = range(len(self.stored))
        if not all(k in known for k in (*self.late, *self.learner.cache)):
            raise ValueError("coefficients belong to a block that there is not")
        rows = [(k, batch.rows) for k, batch in self.learner.cache.items()]
        rows += [(k, one.rows) for k, many in self.late.items() for one in many]
        for k, some in rows:
            n_rows = min((part.shape[0] for part in self.stored[k] or ()), default=0)
            check_indices("rows of a block", some, n_rows)
        for value in (self.best_primals, *self.best):
            check_finite("the best weights and their objective", np.asarray(value))
        if len(self.best) != len(self.best_primals):
            raise ValueError("the weights of its objective are missing")

    def check_resumed(self) -> None:
        """Evaluate the best weights and the dual point anew instead of trusting the file."""
        if not self.best:
            return
        self._write_back()
        objective = SummedObjective([self.best])
        for _ in self._evaluated(objective):
            pass
        primal, dual, known = float(objective.primals().sum()), objective.dual(), self.certificate
        within = 1.0 + RESUMED
        if not (primal <= within * known.primal and known.dual <= dual + RESUMED * abs(dual)):
            raise ValueError(
                f"its weights have the objective {primal:.6g}, not {known.primal:.6g}, or its dual "
                f"point the value {dual:.6g}, not {known.dual:.6g}"
            )

    @property
    def depends_on(self) -> dict[str, Any]:
        return {"n_jobs": self.threads.n_threads}

    def heed_checker(self) -> None:
        """No user wrote the oracle."""

    def is_whole(self, status: Status | None) -> bool:
        return self.stopping.reason(-1) is None

    @property
    def dual(self) -> float:
        """Of the last certified point, not by the account of the sweeps."""
        return self.best_dual

    @property
    def n_cuts(self) -> int:
        return sum(part.n_stored for stored in self.stored for part in stored or ())

    @property
    def expected(self) -> float:
        return self.learner.expected

    def point(self) -> list[Stored | None]:
        return self.stored

    def resume(self, start: Any) -> None:
        raise ValueError("A streamed solve begins anew.")

    def answer(self) -> Floats:
        """The best weights that are known, or those most likely to be."""
        return np.hstack(self.best or self.learner.average())

    @property
    def is_done(self) -> bool:
        return self._closes_gap(self.certificate.primal)

    @property
    def certificate(self) -> Certificate:
        """Of the best weights and dual point so far."""
        return Certificate(sum(self.best_primals) if self.best else math.inf, self.best_dual)

    def result(self, status: Status) -> Result:
        self._write_back()
        tol = self.stopping.relative_tol(self.at_zero)
        certificate = self.certificate.compared_with_zero(self.at_zero, tol)
        return Result(
            self.answer(), self.stored, certificate, status, len(self.history), self.history
        )

    def evaluate(self) -> None:
        """One more pass, without learning, as an iteration of its own."""
        self.evaluated = math.inf
        self.read(learn=False)
        self.history.append(self.as_iteration())

    def read(self, learn: bool) -> None:
        """One pass over the batches; all but the first evaluate the weights it began with."""
        objective = None
        updates, self.learner.loss = self.learner.updates, 0.0
        if self.surveyed:
            self._write_back()
            sums = self.learner.unclipped()
            candidates = [self.learner.average(), self.learner.clipped(sums)]
            if not self.best:  # once is enough: their objective stays
                candidates.append(self.learner.prior_weights())
            objective = SummedObjective(candidates)
        for k, problem in read_ahead(self._evaluated(objective)):
            if not self.surveyed:
                self._prepare(k, problem)
            if problem is not None and learn and self.stopping.reason(-1) is None:
                self._learn(k, problem.parts)
        if objective is None:
            self.surveyed = True
            self.learner.resize(self.n_rows)
        else:
            self._settle(objective)
            self.learner.correct(sums, objective.unclipped())
        if learn and not self.is_done:
            self._polish(self.learner.updates - updates)

    def _evaluated(
        self, objective: SummedObjective | None
    ) -> Iterator[tuple[int, BatchProblem | None]]:
        """Numbered batches, evaluated by the reader's thread before they are learned from."""
        k = -1
        for k, problem in enumerate(self.oracle()):
            if objective is not None:
                if problem is None or k >= len(self.stored):
                    raise ValueError("The source gave other blocks than on the first pass.")
                parts = problem.parts
                objective.add(problem, self._restored(self.stored[k], parts) or [None] * len(parts))
            yield k, problem
        if objective is not None and k + 1 < len(self.stored):
            raise ValueError("The source gave fewer blocks than on the first pass.")

    def _prepare(self, k: int, problem: BatchProblem | None) -> None:
        """In the first pass: make room for new features and outputs."""
        if k == len(self.stored):
            self.stored.append(None)
        if problem is None:
            return
        self.n_rows = problem.parts[0].weights_shape[0]
        if not self.learner.prepare(problem.parts):
            self.stored = [None] * len(self.stored)
            self.late.clear()

    def _learn(self, k: int, parts: tuple[LinearProblem, ...]) -> None:
        """Improve the dual over a batch and the cached rows."""
        starts = self._restored(self._current(k), parts)
        self.late.pop(k, None)
        self.learner.cache.pop(k, None)
        batch = self.learner.load(k, parts, starts)
        try:
            self.learner.learn(batch, self.threads)
        finally:
            self.stored[k] = tuple(StoredCoefficients.of(part) for part in batch.fractions())
        self.learner.keep(k, batch, self._let_go)

    def _let_go(self, number: int, batch: BatchDual, examples: NDArray[np.int32]) -> None:
        """Keep the coefficients of rows dropped by the cache until their batch is stored."""
        coefs = [StoredCoefficients.of(part[examples]) for part in batch.fractions()]
        self.late.setdefault(number, []).append(_Late(batch.rows[examples], coefs))

    def _polish(self, updates_of_pass: int) -> None:
        """Sweep the cached rows until they settle, before the next pass, which is expensive."""
        allowed = self.stopping.allowed_gap(self.learner.dual)
        passes = len(self.history) + 1
        enough = SETTLED * 4.0 ** (1 - passes) * allowed
        if self.stopping.reason(-1) is None:
            self.learner.polish(passes * updates_of_pass, enough, self.threads)

    def _restored(
        self, stored: Stored | None, parts: tuple[LinearProblem, ...]
    ) -> list[Floats] | None:
        if stored is None:
            return None
        if stored[0].shape[0] != parts[0].n_samples:
            raise ValueError(
                f"The source gave {parts[0].n_samples} examples in a block that had "
                f"{stored[0].shape[0]} on the first pass: it must give the same ones in every pass."
            )
        return [kept.restore(part) for kept, part in zip(stored, parts, strict=True)]

    def _current(self, k: int) -> Stored | None:
        """Stored coefficients of a batch, updated with those of its cached rows."""
        stored = self.stored[k]
        kept = self.learner.cache.get(k)
        changes = [(rows, [part.dense() for part in coefs]) for rows, coefs in self.late.get(k, [])]
        if kept is not None:
            changes.append((kept.rows, kept.fractions()))
        if not changes:
            return stored
        assert stored is not None  # rows are cached when their batch is stored
        dense = [part.dense() for part in stored]
        for rows, fractions in changes:
            for part, new in zip(dense, fractions, strict=True):
                part[rows] = new
        return tuple(map(StoredCoefficients.of, dense))

    def _write_back(self) -> None:
        """Store the coefficients of all cached rows."""
        for k in {*self.late, *self.learner.cache}:
            self.stored[k] = self._current(k)
        self.late.clear()
        for batch in self.learner.cache.values():
            batch.round_coefs()

    def _settle(self, objective: SummedObjective) -> None:
        """Keep what a pass found to be better, part by part."""
        primals = objective.primals()
        self.evaluated = float(primals.min(axis=1).sum())
        if not self.best:
            self.best, self.best_primals = [*objective.candidates[0]], primals[:, 0].tolist()
            self.at_zero = float(primals[:, -1].sum())
        for m, c in enumerate(primals.argmin(axis=1)):
            if primals[m, c] < self.best_primals[m]:
                self.best[m] = objective.candidates[c][m]
                self.best_primals[m] = float(primals[m, c])
        self.best_dual = max(self.best_dual, objective.dual())

    def as_iteration(self) -> Iteration:
        self.calls, self.hits = self.learner.updates, self.learner.cache_updates
        self.primal = self.certificate.primal
        line = super().as_iteration()
        return line if self.best else replace(line, dual=self.learner.dual)

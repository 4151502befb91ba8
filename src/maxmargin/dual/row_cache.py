"""The dual state of batches of examples: one that was just read, and rows cached of earlier ones.

Sweeps over a batch soon leave most of its examples in a corner of their feasible set (no violation,
or as much as their cost allows), where they stay. What still moves are the others, and there are
few of them: at the optimum about as many as weights. Kept in memory, they go on adapting to the
batches that follow, which saves most of the passes that would be needed otherwise.

Of a batch that is not in memory, only the coefficients that are not zero are stored.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.checks import check_shape
from maxmargin.core.linear import LinearProblem, MulticlassProblem
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful, alike
from maxmargin.core.threads import Threads
from maxmargin.dual.explicit import ONE_THREAD, Geometry, LinearDual, SharedWeights, make_dual
from maxmargin.dual.sweeps import DUE, WAIT

Floats = NDArray[np.float64]
Fractions = NDArray[np.float32]
Steps = NDArray[np.unsignedinteger]


_MOST_CELLS = 1 << 28
"""Of a matrix in a file, where nothing but a number says how large it is."""


@registered("StoredCoefficients", check="check")
class StoredCoefficients(NamedTuple):
    """Non-zero coefficients as fractions of the examples' costs.

    Most are at a bound: the fraction is one or minus one, and only its place is stored, as the step
    from the place before, which takes a byte or two. The others take four bytes more. The
    coefficient of an example's own class is left out: it is minus the sum of the others.

    Parameters
    ----------
    shape : tuple of int
        Of the dense matrix, (n_samples, n_outputs).
    lowest, highest, between : ndarray of unsigned int
        Steps between places, in the flattened matrix, of the fractions -1, 1, and all others.
    fractions : ndarray of float32
        Those between.
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
        return cls(
            fractions.shape,
            _steps(np.flatnonzero(low)),
            _steps(np.flatnonzero(high)),
            _steps(between),
            flat[between],
        )

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
        """The matrix of fractions."""
        result = np.zeros(self.shape, dtype=np.float32)
        flat = result.ravel()
        flat[_places(self.lowest)] = -1.0
        flat[_places(self.highest)] = 1.0
        flat[_places(self.between)] = self.fractions
        return result

    def changed(self, rows: NDArray[np.int32], fractions: Fractions) -> "StoredCoefficients":
        """The same with other coefficients for some of the rows."""
        dense = self.dense()
        dense[rows] = fractions
        return self.of(dense)

    def restore(self, problem: LinearProblem) -> Floats:
        """Feasible coefficients for the examples of `problem`."""
        return problem.feasible(self.dense() * problem.C[:, None])

    @property
    def n_stored(self) -> int:
        """How many there are."""
        return len(self.lowest) + len(self.highest) + len(self.between)

    @property
    def nbytes(self) -> int:
        """Memory they take."""
        return sum(array.nbytes for array in self[1:])


def _steps(places: NDArray[np.intp]) -> Steps:
    steps = np.diff(places, prepend=0)
    return steps.astype(np.min_scalar_type(int(steps.max(initial=0))))


def _places(steps: Steps) -> NDArray[np.int64]:
    return np.cumsum(steps, dtype=np.int64)


def fractions_of(problem: LinearProblem, dual_coef: Floats) -> Fractions:
    """What `StoredCoefficients` keeps of coefficients, still as a dense matrix."""
    own_too = not isinstance(problem, MulticlassProblem)
    needed = dual_coef if own_too else np.minimum(dual_coef, 0.0)
    cost = problem.C[:, None]
    return np.divide(needed, cost, out=np.zeros_like(needed), where=cost > 0.0).astype(np.float32)


Rows = NDArray[np.int32]

LONGEST_WAIT = 63
"""Sweeps after which even an example that never moves is looked at again."""

_OWN = ("coef", "linear", "losses", "updates", "iteration", "random")
"""Attributes of batches that belong to their examples, not to the weights."""

ROOM_AFTER_THINNING = 0.75
"""Share of its memory that a full cache uses after it has dropped what it can do without."""

SMALL_PORTION = 0.05
"""Share of the memory below which a batch is dropped as a whole."""

WORTH_COPYING = 0.7
"""Share of a batch's examples below which those that move are worth a copy without the others."""


class BatchDual:
    """Some examples of one batch, for each part of the problem, on the weights of all.

    Parameters
    ----------
    parts : sequence of LinearProblem
        The parts of the problem on these examples, which have the same features.
    rows : ndarray of int32
        Which examples of their batch they are.
    weights : sequence of SharedWeights
        One for each part.
    starts : sequence of ndarray of shape (n_samples, n_outputs) or None
        Dual coefficients that the weights contain.
    seed : int
    """

    def __init__(
        self,
        parts: Sequence[LinearProblem],
        rows: Rows,
        weights: Sequence[SharedWeights],
        starts: Sequence[Floats | None],
        seed: int,
    ) -> None:
        self.rows, self.seed = rows, seed
        geometry = Geometry.of(parts[0])
        self.duals: list[LinearDual] = [
            make_dual(part, geometry, start, LONGEST_WAIT, seed + m, shared)
            for m, (part, start, shared) in enumerate(zip(parts, starts, weights, strict=True))
        ]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> list[LinearProblem]:
        """The parts of the problem on these examples."""
        return [dual.problem for dual in self.duals]

    @property
    def dual_coefs(self) -> list[Floats]:
        """Dual coefficients of each part."""
        return [dual.dual_coef for dual in self.duals]

    @property
    def linear(self) -> float:
        """Linear term of these examples in the dual."""
        return sum(dual.linear for dual in self.duals)

    @property
    def loss(self) -> float:
        """Sum of cost times loss of these examples, as their last updates saw it."""
        return sum(float(dual.losses.sum()) for dual in self.duals)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about."""
        X = self.parts[0].X
        entries = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
        per_row = [dual.coef.itemsize * dual.n_columns + 128 for dual in self.duals]
        return int(entries + len(self) * sum(per_row))

    def sweep(self, threads: Threads) -> int:
        """Update the examples that are due; parts side by side, if there are several.

        Returns how many examples were updated, on average over the parts.
        """

        def sweep_one(dual: LinearDual, threads: Threads = ONE_THREAD) -> int:
            order = dual.due_examples()
            dual.sweep(order, 0.0, threads)
            dual.iteration += 1
            return len(order)

        if len(self.duals) == 1:
            return sweep_one(self.duals[0], threads)
        return sum(threads.map(sweep_one, self.duals)) // len(self.duals)

    def moving(self) -> Rows:
        """Examples that, when last updated, moved or were in no corner, in some part."""
        moving = [
            (b.updates[:, WAIT] == 0) & (b.updates[:, DUE] <= b.iteration + LONGEST_WAIT)
            for b in self.duals
        ]
        return np.flatnonzero(np.any(moving, axis=0)).astype(np.int32)

    def worth_keeping(self) -> Rows:
        """Those that are moving; all, if the others are too few to copy the rest."""
        moving = self.moving()
        return (
            moving
            if len(moving) < WORTH_COPYING * len(self)
            else np.arange(len(self), dtype=np.int32)
        )

    def some(self, examples: Rows) -> "BatchDual":
        """A batch of this one, its features copied."""
        coefs = [coef[examples] for coef in self.dual_coefs]
        parts = _with_same_features([part.some(examples) for part in self.parts])
        weights = [dual.shared for dual in self.duals]
        batch = BatchDual(parts, self.rows[examples], weights, coefs, self.seed)
        for mine, theirs in zip(self.duals, batch.duals, strict=True):
            theirs.losses = mine.losses[examples]
        return batch

    @classmethod
    def joined(cls, batches: "Sequence[BatchDual]") -> "BatchDual":
        """One batch of the examples of several."""
        first = batches[0]
        same = zip(*(batch.parts for batch in batches), strict=True)
        parts = _with_same_features([part.joined(others) for part, *others in same])
        coefs = [np.vstack(c) for c in zip(*(p.dual_coefs for p in batches), strict=True)]
        rows = np.concatenate([batch.rows for batch in batches])
        batch = cls(parts, rows, [dual.shared for dual in first.duals], coefs, first.seed)
        for m, dual in enumerate(batch.duals):
            dual.losses = np.concatenate([one.duals[m].losses for one in batches])
        return batch

    def fractions(self) -> list[Fractions]:
        """Coefficients of each part as `StoredCoefficients` wants them."""
        return [fractions_of(dual.problem, dual.dual_coef) for dual in self.duals]

    def round_coefs(self) -> None:
        """Round the coefficients to what `fractions` tells of them."""
        for dual, fractions in zip(self.duals, self.fractions(), strict=True):
            dual.set_coef(fractions * dual.problem.C[:, None])

    def attach(self, weights: Sequence[SharedWeights]) -> None:
        """Work on these weights from now on."""
        for dual, shared in zip(self.duals, weights, strict=True):
            dual.attach(shared)

    @property
    def plain(self) -> tuple[Any, ...]:
        """All of it but the weights, as plain data."""
        states = [[getattr(dual, name) for name in _OWN] for dual in self.duals]
        return self.parts, self.rows, self.seed, states

    @classmethod
    def of_plain(cls, plain: Sequence[Any], weights: Sequence[SharedWeights]) -> "BatchDual":
        """The batch that was `plain`, on weights that contain its coefficients."""
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
        return {"plain": self.plain, "weights": [dual.shared for dual in self.duals]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(self.of_plain(**state)))


def _with_same_features(parts: list[LinearProblem]) -> list[LinearProblem]:
    """The parts with one copy of the features for all."""
    return [replace(part, X=parts[0].X) for part in parts]


LetGo = Callable[[int, BatchDual, Rows], None]


def _forget(number: int, batch: BatchDual, examples: Rows) -> None:
    """What is let go is lost."""


class RowCache(Stateful):
    """Batches of batches that are not in memory, within a bound on the bytes.

    Parameters
    ----------
    max_bytes : int
    seed : int
        Of which examples go when there is no room for all.

    Attributes
    ----------
    batches : dict of BatchDual
        By the number of their batch.
    nbytes : int
        Memory in use, about.
    """

    state_names = ("nbytes", "_random", "_turn")

    def __init__(self, max_bytes: int, seed: int) -> None:
        self.max_bytes = max_bytes
        self.batches: dict[int, BatchDual] = {}
        self.nbytes = 0
        self._random = np.random.default_rng(seed)
        self._turn = 0

    def take(self, number: int) -> BatchDual | None:
        """What is kept of a batch, which is no longer kept then."""
        batch = self.batches.pop(number, None)
        self.nbytes -= 0 if batch is None else batch.nbytes
        return batch

    def keep(self, number: int, batch: BatchDual, let_go: LetGo = _forget) -> None:
        """Keep what still moves of a batch, and drop other things if there is no room.

        Of each batch that loses examples, `let_go` is told beforehand, and which they are.
        """
        self._put(number, batch, batch.moving())
        while self.nbytes > self.max_bytes:
            self._thin(let_go)

    def __len__(self) -> int:
        return sum(map(len, self.batches.values()))

    def sweep(self, n_updates: int, threads: Threads) -> tuple[int, float, float]:
        """Sweep batches, each in its turn, until that was about `n_updates` examples.

        Returns how many it was, and the changes of the linear term and of the losses seen.
        """
        batches = list(self.batches.values())
        updated, linear, loss = 0, 0.0, 0.0
        for _ in range(len(batches)):
            if updated >= n_updates:
                break
            batch = batches[self._turn % len(batches)]
            self._turn += 1
            linear, loss = linear - batch.linear, loss - batch.loss
            updated += batch.sweep(threads)
            linear, loss = linear + batch.linear, loss + batch.loss
        return updated, linear, loss

    def join_small(self) -> None:
        """Make one batch of the last ones where the last is not much smaller than the one before.

        That leaves few batches of many small dual. Which batch they came from is forgotten.
        """
        while len(self.batches) > 1:
            before, last = list(self.batches)[-2:]
            if len(self.batches[before]) > 2 * len(self.batches[last]):
                return
            pair = self.take(before), self.take(last)
            self._put(before, BatchDual.joined([batch for batch in pair if batch is not None]))

    def _put(self, number: int, batch: BatchDual, examples: Rows | None = None) -> None:
        if examples is not None:
            if not len(examples):
                return
            batch = batch.some(examples)
        self.batches[number] = batch
        self.nbytes += batch.nbytes

    def _thin(self, let_go: LetGo) -> None:
        """Drop what has come to rest and, if that is not enough, some of the rest at random.

        Small batches go or stay as a whole, which takes less time than to copy a part of each.
        """
        stay = {number: batch.worth_keeping() for number, batch in self.batches.items()}
        left = sum(len(stay[b]) * p.nbytes / len(p) for b, p in self.batches.items())
        share = min(1.0, ROOM_AFTER_THINNING * self.max_bytes / max(left, 1.0))
        for number, examples in stay.items():
            batch = self.batches[number]
            large = batch.nbytes > SMALL_PORTION * self.max_bytes
            chosen = self._random.random(len(examples) if large else 1) < share
            examples = examples[np.broadcast_to(chosen, len(examples))]
            if len(examples) < len(batch):
                gone = np.ones(len(batch), dtype=bool)
                gone[examples] = False
                let_go(number, batch, np.flatnonzero(gone).astype(np.int32))
                self.take(number)
                self._put(number, batch, examples)

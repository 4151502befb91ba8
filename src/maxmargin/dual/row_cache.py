"""Examples at hand, out of many that are not: blocks just read, and rows kept from earlier ones.

Sweeps over a block soon leave most of its examples in a corner of their feasible set (no violation,
or as much as their cost allows), where they stay. What still moves are the others, and there are
few of them: at the optimum about as many as weights. Kept in memory, they go on adapting to the
blocks that follow, which saves most of the passes that would be needed otherwise.

Dual coefficients of a block of examples that is not in memory: only those that are not zero.
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
from maxmargin.dual.explicit import ONE_THREAD, Blocks, Geometry, SharedWeights, make_blocks
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

_OWN = ("coef", "linear", "losses", "updates", "round", "random")
"""Attributes of blocks that belong to their examples, not to the weights."""

ROOM_AFTER_THINNING = 0.75
"""Share of its memory that a full cache uses after it has dropped what it can do without."""

SMALL_PORTION = 0.05
"""Share of the memory below which a portion is dropped as a whole."""

WORTH_COPYING = 0.7
"""Share of a portion's examples below which those that move are worth a copy without the others."""


class Portion:
    """Some examples of one block, for each part of the problem, on the weights of all.

    Parameters
    ----------
    parts : sequence of LinearProblem
        The parts of the problem on these examples, which have the same features.
    rows : ndarray of int32
        Which examples of their block they are.
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
        self.blocks: list[Blocks] = [
            make_blocks(part, geometry, start, LONGEST_WAIT, seed + m, shared)
            for m, (part, start, shared) in enumerate(zip(parts, starts, weights, strict=True))
        ]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> list[LinearProblem]:
        """The parts of the problem on these examples."""
        return [blocks.problem for blocks in self.blocks]

    @property
    def dual_coefs(self) -> list[Floats]:
        """Dual coefficients of each part."""
        return [blocks.dual_coef for blocks in self.blocks]

    @property
    def linear(self) -> float:
        """Linear term of these examples in the dual."""
        return sum(blocks.linear for blocks in self.blocks)

    @property
    def loss(self) -> float:
        """Sum of cost times loss of these examples, as their last visits saw it."""
        return sum(float(blocks.losses.sum()) for blocks in self.blocks)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about."""
        X = self.parts[0].X
        entries = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
        per_row = [blocks.coef.itemsize * blocks.n_columns + 128 for blocks in self.blocks]
        return int(entries + len(self) * sum(per_row))

    def sweep(self, threads: Threads) -> int:
        """Visit the examples that are due; parts side by side, if there are several.

        Returns how many examples were visited, on average over the parts.
        """

        def sweep_one(blocks: Blocks, threads: Threads = ONE_THREAD) -> int:
            order = blocks.due_examples()
            blocks.sweep(order, 0.0, threads)
            blocks.round += 1
            return len(order)

        if len(self.blocks) == 1:
            return sweep_one(self.blocks[0], threads)
        return sum(threads.map(sweep_one, self.blocks)) // len(self.blocks)

    def moving(self) -> Rows:
        """Examples that, when last visited, moved or were in no corner, in some part."""
        moving = [
            (b.updates[:, WAIT] == 0) & (b.updates[:, DUE] <= b.round + LONGEST_WAIT)
            for b in self.blocks
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

    def some(self, examples: Rows) -> "Portion":
        """A portion of this one, its features copied."""
        coefs = [coef[examples] for coef in self.dual_coefs]
        parts = _with_same_features([part.some(examples) for part in self.parts])
        weights = [blocks.shared for blocks in self.blocks]
        portion = Portion(parts, self.rows[examples], weights, coefs, self.seed)
        for mine, theirs in zip(self.blocks, portion.blocks, strict=True):
            theirs.losses = mine.losses[examples]
        return portion

    @classmethod
    def joined(cls, portions: "Sequence[Portion]") -> "Portion":
        """One portion of the examples of several."""
        first = portions[0]
        same = zip(*(portion.parts for portion in portions), strict=True)
        parts = _with_same_features([part.joined(others) for part, *others in same])
        coefs = [np.vstack(c) for c in zip(*(p.dual_coefs for p in portions), strict=True)]
        rows = np.concatenate([portion.rows for portion in portions])
        portion = cls(parts, rows, [blocks.shared for blocks in first.blocks], coefs, first.seed)
        for m, blocks in enumerate(portion.blocks):
            blocks.losses = np.concatenate([one.blocks[m].losses for one in portions])
        return portion

    def fractions(self) -> list[Fractions]:
        """Coefficients of each part as `StoredCoefficients` wants them."""
        return [fractions_of(blocks.problem, blocks.dual_coef) for blocks in self.blocks]

    def round(self) -> None:
        """Round the coefficients to what `fractions` tells of them."""
        for blocks, fractions in zip(self.blocks, self.fractions(), strict=True):
            blocks.set_coef(fractions * blocks.problem.C[:, None])

    def attach(self, weights: Sequence[SharedWeights]) -> None:
        """Work on these weights from now on."""
        for blocks, shared in zip(self.blocks, weights, strict=True):
            blocks.attach(shared)

    @property
    def plain(self) -> tuple[Any, ...]:
        """All of it but the weights, as plain data."""
        states = [[getattr(blocks, name) for name in _OWN] for blocks in self.blocks]
        return self.parts, self.rows, self.seed, states

    @classmethod
    def of_plain(cls, plain: Sequence[Any], weights: Sequence[SharedWeights]) -> "Portion":
        """The portion that was `plain`, on weights that contain its coefficients."""
        parts, rows, seed, states = plain
        n_rows, n_outputs = parts[0].weights_shape
        if n_rows > len(weights[0].weights) or n_outputs != weights[0].n_outputs:
            raise ValueError("cached rows have more features or outputs than there are weights")
        portion = cls(parts, rows, weights, [None] * len(parts), seed)
        check_shape("rows", rows, parts[0].n_samples)
        for blocks, state in zip(portion.blocks, states, strict=True):
            for name, value in zip(_OWN, state, strict=True):
                if not alike(getattr(blocks, name), value):
                    raise ValueError(f"{name} of cached rows is of another type")
                setattr(blocks, name, value)
        return portion

    def __getstate__(self) -> dict[str, Any]:
        """What the blocks are made of; compiled code must not see arrays that pickle has made."""
        return {"plain": self.plain, "weights": [blocks.shared for blocks in self.blocks]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(self.of_plain(**state)))


def _with_same_features(parts: list[LinearProblem]) -> list[LinearProblem]:
    """The parts with one copy of the features for all."""
    return [replace(part, X=parts[0].X) for part in parts]


LetGo = Callable[[int, Portion, Rows], None]


def _forget(block: int, portion: Portion, examples: Rows) -> None:
    """What is let go is lost."""


class RowCache(Stateful):
    """Portions of blocks that are not in memory, within a bound on the bytes.

    Parameters
    ----------
    max_bytes : int
    seed : int
        Of which examples go when there is no room for all.

    Attributes
    ----------
    portions : dict of Portion
        By the number of their block.
    nbytes : int
        Memory in use, about.
    """

    state_names = ("nbytes", "_random", "_turn")

    def __init__(self, max_bytes: int, seed: int) -> None:
        self.max_bytes = max_bytes
        self.portions: dict[int, Portion] = {}
        self.nbytes = 0
        self._random = np.random.default_rng(seed)
        self._turn = 0

    def take(self, block: int) -> Portion | None:
        """What is kept of a block, which is no longer kept then."""
        portion = self.portions.pop(block, None)
        self.nbytes -= 0 if portion is None else portion.nbytes
        return portion

    def keep(self, block: int, portion: Portion, let_go: LetGo = _forget) -> None:
        """Keep what still moves of a portion, and drop other things if there is no room.

        Of each portion that loses examples, `let_go` is told beforehand, and which they are.
        """
        self._put(block, portion, portion.moving())
        while self.nbytes > self.max_bytes:
            self._thin(let_go)

    def __len__(self) -> int:
        return sum(map(len, self.portions.values()))

    def sweep(self, n_updates: int, threads: Threads) -> tuple[int, float, float]:
        """Sweep portions, each in its turn, until that was about `n_updates` examples.

        Returns how many it was, and the changes of the linear term and of the losses seen.
        """
        portions = list(self.portions.values())
        updated, linear, loss = 0, 0.0, 0.0
        for _ in range(len(portions)):
            if updated >= n_updates:
                break
            portion = portions[self._turn % len(portions)]
            self._turn += 1
            linear, loss = linear - portion.linear, loss - portion.loss
            updated += portion.sweep(threads)
            linear, loss = linear + portion.linear, loss + portion.loss
        return updated, linear, loss

    def join_small(self) -> None:
        """Make one portion of the last ones where the last is not much smaller than the one before.

        That leaves few portions of many small blocks. Which block they came from is forgotten.
        """
        while len(self.portions) > 1:
            before, last = list(self.portions)[-2:]
            if len(self.portions[before]) > 2 * len(self.portions[last]):
                return
            pair = self.take(before), self.take(last)
            self._put(before, Portion.joined([portion for portion in pair if portion is not None]))

    def _put(self, block: int, portion: Portion, examples: Rows | None = None) -> None:
        if examples is not None:
            if not len(examples):
                return
            portion = portion.some(examples)
        self.portions[block] = portion
        self.nbytes += portion.nbytes

    def _thin(self, let_go: LetGo) -> None:
        """Drop what has come to rest and, if that is not enough, some of the rest at random.

        Small portions go or stay as a whole, which takes less time than to copy a part of each.
        """
        stay = {block: portion.worth_keeping() for block, portion in self.portions.items()}
        left = sum(len(stay[b]) * p.nbytes / len(p) for b, p in self.portions.items())
        share = min(1.0, ROOM_AFTER_THINNING * self.max_bytes / max(left, 1.0))
        for block, examples in stay.items():
            portion = self.portions[block]
            large = portion.nbytes > SMALL_PORTION * self.max_bytes
            chosen = self._random.random(len(examples) if large else 1) < share
            examples = examples[np.broadcast_to(chosen, len(examples))]
            if len(examples) < len(portion):
                gone = np.ones(len(portion), dtype=bool)
                gone[examples] = False
                let_go(block, portion, np.flatnonzero(gone).astype(np.int32))
                self.take(block)
                self._put(block, portion, examples)

"""The dual of a kernel structural SVM over the working set.

An *atom* is an output of an example: a part row and a label row of two tables, with the kernel
``parts[p, p'] * labels[l, l']``. The true output is an atom, too, with what is left of the C, and a
step moves coefficient between two atoms of an example. The model is ``w = sum a_y s_y (phi(y_true)
- phi(y))``, with scale ``s_y`` one (margin rescaling) or the loss (slack rescaling).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.core.arrays import Floats, Order, check_indices, check_shape
from maxmargin.core.kernel import (
    SAMPLE,
    Kernel,
    KernelError,
    NewOutputs,
    ProductKernel,
    asymmetric,
    check_block,
    check_gram,
    row_keys,
    stacked,
)
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful
from maxmargin.dual.gram import ROUNDING

_FIRST_ROOM = 64


class GrowingGram(Stateful):
    """Distinct rows with their Gram matrix; `evaluations` counts the computed kernel values.

    The state is without the rows, which whoever restores it makes anew.
    """

    state_names = ("gram", "evaluations", "next_check")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.values = np.empty((_FIRST_ROOM, _FIRST_ROOM))
        """The Gram matrix in the upper left corner; the rest is room to grow."""
        self.evaluations = 0
        self.rows: Any = None
        """All rows; None before the first."""
        self._numbers: dict[Any, int] = {}
        self.next_check = SAMPLE
        """Number of rows at which a larger sample is checked."""

    def __len__(self) -> int:
        return 0 if self.rows is None else int(self.rows.shape[0])

    @property
    def gram(self) -> Floats:
        return self.values[: len(self), : len(self)]

    @gram.setter
    def gram(self, gram: Floats) -> None:
        self.values = gram

    def add(self, rows: Any) -> Order:
        """Numbers of the rows in the table; new ones are added."""
        keys = row_keys(rows)
        numbers = dict(self._numbers)
        new: list[int] = []
        for k, key in enumerate(keys):
            if key not in numbers:
                numbers[key] = len(numbers)
                new.append(k)
        if new:
            self._grow(rows[np.array(new)])
            self._numbers = numbers
        return np.array([numbers[key] for key in keys], dtype=np.int64)

    def restore(self, rows: Any) -> None:
        """Take over the rows of the Gram matrix of a state."""
        self.rows = rows
        self._numbers = {key: number for number, key in enumerate(row_keys(rows))}

    def keep(self, which: Order) -> None:
        """Drop all rows but these; the row ``which[k]`` becomes row ``k``."""
        place = {int(old): k for k, old in enumerate(which)}
        self._numbers = {key: place[old] for key, old in self._numbers.items() if old in place}
        self.rows, self.values = self.rows[which], _with_room(self.gram[np.ix_(which, which)])

    def _grow(self, new: Any) -> None:
        size = len(self)
        rows = stacked([self.rows, new]) if size else new
        block = self.kernel(new, rows)
        self.evaluations += block.size
        self._check(block[:, :size], block[:, size:], new)
        if rows.shape[0] > len(self.values):
            self.values = _with_room(self.gram, rows.shape[0])
        self.values[size : rows.shape[0], : rows.shape[0]] = block
        self.values[:size, size : rows.shape[0]] = block[:, :size].T
        self.rows = rows
        if len(self) >= self.next_check:
            self.next_check = 2 * len(self)
            some = np.random.default_rng(size).permutation(len(self))[: 2 * SAMPLE]
            check_gram(self.gram[np.ix_(some, some)], self.kernel.name)

    def _check(self, block: Floats, own: Floats, new: Any) -> None:
        name, size = self.kernel.name, len(self)
        check_gram(own[:SAMPLE, :SAMPLE], name)
        if not size:
            return
        check_block(block, own.diagonal(), self.gram.diagonal(), name)
        back = float(self.kernel(self.rows[size - 1 :], new[:1])[0, 0])
        self.evaluations += 1
        if abs(back - block[0, -1]) > 1e-6 * max(abs(back), float(self.values[0, 0]), 1e-300):
            raise asymmetric(name, block[0, -1], back)


def _with_room(gram: Floats, size: int = 0) -> Floats:
    """A Gram matrix in the corner of a larger one, for `size` rows and more: fewer copies."""
    size = max(size, len(gram))
    values = np.empty((max(_FIRST_ROOM, size + size // 2),) * 2)
    values[: len(gram), : len(gram)] = gram
    return values


@registered("Atoms")
class Atoms(NamedTuple):
    """Arrays over the atoms; replaced as a whole, because Ctrl-C may come at any moment."""

    examples: Order = np.zeros(0, dtype=np.int64)
    parts: Order = np.zeros(0, dtype=np.int64)
    labels: Order = np.zeros(0, dtype=np.int64)
    is_true_output: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
    losses: Floats = np.zeros(0)
    coef: Floats = np.zeros(0)
    scores: Floats = np.zeros(0)
    idle: Order = np.zeros(0, dtype=np.int64)
    outputs: tuple[Any, ...] = ()

    def take(self, which: Order) -> "Atoms":
        arrays: list[Any] = [values[which] for values in self[:-1]]
        return Atoms._make([*arrays, tuple(self.outputs[k] for k in which)])


class KernelCuts(Stateful):
    """Atoms of all examples with their dual variables; `cost` is the C of each example."""

    state_names = ("atoms", "parts", "labels")

    def __init__(self, cost: Floats, kernel: ProductKernel, by_slack: bool = False) -> None:
        self.cost, self.by_slack = cost, by_slack
        self.parts = GrowingGram(kernel.parts)
        self.labels = GrowingGram(kernel.labels)
        self.atoms = Atoms()
        self._known: set[tuple[int, int, int, float]] = set()
        """What tells atoms apart; see `_keys`."""

    def __len__(self) -> int:
        return int(len(self.atoms.examples) - np.count_nonzero(self.atoms.is_true_output))

    def check_state(self) -> None:
        atoms = self.atoms
        for name in Atoms._fields[:-1]:
            check_shape(name, getattr(atoms, name), len(atoms.outputs))
        check_indices("examples", atoms.examples, len(self.cost))
        for table, numbers in ((self.parts, atoms.parts), (self.labels, atoms.labels)):
            n = len(np.unique(numbers))
            check_indices("numbers of rows", numbers, n)
            check_shape("gram", table.values, n, n)
        self._take_over(atoms)

    def restore(self, parts: Any, labels: Any) -> None:
        """Complete a state by the part row and the label row of each atom."""
        self.parts.restore(parts[np.unique(self.atoms.parts, return_index=True)[1]])
        self.labels.restore(labels[np.unique(self.atoms.labels, return_index=True)[1]])

    @property
    def factors(self) -> Floats:
        """Factor of each atom in the model: ``-a_y s_y``; of a true output ``sum_y a_y s_y``."""
        atoms = self.atoms
        used = np.where(atoms.is_true_output, 0.0, self.scales * atoms.coef)
        of_examples = np.bincount(atoms.examples, weights=used, minlength=len(self.cost))
        return np.where(atoms.is_true_output, of_examples[atoms.examples], -used)

    @property
    def scales(self) -> Floats:
        """``s_y`` of each atom."""
        return self.atoms.losses if self.by_slack else np.ones(len(self.atoms.losses))

    @property
    def half_square(self) -> float:
        """``1/2 |w|^2``."""
        return 0.5 * float(self.factors @ self.atoms.scores)

    @property
    def dual(self) -> float:
        return float(self.atoms.losses @ self.atoms.coef) - self.half_square

    def slacks(self) -> Floats:
        """Hinge of each example over the working set."""
        atoms = self.atoms
        y_true = np.zeros(len(self.cost))
        y_true[atoms.examples[atoms.is_true_output]] = atoms.scores[atoms.is_true_output]
        values = atoms.losses + self.scales * (atoms.scores - y_true[atoms.examples])
        highest = np.zeros(len(self.cost))
        np.maximum.at(highest, atoms.examples, values)
        return highest

    def add(self, outputs: NewOutputs, y_true: Callable[[Order], NewOutputs]) -> None:
        """Add distinct outputs, after the true outputs of their examples if these are missing."""
        missing = np.setdiff1d(outputs.examples, self.atoms.examples)
        if len(missing):
            self._append(y_true(missing)._replace(coef=self.cost[missing]), True)
        self._append(outputs, False)

    def _append(self, new: NewOutputs, are_true_outputs: bool) -> None:
        parts, labels = self.parts.add(new.parts), self.labels.add(new.labels)
        chosen, n, old = [], len(new.outputs), self.atoms
        for k, key in enumerate(_keys(new.examples, parts, labels, new.losses)):
            if key not in self._known:
                self._known.add(key)
                chosen.append(k)
        more = Atoms(
            new.examples,
            parts,
            labels,
            np.full(n, are_true_outputs),
            new.losses,
            new.coef,
            self._scores(parts, labels),
            np.zeros(n, dtype=np.int64),
            tuple(new.outputs),
        ).take(np.array(chosen, dtype=np.int64))
        arrays: list[Any] = list(map(np.append, old[:-1], more[:-1]))
        self.atoms = atoms = Atoms._make([*arrays, (*old.outputs, *more.outputs)])
        if not are_true_outputs and more.coef.any():  # which comes from the true outputs
            used = np.bincount(more.examples, weights=more.coef, minlength=len(self.cost))
            y_true = np.flatnonzero(atoms.is_true_output)
            atoms.coef[y_true] = np.maximum(atoms.coef[y_true] - used[atoms.examples[y_true]], 0.0)
            atoms.scores[:] = self._scores(atoms.parts, atoms.labels)

    def _scores(self, parts: Order, labels: Order) -> Floats:
        out, atoms = np.empty(len(parts)), self.atoms
        _score(
            self.parts.values, self.labels.values, parts, labels, atoms.parts, atoms.labels,
            self.factors, out,
        )  # fmt: skip
        return out

    def solve(self, examples: Order | None, gap: float, max_updates: int) -> tuple[float, int]:
        """Update these examples (None: all) until the gap is small; returns it and the updates."""
        atoms = self.atoms
        if not len(atoms.coef):
            return 0.0, 0
        # The true output of each example comes first.
        members = np.lexsort((~atoms.is_true_output, atoms.examples))
        present, starts = np.unique(atoms.examples[members], return_index=True)
        starts = np.append(starts, len(members)).astype(np.int64)
        wanted = np.arange(len(present))
        if examples is not None:
            wanted = np.flatnonzero(np.isin(present, examples))
        widest = int(np.diff(starts).max())
        left, updates, curvature = _solve(
            self.parts.values, self.labels.values, atoms.parts, atoms.labels, atoms.losses,
            self.scales, atoms.coef, atoms.scores, members, starts, wanted, self.cost[present],
            gap, max_updates, np.empty(len(wanted)), np.empty(widest * widest), np.empty(widest),
            np.empty(widest),
        )  # fmt: skip
        if curvature < -1e-6:
            raise KernelError(
                f"{self.parts.kernel.name} is not positive semi-definite: two outputs are at a "
                f"squared distance of {curvature:.3g} times their squared lengths."
            )
        return float(left), int(updates)

    def note_idle(self) -> None:
        """Count the iterations for which each coefficient has been zero."""
        atoms = self.atoms
        atoms.idle[:] = np.where(atoms.coef > 0.0, 0, atoms.idle + 1)

    def drop_idle(self, longest: int) -> None:
        """Drop atoms that have been idle for so many iterations, and rows without atoms."""
        atoms = self.atoms
        stay = np.flatnonzero(atoms.is_true_output | (atoms.idle < longest))
        # A true output without others has no factor; it comes back with the next output.
        outputs_left = np.bincount(atoms.examples[stay], minlength=len(self.cost)) > 1
        stay = stay[outputs_left[atoms.examples[stay]]]
        if len(stay) == len(atoms.examples):
            return
        kept = atoms.take(stay)
        numbers = []
        for table, used in ((self.parts, kept.parts), (self.labels, kept.labels)):
            which, renumbered = np.unique(used, return_inverse=True)
            table.keep(which)
            numbers.append(renumbered.astype(np.int64))
        self._take_over(kept._replace(parts=numbers[0], labels=numbers[1]))

    def _take_over(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self._known = set(_keys(atoms.examples, atoms.parts, atoms.labels, atoms.losses))


def _keys(
    examples: Order, parts: Order, labels: Order, losses: Floats
) -> Iterator[tuple[int, int, int, float]]:
    return zip(examples.tolist(), parts.tolist(), labels.tolist(), losses.tolist(), strict=True)


@compiled
def _score(part_gram, label_gram, parts, labels, other_parts, other_labels, factors, out):  # type: ignore[no-untyped-def]
    """``out[a] = sum_b factors[b] * kernel(a, b)``."""
    for a in range(len(out)):
        total = 0.0
        p = parts[a]
        q = labels[a]
        for b in range(len(factors)):
            total += factors[b] * part_gram[p, other_parts[b]] * label_gram[q, other_labels[b]]
        out[a] = total


@compiled
def _solve(  # type: ignore[no-untyped-def]
    part_gram, label_gram, parts, labels, losses, scales, coef, scores, members, starts, wanted,
    cost, tolerance, max_updates, violations, gram, values, change,
):  # fmt: skip
    """Iterate over the examples whose violation is at least half of the largest.

    Returns the gap left, the updates, and the least curvature relative to the squared lengths.

    Parameters
    ----------
    part_gram, label_gram : ndarrays of shape (n_rows, n_rows)
    parts, labels : ndarrays of int64, shape (n_atoms,), the rows of each atom
    losses, scales : ndarrays of shape (n_atoms,)
    coef, scores : ndarrays of shape (n_atoms,), changed
    members : ndarray of int64, shape (n_atoms,), atoms by example, the true output first
    starts : ndarray of int64, shape (n_present + 1,), where examples begin in `members`
    wanted : ndarray of int64, shape (n_wanted,), examples to update, by their place in `starts`
    cost : ndarray of shape (n_present,), C of the examples
    tolerance, max_updates : float, int
    violations, gram, values, change : scratch of shapes (n_wanted,), (most^2,), (most,), (most,)
    """
    updates = 0
    least = 0.0
    while True:
        worst = 0.0
        gap = 0.0
        for w in range(len(wanted)):
            g = wanted[w]
            highest = -1e300
            lowest = 1e300
            used = 0.0
            for at in range(starts[g], starts[g + 1]):
                a = members[at]
                value = losses[a] + scales[a] * (scores[a] - scores[members[starts[g]]])
                used += coef[a] * value
                highest = value if value > highest else highest
                if coef[a] > 0.0:
                    lowest = value if value < lowest else lowest
            gap += cost[g] * highest - used
            violations[w] = highest - lowest
            worst = violations[w] if violations[w] > worst else worst
        if gap <= tolerance or worst <= ROUNDING or updates >= max_updates or least < -1e-6:
            return gap, updates, least
        bar = 0.5 * worst
        for w in range(len(wanted)):
            if violations[w] < bar or updates >= max_updates:
                continue
            g = wanted[w]
            updates += 1
            size = starts[g + 1] - starts[g]
            y_true = members[starts[g]]
            own = (
                part_gram[parts[y_true], parts[y_true]] * label_gram[labels[y_true], labels[y_true]]
            )
            # How near to the true output each is, and then the differences from it.
            for j in range(size):
                a = members[starts[g] + j]
                values[j] = losses[a] + scales[a] * (scores[a] - scores[y_true])
                change[j] = (
                    part_gram[parts[a], parts[y_true]] * label_gram[labels[a], labels[y_true]]
                )
            for j in range(size):
                a = members[starts[g] + j]
                for k in range(size):
                    b = members[starts[g] + k]
                    near = part_gram[parts[a], parts[b]] * label_gram[labels[a], labels[b]]
                    apart = near - change[j] - change[k] + own
                    gram[j * size + k] = scales[a] * scales[b] * apart
            for j in range(size):
                change[j] = 0.0
            for _ in range(4 * size):
                up = down = 0
                highest = -1e300
                lowest = 1e300
                for j in range(size):
                    if values[j] > highest:
                        highest = values[j]
                        up = j
                    if coef[members[starts[g] + j]] > 0.0 and values[j] < lowest:
                        lowest = values[j]
                        down = j
                if highest - lowest <= 0.1 * bar:
                    break
                squares = gram[up * size + up] + gram[down * size + down]
                curvature = squares - 2.0 * gram[up * size + down]
                lengths = 2.0 * own + squares
                least = min(least, curvature / max(lengths, 1e-300))
                available = coef[members[starts[g] + down]]
                step = available
                if curvature * available > highest - lowest:
                    step = (highest - lowest) / curvature
                rest = available - step
                if rest < ROUNDING * cost[g]:
                    step = available
                    rest = 0.0
                coef[members[starts[g] + down]] = rest
                coef[members[starts[g] + up]] += step
                change[up] -= step
                change[down] += step
                for j in range(size):
                    values[j] += step * (gram[down * size + j] - gram[up * size + j])
            total = 0.0
            for j in range(1, size):
                change[j] *= scales[members[starts[g] + j]]
                total += change[j]
            change[0] = -total
            for j in range(size):
                if change[j] != 0.0:
                    a = members[starts[g] + j]
                    p = parts[a]
                    q = labels[a]
                    for b in range(len(scores)):
                        scores[b] += change[j] * part_gram[p, parts[b]] * label_gram[q, labels[b]]

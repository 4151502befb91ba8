"""The dual state of a problem with very many classes: a short list of classes for each example."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.rows import measured_rows, padded
from maxmargin.core.arrays import check_finite, check_indices, check_shape
from maxmargin.core.linear import MulticlassProblem, WestonWatkins
from maxmargin.core.state import Stateful
from maxmargin.dual.class_lists import (
    ClassLists,
    ClassWeights,
    ListedRows,
    add_lists,
    call_oracle,
    compact_tables,
    copy_lists,
    squared_norm,
    update_lists,
)
from maxmargin.dual.sweeps import DUE, update_order

Order = NDArray[np.int32]

MANY_CLASSES = 100
"""Classes from which on lists are faster than coefficients of all classes, on sparse rows."""

VIOLATED = 16
"""Most classes that an oracle call adds to a list: with fewer, more calls are needed."""

FIRST_ROOM = 2 * VIOLATED
"""Classes for which a list has room at first; most never need more."""

DENSE_FROM = 40
"""A feature in more than one of so many rows for each class has a place for every class: its table
would hold several classes for each row, and take as long to read."""

TABLE_PLACES = 8
"""Places of a table at first, for each row that has the feature."""

GROWTH = 1.25
"""How much longer a pool gets when more of it than that is in use."""

CALL_LIMIT = 1e8
"""Multiplications after which a routine pauses for clocks and Ctrl-C."""


def has_listed_dual(problem: Any) -> bool:
    """Whether a problem is one for lists, by its kind and its counted sizes."""
    return (
        isinstance(problem, MulticlassProblem)
        and problem.loss_matrix is None
        and problem.n_outputs >= MANY_CLASSES
        and sp.issparse(problem.X)
        and problem.origin is None
        and not problem.nonnegative
    )


class ListedDual(Stateful):
    """Dual coefficients in lists of classes, and the weights that they make up.

    `start` is a sparse array of shape (n_samples, n_classes), or None for zero.
    """

    state_names = ("lists", "weights", "updates", "random", "iteration", "losses")

    def __init__(
        self, problem: MulticlassProblem, start: Any, longest_wait: int, seed: int
    ) -> None:
        self.problem, self.longest_wait = problem, longest_wait
        self.random = np.array([seed], dtype=np.uint64)
        self.iteration = 0
        n = problem.n_samples
        self.data, frequencies = _listed_rows(problem)
        self.n_dense = int((DENSE_FROM * frequencies > problem.n_outputs).sum())
        self.data.ends[:] = _dense_ends(self.data, self.n_dense)
        n_columns = padded(problem.n_outputs)
        self.frequencies = frequencies[self.n_dense :]
        self.lists = _lists(problem, start, np.flatnonzero(self.data.terms[:, 2] == 0.0))
        self.losses = problem.C * problem.losses_at_zero()
        """C times hinge of each example at its last oracle call."""
        self.updates = np.zeros((n, 3), dtype=np.int32)
        self.wake()
        self.orders = [np.empty(n, dtype=np.int32) for _ in range(3)]
        self.scratch = np.zeros((4, n_columns + VIOLATED))
        self.scores = np.zeros(n_columns + 1)
        self.violated = np.zeros(min(VIOLATED, problem.n_outputs - 1), dtype=np.int32)
        self.per_row = len(self.data.rows.values) / max(1, n) + 1.0
        self.restart()

    def release(self) -> None:
        """Free the memory of the weights; `restart` before the next step."""
        self.weights = _tables(self.frequencies[:0], -1, padded(self.problem.n_outputs))

    def restart(self) -> None:
        """Make the weights of the lists."""
        self.weights = _tables(self.frequencies, self.n_dense, padded(self.problem.n_outputs))
        if self.lists.coef.any():
            at, n = 0, self.problem.n_samples
            while (at := int(add_lists(self.data, self.weights, self.lists, at))) < n:
                self._make_room()

    def check_state(self) -> None:
        lists, weights, n = self.lists, self.weights, self.problem.n_samples
        n_columns = padded(self.problem.n_outputs)
        for array in (lists.starts, lists.counts, lists.rooms):
            check_shape("lists", array, n)
        check_shape("coefficients of lists", lists.coef, len(lists.classes))
        check_indices("classes of lists", lists.classes, self.problem.n_outputs)
        check_finite("coefficients of lists", lists.coef)
        _check_parts("lists", lists.starts, lists.rooms, lists.end, len(lists.classes))
        check_indices("lengths of lists", lists.counts, 2**31, 1)
        own = lists.classes[lists.starts]
        if (lists.counts > lists.rooms).any() or (own != self.problem.labels).any():
            raise ValueError("a list is none of its example's")
        n_tables = len(self.frequencies)
        for array in (weights.starts, weights.bits, weights.used):
            check_shape("tables", array, n_tables)
        check_shape("weights", weights.dense, self.n_dense + 1, n_columns)
        check_shape("weights in tables", weights.values, len(weights.keys))
        check_indices("sizes of tables", weights.bits, 32, 1)
        check_indices("classes in tables", weights.keys, n_columns + 1)
        sizes = np.int64(1) << weights.bits.astype(np.int64)
        _check_parts("tables", weights.starts, sizes, weights.end, len(weights.values))
        taken = np.concatenate([[0], np.cumsum(weights.keys != n_columns)])
        if (taken[weights.starts + sizes] - taken[weights.starts] != weights.used).any():
            raise ValueError("a table holds more classes, or fewer, than it says")
        if (4 * weights.used.astype(np.int64) > 3 * sizes).any():
            raise ValueError("a table is too full")
        check_finite("weights", weights.dense)
        check_finite("weights in tables", weights.values)
        check_finite("losses", self.losses)

    def wake(self) -> None:
        """Let all examples be due again whose row, or C, is not zero."""
        self.updates[:] = 0
        self.updates[self.data.terms[:, 2] == 0.0, DUE] = np.iinfo(np.int32).max

    @property
    def dual(self) -> float:
        own = self.lists.coef[self.lists.starts]
        return float(self.problem.margins @ own) - self.penalty

    @property
    def penalty(self) -> float:
        """The regulariser at the weights."""
        return 0.5 * float(squared_norm(self.weights))

    @property
    def expected(self) -> float:
        """Objective if every example had the loss of its last oracle call."""
        return self.penalty + float(self.losses.sum())

    @property
    def n_listed(self) -> int:
        """Length of all lists together."""
        return int(self.lists.counts.sum())

    def point(self) -> sp.csr_array:
        """The dual coefficients, of shape (n_samples, n_classes)."""
        indptr = np.concatenate([[0], np.cumsum(self.lists.counts, dtype=np.int64)])
        classes, coef = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1])
        copy_lists(self.lists, indptr, classes, coef)
        shape = self.problem.n_samples, self.problem.n_outputs
        point = sp.csr_array((coef, classes, indptr), shape=shape)
        point.eliminate_zeros()
        return point

    def oracle_calls(self, threshold: float, step: bool) -> Iterator[float]:
        """Call the oracle for all examples, a chunk at a time; yields what steps gain.

        Without a `step`, weights stay, and `losses` are those of the present weights.
        """
        order = self.orders[0]
        if step:
            self.wake()
            order = order[: update_order(self.updates, 0, self.random, *self.orders[1:], order)]
        else:
            order[:] = np.arange(len(order))
        size = 1 + int(CALL_LIMIT / (self.per_row * self.problem.n_outputs))
        for chunk in _chunks(order, size):
            at, gained = 0, np.zeros(1)
            while True:
                at = call_oracle(
                    self.data, chunk, at, self.problem.n_outputs, threshold, step, self.weights,
                    self.lists, self.losses, self.scores, self.violated, self.scratch, gained,
                )  # fmt: skip
                if at == len(chunk):
                    break
                self._make_room()
            yield float(gained[0])
        self.wake()

    def list_updates(self, threshold: float) -> Iterator[tuple[int, float]]:
        """Update the lists that are due, a chunk at a time; yields how many, and their gain."""
        order = self.orders[0]
        count = update_order(self.updates, self.iteration, self.random, *self.orders[1:], order)
        per_list = self.n_listed / max(1, len(order))
        for chunk in _chunks(order[:count], 1 + int(CALL_LIMIT / (self.per_row * per_list))):
            at, gained = 0, np.zeros(1)
            while True:
                at = update_lists(
                    self.data, chunk, at, threshold, self.weights, self.lists, self.updates,
                    self.iteration, self.longest_wait, self.scratch, gained,
                )  # fmt: skip
                if at == len(chunk):
                    break
                self._make_room()
            yield len(chunk), float(gained[0])
        self.iteration += 1

    def _make_room(self) -> None:
        """Make room in the pool that has none left.

        Ctrl-C may come between two assignments: routines go by the length of the last ones.
        """
        weights, lists = self.weights, self.lists
        largest = 2 << int(weights.bits.max(initial=0))
        if len(weights.values) - weights.end[0] <= largest:
            compact_tables(weights, np.argsort(weights.starts))
            wanted = int(GROWTH * weights.end[0]) + 2 * largest
            if wanted > len(weights.values):
                self.weights = weights._replace(keys=_longer(weights.keys, wanted))
                self.weights = self.weights._replace(values=_longer(weights.values, wanted))
        longest = 2 * int(lists.counts.max(initial=0)) + VIOLATED
        if len(lists.coef) - lists.end[0] <= longest:
            wanted = int(GROWTH * len(lists.coef)) + 2 * longest
            self.lists = lists._replace(classes=_longer(lists.classes, wanted))
            self.lists = self.lists._replace(coef=_longer(lists.coef, wanted))


def _listed_rows(problem: MulticlassProblem) -> tuple[ListedRows, NDArray[np.int64]]:
    """Rows with features numbered from the most frequent on, and how many rows have each."""
    X = problem.X
    frequencies = np.bincount(X.indices[: X.nnz], minlength=X.shape[1])
    by_frequency = np.argsort(-frequencies, kind="stable")
    numbers = np.empty(len(by_frequency), dtype=np.int32)
    numbers[by_frequency] = np.arange(len(by_frequency))
    parts = X.data[: X.nnz].copy(), numbers[X.indices[: X.nnz]], X.indptr
    renumbered = sp.csr_array(parts, shape=X.shape)
    renumbered.sort_indices()
    rows, curvature = measured_rows(renumbered, problem.bias)
    idle = (curvature <= 0.0) | (problem.C <= 0.0)
    inverse = np.where(idle, 0.0, 1.0 / np.where(idle, 1.0, curvature))
    terms = np.column_stack([problem.C, problem.margins, inverse])
    ends = np.zeros(problem.n_samples, dtype=np.int64)
    separate_slacks = isinstance(problem, WestonWatkins)
    counts = frequencies[by_frequency]
    return ListedRows(rows, ends, problem.labels, terms, separate_slacks), counts[counts > 0]


def _dense_ends(data: ListedRows, n_dense: int) -> NDArray[np.int64]:
    """Where the entries of features with dense weights end, in each row."""
    before = np.concatenate([[0], np.cumsum(data.rows.columns < n_dense)])
    starts = data.rows.starts
    return np.asarray(starts[:-1] + before[starts[1:]] - before[starts[:-1]], dtype=np.int64)


def _tables(frequencies: NDArray[np.int64], n_dense: int, n_columns: int) -> ClassWeights:
    """Weights of zero."""
    wanted = TABLE_PLACES * np.minimum(frequencies, n_columns)
    bits = np.ceil(np.log2(np.maximum(2, wanted))).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(np.int64(1) << bits.astype(np.int64))])
    length = int(ends[-1]) + (2 << int(bits.max(initial=0)))
    return ClassWeights(
        np.zeros((n_dense + 1, n_columns)),
        ends[:-1].copy(),
        bits,
        np.zeros(len(bits), dtype=np.int32),
        np.full(length, n_columns, dtype=np.int32),
        np.zeros(length),
        ends[-1:].copy(),
    )


def _lists(problem: MulticlassProblem, start: Any, idle: NDArray[Any]) -> ClassLists:
    """The lists of a dual point, or of zero; those of `idle` rows are optimal from the start."""
    n = problem.n_samples
    point = sp.coo_array((n, problem.n_outputs)) if start is None else problem.feasible(start)
    point = sp.coo_array(point)
    wrong = (point.col != problem.labels[point.row]) & ~np.isin(point.row, idle)
    settled = problem.settled(idle)
    examples = np.concatenate([point.row[wrong], idle[settled.row]])
    classes = np.concatenate([point.col[wrong], settled.col])
    coef = np.concatenate([point.data[wrong], settled.data])
    in_order = np.argsort(examples, kind="stable")
    examples, classes, coef = examples[in_order], classes[in_order], coef[in_order]
    counts = 1 + np.bincount(examples, minlength=n)
    rooms = np.maximum(FIRST_ROOM, counts + VIOLATED)
    ends = np.cumsum(rooms)
    starts = ends - rooms
    length = int(ends[-1]) + FIRST_ROOM
    lists = ClassLists(
        starts, counts.astype(np.int32), rooms.astype(np.int32),
        np.zeros(length, dtype=np.int32), np.zeros(length), np.array([ends[-1]]),
    )  # fmt: skip
    lists.classes[starts] = problem.labels
    lists.coef[starts] = -np.bincount(examples, weights=coef, minlength=n)
    first = np.cumsum(counts - 1) - (counts - 1)
    places = starts[examples] + 1 + np.arange(len(examples)) - first[examples]
    lists.classes[places], lists.coef[places] = classes, coef
    return lists


def _check_parts(
    name: str, starts: NDArray[Any], sizes: NDArray[Any], end: NDArray[Any], length: int
) -> None:
    """Refuse parts of a pool that overlap, or lie outside of it."""
    check_shape(f"the end of {name}", end, 1)
    check_indices(name, starts, length + 1)
    in_order = np.argsort(starts, kind="stable")
    ends = starts[in_order] + sizes[in_order].astype(np.int64)
    overlap = (ends[:-1] > starts[in_order][1:]).any()
    if overlap or not int(ends.max(initial=0)) <= int(end[0]) <= length:
        raise ValueError(f"{name} lie outside of their places")


def _chunks(order: Order, size: int) -> Iterator[Order]:
    for at in range(0, len(order), size):
        yield order[at : at + size]


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(length, dtype=array.dtype)
    longer[: len(array)] = array
    return longer

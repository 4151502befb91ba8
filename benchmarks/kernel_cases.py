"""The hot routines, each on data of a usual size, with a count of the work that cannot be avoided.

All data are made, none are read: they have the shapes of well-known sets.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.machine_limits import bandwidth, place_seconds, rate
from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import (
    add_cuts,
    add_row,
    add_row_multiple,
    add_row_scores,
    make_rows,
    padded,
    row_score,
    set_slopes,
)
from maxmargin.structures.chain.inference import marginals, viterbi
from maxmargin.structures.constituency.inference import (
    Scores,
    fill_chart,
    make_chart,
    make_rules,
    top_scores,
)

Floats = NDArray[np.float64]


class Stream(NamedTuple):
    """Bytes that must be moved, in one of the `STREAMS` of `benchmarks.machine_limits`.

    `size` is how many bytes are used again and again, which says what level of the cache counts.
    """

    what: str
    moved: float
    size: int


class Places(NamedTuple):
    """Numbers of a table that must be visited one by one, in a way of `machine_limits.PLACES`."""

    what: str
    columns: NDArray[np.uint32]
    n: int


@dataclass(frozen=True)
class Case:
    """A kernel with its data, and the least that it has to do.

    Parameters
    ----------
    name, kind : str
        What it is, and what kernels of the same kind are called: that is how its name begins.
    work : callable
        Does it once.
    operations : mapping of str to float
        How often each operation of `benchmarks.machine_limits.OPERATIONS` must be done.
    streams : sequence of Stream
        What must be moved.
    places : Places, optional
        What must be visited.
    """

    name: str
    kind: str
    work: Callable[[], Any]
    operations: Mapping[str, float]
    streams: Sequence[Stream]
    places: Places | None = None

    @property
    def shape(self) -> str:
        """The name without the kind: what data, and how large."""
        return self.name.removeprefix(f"{self.kind}, ")

    @property
    def data(self) -> str:
        """What data, short enough for a plot."""
        return re.split("[:,]", self.shape)[0]

    def repeat(self, rounds: int) -> None:
        """Do it so many times."""
        for _ in range(rounds):
            self.work()

    def limits(self) -> dict[str, float]:
        """Seconds that arithmetic, each of the streams, and the places take at least here.

        Operations of several kinds take turns in the same units, so their times add up.
        """
        found = {
            " and ".join(self.operations): sum(
                count / rate(what) for what, count in self.operations.items()
            )
        }
        for what, moved, size in self.streams:
            found[f"{level(size)} bytes {what}"] = moved / bandwidth(what, size)
        if self.places is not None:
            what, columns, n = self.places
            found[f"{level(8 * n)} places {what}"] = place_seconds(what, columns, n)
        return found


def level(size: int) -> str:
    """A size as it is named in a table."""
    return f"{size / 2**20:.1f} MB:" if size >= 2**20 else f"{size / 2**10:.0f} kB:"


# Chains: one call for many sequences of one length, as in a batch of searches.

CHAIN_SHAPES = {"letters": (26, 8), "part-of-speech tags": (45, 25), "139 tags": (139, 25)}
"""Labels and positions."""


@compiled
def all_viterbi(nodes, edges, n_labels, labels, best):  # type: ignore[no-untyped-def]
    """The best labelling of every sequence."""
    total = 0.0
    for k in range(len(nodes)):
        total += viterbi(nodes[k], edges, n_labels, labels, best)
    return total


@compiled
def all_marginals(nodes, edges, n_labels, of_nodes, of_pairs, sums):  # type: ignore[no-untyped-def]
    """Marginals of every sequence, with scores of pairs for all positions or for each."""
    total = 0.0
    for k in range(len(nodes)):
        total += marginals(nodes[k], edges, n_labels, of_nodes, of_pairs, sums)
    return total


def chain_cases() -> list[Case]:
    """Oracle calls and marginals of a few sequences at a time, so that one call stays short."""
    random = np.random.default_rng(0)
    cases: list[Case] = []
    for name, (n, length) in CHAIN_SHAPES.items():
        width = padded(n)
        sequences = max(1, 200_000 // (length * n * n))
        nodes = random.normal(size=(sequences, length, width))
        pairs = random.normal(size=(n, width))
        edges = random.normal(size=(length - 1, n, width))
        labels, best = np.zeros(length, dtype=np.int64), np.zeros((length, width))
        out = np.zeros_like(best), np.zeros_like(edges), np.zeros_like(best)
        steps = sequences * (length - 1)
        of_pairs = 8.0 * steps * n * n
        shape = f"{name}: {n} labels, {length} positions"
        cases += [
            Case(
                f"Viterbi, {shape}",
                "Viterbi",
                lambda a=(nodes, pairs[None], n, labels, best): all_viterbi(*a),  # type: ignore[misc]
                {"additions with maximum": steps * (n * n + n)},
                [Stream("read", of_pairs, pairs.nbytes)],
            ),
            Case(
                f"forward-backward, {shape}",
                "forward-backward",
                lambda a=(nodes, pairs[None], n, *out): all_marginals(*a),  # type: ignore[misc]
                {"multiply-adds": 3.0 * steps * n * n, "exponentials": 1.0 * sequences * n * n},
                [
                    Stream("written", of_pairs, edges.nbytes),
                    Stream("read", 2 * of_pairs, pairs.nbytes),
                ],
            ),
            Case(
                f"forward-backward, own pairs at each position, {shape}",
                "forward-backward, own pairs at each position",
                lambda a=(nodes, edges, n, *out): all_marginals(*a),  # type: ignore[misc]
                {
                    "exponentials": 1.0 * steps * n * n,
                    "additions with maximum": 1.0 * steps * n * n,
                    "multiply-adds": 2.0 * steps * n * n,
                },
                [Stream("read", 3 * of_pairs, 2 * edges.nbytes)],
            ),
        ]
    return cases


# Grammars


def grammar_case(length: int, n_complete: int = 60, n_parts: int = 300) -> Case:
    """A chart of a random grammar of about the size of one that is read off a treebank.

    As there, a few symbols are in many rules and most in few, every part has few left children,
    and a word has one tag.
    """
    random = np.random.default_rng(0)
    n_symbols = n_complete + n_parts
    often = 1.0 / np.arange(1, n_complete + 1)
    often /= often.sum()
    children = random.permutation(n_complete)
    rules = []
    for part in range(n_complete, n_symbols):
        parent, first = children[random.choice(n_complete, 2, p=often)]
        rights = children[random.choice(n_complete, 6, p=often)]
        rules += [(parent, part, right) for right in rights]
        rules += [(part, first, right) for right in rights]
    rules += [tuple(children[random.choice(n_complete, 3, p=often)]) for _ in range(600)]
    drawn = np.unique(np.array(rules), axis=0)
    binary = drawn[np.lexsort((drawn[:, 0], drawn[:, 2], drawn[:, 1]))]
    units = np.repeat(np.arange(n_complete)[:, None], 2, axis=1)
    made = make_rules(n_complete, n_symbols, binary, units)
    scores = Scores(
        random.normal(size=made.n_rules), np.zeros((1, len(units))), np.zeros(n_complete)
    )
    leaves = np.full((length, n_complete), -np.inf)
    leaves[np.arange(length), children[random.choice(n_complete, length, p=often)]] = 0.0
    chart = make_chart(length, made)
    fill_chart(made, scores, leaves, chart)
    meetings, applied = meetings_of(made, chart, length)
    return Case(
        f"CKY, {length} words, {n_symbols} symbols, {made.n_rules} rules",
        "CKY",
        lambda: fill_chart(made, scores, leaves, chart),
        {"additions with maximum": float(meetings + len(applied))},
        [Stream("read", 16.0 * meetings, 8 * length * len(made.right_symbols))],
        Places("scattered", made.parents[applied], n_symbols),
    )


def meetings_of(rules: Any, chart: Any, length: int) -> tuple[int, NDArray[np.int64]]:
    """What a chart cannot do without.

    How many pairs of neighbouring spans there are that both have a score, for the pair of
    right-hand symbols of some rules; and these rules, once for each span that two such make.
    """
    sizes = np.diff(rules.left_groups).astype(np.int64)
    lefts = np.repeat(np.arange(rules.n_symbols), sizes)
    group_of_rule = np.repeat(np.arange(len(lefts)), np.diff(rules.group_rules).astype(np.int64))
    count, applied = 0, []
    symbols = np.arange(rules.n_symbols)[:, None]
    for start in range(length):
        for stop in range(start + 2, length + 1):
            splits = np.arange(start + 1, stop)
            of_lefts = top_scores(chart, start, splits, symbols, length) > -np.inf
            of_rights = top_scores(chart, splits, stop, symbols, length) > -np.inf
            both = of_lefts[lefts] & of_rights[rules.group_rights]
            count += int(both.sum())
            applied.append(np.flatnonzero(both.any(axis=1)[group_of_rule]))
    return count, np.concatenate(applied)


# Rows


@compiled
def all_scores(rows, weights, out):  # type: ignore[no-untyped-def]
    """``out[i] = x_i' weights`` for one weight vector."""
    for i in range(len(out)):
        out[i] = row_score(rows, i, weights)


@compiled
def add_all(rows, changes, weights):  # type: ignore[no-untyped-def]
    """``weights += change_i x_i`` for one weight vector, row after row."""
    for i in range(len(changes)):
        add_row(rows, i, changes[i], weights)


@compiled
def all_class_scores(rows, weights, out):  # type: ignore[no-untyped-def]
    """``out[i] = x_i' weights`` for all classes."""
    for i in range(len(out)):
        for m in range(out.shape[1]):
            out[i, m] = 0.0
        add_row_scores(rows, i, weights, out[i])


@compiled
def add_all_classes(rows, changes, weights):  # type: ignore[no-untyped-def]
    """``weights += x_i change_i'`` for all classes, row after row."""
    for i in range(len(changes)):
        add_row_multiple(rows, i, changes[i], weights)


ROW_SHAPES = {
    "like a9a": (32_000, 123, 14, 2),
    "like Covertype": (60_000, 54, 12, 7),
    "like MNIST": (6_000, 784, 150, 10),
    "like 20 Newsgroups": (16_000, 62_000, 80, 20),
}
"""Examples, features, features of an example, classes."""


def rows_of(n: int, d: int, each: int) -> Any:
    """Sparse rows whose columns are drawn as words are: a few are in most rows."""
    random = np.random.default_rng(0)
    columns = np.floor(d ** random.random((n, each))).astype(np.int32) - 1
    columns = random.permutation(d).astype(np.int32)[np.sort(columns, axis=1)]
    starts = np.arange(n + 1, dtype=np.int32) * each
    matrix = sp.csr_matrix((random.normal(size=n * each), columns.ravel(), starts), shape=(n, d))
    return matrix


def row_cases(share: float) -> list[Case]:
    """Products with rows and sums of them: one weight vector, and one for each class."""
    cases: list[Case] = []
    for name, (n, d, each, n_classes) in ROW_SHAPES.items():
        n = max(1, int(share * n))
        X = rows_of(n, d, each)
        make = _one_vector if n_classes == 2 else _many_vectors
        cases += make(f"{name}: {each} of {d} features", X, n_classes)
    return cases


def _one_vector(shape: str, X: Any, _: int) -> list[Case]:
    rows, entries = make_rows(X, 0.0), X.nnz
    weights, out, changes = np.zeros(X.shape[1] + 1), np.zeros(X.shape[0]), np.ones(X.shape[0])
    planes = rows.starts, rows.columns, rows.values
    of_rows = Stream("read", 12.0 * entries, X.data.nbytes + X.indices.nbytes)
    arithmetic = {"multiply-adds": 1.0 * entries}
    read = Stream("read", 8.0 * entries, weights.nbytes)
    updated = Stream("written", 8.0 * entries, weights.nbytes)
    gathered, scattered = (
        Places(what, rows.columns, len(weights)) for what in ("gathered", "scattered")
    )
    works: dict[str, tuple[Callable[[], Any], Stream, Places]] = {
        "sparse dot": (lambda: all_scores(rows, weights, out), read, gathered),
        "sparse axpy": (lambda: add_all(rows, changes, weights), updated, scattered),
        "dot of cutting planes": (lambda: set_slopes(*planes, out, weights, out), read, gathered),
        "axpy of cutting planes": (lambda: add_cuts(*planes, changes, weights), updated, scattered),
    }
    return [
        Case(
            f"{what}, {shape}",
            what,
            work,
            arithmetic,
            [of_rows, stream],
            places,
        )
        for what, (work, stream, places) in works.items()
    ]


def _many_vectors(shape: str, X: Any, n_classes: int) -> list[Case]:
    rows, entries = make_rows(X, 0.0), X.nnz
    width = padded(n_classes)
    table, scores = np.zeros((X.shape[1] + 1, width)), np.zeros((X.shape[0], width))
    of_rows = Stream("read", 12.0 * entries, X.data.nbytes + X.indices.nbytes)
    arithmetic = {"multiply-adds": 1.0 * entries * n_classes}
    moved = 8.0 * n_classes * entries
    return [
        Case(
            f"sparse dot, {shape}, {n_classes} classes",
            "sparse dot",
            lambda: all_class_scores(rows, table, scores),
            arithmetic,
            [of_rows, Stream("read", moved, table.nbytes)],
        ),
        Case(
            f"sparse axpy, {shape}, {n_classes} classes",
            "sparse axpy",
            lambda: add_all_classes(rows, scores, table),
            arithmetic,
            [of_rows, Stream("updated", 2.0 * moved, table.nbytes)],
        ),
    ]

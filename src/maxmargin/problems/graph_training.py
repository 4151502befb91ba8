"""Labelled graphs as solvers see them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.conforming import check_indices
from maxmargin.dual.planes import Planes
from maxmargin.engines.threads import Threads
from maxmargin.inference.relaxation import Effort
from maxmargin.problems.distributions import distributions_of
from maxmargin.problems.distributions.contract import Distributions
from maxmargin.problems.distributions.graphs import GraphDistributions
from maxmargin.problems.graph_kernels import fill_planes, measure_planes
from maxmargin.problems.graph_search import GraphSearch, Truth
from maxmargin.problems.graphs import GraphLayout, Graphs
from maxmargin.problems.structured import Hinges, TrainingSet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

QUICK = Effort(passes=10, enough=1e-4, progress=0.5)
"""Relaxed searches while training. They go on where the last one of a graph ended, so that the
bounds become tight as the weights settle."""

THOROUGH = Effort(passes=30, enough=1e-4, progress=0.1)
"""Relaxed searches when the weights have settled, and for the certificate."""

UNCERTAIN = 5.0
"""Times what is enough, excess of all bounds that calls for thorough searches."""

MOST_OUTPUTS = 4096
"""Labellings of a graph up to which they can be listed."""


class GraphTrainingSet(TrainingSet):
    """Labelled graphs with compiled searches.

    Parameters
    ----------
    graphs : Graphs
    labels : ndarray of shape (n_nodes_of_all,)
        True label of each node, as numbers.
    layout : GraphLayout
    cost : ndarray of shape (n_graphs,)
    loss : ndarray of shape (n_labels, n_labels)
        ``loss[a, b]``: what label b costs where a is right, at one node.
    scales : ndarray of shape (n_nodes_of_all,)
        Factor of the loss of each node.
    inference : {"auto", "exact", "relaxed", "flow"}
        See `GraphSearch`.
    enough : float
        Excess of the bound of a relaxed search that is good enough, in parts of the hinge.
    quick : bool
        Whether relaxed searches may be quick until the weights have settled.

    Attributes
    ----------
    relaxed : bool
        Whether a graph may be searched other than exactly.
    """

    def __init__(
        self,
        graphs: Graphs,
        labels: NDArray[Any],
        layout: GraphLayout,
        cost: Floats,
        loss: Floats,
        scales: Floats,
        *,
        inference: str = "auto",
        enough: float = 1e-4,
        quick: bool = True,
    ) -> None:
        self.graphs, self.layout, self.cost = graphs, layout, cost
        self.n_features = layout.n_rows * layout.n_columns
        padded_loss = np.zeros((layout.n_labels, layout.n_columns))
        padded_loss[:, : layout.n_labels] = loss
        truth = Truth(labels.astype(np.uint16), padded_loss, scales)
        self.enough, self._quick = float(enough), quick
        self.searches = GraphSearch(graphs, layout, inference, truth)
        self.relaxed = not self.searches.is_exact.all()

    @property
    def search_work(self) -> float:
        return self.searches.work

    @property
    def search_state(self) -> Any:
        return self._quick, self.searches.messages

    @search_state.setter
    def search_state(self, state: Any) -> None:
        self._quick, self.searches.messages = state

    def planes(self, weights: Floats, blocks: Ints, threads: Threads) -> Planes:
        effort = (QUICK if self._quick else THOROUGH)._replace(enough=self.enough)
        found = self.searches.find(weights, blocks, threads, effort, self._quick)
        planes = self._make_planes(blocks, found.starts, found.labels, threads)
        if not self.relaxed:
            return planes
        return planes._replace(excess=np.maximum(found.bounds - found.scores, 0.0))

    def hinges(self, planes: Planes, weights: Floats, blocks: Ints) -> Hinges:
        found = super().hinges(planes, weights, blocks)
        if self._quick and found.most - found.least > UNCERTAIN * self.enough * found.least:
            # Nearly trained, as far as quick searches can tell: from now on by thorough ones.
            self._quick = False
            planes = self.planes(weights, blocks, Threads(1))
            found = super().hinges(planes, weights, blocks)
        return found

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> Hinges:
        self._quick = False
        return super().all_hinges(weights, threads)

    def planes_of(self, blocks: Ints, outputs: Sequence[bytes]) -> Planes:
        # Writable, as found labels are: numba would compile the kernels again for one that is not.
        labels = np.frombuffer(bytearray().join(outputs), dtype=np.uint16)
        starts = self.graphs.starts(blocks)
        if [len(output) for output in outputs] != (2 * np.diff(starts)).tolist():
            raise ValueError("The outputs are of other sizes than the graphs.")
        check_indices("labels of outputs", labels, self.layout.n_labels)
        return self._make_planes(blocks, starts, labels, Threads(1))

    def outputs(self, i: int) -> list[bytes]:
        """All labellings of graph `i`, as solvers know them.

        Raises
        ------
        ValueError
            If they are more than `MOST_OUTPUTS`.
        """
        k, n = self.layout.n_labels, int(self.graphs.n_nodes[i])
        if k**n > MOST_OUTPUTS:
            raise ValueError(
                f"Graph {i} has {n} nodes and so {k}**{n} labellings, but solvers that need all of "
                f"them can have {MOST_OUTPUTS} at most: use another, such as 'auto'."
            )
        numbers = np.arange(k**n)[:, None] // k ** np.arange(n) % k
        return [labels.tobytes() for labels in numbers.astype(np.uint16)]

    def _make_planes(
        self, blocks: Ints, starts: Ints, found: NDArray[np.uint16], threads: Threads
    ) -> Planes:
        data = self.searches.data
        counts = np.zeros(len(blocks) + 1, dtype=np.int64)
        losses = np.empty(len(blocks))

        def make(part: slice) -> tuple[NDArray[np.uint32], Floats]:
            some, own = blocks[part], starts[part.start :]
            room = measure_planes(data, some, own, found, losses[part])
            columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
            sums, met = np.zeros(self.n_features), np.zeros(self.n_features, dtype=np.uint8)
            used = fill_planes(
                data, some, own, found, counts[part.start + 1 :], columns, values, sums, met
            )
            return columns[:used], values[:used]

        parts = threads.shares(len(blocks), self.searches.work)
        made = threads.map(make, parts) or [(np.zeros(0, dtype=np.uint32), np.zeros(0))]
        columns, values = (np.concatenate(pieces) for pieces in zip(*made, strict=True))
        raw = found.tobytes()
        outputs = [raw[2 * a : 2 * b] for a, b in pairwise(starts.tolist())]
        return Planes(np.cumsum(counts), columns, values, losses, outputs)


@distributions_of.register
def _(training: GraphTrainingSet, temperature: float) -> Distributions:
    """Marginals of the cliques, so for graphs that are searched exactly."""
    return GraphDistributions(training, temperature)

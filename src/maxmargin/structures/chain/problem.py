"""Chains as a `Problem`, and inference with trained weights.

`HiddenChains` is a chain over states, number ``a * n_states + s`` for state ``s`` of label ``a``,
where only a wrong label costs. Latent imputation forbids the states of other labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import as_matrix, locked
from maxmargin.core.arrays import Floats, Order, check_indices
from maxmargin.core.inputs import stack
from maxmargin.core.latent import LatentOracle, LatentProblem
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import Problem
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.structures.chain.inference import k_best, marginals, marginals2
from maxmargin.structures.chain.oracle import (
    ChainData,
    ChainOracle,
    Layout,
    Sequences,
    infer_labels,
    label_sequences,
    set_node_scores,
)

States = NDArray[np.int64]

IMPOSSIBLE = -1e200
"""Below every score of labels; pairs that do not fit together score twice that."""


class ChainModel:
    """A weight table ``(n_rows, n_columns)``, and inference with it."""

    def __init__(self, table: Floats, layout: Layout) -> None:
        self.table, self.layout = locked(table), layout

    def inference(
        self, sequences: Sequences, threads: Threads
    ) -> tuple[NDArray[np.uint16], Floats]:
        """Best labels of all positions, and the score of each sequence."""
        ends = sequences.ends
        labels, scores = np.empty(int(ends[-1]), np.uint16), np.zeros(len(ends) - 1)
        if threads.n_threads == 1:
            self._infer(sequences, ends, labels, scores)
            return labels, scores

        def infer(part: slice) -> None:
            self._infer(sequences, ends[part.start : part.stop + 1], labels, scores[part])

        threads.map(infer, threads.shares(len(scores)))
        return labels, scores

    def _infer(self, sequences: Sequences, ends: Order, labels: Any, scores: Floats) -> None:
        """Set labels and scores of neighbouring sequences, which begin and end at `ends`."""
        layout, longest = self.layout, sequences.longest
        if layout.triples < 0 and layout.tied < 0:
            scratch = np.empty((2, longest, layout.n_columns))
            label_sequences(sequences.rows, ends, self.table, layout, labels, scores, scratch)
        else:
            data = ChainData.unlabelled(sequences, layout)._replace(ends=ends)
            where = np.arange(len(scores)), ends, labels
            scores[:] = infer_labels(longest, data, self.table, *where)

    def node_scores(self, sequences: Sequences) -> list[Floats]:
        """Scores of labels without transitions, ``(length, n_columns)`` for each sequence."""
        nodes = np.empty((int(sequences.ends[-1]), self.layout.n_columns))
        score_nodes(ChainData.unlabelled(sequences, self.layout), self.table, nodes)
        return np.split(nodes, sequences.ends[1:-1])

    def marginals(self, sequences: Sequences, temperature: float) -> list[Floats]:
        """Marginals of labels by ``exp(score / temperature)``."""
        layout = self.layout
        n, width = layout.n_labels, layout.n_columns
        found = []
        for i, scores in enumerate(self.node_scores(sequences)):
            length = len(scores)
            answer = np.zeros((length, width))
            between = np.empty((max(length - 1, 0), n, width))
            edges = self._edges(sequences, i, temperature)
            if length and layout.triples < 0:
                sums = np.empty((max(length - 1, 1), width))
                marginals(scores / temperature, edges, n, answer, between, sums)
            elif length:
                triples = self._part(layout.triples, n * n) / temperature
                among = np.empty((max(length - 2, 0), n * n, width))
                deep = np.empty((max(length - 2, 1), n, width))
                marginals2(scores / temperature, edges[0], triples, n, answer, between, among, deep)
            found.append(answer[:, :n])
        return found

    def k_best(self, sequences: Sequences, k: int) -> list[tuple[NDArray[np.uint16], Floats]]:
        """The k best labellings of each sequence, best first, and their scores."""
        n = self.layout.n_labels
        joined = self._joined_pairs() if self.layout.triples >= 0 else None
        found = []
        for i, scores in enumerate(self.node_scores(sequences)):
            edges = self._edges(sequences, i)
            if joined is not None and len(scores) > 1:
                # A chain of pairs of labels, each beginning with what the one before ends with.
                both = scores[1:, None, :n] + edges[:, :, :n]
                both[0] += scores[0, :n, None]
                labels, totals = _top(both.reshape(-1, n * n), joined, n * n, k)
                labels = np.concatenate([labels[:, :1] // n, labels % n], axis=1)
                labels, totals = labels[totals > IMPOSSIBLE], totals[totals > IMPOSSIBLE]
            else:
                labels, totals = _top(scores, edges, n, k)
            found.append((labels, totals))
        return found

    def _joined_pairs(self) -> Floats:
        """Second-order scores as pair scores of a chain over pairs of labels."""
        n = self.layout.n_labels
        triples = self._part(self.layout.triples, n * n)[:, :n].reshape(n, n, n)
        joined = np.full((n, n, n, n), 2.0 * IMPOSSIBLE)
        middle = np.arange(n)
        joined[:, middle, middle, :] = triples
        return joined.reshape(1, n * n, n * n)

    def _edges(self, sequences: Sequences, i: int, temperature: float = 1.0) -> Any:
        """Pair scores over the temperature, as `viterbi` takes them, of sequence `i`."""
        layout = self.layout
        edges = self._part(layout.transitions, layout.n_labels)[None] / temperature
        if layout.tied < 0 or sequences.lengths[i] < 2:
            return edges
        features = as_matrix(sequences.tied_rows, layout.n_tied)
        rows = features[sequences.ends[i] + 1 : sequences.ends[i + 1]]
        weights = self.table[layout.tied :].reshape(layout.n_tied, -1)
        return edges + (rows @ weights).reshape(rows.shape[0], *edges.shape[1:]) / temperature

    def _part(self, start: int, n_rows: int) -> Any:
        return self.table[start : start + n_rows]


@registered("Chain")
class Chain(Remade, Problem):
    """A label for each row of a matrix, as a problem for `StructuredSVM`.

    Inputs are matrices with one row for each position, outputs integer arrays with the label of
    each, from 0 to ``n_labels - 1``. The score has emissions, transitions, and biases of labels, of
    the first and of the last position; the loss is the number of wrong labels.

    Parameters
    ----------
    n_labels : int
    n_features : int
    order : {1, 2}, default=1
        2 adds transitions from a pair of labels to the next label.
    fit_intercept : bool, default=True
        A bias for each label.
    fit_ends : bool, default=True
        Biases of the labels of the first and of the last position.

    See Also
    --------
    maxmargin.SequenceTagger : The estimator, with labels of any kind, and more.
    maxmargin.structures.HiddenChains : With latent states.

    Notes
    -----
    Loss-augmented inference is exact, by dynamic programming (Viterbi); so is slack-rescaled
    inference, which chains of order 2 do not have.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> X = [np.array([[1.0], [0.9], [-0.2]]), np.array([[-1.0], [-0.8]])]
    >>> Y = [[1, 1, 0], [0, 0]]
    >>> model = mm.StructuredSVM(mm.structures.Chain(n_labels=2, n_features=1), C=10.0).fit(X, Y)
    >>> [labels.tolist() for labels in model.predict(X)]
    [[1, 1, 0], [0, 0]]
    """

    def __init__(
        self,
        n_labels: int,
        n_features: int,
        *,
        order: int = 1,
        fit_intercept: bool = True,
        fit_ends: bool = True,
    ) -> None:
        if n_labels < 1 or n_features < 0 or order not in (1, 2):
            raise ValueError("A chain has at least one label, and its order is 1 or 2.")
        self.n_labels, self.n_features, self.order = n_labels, n_features, order
        self.fit_intercept, self.fit_ends = bool(fit_intercept), bool(fit_ends)
        self.layout = Layout.of(
            n_features, n_labels, bias=fit_intercept, ends=fit_ends, order=order
        )
        if order == 2:  # then several calls of loss-augmented inference do
            self.slack_rescaled_inference = None  # type: ignore[assignment, method-assign]

    def joint_feature(self, x: Any, y: Any) -> Floats:
        layout, labels = self.layout, np.asarray(y, dtype=np.int64)
        table = np.zeros((layout.n_rows, layout.n_columns))
        if len(labels):
            np.add.at(table[: layout.n_features].T, labels, self.sequences([x]).dense)
            np.add.at(table, (layout.transitions + labels[:-1], labels[1:]), 1.0)
            if layout.bias >= 0:
                np.add.at(table[layout.bias], labels, 1.0)
            if layout.first >= 0:
                table[layout.first, labels[0]] += 1.0
                table[layout.last, labels[-1]] += 1.0
            if layout.triples >= 0:
                pairs = layout.triples + labels[:-2] * layout.n_labels + labels[1:-1]
                np.add.at(table, (pairs, labels[2:]), 1.0)
        return table.ravel()

    def loss(self, y_true: Any, y: Any) -> float:
        return float(np.sum(np.asarray(y_true) != np.asarray(y)))

    def inference(self, x: Any, w: Floats) -> NDArray[np.int64]:
        return self._model(w).inference(self.sequences([x]), Threads(1))[0].astype(np.int64)

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> NDArray[np.int64]:
        return self._augmented(x, y_true, w, "margin")

    def slack_rescaled_inference(self, x: Any, y_true: Any, w: Floats) -> NDArray[np.int64]:
        """The labels with the largest ``loss * (1 + score - score of y_true)``."""
        return self._augmented(x, y_true, w, "slack")

    def k_best(self, x: Any, w: Floats, k: int) -> list[NDArray[np.int64]]:
        """The k labellings of the highest scores, best first."""
        (labels, _), *_ = self._model(w).k_best(self.sequences([x]), k)
        return list(labels.astype(np.int64))

    def marginals(self, x: Any, w: Floats, temperature: float = 1.0) -> Floats:
        """Marginal probabilities of the labels of each position, ``(n_positions, n_labels)``."""
        return self._model(w).marginals(self.sequences([x]), temperature)[0]

    def make_oracle(
        self, X: Sequence[Any], Y: Sequence[Any], C: Floats, rescaling: str = "margin"
    ) -> ChainOracle:
        """The oracle with compiled inference."""
        labels = [self.checked(i, x, y) for i, (x, y) in enumerate(zip(X, Y, strict=True))]
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *labels])
        mistakes = 1.0 - np.eye(self.layout.n_labels)
        slack = rescaling == "slack"
        return ChainOracle(self.sequences(X), flat, self.layout, C, mistakes, slack=slack)

    def sequences(self, X: Sequence[Any]) -> Sequences:
        """The inputs concatenated."""
        return Sequences.of(*stack(X, None, self.layout.n_features))

    def checked(self, i: int, x: Any, y: Any) -> NDArray[np.int64]:
        """The labels of sequence `i`; ValueError if they are not one for each position."""
        labels, length, n = np.asarray(y), int(self.sequences([x]).ends[-1]), self.layout.n_labels
        if labels.shape != (length,) or not np.isin(labels, np.arange(n)).all():
            raise ValueError(
                f"Sequence {i} has {length} positions: give each a label from 0 to {n - 1}."
            )
        return labels.astype(np.int64)

    def _model(self, w: Floats) -> ChainModel:
        return ChainModel(self.layout.table(np.ascontiguousarray(w)), self.layout)

    def _augmented(self, x: Any, y_true: Any, w: Floats, rescaling: str) -> NDArray[np.int64]:
        oracle = self.make_oracle([x], [y_true], np.ones(1), rescaling)
        found = oracle.separate(np.array(w), np.zeros(1, dtype=np.int64), Threads(1)).outputs[0]
        return np.frombuffer(found, dtype=np.uint16).astype(np.int64)


def _top(nodes: Floats, edges: Floats, n: int, k: int) -> tuple[NDArray[np.uint16], Floats]:
    """Labels and scores of the k best labellings; the empty sequence has one."""
    length, width = nodes.shape
    labels = np.empty((k, length), dtype=np.uint16)
    totals = np.zeros(k)
    count = 1
    if length:
        count = k_best(
            nodes, edges, n, k, labels, totals,
            np.empty((length + 1, k, width)), np.empty((length + 1, k, width), np.int32),
            np.empty(width), np.empty(width, np.int32),
        )  # fmt: skip
    return labels[:count], totals[:count]


@compiled
def score_nodes(data, table, nodes):  # type: ignore[no-untyped-def]
    """Node scores of all sequences."""
    ends = data.ends
    for i in range(len(ends) - 1):
        if ends[i + 1] > ends[i]:
            here = nodes[ends[i] : ends[i + 1]]
            set_node_scores(data.rows, ends[i], ends[i + 1], table, data.layout, here)


_ROUNDING = 1e-9


@registered("HiddenChains")
class HiddenChains(Remade, LatentProblem):
    """A label for each row of a matrix, each with one of a few hidden states.

    Outputs are arrays of labels, latent variables arrays of states, one number a row. The score has
    emissions, biases and transitions of states, and of those at both ends; the loss is the number
    of wrong labels.

    Parameters
    ----------
    n_features : int
    n_labels : int
    n_states : int
        Of each label.

    See Also
    --------
    maxmargin.LatentStructuredSVM
    maxmargin.SequenceTagger : Without hidden states.

    Examples
    --------
    Label 1 stands on either side of label 0:

    >>> import numpy as np
    >>> from maxmargin.estimators.latent import LatentStructuredSVM
    >>> from maxmargin.structures.chain.problem import HiddenChains
    >>> X = [np.array([[2.0], [0.1]]), np.array([[-2.0], [0.0], [2.1]]), np.array([[-0.1], [-1.9]])]
    >>> Y = [[1, 0], [1, 0, 1], [0, 1]]
    >>> model = LatentStructuredSVM(HiddenChains(1, 2, 2), C=10.0, restarts=3).fit(X, Y)
    >>> [labels.tolist() for labels in model.predict(X)]
    [[1, 0], [1, 0, 1], [0, 1]]
    """

    def __init__(self, n_features: int, n_labels: int, n_states: int) -> None:
        self.n_features, self.n_labels, self.n_states = n_features, n_labels, n_states
        self.chain = Chain(n_labels * n_states, n_features)
        self.layout = self.chain.layout

    def joint_feature(self, x: Any, y: Any, h: Any) -> Floats:
        return self.chain.joint_feature(x, self.numbers(y, h))

    def loss(self, y_true: Any, y: Any) -> float:
        return self.chain.loss(y_true, y)

    def inference(self, x: Any, w: Floats) -> tuple[Any, Any]:
        return self.split(self.chain.inference(x, w))

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> tuple[Any, Any]:
        imputed = self._bound(x, y_true).imputed([np.zeros(len(y_true), dtype=np.int64)])
        cuts = imputed.separate(w, np.zeros(1, dtype=np.int64), Threads(1))
        return self.split(np.frombuffer(cuts.outputs[0], dtype=np.uint16))

    def latent(self, x: Any, y_true: Any, w: Floats) -> States:
        start = [np.zeros(len(y_true), dtype=np.int64)]
        return self._bound(x, y_true).impute(w, start, Threads(1))[0]

    def init_latent(self, x: Any, y_true: Any, random: np.random.Generator) -> States:
        return random.integers(self.n_states, size=len(y_true))

    def make_oracle(self, X: Sequence[Any], Y: Sequence[Any], C: Floats) -> "HiddenChainOracle":
        """The oracle with compiled inference."""
        of_labels = Chain(self.n_labels, self.layout.n_features)
        labels = [of_labels.checked(i, x, y) for i, (x, y) in enumerate(zip(X, Y, strict=True))]
        return HiddenChainOracle(self, self.chain.sequences(X), labels, C)

    def numbers(self, y: Any, h: Any) -> States:
        """Labels and states as one number for each position."""
        return np.asarray(y, dtype=np.int64) * self.n_states + np.asarray(h, dtype=np.int64)

    def split(self, numbers: NDArray[Any]) -> tuple[States, States]:
        """Labels and states of `numbers`."""
        y, h = np.divmod(numbers.astype(np.int64), self.n_states)
        return y, h

    def _bound(self, x: Any, y_true: Any) -> "HiddenChainOracle":
        return self.make_oracle([x], [y_true], np.ones(1))


class HiddenChainOracle(LatentOracle):
    """Labelled sequences; latent imputations are lists of arrays of states."""

    def __init__(
        self, problem: HiddenChains, sequences: Sequences, labels: list[States], C: Floats
    ) -> None:
        self.problem, self.sequences, self.labels, self.C = problem, sequences, labels, C
        of_state = np.arange(problem.layout.n_labels) // problem.n_states
        self._wrong = of_state[:, None] != of_state

    def init_latent(self, random: np.random.Generator) -> list[States]:
        # The best at random weights: the same features then have the same state everywhere, as
        # they will have in the end. States drawn at random for each position would have none of it.
        weights = random.normal(size=self.problem.layout.n_rows * self.problem.layout.n_columns)
        return self.impute(weights, [np.zeros_like(y) for y in self.labels], Threads(1))

    def impute(self, weights: Floats, before: list[States], threads: Threads) -> list[States]:
        chains = self._chains(before, np.where(self._wrong, -np.inf, 0.0))
        found = chains.separate(weights, np.arange(len(before), dtype=np.int64), threads)
        # The slope of the cut is how much better the found states are than those before.
        better = found.slopes(weights) > _ROUNDING
        return [
            self.problem.split(np.frombuffer(output, dtype=np.uint16))[1] if is_better else states
            for output, states, is_better in zip(found.outputs, before, better, strict=True)
        ]

    def imputed(self, imputations: list[States]) -> ChainOracle:
        return self._chains(imputations, self._wrong.astype(np.float64))

    def changes(self, before: list[States], after: list[States]) -> NDArray[np.bool_]:
        return np.array([not np.array_equal(a, b) for a, b in zip(before, after, strict=True)])

    def _chains(self, states: list[States], loss: Floats) -> ChainOracle:
        numbers = map(self.problem.numbers, self.labels, states)
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
        check_indices("states", flat, self.problem.layout.n_labels)
        return ChainOracle(self.sequences, flat, self.problem.layout, self.C, loss)

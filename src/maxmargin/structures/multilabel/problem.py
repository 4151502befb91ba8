"""Label sets: a weight vector for each label, a table of four weights for each edge.

Label l adds ``<w_l, x>`` and its intercept when it is on; edge ``{a, b}`` adds ``table[y_a, y_b]``:
four weights, not one, so that on and off are regularised alike.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.arrays import Floats, check_indices
from maxmargin.core.registry import registered
from maxmargin.structures.multilabel.inference import LOSSES, MOST_LABELS, LabelGraph, count_loss
from maxmargin.structures.rows.oracle import Codes, RowProblem, as_row

_MOST_STORED = 1 << 20
"""Labels of a problem in a file, where nothing but a number says how many there are."""


@registered("LabelSets")
class LabelSets(RowProblem):
    """Which of some labels are on, as an array of zeros and ones.

    Parameters
    ----------
    n_features : int
        Features of an input.
    n_labels : int
    edges : array-like of shape (n_edges, 2), default=()
        Pairs of labels with pairwise potentials.
    loss : {"hamming", "f1", "zero-one"}, default="hamming"
        Number of wrong labels; 1 - F1 of the two sets, 0 if both are empty; one for any mistake.
    fit_intercept : bool, default=True
        An intercept for each label.

    See Also
    --------
    maxmargin.MultilabelClassifier : The estimator.

    Examples
    --------
    >>> import maxmargin as mm
    >>> X, Y = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1, 0], [0, 1], [1, 1]]
    >>> problem = mm.structures.LabelSets(2, 2, edges=[(0, 1)])
    >>> model = mm.StructuredSVM(problem, C=10.0).fit(X, Y)
    >>> [y.tolist() for y in model.predict(X)]
    [[1, 0], [0, 1], [1, 1]]
    """

    n_values = 2

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        edges: ArrayLike = (),
        loss: str = "hamming",
        fit_intercept: bool = True,
    ) -> None:
        self.graph = LabelGraph(n_labels, edges)
        self.loss_name, self.code_width = loss, n_labels
        n_extras = 4 * len(self.graph.edges)
        super().__init__(n_features, n_labels, n_extras, fit_intercept)

    def parts(self) -> dict[str, Any]:
        return {
            "n_features": self.n_inputs,
            "n_labels": self.code_width,
            "edges": self.graph.edges,
            "loss": self.loss_name,
            "fit_intercept": self.fit_intercept,
        }

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        if not 0 <= parts["n_labels"] <= _MOST_STORED:
            raise ValueError("no file can say that there are so many labels")
        if np.size(parts["edges"]):
            check_indices("edges", np.asarray(parts["edges"]), parts["n_labels"])
        return super().remade(**parts)

    def output(self, code: Codes) -> Codes:
        return code

    def factors(self, codes: Codes) -> Codes:
        return codes

    def extras(self, codes: Codes) -> Codes:
        a, b = self.graph.edges.T
        which = 2 * codes[:, a] + codes[:, b]
        chosen = which[:, :, None] == np.arange(4, dtype=np.int32)
        return np.asarray(chosen.reshape(len(codes), -1), dtype=np.int32)

    def losses(self, y_true: Codes, codes: Codes) -> Floats:
        right = (y_true & codes).sum(axis=1)
        wrong = codes.sum(axis=1) - right
        loss = LOSSES.index(self.loss_name)
        return np.asarray(count_loss(loss, y_true.sum(axis=1), right, wrong), dtype=np.float64)

    def infer(
        self, scores: Floats, extras: Floats, y_true: Codes | None = None, slack: bool = False
    ) -> Codes:
        gains, bonus = self.reduced(scores, extras)
        if y_true is None:
            return self.graph.best(gains, bonus)
        return self.graph.most_violating(gains, bonus, y_true, self.loss_name, slack)

    def reduced(self, scores: Floats, extras: Floats) -> tuple[Floats, Floats]:
        """Unary and pairwise potentials of labels that are on, relative to the empty set."""
        tables = extras.reshape(-1, 2, 2)
        a, b = self.graph.edges.T
        alone = np.zeros(self.n_columns)
        np.add.at(alone, a, tables[:, 1, 0] - tables[:, 0, 0])
        np.add.at(alone, b, tables[:, 0, 1] - tables[:, 0, 0])
        both = tables[:, 1, 1] - tables[:, 1, 0] - tables[:, 0, 1] + tables[:, 0, 0]
        return scores[:, : self.n_columns] + alone, both

    @property
    def oracle_work(self) -> float:
        return self.graph.work(self.n_columns / 4, self.loss_name != "hamming")

    def outputs(self, x: Any) -> list[Codes]:
        return list(_sets(np.arange(_n_sets(self.n_columns)), self.n_columns))

    def k_best(self, x: Any, w: Floats, k: int) -> list[Codes]:
        """The k best sets, best first."""
        return list(self.top_of(*self.potentials(as_row(x)[None], w), k)[0][0])

    def top_of(self, scores: Floats, extras: Floats, k: int) -> list[tuple[Codes, Floats]]:
        """The k best sets of each row of scores, best first, and their scores."""
        gains, bonus = self.reduced(scores, extras)
        couplings = self.graph.couplings(bonus)
        empty = float(extras.reshape(-1, 4)[:, 0].sum())
        found = []
        for row in gains:
            totals = _scores_of_all(row, couplings)
            first = np.argsort(-totals, kind="stable")[:k]
            found.append((_sets(first, self.n_columns), totals[first] + empty))
        return found


def _n_sets(n_labels: int) -> int:
    if n_labels > MOST_LABELS:
        raise ValueError(
            f"All sets are only listed for at most {MOST_LABELS} labels, but there are {n_labels}: "
            f"ask for the best set alone."
        )
    return 1 << n_labels


def _sets(numbers: NDArray[np.int64], n_labels: int) -> Codes:
    """The sets whose labels are the bits of the numbers."""
    return (numbers[:, None] >> np.arange(n_labels) & 1).astype(np.int32)


def _scores_of_all(gains: Floats, couplings: Floats) -> Floats:
    """Scores of all sets, in the order of their numbers."""
    totals = np.zeros(_n_sets(len(gains)))
    for label, gain in enumerate(gains):
        half = 1 << label
        added = np.full(half, gain)
        for lower in range(label):
            added.reshape(-1, 2, 1 << lower)[:, 1] += couplings[label, lower]
        totals[half : 2 * half] = totals[:half] + added
    return totals


def chow_liu_tree(Y: Codes) -> NDArray[np.int64]:
    """Edges ``(n_labels - 1, 2)`` of the tree over labels with the most mutual information."""
    n, n_labels = Y.shape
    ones = Y.astype(np.float64)
    information = np.zeros((n_labels, n_labels))
    for first, second in ((ones, ones), (ones, 1 - ones), (1 - ones, ones), (1 - ones, 1 - ones)):
        joint = first.T @ second / n
        independent = np.outer(first.mean(axis=0), second.mean(axis=0))
        some = joint > 0.0
        information[some] += joint[some] * np.log(joint[some] / independent[some])
    edges = []
    inside = np.arange(n_labels) == 0
    for _ in range(n_labels - 1):
        crossing = np.where(np.outer(inside, ~inside), information, -np.inf)
        a, b = np.unravel_index(np.argmax(crossing), crossing.shape)
        inside[b] = True
        edges.append((min(a, b), max(a, b)))
    return np.array(edges, dtype=np.int64).reshape(-1, 2)

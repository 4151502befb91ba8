"""Sets of labels in a report."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.report.answers import (
    Answers,
    ClassScore,
    PairWeights,
    counted_score,
    side_by_side,
    worst,
)
from maxmargin.report.markup import Markup, joined, tag


class SetAnswers(Answers):
    """A set of labels for each example."""

    estimators = ("MultilabelClassifier",)
    legend = "Labels that the other set does not have are marked."

    @staticmethod
    def pair_weights(estimator: Any) -> list[PairWeights]:
        n, pair = len(estimator.classes_), estimator.pair_coef_
        if not len(estimator.edges_):
            return []
        values = np.zeros((n, n))
        first, second = estimator.edges_.T
        values[first, second] = pair[:, 1, 1] + pair[:, 0, 0] - pair[:, 1, 0] - pair[:, 0, 1]
        values[second, first] = values[first, second]
        caption = "Weight of two labels being present or absent together"
        return [PairWeights(values, caption, "with")]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.y_true, self.predictions = self._sets(self.y), self._sets(self.predictions)

    def _sets(self, Y: Any) -> list[frozenset[Any]]:
        """Labels of each example, whether they came as sets or as zeros and ones."""
        if sp.issparse(Y):
            Y = Y.toarray()
        classes: NDArray[Any] = self.estimator.classes_
        if hasattr(Y, "iloc"):
            Y = np.asarray(Y)
        if isinstance(Y, np.ndarray) and Y.ndim == 2:
            return [frozenset(classes[row != 0].tolist()) for row in Y]
        if len(Y) and isinstance(Y[0], list | tuple) and not any(isinstance(v, str) for v in Y[0]):
            return [frozenset(classes[np.asarray(row) != 0].tolist()) for row in Y]
        return [frozenset(labels) for labels in Y]

    def more_scores(self) -> list[tuple[str, float]]:
        pairs = list(zip(self.y_true, self.predictions, strict=True))
        n = max(len(pairs), 1)
        correct = sum(len(y & z) for y, z in pairs)
        both = sum(len(y) + len(z) for y, z in pairs)
        return [
            (
                "Fraction of examples all of whose labels are correct",
                sum(y == z for y, z in pairs) / n,
            ),
            ("Wrong or missed labels per example", sum(len(y ^ z) for y, z in pairs) / n),
            ("F1 over the labels of all examples", 2 * correct / both if both else 1.0),
        ]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        found = []
        for name in self.estimator.classes_.tolist():
            true = np.array([name in labels for labels in self.y_true])
            said = np.array([name in labels for labels in self.predictions])
            found.append(
                counted_score(name, int((true & said).sum()), int(said.sum()), int(true.sum()))
            )
        return [("Scores of each label", found)]

    def mistakes(self, most: int) -> list[Markup]:
        pairs = list(zip(self.y_true, self.predictions, strict=True))
        losses = np.array([float(len(y ^ z)) for y, z in pairs])
        return [
            self.item(
                i,
                f"{losses[i]:.0f} wrong or missed",
                side_by_side(
                    _marked(self.y_true[i], self.predictions[i]),
                    _marked(self.predictions[i], self.y_true[i]),
                ),
            )
            for i in worst(losses, most)
        ]


def _marked(labels: frozenset[Any], others: frozenset[Any]) -> Markup:
    """Labels of a set; those the other has not are marked."""
    if not labels:
        return tag("i", "none")
    names = sorted(labels, key=str)
    return joined(
        part
        for n, name in enumerate(names)
        for part in (", " if n else None, name if name in others else tag("mark", name))
    )


ANSWERS = (SetAnswers,)

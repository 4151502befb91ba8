"""One label, one number or a set of labels for each example."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import is_regressor

from maxmargin.report.answers import Answers, Floats, side_by_side, worst
from maxmargin.report.drawing import Figures
from maxmargin.report.feature_names import dense, feature_names, name_of, strongest
from maxmargin.report.markup import Markup, joined, tag
from maxmargin.report.plots import plot_predictions
from maxmargin.report.scores import ClassScore, Labels, class_scores, flat_pairs

REASONS = 4
"""Features that are named for a mistake."""


class LabelAnswers(Answers):
    """One of some classes for each example."""

    legend = "Behind: by how much the score of the true class is below that of the predicted one."

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether there are classes."""
        return hasattr(estimator, "classes_")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.y_true, self.predictions = flat_pairs(np.asarray(self.y), self.predictions)

    def more_scores(self) -> list[tuple[str, float]]:
        """Accuracy, and the mean loss where mistakes differ in what they cost."""
        right = float(np.mean(self.y_true == self.predictions))
        found = [("Accuracy: share of examples whose class is right", right)]
        losses = getattr(self.estimator, "loss_matrix_", None)
        if losses is not None:
            places = {name: i for i, name in enumerate(self.estimator.classes_.tolist())}
            costs = [
                losses[places[y], places[z]]
                for y, z in zip(self.y_true.tolist(), self.predictions.tolist(), strict=True)
                if y in places
            ]
            found.append(("Mean loss: what the mistakes cost", float(np.mean(costs or [0.0]))))
        return found

    def labels(self) -> tuple[Labels, Labels]:
        """Of all examples."""
        return self.y_true, self.predictions

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """One table."""
        return [("Scores of each class", class_scores(self.y_true, self.predictions))]

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the truth furthest behind."""
        wrong = self.y_true != self.predictions
        behind = np.where(wrong, np.maximum(self._behind(), 1e-300), 0.0)
        chosen = worst(behind, most)
        reasons = self._reasons(chosen)
        return [
            self.item(
                i,
                self._how_far(behind[i]),
                side_by_side(self.y_true[i], tag("mark", self.predictions[i])),
                reasons.get(i),
            )
            for i in chosen
        ]

    @staticmethod
    def _how_far(behind: float) -> str:
        if not np.isfinite(behind):
            return "a class that was not seen in training"
        return f"the true class is {behind:.3g} behind"

    def _behind(self) -> Floats:
        """By how much the score of the truth is below the highest."""
        estimator = self.estimator
        scores = np.asarray(estimator.decision_function(self.X))
        if scores.ndim == 1:
            return np.asarray(np.abs(scores))  # of two classes one is wrong by all of it
        places = {name: i for i, name in enumerate(estimator.classes_.tolist())}
        true_places = np.array([places.get(y, -1) for y in self.y_true.tolist()])
        of_true_output = scores[np.arange(len(scores)), true_places]
        return np.asarray(np.where(true_places < 0, np.inf, scores.max(axis=1) - of_true_output))

    def _reasons(self, chosen: list[int]) -> dict[int, Markup]:
        """Features that spoke for the wrong class, where weights say so."""
        coef: Any = dense(getattr(self.estimator, "coef_", None))
        classes = self.estimator.classes_.tolist()
        if not chosen or np.ndim(coef) != 2 or isinstance(self.X, list | tuple):
            return {}
        rows = sp.csr_array(self.X)[chosen].toarray() if sp.issparse(self.X) else None
        rows = np.asarray(self.X)[chosen] if rows is None else rows
        if rows.ndim != 2 or rows.shape[1] != coef.shape[1] or rows.dtype.kind not in "biuf":
            return {}
        names = self.features or feature_names(self.estimator)
        found = {}
        for i, row in zip(chosen, rows, strict=True):
            if len(coef) == len(classes):
                if self.y_true[i] not in classes:
                    continue
                said, true = (classes.index(one[i]) for one in (self.predictions, self.y_true))
                weights = coef[said] - coef[true]
            else:
                positive = getattr(self.estimator, "pos_label_", classes[1])
                weights = coef[0] if self.predictions[i] == positive else -coef[0]
            ups, _ = strongest(weights * row, REASONS)
            spoken = [f"{name_of(names, at)} ({weights[at] * row[at]:+.2g})" for at in ups]
            text = f"What spoke most for {self.predictions[i]}: {', '.join(spoken)}."
            found[i] = tag("p", text, class_="note")
        return found


class NumberAnswers(Answers):
    """A number for each example."""

    legend = "The largest errors come first."

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether this is a regression."""
        return bool(is_regressor(estimator))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.y_true = np.asarray(self.y, dtype=float)
        self.errors: Floats = self.predictions - self.y_true

    def more_scores(self) -> list[tuple[str, float]]:
        """What is explained, and the sizes of the errors."""
        sizes = np.abs(self.errors)
        return [
            ("R2: share of the variance that is explained", self.score()),
            ("Mean absolute error", float(sizes.mean())),
            ("Median absolute error", float(np.median(sizes))),
            ("Root of the mean squared error", float(np.sqrt(np.mean(sizes**2)))),
        ]

    def plots(self, figures: Figures) -> Markup:
        """Predicted against true values, and the errors."""
        return figures.draw(
            lambda axes: plot_predictions(self.y_true, self.predictions, axes=axes),
            [
                "Predicted against true values; perfect predictions lie on the line.",
                "How many predictions are off by how much.",
            ],
        )

    def mistakes(self, most: int) -> list[Markup]:
        """The largest errors."""
        return [
            self.item(
                i,
                f"off by {self.errors[i]:+.4g}",
                side_by_side(f"{self.y_true[i]:.6g}", f"{self.predictions[i]:.6g}"),
            )
            for i in worst(np.abs(self.errors), most)
        ]


class SetAnswers(Answers):
    """A set of labels for each example."""

    legend = "Labels that the other set does not have are marked."

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether pairs of labels are scored together."""
        return hasattr(estimator, "classes_") and hasattr(estimator, "edges_")

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
        """Exact answers, wrong labels, and F1 over all labels."""
        pairs = list(zip(self.y_true, self.predictions, strict=True))
        wrong = sum(len(y ^ z) for y, z in pairs)
        right = sum(len(y & z) for y, z in pairs)
        both = sum(len(y) + len(z) for y, z in pairs)
        exact = sum(y == z for y, z in pairs)
        return [
            ("Share of examples all of whose labels are right", exact / max(len(pairs), 1)),
            ("Wrong or missed labels for each example", wrong / max(len(pairs), 1)),
            ("F1 over the labels of all examples", 2 * right / both if both else 1.0),
        ]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """One table."""
        found = []
        for name in self.estimator.classes_.tolist():
            true = np.array([name in labels for labels in self.y_true])
            said = np.array([name in labels for labels in self.predictions])
            right, n_said, n_true = int((true & said).sum()), int(said.sum()), int(true.sum())
            f1 = 2 * right / max(n_said + n_true, 1)
            found.append(
                ClassScore(name, right / max(n_said, 1), right / max(n_true, 1), f1, n_true)
            )
        return [("Scores of each label", found)]

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the most wrong labels."""
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

"""Sets of labels in a report."""

from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.report.answers import Answers, ClassScore, PairWeights, class_scores, side_by_side
from maxmargin.report.markup import Markup, joined, tag
from maxmargin.structures.multilabel.estimator import from_matrix, holds_sets


class SetAnswers(Answers):
    """A set of labels for each example."""

    legend = "Labels that the other set does not have are marked."

    def pair_weights(self) -> list[PairWeights]:
        estimator, n = self.estimator, len(self.estimator.classes_)
        pair = estimator.pair_coef_
        if not len(estimator.edges_):
            return []
        values = np.zeros((n, n))
        first, second = estimator.edges_.T
        values[first, second] = pair[:, 1, 1] + pair[:, 0, 0] - pair[:, 1, 0] - pair[:, 0, 1]
        values[second, first] = values[first, second]
        caption = "Weight of two labels being present or absent together"
        return [PairWeights(values, caption, "with")]

    def compare(self) -> None:
        from sklearn.preprocessing import MultiLabelBinarizer

        self.y_true, self.predictions = self._sets(self.y), self._sets(self.predictions)
        unseen = frozenset().union(*self.y_true) - self.places.keys()
        # A column of zeros at the end: a matrix of one column would be no sets to scikit-learn.
        binarizer = MultiLabelBinarizer(classes=[*self.places, *unseen, None], sparse_output=True)
        self._matrices = [binarizer.fit_transform(one) for one in (self.y_true, self.predictions)]

    def _sets(self, Y: Any) -> list[frozenset[Any]]:
        """Labels of each example, whether they came as sets or as zeros and ones."""
        if holds_sets(Y):
            return [frozenset(labels) for labels in Y]
        classes = self.estimator.classes_
        return [frozenset(classes[row == 1].tolist()) for row in from_matrix(Y)]

    def more_scores(self) -> list[tuple[str, float]]:
        from sklearn.metrics import accuracy_score, f1_score

        exact = accuracy_score(*self._matrices)
        f1 = f1_score(*self._matrices, average="micro", zero_division=1.0)
        return [
            ("Fraction of examples all of whose labels are correct", float(exact)),
            ("Wrong or missed labels per example", float(self.losses().mean())),
            ("F1 over the labels of all examples", float(f1)),
        ]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        y_true, said = self._matrices
        return [("Scores of each label", class_scores(y_true, said, list(self.places)))]

    def losses(self) -> Floats:
        pairs = zip(self.y_true, self.predictions, strict=True)
        return np.array([float(len(y ^ z)) for y, z in pairs])

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        y, z = self.y_true[i], self.predictions[i]
        return f"{loss:.0f} wrong or missed", side_by_side(_marked(y, z), _marked(z, y))


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


ANSWERS = (("MultilabelClassifier", SetAnswers),)

"""Predictions beside the true outputs: what a report can say about each kind of output.

A structure registers its own kind as `ANSWERS` in the ``report.py`` of its folder.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.report.feature_names import dense, feature_names, name_of, strongest
from maxmargin.report.markup import Markup, plural, tag
from maxmargin.report.plots import Figures, plot_predictions
from maxmargin.report.scores import (
    OUTSIDE,
    ClassScore,
    Labels,
    chunk_scores,
    class_scores,
    flat_pairs,
    look_like_chunks,
)

Floats = NDArray[np.float64]

MAX_CHARACTERS, MAX_POSITIONS, MAX_DRAWN_WORDS = 300, 120, 40
"""How much is shown of one object, of one sequence, and of a sentence that is drawn."""

N_REASONS = 4
"""Features that are named for a wrong prediction."""


class PairWeights(NamedTuple):
    """Weights of pairs of classes: of each class (row) in some relation to each class (column)."""

    values: Any
    caption: str
    relation: str


class Answers:
    """What an estimator predicts for test data, and how that differs from the true outputs.

    This one knows nothing of the outputs but the score and perhaps the loss.

    Parameters
    ----------
    estimator : fitted estimator
    X, y
        As its ``score`` takes them.
    words : sequence, default=None
        What a reader should see of each example: a string, or strings, one for each position.
    groups : array-like, default=None
        Queries, for rankings.
    """

    estimators: ClassVar[tuple[str, ...]] = ()
    """Names of the classes of estimators whose predictions these are."""

    y_optional: ClassVar[bool] = False
    """Whether inputs may hold the true outputs, so that `y` can be left out."""

    features: Sequence[str] | None = None
    """Names of the columns, if the estimator has none."""

    unit = "example"
    legend = "The largest losses come first."

    def __init__(
        self, estimator: Any, X: Any, y: Any, words: Sequence[Any] | None = None, groups: Any = None
    ) -> None:
        self.estimator, self.X, self.y, self.words, self.groups = estimator, X, y, words, groups
        self.y_true: Any = np.asarray(y) if hasattr(y, "iloc") else y
        self.predictions: Any = estimator.predict(X)
        if words is not None and len(words) != len(self.predictions):
            raise ValueError(
                f"words has {len(words)} entries for {len(self.predictions)} examples: give one "
                f"for each."
            )

    @staticmethod
    def pair_weights(estimator: Any) -> list[PairWeights]:
        """Pairwise weights of labels, where there are any."""
        return []

    @staticmethod
    def feature_names(estimator: Any) -> Sequence[str] | None:
        """Names of the features in the order of the weights, or None if they have none."""
        return feature_names(estimator)

    @property
    def size(self) -> str:
        """How much data there is."""
        return plural(len(self.predictions), self.unit)

    def score(self) -> float:
        """What the estimator calls its score."""
        return float(self.estimator.score(self.X, self.y))

    def more_scores(self) -> list[tuple[str, float]]:
        """Further measures over all of the data."""
        if not hasattr(self.estimator, "accuracy"):
            return []
        return [
            ("Accuracy: fraction of correct predictions", self.estimator.accuracy(self.X, self.y))
        ]

    def labels(self) -> tuple[Labels, Labels] | None:
        """True and predicted labels, if labels are predicted."""
        return None

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Scores of classes, a list for each kind of them."""
        return []

    def plots(self, figures: Figures) -> Markup | None:
        """Draw all predictions, where that helps."""
        return None

    def mistakes(self, most: int) -> list[Markup]:
        """The worst predictions beside the true outputs, worst first."""
        loss = getattr(getattr(self.estimator, "problem", None), "loss", None)
        if loss is None:
            return []
        pairs = list(zip(self.y_true, self.predictions, strict=True))
        losses = np.array([loss(y, z) for y, z in pairs], dtype=float)
        return [
            self.item(i, f"loss {losses[i]:.4g}", side_by_side(*map(text_of, pairs[i])))
            for i in worst(losses, most)
        ]

    def item(self, i: int, what: str, *parts: Any) -> Markup:
        """One wrong prediction with its heading."""
        shown = self.shown(i)
        return tag(
            "article",
            tag("h3", f"{self.unit.capitalize()} {self.name(i)}: {what}"),
            tag("p", shown, class_="shown") if shown else None,
            *parts,
        )

    def name(self, i: int) -> str:
        """What an example is called."""
        return str(i + 1)

    def shown(self, i: int) -> str:
        """What a reader should see of an example."""
        if self.words is None:
            return ""
        words = self.words[i]
        return text_of(words if isinstance(words, str) else " ".join(map(str, words)))


class LabelAnswers(Answers):
    """One class for each example."""

    legend = "Margin: the score of the true class less that of the predicted one."

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.y_true, self.predictions = flat_pairs(np.asarray(self.y), self.predictions)

    def more_scores(self) -> list[tuple[str, float]]:
        """Accuracy, and the mean loss where mistakes differ in what they cost."""
        correct = float(np.mean(self.y_true == self.predictions))
        found = [("Accuracy: fraction of examples whose class is correct", correct)]
        losses = getattr(self.estimator, "loss_matrix_", None)
        if losses is not None:
            places = {name: i for i, name in enumerate(self.estimator.classes_.tolist())}
            costs = [
                losses[places[y], places[z]]
                for y, z in zip(self.y_true.tolist(), self.predictions.tolist(), strict=True)
                if y in places
            ]
            found.append(("Mean loss", float(np.mean(costs or [0.0]))))
        return found

    def labels(self) -> tuple[Labels, Labels]:
        """Of all examples."""
        return self.y_true, self.predictions

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """One table."""
        return [("Scores of each class", class_scores(self.y_true, self.predictions))]

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the most negative margin."""
        wrong = self.y_true != self.predictions
        behind = np.where(wrong, np.maximum(self._behind(), 1e-300), 0.0)
        chosen = worst(behind, most)
        reasons = self._reasons(chosen)
        return [
            self.item(
                i,
                f"margin {-behind[i]:.3g}"
                if np.isfinite(behind[i])
                else "a class that was not seen in training",
                side_by_side(self.y_true[i], tag("mark", self.predictions[i])),
                reasons.get(i),
            )
            for i in chosen
        ]

    def _behind(self) -> Floats:
        """By how much the score of the true class is below the highest."""
        estimator = self.estimator
        scores = np.asarray(estimator.decision_function(self.X))
        if scores.ndim == 1:
            return np.asarray(np.abs(scores))  # of two classes one is wrong by all of it
        places = {name: i for i, name in enumerate(estimator.classes_.tolist())}
        true_places = np.array([places.get(y, -1) for y in self.y_true.tolist()])
        of_true_class = scores[np.arange(len(scores)), true_places]
        return np.asarray(np.where(true_places < 0, np.inf, scores.max(axis=1) - of_true_class))

    def _reasons(self, chosen: list[int]) -> dict[int, Markup]:
        """Features that contributed most to the wrong class, where weights say so."""
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
            largest, _ = strongest(weights * row, N_REASONS)
            named = [f"{name_of(names, at)} ({weights[at] * row[at]:+.2g})" for at in largest]
            text = f"Largest contributions to {self.predictions[i]}: {', '.join(named)}."
            found[i] = tag("p", text, class_="note")
        return found


class NumberAnswers(Answers):
    """A number for each example."""

    legend = "The largest errors come first."

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.y_true = np.asarray(self.y, dtype=float)
        self.errors: Floats = self.predictions - self.y_true

    def more_scores(self) -> list[tuple[str, float]]:
        """The usual measures of regression."""
        from sklearn import metrics

        pair = self.y_true, self.predictions
        return [
            ("R2: coefficient of determination", self.score()),
            ("Mean absolute error", float(metrics.mean_absolute_error(*pair))),
            ("Median absolute error", float(metrics.median_absolute_error(*pair))),
            ("Root mean squared error", float(metrics.root_mean_squared_error(*pair))),
        ]

    def plots(self, figures: Figures) -> Markup:
        """Predicted against true values, and the errors."""
        return figures.draw(
            lambda axes: plot_predictions(self.y_true, self.predictions, axes=axes),
            [
                "Predicted against true values; perfect predictions lie on the line.",
                "Histogram of the errors.",
            ],
        )

    def mistakes(self, most: int) -> list[Markup]:
        """The largest errors."""
        return [
            self.item(
                i,
                f"error {self.errors[i]:+.4g}",
                side_by_side(f"{self.y_true[i]:.6g}", f"{self.predictions[i]:.6g}"),
            )
            for i in worst(np.abs(self.errors), most)
        ]


class LabellingAnswers(Answers):
    """A label for each position of an example."""

    position = "position"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.legend = (
            f"From top to bottom: the {self.position}, its true label, its predicted label. Wrong "
            f"ones are marked."
        )
        self.y_true = self.true_labels(self.y)
        self._flat: tuple[Labels, Labels] = flat_pairs(self.y_true, self.predictions)
        check_words(self.words, [len(labels) for labels in self.y_true], "labels")

    def true_labels(self, y: Any) -> Sequence[Any]:
        """Labels of the positions of each example."""
        return list(y)

    def position_names(self, i: int) -> list[str]:
        """What stands above the labels of an example if there are no words."""
        return [str(at) for at in range(len(self.y_true[i]))]

    @property
    def size(self) -> str:
        """Examples and their positions."""
        return f"{super().size}, {plural(len(self._flat[0]), self.position)}"

    def labels(self) -> tuple[Labels, Labels]:
        """Of all positions."""
        return self._flat

    def more_scores(self) -> list[tuple[str, float]]:
        """Accuracy, with and without what is outside of chunks; whole examples; chunks."""
        y_true, predicted = self._flat
        correct = y_true == predicted
        whole = [np.array_equal(y, z) for y, z in zip(self.y_true, self.predictions, strict=True)]
        found = [
            (f"Accuracy: fraction of {self.position}s whose label is correct", _mean(correct)),
            (f"Fraction of {self.unit}s without any mistake", _mean(np.array(whole))),
        ]
        if self._chunked:
            found.insert(1, ("Accuracy without the label O", _mean(correct[y_true != OUTSIDE])))
            total = chunk_scores(self.y_true, self.predictions)[-1]
            found.append(("F1 of chunks, as conlleval counts them", total.f1))
        return found

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Of labels, and of chunks if labels look like them."""
        found = [("Scores of each label", class_scores(*self._flat))]
        if self._chunked:
            chunks = chunk_scores(self.y_true, self.predictions)
            found.insert(0, ("Scores of chunks: extent and type must be correct", chunks))
        return found

    @property
    def _chunked(self) -> bool:
        return look_like_chunks(np.union1d(*self._flat).tolist())

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the most wrong labels; of equal ones, the shorter."""
        pairs = zip(self.y_true, self.predictions, strict=True)
        wrong = [np.asarray(y) != np.asarray(z) for y, z in pairs]
        losses = np.array([float(one.sum()) for one in wrong])
        lengths = np.array([float(len(one)) for one in wrong])
        return [
            self.item(
                i,
                f"{losses[i]:.0f} of {plural(len(wrong[i]), self.position)} wrong",
                self._tokens(i, wrong[i]),
            )
            for i in worst(losses, most, -lengths)
        ]

    def shown(self, i: int) -> str:
        """Nothing more: the words stand above their labels."""
        return ""

    def _tokens(self, i: int, wrong: NDArray[np.bool_]) -> Markup:
        y_true, predicted = self.y_true[i], self.predictions[i]
        if self.words is None:
            words = self.position_names(i)
        else:
            words = [text_of(str(word)) for word in self.words[i]]
        first = 0
        if len(wrong) > MAX_POSITIONS:
            first = max(0, min(int(np.flatnonzero(wrong)[0]) - 10, len(wrong) - MAX_POSITIONS))
        stop = min(first + MAX_POSITIONS, len(wrong))
        rows = []
        for at in range(first, stop):
            said = tag("mark", predicted[at]) if wrong[at] else predicted[at]
            cells = tag("b", words[at]), tag("span", y_true[at]), tag("span", said)
            rows.append(tag("li", *cells, class_="wrong" if wrong[at] else None))
        cut = len(wrong) - (stop - first)
        return tag(
            "div",
            tag("ol", *rows, class_="tokens"),
            tag("p", f"{plural(cut, self.position)} not shown.", class_="note") if cut else None,
        )


def _mean(correct: NDArray[Any]) -> float:
    return float(np.mean(correct)) if len(correct) else 1.0


def check_words(words: Sequence[Any] | None, sizes: Sequence[int], what: str) -> None:
    """Complain unless there is a word for every position of every example."""
    for i, (some, size) in enumerate(zip(words or (), sizes, strict=False)):
        if len(some) != size:
            raise ValueError(
                f"words[{i}] has {len(some)} entries, but there are {size} {what}: give one for "
                f"each."
            )


def worst(losses: Floats, most: int, ties: Floats | None = None) -> list[int]:
    """Examples with the largest positive losses; of equal ones those with the larger tie."""
    order = np.lexsort([np.arange(len(losses)), -(losses if ties is None else ties), -losses])
    return [int(i) for i in order[:most] if losses[i] > 0.0]


def text_of(thing: Any) -> str:
    """Anything as text that is not too long."""
    text = thing if isinstance(thing, str) else repr(thing)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def side_by_side(y_true: Any, prediction: Any) -> Markup:
    """A true output and its prediction."""
    pairs = ("true", y_true), ("predicted", prediction)
    return tag(
        "dl", *(tag("div", tag("dt", name), tag("dd", one)) for name, one in pairs), class_="pair"
    )


def worst_drawable(losses: list[float], lengths: list[int], most: int) -> list[int]:
    """The worst of the sentences that are short enough to be drawn; any, if none is."""
    found = np.asarray(losses, dtype=float)
    kept = np.where(np.asarray(lengths) <= MAX_DRAWN_WORDS, found, 0.0)
    return worst(kept if kept.any() else found, most, -np.asarray(lengths, dtype=float))


def drawings(*captioned: tuple[str, Markup]) -> Markup:
    """Drawings with captions, side by side if there is room; wide ones scroll."""
    return tag(
        "div",
        *(
            tag("figure", tag("figcaption", caption), tag("div", drawing, class_="scroll"))
            for caption, drawing in captioned
        ),
        class_="drawn",
    )

"""Predictions beside the true outputs, for reports; structures register their own as `ANSWERS`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.report.markup import Markup, definitions, plural, tag
from maxmargin.report.plots import Figures, Labels, flat_pairs, plot_predictions

Floats = NDArray[np.float64]

MAX_CHARACTERS, MAX_POSITIONS, MAX_DRAWN_WORDS = 300, 120, 40
"""How much is shown of one object, of one sequence, and of a sentence that is drawn."""

N_REASONS = 4
"""Features that are named for a wrong prediction."""


OUTSIDE = "O"
"""Label of what belongs to no chunk."""

NEGLIGIBLE = 1e-9
"""Fraction of the largest weight, below which weights are not shown."""


class ClassScore(NamedTuple):
    """Precision, recall and F1 of a class; `support` is how many true members it has."""

    name: Any
    precision: float
    recall: float
    f1: float
    support: int


class PairWeights(NamedTuple):
    """Weights of pairs of classes: of each class (row) in some relation to each class (column)."""

    values: Any
    caption: str
    relation: str


class Answers:
    """Predictions for test data beside the true outputs, of which only score and loss are known.

    `words` are what a reader sees of an example, or of its positions; `groups` the queries of
    rankings.
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
        if hasattr(estimator, "vocabulary_"):
            return list(estimator.vocabulary_)
        if hasattr(estimator, "feature_names_in_"):
            return [str(name) for name in estimator.feature_names_in_]
        return None

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
        accuracy = self.estimator.accuracy(self.X, self.y)
        return [("Accuracy: fraction of correct predictions", accuracy)]

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
            places = self._places(self.y_true)
            costs = losses[places, self._places(self.predictions)][places >= 0]
            found.append(("Mean loss", float(np.mean(costs)) if len(costs) else 0.0))
        return found

    def _places(self, labels: Labels) -> NDArray[np.int64]:
        """Which class of the estimator each is; -1 for one that it does not know."""
        places = {name: i for i, name in enumerate(self.estimator.classes_.tolist())}
        return np.array([places.get(y, -1) for y in labels.tolist()], dtype=np.int64)

    def labels(self) -> tuple[Labels, Labels]:
        return self.y_true, self.predictions

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        return [("Scores of each class", class_scores(self.y_true, self.predictions))]

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the most negative margin."""
        wrong = self.y_true != self.predictions
        behind = np.where(wrong, np.maximum(self._behind(), 1e-300), 0.0)
        chosen = worst(behind, most)
        reasons = self._reasons(chosen)
        found = []
        for i in chosen:
            seen = np.isfinite(behind[i])
            what = f"margin {-behind[i]:.3g}" if seen else "a class that was not seen in training"
            pair = side_by_side(self.y_true[i], tag("mark", self.predictions[i]))
            found.append(self.item(i, what, pair, reasons.get(i)))
        return found

    def _behind(self) -> Floats:
        """By how much the score of the true class is below the highest."""
        scores = np.asarray(self.estimator.decision_function(self.X))
        if scores.ndim == 1:
            return np.asarray(np.abs(scores))  # of two classes one is wrong by all of it
        places = self._places(self.y_true)
        of_true_class = scores[np.arange(len(scores)), places]
        return np.asarray(np.where(places < 0, np.inf, scores.max(axis=1) - of_true_class))

    def _reasons(self, chosen: list[int]) -> dict[int, Markup]:
        """Features that contributed most to the wrong class, where weights say so."""
        coef: Any = dense(getattr(self.estimator, "coef_", None))
        classes = self.estimator.classes_.tolist()
        if not chosen or np.ndim(coef) != 2 or isinstance(self.X, list | tuple):
            return {}
        table = sp.csr_array(self.X) if sp.issparse(self.X) else np.asarray(self.X)
        rows = dense(table[chosen])
        if rows.ndim != 2 or rows.shape[1] != coef.shape[1] or rows.dtype.kind not in "biuf":
            return {}
        names = self.features or self.feature_names(self.estimator)
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
        from sklearn import metrics

        pair = self.y_true, self.predictions
        return [
            ("R2: coefficient of determination", self.score()),
            ("Mean absolute error", float(metrics.mean_absolute_error(*pair))),
            ("Median absolute error", float(metrics.median_absolute_error(*pair))),
            ("Root mean squared error", float(metrics.root_mean_squared_error(*pair))),
        ]

    def plots(self, figures: Figures) -> Markup:
        return figures.draw(
            lambda axes: plot_predictions(self.y_true, self.predictions, axes=axes),
            [
                "Predicted against true values; perfect predictions lie on the line.",
                "Histogram of the errors.",
            ],
        )

    def mistakes(self, most: int) -> list[Markup]:
        """The largest errors."""
        found = []
        for i in worst(np.abs(self.errors), most):
            pair = side_by_side(f"{self.y_true[i]:.6g}", f"{self.predictions[i]:.6g}")
            found.append(self.item(i, f"error {self.errors[i]:+.4g}", pair))
        return found


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
        return f"{super().size}, {plural(len(self._flat[0]), self.position)}"

    def labels(self) -> tuple[Labels, Labels]:
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
        found = []
        for i in worst(losses, most, -lengths):
            what = f"{losses[i]:.0f} of {plural(len(wrong[i]), self.position)} wrong"
            found.append(self.item(i, what, self._tokens(i, wrong[i])))
        return found

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
    return definitions("pair", ("true", y_true), ("predicted", prediction))


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


# Scores


def counted_score(name: Any, correct: int, predicted: int, true: int) -> ClassScore:
    """The scores for numbers of correct, of predicted and of true members."""
    f1 = 2 * correct / max(predicted + true, 1)
    return ClassScore(name, correct / max(predicted, 1), correct / max(true, 1), f1, true)


def class_scores(y_true: Labels, predicted: Labels) -> list[ClassScore]:
    """Precision, recall and F1 of every class that occurs, sorted by class."""
    from sklearn.metrics import precision_recall_fscore_support

    names = np.union1d(y_true, predicted)
    columns = precision_recall_fscore_support(y_true, predicted, labels=names, zero_division=0.0)
    return [
        ClassScore(name, float(precision), float(recall), float(f1), int(support))
        for name, precision, recall, f1, support in zip(names.tolist(), *columns, strict=True)
    ]


def largest_confusions(y_true: Labels, predicted: Labels, most: int) -> list[tuple[Any, Any, int]]:
    """True class, predicted class and count, the most frequent first."""
    wrong = y_true != predicted
    pairs = zip(y_true[wrong].tolist(), predicted[wrong].tolist(), strict=True)
    return [(true, said, n) for (true, said), n in Counter(pairs).most_common(most)]


def look_like_chunks(names: Iterable[Any]) -> bool:
    """Tell whether labels are those of chunks: ``B-NP``, ``I-NP``, ``O``."""
    names = [name for name in names if name != OUTSIDE]
    return bool(names) and all(
        isinstance(name, str) and len(name) > 2 and name[:2] in ("B-", "I-") for name in names
    )


def chunks(labels: Iterable[str]) -> set[tuple[int, int, str]]:
    """Start, end and type of each chunk; as in conlleval, an I- may start one."""
    found = set()
    start, kind = 0, ""
    for i, label in enumerate([*labels, OUTSIDE]):
        begin, _, this = str(label).partition("-")
        if kind and (begin != "I" or this != kind):
            found.add((start, i, kind))
            kind = ""
        if begin != OUTSIDE and not kind:
            start, kind = i, this
    return found


def chunk_scores(y_true: Sequence[Any], predictions: Sequence[Any]) -> list[ClassScore]:
    """Precision, recall and F1 of chunks, right in extent and type: by type, then of all."""
    wanted: Counter[str] = Counter()
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for labels, prediction in zip(y_true, predictions, strict=True):
        true_chunks, said_chunks = chunks(labels), chunks(prediction)
        wanted.update(kind for *_, kind in true_chunks)
        said.update(kind for *_, kind in said_chunks)
        right.update(kind for *_, kind in true_chunks & said_chunks)
    kinds = [counted_score(k, right[k], said[k], wanted[k]) for k in sorted({*wanted, *said})]
    return [*kinds, counted_score("all chunks", right.total(), said.total(), wanted.total())]


# Weights


def name_of(names: Sequence[str] | None, column: int) -> str:
    """Name of a feature, or its number."""
    return f"feature {column}" if names is None else names[column]


def weight_rows(estimator: Any) -> list[tuple[str, Floats]]:
    """Weights by class, where there are classes; none that a reader could not interpret."""
    if hasattr(estimator, "words_"):
        return []  # hashed: many features share a weight
    for name in ("coef_", "node_coef_", "weights_"):
        table = dense(getattr(estimator, name, None))
        if table is None:
            continue
        classes = getattr(estimator, "classes_", None)
        if np.ndim(table) == 1:
            return [("all", table)]
        if classes is None:
            return []
        if len(table) == len(classes):
            return [(str(name), row) for name, row in zip(classes, table, strict=True)]
        if len(table) == 1 and len(classes) == 2:
            positive = getattr(estimator, "pos_label_", classes[1])
            return [(str(positive), table[0])]
    return []


def dense(weights: Any) -> Any:
    """Weights as an array; those of a pruned model are sparse."""
    return weights.toarray() if sp.issparse(weights) else weights


def strongest(weights: Floats, most: int) -> tuple[list[int], list[int]]:
    """Columns of the largest positive and of the most negative weights, strongest first."""
    n = min(most, len(weights))
    if not n:
        return [], []
    highest = np.argpartition(weights, len(weights) - n)[-n:]
    lowest = np.argpartition(weights, n - 1)[:n]
    ups = highest[np.argsort(-weights[highest], kind="stable")]
    downs = lowest[np.argsort(weights[lowest], kind="stable")]
    least = NEGLIGIBLE * float(np.abs(weights).max())
    return (
        [int(i) for i in ups if weights[i] > least],
        [int(i) for i in downs if weights[i] < -least],
    )

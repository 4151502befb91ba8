"""Predictions beside the true outputs, for reports; structures register their own in `ANSWERS`."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.report.markup import Markup, definitions, plural, tag
from maxmargin.report.plots import Figures, Labels, flat_pairs, plot_predictions

MAX_CHARACTERS, MAX_POSITIONS, MAX_DRAWN_WORDS = 300, 120, 40
"""How much is shown of one object, of one sequence, and of a sentence that is drawn."""

N_REASONS = 4
"""Features that are named for a wrong prediction."""


OUTSIDE = "O"
"""Label of what belongs to no chunk."""

NEGLIGIBLE = 1e-9
"""Fraction of the largest weight, below which weights are not shown."""


Spans = Counter[tuple[str, int, int]]
"""How often each label stands from one word to before another."""


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
    """A fitted estimator and its predictions for test data, if there are any.

    Of outputs in general only score and loss are known. `words` are what a reader sees of an
    example, or of its positions; `groups` the queries of rankings; `features` the names of columns,
    if the estimator has none; `models` are estimators for other values of C.
    """

    y_optional: ClassVar[bool] = False
    """Whether inputs may hold the true outputs, so that `y` can be left out."""

    words_above: ClassVar[bool] = True
    """Whether the words of an example are shown above a mistake."""

    drawn: ClassVar[bool] = False
    """Whether mistakes are drawings, for which short examples are taken if there are any."""

    unit = "example"
    legend = "The largest losses come first."

    def __init__(
        self,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        words: Sequence[Any] | None = None,
        groups: Any = None,
        features: Sequence[str] | None = None,
        models: Sequence[Any] | None = None,
    ) -> None:
        self.estimator, self.X, self.y, self.words, self.groups = estimator, X, y, words, groups
        self.features, self.models, self.figures = features, models, Figures()
        if X is None:
            return
        self.y_true: Any = np.asarray(y) if hasattr(y, "iloc") else y
        self.predictions: Any = estimator.predict(X)
        if words is not None and len(words) != len(self.predictions):
            raise ValueError(
                f"words has {len(words)} entries for {len(self.predictions)} examples: give one "
                f"for each."
            )
        self.compare()

    def compare(self) -> None:
        """Bring true outputs and predictions into the form in which they are compared."""

    def pair_weights(self) -> list[PairWeights]:
        """Pairwise weights of labels, where there are any."""
        return []

    def feature_names(self) -> Sequence[str] | None:
        """Names of the features in the order of the weights, or None if they have none."""
        if self.features:
            return self.features
        for name in ("vocabulary_", "feature_names_in_"):
            if hasattr(self.estimator, name):
                return [str(one) for one in getattr(self.estimator, name)]
        return None

    @cached_property
    def places(self) -> dict[Any, int]:
        """Number of each class of the estimator."""
        classes = getattr(self.estimator, "classes_", None)
        return {} if classes is None else {name: at for at, name in enumerate(classes.tolist())}

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

    def plots(self) -> Markup | None:
        """Draw all predictions, where that helps."""
        return None

    def mistakes(self, most: int) -> list[Markup]:
        """The worst predictions beside the true outputs; of equally bad ones, the shortest."""
        losses = self.losses()
        lengths = np.array([self.length(i) for i in range(len(losses))])
        shown = np.where(lengths <= MAX_DRAWN_WORDS, losses, 0.0) if self.drawn else losses
        found = []
        for i in worst(shown if shown.any() else losses, most, -lengths):
            what, *parts = self.mistake(i, losses[i])
            heading = tag("h3", f"{self.unit.capitalize()} {self.name(i)}: {what}")
            words = self.words_of(i) if self.words_above else ""
            above = tag("p", words, class_="shown") if words else None
            found.append(tag("article", heading, above, *parts))
        return found

    def losses(self) -> Floats:
        """How wrong the prediction for each example is."""
        loss = getattr(getattr(self.estimator, "problem", None), "loss", None)
        if loss is None:
            return np.zeros(len(self.predictions))
        pairs = zip(self.y_true, self.predictions, strict=True)
        return np.array([loss(y, z) for y, z in pairs], dtype=float)

    def length(self, i: int) -> int:
        """How long an example is."""
        return 0

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        """How wrong a prediction is, in words, and what is shown of it."""
        pair = side_by_side(text_of(self.y_true[i]), text_of(self.predictions[i]))
        return f"loss {loss:.4g}", pair

    def name(self, i: int) -> str:
        """What an example is called."""
        return str(i + 1)

    def words_of(self, i: int) -> str:
        """What a reader should see of an example."""
        if self.words is None:
            return ""
        words = self.words[i]
        return text_of(words if isinstance(words, str) else " ".join(map(str, words)))


class LabelAnswers(Answers):
    """One class for each example."""

    legend = "Margin: the score of the true class less that of the predicted one."

    def compare(self) -> None:
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
        return np.array([self.places.get(y, -1) for y in labels.tolist()], dtype=np.int64)

    def labels(self) -> tuple[Labels, Labels]:
        return self.y_true, self.predictions

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        return [("Scores of each class", class_scores(self.y_true, self.predictions))]

    def losses(self) -> Floats:
        """By how much the score of the true class is below the highest."""
        scores = np.asarray(self.estimator.decision_function(self.X))
        if scores.ndim == 1:
            behind = np.abs(scores)  # of two classes one is wrong by all of it
        else:
            places = self._places(self.y_true)
            of_true_class = scores[np.arange(len(scores)), places]
            behind = np.where(places < 0, np.inf, scores.max(axis=1) - of_true_class)
        return np.where(self.y_true != self.predictions, np.maximum(behind, 1e-300), 0.0)

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        seen = np.isfinite(loss)
        what = f"margin {-loss:.3g}" if seen else "a class that was not seen in training"
        pair = side_by_side(self.y_true[i], tag("mark", self.predictions[i]))
        return what, pair, self._reasons(i)

    def _reasons(self, i: int) -> Markup | None:
        """Features that contributed most to the wrong class, where weights say so."""
        true, said = self.y_true[i], self.predictions[i]
        by_class = dict(weight_rows(self.estimator))
        # Of two classes only one has weights: the other's are as good as zero.
        weights = np.asarray(by_class.get(str(said), 0.0) - by_class.get(str(true), 0.0))
        if true not in self.places or not weights.ndim or isinstance(self.X, list | tuple):
            return None
        row = dense(self._table[[i]])
        if row.shape != (1, len(weights)) or row.dtype.kind not in "biuf":
            return None
        gains, names = weights * row[0], self.feature_names()
        largest, _ = strongest(gains, N_REASONS)
        named = ", ".join(f"{name_of(names, at)} ({gains[at]:+.2g})" for at in largest)
        return tag("p", f"Largest contributions to {said}: {named}.", class_="note")

    @cached_property
    def _table(self) -> Any:
        return sp.csr_array(self.X) if sp.issparse(self.X) else np.asarray(self.X)


class NumberAnswers(Answers):
    """A number for each example."""

    legend = "The largest errors come first."

    def compare(self) -> None:
        self.y_true = np.asarray(self.y, dtype=float)

    def more_scores(self) -> list[tuple[str, float]]:
        from sklearn import metrics

        pair = self.y_true, self.predictions
        return [
            ("R2: coefficient of determination", self.score()),
            ("Mean absolute error", float(metrics.mean_absolute_error(*pair))),
            ("Median absolute error", float(metrics.median_absolute_error(*pair))),
            ("Root mean squared error", float(metrics.root_mean_squared_error(*pair))),
        ]

    def plots(self) -> Markup:
        return self.figures.draw(
            lambda axes: plot_predictions(self.y_true, self.predictions, axes),
            [
                "Predicted against true values; perfect predictions lie on the line.",
                "Histogram of the errors.",
            ],
        )

    def losses(self) -> Floats:
        return np.asarray(np.abs(self.predictions - self.y_true))

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        true, said = self.y_true[i], self.predictions[i]
        return f"error {said - true:+.4g}", side_by_side(f"{true:.6g}", f"{said:.6g}")


class LabellingAnswers(Answers):
    """A label for each position of an example."""

    position = "position"
    words_above = False

    def compare(self) -> None:
        self.legend = (
            f"From top to bottom: the {self.position}, its true label, its predicted label. Wrong "
            f"ones are marked."
        )
        self.y_true = self.true_labels(self.y)
        self._flat: tuple[Labels, Labels] = flat_pairs(self.y_true, self.predictions)
        check_words(self.words, [len(labels) for labels in self.y_true], "labels")
        pairs = zip(self.y_true, self.predictions, strict=True)
        self._wrong = [np.asarray(y) != np.asarray(z) for y, z in pairs]
        self._chunks: list[ClassScore] = []
        if look_like_chunks(np.union1d(*self._flat).tolist()):
            self._chunks = chunk_scores(self.y_true, self.predictions)

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
        correct, whole = y_true == predicted, np.array([not one.any() for one in self._wrong])
        found = [
            (f"Accuracy: fraction of {self.position}s whose label is correct", _mean(correct)),
            (f"Fraction of {self.unit}s without any mistake", _mean(whole)),
        ]
        if self._chunks:
            found.insert(1, ("Accuracy without the label O", _mean(correct[y_true != OUTSIDE])))
            found.append(("F1 of chunks, as conlleval counts them", self._chunks[-1].f1))
        return found

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Of labels, and of chunks if labels look like them."""
        tables = {
            "Scores of chunks: extent and type must be correct": self._chunks,
            "Scores of each label": class_scores(*self._flat),
        }
        return [(caption, scores) for caption, scores in tables.items() if scores]

    def losses(self) -> Floats:
        """How many labels are wrong."""
        return np.array([float(wrong.sum()) for wrong in self._wrong])

    def length(self, i: int) -> int:
        return len(self._wrong[i])

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        return f"{loss:.0f} of {plural(self.length(i), self.position)} wrong", self._tokens(i)

    def _tokens(self, i: int) -> Markup:
        y_true, predicted, wrong = self.y_true[i], self.predictions[i], self._wrong[i]
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


def span_scores(pairs: Iterable[tuple[Spans, Spans]], total: str | None = None) -> list[ClassScore]:
    """Scores of true and predicted spans, by label; with `total` also those of all."""
    counts: defaultdict[str, NDArray[np.int64]] = defaultdict(lambda: np.zeros(3, dtype=np.int64))
    for true, said in pairs:
        for at, spans in enumerate((true & said, said, true)):
            for (label, *_), n in spans.items():
                counts[label][at] += n
    rows = sorted(counts.items())
    if total is not None:
        rows.append((total, sum(counts.values(), np.zeros(3, dtype=np.int64))))
    found = []
    for label, numbers in rows:
        right, n_said, n_true = numbers.tolist()
        f1 = 2 * right / max(n_said + n_true, 1)
        found.append(ClassScore(label, right / max(n_said, 1), right / max(n_true, 1), f1, n_true))
    return found


def class_scores(
    y_true: Any, predicted: Any, columns: Sequence[Any] | None = None
) -> list[ClassScore]:
    """Scores of every class that occurs, sorted; of sets as matrices, of these first columns."""
    from sklearn.metrics import precision_recall_fscore_support

    names = np.union1d(y_true, predicted).tolist() if columns is None else columns
    labels = names if columns is None else range(len(columns))
    found = precision_recall_fscore_support(y_true, predicted, labels=labels, zero_division=0.0)
    return [
        ClassScore(name, float(precision), float(recall), float(f1), int(support))
        for name, precision, recall, f1, support in zip(names, *found, strict=True)
    ]


def largest_confusions(y_true: Labels, predicted: Labels, most: int) -> list[tuple[Any, Any, int]]:
    """True class, predicted class and count, the most frequent first."""
    wrong = y_true != predicted
    pairs = zip(y_true[wrong].tolist(), predicted[wrong].tolist(), strict=True)
    return [(true, said, n) for (true, said), n in Counter(pairs).most_common(most)]


def look_like_chunks(names: Iterable[Any]) -> bool:
    """Tell whether labels are those of chunks: ``B-NP``, ``I-NP``, ``O``."""
    names = [name for name in names if name != OUTSIDE]
    return bool(names) and all(re.match("[BI]-.", str(name), re.DOTALL) for name in names)


def chunks(labels: Iterable[str]) -> Spans:
    """Type, start and end of each chunk; as in conlleval, an I- may start one."""
    found: Spans = Counter()
    start, kind = 0, ""
    for i, label in enumerate([*labels, OUTSIDE]):
        begin, _, this = str(label).partition("-")
        if kind and (begin != "I" or this != kind):
            found[kind, start, i] += 1
            kind = ""
        if begin != OUTSIDE and not kind:
            start, kind = i, this
    return found


def chunk_scores(y_true: Sequence[Any], predictions: Sequence[Any]) -> list[ClassScore]:
    """Precision, recall and F1 of chunks, right in extent and type: by type, then of all."""
    pairs = zip(y_true, predictions, strict=True)
    return span_scores(((chunks(y), chunks(z)) for y, z in pairs), "all chunks")


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

"""A label for each position of a sequence, or for each node of a graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.report.answers import Answers, check_words, text_of, worst
from maxmargin.report.markup import Markup, plural, tag
from maxmargin.report.scores import (
    OUTSIDE,
    ClassScore,
    Labels,
    chunk_scores,
    class_scores,
    flat_pairs,
    look_like_chunks,
)
from maxmargin.structures.graph.formats import node_values

WORD_KEYS = ("word", "token", "form", "w", "w0", "w[0]", "word.lower()")
"""Where feature dictionaries usually have the word itself."""

MOST_POSITIONS = 120
"""Positions that are shown of one mistake."""


class SequenceAnswers(Answers):
    """Labels of positions."""

    unit, position = "sequence", "position"
    legend = (
        "From top to bottom: the word, its true label, the predicted one. Wrong ones are marked."
    )

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether labels follow each other."""
        return hasattr(estimator, "transitions_")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.y_true = self._as_lists(self.y)
        self._flat: tuple[Labels, Labels] = flat_pairs(self.y_true, self.predictions)
        check_words(self.words, [len(labels) for labels in self.y_true], "labels")

    def _as_lists(self, y: Any) -> Sequence[Any]:
        """Labels of each sequence, also where they came one after the other."""
        if len(y) and np.ndim(y[0]) == 0:
            return np.split(np.asarray(y), np.cumsum([len(z) for z in self.predictions])[:-1])
        return list(y)

    @property
    def size(self) -> str:
        """Sequences and their positions."""
        return f"{super().size}, {plural(len(self._flat[0]), self.position)}"

    def labels(self) -> tuple[Labels, Labels]:
        """Of all positions."""
        return self._flat

    def more_scores(self) -> list[tuple[str, float]]:
        """Accuracy, with and without what is outside of chunks; whole sequences; chunks."""
        y_true, predicted = self._flat
        right = y_true == predicted
        whole = [np.array_equal(y, z) for y, z in zip(self.y_true, self.predictions, strict=True)]
        found = [
            (f"Accuracy: share of {self.position}s whose label is right", _mean(right)),
            (f"Share of {self.unit}s without any mistake", _mean(np.array(whole))),
        ]
        if self._chunked:
            found.insert(1, ("The same without the label O", _mean(right[y_true != OUTSIDE])))
            total = chunk_scores(self.y_true, self.predictions)[-1]
            found.append(("F1 of chunks, as conlleval counts them", total.f1))
        return found

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Of labels, and of chunks if labels look like them."""
        found = [("Scores of each label", class_scores(*self._flat))]
        if self._chunked:
            chunks = chunk_scores(self.y_true, self.predictions)
            found.insert(0, ("Scores of chunks: place and kind must be right", chunks))
        return found

    @property
    def _chunked(self) -> bool:
        return look_like_chunks(np.union1d(*self._flat).tolist())

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the most wrong labels; of equal ones, the shorter."""
        wrong = [
            np.asarray(y) != np.asarray(z)
            for y, z in zip(self.y_true, self.predictions, strict=True)
        ]
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
        y_true, predicted, words = self.y_true[i], self.predictions[i], self._words(i)
        first = 0
        if len(wrong) > MOST_POSITIONS:
            first = max(0, min(int(np.flatnonzero(wrong)[0]) - 10, len(wrong) - MOST_POSITIONS))
        stop = min(first + MOST_POSITIONS, len(wrong))
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

    def _words(self, i: int) -> list[str]:
        """What stands above the labels: words, or numbers."""
        if self.words is not None:
            return [text_of(str(word)) for word in self.words[i]]
        n = len(self.y_true[i])
        positions = self.X[i] if isinstance(self.X[i], Sequence) else [None] * n
        return [_word(position, at) for at, position in enumerate(positions)]


class NodeAnswers(SequenceAnswers):
    """Labels of nodes."""

    unit, position = "graph", "node"
    legend = (
        "From top to bottom: the node, its true label, the predicted one. Wrong ones are marked."
    )

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether labels are neighbours."""
        return hasattr(estimator, "edge_coef_")

    def _as_lists(self, y: Any) -> Sequence[Any]:
        y_true = [
            node_values(labels, graph, i, "labels")
            for i, (labels, graph) in enumerate(zip(y, self.X, strict=True))
        ]
        void = self.estimator.void
        if void is not None:
            known = [np.asarray(labels != void) for labels in y_true]
            y_true = [labels[kept] for labels, kept in zip(y_true, known, strict=True)]
            pairs = zip(self.predictions, known, strict=True)
            self.predictions = [labels[kept] for labels, kept in pairs]
            if self.words is not None:
                self.words = [
                    [word for word, keep in zip(words, kept, strict=True) if keep]
                    for words, kept in zip(self.words, known, strict=True)
                ]
        return y_true

    def _words(self, i: int) -> list[str]:
        if self.words is not None:
            return super()._words(i)
        return [str(at) for at in range(len(self.y_true[i]))]


def _mean(right: NDArray[Any]) -> float:
    return float(np.mean(right)) if len(right) else 1.0


def _word(position: Any, at: int) -> str:
    """The word of a feature dictionary, or the number of the position."""
    if isinstance(position, Mapping):
        for key in WORD_KEYS:
            if isinstance(position.get(key), str):
                return text_of(position[key])
    return str(at + 1)

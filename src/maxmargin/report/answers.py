"""Predictions beside the truth: what a report can say about any kind of output."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.report.drawing import Figures
from maxmargin.report.markup import Markup, joined, plural, tag
from maxmargin.report.scores import ClassScore, Labels

Floats = NDArray[np.float64]

LONGEST = 300
"""Characters that are shown of one thing."""


class Answers:
    """What an estimator says about test data, and how that differs from the truth.

    One class for each kind of output; this one knows nothing but the score and perhaps the loss.

    Parameters
    ----------
    estimator : fitted estimator
    X, y
        As its ``score`` takes them.
    words : sequence, default=None
        What a reader should see of each example: a string, or strings, one for each part.
    groups : array-like, default=None
        Queries, for rankings.
    """

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

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether this is the kind of what an estimator predicts."""
        return True

    @property
    def size(self) -> str:
        """How much data there is."""
        return plural(len(self.predictions), self.unit)

    def score(self) -> float:
        """What the estimator calls its score."""
        return float(self.estimator.score(self.X, self.y))

    def more_scores(self) -> list[tuple[str, float]]:
        """Further numbers about all of the data."""
        if not hasattr(self.estimator, "accuracy"):
            return []
        return [("Share of predictions that are right", self.estimator.accuracy(self.X, self.y))]

    def labels(self) -> tuple[Labels, Labels] | None:
        """True and predicted labels, if it is labels that are predicted."""
        return None

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Scores of classes, a list for each kind of them."""
        return []

    def plots(self, figures: Figures) -> Markup | None:
        """Draw all predictions, where that helps."""
        return None

    def mistakes(self, most: int) -> list[Markup]:
        """The worst predictions beside the truth, worst first."""
        loss = getattr(getattr(self.estimator, "problem", None), "loss", None)
        if loss is None:
            return []
        losses = np.array(
            [loss(y, z) for y, z in zip(self.y_true, self.predictions, strict=True)], dtype=float
        )
        return [
            self.item(
                i,
                f"loss {losses[i]:.4g}",
                side_by_side(text_of(self.y_true[i]), text_of(self.predictions[i])),
            )
            for i in worst(losses, most)
        ]

    def item(self, i: int, what: str, *parts: Any) -> Markup:
        """One mistake with its heading."""
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


def check_words(words: Sequence[Any] | None, sizes: Sequence[int], what: str) -> None:
    """Complain unless there is a word for every part of every example."""
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
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def side_by_side(y_true: Any, prediction: Any) -> Markup:
    """What is right, and what was said."""
    return tag(
        "dl",
        joined([tag("div", tag("dt", "true"), tag("dd", y_true))]),
        joined([tag("div", tag("dt", "predicted"), tag("dd", prediction))]),
        class_="pair",
    )

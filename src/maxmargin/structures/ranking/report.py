"""Rankings in a report."""

from functools import partial
from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.report.answers import Answers, side_by_side
from maxmargin.report.markup import plural, tag
from maxmargin.structures.ranking.predictor import query_rows
from maxmargin.structures.ranking.problem import average_precision, ndcg, precision_at

MOST_PLACES, FIRST_PLACES = 20, 5
"""Documents of a query whose relevance is shown, and those that are shown themselves."""


class RankedAnswers(Answers):
    """Documents in an order."""

    unit = "query"
    legend = (
        "Relevance of the documents from the first rank on: in the ideal order, and as predicted."
    )

    words_above = False  # they are those of documents

    def compare(self) -> None:
        self.y_true = np.asarray(self.y, dtype=float)
        self.groups = None if self.groups is None else np.asarray(self.groups)
        self.queries = query_rows(self.groups, len(self.predictions))

    @property
    def size(self) -> str:
        return f"{plural(len(self.queries), self.unit)}, {plural(len(self.y_true), 'document')}"

    def score(self) -> float:
        return float(self.estimator.score(self.X, self.y, self.groups))

    def more_scores(self) -> list[tuple[str, float]]:
        threshold = self.estimator.threshold
        measures = {f"NDCG of the first {k}": partial(ndcg, k=k) for k in (1, 3, 5, 10)}
        measures["Mean average precision (MAP)"] = partial(average_precision, threshold=threshold)
        for k in (1, 5, 10):
            name = f"Precision of the first {k}"
            measures[name] = partial(precision_at, k=k, threshold=threshold)
        return [
            (name, float(np.mean([measure(*self._of(rows)) for rows in self.queries])))
            for name, measure in measures.items()
        ]

    def losses(self) -> Floats:
        """One minus NDCG; zero where no order is better than another."""
        found = []
        for rows in self.queries:
            y_true, scores = self._of(rows)
            same = y_true.min() == y_true.max()
            found.append(0.0 if same else 1.0 - ndcg(y_true, scores, 10))
        return np.array(found)

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        rows = self.queries[i]
        y_true, scores = self._of(rows)
        order = np.argsort(-scores, kind="stable")
        pair = side_by_side(_places(np.sort(y_true)[::-1]), _places(y_true[order]))
        first = None
        if self.words is not None:
            shown = order[:FIRST_PLACES]
            lines = [f"{self.words_of(rows[at])} (relevance {y_true[at]:g})" for at in shown]
            first = tag("ol", *(tag("li", line) for line in lines))
        return f"NDCG of the first 10 is {1.0 - loss:.3f}", pair, first

    def name(self, i: int) -> str:
        """The query, by its own name if it has one."""
        named = len(self.groups) == len(self.y_true)
        return str(self.groups[self.queries[i][0]]) if named else super().name(i)

    def _of(self, rows: Any) -> tuple[Any, Any]:
        return self.y_true[rows], self.predictions[rows]


def _places(relevance: Any) -> str:
    """The relevance of the documents from the first place on."""
    more = " …" if len(relevance) > MOST_PLACES else ""
    return " ".join(f"{abs(one):g}" for one in relevance[:MOST_PLACES]) + more


ANSWERS = (("Ranker", RankedAnswers),)

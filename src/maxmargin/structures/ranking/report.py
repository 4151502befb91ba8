"""Rankings in a report."""

from functools import partial
from typing import Any

import numpy as np

from maxmargin.report.answers import Answers, side_by_side, worst
from maxmargin.report.markup import Markup, plural, tag
from maxmargin.structures.ranking.estimator import query_rows
from maxmargin.structures.ranking.problem import average_precision, ndcg, precision_at

MOST_PLACES, FIRST_PLACES = 20, 5
"""Documents of a query whose relevance is shown, and those that are shown themselves."""


class RankedAnswers(Answers):
    """Documents in an order."""

    estimators = ("Ranker",)
    unit = "query"
    legend = (
        "Relevance of the documents from the first rank on: in the ideal order, and as predicted."
    )

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
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

    def mistakes(self, most: int) -> list[Markup]:
        losses = np.array([self._lost(rows) for rows in self.queries])
        found = []
        for i in worst(losses, most):
            y_true, scores = self._of(self.queries[i])
            best = np.sort(y_true)[::-1]
            ours = y_true[np.argsort(-scores, kind="stable")]
            found.append(
                self.item(
                    i,
                    f"NDCG of the first 10 is {1.0 - losses[i]:.3f}",
                    side_by_side(_places(best), _places(ours)),
                    self._first(self.queries[i]),
                )
            )
        return found

    def name(self, i: int) -> str:
        """The query, by its own name if it has one."""
        named = len(self.groups) == len(self.y_true)
        return str(self.groups[self.queries[i][0]]) if named else super().name(i)

    def shown(self, i: int) -> str:
        """Nothing: words are those of documents."""
        return ""

    def _first(self, rows: Any) -> Markup | None:
        """What readers should see of the documents in the first places."""
        if self.words is None:
            return None
        y_true, scores = self._of(rows)
        order = np.argsort(-scores, kind="stable")[:FIRST_PLACES]
        lines = [
            f"{super(RankedAnswers, self).shown(rows[at])} (relevance {y_true[at]:g})"
            for at in order
        ]
        return tag("ol", *(tag("li", line) for line in lines))

    def _of(self, rows: Any) -> tuple[Any, Any]:
        return self.y_true[rows], self.predictions[rows]

    def _lost(self, rows: Any) -> float:
        """One minus NDCG; zero where no order is better than another."""
        y_true, scores = self._of(rows)
        return 0.0 if y_true.min() == y_true.max() else 1.0 - ndcg(y_true, scores, 10)


def _places(relevance: Any) -> str:
    """The relevance of the documents from the first place on."""
    more = " …" if len(relevance) > MOST_PLACES else ""
    return " ".join(f"{abs(one):g}" for one in relevance[:MOST_PLACES]) + more


ANSWERS = (RankedAnswers,)

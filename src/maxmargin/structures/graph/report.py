"""Labelled graphs in a report."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxmargin.report.answers import LabellingAnswers, PairWeights, check_words
from maxmargin.structures.graph.formats import node_values


class NodeAnswers(LabellingAnswers):
    """Labels of the nodes of graphs; nodes whose label is void are left out."""

    unit, position = "graph", "node"

    def pair_weights(self) -> list[PairWeights]:
        """Of the first two edge features."""
        tables, caption = self.estimator.edge_coef_[:2], "Weight of neighbouring labels"
        which = [f", edge feature {k}" for k in range(len(tables))] if len(tables) > 1 else [""]
        return [
            PairWeights(values, f"{caption}{one}", "next to")
            for values, one in zip(tables, which, strict=True)
        ]

    def true_labels(self, y: Any) -> Sequence[Any]:
        """Labels of the nodes of each graph that have one."""
        y_true = [
            node_values(labels, graph, i, "labels")
            for i, (labels, graph) in enumerate(zip(y, self.X, strict=True))
        ]
        if self.estimator.void is None:
            return y_true
        check_words(self.words, [len(labels) for labels in y_true], "labels")
        known = [np.flatnonzero(labels != self.estimator.void) for labels in y_true]
        pairs = zip(self.predictions, known, strict=True)
        self.predictions = [labels[kept] for labels, kept in pairs]
        if self.words is not None:
            pairs = zip(self.words, known, strict=True)
            self.words = [[words[at] for at in kept] for words, kept in pairs]
        return [labels[kept] for labels, kept in zip(y_true, known, strict=True)]


ANSWERS = (("GraphLabeler", NodeAnswers),)

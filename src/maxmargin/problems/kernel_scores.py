"""Scores of the candidates of many inputs, by products of matrices."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.kernel_gram import stacked
from maxmargin.engines.threads import Threads
from maxmargin.problems.kernel import Candidates, n_rows
from maxmargin.problems.kernel_model import KernelModel

Floats = NDArray[np.float64]

_MOST_INPUTS, _MOST_VALUES = 256, 4_000_000
"""Inputs whose candidates are held at the same time, and values in the rows of their parts."""


class Scored(NamedTuple):
    """Rows of the parts and labels of each input, and the scores of every part with every label."""

    part_rows: list[Any]
    label_rows: list[Any]
    scores: list[Floats]


class Scoring:
    """Scores by a model. What it makes of labels is kept while inputs have the same ones.

    Parameters
    ----------
    model : KernelModel
    """

    def __init__(self, model: KernelModel) -> None:
        self.model = model
        self._labels: Any = None
        self._rows: Any = None
        self._weighed: Any = None
        self._weights: Any = None

    def score(self, candidates: Sequence[Candidates]) -> Scored:
        """Score the candidates of some inputs; neighbours with the same labels at once."""
        part_rows = [self.model.kernel.parts.rows(each.parts) for each in candidates]
        label_rows = [self._label_rows(each.labels) for each in candidates]
        scores: list[Floats] = []
        start = 0
        while start < len(part_rows):
            stop = start + 1
            while stop < len(part_rows) and label_rows[stop] is label_rows[start]:
                stop += 1
            together = part_rows[start:stop]
            table = self.model.scores(stacked(together), self._weights_of(label_rows[start]))
            scores += np.split(table, np.cumsum([rows.shape[0] for rows in together])[:-1])
            start = stop
        return Scored(part_rows, label_rows, scores)

    def _label_rows(self, labels: Any) -> Any:
        if self._rows is None or labels is not self._labels:
            self._labels, self._rows = labels, self.model.kernel.labels.rows(labels)
        return self._rows

    def _weights_of(self, rows: Any) -> Floats:
        if rows is not self._weighed:
            self._weighed, self._weights = rows, self.model.weights_of(rows)
        return np.asarray(self._weights)


def in_groups(
    inputs: Iterable[int], candidates_of: Callable[[int], Candidates]
) -> Iterator[list[tuple[int, Candidates]]]:
    """Inputs with their candidates, so many at a time as may be held together."""
    group: list[tuple[int, Candidates]] = []
    values = 0
    for i in inputs:
        candidates = candidates_of(i)
        group.append((i, candidates))
        values += getattr(candidates.parts, "size", n_rows(candidates.parts))
        if len(group) == _MOST_INPUTS or values >= _MOST_VALUES:
            yield group
            group, values = [], 0
    if group:
        yield group


def predict(problem: Any, model: KernelModel, X: Any, threads: Threads) -> list[tuple[Any, float]]:
    """The best output of each input, and its score."""

    def best(share: slice) -> list[tuple[Any, float]]:
        scoring, answers = Scoring(model), []
        for group in in_groups(range(n_rows(X))[share], lambda i: problem.candidates(X[i])):
            candidates = [each for _, each in group]
            for each, table in zip(candidates, scoring.score(candidates).scores, strict=True):
                scores = table[each.part_of, each.label_of]
                at = int(np.argmax(scores))
                answers.append((each.outputs[at], float(scores[at])))
        return answers

    parts = threads.map(best, threads.shares(n_rows(X)))
    return [answer for part in parts for answer in part]

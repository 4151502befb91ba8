"""Names of features, and the weights that a report shows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-9
"""Fraction of the largest weight, below which weights are not shown."""


class WeightRow(NamedTuple):
    """Weights of all features for one class, or for all outputs."""

    name: str
    weights: Floats


def feature_names(estimator: Any) -> Sequence[str] | None:
    """Names of the features in the order of the weights, or None if they have none.

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.report.feature_names import feature_names
    >>> X, y = [[{"word": "the"}, {"word": "dog"}]], [["DET", "NOUN"]]
    >>> feature_names(mm.SequenceTagger().fit(X, y))
    ['word=the', 'word=dog']
    """
    if hasattr(estimator, "vocabulary_"):
        return list(estimator.vocabulary_)
    if hasattr(estimator, "feature_names_in_"):
        return [str(name) for name in estimator.feature_names_in_]
    return None


def name_of(names: Sequence[str] | None, column: int) -> str:
    """Name of a feature, or its number."""
    return f"feature {column}" if names is None else names[column]


def weight_rows(estimator: Any) -> list[WeightRow]:
    """Weights by class, where there are classes; none that a reader could not interpret."""
    if hasattr(estimator, "words_"):
        return []  # hashed: many features share a weight
    for name in ("coef_", "node_coef_", "weights_"):
        table = dense(getattr(estimator, name, None))
        if table is None:
            continue
        classes = getattr(estimator, "classes_", None)
        if np.ndim(table) == 1:
            return [WeightRow("all", table)]
        if classes is None:
            return []
        if len(table) == len(classes):
            return [WeightRow(str(name), row) for name, row in zip(classes, table, strict=True)]
        if len(table) == 1 and len(classes) == 2:
            positive = getattr(estimator, "pos_label_", classes[1])
            return [WeightRow(str(positive), table[0])]
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

"""Scores of labels: of classes, of confusions, of chunks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[Any]

OUTSIDE = "O"
"""Label of what belongs to no chunk."""


class ClassScore(NamedTuple):
    """Precision, recall and F1 of a class; `support` is how many true members it has."""

    name: Any
    precision: float
    recall: float
    f1: float
    support: int


def counted_score(name: Any, correct: int, predicted: int, true: int) -> ClassScore:
    """The scores for numbers of correct, of predicted and of true members."""
    f1 = 2 * correct / max(predicted + true, 1)
    return ClassScore(name, correct / max(predicted, 1), correct / max(true, 1), f1, true)


def flat_pairs(y_true: Any, y_pred: Any) -> tuple[Labels, Labels]:
    """True and predicted labels one after the other, of examples or of positions of sequences.

    Examples
    --------
    >>> from maxmargin.report.scores import flat_pairs
    >>> y_true, predicted = flat_pairs([["a", "b"], ["c"]], [["a", "a"], ["c"]])
    >>> y_true.tolist(), predicted.tolist()
    (['a', 'b', 'c'], ['a', 'a', 'c'])
    """
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_true has {len(y_true)} entries but y_pred has {len(y_pred)}.")
    for i, (labels, predicted) in enumerate(zip(y_true, y_pred, strict=True)):
        if np.ndim(labels) != np.ndim(predicted) or np.size(labels) != np.size(predicted):
            raise ValueError(f"y_true[{i}] and y_pred[{i}] have different numbers of labels.")
    y_true, predicted = _flat(y_true), _flat(y_pred)
    if {y_true.dtype.kind, predicted.dtype.kind} & set("USO") and y_true.dtype != predicted.dtype:
        return y_true.astype(str), predicted.astype(str)
    return y_true, predicted


def _flat(labels: Any) -> Labels:
    if len(labels) and np.ndim(labels[0]):
        parts = [np.asarray(part) for part in labels if len(part)]
        return np.concatenate(parts) if parts else np.zeros(0)
    return np.asarray(labels)


def confusion(
    y_true: Labels,
    predicted: Labels,
    labels: Sequence[Any] | None = None,
    normalize: str | None = None,
) -> tuple[list[Any], NDArray[Any]]:
    """Classes, and how often each (row) was predicted as each (column)."""
    from sklearn.metrics import confusion_matrix

    if normalize not in (None, "true", "pred", "all"):
        raise ValueError(f"normalize must be 'true', 'pred', 'all' or None, not {normalize!r}.")
    if not len(y_true):
        raise ValueError("There are no labels to compare: y_true is empty.")
    found = np.union1d(y_true, predicted)
    names = found if labels is None else np.asarray(labels)
    if names.dtype.kind != found.dtype.kind and found.dtype.kind in "US":
        names = names.astype(str)
    if not np.isin(names, y_true).any():
        raise ValueError("None of the labels occurs in y_true.")
    counts = confusion_matrix(y_true, predicted, labels=names, normalize=normalize)
    return names.tolist(), counts


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


# Chunks


def look_like_chunks(names: Iterable[Any]) -> bool:
    """Tell whether labels are those of chunks: ``B-NP``, ``I-NP``, ``O``.

    Examples
    --------
    >>> from maxmargin.report.scores import look_like_chunks
    >>> look_like_chunks(["B-NP", "I-NP", "O"]), look_like_chunks(["NOUN", "VERB"])
    (True, False)
    """
    names = [name for name in names if name != OUTSIDE]
    return bool(names) and all(
        isinstance(name, str) and len(name) > 2 and name[:2] in ("B-", "I-") for name in names
    )


def chunks(labels: Iterable[str]) -> set[tuple[int, int, str]]:
    """Start, end and type of each chunk; as in conlleval, an I- may start one.

    Examples
    --------
    >>> from maxmargin.report.scores import chunks
    >>> sorted(chunks(["B-NP", "I-NP", "B-NP", "O", "I-VP"]))
    [(0, 2, 'NP'), (2, 3, 'NP'), (4, 5, 'VP')]
    """
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
    """Precision, recall and F1 of the chunks of each kind, and last of all of them.

    A chunk is correct if its extent and its type are.

    Examples
    --------
    >>> from maxmargin.report.scores import chunk_scores
    >>> kinds = chunk_scores([["B-NP", "I-NP", "B-VP"]], [["B-NP", "I-NP", "B-NP"]])
    >>> [(kind.name, kind.f1, kind.support) for kind in kinds]
    [('NP', 0.6666666666666666, 1), ('VP', 0.0, 1), ('all chunks', 0.5, 2)]
    """
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

"""How a sequence tagger predicts."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.compiled.rows import make_rows
from maxmargin.core.arrays import Floats, check_indices, check_shape
from maxmargin.core.inputs import (
    are_moderate,
    check_k,
    check_moderate,
    check_temperature,
    has_dictionaries,
    stack,
)
from maxmargin.core.oracle import Threads
from maxmargin.predictors.base import Predictor, check_classes, check_weights
from maxmargin.predictors.checks import check_features, check_is_fitted, check_names
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.chain.oracle import Layout, Sequences
from maxmargin.structures.chain.problem import ChainModel
from maxmargin.structures.chain.vocabulary import Vocabulary


@estimator
class SequenceTaggerPredictor(Predictor):
    """What a fitted `SequenceTagger` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features)
        Emission weights.
    transitions_ : ndarray of shape (n_classes, n_classes)
        From the row's label to the column's.
    second_order_ : ndarray of shape (n_classes, n_classes, n_classes)
        From two labels to the next; only with ``order=2``.
    pair_coef_ : ndarray of shape (n_pair_features, n_classes, n_classes)
        Weights of `pair_features`, in their order; only with them.
    intercept_, first_, last_ : ndarray of shape (n_classes,)
        Biases; zeros where not fitted.
    vocabulary_ : Mapping
        Column of each feature name; only when trained on dictionaries.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns; only when trained on data frames.
    """

    _arguments = """
    X : list of n_sequences sequences, or matrix of shape (n_rows, n_features)
        Matrices with one row a position, lists of feature dictionaries, or with `lengths` one
        matrix of all rows.
    y : list of n_sequences label lists, or array-like of shape (n_rows,)
        The true labels, numbers or strings; all labels one after the other go with `lengths`.
    lengths : array-like of shape (n_sequences,), default=None
        Number of positions of each sequence, if `X` is one matrix.
    sample_weight : array-like of shape (n_sequences,), default=None
        Multiplies the C of each sequence.
    """

    classes_: NDArray[Any] = fitted()
    vocabulary_: Vocabulary = fitted()
    coef_: Floats = fitted()
    transitions_: Floats = fitted()
    intercept_: Floats = fitted()
    first_: Floats = fitted()
    last_: Floats = fitted()
    second_order_: Floats = fitted()
    pair_coef_: Floats = fitted()
    _layout: Layout = fitted()
    _table: Floats = fitted()
    _tied: NDArray[np.int64] | None = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        layout, n_features = self._layout, self.n_features_in_
        check_classes(self.classes_, layout.n_labels)
        names: Any = vars(self).get("vocabulary_", range(n_features))
        if layout.n_features != n_features or len(names) != n_features:
            raise ValueError("features and weights are not equal in number")
        check_weights("_table", self._table, layout.n_rows, layout.n_columns)
        tied = np.zeros(0, dtype=np.int64) if self._tied is None else self._tied
        check_indices("_tied", tied, n_features)
        check_shape("_tied", tied, layout.n_tied)
        self.__dict__.update(parts_of(self._table, layout))

    def predict(self, X: Any, *, lengths: ArrayLike | None = None) -> Any:
        """Labels of every position.

        Returns
        -------
        y : list of ndarray, or ndarray of shape (n_rows,) if `lengths` are given
            What is predicted for each position.
        """
        sequences = self._checked(X, lengths)
        labels = self.classes_.take(self._inferred(sequences)[0])
        return labels if lengths is not None else cut(labels, sequences.ends.tolist())

    def decision_function(self, X: Any, *, lengths: ArrayLike | None = None) -> Floats:
        """Score of the best labelling of each sequence."""
        return self._inferred(self._checked(X, lengths))[1]

    def predict_marginals(
        self, X: Any, *, lengths: ArrayLike | None = None, temperature: float = 1.0
    ) -> Any:
        """Marginal probability of each label at each position.

        Returns
        -------
        marginals : list of ndarray of shape (length, n_classes)
            Or one ndarray of shape (n_rows, n_classes) if `lengths` are given.
        """
        temperature = check_temperature(temperature)
        found = self._model.marginals(self._checked(X, lengths), temperature)
        return found if lengths is None else np.concatenate(found)

    def predict_k_best(
        self, X: Any, k: int, *, lengths: ArrayLike | None = None
    ) -> list[list[tuple[NDArray[Any], float]]]:
        """The k best labellings of each sequence with their scores, best first.

        Returns
        -------
        k_best : list of lists of (labels, score)
            Fewer than k where there are fewer labellings.
        """
        k = check_k(k)
        found = self._model.k_best(self._checked(X, lengths), k)
        return [
            [(self.classes_[row], float(score)) for row, score in zip(labels, scores, strict=True)]
            for labels, scores in found
        ]

    def _inferred(self, sequences: Sequences) -> tuple[NDArray[Any], Floats]:
        """Best labels as numbers, and their scores."""
        with Threads(self.n_jobs) as threads:
            return ChainModel(self._table, self._layout).inference(sequences, threads)

    @property
    def _model(self) -> ChainModel:
        check_is_fitted(self)
        return ChainModel(self._table, self._layout)

    def _checked(self, X: Any, lengths: ArrayLike | None) -> Sequences:
        """Checked sequences in the columns of the training data."""
        check_is_fitted(self)
        if "vocabulary_" not in self.__dict__:  # else whatever has columns is refused
            check_names(self, X)
        return with_tied(sequences_alike(X, lengths, self.__dict__), self._tied)


def checked_sequences(
    X: Any, lengths: Any, vocabulary: Vocabulary | None, grow: bool, width: int | None = None
) -> Sequences:
    """Checked sequences from any of the three forms."""
    if vocabulary is not None:
        rows, ends = vocabulary.rows(X, grow)
        sequences = Sequences(rows, ends, max(len(vocabulary), 1))
        # In single precision they are: none is infinite here.
        if rows.values.itemsize > 4 and not are_moderate(rows.values):
            check_moderate(sequences.matrix, "SequenceTagger", ends)
        return sequences
    if lengths is None and (X is None or not len(X)):
        raise ValueError("X is empty: give at least one sequence.")
    matrix, ends = stack(X, lengths, width)
    if matrix.shape[0]:
        matrix = check_features(matrix, "SequenceTagger", ends if lengths is None else None)
    return Sequences.of(matrix, ends)


def cut(rows: Any, ends: list[int]) -> list[Any]:
    """The rows of each sequence."""
    return [rows[start:stop] for start, stop in pairwise(ends)]


def sequences_alike(X: Any, lengths: ArrayLike | None, metadata: Mapping[str, Any]) -> Sequences:
    """Sequences in the columns of the training data."""
    vocabulary, width = metadata.get("vocabulary_"), metadata["n_features_in_"]
    dictionaries = lengths is None and has_dictionaries(X)
    if dictionaries and vocabulary is None:
        raise ValueError("X holds feature dictionaries, but the tagger was trained on matrices.")
    if vocabulary is not None and not dictionaries and any(map(np.size, X)):
        raise ValueError("X holds matrices, but the tagger was trained on feature dictionaries.")
    sequences = checked_sequences(X, lengths, vocabulary, grow=False, width=width)
    if sequences.width != width:
        raise ValueError(
            f"X has {sequences.width} features, but SequenceTagger was trained with {width}."
        )
    return sequences


def with_tied(sequences: Sequences, tied: NDArray[np.int64] | None) -> Sequences:
    """The sequences with the features that are tied to pairs of labels."""
    if tied is None:
        return sequences
    features = sp.csr_array(sequences.matrix, dtype=np.float64)[:, tied]
    return replace(sequences, tied=make_rows(features, 0.0))


def parts_of(table: Floats, layout: Layout) -> dict[str, Floats]:
    """Fitted attributes as views of the weight table."""
    n = layout.n_labels

    def row(at: int) -> Floats:
        return table[at, :n] if at >= 0 else np.zeros(n)

    parts = {
        "coef_": table[: layout.n_features, :n].T,
        "transitions_": table[layout.transitions : layout.transitions + n, :n],
        "intercept_": row(layout.bias),
        "first_": row(layout.first),
        "last_": row(layout.last),
    }
    if layout.triples >= 0:
        triples = table[layout.triples : layout.triples + n * n, :n]
        parts["second_order_"] = triples.reshape(n, n, n)
    if layout.tied >= 0:
        parts["pair_coef_"] = table[layout.tied :, :n].reshape(-1, n, n)
    return parts

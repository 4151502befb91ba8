"""SequenceTagger: a label for each position of a sequence."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Options, StrOptions

from maxmargin.compiled.rows import make_rows
from maxmargin.core.arrays import Floats, check_indices, check_shape
from maxmargin.core.inputs import (
    are_moderate,
    check_k,
    check_loss_matrix,
    check_moderate,
    check_temperature,
    class_numbers,
    flat_labels,
    has_dictionaries,
    label_array,
    stack,
)
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.data.sources import Source
from maxmargin.estimators.base import check_classes, check_weights
from maxmargin.estimators.checks import check_features, check_is_fitted, check_names
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.pruning import Prunable
from maxmargin.estimators.structured import ExampleEstimator
from maxmargin.structures.chain.oracle import ChainOracle, Layout, Sequences
from maxmargin.structures.chain.problem import ChainModel
from maxmargin.structures.chain.vocabulary import Vocabulary
from maxmargin.training.fit import (
    Encoded,
    Metadata,
    first_examples,
    known_metadata,
    partial_fit,
    partial_fit_classes,
    runs_on_shards,
    survey_classes,
)
from maxmargin.training.partitions import Survey, check_widths

_LOSSES = {"hamming", "hamming-normalized", "zero-one"}


@estimator
class SequenceTagger(ExampleEstimator, Prunable):
    """Chains of labels: a structural SVM for tagging, with a certificate of optimality.

    The score of a labelling is the sum of emissions (features of a position with its label),
    transitions (a label after another), and biases of labels, of the first and of the last
    position. Minimises ``1/2 |w|^2 + C * sum_i weight_i * hinge_i(w)`` over sequences.

    Sequences come as a list of matrices (one row a position, dense or sparse), as one matrix of all
    rows with `lengths`, or as a list of lists of feature dictionaries. See Notes.

    Parameters
    ----------
    loss : {"hamming", "hamming-normalized", "zero-one"} or array-like, default="hamming"
        Number of wrong labels; their fraction of the sequence; one for any mistake at all; or
        costs ``loss[true, predicted]``, classes sorted (also as dictionary ``{(true, predicted):
        cost}``), summed over the positions.
    order : {1, 2}, default=1
        Transitions from one label to the next, or also from two labels to the next.
    pair_features : "all" or list of columns or names, default=None
        Features that also have a weight for every pair of labels, at the transition to their
        position. For ``order=1`` and losses that add up over positions.
    fit_intercept : bool, default=True
        A bias for each label.
    fit_ends : bool, default=True
        Biases for the labels of the first and of the last position.
    rescaling : {"margin", "slack"}, default="margin"
        See `StructuredSVM`. Inference for "slack" is exact for the Hamming and zero-one losses at
        order 1 without `pair_features`; for others its suboptimality is bounded.

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

    See Also
    --------
    StructuredSVM : Any other structure.
    LinearClassifier : Labels on their own.

    Notes
    -----
    In feature dictionaries strings name an indicator (``{"word": "the"}``), numbers and booleans
    are values, lists name several indicators, dictionaries are nested. Names not seen in training
    are left out at prediction.

    Examples
    --------
    >>> import maxmargin as mm
    >>> X = [
    ...     [{"word": "the"}, {"word": "dog"}, {"word": "barks"}],
    ...     [{"word": "dogs"}, {"word": "bark"}],
    ... ]
    >>> y = [["DET", "NOUN", "VERB"], ["NOUN", "VERB"]]
    >>> tagger = mm.SequenceTagger(C=10.0).fit(X, y)
    >>> tagger.predict([[{"word": "the"}, {"word": "dogs"}, {"word": "bark"}]])[0].tolist()
    ['DET', 'NOUN', 'VERB']
    """

    loss: Any = "hamming"
    order: int = 1
    pair_features: Any = None
    fit_intercept: bool = True
    fit_ends: bool = True

    _parameter_constraints = {
        "loss": [StrOptions(_LOSSES), "array-like", dict],
        "order": [Options(int, {1, 2})],
        "pair_features": [StrOptions({"all"}), "array-like", None],
    }

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

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        lengths: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on sequences and their labels."""
        return self._fit(X, y, sample_weight, lengths=lengths)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from more sequences; names in dictionaries must be known from a `fit` before."""
        all_classes = partial_fit_classes(self, classes)
        if known_metadata(self) is None and lengths is None and has_dictionaries(X):
            if not hasattr(self, "vocabulary_"):
                raise ValueError(
                    "X holds feature dictionaries, of which partial_fit must know all names: call "
                    "fit on some of them before, or give matrices."
                )
            examples = self._encode(X, y, _named_columns(self.vocabulary_))
            partial_fit(self, X, y, examples, sample_weight, all_classes)
            return self
        return self._partial_fit(X, y, sample_weight, all_classes, lengths=lengths)

    def _items(self, X: Any, y: Any, examples: Encoded, **others: Any) -> tuple[Any, Any]:
        if others["lengths"] is None or not runs_on_shards(self):
            return X, y
        ends = examples.X.ends.tolist()
        return _cut(X, ends), _cut(examples.y, ends)

    def _encode(
        self, X: Any, Y: Any, metadata: Metadata | None, lengths: ArrayLike | None = None
    ) -> Encoded:
        if Y is None:
            raise ValueError("y is missing: give the labels of each sequence.")
        if metadata is not None:
            vocabulary, sequences = metadata.get("vocabulary_"), _alike(X, lengths, metadata)
        else:
            vocabulary = Vocabulary() if lengths is None and has_dictionaries(X) else None
            sequences = _sequences(X, lengths, vocabulary, grow=True)
        labels = _flat_labels(Y, sequences.lengths)
        return Encoded(sequences, labels, len(sequences.lengths), vocabulary)

    def _survey(self, source: Source) -> Metadata:
        first = first_examples(source)
        if not has_dictionaries(first.X):
            return survey_classes(self, source)
        vocabulary = Vocabulary()
        for X, _ in source.batches():
            vocabulary.rows(X, grow=True)
        examples = self._encode(*first, _named_columns(vocabulary))
        return self._metadata(examples, source.classes())

    def _survey_partition(self, X: Any, y: Any) -> Any:
        labels = np.unique(flat_labels(y))
        if has_dictionaries(X):
            vocabulary = Vocabulary()
            vocabulary.rows(X, grow=True)
            return labels, vocabulary
        return labels, stack(X, None, None)[0].shape[1]

    def _metadata_of(self, surveys: list[Survey]) -> Metadata:
        labels, kinds = zip(*(survey.found for survey in surveys), strict=True)
        classes = np.unique(flat_labels(labels))
        first: Any = surveys[0].first
        if isinstance(kinds[0], Vocabulary):
            merged = Vocabulary()
            for vocabulary in kinds:
                merged.rows([[list(vocabulary)]], grow=True)
            return self._metadata(self._encode(first.X, first.y, _named_columns(merged)), classes)
        check_widths(kinds)
        return self._metadata(self._encode(first.X, first.y, None), classes)

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        n_features, vocabulary = examples.X.width, examples.extra
        if not len(examples.y):
            raise ValueError("X holds no positions: there is nothing to learn from.")
        if classes is None:
            classes = np.unique(examples.y)
        tied = self._tied_columns(n_features, vocabulary)
        layout = Layout.of(
            n_features,
            len(classes),
            bias=self.fit_intercept,
            ends=self.fit_ends,
            order=self.order,
            n_tied=0 if tied is None else len(tied),
        )
        metadata = {
            "classes_": classes,
            "n_features_in_": n_features,
            "_layout": layout,
            "_tied": tied,
        }
        return metadata if vocabulary is None else metadata | {"vocabulary_": vocabulary}

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata) -> Oracle:
        classes = metadata["classes_"]
        oracle = ChainOracle(
            _with_tied(examples.X, metadata["_tied"]),
            class_numbers(examples.y, classes, flat=True),
            metadata["_layout"],
            C,
            check_loss_matrix(None if isinstance(self.loss, str) else self.loss, classes),
            **self._loss_options(),
        )
        exact = oracle.slack or oracle.zero_one
        return oracle if exact else self._rescaled(oracle)

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        table = metadata["_layout"].table(weights)
        return metadata | {"_table": table, **_parts(table, metadata["_layout"])}

    def _keep_weights(self, keep: NDArray[np.bool_]) -> None:
        layout, table = self._layout, self._table.copy()
        table[: layout.n_features, : layout.n_labels][~keep.T] = 0.0
        names = "classes_", "n_features_in_", "_layout", "_tied"
        metadata = {name: getattr(self, name) for name in names}
        if hasattr(self, "vocabulary_"):
            stays: NDArray[np.bool_] = np.any(keep, axis=0)
            if self._tied is not None:  # these have weights of transitions, too
                stays[self._tied] = True
                metadata["_tied"] = (np.cumsum(stays) - 1)[self._tied]
            kept = [name for name, column in self.vocabulary_.items() if stays[column]]
            table = np.concatenate([table[: layout.n_features][stays], table[layout.n_features :]])
            metadata |= {
                "vocabulary_": Vocabulary(kept),
                "n_features_in_": len(kept),
                "_layout": layout.resized(len(kept)),
            }
        self.__dict__.update(self._fitted(metadata, table.ravel()))

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
        self.__dict__.update(_parts(self._table, layout))

    def _finish(self, X: Any, metadata: Metadata) -> None:
        if "vocabulary_" not in metadata:
            self.__dict__.pop("vocabulary_", None)
        super()._finish(X, metadata)

    def _check_names(self, X: Any, *, reset: bool) -> None:
        check_names(self, X, reset)

    def predict(self, X: Any, *, lengths: ArrayLike | None = None) -> Any:
        """Labels of every position.

        Returns
        -------
        y : list of ndarray, or ndarray of shape (n_rows,) if `lengths` are given
            What is predicted for each position.
        """
        sequences = self._checked(X, lengths)
        labels = self.classes_[self._inferred(sequences)[0]]
        return labels if lengths is not None else _cut(labels, sequences.ends.tolist())

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

    def score(self, X: Any, y: Any, *, lengths: ArrayLike | None = None) -> float:
        """Fraction of positions whose label is right; labels not seen in training are mistakes."""
        sequences = self._checked(X, lengths)
        y_true = _flat_labels(y, sequences.lengths)
        labels = self.classes_[self._inferred(sequences)[0]]
        return float(np.mean(labels == y_true)) if len(y_true) else 1.0

    def _inferred(self, sequences: Sequences) -> tuple[NDArray[Any], Floats]:
        """Best labels as numbers, and their scores."""
        with Threads(self.n_jobs) as threads:
            return self._model.inference(sequences, threads)

    @property
    def _model(self) -> ChainModel:
        check_is_fitted(self)
        return ChainModel(self._table, self._layout)

    def _loss_options(self) -> dict[str, bool]:
        """Keywords of `ChainOracle` for the loss."""
        slack = self.rescaling == "slack"
        named = isinstance(self.loss, str)
        zero_one = named and self.loss == "zero-one"
        if zero_one and self.order != 1:
            raise ValueError("loss='zero-one' needs order=1.")
        if self.pair_features is not None and (zero_one or self.order != 1):
            raise ValueError(
                "pair_features need order=1 and a loss that adds up over the positions, not "
                "'zero-one'."
            )
        counts = named and self.order == 1 and self.pair_features is None
        # With one cost for all mistakes, the two ways of rescaling are the same.
        return {
            "normalized": named and self.loss == "hamming-normalized",
            "zero_one": zero_one,
            "slack": slack and counts and not zero_one,
        }

    def _checked(self, X: Any, lengths: ArrayLike | None) -> Sequences:
        """Checked sequences in the columns of the training data."""
        check_is_fitted(self)
        check_names(self, X)
        return _with_tied(_alike(X, lengths, self.__dict__), self._tied)

    def _tied_columns(
        self, n_features: int, vocabulary: Vocabulary | None
    ) -> NDArray[np.int64] | None:
        """Columns of `pair_features`."""
        wanted = self.pair_features
        if wanted is None:
            return None
        if isinstance(wanted, str):
            return np.arange(n_features)
        names: Mapping[str, int] = vocabulary or {}
        columns = [names.get(name, -1) if isinstance(name, str) else int(name) for name in wanted]
        for name, column in zip(wanted, columns, strict=True):
            if not 0 <= column < n_features:
                raise ValueError(f"pair_features names {name!r}, which is no feature of X.")
        return np.array(columns, dtype=np.int64)


def _sequences(
    X: Any, lengths: Any, vocabulary: Vocabulary | None, grow: bool, width: int | None = None
) -> Sequences:
    """Checked sequences from any of the three forms."""
    if vocabulary is not None:
        rows, ends = vocabulary.rows(X, grow)
        sequences = Sequences(rows, ends, max(len(vocabulary), 1))
        if not are_moderate(rows.values):
            check_moderate(sequences.matrix, "SequenceTagger", ends)
        return sequences
    if lengths is None and (X is None or not len(X)):
        raise ValueError("X is empty: give at least one sequence.")
    matrix, ends = stack(X, lengths, width)
    if matrix.shape[0]:
        matrix = check_features(matrix, "SequenceTagger", ends if lengths is None else None)
    return Sequences.of(matrix, ends)


def _cut(rows: Any, ends: list[int]) -> list[Any]:
    """The rows of each sequence."""
    return [rows[start:stop] for start, stop in pairwise(ends)]


def _named_columns(vocabulary: Vocabulary) -> Metadata:
    """Metadata of a vocabulary."""
    return {"vocabulary_": vocabulary, "n_features_in_": len(vocabulary)}


def _alike(X: Any, lengths: ArrayLike | None, metadata: Metadata) -> Sequences:
    """Sequences in the columns of the training data."""
    vocabulary, width = metadata.get("vocabulary_"), metadata["n_features_in_"]
    dictionaries = lengths is None and has_dictionaries(X)
    if dictionaries and vocabulary is None:
        raise ValueError("X holds feature dictionaries, but the tagger was trained on matrices.")
    if vocabulary is not None and not dictionaries and any(map(np.size, X)):
        raise ValueError("X holds matrices, but the tagger was trained on feature dictionaries.")
    sequences = _sequences(X, lengths, vocabulary, grow=False, width=width)
    if sequences.width != width:
        raise ValueError(
            f"X has {sequences.width} features, but SequenceTagger was trained with {width}."
        )
    return sequences


def _with_tied(sequences: Sequences, tied: NDArray[np.int64] | None) -> Sequences:
    """The sequences with the features that are tied to pairs of labels."""
    if tied is None:
        return sequences
    features = sp.csr_array(sequences.matrix, dtype=np.float64)[:, tied]
    return replace(sequences, tied=make_rows(features, 0.0))


def _flat_labels(y: Any, lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Checked labels of all positions, concatenated."""
    flat = isinstance(y, np.ndarray) and y.dtype != object and y.ndim == 1
    if not flat:
        if len(y) != len(lengths):
            if len(y) == lengths.sum() and len(y) and np.ndim(y[0]) == 0:
                return label_array(y)
            raise ValueError(
                f"X has {len(lengths)} sequences but y has {len(y)}: give labels for each."
            )
        for i, (labels, length) in enumerate(zip(y, lengths.tolist(), strict=True)):
            if np.ndim(labels) == 0 or len(labels) != length:
                count = "no list" if np.ndim(labels) == 0 else len(labels)
                raise ValueError(
                    f"Sequence {i} has {length} positions but {count} labels: give one for each."
                )
        return flat_labels(y)
    if len(y) != lengths.sum():
        raise ValueError(
            f"X has {lengths.sum()} positions but y has {len(y)} labels: give one for each."
        )
    return label_array(y)


def _parts(table: Floats, layout: Layout) -> dict[str, Floats]:
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

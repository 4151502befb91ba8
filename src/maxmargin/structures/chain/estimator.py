"""SequenceTagger: a label for each position of a sequence."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Options, StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import (
    check_loss_matrix,
    class_numbers,
    flat_labels,
    has_dictionaries,
    label_array,
    stack,
)
from maxmargin.core.oracle import Oracle
from maxmargin.core.result import AbsoluteGap
from maxmargin.data.sources import Source
from maxmargin.estimators.pruning import Prunable
from maxmargin.estimators.structured import ExampleEstimator
from maxmargin.predictors.checks import check_names
from maxmargin.predictors.declared import estimator
from maxmargin.structures.chain.oracle import ChainOracle, Layout
from maxmargin.structures.chain.predictor import (
    SequenceTaggerPredictor,
    checked_sequences,
    cut,
    parts_of,
    sequences_alike,
    with_tied,
)
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
class SequenceTagger(SequenceTaggerPredictor, ExampleEstimator, Prunable):
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
    tol : float or AbsoluteGap, default=0.1
        Relative duality gap that is good enough, or an absolute one: held-out scores are no better
        at smaller ones.

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
    tol: float | AbsoluteGap = 0.1

    _parameter_constraints = {
        "loss": [StrOptions(_LOSSES), "array-like", dict],
        "order": [Options(int, {1, 2})],
        "pair_features": [StrOptions({"all"}), "array-like", None],
    }

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
        return cut(X, ends), cut(examples.y, ends)

    def _encode(
        self, X: Any, Y: Any, metadata: Metadata | None, lengths: ArrayLike | None = None
    ) -> Encoded:
        if Y is None:
            raise ValueError("y is missing: give the labels of each sequence.")
        if metadata is not None:
            vocabulary, sequences = (
                metadata.get("vocabulary_"),
                sequences_alike(X, lengths, metadata),
            )
        else:
            vocabulary = Vocabulary() if lengths is None and has_dictionaries(X) else None
            sequences = checked_sequences(X, lengths, vocabulary, grow=True)
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
            with_tied(examples.X, metadata["_tied"]),
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
        return metadata | {"_table": table, **parts_of(table, metadata["_layout"])}

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

    def _finish(self, X: Any, metadata: Metadata) -> None:
        if "vocabulary_" not in metadata:
            self.__dict__.pop("vocabulary_", None)
        super()._finish(X, metadata)

    def _check_names(self, X: Any, *, reset: bool) -> None:
        check_names(self, X, reset)

    def score(self, X: Any, y: Any, *, lengths: ArrayLike | None = None) -> float:
        """Fraction of positions whose label is right; labels not seen in training are mistakes."""
        sequences = self._checked(X, lengths)
        y_true = _flat_labels(y, sequences.lengths)
        labels = self.classes_[self._inferred(sequences)[0]]
        return float(np.mean(labels == y_true)) if len(y_true) else 1.0

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


def _named_columns(vocabulary: Vocabulary) -> Metadata:
    """Metadata of a vocabulary."""
    return {"vocabulary_": vocabulary, "n_features_in_": len(vocabulary)}


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

"""DependencyParser: the head of each word of a sentence, and its relation to it."""

from collections.abc import Collection
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.cuts import starts_of
from maxmargin.core.inputs import costs, label_array
from maxmargin.core.result import AbsoluteGap
from maxmargin.estimators.structured import RescaledEstimator
from maxmargin.predictors.checks import check_is_fitted
from maxmargin.predictors.declared import estimator
from maxmargin.structures.dependency.inference import Numbers, Structure, check_trees, projectivized
from maxmargin.structures.dependency.oracle import DependencyOracle, FeatureLayout, numbers_of
from maxmargin.structures.dependency.predictor import (
    DependencyParserPredictor,
    arc_features,
    parts_of,
)
from maxmargin.training.fit import make_solver, train_oracle


def flat_trees(y: Any, lengths: Numbers, labelled: bool) -> tuple[Numbers, NDArray[Any] | None]:
    """Checked heads, and labels if wanted, of all words, concatenated."""
    if y is None:
        raise ValueError("y is missing: give the heads of the words of each sentence.")
    if len(y) != len(lengths):
        raise ValueError(f"X has {len(lengths)} sentences but y has {len(y)} trees.")
    heads: list[Numbers] = []
    labels: list[Any] = []
    for i, (tree, length) in enumerate(zip(y, lengths.tolist(), strict=True)):
        if tree is None:
            raise ValueError(f"Sentence {i} has no heads: give them, or leave the sentence out.")
        is_pair = len(tree) == 2 and np.ndim(tree[0]) == 1
        if labelled and not is_pair:
            raise ValueError(
                f"Sentence {i} has no labels: give a pair (heads, labels), or set labelled=False."
            )
        for name, part in zip(("heads", "labels"), tree if is_pair else [tree], strict=False):
            if len(part) != length:
                raise ValueError(
                    f"Sentence {i} has {length} words but {len(part)} {name}: give one for each."
                )
        own = np.asarray(tree[0] if is_pair else tree)
        if own.size and not np.issubdtype(own.dtype, np.integer):
            raise ValueError(f"Sentence {i}: heads must be whole numbers, 0 for the root.")
        heads.append(own.astype(np.int64).reshape(-1))
        if labelled:
            labels += list(tree[1])
    flat = np.concatenate(heads)
    return flat, label_array(labels, "The list of labels") if labelled else None


_COLUMNS_PER_ROW = 16
"""Hashed columns of arcs for each row of features of labelled arcs, which has all the labels."""


@estimator
class DependencyParser(DependencyParserPredictor, RescaledEstimator):
    """Dependency trees: a structural SVM for parsing, with a certificate of optimality.

    The score of a tree is the sum over its arcs of the weights of their features: words and tags of
    head and modifier, the tags around and between them, direction and distance. With labels, each
    has weights of its own for some of these. Minimises ``1/2 |w|^2 + C * sum_i weight_i *
    hinge_i(w)`` over sentences; the loss is the number of words with a wrong head (or label).

    Parameters
    ----------
    structure : {"projective", "non-projective"}, default="projective"
        Trees without crossing arcs (Eisner's algorithm), or any (spanning arborescences).
    labelled : bool, default=False
        Predict the relation of each word to its head, too.
    single_root : bool, default=True
        Only one word may hang on the root.
    projectivize : bool, default=False
        Whether crossing arcs in projective training are lifted, or an error.
    features : callable, default=None
        Arc features of your own: takes a list of (word, tag) pairs and returns an array of shape
        (n + 1, n + 1, n_arc_features), for the arc from each head to each modifier, the root at 0.
        None is for the features above.
    n_features : int, default=2**20
        Columns that the features are hashed into.
    tag : {"upos", "xpos"}, default="upos"
        Which tags are taken from CoNLL-U.
    rescaling : {"margin", "slack"}, default="margin"
        See `StructuredSVM`. Inference for "slack" is not exact, but its suboptimality is bounded.
    tol : float or AbsoluteGap, default=0.1
        Relative duality gap that is good enough, or an absolute one: held-out scores are no better
        at smaller ones.

    See Also
    --------
    DependencyTrees : The same as a problem, for `StructuredSVM`.
    SequenceTagger : Tags of words.

    Notes
    -----
    Sentences come as lists of (word, tag) pairs; as `maxmargin.data.DependencySentence`, which
    brings its tree along; as the path of a CoNLL-U (or ``.dp``) file, or its text; or as arrays of
    arc features, see `features`. Words and tags not seen in training share a number without
    weights.

    Examples
    --------
    >>> from maxmargin.structures.dependency.estimator import DependencyParser
    >>> X = [
    ...     [("the", "DET"), ("dog", "NOUN"), ("barks", "VERB")],
    ...     [("dogs", "NOUN"), ("chase", "VERB"), ("cats", "NOUN")],
    ... ]
    >>> parser = DependencyParser(C=10.0).fit(X, [[2, 3, 0], [2, 0, 2]])
    >>> parser.predict([[("the", "DET"), ("cat", "NOUN"), ("sleeps", "VERB")]])[0].tolist()
    [2, 3, 0]
    """

    structure: str = "projective"
    single_root: bool = True
    projectivize: bool = False
    n_features: int = 2**20
    tol: float | AbsoluteGap = 0.1

    _parameter_constraints = {
        "structure": [StrOptions({"projective", "non-projective"})],
        "features": [callable, None],
        "n_features": [Interval(Integral, 1, 2**31, closed="both")],
        "tag": [StrOptions({"upos", "xpos"})],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Train on sentences and their trees.

        Raises
        ------
        ValueError
            If heads are no tree, or not of the structure asked for; names the sentence.
        """
        sentences, y = self._sentences(X, y)
        if not sentences:
            raise ValueError("X is empty: give at least one sentence.")
        given = self._is_given(sentences)
        lengths = np.array([len(one) - given for one in sentences], dtype=np.int64)
        y_true, labels = flat_trees(y, lengths, self.labelled)
        ends, n_projectivized = starts_of(lengths), 0
        structure = Structure(self.structure == "projective", self.single_root)
        if structure.projective and self.projectivize:
            check_trees(y_true, ends, structure._replace(projective=False))
            y_true, n_projectivized = projectivized(y_true, ends)
        check_trees(y_true, ends, structure)
        learned: dict[str, Any] = {"_structure": structure, "n_projectivized_": n_projectivized}
        n_labels = None
        if labels is not None:
            learned["labels_"], numbers = np.unique(labels, return_inverse=True)
            n_labels = len(learned["labels_"])
            y_true = y_true * n_labels + numbers
        if not given:
            learned["words_"] = numbers_of(word for one in sentences for word, _ in one)
            learned["tags_"] = numbers_of(tag for one in sentences for _, tag in one)
            n_rows = max(1, self.n_features // _COLUMNS_PER_ROW)
            learned["_layout"] = FeatureLayout.of(self.n_features, n_rows, n_labels)
        arcs = arc_features(sentences, learned)
        if given:
            learned["_n_arc_features"] = arcs.n_features
        C = costs(self, len(sentences), sample_weight)
        oracle = DependencyOracle(arcs, y_true, structure, C)

        def attributes(weights: Floats) -> dict[str, Any]:
            return learned | {"_weights": weights, **parts_of(weights, arcs)}

        train_oracle(self, make_solver(self.solver), self._rescaled(oracle), X, y, attributes)
        for name in _OPTIONAL - {*learned, *parts_of(self._weights, arcs)}:
            self.__dict__.pop(name, None)
        return self

    def score(self, X: Any, y: Any = None, *, ignore_tags: Collection[str] = ()) -> float:
        """Attachment score: the fraction of words whose head (and label, if labelled) is right.

        Parameters
        ----------
        ignore_tags : collection of str, default=()
            Words with these tags do not count; punctuation, for example.
        """
        check_is_fitted(self)
        sentences, y = self._sentences(X, y)
        arcs = self._encoded(sentences)
        heads, labels = flat_trees(y, arcs.lengths, self.labelled)
        found, numbers = np.divmod(self._parsed(arcs)[0].astype(np.int64), arcs.n_labels)
        right = found == heads
        if labels is not None:
            right &= self.labels_[numbers] == labels
        if ignore_tags:
            if self._is_given(sentences):
                raise ValueError("ignore_tags needs sentences of (word, tag) pairs.")
            right = right[[tag not in ignore_tags for one in sentences for _, tag in one]]
        return float(np.mean(right)) if len(right) else 1.0


_OPTIONAL = {"labels_", "words_", "tags_", "label_coef_", "_layout", "_n_arc_features"}
"""Attributes that depend on the kind of the training data."""

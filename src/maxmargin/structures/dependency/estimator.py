"""DependencyParser: the head of each word of a sentence, and its relation to it."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin.core.arrays import Floats, check_indices
from maxmargin.core.cuts import starts_of
from maxmargin.core.inputs import check_k, check_temperature, costs, label_array
from maxmargin.core.oracle import Threads
from maxmargin.core.registry import registered
from maxmargin.estimators.base import check_classes, check_weights
from maxmargin.estimators.checks import check_is_fitted
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.structured import RescaledEstimator
from maxmargin.structures.dependency.formats import DependencySentence, read_dependencies
from maxmargin.structures.dependency.inference import (
    Numbers,
    Structure,
    check_trees,
    k_best_trees,
    projectivized,
    tree_marginals,
)
from maxmargin.structures.dependency.oracle import (
    FIRST_NUMBER,
    ArcFeatures,
    DependencyOracle,
    EncodedSentences,
    FeatureLayout,
    HashedArcs,
    numbers_of,
    parse,
)
from maxmargin.structures.dependency.problem import GivenArcs
from maxmargin.training.fit import make_solver, train_oracle


def own_tree(sentence: DependencySentence) -> Any:
    """The tree that a sentence brings along, in the form that `fit` takes."""
    if sentence.heads is None or sentence.labels is None:
        return sentence.heads
    return sentence.heads, sentence.labels


def checked_words(sentence: Any, i: int) -> list[tuple[str, str]]:
    """Sentence `i` as (word, tag) pairs."""
    pairs = []
    if isinstance(sentence, str) or not isinstance(sentence, Iterable):
        raise ValueError(
            f"Sentence {i} must be a list of (word, tag) pairs, or an array of arc features of "
            f"shape (n + 1, n + 1, n_features), not {type(sentence).__name__}."
        )
    for position, token in enumerate(sentence, start=1):
        is_pair = isinstance(token, Sequence) and not isinstance(token, str) and len(token) == 2
        if not (is_pair and isinstance(token[0], str) and isinstance(token[1], str)):
            raise ValueError(
                f"Sentence {i}, word {position}: must be a pair (word, tag) of strings, not "
                f"{token!r:.80}."
            )
        pairs.append((token[0], token[1]))
    return pairs


def own_features(features: Callable[..., Any], sentence: list[Any], i: int) -> NDArray[Any]:
    """Arc features of sentence `i` by a user's function, checked."""
    found = np.asarray(features(sentence))
    expected = (len(sentence) + 1, len(sentence) + 1)
    if found.ndim != 3 or found.shape[:2] != expected:
        raise ValueError(
            f"features returned an array of shape {found.shape} for sentence {i}, but for "
            f"{len(sentence)} words it must be ({expected[0]}, {expected[1]}, n_features)."
        )
    return found


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


@registered("DependencyTree")
class DependencyTree(NamedTuple):
    """A labelled tree: head (0 is the root) and relation of each word, both ``(n_words,)``."""

    heads: Numbers
    labels: NDArray[Any]


@estimator
class DependencyParser(RescaledEstimator):
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

    Attributes
    ----------
    coef_ : ndarray of shape (n_columns,)
        Weights of the features of arcs.
    label_coef_ : ndarray of shape (n_rows, n_labels)
        Weights of the features of labelled arcs; only with labels.
    labels_ : ndarray of shape (n_labels,)
        Only with labels.
    words_, tags_ : dict
        Number of each word and tag seen in training; only for hashed features.
    n_projectivized_ : int
        Training trees that had crossing arcs to lift.

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
    labelled: bool = False
    single_root: bool = True
    projectivize: bool = False
    features: Callable[..., Any] | None = None
    n_features: int = 2**20
    tag: str = "upos"
    tol: float = 1e-2

    _parameter_constraints = {
        "structure": [StrOptions({"projective", "non-projective"})],
        "features": [callable, None],
        "n_features": [Interval(Integral, 1, 2**31, closed="both")],
        "tag": [StrOptions({"upos", "xpos"})],
    }

    coef_: Floats = fitted()
    label_coef_: Floats = fitted()
    labels_: NDArray[Any] = fitted()
    words_: dict[str, int] = fitted()
    tags_: dict[str, int] = fitted()
    n_projectivized_: int = fitted()
    _structure: Structure = fitted()
    _layout: FeatureLayout = fitted()
    _n_arc_features: int = fitted()
    _weights: Floats = fitted()

    _arguments = """
    X : list of n_sentences sentences, path or text
        See Notes of the class.
    y : list of n_sentences trees, default=None
        Heads of the words of each sentence, counted from 1, 0 for the root; with labels, pairs
        (heads, labels). None if `X` brings the trees along.
    sample_weight : array-like of shape (n_sentences,), default=None
        Multiplies the C of each sentence.
    """

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
        arcs = _arc_features(sentences, learned)
        if given:
            learned["_n_arc_features"] = arcs.n_features
        C = costs(self, len(sentences), sample_weight)
        oracle = DependencyOracle(arcs, y_true, structure, C)

        def attributes(weights: Floats) -> dict[str, Any]:
            return learned | {"_weights": weights, **_parts(weights, arcs)}

        train_oracle(self, make_solver(self.solver), self._rescaled(oracle), X, y, attributes)
        for name in _OPTIONAL - {*learned, *_parts(self._weights, arcs)}:
            self.__dict__.pop(name, None)
        return self

    def _check_fitted(self) -> None:
        super()._check_fitted()
        n_labels = len(self.labels_) if self.labelled else None
        if n_labels is not None:
            check_classes(self.labels_)
        if hasattr(self, "words_"):
            for name in ("words_", "tags_"):
                numbers = np.array([*getattr(self, name).values()], dtype=np.int64)
                check_indices(name, numbers, FIRST_NUMBER + len(numbers))
            n_columns, n_rows = self._layout[:2]
            if self._layout != FeatureLayout.of(n_columns, n_rows, n_labels):
                raise ValueError("labels and weights are not equal in number")
        n_weights = self._layout.n_features if hasattr(self, "words_") else self._n_arc_features
        check_weights("_weights", self._weights, n_weights)
        _ = self._structure

    def predict(self, X: Any) -> list[Any]:
        """The best tree of each sentence.

        Returns
        -------
        trees : list of ndarray of shape (n_words,), or of DependencyTree if labelled
            Heads, or heads and labels.
        """
        arcs = self._arcs(X)
        found, _ = self._parsed(arcs)
        return [self._tree(found[start:stop]) for start, stop in pairwise(arcs.ends.tolist())]

    def decision_function(self, X: Any) -> Floats:
        """Score of the best tree of each sentence."""
        return self._parsed(self._arcs(X))[1]

    def predict_marginals(self, X: Any, *, temperature: float = 1.0) -> list[Floats]:
        """Marginal probability of each arc, summed over labels.

        Returns
        -------
        marginals : list of ndarray of shape (n_words + 1, n_words + 1)
            ``marginals[i][h, m]``: probability of the arc from h to m; each column but the first
            sums to one.
        """
        temperature, arcs = check_temperature(temperature), self._arcs(X)
        return [
            tree_marginals(
                arcs.arc_scores(self._weights, i, temperature) / temperature,
                **self._structure._asdict(),
            )[0]
            for i in range(len(arcs.lengths))
        ]

    def predict_k_best(self, X: Any, k: int) -> list[list[tuple[Numbers, float]]]:
        """The k best trees of each sentence with their scores, best first.

        Returns
        -------
        k_best : list of lists of (heads, score)
            Heads only: with labels, the score is that of the best labels. Fewer than k where there
            are fewer trees.
        """
        k, arcs = check_k(k), self._arcs(X)
        found = [
            k_best_trees(arcs.arc_scores(self._weights, i), k, **self._structure._asdict())
            for i in range(len(arcs.lengths))
        ]
        return [[(heads.astype(np.int64), score) for heads, score in trees] for trees in found]

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

    def _parsed(self, arcs: ArcFeatures) -> tuple[NDArray[Any], Floats]:
        """The best arcs, and the scores of the trees."""
        with Threads(self.n_jobs) as threads:
            return parse(arcs, self._weights, self._structure, threads)

    def _sentences(self, X: Any, y: Any) -> tuple[list[Any], Any]:
        """Lists of (word, tag) pairs, or arrays of arc features; and the trees."""
        if isinstance(X, str | os.PathLike):
            X = read_dependencies(X, tag=self.tag)
        if len(X) and all(isinstance(one, DependencySentence) for one in X):
            y = [own_tree(one) for one in X] if y is None else y
            X = [list(zip(one.words, one.tags, strict=True)) for one in X]
        X = list(X)
        if not all(isinstance(one, np.ndarray) and one.ndim == 3 for one in X):
            X = [checked_words(one, i) for i, one in enumerate(X)]
            if self.features is not None:
                X = [own_features(self.features, one, i) for i, one in enumerate(X)]
        return X, y

    @staticmethod
    def _is_given(sentences: list[Any]) -> bool:
        return bool(sentences) and isinstance(sentences[0], np.ndarray)

    def _arcs(self, X: Any) -> ArcFeatures:
        check_is_fitted(self)
        return self._encoded(self._sentences(X, None)[0])

    def _encoded(self, sentences: list[Any]) -> ArcFeatures:
        """Arcs of sentences with the features of training."""
        given = self._is_given(sentences)
        if sentences and given == hasattr(self, "words_"):
            kinds = "arrays of arc features", "sentences of (word, tag) pairs"
            here, there = kinds if given else kinds[::-1]
            raise ValueError(f"X holds {here}, but the parser was trained on {there}.")
        arcs = _arc_features(sentences, self.__dict__)
        if given and arcs.n_features != self._n_arc_features:
            raise ValueError(
                f"X has {sentences[0].shape[2]} features for each arc, which is not the number "
                f"that DependencyParser was trained with."
            )
        return arcs

    def _tree(self, arcs: NDArray[Any]) -> Any:
        labelled = hasattr(self, "labels_")
        heads, numbers = np.divmod(arcs.astype(np.int64), len(self.labels_) if labelled else 1)
        return DependencyTree(heads, self.labels_[numbers]) if labelled else heads


_OPTIONAL = {"labels_", "words_", "tags_", "label_coef_", "_layout", "_n_arc_features"}
"""Attributes that depend on the kind of the training data."""


def _arc_features(sentences: list[Any], learned: dict[str, Any]) -> ArcFeatures:
    """Arcs of sentences with hashed features of words and tags, or with those that are given."""
    if "words_" in learned:
        encoded = EncodedSentences.of(sentences, learned["words_"], learned["tags_"])
        return HashedArcs(encoded, learned["_layout"])
    return GivenArcs(sentences, len(learned["labels_"]) if "labels_" in learned else None)


def _parts(weights: Floats, arcs: ArcFeatures) -> dict[str, Floats]:
    """Fitted attributes as views of the weights."""
    if isinstance(arcs, GivenArcs):
        n = arcs.n_arc_features
        rest = weights[n:].reshape(-1, n).T
    else:
        layout = arcs.layout  # type: ignore[attr-defined]
        n = layout.n_columns
        rest = weights[n:].reshape(layout.n_rows, layout.width)[:, : layout.n_labels]
    return {"coef_": weights[:n]} | ({"label_coef_": rest} if rest.size else {})

"""How a dependency parser predicts."""

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, check_indices
from maxmargin.core.inputs import check_k, check_temperature
from maxmargin.core.oracle import Threads
from maxmargin.core.registry import registered
from maxmargin.predictors.base import Predictor, check_classes, check_weights
from maxmargin.predictors.checks import check_is_fitted
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.dependency.formats import DependencySentence, read_dependencies
from maxmargin.structures.dependency.inference import (
    Numbers,
    Structure,
    k_best_trees,
    tree_marginals,
)
from maxmargin.structures.dependency.oracle import (
    FIRST_NUMBER,
    ArcFeatures,
    EncodedSentences,
    FeatureLayout,
    HashedArcs,
    parse,
)
from maxmargin.structures.dependency.problem import GivenArcs


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


@registered("DependencyTree")
class DependencyTree(NamedTuple):
    """A labelled tree: head (0 is the root) and relation of each word, both ``(n_words,)``."""

    heads: Numbers
    labels: NDArray[Any]


@estimator
class DependencyParserPredictor(Predictor):
    """What a fitted `DependencyParser` has learned, and how it predicts.

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
    """

    labelled: bool = False
    features: Callable[..., Any] | None = None
    tag: str = "upos"
    _arguments = """
    X : list of n_sentences sentences, path or text
        See Notes of the class.
    y : list of n_sentences trees, default=None
        Heads of the words of each sentence, counted from 1, 0 for the root; with labels, pairs
        (heads, labels). None if `X` brings the trees along.
    sample_weight : array-like of shape (n_sentences,), default=None
        Multiplies the C of each sentence.
    """

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
        arcs = arc_features(sentences, self.__dict__)
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


def arc_features(sentences: list[Any], learned: dict[str, Any]) -> ArcFeatures:
    """Arcs of sentences with hashed features of words and tags, or with those that are given."""
    if "words_" in learned:
        encoded = EncodedSentences.of(sentences, learned["words_"], learned["tags_"])
        return HashedArcs(encoded, learned["_layout"])
    return GivenArcs(sentences, len(learned["labels_"]) if "labels_" in learned else None)


def parts_of(weights: Floats, arcs: ArcFeatures) -> dict[str, Floats]:
    """Fitted attributes as views of the weights."""
    if isinstance(arcs, GivenArcs):
        n = arcs.n_arc_features
        rest = weights[n:].reshape(-1, n).T
    else:
        layout = arcs.layout  # type: ignore[attr-defined]
        n = layout.n_columns
        rest = weights[n:].reshape(layout.n_rows, layout.width)[:, : layout.n_labels]
    return {"coef_": weights[:n]} | ({"label_coef_": rest} if rest.size else {})

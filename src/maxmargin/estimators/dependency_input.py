"""Sentences and trees as users have them, checked."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.data.conllu import DependencySentence
from maxmargin.data.labels import label_array

Numbers = NDArray[np.int64]


class Trees(NamedTuple):
    """Trees of all sentences, one after the other; labels are there if they are known."""

    heads: Numbers
    labels: NDArray[Any] | None


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
    """Arc features of sentence `i`, by a function of the user's."""
    found = np.asarray(features(sentence))
    expected = (len(sentence) + 1, len(sentence) + 1)
    if found.ndim != 3 or found.shape[:2] != expected:
        raise ValueError(
            f"features returned an array of shape {found.shape} for sentence {i}, but for "
            f"{len(sentence)} words it must be ({expected[0]}, {expected[1]}, n_features)."
        )
    return found


def flat_trees(y: Any, lengths: Numbers, labelled: bool) -> Trees:
    """Heads, and labels if wanted, of all words one after the other."""
    if y is None:
        raise ValueError("y is missing: give the heads of the words of each sentence.")
    if len(y) != len(lengths):
        raise ValueError(f"X has {len(lengths)} sentences but y has {len(y)} trees.")
    heads, labels = [], []
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
        heads.append(_integers(tree[0] if is_pair else tree, i))
        if labelled:
            labels += list(tree[1])
    flat = np.concatenate(heads)
    return Trees(flat, label_array(labels, "The list of labels") if labelled else None)


def _integers(heads: Any, i: int) -> Numbers:
    array = np.asarray(heads)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"Sentence {i}: heads must be whole numbers, 0 for the root.")
    return array.astype(np.int64).reshape(-1)

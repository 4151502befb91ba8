"""What the benchmarks of sequences share: words and sentences, features, quiet fits."""

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from benchmarks.common import Data, load
from benchmarks.datasets import Corpus, Sentence, load_corpus, load_letters
from maxmargin.structures.chain.vocabulary import Vocabulary

PROTOCOLS = ("ocr", "ocr2")
"""The letters' usual protocols: train on fold 0 and test on the others, or the other way round."""

OUTSIDE = "<>"
"""In the place of a word before the first or after the last."""

BATCH = 1000
"""Sentences whose feature dictionaries are held at the same time."""


class Chains(NamedTuple):
    """Rows of all sequences one after the other, their labels, and the sequences' lengths."""

    X: Any
    y: NDArray[Any]
    lengths: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    def some(self, chosen: NDArray[np.bool_]) -> "Chains":
        """Only the sequences that a mask chooses."""
        rows = np.repeat(chosen, self.lengths)
        return Chains(self.X[rows], self.y[rows], self.lengths[chosen])

    def first(self, n: int) -> "Chains":
        """Only the first `n` sequences."""
        rows = int(self.lengths[:n].sum())
        return Chains(self.X[:rows], self.y[:rows], self.lengths[:n])


class Split(NamedTuple):
    """Sequences to train on and to test on."""

    train: Chains
    test: Chains


# Letters and classes


def letters(protocol: str, quick: bool) -> Split:
    """Handwritten words by one of the `PROTOCOLS`; digits as pretend words if `quick`."""
    if quick:
        words, fold_0 = _pretend_words()
    else:
        real = load_letters()
        words, fold_0 = Chains(real.X, real.y, real.lengths), real.folds == 0
    folds = words.some(fold_0), words.some(~fold_0)
    return Split(*folds) if protocol == "ocr" else Split(*folds[::-1])


def _pretend_words() -> tuple[Chains, NDArray[np.bool_]]:
    digits = load("mnist", quick=True)
    random = np.random.RandomState(0)
    lengths = random.randint(2, 6, size=200)
    n_rows = lengths.sum()
    return Chains(sp.csr_matrix(digits.X[:n_rows]), digits.y[:n_rows], lengths), np.arange(200) < 60


def as_chains(data: Data) -> Chains:
    """Rows with classes of their own: chains of length one."""
    return Chains(data.X, data.y, np.ones(len(data.y), dtype=np.int64))


# Sentences


def corpus(name: str, quick: bool) -> Corpus:
    """A real corpus, or pretend sentences of the same form if `quick`."""
    if not quick:
        return load_corpus(name)
    random = np.random.RandomState(0)
    sentences = [_pretend_sentence(random, name) for _ in range(300)]
    return Corpus(f"pretend {name}", sentences[:200], sentences[200:])


def _pretend_sentence(random: np.random.RandomState, name: str) -> Sentence:
    """Tags by a Markov chain; words and chunks mostly follow from their tags."""
    tags = [int(random.randint(6))]
    while len(tags) < random.randint(3, 12):
        tags.append(int((tags[-1] + random.choice(3, p=(0.6, 0.3, 0.1))) % 6))
    words = [f"{'abcdef'[tag]}{random.randint(40)}{'xyz'[tag % 3]}" for tag in tags]
    words = [word if random.rand() > 0.1 else f"rare{random.randint(20)}" for word in words]
    if name == "brown":
        return [(word, f"T{tag}") for word, tag in zip(words, tags, strict=True)]
    kinds = [("NP", "VP", None)[(tag + (random.rand() < 0.2)) % 6 // 2] for tag in tags]
    chunks = [
        "O" if kind is None else f"{'I' if i and kinds[i - 1] == kind else 'B'}-{kind}"
        for i, kind in enumerate(kinds)
    ]
    return [(word, f"T{tag}", chunk) for word, tag, chunk in zip(words, tags, chunks, strict=True)]


@cache
def word_features(word: str, place: str) -> dict[str, str]:
    """Features of one word: lower case, shape, prefixes and suffixes of up to four letters."""
    lower = word.lower()
    found = {f"{place} word": lower, f"{place} shape": shape(word)}
    for size in range(1, min(4, len(word)) + 1):
        found[f"{place} prefix {size}"] = lower[:size]
        found[f"{place} suffix {size}"] = lower[-size:]
    return found


def shape(word: str) -> str:
    """Runs of capitals, small letters and figures, each as one character."""
    return re.sub(r"[A-Z]+", "A", re.sub(r"[a-z]+", "a", re.sub(r"[0-9]+", "0", word)))


def tag_features(sentence: Sentence) -> Iterator[dict[str, str]]:
    """Features of each word together with those of its neighbours."""
    words = [token[0] for token in sentence]
    around = [OUTSIDE, *words, OUTSIDE]
    for before, word, after in zip(around, words, around[2:], strict=False):
        yield (
            word_features(word, "here")
            | word_features(before, "before")
            | word_features(after, "after")
        )


def tagging(sentences: list[Sentence], vocabulary: Vocabulary, grow: bool) -> Chains:
    """Sentences as one matrix, whose last field is the label; dictionaries live only shortly."""
    parts = [
        vocabulary.matrix([list(tag_features(one)) for one in sentences[at : at + BATCH]], grow)[0]
        for at in range(0, len(sentences), BATCH)
    ]
    for part in parts:  # those made before the last did not know all columns
        part.resize((part.shape[0], len(vocabulary)))
    y = np.array([token[-1] for sentence in sentences for token in sentence])
    lengths = np.array([len(sentence) for sentence in sentences])
    return Chains(sp.vstack(parts, format="csr"), y, lengths)


# Fits


def fit(chains: Chains, callback: Any = None, **settings: Any) -> Any:
    """Ours, fitted; stopping early is no reason to warn here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger = mm.SequenceTagger(**{"tol": 1e-3, **settings})
        if callback is not None:
            tagger.set_callbacks(callback)
        return tagger.fit(chains.X, chains.y, lengths=chains.lengths)


def error(model: Any, chains: Chains) -> float:
    """Share of wrong labels."""
    return 1.0 - float(model.score(chains.X, chains.y, lengths=chains.lengths))


def sequence_error(model: Any, chains: Chains) -> float:
    """Share of wrong labels in a sequence, averaged over the sequences."""
    wrong = model.predict(chains.X, lengths=chains.lengths) != chains.y
    starts = np.cumsum(chains.lengths) - chains.lengths
    return float(np.mean(np.add.reduceat(wrong, starts) / chains.lengths))

"""Made text with very many classes: power laws for classes and words, words of a class its own."""

import numpy as np
import scipy.sparse as sp

from benchmarks.common import Data, Floats

TOPIC_WORDS, GROUP_WORDS = 30, 200
"""Words that a class, and a group of classes, prefers."""

OF_CLASS, OF_GROUP = 0.25, 0.2
"""Shares of a row's tokens that come from these; all others come from the whole language."""

CLASS_EXPONENT, WORD_EXPONENT = 0.8, 1.0
"""Of the power laws: class (or word) number r is met in proportion to ``(r + 5) ** -exponent``."""


def power_law(count: int, exponent: float) -> Floats:
    """Cumulated probabilities."""
    weights = (np.arange(count) + 5.0) ** -exponent
    return np.asarray(np.cumsum(weights) / weights.sum())


def made_text(n: int, d: int, k: int, tokens: int = 60, seed: int = 0) -> Data:
    """`n` rows with about `tokens` words each of `d`, in `k` classes that all occur.

    Values are ``(1 + log tf) * log(n / df)``, rows have norm 1.
    """
    random = np.random.default_rng(seed)
    words, classes = power_law(d, WORD_EXPONENT), power_law(k, CLASS_EXPONENT)
    n_groups = max(1, int(np.sqrt(k)))
    topics = np.searchsorted(words, random.random((k, TOPIC_WORDS)) ** 0.5)
    groups = np.searchsorted(words, random.random((n_groups, GROUP_WORDS)) ** 0.7)
    group_of = random.integers(n_groups, size=k)
    y = np.concatenate([np.arange(k), np.searchsorted(classes, random.random(n - k))])
    y = random.permutation(y)
    lengths = np.maximum(3, random.lognormal(np.log(tokens), 0.4, n)).astype(int)
    rows = np.repeat(np.arange(n), lengths)
    label = y[rows]
    found = np.searchsorted(words, random.random(len(rows)))
    kind = random.random(len(rows))
    own = kind < OF_CLASS
    found[own] = topics[label[own], random.integers(TOPIC_WORDS, size=own.sum())]
    shared = (kind >= OF_CLASS) & (kind < OF_CLASS + OF_GROUP)
    picks = random.integers(GROUP_WORDS, size=shared.sum())
    found[shared] = groups[group_of[label[shared]], picks]
    X = sp.csr_matrix((np.ones(len(rows)), (rows, found)), shape=(n, d))  # counts are summed
    df = np.bincount(X.indices, minlength=d)
    X.data = (1.0 + np.log(X.data)) * np.log(1.0 + n / np.maximum(1, df))[X.indices]
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X.data /= np.repeat(norms, np.diff(X.indptr))
    return Data(f"{k:,} classes", X, y)

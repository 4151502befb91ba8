"""Loaders of the real data sets that the benchmarks use."""

from maxmargin.data.datasets import (
    CORPORA,
    NAMES,
    Corpus,
    Dataset,
    Letters,
    Sentence,
    available,
    load,
    load_corpus,
    load_letters,
)

__all__ = [
    "CORPORA",
    "NAMES",
    "Corpus",
    "Dataset",
    "Letters",
    "Sentence",
    "available",
    "load",
    "load_corpus",
    "load_letters",
]

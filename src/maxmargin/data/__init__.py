"""Readers of file formats, and loaders of the real data sets that the benchmarks use."""

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
from maxmargin.data.letor import read_letor, write_letor

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
    "read_letor",
    "write_letor",
]

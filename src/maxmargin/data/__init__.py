"""Readers of file formats, and loaders of the real data sets that the benchmarks use."""

from maxmargin.data.conllu import (
    DependencySentence,
    read_conllu,
    read_dependencies,
    read_dp,
    write_conllu,
)
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
    "DependencySentence",
    "Letters",
    "Sentence",
    "available",
    "load",
    "load_corpus",
    "load_letters",
    "read_conllu",
    "read_dependencies",
    "read_dp",
    "read_letor",
    "write_conllu",
    "write_letor",
]

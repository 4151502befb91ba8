"""Readers of file formats, sources of examples, and loaders of the benchmarks' data sets.

Names are imported when they are first used, as those of ``maxmargin`` are.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin.data.arrow import ArrowSource
    from maxmargin.data.column_file import ColumnFile
    from maxmargin.data.columns import (
        ColumnSentence,
        iter_columns,
        read_columns,
        write_columns,
    )
    from maxmargin.data.conllu import (
        DependencySentence,
        read_conllu,
        read_dependencies,
        read_dp,
        write_conllu,
    )
    from maxmargin.data.converter import convert
    from maxmargin.data.csr_folder import CsrFolder, CsrFolderWriter
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
    from maxmargin.data.files import FileFormatError
    from maxmargin.data.letor import read_letor, write_letor
    from maxmargin.data.libsvm import LibsvmFile, read_libsvm
    from maxmargin.data.sniff import Format, guess_format
    from maxmargin.data.sources import CountedSource, Examples, Source
    from maxmargin.data.sources_dask import DaskSource
    from maxmargin.data.sources_dask_arrays import DaskArrays
    from maxmargin.data.sources_opening import open_examples
    from maxmargin.data.sources_python import ArraySource, DatasetSource, FunctionSource
    from maxmargin.data.svm_hmm import SvmHmmFile, read_svm_hmm
    from maxmargin.data.templates import Templates
    from maxmargin.data.trees import read_tree_file

_HOMES = {
    "CORPORA": "datasets",
    "NAMES": "datasets",
    "ArraySource": "sources_python",
    "ArrowSource": "arrow",
    "ColumnFile": "column_file",
    "ColumnSentence": "columns",
    "Corpus": "datasets",
    "CountedSource": "sources",
    "CsrFolder": "csr_folder",
    "CsrFolderWriter": "csr_folder",
    "DaskArrays": "sources_dask_arrays",
    "DaskSource": "sources_dask",
    "Dataset": "datasets",
    "DatasetSource": "sources_python",
    "DependencySentence": "conllu",
    "Examples": "sources",
    "FileFormatError": "files",
    "Format": "sniff",
    "FunctionSource": "sources_python",
    "Letters": "datasets",
    "LibsvmFile": "libsvm",
    "Sentence": "datasets",
    "Source": "sources",
    "SvmHmmFile": "svm_hmm",
    "Templates": "templates",
    "available": "datasets",
    "convert": "converter",
    "guess_format": "sniff",
    "iter_columns": "columns",
    "load": "datasets",
    "load_corpus": "datasets",
    "load_letters": "datasets",
    "open_examples": "sources_opening",
    "read_columns": "columns",
    "read_conllu": "conllu",
    "read_dependencies": "conllu",
    "read_dp": "conllu",
    "read_letor": "letor",
    "read_libsvm": "libsvm",
    "read_svm_hmm": "svm_hmm",
    "read_tree_file": "trees",
    "write_columns": "columns",
    "write_conllu": "conllu",
    "write_letor": "letor",
}

__all__ = [
    "CORPORA",
    "NAMES",
    "ArraySource",
    "ArrowSource",
    "ColumnFile",
    "ColumnSentence",
    "Corpus",
    "CountedSource",
    "CsrFolder",
    "CsrFolderWriter",
    "DaskArrays",
    "DaskSource",
    "Dataset",
    "DatasetSource",
    "DependencySentence",
    "Examples",
    "FileFormatError",
    "Format",
    "FunctionSource",
    "Letters",
    "LibsvmFile",
    "Sentence",
    "Source",
    "SvmHmmFile",
    "Templates",
    "available",
    "convert",
    "guess_format",
    "iter_columns",
    "load",
    "load_corpus",
    "load_letters",
    "open_examples",
    "read_columns",
    "read_conllu",
    "read_dependencies",
    "read_dp",
    "read_letor",
    "read_libsvm",
    "read_svm_hmm",
    "read_tree_file",
    "write_columns",
    "write_conllu",
    "write_letor",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Readers of file formats, and sources of examples that need not fit in memory."""

from maxmargin.core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "data.arrow": "ArrowSource",
        "data.csr_folder": "CsrFolder CsrFolderWriter",
        "data.files": "FileFormatError",
        "data.libsvm": "LibsvmFile read_libsvm",
        "data.formats": "Format guess_format",
        "data.sources": "CountedSource Examples Source",
        "data.opening": "convert open_examples",
        "data.sources_python": "ArraySource DaskArrays DaskSource DatasetSource FunctionSource",
        "structures.chain.formats": "ColumnSentence SvmHmmFile iter_columns read_columns "
        "read_svm_hmm write_columns",
        "structures.chain.templates": "ColumnFile Templates",
        "structures.constituency.formats": "read_tree_file",
        "structures.dependency.formats": "DependencySentence read_conllu read_dependencies read_dp "
        "write_conllu",
        "structures.ranking.formats": "read_letor write_letor",
    },
)

"""Sources of the examples in whatever holds them: `open_examples`."""

import codecs
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import open_mapped
from maxmargin.data.csr_folder import META, CsrFolder
from maxmargin.data.files import (
    STANDARD_INPUT,
    FileFormatError,
    begins_with,
    head_of,
    shown_name,
)
from maxmargin.data.formats import FileFormat, file_formats, guess_format
from maxmargin.data.libsvm_lines import LineReader
from maxmargin.data.sources import ArraySource, Columns, DatasetSource, FunctionSource, Source
from maxmargin.data.tables import (
    ArrowSource,
    DaskArrays,
    DaskSource,
    is_arrow,
    is_dask,
    is_dask_array,
)

_NUMPY = b"\x93NUMPY"
_LOOKED_AT = 1 << 16
"""Bytes in which the first example of a text must begin."""


def open_examples(data: Any, y: Any = None, **options: Any) -> Source:
    """A source of the examples in whatever holds them.

    Parameters
    ----------
    data : object
        One of

        - a `Source`, which is returned as it is;
        - inputs in memory, with `y`: array, sparse matrix, data frame, or list; or a pair of both;
        - the path of a file, whose content tells the format: LIBSVM's, SVM-hmm's (if lines have a
          ``qid``), Parquet, Feather, Arrow, or an ``.npy`` array, with `y` another or in memory.
          ``"-"`` is standard input, in LIBSVM's format or in SVM-hmm's;
        - with `templates`, the path of a file of tagged sentences in columns;
        - the path of a folder, written by `convert` or with Parquet or Arrow files;
        - a function that returns an iterator of pairs ``(x, y)``, of dictionaries or of `Examples`,
          such as a generator function; it is called anew for each pass;
        - a data set as PyTorch and Hugging Face have them: a length, and pairs or dictionaries by
          number (a list of pairs is one, too); or any iterable that starts anew each time;
        - a data frame of pandas with its target among the columns;
        - a bag or a data frame of dask; an array of dask, with `y` another.

    y : array-like, list or path, default=None
        Targets, where `data` has only the inputs.
    **options
        Of the source that is found. Tables and dictionaries take `features` and `target`, names of
        columns.

    Returns
    -------
    source : Source
        `LibsvmFile`, `SvmHmmFile`, `ColumnFile`, `CsrFolder`, `ArrowSource`, `ArraySource`,
        `FunctionSource`, `DatasetSource`, `DaskSource` or `DaskArrays`.

    Raises
    ------
    ValueError
        If it is none of these; says what is missing.

    See Also
    --------
    convert : To a folder that is read much faster.

    Examples
    --------
    >>> from maxmargin.data import open_examples
    >>> def examples():
    ...     for i in range(5):
    ...         yield [i, i * i], i % 2
    >>> source = open_examples(examples)
    >>> [batch.X.shape for batch in source.batches()], source
    ([(5, 2)], FunctionSource(examples, 5 examples, 2 features))
    """
    if isinstance(data, tuple) and len(data) == 2 and y is None and not hasattr(data, "_fields"):
        data, y = data
    if isinstance(data, (str, os.PathLike)):
        return _open_path(os.fspath(data), y, options)
    if is_dask_array(data):
        return _made(DaskArrays, options, data, y)
    if y is not None:
        return _made(ArraySource, options, data, _array(y))
    return _open_whole(data, options)


def _open_whole(data: Any, options: dict[str, Any]) -> Source:
    if isinstance(data, Source):
        if options:
            raise ValueError(f"{data!r} is open already: options must be given when it is made.")
        return data
    if isinstance(data, Iterator):
        raise ValueError(
            f"A {type(data).__name__} can be gone through only once: give the function that makes "
            f"it, so that each pass starts anew."
        )
    if is_dask(data):
        return _made(DaskSource, options, data)
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        names = {name: options.pop(name) for name in ("features", "target") if name in options}
        return _made(ArraySource, options, *Columns(**names).of_frame(data))
    if isinstance(data, (np.ndarray, dict, bytes)) or sp.issparse(data):
        raise ValueError(
            f"A {type(data).__name__} holds inputs only: give the targets as well, as y."
        )
    if hasattr(data, "dataset") and hasattr(data, "batch_size"):
        raise ValueError(
            f"A {type(data).__name__} makes batches, perhaps in another order each time: give the "
            f"data set that it reads."
        )
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return _made(DatasetSource, options, data)
    if isinstance(data, Iterable):
        return _made(FunctionSource, options, data.__iter__)
    if callable(data):
        return _made(FunctionSource, options, data)
    raise ValueError(
        f"Examples cannot be read from a {type(data).__name__}: give inputs and targets, the path "
        f"of a file or folder, a generator function, or a data set with a length and items."
    )


def _open_path(path: str, y: Any, options: dict[str, Any]) -> Source:
    for one in file_formats().values() if options and y is None else ():
        if one.source is not None and one.option in options:
            return _made(_source(one), options, path)
    if y is None and path == STANDARD_INPUT:
        return _made(_kind_of_lines(path, options), options, path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file or folder {path!r:.200}.")
    kind = _kind_of_path(path, options)
    if kind is ArraySource:
        if y is None:
            raise ValueError(
                f"{path!r} holds inputs only: give the targets as well, as y, an array or the path "
                f"of another .npy file."
            )
        return _made(ArraySource, options, open_mapped(path), _array(y))
    if y is not None:
        raise ValueError(f"{path!r} holds the targets, too: leave out y.")
    return _made(kind, options, path)


def _kind_of_path(path: str, options: dict[str, Any]) -> Callable[..., Source]:
    if os.path.isdir(path):
        if Path(path, META).is_file():
            return CsrFolder
        if any(file.is_file() and is_arrow(file) for file in Path(path).iterdir()):
            return ArrowSource
        raise ValueError(
            f"{path!r} is a folder without {META}, which converted data have, and without Parquet "
            f"or Arrow files."
        )
    if is_arrow(path):
        return ArrowSource
    if begins_with(path, _NUMPY):
        return ArraySource
    return _kind_of_lines(path, options)


def _kind_of_lines(path: str, options: dict[str, Any]) -> Callable[..., Source]:
    begin = head_of(path, _LOOKED_AT)
    # The first line that is no comment, or what of it is there.
    if len(begin) == _LOOKED_AT:
        begin = begin[: max(begin.rfind(b"\n"), begin.rfind(b" "))]
    begin = begin.removeprefix(codecs.BOM_UTF8)
    texts = [text for text in begin.splitlines() if text.partition(b"#")[0].strip()]
    if not texts:
        raise ValueError(f"{shown_name(path)!r} holds no examples.")
    reader = LineReader(
        path, first_index=0, multilabel=options.get("multilabel", False), weighted=True
    )
    try:
        lines = next(reader.read(BytesIO(texts[0]), _LOOKED_AT))
    except FileFormatError:
        hint = ""
        with suppress(FileFormatError):
            other = file_formats()[guess_format(begin).name].reader
            hint = "" if other is None else f"; {other} may read it"
        raise ValueError(
            f"{shown_name(path)!r} holds neither lines of LIBSVM's or SVM-hmm's format, nor an "
            f"array of numpy, nor a Parquet or Arrow table: it begins with {texts[0][:40]!r}{hint}."
        ) from None
    return _source(file_formats()["libsvm" if lines.groups[0] < 0 else "svm-hmm"])


def _source(format: FileFormat) -> Callable[..., Source]:
    """The class that reads files of a format in batches."""
    assert format.source is not None
    source: Callable[..., Source] = getattr(import_module("maxmargin.data"), format.source)
    return source


def _array(y: Any) -> Any:
    return open_mapped(y) if isinstance(y, (str, os.PathLike)) else y


def _made(kind: Callable[..., Source], options: dict[str, Any], *data: Any) -> Source:
    """A source of that kind, if it has these options."""
    parameters = inspect.signature(kind).parameters.values()
    known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"{kind.__name__} has no option {unknown[0]!r}: it has {', '.join(known)}."
        )
    return kind(*data, **options)

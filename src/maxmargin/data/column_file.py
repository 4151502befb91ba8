"""Sentences in columns as a source of blocks: features by templates, as they are asked for."""

import os
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np

from maxmargin.data.columns import iter_columns
from maxmargin.data.files import STANDARD_INPUT, PathLike
from maxmargin.data.sources import CountedSource, Examples
from maxmargin.data.sources_hash import SampledHash
from maxmargin.data.templates import Templates


class ColumnFile(CountedSource):
    r"""Tagged sentences of a file in columns, read anew in each pass.

    Inputs are lists of feature dictionaries, or CSR matrices if they are hashed, one row a token;
    targets are the tags of each sentence.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd.
    templates : Templates
        Which features there are.
    tag_column : int, default=-1
        Where the tags stand.
    hash_bits : int, default=None
        Hash features to ``2**hash_bits`` columns; None keeps their names.
    encoding : str, default=None
        Such as ``"latin-1"``; None is UTF-8.
    block_examples : int, default=1024
        Sentences that are read at a time.

    See Also
    --------
    read_columns : The whole file at once.
    maxmargin.SequenceTagger : What takes this in its ``fit``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from maxmargin.data import ColumnFile, Templates
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.txt")
    ...     _ = path.write_text("He B-NP\nreckons B-VP\n\nYes B-INTJ\n")
    ...     for block in ColumnFile(path, templates=Templates("word[0]")).blocks():
    ...         print(block.X[1], block.y)
    [{'word[0]': 'Yes'}] [('B-NP', 'B-VP'), ('B-INTJ',)]
    """

    def __init__(
        self,
        path: PathLike,
        *,
        templates: Templates,
        tag_column: int = -1,
        hash_bits: int | None = None,
        encoding: str | None = None,
        block_examples: int = 1024,
    ) -> None:
        super().__init__()
        if not isinstance(templates, Templates):
            raise ValueError(f"templates must be Templates, not {type(templates).__name__}.")
        self.path = os.fspath(path)
        if self.path == STANDARD_INPUT:
            raise ValueError(
                "Standard input can be read only once: save it to a file, or use read_columns."
            )
        self.templates, self.hash_bits = templates, hash_bits
        self.tag_column, self.encoding = tag_column, encoding
        self.block_examples = block_examples

    def fingerprint(self) -> str:
        content = SampledHash(type(self).__name__)
        content.add([str(self.templates), self.hash_bits, self.tag_column, self.encoding])
        content.add_file(self.path)
        return content.text()

    def _read(self) -> Iterator[Examples]:
        sentences = iter_columns(self.path, tag_column=self.tag_column, encoding=self.encoding)
        while block := list(islice(sentences, self.block_examples)):
            yield Examples(self._features(block), [sentence.tags for sentence in block])

    def _features(self, block: list[Any]) -> list[Any]:
        if self.hash_bits is None:
            return self.templates.transform(block)
        rows, lengths = self.templates.hashed(block, self.hash_bits)
        ends = np.cumsum(lengths).tolist()
        return [rows[a:b] for a, b in pairwise([0, *ends])]

    def _name(self) -> str:
        return repr(self.path)

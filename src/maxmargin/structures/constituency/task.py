"""Parsing on the command line: trees in the brackets of the Penn Treebank."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import tee
from typing import Any

from maxmargin.cli.task import Data, Path, Task, counted
from maxmargin.data.files import FileFormatError, lines_of, shown_name

_MIN_LINES = 4
"""Lines of equal length, with empty ones between, from which on a file is in columns."""


@dataclass
class Constituents(Task):
    """Parse trees; what is to be parsed may be trees, or sentences, one per line."""

    encoding: str | None = None

    name = "parsing"
    format = "penn"
    also_reads = ("columns",)  # sentences with as many words each
    estimator_class = "GrammarParser"

    def defaults(self) -> dict[str, Any]:
        # With tags to be predicted, a trained parser can read plain text.
        return {"tags": "predicted"}

    def read(self, path: Path, model: Any = None) -> Data:
        lines, ahead = tee(lines_of(path, self.encoding))
        first = next((line.strip() for line in ahead if line.strip()), "")
        del ahead  # lines that only it has not seen would be kept
        if model is not None and not first.startswith("("):
            sentences = _sentences(lines, shown_name(path))
            return Data(sentences, None, len(sentences), counted(sentence=len(sentences)), False)
        from maxmargin.structures.constituency.formats import trees_of_lines

        trees = trees_of_lines(lines, clean=True, source=shown_name(path))
        words = [tree.words for tree in trees]
        size = counted(tree=len(trees), word=sum(map(len, words)))
        return Data(trees, trees, len(trees), size, words=words)


def _sentences(lines: Iterable[str], name: str) -> list[list[str]]:
    """Words of each line, if they are sentences and not columns."""
    sentences: list[list[str]] = []
    n_gaps, gap = 0, False  # empty lines between others
    for line in lines:
        words = line.split()
        n_gaps += bool(words) and gap
        gap = not words and bool(sentences)
        if words:
            sentences.append(words)
    widths = set(map(len, sentences))
    if n_gaps and len(sentences) >= _MIN_LINES and len(widths) == 1 and widths != {1}:
        reason = "looks like columns with empty lines between them: give one sentence per line."
        raise FileFormatError(name, None, reason)
    return sentences


TASKS = (Constituents,)

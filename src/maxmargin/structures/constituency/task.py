"""Parsing on the command line: trees in the brackets of the Penn Treebank."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from maxmargin.cli.task import Data, Path, Task
from maxmargin.data.files import FileFormatError, lines_of, shown_name
from maxmargin.report.markup import plural
from maxmargin.structures.constituency.formats import trees_of_lines

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
        lines, first = _first_line(lines_of(path, self.encoding))
        if model is not None and not first.startswith("("):
            sentences = _sentences(lines, shown_name(path))
            return Data(sentences, None, len(sentences), plural(len(sentences), "sentence"), False)
        trees = trees_of_lines(lines, clean=True, source=shown_name(path))
        n_words = sum(len(tree.words) for tree in trees)
        size = f"{plural(len(trees), 'tree')}, {plural(n_words, 'word')}"
        words = [tree.words for tree in trees]
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


def _first_line(lines: Iterator[str]) -> tuple[Iterator[str], str]:
    """All lines again, and the first nonempty one."""
    n_empty, first = 0, ""
    for first in lines:
        if first.strip():
            break
        n_empty += 1
    return chain(repeat("", n_empty), [first], lines), first.strip()


TASKS = (Constituents,)

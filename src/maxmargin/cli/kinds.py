"""Kinds of files: what a file looks like, and whether a model was trained for that."""

import os
import sys
from contextlib import suppress
from typing import NamedTuple

from maxmargin.cli.tasks.base import Task
from maxmargin.data.files import STANDARD_INPUT, FileFormatError
from maxmargin.data.sniff import guess_format
from maxmargin.data.text import shown_name

_TASKS = {"binary": "classification", "multiclass": "classification"}
"""Tasks of the command line for those that a file looks like, where they have other names."""

_NUMBERS_OF_ANY_KIND = {"classification", "regression"}
"""Tasks whose targets are one number a line: whole numbers may be either's."""


class Kind(NamedTuple):
    """What a file seems to hold.

    Parameters
    ----------
    format, task : str
        As the options `--format` and `--task` have them.
    doubt : str or None
        What else it may be.
    """

    format: str
    task: str
    doubt: str | None = None

    def __str__(self) -> str:
        return f"{self.format} ({self.task})"


def kind_of(path: str) -> Kind | None:
    """The kind that a file seems to be of; None if that cannot be known.

    Of standard input and pipes nothing is used up.
    """
    if path != STANDARD_INPUT and os.path.isdir(path):
        return None
    with suppress(FileFormatError):
        found = guess_format(path)
        return Kind(found.name, _TASKS.get(found.task, found.task), found.doubt)
    return None


def check_kind(task: Task, path: str) -> None:
    """Refuse a file of another kind than the one that a model was trained on.

    Where only those who know the data can tell, as with documents of queries and positions of
    sequences, it is said and not refused.

    Raises
    ------
    FileFormatError
    """
    found = kind_of(path)
    if found is None or _may_be_read(task, found):
        return
    reason = f"looks like {found}, but the model was trained on {task.format} files ({task.name})"
    if found.doubt is None:
        raise FileFormatError(
            shown_name(path), None, f"{reason}: give it a file of that kind, or train another."
        )
    print(f"note: {shown_name(path)} {reason}", file=sys.stderr)


def _may_be_read(task: Task, found: Kind) -> bool:
    own, kind = Kind(task.format, task.name), found._replace(doubt=None)
    if kind == own or str(kind) == task.trained_on or found.format in task.also_reads:
        return True
    if found.format != task.format:
        return False
    if found.task == "regression" and found.doubt is None:
        return False  # labels that are no whole numbers
    # Rows that happen to have one label each, or whole numbers as targets, look like classes.
    return found.task in _NUMBERS_OF_ANY_KIND

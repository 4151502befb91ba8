"""Which task a file is for: as it was said, or as the file looks.

Kinds of files: what a file looks like, and whether a model was trained for that.
"""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maxmargin.cli.checks import UsageError
from maxmargin.cli.rows import Classification, Multilabel, Regression, is_csr_folder
from maxmargin.cli.task import Task
from maxmargin.data.csr_folder import CsrFolder
from maxmargin.data.files import STANDARD_INPUT, FileFormatError
from maxmargin.data.formats import guess_format
from maxmargin.data.text import shown_name
from maxmargin.structures.chain.task import NumberedSequences, WordSequences
from maxmargin.structures.chain.templates import Templates
from maxmargin.structures.constituency.task import Constituents, Dependencies
from maxmargin.structures.ranking.task import Ranking

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


TASKS: dict[tuple[str | None, str | None], Any] = {
    (kind.name, kind.format): kind
    for kind in (
        Classification,
        Regression,
        Multilabel,
        NumberedSequences,
        WordSequences,
        Constituents,
        Dependencies,
        Ranking,
    )
}


@dataclass(frozen=True)
class Reading:
    """What the command line says about a file.

    Parameters
    ----------
    task, format : str or None
        None is to be guessed.
    template : Path or None
    hash_bits, tag_column : int or None
    encoding : str or None
    """

    task: str | None = None
    format: str | None = None
    template: Path | None = None
    hash_bits: int | None = None
    tag_column: int | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        for option, value, place in (("task", self.task, 0), ("format", self.format, 1)):
            known = sorted({key[place] or "" for key in TASKS})
            if value is not None and value not in known:
                raise UsageError(f"--{option} {value} is not known: it is {' or '.join(known)}.")
        if None not in (self.task, self.format) and (self.task, self.format) not in TASKS:
            raise UsageError(f"There is no {self.task} of {self.format} files.")


_SAME_LOOK = {"letor": "svm-hmm", "svm-hmm": "letor"}
"""Formats that only those who know the data can always tell apart."""


def choose_task(path: str, reading: Reading) -> tuple[Task, str]:
    """The task for a file, and why this one.

    Raises
    ------
    FileFormatError
        If nothing is said, and the file looks like nothing that is known.
    """
    if is_csr_folder(path):
        kind, why = _of_folder(path, reading)
    elif reading.format is not None and reading.task is not None:
        kind, why = TASKS[reading.task, reading.format], f"{reading.format}, {reading.task}"
    elif reading.format is not None and len(tasks := _tasks_of(reading.format)) == 1:
        kind, why = tasks[0], f"{reading.format}, {tasks[0].name}"
    else:
        kind, why = _guessed(path, reading)
    looks = kind_of(path)
    trained_on = None if looks is None else str(looks)
    return kind(**_how_to_read(kind, reading), trained_on=trained_on), why


def _tasks_of(format: str) -> list[Any]:
    return [kind for (_, known), kind in TASKS.items() if known == format]


def _of_folder(path: str, reading: Reading) -> tuple[Any, str]:
    """The task for what `maxmargin convert` has written."""
    y = CsrFolder(path).y
    whole = not np.issubdtype(y.dtype, np.floating) or np.array_equal(y, np.round(y))
    name = reading.task or ("classification" if whole else "regression")
    if name not in (Classification.name, Regression.name) or reading.format not in (None, "libsvm"):
        raise UsageError(f"{path} is a folder of rows, for classification or regression.")
    return TASKS[name, "libsvm"], f"folder of arrays, {name}"


def _guessed(path: str, reading: Reading) -> tuple[Any, str]:
    found = guess_format(path)
    task = {"binary": "classification", "multiclass": "classification"}.get(found.task, found.task)
    if reading.format not in (None, found.name):
        raise UsageError(f"{path} does not look like {reading.format}: it looks like {found}.")
    if reading.task in (None, task):
        return TASKS[task, found.name], str(found)
    for format in (found.name, _SAME_LOOK.get(found.name)):
        if (reading.task, format) in TASKS:
            return TASKS[reading.task, format], f"{format}, {reading.task}"
    raise UsageError(f"{path} does not look like data for {reading.task}: it looks like {found}.")


def _how_to_read(kind: Any, reading: Reading) -> dict[str, Any]:
    """Fields of a task that the options of the command line set."""
    template = reading.template
    options = {
        "templates": None if template is None else str(Templates.read(template)),
        "hash_bits": reading.hash_bits,
        "tag_column": reading.tag_column,
        "encoding": reading.encoding,
    }
    given = {name: value for name, value in options.items() if value is not None}
    known = {field.name for field in fields(kind)}
    for name in given:
        if name not in known:
            renamed = {"templates": "template", "hash_bits": "hash", "tag_column": "tag-column"}
            raise UsageError(
                f"--{renamed.get(name, name)} means nothing for {kind.name} of {kind.format} files."
            )
    return given

"""Which task a file is for: as it was said, or as the file looks."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from maxmargin.cli.errors import UsageError
from maxmargin.cli.kinds import kind_of
from maxmargin.cli.tasks.base import Task
from maxmargin.cli.tasks.ranking import Ranking
from maxmargin.cli.tasks.rows import Classification, Multilabel, Regression, is_csr_folder
from maxmargin.cli.tasks.sequences import NumberedSequences, WordSequences
from maxmargin.cli.tasks.trees import Constituents, Dependencies
from maxmargin.data.csr_folder import CsrFolder
from maxmargin.data.sniff import guess_format
from maxmargin.data.templates import Templates

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

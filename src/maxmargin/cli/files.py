"""Files: which task a data file is for, as it was said or as it looks; model files."""

import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

import maxmargin as mm
from maxmargin.cli.checks import UsageError, check_there
from maxmargin.cli.task import Classification, Data, Regression, Task, is_csr_folder
from maxmargin.core.checks import check_types
from maxmargin.data.csr_folder import CsrFolder
from maxmargin.data.files import STANDARD_INPUT, FileFormatError, shown_name
from maxmargin.data.formats import guess_format
from maxmargin.io.models import load_with_about

_TASKS = {"binary": "classification", "multiclass": "classification"}
"""Tasks of the command line, where the detected ones have other names."""

_NUMBERS_OF_ANY_KIND = {"classification", "regression"}
"""Tasks with one number per line as the target: integers may be either's."""


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
    """Detect the kind of a file; None if that is not possible. Pipes are not consumed."""
    if path != STANDARD_INPUT and os.path.isdir(path):
        return None
    with suppress(FileFormatError):
        found = guess_format(path)
        return Kind(found.name, _TASKS.get(found.task, found.task), found.doubt)
    return None


def check_kind(task: Task, path: str) -> None:
    """Refuse a file of another kind than the one that a model was trained on.

    Where detection is not certain, as between documents of queries and positions of sequences,
    there is a note instead.

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
            shown_name(path), None, f"{reason}: give a file of that kind, or train another model."
        )
    print(f"note: {shown_name(path)} {reason}", file=sys.stderr)


def _may_be_read(task: Task, found: Kind) -> bool:
    own, kind = Kind(task.format, task.name), found._replace(doubt=None)
    if kind == own or str(kind) == task.trained_on or found.format in task.also_reads:
        return True
    if found.format != task.format:
        return False
    if found.task == "regression" and found.doubt is None:
        return False  # labels that are not integers
    # Examples that happen to have one label each, or integers as targets, look like classes.
    return found.task in _NUMBERS_OF_ANY_KIND


TASKS: dict[tuple[str | None, str | None], type[Task]] = {
    (kind.name, kind.format): kind
    for kind in (Classification, Regression, *mm.structures.registered("task", "TASKS"))
}
"""By name and format."""


@dataclass(frozen=True)
class Reading:
    """Options about how to read a file.

    Parameters
    ----------
    task, format : str or None
        None means to detect it.
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
                raise UsageError(f"--{option} {value} is not known: choose {' or '.join(known)}.")
        if None not in (self.task, self.format) and (self.task, self.format) not in TASKS:
            raise UsageError(f"There is no {self.task} of {self.format} files.")


_SAME_LOOK = {"letor": "svm-hmm", "svm-hmm": "letor"}
"""Formats that cannot always be told apart."""


def choose_task(path: str, reading: Reading) -> tuple[Task, str]:
    """The task for a file, and the reason.

    Raises
    ------
    FileFormatError
        If no option says it, and the format is not recognised.
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
    return _task(kind, reading, None if looks is None else str(looks)), why


def _tasks_of(format: str) -> list[Any]:
    return [kind for (_, known), kind in TASKS.items() if known == format]


def _of_folder(path: str, reading: Reading) -> tuple[Any, str]:
    """The task for what `maxmargin convert` has written."""
    y = CsrFolder(path).y
    whole = not np.issubdtype(y.dtype, np.floating) or np.array_equal(y, np.round(y))
    name = reading.task or ("classification" if whole else "regression")
    if name not in (Classification.name, Regression.name) or reading.format not in (None, "libsvm"):
        raise UsageError(f"{path} is a converted folder, for classification or regression only.")
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


def _task(kind: type[Task], reading: Reading, trained_on: str | None) -> Task:
    """A task with the fields that the options of the command line set."""
    options = {
        "templates": reading.template,
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
                f"--{renamed.get(name, name)} does not apply to {kind.name} of {kind.format} files."
            )
    return kind.from_options(**given, trained_on=trained_on)


class Model(NamedTuple):
    """What a model file of the command line holds."""

    estimator: Any
    task: Task


def save_model(model: Model, path: Path) -> Path:
    """Write a model, with what is needed to read files for it.

    If that fails, after what may have been hours of training, it goes to a temporary folder.
    """
    task = model.task
    about = {"task": task.name, "format": task.format, "reading": asdict(task)}
    try:
        return mm.save(model.estimator, path, about=about)
    except OSError as error:
        kept = None
        with suppress(OSError):
            kept = mm.save(model.estimator, Path(tempfile.mkdtemp(), path.name), about=about)
        where = "" if kept is None else f"; the model is in {kept}"
        raise OSError(f"{path} could not be written, {error.strerror or error}{where}.") from error


def load_model(path: Path, encoding: str | None = None, threads: int = 1) -> Model:
    """Read a model of the command line.

    Parameters
    ----------
    path : Path
    encoding : str or None
        Of the files to come; None is that of the training file.
    threads : int

    Raises
    ------
    ModelFileError
    """
    if path.is_dir():
        raise mm.ModelFileError(f"{path} is a folder: give the model file.")
    check_there(str(path))
    try:
        estimator, about = load_with_about(path)
    except mm.ModelFileError:
        looks = kind_of(str(path))
        if looks is None:
            raise
        raise mm.ModelFileError(
            f"{path} is not a model file but looks like {looks.format} data: give the model first, "
            f"then the data."
        ) from None
    kind = TASKS.get((about.get("task"), about.get("format")))
    if kind is None:
        raise mm.ModelFileError(
            f"{path} was not trained on the command line, so it is not known which files it reads: "
            f"use it in Python, mm.load({str(path)!r})."
        )
    task: Any = _stored_task(path, kind, about.get("reading"))
    if encoding is not None:
        if "encoding" not in {field.name for field in fields(task)}:
            raise UsageError(f"--encoding does not apply to {task.format} files.")
        task = replace(task, encoding=encoding)
    return Model(estimator.set_params(n_jobs=threads), task)


def _stored_task(path: Path, kind: type[Task], reading: Any) -> Task:
    """The task that a model file declares, which is not trusted."""
    try:
        check_types(kind.__name__, reading, get_type_hints(kind))
        return kind(**reading)
    except Exception as error:
        raise mm.ModelFileError(
            f"{path} is damaged: it does not say how to read data for it."
        ) from error


def read_for(model: Model, path: str) -> Data:
    """Read examples for a trained model.

    Raises
    ------
    FileFormatError
        If there are none, or if they are of another kind than those it was trained on.
    """
    check_kind(model.task, path)
    data = model.task.read(path, model.estimator)
    if not data.n_examples:
        raise FileFormatError(path, None, "is empty.")
    return data

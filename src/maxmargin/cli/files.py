"""Files of the command line: which task a data file is for, model files, places to write to."""

import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import maxmargin as mm
from maxmargin.cli.main import Reading
from maxmargin.cli.task import Classification, Data, Regression, Task, is_csr_folder
from maxmargin.core.arrays import check_types
from maxmargin.data.csr_folder import CsrFolder
from maxmargin.data.files import STANDARD_INPUT, FileFormatError, check_exists, shown_name
from maxmargin.data.formats import Format, guess_format
from maxmargin.data.libsvm import whole_numbers
from maxmargin.io.files import check_folder_of
from maxmargin.io.models import load_with_about

_TASKS = {"binary": "classification", "multiclass": "classification"}
"""Tasks of the command line, where the detected ones have other names."""

_SAME_LOOK = {"letor": "svm-hmm", "svm-hmm": "letor"}
"""Formats that cannot always be told apart."""

TASKS: dict[tuple[str | None, str | None], type[Task]] = {
    (kind.name, kind.format): kind
    for kind in (Classification, Regression, *mm.structures.registered("task", "TASKS"))
}
"""By name and format."""


class UsageError(ValueError):
    """Options that are invalid, or cannot be combined."""


def check_place(path: Path, *inputs: str | Path | None, folder: bool = False) -> None:
    """Refuse, before the work, a path that cannot be written, or that is one of the inputs."""
    if str(path) == STANDARD_INPUT:
        raise UsageError(
            "Only predictions can be written to standard output: give the name of a file."
        )
    try:
        check_folder_of(path)
    except FileNotFoundError as error:
        raise UsageError(str(error)) from None
    if path.is_dir() and not folder:
        raise UsageError(f"{path} is a folder: give the name of a file to write.")
    if path.exists() and folder and not path.is_dir():
        raise UsageError(f"{path} is a file: give the name of a folder to write to.")
    for name in inputs:
        if name is not None and path.exists() and Path(name).exists() and path.samefile(name):
            raise UsageError(f"{path} is an input, too: give another name for the output.")
    place = path if path.exists() else path.parent
    if not os.access(place, os.W_OK):
        raise PermissionError(f"{place} is not writable: give another path.")


def check_there(path: str | None) -> None:
    """Refuse a missing file, before it is needed."""
    if path is not None and path != STANDARD_INPUT:
        check_exists(path)


def kind_of(path: str) -> Format | None:
    """Detect the kind of a file; None if that is not possible. Pipes are not consumed."""
    if path != STANDARD_INPUT and os.path.isdir(path):
        return None
    with suppress(FileFormatError):
        return _guessed(path)
    return None


def _guessed(path: str) -> Format:
    """What a file seems to hold, with a task of the command line."""
    found = guess_format(path)
    return replace(found, task=_TASKS.get(found.task, found.task))


def _named(kind: Format) -> str:
    return f"{kind.name} ({kind.task})"


def check_kind(task: Task, path: str) -> None:
    """Refuse a file of another kind than a model was trained on; note it where unsure."""
    found = kind_of(path)
    if found is None or _may_be_read(task, found):
        return
    looks = f"looks like {_named(found)}"
    reason = f"{looks}, but the model was trained on {task.format} files ({task.name})"
    if found.doubt is None:
        raise FileFormatError(
            shown_name(path), None, f"{reason}: give a file of that kind, or train another model."
        )
    print(f"note: {shown_name(path)} {reason}", file=sys.stderr)


def _may_be_read(task: Task, found: Format) -> bool:
    if found.name in task.also_reads or _named(found) == task.trained_on:
        return True
    if found.name != task.format:
        return False
    if found.task == "regression" and found.doubt is None:
        return task.name == "regression"  # labels that are not integers
    # Examples that happen to have one label each, or integers as targets, look like classes.
    return found.task in ("classification", "regression", task.name)


def choose_task(path: str, reading: Reading) -> tuple[Task, str]:
    """The task for a file, and the reason; detected as far as no option says it."""
    for option, value, place in (("task", reading.task, 0), ("format", reading.format, 1)):
        names = sorted({key[place] or "" for key in TASKS})
        if value is not None and value not in names:
            raise UsageError(f"--{option} {value} is not known: choose {' or '.join(names)}.")
    if None not in (reading.task, reading.format) and (reading.task, reading.format) not in TASKS:
        raise UsageError(f"There is no {reading.task} of {reading.format} files.")
    found = kind_of(path)
    of_format = [kind for (_, known), kind in TASKS.items() if known == reading.format]
    if is_csr_folder(path):
        kind, why = _of_folder(path, reading)
    elif reading.format is not None and (reading.task is not None or len(of_format) == 1):
        kind = TASKS[reading.task or of_format[0].name, reading.format]
        why = f"{reading.format}, {kind.name}"
    else:
        kind, why = _of_look(path, found or _guessed(path), reading)
    return _task(kind, reading, None if found is None else _named(found)), why


def _of_folder(path: str, reading: Reading) -> tuple[Any, str]:
    """The task for what `maxmargin convert` has written."""
    is_real = whole_numbers(CsrFolder(path).y).dtype.kind == "f"
    name = reading.task or ("regression" if is_real else "classification")
    if name not in (Classification.name, Regression.name) or reading.format not in (None, "libsvm"):
        raise UsageError(f"{path} is a converted folder, for classification or regression only.")
    return TASKS[name, "libsvm"], f"folder of arrays, {name}"


def _of_look(path: str, found: Format, reading: Reading) -> tuple[Any, str]:
    """The task for what a file seems to hold, as far as no option says it."""
    if reading.format not in (None, found.name):
        raise UsageError(f"{path} does not look like {reading.format}: it looks like {found}.")
    if reading.task in (None, found.task):
        return TASKS[found.task, found.name], str(found)
    for format in (found.name, _SAME_LOOK.get(found.name)):
        if (reading.task, format) in TASKS:
            return TASKS[reading.task, format], f"{format}, {reading.task}"
    raise UsageError(f"{path} does not look like data for {reading.task}: it looks like {found}.")


def _task(kind: type[Task], reading: Reading, trained_on: str | None) -> Task:
    """A task with the fields that the options of the command line set."""
    options = {
        "templates": ("--template", reading.template),
        "hash_bits": ("--hash", reading.hash_bits),
        "tag_column": ("--tag-column", reading.tag_column),
        "encoding": ("--encoding", reading.encoding),
    }
    given = {name: value for name, (_, value) in options.items() if value is not None}
    known = {field.name for field in fields(kind)}
    for name in given:
        if name not in known:
            option = options[name][0]
            raise UsageError(f"{option} does not apply to {kind.name} of {kind.format} files.")
    return kind.from_options(**given, trained_on=trained_on)


class Model(NamedTuple):
    """What a model file of the command line holds; to predict, a predictor is estimator enough."""

    estimator: Any
    task: Task


def save_model(model: Model, path: Path) -> Path:
    """Write a model and how to read files for it; if that fails, to a temporary folder."""
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


def load_model(
    path: Path, encoding: str | None = None, threads: int = 1, *, predictor: bool = False
) -> Model:
    """Read a model of the command line, or its predictor; `encoding` is that of files to come."""
    if path.is_dir():
        raise mm.ModelFileError(f"{path} is a folder: give the model file.")
    check_there(str(path))
    try:
        estimator, about = load_with_about(path, predictor=predictor)
    except mm.ModelFileError:
        looks = kind_of(str(path))
        if looks is None:
            raise
        raise mm.ModelFileError(
            f"{path} is not a model file but looks like {looks.name} data: give the model first, "
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
    estimator.n_jobs = threads
    return Model(estimator, task)


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
    """Read examples for a trained model: some, and of the kind that it was trained on."""
    check_kind(model.task, path)
    data = model.task.read(path, model.estimator)
    if not data.n_examples:
        raise FileFormatError(path, None, "is empty.")
    return data

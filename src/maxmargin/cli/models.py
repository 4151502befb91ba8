"""Models of the command line: an estimator, and how its files are read."""

import tempfile
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import maxmargin as mm
from maxmargin.cli.checks import UsageError, check_there
from maxmargin.cli.choosing import TASKS, check_kind, kind_of
from maxmargin.cli.task import Data, Task
from maxmargin.core.checks import check_types
from maxmargin.data.files import FileFormatError
from maxmargin.io.models import load_with_about


class Model(NamedTuple):
    """What a file of the command line holds."""

    estimator: Any
    task: Task


def save_model(model: Model, path: Path) -> Path:
    """Write a model, with what is needed to read files for it.

    Where its place fails, after what may have been hours of training, it goes to the folder for
    temporary files.
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
        raise OSError(f"{path} cannot be written, {error.strerror or error}{where}.") from error


def load_model(path: Path, encoding: str | None = None, threads: int = 1) -> Model:
    """A model of the command line.

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
            f"{path} is no model file but looks like {looks.format} data: name the model first, "
            f"then the data."
        ) from None
    kind = TASKS.get((about.get("task"), about.get("format")))
    if kind is None:
        raise mm.ModelFileError(
            f"{path} was not trained on the command line, which cannot tell what files it is for: "
            f"use it in Python, mm.load({str(path)!r})."
        )
    task: Any = _task(path, kind, about.get("reading"))
    if encoding is not None:
        if "encoding" not in {field.name for field in fields(task)}:
            raise UsageError(f"--encoding means nothing for {task.format} files.")
        task = replace(task, encoding=encoding)
    return Model(estimator.set_params(n_jobs=threads), task)


def _task(path: Path, kind: type[Task], reading: Any) -> Task:
    """How the files of a model are read, as the model says: it may say anything."""
    try:
        check_types(kind.__name__, reading, get_type_hints(kind))
        return kind(**reading)
    except Exception as error:
        raise mm.ModelFileError(
            f"{path} is damaged: it does not say how its files are read."
        ) from error


def read_for(model: Model, path: str) -> Data:
    """Examples for a model that has been trained.

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

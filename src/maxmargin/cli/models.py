"""Models of the command line: an estimator, and how its files are read."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import maxmargin as mm
from maxmargin.cli.choosing import TASKS
from maxmargin.cli.tasks.base import Task
from maxmargin.persistence.models import read_about


class Model(NamedTuple):
    """What a file of the command line holds."""

    estimator: Any
    task: Task


def save_model(model: Model, path: Path) -> Path:
    """Write a model, with what is needed to read files for it."""
    task = model.task
    about = {"task": task.name, "format": task.format, "reading": asdict(task)}
    return mm.save(model.estimator, path, about=about)


def load_model(path: Path) -> Model:
    """A model of the command line.

    Raises
    ------
    ModelFileError
    """
    about = read_about(path)
    kind = TASKS.get((about.get("task"), about.get("format")))
    if kind is None:
        raise mm.ModelFileError(
            f"{path} was not trained on the command line, which cannot tell what files it is for: "
            f"use it in Python, mm.load({str(path)!r})."
        )
    return Model(mm.load(path), kind(**about["reading"]))

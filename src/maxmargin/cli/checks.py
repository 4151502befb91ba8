"""Errors of the command line, and checks that come before the work."""

import os
import re
from pathlib import Path
from typing import Any

from sklearn.utils._param_validation import InvalidParameterError

from maxmargin.data.files import STANDARD_INPUT
from maxmargin.io.files import check_folder_of


class UsageError(ValueError):
    """Options that are invalid, or cannot be combined."""


_IN_PYTHON = {
    'pass encoding="latin-1"': "give --encoding latin-1",
    "unless multilabel=True": "unless with --task multilabel",
    "give tag_column=None if there are no tags": "there must be one for the tags, too",
    "tag_column=": "--tag-column ",
    "give another, or None if there are no tags": "give another",
}
"""Advice of the readers, in terms of the command line."""


def sentence(error: Exception) -> str:
    """An error in terms of the command line, without error numbers."""
    if isinstance(error, OSError) and error.strerror is not None:
        place = "" if error.filename is None else f": {error.filename}"
        return f"{error.strerror}{place}."
    text = str(error) or type(error).__name__
    for python, here in _IN_PYTHON.items():
        text = text.replace(python, here)
    return text


OPTIONS = {
    "C": "-C",
    "tol": "--tol",
    "solver": "--solver",
    "time_limit": "--time-limit",
    "max_iter": "--max-iter",
    "n_jobs": "--threads",
    "random_state": "--seed",
}
"""Parameters of estimators that have an option of their own; the others have `--set`."""

_COMPLAINT = re.compile(r"The '(\w+)' parameter of (\w+) must be (.+)\. Got (.+) instead\.", re.S)
_OBJECTS = re.compile(r"an instance of '(?:tuple|[\w.]*\.[\w.]*)'(?:, | or )?")


def check_place(path: Path, *inputs: str | Path | None, folder: bool = False) -> None:
    """Refuse, before the work, a path that cannot be written.

    Parameters
    ----------
    path : Path
        What is to be written.
    *inputs : path or None
        What is read, and must not be written over.
    folder : bool, default=False
        Whether it is a folder, which may be there.
    """
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
    if path is not None and path != STANDARD_INPUT and not Path(path).exists():
        raise FileNotFoundError(f"There is no file {path!r}.")


def in_words_of_options(complaint: str) -> str:
    """scikit-learn's message about a parameter, in terms of the command line.

    Examples
    --------
    >>> in_words_of_options("The 'C' parameter of A must be a float in (0, inf). Got 0 instead.")
    '-C of A must be a float in (0, inf), but is 0.'
    """
    found = _COMPLAINT.fullmatch(complaint)
    if found is None:
        return complaint
    name, kind, must, got = found.groups()
    must = _OBJECTS.sub("", must).removesuffix("None").rstrip(" ,").removesuffix(" or").rstrip(" ,")
    must = must.replace("an instance of 'bool'", "True or False")
    must = must.replace("an instance of 'dict'", "a dictionary")
    must = re.sub(r"a str among \{(.*)\}", lambda names: _one_of(names[1]), must)
    option = f"{OPTIONS.get(name, f'--set {name}')} of {kind}"
    if not must:
        return f"{option} takes an object, which can be given only in Python."
    return f"{option} must be {must}, but is {got}."


def _one_of(names: str) -> str:
    ordered = sorted(names.split(", "))
    return f"one of {', '.join(ordered)}" if len(ordered) > 1 else names


def validated(estimator: Any) -> Any:
    """An estimator whose parameters are valid; others are refused before data are read."""
    try:
        estimator._validate_params()
    except InvalidParameterError as error:
        raise UsageError(in_words_of_options(str(error))) from None
    return estimator

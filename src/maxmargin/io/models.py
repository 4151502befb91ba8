"""Models in files: arrays behind a JSON header.

Loading never runs code and trusts nothing: a file can name only registered classes of this library,
and what it holds must fit together.
"""

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import maxmargin
from maxmargin.core.arrays import check_finite, check_types, conforms
from maxmargin.core.registry import as_named_now, class_named, home_of
from maxmargin.core.state import Arrays, Tree, UnwritableError, capture, refuse, restore
from maxmargin.io.files import DamagedFileError, read_tensors, write_tensors

FORMAT = 2
"""Version that is written, and the newest read. The first named classes by their modules."""

OF_TRAINING = {"_warm", "_online", "_end"}
"""Attributes that only help to train on."""

_OF_THE_MACHINE = {"checkpoint", "checkpoint_every", "resume", "engine"}
"""Parameters that no file may set: where a later fit writes or runs (two only in old files)."""

_HISTORY = ".history_"
"""In names of arrays that may hold infinities: values not known at the time."""

_OF_SCIKIT_LEARN = ("_skl_", "_callback_", "_parent_callback")
"""Prefix of what scikit-learn keeps in estimators."""


class ModelFileError(ValueError):
    """A model cannot be written, or a file holds none that can be read."""


def save(
    estimator: Any, path: str | os.PathLike[str], *, about: Mapping[str, Any] | None = None
) -> Path:
    """Write a fitted estimator to a file.

    The file holds arrays in the safetensors format and a header: parameters, what was learned, the
    certificate and the history of the fit, a fingerprint of the data. A file of
    this name is replaced as a whole, and never half written.

    Parameters
    ----------
    estimator : fitted estimator of maxmargin
    path : path
        Usually ends in ``.mm``.
    about : dict, default=None
        What else is worth keeping, as JSON can hold it; `read_header` gives it back.

    Returns
    -------
    path : Path
        Of the file.

    Raises
    ------
    ModelFileError
        If the estimator is none of this library.
    OSError
        If the place cannot be written to; a file that was there stays.

    See Also
    --------
    load : The estimator again.
    read_header : What a file says about its model.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = mm.save(mm.LinearClassifier().fit(X, y), f"{folder}/iris.mm")
    ...     model = mm.load(path)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """
    from sklearn.utils.validation import check_is_fitted

    name = type(estimator).__name__
    if _estimator_class(name) is not type(estimator):
        raise ModelFileError(
            f"{name} is no estimator of maxmargin: save the estimators inside it, one by one."
        )
    check_is_fitted(estimator)
    own = estimator.get_params(deep=False)
    parameters = {
        key: value
        for key, value in own.items()
        if key not in _OF_THE_MACHINE and not isinstance(value, np.random.RandomState)
    }
    fitted = {
        key: value
        for key, value in vars(estimator).items()
        if key not in own and key not in OF_TRAINING and not key.startswith(_OF_SCIKIT_LEARN)
    }
    given: dict[str, str] = {}  # who loads the model gives these parameters again
    places: dict[int, Tree] = {}  # what stands in the file for their leaves
    for key, value in parameters.items():
        leaves = _leaves(value)
        places |= {id(leaf): ["given", key, at] for at, leaf in enumerate(leaves)}
        if leaves:
            parameters[key] = whole = object()
            places[id(whole)] = ["given", key, -1]
            given[key] = _description(value)

    def known(value: Any) -> Tree:
        return places[id(value)] if id(value) in places else refuse(value)

    try:
        tree, arrays = capture({"parameters": parameters, "fitted": fitted}, known)
    except UnwritableError as error:
        raise ModelFileError(f"This {name} cannot be saved: {error}.") from error
    header = {
        "kind": "model",
        "format": FORMAT,
        "maxmargin": maxmargin.__version__,
        "estimator": name,
        "given": given,
        "about": dict(about or {}),
        "model": tree,
    }
    write_tensors(Path(path), header, arrays)
    return Path(path)


def load(path: str | os.PathLike[str], *, mmap: bool = False, **given: Any) -> Any:
    """The estimator that a file holds.

    The file is read whole, compared with its checksums, and closed.

    Parameters
    ----------
    path : path
    mmap : bool, default=False
        Map the arrays of a large model into memory instead, and read them when used. That starts
        at once and shares memory among processes, but compares no checksum, and if another program
        cuts the file short or writes into it (`save` does neither), predictions change, or the
        operating system ends the process.
    **given
        Parameters that hold code of yours, which a file cannot: ``problem=`` of a `StructuredSVM`,
        ``kernel=`` if it is a function.

    Returns
    -------
    estimator : fitted estimator
        Ready to predict.

    Raises
    ------
    ModelFileError
        If the file is damaged, is no model, needs a newer version or something `given`.
    OSError
        If there is no such file, or it cannot be read.

    See Also
    --------
    load_predictor : Its lower half, which only predicts.
    save : Write one.
    read_header : What a file says about its model.

    Examples
    --------
    See `save`.
    """
    return load_with_about(path, mmap=mmap, **given)[0]


def load_predictor(path: str | os.PathLike[str], *, mmap: bool = False, **given: Any) -> Any:
    """The lower half of the estimator that a file holds: it predicts, and cannot be trained.

    For services and scripts that only predict: scikit-learn is not imported, which takes longer
    than all the rest. Estimators inherit these methods, so that the answers are the same.

    Parameters
    ----------
    path : path
    mmap : bool, default=False
        As for `load`.
    **given
        Parameters that hold code of yours, as for `load`.

    Returns
    -------
    predictor : object
        Has ``predict``, and where the estimator has them ``decision_function``,
        ``predict_k_best``, ``predict_marginals`` and others, but not ``score``; with the fitted
        attributes. ``n_jobs`` can be set, and is None.

    Raises
    ------
    ModelFileError, OSError
        As `load`.

    See Also
    --------
    load : The estimator itself.

    Examples
    --------
    >>> import tempfile
    >>> import maxmargin as mm
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "dogs"}]]
    >>> tagger = mm.SequenceTagger().fit(X, [["DET", "NOUN"], ["NOUN"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     predictor = mm.load_predictor(mm.save(tagger, f"{folder}/tagger.mm"))
    >>> predictor.predict([[{"word": "the"}, {"word": "dogs"}]])[0].tolist()
    ['DET', 'NOUN']
    """
    return load_with_about(path, mmap=mmap, predictor=True, **given)[0]


def load_with_about(
    path: str | os.PathLike[str], *, mmap: bool = False, predictor: bool = False, **given: Any
) -> tuple[Any, dict[str, Any]]:
    """`load` or `load_predictor`, and what was given to `save` as `about`."""
    path = Path(path)
    header, arrays = _read(path, mmap)
    _check_given(path, header["given"], given)
    leaves = {name: _leaves(value) for name, value in given.items()}

    def place(tree: Tree) -> Any:
        name, at = _given_place(tree)
        return leaves[name][at] if at >= 0 else given[name]

    with _blaming(path):
        kind = (_predictor_class if predictor else _estimator_class)(header["estimator"])
        parameters, fitted = _restored(kind, header, arrays, place)
        own = {key: value for key, value in parameters.items() if key not in _OF_THE_MACHINE}
        if predictor:
            hints = {one.name: one.type for one in fields(kind) if one.init}
            own = {key: own[key] for key in hints.keys() & own.keys() - {"n_jobs"}}
            check_types(kind.__name__, own, hints)
        model = kind(**own)
        if not predictor:
            model._validate_params()
        model.__dict__.update(fitted)
        model._check_fitted()
        return model, header["about"]


def _restored(
    kind: Any, header: Mapping[str, Any], arrays: Arrays, foreign: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    if kind is None:
        raise ValueError(f"{header['estimator']!r:.80} is no estimator, or predicts nothing")
    model = restore(header["model"], arrays, foreign=foreign, find=_class_named)
    if not conforms(model, dict[str, dict[str, Any]]) or model.keys() != {"parameters", "fitted"}:
        raise ValueError("parameters or attributes are missing")
    fitted = as_named_now(model["fitted"])
    check_types(kind.__name__, fitted, kind.fitted_types())
    return as_named_now(model["parameters"]), fitted


def _given_place(tree: Tree) -> tuple[str, int]:
    """Which leaf of which parameter stands in a place; -1 is the parameter itself."""
    kind, name, at = tree
    if kind != "given":
        raise ValueError(f"{kind!r:.80} is no kind of value")
    return name, at


def _class_named(name: Any) -> type:
    """The registered class of a name; public ones, as of solvers, may have to be imported."""
    for package in (maxmargin, maxmargin.structures):
        if name in package.__all__:
            getattr(package, name)
    return class_named(name)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file says about its model, without its arrays.

    Parameters
    ----------
    path : path

    Returns
    -------
    header : dict
        ``"estimator"`` (its name), ``"format"`` and ``"maxmargin"`` (versions), ``"parameters"``,
        ``"classes"`` (or None), ``"certificate"``, ``"status"``, ``"iterations"``, ``"seconds"``,
        ``"data"`` (fingerprint), ``"arrays"`` (shape and type by name), ``"given"`` (what `load`
        must be given), ``"about"``.

    Raises
    ------
    ModelFileError, OSError
        As `load`.

    See Also
    --------
    load : The estimator.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import maxmargin as mm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = mm.LinearRegressor().fit([[0.0], [1.0]], [0.0, 2.0])
    ...     header = mm.read_header(mm.save(model, Path(folder, "line.mm")))
    >>> header["estimator"], header["parameters"]["C"], header["status"]
    ('LinearRegressor', 1.0, 'converged')
    """
    header, arrays = _read(Path(path))

    def description(tree: Tree) -> Any:
        return header["given"][_given_place(tree)[0]]

    with _blaming(Path(path)):
        name = header["estimator"]
        kind = _predictor_class(name) or _estimator_class(name)
        parameters, fitted = _restored(kind, header, arrays, description)
    history = fitted.get("history_") or []
    classes = fitted.get("classes_")
    copied = ("estimator", "format", "maxmargin", "given", "about")
    return {name: header[name] for name in copied} | {
        "parameters": parameters,
        "classes": None if classes is None else np.asarray(classes).tolist(),
        "certificate": fitted.get("certificate_"),
        "status": fitted.get("status_"),
        "iterations": fitted.get("n_iter_"),
        "seconds": history[-1].seconds if history else None,
        "data": fitted.get("_data_fingerprint"),
        "arrays": {name: (array.shape, array.dtype.name) for name, array in arrays.items()},
    }


def _leaves(value: Any) -> list[Any]:
    """Parts of a value that have no plain form, in the order in which they are met."""
    found: list[Any] = []
    capture(value, found.append)
    return found


def _description(value: Any) -> str:
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _check_given(path: Path, needed: Mapping[str, str], given: Mapping[str, Any]) -> None:
    for name, what in needed.items():
        if given.get(name) is None:
            raise ModelFileError(
                f"{path} was trained with a {name} of your own ({what}), which a file cannot hold: "
                f"pass it again, mm.load(path, {name}=...)."
            )
    for name in given:
        if name not in needed:
            raise ModelFileError(
                f"{path} holds its {name}, or has none: mm.load takes "
                f"{' and '.join(needed) or 'nothing but the path'} for it."
            )


def _estimator_class(name: str) -> Any:
    """The estimator of a name, or None; its module registers what it learns."""
    found = getattr(maxmargin, name) if name in maxmargin.__all__ else None
    return found if hasattr(found, "fitted_types") else None


def _predictor_class(name: str) -> Any:
    """The lower half of an estimator, or None: ``predictors.x`` of ``estimators.x``, and so on."""
    home = home_of("maxmargin", name) or ""
    if "estimator" not in home:
        return None
    return getattr(import_module(home.replace("estimator", "predictor")), f"{name}Predictor", None)


def _read(path: Path, mapped: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        header, arrays = read_tensors(path, mapped=mapped)
    except DamagedFileError as error:
        raise ModelFileError(str(error)) from error
    with _blaming(path):
        if not isinstance(header, dict) or header.get("kind") != "model":
            raise ModelFileError(
                f"{path} is a checkpoint, not a model: fit with Checkpoint(path, resume=True) to "
                f"go on from it, then save the model."
            )
        if header["format"] > FORMAT:
            raise ModelFileError(
                f"{path} was written by maxmargin {header['maxmargin']!s:.40}, in a format (number "
                f"{header['format']}) that this version, {maxmargin.__version__}, does not know: "
                f"update maxmargin."
            )
        check_types("the header", header, _HEADER_TYPES)
        if not header.keys() >= _HEADER_TYPES.keys() - {"checksum"}:
            raise ValueError("the header is not whole")
        if header["format"] == 1 and not mapped and _checksum(arrays) != header["checksum"]:
            raise ValueError("its numbers are not those that were written")
        for name, array in () if mapped else arrays.items():
            if array.dtype.kind == "f" and _HISTORY not in name:
                check_finite(name, array)
    return header, arrays


_HEADER_TYPES: dict[str, Any] = {
    "kind": str, "format": int, "maxmargin": str, "estimator": str, "given": dict[str, str],
    "checksum": int, "about": dict[str, Any], "model": list,
}  # fmt: skip
"""Of the entries of a header; the checksum in the first format only."""


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Blame the file for whatever goes wrong while its header is read."""
    try:
        yield
    except ModelFileError:
        raise
    except Exception as error:
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        reason = " ".join(f"{kind}{error}".split())
        raise ModelFileError(
            f"{path} is damaged, or of a version of maxmargin that this one does not know: "
            f"{reason:.200}."
        ) from error


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Of the arrays, in files of the first format."""
    found = 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found = zlib.crc32(array.reshape(-1).view(np.uint8).data, found)
    return found

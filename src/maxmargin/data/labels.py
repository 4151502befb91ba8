"""Labels as users have them, turned into an array, unless that would make others of them."""

from collections.abc import Iterable
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray


def label_array(labels: Any, what: str = "y", void: Any = None) -> NDArray[Any]:
    """Labels as an array, all of one kind.

    numpy makes strings of all, where some are strings: 0 and "0" would be the same. And byte
    strings are no text to anybody who compares with text.

    Parameters
    ----------
    labels : array-like
    what : str, default="y"
        What to call them in errors.
    void : label, default=None
        May be there, whatever the others are.

    Raises
    ------
    ValueError
        If some are strings and some are not, or if they are byte strings.

    Examples
    --------
    >>> label_array(["b", "a"])
    array(['b', 'a'], dtype='<U1')
    >>> label_array([0, "q"])
    Traceback (most recent call last):
    ...
    ValueError: y mixes numbers and strings, such as 0 and 'q': make all labels of one kind.
    """
    kinds = check_kinds(labels, what, void)
    others = kinds and isinstance(labels, (list, tuple)) and _kind(void) not in kinds
    return np.array(labels, dtype=object) if others and void in labels else np.asarray(labels)


def flat_labels(parts: Iterable[Any], what: str = "y", void: Any = None) -> NDArray[Any]:
    """Labels of several lists one after the other, as `label_array` takes each."""
    lists = [part for part in parts if len(part)]
    kinds: dict[str, Any] = {}
    for part in lists:
        for kind, example in check_kinds(part, what, void).items():
            kinds.setdefault(kind, example)
    _refuse_mixture(kinds, what)
    return np.concatenate([np.asarray(part) for part in lists]) if lists else np.zeros(0)


def check_kinds(labels: Any, what: str, void: Any = None) -> dict[str, Any]:
    """Kinds of labels other than `void`, with an example of each; more than one is refused."""
    dtype = getattr(labels, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        examples = [np.ravel(labels)[0]] if np.size(labels) else []
    else:
        is_list = isinstance(labels, (list, tuple))
        members = labels if is_list else np.asarray(labels).ravel().tolist()
        if any(isinstance(member, (list, tuple, np.ndarray)) for member in members[:1]):
            members = list(chain.from_iterable(members))
        if void in members:
            members = [member for member in members if member != void]
        examples = list(dict(zip(map(type, members), members, strict=True)).values())
    kinds = {_kind(example): example for example in examples}
    if "byte strings" in kinds:
        shown = bytes(kinds["byte strings"])
        raise ValueError(
            f"{what} holds byte strings, such as {shown!r:.50}: decode them, as "
            f"[label.decode() for label in labels] does."
        )
    _refuse_mixture(kinds, what)
    return kinds


def _refuse_mixture(kinds: dict[str, Any], what: str) -> None:
    if len(kinds) > 1:
        (kind, example), (other_kind, other), *_ = sorted(kinds.items())
        shown = [one.item() if isinstance(one, np.generic) else one for one in (example, other)]
        raise ValueError(
            f"{what} mixes {kind} and {other_kind}, such as {shown[0]!r:.50} and {shown[1]!r:.50}: "
            f"make all labels of one kind."
        )


def _kind(label: Any) -> str:
    if isinstance(label, str):
        return "strings"
    if isinstance(label, (bytes, bytearray)):
        return "byte strings"
    if isinstance(label, (Number, np.generic)):
        return "numbers"
    return f"objects ({type(label).__name__})"


def all_classes(classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    """The classes that are `known`, or, at the first call of `partial_fit`, those given, sorted."""
    if classes is None:
        if known is None:
            raise ValueError(
                "classes must be passed on the first call to partial_fit: all labels that will "
                "ever come."
            )
        return known
    given = np.unique(label_array(classes, "classes"))
    if known is not None and not np.array_equal(given, np.sort(known)):
        raise ValueError(
            f"classes are {given.tolist()}, but {known.tolist()} are known already: they must "
            f"stay the same."
        )
    return given


def joined_classes(known: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
    """All classes, sorted; an error if those found are no labels."""
    if found.dtype.kind == "f" and (found != np.round(found)).any():
        bad = found[found != np.round(found)][0]
        raise ValueError(f"Labels must be whole numbers or text, but y holds {bad}.")
    return np.union1d(known, found) if len(known) else found


def class_numbers(
    labels: NDArray[Any], classes: NDArray[Any], flat: bool = False
) -> NDArray[np.intp]:
    """Where in the sorted `classes` the labels are; an error if one is not.

    `flat` labels are those of several lists, so that errors cannot tell where one is.
    """
    if not len(labels):
        return np.zeros(0, dtype=np.intp)
    try:
        numbers = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    except TypeError as error:
        raise ValueError(
            "Labels must all be strings or all be numbers, but y mixes types."
        ) from error
    unknown = np.flatnonzero(classes[numbers] != labels)
    if len(unknown):
        label = np.asarray(labels)[unknown].tolist()[0]
        where = "y holds" if flat else f"y[{unknown[0]}] is"
        raise ValueError(f"{where} {label!r}, which is not one of the classes {classes.tolist()}.")
    return numbers

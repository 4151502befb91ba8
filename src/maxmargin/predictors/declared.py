"""How estimators are declared: parameters as fields, docstrings completed from the bases."""

import inspect
import re
from dataclasses import dataclass, field, fields
from functools import cache, update_wrapper
from types import FunctionType
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

Class = TypeVar("Class", bound=type)

Page = dict[str, str]
"""A docstring: its sections by title, and what stands before them under the empty title."""

_MORE = "more"

ORDER = "", "Parameters", "Attributes", "Returns", "Raises", "Warns"
"""Sections in numpydoc's order; all others come after these, as they stand."""


def fitted(*, init: Literal[False] = False) -> Any:
    """An attribute that `fit` sets, in the body of an `estimator`."""
    return field(init=init)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field, fitted))
def estimator(cls: Class) -> Class:
    """Make ``__init__`` of the parameters that a class and its bases declare, and document them.

    Parameters are annotated names with a default, by keyword only unless ``field(kw_only=False)``
    says otherwise; those of the class come before those of its bases, whose constraints it
    inherits. Entries that its docstrings leave out, of parameters, attributes, arguments, results,
    errors and warnings, come from its bases.
    """
    made: Any = dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)
    constraints: dict[str, Any] = {
        one.name: ["boolean"] for one in fields(made) if one.init and one.type in (bool, "bool")
    }
    for base in reversed(made.__mro__):
        constraints |= vars(base).get("_parameter_constraints", {})
    made._parameter_constraints = constraints
    signature = inspect.signature(made.__init__)

    annotated = [inspect.get_annotations(base) for base in made.__mro__]

    def distance(one: inspect.Parameter) -> int:
        """How far among the bases a parameter comes from."""
        declared = [i for i, names in enumerate(annotated) if one.name in names]
        return max(declared) if one.kind is one.KEYWORD_ONLY else -1

    parameters = sorted(signature.parameters.values(), key=distance)
    made.__init__.__signature__ = signature.replace(parameters=parameters)
    made.__doc__ = _class_page(made, [one.name for one in parameters])
    for name, method in _methods(cls).items():
        page = _method_page(cls, name, inspect.signature(method))
        if page != method.__doc__:
            own = method if name in vars(cls) else _copied(method)
            own.__doc__ = page
            setattr(cls, name, own)
    return cls


def _methods(cls: type) -> dict[str, FunctionType]:
    """Public methods of a class, its own and those of bases of ours."""
    found = {name: one for base in reversed(cls.__mro__) for name, one in vars(base).items()}
    return {
        name: one
        for name, one in found.items()
        if type(one) is FunctionType
        and not name.startswith("_")
        and one.__module__.startswith("maxmargin.")
    }


def _copied(method: Any) -> Any:
    """A copy of a method, for a class that documents it otherwise."""
    copy = FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__,
        method.__closure__,
    )  # fmt: skip
    copy.__kwdefaults__ = method.__kwdefaults__
    return update_wrapper(copy, method)


class Documented:
    """What methods of estimators take and return, unless they say otherwise."""

    _arguments: ClassVar[str] = """
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        One row for each example.
    y : array-like of shape (n_samples,)
        The true classes.
    classes : array-like of shape (n_classes,), default=None
        All labels that will ever come; needed in the first call.
    sample_weight : array-like of shape (n_samples,), default=None
        Multiplies the C of each example.
    k : int
        How many, at most.
    temperature : float, default=1.0
        Scores are divided by it before they are exponentiated.
    """
    """Entries for arguments of any method of the class."""

    _pages: ClassVar[dict[str, str]] = {
        "fit": """
        Returns
        -------
        self : object
            The fitted estimator.

        Warns
        -----
        ConvergenceWarning
            If `max_iter`, `time_limit`, Ctrl-C or a callback stopped the fit; the best weights so
            far are kept, with their certificate.
        """,
        "partial_fit": """
        The model can be used after every call. `StructuredSVM.partial_fit` says what is kept, and
        what the certificate is of.

        Returns
        -------
        self : object
            The fitted estimator.
        """,
        "predict": """
        Returns
        -------
        y : ndarray of shape (n_samples,)
            What is predicted for each input.
        """,
        "decision_function": """
        Returns
        -------
        scores : ndarray of shape (n_samples,)
            One score for each input, the higher the better.
        """,
        "predict_marginals": """
        Outputs get the weight ``exp(score / temperature)``; the lower the temperature, the more the
        best one counts. These are no calibrated probabilities.
        """,
        "score": """
        Parameters
        ----------
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the examples.

        Returns
        -------
        score : float
            The higher, the better.
        """,
    }
    """Pages of methods; text before the sections goes after a summary of one paragraph."""


def _class_page(cls: Any, parameters: list[str]) -> str:
    """The docstring of a class with the entries of its bases."""
    page = _sections(cls.__doc__)
    learned = [one.name for one in fields(cls) if not one.init]
    for title, names in {"Attributes": learned, "Parameters": parameters}.items():
        entries = _entries(page.get(title, ""))
        for base in cls.__mro__[1:]:
            inherited = _entries(_sections(vars(base).get("__doc__")).get(title, ""))
            for name in [name for name in names if name in inherited and name not in entries]:
                entry, default = inherited[name], getattr(cls, name, None)
                if default != getattr(base, name, None):
                    entry = re.sub("default=.*", f"default={default!r}", entry, count=1)
                entries[name] = entry
        if title == "Parameters":
            entries = {name: entries[name] for name in names if name in entries}
        page[title] = "\n".join(dict.fromkeys(entries.values()))
    return _text(page)


def _method_page(cls: type, method: str, signature: inspect.Signature) -> str:
    """The docstring of a method with what those of the bases, and their `_pages`, add."""
    page: Page = {}
    entries: dict[str, dict[str, str]] = {"Parameters": {}, "Raises": {}, "Warns": {}}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("maxmargin."):
            continue
        attributes = vars(base)
        general = _sections(attributes.get("_pages", {}).get(method))
        general[_MORE] = general.pop("", "")
        found = [{"Parameters": _clean(attributes.get("_arguments"))}, general]
        if method in attributes:
            found.append(_sections(attributes[method].__doc__))
        for one in found:
            page |= {title: text for title, text in one.items() if text}
            for title, known in entries.items():
                known.update(_entries(one.get(title, "")))
    described = entries["Parameters"]
    entries["Parameters"] = {
        name: _with_default(described[name], argument.default)
        for name, argument in signature.parameters.items()
        if name in described
    }
    more = page.pop(_MORE, "")
    if more and "\n\n" not in page[""]:
        page[""] += f"\n\n{more}"
    return _text(page | {t: "\n".join(dict.fromkeys(e.values())) for t, e in entries.items()})


def _with_default(entry: str, default: Any) -> str:
    """The entry of an argument with the default of the signature, unless it documents several."""
    head, newline, rest = entry.partition("\n")
    if ", " in head.partition(" : ")[0]:
        return entry
    head = head.partition(", default=")[0]
    if default is not inspect.Parameter.empty:
        head += f", default={default!r}"
    return head + newline + rest


def _clean(doc: str | None) -> str:
    return inspect.cleandoc(doc or "")


def _sections(doc: str | None) -> Page:
    return dict(_sections_of(doc))


@cache  # a docstring is inherited many times
def _sections_of(doc: str | None) -> Page:
    parts = re.split(r"(?:\A|\n\n)(\S[^\n]*)\n-{3,}\n", _clean(doc))
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


def _entries(section: str) -> dict[str, str]:
    """Entries of a section by name; one of several names under each."""
    return dict(_entries_of(section))


@cache
def _entries_of(section: str) -> dict[str, str]:
    found = re.split(r"\n(?=\S)", section) if section else []
    heads = [entry.partition("\n")[0].partition(" : ")[0] for entry in found]
    pairs = zip(heads, found, strict=True)
    return {name: entry for head, entry in pairs for name in head.split(", ")}


def _text(page: Page) -> str:
    """The docstring of sections."""
    titles = [*ORDER, *(title for title in page if title not in ORDER)]
    shown = [title for title in titles if page.get(title)]
    heads = [f"{title}\n{'-' * len(title)}\n" if title else "" for title in shown]
    parts = [head + page[title] for head, title in zip(heads, shown, strict=True)]
    return "\n\n".join(parts) + "\n"

"""The closed list of classes that files may hold, by name; lazy attributes of packages."""

import ast
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)

_BY_NAME: dict[str, type] = {}
_NAMES: dict[type, str] = {}
_CHECKS: dict[type, Callable[[Any], None]] = {}
_HOMES: dict[str, dict[str, str]] = {}

_FIRST_FORMAT = "maxmargin."
"""Prefix of names in files of the first format: ``maxmargin.module:Class``."""

_RENAMED = {
    "completions": "imputations",
    "expected": "objective",
    "completions_": "imputations_",
    "cooling": "skip_small_violations",
    "inference": "inference_method",
    "max_completions": "max_imputations",
    "moves": "updates",
    "outputs_per_search": "outputs_per_call",
    "planes": "cuts",
    "rounds": "iterations",
    "search_cost": "oracle_cost",
    "searches": "oracle_calls",
    "share": "local_passes",
    "shrinking": "skip_idle_examples",
    "taken": "step",
    "value_every": "evaluate_every",
}
"""Fields and parameters by their names in earlier files."""


def registered(name: str, check: str | None = None) -> Callable[[_Class], _Class]:
    """Decorator: files may hold objects of this class; its method `check` validates them."""

    def register(kind: _Class) -> _Class:
        if _BY_NAME.setdefault(name, kind) is not kind:
            raise ValueError(f"Two classes are registered as {name!r}.")
        _NAMES[kind] = name
        if check is not None:
            _CHECKS[kind] = getattr(kind, check)
        return kind

    return register


def name_of(kind: type) -> str | None:
    """The name under which a class is registered, or None."""
    return _NAMES.get(kind)


def as_named_now(items: Mapping[str, Any]) -> dict[str, Any]:
    """Fields or parameters of a file under their present names."""
    return {
        _RENAMED.get(name, name): value
        for name, value in items.items()
        if not (name in _RENAMED and value is None)
    }


def class_named(name: Any) -> type:
    """The class registered under a name in a file, or ValueError."""
    known = name.rpartition(":")[2] if str(name).startswith(_FIRST_FORMAT) else name
    if not isinstance(name, str) or known not in _BY_NAME:
        raise ValueError(f"{name!r:.80} is no kind of value")
    return _BY_NAME[known]


def check(value: Any) -> Any:
    """The value, validated by its class; ValueError if its parts do not fit together."""
    if type(value) in _CHECKS:
        _CHECKS[type(value)](value)
    return value


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from its ``__init__.pyi``."""
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    home_of = {one.name: str(node.module) for node in imports for one in node.names if one.asname}
    _HOMES[package] = home_of

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home_of[name] == package:
            return import_module(f"{package}.{name}")
        with _no_collection():
            value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)  # so that it is looked up once
        return value

    return find, lambda: sorted(home_of), sorted(home_of)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without garbage collection: modules stay, and there are many objects to look through.

    Between scikit-learn's and numba's, which live as long, it took a quarter of an import.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def home_of(package: str, name: str) -> str | None:
    """The module that defines a lazy attribute of a package, which need not be imported yet."""
    return _HOMES[package].get(name)

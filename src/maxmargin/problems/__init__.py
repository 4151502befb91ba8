"""What is predicted, and what is minimised."""

from importlib import import_module
from typing import Any

_HOMES = {"Multiclass": "multiclass_kernel"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

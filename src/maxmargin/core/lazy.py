"""Names of a package that are imported when they are first used, so that importing it is cheap."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    homes : mapping
        From modules of ours, or the empty string for packages, to the names that are found there,
        separated by spaces.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home_of[name]:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(f"maxmargin.{home_of[name]}"), name)
        setattr(sys.modules[package], name, found)  # so that it is looked up once
        return found

    return find, lambda: sorted(home_of), sorted(home_of)

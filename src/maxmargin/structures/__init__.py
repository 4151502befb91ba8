"""What is predicted: one folder for each kind of output.

A structure registers what it brings in modules of its own folder, which are found by their names:
tasks of the command line as `TASKS` in ``task.py``, what a report says about the predictions of an
estimator, by the name of its class, as `ANSWERS` in ``report.py``.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from maxmargin.core.registry import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

FILE_FORMATS = (
    "structures.constituency.recognition:PENN",
    "structures.dependency.recognition:CONLLU",
    "structures.ranking.recognition:LETOR",
    "structures.chain.recognition:SVM_HMM",
    "data.libsvm:LIBSVM",
    "structures.chain.recognition:COLUMNS",
)
"""How files are recognised (`maxmargin.data.formats`), in the order in which it is tried."""


def registered(module: str, name: str) -> Iterator[Any]:
    """Whatever structures list as `name` in their modules of this name."""
    for structure in iter_modules(__path__):
        home = f"{__name__}.{structure.name}.{module}"
        if find_spec(home) is not None:
            yield from getattr(import_module(home), name)

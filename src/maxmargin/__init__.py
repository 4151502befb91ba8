"""Max-margin structured prediction, with a duality-gap certificate on every fit.

Names are imported when they are first used, so that ``import maxmargin`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin.dual.certificate import Certificate
    from maxmargin.estimators.classifier import LinearClassifier
    from maxmargin.estimators.regressor import LinearRegressor
    from maxmargin.problems.prior import GaussianPrior
    from maxmargin.report.progress import ProgressLine
    from maxmargin.solvers.sequential_dual import SequentialDual

__version__ = "0.1.0"

_HOMES = {
    "Certificate": "dual.certificate",
    "GaussianPrior": "problems.prior",
    "LinearClassifier": "estimators.classifier",
    "LinearRegressor": "estimators.regressor",
    "ProgressLine": "report.progress",
    "SequentialDual": "solvers.sequential_dual",
}

__all__ = [
    "Certificate",
    "GaussianPrior",
    "LinearClassifier",
    "LinearRegressor",
    "ProgressLine",
    "SequentialDual",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

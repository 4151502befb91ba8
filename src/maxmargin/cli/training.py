"""A fit as the command line runs it: shown, stopped by Ctrl-C without loss, told in numbers."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.result import Status
from maxmargin.estimators.causes import NotConvergedWarning
from maxmargin.report.markup import plural
from maxmargin.report.progress import duration

ROUNDING = 1e-13
"""Relative gap below which there is nothing but rounding."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_REASONS = {
    Status.CONVERGED: "converged",
    Status.PASSES: "all passes made",
    Status.RELAXED: "converged as far as relaxed searches can tell",
    Status.MAX_ITER: "stopped after the rounds that were asked for",
    Status.TIME_LIMIT: "stopped at the time limit",
    Status.INTERRUPTED: "interrupted",
}


@dataclass(frozen=True)
class Outcome:
    """What came out of a fit, in numbers.

    Parameters
    ----------
    status : str
    objective, dual : float
        Of the weights, and the lower bound of what any weights could reach.
    relative_gap : float
    iterations, oracle_calls : int
    seconds : float
    cause : str
        Why it did not get further, if that can be told, and what to do.
    """

    status: str
    objective: float
    dual: float
    relative_gap: float
    iterations: int
    oracle_calls: int
    seconds: float
    cause: str = ""

    @classmethod
    def of(cls, model: Any, cause: str) -> "Outcome":
        """That of a fitted estimator."""
        certificate = model.certificate_
        last = model.history_[-1] if model.history_ else None  # stopped before the first round
        return cls(
            str(model.status_),
            certificate.primal,
            certificate.dual,
            certificate.relative_gap,
            0 if last is None else model.n_iter_,
            0 if last is None else last.oracle_calls,
            0.0 if last is None else last.seconds,
            cause,
        )

    @property
    def sentence(self) -> str:
        """The same for a reader."""
        return (
            f"{_REASONS.get(Status(self.status), self.status)}: objective {self.objective:.6g}, "
            f"certified within {percentage(self.relative_gap)} of the optimum; "
            f"{plural(self.iterations, 'iteration')}, {plural(self.oracle_calls, 'oracle call')}, "
            f"{duration(self.seconds)}"
        )

    @property
    def exit_code(self) -> int:
        """Of the program."""
        return INTERRUPTED if self.status == Status.INTERRUPTED else 0

    def numbers(self) -> dict[str, Any]:
        """For scripts."""
        return asdict(self)


def percentage(share: float) -> str:
    """A share for a reader: two digits, none of them of rounding.

    Examples
    --------
    >>> percentage(0.000684), percentage(0.9994), percentage(-2e-16)
    ('0.068 %', '99.9 %', '0 %')
    """
    percent = 100 * share if share > ROUNDING else 0.0
    return f"{percent:.3g} %" if percent >= 10 else f"{percent:.2g} %"


def train(estimator: Any, fit: Callable[[Any], Any], progress: bool) -> Outcome:
    """Train an estimator.

    Parameters
    ----------
    estimator : estimator
    fit : callable
        Trains it.
    progress : bool
        Show what it is doing.
    """
    if progress:
        estimator.set_callbacks(mm.ProgressLine())
    causes: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        show = warnings.showwarning

        def listen(message: Any, category: type[Warning], *place: Any) -> None:
            """Of a fit that did not converge the outcome tells, and only the cause is news."""
            if not issubclass(category, ConvergenceWarning):
                show(message, category, *place)
            elif isinstance(message, NotConvergedWarning):
                causes.append(message.cause)

        warnings.showwarning = listen  # type: ignore[assignment]
        fit(estimator)
    return Outcome.of(estimator, causes[-1] if causes else "")

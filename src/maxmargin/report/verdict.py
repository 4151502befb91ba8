"""A fit and its certificate in sentences for people who have never heard of duality."""

from typing import Any

import numpy as np

from maxmargin.dual.certificate import Certificate
from maxmargin.report.markup import number, plural

REASONS = {
    "converged": "It stopped because it was as close to the optimum as asked for.",
    "relaxed": "It stopped because its searches, which are approximate, can tell no more.",
    "max_iter": "It stopped at the most rounds allowed.",
    "passes": "It stopped after the passes over the data that were asked for.",
    "time_limit": "It stopped because its time was over.",
    "interrupted": "It was interrupted; the best weights so far were kept.",
    "stopped by a callback": "It was stopped by a callback; the best weights so far were kept.",
    "failed": "It stopped because the problem failed; the best weights so far were kept.",
    "partial": "It has learned from blocks of examples, each seen once.",
}


def stopped(estimator: Any) -> str:
    """How long the fit took, and why it stopped."""
    name, history = type(estimator).__name__, getattr(estimator, "history_", None)
    took = f"This {name} was trained with C = {estimator.C:g}"
    if history:
        last = history[-1]
        took += f" in {last.seconds:.3g} s and {plural(len(history), 'round')}"
    return f"{took}. {REASONS.get(getattr(estimator, 'status_', ''), '')}".strip()


def certified(estimator: Any) -> str:
    """What the certificate says.

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.report.verdict import certified
    >>> model = mm.LinearClassifier(tol=0.5).fit([[0.0], [1.0]], [0, 1])
    >>> certified(model).split(":")[0]
    'How good is the training'
    """
    certificate = getattr(estimator, "certificate_", None)
    if certificate is None:
        return ""
    text = _of(estimator, certificate)
    if certificate.at_zero is None:
        return text
    return (
        f"{text} Zero weights, which say nothing about any example, have an objective of "
        f"{number(certificate.at_zero)}: these are hardly better. Take a larger C, or features "
        f"that tell the outputs apart."
    )


def _of(estimator: Any, certificate: Certificate) -> str:
    primal, dual = number(float(certificate.primal)), number(float(certificate.dual))
    if not np.isfinite(certificate.gap):
        return (
            f"How good is the training: no weights can have an objective below {dual} on what was "
            f"seen. How far these weights are above it was not measured: that takes a pass over "
            f"all examples."
        )
    share = f"{max(certificate.relative_gap, 0.0):.2%}"
    if hasattr(estimator, "objectives_"):
        return (
            f"How good is the training: the objective (what training makes small) is {primal}. "
            f"With the same latent variables no weights can come below {dual}, so at most {share} "
            f"is left to gain with these. Other latent variables may be better: that is not "
            f"bounded."
        )
    if certificate.relaxed:
        return (
            f"How good is the training: the objective (what training makes small) is at most "
            f"{primal}. It is proven that no weights can come below {dual}. So these weights "
            f"are at most {share} from the best possible; a part of this is there only because "
            f"the searches are approximate."
        )
    return (
        f"How good is the training: the objective (what training makes small: the size of the "
        f"weights plus C times the errors) is {primal}. It is proven that no weights at all can "
        f"come below {dual} on the same data. So these weights are at most {share} from the best "
        f"possible ones: training on cannot gain more than that."
    )

"""Conversions between the regularisation parameters of the literature.

Here ``C`` multiplies the SUM of the losses of the ``n`` examples, as in LIBLINEAR and scikit-learn.
Pegasos, block-coordinate Frank-Wolfe and partial linearization, and Joachims, take the MEAN:

    1/2 |w|^2 + C * sum_i loss_i(w)
    lambda / 2 * |w|^2 + 1/n * sum_i loss_i(w)      lambda = 1 / (n C), values times lambda
    1/2 |w|^2 + C_J / n * sum_i loss_i(w)           C_J = n C, the same values
"""

import math


def C_from_lambda(lam: float, n: int) -> float:  # noqa: N802
    """C of this library for a regulariser ``lambda / 2 * |w|^2`` beside the mean loss.

    Parameters
    ----------
    lam : float
        Weight of the regulariser; positive.
    n : int
        Number of examples.

    Returns
    -------
    C : float
        ``1 / (n * lam)``.

    Examples
    --------
    >>> from maxmargin.core.conventions import C_from_lambda
    >>> C_from_lambda(0.01, n=50)
    2.0
    """
    _check("lam", lam, n)
    return 1.0 / (n * lam)


def lambda_from_C(C: float, n: int) -> float:  # noqa: N802
    """Weight of the regulariser beside the mean loss for a C of this library.

    Parameters
    ----------
    C : float
        Weight of the sum of the losses; positive.
    n : int
        Number of examples.

    Returns
    -------
    lam : float
        ``1 / (n * C)``. An objective value of this library times `lam` is the value there.

    Examples
    --------
    >>> from maxmargin.core.conventions import lambda_from_C
    >>> lambda_from_C(2.0, n=50)
    0.01
    """
    _check("C", C, n)
    return 1.0 / (n * C)


def C_from_joachims(C: float, n: int) -> float:  # noqa: N802
    """C of this library for a C that multiplies the mean of the slacks.

    Parameters
    ----------
    C : float
        Weight of the mean of the slacks; positive.
    n : int
        Number of examples.

    Returns
    -------
    C : float
        ``C / n``.

    Examples
    --------
    >>> from maxmargin.core.conventions import C_from_joachims
    >>> C_from_joachims(100.0, n=50)
    2.0
    """
    _check("C", C, n)
    return C / n


def joachims_from_C(C: float, n: int) -> float:  # noqa: N802
    """C that multiplies the mean of the slacks for a C of this library.

    Parameters
    ----------
    C : float
        Weight of the sum of the losses; positive.
    n : int
        Number of examples.

    Returns
    -------
    C : float
        ``n * C``.

    Examples
    --------
    >>> from maxmargin.core.conventions import joachims_from_C
    >>> joachims_from_C(2.0, n=50)
    100.0
    """
    _check("C", C, n)
    return C * n


def _check(name: str, weight: float, n: int) -> None:
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"{name} is {weight}, but must be positive and finite.")
    if n < 1:
        raise ValueError(f"n is {n}, but there must be at least one example.")

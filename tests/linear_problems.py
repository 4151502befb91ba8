"""Small random problems, as our classes and for the referee, for the tests of several folders."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import referee
import scipy.sparse as sp

from maxmargin.core.linear import CrammerSinger, ScalarProblem, WestonWatkins

KINDS = ("crammer-singer", "weston-watkins", "hinge", "epsilon-insensitive")


@dataclass
class Case:
    """The same problem twice."""

    problem: Any
    optimum: Any  # () -> referee.Solution


def random_case(
    kind: str,
    seed: int,
    *,
    n: int = 30,
    d: int = 4,
    k: int = 4,
    bias: float = 0.0,
    nonnegative: bool = False,
    with_origin: bool = False,
    sparse: bool = False,
    dtype: Any = np.float64,
) -> Case:
    """A random problem with uneven costs and margins, one row of zeros and one cost of zero."""
    random = np.random.default_rng(seed)
    X = (random.normal(size=(n, d)) * (random.random((n, d)) < 0.7)).astype(dtype)
    X[0] = 0.0
    C = random.uniform(0.1, 2.0, n) * 10.0 ** random.integers(-2, 2)
    C[1] = 0.0
    margins = random.uniform(0.0, 2.0, n)
    outputs = k if kind in KINDS[:2] else 1
    origin = None
    if with_origin:
        origin = np.vstack([random.normal(size=(d, outputs)), np.zeros(outputs)])
    shared: dict[str, Any] = {
        "X": sp.csr_array(X) if sparse else X,
        "C": C,
        "bias": bias,
        "nonnegative": nonnegative,
        "origin": origin,
    }
    D = d + (bias != 0.0)
    options: dict[str, Any] = {
        "bias": bias,
        "nonnegative": nonnegative,
        "mean": None if origin is None else origin[:D].T,
        "C": C,
    }
    dense = X.astype(np.float64)
    if kind in KINDS[:2]:
        labels = random.integers(0, k, n).astype(np.int32)
        loss = 1.0 - np.eye(k)
        if kind == "crammer-singer":
            loss = random.uniform(0.0, 3.0, (k, k)) * (1.0 - np.eye(k))
            problem = CrammerSinger(labels=labels, margins=margins, loss_matrix=loss, **shared)
            return Case(
                problem,
                lambda: referee.crammer_singer(
                    dense, labels, k, margins=margins, loss_matrix=loss, **options
                ),
            )
        problem = WestonWatkins(labels=labels, margins=margins, loss_matrix=loss, **shared)
        return Case(
            problem, lambda: referee.weston_watkins(dense, labels, k, margins=margins, **options)
        )
    if kind == "hinge":
        signs = random.choice([-1.0, 1.0], n)
        return Case(
            ScalarProblem.hinge(signs, margins, **shared),
            lambda: referee.hinge(dense, signs, margins=margins, **options),
        )
    target = random.normal(size=n)
    epsilon = float(random.uniform(0.0, 0.5))
    return Case(
        ScalarProblem.epsilon_insensitive(target, epsilon, **shared),
        lambda: referee.epsilon_insensitive(dense, target, epsilon=epsilon, **options),
    )

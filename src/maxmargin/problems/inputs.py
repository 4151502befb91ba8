"""What any problem is given: an instance of it, and as many outputs as inputs."""

from collections.abc import Sequence
from typing import Any

import scipy.sparse as sp


def check_instance(problem: Any) -> None:
    """Refuse the class of a problem, which has all its methods, too."""
    if isinstance(problem, type):
        name = problem.__name__
        raise ValueError(f"problem is the class {name} itself: give an instance of it, {name}().")


def as_inputs(X: Any) -> Any:
    """Inputs one by one: of a sparse matrix, each row as one of its own."""
    if not sp.issparse(X):
        return X
    rows = sp.csr_array(X)
    return [rows[i : i + 1] for i in range(rows.shape[0])]


def check_pairs(X: Sequence[Any], y: Sequence[Any]) -> None:
    """See to it that there is one output for each input, and at least one."""
    if len(X) != len(y):
        raise ValueError(
            f"X has {len(X)} inputs but y has {len(y)} outputs: give one output for each."
        )
    if not len(X):
        raise ValueError("X is empty: there is nothing to learn from.")

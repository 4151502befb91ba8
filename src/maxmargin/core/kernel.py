"""What a user writes to train with kernels: outputs, their losses, and what the kernel compares.

There are no features and no weights here, only a kernel between outputs. It sees an output through
a *part* of its input (by default the input itself) and a *label* (by default the output itself),
and compares parts with parts, and labels with labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.problem import ListsOutputs, ProblemError
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class Candidates(NamedTuple):
    """All outputs of one input, as pairs of a part and a label.

    Parameters
    ----------
    outputs : sequence of length n
        The outputs themselves.
    parts, labels : sequence of parts and of labels
        Arrays with one row each are fastest. Where a whole batch of inputs has the same
        labels, let it be the same object.
    part_of, label_of : ndarray of shape (n,)
        Part and label of each output.
    """

    outputs: Sequence[Any]
    parts: Any
    labels: Any
    part_of: Order
    label_of: Order

    @classmethod
    def grid(cls, outputs: Sequence[Any], parts: Any, labels: Any) -> "Candidates":
        """Every part with every label; `outputs` are those of the first part first."""
        n_parts, n_labels = n_rows(parts), n_rows(labels)
        part_of = np.repeat(np.arange(n_parts), n_labels)
        return cls(outputs, parts, labels, part_of, np.tile(np.arange(n_labels), n_parts))


class KernelProblem(ABC):
    """What is predicted, for `KernelStructuredSVM`: write `outputs` and `loss`.

    Where outputs concern different parts of an input, write `part`, too; what distinguishes outputs
    of the same part is `label`. A kernel other than a `ProductKernel` is that of parts, and labels
    do not count, unless the problem brings a `label_kernel`.

    See Also
    --------
    maxmargin.KernelStructuredSVM, maxmargin.Problem

    Examples
    --------
    Three levels with similar neighbours, and the absolute loss:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> from maxmargin.core.kernels import ProductKernel, RBFKernel
    >>> from maxmargin.estimators.kernel import KernelStructuredSVM
    >>> from maxmargin.core.kernel import KernelProblem
    >>> class Levels(KernelProblem):
    ...     def outputs(self, x):
    ...         return [0, 1, 2]
    ...     def loss(self, y_true, y):
    ...         return abs(y_true - y)
    >>> X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 2, 1]
    >>> kernel = ProductKernel(RBFKernel(gamma=1.0), RBFKernel(gamma=0.5))
    >>> KernelStructuredSVM(Levels(), C=10.0, kernel=kernel).fit(X, Y).predict(X)
    [0, 1, 2, 1]
    """

    label_kernel: Any = None
    """Kernel of labels, where that of the estimator is for parts only; None: labels are ignored."""

    @abstractmethod
    def outputs(self, x: Any) -> Sequence[Any]:
        """All outputs of an input."""

    @abstractmethod
    def loss(self, y_true: Any, y: Any) -> float:
        """Loss of predicting `y` for `y_true`: zero for the true output, never negative."""

    def part(self, x: Any, y: Any) -> Any:
        """The part of the input that the output concerns."""
        return x

    def label(self, y: Any) -> Any:
        """The output as the kernel of labels compares it."""
        return y

    def candidates(self, x: Any) -> Candidates:
        """All outputs of an input with their parts and labels; override it to make them at once."""
        outputs = list(self.outputs(x))
        parts, part_of = _each_once([self.part(x, y) for y in outputs])
        labels = [self.label(y) for y in outputs]
        return Candidates(outputs, parts, labels, part_of, np.arange(len(outputs)))

    def losses(self, y_true: Any, candidates: Candidates) -> Floats:
        """Loss of each of the candidates; override it to compute them at once."""
        return np.array([self.loss(y_true, y) for y in candidates.outputs], dtype=np.float64)

    def difference(self, y: Any, candidates: Candidates) -> Floats:
        """How much each of the candidates differs from `y`, for diverse cutting planes."""
        return self.losses(y, candidates)


@runtime_checkable
class ListsCandidates(Protocol):
    """Whose outputs are listed with their parts and labels, as those of a `KernelProblem`."""

    def candidates(self, x: Any, /) -> Candidates: ...


class AdaptedProblem(Remade, KernelProblem):
    """Another problem with ``outputs(x)``, seen through other parts."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def parts(self) -> dict[str, Any]:
        return {"problem": self.problem}

    def outputs(self, x: Any) -> Sequence[Any]:
        return list(self.problem.outputs(x))

    def loss(self, y_true: Any, y: Any) -> float:
        return float(self.problem.loss(y_true, y))


@registered("JointFeatures")
class JointFeatures(AdaptedProblem):
    """A `Problem` that can list its outputs: the kernel compares its joint features."""

    def __init__(self, problem: Any) -> None:
        if not isinstance(problem, ListsOutputs):
            raise ProblemError(
                f"{type(problem).__name__} cannot list its outputs, which a kernel needs, because "
                f"there are no weights to search with: write outputs(x)."
            )
        super().__init__(problem)

    def part(self, x: Any, y: Any) -> Any:
        return self.problem.joint_feature(x, y)


@registered("Pairs")
class Pairs(AdaptedProblem):
    """A problem whose kernel is a function of inputs and outputs: parts are ``(x, y)``."""

    def part(self, x: Any, y: Any) -> Any:
        return x, y


def n_rows(rows: Any) -> int:
    """Number of members of a list, or of rows of a matrix of any kind."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _each_once(things: list[Any]) -> tuple[list[Any], Order]:
    """The distinct objects of a list, and which of them each is."""
    numbers: dict[int, int] = {}
    at = np.array([numbers.setdefault(id(thing), len(numbers)) for thing in things], dtype=np.int64)
    once: list[Any] = [None] * len(numbers)
    for thing, k in zip(things, at, strict=True):
        once[k] = thing
    return once, at


class NewOutputs(NamedTuple):
    """Outputs that enter the working set, with their rows.

    Parameters
    ----------
    examples : ndarray of shape (n,)
    outputs : list of length n
    losses : ndarray of shape (n,)
    parts, labels : rows, n of each
    coef : ndarray of shape (n,)
        Their dual coefficients, taken from the true output.
    """

    examples: Order
    outputs: list[Any]
    losses: Floats
    parts: Any
    labels: Any
    coef: Floats

    def take(self, which: Order) -> "NewOutputs":
        """Some of them."""
        return NewOutputs(
            self.examples[which],
            [self.outputs[k] for k in which],
            self.losses[which],
            self.parts[which],
            self.labels[which],
            self.coef[which],
        )

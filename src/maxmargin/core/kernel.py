"""Mercer kernels, which return Gram matrices, and what a user writes to train with them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.problem import ListsOutputs, ProblemError
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade

NAMES = ("linear", "polynomial", "rbf")

_TOLERANCE = 1e-7
"""Relative to the largest value: rounding error that is allowed in a Gram matrix."""

SAMPLE = 64
"""Rows whose Gram matrix is checked before a fit."""

LARGEST_VALUE = 1e100
"""Largest value of a kernel: that of a linear one of the largest features allowed."""


class KernelError(ValueError):
    """A function that is not a kernel: says which one, and what is wrong with it."""


class Kernel(ABC):
    """A symmetric, positive semi-definite function, evaluated on batches of rows."""

    is_linear = False
    """Whether it is the inner product of the rows themselves, so that models have weights."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    @property
    def is_fitted(self) -> bool:
        """Whether it has all of its parameters."""
        return True

    @abstractmethod
    def __call__(self, A: Any, B: Any) -> Floats:
        """Values between all rows of `A` and all rows of `B`, of shape (len(A), len(B))."""

    def rows(self, things: Any) -> Any:
        """Objects of the problem as rows."""
        if sp.issparse(things):
            return sp.csr_array(things)
        if not isinstance(things, np.ndarray) and sp.issparse(things[0]):
            return sp.csr_array(sp.vstack([sp.csr_array(thing.reshape(1, -1)) for thing in things]))
        try:
            array = np.asarray(things, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise KernelError(
                f"{self.name} compares rows of numbers, all of the same length, but "
                f"{things[0]!r:.80} is the first thing to compare: give a kernel of your own."
            ) from error
        return array if array.ndim == 2 else array.reshape(len(array), -1)

    def fitted(self, rows: Any) -> "Kernel":
        """The kernel with parameters estimated from a sample of rows."""
        return self


class _ScaledKernel(Kernel):
    """A kernel whose `gamma`, if None, is estimated from the data."""

    gamma: float | None

    @property
    def is_fitted(self) -> bool:
        return self.gamma is not None

    def fitted(self, rows: Any) -> Any:
        if self.is_fitted:
            return self
        variance = _squares(rows).sum() / np.prod(rows.shape) - rows.mean() ** 2
        gamma = 1.0 / (rows.shape[1] * variance) if variance > 0.0 else 1.0
        return replace(self, gamma=gamma)  # type: ignore[type-var]


@registered("LinearKernel")
@dataclass(frozen=True)
class LinearKernel(Kernel):
    """``<a, b>``.

    Examples
    --------
    >>> import maxmargin as mm
    >>> import numpy as np
    >>> mm.LinearKernel()(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, 4.0]]))
    array([[3., 8.]])
    """

    is_linear = True

    def __call__(self, A: Any, B: Any) -> Floats:
        values = A @ B.T
        return values.toarray() if sp.issparse(values) else np.asarray(values)


@registered("PolynomialKernel")
@dataclass(frozen=True)
class PolynomialKernel(_ScaledKernel):
    """``(gamma <a, b> + coef0) ** degree``.

    Parameters
    ----------
    degree : int, default=3
    gamma : float, default=None
        None is one over the number of features times their variance.
    coef0 : float, default=1.0
        Must not be negative.
    """

    degree: int = 3
    gamma: float | None = None
    coef0: float = 1.0

    def __call__(self, A: Any, B: Any) -> Floats:
        values = LINEAR(A, B)
        values *= self.gamma  # type: ignore[arg-type]
        values += self.coef0
        return np.asarray(values**self.degree)


@registered("RBFKernel")
@dataclass(frozen=True)
class RBFKernel(_ScaledKernel):
    """``exp(-gamma |a - b|^2)``.

    Parameters
    ----------
    gamma : float, default=None
        None is one over the number of features times their variance.

    Examples
    --------
    >>> import maxmargin as mm
    >>> import numpy as np
    >>> mm.RBFKernel(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])).round(3)
    array([[1.   , 0.368]])
    """

    gamma: float | None = None

    def __call__(self, A: Any, B: Any) -> Floats:
        values = LINEAR(A, B)
        values *= -2.0
        values += _squares(A)[:, None]
        values += _squares(B)
        np.maximum(values, 0.0, out=values)
        values *= -self.gamma  # type: ignore[operator]
        return np.exp(values, out=values)


LINEAR = LinearKernel()


def _squares(A: Any) -> Floats:
    if sp.issparse(A):
        return np.asarray(A.multiply(A).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", A, A))


@registered("FunctionKernel")
@dataclass(frozen=True)
class FunctionKernel(Kernel):
    """A function of your own.

    Parameters
    ----------
    function : callable
        ``function(A, B)``, all values between two batches of rows; or, if `pairwise`,
        ``function(a, b)``, a number.
    pairwise : bool, default=False
        Then rows are whatever objects the problem gives.

    Examples
    --------
    >>> import maxmargin as mm
    >>> common = mm.FunctionKernel(lambda a, b: len(set(a) & set(b)), pairwise=True)
    >>> common(common.rows(["maxmargin"]), common.rows(["margin", "max"]))
    array([[6., 3.]])
    """

    function: Callable[..., Any]
    pairwise: bool = False

    @property
    def name(self) -> str:
        return f"the kernel {getattr(self.function, '__name__', type(self.function).__name__)}"

    def __call__(self, A: Any, B: Any) -> Floats:
        shape = A.shape[0], B.shape[0]
        if self.pairwise:
            values: Any = [[self.function(a, b) for b in B] for a in A]
        else:
            values = self.function(A, B)
        try:
            return np.array(values, dtype=np.float64).reshape(shape)
        except (TypeError, ValueError) as error:
            raise KernelError(
                f"{self.name} must return "
                f"{'a number' if self.pairwise else f'an array of shape {shape}'}, but returned "
                f"{values!r:.80}."
            ) from error

    def rows(self, things: Any) -> Any:
        if not self.pairwise:
            return super().rows(things)
        rows = np.empty(len(things), dtype=object)
        for k, thing in enumerate(things):
            rows[k] = thing
        return rows


@registered("JointKernel")
class JointKernel(Remade, FunctionKernel):
    """A function ``k(x, y, x2, y2)`` of two inputs with an output each.

    Parameters
    ----------
    function : callable

    Examples
    --------
    See `maxmargin.KernelStructuredSVM`.
    """

    def __init__(self, function: Callable[[Any, Any, Any, Any], float]) -> None:
        super().__init__(function, pairwise=True)

    def __call__(self, A: Any, B: Any) -> Floats:
        return FunctionKernel(lambda a, b: self.function(*a, *b), pairwise=True)(A, B)


@registered("ConstantKernel")
@dataclass(frozen=True)
class ConstantKernel(Kernel):
    """One for any two rows: ignores parts or labels."""

    def __call__(self, A: Any, B: Any) -> Floats:
        return np.ones((A.shape[0], B.shape[0]))

    def rows(self, things: Any) -> Any:
        return np.zeros((len(things), 1))


@registered("ProductKernel")
@dataclass(frozen=True)
class ProductKernel:
    """``parts(p, p') * labels(l, l')``: one kernel for parts of inputs, one for labels.

    Parameters
    ----------
    parts, labels : Kernel, name or function

    Examples
    --------
    >>> import maxmargin as mm
    >>> mm.ProductKernel("linear", mm.RBFKernel(gamma=2.0))
    ProductKernel(parts=LinearKernel(), labels=RBFKernel(gamma=2.0))
    """

    parts: Any
    labels: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", make_kernel(self.parts))
        object.__setattr__(self, "labels", make_kernel(self.labels))


def make_kernel(
    kernel: Any, gamma: float | None = None, degree: int = 3, coef0: float = 1.0
) -> Any:
    """A kernel from a name with parameters, a function ``k(A, B)`` or a kernel."""
    if isinstance(kernel, Kernel | ProductKernel):
        return kernel
    if callable(kernel):
        return FunctionKernel(kernel)
    if kernel == "linear":
        return LinearKernel()
    if kernel == "rbf":
        return RBFKernel(gamma)
    if kernel == "polynomial":
        return PolynomialKernel(degree, gamma, coef0)
    raise KernelError(
        f"There is no kernel {kernel!r}: use one of {', '.join(map(repr, NAMES))}, a function or a "
        f"kernel object."
    )


def check_gram(gram: Floats, name: str) -> None:
    """Raise KernelError if no kernel has this Gram matrix."""
    check_finite(gram, name)
    scale = max(float(np.abs(gram).max(initial=0.0)), np.finfo(np.float64).tiny)
    off = np.abs(gram - gram.T)
    if off.max(initial=0.0) > _TOLERANCE * scale:
        a, b = np.unravel_index(np.argmax(off), off.shape)
        raise asymmetric(name, gram[a, b], gram[b, a])
    lowest = float(np.linalg.eigvalsh(gram)[0]) if len(gram) else 0.0
    if lowest < -_TOLERANCE * scale * len(gram):
        raise KernelError(
            f"{name} is not positive semi-definite: the Gram matrix of {len(gram)} training rows "
            f"has the eigenvalue {lowest:.3g}."
        )


def asymmetric(name: str, there: float, back: float) -> KernelError:
    """The error for ``k(a, b) != k(b, a)``."""
    return KernelError(
        f"{name} is not symmetric: for two training rows it is {there:.6g} one way and {back:.6g} "
        f"the other."
    )


def check_block(block: Floats, squares: Floats, other_squares: Floats, name: str) -> None:
    """Raise KernelError where ``k(a, b)^2 > k(a, a) k(b, b)``, given the latter as squares."""
    check_finite(block, name)
    if min(squares.min(initial=0.0), other_squares.min(initial=0.0)) < 0.0:
        raise KernelError(
            f"{name} is not positive semi-definite: a row with itself gives a negative value."
        )
    bound = np.sqrt(np.outer(squares, other_squares))
    over = np.abs(block) - bound
    if over.max(initial=0.0) > _TOLERANCE * max(float(bound.max(initial=0.0)), 1e-300):
        a, b = np.unravel_index(np.argmax(over), over.shape)
        raise KernelError(
            f"{name} is not positive semi-definite: two rows give {block[a, b]:.6g}, more than "
            f"{bound[a, b]:.6g}, the root of the product of what each gives with itself."
        )


def check_finite(values: Floats, name: str) -> None:
    """Raise KernelError for NaN, infinity, and values whose squares overflow."""
    if not np.isfinite(values).all():
        raise KernelError(f"{name} gives NaN or infinity for training rows.")
    largest = float(np.abs(values).max(initial=0.0))
    if largest > LARGEST_VALUE:
        raise KernelError(
            f"{name} gives {largest:g} for training rows, but squares of values beyond "
            f"{LARGEST_VALUE:g} overflow: scale the features, to about 1."
        )


def n_rows(rows: Any) -> int:
    """Number of rows of a list or a matrix of any kind."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def stacked(parts: Sequence[Any]) -> Any:
    """Rows below each other."""
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)


def row_keys(rows: Any) -> list[Any]:
    """Hashable keys, equal for equal rows, for as long as there are these rows."""
    if sp.issparse(rows):
        rows.sort_indices()
        starts, columns, values = rows.indptr, rows.indices, rows.data
        return [
            _digest(columns[a:b].tobytes() + values[a:b].tobytes())
            for a, b in pairwise(starts.tolist())
        ]
    if rows.dtype == object:
        return [_object_key(row) for row in rows]
    rows = np.ascontiguousarray(rows) + 0.0  # there is a zero with a sign, too
    return [_digest(row.tobytes()) for row in rows]


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _object_key(thing: Any) -> Any:
    if isinstance(thing, tuple):  # an input with an output, as joint kernels compare them
        return tuple(_object_key(part) for part in thing)
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return thing.shape, thing.dtype.str, _digest(np.ascontiguousarray(thing).tobytes())
    try:
        hash(thing)
    except TypeError:
        return type(thing), id(thing)  # equal to itself only
    return type(thing), thing


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

    >>> import maxmargin as mm
    >>> class Levels(mm.KernelProblem):
    ...     def outputs(self, x):
    ...         return [0, 1, 2]
    ...     def loss(self, y_true, y):
    ...         return abs(y_true - y)
    >>> X, Y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 2, 1]
    >>> kernel = mm.ProductKernel(mm.RBFKernel(gamma=1.0), mm.RBFKernel(gamma=0.5))
    >>> mm.KernelStructuredSVM(Levels(), C=10.0, kernel=kernel).fit(X, Y).predict(X)
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
        parts = [self.part(x, y) for y in outputs]
        once = {id(part): part for part in parts}  # one object is one part
        number = {key: k for k, key in enumerate(once)}
        part_of = np.array([number[id(part)] for part in parts], dtype=np.int64)
        labels = [self.label(y) for y in outputs]
        return Candidates(outputs, list(once.values()), labels, part_of, np.arange(len(outputs)))

    def losses(self, y_true: Any, candidates: Candidates) -> Floats:
        """Loss of each of the candidates; override it to compute them at once."""
        return np.array([self.loss(y_true, y) for y in candidates.outputs], dtype=np.float64)

    def difference(self, y: Any, candidates: Candidates) -> Floats:
        """How much each of the candidates differs from `y`, for diverse cutting planes."""
        return self.losses(y, candidates)


@runtime_checkable
class ListsCandidates(Protocol):
    """A problem with `candidates`, such as a `KernelProblem`."""

    def candidates(self, x: Any, /) -> Candidates: ...


class AdaptedProblem(Remade, KernelProblem):
    """Another problem with ``outputs(x)``, with other parts."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem

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


class NewOutputs(NamedTuple):
    """Outputs that enter the working set, with `coef` taken from that of their true outputs."""

    examples: Order
    outputs: list[Any]
    losses: Floats
    parts: Any
    labels: Any
    coef: Floats

    def take(self, which: Order) -> "NewOutputs":
        outputs = [self.outputs[k] for k in which]
        arrays = {name: getattr(self, name)[which] for name in self._fields if name != "outputs"}
        return NewOutputs(outputs=outputs, **arrays)

"""Mercer kernels: inner products in a feature space that is never written out.

A kernel takes rows and returns the Gram matrix between them. Rows are a 2-D array, a CSR matrix,
or, for functions of a user, a 1-D array of objects. A `ProductKernel` compares a part of the input
and a label.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.registry import registered
from maxmargin.core.state import Remade

Floats = NDArray[np.float64]

NAMES = ("linear", "polynomial", "rbf")

_TOLERANCE = 1e-7
"""Relative to the largest value: rounding error that is allowed in a Gram matrix."""

SAMPLE = 64
"""Rows whose Gram matrix is checked before a fit."""


class KernelError(ValueError):
    """A function that is not a kernel: says which one, and what is wrong with it."""


class Kernel(ABC):
    """A symmetric, positive semi-definite function, evaluated on batches of rows."""

    is_linear = False
    """Whether it is the inner product of the rows themselves, so that models have weights."""

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return type(self).__name__

    @abstractmethod
    def __call__(self, A: Any, B: Any) -> Floats:
        """Values between all rows of `A` and all rows of `B`, of shape (len(A), len(B))."""

    def rows(self, things: Any) -> Any:
        """Objects as the problem gives them as rows; arrays and CSR matrices are rows."""
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
        """The kernel with parameters that it takes from the data, a sample of rows."""
        return self


@registered("LinearKernel")
@dataclass(frozen=True)
class LinearKernel(Kernel):
    """``<a, b>``.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.core.kernels import LinearKernel
    >>> LinearKernel()(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, 4.0]]))
    array([[3., 8.]])
    """

    is_linear = True

    def __call__(self, A: Any, B: Any) -> Floats:
        return _products(A, B)


@registered("PolynomialKernel")
@dataclass(frozen=True)
class PolynomialKernel(Kernel):
    """``(gamma <a, b> + coef0) ** degree``.

    Parameters
    ----------
    degree : int, default=3
    gamma : float, default=None
        None is one over the number of features times their variance.
    coef0 : float, default=1.0
        If it is negative, this is no kernel.
    """

    degree: int = 3
    gamma: float | None = None
    coef0: float = 1.0

    def __call__(self, A: Any, B: Any) -> Floats:
        values = _products(A, B)
        values *= self.gamma  # type: ignore[arg-type]
        values += self.coef0
        return np.asarray(values**self.degree)

    def fitted(self, rows: Any) -> "PolynomialKernel":
        return self if self.gamma is not None else replace(self, gamma=_scale(rows))


@registered("RBFKernel")
@dataclass(frozen=True)
class RBFKernel(Kernel):
    """``exp(-gamma |a - b|^2)``.

    Parameters
    ----------
    gamma : float, default=None
        None is one over the number of features times their variance.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.core.kernels import RBFKernel
    >>> RBFKernel(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])).round(3)
    array([[1.   , 0.368]])
    """

    gamma: float | None = None

    def __call__(self, A: Any, B: Any) -> Floats:
        values = _products(A, B)
        values *= -2.0
        values += _squares(A)[:, None]
        values += _squares(B)
        np.maximum(values, 0.0, out=values)
        values *= -self.gamma  # type: ignore[operator]
        return np.exp(values, out=values)

    def fitted(self, rows: Any) -> "RBFKernel":
        return self if self.gamma is not None else replace(self, gamma=_scale(rows))


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
    >>> from maxmargin.core.kernels import FunctionKernel
    >>> common = FunctionKernel(lambda a, b: len(set(a) & set(b)), pairwise=True)
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
            values = np.asarray(values, dtype=np.float64).reshape(shape)
        except (TypeError, ValueError) as error:
            raise KernelError(
                f"{self.name} must return "
                f"{'a number' if self.pairwise else f'an array of shape {shape}'}, but returned "
                f"{values!r:.80}."
            ) from error
        return np.array(values)

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

    def parts(self) -> dict[str, Any]:
        return {"function": self.function}

    def __call__(self, A: Any, B: Any) -> Floats:
        paired = FunctionKernel(lambda a, b: self.function(*a, *b), pairwise=True)
        return paired(A, B)


@registered("ConstantKernel")
@dataclass(frozen=True)
class ConstantKernel(Kernel):
    """One for any two rows: labels, or parts, that do not count."""

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
    >>> from maxmargin.core.kernels import ProductKernel, RBFKernel
    >>> ProductKernel("linear", RBFKernel(gamma=2.0))
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
    """A kernel from its name and parameters, a function ``k(A, B)``, or as it is."""
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
    """Raise KernelError for a Gram matrix of one set of rows that no kernel can have."""
    check_finite(gram, name)
    scale = max(float(np.abs(gram).max(initial=0.0)), np.finfo(np.float64).tiny)
    off = np.abs(gram - gram.T)
    if off.max(initial=0.0) > _TOLERANCE * scale:
        a, b = np.unravel_index(np.argmax(off), off.shape)
        raise KernelError(
            f"{name} is not symmetric: for two training rows it is {gram[a, b]:.6g} one way and "
            f"{gram[b, a]:.6g} the other."
        )
    lowest = float(np.linalg.eigvalsh(gram)[0]) if len(gram) else 0.0
    if lowest < -_TOLERANCE * scale * len(gram):
        raise KernelError(
            f"{name} is not positive semi-definite: the Gram matrix of {len(gram)} training rows "
            f"has the eigenvalue {lowest:.3g}."
        )


def check_block(block: Floats, squares: Floats, other_squares: Floats, name: str) -> None:
    """Raise KernelError for values between two sets of rows that no kernel can have.

    Parameters
    ----------
    block : ndarray of shape (n, m)
    squares, other_squares : ndarray of shape (n,) and (m,)
        Value of each row with itself.
    """
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


LARGEST_VALUE = 1e100
"""Largest value of a kernel: that of a linear one of the largest features allowed."""


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


def _products(A: Any, B: Any) -> Floats:
    values = A @ B.T
    return values.toarray() if sp.issparse(values) else np.asarray(values)


def _squares(A: Any) -> Floats:
    if sp.issparse(A):
        return np.asarray(A.multiply(A).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", A, A))


def _scale(rows: Any) -> float:
    """The gamma that makes typical squared distances about two."""
    variance = _squares(rows).sum() / np.prod(rows.shape) - rows.mean() ** 2
    return 1.0 / (rows.shape[1] * variance) if variance > 0.0 else 1.0


def stacked(parts: list[Any]) -> Any:
    """Rows below each other."""
    if sp.issparse(parts[0]):
        return sp.csr_array(sp.vstack(parts))
    return np.concatenate(parts)


def row_keys(rows: Any) -> list[Any]:
    """Hashable keys, equal for equal rows."""
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


class _Same:
    """An object that is equal to itself only, kept alive so that its id stays its own."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing


def _object_key(thing: Any) -> Any:
    if isinstance(thing, tuple):  # an input with an output, as joint kernels compare them
        return tuple(_object_key(part) for part in thing)
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return thing.shape, thing.dtype.str, _digest(np.ascontiguousarray(thing).tobytes())
    try:
        hash(thing)
    except TypeError:
        return _Same(thing)
    return type(thing), thing

"""The contract between a problem and the solvers, and its plain-Python side.

A user writes a `Problem`: how inputs and outputs become features, what a wrong output costs, and
two searches. Bound to training data it is a `TrainingSet`, which is all that solvers see: blocks,
one for each example, and the planes that a search finds for them. Problems with compiled
searches bring a training set of their own.

What any problem is given: an instance of it, and as many outputs as inputs.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.threads import Threads
from maxmargin.core.cuts import Planes
from maxmargin.core.magnitudes import LARGEST, are_moderate
from maxmargin.core.oracle_check import ROUNDING, OracleWatch, Rival
from maxmargin.dual.working_set import DualPoint

if TYPE_CHECKING:
    from maxmargin.dual.marginal import DistributionPoint

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_ROUNDING, _CANCELLED = 1e-7, 1e-13
"""Relative to the sizes of the terms, how far below zero a search may seem to fall."""

_SparseRow = tuple[NDArray[np.uint32], Floats]

_CHUNK = 1024
"""Blocks whose planes are held at the same time when all of them are valued."""


class Problem(ABC):
    """What is predicted: write these four methods, and any solver can train it.

    Inputs ``x`` and outputs ``y`` are whatever objects you like; weights ``w`` come as a read-only
    array of shape (n_features,). Further methods that a problem may have:

    - ``separate_slack(x, truth, w)``, the output with the largest
      ``loss * (1 + <w, feature(y) - feature(truth)>)``, for ``rescaling="slack"``; without it, that
      is searched by several calls of `separate`, and is not exact;
    - ``outputs(x)``, the list of all outputs, where there are few: unlocks the solvers that need
      expectations over them (`PartialLinearization`, `ExponentiatedGradient`);
    - ``top(x, w, k)``, the k best outputs, best first;
    - ``planes(xs, truths, w)``, the searches of `separate` for many examples at once, as
      `maxmargin.Planes`; a search that may miss the highest output says by how much at most in
      their `excess`, and the problem says ``relaxed = True``;
    - ``bind(X, Y, cost)``, a `TrainingSet` of its own, with compiled searches.

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
    ...     def loss(self, truth, y):
    ...         return float(truth != y)
    ...     def decode(self, x, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x))
    ...     def separate(self, x, truth, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x + (np.arange(3) != truth)))
    >>> X, Y = np.eye(3), [0, 1, 2]
    >>> mm.StructuredSVM(ThreeClasses(), C=10.0).fit(X, Y).predict(X)
    [0, 1, 2]
    """

    @abstractmethod
    def joint_feature(self, x: Any, y: Any) -> Any:
        """Features of an input with an output.

        Returns
        -------
        features : array-like of shape (n_features,) or sparse row
        """

    @abstractmethod
    def loss(self, truth: Any, y: Any) -> float:
        """What answering `y` costs where `truth` is right: zero for the truth, never negative."""

    @abstractmethod
    def decode(self, x: Any, w: Floats) -> Any:
        """The output with the highest score ``<w, joint_feature(x, y)>``."""

    @abstractmethod
    def separate(self, x: Any, truth: Any, w: Floats) -> Any:
        """The output with the highest score plus loss: ``<w, joint_feature(x, y)> + loss``."""


class ProblemError(ValueError):
    """A problem's method did not do what its contract says; names the method and the example.

    Raised in the middle of a fit, it has the `Result` up to there in ``result``.
    """

    result: Any = None


class Hinges(NamedTuple):
    """What a sum of hinges is at least and at most; the same where searches are exact."""

    least: float
    most: float

    @property
    def middle(self) -> float:
        """The best guess."""
        return 0.5 * (self.least + self.most)

    def __add__(self, other: "Hinges") -> "Hinges":  # type: ignore[override]
        return Hinges(self.least + other.least, self.most + other.most)


class TrainingSet(ABC):
    """Examples as solvers see them.

    Parameters
    ----------
    n_features : int
    cost : ndarray of shape (n_blocks,)
        C of each block.
    """

    n_features: int
    cost: Floats
    relaxed: bool = False
    """Whether searches may miss the highest output, and say by how much at most."""
    watch: OracleWatch | None = None
    """Looks at the answers of an oracle that a user wrote; None where nobody need."""

    def watch_from(self, first: int, watch: OracleWatch | None) -> None:
        """Say how many examples come before, and who looks at them already, if anybody does.

        Examples that come bit by bit are those of one fit, which is warned once.
        """
        if self.watch is not None:
            self.watch = watch or self.watch

    @property
    def n_blocks(self) -> int:
        """Number of examples."""
        return len(self.cost)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of examples and of features."""
        return self.n_blocks, self.n_features

    @abstractmethod
    def planes(self, weights: Floats, blocks: Order, threads: Threads) -> Planes:
        """The most violating plane at `weights` of each of the `blocks`."""

    @abstractmethod
    def planes_of(self, blocks: Order, outputs: Sequence[Any]) -> Planes:
        """Planes of given outputs, made from the data anew."""

    @property
    def search_name(self) -> str:
        """What to call the search when it fails."""
        return f"the search of {type(self).__name__}"

    @property
    def content(self) -> Any:
        """All that tells these examples, and how they are searched, from others."""
        return vars(self)

    @property
    def search_state(self) -> Any:
        """What searches remember from one to the next, where that can change what they find."""
        return None

    @search_state.setter  # noqa: B027
    def search_state(self, state: Any) -> None:
        """Remember that again."""

    @property
    @abstractmethod
    def search_work(self) -> float | None:
        """Multiplications of one search, on average; None where nobody can count."""

    def primal(self, weights: Floats, threads: Threads | None = None) -> float:
        """Objective at `weights`, by a search for each block."""
        return 0.5 * float(weights @ weights) + self.all_hinges(weights, threads).most

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> "Hinges":
        """Bounds of the sum of cost times hinge over all blocks, by a search for each."""
        threads = threads or Threads(1)
        parts = (
            self.hinges(self.planes(weights, some, threads), weights, some)
            for some in self.chunks()
        )
        return sum(parts, Hinges(0.0, 0.0))

    def hinges(self, planes: Planes, weights: Floats, blocks: Order) -> "Hinges":
        """Bounds of the sum of cost times hinge, by planes found at these weights."""
        cost, slopes = self.cost[blocks], planes.slopes(weights)
        least = float(cost @ np.maximum(slopes, 0.0))
        if planes.excess is None:
            return Hinges(least, least)
        return Hinges(least, float(cost @ np.maximum(slopes + planes.excess, 0.0)))

    def dual(self, point: "DualPoint | DistributionPoint") -> float:
        """Dual value of a feasible point, with its planes made anew.

        Raises
        ------
        ValueError
            If the point is not feasible.
        """
        if not isinstance(point, DualPoint):
            return point.dual(self)
        coef = self.feasible(point).coef
        if not np.allclose(coef, point.coef, rtol=1e-9, atol=0.0):
            raise ValueError("The dual point is not feasible.")
        weights = np.zeros(self.n_features)
        linear = 0.0
        for start in range(0, len(coef), _CHUNK):
            some = slice(start, start + _CHUNK)
            planes = self.planes_of(point.blocks[some], point.outputs[some])
            planes.add_to(weights, coef[some])
            linear += float(coef[some] @ planes.losses)
        return linear - 0.5 * float(weights @ weights)

    def feasible(self, point: DualPoint) -> DualPoint:
        """The point, cut back in blocks where it takes more than their C."""
        if not isinstance(point, DualPoint):
            raise ValueError("The point is no list of outputs with coefficients.")
        coef = np.maximum(point.coef, 0.0)
        used = np.bincount(point.blocks, weights=coef, minlength=self.n_blocks)
        over = used > self.cost
        scale = np.ones(self.n_blocks)
        scale[over] = self.cost[over] / used[over]
        return point._replace(coef=coef * scale[point.blocks])

    def chunks(self) -> list[Order]:
        """All blocks, so many at a time as planes may be held at the same time."""
        ends = [*range(0, self.n_blocks, _CHUNK), self.n_blocks]
        return [np.arange(start, stop, dtype=np.int64) for start, stop in pairwise(ends)]


def settings_of(problem: Any) -> dict[str, Any]:
    """Numbers and arrays that a problem was made with.

    What else it keeps may change while it is in use.
    """
    return {
        name: value
        for name, value in getattr(problem, "__dict__", {}).items()
        if np.isscalar(value) or isinstance(value, np.ndarray)
    }


def called(problem: Any, method: str, i: int, *arguments: Any) -> Any:
    """What a method of a problem returns for example `i`.

    Raises
    ------
    ProblemError
        If the method raises.
    """
    try:
        return getattr(problem, method)(*arguments)
    except Exception as error:
        name = type(problem).__name__
        raise ProblemError(
            f"{method} of {name} raised {type(error).__name__} for example {i}: {error}"
        ) from error


def renumbered(sentence: str, numbers: Sequence[int] | Order) -> str:
    """A sentence about an example, by its number among all instead of that among some."""
    return re.sub(r"(?<=\bexample )\d+", lambda at: str(numbers[int(at[0])]), sentence)


class PythonTrainingSet(TrainingSet):
    """Any `Problem` on a list of inputs and outputs, one call at a time.

    Parameters
    ----------
    problem : Problem
    X, Y : sequence
        Inputs and their true outputs.
    cost : ndarray of shape (n_blocks,)
    rescaling : {"margin", "slack"}
        Slack rescaling multiplies the margin's violation by the loss.
    """

    def __init__(
        self,
        problem: Any,
        X: Sequence[Any],
        Y: Sequence[Any],
        cost: Floats,
        rescaling: str = "margin",
    ) -> None:
        self.problem, self.X, self.Y, self.cost = problem, X, Y, cost
        self.relaxed = bool(getattr(problem, "relaxed", False))
        self.by_slack = rescaling == "slack"
        self.method = "separate_slack" if self.by_slack else "separate"
        self._truths: dict[int, _SparseRow] = {}
        self.known: dict[int, dict[Any, Rival]] = {}
        self.first = 0
        if hasattr(problem, "decode") and not self.relaxed:
            self.watch = OracleWatch()
        self.n_features = 0  # not known before the first example's features
        self._truths[0] = self._feature(0, Y[0])
        if self._loss(0, Y[0]) != 0.0:
            raise ProblemError(
                f"loss of {self._name} must be zero for the true output, but for example 0 it is "
                f"{self._loss(0, Y[0]):g}."
            )

    @property
    def search_name(self) -> str:
        return f"{'planes' if self._in_batches else self.method} of {self._name}"

    def watch_from(self, first: int, watch: OracleWatch | None) -> None:
        super().watch_from(first, watch)
        self.first = first

    @property
    def content(self) -> Any:
        settings = settings_of(self.problem)
        return self._name, settings, self.X, self.Y, self.cost, self.by_slack, self.n_features

    @property
    def search_work(self) -> None:
        return None

    def planes(self, weights: Floats, blocks: Order, threads: Threads) -> Planes:
        fixed = weights.view()
        fixed.flags.writeable = False
        if self._in_batches:
            return self._batched(self.problem.planes, fixed, blocks)
        outputs = [self._searched(int(i), fixed) for i in blocks]
        planes = self._checked(self.planes_of(blocks, outputs), fixed, blocks, self.method)
        return self._watched(planes, fixed, blocks)

    def planes_of(self, blocks: Order, outputs: Sequence[Any]) -> Planes:
        columns, values, losses = [], [], []
        for i, y in zip(blocks.tolist(), outputs, strict=True):
            row_columns, row_values = self._difference(i, y)
            loss = self._loss(i, y)
            columns.append(row_columns)
            values.append(loss * row_values if self.by_slack else row_values)
            losses.append(loss)
        starts = np.zeros(len(columns) + 1, dtype=np.int64)
        np.cumsum([len(part) for part in columns], out=starts[1:])
        return Planes(
            starts,
            np.concatenate(columns) if columns else np.zeros(0, dtype=np.uint32),
            np.concatenate(values) if values else np.zeros(0),
            np.array(losses, dtype=np.float64),
            list(outputs),
        )

    def outputs(self, i: int) -> list[Any]:
        """All outputs of example `i`, where the problem can list them."""
        return list(self._call("outputs", i, self.X[i]))

    @property
    def _name(self) -> str:
        return type(self.problem).__name__

    @property
    def _in_batches(self) -> bool:
        """Whether the problem itself searches for many examples at once."""
        return getattr(self.problem, "planes", None) is not None and not self.by_slack

    def _searched(self, i: int, weights: Floats) -> Any:
        try:
            return self._call(self.method, i, self.X[i], self.Y[i], weights)
        except ProblemError:
            # Features of varying length make searches fail that are right: blame the features.
            for other in range(min(self.n_blocks, _CHUNK)):
                self._feature(other, self.Y[other])
            raise

    def _call(self, method: str, i: int, *arguments: Any) -> Any:
        return called(self.problem, method, i, *arguments)

    def _loss(self, i: int, y: Any) -> float:
        """Loss of an output for example `i`, checked."""
        given = self._call("loss", i, self.Y[i], y)
        try:
            loss = math.nan if isinstance(given, str) else float(given)
        except (TypeError, ValueError):
            loss = math.nan
        if not (math.isfinite(loss) and loss >= 0.0):
            raise ProblemError(
                f"loss of {self._name} must be a finite number that is not negative, but for "
                f"example {i} and the output {y!r:.80} it is {given!r:.80}."
            )
        if loss > LARGEST:
            raise ProblemError(
                f"loss of {self._name} is {loss:g} for example {i} and the output {y!r:.80}, but "
                f"beyond {LARGEST:g} sums overflow: scale it, to about 1."
            )
        return loss

    def _difference(self, i: int, y: Any) -> _SparseRow:
        """Joint features of example `i` with its true output less those with `y`."""
        columns, values = self._truth(i)
        other_columns, other_values = self._feature(i, y)
        touched, at = np.unique(np.r_[columns, other_columns], return_inverse=True)
        difference = np.bincount(at, weights=np.r_[values, -other_values])
        kept = np.flatnonzero(difference)
        return touched[kept], np.asarray(difference[kept], dtype=np.float64)

    def _truth(self, i: int) -> _SparseRow:
        """Columns and values of the joint features of example `i` with its true output."""
        if i not in self._truths:
            self._truths[i] = self._feature(i, self.Y[i])
        return self._truths[i]

    def _feature(self, i: int, y: Any) -> _SparseRow:
        """Columns and values of the joint features of example `i` with an output, checked."""
        given = self._call("joint_feature", i, self.X[i], y)
        try:
            columns, values, width = as_row(given)
        except (TypeError, ValueError) as error:
            raise ProblemError(
                f"joint_feature of {self._name} must return numbers, but did not for example {i} "
                f"and the output {y!r:.80}."
            ) from error
        self.n_features = self.n_features or width
        if width != self.n_features:
            raise ProblemError(
                f"joint_feature of {self._name} returned {width} features for example {i} and the "
                f"output {y!r:.80}, but {self.n_features} for the first example."
            )
        if not np.isfinite(values).all():
            raise ProblemError(
                f"joint_feature of {self._name} returned NaN or infinity for example {i} and the "
                f"output {y!r:.80}."
            )
        if not are_moderate(values):
            raise ProblemError(
                f"joint_feature of {self._name} returned {values[np.abs(values).argmax()]:g} for "
                f"example {i} and the output {y!r:.80}, but squares of numbers beyond {LARGEST:g} "
                f"overflow: scale the features, to about 1."
            )
        return columns, values

    def _batched(self, batched: Callable[..., Planes], weights: Floats, blocks: Order) -> Planes:
        xs, truths = [self.X[i] for i in blocks], [self.Y[i] for i in blocks]
        try:
            planes = _as_planes(*batched(xs, truths, weights))
        except Exception as error:
            raise ProblemError(
                f"planes of {self._name} raised {type(error).__name__} for the examples "
                f"{blocks[0]} to {blocks[-1]}: {error}"
            ) from error
        n = len(blocks)
        if len(planes.losses) != n or len(planes.starts) != n + 1 or len(planes.outputs) != n:
            raise ProblemError(
                f"planes of {self._name} must return one plane for each of the {n} examples it "
                f"was given, but returned {len(planes.losses)}."
            )
        self._check_entries(planes)
        planes = self._checked(planes, weights, blocks, "planes")
        return self._watched(planes, weights, blocks)

    def _check_entries(self, planes: Planes) -> None:
        """Kernels trust what they are given, so a user's planes are looked at first."""
        n_entries = len(planes.columns)
        grows = (np.diff(planes.starts) >= 0).all() and planes.starts[0] == 0
        if not grows or planes.starts[-1] != n_entries or len(planes.values) != n_entries:
            raise ProblemError(
                f"planes of {self._name} must return starts that rise from 0 to the number of "
                f"columns and values."
            )
        if n_entries and planes.columns.max() >= self.n_features:
            raise ProblemError(
                f"planes of {self._name} returned the column {planes.columns.max()}, but there are "
                f"{self.n_features} features."
            )
        if not (np.isfinite(planes.values).all() and np.isfinite(planes.losses).all()):
            raise ProblemError(f"planes of {self._name} returned NaN or infinity.")
        if not (are_moderate(planes.values) and are_moderate(planes.losses)):
            raise ProblemError(
                f"planes of {self._name} returned numbers beyond {LARGEST:g}, whose squares "
                f"overflow: scale features and losses, to about 1."
            )
        excess = planes.excess
        if excess is not None and not (len(excess) == len(planes.losses) and (excess >= 0).all()):
            raise ProblemError(
                f"planes of {self._name} must return an excess for each example, none negative."
            )
        if excess is not None and not self.relaxed:
            raise ProblemError(
                f"planes of {self._name} returned an excess, so {self._name} must say relaxed = "
                f"True."
            )

    def _checked(self, planes: Planes, weights: Floats, blocks: Order, method: str) -> Planes:
        """A search that ends below the truth, whose plane is zero, is no maximum.

        Where searches may miss the highest output, the truth is taken instead.
        """
        slopes = planes.slopes(weights)
        scale = 1.0 + planes.losses + np.abs(planes.losses - slopes)
        if not (slopes < -_ROUNDING * scale).any():
            return planes
        # Where large numbers cancel, what is left of them is rounding.
        sizes = np.abs(planes.values * weights[planes.columns])
        of_plane = np.repeat(np.arange(len(slopes)), np.diff(planes.starts))
        cancelled = np.bincount(of_plane, weights=sizes, minlength=len(slopes))
        bad = np.flatnonzero(slopes < -np.maximum(_ROUNDING * scale, _CANCELLED * cancelled))
        if not len(bad):
            return planes
        if self.relaxed:
            return self._with_truths(planes, slopes, blocks, bad)
        k = bad[0]
        raise ProblemError(
            f"{method} of {self._name} returned {planes.outputs[k]!r:.80} for example "
            f"{blocks[k]}, whose score plus loss is {-slopes[k]:.3g} below that of the truth: "
            f"it must return the highest."
        )

    def _with_truths(self, planes: Planes, slopes: Floats, blocks: Order, at: Order) -> Planes:
        """The planes, but some of them those of the truth; what may be missed is less by that."""
        counts = np.diff(planes.starts)
        kept = np.ones(len(counts), dtype=bool)
        kept[at] = False
        entries = np.repeat(kept, counts)
        starts = np.zeros_like(planes.starts)
        np.cumsum(counts * kept, out=starts[1:])
        outputs = list(planes.outputs)
        for k in at.tolist():
            outputs[k] = self.Y[int(blocks[k])]
        excess = planes.excess
        if excess is not None:
            excess = np.where(kept, excess, np.maximum(slopes + excess, 0.0))
        columns, values = planes.columns[entries], planes.values[entries]
        return Planes(starts, columns, values, planes.losses * kept, outputs, excess)

    def _watched(self, planes: Planes, weights: Floats, blocks: Order) -> Planes:
        if self.watch is not None:
            self.watch.see(self, planes, weights, blocks)
        return planes

    # What a watch asks

    @property
    def decode_name(self) -> str:
        """What to call inference when it fails."""
        return f"decode of {self._name}"

    def rival(self, i: int, y: Any) -> Rival:
        """An output of example `i`."""
        return Rival(*self._difference(i, y), self._loss(i, y), y)

    def decoded(self, i: int, weights: Floats) -> Any:
        """What inference finds for example `i`."""
        return self._call("decode", i, self.X[i], weights)

    def competes(self, rival: Rival) -> bool:
        """Whether loss-augmented inference has to beat it."""
        return True

    def truth_terms(self, i: int, weights: Floats) -> float:
        """How large the terms are that the score of the true output is made of."""
        columns, values = self._truth(i)
        return float(np.abs(values) @ np.abs(weights[columns]))

    def check_agreement(self, i: int, found: Rival) -> None:
        """See to it that the loss is zero for the truth, and that a plane is that of its output."""
        own = self._loss(i, self.Y[i])
        if own != 0.0:
            raise ProblemError(
                f"loss of {self._name} must be zero for the true output, but for example "
                f"{self.first + i} it is {own:g}."
            )
        if not self._in_batches:
            return  # then the plane was made of the output
        again = self.rival(i, found.output)
        dense = np.zeros(self.n_features)
        np.add.at(dense, found.columns, found.values)
        np.subtract.at(dense, again.columns, again.values)
        apart = float(np.abs(dense).max(initial=0.0))
        if apart > ROUNDING * (1.0 + float(np.abs(again.values).max(initial=0.0))) or (
            abs(found.loss - again.loss) > ROUNDING * (1.0 + again.loss)
        ):
            raise ProblemError(
                f"planes of {self._name} does not agree with joint_feature and loss: for example "
                f"{self.first + i} and the output {found.output!r:.80} its loss is {found.loss:g}, "
                f"not {again.loss:g}, and its features are {apart:.3g} off."
            )


def as_row(features: Any) -> tuple[NDArray[np.uint32], Floats, int]:
    """Columns and values of joint features as a user gives them, and how many there are.

    Raises
    ------
    TypeError, ValueError
        If they are no numbers.
    """
    if sp.issparse(features):
        row = sp.coo_array(features)
        row.sum_duplicates()
        return row.coords[-1].astype(np.uint32), row.data.astype(np.float64), row.shape[-1]
    dense = np.asarray(features, dtype=np.float64).ravel()
    if isinstance(features, str) or not np.ndim(features):
        raise TypeError("joint features must be an array or a sparse row")
    columns = np.flatnonzero(dense)
    return columns.astype(np.uint32), dense[columns], len(dense)


def _as_planes(
    starts: Any, columns: Any, values: Any, losses: Any, outputs: Any, excess: Any = None
) -> Planes:
    """Planes as kernels take them, from whatever a user returned."""
    return Planes(
        np.ascontiguousarray(starts, dtype=np.int64),
        np.ascontiguousarray(columns, dtype=np.uint32),
        np.ascontiguousarray(values, dtype=np.float64),
        np.ascontiguousarray(losses, dtype=np.float64),
        list(outputs),
        None if excess is None else np.ascontiguousarray(excess, dtype=np.float64),
    )


def bind(
    problem: Any, X: Sequence[Any], Y: Sequence[Any], cost: Floats, rescaling: str
) -> TrainingSet:
    """The training set of a problem: its own, or the plain-Python one."""
    from maxmargin.core.slack_rescaling import SlackTrainingSet  # which builds on this module

    if rescaling == "slack" and not hasattr(problem, "separate_slack"):
        return SlackTrainingSet(bind(problem, X, Y, cost, "margin"))
    if hasattr(problem, "bind"):
        bound: TrainingSet = problem.bind(X, Y, cost, rescaling)
        return bound
    return PythonTrainingSet(problem, X, Y, cost, rescaling)


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

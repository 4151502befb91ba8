"""The contract between a problem and the solvers, and its plain-Python side.

A user writes a `Problem`: how inputs and outputs become features, what a wrong output costs, and
two searches. Bound to training data it is a `Oracle`, which is all that solvers see: blocks,
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
from maxmargin.core.cuts import Cuts
from maxmargin.core.magnitudes import LARGEST, are_moderate
from maxmargin.core.oracle_check import ROUNDING, Competitor, OracleWatch
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

    - ``slack_rescaled_inference(x, y_true, w)``, the output with the largest
      ``loss * (1 + <w, feature(y) - feature(y_true)>)``, for ``rescaling="slack"``; without it,
      that is searched by several calls of `loss_augmented_inference`, and is not exact;
    - ``outputs(x)``, the list of all outputs, where there are few: unlocks the solvers that need
      expectations over them (`PartialLinearization`, `ExponentiatedGradient`);
    - ``k_best(x, w, k)``, the k best outputs, best first;
    - ``cuts(xs, y_true, w)``, the searches of `loss_augmented_inference` for many examples at once,
      as `maxmargin.Cuts`; a search that may miss the highest output says by how much at most in
      their `suboptimality`, and the problem says ``relaxed = True``;
    - ``make_oracle(X, Y, cost)``, a `Oracle` of its own, with compiled searches.

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

    @abstractmethod
    def joint_feature(self, x: Any, y: Any) -> Any:
        """Features of an input with an output.

        Returns
        -------
        features : array-like of shape (n_features,) or sparse row
        """

    @abstractmethod
    def loss(self, y_true: Any, y: Any) -> float:
        """What answering `y` costs where `y_true` is right: zero for the truth, never negative."""

    @abstractmethod
    def inference(self, x: Any, w: Floats) -> Any:
        """The output with the highest score ``<w, joint_feature(x, y)>``."""

    @abstractmethod
    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
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


class Oracle(ABC):
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
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.cost)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of examples and of features."""
        return self.n_examples, self.n_features

    @abstractmethod
    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        """The most violating plane at `weights` of each of the `examples`."""

    @abstractmethod
    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        """Planes of given outputs, made from the data anew."""

    @property
    def oracle_name(self) -> str:
        """What to call the search when it fails."""
        return f"the oracle of {type(self).__name__}"

    @property
    def content(self) -> Any:
        """All that tells these examples, and how they are searched, from others."""
        return vars(self)

    @property
    def oracle_state(self) -> Any:
        """What searches remember from one to the next, where that can change what they find."""
        return None

    @oracle_state.setter  # noqa: B027
    def oracle_state(self, state: Any) -> None:
        """Remember that again."""

    @property
    @abstractmethod
    def oracle_work(self) -> float | None:
        """Multiplications of one search, on average; None where nobody can count."""

    def primal(self, weights: Floats, threads: Threads | None = None) -> float:
        """Objective at `weights`, by a search for each block."""
        return 0.5 * float(weights @ weights) + self.all_hinges(weights, threads).most

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> "Hinges":
        """Bounds of the sum of cost times hinge over all blocks, by a search for each."""
        threads = threads or Threads(1)
        parts = (
            self.hinges(self.separate(weights, some, threads), weights, some)
            for some in self.chunks()
        )
        return sum(parts, Hinges(0.0, 0.0))

    def hinges(self, cuts: Cuts, weights: Floats, examples: Order) -> "Hinges":
        """Bounds of the sum of cost times hinge, by planes found at these weights."""
        cost, slopes = self.cost[examples], cuts.slopes(weights)
        least = float(cost @ np.maximum(slopes, 0.0))
        if cuts.suboptimality is None:
            return Hinges(least, least)
        return Hinges(least, float(cost @ np.maximum(slopes + cuts.suboptimality, 0.0)))

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
            cuts = self.cuts_of(point.examples[some], point.outputs[some])
            cuts.add_to(weights, coef[some])
            linear += float(coef[some] @ cuts.losses)
        return linear - 0.5 * float(weights @ weights)

    def feasible(self, point: DualPoint) -> DualPoint:
        """The point, cut back in blocks where it takes more than their C."""
        if not isinstance(point, DualPoint):
            raise ValueError("The point is no list of outputs with coefficients.")
        coef = np.maximum(point.coef, 0.0)
        used = np.bincount(point.examples, weights=coef, minlength=self.n_examples)
        over = used > self.cost
        scale = np.ones(self.n_examples)
        scale[over] = self.cost[over] / used[over]
        return point._replace(coef=coef * scale[point.examples])

    def chunks(self) -> list[Order]:
        """All blocks, so many at a time as planes may be held at the same time."""
        ends = [*range(0, self.n_examples, _CHUNK), self.n_examples]
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


class PythonOracle(Oracle):
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
        self.method = "slack_rescaled_inference" if self.by_slack else "loss_augmented_inference"
        self._true_rows: dict[int, _SparseRow] = {}
        self.known: dict[int, dict[Any, Competitor]] = {}
        self.first = 0
        if hasattr(problem, "inference") and not self.relaxed:
            self.watch = OracleWatch()
        self.n_features = 0  # not known before the first example's features
        self._true_rows[0] = self._feature(0, Y[0])
        if self._loss(0, Y[0]) != 0.0:
            raise ProblemError(
                f"loss of {self._name} must be zero for the true output, but for example 0 it is "
                f"{self._loss(0, Y[0]):g}."
            )

    @property
    def oracle_name(self) -> str:
        return f"{'cuts' if self._in_batches else self.method} of {self._name}"

    def watch_from(self, first: int, watch: OracleWatch | None) -> None:
        super().watch_from(first, watch)
        self.first = first

    @property
    def content(self) -> Any:
        settings = settings_of(self.problem)
        return self._name, settings, self.X, self.Y, self.cost, self.by_slack, self.n_features

    @property
    def oracle_work(self) -> None:
        return None

    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        fixed = weights.view()
        fixed.flags.writeable = False
        if self._in_batches:
            return self._batched(self.problem.cuts, fixed, examples)
        outputs = [self._inferred(int(i), fixed) for i in examples]
        cuts = self._checked(self.cuts_of(examples, outputs), fixed, examples, self.method)
        return self._watched(cuts, fixed, examples)

    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        columns, values, losses = [], [], []
        for i, y in zip(examples.tolist(), outputs, strict=True):
            row_columns, row_values = self._difference(i, y)
            loss = self._loss(i, y)
            columns.append(row_columns)
            values.append(loss * row_values if self.by_slack else row_values)
            losses.append(loss)
        starts = np.zeros(len(columns) + 1, dtype=np.int64)
        np.cumsum([len(part) for part in columns], out=starts[1:])
        return Cuts(
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
        return getattr(self.problem, "cuts", None) is not None and not self.by_slack

    def _inferred(self, i: int, weights: Floats) -> Any:
        try:
            return self._call(self.method, i, self.X[i], self.Y[i], weights)
        except ProblemError:
            # Features of varying length make searches fail that are right: blame the features.
            for other in range(min(self.n_examples, _CHUNK)):
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
        columns, values = self._of_y_true(i)
        other_columns, other_values = self._feature(i, y)
        touched, at = np.unique(np.r_[columns, other_columns], return_inverse=True)
        difference = np.bincount(at, weights=np.r_[values, -other_values])
        kept = np.flatnonzero(difference)
        return touched[kept], np.asarray(difference[kept], dtype=np.float64)

    def _of_y_true(self, i: int) -> _SparseRow:
        """Columns and values of the joint features of example `i` with its true output."""
        if i not in self._true_rows:
            self._true_rows[i] = self._feature(i, self.Y[i])
        return self._true_rows[i]

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

    def _batched(self, batched: Callable[..., Cuts], weights: Floats, examples: Order) -> Cuts:
        xs, y_true = [self.X[i] for i in examples], [self.Y[i] for i in examples]
        try:
            cuts = _as_cuts(*batched(xs, y_true, weights))
        except Exception as error:
            raise ProblemError(
                f"cuts of {self._name} raised {type(error).__name__} for the examples "
                f"{examples[0]} to {examples[-1]}: {error}"
            ) from error
        n = len(examples)
        if len(cuts.losses) != n or len(cuts.starts) != n + 1 or len(cuts.outputs) != n:
            raise ProblemError(
                f"cuts of {self._name} must return one plane for each of the {n} examples it "
                f"was given, but returned {len(cuts.losses)}."
            )
        self._check_entries(cuts)
        cuts = self._checked(cuts, weights, examples, "cuts")
        return self._watched(cuts, weights, examples)

    def _check_entries(self, cuts: Cuts) -> None:
        """Kernels trust what they are given, so a user's planes are looked at first."""
        n_entries = len(cuts.columns)
        grows = (np.diff(cuts.starts) >= 0).all() and cuts.starts[0] == 0
        if not grows or cuts.starts[-1] != n_entries or len(cuts.values) != n_entries:
            raise ProblemError(
                f"cuts of {self._name} must return starts that rise from 0 to the number of "
                f"columns and values."
            )
        if n_entries and cuts.columns.max() >= self.n_features:
            raise ProblemError(
                f"cuts of {self._name} returned the column {cuts.columns.max()}, but there are "
                f"{self.n_features} features."
            )
        if not (np.isfinite(cuts.values).all() and np.isfinite(cuts.losses).all()):
            raise ProblemError(f"cuts of {self._name} returned NaN or infinity.")
        if not (are_moderate(cuts.values) and are_moderate(cuts.losses)):
            raise ProblemError(
                f"cuts of {self._name} returned numbers beyond {LARGEST:g}, whose squares "
                f"overflow: scale features and losses, to about 1."
            )
        suboptimality = cuts.suboptimality
        if suboptimality is not None and not (
            len(suboptimality) == len(cuts.losses) and (suboptimality >= 0).all()
        ):
            raise ProblemError(
                f"cuts of {self._name} must return a suboptimality bound for each example, none "
                f"negative."
            )
        if suboptimality is not None and not self.relaxed:
            raise ProblemError(
                f"cuts of {self._name} returned a suboptimality bound, so {self._name} must say "
                f"relaxed = True."
            )

    def _checked(self, cuts: Cuts, weights: Floats, examples: Order, method: str) -> Cuts:
        """A search that ends below the truth, whose plane is zero, is no maximum.

        Where searches may miss the highest output, the truth is taken instead.
        """
        slopes = cuts.slopes(weights)
        scale = 1.0 + cuts.losses + np.abs(cuts.losses - slopes)
        if not (slopes < -_ROUNDING * scale).any():
            return cuts
        # Where large numbers cancel, what is left of them is rounding.
        sizes = np.abs(cuts.values * weights[cuts.columns])
        of_cut = np.repeat(np.arange(len(slopes)), np.diff(cuts.starts))
        cancelled = np.bincount(of_cut, weights=sizes, minlength=len(slopes))
        bad = np.flatnonzero(slopes < -np.maximum(_ROUNDING * scale, _CANCELLED * cancelled))
        if not len(bad):
            return cuts
        if self.relaxed:
            return self._with_true_outputs(cuts, slopes, examples, bad)
        k = bad[0]
        raise ProblemError(
            f"{method} of {self._name} returned {cuts.outputs[k]!r:.80} for example "
            f"{examples[k]}, whose score plus loss is {-slopes[k]:.3g} below that of the truth: "
            f"it must return the highest."
        )

    def _with_true_outputs(self, cuts: Cuts, slopes: Floats, examples: Order, at: Order) -> Cuts:
        """The planes, but some of them those of the truth; what may be missed is less by that."""
        counts = np.diff(cuts.starts)
        kept = np.ones(len(counts), dtype=bool)
        kept[at] = False
        entries = np.repeat(kept, counts)
        starts = np.zeros_like(cuts.starts)
        np.cumsum(counts * kept, out=starts[1:])
        outputs = list(cuts.outputs)
        for k in at.tolist():
            outputs[k] = self.Y[int(examples[k])]
        suboptimality = cuts.suboptimality
        if suboptimality is not None:
            suboptimality = np.where(kept, suboptimality, np.maximum(slopes + suboptimality, 0.0))
        columns, values = cuts.columns[entries], cuts.values[entries]
        return Cuts(starts, columns, values, cuts.losses * kept, outputs, suboptimality)

    def _watched(self, cuts: Cuts, weights: Floats, examples: Order) -> Cuts:
        if self.watch is not None:
            self.watch.see(self, cuts, weights, examples)
        return cuts

    # What a watch asks

    @property
    def inference_name(self) -> str:
        """What to call inference when it fails."""
        return f"inference of {self._name}"

    def competitor(self, i: int, y: Any) -> Competitor:
        """An output of example `i`."""
        return Competitor(*self._difference(i, y), self._loss(i, y), y)

    def inferred_best(self, i: int, weights: Floats) -> Any:
        """What inference finds for example `i`."""
        return self._call("inference", i, self.X[i], weights)

    def competes(self, competitor: Competitor) -> bool:
        """Whether loss-augmented inference has to beat it."""
        return True

    def true_terms(self, i: int, weights: Floats) -> float:
        """How large the terms are that the score of the true output is made of."""
        columns, values = self._of_y_true(i)
        return float(np.abs(values) @ np.abs(weights[columns]))

    def check_agreement(self, i: int, found: Competitor) -> None:
        """See to it that the loss is zero for the truth, and that a plane is that of its output."""
        own = self._loss(i, self.Y[i])
        if own != 0.0:
            raise ProblemError(
                f"loss of {self._name} must be zero for the true output, but for example "
                f"{self.first + i} it is {own:g}."
            )
        if not self._in_batches:
            return  # then the plane was made of the output
        again = self.competitor(i, found.output)
        dense = np.zeros(self.n_features)
        np.add.at(dense, found.columns, found.values)
        np.subtract.at(dense, again.columns, again.values)
        apart = float(np.abs(dense).max(initial=0.0))
        if apart > ROUNDING * (1.0 + float(np.abs(again.values).max(initial=0.0))) or (
            abs(found.loss - again.loss) > ROUNDING * (1.0 + again.loss)
        ):
            raise ProblemError(
                f"cuts of {self._name} does not agree with joint_feature and loss: for example "
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


def _as_cuts(
    starts: Any, columns: Any, values: Any, losses: Any, outputs: Any, suboptimality: Any = None
) -> Cuts:
    """Planes as kernels take them, from whatever a user returned."""
    return Cuts(
        np.ascontiguousarray(starts, dtype=np.int64),
        np.ascontiguousarray(columns, dtype=np.uint32),
        np.ascontiguousarray(values, dtype=np.float64),
        np.ascontiguousarray(losses, dtype=np.float64),
        list(outputs),
        None if suboptimality is None else np.ascontiguousarray(suboptimality, dtype=np.float64),
    )


def make_oracle(
    problem: Any, X: Sequence[Any], Y: Sequence[Any], cost: Floats, rescaling: str
) -> Oracle:
    """The training set of a problem: its own, or the plain-Python one."""
    from maxmargin.core.slack_rescaling import SlackRescaledOracle  # which builds on this module

    if rescaling == "slack" and not hasattr(problem, "slack_rescaled_inference"):
        return SlackRescaledOracle(make_oracle(problem, X, Y, cost, "margin"))
    if hasattr(problem, "make_oracle"):
        bound: Oracle = problem.make_oracle(X, Y, cost, rescaling)
        return bound
    return PythonOracle(problem, X, Y, cost, rescaling)


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

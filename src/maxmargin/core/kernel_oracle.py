"""Kernel models, and the separation oracles that train them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order, check_shape
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.inputs import LARGEST
from maxmargin.core.kernel import (
    LINEAR,
    SAMPLE,
    Candidates,
    ConstantKernel,
    JointFeatures,
    JointKernel,
    Kernel,
    KernelError,
    KernelProblem,
    ListsCandidates,
    NewOutputs,
    Pairs,
    ProductKernel,
    check_gram,
    n_rows,
    row_keys,
    stacked,
)
from maxmargin.core.oracle import Threads
from maxmargin.core.oracle_check import ROUNDING, OracleChecker
from maxmargin.core.problem import ProblemError, settings_of
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade

_MOST_VALUES = 4_000_000
"""Kernel values, or entries of candidate rows, in memory at the same time."""

_MOST_COMPARED = 1000
"""Outputs of an example up to which one read from a file is looked up among them."""


@registered("KernelModel", check="check")
@dataclass(frozen=True)
class KernelModel:
    """Support vectors: ``score(p, l) = sum_ab factors[a, b] k(parts[a], p) k(labels[b], l)``."""

    kernel: ProductKernel
    parts: Any
    labels: Any
    factors: Any

    @classmethod
    def of(
        cls, kernel: ProductKernel, parts: Any, labels: Any, at: tuple[Any, Any], factors: Floats
    ) -> "KernelModel":
        """From factors of pairs of rows, without those that are zero."""
        shape = parts.shape[0], labels.shape[0]
        table = sp.csr_array(sp.coo_array((factors, at), shape=shape))
        table.sum_duplicates()
        table.eliminate_zeros()
        used = np.flatnonzero(np.diff(table.indptr))
        columns = np.unique(table.indices)
        return cls(kernel, parts[used], labels[columns], sp.csr_array(table[used][:, columns]))

    def check(self) -> None:
        """Raise ValueError if rows and factors do not fit together."""
        if not all(hasattr(rows, "shape") and rows.shape for rows in (self.parts, self.labels)):
            raise ValueError("the rows of the kernel model are none")
        if any(rows.dtype.kind not in "fO" for rows in (self.parts, self.labels, self.factors)):
            raise ValueError("the rows of the kernel model are no numbers")
        for kernel in (self.kernel.parts, self.kernel.labels):
            if not (isinstance(kernel, Kernel) and kernel.is_fitted):
                raise ValueError("the kernel of the model has no gamma")
        check_shape("factors", self.factors, self.parts.shape[0], self.labels.shape[0])

    def copy(self) -> "KernelModel":
        """The model itself, which is immutable."""
        return self

    def _factors_of(self, labels: Any) -> Floats:
        """Factor of each part row for outputs with these labels: (n_parts, n_labels)."""
        return np.asarray(self.factors @ self.kernel.labels(self.labels, labels))

    def weights_of(self, labels: Any) -> Floats:
        """Factors of the part rows; weights of features, where the kernel of parts is linear."""
        factors = self._factors_of(labels)
        return np.asarray(self.parts.T @ factors) if self.kernel.parts.is_linear else factors

    def scores(self, parts: Any, weights: Floats) -> Floats:
        """Scores of parts with the labels that `weights_of` was given: one row a part."""
        if self.kernel.parts.is_linear:
            return np.asarray(parts @ weights)
        out = np.empty((parts.shape[0], weights.shape[1]))
        for some in self._chunks(len(out)):
            out[some] = self.kernel.parts(parts[some], self.parts) @ weights
        return out

    def pair_scores(self, parts: Any, labels: Any) -> Floats:
        """Score of each row of `parts` with the same row of `labels`."""
        out = np.zeros(parts.shape[0])
        for some in self._chunks(len(out)):
            values = self.kernel.parts(parts[some], self.parts)
            out[some] = np.einsum("ap,pa->a", values, self._factors_of(labels[some]))
        return out

    @cached_property
    def half_square(self) -> float:
        """``1/2 |w|^2``, with the kernel computed anew."""
        factors = self._factors_of(self.labels)
        total = 0.0
        for some in self._chunks(self.parts.shape[0]):
            values = self.kernel.parts(self.parts[some], self.parts) @ factors
            total += float(np.sum(self.factors[some].toarray() * values))
        return 0.5 * total

    def _chunks(self, n: int) -> Iterator[slice]:
        """Slices of n rows whose kernel values with all parts may be held together."""
        at_once = max(1, _MOST_VALUES // max(1, self.parts.shape[0]))
        return (slice(start, start + at_once) for start in range(0, n, at_once))


def _groups(candidates: Iterable[Candidates], most: int) -> Iterator[list[Candidates]]:
    """Consecutive candidates with the same labels, as many as fit in memory."""
    group: list[Candidates] = []
    values = 0
    for each in candidates:
        if group and each.labels is not group[0].labels:
            yield group
            group, values = [], 0
        group.append(each)
        values += getattr(each.parts, "size", n_rows(each.parts))
        if len(group) == most or values >= _MOST_VALUES:
            yield group
            group, values = [], 0
    if group:
        yield group


def scored(
    model: KernelModel, candidates: Iterable[Candidates], at_once: int = 256
) -> Iterator[tuple[Candidates, Any, Any, Floats]]:
    """Candidates with the rows of their parts and labels, and all scores between these."""
    labels = label_rows = weights = None
    for group in _groups(candidates, at_once):
        if label_rows is None or group[0].labels is not labels:
            labels = group[0].labels
            label_rows = model.kernel.labels.rows(labels)
            weights = model.weights_of(label_rows)
        part_rows = [model.kernel.parts.rows(each.parts) for each in group]
        table = model.scores(stacked(part_rows), np.asarray(weights))
        scores = np.split(table, np.cumsum([rows.shape[0] for rows in part_rows])[:-1])
        for each, rows, own in zip(group, part_rows, scores, strict=True):
            yield each, rows, label_rows, own


def predict(problem: Any, model: KernelModel, X: Any, threads: Threads) -> list[tuple[Any, float]]:
    """The highest-scoring output of each input, and its score."""

    def best(share: slice) -> list[tuple[Any, float]]:
        answers = []
        candidates = (problem.candidates(X[i]) for i in range(n_rows(X))[share])
        for each, _, _, table in scored(model, candidates):
            scores = table[each.part_of, each.label_of]
            at = int(np.argmax(scores))
            answers.append((each.outputs[at], float(scores[at])))
        return answers

    parts = threads.map(best, threads.shares(n_rows(X)))
    return [answer for part in parts for answer in part]


class Found(NamedTuple):
    """Most violating outputs of each example, their slopes (violations), and the hinges."""

    outputs: NewOutputs
    slopes: Floats
    hinges: Floats


class KernelOracle:
    """Oracle of a kernel problem, which enumerates its outputs; checks the kernel on a sample."""

    exact = True
    """Inference is exact: it enumerates all outputs."""

    inputs_at_once = 256
    """Inputs whose candidates are in memory at the same time."""

    def __init__(
        self,
        problem: Any,
        X: Sequence[Any],
        Y: Sequence[Any],
        C: Floats,
        kernel: Any = LINEAR,
        rescaling: str = "margin",
    ) -> None:
        self.X, self.Y, self.C = X, Y, C
        self.checker = OracleChecker()
        self.by_slack = rescaling == "slack"
        self._given, self._name = problem, type(problem).__name__
        self.problem, self.kernel = _parts_and_labels(problem, kernel)
        sample = self.y_true(np.random.default_rng(0).permutation(len(C))[:SAMPLE])
        parts, labels = self.kernel.parts, self.kernel.labels
        self.kernel = ProductKernel(parts.fitted(sample.parts), labels.fitted(sample.labels))
        parts, labels = self.kernel.parts, self.kernel.labels
        check_gram(parts(sample.parts, sample.parts), parts.name)
        check_gram(labels(sample.labels, sample.labels), labels.name)

    @property
    def content(self) -> Any:
        """What the fingerprint of the training data is made of."""
        settings = self._name, settings_of(self._given)
        return (*settings, self.X, self.Y, self.C, self.kernel, self.by_slack)

    @property
    def n_examples(self) -> int:
        return len(self.C)

    def y_true(self, examples: Order) -> NewOutputs:
        rows = self.rows_of(examples, [self.Y[i] for i in examples.tolist()])
        nothing = np.zeros(len(examples))
        return NewOutputs(examples, [None] * len(examples), nothing, *rows, nothing)

    def outputs_of(self, examples: Order, outputs: Sequence[Any], coef: Floats) -> NewOutputs:
        """Given outputs of examples, with losses and rows computed anew from the data."""
        rows = self.rows_of(examples, outputs)
        pairs = zip(examples.tolist(), outputs, strict=True)
        losses = np.array([self._loss(i, y) for i, y in pairs], dtype=np.float64)
        return NewOutputs(examples, list(outputs), losses, *rows, coef)

    def rows_of(self, examples: Order, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """The part row and the label row of given outputs of examples."""
        parts, labels = [], []
        for i, y in zip(examples.tolist(), outputs, strict=True):
            parts.append(self._call("part", i, self.X[i], y))
            labels.append(self._call("label", i, y))
        return self.kernel.parts.rows(parts), self.kernel.labels.rows(labels)

    def check_listed(self, examples: Order, outputs: Sequence[Any]) -> None:
        """Raise ValueError for outputs that their examples do not have, where these have few."""
        for i, y in zip(examples.tolist(), outputs, strict=True):
            listed = self._call("outputs", i, self.X[i])
            if len(listed) <= _MOST_COMPARED and not any(np.array_equal(y, z) for z in listed):
                raise ValueError(f"{y!r:.60} is no output of example {i}")

    def infer(
        self,
        model: KernelModel,
        examples: Order,
        threads: Threads,
        count: int = 1,
        diversity: float = 0.0,
    ) -> Found:
        """Loss-augmented inference: the `count` most violating outputs of each example."""
        own_scores = self._own_scores(model, examples, threads)

        def find(some: slice) -> tuple[list[Any], list[float]]:
            found, hinges = [], []
            numbers = examples[some].tolist()
            candidates = scored(model, map(self._candidates, numbers), self.inputs_at_once)
            for i, own, (each, parts, labels, table) in zip(
                numbers, own_scores[some], candidates, strict=True
            ):
                lost = self._checked(i, self._call("losses", i, self.Y[i], each))
                above = table[each.part_of, each.label_of] - own
                gains = lost * (1.0 + above) if self.by_slack else lost + above
                if not np.isfinite(gains).all():
                    raise KernelError(f"{self.kernel.parts.name} gives NaN or infinity.")
                taken = self._choose(i, each, gains, count, diversity)
                hinges.append(max(float(gains[taken[0]]), 0.0))
                for c in taken:
                    rows = parts[[each.part_of[c]]], labels[[each.label_of[c]]]
                    found.append((i, each.outputs[c], lost[c], gains[c], *rows))
            return found, hinges

        shares = threads.map(find, threads.shares(len(examples)))
        found = [one for share, _ in shares for one in share]
        of_example, outputs, losses, slopes, parts, labels = zip(*found, strict=True)
        new = NewOutputs(
            np.array(of_example, dtype=np.int64),
            list(outputs),
            np.array(losses),
            stacked(parts),
            stacked(labels),
            np.zeros(len(losses)),
        )
        self.checker.check_listed(self, new)
        hinges = [hinge for _, share in shares for hinge in share]
        return Found(new, np.array(slopes), np.array(hinges))

    def _own_scores(self, model: KernelModel, examples: Order, threads: Threads) -> Floats:
        def score(some: slice) -> Floats:
            y_true = self.y_true(examples[some])
            return model.pair_scores(y_true.parts, y_true.labels)

        return np.concatenate(threads.map(score, threads.shares(len(examples))))

    def _choose(
        self, i: int, candidates: Candidates, gains: Floats, count: int, diversity: float
    ) -> list[int]:
        """The highest, then greedily with `diversity` times the difference from those chosen."""
        taken = [int(np.argmax(gains))]
        values = gains.copy()
        while len(taken) < min(count, len(gains)):
            last = candidates.outputs[taken[-1]]
            if diversity:
                values += diversity * self._call("difference", i, last, candidates)
            values[taken[-1]] = -np.inf
            taken.append(int(np.argmax(values)))
        return taken

    def model_of(self, point: DualPoint) -> KernelModel:
        """The model of a dual point, with all its rows computed anew."""
        return self._evaluated(point)[0]

    def primal(self, model: KernelModel) -> float:
        """Objective of a model, by an oracle call for each example."""
        found = self.infer(model, np.arange(self.n_examples), Threads(1))
        return model.half_square + float(self.C @ found.hinges)

    def dual(self, point: DualPoint) -> float:
        """Dual value of a feasible point, with its outputs and the kernel computed anew."""
        model, linear = self._evaluated(point)
        return linear - model.half_square

    def _evaluated(self, point: DualPoint) -> tuple[KernelModel, float]:
        """The model of a dual point, and its linear term."""
        coef = point.feasible_coef(self.C)
        if not len(coef):  # the rows of any output, which tell their kind, without a factor
            coef = np.zeros(1)
            point = DualPoint(np.zeros(1, dtype=np.int64), coef, [self.Y[0]])
        outputs = self.outputs_of(point.examples, point.outputs, coef)
        y_true = self.y_true(point.examples)
        part_of, parts = _merged(stacked([y_true.parts, outputs.parts]))
        label_of, labels = _merged(stacked([y_true.labels, outputs.labels]))
        scaled = coef * outputs.losses if self.by_slack else coef
        factors = np.r_[scaled, -scaled]
        model = KernelModel.of(self.kernel, parts, labels, (part_of, label_of), factors)
        return model, float(coef @ outputs.losses)

    def _call(self, method: str, i: int, *arguments: Any) -> Any:
        try:
            return getattr(self.problem, method)(*arguments)
        except Exception as error:
            raise ProblemError(
                f"{method} of {self._name} raised {type(error).__name__} for example {i}: {error}"
            ) from error

    def _candidates(self, i: int) -> Candidates:
        candidates: Candidates = self._call("candidates", i, self.X[i])
        if not len(candidates.outputs):
            raise ProblemError(f"There are no outputs for example {i}: it needs one at least.")
        return candidates

    def _loss(self, i: int, y: Any) -> float:
        return float(self._checked(i, [self._call("loss", i, self.Y[i], y)])[0])

    def _checked(self, i: int, values: Any) -> Floats:
        """Losses of an example's outputs; ProblemError if they are invalid."""
        losses = np.asarray(values, dtype=np.float64)
        valid = np.isfinite(losses) & (losses >= 0.0)
        if not valid.all():
            raise ProblemError(
                f"loss of {self._name} must be a finite number that is not negative, but for "
                f"example {i} it is {losses[~valid][0]}."
            )
        if (losses > LARGEST).any():
            raise ProblemError(
                f"loss of {self._name} is {losses.max():g} for example {i}, but beyond "
                f"{LARGEST:g} sums overflow: scale it, to about 1."
            )
        return losses

    def check_agreement(self, outputs: NewOutputs) -> None:
        """Raise ProblemError if candidates contradict `loss`, `part` or `label`."""
        i, y, name = int(outputs.examples[0]), outputs.outputs[0], self._name
        own = self._loss(i, self.Y[i])
        if own != 0.0:
            raise ProblemError(
                f"loss of {name} must be zero for the true output, but for example {i} it is "
                f"{own:g}."
            )
        again = self.outputs_of(outputs.examples, outputs.outputs, outputs.coef)
        loss, other = float(outputs.losses[0]), float(again.losses[0])
        if abs(loss - other) > ROUNDING * (1.0 + other):
            raise ProblemError(
                f"losses of {name} does not agree with loss: for example {i} and the output "
                f"{y!r:.80} it is {loss:g}, not {other:g}."
            )
        for what, kernel, one, two in (
            ("part", self.kernel.parts, outputs.parts, again.parts),
            ("label", self.kernel.labels, outputs.labels, again.labels),
        ):
            square, mixed, other_square = (
                float(kernel(a, b)[0, 0]) for a, b in ((one, one), (one, two), (two, two))
            )
            apart = square + other_square - 2.0 * mixed
            if apart > ROUNDING * (square + other_square):
                raise ProblemError(
                    f"candidates of {name} does not agree with {what}: for example {i} and the "
                    f"output {y!r:.80} the squared distance of the two is {apart:.3g}."
                )


def _parts_and_labels(problem: Any, kernel: Any) -> tuple[Any, ProductKernel]:
    """The problem as one of parts and labels, and the kernels of these."""
    if isinstance(kernel.parts if isinstance(kernel, ProductKernel) else kernel, JointKernel):
        problem = Pairs(problem)
    elif not isinstance(problem, ListsCandidates):
        problem = JointFeatures(problem)
    if isinstance(kernel, ProductKernel):
        return problem, kernel
    labels = getattr(problem, "label_kernel", None)
    return problem, ProductKernel(kernel, ConstantKernel() if labels is None else labels)


def _merged(rows: Any) -> tuple[Order, Any]:
    """Index of each row among the distinct rows, and these."""
    numbers: dict[Any, int] = {}
    at = np.array([numbers.setdefault(key, len(numbers)) for key in row_keys(rows)])
    return at, rows[np.unique(at, return_index=True)[1]]


@registered("Multiclass")
class Multiclass(Remade, KernelProblem):
    """Classes, each with a function of its own in the feature space of a kernel.

    With two classes it is the binary SVM, with the same C. There is no intercept.

    Parameters
    ----------
    classes : array-like of shape (n_classes,), default=None
        All labels; None takes those of the training data.
    loss_matrix : array-like of shape (n_classes, n_classes), default=None
        Loss of predicting the column's class where the row's is true, classes sorted; None is the
        zero-one loss.

    See Also
    --------
    maxmargin.KernelStructuredSVM
    maxmargin.LinearClassifier : The same without a kernel.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> X, y = load_iris(return_X_y=True)
    >>> problem = mm.structures.Multiclass()
    >>> model = mm.KernelStructuredSVM(problem, C=10.0, kernel="rbf", gamma=0.5).fit(X, y)
    >>> model.accuracy(X, y) > 0.97
    True
    """

    label_kernel = LINEAR

    def __init__(self, classes: Any = None, loss_matrix: Any = None) -> None:
        self.classes, self.loss_matrix = classes, loss_matrix

    def outputs(self, x: Any) -> Sequence[Any]:
        raise ValueError("Multiclass does not know its classes before it is fitted.")

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true != y)


@registered("Classes")
class KernelClasses(Multiclass):
    """`Multiclass` of the training data; `codes` are one-hot times the root of `scale`."""

    def __init__(self, classes: NDArray[Any], loss_matrix: Floats) -> None:
        check_shape("the loss matrix", loss_matrix, *2 * [len(classes)])
        super().__init__(classes, loss_matrix)
        self.scale = 0.5 if len(classes) == 2 else 1.0
        self.codes = np.eye(len(classes)) * np.sqrt(self.scale)
        self._listed: list[Any] = classes.tolist()
        self._numbers = {label: k for k, label in enumerate(self._listed)}

    def number(self, label: Any) -> int:
        return self._numbers[label.item() if isinstance(label, np.generic) else label]

    def outputs(self, x: Any) -> Sequence[Any]:
        return self._listed

    def loss(self, y_true: Any, y: Any) -> float:
        return float(self.loss_matrix[self.number(y_true), self.number(y)])

    def label(self, y: Any) -> Any:
        return self.codes[self.number(y)]

    def candidates(self, x: Any) -> Candidates:
        row = sp.csr_array(x.reshape(1, -1)) if sp.issparse(x) else np.asarray(x)[None, :]
        return Candidates.grid(self._listed, row, self.codes)

    def losses(self, y_true: Any, candidates: Candidates) -> Floats:
        return np.asarray(self.loss_matrix[self.number(y_true)])


class ClassOracle:
    """Oracle of kernel Crammer-Singer; dual coefficients of shape (n_samples, n_classes)."""

    exact = True
    checker = None  # no user wrote this oracle: its answers need no checks

    def __init__(
        self, problem: KernelClasses, X: Any, labels: Order, C: Floats, kernel: Kernel
    ) -> None:
        self.problem, self.X, self.labels, self.C = problem, X, labels, C
        some = X[np.random.default_rng(0).permutation(X.shape[0])[:SAMPLE]]
        self.kernel = kernel.fitted(X)
        check_gram(self.kernel(some, some), self.kernel.name)

    @property
    def n_classes(self) -> int:
        return len(self.problem.classes)

    @property
    def content(self) -> Any:
        problem = self.problem
        rows = self.X, self.labels, self.C
        return problem.classes, problem.loss_matrix, rows, self.kernel

    def model_of(self, dual_coef: Floats) -> KernelModel:
        used = np.flatnonzero(dual_coef.any(axis=1))
        kernel = ProductKernel(self.kernel, LINEAR)
        factors = sp.csr_array(dual_coef[used])
        return KernelModel(kernel, self.X[used], self.problem.codes, factors)

    def scores_of(self, dual_coef: Floats, threads: Threads) -> Floats:
        """Scores of all classes for all rows, by the model of these coefficients."""
        return class_scores(self.model_of(dual_coef), self.problem.codes, self.X, threads)

    def certify(self, dual_coef: Floats, scores: Floats) -> Certificate:
        """Primal and dual value of feasible coefficients, given their scores."""
        is_own, C = np.arange(self.n_classes) == self.labels[:, None], self.C[:, None]
        highest = np.where(is_own, C, 0.0) + 1e-9 * C
        lowest = np.where(is_own, -1e-9 * C, -np.inf)
        in_bounds = (dual_coef >= lowest) & (dual_coef <= highest)
        if not (in_bounds.all() and (np.abs(dual_coef.sum(axis=1)) <= 1e-7 * self.C).all()):
            raise ValueError("The dual coefficients are not feasible.")
        losses = self.problem.loss_matrix[self.labels]
        own = np.take_along_axis(scores, self.labels[:, None], axis=1)
        hinges = (scores + losses - own).max(axis=1)
        half_square = 0.5 * float(np.sum(dual_coef * scores))
        linear = -float(np.sum(dual_coef * losses))
        return Certificate(half_square + float(self.C @ hinges), linear - half_square)


def class_scores(model: KernelModel, codes: Floats, X: Any, threads: Threads) -> Floats:
    """Scores of all classes, whose label rows are `codes`: (n_samples, n_classes)."""
    weights = model.weights_of(codes)
    parts = threads.map(lambda some: model.scores(X[some], weights), threads.shares(X.shape[0]))
    return np.concatenate(parts)

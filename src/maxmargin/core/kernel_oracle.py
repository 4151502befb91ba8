"""Examples as the solvers of kernel problems see them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.checks import LARGEST
from maxmargin.core.kernel import Candidates, JointFeatures, KernelProblem, NewOutputs, Pairs
from maxmargin.core.kernel_model import KernelModel, Scoring, in_groups
from maxmargin.core.kernels import (
    SAMPLE,
    ConstantKernel,
    JointKernel,
    KernelError,
    LinearKernel,
    ProductKernel,
    check_gram,
    make_kernel,
    row_keys,
    stacked,
)
from maxmargin.core.oracle_check import ROUNDING, OracleWatch
from maxmargin.core.problem import ProblemError, settings_of
from maxmargin.core.threads import Threads

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_MOST_COMPARED = 1000
"""Outputs of an example up to which one that comes from a file is looked for among them."""


class Found(NamedTuple):
    """What searches found.

    Parameters
    ----------
    outputs : NewOutputs
        Some for each block, the highest first.
    slopes : ndarray of shape (n_outputs,)
        How far each is above its truth, loss included.
    hinges : ndarray of shape (n_blocks,)
        The highest of each block, or zero.
    """

    outputs: NewOutputs
    slopes: Floats
    hinges: Floats


class KernelOracle:
    """A kernel problem on a list of inputs and outputs.

    Parameters
    ----------
    problem : KernelProblem
    X, Y : sequence
    C : ndarray of shape (n_blocks,)
        C of each example.
    kernel : Kernel or ProductKernel
        Is checked, on a sample of the truths.
    rescaling : {"margin", "slack"}
        Slack rescaling multiplies the margin's violation by the loss.
    """

    exact = True
    """Searches are exact: they try all outputs."""

    def __init__(
        self,
        problem: Any,
        X: Sequence[Any],
        Y: Sequence[Any],
        C: Floats,
        kernel: Any,
        rescaling: str = "margin",
    ) -> None:
        self.X, self.Y, self.C = X, Y, C
        self.watch = OracleWatch()
        self.by_slack = rescaling == "slack"
        self.problem = adapted(problem, kernel)
        pair = kernel_pair(self.problem, kernel)
        parts, labels = self._raw_rows(pair, self._sample(), None)
        self.kernel = ProductKernel(pair.parts.fitted(parts), pair.labels.fitted(labels))
        check_gram(self.kernel.parts(parts, parts), self.kernel.parts.name)
        check_gram(self.kernel.labels(labels, labels), self.kernel.labels.name)

    @property
    def content(self) -> Any:
        """All that tells these examples from others."""
        problem = getattr(self.problem, "problem", self.problem)
        name, settings = type(problem).__name__, settings_of(problem)
        return name, settings, self.X, self.Y, self.C, self.kernel, self.by_slack

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.C)

    def _sample(self) -> Order:
        n = self.n_examples
        return np.random.default_rng(0).permutation(n)[: min(n, SAMPLE)]

    def y_true(self, examples: Order) -> NewOutputs:
        """The true outputs of blocks."""
        parts, labels = self._raw_rows(self.kernel, examples, None)
        nothing = np.zeros(len(examples))
        return NewOutputs(examples, [None] * len(examples), nothing, parts, labels, nothing)

    def outputs_of(self, examples: Order, outputs: Sequence[Any], coef: Floats) -> NewOutputs:
        """Given outputs of blocks, with all about them made from the data anew."""
        parts, labels = self.rows_of(examples, outputs)
        pairs = zip(examples.tolist(), outputs, strict=True)
        losses = np.array([self._loss(i, y) for i, y in pairs], dtype=np.float64)
        return NewOutputs(examples, list(outputs), losses, parts, labels, coef)

    def check_listed(self, examples: Order, outputs: Sequence[Any]) -> None:
        """Raise ValueError if outputs are none of those of their examples, where these are few."""
        for i, y in zip(examples.tolist(), outputs, strict=True):
            listed = self._call("outputs", i, self.X[i])
            if len(listed) <= _MOST_COMPARED and not any(np.array_equal(y, z) for z in listed):
                raise ValueError(f"{y!r:.60} is no output of example {i}")

    def rows_of(self, examples: Order, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """The part row and the label row of given outputs of blocks."""
        return self._raw_rows(self.kernel, examples, outputs)

    def _raw_rows(
        self, kernel: ProductKernel, examples: Order, outputs: Sequence[Any] | None
    ) -> tuple[Any, Any]:
        parts, labels = [], []
        for k, i in enumerate(examples.tolist()):
            y = self.Y[i] if outputs is None else outputs[k]
            parts.append(self._call("part", i, self.X[i], y))
            labels.append(self._call("label", i, y))
        return kernel.parts.rows(parts), kernel.labels.rows(labels)

    def infer(
        self,
        model: KernelModel,
        examples: Order,
        threads: Threads,
        count: int = 1,
        diversity: float = 0.0,
    ) -> Found:
        """The `count` most violating outputs of each block, and diverse ones if so wished."""
        shares = threads.shares(len(examples))
        parts = threads.map(
            lambda share: self._oracle_share(model, examples[share], count, diversity), shares
        )
        found = parts[0] if len(parts) == 1 else _joined(parts)
        self.watch.see_listed(self, found.outputs)
        return found

    def _oracle_share(
        self, model: KernelModel, examples: Order, count: int, diversity: float
    ) -> Found:
        scoring = Scoring(model)
        y_true = self.y_true(examples)
        own_scores = model.pair_scores(y_true.parts, y_true.labels)
        of_example, chosen_outputs, losses, slopes = [], [], [], []
        parts, labels = [], []
        hinges: list[float] = []
        for group in in_groups(examples.tolist(), self._candidates):
            part_rows, label_rows, scored = scoring.score([each for _, each in group])
            for k, ((i, each), table) in enumerate(zip(group, scored, strict=True)):
                lost = self._losses(i, each)
                gains = self._gains(
                    table[each.part_of, each.label_of], own_scores[len(hinges)], lost
                )
                if not np.isfinite(gains).all():
                    raise KernelError(f"{self.kernel.parts.name} gives NaN or infinity.")
                taken = self._choose(i, each, gains, count, diversity)
                hinges.append(max(float(gains[taken[0]]), 0.0))
                for c in taken:
                    of_example.append(i)
                    chosen_outputs.append(each.outputs[c])
                    losses.append(lost[c])
                    slopes.append(gains[c])
                    parts.append(part_rows[k][[each.part_of[c]]])
                    labels.append(label_rows[k][[each.label_of[c]]])
        new = NewOutputs(
            np.array(of_example, dtype=np.int64),
            chosen_outputs,
            np.array(losses),
            stacked(parts),
            stacked(labels),
            np.zeros(len(losses)),
        )
        return Found(new, np.array(slopes), np.array(hinges))

    def _gains(self, scores: Floats, own_score: float, losses: Floats) -> Floats:
        """How far outputs are above the truth of their example, loss included."""
        above = scores - own_score
        return losses * (1.0 + above) if self.by_slack else losses + above

    def _choose(
        self, i: int, candidates: Candidates, gains: Floats, count: int, diversity: float
    ) -> list[int]:
        """The highest; then one by one the highest after a bonus for being different.

        The bonus is `diversity` times the difference from those already chosen, added up.
        """
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
        """The model of a dual point, with all its rows made anew."""
        return self._valued(point)[0]

    def primal(self, model: KernelModel, threads: Threads | None = None) -> float:
        """Objective of a model, by a search for each block."""
        threads = threads or Threads(1)
        found = self.infer(model, np.arange(self.n_examples), threads)
        return model.half_square + float(self.C @ found.hinges)

    def dual(self, point: DualPoint) -> float:
        """Dual value of a feasible point, with its outputs and the kernel made anew."""
        model, linear = self._valued(point)
        return linear - model.half_square

    def feasible(self, point: DualPoint) -> DualPoint:
        """The point, cut back in blocks where it takes more than their C."""
        coef = np.maximum(point.coef, 0.0)
        used = np.bincount(point.examples, weights=coef, minlength=self.n_examples)
        over = used > self.C
        scale = np.ones(self.n_examples)
        scale[over] = self.C[over] / used[over]
        return point._replace(coef=coef * scale[point.examples])

    def _valued(self, point: DualPoint) -> tuple[KernelModel, float]:
        """The model, and the sum of coefficients times losses."""
        coef = self.feasible(point).coef
        if not np.allclose(coef, point.coef, rtol=1e-9, atol=0.0):
            raise ValueError("The dual point is not feasible.")
        if not len(coef):
            return empty_model(self), 0.0
        outputs = self.outputs_of(point.examples, point.outputs, coef)
        y_true = self.y_true(point.examples)
        parts = stacked([y_true.parts, outputs.parts])
        labels = stacked([y_true.labels, outputs.labels])
        scaled = coef * outputs.losses if self.by_slack else coef
        factors = np.r_[scaled, -scaled]
        model = merged_model(self.kernel, parts, labels, factors)
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
        loss = self._call("loss", i, self.Y[i], y)
        self._check_losses(i, np.array([loss], dtype=np.float64))
        return float(loss)

    def _losses(self, i: int, candidates: Candidates) -> Floats:
        losses = np.asarray(self._call("losses", i, self.Y[i], candidates), dtype=np.float64)
        self._check_losses(i, losses)
        return losses

    def check_agreement(self, outputs: NewOutputs) -> None:
        """See to it that what was listed for a single output is what is made of it one by one.

        Raises
        ------
        ProblemError
            If the true output has a loss, or loss, part or label say something else.
        """
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

    @property
    def _name(self) -> str:
        return type(getattr(self.problem, "problem", self.problem)).__name__

    def _check_losses(self, i: int, losses: Floats) -> None:
        if not (np.isfinite(losses) & (losses >= 0.0)).all():
            bad = losses[~(np.isfinite(losses) & (losses >= 0.0))][0]
            raise ProblemError(
                f"loss of {type(self.problem).__name__} must be a finite number that is not "
                f"negative, but for example {i} it is {bad}."
            )
        if (losses > LARGEST).any():
            raise ProblemError(
                f"loss of {type(self.problem).__name__} is {losses.max():g} for example {i}, but "
                f"beyond {LARGEST:g} sums overflow: scale it, to about 1."
            )


def adapted(problem: Any, kernel: Any) -> Any:
    """The problem as one of parts and labels."""
    inner = kernel.parts if isinstance(kernel, ProductKernel) else kernel
    if isinstance(inner, JointKernel):
        return Pairs(problem)
    if isinstance(problem, KernelProblem) or hasattr(problem, "candidates"):
        return problem
    return JointFeatures(problem)


def kernel_pair(problem: Any, kernel: Any) -> ProductKernel:
    """The kernels of parts and of labels."""
    if isinstance(kernel, ProductKernel):
        return kernel
    label_kernel = getattr(problem, "label_kernel", None)
    labels = ConstantKernel() if label_kernel is None else make_kernel(label_kernel)
    return ProductKernel(kernel, labels)


def empty_model(oracle: KernelOracle) -> KernelModel:
    """The model that scores everything zero."""
    y_true = oracle.y_true(np.arange(1))
    nothing = np.zeros(0, dtype=np.int64)
    at = nothing, nothing
    return KernelModel.of(oracle.kernel, y_true.parts, y_true.labels, at, np.zeros(0))


def merged_model(kernel: ProductKernel, parts: Any, labels: Any, factors: Floats) -> KernelModel:
    """A model of pairs of rows with factors, in which equal rows are one."""
    part_of, some_parts = _merged(parts)
    label_of, some_labels = _merged(labels)
    return KernelModel.of(kernel, some_parts, some_labels, (part_of, label_of), factors)


def _merged(rows: Any) -> tuple[Order, Any]:
    numbers: dict[Any, int] = {}
    at = np.array([numbers.setdefault(key, len(numbers)) for key in row_keys(rows)])
    first = np.zeros(len(numbers), dtype=np.int64)
    first[at[::-1]] = np.arange(len(at))[::-1]
    return at, rows[first]


def _joined(parts: list[Found]) -> Found:
    outputs = [part.outputs for part in parts]
    new = NewOutputs(
        np.concatenate([each.examples for each in outputs]),
        [output for each in outputs for output in each.outputs],
        np.concatenate([each.losses for each in outputs]),
        stacked([each.parts for each in outputs]),
        stacked([each.labels for each in outputs]),
        np.concatenate([each.coef for each in outputs]),
    )
    return Found(
        new,
        np.concatenate([part.slopes for part in parts]),
        np.concatenate([part.hinges for part in parts]),
    )


class ClassCodes(Protocol):
    """What `ClassOracle` needs of a problem: classes, their loss matrix and their label rows."""

    classes: NDArray[Any]
    loss_matrix: Floats
    codes: Floats
    scale: float


class ClassOracle:
    """Oracle of the kernel Crammer-Singer problem, over rows with one class each.

    Dual coefficients are an array of shape (n_samples, n_classes): the factor with which a row
    enters the function of each class. Those of a row add up to zero.

    Parameters
    ----------
    problem : ClassCodes
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
        Class numbers.
    C : ndarray of shape (n_samples,)
    kernel : Kernel
        Of rows. Is checked on a sample of them.
    """

    def __init__(
        self, problem: ClassCodes, X: Any, labels: NDArray[np.int64], C: Floats, kernel: Any
    ) -> None:
        self.problem, self.X, self.labels, self.C = problem, X, labels, C
        some = X[np.random.default_rng(0).permutation(X.shape[0])[:SAMPLE]]
        self.kernel = kernel.fitted(X)
        check_gram(self.kernel(some, some), self.kernel.name)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.problem.classes)

    def model_of(self, dual_coef: Floats) -> KernelModel:
        """The model of dual coefficients."""
        used = np.flatnonzero(dual_coef.any(axis=1))
        kernel = ProductKernel(self.kernel, LinearKernel())
        factors = sp.csr_array(dual_coef[used])
        return KernelModel(kernel, self.X[used], self.problem.codes, factors)

    exact = True
    watch = None
    """Nobody need look at an oracle that no user wrote."""

    @property
    def content(self) -> Any:
        """All that tells these examples from others."""
        problem = self.problem
        rows = self.X, self.labels, self.C
        return problem.classes, problem.loss_matrix, rows, self.kernel

    def scores_of(self, dual_coef: Floats, threads: Threads) -> Floats:
        """Scores of all classes for all rows, by the model of these coefficients."""
        return class_scores(self.model_of(dual_coef), self.problem.codes, self.X, threads)

    def certify(self, dual_coef: Floats, scores: Floats) -> Certificate:
        """Primal value of the model of these coefficients, and their dual value.

        Parameters
        ----------
        dual_coef : ndarray of shape (n_samples, n_classes)
        scores : ndarray of shape (n_samples, n_classes)
            What `scores_of` says.

        Raises
        ------
        ValueError
            If the coefficients are not feasible.
        """
        self._check_feasible(dual_coef)
        losses = self.problem.loss_matrix[self.labels]
        own = np.take_along_axis(scores, self.labels[:, None], axis=1)
        hinges = (scores + losses - own).max(axis=1)
        half_square = 0.5 * float(np.sum(dual_coef * scores))
        linear = -float(np.sum(dual_coef * losses))
        return Certificate(half_square + float(self.C @ hinges), linear - half_square)

    def _check_feasible(self, dual_coef: Floats) -> None:
        own = np.zeros(dual_coef.shape, dtype=np.bool_)
        own[np.arange(len(own)), self.labels] = True
        room = 1e-9 * self.C[:, None]
        in_bounds = np.where(
            own, (dual_coef >= -room) & (dual_coef <= self.C[:, None] + room), dual_coef <= room
        )
        if not (in_bounds.all() and (np.abs(dual_coef.sum(axis=1)) <= 1e-7 * self.C).all()):
            raise ValueError("The dual coefficients are not feasible.")


def class_scores(model: KernelModel, codes: Floats, X: Any, threads: Threads) -> Floats:
    """Scores of all classes, whose label rows are `codes`, for rows: (n_samples, n_classes)."""
    weights = model.weights_of(codes)
    parts = threads.map(lambda some: model.scores(X[some], weights), threads.shares(X.shape[0]))
    return np.concatenate(parts)

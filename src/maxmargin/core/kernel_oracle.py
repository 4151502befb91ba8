"""The separation oracle of kernel problems: loss-augmented inference over listed outputs."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.checks import LARGEST
from maxmargin.core.kernel import (
    AdaptedProblem,
    Candidates,
    JointFeatures,
    ListsCandidates,
    NewOutputs,
    Pairs,
)
from maxmargin.core.kernel_model import KernelModel, Scoring, in_groups
from maxmargin.core.kernels import (
    SAMPLE,
    ConstantKernel,
    JointKernel,
    KernelError,
    ProductKernel,
    check_gram,
    make_kernel,
    row_keys,
    stacked,
)
from maxmargin.core.oracle_check import ROUNDING, OracleChecker
from maxmargin.core.problem import ProblemError, settings_of
from maxmargin.core.threads import Threads

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_MOST_COMPARED = 1000
"""Outputs of an example up to which one that comes from a file is looked for among them."""


class Found(NamedTuple):
    """What oracle calls found.

    Parameters
    ----------
    outputs : NewOutputs
        Some for each example, the most violating first.
    slopes : ndarray of shape (n_outputs,)
        Loss-augmented score of each, less the score of the true output.
    hinges : ndarray of shape (n_examples,)
        The highest of each example, or zero.
    """

    outputs: NewOutputs
    slopes: Floats
    hinges: Floats


ScoredCandidates = tuple[int, Candidates, Any, Any, Floats]
"""Example, candidates, rows of parts and of labels, scores ``(n_parts, n_labels)``."""


class KernelOracle:
    """A kernel problem on a list of inputs and outputs.

    Parameters
    ----------
    problem : KernelProblem
    X, Y : sequence
    C : ndarray of shape (n_examples,)
        C of each example.
    kernel : Kernel or ProductKernel
        Checked on a sample of the true outputs.
    rescaling : {"margin", "slack"}
        Slack rescaling multiplies the margin violation by the loss.
    """

    exact = True
    """Inference is exact: it enumerates all outputs."""

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
        self.checker = OracleChecker()
        self.by_slack = rescaling == "slack"
        self.problem = adapted(problem, kernel)
        pair = kernel_pair(self.problem, kernel)
        parts, labels = self._raw_rows(pair, self._sample(), None)
        self.kernel = ProductKernel(pair.parts.fitted(parts), pair.labels.fitted(labels))
        check_gram(self.kernel.parts(parts, parts), self.kernel.parts.name)
        check_gram(self.kernel.labels(labels, labels), self.kernel.labels.name)

    @property
    def content(self) -> Any:
        """What the fingerprint of the training data is taken of."""
        return (
            self._name,
            settings_of(self._given),
            self.X,
            self.Y,
            self.C,
            self.kernel,
            self.by_slack,
        )

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.C)

    def _sample(self) -> Order:
        n = self.n_examples
        return np.random.default_rng(0).permutation(n)[: min(n, SAMPLE)]

    def y_true(self, examples: Order) -> NewOutputs:
        """The true outputs of examples."""
        parts, labels = self._raw_rows(self.kernel, examples, None)
        nothing = np.zeros(len(examples))
        return NewOutputs(examples, [None] * len(examples), nothing, parts, labels, nothing)

    def outputs_of(self, examples: Order, outputs: Sequence[Any], coef: Floats) -> NewOutputs:
        """Given outputs of examples, with losses and rows computed anew from the data."""
        parts, labels = self.rows_of(examples, outputs)
        pairs = zip(examples.tolist(), outputs, strict=True)
        losses = np.array([self._loss(i, y) for i, y in pairs], dtype=np.float64)
        return NewOutputs(examples, list(outputs), losses, parts, labels, coef)

    def check_listed(self, examples: Order, outputs: Sequence[Any]) -> None:
        """Raise ValueError for outputs that their examples do not have, where these have few."""
        for i, y in zip(examples.tolist(), outputs, strict=True):
            listed = self._call("outputs", i, self.X[i])
            if len(listed) <= _MOST_COMPARED and not any(np.array_equal(y, z) for z in listed):
                raise ValueError(f"{y!r:.60} is no output of example {i}")

    def rows_of(self, examples: Order, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """The part row and the label row of given outputs of examples."""
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
        """The `count` most violating outputs of each example, with a bonus for diversity."""
        own = self._own_scores(model, examples, threads)
        parts = threads.map(
            lambda some: self._infer(model, examples[some], own[some], count, diversity),
            threads.shares(len(examples)),
        )
        found = parts[0] if len(parts) == 1 else _joined(parts)
        self.checker.check_listed(self, found.outputs)
        return found

    def _own_scores(self, model: KernelModel, examples: Order, threads: Threads) -> Floats:
        """Scores of the true outputs."""

        def score(some: slice) -> Floats:
            y_true = self.y_true(examples[some])
            return model.pair_scores(y_true.parts, y_true.labels)

        return np.concatenate(threads.map(score, threads.shares(len(examples))))

    def _infer(
        self, model: KernelModel, examples: Order, own_scores: Floats, count: int, diversity: float
    ) -> Found:
        of_example, outputs, losses, slopes, parts, labels, hinges = ([] for _ in range(7))
        scored = self._scored(model, examples.tolist())
        for own, (i, each, part_rows, label_rows, table) in zip(own_scores, scored, strict=True):
            lost = self._losses(i, each)
            above = table[each.part_of, each.label_of] - own
            gains = lost * (1.0 + above) if self.by_slack else lost + above
            if not np.isfinite(gains).all():
                raise KernelError(f"{self.kernel.parts.name} gives NaN or infinity.")
            taken = self._choose(i, each, gains, count, diversity)
            hinges.append(max(float(gains[taken[0]]), 0.0))
            for c in taken:
                of_example.append(i)
                outputs.append(each.outputs[c])
                losses.append(lost[c])
                slopes.append(gains[c])
                parts.append(part_rows[[each.part_of[c]]])
                labels.append(label_rows[[each.label_of[c]]])
        new = NewOutputs(
            np.array(of_example, dtype=np.int64),
            outputs,
            np.array(losses),
            stacked(parts),
            stacked(labels),
            np.zeros(len(losses)),
        )
        return Found(new, np.array(slopes), np.array(hinges))

    def _scored(self, model: KernelModel, examples: list[int]) -> Iterator[ScoredCandidates]:
        """Each example with its candidates, their rows, and scores of every part and label."""
        scoring = Scoring(model)
        for group in in_groups(examples, self._candidates):
            scored = scoring.score([each for _, each in group])
            for (i, each), *rows_and_scores in zip(group, *scored, strict=True):
                yield i, each, *rows_and_scores

    def _choose(
        self, i: int, candidates: Candidates, gains: Floats, count: int, diversity: float
    ) -> list[int]:
        """The highest; then one by one the highest after a bonus for being different.

        The bonus is `diversity` times the difference from those already chosen, summed.
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
        """The model of a dual point, with all its rows computed anew."""
        return self._valued(point)[0]

    def primal(self, model: KernelModel, threads: Threads | None = None) -> float:
        """Objective of a model, by an oracle call for each example."""
        threads = threads or Threads(1)
        found = self.infer(model, np.arange(self.n_examples), threads)
        return model.half_square + float(self.C @ found.hinges)

    def dual(self, point: DualPoint) -> float:
        """Dual value of a feasible point, with its outputs and the kernel computed anew."""
        model, linear = self._valued(point)
        return linear - model.half_square

    def feasible(self, point: DualPoint) -> DualPoint:
        """The point, scaled down in examples where it exceeds their C."""
        return point.feasible(self.C)

    def _valued(self, point: DualPoint) -> tuple[KernelModel, float]:
        """The model, and the sum of coefficients times losses."""
        coef = point.feasible_coef(self.C)
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
        """Compare what was listed for a single output with its own `loss`, `part` and `label`.

        Raises
        ------
        ProblemError
            If the true output has a loss, or the two differ.
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
    def _given(self) -> Any:
        """The problem as the user wrote it."""
        return self.problem.problem if isinstance(self.problem, AdaptedProblem) else self.problem

    @property
    def _name(self) -> str:
        return type(self._given).__name__

    def _check_losses(self, i: int, losses: Floats) -> None:
        valid = np.isfinite(losses) & (losses >= 0.0)
        if not valid.all():
            raise ProblemError(
                f"loss of {type(self.problem).__name__} must be a finite number that is not "
                f"negative, but for example {i} it is {losses[~valid][0]}."
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
    return problem if isinstance(problem, ListsCandidates) else JointFeatures(problem)


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
    """A model of pairs of rows with factors, in which equal rows are merged."""
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

"""Latent variables: with ``h`` of true outputs imputed, a structural SVM over pairs ``(y, h)``."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.core.oracle_check import Candidate, OracleChecker
from maxmargin.core.problem import (
    InfersBatches,
    ListsOutputs,
    MakesOracle,
    ProblemError,
    called,
    is_exact,
)
from maxmargin.core.python_oracle import PythonOracle

_ROUNDING = 1e-9
"""Relative to the scores, how far rounding may make an imputation seem below another."""


class LatentProblem(ABC):
    """What is predicted, with a latent variable: write these six methods.

    Inputs ``x``, outputs ``y`` and latent variables ``h`` are any objects, weights ``w`` a
    read-only array of shape (n_features,). Inference returns pairs ``(y, h)``. A problem may also
    have ``outputs`` and ``cuts`` as a `Problem` has them, with pairs as outputs, and

    - ``loss_augmented_inference_wrong(x, y_true, w)``, as `loss_augmented_inference`, but only over
      pairs whose loss is positive: a tighter bound of the same objective, without which a start
      from latent variables that make little sense may end close to zero weights;
    - ``make_oracle(X, Y, C)``, a `LatentOracle` of its own, with compiled inference.

    See Also
    --------
    maxmargin.LatentStructuredSVM
    maxmargin.LatentClassifier : Which of several feature rows shows the class, ready made.

    Examples
    --------
    Two classes; one of the rows of an input shows which:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> class WhichRow(mm.LatentProblem):
    ...     def joint_feature(self, x, y, h):
    ...         return np.outer(np.arange(2) == y, x[h]).ravel()
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    ...     def inference(self, x, w):
    ...         return self._best(w.reshape(2, -1) @ x.T)
    ...     def loss_augmented_inference(self, x, y_true, w):
    ...         return self._best(w.reshape(2, -1) @ x.T + (np.arange(2) != y_true)[:, None])
    ...     def latent(self, x, y_true, w):
    ...         return int(np.argmax(x @ w.reshape(2, -1)[y_true]))
    ...     def init_latent(self, x, y_true, random):
    ...         return int(random.integers(len(x)))
    ...     def _best(self, scores):
    ...         y, h = np.unravel_index(scores.argmax(), scores.shape)
    ...         return int(y), int(h)
    >>> X = [np.array(x) for x in ([[3, 0], [0, 1]], [[0, 1], [2, 0]], [[0, 2], [0, 3]])]
    >>> model = mm.LatentStructuredSVM(WhichRow(), C=10.0).fit(X, [0, 0, 1])
    >>> model.predict(X)
    [0, 0, 1]
    >>> model.predict_latent(X)[:2]
    [(0, 0), (0, 1)]
    """

    @abstractmethod
    def joint_feature(self, x: Any, y: Any, h: Any) -> Any:
        """Joint features of an input, an output and a latent variable, as `Problem` has them."""

    @abstractmethod
    def loss(self, y_true: Any, y: Any) -> float:
        """Loss of `y` where `y_true` is right: zero for the true output, never negative."""

    @abstractmethod
    def inference(self, x: Any, w: Floats) -> tuple[Any, Any]:
        """The pair ``(y, h)`` with the highest score ``<w, joint_feature(x, y, h)>``."""

    @abstractmethod
    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> tuple[Any, Any]:
        """The pair ``(y, h)`` with the highest score plus ``loss(y_true, y)``."""

    @abstractmethod
    def latent(self, x: Any, y_true: Any, w: Floats) -> Any:
        """The latent variable ``h`` with the highest score, of those of the true output."""

    @abstractmethod
    def init_latent(self, x: Any, y_true: Any, random: np.random.Generator) -> Any:
        """A latent variable of the true output to begin with; every restart draws another."""


class LatentOracle(ABC):
    """Examples without their latent variables; with imputations for all of them, an `Oracle`."""

    @abstractmethod
    def init_latent(self, random: np.random.Generator) -> Any:
        """Imputations to start from."""

    def rehearsal(self) -> Oracle | None:
        """An easier problem over the same weights, to impute the first start by; or None."""
        return None

    @abstractmethod
    def impute(self, weights: Floats, before: Any, threads: Threads) -> Any:
        """Latent imputation: the best at `weights`, those `before` where they are as good."""

    @abstractmethod
    def imputed(self, imputations: Any) -> Oracle:
        """The convex problem that is left with these imputations."""

    @abstractmethod
    def changes(self, before: Any, after: Any) -> NDArray[np.bool_]:
        """Which examples' true outputs have other features with the imputations `after`."""


@runtime_checkable
class HasLatent(Protocol):
    """A problem that imputes latent variables, as `LatentProblem` does."""

    def latent(self, x: Any, y_true: Any, w: Floats, /) -> Any: ...


@runtime_checkable
class InfersWrongOnly(Protocol):
    """A latent problem with loss-augmented inference over pairs of wrong outputs only."""

    def loss_augmented_inference_wrong(self, x: Any, y_true: Any, w: Floats, /) -> Any: ...


class _Imputed:
    """A latent problem whose outputs are pairs: a `Problem`."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem
        self.wrong_only = isinstance(problem, InfersWrongOnly)
        self.exact = is_exact(problem)
        if isinstance(problem, ListsOutputs):
            self.outputs = problem.outputs
        if isinstance(problem, InfersBatches):
            self.cuts = problem.cuts

    def joint_feature(self, x: Any, output: tuple[Any, Any]) -> Any:
        return self.problem.joint_feature(x, *output)

    def loss(self, y_true: tuple[Any, Any], output: tuple[Any, Any]) -> Any:
        return self.problem.loss(y_true[0], output[0])

    def inference(self, x: Any, w: Floats) -> tuple[Any, Any]:
        return as_pair(self.problem.inference(x, w))

    def loss_augmented_inference(
        self, x: Any, y_true: tuple[Any, Any], w: Floats
    ) -> tuple[Any, Any]:
        if not self.wrong_only:
            return as_pair(self.problem.loss_augmented_inference(x, y_true[0], w))
        found = as_pair(self.problem.loss_augmented_inference_wrong(x, y_true[0], w))
        value, own = (self._value(x, y_true[0], pair, w) for pair in (found, y_true))
        return found if value > own else y_true

    def _value(self, x: Any, y_true: Any, pair: tuple[Any, Any], w: Floats) -> float:
        score = np.ravel(self.problem.joint_feature(x, *pair) @ w)[0]
        return float(score + self.problem.loss(y_true, pair[0]))


def as_pair(found: Any) -> tuple[Any, Any]:
    """A pair ``(y, h)``, checked, of what inference returned."""
    if not (isinstance(found, tuple) and len(found) == 2):
        raise TypeError(f"inference must return a pair (y, h), but it is {found!r:.80}.")
    return found


class ImputedOracle(PythonOracle):
    """Oracle of examples whose true outputs are pairs ``(y, h)``."""

    def outputs(self, i: int) -> list[tuple[Any, Any]]:
        listed = super().outputs(i)
        if not self.problem.wrong_only:
            return listed
        return [pair for pair in listed if self._loss(i, pair) > 0.0]  # the true one is added

    def is_candidate(self, candidate: Candidate) -> bool:
        return candidate.loss > 0.0 or not self.problem.wrong_only

    def true_scores(self, weights: Floats) -> Floats:
        """Scores of the true outputs with their imputations."""
        y_true = map(self._of_y_true, range(self.n_examples))
        return np.array([values @ weights[columns] for columns, values in y_true])


class PythonLatentOracle(LatentOracle):
    """Oracle of any `LatentProblem`, one call at a time; imputations are lists of ``h``."""

    def __init__(self, problem: Any, X: Sequence[Any], Y: Sequence[Any], C: Floats) -> None:
        self.problem, self.X, self.Y, self.C = problem, X, Y, C
        self.exact = is_exact(problem)
        self._checker: OracleChecker | None = None

    def init_latent(self, random: np.random.Generator) -> list[Any]:
        return self._ask("init_latent", random)

    def impute(self, weights: Floats, before: list[Any], threads: Threads) -> list[Any]:
        fixed = weights.view()
        fixed.flags.writeable = False
        found = self._ask("latent", fixed)
        scores = self.imputed(found).true_scores(weights)
        known = self.imputed(before).true_scores(weights)
        rounding = _ROUNDING * (1.0 + np.abs(known))
        bad = np.flatnonzero(scores < known - rounding)
        if len(bad) and self.exact:
            i = bad[0]
            raise ProblemError(
                f"latent of {type(self.problem).__name__} returned {found[i]!r:.80} for example "
                f"{i}, whose score is {known[i] - scores[i]:.3g} below that of {before[i]!r:.80}: "
                f"it must return the highest."
            )
        better = scores > known + rounding
        return [
            new if is_better else old
            for new, old, is_better in zip(found, before, better, strict=True)
        ]

    def imputed(self, imputations: list[Any]) -> ImputedOracle:
        # Named as the user's class, so that sentences about failures name it.
        named = type(type(self.problem).__name__, (_Imputed,), {})
        y_true = list(zip(self.Y, imputations, strict=True))
        oracle = ImputedOracle(named(self.problem), self.X, y_true, self.C)
        # One checker for the fit: however often it imputes, it warns once.
        self._checker = oracle.checker = self._checker or oracle.checker
        return oracle

    def changes(self, before: list[Any], after: list[Any]) -> NDArray[np.bool_]:
        # `impute` returns the same object unless another has a higher score.
        pairs = zip(before, after, strict=True)
        return np.array([old is not new for old, new in pairs], dtype=np.bool_)

    def _ask(self, method: str, last: Any) -> list[Any]:
        """Latent variables of all examples, by a method of the problem."""
        examples = enumerate(zip(self.X, self.Y, strict=True))
        return [called(self.problem, method, i, x, y_true, last) for i, (x, y_true) in examples]


def make_latent_oracle(problem: Any, X: Sequence[Any], Y: Sequence[Any], C: Floats) -> LatentOracle:
    """The oracle of a latent problem: its own, or the plain-Python one."""
    if isinstance(problem, MakesOracle):
        bound: LatentOracle = problem.make_oracle(X, Y, C)
        return bound
    return PythonLatentOracle(problem, X, Y, C)

"""Estimators that train on shards: in processes, or on the workers of a Dask cluster."""

import copy
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _clone_parametrized
from sklearn.utils._param_validation import HasMethods, StrOptions

from maxmargin.engines.choice import chosen_engine, make_engine
from maxmargin.estimators.base import n_threads
from maxmargin.estimators.streaming import Checked, Fixed, StreamedEstimator
from maxmargin.problems.shards import PartExamples, place
from maxmargin.problems.structured import ProblemError, TrainingSet
from maxmargin.solvers.distributed_names import ON_SHARDS, on_shards

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_NOT_THE_PROBLEM = {
    "engine", "n_jobs", "solver", "tol", "warm_start", "max_iter", "time_limit", "checkpoint",
    "checkpoint_every", "resume", "random_state",
}  # fmt: skip
"""Parameters that do not change what is minimised."""


ENGINES: list[Any] = [StrOptions({"threads", "processes", "dask"}), HasMethods("submit"), None]
"""What the parameter `engine` may be."""


class ShardedEstimator(StreamedEstimator):
    """For structured estimators that can leave the data in several places.

    Stands where `StreamedEstimator` would among the bases.
    """

    engine: Any = None

    def __sklearn_clone__(self) -> Self:
        # The connection to a cluster stays the same; it cannot be copied.
        bare = copy.copy(self)
        bare.engine = None
        clone: Self = _clone_parametrized(bare)
        clone.engine = self.engine
        return clone

    @property
    def _on_shards(self) -> bool:
        """Whether a fit is to run on shards: elsewhere, or because the solver wants them."""
        return chosen_engine(self.engine) != "threads" or isinstance(self.solver, ON_SHARDS)

    def _fit_shards(
        self, X: Any, y: Any, examples: Checked, sample_weight: ArrayLike | None
    ) -> Self:
        """Fit to examples in memory, dealt out to the shards.

        `X` and `y` are the same as in `examples`, one item or row for each.
        """
        n = examples.n_examples
        self._costs(n, sample_weight)  # which checks the weights
        weights = (
            None
            if sample_weight is None
            else np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), n)
        )
        fixed = self._fix(examples, None)
        classes: Any = fixed.get("classes_")
        before: Any = getattr(self, "classes_", classes)
        if not np.array_equal(before, classes):
            self._warm = None
        with make_engine(chosen_engine(self.engine), n_threads(self.n_jobs)) as engine:
            n_shards = min(len(engine.places), n)
            parts = []
            for shard in range(n_shards):
                own = np.arange(shard, n, n_shards)
                parts.append(
                    PartExamples(_taken(X, own), _taken(y, own), _taken(weights, own), own)
                )
            bind = partial(_bind_part, self._bare(), fixed)
            content = type(self).__name__, self._problem_parameters(), X, y, weights
            training = place(engine, parts, bind, n_shards, content)
            try:
                self._fit_placed(training, X, y, fixed)
            finally:
                training.shards.close()
        return self

    def _fit_placed(self, training: Any, X: Any, y: Any, fixed: Fixed) -> None:
        """Fit to shards that are in their places."""
        training.lists_point = self.warm_start
        start = getattr(self, "_warm", None) if self.warm_start else None
        if start is not None and start[0] != (training.n_blocks, training.n_features):
            start = None
        solve = partial(
            on_shards(self.solver).solve, training, start=None if start is None else start[1]
        )
        attributes = partial(self._attributes, fixed)
        self._learner = None
        try:
            result = self._train(X, y, solve, attributes)
        except ProblemError as error:
            if error.result is not None:
                self.__dict__.update(self._learned(error.result, attributes))
            raise
        shape = training.n_blocks, training.n_features
        self._warm = (shape, result.dual_point) if self.warm_start else None
        self._finish(X, fixed)
        self._warn_unless_converged(result, stacklevel=5)

    def _bare(self) -> Self:
        """The same estimator with nothing but the parameters that say what is minimised."""
        return type(self)(**self._problem_parameters())

    def _problem_parameters(self) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        return {name: value for name, value in parameters.items() if name not in _NOT_THE_PROBLEM}


def _bind_part(estimator: Any, fixed: Fixed, X: Any, y: Any, weight: Floats | None) -> TrainingSet:
    """Examples of a part as solvers see them."""
    examples = estimator._read(X, y, fixed)
    cost = np.full(examples.n_examples, float(estimator.C))
    if weight is not None:
        cost *= weight
    training: TrainingSet = estimator._bind(examples, cost, fixed)
    return training


def _taken(values: Any, numbers: Order) -> Any:
    """Some of the items, or rows."""
    if values is None:
        return None
    if sp.issparse(values):
        return sp.csr_array(values)[numbers]
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values[numbers]
    if hasattr(values, "iloc"):
        return values.iloc[numbers]
    return [values[number] for number in numbers]

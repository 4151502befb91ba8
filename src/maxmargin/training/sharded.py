"""Estimators that train on shards: in processes, or on the workers of a Dask cluster."""

import copy
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _clone_parametrized
from sklearn.utils._param_validation import HasMethods, StrOptions

from maxmargin.core.oracle import Oracle
from maxmargin.data.sources import Source
from maxmargin.estimators.base import estimator, n_threads, train_warm
from maxmargin.training.distributed_names import ON_SHARDS, on_shards
from maxmargin.training.engines import chosen_engine, make_engine
from maxmargin.training.partitions import (
    Partition,
    Survey,
    dealt_out,
    equally_wide,
    fingerprint_of,
    load_partition,
    partitions_of,
    surveyed,
    taken,
)
from maxmargin.training.sharded_oracle import shard_oracle
from maxmargin.training.streaming import Checked, Fixed, StreamedEstimator

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_NOT_THE_PROBLEM = {
    "engine", "n_jobs", "solver", "tol", "warm_start", "max_iter", "time_limit", "checkpoint",
    "random_state",
}  # fmt: skip
"""Parameters that do not change what is minimised."""


@estimator
class HasEngine:
    """For estimators with the parameter `engine`.

    Parameters
    ----------
    engine : {"threads", "processes", "dask"} or distributed.Client, default=None
        Where to train: in this process; in `n_jobs` processes, for inference in pure Python; on the
        workers of a Dask cluster. None takes what `maxmargin.engine` says, or else threads.
    """

    engine: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "engine": [StrOptions({"threads", "processes", "dask"}), HasMethods("submit"), None]
    }

    def __sklearn_clone__(self) -> Self:
        # The connection to a cluster stays the same; it cannot be copied.
        bare = copy.copy(self)
        bare.engine = None
        clone: Self = _clone_parametrized(bare)
        clone.engine = self.engine
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # Nor can it be written.
        own: Any = super().__getstate__()
        state = dict(own)  # which may be the estimator's own dictionary
        if "engine" in state and not isinstance(state["engine"], str):
            state["engine"] = None
        return state


class ShardedEstimator(HasEngine, StreamedEstimator):
    """For structured estimators that can leave the data in several places.

    Stands where `StreamedEstimator` would among the bases.
    """

    @property
    def _on_shards(self) -> bool:
        """Whether a fit is to run on shards: elsewhere, or because the solver wants them."""
        return chosen_engine(self.engine) != "threads" or isinstance(self.solver, ON_SHARDS)

    def _fit_source(self, source: Source, **others: Any) -> Self:
        # Those that can leave a source in parts ask before whether they are to.
        if self._on_shards:
            raise ValueError(
                f"{type(self).__name__} learns from a source in this process only: use "
                f"engine='threads', or give it the examples themselves."
            )
        return super()._fit_source(source, **others)

    def _fit_shards(
        self, X: Any, y: Any, examples: Checked, sample_weight: ArrayLike | None
    ) -> Self:
        """Fit to examples in memory, dealt out to the shards.

        `X` and `y` are the same as in `examples`, one item or row for each.
        """
        n, solver = examples.n_examples, on_shards(self.solver)
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
            n_shards = min(len(engine.workers), n)
            parts = dealt_out(X, y, weights, n, n_shards)
            make_oracle = partial(_make_partition_oracle, self._bare(), fixed)
            content = type(self).__name__, self._problem_parameters(), X, y, weights
            oracle = shard_oracle(engine, parts, make_oracle, n_shards, content)
            try:
                self._fit_placed(solver, oracle, X, y, fixed)
            finally:
                oracle.shards.close()
        self._finish(X, fixed)
        return self

    def _fit_source_shards(self, source: Source, **others: Any) -> Self:
        """Fit to all examples of a source, read where the shards are."""
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"A source gives all there is to the examples: leave {name} out.")
        solver = on_shards(self.solver)
        with make_engine(chosen_engine(self.engine), n_threads(self.n_jobs)) as engine:
            workers = engine.workers
            parts = equally_wide(engine, partitions_of(source, len(workers)))
            surveys = surveyed(engine, parts, partial(_survey_part, self._bare()))
            parts = [part for part, survey in zip(parts, surveys, strict=True) if survey.n_examples]
            surveys = [survey for survey in surveys if survey.n_examples]
            if not parts:
                raise ValueError("The source holds no examples: there is nothing to learn from.")
            fixed = self._fix_surveyed(surveys)
            make_oracle = partial(_make_partition_oracle, self._bare(), fixed)
            content = type(self).__name__, self._problem_parameters(), fingerprint_of(source)
            counts = [survey.n_examples for survey in surveys]
            n_shards = min(len(workers), len(parts))
            oracle = shard_oracle(engine, parts, make_oracle, n_shards, content, counts)
            try:
                self._fit_placed(solver, oracle, source, None, fixed)
            finally:
                oracle.shards.close()
        first: Any = surveys[0].first
        self._finish(first.X, fixed)
        return self

    def _survey_examples(self, X: Any, y: Any) -> Any:
        """What must be known of all examples before some of them can be bound."""
        return None

    def _fix_surveyed(self, surveys: list[Survey]) -> Fixed:
        """What the examples of all parts fix."""
        return {}

    def _fit_placed(self, solver: Any, oracle: Any, X: Any, y: Any, fixed: Fixed) -> None:
        """Fit to shards that are in their places."""
        oracle.lists_point = self.warm_start
        self._learner = None
        attributes = partial(self._attributes, fixed)
        result = train_warm(self, solver, oracle, oracle.shape, X, y, attributes)
        self._warn_unless_converged(result, X, stacklevel=5)

    def _bare(self) -> Self:
        """The same estimator with nothing but the parameters that shards must know."""
        kind: Any = type(self)
        bare: Self = kind(**self._problem_parameters(), tol=self.tol)
        return bare

    def _problem_parameters(self) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        return {name: value for name, value in parameters.items() if name not in _NOT_THE_PROBLEM}


def _survey_part(estimator: Any, part: Any) -> Survey:
    """What is found in a part, where it lies."""
    examples = load_partition(part)
    if not examples.n_examples:
        return Survey(0, None, None)
    first = Partition(taken(examples.X, _FIRST), taken(examples.y, _FIRST))
    found = estimator._survey_examples(examples.X, examples.y)
    return Survey(examples.n_examples, found, first)


_FIRST = np.zeros(1, dtype=np.int64)


def _make_partition_oracle(
    estimator: Any, fixed: Fixed, X: Any, y: Any, weight: Floats | None
) -> Oracle:
    """Examples of a part as solvers see them."""
    examples = estimator._read(X, y, fixed)
    C = np.full(examples.n_examples, float(estimator.C))
    if weight is not None:
        C *= weight
    oracle: Oracle = estimator._make_oracle(examples, C, fixed)
    return oracle

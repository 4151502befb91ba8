"""Fits on shards: examples dealt out to workers, or read where the workers are."""

from dataclasses import fields
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import costs
from maxmargin.core.oracle import Oracle, n_threads
from maxmargin.data.sources import Source
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.cutting_plane import OneSlack
from maxmargin.solvers.structured import StructuredSolver
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import Engine, make_engine
from maxmargin.training.fit import (
    Encoded,
    EngineHooks,
    Metadata,
    chosen_engine,
    forget_other_classes,
)
from maxmargin.training.partitions import (
    Partition,
    Survey,
    dealt_out,
    fingerprint_of,
    load_partition,
    partitions_of,
    taken,
)
from maxmargin.training.shards import equally_wide, shard_oracle, surveyed


@runtime_checkable
class PartitionHooks(Protocol):
    """More hooks of an estimator that can learn from partitions on workers."""

    def _survey_partition(self, X: Any, y: Any, /) -> Any:
        """What must be known of all examples before some can be encoded."""

    def _metadata_of(self, surveys: list[Survey], /) -> Metadata:
        """What the examples of all partitions fix."""


_NOT_THE_PROBLEM = {
    "engine", "n_jobs", "solver", "tol", "warm_start", "max_iter", "time_limit", "checkpoint",
    "random_state",
}  # fmt: skip
"""Parameters that do not change what is minimised."""


def distributed(solver: Any) -> StructuredSolver:
    """The solver for shards that does the same."""
    if isinstance(solver, StructuredSolver) and solver.on_shards:
        return solver
    if solver == "auto":
        return DistributedDual()
    if solver == "one-slack":
        return DistributedOneSlack()
    if type(solver) is OneSlack:
        return DistributedOneSlack(**{f.name: getattr(solver, f.name) for f in fields(solver)})
    if isinstance(solver, Auto):
        return DistributedDual(local=solver)
    name = repr(solver) if isinstance(solver, str) else type(solver).__name__
    raise ValueError(
        f"The solver {name} needs all data in one process: on this engine use 'auto', 'one-slack', "
        f"DistributedDual or OneSlack."
    )


def fit_examples_on_shards(
    estimator: EngineHooks, X: Any, y: Any, examples: Encoded, sample_weight: ArrayLike | None
) -> None:
    """Fit to examples in memory, dealt out to shards."""
    n = examples.n_examples
    costs(estimator, n, sample_weight)  # which checks the weights
    weights = None
    if sample_weight is not None:
        weights = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), n)
    metadata = estimator._metadata(examples, None)
    forget_other_classes(estimator, metadata)
    with make_engine(chosen_engine(estimator.engine), n_threads(estimator.n_jobs)) as engine:
        n_shards = min(len(engine.workers), n)
        partitions = dealt_out(X, y, weights, n, n_shards)
        _fit_partitions(estimator, engine, partitions, metadata, (X, y, weights), X, y)
    estimator._finish(X, metadata)


def fit_source_on_shards(estimator: Any, source: Source) -> None:
    """Fit to all examples of a source, read where the shards are."""
    hooks: Any = estimator
    if not isinstance(hooks, PartitionHooks):
        raise ValueError(
            f"{type(estimator).__name__} learns from a source in this process only: use "
            f"engine='threads', or give it the examples themselves."
        )
    with make_engine(chosen_engine(estimator.engine), n_threads(estimator.n_jobs)) as engine:
        partitions = partitions_of(source, len(engine.workers))
        if not estimator._widens:
            partitions = equally_wide(engine, partitions)
        surveys = surveyed(engine, partitions, partial(survey_partition, _bare(estimator)))
        found = [(p, s) for p, s in zip(partitions, surveys, strict=True) if s.n_examples]
        if not found:
            raise ValueError("The source holds no examples: there is nothing to learn from.")
        partitions, surveys = map(list, zip(*found, strict=True))
        metadata = estimator._metadata_of(surveys)
        content = (fingerprint_of(source),)
        _fit_partitions(estimator, engine, partitions, metadata, content, source, None)
    first = surveys[0].first
    assert first is not None
    estimator._finish(first.X, metadata)


def _fit_partitions(
    estimator: EngineHooks,
    engine: Engine,
    partitions: list[Any],
    metadata: Metadata,
    data: tuple[Any, ...],
    X: Any,
    y: Any,
) -> None:
    """Fit to partitions, which `data` identifies."""
    solver = distributed(estimator.solver)
    make_oracle = partial(partition_oracle, _bare(estimator), metadata)
    content = type(estimator).__name__, _problem_parameters(estimator), *data
    n_shards = min(len(engine.workers), len(partitions))
    oracle = shard_oracle(engine, partitions, make_oracle, n_shards, content)
    try:
        oracle.lists_point = estimator.warm_start
        estimator._online = None
        estimator._solve(solver, oracle, X, y, metadata)
    finally:
        oracle.shards.close()


def _problem_parameters(estimator: EngineHooks) -> dict[str, Any]:
    parameters = estimator.get_params(deep=False)
    return {name: value for name, value in parameters.items() if name not in _NOT_THE_PROBLEM}


def _bare(estimator: EngineHooks) -> Any:
    """The estimator with only the parameters that shards must know."""
    kind: Any = type(estimator)
    return kind(**_problem_parameters(estimator), tol=estimator.tol)


def survey_partition(estimator: Any, partition: Any) -> Survey:
    """Survey a partition, called where it lies."""
    examples = load_partition(partition)
    if not examples.n_examples:
        return Survey(0, None, None)
    zero = np.zeros(1, dtype=np.int64)
    first = Partition(taken(examples.X, zero), taken(examples.y, zero))
    return Survey(examples.n_examples, estimator._survey_partition(examples.X, examples.y), first)


def partition_oracle(
    estimator: Any, metadata: Metadata, X: Any, y: Any, weight: Floats | None
) -> Oracle:
    """The oracle of a partition's examples, called where it lies."""
    examples = estimator._encode(X, y, metadata)
    C = np.full(examples.n_examples, float(estimator.C))
    if weight is not None:
        C *= weight
    oracle: Oracle = estimator._oracle(examples, C, metadata)
    return oracle

"""Where a fit runs, and from what: memory, a source, batches as they come, or workers.

An estimator says by its hooks how its examples are encoded, what they fix, what their oracle is and
what weights mean. The functions here do the rest, and are the same for all estimators.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.inputs import all_classes
from maxmargin.core.oracle import Oracle
from maxmargin.core.result import Result, Status, Stopping
from maxmargin.core.threads import Threads, n_threads
from maxmargin.data.sources import Examples, Source
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.cutting_plane import OneSlack
from maxmargin.solvers.names import make_solver
from maxmargin.solvers.online import InMemory, Online, StreamRun
from maxmargin.solvers.structured import StructuredSolver
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import Engine, chosen_engine, make_engine
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
from maxmargin.training.streams import SourceStream, read_batches

Floats = NDArray[np.float64]

Metadata = dict[str, Any]
"""Fitted attributes that do not depend on the weights: the examples fix them before training."""


class Encoded(NamedTuple):
    """Examples that were checked, in the form that the estimator works with."""

    X: Any
    y: Any
    n_examples: int
    extra: Any = None


class Hooks(Protocol):
    """What an estimator says of its examples."""

    C: float
    tol: Any
    solver: Any
    n_jobs: int | None
    warm_start: bool
    _online: Any

    def _encode(self, X: Any, y: Any, metadata: Metadata | None, /) -> Encoded:
        """Examples, checked; also against the metadata, unless they are the first."""

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None, /) -> Metadata:
        """What the first examples fix; the classes are those of the examples if None."""

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata, /) -> Oracle:
        """The oracle of encoded examples, each with its own C."""

    def _fitted(self, metadata: Metadata, weights: Floats, /) -> dict[str, Any]:
        """Fitted attributes that hold the model."""

    def _finish(self, X: Any, metadata: Metadata, /) -> None:
        """Set what `_fitted` cannot, such as names of features; called after every fit."""

    def _survey(self, source: Source, /) -> Metadata:
        """What all examples of a source fix."""

    def _solve(self, solver: Any, oracle: Any, X: Any, y: Any, metadata: Metadata, /) -> None:
        """Train with a solver, from the dual solution of the fit before if that is asked for."""

    # Of every estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _costs(self, n_samples: int, sample_weight: ArrayLike | None, /) -> Floats: ...

    def _train(
        self, X: Any, y: Any, solve: Any, attributes: Callable[[Floats], dict[str, Any]], /
    ) -> Result: ...

    def _warn_unless_converged(self, result: Result, X: Any, /) -> None: ...

    def _refuse_checkpoint(self) -> None: ...


@runtime_checkable
class PartitionHooks(Protocol):
    """What more an estimator says that can learn from a source whose partitions stay on workers."""

    def _survey_partition(self, X: Any, y: Any, /) -> Any:
        """What must be known of all examples before some of them can be encoded."""

    def _metadata_of(self, surveys: list[Survey], /) -> Metadata:
        """What the examples of all partitions fix."""


class EngineHooks(Hooks, Protocol):
    """Hooks of an estimator with the parameter `engine`."""

    engine: Any


class OnlineFit(NamedTuple):
    """What `partial_fit` keeps between two calls."""

    run: StreamRun
    metadata: Metadata


def fit_examples(
    estimator: EngineHooks, X: Any, y: Any, examples: Encoded, sample_weight: ArrayLike | None
) -> None:
    """Fit to examples in memory, here or dealt out to shards.

    `X` and `y` are the examples before they were encoded, one item or row for each.
    """
    if runs_on_shards(estimator):
        fit_examples_on_shards(estimator, X, y, examples, sample_weight)
    else:
        fit_in_memory(estimator, X, y, examples, sample_weight)


def fit_in_memory(
    estimator: Hooks, X: Any, y: Any, examples: Encoded, sample_weight: ArrayLike | None
) -> None:
    """Fit to examples in this process."""
    oracle, metadata = start_fit(estimator, examples, sample_weight)
    estimator._solve(make_solver(estimator.solver), oracle, X, y, metadata)
    estimator._finish(X, metadata)


def start_fit(
    estimator: Hooks, examples: Encoded, sample_weight: ArrayLike | None
) -> tuple[Oracle, Metadata]:
    """The oracle that a `fit` trains with, and what its examples fix.

    Calls of `partial_fit` before are forgotten, and so is a start with other classes.
    """
    C = estimator._costs(examples.n_examples, sample_weight)
    metadata = estimator._metadata(examples, None)
    oracle = estimator._oracle(examples, C, metadata)
    _forget_other_classes(estimator, metadata)
    estimator._online = None
    return oracle, metadata


def _forget_other_classes(estimator: Any, metadata: Metadata) -> None:
    """Do not start from the dual solution of a fit with other classes."""
    classes = metadata.get("classes_")
    if not np.array_equal(getattr(estimator, "classes_", classes), classes):  # type: ignore[arg-type]
        estimator._warm = None


def fit_source(estimator: Hooks, source: Source, **others: Any) -> None:
    """Fit to all examples of a source, in as many passes as are needed, or on shards.

    `others` are arguments of `fit` that go with examples in memory only.
    """
    refuse_with_source(**others)
    if runs_on_shards(estimator):
        if not isinstance(estimator, PartitionHooks):
            raise ValueError(
                f"{type(estimator).__name__} learns from a source in this process only: use "
                f"engine='threads', or give it the examples themselves."
            )
        fit_source_on_shards(estimator, source)
        return
    metadata = estimator._survey(source)

    def make_oracle(X: Any, y: Any, C: Floats) -> Oracle:
        return estimator._oracle(estimator._encode(X, y, metadata), C, metadata)

    stream = SourceStream(source, make_oracle, float(estimator.C))
    estimator._online = None
    solve = partial(online_solver(estimator).solve, stream)
    result = estimator._train(source, None, solve, partial(estimator._fitted, metadata))
    first = first_examples(source).X
    estimator._finish(first, metadata)
    estimator._warn_unless_converged(result, first)


def refuse_with_source(**others: Any) -> None:
    """Refuse arguments of `fit` that go with examples in memory only."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"A source gives all there is to the examples: leave {name} out.")


def survey_classes(
    estimator: Hooks, source: Source, classes: NDArray[Any] | None = None
) -> Metadata:
    """What a source fixes by its first examples and all its classes, found by a pass."""
    classes = source.classes() if classes is None else classes
    return estimator._metadata(estimator._encode(*first_examples(source), None), classes)


def first_examples(source: Source) -> Examples:
    """The first batch that is not empty."""
    return next(read_batches(source)).examples


def online_solver(estimator: Hooks) -> Online:
    """The solver for sources and for `partial_fit`."""
    return estimator.solver if isinstance(estimator.solver, Online) else Online()


def partial_fit(
    estimator: Hooks,
    X: Any,
    y: Any,
    examples: Encoded,
    sample_weight: ArrayLike | None,
    classes: NDArray[Any] | None = None,
) -> None:
    """Learn from a batch of examples, which are not kept, only cutting planes of the hard ones.

    The first call starts anew; so does the first after `fit`.
    """
    estimator._refuse_checkpoint()
    C = estimator._costs(examples.n_examples, sample_weight)
    metadata = known_metadata(estimator) or estimator._metadata(examples, classes)
    oracle = estimator._oracle(examples, C, metadata)
    explore = partial(_explore, estimator, metadata, oracle)
    estimator._train(X, y, explore, partial(estimator._fitted, metadata))
    estimator._finish(X, metadata)


def known_metadata(estimator: Hooks) -> Metadata | None:
    """What the calls of `partial_fit` before have fixed; None if there was none."""
    return None if estimator._online is None else estimator._online.metadata


def partial_fit_classes(estimator: Any, classes: ArrayLike | None) -> NDArray[Any]:
    """Classes of a call of `partial_fit`; those of a `fit` before count if none are given."""
    known = known_metadata(estimator)
    if known is not None:
        return all_classes(classes, known["classes_"])
    return all_classes(getattr(estimator, "classes_", None) if classes is None else classes, None)


def _explore(
    estimator: Hooks,
    metadata: Metadata,
    oracle: Oracle,
    *,
    stopping: Stopping,
    n_jobs: int,
    seed: int,
    on_iteration: Any,
    checkpoint: Any = None,
) -> Result:
    """One pass over new examples, with the cached cutting planes of the calls before."""
    solver = online_solver(estimator)
    with Threads(n_jobs) as threads:
        if estimator._online is None:
            run = solver.start(oracle, stopping, threads, seed, comes_back=False)
        else:
            run = estimator._online.run
        if oracle.n_features != len(run.weights):
            raise ValueError(
                f"These examples have {oracle.n_features} joint features, but those of the "
                f"calls before had {len(run.weights)}: the features must be the same for all."
            )
        run.attach(InMemory(oracle, run.seen, run.checker), stopping, threads)
        run.options, run.cache.max_bytes = solver, solver.cache_bytes
        estimator._online = OnlineFit(run, metadata)
        seen = run.estimate if run.history else 0.0
        status = Status.MAX_ITER
        try:
            solver.explore(run)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        finally:
            run.settle()
            run.cache.recount(run.weights)
        run.estimate = seen + run.hinges  # those of the calls before are gone
        run.heed_checker()
        certificate = run.look()
        run.best_dual = max(run.best_dual, run.dual)
        run.history.append(run.as_iteration())
        enough = stopping.is_enough(certificate.primal, certificate.dual)
        if on_iteration is not None and on_iteration(run.history[-1], run.weights.copy):
            status = Status.STOPPED
        elif status is Status.MAX_ITER and enough:
            status = Status.CONVERGED
        run.detach()
    history = list(run.history)
    return Result(run.weights.copy(), None, certificate, status, len(history), history)


# On shards

_NOT_THE_PROBLEM = {
    "engine", "n_jobs", "solver", "tol", "warm_start", "max_iter", "time_limit", "checkpoint",
    "random_state",
}  # fmt: skip
"""Parameters that do not change what is minimised."""


DISTRIBUTED = (DistributedDual, DistributedOneSlack)
"""Solvers that train on shards."""


def distributed(solver: Any) -> StructuredSolver:
    """The solver for shards that does the same, or as it is if it is one."""
    if isinstance(solver, DISTRIBUTED):
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


def runs_on_shards(estimator: Any) -> bool:
    """Whether a fit is to run on shards: on another engine, or because the solver wants them."""
    elsewhere = chosen_engine(estimator.engine) != "threads"
    return elsewhere or isinstance(estimator.solver, DISTRIBUTED)


def fit_examples_on_shards(
    estimator: EngineHooks, X: Any, y: Any, examples: Encoded, sample_weight: ArrayLike | None
) -> None:
    """Fit to examples in memory, dealt out to shards."""
    n = examples.n_examples
    estimator._costs(n, sample_weight)  # which checks the weights
    weights = None
    if sample_weight is not None:
        weights = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), n)
    metadata = estimator._metadata(examples, None)
    _forget_other_classes(estimator, metadata)
    with make_engine(chosen_engine(estimator.engine), n_threads(estimator.n_jobs)) as engine:
        n_shards = min(len(engine.workers), n)
        partitions = dealt_out(X, y, weights, n, n_shards)
        _fit_partitions(estimator, engine, partitions, metadata, (X, y, weights), X, y)
    estimator._finish(X, metadata)


def fit_source_on_shards(estimator: Any, source: Source) -> None:
    """Fit to all examples of a source, read where the shards are."""
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
        counts = [survey.n_examples for survey in surveys]
        content = (fingerprint_of(source),)
        _fit_partitions(estimator, engine, partitions, metadata, content, source, None, counts)
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
    counts: list[int] | None = None,
) -> None:
    """Fit to partitions; `data` tells them from others, `counts` are their numbers of examples."""
    solver = distributed(estimator.solver)
    make_oracle = partial(partition_oracle, _bare(estimator), metadata)
    content = type(estimator).__name__, _problem_parameters(estimator), *data
    n_shards = min(len(engine.workers), len(partitions))
    oracle = shard_oracle(engine, partitions, make_oracle, n_shards, content, counts)
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
    """The same estimator with nothing but the parameters that shards must know."""
    kind: Any = type(estimator)
    return kind(**_problem_parameters(estimator), tol=estimator.tol)


def survey_partition(estimator: Any, partition: Any) -> Survey:
    """What is found in a partition, called where it lies."""
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

"""How a fit is made: from memory, from a source, from batches as they come, or on workers.

The hooks of an estimator say how examples are encoded, what they fix, what their oracle is and what
weights mean; all else is here, the same for all estimators.
"""

import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.callback import with_callbacks
from sklearn.utils import check_random_state

import maxmargin
from maxmargin.core.arrays import PIECE_BYTES, Floats, SampledHash
from maxmargin.core.inputs import all_classes, costs
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.core.problem import ProblemError
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.data.sources import Examples, Source, read_batches
from maxmargin.io.checkpoint import Checkpoint
from maxmargin.solvers.loop import Stopping

if TYPE_CHECKING:  # a process imports the solver that it uses, not all
    from maxmargin.solvers.online import Online, StreamRun
    from maxmargin.solvers.structured import StructuredSolver

Fitted = TypeVar("Fitted")

SOLVERS = {
    "auto": "Auto",
    "dual-coordinate": "DualCoordinate",
    "exponentiated-gradient": "ExponentiatedGradient",
    "frank-wolfe": "FrankWolfe",
    "n-slack": "NSlack",
    "one-slack": "OneSlack",
    "online": "Online",
    "partial-linearization": "PartialLinearization",
}
"""Public names of the solvers that `solver` may name."""


def make_solver(solver: Any) -> "StructuredSolver":
    """A solver object from its name, or as it is."""
    made: StructuredSolver = (
        getattr(maxmargin, SOLVERS[solver])() if isinstance(solver, str) else solver
    )
    return made


Metadata = dict[str, Any]
"""Fitted attributes that the examples fix before training."""


Attributes = Callable[[Floats], dict[str, Any]]
"""What weights mean: fitted attributes by name."""


class Encoded(NamedTuple):
    """Checked examples in the form that the estimator works with."""

    X: Any
    y: Any
    n_examples: int
    extra: Any = None


class Hooks(Protocol):
    """What an estimator says of its examples."""

    C: float
    tol: Any
    solver: Any
    max_iter: int
    time_limit: float | None
    checkpoint: str | os.PathLike[str] | Checkpoint | None
    n_jobs: int | None
    random_state: Any
    warm_start: bool
    _online: Any

    def _encode(self, X: Any, y: Any, metadata: Metadata | None, /) -> Encoded:
        """Examples, checked; also against the metadata, unless they are the first."""

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None, /) -> Metadata:
        """What the first examples fix; classes of None are those of the examples."""

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata, /) -> Oracle:
        """The oracle of encoded examples, each with its own C."""

    def _fitted(self, metadata: Metadata, weights: Floats, /) -> dict[str, Any]:
        """Fitted attributes that hold the model."""

    def _finish(self, X: Any, metadata: Metadata, /) -> None:
        """Set what `_fitted` cannot, such as feature names; called after every fit."""

    def _survey(self, source: Source, /) -> Metadata:
        """What all examples of a source fix."""

    def _solve(self, solver: Any, oracle: Any, X: Any, y: Any, metadata: Metadata, /) -> None:
        """Train with a solver, from the dual solution of the last fit if that is asked for."""

    # Of every estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _learned(self, result: Result, attributes: Attributes, /) -> dict[str, Any]: ...

    def _warn_unless_converged(self, result: Result, X: Any, /) -> None: ...


class EngineHooks(Hooks, Protocol):
    """Hooks of an estimator with the parameter `engine`."""

    engine: Any


class OnlineFit(NamedTuple):
    """What `partial_fit` keeps between two calls."""

    run: "StreamRun"
    metadata: Metadata


def fit_examples(
    estimator: Fitted, X: Any, y: Any, sample_weight: ArrayLike | None = None, **others: Any
) -> Fitted:
    """Fit to examples or a source of them; `others` are further arguments of `_encode`."""
    hooks: Any = estimator
    if isinstance(X, Source):
        fit_source(hooks, X, y=y, sample_weight=sample_weight, **others)
        return estimator
    examples = hooks._encode(X, y, None, **others)
    inputs, outputs = hooks._items(X, y, examples, **others)
    if runs_on_shards(hooks):
        from maxmargin.training.workers import fit_examples_on_shards

        fit_examples_on_shards(hooks, inputs, outputs, examples, sample_weight)
    else:
        oracle, metadata = oracle_of(hooks, examples, sample_weight)
        del examples  # labels as text take more memory than as numbers
        fit_oracle(hooks, inputs, outputs, oracle, metadata)
    hooks._check_names(X, reset=True)
    return estimator


def oracle_of(
    estimator: Hooks, examples: Encoded, sample_weight: ArrayLike | None
) -> tuple[Oracle, Metadata]:
    """The oracle of examples, and what they fix."""
    C = costs(estimator, examples.n_examples, sample_weight)
    metadata = estimator._metadata(examples, None)
    return estimator._oracle(examples, C, metadata), metadata


def fit_oracle(estimator: Hooks, X: Any, y: Any, oracle: Oracle, metadata: Metadata) -> None:
    """Fit in this process to an oracle's examples; `X` and `y` are as before encoding."""
    forget_other_classes(estimator, metadata)
    estimator._online = None
    estimator._solve(make_solver(estimator.solver), oracle, X, y, metadata)
    estimator._finish(X, metadata)


def forget_other_classes(estimator: Any, metadata: Metadata) -> None:
    """Forget the dual solution of a fit with other classes."""
    classes = metadata.get("classes_")
    if not np.array_equal(getattr(estimator, "classes_", classes), classes):  # type: ignore[arg-type]
        estimator._warm = None


def train_as_hooked(
    estimator: Hooks, solver: Any, oracle: Any, X: Any, y: Any, metadata: Metadata
) -> None:
    """Train, with `_fitted` saying what weights mean; the usual hook `_solve`."""
    train_oracle(estimator, solver, oracle, X, y, partial(estimator._fitted, metadata))


def train_oracle(
    estimator: Any,
    solver: Any,
    oracle: Any,
    X: Any,
    y: Any,
    attributes: Attributes,
    shape: Hashable = None,
) -> None:
    """Train; `warm_start` begins where the last fit of the same shape ended."""
    warm = estimator.warm_start
    shape = (shape or oracle.shape) if warm else None
    known, point = (warm and getattr(estimator, "_warm", None)) or (None, None)
    solve = partial(solver.solve, oracle, start=point if known == shape else None)
    result = train(estimator, X, y, solve, attributes)
    estimator._warm = (shape, result.dual_point) if warm else None
    estimator._warn_unless_converged(result, X)


@with_callbacks
def train(
    estimator: Any,
    X: Any,
    y: Any,
    solve: Callable[..., Result],
    attributes: Attributes,
    cancelled: threading.Event | None = None,
) -> Result:
    """Solve, with callbacks, and set what was learned; if that fails, the estimator stays.

    `solve` takes `stopping`, `n_jobs`, `seed`, `on_iteration` and perhaps `checkpoint`.
    """
    if estimator.n_jobs == 0:
        raise ValueError("n_jobs is 0: use 1 for one thread, or -1 for one per core.")
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
    cancelled = cancelled or threading.Event()
    on_iteration = _calls_back(estimator, X, y, attributes)
    patient: Any = nullcontext()
    kept: dict[str, Checkpoint] = {}
    if estimator.checkpoint is not None:
        patient = first_interrupt_sets(cancelled)
        kept["checkpoint"] = Checkpoint.of(estimator.checkpoint)
    try:
        with patient:
            result = solve(
                stopping=Stopping.within(
                    estimator.tol, estimator.max_iter, estimator.time_limit, cancelled
                ),
                n_jobs=estimator.n_jobs,
                seed=seed_of(estimator.random_state),
                on_iteration=on_iteration,
                **kept,
            )
    except ProblemError as error:
        if error.result is not None:
            estimator.__dict__.update(estimator._learned(error.result, attributes))
        raise
    fitted = estimator._learned(result, attributes) | {"_data_fingerprint": _fingerprint(X, y)}
    estimator.__dict__.update(fitted)
    context.call_on_fit_task_end(
        estimator=estimator, X=X, y=y, reconstruction_attributes=lambda: fitted
    )
    return result


def seed_of(random_state: Any) -> int:
    """Seed of a solve, from the parameter `random_state`."""
    if type(random_state) is int:
        return _seed_of_number(random_state)
    return int(check_random_state(random_state).randint(2**31))


@lru_cache
def _seed_of_number(random_state: int) -> int:
    """A generator takes longer to make than a short fit's labels to check."""
    return int(check_random_state(random_state).randint(2**31))


def _calls_back(
    estimator: Any, X: Any, y: Any, attributes: Attributes
) -> Callable[[Iteration, Callable[[], Floats]], bool] | None:
    if not getattr(estimator, "_skl_callbacks", None):
        return None
    fit_context = estimator._callback_fit_ctx

    def on_iteration(line: Iteration, weights: Callable[[], Floats]) -> bool:
        arguments = {
            "estimator": estimator,
            "X": X,
            "y": y,
            "reconstruction_attributes": lambda: attributes(weights()),
        }
        context = fit_context.subcontext(task_name="iteration")
        # Not as metadata, which scikit-learn's ScoringMonitor hands to the scorers.
        context.iteration = line
        context.call_on_fit_task_begin(**arguments)
        return bool(context.call_on_fit_task_end(**arguments))

    return on_iteration


@contextmanager
def first_interrupt_sets(cancelled: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C set `cancelled`, to complete the iteration; the second raises."""
    usual = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def cancel(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        cancelled.set()

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _fingerprint(X: Any, y: Any) -> str:
    """A name for the data, from some of it, which a model keeps."""
    return _DataHash("X and y", X, y).text()


class _DataHash(SampledHash):
    """A hash of smaller pieces, which a fit of milliseconds can afford."""

    piece_bytes = PIECE_BYTES // 4


def fit_source(estimator: EngineHooks, source: Source, **others: Any) -> None:
    """Fit to all examples of a source; `others` are arguments for examples in memory only."""
    refuse_with_source(**others)
    if runs_on_shards(estimator):
        from maxmargin.training.workers import fit_source_on_shards

        fit_source_on_shards(estimator, source)
        return
    from maxmargin.training.streams import SourceStream

    metadata = estimator._survey(source)

    def make_oracle(X: Any, y: Any, C: Floats) -> Oracle:
        return estimator._oracle(estimator._encode(X, y, metadata), C, metadata)

    stream = SourceStream(source, make_oracle, float(estimator.C))
    estimator._online = None
    solve = partial(online_solver(estimator).solve, stream)
    result = train(estimator, source, None, solve, partial(estimator._fitted, metadata))
    first = first_examples(source).X
    estimator._finish(first, metadata)
    estimator._warn_unless_converged(result, first)


def refuse_with_source(**others: Any) -> None:
    """Refuse arguments of `fit` for examples in memory only."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"A source gives all there is to the examples: leave {name} out.")


def survey_classes(
    estimator: Hooks, source: Source, classes: NDArray[Any] | None = None
) -> Metadata:
    """What the first examples of a source and all its classes fix."""
    classes = source.classes() if classes is None else classes
    return estimator._metadata(estimator._encode(*first_examples(source), None), classes)


def first_examples(source: Source) -> Examples:
    """The first batch that is not empty."""
    return next(read_batches(source)).examples


def online_solver(estimator: Hooks) -> "Online":
    """The solver for sources and for `partial_fit`."""
    from maxmargin.solvers.online import Online

    return estimator.solver if isinstance(estimator.solver, Online) else Online()


def partial_fit(
    estimator: Hooks,
    X: Any,
    y: Any,
    examples: Encoded,
    sample_weight: ArrayLike | None,
    classes: NDArray[Any] | None = None,
) -> None:
    """Learn from a batch, of which only the cuts of hard examples are kept."""
    refuse_checkpoint(estimator)
    C = costs(estimator, examples.n_examples, sample_weight)
    metadata = known_metadata(estimator) or estimator._metadata(examples, classes)
    oracle = estimator._oracle(examples, C, metadata)
    explore = partial(_explore, estimator, metadata, oracle)
    train(estimator, X, y, explore, partial(estimator._fitted, metadata))
    estimator._finish(X, metadata)


def refuse_checkpoint(estimator: Hooks) -> None:
    """Refuse it for `partial_fit`, whose calls end before there would be one."""
    if estimator.checkpoint is not None:
        raise ValueError(
            "partial_fit keeps no checkpoint: leave checkpoint out, and save the model between "
            "two calls."
        )


def known_metadata(estimator: Hooks) -> Metadata | None:
    """What earlier calls of `partial_fit` have fixed; None if there were none."""
    return None if estimator._online is None else estimator._online.metadata


def partial_fit_classes(estimator: Any, classes: ArrayLike | None) -> NDArray[Any]:
    """Classes of a `partial_fit`; those of an earlier `fit` if none are given."""
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
    n_jobs: int | None,
    seed: int,
    on_iteration: Any,
    checkpoint: Any = None,
) -> Result:
    """One pass over new examples, with the cached constraints of earlier calls."""
    from maxmargin.solvers.online import InMemory

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


# Where a fit runs

ENGINES = ("threads", "processes", "dask")

_CURRENT: ContextVar[Any] = ContextVar("engine", default="threads")


@contextmanager
def engine(kind: Any) -> Iterator[None]:
    """Let fits within run on another engine, unless their own parameter `engine` says otherwise.

    Parameters
    ----------
    kind : {"threads", "processes", "dask"} or distributed.Client
        Threads of this process; processes of this machine, for inference in pure Python; the
        workers of the present Dask client, or of the one given.

    Yields
    ------
    None
        Afterwards the engine is what it was before.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> with mm.engine("threads"):
    ...     model = mm.SequenceTagger().fit([np.eye(2)], [["a", "b"]])
    >>> model.status_
    'converged'
    """
    check_engine(kind)
    token = _CURRENT.set(kind)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def runs_on_shards(estimator: EngineHooks) -> bool:
    """Whether the engine or the solver asks for shards."""
    elsewhere = chosen_engine(estimator.engine) != "threads"
    return elsewhere or getattr(estimator.solver, "on_shards", False)


def chosen_engine(parameter: Any) -> Any:
    """The parameter, or the engine of the context if it is None."""
    return check_engine(_CURRENT.get() if parameter is None else parameter)


def check_engine(kind: Any) -> Any:
    """Refuse an engine that does not exist."""
    is_client = hasattr(kind, "scheduler_info") and hasattr(kind, "submit")
    if kind in ENGINES if isinstance(kind, str) else is_client:
        return kind
    raise ValueError(
        f"engine must be 'threads', 'processes', 'dask' or a distributed.Client, but is {kind!r}."
    )

"""Which engine a fit runs on: its parameter says so, or the context."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from maxmargin.engines.base import Engine, EngineError
from maxmargin.engines.dask_cluster import DaskEngine
from maxmargin.engines.local import ProcessEngine, ThreadEngine

ENGINES = ("threads", "processes", "dask")

_CURRENT: ContextVar[Any] = ContextVar("engine", default="threads")


@contextmanager
def engine(kind: Any) -> Iterator[None]:
    """Let fits within run on another engine; their own parameter `engine` still counts more.

    Parameters
    ----------
    kind : {"threads", "processes", "dask"} or distributed.Client
        Threads of this process; processes of this machine, for searches in pure Python; the workers
        of the present Dask client, or of the one given.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> from maxmargin.engines.choice import engine
    >>> with engine("threads"):
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


def chosen_engine(parameter: Any) -> Any:
    """What to run on: the parameter, or what the context says if it is None."""
    return check_engine(_CURRENT.get() if parameter is None else parameter)


def check_engine(kind: Any) -> Any:
    """The same, if there is such an engine."""
    if kind in ENGINES if isinstance(kind, str) else _is_client(kind):
        return kind
    raise ValueError(
        f"engine must be 'threads', 'processes', 'dask' or a distributed.Client, but is {kind!r}."
    )


def make_engine(kind: Any, n_jobs: int) -> Engine:
    """The engine itself, with so many threads or processes; a cluster has its own workers."""
    if kind == "threads":
        return ThreadEngine(n_jobs)
    if kind == "processes":
        return ProcessEngine(n_jobs)
    return DaskEngine(_present_client() if kind == "dask" else kind)


def _is_client(kind: Any) -> bool:
    return hasattr(kind, "scheduler_info") and hasattr(kind, "submit")


def _present_client() -> Any:
    try:
        from distributed import get_client
    except ImportError as error:
        raise EngineError(
            "engine='dask' needs Dask's distributed scheduler: pip install 'maxmargin[dask]'."
        ) from error
    try:
        return get_client()
    except ValueError as error:
        raise EngineError(
            "engine='dask' needs a client: make one before, with client = distributed.Client() for "
            "this machine or distributed.Client(address) for a cluster."
        ) from error

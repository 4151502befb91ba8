"""Estimators that learn from examples as they come, or from more than memory holds."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context

from maxmargin.data.sources import Source
from maxmargin.engines.threads import Threads
from maxmargin.estimators.base import CertifiedEstimator
from maxmargin.estimators.checks import check_pairs
from maxmargin.problems.streams import InMemory, SourceStream
from maxmargin.problems.structured import TrainingSet
from maxmargin.solvers.online import Online
from maxmargin.solvers.online_run import StreamRun
from maxmargin.solvers.result import Result, Status
from maxmargin.solvers.stopping import Stopping

Floats = NDArray[np.float64]


class StreamedEstimator(CertifiedEstimator):
    """For structured estimators whose features are known before the data: they can learn online.

    Stands before `StructuredEstimator` among the bases. What comes first must fix the length of
    the weight vector. A subclass says how examples are bound, and what weights mean.
    """

    solver: Any

    _learner: StreamRun | None = None

    _costs: Callable[[int, ArrayLike | None], Floats]
    """C of each example, from `StructuredEstimator`."""

    @abstractmethod
    def _bind(self, X: Any, Y: Any, cost: Floats) -> TrainingSet:
        """Examples, checked, as solvers see them."""

    @abstractmethod
    def _attributes(self, weights: Floats) -> dict[str, Any]:
        """Fitted attributes that hold the model."""

    @property
    def _online(self) -> Online:
        return self.solver if isinstance(self.solver, Online) else Online()

    @_fit_context(prefer_skip_nested_validation=False)
    def partial_fit(
        self, X: Sequence[Any], Y: Sequence[Any], sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from some more examples.

        They are explored once and not kept, only the planes of those that were hard (see
        `Online`, whose parameters count if `solver` is one). The model can be used after every
        call. The first call begins anew; so does the first after `fit`.

        Afterwards ``certificate_`` is that of the cached problem. Its dual value is a lower bound
        of the objective of everything seen, in all calls. Its primal value is the objective of the
        planes in the cache alone: the objective of everything seen is at least that, and how much
        more only another pass over all examples can tell. `fit` with a source makes one.

        Parameters
        ----------
        X : sequence of inputs
        Y : sequence of outputs
            What should be predicted for each input.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies C example by example.

        Returns
        -------
        self
        """
        check_pairs(X, Y)
        training = self._bind(X, Y, self._costs(len(X), sample_weight))
        self._train(X, Y, partial(self._explore, training), self._attributes)
        return self

    def _explore(
        self,
        training: TrainingSet,
        *,
        stopping: Stopping,
        n_jobs: int,
        seed: int,
        on_round: Any,
        checkpoint: Any = None,
    ) -> Result:
        """One pass over new examples, with the cache of the calls before."""
        solver, run = self._online, self._learner
        with Threads(n_jobs) as threads:
            if run is None:
                run = solver.new_run(training, stopping, threads, seed, comes_back=False)
            if training.n_features != len(run.weights):
                raise ValueError(
                    f"These examples have {training.n_features} joint features, but those of the "
                    f"calls before had {len(run.weights)}: the features must be the same for all."
                )
            run.attach(InMemory(training, run.seen), stopping, threads)
            run.options, run.cache.max_bytes = solver, solver.cache_bytes
            self._learner = run
            status = Status.MAX_ITER
            try:
                solver.explore(run)
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
            finally:
                run.settle()
                run.cache.recount(run.weights)
            certificate = run.look()
            run.best_dual = max(run.best_dual, run.dual)
            run.history.append(run.as_round())
            if on_round is not None and on_round(run.history[-1], run.weights.copy):
                status = Status.STOPPED
            elif status is Status.MAX_ITER and certificate.relative_gap <= stopping.tol:
                status = Status.CONVERGED
            run.detach()
        history = list(run.history)
        return Result(run.weights.copy(), None, certificate, status, len(history), history)

    def _fit_source(self, source: Source) -> Self:
        """Fit to all examples of a source, in as many passes as are needed."""
        stream = SourceStream(source, self._bind, float(self.C))
        solve = partial(self._online.solve, stream)
        self._learner = None
        result = self._train(source, None, solve, self._attributes)
        self._warn_unless_converged(result, stacklevel=4)
        return self

"""Estimators that learn from examples as they come, or from more than memory holds."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.oracle import Oracle
from maxmargin.core.result import Result, Status, Stopping
from maxmargin.core.threads import Threads
from maxmargin.data.labels import label_array
from maxmargin.data.sources import Examples, Source
from maxmargin.estimators.base import CertifiedEstimator
from maxmargin.solvers.online import Online
from maxmargin.solvers.online_run import StreamRun
from maxmargin.solvers.stream import InMemory
from maxmargin.training.stream import SourceStream

Floats = NDArray[np.float64]

Fixed = dict[str, Any]
"""Fitted attributes that do not depend on the weights: what came first has fixed them."""


class Checked(NamedTuple):
    """Examples that were checked, in the form that the estimator works with.

    Parameters
    ----------
    X, y : Any
        Inputs and outputs.
    n_examples : int
    extra : Any
        What else is known of them.
    """

    X: Any
    y: Any
    n_examples: int
    extra: Any = None


class StreamedEstimator(CertifiedEstimator):
    """For structured estimators that can learn online, or from a source.

    Stands before `StructuredEstimator` among the bases. The examples that come first fix the
    length of the weight vector, with all classes known. A subclass says how examples are read
    and bound, what they fix, and what weights mean.
    """

    solver: Any

    _learner: StreamRun | None = None
    _fixed: Fixed | None = None
    _warm: Any

    @abstractmethod
    def _read(self, X: Any, Y: Any, fixed: Fixed | None) -> Checked:
        """Examples, checked; also against what is `fixed`, unless they are the first."""

    @abstractmethod
    def _fix(self, examples: Checked, classes: NDArray[Any] | None) -> Fixed:
        """What the first examples fix; the classes are those of the examples if None."""

    @abstractmethod
    def _make_oracle(self, examples: Checked, C: Floats, fixed: Fixed) -> Oracle:
        """Examples as solvers see them."""

    @abstractmethod
    def _attributes(self, fixed: Fixed, weights: Floats) -> dict[str, Any]:
        """Fitted attributes that hold the model."""

    def _finish(self, X: Any, fixed: Fixed) -> None:
        """Set straight what `_attributes` cannot; called after every fit."""

    @property
    def _online(self) -> Online:
        return self.solver if isinstance(self.solver, Online) else Online()

    @property
    def _begun(self) -> Fixed | None:
        """What the calls of `partial_fit` before have fixed; None if there was none."""
        return None if self._learner is None else self._fixed

    def _anew(
        self, examples: Checked, sample_weight: ArrayLike | None
    ) -> tuple[Oracle, Callable[[Floats], dict[str, Any]], Fixed]:
        """What a `fit` trains on, what its weights mean, and what is fixed by it.

        Calls of `partial_fit` before are forgotten, and so is a start with other classes.
        """
        C = self._costs(examples.n_examples, sample_weight)
        fixed = self._fix(examples, None)
        classes: Any = fixed.get("classes_")
        before: Any = getattr(self, "classes_", classes)
        oracle = self._make_oracle(examples, C, fixed)
        if not np.array_equal(before, classes):
            self._warm = None
        self._learner = None
        return oracle, partial(self._attributes, fixed), fixed

    def _all_classes(self, classes: ArrayLike | None) -> NDArray[Any]:
        """Classes of a call of `partial_fit`; those of a `fit` before count if none are given."""
        if self._begun is not None:
            return all_classes(classes, self._begun["classes_"])
        return all_classes(getattr(self, "classes_", None) if classes is None else classes, None)

    def _learn(
        self,
        X: Any,
        Y: Any,
        examples: Checked,
        sample_weight: ArrayLike | None,
        classes: NDArray[Any] | None,
    ) -> Self:
        """What `partial_fit` does once examples are checked.

        They are explored once and not kept, only the planes of those that were hard. The first
        call begins anew; so does the first after `fit`.
        """
        self._refuse_checkpoint()
        C = self._costs(examples.n_examples, sample_weight)
        fixed = self._begun or self._fix(examples, classes)
        oracle = self._make_oracle(examples, C, fixed)
        self._fixed = fixed
        explore, attributes = partial(self._explore, oracle), partial(self._attributes, fixed)
        self._train(X, Y, explore, attributes)
        self._finish(X, fixed)
        return self

    def _explore(
        self,
        oracle: Oracle,
        *,
        stopping: Stopping,
        n_jobs: int,
        seed: int,
        on_iteration: Any,
        checkpoint: Any = None,
    ) -> Result:
        """One pass over new examples, with the cache of the calls before."""
        solver, run = self._online, self._learner
        with Threads(n_jobs) as threads:
            if run is None:
                run = solver.start(oracle, stopping, threads, seed, comes_back=False)
            if oracle.n_features != len(run.weights):
                raise ValueError(
                    f"These examples have {oracle.n_features} joint features, but those of the "
                    f"calls before had {len(run.weights)}: the features must be the same for all."
                )
            run.attach(InMemory(oracle, run.seen, run.checker), stopping, threads)
            run.options, run.cache.max_bytes = solver, solver.cache_bytes
            self._learner = run
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
            if on_iteration is not None and on_iteration(run.history[-1], run.weights.copy):
                status = Status.STOPPED
            elif status is Status.MAX_ITER and stopping.is_enough(
                certificate.primal, certificate.dual
            ):
                status = Status.CONVERGED
            run.detach()
        history = list(run.history)
        return Result(run.weights.copy(), None, certificate, status, len(history), history)

    def _fit_source(self, source: Source, **others: Any) -> Self:
        """Fit to all examples of a source, in as many passes as are needed."""
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"A source gives all there is to the examples: leave {name} out.")
        fixed = self._survey(source)

        def make_oracle(X: Any, Y: Any, C: Floats) -> Oracle:
            return self._make_oracle(self._read(X, Y, fixed), C, fixed)

        solve = partial(self._online.solve, SourceStream(source, make_oracle, float(self.C)))
        self._learner = None
        result = self._train(source, None, solve, partial(self._attributes, fixed))
        first = first_examples(source).X
        self._finish(first, fixed)
        self._warn_unless_converged(result, first, stacklevel=4)
        return self

    def _survey(self, source: Source) -> Fixed:
        """What a source fixes: its first examples, and all its classes."""
        classes = self._classes_of(source)
        return self._fix(self._read(*first_examples(source), None), classes)

    def _classes_of(self, source: Source) -> NDArray[Any]:
        """All classes, found by a pass."""
        return source.classes()


def first_examples(source: Source) -> Examples:
    """The first block that is not empty."""
    for example in source.batches():
        if len(example.y):
            return example
    raise ValueError("The source holds no examples: there is nothing to learn from.")


def all_classes(classes: ArrayLike | None, known: NDArray[Any] | None) -> NDArray[Any]:
    """The classes that are `known`, or, at the first call of `partial_fit`, those given, sorted."""
    if classes is None:
        if known is None:
            raise ValueError(
                "classes must be passed on the first call to partial_fit: all labels that will "
                "ever come."
            )
        return known
    given = np.unique(label_array(classes, "classes"))
    if known is not None and not np.array_equal(given, np.sort(known)):
        raise ValueError(
            f"classes are {given.tolist()}, but {known.tolist()} are known already: they must "
            f"stay the same."
        )
    return given


def numbers_among(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Where in the sorted `classes` the labels are."""
    if not len(labels):
        return np.zeros(0, dtype=np.intp)
    try:
        numbers = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    except TypeError as error:
        raise ValueError(
            "Labels must all be strings or all be numbers, but y mixes types."
        ) from error
    unknown = classes[numbers] != labels
    if unknown.any():
        label = np.asarray(labels)[unknown].tolist()[0]
        raise ValueError(f"y holds {label!r}, which is not one of the classes {classes.tolist()}.")
    return numbers

"""StructuredSVM: any problem, any solver."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import as_inputs, called, check_instance, check_pairs
from maxmargin.core.python_oracle import make_oracle
from maxmargin.core.slack_rescaling import SlackRescaledOracle
from maxmargin.data.sources import Source
from maxmargin.estimators.base import CertifiedEstimator, check_weights, train_warm
from maxmargin.solvers.names import SOLVERS, make_solver
from maxmargin.solvers.structured import StructuredSolver
from maxmargin.training.sharded import ENGINES, ShardedEstimator
from maxmargin.training.streaming import Checked, Fixed

Floats = NDArray[np.float64]


class StructuredEstimator(CertifiedEstimator):
    """Base of the estimators that train structured problems."""

    _parameter_constraints: dict[str, list[Any]] = CertifiedEstimator._parameter_constraints | {
        "solver": [StrOptions(set(SOLVERS)), StructuredSolver],
    }

    solver: Any
    rescaling: str

    def _rescaled(self, oracle: Oracle) -> Oracle:
        """A training set with margin rescaling, or with the rescaling asked for."""
        return SlackRescaledOracle(oracle) if self.rescaling == "slack" else oracle

    def _fit_oracle(self, oracle: Oracle, X: Any, y: Any, attributes: Any) -> None:
        """Train, from the dual solution of the fit before if that is asked for."""
        solver = make_solver(self.solver)
        result = train_warm(self, solver, oracle, oracle.shape, X, y, attributes)
        self._warn_unless_converged(result, X, stacklevel=4)


class StructuredSVM(ShardedEstimator, StructuredEstimator):
    """Structural SVM for any problem whose loss-augmented search you can write.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * hinge_i(w)``, where the hinge of an example is the
    highest ``loss(y) + <w, feature(y) - feature(y_true)>`` over its outputs ``y``.

    Parameters
    ----------
    problem : Problem
        What is predicted.
    C : float, default=1.0
        Weight of the sum of the hinges.
    solver : str or solver object, default="auto"
        "auto", "dual-coordinate", "frank-wolfe", "n-slack" or "one-slack"; for problems that can
        list their outputs also "partial-linearization" and "exponentiated-gradient"; or an object
        such as ``OneSlack(cache=0)``.
    rescaling : {"margin", "slack"}, default="margin"
        How the loss enters: it moves the margin, or it multiplies the violation of a margin of one.
        If the problem has no ``slack_rescaled_inference``, the latter is searched by some calls of
        ``loss_augmented_inference``, which may miss the largest slack: the certificate then counts
        a bound of it, and a fit may end with the status "relaxed".
    tol : float, default=1e-3
        Relative duality gap that is good enough.
    warm_start : bool, default=False
        Start `fit` from the dual solution of the fit before, also when C has changed.
    max_iter : int, default=10000
        Most rounds.
    time_limit : float, default=None
        Most seconds.
    checkpoint : path, default=None
        File to keep the state of the fit in, so that it can go on after a crash.
    checkpoint_every : float, default=60
        Least seconds between two writes of the checkpoint.
    resume : bool, default=False
        Go on from the checkpoint, if there is one, to the same answer as without the stop.
    n_jobs : int, default=None
        Threads for compiled searches; None means 1 and -1 one for each core. The answer does not
        depend on it.
    random_state : int, RandomState instance or None, default=0
        Order of the examples.
    engine : {"threads", "processes", "dask"} or distributed.Client, default=None
        Where to train: in this process; in `n_jobs` processes, for searches in pure Python; on the
        workers of a Dask cluster. None takes what `maxmargin.engine` says, or else threads.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features,)
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap`` and ``relative_gap`` over all the training data.
    status_ : str
        "converged", or why the fit stopped before.
    history_ : list of Round
        Seconds, searches, visits from planes in hand, primal and dual value after each round.
    n_iter_ : int

    See Also
    --------
    Problem : What to write.
    SequenceTagger : Chains of labels, ready made.

    Examples
    --------
    See `Problem`.
    """

    _parameter_constraints = StructuredEstimator._parameter_constraints | {
        "problem": [HasMethods(["joint_feature", "loss", "inference", "loss_augmented_inference"])],
        "rescaling": [StrOptions({"margin", "slack"})],
        "engine": ENGINES,
    }

    def __init__(
        self,
        problem: Any,
        C: float = 1.0,
        *,
        solver: Any = "auto",
        rescaling: str = "margin",
        tol: float = 1e-3,
        warm_start: bool = False,
        max_iter: int = 10_000,
        time_limit: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        engine: Any = None,
    ) -> None:
        self.problem = problem
        self.C = C
        self.solver = solver
        self.rescaling = rescaling
        self.tol = tol
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.engine = engine

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Sequence[Any] | Source,
        y: Sequence[Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on inputs and their true outputs.

        Parameters
        ----------
        X, y : sequence of length n_samples
            Inputs and outputs, as the problem understands them. Or `X` is a `Source` of both, which
            need not fit in memory, and there is no `y`: then `Online` trains, whose parameters
            count if `solver` is one.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the C of each example.

        Returns
        -------
        self : StructuredSVM

        Raises
        ------
        ProblemError
            If a method of the problem raises or breaks its contract. What was learned up to then
            stays in the estimator.

        Warns
        -----
        ConvergenceWarning
            If `max_iter`, `time_limit`, Ctrl-C or a callback stopped the fit; the best weights so
            far are kept, with their certificate.
        """
        if isinstance(X, Source):
            if self._on_shards:
                return self._fit_source_shards(X, y=y, sample_weight=sample_weight)
            return self._fit_source(X, y=y, sample_weight=sample_weight)
        if y is None:
            raise ValueError("y is missing: give one output for each input, or a source of both.")
        examples = self._read(X, y, None)
        if self._on_shards:
            return self._fit_shards(X, y, examples, sample_weight)
        oracle, attributes, _ = self._anew(examples, sample_weight)
        self._fit_oracle(oracle, X, y, attributes)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from some more examples.

        They are explored once and not kept, only the planes of those that were hard (see
        `Online`, whose parameters count if `solver` is one). The model can be used after every
        call. The first call begins anew; so does the first after `fit`. Examples that come again
        count again: what is learned from `k` cycles over the same data belongs to ``k * C``.

        Afterwards ``certificate_`` is that of the cached problem. Its dual value is a lower bound
        of the objective of everything seen, in all calls. Its primal value is the objective of the
        planes in the cache alone: the objective of everything seen is at least that, and how much
        more only another pass over all examples can tell. `fit` with a source makes one.

        Parameters
        ----------
        X : sequence of inputs
        y : sequence of outputs
            What should be predicted for each input.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies C example by example.

        Returns
        -------
        self
        """
        return self._learn(X, y, self._read(X, y, self._begun), sample_weight, None)

    def _read(self, X: Any, y: Any, fixed: Fixed | None) -> Checked:
        check_instance(self.problem)
        X = as_inputs(X)
        check_pairs(X, y)
        return Checked(X, y, len(X))

    def _survey(self, source: Source) -> Fixed:
        return {}

    def _fix(self, examples: Checked, classes: NDArray[Any] | None) -> Fixed:
        return {}

    def _make_oracle(self, examples: Checked, C: Floats, fixed: Fixed) -> Oracle:
        return make_oracle(self.problem, examples.X, examples.y, C, self.rescaling)

    def _attributes(self, fixed: Fixed, weights: Floats) -> dict[str, Any]:
        return {"weights_": weights}

    weights_: Floats

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_weights("weights_", self.weights_, len(self.weights_))

    def predict(self, X: Sequence[Any]) -> list[Any]:
        """The best output of each input.

        Parameters
        ----------
        X : sequence of inputs

        Returns
        -------
        y : list

        Raises
        ------
        ProblemError
            If ``inference`` of the problem raises.
        """
        check_is_fitted(self)
        inputs = enumerate(as_inputs(X))
        return [called(self.problem, "inference", i, x, self.weights_) for i, x in inputs]

    def decision_function(self, X: Sequence[Any]) -> Floats:
        """Score of the best output of each input.

        Returns
        -------
        scores : ndarray of shape (n_samples,)
        """
        outputs = self.predict(X)
        pairs = zip(as_inputs(X), outputs, strict=True)
        features = [self.problem.joint_feature(x, y) for x, y in pairs]
        return np.array([np.ravel(feature @ self.weights_)[0] for feature in features])

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """Minus the mean loss of the predictions: zero is perfect."""
        losses = [
            self.problem.loss(y_true, y_pred)
            for y_true, y_pred in zip(y, self.predict(X), strict=True)
        ]
        return -float(np.mean(losses))

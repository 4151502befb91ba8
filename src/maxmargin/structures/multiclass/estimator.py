"""LinearClassifier: multi-class and binary linear SVMs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import validate_data

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import (
    all_classes,
    as_floats,
    check_costs,
    check_loss_matrix,
    check_per_sample,
    check_several,
    class_numbers,
    joined_classes,
    numbered_classes,
)
from maxmargin.core.linear import (
    CrammerSinger,
    LinearProblem,
    LinearTask,
    OneVersusRest,
    ScalarProblem,
    WestonWatkins,
)
from maxmargin.core.oracle import Oracle
from maxmargin.core.result import Result
from maxmargin.data.sources import Source, widened
from maxmargin.dual.listed_classes import MANY_CLASSES
from maxmargin.estimators.base import HasEngine
from maxmargin.estimators.checks import check_are_classes, check_samples
from maxmargin.estimators.linear import LinearEstimator, geometry
from maxmargin.predictors.checks import check_features
from maxmargin.predictors.declared import estimator
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import SequentialDual
from maxmargin.solvers.streamed_dual import StreamedDual
from maxmargin.structures.multiclass.predictor import LinearClassifierPredictor
from maxmargin.training.fit import Encoded, Metadata, refuse_with_source, runs_on_shards, train
from maxmargin.training.linear_streams import CheckedExamples, LinearStream
from maxmargin.training.partitions import Survey

FORMULATIONS = {"crammer-singer": CrammerSinger, "weston-watkins": WestonWatkins}
ONE_VERSUS_REST = "one-vs-rest"


@estimator
class LinearClassifier(HasEngine, ClassifierMixin, LinearClassifierPredictor, LinearEstimator):
    """Linear SVM for two or more classes, with a certificate of optimality.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * loss_i(w)`` and returns, with the weights, a lower
    bound of what any weights could reach: ``certificate_.relative_gap`` is at most `tol`.

    Parameters
    ----------
    formulation : {"crammer-singer", "weston-watkins", "one-vs-rest"}, default="crammer-singer"
        Loss with more than two classes: the worst violation, the sum of the violations, or one
        binary problem for each class. With two, all are the binary hinge.
    loss_matrix : array-like of shape (n_classes, n_classes) or dict, default=None
        ``loss_matrix[y, j]``: loss of predicting ``j`` for ``y``, classes sorted, zero diagonal; or
        ``{(true, predicted): loss}``, 1 where left out. None means 1 for every mistake. Not for
        "one-vs-rest" with more than two classes.
    margins : float, dict or array-like of shape (n_samples,), default=1.0
        Margin asked of every example, of each class, or of each example; multiplies its losses.
        Margins given to `fit` take the place of these.
    class_weight : dict or "balanced", default=None
        Multiplies the C of the examples of a class. A dictionary may leave classes out, which
        then weigh 1, or name some that `y` lacks, but not both.
    solver : "auto", "one-slack", SequentialDual, StreamedDual or OneSlack, default="auto"
        A solver object with its heuristics set by hand; for a source and for `partial_fit` a
        `StreamedDual`; `OneSlack` for comparison, and for engines.
    engine : {"threads", "processes", "dask"} or distributed.Client, default=None
        Where to train, see `StructuredSVM`. Outside of this process `DistributedDual` trains the
        Crammer-Singer formulation (or two classes), without `prior`, `nonnegative`, `margins` and
        `intercept_scaling`.

    See Also
    --------
    LinearRegressor : The same for numbers as targets.
    SequentialDual : The solver.
    StreamedDual : The solver for sources.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import maxmargin as mm
    >>> X, y = load_digits(return_X_y=True)
    >>> model = mm.LinearClassifier(C=1.0).fit(X / 16, y)
    >>> bool(model.score(X / 16, y) > 0.98), model.certificate_.relative_gap <= 1e-3
    (True, True)
    """

    formulation: str = "crammer-singer"
    loss_matrix: ArrayLike | Mapping[tuple[Any, Any], float] | None = None
    margins: float | Mapping[Any, float] | ArrayLike = 1.0
    class_weight: Mapping[Any, float] | str | None = None

    _parameter_constraints = {
        "formulation": [StrOptions({*FORMULATIONS, ONE_VERSUS_REST})],
        "loss_matrix": ["array-like", dict, None],
        "margins": [Interval(Real, 0, None, closed="left"), dict, "array-like"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "solver": [
            StrOptions({"auto", "one-slack"}),
            HasMethods(["solve"]),
        ],
    }

    _arguments = """
    margins : array-like of shape (n_samples,), default=None
        Margin of each example.
    """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        margins: ArrayLike | None = None,
    ) -> Self:
        """Train on examples and their labels, numbers or strings.

        `X` may also be a `Source` of examples and labels, which need not fit in memory; then `y` is
        left out, and an iteration is a pass over the source. After Ctrl-C or `time_limit` the
        certificate still takes the rest of a pass, or another. `prior`, `loss_matrix` and
        ``class_weight="balanced"`` take one more.
        """
        linear = self.solver == "auto" or isinstance(self.solver, SequentialDual | StreamedDual)
        if not linear or runs_on_shards(self):
            self._fit_on_shards(X, y, sample_weight, margins)
            return self
        if isinstance(X, Source):
            return self._fit_source(_LabelStream(self, X, y, sample_weight, margins))
        rows, y, C = self._check_samples(X, y, sample_weight)
        check_are_classes(y)
        return self._fit(X, rows, y, task_of_labels(self, rows, y, C, margins))

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from further examples, without those of earlier calls.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> import maxmargin as mm
        >>> X, y = load_digits(return_X_y=True)
        >>> model = mm.LinearClassifier()
        >>> for at in range(0, 1500, 100):
        ...     some = slice(at, at + 100)
        ...     _ = model.partial_fit(X[some] / 16, y[some], classes=range(10))
        >>> bool(model.score(X[1500:] / 16, y[1500:]) > 0.85)
        True
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all examples at once: for partial_fit give a "
                "dictionary of weights."
            )
        fixed = getattr(self, "classes_", None)
        given = fixed if classes is None else classes
        known = all_classes(given, None if self._online is None else fixed)
        check_class_options(self, known)
        rows, y, C = self._check_samples(X, y, sample_weight, alone=False)
        check_are_classes(y)
        labels = class_numbers(y, known)
        C = class_costs(self, known, labels, C, None)
        return self._learn_online(X, class_task(self, rows, known, labels, C))

    @_fit_context(prefer_skip_nested_validation=True)
    def path(
        self,
        X: Any,
        y: ArrayLike,
        Cs: ArrayLike,
        sample_weight: ArrayLike | None = None,
        margins: ArrayLike | None = None,
    ) -> list[Self]:
        """A certified model for each C, each fit started from the one before.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> import maxmargin as mm
        >>> X, y = load_iris(return_X_y=True)
        >>> models = mm.LinearClassifier().path(X, y, Cs=[0.01, 0.1, 1.0])
        >>> [model.C for model in models]
        [0.01, 0.1, 1.0]
        """
        rows, y, C = self._check_samples(X, y, sample_weight)
        check_are_classes(y)
        return self._fit_path(X, rows, y, task_of_labels(self, rows, y, C, margins), Cs)

    def _model(self, task: LinearTask, coef: Floats, intercept: Floats) -> dict[str, Any]:
        return {
            "classes_": task.classes,
            "coef_": sp.csr_array(coef.T) if sp.issparse(coef) else np.array(coef.T, order="F"),
            "intercept_": intercept,
        }

    # On shards: the same model, trained by a structured solver where the rows are.

    _widens: ClassVar[bool] = True

    def _fit_on_shards(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, margins: ArrayLike | None
    ) -> None:
        """Fit to rows that are dealt out to shards, or lie there."""
        from maxmargin.training.workers import fit_examples_on_shards, fit_source_on_shards

        self._refuse_on_shards(margins)
        if isinstance(X, Source):
            refuse_with_source(y=y, sample_weight=sample_weight)
            fit_source_on_shards(self, X)
            self.__dict__.pop("feature_names_in_", None)
        else:
            rows, labels, C = self._check_samples(X, y, sample_weight)
            rows = check_features(rows, type(self).__name__)  # in order, for cutting planes
            examples = Encoded(rows, labels, len(labels), C)
            fit_examples_on_shards(self, rows, labels, examples, sample_weight)
            validate_data(self, X, skip_check_array=True)
        self._warm = None

    def _refuse_on_shards(self, margins: ArrayLike | None) -> None:
        from maxmargin.solvers.cutting_plane import OneSlack
        from maxmargin.training.distributed_dual import DistributedDual

        if not isinstance(
            self.solver, str | SequentialDual | StreamedDual | OneSlack | DistributedDual
        ):
            raise ValueError(
                f"solver is a {type(self.solver).__name__}, but LinearClassifier is trained by "
                f"SequentialDual, StreamedDual, OneSlack or DistributedDual."
            )
        plain = {"margins": 1.0, "intercept_scaling": 1.0, "nonnegative": False, "prior": None}
        for name, usual in plain.items():
            value = getattr(self, name)
            if not (np.isscalar(value) or value is None) or value != usual:
                raise ValueError(
                    f"{name} needs all data in one process: leave it out, or use engine='threads'."
                )
        if margins is not None:
            raise ValueError("margins need all data in one process: use engine='threads'.")

    def _encode(self, X: Any, y: Any, metadata: Metadata | None) -> Encoded:
        if metadata is not None and sp.issparse(X) and X.shape[1] < metadata["_problem"].n_inputs:
            X = widened(sp.csr_array(X), metadata["_problem"].n_inputs)
        X, y = check_samples(X, y, type(self).__name__)
        return Encoded(X, y, len(y))

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        classes, labels = np.unique(examples.y, return_inverse=True)
        totals: Floats = np.bincount(labels, weights=examples.extra).astype(np.float64)
        return self._class_metadata(classes, totals, examples.X.shape[1])

    def _survey_partition(self, X: Any, y: Any) -> Any:
        if not hasattr(X, "shape"):
            raise ValueError("The examples of LinearClassifier must be rows of numbers.")
        return *np.unique(y, return_counts=True), X.shape[1], sp.issparse(X)

    def _metadata_of(self, surveys: list[Survey]) -> Metadata:
        labels, counts, widths, sparse = zip(*(survey.found for survey in surveys), strict=True)
        if len(set(widths)) > 1 and not all(sparse):
            raise ValueError(
                f"Some partitions of the data have {min(widths)} features and some {max(widths)}: "
                f"they must be the same for all."
            )
        classes: NDArray[Any] = np.empty(0)
        for found in labels:
            classes = joined_classes(classes, found)
        totals = np.zeros(len(classes))
        for found, count in zip(labels, counts, strict=True):
            totals[np.searchsorted(classes, found)] += self.C * count
        return self._class_metadata(classes, totals, max(widths))

    def _class_metadata(self, classes: NDArray[Any], totals: Floats, width: int) -> Metadata:
        check_class_options(self, classes)
        if len(classes) > 2 and self.formulation != "crammer-singer":
            raise ValueError(
                f"formulation={self.formulation!r} needs all data in one process: use "
                f"'crammer-singer', or engine='threads'."
            )
        loss_matrix = check_loss_matrix(self.loss_matrix, classes)
        from maxmargin.structures.rows.oracle import Classes

        problem = Classes(width, len(classes), loss_matrix, self.fit_intercept)
        return {"classes_": classes, "_totals": totals, "_problem": problem}

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata) -> Oracle:
        classes, problem = metadata["classes_"], metadata["_problem"]
        labels = class_numbers(examples.y, classes)
        C = class_costs(self, classes, labels, C, metadata["_totals"])
        oracle: Oracle = problem.make_oracle(
            examples.X, labels.astype(np.int32), 0.5 * C if len(classes) == 2 else C
        )
        return oracle

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        classes, problem = metadata["classes_"], metadata["_problem"]
        table = problem.split(weights)[0][:, : len(classes)]
        if len(classes) == 2:
            table = table[:, [1]] - table[:, [0]]
        return {
            "classes_": classes,
            "coef_": np.array(table[: problem.n_inputs].T, order="F"),
            "intercept_": table[-1].copy() if self.fit_intercept else np.zeros(table.shape[1]),
            "n_features_in_": problem.n_inputs,
        }

    def _solve(self, solver: Any, oracle: Any, X: Any, y: Any, metadata: Metadata) -> None:
        solve = _doubled(solver.solve) if len(metadata["classes_"]) == 2 else solver.solve
        result = train(self, X, y, partial(solve, oracle), partial(self._fitted, metadata))
        self._warn_unless_converged(result, X)

    def _finish(self, X: Any, metadata: Metadata) -> None:
        """Nothing: `_fit_on_shards` knows the names of features."""


def class_task(
    estimator: Any,
    X: Any,
    classes: NDArray[Any],
    labels: NDArray[Any],
    C: Floats,
    margins: ArrayLike | None = None,
) -> LinearTask:
    """The problem of a `LinearClassifier`, whose `labels` are numbers of the `classes`."""
    wanted = estimator.margins if margins is None else margins
    if isinstance(wanted, Mapping):
        wanted = as_floats([wanted.get(c, 1.0) for c in classes.tolist()], "margins")[labels]
    asked = check_per_sample(wanted, len(C), "margins", "margins")
    two = len(classes) == 2
    many = estimator.loss_matrix is None and len(classes) >= MANY_CLASSES
    loss_matrix = None if many else check_loss_matrix(estimator.loss_matrix, classes)
    shared, root = geometry(estimator, X, 1 if two else len(classes))
    problem: LinearProblem | OneVersusRest
    if two and loss_matrix is not None:
        losses = np.array([loss_matrix[0, 1], loss_matrix[1, 0]])[labels]
        problem = ScalarProblem.hinge(2.0 * labels - 1.0, asked * losses, C, **shared)
    elif estimator.formulation == ONE_VERSUS_REST:
        origin = shared.pop("origin")
        problem = OneVersusRest(
            tuple(
                ScalarProblem.hinge(
                    np.where(labels == m, 1.0, -1.0),
                    asked,
                    C,
                    origin=None if origin is None else origin[:, [m]],
                    **shared,
                )
                for m in range(len(classes))
            )
        )
    else:
        problem = FORMULATIONS[estimator.formulation](
            C=C,
            labels=labels.astype(np.int32),
            margins=asked,
            loss_matrix=loss_matrix,
            n_classes=len(classes),
            **shared,
        )
    return LinearTask(problem, root, shared["bias"], classes)


def task_of_labels(
    estimator: Any, X: Any, y: NDArray[Any], C: Floats, margins: ArrayLike | None
) -> LinearTask:
    """The problem of a `LinearClassifier` whose classes are those of `y`."""
    classes, labels = numbered_classes(y)
    check_class_options(estimator, classes)
    totals: Floats = np.bincount(labels, weights=C).astype(np.float64)
    C = class_costs(estimator, classes, labels, C, totals)
    if not C.any():
        raise ValueError("class_weight leaves every example a weight of zero.")
    return class_task(estimator, X, classes, labels, C, margins)


def check_class_options(estimator: Any, classes: NDArray[Any]) -> None:
    """Refuse a single class, and parameters that do not fit the classes."""
    check_several(classes, type(estimator).__name__)
    weights, known = estimator.class_weight, classes.tolist()
    if isinstance(weights, Mapping):
        # Unless all classes have a weight: a fold may lack some.
        names = {*known}
        strange = [key for key in weights if key not in names]
        if strange and any(label not in weights for label in known):
            raise ValueError(
                f"class_weight names {strange[0]!r}, which is not one of the classes {known}: "
                f"correct it, or give every class a weight."
            )
    one_by_one = len(classes) > 2 and estimator.formulation == ONE_VERSUS_REST
    if estimator.loss_matrix is not None and one_by_one:
        raise ValueError(
            "loss_matrix has no meaning for formulation='one-vs-rest': use 'crammer-singer' "
            "or 'weston-watkins', or leave it out."
        )


def class_costs(
    estimator: Any, classes: NDArray[Any], labels: NDArray[Any], C: Floats, totals: Any
) -> Floats:
    """C of each example times the weight of its class; `totals` are the C of each class, summed."""
    wanted = estimator.class_weight
    if wanted is None:
        return C
    if isinstance(wanted, Mapping):
        weights = as_floats([wanted.get(c, 1.0) for c in classes.tolist()], "class_weight")
    else:
        present = totals > 0
        mean = totals.sum() / present.sum()
        weights = np.where(present, mean / np.where(present, totals, 1.0), 0.0)
    weights = check_per_sample(weights, len(classes), "class_weight", "weights")
    return check_costs(C * weights[labels])


def _doubled(solve: Callable[..., Result]) -> Callable[..., Result]:
    """A solve with doubled values: two vectors at C/2 halve the objective of the binary hinge."""

    def doubled(line: Any) -> Any:
        return replace(
            line, primal=2.0 * line.primal, dual=2.0 * line.dual, objective=2.0 * line.objective
        )

    def solve_doubled(
        oracle: Any, stopping: Stopping, *, on_iteration: Any = None, **options: Any
    ) -> Result:
        def shown(line: Any, weights: Any) -> Any:
            return on_iteration(doubled(line), weights)

        half = replace(stopping, gap=0.5 * stopping.gap)
        called = None if on_iteration is None else shown
        result = solve(oracle, half, on_iteration=called, **options)
        return replace(
            result,
            certificate=result.certificate + result.certificate,
            history=[doubled(line) for line in result.history],
        )

    return solve_doubled


class _LabelStream(LinearStream):
    """Batches of a source whose targets are labels; classes are found as they come.

    A pass of its own finds them where they, or their frequencies, must be known before the first
    batch.
    """

    estimator: LinearClassifier
    state_names = (*LinearStream.state_names, "classes", "totals")

    def __init__(
        self,
        estimator: LinearClassifier,
        source: Source,
        y: Any,
        sample_weight: ArrayLike | None,
        margins: ArrayLike | None,
    ) -> None:
        super().__init__(estimator, source, y, sample_weight)
        wanted = estimator.margins if margins is None else margins
        each = not isinstance(wanted, Mapping) and np.ndim(wanted) > 0
        self.margins = as_floats(wanted, "margins") if each else None
        self.classes: NDArray[Any] = np.empty(0)
        self.totals: Floats | None = None
        options = estimator.prior, estimator.loss_matrix
        if estimator.class_weight == "balanced" or any(one is not None for one in options):
            self.survey()

    def survey(self) -> None:
        """Find all classes, and what their examples cost together."""
        totals: dict[Any, float] = {}
        for examples in self.examples():
            labels, numbers = np.unique(examples.y, return_inverse=True)
            self.classes = joined_classes(self.classes, labels)
            sums = np.bincount(numbers, weights=examples.C)
            for label, total in zip(labels.tolist(), sums.tolist(), strict=True):
                totals[label] = totals.get(label, 0.0) + total
        self.totals = np.array([totals[label] for label in self.classes.tolist()])
        self.complete = True

    def task(self, examples: CheckedExamples) -> LinearTask | None:
        classes = self.classes
        if not self.complete:
            classes = self.classes = joined_classes(classes, np.unique(examples.y))
            if len(classes) < 2:
                return None
        else:
            check_class_options(self.estimator, classes)
        labels = class_numbers(examples.y, classes)
        margins = None if self.margins is None else examples.of(self.margins, "margins")
        C = class_costs(self.estimator, classes, labels, examples.C, self.totals)
        return class_task(self.estimator, examples.X, classes, labels, C, margins)

    def end(self) -> None:
        check_class_options(self.estimator, self.classes)

"""LinearClassifier on shards: the same model, trained by a structured solver where the rows are."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from maxmargin.core.oracle import Oracle
from maxmargin.core.result import Result, Stopping
from maxmargin.data.sources import Source, widened
from maxmargin.estimators.base import n_threads
from maxmargin.estimators.checks import check_loss_matrix
from maxmargin.structures.multiclass.problem import Classes
from maxmargin.training.distributed_names import on_shards
from maxmargin.training.engines import Engine, chosen_engine, make_engine
from maxmargin.training.linear_stream import class_numbers, joined_classes
from maxmargin.training.partitions import (
    Survey,
    dealt_out,
    fingerprint_of,
    load_partition,
    partitions_of,
    surveyed,
)
from maxmargin.training.sharded_oracle import shard_oracle

Floats = NDArray[np.float64]


def fit_on_shards(
    model: Any, X: Any, y: Any, sample_weight: ArrayLike | None, margins: ArrayLike | None
) -> None:
    """Fit a `LinearClassifier` to rows that are dealt out to shards, or lie there.

    Two classes are the binary hinge, as everywhere: two weight vectors at half the C are one at
    all of it, and the objective is half of what it should be.
    """
    _refuse_options(model, margins)
    solver = on_shards(model.solver)
    bare = type(model)(
        C=model.C,
        loss_matrix=model.loss_matrix,
        class_weight=model.class_weight,
        fit_intercept=model.fit_intercept,
    )
    with make_engine(chosen_engine(model.engine), n_threads(model.n_jobs)) as engine:
        if isinstance(X, Source):
            parts, rows = _of_source(model, engine, X, y, sample_weight)
            content: Any = fingerprint_of(X), repr(bare)
        else:
            parts, rows = _of_memory(model, engine, X, y, sample_weight)
            content = X, y, sample_weight, repr(bare)
        _check_formulation(model, rows)
        make_oracle = partial(_make_row_oracle, bare, rows)
        n_shards = min(len(engine.workers), len(parts))
        oracle = shard_oracle(engine, parts, make_oracle, n_shards, content)
        try:
            solve = _doubled(solver.solve) if rows.binary else solver.solve
            result: Result = model._train(
                X, y, partial(solve, oracle), partial(_attributes, model, rows)
            )
        finally:
            oracle.shards.close()
    if isinstance(X, Source):
        model.__dict__.pop("feature_names_in_", None)
    else:
        validate_data(model, X, skip_check_array=True)
    model._online = model._warm = None
    model._warn_unless_converged(result, X, stacklevel=4)


class _Rows:
    """What the rows of all shards have in common."""

    def __init__(self, model: Any, classes: NDArray[Any], totals: Any, width: int) -> None:
        model._check_classes(classes)
        self.classes, self.totals, self.width = classes, totals, width
        self.binary = len(classes) == 2
        loss_matrix = check_loss_matrix(model.loss_matrix, classes)
        self.problem = Classes(width, len(classes), loss_matrix, model.fit_intercept)


def _of_memory(
    model: Any, engine: Engine, X: Any, y: Any, sample_weight: ArrayLike | None
) -> tuple[list[Any], _Rows]:
    X, y, C = model._check_samples(X, y, sample_weight)
    classes, labels = np.unique(y, return_inverse=True)
    rows = _Rows(model, classes, np.bincount(labels, weights=C), X.shape[1])
    n = len(y)
    return dealt_out(X, y, C / model.C, n, min(len(engine.workers), n)), rows


def _of_source(
    model: Any, engine: Engine, source: Source, y: Any, sample_weight: ArrayLike | None
) -> tuple[list[Any], _Rows]:
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(f"A source gives all there is to the examples: leave {name} out.")
    parts = partitions_of(source, len(engine.workers))
    surveys = surveyed(engine, parts, survey_rows)
    found = [(part, one.found) for part, one in zip(parts, surveys, strict=True) if one.n_examples]
    if not found:
        raise ValueError("The source holds no examples: there is nothing to learn from.")
    widths = [width for _, (_, _, width, _) in found]
    if len(set(widths)) > 1 and not all(sparse for _, (_, _, _, sparse) in found):
        raise ValueError(
            f"Some partitions of the data have {min(widths)} features and some {max(widths)}: they "
            f"must be the same for all."
        )
    classes: NDArray[Any] = np.empty(0)
    for _, (labels, _, _, _) in found:
        classes = joined_classes(classes, labels)
    totals = np.zeros(len(classes))
    for _, (labels, counts, _, _) in found:
        totals[np.searchsorted(classes, labels)] += model.C * counts
    return [part for part, _ in found], _Rows(model, classes, totals, max(widths))


def survey_rows(part: Any) -> Survey:
    """Labels with their counts, and the width of the rows, of a part."""
    examples = load_partition(part)
    if not examples.n_examples:
        return Survey(0, None, None)
    if not hasattr(examples.X, "shape"):
        raise ValueError("The examples of LinearClassifier must be rows of numbers.")
    labels, counts = np.unique(examples.y, return_counts=True)
    found = labels, counts, examples.X.shape[1], sp.issparse(examples.X)
    return Survey(examples.n_examples, found, None)


def _make_row_oracle(bare: Any, rows: _Rows, X: Any, y: Any, weight: Floats | None) -> Oracle:
    """Rows of a shard as solvers see them."""
    if sp.issparse(X) and X.shape[1] < rows.width:
        X = widened(sp.csr_array(X), rows.width)
    X, y, C = bare._check_samples(X, y, weight, alone=False)
    labels = class_numbers(y, rows.classes)
    targets, C = bare._targets(rows.classes, labels, C, None, rows.totals)
    return rows.problem.make_oracle(X, targets.labels, 0.5 * C if rows.binary else C)


def _attributes(model: Any, rows: _Rows, weights: Floats) -> dict[str, Any]:
    table = rows.problem.split(weights)[0][:, : len(rows.classes)]
    if rows.binary:
        table = table[:, [1]] - table[:, [0]]
    intercept = table[-1] if model.fit_intercept else np.zeros(table.shape[1])
    fitted: dict[str, Any] = model._set_weights(rows, table[: rows.width], intercept.copy())
    return fitted | {"n_features_in_": rows.width}


def _doubled(solve: Callable[..., Result]) -> Callable[..., Result]:
    """The same with twice the values."""

    def doubled(line: Any) -> Any:
        return replace(
            line, primal=2.0 * line.primal, dual=2.0 * line.dual, objective=2.0 * line.objective
        )

    def solve_doubled(
        oracle: Any, stopping: Stopping, *, on_iteration: Any = None, **options: Any
    ) -> Result:
        shown = (
            None
            if on_iteration is None
            else lambda line, weights: on_iteration(doubled(line), weights)
        )
        half = replace(stopping, gap=0.5 * stopping.gap)
        result = solve(oracle, half, on_iteration=shown, **options)
        return replace(
            result,
            certificate=result.certificate + result.certificate,
            history=[doubled(line) for line in result.history],
        )

    return solve_doubled


def _refuse_options(model: Any, margins: ArrayLike | None) -> None:
    plain = {"margins": 1.0, "intercept_scaling": 1.0, "nonnegative": False, "prior": None}
    for name, usual in plain.items():
        value = getattr(model, name)
        if not (np.isscalar(value) or value is None) or value != usual:
            raise ValueError(
                f"{name} needs all data in one process: leave it out, or use engine='threads'."
            )
    if margins is not None:
        raise ValueError("margins need all data in one process: use engine='threads'.")


def _check_formulation(model: Any, rows: _Rows) -> None:
    if not rows.binary and model.formulation != "crammer-singer":
        raise ValueError(
            f"formulation={model.formulation!r} needs all data in one process: use "
            f"'crammer-singer', or engine='threads'."
        )

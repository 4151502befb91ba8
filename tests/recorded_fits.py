"""Weights, histories and oracle calls of every estimator with every solver, bit for bit.

Code that is moved or merged must not change a number. Record what a commit computes, and compare a
later one with it, on the same machine:

    PYTHONPATH=src python tests/recorded_fits.py record before.json
    PYTHONPATH=src python tests/recorded_fits.py compare before.json

The fits are those of `every_estimator`, each with one parameter at a time set to every value that
it can have, and each solver with each way of rescaling.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from every_estimator import CASES, Case
from sklearn.base import clone
from sklearn.utils._param_validation import Options

import maxmargin as mm

NOT_NUMBERS = {"verbose", "warm_start", "checkpoint", "engine", "n_jobs"}
"""Parameters that decide where and how a fit runs."""

SOLVERS = {
    "LinearClassifier": [
        mm.SequentialDual(),
        mm.StreamedDual(),
        mm.OneSlack(),
        mm.SequentialDual(acceleration=False, averaging=False, skip_idle_examples=False),
    ],
    "LinearRegressor": [mm.SequentialDual(), mm.StreamedDual()],
    "SequenceTagger": [
        mm.FrankWolfe(step="pairwise", cache_sweeps=2, gap_sampling=True),
        mm.FrankWolfe(averaging=False, batch_size=2),
        mm.FrankWolfe(block=False),
        mm.DualCoordinate(batch_size=2),
        mm.OneSlack(cache=0, line_search=True),
        mm.PartialLinearization(temperature=0.1, batch_size=2),
        mm.PartialLinearization(block=False),
        mm.Online(passes=2),
        mm.Online(schedule="gap"),
    ],
    "KernelStructuredSVM": [
        mm.MiniBatchDual(),
        mm.MiniBatchDual(batch_size=2, steps="smo", diversity=0.5),
        mm.KernelClassesDual(),
    ],
    "PoseEstimator": [mm.MiniBatchDual(batch_size=2)],
}
"""Solvers that have no name of their own, or more parameters worth trying."""


CLASSES = {"HierarchicalClassifier": ["a", "b", "c"], "DependencyParser": ["subj", "root", "mod"]}
"""Classes that `partial_fit` is told, where they are not 0, 1 and 2."""


def variations(name: str, case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Parameters to fit an estimator with, and what to call that."""
    yield "default", {}
    constraints = getattr(case.model, "_parameter_constraints", {})
    for parameter in sorted(set(constraints) - NOT_NUMBERS):
        for constraint in constraints[parameter]:
            if isinstance(constraint, Options):
                values = sorted(constraint.options, key=str)
            else:
                values = [False, True] if constraint == "boolean" else []
            for value in values:
                yield f"{parameter}={value}", {parameter: value}
                if parameter == "solver" and "rescaling" in constraints:
                    yield f"{parameter}={value}, slack", {parameter: value, "rescaling": "slack"}
    for k, solver in enumerate(SOLVERS.get(name, [])):
        yield f"solver {k}, {type(solver).__name__}", {"solver": solver}
    if "n_jobs" in constraints:
        yield "n_jobs=2", {"n_jobs": 2}
    if "kernel" in constraints:
        yield "kernel=rbf, C=10", {"kernel": "rbf"} | ({"C": 10.0} if "C" in constraints else {})


def fits(name: str, case: Case) -> Iterator[tuple[str, Any]]:
    """Functions that fit an estimator in every way."""
    for what, parameters in variations(name, case):
        model = clone(case.model).set_params(**parameters)
        yield f"{name}: {what}", lambda m=model: m.fit(case.X, case.y, **case.more)
    if hasattr(case.model, "partial_fit") and case.y is not None:
        yield f"{name}: partial_fit", lambda: _in_parts(clone(case.model), case)
    if hasattr(case.model, "warm_start"):
        yield f"{name}: warm_start", lambda: _warm(clone(case.model), case)
    if not case.more and case.y is not None and name not in ("GrammarParser", "DependencyParser"):
        yield f"{name}: source", lambda: clone(case.model).fit(_source(case))


def _in_parts(model: Any, case: Case) -> Any:
    half = len(case.X) // 2
    parameters = signature(model.partial_fit).parameters
    more = (
        {"classes": CLASSES.get(type(model).__name__, [0, 1, 2])} if "classes" in parameters else {}
    )
    for some in (slice(half), slice(half, None)):
        pieces = {name: value[some] for name, value in case.more.items()}
        model.partial_fit(case.X[some], case.y[some], **more, **pieces)
        more = {}
    return model


def _warm(model: Any, case: Case) -> Any:
    model.fit(case.X, case.y, **case.more)
    return model.set_params(warm_start=True, C=2.0).fit(case.X, case.y, **case.more)


def _source(case: Case) -> Any:
    return mm.data.open_examples(case.X, case.y, batch_bytes=300)


def digest(value: Any) -> Any:
    """A value as JSON: numbers bit for bit, arrays by their bytes."""
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, bool | int | str | None):
        return value
    if sp.issparse(value):
        value = value.toarray()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    if isinstance(value, dict):
        return {str(key): digest(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [digest(one) for one in value]
    return type(value).__name__


def outcome(fit: Any) -> dict[str, Any]:
    """What a fit computes, or the name of the exception that it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fit()
    except Exception as error:
        return {"raises": type(error).__name__}
    found = {
        name: digest(value)
        for name, value in sorted(vars(model).items())
        if name.endswith("_") and not name.startswith("_")
    }
    if hasattr(model, "history_"):
        found["history_"] = [
            [one.oracle_calls, one.cache_hits, *map(digest, (one.primal, one.dual, one.objective))]
            for one in model.history_
        ]
        certificate = model.certificate_
        found["certificate_"] = [digest(certificate.primal), digest(certificate.dual)]
    return found


def all_outcomes(only: str = "") -> dict[str, Any]:
    """What all fits compute."""
    cases = {name: make() for name, make in CASES.items()}
    return {
        what: outcome(fit)
        for name, case in cases.items()
        for what, fit in fits(name, case)
        if only in what
    }


def main(action: str, path: str, only: str = "") -> int:
    """Record, or compare and say what differs."""
    now = all_outcomes(only)
    if action == "record":
        Path(path).write_text(json.dumps(now, indent=1, sort_keys=True))
        return 0
    before = json.loads(Path(path).read_text())
    now = json.loads(json.dumps(now))
    different = 0
    for what in sorted(w for w in {*before, *now} if only in w):
        old, new = before.get(what, {}), now.get(what, {})
        wrong = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        if wrong:
            different += 1
            print(f"{what}: {', '.join(wrong)}")
    print(f"{len(now)} fits, {different} differ")
    return different > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

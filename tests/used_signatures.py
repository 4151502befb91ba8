"""Signatures of compiled routines that users' fits and predictions need, to be in the catalogue.

    python tests/used_signatures.py          signatures that are not in the catalogue
    python tests/used_signatures.py write    puts them there

Every estimator is fitted in every way (`recorded_fits`), for a few iterations, with rows of every
kind; then all that it can predict is asked for. Commands read files of every format.
"""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from click.testing import CliRunner
from every_estimator import CASES, Case
from kinds_of_files import FILES
from numba.core.dispatcher import Dispatcher
from recorded_fits import fits

import maxmargin as mm
from maxmargin.cli.main import app
from maxmargin.compiled.catalogue import SIGNATURES, catalogue, spelled
from maxmargin.core.inputs import has_dictionaries

ASKED = [
    "predict", "decision_function", "predict_instances", "predict_latent", "predict_marginals",
    "transform",
]  # fmt: skip
"""Methods that are given X alone."""


def kinds_of_rows(case: Case) -> Iterator[Case]:
    """The same data with numbers of single precision, in sparse matrices, not writable."""
    yield case
    if case.scale is None:  # there are no numbers in it
        return
    sparse = sp.csr_array if isinstance(case.X, np.ndarray) else None
    for kind in (np.float32, np.float64):
        rows = _mapped(lambda x, kind=kind: x.astype(kind), case.X)
        yield case._replace(X=rows)
        if sparse is not None:
            yield case._replace(X=sparse(rows))
            wide = sparse(rows)
            wide.indices, wide.indptr = (a.astype(np.int64) for a in (wide.indices, wide.indptr))
            yield case._replace(X=wide)
            yield case._replace(X=_as_of_a_vectorizer(rows))
        elif isinstance(case.X, list) and isinstance(case.X[0], np.ndarray):
            yield case._replace(X=[sp.csr_array(np.atleast_2d(x)) for x in rows])
    yield case._replace(X=_mapped(_locked, case.X))
    if isinstance(case.model, mm.SequenceTagger):
        yield case._replace(X=[[_named(row) for row in x] for x in case.X])


def _named(row: Any) -> dict[str, str]:
    """Features as indicators, whose values are kept in single precision."""
    return {f"f{j}": "high" if value > 0 else "low" for j, value in enumerate(row)}


def _as_of_a_vectorizer(rows: Any) -> Any:
    """Sparse rows whose columns are out of order, and few of many."""
    X = sp.csr_array(rows)
    of_row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    order = np.lexsort((-X.indices, of_row))
    shape = X.shape[0], 50 * X.shape[1]
    return sp.csr_array((X.data[order], X.indices[order], X.indptr), shape=shape)


def _mapped(change: Any, X: Any) -> Any:
    """All arrays of numbers in X changed."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        return change(X)
    if isinstance(X, list | tuple):
        return type(X)(_mapped(change, one) for one in X)
    return X


def _locked(array: Any) -> Any:
    array = array.copy()
    array.setflags(write=False)
    return array


def use_everything(only: str = "") -> None:
    """Fit and predict, in every way."""
    for name, make in CASES.items():
        if only in name:
            for k, case in enumerate(kinds_of_rows(make())):
                case.model.set_params(**_few_iterations(case.model))
                is_basic = k == 0 or has_dictionaries(case.X)
                ways = fits(name, case) if is_basic else [(name, _fit(case))]
                for _, fit in ways:
                    _use(fit, case)


def _few_iterations(model: Any) -> dict[str, int]:
    limits = {"max_iter": 3, "max_imputations": 1}
    return {name: value for name, value in limits.items() if name in model.get_params()}


def _fit(case: Case) -> Any:
    return lambda: case.model.fit(case.X, case.y, **case.more)


def _use(fit: Any, case: Case) -> None:
    """Some combinations are refused, with a sentence that other tests read."""
    try:
        model = fit()
    except (ValueError, TypeError):
        return
    questions = [(method, (case.X,)) for method in ASKED]
    questions += [("predict_k_best", (case.X, 2)), ("score", (case.X, case.y))]
    for method, arguments in questions:
        if hasattr(model, method):
            try:
                getattr(model, method)(*arguments)
            except (ValueError, TypeError):
                continue


def use_many_classes() -> None:
    """Fit sparse rows of rare features with many classes, from zero and from an earlier fit."""
    random = np.random.default_rng(0)
    y = np.arange(360) % 120
    for kind in (np.float32, np.float64):
        X = sp.csr_array((random.random((360, 2000)) < 0.002).astype(kind))
        model = mm.LinearClassifier(max_iter=3, warm_start=True, fit_intercept=False)
        model.fit(X, y).fit(X, y)


def use_long_tagger_fits() -> None:
    """Fit taggers until a momentum is reverted, and from an earlier fit."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 4)), random.integers(0, 3, size=200)
    for kind in (np.float32, np.float64):
        model = mm.SequenceTagger(C=10.0, tol=1e-6, max_iter=60, warm_start=True)
        for _ in range(2):
            model.fit(X.astype(kind), y, lengths=[5] * 40)


def use_threads() -> None:
    """Fit rows that are enough for two threads, to classes and to numbers."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(9000, 3)), random.normal(size=9000)
    for model, target in (
        (mm.LinearClassifier(), np.digitize(y, [-0.5, 0.5])),
        (mm.LinearClassifier(nonnegative=True), np.digitize(y, [-0.5, 0.5])),
        (mm.LinearRegressor(), y),
    ):
        model.set_params(n_jobs=2, max_iter=3).fit(X, target)


def use_commands(folder: Path) -> None:
    """Train from a file of every kind, in memory and streamed, and predict."""
    for kind, content in FILES.items():
        data, model = folder / f"{kind}.txt", folder / f"{kind}.mm"
        data.write_text(content)
        options = ["-q", "--max-iter", "3", "--task", kind.split("(")[1][:-1]]
        options += ["--format", kind.split()[0], "-o", str(model)]
        for more in ([], ["--stream"], ["--hash", "8"]):
            CliRunner().invoke(app, ["train", str(data), *options, *more])
        CliRunner().invoke(app, ["predict", str(model), str(data), "-o", str(folder / "out")])
        CliRunner().invoke(app, ["convert", str(data), str(folder / f"{kind}.csr")])


def used_lines() -> set[str]:
    """Lines of a catalogue for all signatures that this process has called routines with."""
    routines = {
        value
        for name, module in list(sys.modules.items())
        if name.startswith("maxmargin.")
        for value in vars(module).values()
        if isinstance(value, Dispatcher)
    }
    lines = {
        f"{one.py_func.__module__}.{one.py_func.__qualname__}({spelled(signature)})"
        for one in routines
        for signature in one.overloads
    }
    # Literals are those of callers, into which such code was compiled.
    return {line for line in lines if line.startswith("maxmargin.") and "Literal" not in line}


def missing_lines() -> list[str]:
    """What users need and the catalogue has not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        use_everything()
        use_many_classes()
        use_long_tagger_fits()
        use_threads()
        with TemporaryDirectory() as folder:
            use_commands(Path(folder))
    return sorted(used_lines() - set(catalogue()))


if __name__ == "__main__":
    missing = missing_lines()
    print(*missing, sep="\n")
    if sys.argv[1:] == ["write"]:
        SIGNATURES.write_text("".join(f"{one}\n" for one in sorted({*catalogue(), *missing})))
    print(f"{len(missing)} signatures were not in the catalogue", mm.__version__, file=sys.stderr)

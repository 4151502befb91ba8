"""The benchopt benchmark runs with benchopt itself, and its numbers agree with the library's."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest

import maxmargin as mm

FOLDER = Path(__file__).parents[2] / "benchopt"


def installed(package: str) -> bool:
    """Whether it is there; the folder named benchopt at the root is no package."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


pytestmark = pytest.mark.skipif(
    not installed("benchopt"), reason="not installed: pip install benchopt"
)


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The benchmark in a folder where its cache and its results may be left."""
    folder = tmp_path_factory.mktemp("benchmark") / "structural_svm"
    hidden = shutil.ignore_patterns("outputs", "__cache__", "__pycache__")
    shutil.copytree(FOLDER, folder, ignore=hidden)
    return folder


def benchopt(folder: Path, *arguments: str, **environment: str):
    pandas = pytest.importorskip("pandas")
    out = folder.parent / "found.parquet"
    call = [sys.executable, "-m", "benchopt", "run", str(folder), "--no-plot", "--seed", "0"]
    around = {key: value for key, value in os.environ.items() if key != "MAXMARGIN_DATA"}
    done = subprocess.run(
        [*call, "--output", str(out), *arguments],
        cwd=folder.parent,
        env=around | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return (pandas.read_parquet(out) if out.exists() else None), done.stdout


def final(found, dataset: str, solver: str):
    """The last point of a solver's curve."""
    rows = found[
        found.dataset_name.str.startswith(dataset) & found.solver_name.str.startswith(solver)
    ]
    assert len(rows), (dataset, solver)
    return rows.iloc[-1]


@pytest.mark.slow
def test_solvers_agree_on_the_optimum_and_gaps_are_honest(copied):
    found, text = benchopt(
        copied,
        *("-d", "Simulated[n_sequences=30,n_labels=3,n_features=5]", "-d", "Digits"),
        *("-s", "maxmargin[solver=[auto,one-slack,frank-wolfe]]", "-s", "Subgradient"),
        *("-s", "maxmargin-sequential-dual", "-s", "LIBLINEAR", "-n", "12", "--timeout", "100"),
    )
    assert found is not None, text
    duals = found.objective_dual.dropna()
    assert (duals <= found.objective_value[duals.index] * (1 + 1e-9)).all()
    auto = final(found, "Simulated", "maxmargin[solver=auto]")
    assert auto.objective_relative_gap < 0.02
    for other in ("maxmargin[solver=one-slack]", "maxmargin[solver=frank-wolfe]", "Subgradient"):
        value = final(found, "Simulated", other).objective_value
        assert auto.objective_dual <= value * (1 + 1e-9)
        assert value < 2.0 * auto.objective_value
    # Plain classes: the peer's optimum is the one that ours certifies.
    ours = final(found, "Digits", "maxmargin-sequential-dual")
    assert ours.objective_test_error < 0.12
    if installed("liblinear-official"):
        theirs = final(found, "Digits", "LIBLINEAR").objective_value
        assert ours.objective_dual * (1 - 1e-9) <= theirs <= ours.objective_value * 1.3


def test_value_in_numpy_is_that_of_the_certificate(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from benchmark_utils.chains import primal, search  # type: ignore[import-not-found]

    random = np.random.default_rng(0)
    lengths = random.integers(1, 6, size=40)
    X = random.normal(size=(lengths.sum(), 4))
    y = random.integers(3, size=len(X))
    model = mm.SequenceTagger(0.5, fit_intercept=False, fit_ends=False).fit(X, y, lengths=lengths)
    weights = model.coef_.T, model.transitions_
    assert primal(X, y, lengths, 0.5, *weights) == pytest.approx(model.certificate_.primal)
    answers = model.predict(X, lengths=lengths)
    np.testing.assert_array_equal(search(X, lengths, *weights), answers)


def test_data_that_are_not_there_are_skipped_with_the_reason(copied):
    small = "Simulated[n_sequences=10,n_labels=2,n_features=3]"
    solvers = "-s", "Subgradient", "-s", "maxmargin[solver=auto]"
    found, text = benchopt(copied, "-d", "OCR", "-d", small, *solvers, "-n", "2")
    assert not found.dataset_name.str.startswith("OCR").any()
    ours = final(found, "Simulated", "maxmargin[solver=auto]")
    assert ours.objective_dual <= ours.objective_value * (1 + 1e-9)
    theirs = final(found, "Simulated", "Subgradient").objective_value
    assert ours.objective_dual <= theirs * (1 + 1e-9)
    assert "MAXMARGIN_DATA names no folder with letters" in text

"""One rule says when weights and a dual point are good enough, by a relative or an absolute gap."""

import math
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from structured_referee import compiled_chains, random_chains

import maxmargin as mm
from maxmargin.core.kernel_oracle import Multiclass
from maxmargin.core.result import AbsoluteGap, Iteration
from maxmargin.data.sources import Examples, Source
from maxmargin.report.progress import TimeLeft
from maxmargin.solvers.loop import Stopping
from maxmargin.training.fit import SOLVERS, make_solver

IRIS, SPECIES = load_iris(return_X_y=True)
DIGITS, NUMBERS = load_digits(return_X_y=True)
DIGITS = DIGITS / 16
RANDOM = np.random.default_rng(0)
WORDS = [RANDOM.normal(size=(n, 4)) for n in RANDOM.integers(1, 6, size=30)]
TAGS = [(rows[:, :3] + 0.5 * RANDOM.normal(size=(len(rows), 3))).argmax(axis=1) for rows in WORDS]


def test_relative_and_absolute_gaps():
    relative, absolute = Stopping.within(0.1), Stopping.within(AbsoluteGap(2.0))
    assert relative.is_enough(10.0, 9.0)
    assert not relative.is_enough(10.0, 8.9)
    assert absolute.is_enough(1000.0, 998.0)
    assert not absolute.is_enough(1000.0, 997.9)
    assert not absolute.is_enough(math.inf, 0.0)
    assert not absolute.is_enough(1.0, -math.inf)
    assert (relative.allowed_gap(-50.0), absolute.allowed_gap(-50.0)) == (5.0, 2.0)
    assert (relative.relative_tol(50.0), absolute.relative_tol(50.0)) == (0.1, 0.04)
    assert absolute.share(2.0, 4).gap == 0.5


@pytest.mark.parametrize("gap", [0.0, -1.0, math.inf, math.nan, "1", None])
def test_absolute_gaps_are_positive_numbers(gap):
    with pytest.raises(ValueError, match="must be a positive number"):
        AbsoluteGap(gap)


@pytest.mark.parametrize("tol", [0.0, -1.0, "small", None])
def test_other_tolerances_are_refused(tol):
    with pytest.raises(ValueError, match="'tol' parameter of LinearClassifier must be"):
        mm.LinearClassifier(tol=tol).fit(IRIS, SPECIES)


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_stop_at_an_absolute_gap(solver):
    oracle = compiled_chains(random_chains(3, n=40, longest=5))
    calls = []
    # Exponentiated gradients are slow near the optimum, which is not what this is about.
    for gap in (3.0, 1.0 if solver == "exponentiated-gradient" else 0.3):
        result = make_solver(solver).solve(oracle, Stopping.within(AbsoluteGap(gap), 20_000))
        assert result.status == "converged"
        assert result.certificate.gap <= gap
        calls.append(result.history[-1].oracle_calls)
    assert calls[0] < calls[1]


class Digits(Source):
    def batches(self):
        for at in range(0, 600, 150):
            yield Examples(DIGITS[at : at + 150], NUMBERS[at : at + 150])


FITS = {
    "crammer-singer": lambda tol: mm.LinearClassifier(tol=tol).fit(DIGITS, NUMBERS),
    "weston-watkins": lambda tol: mm.LinearClassifier(tol=tol, formulation="weston-watkins").fit(
        DIGITS, NUMBERS
    ),
    "one-vs-rest": lambda tol: mm.LinearClassifier(tol=tol, formulation="one-vs-rest").fit(
        DIGITS, NUMBERS
    ),
    "regression": lambda tol: mm.LinearRegressor(tol=tol).fit(DIGITS, NUMBERS),
    "stream": lambda tol: mm.LinearClassifier(tol=tol).fit(Digits()),
    "kernel classes": lambda tol: mm.KernelStructuredSVM(Multiclass(), C=0.1, tol=tol).fit(
        IRIS, SPECIES
    ),
    "latent": lambda tol: mm.LatentClassifier(C=0.1, tol=tol).fit(
        [np.array([row, -row]) for row in IRIS[::3]], SPECIES[::3]
    ),
    "graphs": lambda tol: mm.GraphLabeler(C=0.3, tol=tol).fit(
        [(rows, [(k, k + 1) for k in range(len(rows) - 1)]) for rows in WORDS], TAGS
    ),
    "path": lambda tol: mm.LinearClassifier(tol=tol).path(DIGITS, NUMBERS, Cs=[0.1, 1.0])[1],
}


@pytest.mark.parametrize("name", FITS)
def test_estimators_stop_at_an_absolute_gap(name):
    gaps = [1.0, 0.1]
    models = [FITS[name](AbsoluteGap(gap)) for gap in gaps]
    for model, gap in zip(models, gaps, strict=True):
        assert model.status_ == "converged"
        assert model.certificate_.gap <= gap
    assert models[0].certificate_.gap > 0.1  # it has not trained on
    assert models[0].history_[-1].oracle_calls < models[1].history_[-1].oracle_calls


def test_two_classes_on_shards_are_doubled_and_so_is_their_gap():
    X, y = DIGITS[:100], NUMBERS[:100] == 3
    model = mm.LinearClassifier(tol=AbsoluteGap(0.2), engine="processes", n_jobs=2).fit(X, y)
    assert hasattr(model.history_[0], "sent")
    assert model.certificate_.gap <= 0.2


def test_the_parameter_survives_clones_copies_and_files(tmp_path):
    model = mm.LinearClassifier(tol=AbsoluteGap(0.5))
    assert clone(model).tol == AbsoluteGap(0.5)
    assert pickle.loads(pickle.dumps(model)).tol == AbsoluteGap(0.5)
    mm.save(model.fit(IRIS, SPECIES), tmp_path / "model.mm")
    again = mm.load(tmp_path / "model.mm")
    assert again.tol == AbsoluteGap(0.5)
    assert "AbsoluteGap(gap=0.5)" in repr(again)


def test_a_fit_that_did_not_get_there_says_so_in_the_same_units():
    model = mm.LinearClassifier(tol=AbsoluteGap(1e-6), max_iter=2)
    with pytest.warns(ConvergenceWarning, match=r"duality gap of [\d.]+, above tol=AbsoluteGap\(1"):
        model.fit(IRIS, SPECIES)


def test_checkpoints_go_on(tmp_path):
    path = tmp_path / "run.checkpoint"
    fit = {"C": 0.3, "checkpoint": mm.Checkpoint(path, 0.0, resume=True)}
    with pytest.warns(ConvergenceWarning):
        mm.SequenceTagger(tol=AbsoluteGap(0.01), max_iter=2, **fit).fit(WORDS, TAGS)
    tagger = mm.SequenceTagger(tol=AbsoluteGap(0.01), **fit).fit(WORDS, TAGS)
    assert tagger.certificate_.gap <= 0.01
    assert tagger.history_[0].seconds < tagger.history_[-1].seconds


def test_time_left_until_an_absolute_gap():
    left = TimeLeft(AbsoluteGap(1e-2))
    for second in range(1, 11):
        left.add(Iteration(second, 0, 0, primal=100.0 + 100.0 * 0.5**second, dual=100.0, cuts=0))
    assert left.seconds(now=10.0) == pytest.approx(math.log2(100.0 * 0.5**10 / 1e-2), rel=0.05)

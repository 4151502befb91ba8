"""Scikit-learn's own callbacks with our estimators."""

import re

import numpy as np
import pytest
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

import maxmargin as mm
from maxmargin.cli.tour import make_digit_words

IRIS, SPECIES = load_iris(return_X_y=True)
WORDS = make_digit_words(30, 1)


def fitted_tagger(callback):
    return mm.SequenceTagger().set_callbacks(callback).fit(WORDS.X_train, WORDS.y_train)


def test_the_bar_of_a_structured_estimator(capsys):
    pytest.importorskip("rich")
    fitted_tagger(ProgressBar())
    assert "SequenceTagger" in capsys.readouterr().out


def test_scores_of_the_rounds_of_a_linear_model():
    monitor = ScoringMonitor(scoring="accuracy")
    model = mm.LinearClassifier().set_callbacks(monitor).fit(IRIS, SPECIES)
    *iterations, _ = scores = [row["accuracy"] for row in reversed(monitor.get_logs().data)]
    assert len(iterations) == model.n_iter_
    assert model.score(IRIS, SPECIES) in scores


def test_scores_of_the_rounds_of_a_tagger():
    monitor = ScoringMonitor(scoring={"score": lambda model, X, y: model.score(X, y)})
    tagger = fitted_tagger(monitor)
    scores = [row["score"] for row in monitor.get_logs().data]
    assert len(scores) == tagger.n_iter_ + 1
    assert max(scores) > 0.9
    assert np.isfinite(scores).all()


def test_scores_of_a_search_and_a_line_that_shows_it(capsys):
    monitor = ScoringMonitor(scoring="accuracy")
    model = mm.LinearClassifier().set_callbacks(monitor)
    infer = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=2, error_score="raise")
    infer.set_callbacks(mm.ProgressLine()).fit(IRIS, SPECIES)
    assert len(monitor.get_logs().data) > 5
    assert re.search(r"^5 fits  .* s\n$", capsys.readouterr().err, re.MULTILINE)

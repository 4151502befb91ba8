"""plot_convergence, plot_path and plot_confusion: what is drawn is what the fits say."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import maxmargin as mm
from maxmargin.core.result import Iteration
from maxmargin.report.plots import plot_confusion, plot_convergence, plot_path

matplotlib.use("Agg")

X, y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def models():
    return mm.LinearClassifier().path(X, y, Cs=[1.0, 0.01, 0.1])


@pytest.fixture(autouse=True)
def closed():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def lines(axis):
    return {line.get_label(): line.get_xydata() for line in axis.get_lines()}


@pytest.mark.parametrize(
    ("against", "attribute"), [("seconds", "seconds"), ("oracle_calls", "oracle_calls")]
)
def test_convergence_shows_the_history(models, against, attribute):
    model = models[0]
    gap, objectives = plot_convergence(model, against=against)
    history, end = model.history_, model.certificate_
    at = [getattr(line, attribute) for line in history]
    exact = [(x, line) for x, line in zip(at, history, strict=True) if line.exact]
    assert 0 < len(exact) < len(history)
    drawn = lines(objectives)
    assert_allclose(
        drawn["evaluated"], [*((x, line.objective) for x, line in exact), (at[-1], end.primal)]
    )
    assert_allclose(drawn["estimated"], list(zip(at, (x.objective for x in history), strict=True)))
    assert_allclose(drawn["dual"], list(zip(at, (x.dual for x in history), strict=True)))
    gaps = lines(gap)
    assert_allclose(
        gaps["evaluated"],
        [*((x, line.relative_gap) for x, line in exact), (at[-1], end.relative_gap)],
    )
    assert_allclose(
        gaps["estimated"],
        [(x, y.objective_gap) for x, y in zip(at, history, strict=True) if y.objective_gap > 0.0],
    )
    assert_allclose(gaps["tol"][:, 1], model.tol)
    assert gap.get_yscale() == "log"
    assert gap.get_xlabel() == objectives.get_xlabel() == against.replace("_", " ")


def test_several_estimators_are_compared_in_given_axes(models):
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 2)
    found = plot_convergence({"low": models[1], "high": models[0]}, axes=axes)
    assert list(found) == list(axes)
    kinds = {f"{a}, {b}" for a in ("low", "high") for b in ("estimated", "evaluated")}
    assert set(lines(axes[0])) == kinds | {"tol"}
    assert set(lines(axes[1])) == kinds | {"low, dual", "high, dual"}
    legends = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in axes]
    assert legends[0] == ["low", "high", "estimated", "evaluated", "tol"]
    assert legends[1] == ["low", "high", "estimated", "evaluated", "dual"]


def test_long_histories_are_thinned_and_zero_gaps_drawn():
    history = [Iteration(float(i), i, 0, 2.0 - i / 3000, 1.0, 1) for i in range(3000)]
    history.append(Iteration(3000.0, 3000, 0, 1.0, 1.0, 1))
    gap, _ = plot_convergence(SimpleNamespace(history_=history, tol=0.1))
    drawn = gap.get_lines()[0].get_xydata()
    assert len(drawn) == 500
    assert drawn[0, 0] == 0.0
    assert drawn[-1].tolist() == [3000.0, 1e-16]


def styles(axis):
    return {line.get_label(): line for line in axis.get_lines()}


def test_estimates_are_dashed_and_hollow_and_what_was_evaluated_is_solid_and_filled():
    line = Iteration(0.0, 0, 0, np.inf, 1.0, 1, objective=4.0)
    history = [replace(line, seconds=float(k), oracle_calls=k) for k in range(4)]
    history.append(replace(line, seconds=4.0, primal=2.0, objective=2.0, exact=True))
    model = SimpleNamespace(history_=history, tol=0.1)
    for axis in plot_convergence(model):
        drawn = styles(axis)
        assert drawn["estimated"].get_linestyle() == "--"
        assert drawn["estimated"].get_markerfacecolor() == "none"
        assert drawn["evaluated"].get_linestyle() == "-"
        assert drawn["evaluated"].get_markerfacecolor() == drawn["evaluated"].get_color()
        assert drawn["evaluated"].get_xdata().tolist() == [4.0]
        words = {text.get_text() for text in axis.get_legend().get_texts()}
        assert {"estimated", "evaluated"} <= words


def test_an_estimate_below_the_dual_has_no_gap_and_no_objective_is_no_line():
    line = Iteration(0.0, 0, 0, np.inf, 1.0, 1, objective=0.5)
    gap, objectives = plot_convergence(SimpleNamespace(history_=[line], tol=0.1))
    assert set(lines(gap)) == {"tol"}
    assert set(lines(objectives)) == {"estimated", "dual"}
    unknown = replace(line, objective=np.inf)
    _, objectives = plot_convergence(SimpleNamespace(history_=[unknown], tol=0.1))
    assert set(lines(objectives)) == {"dual"}


def test_the_few_evaluations_of_a_long_history_are_all_drawn():
    history = [Iteration(float(i), i, 0, 2.0, 1.0, 1, objective=3.0) for i in range(3000)]
    for i in (7, 1234):
        history[i] = replace(history[i], objective=2.0, exact=True)
    _, objectives = plot_convergence(SimpleNamespace(history_=history, tol=0.1))
    assert lines(objectives)["evaluated"][:, 0].tolist() == [7.0, 1234.0]


def test_the_tolerance_of_an_absolute_gap_is_drawn_relative_to_the_end():
    history = [Iteration(0.0, 0, 0, 50.0, 40.0, 1, objective=50.0, exact=True)]
    gap, _ = plot_convergence(SimpleNamespace(history_=history, tol=mm.AbsoluteGap(5.0)))
    assert_allclose(lines(gap)["tol"][:, 1], 0.1)


def test_the_far_start_of_objectives_is_left_out():
    values = [(1000.0, 1.0), (20.0, 5.0), (11.0, 9.0), (10.0, 9.9)]
    history = [Iteration(float(i), i, 0, *value, 1) for i, value in enumerate(values)]
    _, objectives = plot_convergence(SimpleNamespace(history_=history, tol=0.1))
    assert objectives.get_ylim()[1] == 30.0


def test_path_is_drawn_over_rising_c(models):
    score, objective, gap, size = plot_path(models, X, y)
    Cs, rising = [0.01, 0.1, 1.0], sorted(models, key=lambda model: model.C)
    assert_allclose(lines(score).popitem()[1], [(m.C, m.score(X, y)) for m in rising])
    assert_allclose(lines(objective)["primal"][:, 1], [m.certificate_.primal for m in rising])
    assert_allclose(lines(objective)["dual"][:, 1], [m.certificate_.dual for m in rising])
    assert_allclose(gap.get_lines()[0].get_ydata(), [m.certificate_.relative_gap for m in rising])
    weights = lines(size)["non-zero weights"]
    assert_allclose(weights, [(m.C, np.count_nonzero(m.coef_)) for m in rising])
    cuts = lines(size)["cutting planes or support vectors"]
    assert_allclose(cuts[:, 1], [m.history_[-1].cuts for m in rising])
    assert all(axis.get_xscale() == "log" for axis in (score, objective, gap, size))
    assert weights[:, 0].tolist() == Cs


def test_path_without_data_and_with_parameters_of_the_score(models):
    assert len(plot_path(models)) == 3
    queries = np.arange(150) % 15
    rankers = [mm.Ranker(C=C).fit(X, y, queries) for C in (0.01, 0.1)]
    score, *_ = plot_path(rankers, X, y, groups=queries)
    expected = [model.score(X, y, queries) for model in rankers]
    assert_allclose(score.get_lines()[0].get_ydata(), expected)


def test_confusion_shows_numbers_of_few_classes():
    axis = plot_confusion(["a", "a", "b", "c"], ["a", "b", "b", "a"])
    assert_allclose(axis.get_images()[0].get_array(), [[1, 1, 0], [0, 1, 0], [1, 0, 0]])
    assert sorted(text.get_text() for text in axis.texts) == ["1"] * 4
    assert axis.get_xlabel() == "predicted"


def test_confusion_of_chosen_labels_as_shares():
    axis = plot_confusion(
        [["N", "V"], ["N", "N"]], [["N", "N"], ["V", "V"]], labels=["V", "N"], normalize="true"
    )
    assert_allclose(axis.get_images()[0].get_array(), [[0.0, 1.0], [2 / 3, 1 / 3]])
    assert [text.get_text() for text in axis.get_yticklabels()] == ["V", "N"]


def test_confusion_of_a_hundred_classes_names_some():
    random = np.random.default_rng(0)
    y_true, said = random.integers(0, 100, size=(2, 3000))
    axis = plot_confusion(y_true, said)
    names = [text.get_text() for text in axis.get_yticklabels()]
    assert names == [str(i) for i in range(0, 100, 3)]
    assert not axis.texts
    assert axis.figure.get_size_inches()[0] >= 10


def test_confusion_mixes_numbers_and_names():
    axis = plot_confusion([1, 2], ["1", "x"])
    assert [text.get_text() for text in axis.get_yticklabels()] == ["1", "2", "x"]


def test_long_names_are_cut():
    axis = plot_confusion(["a" * 50, "b"], ["b", "b"])
    assert axis.get_yticklabels()[0].get_text() == "a" * 13 + "…"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_convergence({}), "There are no estimators to plot"),
        (lambda: plot_convergence(None, against="iterations"), "against must be 'seconds' or"),
        (lambda: plot_path([]), "There are no models to plot"),
        (lambda: plot_confusion([1], [1, 2]), "y_true has 1 entries but y_pred has 2"),
        (lambda: plot_confusion([[1], [1]], [[1], [1, 2]]), r"y_true\[1\] and .* have different"),
        (lambda: plot_confusion([], []), "There are no labels to compare"),
        (lambda: plot_confusion([1], [1], labels=[7]), "None of the labels occurs in y_true"),
        (lambda: plot_confusion([1], [1], normalize="rows"), "normalize must be 'true'"),
    ],
)
def test_bad_calls_get_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_estimators_must_be_fitted(models):
    with pytest.raises(NotFittedError, match="LinearClassifier has no history to plot: call fit"):
        plot_convergence(mm.LinearClassifier())
    with pytest.raises(ValueError, match="axes must be 2 axes, but there are 1"):
        plot_convergence(models[0], axes=[None])


def test_matplotlib_is_named_where_it_is_missing(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for call in (
        lambda: plot_convergence(models[0]),
        lambda: plot_path(models),
        lambda: plot_confusion([1], [1]),
    ):
        with pytest.raises(ImportError, match=r'pip install "maxmargin\[report\]"'):
            call()

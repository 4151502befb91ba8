"""ProgressLine: in terminals, files and notebooks, alone and in searches."""

import io
import os
import pickle
import re
import subprocess
import sys
import time
import types

import numpy as np
import pytest
from screens import Screen, run_in_terminal
from sklearn.callback import AutoPropagatedCallback, FitCallback
from sklearn.datasets import load_iris, make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import maxmargin as mm
from maxmargin.core.result import Iteration
from maxmargin.data import live_line
from maxmargin.data.live_line import Field, LiveLine, fitted
from maxmargin.report.progress import ProgressLine, _News, _Run

IRIS, SPECIES = load_iris(return_X_y=True)


class Terminal(io.StringIO):
    """Says it is a terminal, 80 wide."""

    def isatty(self):
        return True

    def screen(self, width=80):
        return Screen(width).feed(self.getvalue()).rows


@pytest.fixture(autouse=True)
def _terminal_of_some_kind(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


def iteration_at(seconds=1.0, **values):
    given = {"oracle_calls": 12_345, "cache_hits": 678, "primal": 2.0, "dual": 1.0, "cuts": 9}
    return Iteration(seconds, **given | values)


def news(line=None, *, fit=(0,), n_fits=None, iterations=1, **rest):
    return _News(fit, n_fits, 1.0, 1e-3, None, iterations, line, **rest)


class Failing:
    """A callback that fails after the first iteration."""

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        raise ZeroDivisionError

    def teardown(self, estimator, context):
        pass


# Alone.


def test_it_keeps_to_the_protocols_of_scikit_learn():
    assert isinstance(ProgressLine(), FitCallback)
    assert isinstance(ProgressLine(), AutoPropagatedCallback)


def test_in_a_file_every_iteration_is_a_line_if_asked_for():
    stream = io.StringIO()
    model = mm.LinearClassifier().set_callbacks(ProgressLine(every=0, stream=stream))
    model.fit(IRIS, SPECIES)
    *lines, rest = stream.getvalue().split("\n")
    assert rest == ""
    numbers = [int(re.search(r"iteration (\d+) ", line)[1]) for line in lines]
    assert numbers == [*range(1, model.n_iter_ + 1), model.n_iter_]  # and one for the end
    assert f"gap {model.certificate_.relative_gap:.1e}  tol 0.001" in lines[-1]
    assert lines[-1].endswith("s  converged")
    assert "\r" not in stream.getvalue()
    assert "nan" not in stream.getvalue()


def test_in_a_file_a_short_fit_is_one_line():
    stream = io.StringIO()
    mm.LinearClassifier().set_callbacks(ProgressLine(stream=stream)).fit(IRIS, SPECIES)
    assert stream.getvalue().startswith("C 1  iteration")
    assert stream.getvalue().count("\n") == 1


def test_in_a_file_the_lines_of_a_long_fit_come_ever_less_often(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    stream = io.StringIO()
    run = _Run(LiveLine(stream), None)
    for second in range(10_000):
        clock[0] = float(second)
        run.hear(news(iteration_at(second, primal=1.0 + 1e3 / (second + 1))))
    lines = stream.getvalue().splitlines()
    assert 150 < len(lines) < 300  # at every five seconds, they would be 2,000
    assert lines[0].split("  ")[-2] == "5.0 s"


def test_in_a_terminal_the_line_is_rewritten():
    terminal = Terminal()
    line = ProgressLine(every=0, stream=terminal)
    mm.LinearRegressor().set_callbacks(line).fit(IRIS, SPECIES)
    assert terminal.getvalue().count("\r") > 2
    (shown, rest) = terminal.screen()
    assert re.fullmatch(r"C 1  iteration \d+  gap .*  converged", shown)
    assert rest == ""


def test_nothing_of_a_longer_line_is_left_behind():
    terminal = Terminal()
    run = _Run(LiveLine(terminal), 0.0)
    run.hear(news(iteration_at(dual=1.23456)))
    run.hear(news(iteration_at(dual=1.0)))
    run.close()
    assert re.fullmatch(r".*dual 1  .*left", terminal.screen()[0])


def test_it_goes_to_standard_error(capsys):
    mm.LinearClassifier().set_callbacks(ProgressLine()).fit(IRIS, SPECIES)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("C 1  iteration")


def test_the_line_ends_also_after_an_error():
    terminal = Terminal()
    model = mm.LinearClassifier().set_callbacks(ProgressLine(every=0, stream=terminal), Failing())
    with pytest.raises(ZeroDivisionError):
        model.fit(IRIS, SPECIES)
    assert terminal.getvalue().endswith("\n")


def test_the_clock_moves_on_during_a_long_iteration(monkeypatch):
    monkeypatch.setattr(live_line, "REFRESHES_PER_SECOND", 100)
    terminal = Terminal()
    run = _Run(LiveLine(terminal), None)
    run.hear(news(iteration_at(5.0)))
    for _ in range(200):
        if "5.1 s" in terminal.getvalue():
            break
        time.sleep(0.05)
    run.close()
    assert "  5.1 s  " in terminal.getvalue()


def test_an_estimated_gap_has_a_tilde_and_an_unknown_one_a_question_mark():
    stream = io.StringIO()
    run = _Run(LiveLine(stream), 0.0)
    run.hear(news(iteration_at(primal=np.inf)))
    run.hear(news(iteration_at(primal=np.inf, objective=2.0)))
    run.hear(news(iteration_at(primal=2.0, objective=1.1)))
    gaps = [re.search(r"gap (\S+)", line)[1] for line in stream.getvalue().splitlines()]
    assert gaps == ["?", "~5e-01", "5.0e-01"]


def test_classes_on_their_own_count_as_parts():
    stream = io.StringIO()
    model = mm.LinearClassifier(formulation="one-vs-rest")
    model.set_callbacks(ProgressLine(every=0, stream=stream)).fit(IRIS, SPECIES)
    lines = stream.getvalue().splitlines()
    parts = [re.search(r"(\d) of 3 classes", line)[1] for line in lines]
    assert parts == ["1", "2", "3", "3"]
    assert "? left" not in lines[1]
    assert "iteration" not in stream.getvalue()


def test_steps_of_a_latent_model_are_counted_and_no_time_is_promised():
    random = np.random.default_rng(0)
    bags = [random.normal(size=(3, 4)) + label for label in (0, 1) for _ in range(10)]
    stream = io.StringIO()
    line = ProgressLine(every=0, stream=stream)
    mm.LatentClassifier().set_callbacks(line).fit(bags, np.repeat([0, 1], 10))
    *lines, _ = stream.getvalue().splitlines()
    assert lines[0].startswith("C 1  imputation 1  iteration 1  ")
    assert all(line.endswith("? left") for line in lines)


def test_a_path_has_a_line_for_each_value():
    stream = io.StringIO()
    line = ProgressLine(stream=stream)
    mm.LinearClassifier().set_callbacks(line).path(IRIS, SPECIES, [0.1, 1.0, 10.0])
    begins = [shown.split("  ")[0] for shown in stream.getvalue().splitlines()]
    assert begins == ["C 0.1", "C 1", "C 10"]


def test_a_warm_start_that_has_nothing_to_do():
    stream = io.StringIO()
    model = mm.LinearClassifier(warm_start=True).fit(IRIS, SPECIES)
    model.set_params(tol=0.5).set_callbacks(ProgressLine(stream=stream)).fit(IRIS, SPECIES)
    assert re.fullmatch(r"C 1 .*gap .* converged\n", stream.getvalue())


# Inside other estimators.


def searched(n_jobs, stream):
    X, y = make_blobs(60, centers=3, random_state=0)
    model = make_pipeline(StandardScaler(), mm.LinearClassifier())
    search = GridSearchCV(
        model, {"linearclassifier__C": [0.1, 1.0]}, cv=2, error_score="raise", n_jobs=n_jobs
    )
    search.set_callbacks(ProgressLine(every=0, stream=stream)).fit(X, y)
    return search


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_counts_its_fits_in_this_process_and_in_others(n_jobs):
    stream = io.StringIO()
    search = searched(n_jobs, stream)
    lines = stream.getvalue().splitlines()
    counts = [int(line.split()[0]) for line in lines if " of 4 fits" in line]
    assert counts == sorted(counts)
    assert set(counts) >= {1, 2, 3, 4}
    assert re.fullmatch(r"5 fits  .* s", lines[-1])
    assert not hasattr(search.best_estimator_[-1], "_skl_callbacks")


def test_a_search_leaves_one_line_in_a_terminal():
    terminal = Terminal()
    searched(1, terminal)
    (shown, rest) = terminal.screen()
    assert re.fullmatch(r"5 fits  .* s", shown)
    assert rest == ""


def test_a_pipeline_shows_its_last_step():
    stream = io.StringIO()
    model = make_pipeline(StandardScaler(), mm.LinearClassifier())
    model.set_callbacks(ProgressLine(stream=stream)).fit(IRIS, SPECIES)
    assert re.fullmatch(r"C 1  iteration \d+ .*converged\n", stream.getvalue())


def test_news_of_several_fits_at_a_time():
    stream = io.StringIO()
    run = _Run(LiveLine(stream), 0.0)
    run.hear(news(iteration_at(), fit=(0, 1), n_fits=3))
    run.hear(news(iteration_at(), fit=(0, 2), n_fits=3))
    run.hear(news(fit=(0, 1), n_fits=3, status="converged"))
    run.hear(news(iteration_at(), fit=(0, 2), n_fits=3, iterations=7))
    run.close()
    lines = stream.getvalue().splitlines()
    assert [line[: len("0 of 3 fits")] for line in lines[:4]] == [
        "0 of 3 fits", "0 of 3 fits", "1 of 3 fits", "1 of 3 fits"
    ]  # fmt: skip
    assert "iteration 7  " in lines[3]
    assert lines[0].endswith("? left")
    assert lines[3].endswith("about 1 s left")


def test_it_can_be_pickled_with_an_estimator_and_used_again(capsys):
    model = mm.LinearClassifier().set_callbacks(ProgressLine(every=3.0, stream=sys.stderr))
    again = pickle.loads(pickle.dumps(model))
    again.fit(IRIS, SPECIES)
    assert again._skl_callbacks[0].every == 3.0
    assert "converged" in capsys.readouterr().err


# Width.


@pytest.mark.parametrize("width", [2, 5, 20, 33, 40, 80, 200])
def test_fields_go_by_importance_and_never_wrap(width):
    run = _Run(LiveLine(Terminal()), 0.0)
    run.hear(news(iteration_at(primal=1.0012)))
    run.close()
    fields = run._latest.fields()
    shown = fitted(fields, width)
    assert len(shown) <= width
    assert shown.startswith("gap 1.2e-03"[:width]) or "  gap 1.2e-03  " in shown
    assert width < 33 or "left" in shown
    if width == 80:
        assert re.fullmatch(
            r"C 1  iteration 1  gap 1.2e-03  tol 0.001  dual 1  calls 12.3k  1.0 s  \? left", shown
        )
    if width == 200:
        assert "calls 12.3k  cuts 9  cached 678  1.0 s" in shown


def test_empty_fields_take_no_room():
    assert fitted([Field("a", 1), Field("", 9), Field("b", 1)], 10) == "a  b"


# Real terminals, files, notebooks.

PROGRAM = """
import numpy as np
import maxmargin as mm

random = np.random.default_rng(0)
X = random.normal(size=(500, 20))
y = (X[:, :5] + random.normal(size=(500, 5))).argmax(axis=1)
print("before", flush=True)
model = mm.LinearClassifier(C=10.0, tol={tol}, max_iter=10**9, nonnegative={nonnegative})
model.set_callbacks(mm.ProgressLine(every=0.02)).fit(X, y)
print("after", model.status_)
"""


@pytest.mark.parametrize("width", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_in_a_real_terminal(width):
    text, code = run_in_terminal(PROGRAM.format(tol=1e-8, nonnegative=False), width)
    assert code == 0
    rows = Screen(width).feed(text).rows
    assert rows[0] == "before"
    assert rows[2:] == ["after converged", ""]
    assert "gap " in rows[1]
    assert rows[1].endswith("converged")
    assert ("cuts" in rows[1]) == (width == 200)
    for shown in text.replace("\x1b[2K", "").split("\r"):
        assert len(shown.strip()) < width


def test_ctrl_c_in_a_real_terminal():
    # Bounds on weights leave no way but updates, which never end at such a tol.
    endless = PROGRAM.format(tol=1e-300, nonnegative=True)
    text, code = run_in_terminal(endless, 80, interrupt_at="iteration 9")
    assert code == 0
    rows = Screen(80).feed(text.replace("^C", "")).rows
    assert rows[1].endswith("interrupted")
    assert "after interrupted" in rows
    assert "\x1b[?25l" not in text  # the cursor has never been hidden


def test_a_terminal_that_cannot_move_its_cursor():
    text, code = run_in_terminal(
        PROGRAM.format(tol=1e-4, nonnegative=False), 80, env={"TERM": "dumb"}
    )
    assert code == 0
    assert "\x1b" not in text
    assert "\r" not in text.replace("\r\n", "\n")


def test_a_stream_that_claims_to_be_a_terminal_without_a_size():
    line = LiveLine(Terminal())
    line.show([Field("x" * 200, 1)])
    line.end()
    assert line.stream.screen() == ["x" * 79, ""]


def test_a_terminal_of_no_width(monkeypatch):
    class Unsized(Terminal):
        def fileno(self):
            return 1

    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((0, 0)))
    line = LiveLine(Unsized())
    line.show([Field("x" * 200, 1)])
    line.end()
    assert line.stream.screen() == ["x" * 79, ""]


def test_a_notebook_gets_plain_lines_on_standard_output(monkeypatch, capsys):
    kernel = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert live_line._in_notebook()
    mm.LinearClassifier().set_callbacks(ProgressLine()).fit(IRIS, SPECIES)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "converged\n" in captured.out
    assert "\r" not in captured.out


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch):
    shell = types.SimpleNamespace(get_ipython=lambda: object())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert not live_line._in_notebook()


def test_a_process_among_others_writes_plain_lines(monkeypatch):
    process = types.SimpleNamespace(name="LokyProcess-1")
    monkeypatch.setattr("multiprocessing.current_process", lambda: process)
    assert not LiveLine(Terminal()).in_place


def test_without_news_nothing_stays_in_a_terminal():
    terminal = Terminal()
    _Run(LiveLine(terminal), None).close()
    assert "starting" in terminal.getvalue()
    assert terminal.screen() == [""]


PRINTING = """
class Printing:
    def setup(self, estimator, context): pass
    def on_fit_task_begin(self, estimator, context): pass
    def on_fit_task_end(self, estimator, context):
        if context.task_id == 0 and context.parent is not None:
            print("printed")
    def teardown(self, estimator, context): pass
"""


def test_what_is_printed_meanwhile_stands_above_the_line():
    program = PRINTING + PROGRAM.format(tol=1e-8, nonnegative=False).replace(
        "every=0.02)", "every=0), Printing()"
    )
    text, code = run_in_terminal(program, 80)
    assert code == 0
    rows = Screen(80).feed(text).rows
    assert rows[:2] == ["before", "printed"]
    assert rows[2].endswith("converged")
    assert rows[3:] == ["after converged", ""]


def test_rich_is_imported_only_for_terminals():
    program = "import sys, maxmargin.data.live_line; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

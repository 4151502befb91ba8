"""The tour."""

import re
import sys

import pytest

from maxmargin.cli import tour as module
from maxmargin.cli.tour import tour
from maxmargin.io.models import load


def test_the_tour(tmp_path, capsys):
    tour(tmp_path / "new" / "folder")
    captured = capsys.readouterr()
    alone, whole = map(float, re.findall(r"(0\.\d+)  (?:each digit|whole words)", captured.out))
    assert whole > alone + 0.05
    assert re.search(r"Certificate .*relative gap \d\.\de-02", captured.out)
    assert captured.err.count("converged") == 2
    assert load(tmp_path / "new" / "folder" / "words.mm").classes_.tolist() == list(range(10))
    if "matplotlib" in sys.modules:
        assert (tmp_path / "new" / "folder" / "report.html").stat().st_size > 10_000


def test_without_what_draws_plots_there_is_no_report(tmp_path, monkeypatch):
    def missing(*args, **options):
        raise ImportError("Plots need matplotlib.")

    monkeypatch.setattr(module, "write_report", missing)
    said = []
    tour(tmp_path, said.append)
    assert said[-1] == "Report         none: Plots need matplotlib."
    assert (tmp_path / "words.mm").exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        tour(tmp_path / "file" / "folder", print)


def test_ctrl_c_ends_the_tour():
    class Interrupted:
        status_ = "interrupted"

        def set_callbacks(self, *callbacks):
            return self

        def fit(self, X, y):
            return self

    with pytest.raises(KeyboardInterrupt):
        module._train(Interrupted(), None, None)

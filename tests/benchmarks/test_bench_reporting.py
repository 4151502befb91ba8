"""What benchmarks report: tables, curves with their ends, plots that are the same twice."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.legend import Legend

from benchmarks.reporting import (
    MOST_POINTS,
    Bars,
    Panel,
    Row,
    draw,
    panel_as_json,
    panel_from_json,
    table,
    thinned,
    write_json,
)

PANELS = {
    "curves": Panel({"ours": (range(1, 5), [1.0, 0.1, 0.01, 0.001])}, "seconds", "gap"),
    "bars": Bars({"a": {"ours": 1.23, "peer": 2.57}, "b": {"peer": 3.01}, "c": {}}, "seconds"),
}


@pytest.mark.parametrize("n", [1, 2, MOST_POINTS, MOST_POINTS + 1, 100_000])
def test_thinned_keeps_both_ends_and_few_points(n):
    x, y = thinned(range(n), [2 * value for value in range(n)])
    assert (x[0], x[-1]) == (0, n - 1)
    assert len(x) <= MOST_POINTS
    assert len(x) == min(n, len(x))
    assert [2 * value for value in x] == y
    assert x == sorted(set(x))


def test_thinned_keeps_all_of_a_short_curve():
    assert thinned([3, 1, 2]) == [[3, 1, 2]]


def test_table_tells_whether_bars_are_met():
    rows = [
        Row("speed", ">= 2x", "3x", "peer", True),
        Row("size", "", "2 MB"),
        Row("a", "b", "c", met=False),
    ]
    lines = table(rows).splitlines()
    assert [line.split()[-1] for line in lines] == ["met?", lines[1], "yes", "-", "no"]


def test_without_judgement_nothing_is_met_or_missed():
    text = table([Row("speed", ">= 2x", "3x", "peer", True)], judged=False)
    assert "met?" not in text
    assert text.splitlines()[-1].split() == ["speed", ">=", "2x", "3x", "peer"]


def test_the_same_plot_is_the_same_file(tmp_path):
    for folder in ("one", "two"):
        draw(PANELS, tmp_path / folder / "plot.svg")
    first = (tmp_path / "one/plot.svg").read_bytes()
    assert first == (tmp_path / "two/plot.svg").read_bytes()


def test_a_plot_is_text_on_white(tmp_path):
    draw(PANELS, tmp_path / "plot.svg")
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    texts = {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"curves", "bars", "seconds", "gap", "ours", "peer", "a", "b", "c"} <= texts
    background = re.search(
        r'id="patch_1">\s*<path [^>]*style="fill: #ffffff"', (tmp_path / "plot.svg").read_text()
    )
    assert background


def test_bars_of_missing_contestants_are_left_out(tmp_path):
    draw({"bars": PANELS["bars"]}, tmp_path / "plot.svg")
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    # Numbers above bars: three bars, and no zero for the others.
    numbers = [text for text in texts if re.fullmatch(r"\d\.\d\d", text)]
    assert numbers == ["1.23", "2.57", "3.01"]


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws panels and gives the figure, to be measured."""
    monkeypatch.setattr(pyplot, "close", lambda figure: None)

    def drawn(**panels):
        draw(panels, tmp_path / "plot.svg")
        return pyplot.gcf()

    yield drawn
    monkeypatch.undo()
    pyplot.close("all")


NAMES = [f"a contestant with a long name, {at}" for at in range(7)]
CROWDED = {
    "curves": Panel({name: ([1, 2, 3], [3, 2, 1]) for name in NAMES}, "x", "y"),
    "bars": Bars(
        {f"data set {at}, crammer-singer": dict.fromkeys(NAMES, 99.9) for at in range(9)}, "y"
    ),
    "few": Bars({"data": dict.fromkeys("ab", 99.9)}, "y"),
}


def test_legends_cover_nothing_and_nothing_is_cut_off(drawn):
    figure = drawn(**CROWDED)
    legends = [legend.get_window_extent() for legend in figure.findobj(Legend)]
    panels = [axes.get_tightbbox() for axes in figure.axes]
    assert len(legends) == len(panels) == len(CROWDED)
    assert not [1 for legend in legends for panel in panels if legend.overlaps(panel)]
    for box in (*legends, *panels):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert all(axes.bbox.height > 100 for axes in figure.axes)  # room is left for what is drawn


def test_slanted_names_end_at_their_ticks(drawn):
    (axes,) = drawn(bars=CROWDED["bars"]).axes
    assert {(name.get_ha(), name.get_rotation_mode()) for name in axes.get_xticklabels()} == {
        ("right", "anchor")
    }


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_numbers_above_bars_stay_inside_the_frame(drawn, scale):
    (axes,) = drawn(bars=Bars({"a": {"ours": 1.0}, "b": {"ours": 4.31}}, "y", scale)).axes
    assert [text.get_text() for text in axes.texts] == ["1", "4.31"]
    assert all(text.get_window_extent().y1 + 5 < axes.bbox.y1 for text in axes.texts)


def test_bars_stand_around_the_middle_of_their_group(drawn):
    heights = {"a": dict.fromkeys("xyz", 1.0), "b": {"z": 1.0}, "c": {"z": 1.0, "y": 1.0}}
    (axes,) = drawn(bars=Bars(heights, "y")).axes
    centres = sorted(bar.get_x() + bar.get_width() / 2 for bar in axes.patches)
    assert np.mean(centres[:3]) == pytest.approx(0)
    assert centres[3] == pytest.approx(1)
    assert np.mean(centres[4:]) == pytest.approx(2)


def test_panels_survive_json():
    for panel in PANELS.values():
        again = panel_from_json(panel_as_json(panel))
        assert type(again) is type(panel)
        assert panel_as_json(again) == panel_as_json(panel)


def test_a_long_curve_is_thinned_for_json():
    panel = Panel({"ours": (np.arange(1.0, 5000.0), np.linspace(1.0, 0.0, 4999))}, "x", "y")
    x, y = panel_as_json(panel)["curves"]["ours"]
    assert len(x) == len(y) <= MOST_POINTS
    assert all(type(value) is float for value in x + y)


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "result.json"
    write_json(path, {"x": np.float64(1.5), "y": np.arange(2)})
    before = path.read_text()
    with pytest.raises(TypeError, match="no JSON for object"):
        write_json(path, {"x": object()})
    assert path.read_text() == before
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]

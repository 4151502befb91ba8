"""What benchmarks report: tables, curves with their ends, plots that are the same twice."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

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

"""Counts of small fits are what was recorded; ratios are times, and not judged here."""

import pytest

from benchmarks.regressions import (
    COUNTS,
    counts_of,
    fits,
    now_over_recorded,
    recorded,
    sentence,
    worse,
)


@pytest.mark.parametrize("fit", [fit.name for fit in fits()])
def test_no_fit_needs_more_than_was_recorded(fit):
    now = {f"{fit}: {what}": count for what, count in counts_of(fit).items()}
    assert set(now) <= set(recorded()["counts"])
    assert worse(now, recorded()["counts"]) == {}


def test_every_fit_is_recorded_and_nothing_else():
    expected = {f"{fit.name}: {what}" for fit in fits() for what in COUNTS}
    assert set(recorded()["counts"]) == expected


def test_what_got_worse_is_named():
    before = {"a": 100.0, "b": 100.0, "c": 0.0}
    bad = worse({"a": 111.0, "b": 109.0, "c": 0.0, "new": 5.0}, before)
    assert bad == {"a": (100.0, 111.0)}
    assert sentence(bad) == "Worse than recorded: a from 100 to 111."
    assert sentence({}).startswith("No count has grown")


def test_what_was_nothing_must_stay_so():
    assert worse({"c": 1.0}, {"c": 0.0}) == {"c": (0.0, 1.0)}


def test_each_number_is_drawn_relative_to_what_was_recorded():
    now, before = {"a": 110.0, "b": 50.0, "c": 3.0, "new": 5.0}, {"a": 100.0, "b": 100.0, "c": 3.0}
    places = {"a": ("x", "rounds"), "b": ("x", "planes"), "c": ("y", "rounds")}
    bars = now_over_recorded(now, before, places)
    assert bars.heights["x"] == pytest.approx({"rounds": 1.1, "planes": 0.5})
    assert bars.heights["y"] == {"rounds": 1.0}

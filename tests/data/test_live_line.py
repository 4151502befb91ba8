"""Fields of a line, counts and times as people read them."""

import pytest

from maxmargin.data.live_line import Field, about, duration, fitted, short


def test_the_important_fields_stay():
    fields = [Field("iteration 3", 2), Field("cuts 7", 1), Field("gap 0.1", 3)]
    assert fitted(fields, width=20) == "iteration 3  gap 0.1"


@pytest.mark.parametrize(
    ("write", "numbers", "texts"),
    [
        (short, [87, 12_345, 999_960, 2_000_000_000], ["87", "12.3k", "1M", "2G"]),
        (duration, [3.14, 200, 3700], ["3.1 s", "3 min 20 s", "1 h 1 min"]),
        (
            about,
            [0.2, 3.14, 47, 95, 4_000, 200_000],
            ["1 s", "3 s", "50 s", "1.6 min", "1.1 h", "2.3 days"],
        ),
    ],
)
def test_numbers_are_short(write, numbers, texts):
    assert list(map(write, numbers)) == texts

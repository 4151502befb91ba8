import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.core.oracle import Threads


@pytest.mark.parametrize("n_threads", [1, 3])
def test_answers_come_in_order(n_threads):
    with Threads(n_threads) as threads:
        assert threads.map(lambda n: n * n, range(7)) == [n * n for n in range(7)]


def test_an_error_waits_for_the_others_and_tells_them():
    cancelled = threading.Event()
    finished = []

    def work(n):
        if n == 0:
            raise KeyboardInterrupt
        while not cancelled.is_set():
            time.sleep(0.001)
        finished.append(n)

    with Threads(2) as threads, pytest.raises(KeyboardInterrupt):
        threads.map(work, [0, 1], cancelled.set)
    assert finished == [1]


@settings(max_examples=50, deadline=None)
@given(n=st.integers(0, 50), parts=st.integers(1, 8))
def test_shares_cover_everything_once_and_evenly(n, parts):
    with Threads(parts) as threads:
        cuts = threads.shares(n)
    assert [i for part in cuts for i in range(n)[part]] == list(range(n))
    sizes = [part.stop - part.start for part in cuts]
    assert len(sizes) == min(n, parts)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_little_work_is_not_shared():
    with Threads(3) as threads:
        assert threads.shares(8, work=1.0) == [slice(0, 8)]
        assert len(threads.shares(8, work=1e9)) == 3


def test_calls_that_take_long_are_shared():
    def slow(part):
        end = time.perf_counter() + 1e-3 * (part.stop - part.start)
        while time.perf_counter() < end:
            pass
        return part

    eight, many = np.ones(8), np.ones(1000)
    with Threads(2) as threads:
        assert threads.map_slices(slow, eight, "slow") == [slice(0, 8)]  # nothing is known yet
        parts = threads.map_slices(slow, eight, "slow")
        assert [i for part in parts for i in range(8)[part]] == list(range(8))
        assert len(parts) == 2
        assert threads.map_slices(lambda part: part, many, "quick") == [slice(0, 1000)]
        assert threads.map_slices(lambda part: part, many, "quick") == [slice(0, 1000)]
        assert threads.map_slices(lambda part: part, many[:0], "none") == [slice(0, 0)]


@settings(max_examples=100, deadline=None)
@given(work=st.lists(st.integers(1, 1000), min_size=1, max_size=40), parts=st.integers(2, 4))
def test_slices_of_equal_work_cover_everything_once(work, parts):
    def parted(part):
        time.sleep(1e-3)
        return part

    work = np.array(work, dtype=float)
    with Threads(parts) as threads:
        threads.map_slices(parted, work, "some")  # which takes long enough
        slices = threads.map_slices(parted, work, "some")
    assert [i for part in slices for i in range(len(work))[part]] == list(range(len(work)))
    assert all(part.stop > part.start for part in slices)
    # An end is off by half of an example at the most.
    for part in slices:
        assert work[part].sum() <= work.sum() / parts + work.max() + 1e-9


def test_one_long_example_is_a_slice_of_its_own():
    def parted(part):
        time.sleep(1e-3)
        return part

    with Threads(2) as threads:
        for work in ([9.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 9.0]):
            threads.map_slices(parted, np.array(work), work[0])
            slices = threads.map_slices(parted, np.array(work), work[0])
            assert {part.stop - part.start for part in slices} == {1, 3}

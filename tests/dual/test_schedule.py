import numpy as np
import pytest

from maxmargin.dual import sweeps as schedule
from maxmargin.dual.sweeps import DUE, WAIT, postpone, random_below


def update_order(updates, now, state):
    order, due, runs = (np.empty(len(updates), dtype=np.int32) for _ in range(3))
    return order[: schedule.update_order(updates, now, state, due, runs, order)]


@pytest.mark.parametrize("n", [0, 1, 2, 1023, 1024, 1025, 5000])
def test_an_order_holds_each_due_example_once(n):
    updates = np.zeros((n, 3), dtype=np.int32)
    updates[::3, DUE] = 7
    state = np.array([1], dtype=np.uint64)
    first = update_order(updates, 6, state)
    np.testing.assert_array_equal(np.sort(first), np.flatnonzero(updates[:, DUE] <= 6))
    everything = update_order(updates, 7, state)
    np.testing.assert_array_equal(np.sort(everything), np.arange(n))
    if n > 2:
        assert not np.array_equal(everything, update_order(updates, 7, state))


def test_the_same_state_gives_the_same_order():
    updates = np.zeros((3000, 3), dtype=np.int32)
    orders = [update_order(updates, 0, np.array([5], dtype=np.uint64)) for _ in range(2)]
    np.testing.assert_array_equal(*orders)


def test_random_numbers_are_even():
    state = np.array([3], dtype=np.uint64)
    counts = np.bincount([random_below(10, state) for _ in range(20_000)], minlength=10)
    assert len(counts) == 10
    assert np.abs(counts - 2000).max() < 250


def test_idle_examples_wait_ever_longer():
    updates = np.zeros((1, 3), dtype=np.int32)
    waits = []
    for _ in range(6):
        now = int(updates[0, DUE])
        postpone(0, updates, now, 15)
        waits.append(int(updates[0, DUE]) - now - 1)
    assert waits == [1, 3, 7, 15, 15, 15]
    assert updates[0, WAIT] == 15

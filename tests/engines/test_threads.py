import threading
import time

import pytest

from maxmargin.engines.threads import Threads


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

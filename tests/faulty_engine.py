"""An engine whose places are lost on demand, without a cluster: threads that forget."""

from concurrent.futures import Future

from maxmargin.training import shards as shards_module
from maxmargin.training.engines import LostWorkerError, ThreadEngine


def question(function, arguments):
    """What is asked for, in a word: the making, or the method of a shard."""
    if function is not shards_module._ask:
        return function.__name__.strip("_")
    method, *rest = arguments[3:]
    return rest[0] if method == "do" else method


class FaultyEngine(ThreadEngine):
    """Loses the place that is asked, with all that is kept there.

    `loses` is called with the number of the question and its name, and says "before" if the place
    is to be lost before the question is heard, "after" if it is lost with the answer, or None.
    """

    def __init__(self, n_workers, loses):
        super().__init__(n_workers)
        self.loses = loses
        self.questions = []
        self._keys = {worker: set() for worker in range(n_workers)}

    def call(self, worker, function, *arguments):
        name = question(function, arguments)
        if name == "forget":
            return super().call(worker, function, *arguments)
        moment = self.loses(len(self.questions), name)
        self.questions.append(name)
        self._keys[worker].add(arguments[0])
        if moment == "before":
            self._lose(worker)
            raise LostWorkerError(f"Worker {worker} is lost.")
        pending = super().call(worker, function, *arguments)
        if moment == "after":
            pending.exception()  # waits
            self._lose(worker)
            pending = Future()
            pending.set_exception(LostWorkerError(f"Worker {worker} is lost."))
        return pending

    def _lose(self, worker):
        for key in self._keys[worker]:
            shards_module._TABLE.pop(key, None)
        self._keys[worker] = set()

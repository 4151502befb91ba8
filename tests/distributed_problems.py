"""Problems for the tests of engines: importable where workers are other processes."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import maxmargin as mm


@contextmanager
def processes(n_workers):
    """A client of a Dask cluster with so many worker processes."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client


@contextmanager
def cluster(folder, n_workers):
    """A scheduler and workers, each a process; their client, and the process of the scheduler."""
    import distributed

    file = folder / "scheduler.json"
    here = Path(__file__).resolve().parent
    environment = os.environ | {"PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}"}
    dask = [sys.executable, "-m", "dask"]
    where = ["--scheduler-file", str(file), "--no-dashboard"]
    started = []

    def start(*arguments):
        command = [*dask, *arguments, *where]
        started.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, cwd=folder)
        )

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0")
        for _ in range(n_workers):
            start("worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.1)
        client = distributed.Client(scheduler_file=str(file), timeout=60)
        client.wait_for_workers(n_workers, timeout=120)
        yield client, started[0]
        client.close(timeout=5)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


class Classes(mm.Problem):
    """Five classes, searched in plain Python."""

    n_classes = 5

    def joint_feature(self, x, y):
        return np.outer(np.arange(self.n_classes) == y, x).ravel()

    def loss(self, y_true, y):
        return float(y_true != y)

    def inference(self, x, w):
        return int(np.argmax(w.reshape(self.n_classes, -1) @ x))

    def loss_augmented_inference(self, x, y_true, w):
        scores = w.reshape(self.n_classes, -1) @ x + (np.arange(self.n_classes) != y_true)
        return int(np.argmax(scores))


class SlowSomewhere(Classes):
    """The same, but searches in one process take their time: the one that makes the file first."""

    def __init__(self, path, seconds):
        self.path, self.seconds = str(path), seconds

    def loss_augmented_inference(self, x, y_true, w):
        if self._is_slow():
            time.sleep(self.seconds)
        return super().loss_augmented_inference(x, y_true, w)

    def _is_slow(self):
        try:
            with open(self.path, "x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            pass
        with open(self.path) as file:
            return file.read() == str(os.getpid())


class Failing(Classes):
    """A search that fails for one example."""

    def __init__(self, value):
        self.value = value

    def loss_augmented_inference(self, x, y_true, w):
        if x[0] == self.value:
            raise KeyError("no such thing")
        return super().loss_augmented_inference(x, y_true, w)


def class_data(n=60, n_features=12, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, n_features))
    scores = X @ random.normal(size=(n_features, 5)) + 0.5 * random.normal(size=(n, 5))
    return list(X), scores.argmax(axis=1).tolist()


def tagging_data(n=60, seed=0):
    random = np.random.default_rng(seed)
    X = [random.normal(size=(random.integers(2, 7), 8)) for _ in range(n)]
    noise = [0.5 * random.normal(size=(len(x), 4)) for x in X]
    names = np.array(list("abcd"))
    y = [names[(x[:, :4] + e).argmax(axis=1)].tolist() for x, e in zip(X, noise, strict=True)]
    return X, y


def tree_data(n=40, seed=0):
    """Random trees in which the preposition hints at what a phrase belongs to."""
    random = np.random.default_rng(seed)

    def noun_phrase(depth):
        if depth < 3 and random.random() < 0.4:
            return f"(NP {noun_phrase(depth + 1)} {prepositional_phrase(depth + 1, 0)})"
        noun = random.choice(["NN", "NNS", "NNP"])
        return f"(NP (DT the) ({noun} x))" if random.random() < 0.6 else f"(NP ({noun} x))"

    def prepositional_phrase(depth, kind):
        return f"(PP (P{random.integers(5) + 3 * kind} x) {noun_phrase(depth + 1)})"

    def verb_phrase(depth):
        if depth < 3 and random.random() < 0.4:
            return f"(VP {verb_phrase(depth + 1)} {prepositional_phrase(depth + 1, 1)})"
        return f"(VP (VB x) {noun_phrase(depth + 1)})"

    return [f"(S {noun_phrase(0)} {verb_phrase(0)})" for _ in range(n)]

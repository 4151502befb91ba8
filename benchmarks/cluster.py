"""Training on a Dask cluster of this machine: one worker process against two.

Two searches that are worth sharing out: parsing with a grammar of the Penn treebank sample
(compiled), and tagging with a Viterbi search in plain Python. Time to a certified gap, what a
message costs beside the work, and what crosses in a round.
"""

import argparse
from functools import partial
from typing import Any

import numpy as np

import maxmargin as mm
from benchmarks.common import best, clocks, interleaved, parser, run, say
from benchmarks.reporting import Report, Row
from benchmarks.treebank import toy_trees, treebank
from maxmargin.estimators.parser import GrammarParser

SPEED_UP = 1.7
TOLERANCE = 1e-2
WORKERS = (1, 2)
LONGEST = 40


class PythonChains(mm.Problem):
    """Chains of labels, every step of the search in plain Python."""

    def __init__(self, n_features: int, n_labels: int) -> None:
        self.n_features, self.n_labels = n_features, n_labels

    def joint_feature(self, x: Any, y: Any) -> Any:
        emissions = np.zeros((self.n_labels, self.n_features))
        transitions = np.zeros((self.n_labels, self.n_labels))
        np.add.at(emissions, list(y), x)
        np.add.at(transitions, (list(y[:-1]), list(y[1:])), 1.0)
        return np.concatenate([emissions.ravel(), transitions.ravel()])

    def loss(self, truth: Any, y: Any) -> float:
        return float(sum(a != b for a, b in zip(truth, y, strict=True)))

    def decode(self, x: Any, w: Any) -> Any:
        return self._best(x, w, None)

    def separate(self, x: Any, truth: Any, w: Any) -> Any:
        return self._best(x, w, truth)

    def _best(self, x: Any, w: Any, truth: Any) -> Any:
        labels = range(self.n_labels)
        cut = self.n_labels * self.n_features
        scores = (x @ w[:cut].reshape(self.n_labels, -1).T).tolist()
        follows = w[cut:].reshape(self.n_labels, -1).tolist()
        if truth is not None:
            for at, right in enumerate(truth):
                for label in labels:
                    scores[at][label] += label != right
        reached, back = scores[0], []
        for step in scores[1:]:
            came = []
            for to in labels:
                scored = [reached[origin] + follows[origin][to] for origin in labels]
                came.append(scored.index(max(scored)))
            reached = [reached[came[to]] + follows[came[to]][to] + step[to] for to in labels]
            back.append(came)
        path = [max(labels, key=reached.__getitem__)]
        for came in reversed(back):
            path.append(came[path[-1]])
        return tuple(reversed(path))


def chain_data(n: int, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Random sequences whose labels can mostly be told from their rows."""
    random = np.random.default_rng(seed)
    X = [random.normal(size=(random.integers(15, 30), 24)) for _ in range(n)]
    true = random.normal(size=(24, 30))
    noisy = [x @ true + 2.0 * random.normal(size=(len(x), 30)) for x in X]
    return X, [tuple(scores.argmax(axis=1).tolist()) for scores in noisy]


def tasks(quick: bool) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """A model that is to be trained, and its data."""
    X, y = chain_data(20 if quick else 400)
    chains = mm.StructuredSVM(PythonChains(24, 30), C=0.1, tol=TOLERANCE)
    if quick:
        trees = [tree for seed in range(3) for tree in toy_trees(seed)]
    else:
        files = treebank(False)
        trees = [tree for file in files for tree in file if len(tree.words) <= LONGEST]
    grammar = GrammarParser(C=1.0, tol=TOLERANCE)
    return {"python": (chains, (X, y)), "treebank": (grammar, (trees,))}


def measure(options: argparse.Namespace) -> Report:
    from distributed import Client, LocalCluster  # type: ignore[attr-defined]
    from sklearn.base import clone

    report = Report()
    chosen = {name: task for name, task in tasks(options.quick).items() if name in options.data}
    for name, (model, data) in chosen.items():
        found: dict[int, Any] = {}
        for n_workers in WORKERS:
            say(f"{name}, {n_workers} workers")
            with (
                LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=n_workers, threads_per_worker=1, dashboard_address=None
                ) as cluster,
                Client(cluster) as client,  # type: ignore[no-untyped-call]
            ):
                fit = partial(_fit, clone(model).set_params(engine=client), data)
                _fit(clone(model).set_params(engine=client, tol=0.5), data)  # compiles
                found[n_workers] = interleaved({"fit": fit}, options.repeats)["fit"]
        lines = {n: _line(timings) for n, timings in found.items()}
        report.details[name] = lines
        for n, line in lines.items():
            report.rows.append(
                Row(
                    f"{name}, {n} worker{'s' * (n > 1)}",
                    "",
                    f"{best(found[n]):.3g} s, {line['searches']} searches, "
                    f"{1e3 * line['idle_a_move']:.3g} ms a message, "
                    f"{line['bytes_a_round'] / 1e3:.3g} kB a round",
                )
            )
        faster = best(found[1]) / best(found[2])
        report.rows.append(
            Row(
                f"{name}, speed-up by two workers",
                f">= {SPEED_UP:g}",
                f"{faster:.2f}",
                met=None if options.quick else faster >= SPEED_UP,
            )
        )
    return report


def _fit(model: Any, data: tuple[Any, ...]) -> Any:
    return model.fit(*data)


def _line(timings: Any) -> dict[str, Any]:
    """What the last fit has cost."""
    model = timings[-1].answer
    history = model.history_
    moves = max(sum(line.moves for line in history), 1)
    crossed = sum(line.sent + line.received for line in history)
    return {
        "rounds": len(history),
        "moves": moves,
        "searches": history[-1].oracle_calls,
        "relative_gap": model.certificate_.relative_gap,
        "search_seconds": sum(line.search_seconds for line in history),
        "work_seconds": sum(line.work_seconds for line in history),
        "idle_a_move": sum(line.idle_seconds for line in history) / moves,
        "bytes_a_round": crossed / max(len(history), 1),
        "trace": [[line.seconds, line.oracle_calls, line.primal, line.dual] for line in history],
        **clocks(timings),
    }


if __name__ == "__main__":
    arguments = parser(__doc__, ("python", "treebank"), repeats=3)
    run(arguments, measure)

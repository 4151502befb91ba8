"""Training on a Dask cluster: two worker processes against one.

Two oracles that are worth distributing: tagging with the Viterbi algorithm in plain Python (600
sequences of 25 positions, 30 labels, C = 0.01 to a gap of 5 %), and parsing with a grammar of
the Penn treebank sample (2,000 sentences of 10 to 40 words, C = 0.1, to a gap of 1 %). Both
clusters are there all the time, and fits take turns on them. Driver, scheduler and workers
share the cores of this machine. Time is that of the whole `fit`, certificate included. Overhead
is the time between a question and its answer that the worker did not work.
"""

import argparse
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

import maxmargin as mm
from benchmarks.common import Timed, best, clocks, interleaved, parser, run, say, spread
from benchmarks.reporting import Bars, Panel, Report, Row, thinned
from benchmarks.treebank import toy_trees, treebank
from maxmargin.structures.constituency.estimator import GrammarParser

SPEED_UP = 1.7
WORKERS = (1, 2)
LENGTHS = range(10, 41)
"""Words of a sentence."""
FEATURES, LABELS, POSITIONS = 20, 30, 25


class PythonChains(mm.Problem):
    """Chains of labels, every step of the oracle call in plain Python."""

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

    def inference(self, x: Any, w: Any) -> Any:
        return self._best(x, w, None)

    def loss_augmented_inference(self, x: Any, truth: Any, w: Any) -> Any:
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
    true = random.normal(size=(LABELS, FEATURES))
    X = [random.normal(size=(POSITIONS, FEATURES)) for _ in range(n)]
    noisy = [x @ true.T + random.normal(size=(POSITIONS, LABELS)) for x in X]
    return X, [tuple(scores.argmax(axis=1).tolist()) for scores in noisy]


def tasks(quick: bool) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """A model that is to be trained, and its data."""
    X, y = chain_data(20 if quick else 600)
    chains = mm.StructuredSVM(PythonChains(FEATURES, LABELS), C=0.01, tol=0.05)
    if quick:
        trees = [tree for seed in range(3) for tree in toy_trees(seed)]
    else:
        trees = [tree for file in treebank(False) for tree in file if len(tree.words) in LENGTHS]
    grammar = GrammarParser(C=0.1, tol=1e-2)
    return {"python": (chains, (X, y)), "treebank": (grammar, (trees[:2000],))}


def measure(options: argparse.Namespace) -> Report:
    from distributed import Client, LocalCluster  # type: ignore[attr-defined]

    report = Report()
    chosen = {name: task for name, task in tasks(options.quick).items() if name in options.data}
    with ExitStack() as clusters:
        clients = {}
        for n in WORKERS:
            cluster = clusters.enter_context(
                LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=n, threads_per_worker=1, dashboard_address=None
                )
            )
            clients[n] = clusters.enter_context(Client(cluster))  # type: ignore[no-untyped-call]
        for name, (model, data) in chosen.items():
            fits = {
                f"{n} worker{'s' * (n > 1)}": partial(
                    _fit, clone(model).set_params(engine=client), data
                )
                for n, client in clients.items()
            }
            for client in clients.values():  # compiles, and loads what is compiled
                _fit(clone(model).set_params(engine=client, tol=0.5), tuple(d[:20] for d in data))
            found: dict[str, list[Timed]] = {who: [] for who in fits}
            for _ in range(options.repeats):
                for who, timings in interleaved(fits, 1).items():
                    found[who] += timings
                    say(f"{name}, {who}: {timings[0].seconds:.2f} s")
            _compare(report, name, found, options.quick)
    return report


def _compare(report: Report, name: str, found: dict[str, list[Timed]], quick: bool) -> None:
    """Rows and panels of one task."""
    lines = {who: _line(timings) for who, timings in found.items()}
    report.details[name] = lines
    for who, line in lines.items():
        report.rows.append(
            Row(
                f"{name}, {who}",
                "",
                f"{spread(found[who])}, {line['searches']:,} oracle calls, {line['moves']} moves, "
                f"{1e3 * line['idle_a_move']:.3g} ms overhead a move and "
                f"{1e3 * line['idle_a_round']:.3g} ms an iteration, "
                f"{line['bytes_a_round'] / 1e3:.3g} kB an iteration",
            )
        )
    (one, of_one), (two, of_two) = lines.items()
    faster = best(found[one]) / best(found[two])
    report.rows.append(
        Row(
            f"{name}, speed-up by two workers",
            f">= {SPEED_UP:g}",
            f"{faster:.2f}",
            met=None if quick else faster >= SPEED_UP,
        )
    )
    heights = {name: {who: best(timings) for who, timings in found.items()}}
    bars = report.panels.setdefault("time to the certified gap", Bars({}, "seconds"))
    assert isinstance(bars, Bars)
    report.panels["time to the certified gap"] = Bars({**bars.heights, **heights}, bars.y)
    report.panels[name] = Panel(
        {who: line["trace"] for who, line in lines.items()},
        "seconds",
        "dual value",
        ("linear", "linear"),
    )
    if not quick:
        report.notes.append(
            f"On {name}, the shards of two workers made {of_two['searches']:,} oracle calls where "
            "one "
            f"made {of_one['searches']:,}: they hear of new weights more often than once a pass, "
            "and primal evaluations of the weights, which cost one pass or two, come at other "
            "times."
        )


def _fit(model: Any, data: tuple[Any, ...]) -> Any:
    return model.fit(*data)


def _line(timings: list[Timed]) -> dict[str, Any]:
    """What the fastest fit has cost."""
    model = min(timings, key=lambda timed: timed.seconds).answer
    history = model.history_
    moves, rounds = max(sum(line.updates for line in history), 1), max(len(history), 1)
    idle = sum(line.idle_seconds for line in history)
    return {
        "rounds": rounds,
        "moves": moves,
        "searches": history[-1].oracle_calls,
        "relative_gap": model.certificate_.relative_gap,
        "oracle_seconds": sum(line.oracle_seconds for line in history),
        "work_seconds": sum(line.work_seconds for line in history),
        "idle_a_move": idle / moves,
        "idle_a_round": idle / rounds,
        "bytes_a_round": sum(line.sent + line.received for line in history) / rounds,
        "trace": thinned([line.seconds for line in history], [line.dual for line in history]),
        **clocks(timings),
    }


if __name__ == "__main__":
    run(parser(__doc__, ("python", "treebank"), repeats=2), measure)

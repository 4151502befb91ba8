"""Clusters of 1 to 1,000 workers, by a model that real workers check.

Seconds to a certified gap of 1e-2 on handwritten words (chains over 26 letters), the same words for
any number of workers. Every shard's real algorithm runs here, one after the other, under a clock
that is a model (`simulated_engine.py`): so stale weights and the gap are true, and only time is
modelled. What messages cost is measured on a Dask cluster of this machine ("loopback"); the data
centre is assumed: 10 Gbit/s, 0.1 ms from machine to machine, half a millisecond of the scheduler
and of the driver for a task, a tenth of jitter in the time of the work. The model is checked
against real worker processes: with oracle calls that wait, which a machine of few cores can run
many of at the same time, and with oracle calls that are busy, by as many as there are cores.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cluster_outcomes import TOLERANCE, Curves, Outcome, panels_of, rows_of
from benchmarks.cluster_words import Pause, Words
from benchmarks.common import parser, run, say, span
from benchmarks.reporting import Report, Row
from benchmarks.simulated_engine import Network, SimulatedEngine, WorkCosts, place_simulated
from maxmargin.solvers.loop import Stopping
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import DaskEngine
from maxmargin.training.shards import shard_oracle

C = 0.01
WORKERS = (1, 2, 4, 16, 64, 256, 1000)
HOP = 1e-4
DATA_CENTRE = Network(
    send=2.5e-4,
    receive=2.5e-4 + 4 * HOP,
    service=5e-4,
    latency=2 * HOP,
    bandwidth=1.25e9,
    jitter=0.1,
)
"""A tenth of a millisecond from machine to machine, 10 Gbit/s, half a millisecond of the scheduler
and of the driver for a task. A question goes through the scheduler; an answer is announced by it,
and then fetched through it, for which the driver waits."""

CORES = 2
"""Busy workers that a check may have."""
MOST_HERE = 64
"""Workers that one machine may have."""
AGREES = 0.25
"""Relative error of a prediction that is good enough."""

SOLVERS = {"dual": DistributedDual(), "one-slack": DistributedOneSlack()}


class Kind(NamedTuple):
    """An oracle call: what it is called, its seconds (None: as measured), and how it is bound."""

    name: str
    costs: WorkCosts
    pause: Pause | None


FREE = Pause(0.0, busy=False)
CHEAP = Kind("compiled chains", WorkCosts(), None)


# The model


def simulate(
    words: Words,
    kind: Kind,
    workers: int,
    network: Network,
    solver: Any,
    patience: float = np.inf,
) -> Outcome:
    """A fit on so many workers, given up after `patience` seconds here."""
    began = time.perf_counter()
    engine = SimulatedEngine(workers, network, kind.costs)
    training = place_simulated(engine, words.parts(workers), words.make_oracle(kind.pause))

    def is_enough(*_: Any) -> bool:
        return time.perf_counter() - began > patience

    engine.restart()
    result = solver.solve(training, Stopping(TOLERANCE), on_iteration=is_enough)
    seconds = engine.now
    outcome = Outcome(
        workers=workers,
        seconds=seconds,
        arrived=result.status == "converged",
        gap=result.certificate.relative_gap,
        rounds=result.iterations,
        tasks=engine.tasks,
        passes=engine.searches / words.n,
        busy=engine.work_seconds / seconds / workers,
        driver=engine.driver_seconds / seconds,
        bytes_per_round=(training.sent + training.received) / max(result.iterations, 1),
        real_seconds=time.perf_counter() - began,
    )
    training.shards.close()
    return outcome


def curve(
    words: Words,
    kind: Kind,
    network: Network,
    solver: Any,
    counts: Sequence[int],
    patience: float,
) -> list[Outcome]:
    """The same fit on ever more workers."""
    outcomes: list[Outcome] = []
    for workers in counts:
        one = simulate(words, kind, workers, network, solver, patience)
        outcomes.append(one)
        say(
            f"  {workers:5d}: {one.seconds:9.3g} s, gap {one.gap:.1e}, {one.passes:6.1f} passes, "
            f"{one.tasks} tasks, busy {one.busy:.0%}, driver {one.driver:.0%} "
            f"({one.real_seconds:.0f} s here)"
        )
    return outcomes


# Real workers


@contextmanager
def local_cluster(n_workers: int) -> Iterator[Any]:
    """A client of so many worker processes here."""
    from distributed import Client, LocalCluster

    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "processes": True}
    with (
        LocalCluster(n_workers=n_workers, **settings) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client


def _tell(event: threading.Event, _: Any) -> None:
    event.set()


def _last(*arguments: Any) -> Any:
    return arguments[-1]


class Messages(NamedTuple):
    """What a task costs on this machine: its network, and the processor time of this process.

    The scheduler runs in this process, too.
    """

    network: Network
    processor: float


def loopback(client: Any, repeats: int) -> Messages:
    """Medians of single tasks with small and large arrays, and how fast many at once get done.

    The latter is what the scheduler can take.
    """
    engine = DaskEngine(client)
    worker = engine.workers[0]
    sizes: dict[int, list[Any]] = {8: [], 400_000: []}
    for _ in range(repeats):
        for size, times in sizes.items():
            done = threading.Event()
            clock = [time.perf_counter()]
            pending = engine.call(worker, _last, np.zeros(size // 8))
            clock.append(time.perf_counter())
            pending.add_done_callback(partial(_tell, done))
            done.wait()
            clock.append(time.perf_counter())
            pending.result()
            clock.append(time.perf_counter())
            times.append(np.diff(clock))
    small, large = sizes
    send, travel, receive = map(float, np.median(sizes[small], axis=0))
    longer = float(np.median(sizes[large], axis=0).sum()) - send - travel - receive
    n_at_once = 5 * repeats
    began, processor = time.perf_counter(), time.process_time()
    client.gather([engine.call(worker, _last, k) for k in range(n_at_once)])
    service = (time.perf_counter() - began) / n_at_once
    processor = (time.process_time() - processor) / n_at_once
    bandwidth = 2 * (large - small) / max(longer, 1e-6)
    latency = max(travel - service, 0.0) / 2.0
    return Messages(Network(send, receive, service, latency, bandwidth), processor)


class Measured(NamedTuple):
    """A fit on real workers, and the seconds of one of their oracle calls."""

    outcome: Outcome
    search: float


def measure_real(client: Any, words: Words, kind: Kind, workers: int) -> Measured:
    """The fit, on so many of the real worker processes."""
    parts = words.parts(workers)
    training = shard_oracle(
        DaskEngine(client), parts, words.make_oracle(kind.pause), workers, "real"
    )
    SOLVERS["dual"].solve(training, Stopping(TOLERANCE, max_iter=2))  # compiles
    training.sent = training.received = 0
    lines: list[Any] = []

    def keep(line: Any, _: Callable[[], Any]) -> bool:
        lines.append(line)
        return False

    began, own = time.perf_counter(), time.thread_time()
    result = SOLVERS["dual"].solve(training, Stopping(TOLERANCE), on_iteration=keep)
    seconds, own = time.perf_counter() - began, time.thread_time() - own
    training.shards.close()
    work = sum(line.work_seconds for line in lines)
    outcome = Outcome(
        workers=workers,
        seconds=seconds,
        arrived=result.status == "converged",
        gap=result.certificate.relative_gap,
        rounds=result.iterations,
        tasks=sum(line.updates for line in lines),
        passes=lines[-1].oracle_calls / words.n + 1.0,  # and that of the certificate
        busy=work / seconds / workers,
        driver=own / seconds,
        bytes_per_round=(training.sent + training.received) / max(result.iterations, 1),
        real_seconds=seconds,
    )
    return Measured(outcome, sum(line.oracle_seconds for line in lines) / lines[-1].oracle_calls)


def check(
    client: Any, words: Words, here: Network, kind: Kind, workers: int, repeats: int
) -> tuple[Row, dict[str, Any]]:
    """Real seconds against those predicted from what oracle calls and messages take.

    Of several real fits the middle one: who comes first differs, and with it the number of passes.
    """
    runs = [measure_real(client, words, kind, workers) for _ in range(repeats)]
    runs.sort(key=lambda one: one.outcome.seconds)
    measured = runs[len(runs) // 2]
    modelled = Kind(kind.name, WorkCosts(measured.search), FREE)
    predicted = simulate(words, modelled, workers, here, SOLVERS["dual"])
    real = measured.outcome
    off = predicted.seconds / real.seconds - 1.0
    row = Row(
        f"{kind.name}, {workers} real worker{'s' if workers > 1 else ''}: predicted",
        f"within {AGREES:.0%}",
        f"{predicted.seconds:.3g} s ({off:+.0%}), {predicted.passes:.1f} passes; "
        f"an oracle call {1e3 * measured.search:.1f} ms",
        f"measured {real.seconds:.3g} s ({span(one.outcome.seconds for one in runs)}), "
        f"{real.passes:.1f} passes",
        abs(off) <= AGREES,
    )
    say(f"{row.what}: {row.reached}; {row.peer}")
    return row, {
        "kind": kind.name,
        "predicted": asdict(predicted),
        "measured": asdict(real),
        "all_seconds": [one.outcome.seconds for one in runs],
        "oracle_seconds": measured.search,
    }


def messages_row(messages: Messages) -> Row:
    """What Dask costs here."""
    network = messages.network
    alone = network.send + 2 * network.latency + network.service + network.receive
    row = Row(
        "Dask here, a task",
        "",
        f"{1e3 * alone:.2f} ms alone, {1e3 * network.service:.2f} ms of many; the driver "
        f"{1e3 * network.send:.2f} + {1e3 * network.receive:.2f} ms; with the scheduler "
        f"{1e3 * messages.processor:.2f} ms of processor time; {network.bandwidth / 1e6:.0f} MB/s",
    )
    say(f"{row.what}: {row.reached}")
    return row


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What the curve of the dual method in the data centre says."""
    one = outcomes[0]
    there = [outcome for outcome in outcomes if outcome.arrived]
    fastest = min(there, key=lambda outcome: outcome.seconds)
    text = (
        f"The dual method is fastest with {fastest.workers:,} workers, {fastest.seconds:.3g} s "
        f"instead of {one.seconds:.3g} s with one. Every move is a message that keeps the driver "
        f"busy for a moment: it is so for {fastest.driver:.0%} of the time there. And the fewer "
        "examples a worker has, the more passes are needed."
    )
    missing = [f"{outcome.workers:,}" for outcome in outcomes if not outcome.arrived]
    if missing:
        text += (
            f" With {', '.join(missing)} workers the simulation was given up before the gap was "
            "reached; what it would take is not known."
        )
    return [text]


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    if options.quick:
        options.words, options.check_words, options.workers = 40, 20, [1, 2, 8]
        options.check_workers, options.search, options.repeats = [1, 2], 0.002, 1
    words = Words(options.words, C, options.quick)
    few = Words(options.check_words, C, options.quick)
    simulate(few, CHEAP, 2, Network(0, 0, 0, 0, 1e9), SOLVERS["dual"])  # compiles
    slow = options.search
    expensive = Kind(f"oracle call of {1e3 * slow:g} ms", WorkCosts(search=slow), FREE)
    checks = []
    with local_cluster(max(options.check_workers, default=1)) as client:
        loopback(client, 10)  # the first tasks are slower
        messages = loopback(client, 10 if options.quick else 200)
        here = messages.network
        networks = {"loopback": here, "data centre": DATA_CENTRE}
        report.rows.append(messages_row(messages))
        for busy in (False, True):
            name = f"{expensive.name}, {'busy' if busy else 'waiting'}"
            kind = Kind(name, WorkCosts(slow), Pause(slow, busy))
            for workers in options.check_workers:
                if workers > CORES and busy:
                    continue
                row, detail = check(client, few, here, kind, workers, options.repeats)
                report.rows.append(replace(row, met=None) if options.quick else row)
                checks.append(detail)
    report.details["networks"] = {name: asdict(one) for name, one in networks.items()}
    report.details["checks"] = checks
    curves: Curves = {}
    for kind in (expensive, CHEAP):
        for name, network in networks.items():
            for title, solver in SOLVERS.items():
                say(f"{kind.name}, {name}, {title}")
                most = MOST_HERE if network is here else max(options.workers)
                counts = [workers for workers in options.workers if workers <= most]
                outcomes = curve(words, kind, network, solver, counts, options.patience)
                curves[kind.name, name, title] = outcomes
                if kind is expensive and network is DATA_CENTRE:
                    report.rows.extend(rows_of(f"{kind.name}, {title}", outcomes))
    report.details["curves"] = {
        ", ".join(key): [asdict(one) for one in outcomes] for key, outcomes in curves.items()
    }
    report.panels = panels_of(curves, checks)
    report.notes += notes(curves[expensive.name, "data centre", "dual"])
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--words", type=int, default=1000)
    arguments.add_argument(
        "--search", type=float, default=0.01, help="seconds of an expensive oracle call"
    )
    arguments.add_argument("--check-words", type=int, default=100)
    arguments.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    arguments.add_argument("--check-workers", type=int, nargs="*", default=[1, 2, 4])
    arguments.add_argument(
        "--patience", type=float, default=900.0, help="most seconds here for one simulated fit"
    )
    run(arguments, measure)

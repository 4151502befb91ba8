"""Every estimator with both solvers on a Dask cluster of real processes; and workers killed."""

import os
import signal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from distributed_problems import Classes, class_data, processes, tagging_data, tree_data
from numpy.testing import assert_allclose, assert_array_equal

import maxmargin as mm
from maxmargin.data import open_examples
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import DaskEngine
from maxmargin.training.partitions import partitions_of
from maxmargin.training.shards import surveyed
from maxmargin.training.workers import survey_partition

distributed = pytest.importorskip("distributed")

TOL = 0.05


class Case(NamedTuple):
    """An estimator with data, and where its weights are."""

    model: type
    options: dict[str, Any]
    data: list[Any]
    weights: str = "coef_"


X, Y = class_data(40)
CASES = {
    "linear": Case(mm.LinearClassifier, {}, [np.array(X), np.array(Y)]),
    "tagger": Case(mm.SequenceTagger, {}, list(tagging_data(40))),
    "parser": Case(mm.GrammarParser, {"vertical": 2}, [tree_data(40)]),
    "problem": Case(mm.StructuredSVM, {"problem": Classes()}, [X, Y], "weights_"),
}
SOLVERS = {"dual": DistributedDual(), "one-slack": DistributedOneSlack()}
HERE = {"dual": "auto", "one-slack": "one-slack"}

SLOW = {("linear", "dual"), ("tagger", "one-slack"), ("problem", "dual"), ("parser", "one-slack")}
"""With two workers; most of these need many rounds."""

SLOW_ALONE = {
    ("linear", "one-slack"), ("tagger", "dual"), ("parser", "one-slack"), ("problem", "dual")
}  # fmt: skip
"""With one worker, each case is quick with the other solver."""


def pairs(cases, slow):
    """Each case with both solvers, of which some take longer."""
    return [
        pytest.param(case, solver, marks=[pytest.mark.slow] * ((case, solver) in slow))
        for case in cases
        for solver in SOLVERS
    ]


@pytest.fixture(scope="module")
def cluster():
    with processes(1) as client:
        yield client


def with_workers(client, n_workers):
    """The client, once its cluster has so many workers."""
    client.cluster.scale(n_workers)
    client.wait_for_workers(n_workers, timeout=120)
    return client


def fitted(case, **options):
    made = CASES[case]
    return made.model(**made.options, **({"tol": TOL} | options)).fit(*made.data)


def weights_of(case, model):
    return getattr(model, CASES[case].weights)


@pytest.mark.parametrize(("case", "solver"), pairs(CASES, SLOW_ALONE))
def test_one_worker_is_the_local_fit(cluster, case, solver):
    client = with_workers(cluster, 1)
    there = fitted(case, solver=SOLVERS[solver], engine=client)
    assert there.certificate_.relative_gap <= TOL
    if case == "linear":  # which has a solver of its own here: the same optimum, another point
        here = fitted(case, tol=1e-4)
        assert_allclose(there.certificate_.primal, here.certificate_.primal, rtol=TOL)
        here = fitted(case, solver=SOLVERS[solver], engine="threads")
    else:
        here = fitted(case, solver=HERE[solver])
    assert_array_equal(weights_of(case, there), weights_of(case, here))
    assert there.certificate_.primal == here.certificate_.primal
    assert_allclose(there.certificate_.dual, here.certificate_.dual, rtol=1e-12)


@pytest.mark.parametrize(("case", "solver"), pairs(CASES, SLOW))
def test_two_workers_certify_the_gap(cluster, case, solver):
    client = with_workers(cluster, 2)
    there = fitted(case, solver=SOLVERS[solver], engine=client)
    assert there.status_ == "converged"
    assert there.certificate_.relative_gap <= TOL
    here = fitted(case, tol=1e-4)
    # Both bounds hold: of the local fit's primal and dual, too.
    assert there.certificate_.dual <= here.certificate_.primal
    assert here.certificate_.dual <= there.certificate_.primal
    assert_allclose(there.certificate_.primal, here.certificate_.primal, rtol=1.1 * TOL)
    assert sum(line.received for line in there.history_) > 0


class Killer:
    """A callback that kills one of the workers after some rounds."""

    def __init__(self, client, after):
        self.client, self.after = client, after
        self.seen, self.gaps = 0, []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, *arguments, **more):
        pass

    def on_fit_task_end(self, estimator, context, **more):
        line = getattr(context, "iteration", None)
        if line is None:
            return
        self.seen += 1
        if self.seen == self.after:
            self.gaps.append((line.primal - line.dual) / line.primal)
            pid = next(iter(self.client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("case", "solver"),
    pairs(
        ["parser", "linear"], {("parser", "one-slack"), ("linear", "dual"), ("linear", "one-slack")}
    ),
)
def test_a_worker_killed_in_the_middle(cluster, case, solver):
    client = with_workers(cluster, 2)
    made, killer, tol = CASES[case], Killer(client, after=2), 0.02
    model = made.model(**made.options, tol=tol, solver=SOLVERS[solver], engine=client)
    model.set_callbacks(killer).fit(*made.data)
    assert killer.gaps
    assert not killer.gaps[0] <= tol  # it was in the middle
    assert killer.seen > killer.after
    assert model.status_ == "converged"
    assert model.certificate_.relative_gap <= tol
    here = fitted(case, tol=1e-4)
    assert here.certificate_.dual <= model.certificate_.primal
    assert_allclose(model.certificate_.primal, here.certificate_.primal, rtol=1.1 * tol)


def bytes_read():
    """Bytes that this process has read from files so far."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="nobody counts what is read")
def test_workers_read_their_own_part_of_a_file(cluster, tmp_path):
    client = with_workers(cluster, 2)
    random, sizes = np.random.default_rng(0), []
    survey = partial(survey_partition, mm.LinearClassifier())
    for n in (20_001, 20_000):  # the first lets workers load what they need
        path = tmp_path / f"{n}.libsvm"
        rows = random.normal(size=(n, 5)).round(6).tolist()
        lines = [" ".join(f"{j + 1}:{x}" for j, x in enumerate(row)) for row in rows]
        path.write_text("".join(f"{i % 3} {line}\n" for i, line in enumerate(lines)))
        for partition in partitions_of(open_examples(tmp_path / "20001.libsvm"), 2):
            client.run(survey, partition)  # every worker, whoever surveys
        before = client.run(bytes_read)
        engine = DaskEngine(client)
        surveys = surveyed(engine, partitions_of(open_examples(path), 2), survey)
        after = client.run(bytes_read)
        sizes = [after[worker] - before[worker] for worker in before]
    assert sum(survey.n_examples for survey in surveys) == 20_000
    size = path.stat().st_size
    assert size <= sum(sizes)
    assert max(sizes) <= 0.6 * size


@pytest.mark.slow
def test_tables_where_the_workers_are(cluster, tmp_path):
    """A data frame that the workers hold, one that they read, and its files."""
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    client = with_workers(cluster, 2)
    table = pandas.DataFrame(np.array(X), columns=[f"x{j}" for j in range(12)]).assign(y=Y)
    frames.from_pandas(table, npartitions=4).to_parquet(tmp_path / "table")
    frame = frames.read_parquet(tmp_path / "table")
    held = client.persist(frame)
    distributed.wait(held)
    here = mm.LinearClassifier(tol=1e-4).fit(np.array(X), Y)
    for data in (held, frame, tmp_path / "table"):
        model = mm.LinearClassifier(tol=0.2, engine=client).fit(open_examples(data))
        assert model.certificate_.relative_gap <= 0.2
        assert_allclose(model.certificate_.primal, here.certificate_.primal, rtol=0.25)
        assert model.certificate_.dual <= here.certificate_.primal

"""Kernels: as accurate as scikit-learn's SVC, and how fast.

Crammer-Singer with an RBF kernel (`KernelStructuredSVM`, to a certified relative gap of 1e-3)
beside scikit-learn's `SVC`, which is one-versus-one, at the same C and gamma: digits (1,000 rows,
and five folds), letter (15,000) and MNIST (10,000), one thread each, taking turns, processor time
of whole fits. Then linear models on low-rank features of letter, by pivoted and by random choice of
rows. And the values of the kernel that the mini-batch solver of He (2016) computes: it asks that
features be kept in a table, so that no value is computed twice; here they are counted, beside
those that a Gram matrix made anew in each iteration would take.
"""

import argparse
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

import maxmargin as mm
from benchmarks.common import clocks, interleaved, parser, run, say, span, timed
from benchmarks.reporting import Bars, Panel, Quote, Report, Row
from maxmargin.core.certificate import Certificate
from maxmargin.core.kernel import RBFKernel
from maxmargin.core.kernel_oracle import KernelClasses, KernelOracle, Multiclass
from maxmargin.core.oracle import Threads
from maxmargin.estimators.kernel import KernelStructuredSVM, LowRankKernel
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.mini_batch_dual import MiniBatchDual

HALF_A_POINT = 0.005
TIMES = 3.0


class Task(NamedTuple):
    """Training and test rows, and the C and gamma for them."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    C: float
    gamma: float


def task(name: str, quick: bool) -> Task:
    if name == "digits" or quick:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        order, n = np.random.RandomState(0).permutation(len(y)), 300 if quick else 1000
        X, y = X[order] / 16, y[order]
        return Task(X[:n], y[:n], X[n:], y[n:], 10.0, 0.05)
    from benchmarks.datasets import load

    data = load(name)
    X, X_test = data.X_train.toarray(), data.X_test.toarray()
    if name == "letter":
        return Task(X, data.y_train, X_test, data.y_test, 10.0, 0.5)
    return Task(X[:10_000], data.y_train[:10_000], X_test, data.y_test, 5.0, 0.02)


def against_svc(name: str, options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """Accuracy and time of both, and which rows support them."""
    data = task(name, options.quick)
    works = {
        "ours": partial(
            KernelStructuredSVM(Multiclass(), C=data.C, kernel="rbf", gamma=data.gamma).fit,
            data.X,
            data.y,
        ),
        "svc": partial(SVC(C=data.C, gamma=data.gamma).fit, data.X, data.y),
    }
    runs = interleaved(works, options.repeats)
    ours, svc = runs["ours"][0].answer, runs["svc"][0].answer
    scored = timed(lambda: ours.accuracy(data.X_test, data.y_test))
    peer = timed(lambda: svc.score(data.X_test, data.y_test))
    seconds = {who: [one.cpu_seconds for one in each] for who, each in runs.items()}
    times = min(seconds["ours"]) / min(seconds["svc"])
    title = f"{name}, {len(data.y):,} rows"
    bar = "" if name != "mnist" else f"<= {TIMES:g} times"
    rows = [
        Row(
            f"{title}, accuracy",
            "within 0.5 points",
            f"{100 * scored.answer:.2f} % (gap {ours.certificate_.relative_gap:.1e})",
            f"{100 * peer.answer:.2f} %",
            met=scored.answer >= peer.answer - HALF_A_POINT,
        ),
        Row(
            f"{title}, fit",
            bar,
            f"{span(seconds['ours'])}, {times:.2f} times",
            span(seconds["svc"]),
            met=times <= TIMES if bar else None,
        ),
        Row(f"{title}, support rows", "", f"{ours.support_size_:,}", f"{len(svc.support_):,}"),
        Row(f"{title}, prediction", "", f"{scored.cpu_seconds:.3g} s", f"{peer.cpu_seconds:.3g} s"),
    ]
    return rows, {
        "ours": clocks(runs["ours"])
        | {"accuracy": scored.answer, "prediction": scored.cpu_seconds},
        "svc": clocks(runs["svc"]) | {"accuracy": peer.answer, "prediction": peer.cpu_seconds},
    }


def digits_in_folds() -> Row:
    """Mean accuracies over five folds: one split of 1,797 rows says little."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    ours, svc = [], []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        model = KernelStructuredSVM(Multiclass(), C=10.0, gamma=0.05).fit(X[train] / 16, y[train])
        ours.append(model.accuracy(X[test] / 16, y[test]))
        svc.append(
            SVC(C=10.0, gamma=0.05).fit(X[train] / 16, y[train]).score(X[test] / 16, y[test])
        )
    return Row(
        "digits, five folds, accuracy",
        "within 0.5 points",
        f"{100 * np.mean(ours):.2f} %",
        f"{100 * np.mean(svc):.2f} %",
        met=bool(np.mean(ours) >= np.mean(svc) - HALF_A_POINT),
    )


def low_rank(options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """Accuracy of linear models on low-rank features, and the time that features take."""
    name = "digits" if options.quick else "letter"
    data = task(name, options.quick)
    rows, details = [], {}
    for k in (20, 40) if options.quick else (100, 200, 400, 800):
        cells = []
        for method in ("cholesky", "random"):
            features = LowRankKernel("rbf", k, gamma=data.gamma, method=method)
            mapped = timed(partial(features.fit_transform, data.X))
            model = mm.LinearClassifier(C=data.C, tol=3e-2, time_limit=60)
            trained = timed(partial(model.fit, mapped.answer, data.y))
            accuracy = model.score(features.transform(data.X_test), data.y_test)
            cells.append(f"{100 * accuracy:.2f} %")
            details[f"{method}-{k}"] = {
                "accuracy": accuracy,
                "map": mapped.cpu_seconds,
                "fit": trained.cpu_seconds,
            }
        taken = details[f"cholesky-{k}"]
        cells[0] += f" ({taken['map']:.2g} + {taken['fit']:.2g} s)"
        rows.append(Row(f"{name}, {k} components: pivoted", "", cells[0], f"random {cells[1]}"))
    return rows, details


def growth(options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """Values of the kernel that the mini-batch solver computes."""
    data = task("digits", options.quick)
    classes = np.unique(data.y)
    problem = KernelClasses(classes, 1.0 - np.eye(len(classes)))
    C = np.full(len(data.y), data.C)
    training = KernelOracle(problem, data.X, data.y, C, RBFKernel(data.gamma))
    rounds, recomputed = 0, 0
    with Threads(1) as threads:
        solver = MiniBatchDual(prune_every=10**9)
        state = solver.start(training, Stopping(tol=1e-3), threads, seed=0)
        while Certificate(state.primal, state.dual).relative_gap > 1e-3:
            solver.iterate(state)
            rounds += 1
            recomputed += len(state.cuts) ** 2
    table = state.cuts.parts
    allowed = len(table) ** 2 + rounds
    row = Row(
        f"digits, {len(state.cuts)} outputs over {len(table)} rows",
        f"<= {allowed:,} (rows^2, checks)",
        f"{table.evaluations:,} values",
        f"{recomputed:,} anew each iteration",
        met=table.evaluations <= allowed,
    )
    return [row], {
        "values": table.evaluations,
        "anew": recomputed,
        "rows": len(table),
        "planes": len(state.cuts),
    }


def measure(options: argparse.Namespace) -> Report:
    """All parts."""
    report = Report()
    for name in options.data:
        say(f"{name} beside SVC")
        rows, report.details[name] = against_svc(name, options)
        report.rows += rows
    if not options.quick:
        report.rows.append(digits_in_folds())
    say("growth of the Gram matrix")
    rows, grown = growth(options)
    report.rows += rows
    say("low rank")
    rows, ranks = low_rank(options)
    report.rows += rows
    seconds = {
        name: {who: min(report.details[name][who]["cpu_seconds"]) for who in ("ours", "svc")}
        for name in options.data
    }
    report.quotes.append(
        Quote(
            "He (2016), section 3.1",
            "feature vectors are kept in a table, so that each is there only once",
            f"{grown['values']:,} values of the kernel for {grown['planes']} cutting planes over "
            f"{grown['rows']} rows, where a matrix made anew each iteration takes "
            f"{grown['anew']:,}",
            grown["values"] < grown["anew"],
        )
    )
    slow = {name: each["ours"] / each["svc"] for name, each in seconds.items()}
    if max(slow.values()) > TIMES:
        report.notes.append(
            "Where there are many classes in few dimensions, `SVC` is faster: "
            + ", ".join(f"{name} {times:.1f} times" for name, times in slow.items() if times > 1.0)
            + ". It solves a small problem for each pair of classes; Crammer-Singer is one "
            "problem over all rows and classes. Its answer has fewer support rows and predicts "
            "faster."
        )
    report.panels["fit"] = Bars(seconds, "seconds", "log")
    report.panels["accuracy"] = Bars(
        {
            name: {who: 100 * report.details[name][who]["accuracy"] for who in ("ours", "svc")}
            for name in options.data
        },
        "per cent",
    )
    report.panels["low rank"] = Panel(
        {method: _by_size(ranks, method) for method in ("cholesky", "random")},
        "components",
        "per cent right",
        ("log", "linear"),
    )
    report.details |= {"growth": grown, "low rank": ranks}
    return report


def _by_size(found: dict[str, Any], method: str) -> tuple[list[float], list[float]]:
    """Components, and per cent right."""
    mine = {
        int(name.split("-")[1]): 100 * each["accuracy"]
        for name, each in found.items()
        if name.startswith(method)
    }
    return list(map(float, mine)), list(mine.values())


if __name__ == "__main__":
    run(parser(__doc__, data=("digits", "letter", "mnist"), repeats=2), measure)

"""Time to a gap of 1e-3 grows no faster than linearly with the number of examples."""

import argparse
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import best, clocks, interleaved, load, parser, run, subsample
from benchmarks.race import CRAMMER_SINGER, ONE_VERSUS_REST, WESTON_WATKINS, Task
from benchmarks.reporting import Report, Row

SHARES = (0.1, 0.3, 1.0)
BAR = 1.1
FORMULATIONS = {one.name: one for one in (CRAMMER_SINGER, WESTON_WATKINS, ONE_VERSUS_REST)}


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for name in options.data:
        data = load(name, options.quick)
        whole = Task(data, FORMULATIONS[options.formulation], options.C)
        tasks = {share: whole.on(subsample(data, round(share * len(data.y)))) for share in SHARES}
        whole.on(subsample(data, 100)).fit()
        works = {f"{share:g}": partial(task.fit, tol=1e-3) for share, task in tasks.items()}
        runs = interleaved(works, options.repeats)
        lines: list[dict[str, Any]] = []
        for (share, task), timings in zip(tasks.items(), runs.values(), strict=True):
            model, n = timings[-1].answer, len(task.data.y)
            passes = model.history_[-1].oracle_calls / n
            lines.append(
                {
                    "examples": n,
                    "rounds": model.n_iter_,
                    "passes": passes,
                    "status": model.status_,
                    "relative_gap": model.certificate_.relative_gap,
                    **clocks(timings),
                }
            )
            text = f"{best(timings):.3g} s, {model.n_iter_} rounds, {passes:.1f} visits an example"
            report.rows.append(Row(f"{data.name}, {share:.0%}: {n} examples", "", text))
        sizes = np.log([line["examples"] for line in lines])
        times = np.log([best(timings) for timings in runs.values()])
        exponent = float(np.polyfit(sizes, times, 1)[0])
        report.rows.append(
            Row(
                f"{data.name}, exponent of time against examples",
                f"<= {BAR:g}",
                f"{exponent:.2f}",
                met=exponent <= BAR,
            )
        )
        report.details[whole.key] = {"exponent": exponent, "sizes": lines}
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, ("covtype", "mnist"), repeats=3)
    arguments.set_defaults(data=["covtype"])
    arguments.add_argument("--formulation", choices=FORMULATIONS, default=CRAMMER_SINGER.name)
    arguments.add_argument("--C", type=float, default=1.0)
    run(arguments, measure)

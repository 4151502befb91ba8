"""How long the first fit takes: after an installation, and in every later session.

The first fit compiles its kernels and keeps them on disk; later processes load them. Seconds of the
import and of a fit of scikit-learn's digits, each in a fresh process, which does nothing else on
that clock; first with an empty folder for compiled code, then with the one that was just filled.
Asked for: 10 s, and 1.5 s. What scikit-learn and numba need to be imported, which an estimator of
ours cannot do without, is measured in processes of their own.
"""

import argparse
import inspect
import tempfile

from benchmarks.common import child, parser, run, span
from benchmarks.reporting import Bars, Report, Row

FIRST, LATER = 10.0, 1.5


def work() -> None:
    """Import and fit. Its source runs in the fresh process, where nothing is imported yet."""
    import json
    import time

    start = time.perf_counter()
    import maxmargin as mm

    package = time.perf_counter()
    model = mm.LinearClassifier()
    estimator = time.perf_counter()
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    loaded = time.perf_counter()
    model.fit(X / 16, y)
    fitted = time.perf_counter()
    seconds = {
        "import maxmargin": package - start,
        "import of the estimator": estimator - start,
        "fit": fitted - loaded,
        "import and fit": (estimator - start) + (fitted - loaded),
    }
    print(json.dumps(seconds))


def imports_alone() -> None:
    """Import what every estimator needs, in a fresh process too."""
    import json
    import time

    start = time.perf_counter()
    import numba  # noqa: F401
    import sklearn.base  # noqa: F401

    print(json.dumps({"imports": time.perf_counter() - start}))


def measure(options: argparse.Namespace) -> Report:
    first, later, others = [], [], []
    for _ in range(1 if options.quick else options.repeats):
        with tempfile.TemporaryDirectory() as empty:
            call = ["-c", f"{inspect.getsource(work)}\nwork()"], {"NUMBA_CACHE_DIR": empty}
            first.append(child(*call))
            later.append(child(*call))
            others.append(child(["-c", f"{inspect.getsource(imports_alone)}\nimports_alone()"], {}))

    def row(what: str, part: str, found: list[dict[str, float]], bar: float | None) -> Row:
        values = [one[part] for one in found]
        wanted, met = ("", None) if bar is None else (f"<= {bar:g} s", min(values) <= bar)
        return Row(what, wanted, span(values), met=met)

    rows = [
        row("import and fit, nothing compiled yet", "import and fit", first, FIRST),
        row("import and fit, compiled before", "import and fit", later, LATER),
        row("of that, import of the estimator", "import of the estimator", later, None),
        row("of that, scikit-learn and numba", "imports", others, None),
        row("import maxmargin alone", "import maxmargin", later, None),
    ]
    report = Report(rows, details={"first": first, "later": later, "others": others})
    parts = {part: min(one[part] for one in later) for part in later[0]}
    report.notes.append(
        f"Of a later session's {parts['import and fit']:.2f} s, {parts['import maxmargin']:.2f} s "
        f"are the import of maxmargin, {parts['import of the estimator']:.2f} s that with the "
        "estimator's, which brings scikit-learn and numba along "
        f"({min(one['imports'] for one in others):.2f} s without us), and the rest is the fit: "
        "most of it the loading of compiled code. What else the machine does counts here more than "
        "elsewhere."
    )
    report.panels["Seconds of a fresh process"] = Bars(
        {
            "nothing compiled yet": {part: min(one[part] for one in first) for part in parts},
            "compiled before": parts,
        },
        "seconds",
        "log",
    )
    return report


if __name__ == "__main__":
    run(parser(__doc__, repeats=3), measure)

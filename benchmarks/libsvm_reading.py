"""LIBSVM files: how fast they are read, beside scikit-learn's reader.

Rows of real data are written by scikit-learn's own dump_svmlight_file, with 16 digits, then read by
its load_svmlight_file and by ours in turns, whole and in batches; the least time of several counts.
Up to two million entries of each set. Asked for: 5 times as fast, and the same bits.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from benchmarks.common import best, clocks, interleaved, load, parser, run, say
from benchmarks.reporting import Bars, Report, Row
from maxmargin.data import LibsvmFile, convert, read_libsvm

NAMES = ("covtype", "mnist", "20news", "a9a")
MOST_ENTRIES = 2_000_000
BAR = 5.0


def same_bits(ours: Any, theirs: Any) -> bool:
    (X, y), (peer_X, peer_y) = ours, theirs
    parts = ((X.data, peer_X.data), (X.indices, peer_X.indices), (X.indptr, peer_X.indptr))
    return X.shape == peer_X.shape and all(
        len(a) == len(b) and (a.tobytes() == b.astype(a.dtype, copy=False).tobytes())
        for a, b in (*parts, (y, peer_y))
    )


def pass_over(source: Any) -> float:
    """Look at every value once."""
    return sum(float(block.X.data.sum()) for block in source.batches())


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for name in options.data:
        data = load(name, options.quick)
        n = int(np.searchsorted(data.X.indptr, MOST_ENTRIES))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "data.svm")
            dump_svmlight_file(data.X[:n], data.y[:n], str(path), zero_based=False)
            megabytes = path.stat().st_size / 1e6
            say(f"{data.name}: {megabytes:.0f} MB")
            stored = convert(path, Path(folder, "stored"), progress=False)
            runs = interleaved(
                {
                    "whole": lambda path=path: read_libsvm(path),  # type: ignore[misc]
                    "peer": lambda path=path: load_svmlight_file(str(path)),  # type: ignore[misc]
                    "batches": lambda path=path: pass_over(LibsvmFile(path)),  # type: ignore[misc]
                    "folder": lambda stored=stored: pass_over(stored),  # type: ignore[misc]
                },
                options.repeats,
            )
        report.details[data.name] = {what: clocks(done) for what, done in runs.items()}
        report.details[data.name]["megabytes"] = megabytes
        same = same_bits(runs["whole"][0].answer, runs["peer"][0].answer)
        rates = {what: megabytes / best(done) for what, done in runs.items()}
        for what in ("whole", "batches"):
            ratio = rates[what] / rates["peer"]
            report.rows.append(
                Row(
                    f"{data.name}, {megabytes:.0f} MB, {what}",
                    f">= {BAR:g}x",
                    f"{ratio:.1f}x, {rates[what]:.0f} MB/s",
                    f"{rates['peer']:.0f} MB/s",
                    ratio >= BAR,
                )
            )
        report.rows.append(
            Row(f"{data.name}, the same bits", "yes", "yes" if same else "no", "", same)
        )
        report.rows.append(
            Row(f"{data.name}, converted, in text's MB", "", f"{rates['folder']:.0f} MB/s")
        )
        report.details[data.name]["MB/s"] = rates
    every = {name: found["MB/s"] for name, found in report.details.items()}
    ratios = [rates["whole"] / rates["peer"] for rates in every.values()]
    report.notes.append(
        f"Whole files are read {min(ratios):.1f} to {max(ratios):.1f} times as fast. Blocks take "
        "their time to be handed over one by one; a converted folder is mapped, so that nothing "
        "is left to be read but numbers."
    )
    report.panels["Megabytes of text a second"] = Bars(every, "MB/s", "log")
    return report


if __name__ == "__main__":
    run(parser(__doc__, NAMES, repeats=7), measure)

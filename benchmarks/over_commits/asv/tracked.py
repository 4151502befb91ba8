"""Counts of small fits and ratios of kernels to the machine's limits, for airspeed velocity.

Counts depend on nothing but the code. Ratios are times over times of the same run.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.regressions import COUNTS, counts_of, fits, kernels, ratio_of


def track_count(fit: str, what: str) -> int:
    """Searches, rounds or planes of a fit to its gap."""
    return counts_of(fit)[what]


track_count.params = ([fit.name for fit in fits()], list(COUNTS))  # type: ignore[attr-defined]
track_count.param_names = ["fit", "what"]  # type: ignore[attr-defined]
track_count.unit = "times"  # type: ignore[attr-defined]


def track_ratio(kernel: str) -> float:
    """Time of a kernel over the least that this machine could take."""
    return ratio_of(kernel)


track_ratio.params = [list(kernels())]  # type: ignore[attr-defined]
track_ratio.param_names = ["kernel"]  # type: ignore[attr-defined]
track_ratio.unit = "times the limit"  # type: ignore[attr-defined]

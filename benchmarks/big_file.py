"""A multi-class LIBSVM file of any size, from real rows with noise.

    python -m benchmarks.big_file big.svm --bytes 4e9 --data covtype --test-bytes 4e7

Each line is a random training row whose values are multiplied by 1 plus normal noise and written
with four digits after the point. ``big.svm.test`` is made from test rows in the same way. The same
arguments give the same files.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common import load as load_some
from benchmarks.common import say
from benchmarks.datasets import load
from maxmargin.compiled.compile import compiled

NAMES = ("covtype", "mnist")
CHUNK_ENTRIES = 1_000_000
MOST_ENTRY_BYTES = 40
"""Space, index, colon, sign, digits before and after the point."""

_DECIMALS, _SCALE = 4, 10_000


class Made(NamedTuple):
    """How large a file has become."""

    n_rows: int
    n_bytes: int


def real_rows(name: str, test: bool = False, quick: bool = False) -> tuple[Any, NDArray[Any]]:
    """Rows and classes of a real data set; `quick` takes a tiny one in its place."""
    if quick:
        data = load_some(name, quick=True)
        return data.X[int(test) :: 2], data.y[int(test) :: 2]
    real = load(name)
    return (real.X_test, real.y_test) if test else (real.X_train, real.y_train)


def make(
    path: str | os.PathLike[str],
    n_bytes: int,
    X: Any,
    y: NDArray[Any],
    seed: int = 0,
    noise: float = 0.05,
) -> Made:
    """Write lines made from the rows of `X` until there are `n_bytes`; classes count from 1."""
    X = sp.csr_array(X)
    per_chunk = max(CHUNK_ENTRIES * X.shape[0] // max(X.nnz, 1), 1)
    beside = Path(f"{os.fspath(path)}.{os.getpid()}.part")
    rows, size, chunk = 0, 0, 0
    try:
        with open(beside, "wb") as file:
            while size < n_bytes:
                random = np.random.default_rng([seed, chunk])
                chosen = random.integers(X.shape[0], size=per_chunk)
                lines, n_lines = formatted(X, y, chosen, random, noise, n_bytes - size)
                file.write(lines.data)
                rows, size, chunk = rows + n_lines, size + len(lines), chunk + 1
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return Made(rows, size)


def formatted(
    X: sp.csr_array,
    y: NDArray[Any],
    chosen: NDArray[Any],
    random: np.random.Generator,
    noise: float,
    most: int,
) -> tuple[NDArray[np.uint8], int]:
    """Lines of the chosen rows with noise, until there are `most` bytes; and how many lines."""
    n_entries = int((X.indptr[chosen + 1] - X.indptr[chosen]).sum())
    factors = random.standard_normal(n_entries, dtype=np.float32)
    factors *= noise
    factors += 1
    text = np.empty(n_entries * MOST_ENTRY_BYTES + len(chosen) * MOST_ENTRY_BYTES, np.uint8)
    end, n_lines = _write_lines(
        X.data, X.indices, X.indptr, y.astype(np.int64), chosen, factors, text, most
    )
    return text[:end], n_lines


@compiled
def _write_whole(number, text, at):  # type: ignore[no-untyped-def]
    """Digits of a whole number that is not negative; returns where they end."""
    digits = 1
    rest = number // 10
    while rest:
        digits += 1
        rest //= 10
    for place in range(at + digits - 1, at - 1, -1):
        text[place] = 48 + number % 10
        number //= 10
    return at + digits


@compiled
def _write_lines(data, indices, indptr, y, chosen, factors, text, most):  # type: ignore[no-untyped-def]
    at, entry = 0, 0
    for line in range(len(chosen)):
        if at >= most:
            return at, line
        row = chosen[line]
        at = _write_whole(y[row] + 1, text, at)
        for place in range(indptr[row], indptr[row + 1]):
            value = data[place] * factors[entry]
            entry += 1
            scaled = np.int64(abs(value) * _SCALE + 0.5)
            if scaled == 0:
                continue
            text[at] = 32
            at = _write_whole(np.int64(indices[place]) + 1, text, at + 1)
            text[at] = 58
            at += 1
            if value < 0:
                text[at] = 45
                at += 1
            at = _write_whole(scaled // _SCALE, text, at)
            text[at] = 46
            fraction = scaled % _SCALE
            for digit in range(_DECIMALS, 0, -1):
                text[at + digit] = 48 + fraction % 10
                fraction //= 10
            at += _DECIMALS + 1
        text[at] = 10
        at += 1
    return at, len(chosen)


def main() -> None:
    """Make the files and say how long it took."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("path", type=Path)
    arguments.add_argument("--bytes", type=float, default=4e9)
    arguments.add_argument("--test-bytes", type=float, default=4e7)
    arguments.add_argument("--data", choices=NAMES, default="covtype")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--noise", type=float, default=0.05)
    arguments.add_argument("--quick", action="store_true", help="rows of a tiny data set")
    options = arguments.parse_args()
    sizes = {False: options.bytes, True: options.test_bytes}
    for test, n_bytes in sizes.items():
        X, y = real_rows(options.data, test, options.quick)
        path = Path(f"{options.path}.test") if test else options.path
        start = time.perf_counter()
        made = make(path, int(n_bytes), X, y, 2 * options.seed + test, options.noise)
        seconds = time.perf_counter() - start
        say(
            f"{path}: {made.n_rows:,} rows, {made.n_bytes / 1e6:,.0f} MB in {seconds:.1f} s "
            f"({made.n_bytes / 1e6 / seconds:.0f} MB/s)"
        )


if __name__ == "__main__":
    main()

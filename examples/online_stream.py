"""Learn digits from a stream: hard examples are kept, and a last pass certifies the answer."""

import numpy as np
from sklearn.datasets import load_digits

from maxmargin.data.sources import Examples, Source
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.online import Online
from maxmargin.structures import Classes
from maxmargin.training.streams import SourceStream


class Digits(Source):
    """Images in blocks of 200, as if they came from a disk."""

    def batches(self):
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        for some in np.array_split(order, len(y) // 200):
            yield Examples(X[some] / 16.0, y[some])


problem = Classes(n_features=64, n_classes=10)
stream = SourceStream.of(problem, Digits(), C=0.01)

for passes in (1, None):
    result = Online(passes=passes, cache_bytes=20_000_000).solve(stream, Stopping(tol=1e-3))
    last = result.history[-1]
    print(
        f"{result.iterations} passes, {last.oracle_calls} oracle calls, {last.cuts} cutting planes"
    )
    print(f"  {result.certificate}")

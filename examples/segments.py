"""A structure from its first line to a batch oracle: the segment of a series in which it happens.

An input is a matrix with one row of features for each time, an output a half-open interval
``(start, stop)`` of times, or ``(0, 0)`` for none. docs/adding-a-structure.md includes this file
piece by piece.
"""

import numba
import numpy as np

import maxmargin as mm


# inference
@numba.njit(nogil=True)
def best_segment(scores):
    """The interval with the largest sum, ``(0, 0)`` if none is positive (Kadane's algorithm)."""
    best, start, stop = 0.0, 0, 0
    total, begin = 0.0, 0
    for t in range(len(scores)):
        if total <= 0.0:
            total, begin = 0.0, t
        total += scores[t]
        if total > best:
            best, start, stop = total, begin, t + 1
    return start, stop


# problem
class Segments(mm.Problem):
    """One interval of a series; each time that is wrongly in it or wrongly not in it costs one."""

    def joint_feature(self, x, y):
        return x[slice(*y)].sum(axis=0)

    def loss(self, y_true, y):
        overlap = max(0, min(y_true[1], y[1]) - max(y_true[0], y[0]))
        return float(y_true[1] - y_true[0] + y[1] - y[0] - 2 * overlap)

    def inference(self, x, w):
        return best_segment(x @ w)

    def loss_augmented_inference(self, x, y_true, w):
        scores = x @ w + 1.0
        scores[slice(*y_true)] -= 2.0
        return best_segment(scores)


# outputs
class EnumeratedSegments(Segments):
    """The same with all outputs in a list, for solvers that need expectations over them."""

    def outputs(self, x):
        times = range(len(x))
        return [(0, 0), *((start, stop + 1) for start in times for stop in times[start:])]


# cuts
class BatchedSegments(Segments):
    """The same with one oracle call for a batch of examples."""

    def cuts(self, xs, y_true, w):
        outputs = [self.loss_augmented_inference(x, y, w) for x, y in zip(xs, y_true, strict=True)]
        psi = np.array(
            [
                self.joint_feature(x, true) - self.joint_feature(x, y)
                for x, true, y in zip(xs, y_true, outputs, strict=True)
            ]
        )
        n_examples, n_features = psi.shape
        return mm.Cuts(
            starts=np.arange(0, psi.size + 1, n_features),
            columns=np.tile(np.arange(n_features, dtype=np.uint32), n_examples),
            values=psi.ravel(),
            losses=np.array(list(map(self.loss, y_true, outputs))),
            outputs=outputs,
        )


# data
def make_series(n, seed):
    """Noise with three features, and a shift of two of them for some time."""
    random = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        length = random.integers(5, 20)
        start, stop = np.sort(random.integers(0, length + 1, 2)).tolist()
        x = np.column_stack([random.normal(size=(length, 2)), np.ones(length)])
        x[start:stop, :2] += [1.5, -1.0]
        X.append(x)
        Y.append((start, stop) if start < stop else (0, 0))
    return X, Y


# check
def check():
    """Compare both kinds of inference with brute force, and the methods with each other."""
    X, Y = make_series(50, seed=1)
    problem, random = EnumeratedSegments(), np.random.default_rng(0)
    for x, y_true in zip(X, Y, strict=True):
        w = random.normal(size=3)
        scores = {y: problem.joint_feature(x, y) @ w for y in problem.outputs(x)}
        augmented = {y: score + problem.loss(y_true, y) for y, score in scores.items()}
        found = problem.inference(x, w), problem.loss_augmented_inference(x, y_true, w)
        assert np.isclose(scores[found[0]], max(scores.values()))
        assert np.isclose(augmented[found[1]], max(augmented.values()))
    for kind in (Segments, EnumeratedSegments, BatchedSegments):
        assert mm.check_problem(kind(), X, Y, verbose=False).ok


# main
def main():
    """Check it, train it, and compare solvers."""
    check()
    X, Y = make_series(300, seed=0)
    model = mm.StructuredSVM(BatchedSegments(), C=0.1, tol=0.01).fit(X[:200], Y[:200])
    print(f"{model.certificate_} after {model.history_[-1].oracle_calls} oracle calls")
    print(f"mean loss on new series: {-model.score(X[200:], Y[200:]):.2f}")
    for solver in ("one-slack", "frank-wolfe", "partial-linearization"):
        model = mm.StructuredSVM(EnumeratedSegments(), C=0.1, tol=0.01, solver=solver)
        print(f"{solver}: {model.fit(X[:200], Y[:200]).certificate_}")


if __name__ == "__main__":
    main()

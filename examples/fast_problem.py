"""The same kind of problem made fast: the oracle calls of a batch in one compiled call.

Multi-label: an output is any set of labels, each with weights of its own, and a wrong label costs
one. The plain class works by itself; adding `cuts`, which answers for a batch of examples and
writes their cutting planes in sparse form, spares Python's overhead for each of them. The routine
is compiled with numba, as the library's own are.
"""

import time

import numba
import numpy as np

import maxmargin as mm


class Labels(mm.Problem):
    """Independent labels: the four methods that every problem has."""

    def __init__(self, n_labels):
        self.n_labels = n_labels

    def joint_feature(self, x, y):
        return np.outer(y, x).ravel()

    def loss(self, y_true, y):
        return float(np.sum(y_true != y))

    def inference(self, x, w):
        return (w.reshape(self.n_labels, -1) @ x > 0).astype(float)

    def loss_augmented_inference(self, x, y_true, w):
        return (w.reshape(self.n_labels, -1) @ x + 1.0 - 2.0 * y_true > 0).astype(float)


class FastLabels(Labels):
    """The same with one oracle call for a batch of examples."""

    def cuts(self, xs, y_true, w):
        X, T = np.array(xs), np.array(y_true)
        Y = np.empty_like(T)
        table = w.reshape(self.n_labels, -1)
        infer(X, T, table, Y)
        starts = np.zeros(len(X) + 1, dtype=np.int64)
        np.cumsum((T != Y).sum(axis=1) * X.shape[1], out=starts[1:])
        columns = np.empty(starts[-1], dtype=np.uint32)
        values = np.empty(starts[-1])
        write_cuts(X, T, Y, starts, columns, values)
        return mm.Cuts(starts, columns, values, (T != Y).sum(axis=1).astype(float), list(Y))


@numba.njit(cache=True, nogil=True)
def infer(X, T, table, Y):
    """The most violating labels of each row."""
    for i in range(len(X)):
        for m in range(table.shape[0]):
            score = 1.0 - 2.0 * T[i, m]
            for j in range(X.shape[1]):
                score += table[m, j] * X[i, j]
            Y[i, m] = 1.0 if score > 0.0 else 0.0


@numba.njit(cache=True, nogil=True)
def write_cuts(X, T, Y, starts, columns, values):
    """Features of the true labels less those of the found ones, where they differ."""
    d = X.shape[1]
    for i in range(len(X)):
        at = starts[i]
        for m in range(T.shape[1]):
            if T[i, m] != Y[i, m]:
                for j in range(d):
                    columns[at] = m * d + j
                    values[at] = (T[i, m] - Y[i, m]) * X[i, j]
                    at += 1


def main():
    """Train it, and compare."""
    random = np.random.default_rng(0)
    X = random.normal(size=(500, 20))
    hidden = random.normal(size=(6, 20))
    Y = (X @ hidden.T + random.normal(size=(500, 6)) > 0).astype(float)
    for problem in (FastLabels(6), Labels(6)):
        solver = mm.Auto(batch_size=50)
        mm.StructuredSVM(problem, C=0.1, solver=solver, tol=0.5).fit(X[:100], Y[:100])  # compiles
        start = time.perf_counter()
        model = mm.StructuredSVM(problem, C=0.1, solver=solver).fit(X, Y)
        seconds = time.perf_counter() - start
        print(f"{type(problem).__name__}: {seconds:.2f} s, {model.certificate_}")


if __name__ == "__main__":
    main()

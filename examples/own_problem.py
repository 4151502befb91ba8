"""A structure of your own in plain Python: pick the words of a summary, at most three.

An input is a list of candidates (rows of features), an output a set of at most `BUDGET` of them.
The score of a set is the sum over its members, so both kinds of inference sort. Fifteen lines of
problem, and every solver can train it.
"""

import numpy as np

import maxmargin as mm

BUDGET = 3


class Selection(mm.Problem):
    """Choose at most `BUDGET` rows; a missed or a wrong one costs one."""

    def joint_feature(self, x, y):
        return x[sorted(y)].sum(axis=0)

    def loss(self, y_true, y):
        return float(len(y_true ^ y))

    def inference(self, x, w):
        return self._best(x @ w)

    def loss_augmented_inference(self, x, y_true, w):
        wrong = np.array([-1.0 if i in y_true else 1.0 for i in range(len(x))])
        return self._best(x @ w + wrong)

    def _best(self, gains):
        return frozenset(i for i in np.argsort(-gains)[:BUDGET].tolist() if gains[i] > 0)


def make_data(n, seed):
    """Inputs whose right rows are those that score highest under hidden weights, with noise."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=5)
    X = [random.normal(size=(random.integers(4, 9), 5)) for _ in range(n)]
    noisy = [x @ hidden + 0.3 * random.normal(size=len(x)) for x in X]
    return X, [Selection()._best(gains) for gains in noisy]


def main():
    """Train it, and compare."""
    X, Y = make_data(300, seed=0)
    model = mm.StructuredSVM(Selection(), C=0.1).fit(X[:200], Y[:200])
    print(f"{model.certificate_} after {model.history_[-1].oracle_calls} oracle calls")
    print(f"mean loss on new inputs: {-model.score(X[200:], Y[200:]):.2f}")
    for solver in ("n-slack", "one-slack", "dual-coordinate", mm.FrankWolfe(step="pairwise")):
        model = mm.StructuredSVM(Selection(), C=0.1, solver=solver).fit(X[:200], Y[:200])
        print(f"{solver}: {model.certificate_}")


if __name__ == "__main__":
    main()

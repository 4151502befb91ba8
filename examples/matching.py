"""Matching as a structure: pair the words of two sentences, one to one, so that most pairs fit.

An input is a tensor of features for every pair of a left and a right item, an output an assignment
of left items to right ones. The best assignment is found by `scipy.optimize.linear_sum_assignment`,
and so is the most violating one: a wrong pair costs one, which is added to its score.

The data are sentences made by a seeded script. An item has a hidden meaning, of which both sides
show noisy copies, and a place; words that belong together are close in meaning and roughly in the
same order. Choosing the closest partner of each item on its own gives the same partner to several.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

import maxmargin as mm

N_MEANINGS = 6


class Matching(mm.Problem):
    """One-to-one assignments; ``y[i]`` is the partner of item ``i``."""

    def joint_feature(self, x, y):
        return x[np.arange(len(y)), y].sum(axis=0)

    def loss(self, y_true, y):
        return float(np.sum(y_true != y))

    def inference(self, x, w):
        return linear_sum_assignment(x @ w, maximize=True)[1]

    def loss_augmented_inference(self, x, y_true, w):
        scores = x @ w + 1.0
        scores[np.arange(len(y_true)), y_true] -= 1.0
        return linear_sum_assignment(scores, maximize=True)[1]


def make_pairs(n, seed):
    """Sentence pairs of four to nine words, and which words belong together."""
    random = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        length = random.integers(4, 10)
        meanings = random.normal(size=(length, N_MEANINGS))
        order = np.argsort(np.arange(length) + random.normal(scale=1.5, size=length))
        left = meanings + 0.7 * random.normal(size=meanings.shape)
        right = meanings[order] + 0.7 * random.normal(size=meanings.shape)
        places = np.arange(length) / length
        apart = np.abs(places[:, None] - places)[:, :, None]
        X.append(np.concatenate([np.abs(left[:, None] - right), apart, apart**2], axis=2))
        Y.append(np.argsort(order))
    return X, Y


def share_right(predicted, Y):
    """Fraction of the items with the right partner."""
    return np.mean(np.concatenate(predicted) == np.concatenate(Y))


def main():
    """Train it, and compare with no training and with no matching."""
    X, Y = make_pairs(400, seed=0)
    train, test = (X[:200], Y[:200]), (X[200:], Y[200:])
    model = mm.StructuredSVM(Matching(), C=0.1).fit(*train)
    print(f"{model.certificate_} after {model.history_[-1].oracle_calls} oracle calls")
    learned = share_right(model.predict(test[0]), test[1])
    equal = -np.ones(N_MEANINGS + 2)
    untrained = share_right([Matching().inference(x, equal) for x in test[0]], test[1])
    alone = share_right([np.argmax(x @ model.weights_, axis=1) for x in test[0]], test[1])
    print(f"right partners in new pairs: {learned:.1%}")
    print(f"with equal weights: {untrained:.1%}; each item on its own: {alone:.1%}")
    assert model.certificate_.relative_gap <= 1e-3
    assert learned > max(untrained, alone)
    print("weights of the distance in meaning:", np.round(model.weights_[:N_MEANINGS], 2))
    print("weights of the distance in place:", np.round(model.weights_[N_MEANINGS:], 2))


if __name__ == "__main__":
    main()

"""Hidden states in a chain: labels that look different from one moment to the next.

A machine is idle, runs, or fails, and its two sensors and their order in time tell which. Every
label has two hidden states, which the training labels do not tell: "idle" reads high-high or
low-low, "runs" high-low or low-high, so no weights of the readings can tell them apart; "fails" is
a burst that first reads as one, then as the other. `HiddenChains` gives each label two states and
finds out which is which, by imputing the states of the training labels and training on them in
turn.
"""

import numpy as np

import maxmargin as mm
from maxmargin.estimators.latent import LatentStructuredSVM
from maxmargin.structures.chain.problem import HiddenChains

LABELS = ["idle", "runs", "fails"]
READINGS = np.array([[(1, 1), (-1, -1)], [(1, -1), (-1, 1)], [(1, 1), (1, -1)]])


def make_sequences(n, seed):
    """Readings and labels of `n` sequences of 12 positions."""
    random = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        label, state = random.integers(2), random.integers(2)
        rows, labels = [], []
        for _ in range(12):
            rows.append(READINGS[label, state] + 0.45 * random.normal(size=2))
            labels.append(label)
            if label == 2 and state == 0:
                state = 1  # a failure goes on to its second state
            elif random.random() < 0.4:
                label, state = random.integers(3), random.integers(2)
                state *= label != 2  # and begins with the first
            # Otherwise all stays as it is.
        X.append(np.array(rows))
        Y.append(np.array(labels))
    return X, Y


def share_right(predicted, Y):
    """Fraction of the positions with the right label."""
    return np.mean(np.concatenate(predicted) == np.concatenate(Y))


def main():
    """Train with and without hidden states, and compare."""
    X, Y = make_sequences(300, seed=0)
    new_X, new_Y = make_sequences(300, seed=1)
    plain = mm.SequenceTagger(C=0.1).fit(X, Y)
    print(f"no hidden states: {share_right(plain.predict(new_X), new_Y):.1%} right")
    model = LatentStructuredSVM(HiddenChains(2, 3, 2), C=0.1, restarts=5).fit(X, Y)
    print("objective after each step:", np.round(model.objectives_, 1))
    print("at the end of each start:", np.round(model.restart_objectives_, 1))
    print(f"the last convex step: {model.certificate_}")
    print(f"two hidden states: {share_right(model.predict(new_X), new_Y):.1%} right")
    assert (np.diff(model.objectives_) <= 0).all()
    assert share_right(model.predict(new_X), new_Y) > share_right(plain.predict(new_X), new_Y)
    return plain, model


if __name__ == "__main__":
    main()

"""Labelled sequences in plain numpy: the search, the hinge, and its subgradient.

Weights are two matrices: `emissions`, one row for each feature and one column for each label, and
`transitions` from a label (row) to the next (column). Plain classes are sequences of length one.
"""

import numpy as np


def search(X, lengths, emissions, transitions, truth=None):
    """Labels of the highest score of each sequence, plus the Hamming loss if `truth` is given.

    Sequences of the same length are searched together.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_rows, n_features)
        Rows of all sequences, one after the other.
    lengths : array of shape (n_sequences,)
    emissions : array of shape (n_features, n_labels)
    transitions : array of shape (n_labels, n_labels)
    truth : array of shape (n_rows,), default=None

    Returns
    -------
    array of shape (n_rows,)
    """
    scores = np.asarray(X @ emissions)
    if truth is not None:
        scores = scores + 1.0
        scores[np.arange(len(truth)), truth] -= 1.0
    starts = np.cumsum(lengths) - lengths
    found = np.empty(len(scores), dtype=np.int64)
    for length in np.unique(lengths):
        rows = starts[lengths == length][:, None] + np.arange(length)
        found[rows] = _viterbi(scores[rows], transitions)
    return found


def _viterbi(scores, transitions):
    """Best labels of sequences of one length; scores of shape (n_sequences, length, n_labels)."""
    n, length, _ = scores.shape
    best, origins = scores[:, 0], []
    for t in range(1, length):
        through = best[:, :, None] + transitions
        origins.append(through.argmax(axis=1))
        best = through.max(axis=1) + scores[:, t]
    labels = np.empty((n, length), dtype=np.int64)
    labels[:, -1] = best.argmax(axis=1)
    for t in range(length - 2, -1, -1):
        labels[:, t] = origins[t][np.arange(n), labels[:, t + 1]]
    return labels


def neighbours(labels, lengths):
    """Pairs of labels that follow each other within a sequence."""
    last = np.cumsum(lengths) - 1
    inside = np.ones(len(labels), dtype=bool)
    inside[last] = False
    first = np.flatnonzero(inside)
    return labels[first], labels[first + 1]


def features(X, labels, lengths, n_labels):
    """Joint features of all sequences with these labels, summed: shaped as the weights are."""
    chosen = np.zeros((len(labels), n_labels))
    chosen[np.arange(len(labels)), labels] = 1.0
    pairs = np.zeros((n_labels, n_labels))
    np.add.at(pairs, neighbours(labels, lengths), 1.0)
    return np.asarray(X.T @ chosen), pairs


def total_score(X, labels, lengths, emissions, transitions):
    """Score of all sequences with these labels."""
    of_rows = np.asarray(X @ emissions)[np.arange(len(labels)), labels].sum()
    return float(of_rows + transitions[neighbours(labels, lengths)].sum())


def primal(X, y, lengths, C, emissions, transitions):
    """Half the squared norm of the weights plus C times the sum of the hinges."""
    found = search(X, lengths, emissions, transitions, truth=y)
    weights = emissions, transitions
    violation = total_score(X, found, lengths, *weights) - total_score(X, y, lengths, *weights)
    hinges = float(np.count_nonzero(found != y)) + violation
    return 0.5 * float((emissions**2).sum() + (transitions**2).sum()) + C * hinges

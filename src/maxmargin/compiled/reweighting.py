"""Distributions reweighted by exponentials of scores: ``new ~ old * exp(inverse * score)``.

That of a chain has the probabilities `nodes` of labels, ``(length, P)``, and `pairs` of labels of
neighbours, ``(length - 1, n_labels, P)``; see `maxmargin.structures.chain.inference` for scores
and padding.
Here the padding of probabilities must be zero, and stays so. There are two ways to reweight them:
`set_potentials` makes scores for `marginals_along`, whatever they are; `reweight_chain` takes no
logarithm for every pair, where the scores of pairs are the same at all positions and lie close
enough to each other.
"""

import numpy as np

from maxmargin.compiled.compile import compiled, inlined

LEAST = 1e-100
"""Smaller probabilities are reweighted as if they were this large: what vanished can return."""

WIDEST = 430.0
"""Range of transitions over the temperature up to which factors can take the place of logarithms.

Then the smallest product of a share, a probability and a factor, ``LEAST * exp(-WIDEST)``, is still
a number, and what iterations to zero next to it would not have changed a sum."""


@inlined
def normalise(logs):  # type: ignore[no-untyped-def]
    """From logarithms to probabilities."""
    highest = -np.inf
    for m in range(len(logs)):
        highest = max(highest, logs[m])
    total = 0.0
    for m in range(len(logs)):
        logs[m] = np.exp(logs[m] - highest)
        total += logs[m]
    for m in range(len(logs)):
        logs[m] /= total


@inlined
def reweight(old, inverse, new):  # type: ignore[no-untyped-def]
    """Set `new`, the scores, to the probabilities; `old` has one for every output."""
    for j in range(len(old)):
        new[j] = np.log(max(old[j], LEAST)) + inverse * new[j]
    normalise(new)


@compiled
def true_score(labels, scores, edges):  # type: ignore[no-untyped-def]
    """Score of the true labelling."""
    varying = len(edges) > 1
    total = scores[0, labels[0]]
    for t in range(1, len(labels)):
        total += scores[t, labels[t]] + edges[(t - 1) * varying, labels[t - 1], labels[t]]
    return total


@compiled
def mean_score(nodes, pairs, scores, edges):  # type: ignore[no-untyped-def]
    """Expected score of a labelling."""
    varying = len(edges) > 1
    total = 0.0
    for t in range(len(nodes)):
        for m in range(nodes.shape[1]):
            total += nodes[t, m] * scores[t, m]
    for t in range(len(pairs)):
        edge = edges[t * varying]
        for a in range(pairs.shape[1]):
            for m in range(pairs.shape[2]):
                total += pairs[t, a, m] * edge[a, m]
    return total


@compiled
def set_labelling(labels, nodes, pairs):  # type: ignore[no-untyped-def]
    """All probability on one labelling."""
    for t in range(len(nodes)):
        for m in range(nodes.shape[1]):
            nodes[t, m] = 0.0
        nodes[t, labels[t]] = 1.0
    for t in range(len(pairs)):
        for a in range(pairs.shape[1]):
            for m in range(pairs.shape[2]):
                pairs[t, a, m] = 0.0
        pairs[t, labels[t], labels[t + 1]] = 1.0


@compiled
def set_potentials(nodes, pairs, edges, inverse, n_labels, scores, potentials):  # type: ignore[no-untyped-def]
    """The distribution's logarithm plus scores over the temperature.

    That of the positions in the place of `scores`, that of the pairs in `potentials`.
    """
    varying = len(edges) > 1
    last = len(nodes) - 1
    for t in range(last + 1):
        # An inner position is part of two pairs: it would be counted once too often.
        sign = 1.0 if last == 0 else (-1.0 if 0 < t < last else 0.0)
        for m in range(n_labels):
            scores[t, m] = inverse * scores[t, m] + sign * np.log(max(nodes[t, m], LEAST))
    for t in range(last):
        edge = edges[t * varying]
        for a in range(n_labels):
            for m in range(n_labels):
                log = np.log(max(pairs[t, a, m], LEAST))
                potentials[t, a, m] = inverse * edge[a, m] + log


@compiled
def set_factors(edges, inverse, n_labels, factors):  # type: ignore[no-untyped-def]
    """``exp(edges * inverse)`` over the highest; returns whether that can be used."""
    lowest, highest = np.inf, -np.inf
    for a in range(n_labels):
        for m in range(n_labels):
            lowest = min(lowest, edges[a, m])
            highest = max(highest, edges[a, m])
    for a in range(n_labels):
        for m in range(n_labels):
            factors[a, m] = np.exp((edges[a, m] - highest) * inverse)
    return (highest - lowest) * inverse <= WIDEST


@inlined
def forward_shares(nodes, pairs, logs, factors, n_labels, new_pairs, sums):  # type: ignore[no-untyped-def]
    """One step forward: ``new_pairs[a, m] ~ exp(logs[a]) * p(m | a) * factors[a, m]``."""
    highest = -np.inf
    for a in range(n_labels):
        highest = max(highest, logs[a])
    for m in range(len(sums)):
        sums[m] = 0.0
    for a in range(n_labels):
        share = np.exp(logs[a] - highest) / max(nodes[a], LEAST)
        for m in range(len(sums)):
            part = share * max(pairs[a, m], LEAST) * factors[a, m]
            new_pairs[a, m] = part
            sums[m] += part


@compiled
def reweight_chain(  # type: ignore[no-untyped-def]
    nodes, pairs, scores, inverse, factors, n_labels, new_nodes, new_pairs, sums
):
    """What `marginals_along` makes of `set_potentials`, without a logarithm for every pair.

    As there, the way forward leaves in `new_pairs` what is in proportion to the probabilities of a
    label given the next one, and the way back shares these out.

    Parameters
    ----------
    nodes : ndarray of shape (length, n_labels)
    pairs : ndarray of shape (length - 1, n_labels, n_labels)
        Marginal probabilities of labels and of pairs of neighbouring labels.
    scores : ndarray of shape (length, n_labels)
    inverse : float
        One over the temperature.
    factors : ndarray of shape (n_labels, n_labels)
        Exponentials of the scores of transitions over the temperature.
    n_labels : int
    new_nodes, new_pairs : ndarray of the shapes of `nodes` and `pairs`
        Set to the new marginal probabilities.
    sums : ndarray of shape (length, n_labels)
        Scratch.
    """
    last = len(nodes) - 1
    for m in range(n_labels):
        new_nodes[0, m] = np.log(max(nodes[0, m], LEAST)) + inverse * scores[0, m]
    for t in range(last):
        forward_shares(nodes[t], pairs[t], new_nodes[t], factors, n_labels, new_pairs[t], sums[t])
        for m in range(n_labels):
            new_nodes[t + 1, m] = np.log(sums[t, m]) + inverse * scores[t + 1, m]
    normalise(new_nodes[last, :n_labels])
    for t in range(last + 1):
        for m in range(n_labels, nodes.shape[1]):
            new_nodes[t, m] = sums[t, m] = 0.0
    for t in range(last - 1, -1, -1):
        for m in range(n_labels):
            sums[t, m] = new_nodes[t + 1, m] / sums[t, m]
        for a in range(n_labels):
            total = 0.0
            for m in range(nodes.shape[1]):
                new_pairs[t, a, m] *= sums[t, m]
                total += new_pairs[t, a, m]
            new_nodes[t, a] = total

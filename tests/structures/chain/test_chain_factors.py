"""Marginals by factors, where all pairs of labels score alike everywhere, and by logarithms."""

import numpy as np
import pytest

from maxmargin.compiled.rows import padded
from maxmargin.structures.chain.inference import marginals


def both_ways(nodes, pairs, n):
    """Log partition, marginals of labels and of pairs: by factors, and by logarithms."""
    length, width = nodes.shape
    found = []
    for edges in (pairs[None], np.repeat(pairs[None], length - 1, axis=0)):
        of_nodes, of_pairs = np.full((length, width), np.nan), np.full((length - 1, n, width), 7.0)
        total = marginals(nodes, edges, n, of_nodes, of_pairs, np.full((length, width), 5.0))
        found.append((total, of_nodes, of_pairs))
    return found


def compare(nodes, pairs, n, tolerance=1e-12):
    (total, of_nodes, of_pairs), (log_total, log_nodes, log_pairs) = both_ways(nodes, pairs, n)
    assert total == pytest.approx(log_total, rel=1e-12)
    np.testing.assert_allclose(of_nodes, log_nodes, rtol=0, atol=tolerance)
    np.testing.assert_allclose(of_pairs, log_pairs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("n", [2, 4, 5, 26])
@pytest.mark.parametrize("length", [3, 4, 30])
@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0, 5000.0])
def test_both_ways_agree(n, length, scale):
    random = np.random.default_rng(n * length)
    nodes = scale * random.normal(size=(length, padded(n)))
    for range_of_pairs in (1.0, 100.0, 400.0, 2000.0):
        pairs = range_of_pairs * random.random((n, padded(n)))
        compare(nodes, pairs, n, 1e-11 * max(1.0, np.log10(scale)))


def test_forbidden_pairs_and_labels():
    random = np.random.default_rng(0)
    nodes, pairs = random.normal(size=(6, 4)), random.normal(size=(4, 4))
    nodes[2, 1] = -np.inf
    compare(nodes, pairs, 4)
    pairs[0, 3] = pairs[2, 2] = -np.inf
    compare(nodes, pairs, 4)


def test_the_only_way_may_be_unlikely():
    """All but the least likely label cannot go on: factors would lose it, logarithms do not."""
    nodes, pairs = np.zeros((3, 4)), np.full((4, 4), -np.inf)
    nodes[0] = 0.0, 0.0, 0.0, -900.0
    pairs[3, :] = 0.0
    (total, of_nodes, _), _ = both_ways(nodes, pairs, 4)
    assert total == pytest.approx(-900.0 + np.log(4.0))
    assert of_nodes[0].tolist() == [0.0, 0.0, 0.0, 1.0]

"""Compiled inference over the labellings of one sequence (Viterbi, k-best, forward-backward).

A labelling scores ``sum_t nodes[t, y_t] + sum_{t >= 1} pairs[y_{t-1}, y_t]``, at second order also
``triples[y_{t-2} * n_labels + y_{t-1}, y_t]``. Nodes are ``(length, P)``, pairs ``(n_labels, P)``,
triples ``(n_labels ** 2, P)``, float64, ``P = simd.padded(n_labels)``, ``length >= 1``; padding is
never read, -inf forbids. No back pointers: finding a maximum again costs less than keeping it.
"""

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.exponentials import add_exponentials, add_logarithms, exponentials
from maxmargin.compiled.simd import max_plus, share_out, share_out_scaled, sum_times
from maxmargin.dual.sweeps import NEVER

_LEAST_FACTOR = -414.0
"""Least ``pair - highest`` for sums without logarithms: its exponential, 1e-180, and the square of
that, are normal numbers, and far below rounding."""


_LEAST_NORMAL = 1e-300
"""Takes the place of zeros that something is divided by."""


@inlined
def _origin(before, edges, n_labels, b):  # type: ignore[no-untyped-def]
    """The smallest ``a`` with the highest ``before[a] + edges[a, b]``."""
    chosen = 0
    highest = before[0] + edges[0, b]
    for a in range(1, n_labels):
        score = before[a] + edges[a, b]
        if score > highest:
            highest = score
            chosen = a
    return chosen


@inlined
def highest_label(scores, n_labels):  # type: ignore[no-untyped-def]
    """The smallest label with the highest score."""
    chosen = 0
    for b in range(1, n_labels):
        if scores[b] > scores[chosen]:
            chosen = b
    return chosen


@inlined
def _set(array, n_labels, values):  # type: ignore[no-untyped-def]
    """``array[:n_labels] = values[:n_labels]``."""
    for b in range(n_labels):
        array[b] = values[b]


@inlined
def _add(array, n_labels, values):  # type: ignore[no-untyped-def]
    """``array[:n_labels] += values[:n_labels]``."""
    for b in range(n_labels):
        array[b] += values[b]


@compiled
def viterbi(nodes, edges, n_labels, labels, best):  # type: ignore[no-untyped-def]
    """Set `labels` to the best labelling and return its score.

    `edges` are pair scores ``(length - 1, n_labels, P)``, or ``(1, n_labels, P)`` for all
    positions. Ties go to the smallest last label, then the smallest last but one, and so on.
    Scratch: `best` ``(length, P)``.
    """
    last = len(nodes) - 1
    varying = len(edges) > 1
    _set(best[0], n_labels, nodes[0])
    for t in range(1, last + 1):
        max_plus(best[t - 1], edges[(t - 1) * varying], nodes[t], n_labels, best[t])
    label = highest_label(best[last], n_labels)
    score = best[last, label]
    labels[last] = label
    for t in range(last, 0, -1):
        label = _origin(best[t - 1], edges[(t - 1) * varying], n_labels, label)
        labels[t - 1] = label
    return score


@inlined
def _merge(lists, existing, steps, added, n_labels, k, used, scores, origins):  # type: ignore[no-untyped-def]
    """Merge the sorted lists ``lists[:existing, a] + steps[a]`` into the `k` highest, plus `added`.

    lists ``(>= existing, P)``, steps ``(P,)`` : scores by rank and label, and of the label
    used int32 ``(P,)`` : scratch
    scores, origins ``(k,)`` : filled, with the places ``a * k + rank``; returns their number
    """
    count = min(k, existing * n_labels)
    for a in range(n_labels):
        used[a] = 0
    for rank in range(count):
        chosen = -1
        highest = -np.inf
        for a in range(n_labels):
            if used[a] < existing:
                score = lists[used[a], a] + steps[a]
                if chosen < 0 or score > highest:
                    highest = score
                    chosen = a
        scores[rank] = highest + added
        origins[rank] = chosen * k + used[chosen]
        used[chosen] += 1
    return count


@compiled
def k_best(nodes, edges, n_labels, k, labels, scores, best, back, steps, used):  # type: ignore[no-untyped-def]
    """Fill `labels` ``(k, length)`` and `scores` ``(k,)`` with the k best labellings, best first.

    Returns how many there are, ``min(k, n_labels ** length)``. `nodes`, `edges` and ties as in
    `viterbi`. Scratch: `best` float64 and `back` int32 ``(length + 1, k, P)``, `steps` float64 and
    `used` int32 ``(P,)``.
    """
    # best[t, :, b] are the best scores of beginnings that end in b. After the last position comes
    # one that has a single label and costs nothing. Here pointers pay: finding k again would not.
    length = len(nodes)
    varying = len(edges) > 1
    _set(best[0, 0], n_labels, nodes[0])
    existing = 1
    for t in range(1, length + 1):
        inside = t < length
        before = existing
        for b in range(n_labels if inside else 1):
            for a in range(n_labels):
                steps[a] = edges[(t - 1) * varying, a, b] if inside else 0.0
            added = nodes[t, b] if inside else 0.0
            existing = _merge(
                best[t - 1], before, steps, added, n_labels, k, used, best[t, :, b], back[t, :, b]
            )
    for rank in range(existing):
        scores[rank] = best[length, rank, 0]
        place, label = rank, 0
        for t in range(length, 0, -1):
            origin = back[t, place, label]
            place, label = origin % k, origin // k
            labels[rank, t - 1] = label
    return existing


@compiled
def best_other(nodes, pairs, n_labels, y_true, labels, best, agreed):  # type: ignore[no-untyped-def]
    """Set `labels` to the best labelling other than `y_true`; returns its score, -inf without any.

    Ties go to the one that differs from `y_true` earlier, then as in `viterbi`. Scratch: `best`
    ``(length, P)``, `agreed` ``(length,)``.
    """
    # Two layers: `best` for beginnings that differ from `y_true`, `agreed` for the one that does
    # not. A labelling goes from the second to the first where it first differs.
    last = len(nodes) - 1
    agreed[0] = nodes[0, y_true[0]]
    _set(best[0], n_labels, nodes[0])
    best[0, y_true[0]] = -np.inf
    for t in range(1, last + 1):
        max_plus(best[t - 1], pairs, nodes[t], n_labels, best[t])
        for b in range(n_labels):
            if b != y_true[t]:
                leaving = agreed[t - 1] + pairs[y_true[t - 1], b] + nodes[t, b]
                best[t, b] = max(best[t, b], leaving)
        agreed[t] = agreed[t - 1] + pairs[y_true[t - 1], y_true[t]] + nodes[t, y_true[t]]
    label = highest_label(best[last], n_labels)
    score = best[last, label]
    differs = True
    labels[last] = label
    for t in range(last, 0, -1):
        if differs:
            origin = _origin(best[t - 1], pairs, n_labels, label)
            stayed = best[t - 1, origin] + pairs[origin, label]
            differs = label == y_true[t] or stayed >= agreed[t - 1] + pairs[y_true[t - 1], label]
            label = origin
        if not differs:
            label = np.int64(y_true[t - 1])
        labels[t - 1] = label
    return score


@compiled
def most_slack(nodes, pairs, n_labels, y_true, labels, best):  # type: ignore[no-untyped-def]
    """Slack-rescaled inference with the Hamming loss: set `labels`, return their slack.

    The slack is ``errors * (1 + score - score of y_true)``, 0 for `y_true` itself. Ties go to fewer
    errors, then as in `viterbi`. ``O(length ** 2 * n_labels ** 2)``. Scratch: `best` ``(length,
    length + 1, P)``.
    """
    # best[t, errors, b]: the best score of a beginning that ends in b and has so many errors.
    last = len(nodes) - 1
    for b in range(n_labels):
        wrong = b != y_true[0]
        best[0, 0, b] = -np.inf if wrong else nodes[0, b]
        best[0, 1, b] = nodes[0, b] if wrong else -np.inf
    for t in range(1, last + 1):
        right = y_true[t]
        for b in range(n_labels):
            best[t, 0, b] = -np.inf
        for errors in range(1, t + 2):
            max_plus(best[t - 1, errors - 1], pairs, nodes[t], n_labels, best[t, errors])
        # That took every label for an error; one is not.
        best[t, t + 1, right] = -np.inf
        for errors in range(t + 1):
            before = best[t - 1, errors]
            origin = _origin(before, pairs, n_labels, right)
            best[t, errors, right] = before[origin] + pairs[origin, right] + nodes[t, right]

    true_score = best[last, 0, y_true[last]]
    slack = 0.0
    errors = 0
    for e in range(1, last + 2):
        value = e * (1.0 + best[last, e, highest_label(best[last, e], n_labels)] - true_score)
        if value > slack:
            slack = value
            errors = e
    label = highest_label(best[last, errors], n_labels)
    labels[last] = label
    for t in range(last, 0, -1):
        errors -= label != y_true[t]
        label = _origin(best[t - 1, errors], pairs, n_labels, label)
        labels[t - 1] = label
    return slack


@compiled
def viterbi2(nodes, pairs, triples, n_labels, labels, best):  # type: ignore[no-untyped-def]
    """`viterbi` at second order; scratch `best` ``(length, n_labels, P)``."""
    # best[t, a, b]: the best score of a beginning that ends in a, b at the positions t - 1, t.
    last = len(nodes) - 1
    if last == 0:
        label = highest_label(nodes[0], n_labels)
        labels[0] = label
        return nodes[0, label]
    by_first = triples.reshape(n_labels, n_labels, nodes.shape[1])
    for t in range(1, last + 1):
        for a in range(n_labels):
            if t == 1:
                for b in range(n_labels):
                    best[t, a, b] = nodes[0, a] + pairs[a, b]
            else:
                max_plus(best[t - 1, :, a], by_first[:, a], pairs[a], n_labels, best[t, a])
            _add(best[t, a], n_labels, nodes[t])

    label, after = 0, 0
    score = best[last, 0, 0]
    for b in range(n_labels):
        a = highest_label(best[last, :, b], n_labels)
        if best[last, a, b] > score:
            score = best[last, a, b]
            label, after = a, b
    labels[last] = after
    labels[last - 1] = label
    for t in range(last, 1, -1):
        origin = _origin(best[t - 1, :, label], by_first[:, label], n_labels, after)
        label, after = origin, label
        labels[t - 2] = label
    return score


@inlined
def _log_sum(before, edges, added, n_labels, parts, sums, out):  # type: ignore[no-untyped-def]
    """``out[b] = added[b] + log sum_a exp(before[a] + edges[a, b])``.

    Leaves the terms, scaled to a largest of 1 in each column, in `parts`, their sums in `sums`.
    """
    max_plus(before, edges, added, n_labels, out)
    shifts = parts[n_labels - 1]  # until these terms come
    for b in range(n_labels):
        # What cannot be reached has -inf less something finite, not less -inf.
        out[b] = max(out[b], NEVER)
        shifts[b] = added[b] - out[b]
        sums[b] = 0.0
    for b in range(n_labels, len(shifts)):
        shifts[b] = -np.inf  # zeros in the padding, whatever stands there
        sums[b] = 0.0
    for a in range(n_labels):
        add_exponentials(edges[a], shifts, before[a], parts[a], sums)
    add_logarithms(sums, out)


@inlined
def _share(after, n_labels, parts, sums, before):  # type: ignore[no-untyped-def]
    """Distribute probabilities `after` over `parts` in proportion, and sum these to `before`."""
    for b in range(n_labels):
        sums[b] = after[b] / sums[b] if sums[b] > 0.0 else 0.0
    for b in range(n_labels, len(sums)):
        sums[b] = 0.0
    share_out(parts, n_labels, sums, before, parts)


@inlined
def _lower(logs, n_labels):  # type: ignore[no-untyped-def]
    """Subtract the highest entry from all and return it; zeros in the padding."""
    highest = -np.inf
    for a in range(len(logs)):
        for b in range(n_labels):
            highest = max(highest, logs[a, b])
    for a in range(len(logs)):
        for b in range(n_labels):
            logs[a, b] -= highest
        for b in range(n_labels, logs.shape[1]):
            logs[a, b] = 0.0
    return highest


@inlined
def _normalise(logs, n_labels):  # type: ignore[no-untyped-def]
    """Turn log-weights into probabilities; returns the log of their former sum."""
    total = 0.0
    for a in range(len(logs)):
        exponentials(logs[a], 0.0, logs[a])
        for b in range(n_labels):
            total += logs[a, b]
        for b in range(n_labels, logs.shape[1]):
            logs[a, b] = 0.0
    for a in range(len(logs)):
        for b in range(n_labels):
            logs[a, b] /= total
    return np.log(total)


# Forwards, the marginals of the last position so far are kept as logarithms, in the place of the
# result, and the terms that they are sums of in the place of the marginals one order higher. Given
# the next label these are in proportion to the probabilities of the previous one. So the way back
# only shares out what is known of the next position: one exponential for each term, no second
# recursion, and marginals that add up to each other. Logarithms are taken relative to the highest
# at each position, lest a long chain's total drown their differences.


@inlined
def _marginals_by_logs(nodes, edges, n_labels, node_marginals, pair_marginals, sums):  # type: ignore[no-untyped-def]
    """`marginals` in logarithms, for any scores."""
    last = len(nodes) - 1
    varying = len(edges) > 1
    log_partition = 0.0
    for t in range(last + 1):
        if t == 0:
            _set(node_marginals[0], n_labels, nodes[0])
        else:
            before, now = node_marginals[t - 1], node_marginals[t]
            edge, parts = edges[(t - 1) * varying], pair_marginals[t - 1]
            _log_sum(before, edge, nodes[t], n_labels, parts, sums[t - 1], now)
        log_partition += _lower(node_marginals[t : t + 1], n_labels)
    log_partition += _normalise(node_marginals[last : last + 1], n_labels)
    for t in range(last, 0, -1):
        before, now = node_marginals[t - 1], node_marginals[t]
        _share(now, n_labels, pair_marginals[t - 1], sums[t - 1], before)
    return log_partition


# Where the scores of pairs are the same at all positions and lie close enough to each other, their
# exponentials are taken once, and a step is a product of a vector and a matrix. A label that is so
# unlikely that its probability rounds to zero then adds nothing to any sum: every label can be
# reached from the likeliest one, too, by a factor of `_LEAST_FACTOR` or more.


@inlined
def _set_factors(pairs, n_labels, lows, highs, factors):  # type: ignore[no-untyped-def]
    """Set `factors` to ``exp(pairs - highest)``, unless some are too small.

    Returns highest, and whether they are set. Scratch: `lows` and `highs` ``(P,)``.
    """
    _set(lows, len(lows), pairs[0])
    _set(highs, len(highs), pairs[0])
    for a in range(1, n_labels):
        row = pairs[a]
        # The padding, too: whole vectors take less time.
        for b in range(len(row)):
            lows[b] = min(lows[b], row[b])
            highs[b] = max(highs[b], row[b])
    lowest, highest = np.inf, -np.inf
    for b in range(n_labels):
        lowest = min(lowest, lows[b])
        highest = max(highest, highs[b])
    usable = lowest - highest > _LEAST_FACTOR
    if usable:
        # All rows at once, as exponentials of a few numbers wait for each other.
        exponentials(pairs.reshape(pairs.size), -highest, factors.reshape(factors.size))
        for a in range(n_labels):
            for b in range(n_labels, factors.shape[1]):
                factors[a, b] = 0.0
    return highest, usable


@inlined
def _set_shares(scores, n_labels, shares):  # type: ignore[no-untyped-def]
    """Set `shares` to ``exp(scores - highest)``, zeros in the padding; returns the highest."""
    highest = -np.inf
    for b in range(n_labels):
        highest = max(highest, scores[b])
    exponentials(scores, -highest, shares)
    for b in range(n_labels, len(shares)):
        shares[b] = 0.0
    return highest


@inlined
def _marginals_by_factors(nodes, factors, n_labels, node_marginals, pair_marginals, sums):  # type: ignore[no-untyped-def]
    """`marginals` by factors of pairs, which may share memory with the first pair's result."""
    last = len(nodes) - 1
    log_partition = 0.0
    for t in range(last + 1):
        now = node_marginals[t]
        log_partition += _set_shares(nodes[t], n_labels, now)
        if t > 0:
            reached = sums[t - 1]
            sum_times(node_marginals[t - 1], factors, n_labels, reached)
            for b in range(len(now)):
                now[b] *= reached[b]
        total = 0.0
        for b in range(len(now)):
            total += now[b]
        inverse = 1.0 / total
        for b in range(len(now)):
            now[b] *= inverse
        log_partition += np.log(total)
    for t in range(last, 0, -1):
        before, now, share = node_marginals[t - 1], node_marginals[t], sums[t - 1]
        # All are normal numbers but those of the padding, which are zero over zero.
        for b in range(len(now)):
            share[b] = now[b] / max(share[b], _LEAST_NORMAL)
        share_out_scaled(factors, n_labels, share, before, pair_marginals[t - 1])
    return log_partition


@compiled
def marginals(nodes, edges, n_labels, node_marginals, pair_marginals, sums):  # type: ignore[no-untyped-def]
    """Marginals under ``p(y) ~ exp(score)``; returns the log-partition function.

    Fills `node_marginals` ``(length, P)`` and `pair_marginals` ``(length - 1, n_labels, P)``, zeros
    in the padding. `edges` as in `viterbi`; scratch: `sums` ``(length - 1, P)``.
    """
    if len(edges) == 1 and len(nodes) > 2:
        factors = pair_marginals[0]
        highest, usable = _set_factors(edges[0], n_labels, node_marginals[0], sums[0], factors)
        if usable:
            log_partition = _marginals_by_factors(
                nodes, factors, n_labels, node_marginals, pair_marginals, sums
            )
            return log_partition + highest * (len(nodes) - 1)
    return _marginals_by_logs(nodes, edges, n_labels, node_marginals, pair_marginals, sums)


@compiled
def marginals2(  # type: ignore[no-untyped-def]
    nodes, pairs, triples, n_labels, node_marginals, pair_marginals, triple_marginals, sums
):
    """`marginals` at second order, with `triple_marginals` ``(length - 2, n_labels ** 2, P)``.

    Scratch: `sums` ``(length - 2, n_labels, P)``.
    """
    last = len(nodes) - 1
    shape = (n_labels, n_labels, nodes.shape[1])
    by_first = triples.reshape(shape)
    log_partition = 0.0
    for t in range(last + 1):
        if t == 0:
            now = node_marginals[:1]
            _set(now[0], n_labels, nodes[0])
        else:
            now = pair_marginals[t - 1]
            for a in range(n_labels):
                if t == 1:
                    for b in range(n_labels):
                        now[a, b] = node_marginals[0, a] + pairs[a, b]
                else:
                    before, parts = pair_marginals[t - 2], triple_marginals[t - 2].reshape(shape)
                    _log_sum(
                        before[:, a], by_first[:, a], pairs[a], n_labels,
                        parts[:, a], sums[t - 2, a], now[a],
                    )  # fmt: skip
                _add(now[a], n_labels, nodes[t])
        log_partition += _lower(now, n_labels)
    log_partition += _normalise(now, n_labels)
    for t in range(last, 1, -1):
        before, parts = pair_marginals[t - 2], triple_marginals[t - 2].reshape(shape)
        for a in range(n_labels):
            _share(pair_marginals[t - 1, a], n_labels, parts[:, a], sums[t - 2, a], before[:, a])
    for t in range(1, last + 1):
        for b in range(nodes.shape[1]):
            node_marginals[t, b] = 0.0
        for a in range(n_labels):
            _add(node_marginals[t], n_labels, pair_marginals[t - 1, a])
    if last > 0:
        for a in range(n_labels):
            node_marginals[0, a] = 0.0
            for b in range(n_labels):
                node_marginals[0, a] += pair_marginals[0, a, b]
    return log_partition

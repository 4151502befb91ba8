"""Compiled searches over label sets, for rows of gains; see `label_sets` for what they mean.

All write one set a row, 0 or 1 for each label, as int32. Scratch comes last; each kernel says its
shape, and more than that does no harm.
"""

from typing import Any

import numpy as np

from maxmargin.dual.compiled import compiled, inlined

LOSSES = ("hamming", "f1", "zero-one")
HAMMING, F1, ZERO_ONE, NO_LOSS = range(4)


def count_loss(loss: int, n_true: Any, true_positives: Any, false_positives: Any) -> Any:
    """The loss, by its number in `LOSSES`, of a set with so many labels right and wrong."""
    wrong = n_true - true_positives + false_positives
    if loss == HAMMING:
        return wrong + 0.0
    if loss == ZERO_ONE:
        return 1.0 * (wrong > 0)
    if loss == NO_LOSS:
        return 0.0 * wrong
    # 1 - 2 tp / (|truth| + |found|) = wrong / (|truth| + |found|); nothing is wrong with two empty
    # sets, whose sizes add up to zero.
    return wrong / (n_true + true_positives + false_positives + (wrong == 0))


_count_loss = inlined(count_loss)


@inlined
def _value(margin, lost, slack):  # type: ignore[no-untyped-def]
    """What is maximised, for a set whose score is the truth's plus `margin`; 0 for the truth."""
    return lost * (1.0 + max(margin, -1.0)) if slack else lost + margin


@inlined
def _lowest_bit(code, n_labels):  # type: ignore[no-untyped-def]
    """Place of the lowest bit that is set, the last label if none is."""
    k = 0
    while k < n_labels - 1 and not (code >> k) & 1:
        k += 1
    return k


@inlined
def _choose(best, n_true, n_false, loss, slack):  # type: ignore[no-untyped-def]
    """The place in `best`, by counts, of the largest score plus loss or slack; first the truth."""
    stride = n_false + 1
    chosen = n_true * stride
    truth_score = best[chosen]
    highest = 0.0
    for tp in range(n_true + 1):
        for fp in range(stride):
            at = tp * stride + fp
            lost = _count_loss(loss, n_true, tp, fp)
            value = _value(best[at] - truth_score, lost, slack)
            if value > highest:
                highest = value
                chosen = at
    return chosen


@compiled
def best_in_forests(gains, to_parents, parents, order, sets, best):  # type: ignore[no-untyped-def]
    """Set `sets` to the best set for each row of gains.

    ``to_parents[l]`` is the bonus of label ``l`` with its parent, which comes after it in `order`.
    Scratch: `best` float64 ``(n_labels, 2)``.
    """
    for k in range(len(gains)):
        for label in range(len(order)):
            best[label, 0] = 0.0
            best[label, 1] = gains[k, label]
        for label in order:
            parent = parents[label]
            if parent >= 0:
                off, on = best[label, 0], best[label, 1]
                best[parent, 0] += max(off, on)
                best[parent, 1] += max(off, on + to_parents[label])
        for i in range(len(order) - 1, -1, -1):
            label = order[i]
            parent = parents[label]
            together = to_parents[label] if parent >= 0 and sets[k, parent] else 0.0
            sets[k, label] = best[label, 1] + together > best[label, 0]


@compiled
def try_all_sets(  # type: ignore[no-untyped-def]
    gains, truths, loss, slack, sets, couplings, partial, fields, hopes, right, wrong, states
):
    """Set `sets` to the most violating set for each row of gains, whatever the edges.

    With ``loss == NO_LOSS`` and truths that are empty it is the best set. Sets are left out
    together when none of them can be better than the best so far. Scratch: float64 `partial`
    ``(n_labels + 1,)``, `fields` ``(n_labels + 1, n_labels)`` and `hopes` ``(n_labels,)``, int64
    `right`, `wrong` and `states` ``(n_labels + 1,)``.
    """
    # Labels are decided from the last to the first. Level k of the scratch is for labels k and
    # above being decided: the score so far, what each lower label would add, how many labels are
    # right, and how many wrong if all false ones below will be. Bit k of `code` is set where
    # label k is not decided as what it adds would have it, so that good sets come early. To the
    # next code only the levels up to its lowest bit that is set are done again, two on average.
    n = len(couplings)
    for label in range(n):  # what labels below may add to this one, at most
        hopes[label] = 0.0
        for j in range(label):
            hopes[label] += max(couplings[label, j], 0.0)
    partial[n] = 0.0
    right[n] = 0
    for row in range(len(gains)):
        n_true = 0
        truth_score = 0.0
        for label in range(n):
            fields[n, label] = gains[row, label]
            sets[row, label] = truths[row, label]
            if truths[row, label]:
                n_true += 1
                truth_score += gains[row, label]
                for j in range(label):
                    truth_score += couplings[label, j] * truths[row, j]
        wrong[n] = n - n_true
        highest = 0.0
        code = np.int64(0)
        while code < (np.int64(1) << n):
            k = _lowest_bit(code, n)
            while True:
                on = (fields[k + 1, k] > 0.0) ^ ((code >> k) & 1)
                states[k] = on
                partial[k] = partial[k + 1] + (fields[k + 1, k] if on else 0.0)
                right[k] = right[k + 1] + (on & truths[row, k])
                wrong[k] = wrong[k + 1] - (1 - on & 1 - truths[row, k])
                bound = partial[k] - truth_score
                for j in range(k):
                    fields[k, j] = fields[k + 1, j] + on * couplings[k, j]
                    bound += max(fields[k, j] + hopes[j], 0.0)
                value = _value(bound, _count_loss(loss, n_true, right[k], wrong[k]), slack)
                if k == 0 or value <= highest:
                    break
                k -= 1
            if value > highest:
                highest = value
                for label in range(n):
                    sets[row, label] = states[label]
            code = ((code >> k) + 1) << k


@compiled
def counted_independent(gains, truths, loss, slack, sets, ranks, best, right, wrong):  # type: ignore[no-untyped-def]
    """Set `sets` to the most violating set for each row of gains, without edges.

    `ranks` has the labels of each row, the highest gain first. Scratch: `best` one for each pair of
    counts, `right` and `wrong` ``(n_labels + 1,)``.
    """
    n = gains.shape[1]
    for row in range(len(gains)):
        n_true = n_false = 0
        right[0] = wrong[0] = 0.0  # sums of the highest gains of true and of other labels
        for label in ranks[row]:
            if truths[row, label]:
                right[n_true + 1] = right[n_true] + gains[row, label]
                n_true += 1
            else:
                wrong[n_false + 1] = wrong[n_false] + gains[row, label]
                n_false += 1
        stride = n_false + 1
        for tp in range(n_true + 1):
            for fp in range(stride):
                best[tp * stride + fp] = right[tp] + wrong[fp]
        chosen = _choose(best, n_true, n_false, loss, slack)
        left_true, left_false = chosen // stride, chosen % stride
        for i in range(n):
            label = ranks[row, i]
            if truths[row, label]:
                sets[row, label] = left_true > 0
                left_true -= 1
            else:
                sets[row, label] = left_false > 0
                left_false -= 1


@compiled
def counted_in_forests(  # type: ignore[no-untyped-def]
    gains, truths, loss, slack, sets, to_parents, parents, order, now, before, counts
):
    """Set `sets` to the most violating set for each row of gains, in a forest.

    Takes time in proportion to the square of the number of pairs of counts. Scratch: `now` and
    `before` float64 ``(n_labels + 1, 2, pairs of counts)``, `counts` int64 ``(6, n_labels + 1)``.
    """
    # now[l, s, at]: the best score of label l, in state s, with what is below it and has been
    # merged so far, by counts; before[l] is that of its parent when l is merged into it. The roots
    # are merged into one more label, the last, which is off.
    n = len(order)
    trues, falses, want_true, want_false = counts[0], counts[1], counts[2], counts[3]
    prior_true, prior_false = counts[4], counts[5]
    for row in range(len(gains)):
        n_true = 0
        for label in range(n):
            n_true += truths[row, label]
        stride = n - n_true + 1
        for label in range(n + 1):
            trues[label] = truths[row, label] if label < n else 0
            falses[label] = 1 - trues[label] if label < n else 0
            for at in range(trues[label] * stride + falses[label] + 1):
                now[label, 0, at] = now[label, 1, at] = -np.inf
            now[label, 0, 0] = 0.0
            if label < n:
                now[label, 1, stride if trues[label] else 1] = gains[row, label]
        for label in order:
            parent = parents[label] if parents[label] >= 0 else n
            prior_true[label], prior_false[label] = trues[parent], falses[parent]
            _merge(now, before, label, parent, to_parents[label], trues, falses, stride)
        chosen = _choose(now[n, 0], n_true, n - n_true, loss, slack)
        want_true[n], want_false[n] = chosen // stride, chosen % stride
        for i in range(n - 1, -1, -1):
            label = order[i]
            parent = parents[label] if parents[label] >= 0 else n
            together = to_parents[label] if parent < n and sets[row, parent] else 0.0
            state = sets[row, parent] if parent < n else 0
            tp, fp = want_true[parent], want_false[parent]
            highest = -np.inf
            for a in range(max(0, tp - prior_true[label]), min(trues[label], tp) + 1):
                for b in range(max(0, fp - prior_false[label]), min(falses[label], fp) + 1):
                    rest = before[label, state, (tp - a) * stride + fp - b]
                    at = a * stride + b
                    off, on = now[label, 0, at], now[label, 1, at] + together
                    if rest + max(off, on) > highest:
                        highest = rest + max(off, on)
                        sets[row, label] = on > off
                        want_true[label], want_false[label] = a, b
            want_true[parent] = tp - want_true[label]
            want_false[parent] = fp - want_false[label]


@inlined
def _merge(now, before, label, parent, bonus, trues, falses, stride):  # type: ignore[no-untyped-def]
    """Add the table of a label, which is complete, to that of its parent."""
    for state in range(2):
        for tp in range(trues[parent] + 1):
            for fp in range(falses[parent] + 1):
                at = tp * stride + fp
                before[label, state, at] = now[parent, state, at]
        for tp in range(trues[parent] + trues[label] + 1):
            for fp in range(falses[parent] + falses[label] + 1):
                now[parent, state, tp * stride + fp] = -np.inf
        for a in range(trues[label] + 1):
            for b in range(falses[label] + 1):
                at = a * stride + b
                added = max(now[label, 0, at], now[label, 1, at] + state * bonus)
                for tp in range(trues[parent] + 1):
                    for fp in range(falses[parent] + 1):
                        here = tp * stride + fp
                        total = before[label, state, here] + added
                        now[parent, state, here + at] = max(now[parent, state, here + at], total)
    trues[parent] += trues[label]
    falses[parent] += falses[label]

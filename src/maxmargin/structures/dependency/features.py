"""Arc features of sentences, hashed in compiled routines from the numbers of words and tags.

An arc from a head to a modifier has indicator features after McDonald et al. (2005): words and tags
of both, the tags around and between them, each with the direction and once more with the distance.
Where arcs have labels, each label has weights of its own for a smaller set of templates.

Features have no names: the numbers of a template are multiplied by fixed odd numbers and summed,
and a hash of the sum is the column; collisions are possible. Sentences are `EncodedSentences`, the
layout of the weights is `FeatureLayout`, see `maxmargin.structures.dependency.oracle`. An arc into
a word is one number, ``head * n_labels + label``.
"""

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.structures.dependency.inference import best_heads

N_TEMPLATES = 22
"""Templates of an arc with the direction, as many with the distance; tags between come on top."""

N_LABEL_TEMPLATES = 9
"""Templates of a labelled arc."""

_HEAD_WORD = np.uint64(0x9E3779B97F4A7C15)
_HEAD_TAG = np.uint64(0xC2B2AE3D27D4EB4F)
_WORD = np.uint64(0x165667B19E3779F9)
_TAG = np.uint64(0xD6E8FEB86659FD93)
_BEFORE_HEAD = np.uint64(0xA0761D6478BD642F)
_AFTER_HEAD = np.uint64(0xE7037ED1A0B428DB)
_BEFORE = np.uint64(0x8EBC6AF09C88C6E3)
_AFTER = np.uint64(0x589965CC75374CC3)
_BETWEEN = np.uint64(0xB492B66FBE98F273)
_TO_THE_RIGHT = np.uint64(0x1D8E4E27C47D124F)
_DISTANCE = np.uint64(0xEB44ACCAB455D165)
_TEMPLATE = np.uint64(0x2545F4914F6CDD1D)
_STIR = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_PLACE = np.uint64(29)

LINE = 8
"""Weights in a cache line of the processor."""

VALUE = 1.0 / 6.0
"""Of a feature that fires. An arc has about fifty of them, a vector of norm about one."""


@inlined
def _stirred(key):  # type: ignore[no-untyped-def]
    """Mix the bits of a key, so that its upper half looks random."""
    return (key ^ (key >> _HALF)) * _STIR


@inlined
def _below(stirred, n):  # type: ignore[no-untyped-def]
    """A number below `n` made of a stirred key."""
    return np.int64(((stirred >> _HALF) * np.uint64(n)) >> _HALF)


@inlined
def _direction(head, modifier):  # type: ignore[no-untyped-def]
    """To be added to a key."""
    return _TO_THE_RIGHT if head < modifier else np.uint64(0)


@inlined
def _distance(head, modifier):  # type: ignore[no-untyped-def]
    """Length of an arc, of which only 1 to 5, 6 for up to ten, and 7 are told apart."""
    distance = abs(head - modifier)
    if distance > 5:
        distance = 6 if distance <= 10 else 7
    return distance


@compiled
def _set_arc_columns(words, tags, head, modifier, n_lines, keys, columns):  # type: ignore[no-untyped-def]
    """Columns of an arc, all but those of the tags between."""
    hw, ht = np.uint64(words[head]) * _HEAD_WORD, np.uint64(tags[head]) * _HEAD_TAG
    w, t = np.uint64(words[modifier]) * _WORD, np.uint64(tags[modifier]) * _TAG
    before_head = np.uint64(tags[head - 1]) * _BEFORE_HEAD
    after_head = np.uint64(tags[head + 1]) * _AFTER_HEAD
    before = np.uint64(tags[modifier - 1]) * _BEFORE
    after = np.uint64(tags[modifier + 1]) * _AFTER
    keys[0] = np.uint64(0)
    keys[1] = hw
    keys[2] = ht
    keys[3] = hw + ht
    keys[4] = w
    keys[5] = t
    keys[6] = w + t
    keys[7] = hw + ht + w + t
    keys[8] = ht + w + t
    keys[9] = hw + w + t
    keys[10] = hw + ht + t
    keys[11] = hw + ht + w
    keys[12] = hw + w
    keys[13] = ht + t
    keys[14] = ht + after_head + before + t
    keys[15] = before_head + ht + before + t
    keys[16] = ht + after_head + t + after
    keys[17] = before_head + ht + t + after
    keys[18] = ht + before + t
    keys[19] = ht + t + after
    keys[20] = before_head + ht + t
    keys[21] = ht + after_head + t
    direction, distance = _direction(head, modifier), _distance(head, modifier)
    for k in range(N_TEMPLATES):
        # Both columns are in one cache line, at random places.
        stirred = _stirred(keys[k] + np.uint64(k + 1) * _TEMPLATE + direction)
        line = LINE * _below(stirred, n_lines)
        place = np.int64((stirred >> _PLACE) & np.uint64(LINE - 1))
        columns[k] = line + place
        columns[N_TEMPLATES + k] = line + ((place + distance) & (LINE - 1))


@inlined
def _between_key(tags, head, modifier):  # type: ignore[no-untyped-def]
    """What the columns of all tags between head and modifier have in common."""
    key = np.uint64(tags[head]) * _HEAD_TAG + np.uint64(tags[modifier]) * _TAG
    return key + _direction(head, modifier)


@inlined
def _between_column(key, tag, n_lines):  # type: ignore[no-untyped-def]
    """Column of a tag between head and modifier; tags with close numbers share a cache line."""
    stirred = _stirred(key + np.uint64(tag // LINE) * _BETWEEN)
    return LINE * _below(stirred, n_lines) + tag % LINE


@inlined
def _with_tag(between, count, tag):  # type: ignore[no-untyped-def]
    """Add a tag to those between, once; returns how many there are."""
    for q in range(count):
        if between[q] == tag:
            return count
    between[count] = tag
    return count + 1


@compiled
def _set_label_rows(words, tags, head, modifier, n, keys, rows):  # type: ignore[no-untyped-def]
    """Rows of the label weights of an arc."""
    hw, ht = np.uint64(words[head]) * _HEAD_WORD, np.uint64(tags[head]) * _HEAD_TAG
    w, t = np.uint64(words[modifier]) * _WORD, np.uint64(tags[modifier]) * _TAG
    before = np.uint64(tags[modifier - 1]) * _BEFORE
    after = np.uint64(tags[modifier + 1]) * _AFTER
    near = _direction(head, modifier)
    keys[0] = near
    keys[1] = ht + t + near
    keys[2] = ht + t + near + np.uint64(_distance(head, modifier)) * _DISTANCE
    keys[3] = w + t
    keys[4] = w + ht + near
    keys[5] = hw + t + near
    keys[6] = before + t + after + near
    keys[7] = ht + before + t + near
    keys[8] = ht + t + after + near
    for k in range(N_LABEL_TEMPLATES):
        rows[k] = _below(_stirred(keys[k] + np.uint64(k + 1) * _TEMPLATE), n)


@compiled
def _best_label(weights, layout, rows, right, temperature, labels):  # type: ignore[no-untyped-def]
    """The label with the highest score, and that score; labels other than `right` get one more.

    With a temperature, the score is a soft maximum.
    """
    n, width = layout.n_labels, layout.width
    for y in range(n):
        labels[y] = 0.0
    for k in range(N_LABEL_TEMPLATES):
        first = layout.n_columns + rows[k] * width
        row = weights[first : first + n]
        for y in range(n):
            labels[y] += VALUE * row[y]
    if right >= 0:
        for y in range(n):
            labels[y] += 1.0
        labels[right] -= 1.0
    best = 0
    for y in range(1, n):
        if labels[y] > labels[best]:
            best = y
    score = labels[best]
    if temperature > 0.0:
        total = 0.0
        for y in range(n):
            total += np.exp((labels[y] - score) / temperature)
        return best, score + temperature * np.log(total)
    return best, score


@inlined
def score_arcs(  # type: ignore[no-untyped-def]
    words, tags, ends, i, weights, layout, y_true, with_loss, temperature, scores, arcs,
    keys, columns, between, counts, labels,
):  # fmt: skip
    """Scores of the arcs of sentence `i`, flat ``(n + 1, n + 1)``; `arcs` get their best labels.

    With a loss, every arc but the true one scores one more.
    """
    n = ends[i + 1] - ends[i]
    root = ends[i] + 3 * i + 1
    n_lines = layout.n_columns // LINE
    for low in range(n):
        # First the columns of all arcs that start or end here, then their weights: so cache
        # misses overlap.
        n_turns = 2 if low > 0 else 1
        n_tags = 0
        for high in range(low + 1, n + 1):
            if high - 1 > low:
                n_tags = _with_tag(between, n_tags, tags[root + high - 1])
            for turn in range(n_turns):
                head, modifier = root + low, root + high
                if turn == 1:
                    head, modifier = modifier, head
                here = columns[2 * (high - low) + turn]
                _set_arc_columns(words, tags, head, modifier, n_lines, keys, here)
                key = _between_key(tags, head, modifier)
                for q in range(n_tags):
                    here[2 * N_TEMPLATES + q] = _between_column(key, between[q], n_lines)
            counts[high - low] = 2 * N_TEMPLATES + n_tags
        for high in range(low + 1, n + 1):
            for turn in range(n_turns):
                h, m = (low, high) if turn == 0 else (high, low)
                here = columns[2 * (high - low) + turn]
                score = 0.0
                for k in range(counts[high - low]):
                    score += weights[here[k]]
                score *= VALUE
                right = -1
                if with_loss:
                    code = np.int64(y_true[ends[i] + m - 1])
                    if code // layout.n_labels == h:
                        right = code % layout.n_labels
                    else:
                        score += 1.0
                at = h * (n + 1) + m
                arcs[at] = h * layout.n_labels
                if layout.n_rows > 0:
                    _set_label_rows(words, tags, root + h, root + m, layout.n_rows, keys, here)
                    best, more = _best_label(weights, layout, here, right, temperature, labels)
                    arcs[at] += best
                    score += more
                scores[at] = score


@compiled
def infer_hashed(  # type: ignore[no-untyped-def]
    words, tags, ends, weights, layout, y_true, with_loss, projective, single_root,
    examples, starts, found, totals, scores, arcs, heads, keys, columns, between, counts, labels,
    floats, integers,
):  # fmt: skip
    """Arcs of the best tree of each example, ``head * n_labels + label``, from ``starts[k]`` on."""
    for k in range(len(examples)):
        i = examples[k]
        n = ends[i + 1] - ends[i]
        score_arcs(
            words, tags, ends, i, weights, layout, y_true, with_loss, 0.0, scores, arcs,
            keys, columns, between, counts, labels,
        )  # fmt: skip
        square = scores[: (n + 1) * (n + 1)].reshape(n + 1, n + 1)
        totals[k] = best_heads(square, projective, single_root, heads, floats, integers)
        for m in range(1, n + 1):
            found[starts[k] + m - 1] = arcs[heads[m - 1] * (n + 1) + m]


@inlined
def _put(at, writing, column, value, columns, values):  # type: ignore[no-untyped-def]
    """One entry, or only its place."""
    if writing:
        columns[at] = column
        values[at] = value
    return at + 1


@compiled
def write_cuts(  # type: ignore[no-untyped-def]
    words, tags, ends, layout, y_true, examples, starts, found, places, writing, out, values,
    keys, columns, between, counts, labels,
):  # fmt: skip
    """Features of true arcs less those of found ones, where they differ, from ``places[k]`` on.

    Advances each place to the end of its cut; without `writing` that is all.
    """
    n_labels, n_lines = layout.n_labels, layout.n_columns // LINE
    for k in range(len(examples)):
        i = examples[k]
        root = ends[i] + 3 * i + 1
        at = places[k]
        for m in range(1, ends[i + 1] - ends[i] + 1):
            code = np.int64(y_true[ends[i] + m - 1])
            other_code = np.int64(found[starts[k] + m - 1])
            if code == other_code:
                continue
            modifier = root + m
            head, other_head = root + code // n_labels, root + other_code // n_labels
            if head != other_head:
                _set_arc_columns(words, tags, head, modifier, n_lines, keys, columns[0])
                _set_arc_columns(words, tags, other_head, modifier, n_lines, keys, columns[1])
                for q in range(2 * N_TEMPLATES):
                    if columns[0, q] != columns[1, q]:
                        at = _put(at, writing, columns[0, q], VALUE, out, values)
                        at = _put(at, writing, columns[1, q], -VALUE, out, values)
                for turn in range(2):
                    end = head if turn == 0 else other_head
                    count = 0
                    for position in range(min(end, modifier) + 1, max(end, modifier)):
                        count = _with_tag(between, count, tags[position])
                    key = _between_key(tags, end, modifier)
                    for q in range(count):
                        column = _between_column(key, between[q], n_lines)
                        at = _put(at, writing, column, VALUE - 2.0 * VALUE * turn, out, values)
            if layout.n_rows > 0:
                n, width = layout.n_rows, layout.width
                _set_label_rows(words, tags, head, modifier, n, keys, columns[0])
                _set_label_rows(words, tags, other_head, modifier, n, keys, columns[1])
                label, other_label = code % n_labels, other_code % n_labels
                for q in range(N_LABEL_TEMPLATES):
                    column = layout.n_columns + columns[0, q] * width + label
                    other = layout.n_columns + columns[1, q] * width + other_label
                    if column != other:
                        at = _put(at, writing, column, VALUE, out, values)
                        at = _put(at, writing, other, -VALUE, out, values)
        places[k] = at

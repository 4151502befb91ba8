"""Feature dictionaries become the rows that a plain reading of them gives."""

import pickle
import sys
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.structures.chain.vocabulary import Vocabulary

NAMES = st.sampled_from(["", "a", "w", "w=a", "a=", "=", "ü", "long " * 20, "字"]) | st.text(
    st.characters(exclude_categories=("Cs",)), max_size=3
)
SCALARS = (
    NAMES
    | st.booleans()
    | st.none()
    | st.integers(-3, 3)
    | st.floats(-2, 2)
    | st.floats(-2, 2, width=32).map(np.float32)
    | st.floats(-2, 2).map(np.float64)
    | st.sampled_from([np.bool_(True), np.bool_(False), np.int64(2), 10**30])
)
VALUES = st.recursive(
    SCALARS | st.lists(NAMES, max_size=3) | st.lists(NAMES, max_size=2).map(tuple),
    lambda inner: st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=3,
)
POSITIONS = (
    st.dictionaries(NAMES, NAMES, max_size=6)
    | st.dictionaries(NAMES, VALUES, max_size=4)
    | st.dictionaries(NAMES, NAMES, max_size=3).map(OrderedDict)
    | st.lists(NAMES, max_size=4)
    | st.lists(NAMES, max_size=3).map(frozenset)
)


def pairs(position):
    """Names and numbers of a position, read the slow way."""
    if not isinstance(position, dict):
        return [(name, 1.0) for name in position]
    found = []
    for name, value in position.items():
        if isinstance(value, dict):
            found += [
                pair for key, inner in value.items() for pair in pairs({f"{name}={key}": inner})
            ]
        elif isinstance(value, (list, tuple)):
            found += [(f"{name}={item}", 1.0) for item in value]
        elif isinstance(value, str):
            found.append((f"{name}={value}", 1.0))
        elif value is not None and value is not False:
            found.append((name, float(value)))
    return found


def matrix(sequences, columns, grow):
    rows = [pairs(position) for sequence in sequences for position in sequence]
    if grow:
        for row in rows:
            for name, _ in row:
                columns.setdefault(name, len(columns))
    result = np.zeros((len(rows), max(len(columns), 1)))
    for i, row in enumerate(rows):
        for name, number in row:
            if name in columns:
                result[i, columns[name]] += number
    return result


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(POSITIONS, max_size=4), max_size=4),
    st.lists(st.lists(POSITIONS, max_size=4), max_size=4),
)
def test_rows_are_those_of_a_slow_reading(seen, unseen):
    vocabulary, columns = Vocabulary(), {}
    for sequences, grow in ((seen, True), (unseen, False), (unseen, True), (seen, False)):
        rows, ends = vocabulary.matrix(sequences, grow)
        assert np.diff(ends).tolist() == list(map(len, sequences))
        expected = matrix(sequences, columns, grow)
        np.testing.assert_allclose(rows.toarray(), expected)
        assert rows.has_canonical_format
        assert set(vocabulary) == set(columns)
        assert vocabulary["w"] == columns["w"] if "w" in columns else "w" not in vocabulary
        # Sets have no order, so columns may be ordered otherwise than by the slow reading.
        columns = dict(vocabulary)
        vocabulary = pickle.loads(pickle.dumps(vocabulary))


def test_columns_are_in_the_order_of_first_appearance():
    vocabulary = Vocabulary()
    vocabulary.rows([[{"b": "x", "a": 2.0, "no": False, "none": None}, ["c", "b=x"]]], grow=True)
    assert dict(vocabulary) == {"b=x": 0, "a": 1, "c": 2}
    again = Vocabulary(vocabulary)
    assert again == vocabulary
    assert again["c"] == 2


def test_many_names_and_long_rows():
    rng = np.random.default_rng(0)
    draws = rng.integers(30_000, size=(200, 300))
    sequences = [[{f"n{k}": str(value) for k, value in enumerate(row)} for row in draws]]
    vocabulary, columns = Vocabulary(), {}
    rows, _ = vocabulary.matrix(sequences, grow=True)
    expected = matrix(sequences, columns, grow=True)
    assert dict(vocabulary) == columns
    np.testing.assert_array_equal(rows.toarray(), expected)


@pytest.mark.parametrize(
    ("position", "kind", "value"),
    [
        ({"a": "b"}, np.float32, 1.0),
        ({"a": 0.5}, np.float32, 0.5),
        ({"a": 0.1}, np.float64, 0.1),
        ({"a": 1e300}, np.float64, 1e300),
        ({"a=b": 2**24, "a": "b"}, np.float64, 2.0**24 + 1.0),  # the sum alone is rounded
    ],
)
@pytest.mark.parametrize("n_others", [2, 70])
def test_values_are_single_only_where_that_is_exact(position, kind, value, n_others):
    others = {f"other{k}": True for k in range(n_others)}
    sequences = [[{"first": "x"}, others, others | position]]
    rows, _ = Vocabulary().rows(sequences, grow=True)
    assert rows.values.dtype == (kind if n_others == 2 else np.float64)
    found = Vocabulary().matrix(sequences, grow=True)[0].toarray()
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found.sum(axis=1), [1.0, n_others, n_others + value])


def test_reading_leaves_no_reference_behind():
    word, value = "a word of its own", "a value of its own"
    sequences = [[{word: value, "number": 2.5}, [word]] * 50]
    before = sys.getrefcount(word), sys.getrefcount(value)
    for grow in (True, False):
        Vocabulary().rows(sequences, grow)
    assert (sys.getrefcount(word), sys.getrefcount(value)) == before


def test_lone_surrogates_are_replaced():
    vocabulary = Vocabulary()
    vocabulary.rows([[{"w": "\ud800"}, ["\udfff"]]], grow=True)
    assert list(vocabulary) == ["w=?", "?"]


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ({"a": float("nan")}, "feature 'a' is nan"),
        ({"a": np.float32("inf")}, "feature 'a' is inf"),
        ({"a": -(10**400)}, "feature 'a' is inf"),
        ({"a": {"b": object()}}, "feature 'a=b' must be a string"),
        (3, "must be a dictionary or a list of names, not int"),
        ("word", "must be a dictionary or a list of names, not str"),
        (None, "not NoneType"),
    ],
)
def test_what_cannot_be_read_is_named(position, message):
    with pytest.raises(ValueError, match="Sequence 1, position 2: .*" + message):
        Vocabulary().rows([[{"a": "b"}], [{}, {"a": 1}, position]], grow=True)

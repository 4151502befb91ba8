"""Words of handwritten digits."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

import maxmargin as mm
from maxmargin.cli.tour import LONGEST, SHORTEST, make_digit_words


def test_shapes_and_chain():
    words = make_digit_words(2000, 7)
    assert [len(part) for part in words[:4]] == [2000, 2000, 7, 7]
    for rows, digits in zip(words.X_train, words.y_train, strict=True):
        assert rows.shape == (len(digits), 64)
        assert SHORTEST <= len(digits) <= LONGEST
    assert_allclose(words.transitions.sum(axis=1), 1.0)
    counts = np.zeros((10, 10))
    for digits in words.y_train:
        np.add.at(counts, (digits[:-1], digits[1:]), 1.0)
    assert_allclose(counts / counts.sum(axis=1, keepdims=True), words.transitions, atol=0.06)


def test_the_same_seed_gives_the_same_words():
    one, same, other = (make_digit_words(5, 2, seed=seed) for seed in (0, 0, 1))
    assert_array_equal(np.vstack(one.X_train), np.vstack(same.X_train))
    assert not np.array_equal(one.transitions, other.transitions)


def test_no_image_is_in_training_and_in_test_words():
    words = make_digit_words(300, 300, noise=0.0)
    train, test = ({row.tobytes() for X in part for row in X} for part in (words[0], words[2]))
    assert not train & test


def test_neighbours_matter():
    words = make_digit_words(200, 100)
    tagger = mm.SequenceTagger(C=0.1).fit(words.X_train, words.y_train)
    alone = mm.LinearClassifier(C=0.1)
    alone.fit(np.vstack(words.X_train), np.concatenate(words.y_train))
    score = alone.score(np.vstack(words.X_test), np.concatenate(words.y_test))
    assert tagger.score(words.X_test, words.y_test) > score + 0.05

"""A tour: train, read the certificate, save the model, write the report."""

import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.arrays import Floats
from maxmargin.core.result import Status
from maxmargin.io.models import save
from maxmargin.report.page import write_report

_MODEL, _REPORT = "words.mm", "report.html"

Digits = NDArray[np.int64]

SHORTEST, LONGEST = 4, 9
"""Digits of a word."""

_FOLLOWERS = 2
"""Digits that mostly follow each digit."""

_USUAL = 0.95
"""Probability that they do."""


def tour(folder: str | PathLike[str], say: Callable[[str], None] = print) -> None:
    """Show in a few seconds what the library does; the model and the report go to `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    words = make_digit_words()
    test = words.X_test, words.y_test
    say(
        f"{len(words.X_train)} words of handwritten digits, blurred by noise; after each digit\n"
        f"two others are likely. First every digit on its own:\n"
    )
    alone = mm.LinearClassifier(C=0.1)
    _train(alone, np.vstack(words.X_train), np.concatenate(words.y_train))
    score_alone = alone.score(np.vstack(words.X_test), np.concatenate(words.y_test))

    say("\nThen whole words, a structural SVM that also learns which digits follow each other:\n")
    tagger = mm.SequenceTagger(C=0.1)
    _train(tagger, words.X_train, words.y_train)

    say(f"\nTest accuracy  {score_alone:.3f}  each digit on its own")
    say(f"               {tagger.score(*test):.3f}  whole words")
    say(f"Certificate    {tagger.certificate_}")
    say("               No weights can have an objective below the dual value.")

    model = save(tagger, folder / _MODEL)
    say(f"Model          {model}  ({model.stat().st_size / 1000:.0f} kB; mm.load reads it)")
    try:
        title = "Words of handwritten digits"
        report = write_report(tagger, folder / _REPORT, *test, title=title)
    except ImportError as error:  # what draws its plots is an extra
        say(f"Report         none: {error}")
    else:
        say(f"Report         {report}  (open it in a browser)")


def _train(estimator: Any, X: Any, y: Any) -> None:
    """Train with a progress line; Ctrl-C ends the tour, not only the training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.set_callbacks(mm.ProgressLine()).fit(X, y)
    if estimator.status_ == Status.INTERRUPTED:
        raise KeyboardInterrupt


class DigitWords(NamedTuple):
    """Words for `SequenceTagger`; ``transitions[a, b]`` is the fraction of b after digit a."""

    X_train: list[Floats]
    y_train: list[Digits]
    X_test: list[Floats]
    y_test: list[Digits]
    transitions: Floats


def make_digit_words(
    n_words: int = 400, n_test: int = 200, *, noise: float = 0.4, seed: int = 0
) -> DigitWords:
    """Words of a Markov chain over digits, in noisy images that no training and test word share."""
    random = np.random.default_rng(seed)
    transitions = _chain(random)
    pixels, digits = load_digits(return_X_y=True)
    shuffled = random.permutation(len(digits))
    two_thirds = 2 * len(digits) // 3

    def words(count: int, images: Digits) -> tuple[list[Floats], list[Digits]]:
        of_digit = [images[digits[images] == digit] for digit in range(10)]
        labels = [_word(random, transitions) for _ in range(count)]
        rows = [
            pixels[[random.choice(of_digit[digit]) for digit in word]] / 16.0 for word in labels
        ]
        return [row + random.normal(0.0, noise, row.shape) for row in rows], labels

    train = words(n_words, shuffled[:two_thirds])
    return DigitWords(*train, *words(n_test, shuffled[two_thirds:]), transitions)


def _chain(random: np.random.Generator) -> Floats:
    """Transition probabilities: each digit has a few usual followers."""
    transitions = np.full((10, 10), (1.0 - _USUAL) / (10 - _FOLLOWERS))
    for row in transitions:
        row[random.choice(10, _FOLLOWERS, replace=False)] = _USUAL / _FOLLOWERS
    return transitions


def _word(random: np.random.Generator, transitions: Floats) -> Digits:
    digits = [int(random.integers(10))]
    for _ in range(int(random.integers(SHORTEST, LONGEST + 1)) - 1):
        digits.append(int(random.choice(10, p=transitions[digits[-1]])))
    return np.array(digits)

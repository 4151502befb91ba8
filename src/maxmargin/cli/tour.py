"""The tour: train, watch, read the certificate, keep the model, read the report."""

import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.result import Status
from maxmargin.data.words import make_digit_words
from maxmargin.io.models import save
from maxmargin.report.page import write_report

_MODEL, _REPORT = "words.mm", "report.html"


def tour(folder: str | PathLike[str], say: Callable[[str], None] = print) -> None:
    """Show in a few seconds what the library does.

    Parameters
    ----------
    folder : path
        Where the model and the report go; made if need be.
    say : function
        Takes each line of text. The progress line goes to standard error.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    words = make_digit_words()
    test = words.X_test, words.y_test
    say(
        f"{len(words.X_train)} words of handwritten digits, blurred by noise; after each digit\n"
        f"two others are likely. First every digit on its own (a first run also compiles):\n"
    )
    alone = mm.LinearClassifier(C=0.1)
    _watched(alone, np.vstack(words.X_train), np.concatenate(words.y_train))
    score_alone = alone.score(np.vstack(words.X_test), np.concatenate(words.y_test))

    say("\nThen whole words, a structural SVM that also learns which digits follow each other:\n")
    tagger = mm.SequenceTagger(C=0.1)
    _watched(tagger, words.X_train, words.y_train)

    say(f"\nTest accuracy  {score_alone:.3f}  each digit on its own")
    say(f"               {tagger.score(*test):.3f}  whole words")
    say(f"Certificate    {tagger.certificate_}")
    say("               No weights whatever can have an objective below the dual value.")

    model = save(tagger, folder / _MODEL)
    say(f"Model          {model}  ({model.stat().st_size / 1000:.0f} kB; mm.load reads it)")
    try:
        title = "Words of handwritten digits"
        report = write_report(tagger, folder / _REPORT, *test, title=title)
    except ImportError as error:  # what draws its plots is an extra
        say(f"Report         none: {error}")
    else:
        say(f"Report         {report}  (open it in a browser)")


def _watched(estimator: Any, X: Any, y: Any) -> None:
    """Train with a progress line; Ctrl-C ends the tour, not only the training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.set_callbacks(mm.ProgressLine()).fit(X, y)
    if estimator.status_ == Status.INTERRUPTED:
        raise KeyboardInterrupt

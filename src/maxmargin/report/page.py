"""A report about a fitted estimator: one HTML file, for any browser, without network."""

from collections.abc import Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

import maxmargin
from maxmargin.io.atomic import atomic_write
from maxmargin.report.answers import Answers
from maxmargin.report.answers_labels import LabelAnswers, NumberAnswers, SetAnswers
from maxmargin.report.markup import Markup, tag
from maxmargin.report.sections import SECTIONS, Subject
from maxmargin.structures.chain.report import NodeAnswers, SequenceAnswers
from maxmargin.structures.constituency.report import ArcAnswers, TreeAnswers
from maxmargin.structures.ranking.report import RankedAnswers

KINDS: tuple[type[Answers], ...] = (
    TreeAnswers,
    ArcAnswers,
    RankedAnswers,
    SequenceAnswers,
    NodeAnswers,
    SetAnswers,
    NumberAnswers,
    LabelAnswers,
    Answers,
)
"""The first that an estimator offers is taken."""

BRINGS_ITS_TRUTH = TreeAnswers, ArcAnswers
"""Kinds whose inputs may hold the truth, so that `y` can be left out."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser may load nothing and run nothing."""


def write_report(
    estimator: Any,
    path: str | PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    words: Sequence[Any] | None = None,
    groups: Any = None,
    title: str | None = None,
    models: Sequence[Any] | None = None,
    features: Sequence[str] | None = None,
) -> Path:
    """Write a page about an estimator: certificate, convergence, scores, mistakes.

    The file holds all it needs: it opens without network, in light or dark, on paper and on a
    phone, and runs no script. Without test data it has the certificate, the convergence and the
    weights.

    Parameters
    ----------
    estimator : fitted estimator
        Any of this library.
    path : path
        Where to write the page.
    X, y : default=None
        Test data, as the estimator's ``score`` takes them.
    words : sequence, default=None
        What a reader should see of each test example: a string, or for sequences and trees a list
        of strings, one for each position.
    groups : array-like, default=None
        Queries of the test data, for a `Ranker`.
    title : str, default=None
        Heading of the page.
    models : sequence of fitted estimators, default=None
        The same for other values of C, for a plot over C.
    features : sequence of str, default=None
        Names of the columns of X, where the estimator has none.

    Returns
    -------
    path : Path
        Where the page is.

    Raises
    ------
    ImportError
        If matplotlib is missing, which is in ``pip install "maxmargin[report]"``.

    See Also
    --------
    maxmargin.report.plots.plot_convergence : Only this plot, for notebooks.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> from maxmargin.report.page import write_report
    >>> X, y = load_iris(return_X_y=True)
    >>> model = mm.LinearClassifier().fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(model, Path(folder) / "report.html", X[1::2], y[1::2])
    ...     "Confusions" in page.read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"The folder {str(path.parent)!r} does not exist: make it before the report."
        )
    check_is_fitted(estimator)
    answers = None if X is None else answers_of(estimator, X, y, words, groups)
    if X is None and y is not None:
        raise ValueError("y is given without X: give the test examples, too.")
    if answers is not None:
        answers.features = features
    text = _page(Subject(estimator, answers, models, features), title)
    with atomic_write(path) as file:
        file.write(text.encode())
    return path


def answers_of(estimator: Any, X: Any, y: Any, words: Any, groups: Any) -> Answers:
    """What an estimator says about test data, beside the truth; parameters of `write_report`."""
    kind = next(kind for kind in KINDS if kind.offered(estimator))
    if y is None and kind not in BRINGS_ITS_TRUTH:
        raise ValueError("X is given without y: give the truth, too, or leave both out.")
    return kind(estimator, X, y, words, groups)


def _page(subject: Subject, title: str | None) -> str:
    title = title or f"{type(subject.estimator).__name__}: report"
    written = [(section, section.write(subject)) for section in SECTIONS]
    parts = [(section, content) for section, content in written if content is not None]
    contents = tag(
        "nav",
        tag("ul", *(tag("li", tag("a", one.title, href=f"#{one.name}")) for one, _ in parts)),
        aria_label="Sections",
    )
    sections = [
        tag("section", tag("h2", one.title), content, id=one.name) for one, content in parts
    ]
    style = Markup(files("maxmargin.report").joinpath("style.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), contents),
        tag("main", *sections),
        tag("footer", f"Written by maxmargin {maxmargin.__version__}."),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"

"""The HTML report about a fitted estimator; sections with nothing to say return nothing."""

import inspect
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from operator import methodcaller
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

import maxmargin
from maxmargin.core.certificate import Certificate
from maxmargin.io.files import atomic_write
from maxmargin.report.answers import (
    Answers,
    ClassScore,
    LabelAnswers,
    NumberAnswers,
    PairWeights,
    largest_confusions,
    name_of,
    strongest,
    text_of,
    weight_rows,
)
from maxmargin.report.markup import Digits, Markup, definitions, joined, number, plural, table, tag
from maxmargin.report.plots import (
    confusion_side,
    plot_confusion,
    plot_convergence,
    plot_matrix,
    plot_path,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser may load nothing and run nothing."""

REASONS = {
    "converged": "It stopped because the duality gap was as small as asked for.",
    "relaxed": "It stopped because approximate inference cannot close the duality gap further.",
    "max_iter": "It stopped at the maximum number of iterations.",
    "passes": "It stopped after the passes over the data that were asked for.",
    "time_limit": "It stopped at the time limit.",
    "interrupted": "It was interrupted; the best weights so far were kept.",
    "stopped by a callback": "It was stopped by a callback; the best weights so far were kept.",
    "failed": "It stopped because the problem failed; the best weights so far were kept.",
    "partial": "It was trained by partial_fit on batches of examples, each seen once.",
}

MAX_CLASSES = 60
"""Classes in a matrix, in a table of scores and in a table of features."""

MAX_SIDE_BESIDE = 7.5
"""Inches of a matrix that leaves room for a table."""

N_CONFUSIONS, N_FEATURES, N_MISTAKES, N_PAIRS = 12, 10, 8, 8


def summary(answers: Answers) -> Markup:
    """What was trained, how well it predicts, and how close to optimal it is."""
    estimator, cards = answers.estimator, []
    if answers.X is not None:
        cards.append(("Score on the test data", number(answers.score())))
    certificate = getattr(estimator, "certificate_", None)
    if certificate is not None:
        gap = certificate.relative_gap
        cards.append(("Certified gap", f"{gap:.2g}" if np.isfinite(gap) else "unknown"))
    if history := _history(estimator):
        cards.append(("Training time", f"{history[-1].seconds:.3g} s"))
        cards.append(("Oracle calls", f"{history[-1].oracle_calls:,}"))
    parts = [definitions("cards", *cards)]
    parts += [tag("p", line) for line in (stopped(estimator), certified(estimator)) if line]
    if answers.X is not None:
        meaning = _meaning_of_score(estimator)
        parts.append(tag("p", f"Test data: {answers.size}. Score: {meaning}"))
        if scores := answers.more_scores():
            parts.append(table("Scores on the test data", ["measure", "value"], scores))
    return joined([*parts, _parameters(estimator)])


def _history(estimator: Any) -> list[Any]:
    return getattr(estimator, "history_", None) or []


def stopped(estimator: Any) -> str:
    """How long the fit took, and why it stopped."""
    took = f"This {type(estimator).__name__} was trained with C = {estimator.C:g}"
    if history := _history(estimator):
        took += f" in {history[-1].seconds:.3g} s and {plural(len(history), 'iteration')}"
    return f"{took}. {REASONS.get(getattr(estimator, 'status_', ''), '')}".strip()


def certified(estimator: Any) -> str:
    """What the certificate says, for readers who have never heard of duality."""
    certificate = getattr(estimator, "certificate_", None)
    if certificate is None:
        return ""
    text = f"How close to optimal: {_bounds(estimator, certificate)}"
    if certificate.at_zero is None:
        return text
    return (
        f"{text} All-zero weights have an objective of {number(certificate.at_zero)}: these are "
        f"hardly better. Take a larger C, or features that tell the outputs apart."
    )


def _bounds(estimator: Any, certificate: Certificate) -> str:
    primal, dual = number(float(certificate.primal)), number(float(certificate.dual))
    if not np.isfinite(certificate.gap):
        return (
            f"no weights can have an objective below {dual} on the examples seen. The objective of "
            f"these weights was not evaluated: that takes a pass over all examples."
        )
    gap = f"{max(certificate.relative_gap, 0.0):.2%}"
    if hasattr(estimator, "objectives_"):
        return (
            f"the training objective is {primal}. With the same latent variables no weights can "
            f"have one below {dual}, so these are within {gap} of the optimum for them. Other "
            f"latent variables may be better: the certificate does not bound that."
        )
    if certificate.relaxed:
        return (
            f"the training objective is at most {primal}, and no weights can have one below {dual} "
            f"(the dual objective). So these weights are within {gap} of the optimum; part of this "
            f"gap is there only because inference is approximate."
        )
    return (
        f"the training objective (the regularizer plus C times the sum of the losses) is {primal}, "
        f"and no weights can have one below {dual} (the dual objective). So these weights are "
        f"within {gap} of the optimum: further training cannot gain more than that."
    )


def _meaning_of_score(estimator: Any) -> str:
    """The first sentence of the documentation of the estimator's `score`."""
    text = (inspect.getdoc(type(estimator).score) or "see its documentation.").split("\n\n")[0]
    text = re.sub(r":\w+:`([^<`]*?)\s*(<[^`]*>)?`", r"\1", " ".join(text.split()))
    text = text.replace("`", "").removeprefix("Return ").removeprefix("the ")
    text = re.sub(r", see [\w.]+\.$", ".", text)
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _parameters(estimator: Any) -> Markup:
    """All parameters, those that are not the default first."""
    known = inspect.signature(type(estimator)).parameters
    rows = []
    for name, value in estimator.get_params(deep=False).items():
        changed = name not in known or repr(value) != repr(known[name].default)
        rows.append((name, text_of(repr(value)), "set" if changed else "default"))
    rows.sort(key=lambda row: row[2], reverse=True)
    return tag(
        "details",
        tag("summary", f"Parameters of this {type(estimator).__name__}"),
        table("Parameters", ["parameter", "value", ""], rows),
    )


def convergence(answers: Answers) -> Markup | None:
    """Gap and objectives against time and oracle calls."""
    history = _history(answers.estimator)
    if not history:
        return None

    def plot(axes: Any) -> None:
        plot_convergence(answers.estimator, axes=axes[:2], against="seconds")
        plot_convergence(answers.estimator, axes=axes[2:], against="oracle_calls")

    captions = [
        "Relative duality gap against seconds: evaluated over all examples (solid), or estimated "
        "(dashed).",
        "Primal and dual objective against seconds; the optimum lies between them.",
        "Relative duality gap against oracle calls.",
        "Primal and dual objective against oracle calls.",
    ]
    last = history[-1]
    facts = (
        f"{plural(len(history), 'iteration')}, "
        f"{plural(last.oracle_calls, 'oracle call')} (or updates of examples), "
        f"{last.cache_hits:,} more answered from the cache; "
        f"{plural(last.cuts, 'cutting plane')} (or support vectors) kept."
    )
    return joined([answers.figures.draw(plot, captions), tag("p", facts, class_="note")])


def path_over_C(answers: Answers) -> Markup | None:  # noqa: N802
    """Models for other values of C."""
    models, data = answers.models, {"X": answers.X, "y": answers.y}
    if not models:
        return None
    captions = [
        "Primal and dual objective over C.",
        "Certified relative gap over C.",
        "Size of the model over C.",
    ]
    if answers.X is not None:
        captions.insert(0, "Score on the test data over C.")
    if answers.groups is not None:
        data["groups"] = answers.groups
    return answers.figures.draw(lambda axes: plot_path(models, axes=axes, **data), captions)


def classes(answers: Answers) -> Markup | None:
    """Precision, recall and F1 of each class."""
    tables = [
        _class_table(caption, sorted(scores, key=lambda row: _place(answers, row.name)))
        for caption, scores in answers.class_tables()
    ]
    return tag("div", *tables, class_="beside") if tables else None


def _place(answers: Answers, name: Any) -> int:
    """Where the estimator has a class; others come after those that it has."""
    return answers.places.get(name, len(answers.places))


def _class_table(caption: str, scores: list[ClassScore]) -> Markup:
    heads = ["class", "precision", "recall", "F1", "support"]
    shown = scores
    if len(scores) > MAX_CLASSES:
        shown = sorted(scores, key=lambda row: -row.support)[:MAX_CLASSES]
        caption = f"{caption} (the {MAX_CLASSES} most frequent of {len(scores):,})"
    rows = [
        (str(row.name), *(Digits(f"{value:.3f}") for value in row[1:4]), row.support)
        for row in shown
    ]
    return table(caption, heads, rows)


def confusions(answers: Answers) -> Markup | None:
    """Which classes are predicted as which."""
    pairs = answers.labels()
    if pairs is None:
        return None
    y_true, predicted = pairs
    names = np.union1d(y_true, predicted).tolist()
    note = None
    wrong = y_true != predicted
    if len(names) > MAX_CLASSES:
        both = np.concatenate([y_true[wrong], predicted[wrong]])
        found, counts = np.unique(both, return_counts=True)
        names = np.sort(found[np.argsort(-counts, kind="stable")[:MAX_CLASSES]]).tolist()
        note = tag("p", f"The {MAX_CLASSES} classes with the most mistakes.", class_="note")
    if not np.isin(names, y_true).any():
        return None
    names.sort(key=lambda name: _place(answers, name))
    rows = largest_confusions(y_true, predicted, N_CONFUSIONS)
    n_wrong = int(np.count_nonzero(wrong))
    largest = table(
        "Largest confusions",
        ["true", "predicted", "times", "of all mistakes"],
        [(str(a), str(b), n, Digits(f"{n / n_wrong:.1%}")) for a, b, n in rows],
    )
    matrix = _matrix(
        answers,
        lambda axis: plot_confusion(y_true, predicted, labels=names, ax=axis),
        len(names),
        "How often each class (row) was predicted as each class (column).",
        largest if rows else None,
    )
    return joined([note, matrix])


def neighbours(answers: Answers) -> Markup | None:
    """Pairwise weights of labels."""
    return joined(_pairs(answers, one) for one in answers.pair_weights()) or None


def _pairs(answers: Answers, pairs: PairWeights) -> Markup:
    names, caption = answers.estimator.classes_.tolist(), pairs.caption
    values = np.asarray(pairs.values, dtype=float)
    kept = np.arange(len(names))
    if len(names) > MAX_CLASSES:
        strength = np.abs(values).max(axis=0) + np.abs(values).max(axis=1)
        kept = np.sort(np.argsort(-strength, kind="stable")[:MAX_CLASSES])
        caption = f"{caption} (the {MAX_CLASSES} labels with the strongest)"
    shown = values[np.ix_(kept, kept)]
    if np.array_equal(values, values.T):
        values = np.triu(values)  # each pair once
    order = np.argsort(values, axis=None, kind="stable")
    ends = [*order[::-1][:N_PAIRS], *order[: N_PAIRS // 2][::-1]]
    rows = []
    for at in dict.fromkeys(ends):  # each once, where there are few
        row, column = divmod(int(at), len(names))
        if values[row, column]:
            text = f"{names[row]} {pairs.relation} {names[column]}"
            rows.append((text, float(values[row, column])))
    return _matrix(
        answers,
        lambda axis: plot_matrix(shown, [names[i] for i in kept], ax=axis),
        len(kept),
        f"{caption}. Blue is positive, orange negative.",
        table("The strongest of them", ["labels", "weight"], rows) if rows else None,
    )


def _matrix(
    answers: Answers, plot: Callable[[Any], Any], n: int, caption: str, beside: Markup | None
) -> Markup:
    """A matrix of `n` classes with a table, side by side if the matrix leaves room for it."""
    side = confusion_side(n)
    drawn = answers.figures.draw(lambda axes: plot(axes[0]), [caption], side=side)
    return tag("div", drawn, beside, class_="beside" if side <= MAX_SIDE_BESIDE else None)


def strongest_features(answers: Answers) -> Markup | None:
    """The largest weights for and against each class."""
    rows = weight_rows(answers.estimator)
    if not rows:
        return None
    names = answers.feature_names()
    cells = []
    for name, weights in rows[:MAX_CLASSES]:
        lists = []
        for some in strongest(weights, N_FEATURES):
            shown = ((f"{text_of(name_of(names, at))} ", f"{weights[at]:+.3g}") for at in some)
            items = (tag("li", feature, tag("b", weight)) for feature, weight in shown)
            lists.append(tag("ul", *items, class_="features"))
        cells.append((name, *lists))
    caption = "Features with the largest weights"
    if len(rows) > MAX_CLASSES:
        caption = f"{caption} (the first {MAX_CLASSES} of {plural(len(rows), 'class')})"
    note = None
    if names is None:
        text = "The features have no names; they are numbered from 0."
        note = tag("p", text, class_="note")
    return joined([table(caption, ["class", "for", "against"], cells), note])


def mistakes(answers: Answers) -> Markup | None:
    """The worst predictions beside the true outputs."""
    found = answers.mistakes(N_MISTAKES)
    return joined([tag("p", answers.legend, class_="note"), *found]) if found else None


SECTIONS: dict[str, Callable[[Answers], Markup | None]] = {
    "Summary": summary,
    "Convergence": convergence,
    "Path over C": path_over_C,
    "Predictions": methodcaller("plots"),
    "Scores by class": classes,
    "Confusions": confusions,
    "Neighbouring labels": neighbours,
    "Strongest features": strongest_features,
    "Worst mistakes": mistakes,
}

NEED_DATA = {"Predictions", "Scores by class", "Confusions", "Worst mistakes"}


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
    """Write a report about an estimator: certificate, convergence, scores, worst mistakes.

    One HTML file, without scripts or network. Without test data it has the certificate, the
    convergence and the weights.

    Parameters
    ----------
    estimator : fitted estimator
        Any of this library.
    path : path
        Where to write the page.
    X, y : default=None
        Test data, as the estimator's ``score`` takes them.
    words : sequence, default=None
        What to show of each test example: a string, or for sequences and trees one a position.
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
    plot_convergence : Only this plot, for notebooks.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> X, y = load_iris(return_X_y=True)
    >>> model = mm.LinearClassifier().fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = mm.write_report(model, Path(folder) / "report.html", X[1::2], y[1::2])
    ...     "Confusions" in page.read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"The folder {str(path.parent)!r} does not exist: make it before the report."
        )
    check_is_fitted(estimator)
    if X is None and y is not None:
        raise ValueError("y is given without X: give the test examples, too.")
    text = _page(answers_of(estimator, X, y, words, groups, features, models), title)
    with atomic_write(path) as file:
        file.write(text.encode())
    return path


def answers_of(estimator: Any, X: Any, y: Any, *options: Any) -> Answers:
    """An estimator and its predictions for test data, if there are any."""
    kind = _kind_of(estimator)
    if X is not None and y is None and not kind.y_optional:
        raise ValueError("X is given without y: give the true outputs, too, or leave both out.")
    return kind(estimator, X, y, *options)


def _kind_of(estimator: Any) -> type[Answers]:
    """What the structure of an estimator has registered, or what suits any like it."""
    names = {kind.__name__ for kind in type(estimator).__mro__}
    for name, kind in maxmargin.structures.registered("report", "ANSWERS"):
        if name in names:
            return kind  # type: ignore[no-any-return]
    if is_regressor(estimator):
        return NumberAnswers
    return LabelAnswers if hasattr(estimator, "classes_") else Answers


def _page(answers: Answers, title: str | None) -> str:
    title = title or f"{type(answers.estimator).__name__}: report"
    skipped = NEED_DATA if answers.X is None else set()
    parts = [
        (heading, heading.lower().replace(" ", "-"), content)
        for heading, write in SECTIONS.items()
        if heading not in skipped and (content := write(answers)) is not None
    ]
    contents = tag(
        "nav",
        tag("ul", *(tag("li", tag("a", heading, href=f"#{name}")) for heading, name, _ in parts)),
        aria_label="Sections",
    )
    sections = [
        tag("section", tag("h2", heading), content, id=name) for heading, name, content in parts
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

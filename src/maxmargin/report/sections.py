"""The sections of a report: one function each, which gives nothing where it has nothing to say.

A fit and its certificate in sentences for people who have never heard of duality.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from maxmargin.core.certificate import Certificate
from maxmargin.report.answers import Answers, text_of
from maxmargin.report.drawing import Figures
from maxmargin.report.feature_names import feature_names, name_of, strongest, weight_rows
from maxmargin.report.markup import Digits, Markup, joined, number, plural, table, tag
from maxmargin.report.plots import (
    confusion_side,
    plot_confusion,
    plot_convergence,
    plot_matrix,
    plot_path,
)
from maxmargin.report.scores import ClassScore, Labels, largest_confusions

REASONS = {
    "converged": "It stopped because it was as close to the optimum as asked for.",
    "relaxed": "It stopped because its searches, which are approximate, can tell no more.",
    "max_iter": "It stopped at the most rounds allowed.",
    "passes": "It stopped after the passes over the data that were asked for.",
    "time_limit": "It stopped because its time was over.",
    "interrupted": "It was interrupted; the best weights so far were kept.",
    "stopped by a callback": "It was stopped by a callback; the best weights so far were kept.",
    "failed": "It stopped because the problem failed; the best weights so far were kept.",
    "partial": "It has learned from blocks of examples, each seen once.",
}


def stopped(estimator: Any) -> str:
    """How long the fit took, and why it stopped."""
    name, history = type(estimator).__name__, getattr(estimator, "history_", None)
    took = f"This {name} was trained with C = {estimator.C:g}"
    if history:
        last = history[-1]
        took += f" in {last.seconds:.3g} s and {plural(len(history), 'iteration')}"
    return f"{took}. {REASONS.get(getattr(estimator, 'status_', ''), '')}".strip()


def certified(estimator: Any) -> str:
    """What the certificate says.

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.report.sections import certified
    >>> model = mm.LinearClassifier(tol=0.5).fit([[0.0], [1.0]], [0, 1])
    >>> certified(model).split(":")[0]
    'How good is the training'
    """
    certificate = getattr(estimator, "certificate_", None)
    if certificate is None:
        return ""
    text = _of(estimator, certificate)
    if certificate.at_zero is None:
        return text
    return (
        f"{text} Zero weights, which say nothing about any example, have an objective of "
        f"{number(certificate.at_zero)}: these are hardly better. Take a larger C, or features "
        f"that tell the outputs apart."
    )


def _of(estimator: Any, certificate: Certificate) -> str:
    primal, dual = number(float(certificate.primal)), number(float(certificate.dual))
    if not np.isfinite(certificate.gap):
        return (
            f"How good is the training: no weights can have an objective below {dual} on what was "
            f"seen. How far these weights are above it was not measured: that takes a pass over "
            f"all examples."
        )
    share = f"{max(certificate.relative_gap, 0.0):.2%}"
    if hasattr(estimator, "objectives_"):
        return (
            f"How good is the training: the objective (what training makes small) is {primal}. "
            f"With the same latent variables no weights can come below {dual}, so at most {share} "
            f"is left to gain with these. Other latent variables may be better: that is not "
            f"bounded."
        )
    if certificate.relaxed:
        return (
            f"How good is the training: the objective (what training makes small) is at most "
            f"{primal}. It is proven that no weights can come below {dual}. So these weights "
            f"are at most {share} from the best possible; a part of this is there only because "
            f"the searches are approximate."
        )
    return (
        f"How good is the training: the objective (what training makes small: the size of the "
        f"weights plus C times the errors) is {primal}. It is proven that no weights at all can "
        f"come below {dual} on the same data. So these weights are at most {share} from the best "
        f"possible ones: training on cannot gain more than that."
    )


MOST_CLASSES = 60
"""Classes in a matrix, in a table of scores and in a table of features."""

WIDEST_BESIDE = 7.5
"""Inches of a matrix that leaves room for a table."""

MOST_CONFUSIONS, MOST_FEATURES, MOST_MISTAKES, MOST_PAIRS = 12, 10, 8, 8


@dataclass
class Subject:
    """What a report is about."""

    estimator: Any
    answers: Answers | None = None
    models: Sequence[Any] | None = None
    features: Sequence[str] | None = None
    figures: Figures = field(default_factory=Figures)

    @cached_property
    def score(self) -> float | None:
        """The score on the test data."""
        return None if self.answers is None else self.answers.score()

    def place(self, name: Any) -> int:
        """Where the estimator has a class; others come after those that it has."""
        return self._places.get(name, len(self._places))

    @cached_property
    def _places(self) -> dict[Any, int]:
        known = getattr(self.estimator, "classes_", None)
        return {} if known is None else {name: at for at, name in enumerate(known.tolist())}

    @property
    def history(self) -> list[Any]:
        """Rounds of the fit."""
        return list(getattr(self.estimator, "history_", None) or [])


class Section:
    """A function that writes a part of the report, with its heading."""

    def __init__(self, title: str, write: Callable[[Subject], Markup | None]) -> None:
        self.title, self.write = title, write
        self.name = title.lower().replace(" ", "-")


def summary(subject: Subject) -> Markup:
    """What was trained, how well it does, and how sure that is."""
    estimator, answers = subject.estimator, subject.answers
    cards = []
    if subject.score is not None:
        cards.append(("Score on the test data", number(subject.score)))
    certificate = getattr(estimator, "certificate_", None)
    if certificate is not None:
        gap = certificate.relative_gap
        cards.append(("Certified gap", f"{gap:.2g}" if np.isfinite(gap) else "unknown"))
    if subject.history:
        cards.append(("Training time", f"{subject.history[-1].seconds:.3g} s"))
        cards.append(("Searches", f"{subject.history[-1].oracle_calls:,}"))
    lines = [stopped(estimator), certified(estimator)]
    if answers is not None:
        meaning = _meaning_of_score(estimator)
        lines.append(f"The test data are {answers.size}. The score is: {meaning}")
    return joined(
        [
            tag(
                "dl",
                *(tag("div", tag("dt", name), tag("dd", value)) for name, value in cards),
                class_="cards",
            ),
            *(tag("p", line) for line in lines if line),
            _more_scores(answers),
            _parameters(estimator),
        ]
    )


def _meaning_of_score(estimator: Any) -> str:
    """The first sentence that the estimator's own documentation has for its score."""
    text = (inspect.getdoc(type(estimator).score) or "see its documentation.").split("\n\n")[0]
    text = re.sub(r":\w+:`([^<`]*?)\s*(<[^`]*>)?`", r"\1", " ".join(text.split()))
    text = text.replace("`", "").removeprefix("Return ").removeprefix("the ")
    text = re.sub(r", see [\w.]+\.$", ".", text)
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _more_scores(answers: Answers | None) -> Markup | None:
    scores = answers.more_scores() if answers is not None else []
    return table("Scores on the test data", ["measure", "value"], scores) if scores else None


def _parameters(estimator: Any) -> Markup:
    """All parameters, those first that are not the default."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(estimator)).parameters.items()
    }
    rows = []
    for name, value in estimator.get_params(deep=False).items():
        changed = repr(value) != repr(defaults.get(name))
        rows.append((not changed, name, text_of(repr(value)), "set" if changed else "default"))
    rows.sort(key=lambda row: row[0])
    return tag(
        "details",
        tag("summary", f"Parameters of this {type(estimator).__name__}"),
        table("Parameters", ["parameter", "value", ""], [row[1:] for row in rows]),
    )


def convergence(subject: Subject) -> Markup | None:
    """Gap and objectives against time and searches."""
    if not subject.history:
        return None

    def plot(axes: Any) -> None:
        plot_convergence(subject.estimator, axes=axes[:2], against="seconds")
        plot_convergence(subject.estimator, axes=axes[2:], against="oracle_calls")

    captions = [
        "Relative duality gap after each round, against seconds: evaluated over all examples "
        "(solid), or estimated (dashed).",
        "Primal and dual objective against seconds; the best possible lies between them.",
        "Relative duality gap against searches.",
        "Primal and dual objective against searches.",
    ]
    last = subject.history[-1]
    facts = (
        f"{plural(len(subject.history), 'iteration')}, "
        f"{plural(last.oracle_calls, 'oracle call')} (or updates of examples), "
        f"{last.cache_hits:,} more answered from memory; "
        f"{plural(last.cuts, 'cutting plane')} (or support vectors) kept."
    )
    return joined([subject.figures.draw(plot, captions), tag("p", facts, class_="note")])


def path_over_C(subject: Subject) -> Markup | None:  # noqa: N802
    """What other values of C give."""
    if not subject.models:
        return None
    answers = subject.answers
    captions = [
        "Training objective over C, between its two bounds.",
        "Certified relative gap over C.",
        "Size of the model over C.",
    ]
    parameters = {}
    X = y = None
    if answers is not None:
        captions.insert(0, "Score on the test data over C.")
        X, y = answers.X, answers.y
        if answers.groups is not None:
            parameters["groups"] = answers.groups
    models = subject.models
    return subject.figures.draw(
        lambda axes: plot_path(models, X, y, axes=axes, **parameters), captions
    )


def predictions(subject: Subject) -> Markup | None:
    """All predictions in a plot."""
    return None if subject.answers is None else subject.answers.plots(subject.figures)


def classes(subject: Subject) -> Markup | None:
    """Precision, recall and F1 of each class."""
    if subject.answers is None:
        return None
    tables = [
        _class_table(caption, sorted(scores, key=lambda row: subject.place(row.name)))
        for caption, scores in subject.answers.class_tables()
    ]
    return tag("div", *tables, class_="beside") if tables else None


def _class_table(caption: str, scores: list[ClassScore]) -> Markup:
    heads = ["class", "precision", "recall", "F1", "support"]
    shown = scores
    if len(scores) > MOST_CLASSES:
        shown = sorted(scores, key=lambda row: -row.support)[:MOST_CLASSES]
        caption = f"{caption} (the {MOST_CLASSES} commonest of {len(scores):,})"
    rows = [
        (str(row.name), *(Digits(f"{value:.3f}") for value in row[1:4]), row.support)
        for row in shown
    ]
    return table(caption, heads, rows)


def confusions(subject: Subject) -> Markup | None:
    """Which classes are taken for which."""
    pairs = subject.answers.labels() if subject.answers is not None else None
    if pairs is None:
        return None
    y_true, predicted = pairs
    names = np.union1d(y_true, predicted).tolist()
    note = None
    if len(names) > MOST_CLASSES:
        names = _most_confused(y_true, predicted)
        note = tag("p", f"The {MOST_CLASSES} classes with the most mistakes.", class_="note")
    if not np.isin(names, y_true).any():
        return None
    names.sort(key=subject.place)
    side = confusion_side(len(names))
    caption = "How often each class (row) was predicted as each class (column)."
    drawn = subject.figures.draw(
        lambda axes: plot_confusion(y_true, predicted, labels=names, ax=axes[0]),
        [caption],
        side=side,
    )
    rows = largest_confusions(y_true, predicted, MOST_CONFUSIONS)
    n_wrong = int(np.count_nonzero(y_true != predicted))
    largest = table(
        "Largest confusions",
        ["true", "predicted", "times", "share of all mistakes"],
        [(str(a), str(b), n, Digits(f"{n / n_wrong:.1%}")) for a, b, n in rows],
    )
    return joined([note, _beside(drawn, largest if rows else None, side)])


def _most_confused(y_true: Labels, predicted: Labels) -> list[Any]:
    wrong = y_true != predicted
    names, counts = np.unique(np.concatenate([y_true[wrong], predicted[wrong]]), return_counts=True)
    chosen = np.sort(names[np.argsort(-counts, kind="stable")[:MOST_CLASSES]])
    return list(chosen.tolist())


def neighbours(subject: Subject) -> Markup | None:
    """Weights of labels that follow each other, are neighbours, or come together."""
    estimator = subject.estimator
    names = getattr(estimator, "classes_", None)
    if names is None:
        return None
    if hasattr(estimator, "transitions_"):
        caption = "Weight of each label (row) followed by each label (column)"
        return _pairs(subject, estimator.transitions_, names.tolist(), caption, "then")
    if hasattr(estimator, "edge_coef_"):
        tables, caption = estimator.edge_coef_[:2], "Weight of neighbouring labels"
        which = [f", edge feature {k}" for k in range(len(tables))] if len(tables) > 1 else [""]
        return joined(
            _pairs(subject, values, names.tolist(), f"{caption}{one}", "next to")
            for values, one in zip(tables, which, strict=True)
        )
    if hasattr(estimator, "edges_") and len(estimator.edges_):
        pair = estimator.pair_coef_
        values = np.zeros((len(names), len(names)))
        first, second = estimator.edges_.T
        values[first, second] = pair[:, 1, 1] + pair[:, 0, 0] - pair[:, 1, 0] - pair[:, 0, 1]
        values[second, first] = values[first, second]
        caption = "How much two labels gain from being on or off together"
        return _pairs(subject, values, names.tolist(), caption, "with")
    return None


def _pairs(subject: Subject, values: Any, names: list[Any], caption: str, word: str) -> Markup:
    values = np.asarray(values, dtype=float)
    kept = np.arange(len(names))
    if len(names) > MOST_CLASSES:
        strength = np.abs(values).max(axis=0) + np.abs(values).max(axis=1)
        kept = np.sort(np.argsort(-strength, kind="stable")[:MOST_CLASSES])
        caption = f"{caption} (the {MOST_CLASSES} labels with the strongest)"
    shown = values[np.ix_(kept, kept)]
    side = confusion_side(len(kept))
    drawn = subject.figures.draw(
        lambda axes: plot_matrix(shown, [names[i] for i in kept], ax=axes[0]),
        [f"{caption}. Blue is for, orange against."],
        side=side,
    )
    if np.array_equal(values, values.T):
        values = np.triu(values)  # a pair needs to be named only once
    order = np.argsort(values, axis=None, kind="stable")
    ends = [*order[::-1][:MOST_PAIRS], *order[: MOST_PAIRS // 2][::-1]]
    places = dict.fromkeys(int(at) for at in ends)
    rows = []
    for at in places:
        row, column = divmod(at, len(names))
        if values[row, column]:
            text = f"{names[row]} {word} {names[column]}"
            rows.append((text, float(values[row, column])))
    strongest_table = table("The strongest of them", ["labels", "weight"], rows) if rows else None
    return _beside(drawn, strongest_table, side)


def _beside(drawn: Markup, found: Markup | None, side: float) -> Markup:
    """A matrix with a table, side by side if the matrix leaves room for it."""
    return tag("div", drawn, found, class_="beside" if side <= WIDEST_BESIDE else None)


def features(subject: Subject) -> Markup | None:
    """What speaks most for and against each class."""
    rows = weight_rows(subject.estimator)
    if not rows:
        return None
    names = subject.features or feature_names(subject.estimator)
    cells = []
    for row in rows[:MOST_CLASSES]:
        ups, downs = strongest(row.weights, MOST_FEATURES)
        lists = [
            tag("ul", *(_feature(names, at, row.weights[at]) for at in some), class_="features")
            for some in (ups, downs)
        ]
        cells.append((row.name, *lists))
    caption = "Features with the largest weights"
    if len(rows) > MOST_CLASSES:
        caption = f"{caption} (the first {MOST_CLASSES} of {plural(len(rows), 'class')})"
    note = None
    if names is None:
        text = "Features have no names here: they are counted from 0."
        note = tag("p", text, class_="note")
    return joined([table(caption, ["class", "for", "against"], cells), note])


def _feature(names: Sequence[str] | None, at: int, weight: float) -> Markup:
    return tag("li", f"{text_of(name_of(names, at))} ", tag("b", f"{weight:+.3g}"))


def mistakes(subject: Subject) -> Markup | None:
    """The worst predictions beside the truth."""
    if subject.answers is None:
        return None
    found = subject.answers.mistakes(MOST_MISTAKES)
    return joined([tag("p", subject.answers.legend, class_="note"), *found]) if found else None


SECTIONS = (
    Section("Summary", summary),
    Section("Convergence", convergence),
    Section("Path over C", path_over_C),
    Section("Predictions", predictions),
    Section("Scores by class", classes),
    Section("Confusions", confusions),
    Section("Neighbouring labels", neighbours),
    Section("Strongest features", features),
    Section("Worst mistakes", mistakes),
)

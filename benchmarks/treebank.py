"""Parsing: weighted grammars against the same grammar with maximum-likelihood probabilities.

The Penn treebank sample, tags given, the first 80 % of the files to train on and the rest to test;
sentences of at most 15 words, as in Joachims et al. (2009), and of at most 40. Labelled bracket F1
of a grammar trained for brackets and, as in the paper, for whole trees (zero-one loss), beside
that of the same rules with the probabilities of maximum likelihood; where 95 % of the gains lie
comes from drawing test sentences with replacement. C = 1 on the sum, one thread, to a certified
gap of 1e-2 unless the time limit comes first: long sentences with the zero-one loss take minutes,
and `--time-limit 600` lets them end. Then the time to parse the longest sentences, exactly and
with nothing pruned. Cutting planes on these trees are under the claim `cutting_planes`.
"""

import argparse
import os
import warnings
import zipfile
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Floats, best, clocks, interleaved, parser, run, say, span, timed
from benchmarks.reporting import Bars, Quote, Report, Row
from maxmargin.structures.constituency.estimator import GrammarParser
from maxmargin.structures.constituency.formats import read_trees
from maxmargin.structures.constituency.grammar import (
    PUNCTUATION,
    BracketScores,
    Tree,
    bracket_scores,
    brackets,
)
from maxmargin.structures.constituency.predictor import UnparsedWarning

LENGTHS = ("15", "40")
TITLE = "at most {} words"
LOSSES = ("brackets", "zero-one")
TRAIN_SHARE = 0.8
TOLERANCE = 1e-2
PARSE_SECONDS = 0.3
"""Well under a second, on a core that others use, too."""


def treebank(quick: bool) -> list[list[Tree]]:
    """The trees of each file."""
    if quick:
        return [toy_trees(seed) for seed in range(10)]
    path = Path(os.environ.get("MAXMARGIN_DATA", "")) / "treebank" / "treebank.zip"
    if not path.is_file():
        raise SystemExit("treebank/treebank.zip is not there: set MAXMARGIN_DATA to its folder.")
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".mrg"))
        return [read_trees(archive.read(name).decode(), source=name) for name in names]


def toy_trees(seed: int) -> list[Tree]:
    """A file of random sentences with prepositional phrases."""
    random = np.random.default_rng(seed)

    def leaf(tag: str) -> Tree:
        return Tree(tag, (tag.lower(),))

    def noun_phrase(depth: int) -> Tree:
        plain = Tree("NP", (leaf("DT"), leaf("NN")) if random.random() < 0.6 else (leaf("PRP"),))
        if depth > 2 or random.random() < 0.6:
            return plain
        return Tree("NP", (plain, Tree("PP", (leaf("IN"), noun_phrase(depth + 1)))))

    def sentence() -> Tree:
        verbs = Tree("VP", (leaf("VB"), noun_phrase(0))[: random.integers(1, 3)])
        return Tree("S", (noun_phrase(0), verbs, leaf(".")))

    return [sentence() for _ in range(8)]


def split(files: Sequence[Sequence[Tree]], longest: int) -> tuple[list[Tree], list[Tree]]:
    """Training and test trees of at most so many words."""
    n_train = int(TRAIN_SHARE * len(files))
    short = [[tree for tree in trees if len(tree.words) <= longest] for trees in files]
    train = [tree for trees in short[:n_train] for tree in trees]
    return train, [tree for trees in short[n_train:] for tree in trees]


def with_likelihood(model: GrammarParser) -> GrammarParser:
    """The same grammar with the weights of maximum likelihood."""
    likely = copy(model)
    likely.coef_ = model.grammar_.log_probabilities()
    return likely


def parsed(model: GrammarParser, test: Sequence[Tree]) -> list[Tree]:
    """Predictions, flat trees among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnparsedWarning)
        return model.predict(test)


def n_unparsed(model: GrammarParser, test: Sequence[Tree]) -> int:
    """Sentences that the grammar has no tree for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnparsedWarning)
        return int(np.isneginf(model.decision_function(test)).sum())


def gain_interval(truths: list[Tree], ours: list[Tree], theirs: list[Tree]) -> tuple[float, float]:
    """Where 95 % of the differences of F1 lie when test sentences are drawn with replacement."""

    def counts(found: list[Tree]) -> Floats:
        pairs = [
            (brackets(truth, PUNCTUATION), brackets(tree, PUNCTUATION))
            for truth, tree in zip(truths, found, strict=True)
        ]
        return np.array([(2.0 * (a & b).total(), a.total() + b.total()) for a, b in pairs])

    drawn = np.random.default_rng(0).integers(0, len(truths), (2000, len(truths)))
    sums = [counts(found)[drawn].sum(axis=1) for found in (ours, theirs)]
    gains = sums[0][:, 0] / sums[0][:, 1] - sums[1][:, 0] / sums[1][:, 1]
    low, high = np.quantile(gains, [0.025, 0.975])
    return float(low), float(high)


def text(scores: BracketScores) -> str:
    return (
        f"{100 * scores.f1:.2f} (precision {100 * scores.precision:.1f}, recall "
        f"{100 * scores.recall:.1f}, {100 * scores.exact:.1f} % all right)"
    )


def accuracy(
    title: str, train: list[Tree], test: list[Tree], options: argparse.Namespace
) -> tuple[list[Row], dict[str, Any], GrammarParser]:
    """F1 of either loss against maximum likelihood."""
    rows, details, models = [], {}, []
    for loss in LOSSES:
        model = GrammarParser(C=options.C, loss=loss, tol=TOLERANCE, time_limit=options.time_limit)
        done = timed(partial(model.fit, train))
        trees, likely_trees = parsed(model, test), parsed(with_likelihood(model), test)
        found, likely = bracket_scores(test, trees), bracket_scores(test, likely_trees)
        low, high = gain_interval(test, trees, likely_trees)
        gap = model.certificate_.relative_gap
        say(f"{title}, {loss}: {found}, maximum likelihood {likely}, {model.certificate_}")
        rows += [
            Row(
                f"{title}, {loss}, F1",
                "above maximum likelihood",
                f"{text(found)}, gain {100 * low:.1f} to {100 * high:.1f}",
                text(likely),
                met=found.f1 > likely.f1,
            ),
            Row(
                f"{title}, {loss}, gap",
                f"<= {TOLERANCE:g}",
                f"{gap:.1e} after {done.seconds:.3g} s",
                met=gap <= TOLERANCE,
            ),
        ]
        details[loss] = {
            "f1": found.f1,
            "exact": found.exact,
            "maximum likelihood": likely.f1,
            "gap": gap,
            "rules": model.grammar_.rules.n_rules,
            "features": model.grammar_.n_features,
            "train": len(train),
            "test": len(test),
            "unparsed": n_unparsed(model, test),
            "95 % of the gain": (low, high),
            "oracle_calls": model.history_[-1].oracle_calls,
            **clocks([done]),
        }
        models.append(model)
    return rows, details, models[0]


def speed(
    title: str, model: GrammarParser, test: list[Tree], repeats: int
) -> tuple[list[Row], dict[str, Any]]:
    """Seconds for the longest sentences: the best tree, the ten best, marginals."""
    longest = sorted(test, key=lambda tree: -len(tree.words))[:5]
    words = f"{len(longest[-1].words)} to {len(longest[0].words)} words"
    rows, details = [], {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnparsedWarning)
        model.predict_k_best(longest[:1], 2), model.predict_marginals(longest[:1])  # compiles
        works: dict[str, Callable[..., Any]] = {
            "a parse": model.predict,
            "the ten best": partial(model.predict_k_best, k=10),
            "marginals": model.predict_marginals,
        }
        for name, work in works.items():
            each = [interleaved({name: partial(work, [tree])}, repeats)[name] for tree in longest]
            seconds = [best(runs) for runs in each]
            bar = f"< {PARSE_SECONDS:g} s" if name == "a parse" else ""
            met = max(seconds) < PARSE_SECONDS if bar else None
            rows.append(Row(f"{title}, {name}, {words}", bar, span(seconds), met=met))
            details[name] = seconds
    return rows, details


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    files = treebank(options.quick)
    GrammarParser(max_iter=2, tol=0.9).fit(files[0])  # compiles, or loads what is compiled
    GrammarParser(max_iter=2, tol=0.9, loss="zero-one").fit(files[0])
    for length in options.data:
        train, test = split(files, int(length))
        title = TITLE.format(length)
        rows, details, model = accuracy(title, train, test, options)
        report.rows += rows
        fast, seconds = speed(title, model, test, options.repeats)
        report.rows += fast
        details["seconds"] = seconds
        report.details[title] = details
    report.quotes += quotes(report.details)
    report.notes += notes(report.details)
    report.panels["bracket F1"] = Bars(
        {
            title: {loss: 100 * found[loss]["f1"] for loss in LOSSES}
            | {"maximum likelihood": 100 * found[LOSSES[0]]["maximum likelihood"]}
            for title, found in report.details.items()
        },
        "percent",
    )
    report.panels["time for the longest sentences"] = Bars(
        {
            title: {name: max(seconds) for name, seconds in found["seconds"].items()}
            for title, found in report.details.items()
        },
        "seconds",
        "log",
    )
    return report


def quotes(details: dict[str, Any]) -> list[Quote]:
    """The paper's F1, of other sentences."""
    found = details.get(TITLE.format(LENGTHS[0]))
    if found is None:
        return []
    zero_one = found["zero-one"]
    return [
        Quote(
            "Joachims et al. (2009), figure 7, CFG",
            "zero-one loss, at most 15 words, 9,780 trees: bracket F1 70.22 (1-slack)",
            f"{zero_one['train']:,} trees, tags given: {100 * zero_one['f1']:.2f}",
        ),
        Quote(
            "Joachims et al. (2009), section 5, CFG",
            "154,655 features of 9,780 trees",
            f"{zero_one['features']:,} of {zero_one['train']:,} trees",
        ),
    ]


def notes(details: dict[str, Any]) -> list[str]:
    """Why the zero-one loss falls short."""
    short = {
        title: found["zero-one"]
        for title, found in details.items()
        if found["zero-one"]["f1"] < found["zero-one"]["maximum likelihood"]
    }
    if not short:
        return []
    each = "; ".join(
        f"{title}: F1 {100 * found['f1']:.1f} against {100 * found['maximum likelihood']:.1f}, "
        f"{100 * found['exact']:.1f} % of the trees all right"
        for title, found in short.items()
    )
    return [
        "The zero-one loss of the paper, for which any tree but the right one is equally wrong, "
        f"does not reach maximum likelihood ({each}). Where hardly a tree can be all right, it "
        "says nothing about which of the wrong ones is better; the loss that counts brackets does."
    ]


if __name__ == "__main__":
    arguments = parser(__doc__, LENGTHS, repeats=3)
    arguments.add_argument("--time-limit", type=float, default=150.0, help="seconds for each fit")
    arguments.add_argument("--C", type=float, default=1.0)
    run(arguments, measure)

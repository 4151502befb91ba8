"""Two threads against one: taggers and parsers 1.6 times as fast, linear models 1.5 to 1.8 times.

Whole fits at default settings, dictionaries and other inputs included, with `n_jobs=1` and
`n_jobs=2` in turns; minima are compared. Chunks of CoNLL-2000 from feature dictionaries, parts of
speech of 10,000 sentences of Brown and handwritten words from matrices; the 10 % sample of the Penn
Treebank as trees of at most 40 words and as dependency trees; snakes, grids of labels; and MNIST,
Covertype and 20 Newsgroups, Crammer-Singer and one-versus-rest, to a gap of 1e-2 where a fit takes
many seconds. Structured fits give the same answer with any number of threads: a row says whether
the certificates are the same to the bit. Two threads must never be slower than one.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from sklearn.base import clone

import maxmargin as mm
from benchmarks.chunking import features
from benchmarks.common import best, interleaved, load, parser, run, say, spread
from benchmarks.dependencies import load as load_dependencies
from benchmarks.grid_data import pretend_snakes, snakes
from benchmarks.reporting import Bars, Report, Row
from benchmarks.sequences import corpus, letters, tagging
from benchmarks.treebank import TRAIN_SHARE, treebank
from maxmargin.structures.chain.vocabulary import Vocabulary

NEVER_SLOWER = 0.97
"""What noise may make of a ratio of one."""

LONGEST = 40
"""Words of the longest sentences that are parsed."""


class Case(NamedTuple):
    """What is fitted, and how many times as fast two threads shall be."""

    name: str
    bar: float
    make: Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]
    """The estimator, and what its `fit` takes."""


def chunks(quick: bool) -> Any:
    train = corpus("conll2000", quick).train
    y = [[token[2] for token in sentence] for sentence in train]
    return mm.SequenceTagger(), ([features(sentence) for sentence in train], y), {}


def words_of_brown(quick: bool) -> Any:
    data = tagging(corpus("brown", quick).train[:10_000], Vocabulary(), grow=True)
    return mm.SequenceTagger(), (data.X, data.y), {"lengths": data.lengths}


def handwriting(quick: bool) -> Any:
    data = letters("ocr2", quick).train
    return mm.SequenceTagger(C=0.1, tol=1e-2), (data.X, data.y), {"lengths": data.lengths}


def trees(quick: bool) -> Any:
    files = treebank(quick)
    train = [tree for one in files[: int(TRAIN_SHARE * len(files))] for tree in one]
    return mm.GrammarParser(), ([tree for tree in train if len(tree.words) <= LONGEST],), {}


def dependency_trees(quick: bool) -> Any:
    return mm.DependencyParser(), (load_dependencies("treebank", quick).train,), {}


def grids(quick: bool) -> Any:
    data = (pretend_snakes() if quick else snakes()).train
    return mm.GraphLabeler(C=0.1, directed=True), (data.X, data.y), {}


def rows(name: str, formulation: str, quick: bool) -> Any:
    data = load(name, quick)
    model = mm.LinearClassifier(formulation=formulation, tol=1e-2, fit_intercept=False)
    return model, (data.X, data.y), {}


def cases(quick: bool) -> Iterator[Case]:
    structured = {
        "CoNLL-2000, chunks": chunks,
        "Brown, parts of speech": words_of_brown,
        "letters": handwriting,
        "treebank, grammar": trees,
        "treebank, dependencies": dependency_trees,
        "snakes": grids,
    }
    for name, make in structured.items():
        yield Case(name, 1.5 if name == "snakes" else 1.6, partial(make, quick))
    for formulation, bar in (("crammer-singer", 1.5), ("one-vs-rest", 1.8)):
        for name in ("mnist", "covtype", "20news"):
            yield Case(f"{name}, {formulation}", bar, partial(rows, name, formulation, quick))


def difference(model: Any, other: Any) -> str:
    """What the certificates of two fits have in common."""
    one, two = model.certificate_, other.certificate_
    return "same" if one == two else f"gaps {one.relative_gap:.1e}, {two.relative_gap:.1e}"


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    ratios: dict[str, dict[str, float]] = {}
    for case in cases(options.quick):
        model, data, more = case.make()
        models = {f"{n} threads": clone(model).set_params(n_jobs=n) for n in (1, 2)}
        works = {name: partial(one.fit, *data, **more) for name, one in models.items()}
        for work in works.values():
            work()  # loads what is compiled
        runs = interleaved(works, options.repeats)
        one, two = runs.values()
        ratio = best(one) / best(two)
        report.rows.append(
            Row(
                case.name,
                f">= {case.bar:g}x",
                f"{ratio:.2f}x ({spread(two)}), {difference(*models.values())}",
                f"one thread {spread(one)}",
                met=ratio >= case.bar,
            )
        )
        ratios[case.name] = {"two threads": ratio}
        say(f"{case.name}: {ratio:.2f}")
    slower = [name for name, each in ratios.items() if each["two threads"] < NEVER_SLOWER]
    report.rows.append(
        Row("slower with two threads", "none", ", ".join(slower) or "none", met=not slower)
    )
    report.details["ratios"] = ratios
    report.panels["Times as fast as one thread"] = Bars(ratios, "times")
    return report


if __name__ == "__main__":
    run(parser(__doc__, repeats=3), measure)

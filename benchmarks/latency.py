"""One example at a time, as a service asks: not slower than LinearSVC, a sentence in 100 us.

Microseconds of `predict` for one example, the least of many calls, in turns with the peer: one row
of a linear model, dense and sparse, of two and of many classes, beside scikit-learn's LinearSVC;
one sentence of 38 tokens and one of a single token, as feature dictionaries, beside crfsuite's
tagger, which is also shown with its items made before. Asked for: 1.0 times LinearSVC; 100 us and
30 us. What other estimators need is shown without a bar. Data are made from a seed.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

import maxmargin as mm
from benchmarks.common import parser, run
from benchmarks.reporting import Bars, Report, Row

ROWS = {
    "dense, 2 classes, 30 features": (2, 30, False),
    "dense, 10 classes, 64 features": (10, 64, False),
    "sparse, 2 classes, 20,000 features": (2, 20_000, True),
    "sparse, 54 classes, 20,000 features": (54, 20_000, True),
    "sparse, 20 classes, 100,000 features": (20, 100_000, True),
}
SENTENCES = {"a sentence of 38 tokens": (38, 100.0), "a single token": (1, 30.0)}


def least(works: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Microseconds of the quickest call of each, taking turns for so many seconds."""
    found = dict.fromkeys(works, np.inf)
    for work in works.values():
        work()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, work in works.items():
            for _ in range(20):
                start = time.perf_counter()
                work()
                found[name] = min(found[name], time.perf_counter() - start)
    return {name: 1e6 * value for name, value in found.items()}


def linear(n_classes: int, width: int, sparse: bool) -> dict[str, Callable[[], Any]]:
    """Calls of ours and of LinearSVC for one row."""
    from sklearn.svm import LinearSVC

    random = np.random.default_rng(0)
    n = 10 * n_classes + 100
    X: Any = random.normal(size=(n, width))
    if sparse:
        X = sp.random_array((n, width), density=50 / width, format="csr", rng=random)
    y, one = np.arange(n) % n_classes, X[:1]
    ours = mm.LinearClassifier(max_iter=3).fit(X, y)
    theirs = LinearSVC(max_iter=5).fit(X, y)
    return {"ours": lambda: ours.predict(one), "LinearSVC": lambda: theirs.predict(one)}


def sentences() -> tuple[list[list[dict[str, Any]]], list[list[str]]]:
    """A hundred sentences of twenty tokens, eight features each, ten labels."""
    random = np.random.default_rng(0)
    words, labels = random.zipf(1.3, size=2000) % 3000, random.integers(10, size=2000)
    tokens = [
        {"bias": 1.0, "word": f"w{w}", "suffix": f"s{w % 50}", "shape": f"x{w % 7}",
         "before": f"w{words[i - 1]}", "after": f"w{words[(i + 1) % 2000]}",
         "pos": f"p{w % 20}", "pair": f"p{w % 20} p{words[i - 1] % 20}"}
        for i, w in enumerate(words.tolist())
    ]  # fmt: skip
    cut = range(0, 2000, 20)
    return (
        [tokens[i : i + 20] for i in cut],
        [[f"t{k}" for k in labels[i : i + 20].tolist()] for i in cut],
    )


def crfsuite(X: Any, y: Any) -> Any:
    """Its tagger, hardly trained; None if it is not installed."""
    import tempfile

    try:
        import pycrfsuite  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"max_iterations": 3})
    for one, labels in zip(X, y, strict=True):
        trainer.append(pycrfsuite.ItemSequence(one), labels)
    tagger = pycrfsuite.Tagger()
    with tempfile.NamedTemporaryFile() as file:
        trainer.train(file.name)
        tagger.open(file.name)
    return tagger


def others() -> dict[str, Callable[[], Any]]:
    """One example of other structures."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 20)), np.arange(60) % 3
    edges = np.array([[i, i + 1] for i in range(9)])
    graphs = [(random.normal(size=(10, 5)), edges) for _ in range(20)]
    labels = [random.integers(3, size=10) for _ in graphs]
    trees = ["(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))))"] * 3
    tagged = [[("Dogs", "NOUN"), ("chase", "VERB"), ("cats", "NOUN")]] * 3
    heads = [([2, 0, 2], ["subj", "root", "obj"])] * 3
    models: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
        "graph of 10 nodes": (mm.GraphLabeler(max_iter=3), (graphs, labels), graphs[:1]),
        "constituency tree": (mm.GrammarParser(max_iter=3), (trees, trees), trees[:1]),
        "dependency tree": (mm.DependencyParser(max_iter=3), (tagged, heads), tagged[:1]),
        "set of labels": (
            mm.MultilabelClassifier(max_iter=3), (X, [{int(k), 3} for k in y]), X[:1]
        ),
        "ordered classes": (mm.OrdinalClassifier(max_iter=3), (X, y), X[:1]),
        "through a kernel": (
            mm.KernelStructuredSVM(mm.structures.Multiclass(), max_iter=3), (X, y), X[:1]
        ),
    }  # fmt: skip
    fitted = {name: (model.fit(*data), one) for name, (model, data, one) in models.items()}
    return {name: partial(model.predict, one) for name, (model, one) in fitted.items()}


def measure(options: argparse.Namespace) -> Report:
    warnings.simplefilter("ignore")  # nothing is trained to the end
    seconds = 0.05 if options.quick else 2.0
    rows, bars = [], {}
    for name, shape in ROWS.items():
        found = bars[name] = least(linear(*shape), seconds)
        ratio = found["ours"] / found["LinearSVC"]
        rows.append(
            Row(name, "<= 1 x LinearSVC", f"{found['ours']:.1f} us, {ratio:.2f} x",
                f"{found['LinearSVC']:.0f} us", met=ratio <= 1.0)
        )  # fmt: skip
    X, y = sentences()
    tagger, peer = mm.SequenceTagger(max_iter=3).fit(X, y), crfsuite(X, y)
    tokens = [token for sentence in X for token in sentence]
    for name, (length, bar) in SENTENCES.items():
        one = tokens[:length]
        works: dict[str, Callable[[], Any]] = {"ours": partial(tagger.predict, [one])}
        if peer is not None:
            import pycrfsuite

            items = pycrfsuite.ItemSequence(one)
            works["crfsuite"] = partial(peer.tag, one)
            works["crfsuite, prepared"] = partial(peer.tag, items)
        found = bars[name] = least(works, seconds)
        shown = ", ".join(
            f"{value:.1f} us ({who})" for who, value in found.items() if who != "ours"
        )
        rows.append(
            Row(name, f"<= {bar:g} us", f"{found['ours']:.1f} us", shown, met=found["ours"] <= bar)
        )
    for name, work in others().items():
        bars[name] = least({"ours": work}, seconds / 4)
        rows.append(Row(name, "", f"{bars[name]['ours']:.0f} us"))
    report = Report(rows, details={"microseconds": bars})
    report.panels["Microseconds of one answer"] = Bars(bars, "microseconds", "log")
    return report


if __name__ == "__main__":
    run(parser(__doc__), measure)

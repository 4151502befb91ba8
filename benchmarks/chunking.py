"""Chunking CoNLL-2000: crfsuite's best F1 in a third of its time, with less memory than it takes.

Words and parts of speech in a window, as feature dictionaries made beforehand, the same for all.
Every training is a fresh process: seconds from dictionaries to the model, F1 of the test
sentences counted as conlleval does, tokens tagged in a second, peak memory. Ours goes through its
tolerances, from loose to tight, until it has reached the F1 of every peer; against each peer
counts the first that reaches its F1. Vowpal Wabbit's search gets its text file made beforehand.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import child, parser, run, say
from benchmarks.memory import peak
from benchmarks.reporting import Report, Row
from maxmargin.data import Sentence
from maxmargin.report.scores import chunk_scores

Labels = Sequence[Sequence[str]]
Features = list[list[dict[str, str]]]

OURS, LBFGS, PERCEPTRON, WABBIT = "ours", "crfsuite lbfgs", "crfsuite ap", "Vowpal Wabbit"
MODULES = {LBFGS: "pycrfsuite", PERCEPTRON: "pycrfsuite", WABBIT: "vowpalwabbit"}
PACKAGES = {"pycrfsuite": "python-crfsuite", "vowpalwabbit": "vowpalwabbit"}

TOLERANCES = (0.9, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.01, 0.001)
ITERATIONS = {LBFGS: (50, 100), PERCEPTRON: (20, 100), WABBIT: (5,)}
"""Iterations or passes of the peers; the second is what they were measured with before."""

C = 0.1
FASTER = {LBFGS: 3.0, PERCEPTRON: 3.0, WABBIT: 1.0}
PREDICTS_FASTER = 3.0


# F1 as conlleval counts it


def f1(truths: Labels, guesses: Labels) -> float:
    """Harmonic mean of precision and recall of the chunks."""
    return chunk_scores(truths, guesses)[-1].f1


def check_f1() -> None:
    """Cases counted by hand by the rules of conlleval."""
    cases = (
        ("B-NP I-NP O B-VP", "B-NP O O I-VP", 2 * 1 / (2 + 2)),  # an I- after O starts a chunk
        ("B-NP B-NP", "B-NP I-NP", 0.0),
        ("I-NP I-VP I-VP", "B-NP B-VP I-VP", 1.0),  # and so does one of another kind
        ("B-NP I-NP I-NP", "B-NP I-NP O", 0.0),
        ("O O", "O B-PP", 0.0),
        ("B-PP O B-NP I-NP", "B-PP B-PP B-NP I-NP", 2 * 2 / (2 + 3)),
    )
    for truth, guess, wanted in cases:
        assert abs(f1([truth.split()], [guess.split()]) - wanted) < 1e-12, (truth, guess)


# Features


def features(sentence: Sentence) -> list[dict[str, str]]:
    """Words at -2..2 and pairs of them, parts of speech at -2..2 and their pairs and triples."""
    outside = ("_", "_", "_")
    around = [outside, outside, *sentence, outside, outside]
    result = []
    for i in range(2, len(around) - 2):
        words, tags = zip(*(token[:2] for token in around[i - 2 : i + 3]), strict=True)
        found = {f"w{d}": word for d, word in zip(range(-2, 3), words, strict=True)}
        found |= {f"p{d}": tag for d, tag in zip(range(-2, 3), tags, strict=True)}
        found |= {f"w{d}w{d + 1}": f"{words[d + 2]}|{words[d + 3]}" for d in (-1, 0)}
        found |= {f"p{d}p{d + 1}": "|".join(tags[d + 2 : d + 4]) for d in range(-2, 2)}
        found |= {f"p{d}..p{d + 2}": "|".join(tags[d + 2 : d + 5]) for d in range(-2, 1)}
        result.append(found)
    return result


# Trainers, each inside a process of its own


class Clock:
    """Seconds of the parts of a work, on both clocks."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def __call__(self, what: str, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        answer = work()
        self.seconds[what] = time.perf_counter() - wall
        self.cpu_seconds[what] = time.process_time() - cpu
        return answer


def train_ours(
    setting: float, X: Features, y: Labels, X_test: Features, clock: Clock
) -> tuple[Labels, float]:
    from maxmargin import SequenceTagger

    warnings.simplefilter("ignore")  # of a warming-up that does not converge
    SequenceTagger(max_iter=2).fit(X[:20], y[:20]).predict(X_test[:20])  # loads what is compiled
    model = clock("train", lambda: SequenceTagger(C, tol=setting).fit(X, y))
    top = peak()
    found = clock("predict", lambda: model.predict(X_test))
    rows, ends = model.vocabulary_.rows(X_test, grow=False)
    twin = copy(model)  # the same model, for matrices
    del twin.vocabulary_
    clock("predict, prepared", lambda: twin.predict(rows, lengths=np.diff(ends)))
    return [labels.tolist() for labels in found], top


def train_crfsuite(
    who: str, setting: float, X: Features, y: Labels, X_test: Features, clock: Clock
) -> tuple[Labels, float]:
    import pycrfsuite  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "model"))

        def train() -> None:
            options = {"max_iterations": int(setting)}
            trainer = pycrfsuite.Trainer(algorithm=who.split()[1], params=options, verbose=False)
            for sentence, labels in zip(X, y, strict=True):
                trainer.append(pycrfsuite.ItemSequence(sentence), labels)
            trainer.train(file)

        clock("train", train)
        top = peak()
        tagger = pycrfsuite.Tagger()
        tagger.open(file)
        found = clock("predict", lambda: [tagger.tag(sentence) for sentence in X_test])
        items = [pycrfsuite.ItemSequence(sentence) for sentence in X_test]
        clock("predict, prepared", lambda: [tagger.tag(item) for item in items])
    return found, top


def train_wabbit(
    setting: float, X: Features, y: Labels, X_test: Features, clock: Clock
) -> tuple[Labels, float]:
    from vowpalwabbit import Workspace  # type: ignore[import-untyped]

    classes = sorted({label for labels in y for label in labels})
    numbers = {label: number for number, label in enumerate(classes, start=1)}
    with tempfile.TemporaryDirectory() as folder:
        data, test, model, cache, answers = (
            str(Path(folder, name)) for name in ("train", "test", "model", "cache", "answers")
        )
        write = lambda: Path(data).write_text(wabbit_text(X, y, numbers))  # noqa: E731
        clock("write", write)
        call = f"-d {data} -k --cache_file {cache} -f {model} --passes {int(setting)} -b 24 "
        call += f"--search_task sequence --search {len(classes)} --search_rollout none "
        call += "--holdout_off --quiet"
        clock("train", lambda: Workspace(arg_list=call.split()).finish())
        top = peak()

        def predict(prepared: bool) -> None:
            if not prepared:
                no_labels = [[classes[0]] * len(sentence) for sentence in X_test]
                Path(test).write_text(wabbit_text(X_test, no_labels, numbers))
            Workspace(arg_list=f"-t -d {test} -i {model} -p {answers} --quiet".split()).finish()

        clock("predict", lambda: predict(prepared=False))
        clock("predict, prepared", lambda: predict(prepared=True))
        lines = Path(answers).read_text().splitlines()
    found = [[classes[int(number) - 1] for number in line.split()] for line in lines]
    return [labels for labels in found if labels], top


def wabbit_text(X: Features, y: Labels, numbers: dict[str, int]) -> str:
    """Sentences as Vowpal Wabbit reads them: a line for each word, an empty one after the last."""
    special = str.maketrans({":": "<colon>", "|": "<bar>", " ": "_"})

    def line(found: dict[str, str], label: str) -> str:
        names = (f"{key}={value}".translate(special) for key, value in found.items())
        return f"{numbers[label]} |f {' '.join(names)}\n"

    return "".join(
        text
        for sentence, labels in zip(X, y, strict=True)
        for text in (*map(line, sentence, labels), "\n")
    )


def work(who: str, setting: float, file: str) -> dict[str, Any]:
    """Inside the fresh process: make dictionaries, train, tag, count."""
    (X, y), (X_test, y_test) = (
        ([features(one) for one in part], [[token[2] for token in one] for one in part])
        for part in json.loads(Path(file).read_text())
    )
    peaks = {"prepared": peak()}
    clock = Clock()
    if who == OURS:
        guesses, peaks["trained"] = train_ours(setting, X, y, X_test, clock)
    elif who == WABBIT:
        guesses, peaks["trained"] = train_wabbit(setting, X, y, X_test, clock)
    else:
        guesses, peaks["trained"] = train_crfsuite(who, setting, X, y, X_test, clock)
    return {
        "setting": setting,
        "f1": f1(y_test, guesses),
        "peaks": peaks,
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu_seconds,
        "test_tokens": sum(map(len, y_test)),
    }


# The comparison


def measure(options: argparse.Namespace) -> Report:
    check_f1()
    from benchmarks.sequences import corpus  # not above: the peers' processes shall not import it

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sentences.json")
        data = corpus("conll2000", options.quick)
        file.write_text(json.dumps([data.train[: options.sentences], data.test]))

        def trained(who: str, setting: float) -> dict[str, Any]:
            call = ["-m", "benchmarks.chunking", "--child", who, str(setting), str(file)]
            result: dict[str, Any] = child(call)
            seconds = result["seconds"]["train"]
            say(f"{who}, {setting:g}: F1 {result['f1']:.4f}, {seconds:.3g} s, {result['peaks']}")
            return result

        peers = {
            who: [trained(who, setting) for setting in settings[-1 if options.quick else 0 :]]
            for who, settings in ITERATIONS.items()
            if installed(who)
        }
        target = max((one["f1"] for each in peers.values() for one in each), default=0.0)
        ours = []
        for tolerance in TOLERANCES[:: 4 if options.quick else 1]:
            ours.append(trained(OURS, tolerance))
            if ours[-1]["f1"] >= target:
                break
        everyone = {OURS: ours, **peers}
        for _ in range(options.repeats - 1):  # taking turns
            for who, each in everyone.items():
                for i, one in enumerate(each):
                    again = trained(who, one["setting"])
                    each[i] = min(one, again, key=lambda run: run["seconds"]["train"])
    rows = [row for who, each in peers.items() for row in against(who, each, ours)]
    if not peers:
        rows = [Row("ours", "", summary(ours[-1], "tol"), "no peer installed")]
    return Report(rows, everyone)


def installed(who: str) -> bool:
    module = MODULES[who]
    found = importlib.util.find_spec(module) is not None
    if not found:
        say(f"{who} not installed: `pip install {PACKAGES[module]}`; its part is skipped")
    return found


def summary(one: dict[str, Any], knob: str) -> str:
    return f"F1 {one['f1']:.4f} in {one['seconds']['train']:.3g} s, {knob} {one['setting']:g}"


def against(who: str, theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[Row]:
    """F1 and training time beside each run of a peer; the rest beside the one of the best F1."""
    rows = []
    knob = "passes" if who == WABBIT else "iterations"
    bar = FASTER[who]
    for peers in theirs:
        first = next((one for one in ours if one["f1"] >= peers["f1"]), None)
        text = summary(peers, knob)
        what = f"{who} {peers['setting']:g}, time to its F1"
        if first is None:
            best = max(ours, key=lambda one: one["f1"])
            rows.append(Row(what, f">= {bar:g}x", summary(best, "tol"), text, met=False))
            continue
        ratio = peers["seconds"]["train"] / first["seconds"]["train"]
        reached = f"{ratio:.2f}x ({summary(first, 'tol')})"
        rows.append(Row(what, f">= {bar:g}x", reached, text, met=ratio >= bar))
    best = max(theirs, key=lambda one: one["f1"])
    mine = next((one for one in ours if one["f1"] >= best["f1"]), ours[-1])
    f1_bar = "higher" if who == WABBIT else ">= peer's"
    better = mine["f1"] > best["f1"] if who == WABBIT else mine["f1"] >= best["f1"]
    rows.append(Row(f"{who}, best F1", f1_bar, f"{mine['f1']:.4f}", f"{best['f1']:.4f}", better))
    promised = who != WABBIT
    for part, label in (("predict", "dictionaries"), ("predict, prepared", "prepared features")):
        own, other = (one["test_tokens"] / one["seconds"][part] for one in (mine, best))
        has_bar = promised and part == "predict"
        rows.append(
            Row(
                f"{who}, tokens/s from {label}",
                f">= {PREDICTS_FASTER:g}x" if has_bar else "",
                f"{own / other:.2f}x ({own:,.0f})",
                f"{other:,.0f}",
                met=own / other >= PREDICTS_FASTER if has_bar else None,
            )
        )
    own, other = (one["peaks"] for one in (mine, best))
    rows.append(
        Row(
            f"{who}, peak memory",
            "< peer's" if promised else "",
            _megabytes(own),
            _megabytes(other),
            met=own["trained"] < other["trained"] if promised else None,
        )
    )
    return rows


def _megabytes(peaks: dict[str, float]) -> str:
    return f"{peaks['trained']:.0f} MB ({peaks['prepared']:.0f} before training)"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        worker, setting, file = sys.argv[2:]
        print(json.dumps(work(worker, float(setting), file)))
    else:
        arguments = parser(__doc__, repeats=1)
        arguments.add_argument(
            "--sentences", type=int, default=10**6, help="train on the first so many only"
        )
        run(arguments, measure)

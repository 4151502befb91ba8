"""Chunking CoNLL-2000 beside crfsuite, Vowpal Wabbit and svm_hmm.

8,936 sentences to train on and 2,012 to test. Words and parts of speech in a window, as feature
dictionaries made beforehand, the same for all. Every training is a fresh process on one thread:
seconds from dictionaries to the model, F1 of the test sentences counted as conlleval does, tokens
tagged in a second, peak memory of the process, the dictionaries included. Ours, at C = 0.1, goes
through its tolerances from loose to tight until it has reached the F1 of every peer; against each
peer counts the first that reaches its F1. The peers take as many iterations as gave them their
best F1 of those that `--thorough` tries. Then all train again in turns; the least time counts, and
all are shown.

Vowpal Wabbit's oracle call gets its text file made beforehand, its time to write it is not counted.
svm_hmm is no package: it runs, at the same C, if `SVM_HMM_LEARN` names its program.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import child, parser, run, say, span
from benchmarks.datasets import Sentence
from benchmarks.memory import peak
from benchmarks.reporting import Bars, Panel, Report, Row
from benchmarks.tagger_peers import (
    KNOBS,
    LBFGS,
    OURS,
    PERCEPTRON,
    SVM_HMM,
    WABBIT,
    Clock,
    Labels,
    Task,
    installed,
    missing,
    train,
)

Found = dict[str, Any]
"""What came out of a training, with the seconds of all its repetitions."""

TOLERANCES: tuple[float, ...] = (0.9, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.01, 0.001)
SETTINGS: dict[str, tuple[float, ...]] = {
    LBFGS: (100,), PERCEPTRON: (20,), WABBIT: (5,), SVM_HMM: (0.5,)
}  # fmt: skip
"""Iterations, passes or precision of the peers: those of the best F1."""
THOROUGH = {LBFGS: (50, 100, 200), PERCEPTRON: (20, 50, 100), WABBIT: (5, 10), SVM_HMM: (0.5, 0.1)}

C = 0.1
FASTER = {LBFGS: 3.0, PERCEPTRON: 3.0, WABBIT: 1.0, SVM_HMM: 3.0}
PREDICTS_FASTER = 3.0
PROMISED = (LBFGS, PERCEPTRON)
"""Peers beside which speed of tagging and memory have a bar."""


# F1 as conlleval counts it


def f1(truths: Labels, guesses: Labels) -> float:
    """Harmonic mean of precision and recall of the chunks."""
    from maxmargin.report.answers import chunk_scores  # not above, for the sake of peers' memory

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


# One training, inside a process of its own


def work(who: str, setting: float, file: str) -> Found:
    """Make dictionaries, train, tag, count."""
    (X, y), (X_test, y_test) = (
        ([features(one) for one in part], [[token[2] for token in one] for one in part])
        for part in json.loads(Path(file).read_text())
    )
    before = peak()
    clock = Clock()
    found = train(who, setting, Task(X, y, X_test, C), clock)
    return {
        "setting": setting,
        "f1": f1(y_test, found.tags),
        "peaks": {"prepared": before, "loaded": found.loaded, "trained": found.trained},
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu_seconds,
        "test_tokens": sum(map(len, y_test)),
    }


# The comparison


def measure(options: argparse.Namespace) -> Report:
    check_f1()
    tolerances = TOLERANCES
    if options.quick:
        options.repeats, tolerances = 1, TOLERANCES[4:5]
    from benchmarks.sequences import corpus  # not above: the peers' processes shall not import it

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sentences.json")
        data = corpus("conll2000", options.quick)
        file.write_text(json.dumps([data.train[: options.sentences], data.test]))

        def trained(who: str, setting: float) -> Found:
            call = ["-m", "benchmarks.chunking", "--child", who, str(setting), str(file)]
            result: Found = child(call)
            seconds = result["seconds"]["train"]
            say(f"{who}, {setting:g}: F1 {result['f1']:.4f}, {seconds:.3g} s, {result['peaks']}")
            return result | {"train_seconds": [seconds]}

        settings = THOROUGH if options.thorough else SETTINGS
        peers = {
            who: [trained(who, setting) for setting in each]
            for who, each in settings.items()
            if installed(who)
        }
        target = max((one["f1"] for each in peers.values() for one in each), default=0.0)
        ours = []
        for tolerance in tolerances:
            ours.append(trained(OURS, tolerance))
            if ours[-1]["f1"] >= target:
                break
        everyone = {OURS: ours, **peers}
        for _ in range(options.repeats - 1):  # taking turns
            for who, each in everyone.items():
                for i, one in enumerate(each):
                    each[i] = best_of(one, trained(who, one["setting"]))
    report = Report(rows=rows(peers, ours), details=everyone, panels=panels(everyone))
    report.notes += notes(peers, ours)
    return report


def best_of(one: Found, again: Found) -> Found:
    """The faster of two trainings with the times of both."""
    best = min(one, again, key=lambda run: run["seconds"]["train"])
    return best | {"train_seconds": one["train_seconds"] + again["train_seconds"]}


def rows(peers: dict[str, list[Found]], ours: list[Found]) -> list[Row]:
    """Those of each peer, or one that says how to get it."""
    result = [Row("ours", "", summary(OURS, ours[-1]))]
    for who in SETTINGS:
        if who in peers:
            result += against(who, peers[who], ours)
        else:
            result.append(Row(f"{who}, time to its F1", f">= {FASTER[who]:g}x", "-", missing(who)))
    return result


def summary(who: str, one: Found) -> str:
    return f"F1 {one['f1']:.4f} in {span(one['train_seconds'])}, {KNOBS[who]} {one['setting']:g}"


def best_f1(found: list[Found]) -> Found:
    return max(found, key=lambda one: one["f1"])


def first_to(ours: list[Found], f1: float) -> Found | None:
    """The loosest of ours that is as good."""
    return next((one for one in ours if one["f1"] >= f1), None)


def against(who: str, theirs: list[Found], ours: list[Found]) -> list[Row]:
    """F1 and training time beside each run of a peer; the rest beside the one of the best F1."""
    result = []
    bar = FASTER[who]
    for one in theirs:
        first = first_to(ours, one["f1"])
        text = summary(who, one)
        what = f"{who} {one['setting']:g}, time to its F1"
        if first is None:
            result.append(Row(what, f">= {bar:g}x", summary(OURS, best_f1(ours)), text, met=False))
            continue
        ratio = one["seconds"]["train"] / first["seconds"]["train"]
        reached = f"{ratio:.2f}x ({summary(OURS, first)})"
        result.append(Row(what, f">= {bar:g}x", reached, text, met=ratio >= bar))
    best = best_f1(theirs)
    mine = first_to(ours, best["f1"]) or ours[-1]
    f1_bar = "higher" if who == WABBIT else ">= peer's"
    better = mine["f1"] > best["f1"] if who == WABBIT else mine["f1"] >= best["f1"]
    result.append(Row(f"{who}, best F1", f1_bar, f"{mine['f1']:.4f}", f"{best['f1']:.4f}", better))
    for part, label in (("predict", "dictionaries"), ("predict, prepared", "prepared features")):
        own, other = (one["test_tokens"] / one["seconds"][part] for one in (mine, best))
        has_bar = who in PROMISED and part == "predict"
        result.append(
            Row(
                f"{who}, tokens/s from {label}",
                f">= {PREDICTS_FASTER:g}x" if has_bar else "",
                f"{own / other:.2f}x ({own:,.0f})",
                f"{other:,.0f}",
                met=own / other >= PREDICTS_FASTER if has_bar else None,
            )
        )
    own, other = (one["peaks"] for one in (mine, best))
    has_bar = who in PROMISED
    result.append(
        Row(
            f"{who}, peak memory",
            "< peer's" if has_bar else "",
            _megabytes(own),
            _megabytes(other),
            met=own["trained"] < other["trained"] if has_bar else None,
        )
    )
    return result


def _megabytes(peaks: dict[str, float]) -> str:
    return f"{peaks['trained']:.0f} MB ({peaks['prepared']:.0f} before training)"


def notes(peers: dict[str, list[Found]], ours: list[Found]) -> list[str]:
    """Where the memory goes."""
    own = ours[-1]["peaks"]
    theirs = [best_f1(peers[who])["peaks"]["trained"] for who in PROMISED if who in peers]
    if not theirs or own["trained"] < min(theirs):
        return []
    return [
        f"Memory is missed. Of the {own['trained'] - own['prepared']:.0f} MB that ours takes above "
        f"the dictionaries, {own['loaded'] - own['prepared']:.0f} are there before any training: "
        "scikit-learn, numba and compiled code. The rest is the matrix and its names, the weights, "
        "and the cutting planes of the sentences."
    ]


def panels(everyone: dict[str, list[Found]]) -> dict[str, Panel | Bars]:
    """F1 against time, and memory of the best."""
    return {
        "F1 against training time": Panel(
            {
                who: (
                    [one["seconds"]["train"] for one in each],
                    [one["f1"] for one in each],
                )
                for who, each in everyone.items()
            },
            "seconds",
            "F1 of test sentences",
            ("log", "linear"),
        ),
        "tagging, from dictionaries": Bars(
            {
                who: {"tokens": best_f1(each)["test_tokens"] / best_f1(each)["seconds"]["predict"]}
                for who, each in everyone.items()
            },
            "tokens/s",
        ),
        "peak memory": Bars(
            {
                who: {
                    "before training": best_f1(each)["peaks"]["prepared"],
                    "after": best_f1(each)["peaks"]["trained"],
                }
                for who, each in everyone.items()
            },
            "MB",
        ),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        worker, setting, file = sys.argv[2:]
        print(json.dumps(work(worker, float(setting), file)))
    else:
        arguments = parser(__doc__, repeats=2)
        arguments.add_argument(
            "--sentences", type=int, default=10**6, help="train on the first so many only"
        )
        arguments.add_argument(
            "--thorough", action="store_true", help="more iterations of the peers, too"
        )
        run(arguments, measure)

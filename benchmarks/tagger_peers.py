"""Who trains taggers beside us: python-crfsuite, Vowpal Wabbit, and svm_hmm if it is pointed to.

All get the same feature dictionaries. Each module is imported where it is used, so that a process
that trains one peer has the memory of that one alone.
"""

import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import say
from benchmarks.memory import MEGABYTE, peak

Labels = Sequence[Sequence[str]]
Features = list[list[dict[str, str]]]

OURS, LBFGS, PERCEPTRON = "ours", "crfsuite lbfgs", "crfsuite ap"
WABBIT, SVM_HMM = "Vowpal Wabbit", "svm_hmm"

KNOBS = {
    OURS: "tol",
    LBFGS: "iterations",
    PERCEPTRON: "iterations",
    WABBIT: "passes",
    SVM_HMM: "-e",
}
MODULES = {LBFGS: "pycrfsuite", PERCEPTRON: "pycrfsuite", WABBIT: "vowpalwabbit"}
PACKAGES = {"pycrfsuite": "python-crfsuite", "vowpalwabbit": "vowpalwabbit"}

SVM_HMM_VARIABLE = "SVM_HMM_LEARN"
"""Names svm_hmm's training program, if it is not on the path; the one that tags is beside it."""


def svm_hmm_program() -> str | None:
    """Where svm_hmm's training program is; None if it is not there."""
    return shutil.which(os.environ.get(SVM_HMM_VARIABLE, "svm_hmm_learn"))


def missing(who: str) -> str:
    """What to do to have a peer; empty if it is there."""
    if who == SVM_HMM:
        return "" if svm_hmm_program() else f"not installed: set {SVM_HMM_VARIABLE} to its path"
    if who == OURS or importlib.util.find_spec(MODULES[who]) is not None:
        return ""
    return f"not installed: pip install {PACKAGES[MODULES[who]]}"


def installed(who: str) -> bool:
    """Whether a peer is there; says so if not."""
    reason = missing(who)
    if reason:
        say(f"{who} {reason}; its part is skipped")
    return not reason


class Clock:
    """Seconds of the parts of a work, on both clocks; those of child processes count."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def __call__(self, what: str, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), _cpu_seconds()
        answer = work()
        self.seconds[what] = time.perf_counter() - wall
        self.cpu_seconds[what] = _cpu_seconds() - cpu
        return answer


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Task(NamedTuple):
    """What to train on, what to tag, and the C of those that minimise our objective."""

    X: Features
    y: Labels
    X_test: Features
    C: float


class Tagged(NamedTuple):
    """Tags of the test sentences, and the peak memory in MB with the trainer loaded and trained."""

    tags: Labels
    loaded: float
    trained: float


def train(who: str, setting: float, task: Task, clock: Clock) -> Tagged:
    """Train and tag, inside a process of its own; seconds go to the clock."""
    if who == OURS:
        return _ours(setting, task, clock)
    if who == WABBIT:
        return _wabbit(setting, task, clock)
    if who == SVM_HMM:
        return _svm_hmm(setting, task, clock)
    return _crfsuite(who, setting, task, clock)


def _ours(setting: float, task: Task, clock: Clock) -> Tagged:
    from maxmargin import SequenceTagger

    warnings.simplefilter("ignore")  # of a warming-up that does not converge
    few = task.X[:20], task.y[:20]
    SequenceTagger(max_iter=2).fit(*few).predict(few[0])  # loads what is compiled
    loaded = peak()
    model = clock("train", lambda: SequenceTagger(task.C, tol=setting).fit(task.X, task.y))
    top = peak()
    found = clock("predict", lambda: model.predict(task.X_test))
    rows, ends = model.vocabulary_.matrix(task.X_test, grow=False)
    twin = copy(model)  # the same model, for matrices
    del twin.vocabulary_
    clock("predict, prepared", lambda: twin.predict(rows, lengths=np.diff(ends)))
    return Tagged([labels.tolist() for labels in found], loaded, top)


def _crfsuite(who: str, setting: float, task: Task, clock: Clock) -> Tagged:
    import pycrfsuite  # type: ignore[import-untyped]

    loaded = peak()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "model"))

        def train() -> None:
            options = {"max_iterations": int(setting)}
            trainer = pycrfsuite.Trainer(algorithm=who.split()[1], params=options, verbose=False)
            for sentence, labels in zip(task.X, task.y, strict=True):
                trainer.append(pycrfsuite.ItemSequence(sentence), labels)
            trainer.train(file)

        clock("train", train)
        top = peak()
        tagger = pycrfsuite.Tagger()
        tagger.open(file)
        found = clock("predict", lambda: [tagger.tag(sentence) for sentence in task.X_test])
        items = [pycrfsuite.ItemSequence(sentence) for sentence in task.X_test]
        clock("predict, prepared", lambda: [tagger.tag(item) for item in items])
    return Tagged(found, loaded, top)


def _wabbit(setting: float, task: Task, clock: Clock) -> Tagged:
    from vowpalwabbit import Workspace  # type: ignore[import-untyped]

    loaded = peak()
    classes = sorted({label for labels in task.y for label in labels})
    numbers = {label: number for number, label in enumerate(classes, start=1)}
    with tempfile.TemporaryDirectory() as folder:
        data, test, model, cache, answers = (
            str(Path(folder, name)) for name in ("train", "test", "model", "cache", "answers")
        )
        clock("write", lambda: Path(data).write_text(_wabbit_text(task.X, task.y, numbers)))
        call = f"-d {data} -k --cache_file {cache} -f {model} --passes {int(setting)} -b 24 "
        call += f"--search_task sequence --search {len(classes)} --search_rollout none "
        call += "--holdout_off --quiet"
        clock("train", lambda: Workspace(arg_list=call.split()).finish())
        top = peak()

        def predict(prepared: bool) -> None:
            if not prepared:
                no_labels = [[classes[0]] * len(sentence) for sentence in task.X_test]
                Path(test).write_text(_wabbit_text(task.X_test, no_labels, numbers))
            Workspace(arg_list=f"-t -d {test} -i {model} -p {answers} --quiet".split()).finish()

        clock("predict", lambda: predict(prepared=False))
        clock("predict, prepared", lambda: predict(prepared=True))
        lines = Path(answers).read_text().splitlines()
    found = [[classes[int(number) - 1] for number in line.split()] for line in lines]
    return Tagged([labels for labels in found if labels], loaded, top)


def _wabbit_text(X: Features, y: Labels, numbers: dict[str, int]) -> str:
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


def _svm_hmm(setting: float, task: Task, clock: Clock) -> Tagged:
    from maxmargin.structures.chain.vocabulary import Vocabulary

    vocabulary = Vocabulary()
    rows, ends = vocabulary.matrix(task.X, grow=True)
    classes, y = np.unique(np.concatenate([list(one) for one in task.y]), return_inverse=True)
    test_rows, test_ends = vocabulary.matrix(task.X_test, grow=False)
    with tempfile.TemporaryDirectory() as folder:
        files = SvmHmmFiles(Path(folder))
        clock("write", lambda: files.write("train", rows, y, np.diff(ends)))
        clock("train", lambda: files.train(task.C * len(task.y), setting))
        top = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / MEGABYTE
        nothing = np.zeros(test_rows.shape[0], dtype=np.int64)
        files.write("test", test_rows, nothing, np.diff(test_ends))
        tags = clock("predict", files.tag)
        clock("predict, prepared", files.tag)
    found = [classes[part].tolist() for part in np.split(tags, test_ends[1:-1])]
    return Tagged(found, 0.0, top)


class SvmHmmFiles:
    """A folder with svm_hmm's files in it.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, X: Any, y: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """CSR rows with their classes, from zero, and the lengths of the sequences."""
        numbers = np.repeat(np.arange(1, len(lengths) + 1), lengths)
        with Path(self.folder, name).open("w") as file:
            for row, (number, label) in enumerate(zip(numbers, y, strict=True)):
                part = slice(X.indptr[row], X.indptr[row + 1])
                columns, values = X.indices[part], X.data[part]
                order = np.argsort(columns)  # svm_hmm wants them to increase
                pairs = zip(columns[order], values[order], strict=True)
                features = " ".join(f"{column + 1}:{value:.9g}" for column, value in pairs)
                file.write(f"{label + 1} qid:{number} {features}\n")

    def train(self, C: float, e: float) -> None:
        """To a precision; this C multiplies the mean of the slacks."""
        self._call("learn", "-c", f"{C:g}", "-e", f"{e:g}", "train", "model")

    def tag(self) -> NDArray[np.int64]:
        """Classes, from zero, of the positions in the test file."""
        self._call("classify", "test", "model", "tags")
        return np.loadtxt(self.folder / "tags", dtype=np.int64, ndmin=1) - 1

    def _call(self, what: str, *arguments: str) -> None:
        learn = svm_hmm_program()
        assert learn is not None
        program = Path(learn).with_name(Path(learn).name.replace("learn", what))
        command = [str(program), *arguments]
        subprocess.run(command, cwd=self.folder, check=True, stdout=sys.stderr)

"""What the benchmarks of label sets, taxonomies and ordered classes share: data, choice of C."""

import gzip
import io
import lzma
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Timed, say, timed

GROUPS = (
    "alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware", "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles",
    "rec.sport.baseball", "rec.sport.hockey", "sci.crypt", "sci.electronics", "sci.med",
    "sci.space", "soc.religion.christian", "talk.politics.guns", "talk.politics.mideast",
    "talk.politics.misc", "talk.religion.misc",
)  # fmt: skip
"""The newsgroups, in the order of their class numbers."""


class Labelled(NamedTuple):
    """Rows to train on and to test on, with their labels."""

    X_train: Any
    y_train: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]

    def held_out(self, seed: int = 0) -> "Labelled":
        """A random quarter of the training rows in the place of the test rows."""
        order = np.random.RandomState(seed).permutation(len(self.y_train))
        test, train = np.split(order, [len(order) // 4])
        X, y = self.X_train, self.y_train
        return Labelled(X[train], y[train], X[test], y[test])


class Choice(NamedTuple):
    """A model trained with the C that did best on rows held out."""

    C: float
    fit: Timed

    @property
    def model(self) -> Any:
        """The model."""
        return self.fit.answer


def choose(
    name: str,
    make: Callable[[float], Any],
    Cs: Sequence[float],
    data: Labelled,
    error: Callable[[Any, Any], float],
) -> Choice:
    """The model of the C with the least error on held-out training rows, trained on all rows."""
    part = data.held_out()

    def trial(C: float) -> float:
        model = make(C).fit(part.X_train, part.y_train)
        return error(part.y_test, model.predict(part.X_test))

    errors = {C: trial(C) for C in Cs} if len(Cs) > 1 else {Cs[0]: 0.0}
    C = min(errors, key=errors.__getitem__)
    fit = timed(lambda: make(C).fit(data.X_train, data.y_train))
    say(f"{name}: C = {C:g}, {fit.seconds:.3g} s")
    return Choice(C, fit)


def _text(name: str, file: str) -> bytes:
    path = Path(os.environ["MAXMARGIN_DATA"], name, file)
    body = path.read_bytes()
    return gzip.decompress(body) if path.suffix == ".gz" else lzma.decompress(body)


def scene() -> Labelled:
    """Photographs with six labels."""
    data = np.load(Path(os.environ["MAXMARGIN_DATA"], "scene", "scene.npz"))
    return Labelled(*(data[part] for part in ("X_train", "y_train", "X_test", "y_test")))


def yeast() -> Labelled:
    """Genes with fourteen labels."""
    from sklearn.datasets import load_svmlight_file

    parts: list[Any] = []
    for file in ("yeast_train.svm.xz", "yeast_test.svm.xz"):
        X, labels = load_svmlight_file(
            io.BytesIO(_text("yeast", file)), n_features=103, multilabel=True
        )
        Y = np.zeros((X.shape[0], 14), dtype=np.int32)
        for row, some in zip(Y, labels, strict=True):
            row[np.array(some, dtype=int)] = 1
        parts += [X.toarray(), Y]
    return Labelled(*parts)


def images(part: str) -> Labelled:
    """X-ray images with a class tree, part "A" or "D"; classes are paths. Features to [0, 1]."""
    parts: list[Any] = []
    for split in ("Train", "Test"):
        text = _text("hier-imclef07", f"ImCLEF07{part}_{split}.arff.xz").decode()
        lines = [line.rsplit(",", 1) for line in text.split("@DATA")[1].split()]
        parts.append(np.array([line.split(",") for line, _ in lines], dtype=np.float64))
        parts.append(np.array([path.split("@")[-1] for _, path in lines]))
    highest = parts[0].max(axis=0).clip(min=1.0)
    return Labelled(parts[0] / highest, parts[1], parts[2] / highest, parts[3])


def newsgroups() -> Labelled:
    """Posts, as tf-idf; classes are the names of the groups."""
    from benchmarks.datasets import load

    data, names = load("20news"), np.array(GROUPS)
    return Labelled(data.X_train, names[data.y_train], data.X_test, names[data.y_test])


def abalone() -> Labelled:
    """Shells and the number of their rings; features standardised on the training rows."""
    lines = [line.split(",") for line in _text("abalone", "abalone.data.gz").decode().split()]
    sexes = np.array([[line[0] == sex for sex in "MFI"] for line in lines], dtype=np.float64)
    measures = np.array([line[1:] for line in lines], dtype=np.float64)
    X, y = np.hstack([sexes, measures[:, :-1]]), measures[:, -1].astype(int)
    X = (X - X[:3133].mean(axis=0)) / X[:3133].std(axis=0)
    return Labelled(X[:3133], y[:3133], X[3133:], y[3133:])

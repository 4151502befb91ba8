"""Tasks of the command line; structures register theirs as `TASKS` in their ``task.py``.

All tasks are known to every command, and one of them is needed: readers are imported by the
methods that call them.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar

from maxmargin.data.csr_folder import META, CsrFolder
from maxmargin.data.libsvm import read_libsvm, whole_numbers
from maxmargin.data.sources import widened
from maxmargin.report.markup import plural

Path = str | PathLike[str]


@dataclass(frozen=True)
class Data:
    """Examples of a file, as the estimator takes them.

    `n_examples` are the terms of the objective, `size` describes them, `words` are what a reader
    sees of each, `groups` the queries of rankings, `originals` examples as in the file, for
    predictions.
    """

    X: Any
    y: Any
    n_examples: int
    size: str
    has_true_output: bool = True
    groups: Any = None
    words: Sequence[Any] | None = None
    originals: Sequence[Any] | None = None
    sample_weight: Any = None


@dataclass
class Task(ABC):
    """A file format and the estimator for it; its fields are stored with the model."""

    trained_on: str | None = field(default=None, kw_only=True)
    """Detected kind of the training file, if any, which options may have overridden."""

    name: ClassVar[str]
    """For the option `--task`."""

    format: ClassVar[str]
    """Of its files, for the option `--format`."""

    estimator_class: ClassVar[str]
    """Name in `maxmargin`."""

    also_reads: ClassVar[tuple[str, ...]] = ()
    """Further formats that a trained model reads: those of files without true outputs."""

    streams: ClassVar[bool] = False
    """Whether it can be trained on a file that does not fit in memory."""

    svmstruct_scale: ClassVar[float | None] = None
    """Loss of a mistake in the program of SVMstruct for such files, if there is one."""

    @classmethod
    def from_options(cls, **options: Any) -> "Task":
        """A task whose fields are set by options of the command line."""
        return cls(**options)

    @abstractmethod
    def read(self, path: Path, model: Any = None) -> Data:
        """Examples of a file, with the features of a model if it has been trained."""

    def stream(self, path: Path) -> Data:
        """The same as a source that is read in batches, if the task `streams`."""
        raise NotImplementedError

    def defaults(self) -> dict[str, Any]:
        """Parameters of the estimator whose default differs from that in Python."""
        return {}

    def fit(self, estimator: Any, data: Data) -> Any:
        """Train."""
        weight = {} if data.sample_weight is None else {"sample_weight": data.sample_weight}
        return estimator.fit(data.X, data.y, **weight)

    def feature_names(self, model: Any) -> list[str] | None:
        """Names of the columns, where the model has none."""
        return None

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        """Predictions, as lines of the output file."""
        return (str(answer) for answer in model.predict(data.X))


FIRST_INDEX = 1
"""Of files that are read in batches, and of folders converted from them."""


@dataclass
class Rows(Task):
    """Examples in LIBSVM files."""

    first_index: int | None = None
    """Of the features; None before training."""

    format = "libsvm"
    streams = True
    multilabel: ClassVar[bool] = False

    def read(self, path: Path, model: Any = None) -> Data:
        weight = None
        if is_csr_folder(path):
            stored = CsrFolder(path)
            X, y, self.first_index = stored.X, stored.y, FIRST_INDEX
        else:
            first = self.first_index or 0
            X, y, weight = read_libsvm(
                path, first_index=first, multilabel=self.multilabel, sample_weight=True
            )
        if self.first_index is None:
            # Another file may happen not to use an index 0 that this one uses.
            used = X.shape[1] and bool((X.indices == 0).any())
            self.first_index = 0 if used else 1
            X = X if used else X[:, 1:]
        X = fitting(X, model)
        size = counted(example=X.shape[0], feature=X.shape[1])
        if weight is not None:
            size += ", weights after cost:"
        return Data(X, self.targets(y), X.shape[0], size, sample_weight=weight)

    def stream(self, path: Path) -> Data:
        from maxmargin.data.opening import open_examples

        self.first_index = FIRST_INDEX
        return Data(open_examples(path), None, 0, "")

    def feature_names(self, model: Any) -> list[str]:
        first = FIRST_INDEX if self.first_index is None else self.first_index
        return numbered(model.n_features_in_, first)

    def targets(self, y: Any) -> Any:
        """Targets as the estimator takes them."""
        return y


class Classification(Rows):
    """A class for each example."""

    name = "classification"
    estimator_class = "LinearClassifier"
    svmstruct_scale = 100.0

    def fit(self, estimator: Any, data: Data) -> Any:
        super().fit(estimator, data)
        estimator.classes_ = whole_numbers(estimator.classes_)  # sources read labels as floats
        return estimator

    def targets(self, y: Any) -> Any:
        return whole_numbers(y)


class Regression(Rows):
    """A number for each example."""

    name = "regression"
    estimator_class = "LinearRegressor"

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        return (f"{value:.9g}" for value in model.predict(data.X).tolist())


def is_csr_folder(path: Path) -> bool:
    """Whether it was written by `maxmargin convert`."""
    return os.path.isfile(os.path.join(path, META))


def numbered(n: int, first: int = FIRST_INDEX) -> list[str]:
    """Features by their indices in the file."""
    return [f"feature {index}" for index in range(first, first + n)]


def fitting(X: Any, model: Any) -> Any:
    """Rows with as many columns as a model, if any, has: others have no weight."""
    if model is None:
        return X
    width = model.n_features_in_
    return widened(X, width) if X.shape[1] <= width else X[:, :width]


def counted(**counts: int) -> str:
    """How many there are of each: ``counted(tree=1, word=5) == '1 tree, 5 words'``."""
    return ", ".join(plural(n, what) for what, n in counts.items())

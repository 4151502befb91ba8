"""Rows of numbers in LIBSVM's format: classes and numbers as targets."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.cli.task import Data, Path, Task
from maxmargin.data.csr_folder import META, CsrFolder
from maxmargin.data.libsvm import read_libsvm
from maxmargin.data.sources import widened
from maxmargin.data.sources_opening import open_examples
from maxmargin.report.markup import plural

FIRST_INDEX = 1
"""Of files that are read in blocks, and of folders made from them."""


@dataclass
class Rows(Task):
    """Base of both.

    Parameters
    ----------
    first_index : int or None
        Index of the first feature; None until the training file has shown it.
    """

    first_index: int | None = None

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
        if model is not None:
            X = fitting(X, model.n_features_in_)
        size = f"{plural(X.shape[0], 'example')}, {plural(X.shape[1], 'feature')}"
        if weight is not None:
            size += ", weights after cost:"
        return Data(X, self.targets(y), X.shape[0], size, sample_weight=weight)

    def stream(self, path: Path) -> Data:
        self.first_index = FIRST_INDEX
        return Data(open_examples(path), None, 0, "")

    def feature_names(self, model: Any) -> list[str]:
        return numbered(
            model.n_features_in_, FIRST_INDEX if self.first_index is None else self.first_index
        )

    def targets(self, y: Any) -> Any:
        """Targets as the estimator takes them."""
        return y


class Classification(Rows):
    """A class for each row."""

    name = "classification"
    estimator_class = "LinearClassifier"
    svmstruct_scale = 100.0

    def fit(self, estimator: Any, data: Data) -> Any:
        super().fit(estimator, data)
        estimator.classes_ = whole_numbers(estimator.classes_)  # sources read labels as floats
        return estimator

    def targets(self, y: Any) -> Any:
        return whole_numbers(y)


class Multilabel(Rows):
    """Any number of labels for each row."""

    name = "multilabel"
    estimator_class = "MultilabelClassifier"
    streams = False
    multilabel = True

    def targets(self, y: Any) -> Any:
        whole = all(label == int(label) for labels in y for label in labels)
        return [{int(label) if whole else label for label in labels} for labels in y]

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        return (",".join(map(str, sorted(labels))) for labels in model.predict(data.X))


class Regression(Rows):
    """A number for each row."""

    name = "regression"
    estimator_class = "LinearRegressor"

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        return (f"{value:.9g}" for value in model.predict(data.X).tolist())


def is_csr_folder(path: Path) -> bool:
    """Whether it was written by `maxmargin convert`."""
    return os.path.isfile(os.path.join(path, META))


def whole_numbers(y: NDArray[Any]) -> NDArray[Any]:
    """Labels without a decimal point, if they have none."""
    if not np.issubdtype(y.dtype, np.floating):
        return y
    return y.astype(np.int64) if np.array_equal(y, np.round(y)) else y


def numbered(n: int, first: int = FIRST_INDEX) -> list[str]:
    """Features by the numbers that they have in the file."""
    return [f"feature {index}" for index in range(first, first + n)]


def fitting(X: Any, n_features: int) -> Any:
    """Rows with as many columns as a model has: features it has never seen have no weight."""
    return widened(X, n_features) if X.shape[1] <= n_features else X[:, :n_features]

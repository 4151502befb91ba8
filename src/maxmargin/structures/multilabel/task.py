"""Sets of labels on the command line: LIBSVM files with several labels a line."""

from collections.abc import Iterator
from typing import Any

from maxmargin.cli.task import Data, Rows


class Multilabel(Rows):
    """Any number of labels for each example."""

    name = "multilabel"
    estimator_class = "MultilabelClassifier"
    streams = False
    multilabel = True

    def targets(self, y: Any) -> Any:
        whole = all(label == int(label) for labels in y for label in labels)
        return [{int(label) if whole else label for label in labels} for labels in y]

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        return (",".join(map(str, sorted(labels))) for labels in model.predict(data.X))


TASKS = (Multilabel,)

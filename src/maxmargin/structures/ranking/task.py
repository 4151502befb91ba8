"""Documents of queries in LETOR's format."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.cli.task import Data, Path, Task, counted, fitting, numbered


@dataclass
class Ranking(Task):
    """An order of the documents of each query."""

    encoding: str | None = None

    name = "ranking"
    format = "letor"
    estimator_class = "Ranker"

    def read(self, path: Path, model: Any = None) -> Data:
        from maxmargin.structures.ranking.formats import read_letor

        X, y, groups = read_letor(path, encoding=self.encoding)
        X, n_queries = fitting(X, model), len(np.unique(groups))
        size = counted(query=n_queries, document=X.shape[0], feature=X.shape[1])
        return Data(X, y, n_queries, size, groups=groups)

    def fit(self, estimator: Any, data: Data) -> Any:
        return estimator.fit(data.X, data.y, data.groups)

    def feature_names(self, model: Any) -> list[str]:
        return numbered(model.n_features_in_)

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        return (f"{score:.9g}" for score in model.predict(data.X).tolist())


TASKS = (Ranking,)

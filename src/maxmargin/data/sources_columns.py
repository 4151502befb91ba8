"""Which columns of a table are the inputs and which is the target."""

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from maxmargin.data.sources import Examples

USUAL_TARGETS = ("y", "target", "label", "labels")
"""Names of the target's column that are understood without saying."""


class Columns(NamedTuple):
    """Names of columns.

    Parameters
    ----------
    features : str or list of str, default=None
        Column of inputs, or columns of numbers that make a row. None takes the only column of lists
        if there is one, else all columns of numbers.
    target : str, default=None
        Column of targets; None takes the one of `USUAL_TARGETS` that is there.
    """

    features: str | Sequence[str] | None = None
    target: str | None = None

    def chosen(self, kinds: Mapping[str, str]) -> tuple[list[str], str]:
        """Columns of the features, and of the target.

        Parameters
        ----------
        kinds : mapping
            For the name of each column "number", "list" or "other".
        """
        target = self._chosen_target(kinds)
        if self.features is not None:
            given = [self.features] if isinstance(self.features, str) else list(self.features)
            for name in given:
                self._check(name, kinds, "features")
            return given, target
        lists = [name for name, kind in kinds.items() if kind == "list" and name != target]
        numbers = [name for name, kind in kinds.items() if kind == "number" and name != target]
        others = [name for name in kinds if name != target]
        if len(lists) == 1:
            return lists, target
        if numbers:
            return numbers, target
        if len(others) == 1:
            return others, target
        raise ValueError(
            f"Which of the columns {_listed(kinds)} hold the inputs? Name them with features=."
        )

    def _chosen_target(self, kinds: Mapping[str, str]) -> str:
        if self.target is not None:
            self._check(self.target, kinds, "target")
            return self.target
        usual = [name for name in USUAL_TARGETS if name in kinds]
        if len(usual) != 1:
            raise ValueError(
                f"Which of the columns {_listed(kinds)} is the target? Name it with target=."
            )
        return usual[0]

    def _check(self, name: str, kinds: Mapping[str, str], option: str) -> None:
        if name not in kinds:
            raise ValueError(
                f"{option} names the column {name!r}, but there are only {_listed(kinds)}."
            )

    def of_items(self, items: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
        """Inputs and targets of examples that are dictionaries."""
        kinds = {name: _kind(value) for name, value in items[0].items()}
        features, target = self.chosen(kinds)
        x = [
            item[features[0]]
            if isinstance(self.features, str) or (len(features) == 1 and self.features is None)
            else np.array([item[name] for name in features], dtype=np.float64)
            for item in items
        ]
        return x, [item[target] for item in items]

    def of_frame(self, frame: Any) -> Examples:
        """Inputs and targets of a data frame of pandas."""
        kinds = {
            name: "number" if column.dtype.kind in "biuf" else "other"
            for name, column in frame.items()
        }
        features, target = self.chosen(kinds)
        y = frame[target].to_numpy()
        y = y.astype(str) if y.dtype.kind not in "biuf" else y
        if isinstance(self.features, str) and kinds[features[0]] == "other":
            return Examples(frame[features[0]].tolist(), y)
        for name in features:
            if kinds[name] != "number":
                raise ValueError(f"The column {name!r} of the features holds no numbers.")
        X = frame[features].to_numpy()
        return Examples(X if X.dtype.kind == "f" else X.astype(np.float64), y)


def _kind(value: Any) -> str:
    if isinstance(value, (Number, np.generic)) and not isinstance(value, str):
        return "number"
    if isinstance(value, (list, tuple, np.ndarray)) or hasattr(value, "__array__"):
        return "list"
    return "other"


def _listed(names: Any) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "")

"""Sources as streams of oracles."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import ProblemError
from maxmargin.core.python_oracle import make_oracle
from maxmargin.data.sources import Source, read_batches
from maxmargin.solvers.online import Batch, Stream


class SourceStream(Stream):
    """Examples of a source, each batch with its oracle.

    Parameters
    ----------
    source : Source
    make_oracle : callable
        Makes an `Oracle` of inputs, outputs and the C of each example.
    C : float
        Of each example.
    """

    def __init__(
        self, source: Source, make_oracle: Callable[[Any, Any, Floats], Oracle], C: float
    ) -> None:
        self.source, self.make_oracle, self.C = source, make_oracle, C
        self._width: int | None = None
        self._exact = True

    @classmethod
    def of(
        cls, problem: Any, source: Source, C: float, rescaling: str = "margin"
    ) -> "SourceStream":
        """The examples of `source` for a `Problem`."""
        return cls(source, lambda X, Y, each: make_oracle(problem, X, Y, each, rescaling), C)

    @property
    def content(self) -> Any:
        return self.source.fingerprint(), self.C, super().content

    def batches(self) -> Iterator[Batch]:
        for batch in read_batches(self.source):
            X, y = batch.examples
            with batch.located():
                oracle = self.make_oracle(X, y, np.full(len(y), float(self.C)))
            oracle.check_from(batch.first, self.checker)
            self.checker = oracle.checker
            self._exact &= oracle.exact
            width = oracle.n_features
            self._width = self._width or width
            if width != self._width:
                raise ProblemError(
                    f"The examples from {batch.first} on have {width} joint features, but those "
                    f"before have {self._width}: the features must be the same for all."
                )
            yield Batch(batch.first, oracle)

    @property
    def n_features(self) -> int:
        return self._width or super().n_features

    @property
    def exact(self) -> bool:
        """Whether oracle calls are exact, as far as examples were read."""
        return self._exact

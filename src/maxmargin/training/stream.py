"""Examples of a source as a stream."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import ProblemError
from maxmargin.core.python_oracle import make_oracle
from maxmargin.data.sources import Source
from maxmargin.solvers.stream import Batch, Stream

Floats = NDArray[np.float64]


class SourceStream(Stream):
    """Examples of a source, bound to a problem batch by batch.

    Parameters
    ----------
    source : Source
    make_oracle : callable
        Makes an `Oracle` of inputs, outputs and their costs.
    C : float
        Cost of each example.
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
        return self.source.fingerprint(), self.C, next(self.batches()).oracle.content

    def batches(self) -> Iterator[Batch]:
        first = 0
        for X, y in self.source.batches():
            n = len(y)
            if not n:
                continue
            oracle = self.make_oracle(X, y, np.full(n, float(self.C)))
            oracle.check_from(first, self.checker)
            self.checker = oracle.checker
            self._exact &= oracle.exact
            width = oracle.n_features
            self._width = self._width or width
            if width != self._width:
                raise ProblemError(
                    f"The examples from {first} on have {width} joint features, but those before "
                    f"have {self._width}: the features must be the same for all."
                )
            yield Batch(first, oracle)
            first += n
        if not first:
            raise ValueError("The source holds no examples: there is nothing to learn from.")

    @property
    def n_features(self) -> int:
        if self._width is None:
            next(self.batches())
        assert self._width is not None
        return self._width

    @property
    def exact(self) -> bool:
        """Whether the oracle always finds the most violated cut, as far as examples were read."""
        return self._exact

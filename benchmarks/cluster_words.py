"""The examples of the cluster's model: handwritten words, with an oracle call that takes its time.

In a module of their own, so that worker processes can import them.
"""

import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import maxmargin as mm
from benchmarks.sequences import letters
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.training.partitions import Partition
from maxmargin.training.workers import partition_oracle

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class Pause(NamedTuple):
    """What an oracle call takes longer than the compiled one.

    Parameters
    ----------
    seconds : float
    busy : bool
        Of the processor's time; else it waits, as for another service.
    """

    seconds: float
    busy: bool

    def take(self, n: int) -> None:
        """The time of so many oracle calls."""
        if not self.busy:
            time.sleep(n * self.seconds)
            return
        until = time.thread_time() + n * self.seconds
        while time.thread_time() < until:
            pass


class SlowOracle(Oracle):
    """The same examples, whose oracle call counts as one in plain Python, and takes longer.

    Parameters
    ----------
    training : TrainingSet
    pause : Pause
    """

    def __init__(self, training: Oracle, pause: Pause) -> None:
        self.training, self.pause = training, pause
        self.n_features, self.C = training.n_features, training.C

    @property
    def oracle_work(self) -> None:
        return None

    def separate(self, weights: Floats, blocks: Order, threads: Threads) -> Cuts:
        self.pause.take(len(blocks))
        return self.training.separate(weights, blocks, threads)

    def cuts_of(self, blocks: Order, outputs: Sequence[Any]) -> Cuts:
        return self.training.cuts_of(blocks, outputs)


class Words:
    """Handwritten words to label, in as many parts as there are workers.

    Parameters
    ----------
    n : int
    C : float
    quick : bool
        Pretend words.
    """

    def __init__(self, n: int, C: float, quick: bool) -> None:
        words = letters("ocr2", quick).train.first(n)
        ends = np.r_[0, np.cumsum(words.lengths)]
        rows = [slice(*some) for some in pairwise(ends)]
        self.X, self.y = [words.X[some] for some in rows], [words.y[some] for some in rows]
        self.tagger = mm.SequenceTagger(C=C, fit_intercept=False, fit_ends=False, tol=1e-3)
        self.fixed = self.tagger._metadata(self.tagger._encode(self.X, self.y, None), None)

    @property
    def n(self) -> int:
        """Number of words."""
        return len(self.X)

    def parts(self, n_parts: int) -> list[Partition]:
        """The words dealt out."""
        owns = [np.arange(part, self.n, n_parts) for part in range(n_parts)]
        return [
            Partition([self.X[i] for i in own], [self.y[i] for i in own], None, own) for own in owns
        ]

    def make_oracle(self, pause: Pause | None) -> Any:
        """How a partition gets its oracle; without a pause it is the compiled one."""
        return partial(_bound, self.tagger, self.fixed, pause)


def _bound(tagger: Any, fixed: Any, pause: Pause | None, X: Any, y: Any, weight: Any) -> Oracle:
    training = partition_oracle(tagger, fixed, X, y, weight)
    return training if pause is None else SlowOracle(training, pause)

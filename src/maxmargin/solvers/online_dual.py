"""OnlineDual: dual coordinate steps on examples that come once, some at a time."""

import math

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.certificate import Certificate
from maxmargin.engines.threads import Threads
from maxmargin.problems.linear import LinearProblem, OneVersusRest
from maxmargin.problems.summed_value import parts_of
from maxmargin.solvers.block_learner import BlockLearner
from maxmargin.solvers.result import Round
from maxmargin.solvers.stopping import Stopping

Floats = NDArray[np.float64]

SETTLED = 0.05
"""Cached rows have settled when a sweep over them gains less than this times `tol`, relatively."""

REVISITS = 4
"""Most visits of cached rows after a batch, for each visit with it. One pass over MNIST (C = 0.1)
ends 4.3 % above the optimum without any, 2.2 % with four, and no nearer with eight."""


class OnlineDual:
    """Weights that learn from one batch of examples after the other.

    Batches are swept like the blocks of `StreamedDual`. Afterwards rows that still move stay in the
    cache. The others are let go, but not what the weights have of them: their dual coefficients
    count on as they are. So the dual value remains a lower bound of the objective over
    all examples so far, whatever the weights. The objective in the history is estimated: with the
    losses that batches had when they were learned from.

    Parameters
    ----------
    cache_bytes : int
        Memory for rows of earlier batches.
    seed : int
    """

    def __init__(self, cache_bytes: int, seed: int) -> None:
        self.learner = BlockLearner(cache_bytes, seed)
        self.calls = 0

    def learn(
        self, problem: LinearProblem | OneVersusRest, n_jobs: int, stopping: Stopping
    ) -> None:
        """Learn from a batch, whose problem must have the features and outputs of those before.

        Then the cached rows are swept until they have settled, as far as `stopping` asks for it.
        """
        parts = parts_of(problem)
        learner = self.learner
        visits = learner.visits
        learner.prepare(parts)
        portion = learner.load(self.calls, parts, None)
        with Threads(n_jobs) as threads:
            try:
                learner.learn(portion, threads)
            finally:
                learner.cache.keep(self.calls, portion)
                learner.cache.join_small()
                self.calls += 1
            most = REVISITS * (learner.visits - visits)
            learner.polish(most, SETTLED * stopping.allowed_gap(learner.dual), threads)

    @property
    def weights(self) -> Floats:
        """The average of recent weights."""
        return np.hstack(self.learner.average())

    @property
    def certificate(self) -> Certificate:
        """A lower bound; the objective cannot be known without the examples that are gone."""
        return Certificate(math.inf, self.learner.dual)

    def as_round(self, seconds: float) -> Round:
        """The state as a line of history."""
        portions = self.learner.cache.portions.values()
        coefs = [coef for portion in portions for coef in portion.dual_coefs]
        return Round(
            seconds=seconds,
            oracle_calls=self.learner.visits,
            cache_hits=self.learner.cache_visits,
            primal=math.inf,
            dual=self.learner.dual,
            planes=sum(int(np.count_nonzero(coef)) for coef in coefs),
            objective=self.learner.expected,
        )

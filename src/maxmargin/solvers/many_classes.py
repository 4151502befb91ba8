"""Runs of `SequentialDual` with very many classes: Keerthi et al. (2008), section 2.1.

Their full loop has the scores of all classes, their shrunk one only those of the classes with a
coefficient. Here an iteration is a pass of oracle calls over the examples, which finds the most
violated classes of each, and passes of exact updates over the lists of classes found so far. While
the dual gains more than the gap that is allowed, oracle calls take steps at once; afterwards they
keep the weights, and so evaluate the objective. The weights of the best evaluation are kept as the
coefficients that they are made of, which take less room.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import scipy.sparse as sp

from maxmargin.core.arrays import check_shape
from maxmargin.core.certificate import Certificate, certify
from maxmargin.core.linear import MulticlassProblem
from maxmargin.core.oracle import Threads
from maxmargin.core.result import Result, Status
from maxmargin.dual.listed_classes import ListedDual
from maxmargin.solvers.explicit_run import LONGEST_WAIT, SKIPPED_PART_OF_GAP, ExplicitRun
from maxmargin.solvers.loop import Stopping

if TYPE_CHECKING:
    from maxmargin.solvers.sequential_dual import SequentialDual

MOST_LIST_PASSES = 8
"""Passes over the lists after a pass of the oracle."""

WORTH_A_PASS = 0.01
"""Lists are left when a pass over them gains less than this part of what the oracle calls gained:
about what the next ones will. The objective depends on it: it is first order in the distance of the
weights, and the dual only second."""

MOST_DENSE_WEIGHTS = 1 << 25
"""Weights beyond which the answer is a sparse array."""


class ManyClassesRun(ExplicitRun):
    """One solve: the dual state, and the best point so far, whose weights are the answer."""

    state_names: ClassVar[tuple[str, ...]] = (
        "dual_state", "history", "calls", "hits", "threshold", "primal", "best_dual", "best",
        "evaluated_dual", "gain",
    )  # fmt: skip
    state_types: ClassVar[dict[str, Any]] = {"best": sp.csr_array | None}

    oracle: MulticlassProblem

    def __init__(
        self,
        solver: "SequentialDual",
        problem: MulticlassProblem,
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> None:
        super().__init__(solver, problem, stopping, threads, seed)
        self.threshold = 0.0
        self.gain = math.inf
        """Of the dual, since the pass of the oracle before the last one."""
        self.best: sp.csr_array | None = None
        self.evaluated_dual = -math.inf
        """Dual value when the weights were last evaluated."""
        self.certified: Result | None = None
        self.resume(None)

    def resume(self, start: Any) -> None:
        """Start from dual coefficients, or from zero."""
        if start is not None:
            check_shape("the dual point", start, self.oracle.n_samples, self.oracle.n_outputs)
        longest_wait = LONGEST_WAIT if self.solver.skip_idle_examples else 0
        self.dual_state = ListedDual(self.oracle, start, longest_wait, self.seed)
        self.best_dual = self.dual_state.dual
        if start is not None:
            self.gain = 0.0  # perhaps nothing is left to do

    @property
    def depends_on(self) -> dict[str, Any]:
        return {}

    def check_state(self) -> None:
        shape = self.oracle.n_samples, self.oracle.n_outputs
        if self.best is not None and self.best.shape != shape:
            raise ValueError("the best point is one of other examples")

    def is_whole(self, status: Status | None) -> bool:
        return not self.stopping.out_of_time

    @property
    def dual(self) -> float:
        return self.dual_state.dual

    @property
    def n_cuts(self) -> int:
        return self.dual_state.n_listed

    @property
    def expected(self) -> float:
        return self.dual_state.expected

    def point(self) -> sp.csr_array:
        return self.dual_state.point()

    def answer(self) -> Any:
        return self._weights(self.point() if self.best is None else self.best)

    def _weights(self, point: sp.csr_array) -> Any:
        """Weights of a dual point, as a sparse array if there are very many."""
        n_features, n_classes = self.oracle.weights_shape
        weights: Any = self.oracle.weights(point)
        return weights if n_features * n_classes > MOST_DENSE_WEIGHTS else weights.toarray()

    @property
    def is_done(self) -> bool:
        """Whether the gap of weights not yet certified is closed."""
        return self.stopping.is_enough(self.primal, self.evaluated_dual)

    def reason_to_stop(self) -> Status | None:
        return Status.CONVERGED if self.is_done else self.stopping.reason(len(self.history))

    def confirm(self) -> bool:
        self.certified = self._certified(self.best)
        if self.certified.status is Status.CONVERGED:
            return True
        self.certified = None
        self.dual_state.restart()
        self.evaluated_dual = -math.inf  # not closed before it is evaluated again
        return False

    def iterate(self) -> None:
        """Call the oracle for every example; then update the lists while that gains enough."""
        state = self.dual_state
        step = self.gain > self.stopping.allowed_gap(self.best_dual)
        by_oracle = 0.0
        for gained in state.oracle_calls(self.threshold, step):
            by_oracle += gained
            if self.stopping.out_of_time:
                return
        self.calls += self.oracle.n_samples
        self.gain = by_oracle if step else 0.0
        if not step:
            self._evaluated()
            if self.is_done:
                return
        for _ in range(MOST_LIST_PASSES):
            gain_of_pass = 0.0
            for updates, gained in state.list_updates(self.threshold):
                self.hits += updates
                gain_of_pass += gained
                if self.stopping.out_of_time:
                    return
            self.gain += gain_of_pass
            if gain_of_pass <= WORTH_A_PASS * by_oracle:
                break

    def _evaluated(self) -> None:
        """Note the objective of the present weights, the losses of which are all known."""
        state = self.dual_state
        self.evaluated, self.evaluated_dual = state.expected, state.dual
        if self.evaluated < self.primal:
            self.primal, self.best = self.evaluated, state.point()
        if self.solver.skip_small_violations:
            gap = Certificate(self.primal, self.evaluated_dual).gap
            self.threshold = SKIPPED_PART_OF_GAP * max(gap, 0.0) / float(self.oracle.C.sum())

    def _certified(self, best: sp.csr_array | None) -> Result:
        """Weights of a point, or zero, and the present point, certified from the data alone."""
        problem = self.oracle
        self.dual_state.release()
        dual_coef = problem.feasible(self.point())
        weights = self._weights(dual_coef if best is None else best)
        certificate = certify(problem, weights, dual_coef)
        at_zero = float(problem.C @ problem.losses_at_zero())
        if at_zero < certificate.primal:
            weights = self._weights(sp.csr_array(dual_coef.shape))
            certificate = replace(certificate, primal=at_zero)
        tol = self.stopping.relative_tol(at_zero)
        certificate = certificate.compared_with_zero(at_zero, tol)
        enough = self.stopping.is_enough(certificate.primal, certificate.dual)
        status = Status.CONVERGED if enough else Status.FAILED
        return Result(weights, dual_coef, certificate, status, len(self.history), self.history)

    def finish(self, status: Status) -> Result:
        if self.certified is None:
            self.certified = self._certified(None)
            if self.best is not None and self.certified.certificate.primal > self.primal:
                self.certified = self._certified(self.best)
        converged = self.certified.status is Status.CONVERGED
        return self.certified if converged else replace(self.certified, status=status)

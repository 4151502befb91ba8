"""Two solvers: batch Frank-Wolfe from scratch, and one made of the library's block updates.

docs/writing-a-solver.md includes this file piece by piece.
"""

from dataclasses import dataclass

import numpy as np

import maxmargin as mm
from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Oracle
from maxmargin.dual.working_set import StepRule
from maxmargin.solvers.structured import BlockRun, Run, StructuredSolver


# run
class BatchRun(Run):
    """A dual point as a list of cutting planes with coefficients, and the weights they make."""

    state_names = (*Run.state_names, "examples", "coef", "outputs", "linear", "last")

    def __init__(self, oracle, stopping, threads, seed):
        super().__init__(oracle, stopping, threads, seed)
        self.examples, self.coef = np.zeros(0, dtype=np.int64), np.zeros(0)
        self.outputs = []
        self.linear = 0.0  # sum of coefficient times loss
        self.last = np.inf  # the last objective that was evaluated

    @property
    def dual(self):
        return self.linear - self.half_square

    @property
    def n_cuts(self):
        return len(self.coef)

    @property
    def expected(self):
        return self.last

    def point(self):
        return DualPoint(self.examples, self.coef, self.outputs)

    def resume(self, start):
        start = self.oracle.feasible(start)
        cuts = self.oracle.cuts_of(start.examples, start.outputs)
        self.examples, self.coef, self.outputs = start
        self.weights += cuts.matrix(len(self.weights)).T @ start.coef
        self.linear += float(start.coef @ cuts.losses)


# solver
@dataclass(frozen=True, kw_only=True)
class BatchFrankWolfe(StructuredSolver):
    """Frank-Wolfe over all examples at once, with an exact line search.

    Maximises the dual ``D(a) = sum a loss - 1/2 |w(a)|^2``, ``w(a) = sum a psi``, over the product
    of the simplices ``sum_y a_i(y) <= C_i``: Lacoste-Julien et al. (2013), algorithm 2, section 3.
    """

    requires = (Oracle,)

    def start(self, oracle, stopping, threads, seed):
        return BatchRun(oracle, stopping, threads, seed)

    def iterate(self, run):
        # Oracle calls for all examples: the corner of the feasible set that w asks for.
        oracle, examples = run.oracle, run.everything
        cuts = oracle.separate(run.weights, examples, run.threads)
        run.calls += len(examples)
        corner = cuts.matrix(oracle.n_features).T @ oracle.C
        loss = float(oracle.C @ cuts.losses)
        # They also evaluate the objective, at no further cost.
        hinges = oracle.hinges(cuts, run.weights, examples)
        run.offer(run.weights, hinges)
        run.last = run.half_square + hinges.most
        # The best point between here and the corner.
        direction = corner - run.weights
        slope = loss - run.linear - run.weights @ direction
        step = np.clip(slope / max(direction @ direction, 1e-300), 0.0, 1.0)
        run.weights += step * direction
        run.linear += step * (loss - run.linear)
        run.examples = np.concatenate([run.examples, examples])
        run.coef = np.concatenate([(1.0 - step) * run.coef, step * oracle.C])
        run.outputs = run.outputs + cuts.outputs


# blocks
@dataclass(frozen=True, kw_only=True)
class RandomBlocks(StructuredSolver):
    """Oracle calls for some examples, block updates from the working set for all.

    Parameters
    ----------
    fraction : float
        Of the examples, drawn anew in each iteration.
    """

    fraction: float = 0.3

    def start(self, oracle, stopping, threads, seed):
        return BlockRun(oracle, stopping, threads, seed)

    def iterate(self, run):
        pairwise = StepRule(max_steps=10)
        drawn = run.shuffled[: max(1, round(self.fraction * run.oracle.n_examples))]
        found = run.infer(drawn, pairwise)
        run.note_hinges(found.loss, drawn)
        run.sweep(run.shuffled, pairwise)
        run.evaluate_if_done()
        run.working_set.drop_idle(20)


# main
def main():
    """Train a tagger with both, and with the default."""
    random = np.random.default_rng(0)
    X = [random.normal(size=(6, 5)) for _ in range(100)]
    y = [(x[:, :3] + np.roll(x[:, 2:], 1, axis=0)).argmax(axis=1) for x in X]
    for solver in (BatchFrankWolfe(), RandomBlocks(), mm.Auto()):
        tagger = mm.SequenceTagger(C=0.01, tol=0.02, max_iter=1000, solver=solver).fit(X, y)
        calls = tagger.history_[-1].oracle_calls
        print(f"{type(solver).__name__}: {tagger.status_}, {tagger.certificate_}, {calls} calls")


if __name__ == "__main__":
    main()

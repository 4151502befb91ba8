"""A certificate shares no code with the solver: if the solver's sums go wrong, it notices.

Cutting planes are summed up into weights by compiled routines. Here each of these adds too much,
so that solvers work with weights, and keep account of a dual value, that are not those of their
coefficients. What they then believe is worth nothing, but the certificate is made from the data,
the weights and the dual point alone.
"""

import math

import numpy as np
import pytest
from structured_referee import compiled_chains, random_chains, random_classes

from maxmargin.core.result import Status
from maxmargin.dual.working_set import WorkingSet
from maxmargin.solvers import cutting_plane
from maxmargin.solvers.loop import Stopping
from maxmargin.training.fit import make_solver

TOL = 1e-3


def too_long(change):
    return 1.3 * change


def beside(change):
    """What belongs to a feature is added to the next one."""
    return np.roll(change, 1)


def break_sums(monkeypatch, wrong):
    """Let what is added to weights be another vector."""
    update, add_to = WorkingSet.update, cutting_plane.add_to

    def broken_update(self, examples, weights, rule, cuts=None):
        before = weights.copy()
        found = update(self, examples, weights, rule, cuts)
        weights[:] = before + wrong(weights - before)
        return found

    def broken_add_to(weights, cuts, C):
        change = np.zeros_like(weights)
        add_to(change, cuts, C)
        weights += wrong(change)

    monkeypatch.setattr(WorkingSet, "update", broken_update)
    monkeypatch.setattr(WorkingSet, "newton_work", math.inf)  # which would sum up anew
    monkeypatch.setattr(cutting_plane, "add_to", broken_add_to)


def case_and_oracle(kind):
    if kind == "compiled chains":
        case = random_chains(3, n=30)
        return case, compiled_chains(case)
    case = random_classes(3, n=40)
    return case, case.oracle()


@pytest.mark.parametrize("wrong", [too_long, beside])
@pytest.mark.parametrize("kind", ["compiled chains", "Python classes"])
@pytest.mark.parametrize("name", ["auto", "dual-coordinate", "frank-wolfe", "n-slack", "one-slack"])
def test_the_certificate_notices_broken_sums(monkeypatch, name, kind, wrong):
    case, oracle = case_and_oracle(kind)
    optimum = case.optimum.value
    sound = make_solver(name).solve(oracle, Stopping(TOL, 500))
    assert sound.status is Status.CONVERGED
    assert sound.certificate.relative_gap <= TOL
    break_sums(monkeypatch, wrong)
    result = make_solver(name).solve(oracle, Stopping(TOL, 60))
    certificate = result.certificate
    # Far off, perhaps, but no lie: the optimum is in between, and the status says what it says.
    assert certificate.dual <= optimum * (1.0 + 1e-7)
    assert certificate.primal >= optimum * (1.0 - 1e-7)
    assert certificate.primal == pytest.approx(oracle.primal(result.weights), rel=1e-12)
    assert certificate.dual == pytest.approx(oracle.dual(result.dual_point), rel=1e-12)
    assert (result.status is Status.CONVERGED) == (certificate.relative_gap <= TOL)
    if wrong is beside:  # where a wrong length may be made up for
        assert certificate.relative_gap > 10.0 * TOL

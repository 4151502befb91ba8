"""Rules that claim to be safe are: what they promise is so at every call, and at the optimum."""

import copy

import numpy as np
import pytest

from benchmarks.screening import (
    BestOfSome,
    ChainWatch,
    ClassWatch,
    WatchedAuto,
    WatchedDual,
    ball,
    best_labellings,
    chain_oracle,
    chains_of,
    class_problem,
    scores_of,
)
from maxmargin.core.oracle import Threads
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import SequentialDual

CLOSE = Stopping(1e-9)


@pytest.fixture(scope="module")
def chains():
    words = chains_of("ocr", quick=True).first(25)
    return chain_oracle(words, 0.5, normalized=True)


@pytest.fixture(scope="module")
def classes():
    problem = class_problem("letter", 1.0, quick=True)
    return problem.some(np.arange(0, problem.n_samples, 3))


class Checked(ChainWatch):
    """Notes every claim about the optimum, and checks every other one at once."""

    def __init__(self, oracle):
        super().__init__(oracle)
        self.balls, self.claims = [], []

    def fixed(self, within):
        result = super().fixed(within)
        self.balls.append(within)
        return result

    def called(self, weights, examples, outputs):
        for i, output, (nodes, pairs) in zip(
            examples.tolist(), outputs, self.scored(weights, examples), strict=True
        ):
            found = np.frombuffer(output, dtype=np.uint16)
            best = scores_of(found[None], nodes, pairs)[0]
            assert best_labellings(nodes, pairs, 1).last == pytest.approx(best, abs=1e-9)
            for rule in self.rules.values():
                old = rule.answers.get(i)
                if old is not None and rule.holds(old, nodes, pairs):
                    known = scores_of(old.labels, nodes, pairs).max()
                    assert known >= best - 1e-9
        super().called(weights, examples, outputs)


def test_chains(chains):
    optimum = Auto().solve(chains, CLOSE)
    assert optimum.certificate.relative_gap <= 1e-8
    watch = Checked(copy.copy(chains))
    chains.watch = watch
    WatchedAuto(watch=watch).solve(chains, Stopping(1e-5))
    chains.watch = None
    assert len(watch.balls) > 10
    for within in watch.balls:
        assert np.linalg.norm(optimum.weights - within.centre) <= within.radius + 1e-4
    assert watch.tally.saved["ten best"] >= watch.tally.saved["second best"] > 0
    assert watch.tally.calls > watch.tally.saved["repeated"] > 0


def test_a_call_at_the_same_weights_is_saved(chains):
    watch = ChainWatch(chains)
    weights = np.random.default_rng(0).normal(size=chains.n_features)
    examples = np.arange(chains.n_examples)
    cuts = chains.separate(weights, examples, Threads(1))
    for _ in range(2):
        watch.called(weights, examples, cuts.outputs)
    assert watch.tally.saved["second best"] == watch.tally.saved["repeated"] == len(examples)
    rule = BestOfSome(2)
    for nodes, pairs in watch.scored(weights, examples[:1]):
        assert not rule.saves(0, nodes, pairs)
        assert not rule.saves(0, -nodes, -pairs)


def test_classes(classes):
    optimum = SequentialDual().solve(classes, CLOSE)
    assert optimum.certificate.relative_gap <= 1e-8
    watch = ClassWatch(classes)
    balls, answers = [], {}
    fixed = watch.fixed

    def noted(within):
        result = fixed(within)
        balls.append(within)
        best = watch.scores(within.centre).argmax(axis=1)
        answers.update({i: best[i] for i in np.flatnonzero(result)})
        return result

    watch.fixed = noted
    WatchedDual(watch=watch).solve(classes, Stopping(1e-6))
    for within in balls:
        assert np.linalg.norm(optimum.weights - within.centre) <= within.radius + 1e-4
    best = watch.scores(optimum.weights).argmax(axis=1)
    assert len(answers) > 20
    for i, answer in answers.items():
        assert best[i] == answer
        assert optimum.dual_point[i, answer] == pytest.approx(
            0.0 if answer == classes.labels[i] else -classes.C[i], abs=1e-6
        )
    assert 0 < watch.tally.saved["second best"] < watch.tally.calls
    # At the next C, the ball around this optimum is as wide as the step is long.
    assert ball(watch.best).radius < 1e-2
    assert watch.at_start(1.0 + 1e-6) > watch.at_start(1.5)

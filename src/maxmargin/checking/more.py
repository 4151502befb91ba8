"""What a problem may have besides: `k_best`, batches of `cuts`, a training set of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from maxmargin.checking.sheet import Answer, At, Broken, Candidate, in_words, same
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Oracle
from maxmargin.core.oracle_check import ROUNDING
from maxmargin.core.problem import renumbered
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.core.threads import Threads

if TYPE_CHECKING:
    from maxmargin.checking.trial import Trial

K_BEST = 4
"""Outputs that `k_best` is asked for."""

ONE_THREAD = Threads(1)


def judge_top(trial: Trial, i: int, at: At, found: list[Candidate]) -> None:
    """The best outputs must be the best ones, the best first, each once."""
    line = trial.line(f"k_best: the {K_BEST} highest scores, highest first")
    wrong = _wrong_top(trial, i, at, found)
    if wrong is not None and not trial.exact:
        line.note(0.0, f"example {i}, {at.name}: {wrong}")
        wrong = None
    line.tried(None if wrong is None else f"example {i}, {at.name}: {wrong}")


def _wrong_top(trial: Trial, i: int, at: At, found: list[Candidate]) -> str | None:
    if not 1 <= len(found) <= K_BEST:
        return f"there are {len(found)} outputs"
    if any(same(one.output, other.output) for one, other in combinations(found, 2)):
        return "an output is there twice"
    scores, rounding = (
        [candidate.score(at.weights) for candidate in found],
        trial.rounding(at, *found),
    )
    if any(after > before + rounding for before, after in pairwise(scores)):
        return f"the scores {[round(score, 6) for score in scores]} rise"
    # Outputs need not be comparable; those with other features are others for sure.
    mine = {candidate.key[0] for candidate in found}
    others = [each for each in trial.pool[i] if each.proven and each.key[0] not in mine]
    least = scores[-1] if len(found) == K_BEST else -np.inf
    missed = max(others, key=lambda candidate: candidate.score(at.weights), default=None)
    if missed is None or missed.score(at.weights) <= least + rounding:
        return None
    return (
        f"{missed.output!r:.60} ({missed.source}), with {missed.score(at.weights):.6g}, is missing"
    )


def try_cuts(trial: Trial, make: Callable[[], PythonOracle], everywhere: Sequence[At]) -> None:
    """What a batch finds must be planes of its outputs; how high they are is judged later."""
    name = "cuts: agree with joint_feature and loss"
    examples = list(trial.pool)
    try:
        oracle = make()
    except Exception as error:
        trial.line(name).tried(f"there is no training on this sample: {in_words(error)}")
        return
    oracle.checker = None
    for at in everywhere:
        try:
            cuts = oracle.separate(at.weights, np.arange(len(examples)), ONE_THREAD)
        except Exception as error:
            trial.line(name).tried(f"{at.name}: {renumbered(str(error), examples)}")
            continue
        for k, i in enumerate(examples):
            with suppress(Broken):
                _try_cut(trial, name, i, at, cuts, k)


def _try_cut(trial: Trial, name: str, i: int, at: At, cuts: Cuts, k: int) -> None:
    found, loss = trial.candidate(i, cuts.outputs[k], "found by planes"), float(cuts.losses[k])
    apart = _off(trial, i, found, cuts, k)
    bad = apart > ROUNDING or abs(loss - found.loss) > ROUNDING * (1.0 + found.loss)
    told = f"example {i}, {at.name}: for {found.output!r:.60} the loss is {loss:.6g}, not "
    told += f"{found.loss:.6g}, and the features are {apart:.3g} off"
    trial.line(name).tried(told if bad else None)
    admitted = None if cuts.suboptimality is None else float(cuts.suboptimality[k])
    trial.answers.append(Answer("cuts", i, at, found, admitted))


def _off(trial: Trial, i: int, found: Candidate, cuts: Cuts, k: int) -> float:
    """How far a plane is, relatively, from the features of the truth less those of its output."""
    y_true, entries = trial.pool[i][0], slice(cuts.starts[k], cuts.starts[k + 1])
    difference = np.zeros(trial.width or 0)
    np.add.at(difference, y_true.columns, y_true.values)
    np.subtract.at(difference, found.columns, found.values)
    size = 1.0 + float(np.abs(difference).max(initial=0.0))
    np.subtract.at(difference, cuts.columns[entries], cuts.values[entries])
    return float(np.abs(difference).max(initial=0.0)) / size


def try_make_oracle(trial: Trial, everywhere: Sequence[At]) -> None:
    """Planes of a training set of the problem's own must be worth what its methods say."""
    line = trial.line("make_oracle: its planes are as high as loss_augmented_inference says")
    X, Y = [trial.X[i] for i in trial.pool], [trial.Y[i] for i in trial.pool]
    try:
        oracle: Oracle = trial.problem.make_oracle(X, Y, np.ones(len(X)), "margin")
        if oracle.n_features != trial.width:
            told = f"there are {oracle.n_features} features, but joint_feature has {trial.width}"
            line.tried(told)
            return
        for at in everywhere:
            for wrong in _wrong_slopes(trial, oracle, at):
                line.tried(wrong)
    except Exception as error:
        line.tried(f"it raised {in_words(error)}")


def _wrong_slopes(trial: Trial, oracle: Oracle, at: At) -> list[str | None]:
    """For each example, what is wrong with its plane, or None."""
    examples = np.arange(len(trial.pool))
    cuts = oracle.separate(at.weights, examples, ONE_THREAD)
    slopes = cuts.slopes(at.weights)
    again = oracle.cuts_of(examples, cuts.outputs).slopes(at.weights)
    found = trial.found("loss_augmented_inference", at)
    wrong: list[str | None] = []
    for k, i in enumerate(trial.pool):
        if i not in found:
            continue
        y_true, best = trial.pool[i][0], found[i]
        expected = best.loss + best.score(at.weights) - y_true.score(at.weights)
        admitted = np.inf if not oracle.exact and cuts.suboptimality is None else 0.0
        admitted += 0.0 if cuts.suboptimality is None else float(cuts.suboptimality[k])
        rounding = trial.rounding(at, y_true, best) + ROUNDING
        # A relaxed `loss_augmented_inference` may miss what the training set finds.
        above = slopes[k] > expected + rounding and trial.exact
        below = slopes[k] + admitted < expected - rounding
        bad = above or below or abs(slopes[k] - again[k]) > rounding
        told = f"example {i}, {at.name}: {slopes[k]:.6g}, made anew {again[k]:.6g}, but "
        told += f"{expected:.6g} by separate"
        wrong.append(told if bad else None)
    return wrong

"""What a problem may have besides: `top`, batches of `planes`, a training set of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from maxmargin.checking.sheet import Answer, At, Broken, Rival, in_words, same
from maxmargin.compiled.threads import Threads
from maxmargin.core.cuts import Planes
from maxmargin.core.oracle_check import ROUNDING
from maxmargin.core.problem import PythonTrainingSet, TrainingSet, renumbered

if TYPE_CHECKING:
    from maxmargin.checking.trial import Trial

K_BEST = 4
"""Outputs that `top` is asked for."""

ONE_THREAD = Threads(1)


def judge_top(trial: Trial, i: int, at: At, found: list[Rival]) -> None:
    """The best outputs must be the best ones, the best first, each once."""
    line = trial.line(f"top: the {K_BEST} highest scores, highest first")
    wrong = _wrong_top(trial, i, at, found)
    if wrong is not None and trial.relaxed:
        line.note(0.0, f"example {i}, {at.name}: {wrong}")
        wrong = None
    line.tried(None if wrong is None else f"example {i}, {at.name}: {wrong}")


def _wrong_top(trial: Trial, i: int, at: At, found: list[Rival]) -> str | None:
    if not 1 <= len(found) <= K_BEST:
        return f"there are {len(found)} outputs"
    if any(same(one.output, other.output) for one, other in combinations(found, 2)):
        return "an output is there twice"
    scores, rounding = [rival.score(at.weights) for rival in found], trial.rounding(at, *found)
    if any(after > before + rounding for before, after in pairwise(scores)):
        return f"the scores {[round(score, 6) for score in scores]} rise"
    # Outputs need not be comparable; those with other features are others for sure.
    mine = {rival.key[0] for rival in found}
    others = [each for each in trial.pool[i] if each.proven and each.key[0] not in mine]
    least = scores[-1] if len(found) == K_BEST else -np.inf
    missed = max(others, key=lambda rival: rival.score(at.weights), default=None)
    if missed is None or missed.score(at.weights) <= least + rounding:
        return None
    return (
        f"{missed.output!r:.60} ({missed.source}), with {missed.score(at.weights):.6g}, is missing"
    )


def try_planes(
    trial: Trial, make: Callable[[], PythonTrainingSet], everywhere: Sequence[At]
) -> None:
    """What a batch finds must be planes of its outputs; how high they are is judged later."""
    name = "planes: agree with joint_feature and loss"
    examples = list(trial.pool)
    try:
        training = make()
    except Exception as error:
        trial.line(name).tried(f"there is no training on this sample: {in_words(error)}")
        return
    training.watch = None
    for at in everywhere:
        try:
            planes = training.planes(at.weights, np.arange(len(examples)), ONE_THREAD)
        except Exception as error:
            trial.line(name).tried(f"{at.name}: {renumbered(str(error), examples)}")
            continue
        for k, i in enumerate(examples):
            with suppress(Broken):
                _try_plane(trial, name, i, at, planes, k)


def _try_plane(trial: Trial, name: str, i: int, at: At, planes: Planes, k: int) -> None:
    found, loss = trial.rival(i, planes.outputs[k], "found by planes"), float(planes.losses[k])
    apart = _off(trial, i, found, planes, k)
    bad = apart > ROUNDING or abs(loss - found.loss) > ROUNDING * (1.0 + found.loss)
    told = f"example {i}, {at.name}: for {found.output!r:.60} the loss is {loss:.6g}, not "
    told += f"{found.loss:.6g}, and the features are {apart:.3g} off"
    trial.line(name).tried(told if bad else None)
    admitted = None if planes.excess is None else float(planes.excess[k])
    trial.answers.append(Answer("planes", i, at, found, admitted))


def _off(trial: Trial, i: int, found: Rival, planes: Planes, k: int) -> float:
    """How far a plane is, relatively, from the features of the truth less those of its output."""
    truth, entries = trial.pool[i][0], slice(planes.starts[k], planes.starts[k + 1])
    difference = np.zeros(trial.width or 0)
    np.add.at(difference, truth.columns, truth.values)
    np.subtract.at(difference, found.columns, found.values)
    size = 1.0 + float(np.abs(difference).max(initial=0.0))
    np.subtract.at(difference, planes.columns[entries], planes.values[entries])
    return float(np.abs(difference).max(initial=0.0)) / size


def try_bind(trial: Trial, everywhere: Sequence[At]) -> None:
    """Planes of a training set of the problem's own must be worth what its methods say."""
    line = trial.line("bind: its planes are as high as separate says")
    X, Y = [trial.X[i] for i in trial.pool], [trial.Y[i] for i in trial.pool]
    try:
        training: TrainingSet = trial.problem.bind(X, Y, np.ones(len(X)), "margin")
        if training.n_features != trial.width:
            told = f"there are {training.n_features} features, but joint_feature has {trial.width}"
            line.tried(told)
            return
        for at in everywhere:
            for wrong in _wrong_slopes(trial, training, at):
                line.tried(wrong)
    except Exception as error:
        line.tried(f"it raised {in_words(error)}")


def _wrong_slopes(trial: Trial, training: TrainingSet, at: At) -> list[str | None]:
    """For each example, what is wrong with its plane, or None."""
    blocks = np.arange(len(trial.pool))
    planes = training.planes(at.weights, blocks, ONE_THREAD)
    slopes = planes.slopes(at.weights)
    again = training.planes_of(blocks, planes.outputs).slopes(at.weights)
    found = trial.found("separate", at)
    wrong: list[str | None] = []
    for k, i in enumerate(trial.pool):
        if i not in found:
            continue
        truth, best = trial.pool[i][0], found[i]
        expected = best.loss + best.score(at.weights) - truth.score(at.weights)
        admitted = np.inf if training.relaxed and planes.excess is None else 0.0
        admitted += 0.0 if planes.excess is None else float(planes.excess[k])
        rounding = trial.rounding(at, truth, best) + ROUNDING
        # A relaxed `separate` may miss what the training set finds.
        above = slopes[k] > expected + rounding and not trial.relaxed
        below = slopes[k] + admitted < expected - rounding
        bad = above or below or abs(slopes[k] - again[k]) > rounding
        told = f"example {i}, {at.name}: {slopes[k]:.6g}, made anew {again[k]:.6g}, but "
        told += f"{expected:.6g} by separate"
        wrong.append(told if bad else None)
    return wrong

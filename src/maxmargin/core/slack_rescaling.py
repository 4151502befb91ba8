"""Slack rescaling for any problem that has an oracle for margin rescaling.

Margin rescaling at the weights divided by ``m`` maximises ``violation + m * loss``: a corner of the
convex hull of the outputs in the plane of loss and violation. A few values of ``m`` walk to the
edge with the highest ``loss * violation``, which bounds the slack of outputs inside the hull.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import ONE_THREAD, Oracle, Threads
from maxmargin.core.oracle_check import OracleChecker

USUAL_CALLS = 5.0
"""Oracle calls that the largest slack usually takes."""

MOST_CALLS = 25
"""Oracle calls at most; the bound holds whenever the walk ends."""

ENOUGH = 1e-6
"""Part of the slack that may be missed."""

LEAST_MULTIPLIER = 1e-6
"""Relative to violation and loss: an oracle would not see the loss below."""


class _Corner(NamedTuple):
    """An output as a point in the plane; None is the true output."""

    loss: float
    violation: float
    output: Any

    @property
    def slack(self) -> float:
        return self.loss * self.violation

    def height(self, slope: float) -> float:
        return self.violation + slope * self.loss


TRUE_OUTPUT = _Corner(0.0, 1.0, None)


class SlackRescaledOracle(Oracle):
    """Slack rescaling by an oracle for margin rescaling, in one thread; None is the true output."""

    exact = False

    def __init__(self, margin: Oracle) -> None:
        self.margin = margin
        self.n_features, self.C = margin.n_features, margin.C
        self._costliest: dict[int, Any] = {}

    def warm(self) -> "SlackRescaledOracle":
        margin = self.margin.warm()
        return self if margin is self.margin else SlackRescaledOracle(margin)

    @property
    def cold(self) -> "SlackRescaledOracle":
        margin = self.margin.cold
        return self if margin is self.margin else SlackRescaledOracle(margin)

    @property
    def checker(self) -> OracleChecker | None:  # type: ignore[override]
        return self.margin.checker

    def check_from(self, first: int, checker: OracleChecker | None) -> None:
        self.margin.check_from(first, checker)

    @property
    def oracle_name(self) -> str:
        return self.margin.oracle_name

    @property
    def oracle_state(self) -> Any:
        return self.margin.oracle_state

    @oracle_state.setter
    def oracle_state(self, state: Any) -> None:
        self.margin.oracle_state = state

    def outputs(self, example: int) -> list[Any]:
        if type(self.margin).outputs is Oracle.outputs:
            raise ValueError(
                "With this rescaling='slack', solvers that need expectations can be used only "
                "where all outputs can be listed: use another, such as 'auto'."
            )
        return self.margin.outputs(example)

    @property
    def oracle_work(self) -> float | None:
        each = self.margin.oracle_work
        return None if each is None else USUAL_CALLS * (each + self.n_features)

    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        found = [self._infer(weights, example) for example in examples.tolist()]
        cuts = self.cuts_of(examples, [corner.output for corner, _ in found])
        bounds = np.array([bound for _, bound in found])
        return cuts._replace(suboptimality=np.maximum(bounds - cuts.slopes(weights), 0.0))

    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        wrong = np.array([k for k, output in enumerate(outputs) if output is not None], dtype=int)
        some = self.margin.cuts_of(examples[wrong], [outputs[k] for k in wrong])
        counts, losses = np.zeros(len(examples), dtype=np.int64), np.zeros(len(examples))
        counts[wrong], losses[wrong] = np.diff(some.starts), some.losses
        starts = starts_of(counts)
        values = some.values * np.repeat(losses, counts)
        return Cuts(starts, some.columns, values, losses, list(outputs))

    def _infer(self, weights: Floats, example: int) -> tuple[_Corner, float]:
        """The largest slack among the corners of the hull, and a bound of all slacks."""
        low, high = TRUE_OUTPUT, self._most_loss(weights, example)
        best = max(low, high, key=lambda corner: corner.slack)
        bound = outside = 0.0
        least = LEAST_MULTIPLIER * (1.0 + abs(high.violation)) / max(high.loss, 1e-300)
        for _ in range(MOST_CALLS):
            if high.loss <= low.loss:
                return best, max(outside, best.slack)
            # Along the line through both corners. If nothing lies above, it is an edge.
            slope = max((low.violation - high.violation) / (high.loss - low.loss), least)
            corner, suboptimality = self._farthest(weights, slope, example)
            best = max(best, corner, key=lambda corner: corner.slack)
            reach = corner.height(slope)
            height = reach + suboptimality
            bound = max(outside, _highest(height, slope, low.loss, high.loss))
            is_edge = reach <= max(low.height(slope), high.height(slope)) + ENOUGH * abs(reach)
            if is_edge or bound <= (1.0 + ENOUGH) * best.slack:
                break
            # The product falls away from where both terms of the height are equal: no slack
            # beyond the corner, on the far side of that, is above what the line allows there.
            if corner.violation > slope * corner.loss:
                outside = max(outside, _highest(height, slope, low.loss, corner.loss))
                low = corner
            else:
                outside = max(outside, _highest(height, slope, corner.loss, high.loss))
                high = corner
        return best, max(bound, best.slack)

    def _most_loss(self, weights: Floats, example: int) -> _Corner:
        """An output with the largest loss; it does not depend on the weights."""
        examples = np.array([example])
        if example not in self._costliest:
            found = self.margin.cold.separate(np.zeros(self.n_features), examples, ONE_THREAD)
            self._costliest[example] = found.outputs[0] if found.losses[0] > 0.0 else None
        if self._costliest[example] is None:
            return TRUE_OUTPUT
        cuts = self.margin.cuts_of(examples, [self._costliest[example]])
        loss = float(cuts.losses[0])
        return _Corner(loss, 1.0 + float(cuts.slopes(weights)[0]) - loss, cuts.outputs[0])

    def _farthest(self, weights: Floats, slope: float, example: int) -> tuple[_Corner, float]:
        """The output with the largest ``violation + slope * loss``, and what may be missed."""
        scaled = weights / slope
        cuts = self.margin.separate(scaled, np.array([example]), ONE_THREAD)
        loss = float(cuts.losses[0])
        violation = 1.0 + slope * (float(cuts.slopes(scaled)[0]) - loss)
        suboptimality = 0.0 if cuts.suboptimality is None else slope * float(cuts.suboptimality[0])
        return _Corner(loss, violation, cuts.outputs[0]), suboptimality


def _highest(height: float, slope: float, least: float, most: float) -> float:
    """The largest ``loss * (height - slope * loss)`` for losses from `least` to `most`."""
    loss = min(max(height / (2.0 * slope), least), most)
    return loss * (height - slope * loss)

"""The working set against dense arrays that are computed anew after every move."""

from itertools import pairwise

import numpy as np
import pytest
import referee
import scipy.sparse as sp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.compiled.rows import add_to
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.dual import cut_table, working_set
from maxmargin.dual.cut_table import AWAY, FRANK_WOLFE, PAIRWISE
from maxmargin.dual.gram import DIRECT_BELOW
from maxmargin.dual.working_set import StepRule, WorkingSet
from maxmargin.solvers.cutting_plane import SummedCut, SummedCuts

N_FEATURES = 12
RULES = [
    StepRule(),
    StepRule(max_steps=1),
    StepRule(max_steps=0),
    StepRule(tolerance=0.1),
    StepRule(kind=FRANK_WOLFE),
    StepRule(kind=AWAY),
]

seeds = st.integers(0, 2**32 - 1)


def random_planes(random, n, first_output=0, longest=20):
    """Sparse planes, some of them empty, with columns that repeat and stand in any order."""
    starts = np.r_[0, np.cumsum(random.integers(0, longest, n))].astype(np.int64)
    return Cuts(
        starts,
        random.integers(0, N_FEATURES, starts[-1]).astype(np.uint32),
        random.normal(size=starts[-1]),
        random.uniform(0.0, 3.0, n),
        list(range(first_output, first_output + n)),
    )


def dense(cuts):
    """The planes as rows of an array."""
    rows = np.zeros((len(cuts.losses), N_FEATURES))
    owners = np.repeat(np.arange(len(rows)), np.diff(cuts.starts))
    np.add.at(rows, (owners, cuts.columns), cuts.values)
    return rows


class Mirror:
    """A working set, its weights, and the dense planes by output, which are plain numbers."""

    def __init__(self, random, n_blocks):
        self.random = random
        self.totals = random.uniform(0.1, 2.0, n_blocks) * (random.random(n_blocks) < 0.9)
        self.set = WorkingSet(self.totals, N_FEATURES)
        self.weights = np.zeros(N_FEATURES)
        self.psi = np.zeros((0, N_FEATURES))
        self.losses = np.zeros(0)

    def new_planes(self, n, longest=20):
        cuts = random_planes(self.random, n, len(self.losses), longest)
        self.psi = np.vstack([self.psi, dense(cuts)])
        self.losses = np.append(self.losses, cuts.losses)
        return cuts

    def some_blocks(self):
        n = len(self.totals)
        return self.random.permutation(n)[: self.random.integers(1, n + 1)]

    @property
    def dual(self):
        return self.set.dual

    @property
    def slopes(self):
        """Of all outputs there ever were."""
        return self.losses - self.psi @ self.weights

    def numbers(self, block):
        table = self.set._table
        return table.slots[table.slot_at[block] :][: table.size[block]]

    def contents(self):
        """Coefficient of each output that is kept, and the same from before, by block."""
        table = self.set._table
        return [
            {self.set.outputs[p]: (table.coef[p], table.previous[p]) for p in self.numbers(b)}
            for b in range(len(self.totals))
        ]

    def put(self, blocks):
        cuts = self.new_planes(len(blocks))
        used = np.bincount(self.set.point().examples, self.set.point().coef, len(self.totals))
        room = np.maximum(self.totals - used, 0.0) / (np.bincount(blocks)[blocks].max() + 1)
        self.set.put(blocks, cuts, self.random.uniform(0.0, room[blocks]), self.weights)
        self.set.extrapolate(0.0, self.weights)  # what was put is not to be reverted

    def check(self):
        """Everything that is kept in step is what it would be if computed anew."""
        point, table = self.set.point(), self.set._table
        assert_allclose(self.weights, point.coef @ self.psi[point.outputs], atol=1e-10)
        assert self.set.linear == pytest.approx(point.coef @ self.losses[point.outputs], abs=1e-10)
        anew = self.set.linear - 0.5 * float(self.weights @ self.weights)
        assert self.set.dual == pytest.approx(anew, abs=1e-10)
        assert (point.coef > 0.0).all()
        used = np.bincount(point.examples, point.coef, minlength=len(self.totals))
        assert (used <= self.totals * (1.0 + 1e-12)).all()
        assert np.count_nonzero(table.coef) == len(point.coef)

        live = [p for b in range(len(self.totals)) for p in self.numbers(b)]
        free = table.free[: table.counts[cut_table.N_FREE]]
        assert sorted([*live, *free]) == list(range(table.counts[cut_table.N_CUTS]))
        assert self.set.n_cuts == len(live)
        assert table.counts[cut_table.N_LIVE] == table.length[live].sum()
        for b in range(len(self.totals)):
            numbers = self.numbers(b)
            outputs = [self.set.outputs[p] for p in numbers]
            psi, stride = self.psi[outputs], table.capacity[b]
            gram = table.gram[table.gram_at[b] :][: stride * stride].reshape(stride, stride)
            assert_allclose(gram[: len(psi), : len(psi)], psi @ psi.T, atol=1e-10)
            assert_array_equal(table.loss[numbers], self.losses[outputs])
            for p, row in zip(numbers, psi, strict=True):
                entries = slice(table.start[p], table.start[p] + table.length[p])
                stored = np.bincount(table.columns[entries], table.values[entries], N_FEATURES)
                assert_allclose(stored, row, atol=1e-12)


class Moves(RuleBasedStateMachine):
    """Any sequence of moves."""

    @initialize(seed=seeds, n_blocks=st.integers(1, 5))
    def start(self, seed, n_blocks):
        self.mirror = Mirror(np.random.default_rng(seed), n_blocks)

    @invariant()
    def in_step(self):
        if hasattr(self, "mirror"):
            self.mirror.check()

    @rule(rule=st.sampled_from(RULES), new=st.booleans())
    def update(self, rule, new):
        mirror, blocks = self.mirror, self.mirror.some_blocks()
        before = mirror.dual
        cuts = mirror.new_planes(len(blocks)) if new else None
        update = mirror.set.update(blocks, mirror.weights, rule, cuts)
        assert update.gain >= -1e-12
        assert mirror.dual - before == pytest.approx(update.gain, abs=1e-10)
        assert update.gap == pytest.approx(mirror.set.gaps[blocks].sum(), abs=1e-10)

    @rule(rule=st.sampled_from(RULES), new=st.booleans())
    def visit_one(self, rule, new):
        """Of a single block it is known what the visit sees."""
        mirror, blocks = self.mirror, self.mirror.some_blocks()[:1]
        total, contents = mirror.totals[blocks[0]], mirror.contents()[blocks[0]]
        cuts = mirror.new_planes(1) if new else None
        slopes = mirror.slopes
        highest = max([0.0, *slopes[list(contents)]])
        kept = new and slopes[-1] > highest + rule.tolerance
        highest = max(highest, slopes[-1]) if kept else highest
        value = sum(coef * slopes[y] for y, (coef, _) in contents.items())
        update = mirror.set.update(blocks, mirror.weights, rule, cuts)
        assert update.loss == pytest.approx(total * highest, abs=1e-10)
        assert update.gap == pytest.approx(total * highest - value, abs=1e-10)
        outputs = [*contents, len(slopes) - 1] if kept else [*contents]
        assert [*mirror.contents()[blocks[0]]] == outputs

    @rule(repeats=st.integers(1, 3))
    def put(self, repeats):
        self.mirror.put(np.repeat(self.mirror.some_blocks(), repeats))

    @rule(momentum=st.floats(0.0, 5.0))
    def extrapolate(self, momentum):
        mirror, before = self.mirror, self.mirror.contents()
        mirror.set.extrapolate(momentum, mirror.weights)
        for total, old, new in zip(mirror.totals, before, mirror.contents(), strict=True):
            coef, previous = np.array([*old.values()]).reshape(-1, 2).T
            move = coef - previous
            limits = [momentum, *(-coef[move < 0.0] / move[move < 0.0])]
            if move.sum() > 1e-12:
                limits.append((total - coef.sum()) / move.sum())
            expected = coef + max(min(limits), 0.0) * move
            found, kept = np.array([*new.values()]).reshape(-1, 2).T
            assert_array_equal(kept, coef)
            if abs(move.sum()) > 1e-12 or coef.sum() < total - 1e-12:
                assert_allclose(found, expected, atol=1e-10)
            else:  # as far as rounding lets it: see below
                low, high = np.minimum(coef, expected), np.maximum(coef, expected)
                assert (found == found.clip(low - 1e-10, high + 1e-10)).all()

    @rule()
    def revert(self):
        before = self.mirror.contents()
        self.mirror.set.revert(self.mirror.weights)
        for old, new in zip(before, self.mirror.contents(), strict=True):
            assert {y: coef for y, (coef, _) in new.items()} == {y: p for y, (_, p) in old.items()}

    @rule(max_idle=st.integers(0, 2))
    def drop_idle(self, max_idle):
        before = self.mirror.contents()
        self.mirror.set.drop_idle(max_idle)
        for old, new in zip(before, self.mirror.contents(), strict=True):
            assert new.items() <= old.items()
            assert not any(max(old[y]) > 0.0 for y in old.keys() - new.keys())
            if max_idle == 0:
                assert all(max(pair) > 0.0 for pair in new.values())

    @rule()
    def hinges(self):
        mirror, before = self.mirror, self.mirror.contents()
        weights = mirror.random.normal(size=N_FEATURES)
        slopes = mirror.losses - mirror.psi @ weights
        hinges = [max([0.0, *slopes[[*block]]]) for block in before]
        assert mirror.set.hinges(weights) == pytest.approx(mirror.totals @ hinges, abs=1e-10)
        assert mirror.contents() == before

    @rule()
    def step_towards_best(self):
        mirror, before = self.mirror, self.mirror.dual
        psi = np.vstack([mirror.psi, np.zeros(N_FEATURES)])  # the zero plane comes last
        losses, slopes = np.append(mirror.losses, 0.0), np.append(mirror.slopes, 0.0)
        ranked = [sorted([*b, -1], key=slopes.__getitem__) for b in mirror.contents()]
        corner = mirror.totals @ psi[[outputs[-1] for outputs in ranked]]
        linear = mirror.totals @ losses[[outputs[-1] for outputs in ranked]]

        weights, start = mirror.weights.copy(), mirror.set.linear
        if np.allclose(corner, weights, atol=1e-12):  # there already: see below
            return

        def dual(step):
            mixed = (1.0 - step) * weights + step * corner
            return (1.0 - step) * start + step * linear - 0.5 * mixed @ mixed

        mirror.set.step_towards_best(mirror.weights)
        assert mirror.dual >= before - 1e-12
        # Which of two equal planes is the best is for rounding to decide.
        if all(slopes[o[-1]] > slopes[o[-2]] + 1e-9 for o in ranked if len(o) > 1):
            assert mirror.dual == pytest.approx(best_on_segment(dual), abs=1e-9)


Moves.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    phases=set(Phase) - {Phase.shrink},
    report_multiple_bugs=False,
)
TestMoves = Moves.TestCase


def best_on_segment(quadratic, longest=1.0):
    """Maximum over ``[0, longest]`` of a concave quadratic."""
    middle, end = quadratic(longest / 2.0), quadratic(longest)
    slope = 4.0 * middle - quadratic(0.0) * 3.0 - end  # of the parabola through the three
    bend = end - quadratic(0.0) - slope
    best = min(max(-slope / (2.0 * bend), 0.0), 1.0) if bend < 0.0 else float(slope > 0.0)
    return quadratic(best * longest)


def test_extrapolation_between_planes_that_share_all_of_the_budget():
    block, steps = np.zeros(1, dtype=np.int64), []
    for total in np.linspace(0.1, 1.0, 50):
        cuts = Cuts(
            np.arange(3),
            np.arange(2, dtype=np.uint32),
            np.ones(2),
            np.full(2, 2.0),
            ["a", "b"],
        )
        blocks, weights = WorkingSet(np.array([total]), 2), np.zeros(2)
        blocks.put(np.repeat(block, 2), cuts, total * np.array([0.7, 0.3]), weights)
        before = blocks.point().coef
        blocks.update(block, weights, StepRule())
        middle = blocks.point().coef
        blocks.extrapolate(0.5, weights)
        steps.append((blocks.point().coef - middle)[0] / (middle - before)[0])
    assert_allclose(steps, 0.5, rtol=1e-6)


def test_a_step_from_the_best_planes_to_themselves():
    for seed in range(20):
        random = np.random.default_rng(seed)
        totals, weights = random.uniform(0.1, 1.0, 5), np.zeros(5)
        blocks = WorkingSet(totals, 5)
        for b in random.permutation(5):  # the linear term is summed in another order
            cut = Cuts(
                np.arange(2), np.array([b], dtype=np.uint32), np.ones(1), np.full(1, 1.1 + b), [b]
            )
            blocks.put(np.array([b]), cut, totals[b : b + 1], weights)
        before = blocks.dual
        blocks.step_towards_best(weights)
        assert blocks.dual == pytest.approx(before, rel=1e-12)
        assert_allclose(weights, totals, rtol=1e-12)


def test_many_planes_move_house_and_leave_no_gaps():
    mirror = Mirror(np.random.default_rng(0), 6)
    everyone = np.arange(6)
    used = []
    for turn in range(200):
        mirror.put(everyone)
        mirror.set.update(everyone, mirror.weights, StepRule(max_steps=3), mirror.new_planes(6))
        if turn % 40 > 30:
            mirror.set.drop_idle(1)
        used.append(int(mirror.set._table.counts[cut_table.N_ENTRIES]))
        if turn % 20 == 0:
            mirror.check()
    mirror.check()
    assert mirror.set._table.capacity.max() >= 8 * working_set._FIRST_CAPACITY
    assert any(b < a for a, b in pairwise(used))  # gaps were closed
    assert mirror.set.n_cuts < 200


@pytest.mark.parametrize("n_features", [1, 63, 64, 65, DIRECT_BELOW, DIRECT_BELOW + 1, 10**6])
def test_inner_products_with_any_number_of_features(n_features):
    random = np.random.default_rng(n_features)
    pool = np.r_[0, n_features - 1, random.integers(0, n_features, 200)].astype(np.uint32)
    starts = np.r_[0, np.cumsum(random.integers(0, 400, 9))]
    columns, values = random.choice(pool, starts[-1]), random.normal(size=starts[-1])
    cuts = Cuts(starts, columns, values, np.ones(9), list(range(9)))
    working = WorkingSet(np.ones(1), n_features)
    working.put(np.zeros(9, dtype=np.int64), cuts, np.zeros(9), np.zeros(n_features))
    psi = sp.csr_array((values, columns.astype(np.int64), starts), shape=(9, n_features))
    table = working._table
    gram = table.gram[table.gram_at[0] :][: 16 * 16].reshape(16, 16)
    assert_allclose(gram[:9, :9], (psi @ psi.T).toarray(), atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, limit=st.integers(0, 4))
def test_a_cache_keeps_what_was_used_last(seed, limit):
    mirror = Mirror(np.random.default_rng(seed), 3)
    everyone = np.arange(3)
    for _ in range(6):
        mirror.weights[:] = mirror.random.normal(size=N_FEATURES)
        mirror.set.update(everyone, mirror.weights, StepRule(max_steps=0), mirror.new_planes(3))
    last_used = {y: 0 for block in mirror.contents() for y in block}
    for turn in range(1, 8):
        mirror.weights[:] = mirror.random.normal(size=N_FEATURES)
        vector, slopes = np.zeros(N_FEATURES), mirror.slopes
        loss, recipe = mirror.set.add_best(mirror.weights, vector)
        best = [
            max([y for y in block if slopes[y] > 0.0], key=slopes.__getitem__, default=None)
            for block in mirror.contents()
        ]
        assert recipe.outputs == [y for y in best if y is not None]
        assert_array_equal(recipe.coef, mirror.totals[recipe.examples])
        assert_allclose(vector, recipe.coef @ mirror.psi[recipe.outputs], atol=1e-10)
        assert loss == pytest.approx(recipe.coef @ mirror.losses[recipe.outputs])
        last_used |= dict.fromkeys(recipe.outputs, turn)
    before = mirror.contents()
    mirror.set.keep_latest(limit)
    for old, new in zip(before, mirror.contents(), strict=True):
        assert len(new) == min(limit, len(old))
        gone = [last_used[y] for y in old.keys() - new.keys()]
        assert max(gone, default=0) <= min([last_used[y] for y in new], default=99)
    mirror.weights[:] = 0.0
    mirror.check()


def test_a_cache_keeps_what_the_weights_are_made_of():
    mirror = Mirror(np.random.default_rng(1), 2)
    for _ in range(3):
        mirror.put(np.arange(2))
    mirror.set.keep_latest(1)
    mirror.check()


def one_block(seed, m):
    """A block with planes of which some share the budget, as a mirror."""
    mirror = Mirror(np.random.default_rng(seed), 1)
    mirror.totals[0] = 1.5
    cuts = mirror.new_planes(m)
    shares = mirror.random.dirichlet(np.ones(m + 1))[:m] * (mirror.random.random(m) < 0.6)
    if mirror.random.random() < 0.5 and shares.any():
        shares /= shares.sum()  # nothing left for the zero plane
    mirror.set.put(np.zeros(m, dtype=np.int64), cuts, 1.5 * shares, mirror.weights)
    return mirror


def optimum(psi, losses, total):
    """Of the dual over one block, by the referee: the least of the primal."""
    slopes, offsets = np.vstack([psi, np.zeros(psi.shape[1])])[None, :, None], np.r_[losses, 0.0]

    def objective(weights):
        return (
            0.5 * np.sum(weights**2) + total * (offsets - slopes[0, :, 0] @ weights.ravel()).max()
        )

    model = referee._model(np.zeros((1, psi.shape[1])), 1)
    return referee._solve(model, -slopes, offsets[None], np.array([total]), objective).value


@settings(max_examples=30, deadline=None)
@given(seed=seeds, m=st.integers(1, 6))
def test_pairwise_steps_reach_the_optimum_of_a_block(seed, m):
    mirror = one_block(seed, m)
    best = optimum(mirror.psi, mirror.losses, 1.5)
    mirror.set.update(
        np.zeros(1, dtype=np.int64), mirror.weights, StepRule(max_steps=100_000, tolerance=1e-10)
    )
    assert mirror.dual == pytest.approx(best, rel=1e-8, abs=1e-8)
    mirror.check()


@settings(max_examples=60, deadline=None)
@given(seed=seeds, m=st.integers(1, 6), away=st.booleans())
def test_frank_wolfe_steps_are_exact(seed, m, away):
    mirror = one_block(seed, m)
    psi, losses = np.vstack([mirror.psi, np.zeros(N_FEATURES)]), np.append(mirror.losses, 0.0)
    coef = np.array([pair[0] for pair in mirror.contents()[0].values()])
    coef = np.append(coef, 1.5 - coef.sum())  # the zero plane comes last
    coef[-1] = coef[-1] if coef[-1] > 1e-12 else 0.0
    slopes = losses - psi @ mirror.weights
    towards = 1.5 * np.eye(m + 1)[np.argmax(slopes)] - coef
    worst = np.argmin(np.where(coef > 0.0, slopes, np.inf))
    backing = coef - 1.5 * np.eye(m + 1)[worst]
    direction, longest = towards, 1.0
    if away and backing @ slopes > towards @ slopes + 1e-12:
        direction, longest = backing, coef[worst] / max(1.5 - coef[worst], 1e-300)

    def dual(step):
        moved = coef + step * direction
        return moved @ losses - 0.5 * np.sum((moved @ psi) ** 2)

    rule = StepRule(kind=AWAY if away else FRANK_WOLFE)
    update = mirror.set.update(np.zeros(1, dtype=np.int64), mirror.weights, rule)
    assert mirror.dual == pytest.approx(best_on_segment(dual, longest), rel=1e-9, abs=1e-9)
    assert update.gain == pytest.approx(mirror.dual - dual(0.0), abs=1e-9)
    mirror.check()


def test_one_pairwise_step_is_not_wasted_on_what_rounding_left():
    rest = 2.0**-56  # half a unit in the last place of 0.2: adding it changes nothing
    coef = np.array([0.2, 0.3 - 0.2 - rest])
    assert 0.3 - coef[0] - coef[1] == rest
    cuts = Cuts(
        np.arange(3), np.arange(2, dtype=np.uint32), np.ones(2), np.array([2.0, 1.0]), ["a", "b"]
    )
    block, weights, blocks = (
        np.zeros(1, dtype=np.int64),
        np.zeros(2),
        WorkingSet(np.array([0.3]), 2),
    )
    blocks.put(np.zeros(2, dtype=np.int64), cuts, coef, weights)
    for _ in range(100):
        gap = blocks.update(block, weights, StepRule(kind=PAIRWISE, max_steps=1)).gap
    assert gap < 1e-6


@settings(max_examples=30, deadline=None)
@given(seed=seeds, m=st.integers(1, 6), wide=st.booleans())
def test_summed_planes(seed, m, wide):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(m, 8)) * (random.random((m, 8)) < (0.9 if wide else 0.3))
    losses = random.uniform(0.0, 3.0, m)
    nothing = DualPoint(np.zeros(0, dtype=np.int64), np.zeros(0), [])
    cuts = SummedCuts()
    for vector, loss in zip(vectors, losses, strict=True):
        cuts.add(SummedCut(vector, float(loss), nothing))
    assert_allclose(cuts.kept.gram, vectors @ vectors.T, atol=1e-12)
    best = optimum(vectors, losses, 1.0)
    last = cuts.dual
    for _ in range(3):
        cuts.step_towards_best()
        assert last - 1e-12 <= cuts.dual <= best + 1e-8
        last = cuts.dual
    cuts.solve(1e-10)
    assert cuts.dual == pytest.approx(best, rel=1e-8, abs=1e-8)
    weights = random.normal(size=8)
    cuts.set_weights(weights)
    assert_allclose(weights, cuts.kept.coef @ vectors, atol=1e-12)
    assert_allclose(cuts.slopes, losses - vectors @ weights, atol=1e-10)
    assert (cuts.kept.coef >= 0.0).all()
    assert cuts.kept.coef.sum() <= 1.0 + 1e-12

    used = cuts.kept.coef > 0.0
    cuts.drop_idle(0)
    assert len(cuts) == used.sum()
    assert_allclose(cuts.kept.gram, vectors[used] @ vectors[used].T, atol=1e-12)
    assert cuts.dual == pytest.approx(best, rel=1e-8, abs=1e-8)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n=st.integers(0, 6))
def test_planes(seed, n):
    random = np.random.default_rng(seed)
    cuts, weights = random_planes(random, n), random.normal(size=N_FEATURES)
    rows = dense(cuts)
    assert_allclose(cuts.slopes(weights), cuts.losses - rows @ weights, atol=1e-12)
    which = random.permutation(n)[: n // 2]
    some = cuts.take(which)
    assert_array_equal(dense(some), rows[which])
    assert_array_equal(some.losses, cuts.losses[which])
    assert some.outputs == which.tolist()
    coef = random.normal(size=n)
    moved = weights.copy()
    add_to(moved, cuts, coef)
    assert_allclose(moved, weights + coef @ rows, atol=1e-12)

"""The plane cache against dense arrays: giving memory back changes neither weights nor dual."""

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from test_working_set import N_FEATURES, dense, random_planes

from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.dual.cut_cache import CutCache, Mixture, measure_examples, mixed_output, size_of
from maxmargin.dual.working_set import StepRule

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
seeds = st.integers(0, 2**32 - 1)
PLENTY = 1 << 24


class Mirror:
    """A cache, its weights, and all planes that ever were, by output."""

    def __init__(self, seed, max_bytes=PLENTY, n_owners=12):
        self.random = np.random.default_rng(seed)
        self.C = self.random.uniform(0.1, 2.0, n_owners)
        self.cache = CutCache(N_FEATURES, max_bytes)
        self.cache.look_at(0, n_owners)
        self.weights = np.zeros(N_FEATURES)
        self.psi, self.losses, self.owner = np.zeros((0, N_FEATURES)), np.zeros(0), []
        self.frozen = np.zeros(n_owners)

    def separate(self, owners):
        cuts = random_planes(self.random, len(owners), len(self.losses))
        self.psi = np.vstack([self.psi, dense(cuts)])
        self.losses = np.append(self.losses, cuts.losses)
        self.owner += owners.tolist()
        return cuts

    def take_in(self, n=None, rule=None):
        n = n or int(self.random.integers(1, len(self.C) + 1))
        owners = self.random.permutation(len(self.C))[:n]
        self.cache.take_in(
            owners, self.C[owners], self.separate(owners), self.weights, rule or StepRule()
        )

    def sweep(self):
        order = self.random.permutation(self.cache.n_examples)
        self.cache.update(order, self.weights, StepRule())

    def check(self):
        point, frozen = self.cache.point(), self.cache.frozen
        outputs = np.array(point.outputs, dtype=np.int64)
        assert_array_equal(np.array(self.owner, dtype=np.int64)[outputs], point.examples)
        weights, linear = point.coef @ self.psi[outputs], point.coef @ self.losses[outputs]
        used = np.bincount(point.examples, point.coef, len(self.C)).astype(float)
        if frozen is not None:
            weights, linear = weights + frozen.vector, linear + frozen.loss[0]
            used[: len(frozen.spent)] += frozen.spent
        assert_allclose(self.weights, weights, atol=1e-10)
        assert self.cache.linear == pytest.approx(linear, abs=1e-10)
        assert self.cache.dual == pytest.approx(linear - 0.5 * weights @ weights, abs=1e-10)
        assert (used <= self.C * (1.0 + 1e-10)).all()
        assert (point.coef > 0.0).all()
        assert len(set(self.cache.owners.tolist())) == self.cache.n_examples
        blocks = self.cache.examples_of(self.cache.owners)
        assert_array_equal(blocks, np.arange(self.cache.n_examples))
        missing = np.setdiff1d(np.arange(len(self.C)), self.cache.owners)
        assert (self.cache.examples_of(missing) == -1).all()
        assert self.cache.n_bytes <= self.cache.max_bytes
        outputs = [self.cache.outputs[p] for p in self.numbers()]
        assert self.cache.output_bytes >= sum(map(size_of, outputs))
        self.check_gram()

    def numbers(self):
        table = self.cache._table
        return [
            p
            for b in range(self.cache.n_examples)
            for p in table.slots[table.slot_at[b] :][: table.size[b]]
        ]

    def check_gram(self):
        table = self.cache._table
        for b in range(self.cache.n_examples):
            numbers = table.slots[table.slot_at[b] :][: table.size[b]]
            rows = np.zeros((len(numbers), N_FEATURES))
            for row, p in zip(rows, numbers, strict=True):
                entries = slice(table.start[p], table.start[p] + table.length[p])
                np.add.at(row, table.columns[entries], table.values[entries])
                expected, loss = self.cut(self.cache.outputs[p])
                assert_allclose(row, expected, atol=1e-10)
                assert table.loss[p] == pytest.approx(loss, abs=1e-12)
            stride = table.capacity[b]
            gram = table.gram[table.gram_at[b] :][: stride * stride].reshape(stride, stride)
            assert_allclose(gram[: len(rows), : len(rows)], rows @ rows.T, atol=1e-10)

    def cut(self, output):
        if not isinstance(output, Mixture):
            return self.psi[output], self.losses[output]
        assert sum(output.shares) == pytest.approx(1.0, abs=1e-12)
        assert min(output.shares) > 0.0
        which = list(output.outputs)
        return np.array(output.shares) @ self.psi[which], np.array(output.shares) @ self.losses[
            which
        ]


def worked(seed, iterations=6, **options):
    mirror = Mirror(seed, **options)
    for _ in range(iterations):
        mirror.take_in()
        mirror.sweep()
    return mirror


def crowded(seed):
    """A cache with several planes in most blocks, all with coefficients."""
    mirror = Mirror(seed)
    for _ in range(8):
        owners = np.arange(len(mirror.C))
        coef = mirror.C * mirror.random.uniform(0.01, 0.12, len(owners))
        cuts = mirror.separate(owners)
        mirror.cache.put_in(owners, mirror.C, cuts, coef, mirror.weights)
    return mirror


@given(seed=seeds, moves=st.lists(st.sampled_from("tsnpmgfhre"), max_size=25))
@example(seed=4294967294, moves=[*"npfm"])  # merging in an arena with gaps
@settings(deadline=None, max_examples=40, phases=PHASES)
def test_any_moves_keep_everything_in_step_and_the_dual_never_falls(seed, moves):
    mirror = worked(seed, 2)
    cache, weights, random = mirror.cache, mirror.weights, mirror.random
    for move in moves:
        before = cache.dual
        if move == "t":
            mirror.take_in()
        elif move == "n":
            mirror.take_in(rule=StepRule(max_steps=0))
        elif move == "s":
            mirror.sweep()
        elif move == "p":
            cache.prune(weights, int(random.integers(1, 3)))
        elif move == "m":
            cache.prune(weights)
            cache.merge(int(random.integers(1, 4)))
        elif move == "g":
            cache.shrink()
        elif move == "f" and cache.n_examples:
            cache.freeze(np.flatnonzero(random.random(cache.n_examples) < 0.3))
        elif move == "h":
            cache.thaw(weights)
        elif move == "r":
            owners = np.arange(len(mirror.C))
            cuts = mirror.separate(owners)
            cache.begin_pass()
            cache.renew(owners, cuts, cuts.slopes(weights))
            cache.end_pass(weights)
        elif move == "e":
            cache.recount(weights)
        mirror.check()
        assert cache.dual >= before - 1e-10
        if move in "pmgfe":
            assert cache.dual == pytest.approx(before, abs=1e-10)


@given(seed=seeds, kilobytes=st.integers(3, 12), iterations=st.integers(1, 12))
@settings(deadline=None, max_examples=20, phases=PHASES)
def test_memory_never_exceeds_its_limit_and_the_dual_never_falls(seed, kilobytes, iterations):
    mirror = Mirror(seed, max_bytes=1024 * kilobytes, n_owners=40)
    for _ in range(iterations):
        before = mirror.cache.dual
        mirror.take_in(20)
        mirror.check()
        mirror.sweep()
        mirror.cache.thaw(mirror.weights)
        mirror.check()
        assert mirror.cache.dual >= before - 1e-10


def test_the_prediction_of_memory_is_never_too_low(monkeypatch):
    predicted = []
    original = CutCache._bytes_with

    def spy(self, blocks, cuts):
        predicted.append(original(self, blocks, cuts))
        return predicted[-1]

    monkeypatch.setattr(CutCache, "_bytes_with", spy)
    mirror = Mirror(0, n_owners=50)
    for turn in range(60):
        mirror.take_in()
        assert mirror.cache.n_bytes <= predicted[-1]
        if turn % 10 == 9:
            mirror.cache.prune(mirror.weights)
        if turn % 25 == 24:
            mirror.cache.shrink()


def test_a_merged_plane_is_the_mean_of_its_planes():
    mirror = crowded(1)
    cache = mirror.cache
    before = cache.point()
    assert np.bincount(before.examples).min() > 2
    cache.merge(1)
    assert cache._table.size.max() == 1
    assert cache.n_merged > 0
    mirror.check()
    after = cache.point()
    key = lambda point: sorted(zip(point.examples.tolist(), point.outputs, strict=True))  # noqa: E731
    assert key(after) == key(before)
    assert_allclose(np.sort(after.coef), np.sort(before.coef), rtol=1e-12)


def test_merging_twice_adds_up_shares_of_the_same_output():
    mixed = mixed_output([(Mixture((b"a", b"b"), (0.25, 0.75)), 0.4), (b"a", 0.6)])
    assert mixed.outputs == (b"a", b"b")
    assert mixed.shares == pytest.approx((0.7, 0.3))
    unhashable = mixed_output([([1], 0.5), ([1], 0.5)])
    assert unhashable.outputs == ([1], [1])


def test_merging_gives_memory_back():
    mirror = crowded(2)
    cache = mirror.cache
    cache.shrink()
    before = cache.n_bytes
    cache.merge(1)
    cache.shrink()
    assert cache.n_bytes < 0.7 * before


def test_what_is_frozen_first_is_full_and_far_from_a_change():
    mirror = worked(3, 12)
    cache = mirror.cache
    for _ in range(50):
        mirror.sweep()
    cache.prune(mirror.weights)
    steady, sizes = np.zeros(cache.n_examples), np.zeros(cache.n_examples, dtype=np.int64)
    measure_examples(cache._table, mirror.weights, steady, sizes)
    point = cache.point()
    used = np.bincount(point.examples, point.coef, len(mirror.C))[cache.owners]
    full = used >= cache.totals * (1.0 - 1e-9)
    assert (steady[~full] <= 0.0).all()
    assert steady.max() > 0.0
    first = cache.owners[np.argmax(steady)]
    cache._freeze_some(cache.n_bytes - 1, mirror.weights)
    assert cache.frozen.spent[first] == pytest.approx(mirror.C[first])
    assert cache.examples_of(np.array([first]))[0] == -1
    mirror.check()


def test_a_frozen_example_has_what_is_left_of_its_total():
    mirror = worked(4)
    cache = mirror.cache
    owner = int(cache.owners[0])
    cache.freeze(np.array([0]))
    spent = cache.frozen.spent[owner]
    assert spent > 0.0
    owners = np.array([owner])
    cache.take_in(
        owners, mirror.C[owners], mirror.separate(owners), mirror.weights, StepRule(max_steps=0)
    )
    block = cache.examples_of(owners)[0]
    if block >= 0:
        assert cache.totals[block] == pytest.approx(max(mirror.C[owner] - spent, 0.0))


def test_a_cache_too_small_for_one_plane_says_so():
    mirror = Mirror(0, max_bytes=100)
    with pytest.raises(ValueError, match=r"100 bytes is too small .* set cache_bytes to \d+"):
        mirror.take_in(1)


def test_planes_with_coefficients_are_taken_over():
    first = worked(5)
    point = first.cache.point()
    second = CutCache(N_FEATURES, PLENTY)
    second.look_at(0, len(first.C))
    weights = np.zeros(N_FEATURES)
    order = np.arange(len(point.coef))
    psi = first.psi[point.outputs]
    starts = np.arange(len(order) + 1) * N_FEATURES
    cuts = Cuts(
        starts, np.tile(np.arange(N_FEATURES), len(order)).astype(np.uint32), psi.ravel(),
        first.losses[point.outputs], point.outputs,
    )  # fmt: skip
    second.put_in(point.examples, first.C[point.examples], cuts, point.coef, weights)
    again = second.point()
    assert isinstance(again, DualPoint)
    assert_array_equal(again.examples, point.examples)
    assert sorted(again.outputs) == sorted(point.outputs)
    assert_allclose(weights, first.weights, atol=1e-10)
    assert second.dual == pytest.approx(first.cache.dual, abs=1e-10)


def test_nothing_in_nothing_out():
    cache, weights = CutCache(N_FEATURES, PLENTY), np.zeros(N_FEATURES)
    nothing = np.zeros(0, dtype=np.int64)
    cache.take_in(
        nothing, np.zeros(0), random_planes(np.random.default_rng(0), 0), weights, StepRule()
    )
    cache.squeeze(0, weights)
    assert cache.n_examples == cache.n_cuts == len(cache.point().coef) == 0

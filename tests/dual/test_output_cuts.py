"""Working sets that keep outputs of chains: the same as those with all entries."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.dual.cut_table import AWAY, N_ENTRIES, StepRule, listed
from maxmargin.dual.output_cuts import OutputWorkingSet, working_set_of
from maxmargin.dual.working_set import WorkingSet
from maxmargin.structures.chain import label_cuts
from maxmargin.structures.chain import oracle as chain_oracle
from maxmargin.structures.chain.oracle import ChainOracle, Layout, Sequences

MOVES = (
    "infer", "sweep", "extrapolate", "restart", "revert", "step", "add_best", "drop", "put",
    "solve",
)  # fmt: skip
KINDS = {
    "narrow": {"n_labels": 3},
    "wide": {"n_labels": 10},
    "slack": {"n_labels": 3, "slack": True},
    "zero-one": {"n_labels": 9, "zero_one": True},
    "second order": {"n_labels": 3, "order": 2},
    "tied": {"n_labels": 9, "n_tied": 2},
    "dense": {"n_labels": 3, "dense": True},
    "no ends": {"n_labels": 4, "ends": False},
}


def make_oracle(random, n_labels=3, order=1, n_tied=0, dense=False, ends=True, **options):
    lengths = random.integers(0, 6, size=8)
    n_rows = int(lengths.sum())
    n_features = 40
    X = sp.csr_array(sp.random_array((n_rows, n_features), density=0.1, format="csr", rng=random))
    tied = sp.csr_array(sp.random_array((n_rows, max(n_tied, 1)), density=0.7, rng=random))
    layout = Layout.of(n_features, n_labels, bias=ends, ends=ends, order=order, n_tied=n_tied)
    loss = random.uniform(0.5, 1.5, (n_labels, n_labels)) * (1.0 - np.eye(n_labels))
    return ChainOracle(
        Sequences.of(
            X.toarray() if dense else X, np.r_[0, np.cumsum(lengths)], tied if n_tied else None
        ),
        random.integers(0, n_labels, n_rows),
        layout,
        random.uniform(0.1, 2.0, len(lengths)),
        1.0 - np.eye(n_labels) if options.get("slack") else loss,
        **options,
    )


class Driven:
    """A working set with its weights, which moves by name."""

    def __init__(self, oracle, working_set, weights):
        self.oracle, self.set, self.weights = oracle, working_set, weights

    @classmethod
    def start(cls, oracle):
        made = working_set_of(oracle)
        assert isinstance(made, OutputWorkingSet)
        return cls(oracle, made, np.zeros(oracle.n_features))

    def with_entries(self):
        """The same cuts and coefficients in a working set of entries."""
        table, entries = self.set._table, WorkingSet(self.oracle.C, self.oracle.n_features)
        examples, numbers = listed(table)
        outputs = [self.set.outputs[p] for p in numbers]
        other = Driven(self.oracle, entries, np.zeros(self.oracle.n_features))
        entries.put(
            examples, self.oracle.cuts_of(examples, outputs), table.coef[numbers], other.weights
        )
        same, theirs = listed(entries._table)
        assert_array_equal(same, examples)
        for name in ("previous", "idle"):
            getattr(entries._table, name)[theirs] = getattr(table, name)[numbers]
        entries.gaps[:] = self.set.gaps
        return other

    def shake(self, random):
        """Random coefficients: where steps have made slopes equal, rounding would choose a cut."""
        table, oracle = self.set._table, self.oracle
        examples, numbers = listed(table)
        for array in (table.coef, table.previous):
            array[numbers] = random.exponential(size=len(numbers))
            sums = np.bincount(examples, array[numbers], oracle.n_examples)
            array[numbers] *= 0.9 * (oracle.C / np.maximum(sums, 1e-300))[examples]
        cuts = oracle.cuts_of(examples, [self.set.outputs[p] for p in numbers])
        self.weights[:] = cuts.matrix(oracle.n_features).T @ table.coef[numbers]
        self.set._moved(cuts.losses @ table.coef[numbers] - self.set.linear, self.weights)

    def move(self, name, order, direction):
        """What a move tells, if anything."""
        w, own = self.weights, self.set
        if name == "infer":
            cuts = self.oracle.separate(w + direction, order, Threads(1))
            return own.update(order, w, StepRule(max_steps=1), cuts)[:3]
        if name == "sweep":
            return own.update(order, w, StepRule(kind=AWAY))[:3]
        if name == "extrapolate":
            return own.extrapolate(0.7, w)
        if name == "restart":
            return own.extrapolate(0.0, w)
        if name == "revert":
            return own.revert(w)
        if name == "step":
            return own.step_towards_best(w)
        if name == "add_best":
            vector = np.zeros_like(w)
            return own.add_best(w, vector)[0], *vector
        if name == "drop":
            return own.drop_idle(2)
        if name == "solve":
            return None if own.n_cuts == 0 else own.solve(w, lambda primal: 1e-9 * primal)
        cuts = self.oracle.separate(direction, order, Threads(1))
        return own.put(order, cuts, np.zeros(len(order)), w)

    @property
    def seen(self):
        """All that may be seen of it; Gram matrices row by row."""
        point, table = self.set.point(), self.set._table
        grams = [
            table.gram[table.gram_at[b] + j * table.capacity[b] :][: table.size[b]]
            for b in range(len(table.size))
            for j in range(table.size[b])
        ]
        return (
            self.weights, self.set.dual, self.set.linear, self.set.hinges(self.weights),
            self.set.gaps, point.coef, np.concatenate([[0.0], *grams]),
        )  # fmt: skip


def assert_same(a, b):
    assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    moves=st.lists(st.sampled_from(MOVES), max_size=12),
    small=st.sampled_from([0, 1 << 17]),
)
def test_outputs_are_as_good_as_entries(kind, seed, moves, small):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_cuts, "SMALL_TABLE", small)
        check_moves(kind, seed, moves)


def check_moves(kind, seed, moves):
    random = np.random.default_rng(seed)
    one = Driven.start(make_oracle(random, **KINDS[kind]))
    for name in ("infer", *moves):
        one.shake(random)
        other = one.with_entries()
        order = random.permutation(one.oracle.n_examples)[: random.integers(1, 9)]
        direction = random.normal(size=one.oracle.n_features)
        told = [each.move(name, order, direction) for each in (one, other)]
        assert (told[0] is None) == (told[1] is None)
        if told[0] is not None:
            assert_same(told[0], told[1])
        for with_outputs, with_entries in zip(one.seen, other.seen, strict=True):
            assert_same(with_outputs, with_entries)
        scratch = one.set._routines._scratch
        assert not any(getattr(scratch, left).any() for left in ("moves", "seen", "cut"))


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_without_entries_are_those_of_cuts(kind):
    random = np.random.default_rng(0)
    one = Driven.start(make_oracle(random, **KINDS[kind]))
    order = random.permutation(one.oracle.n_examples)
    weights = random.normal(size=one.oracle.n_features)
    for threads in (Threads(1), Threads(2)):
        with threads:
            # What they were said to have taken makes threads pay.
            threads._seconds[id(one.oracle)] = 1.0
            cuts = one.oracle.separate(weights, order, threads)
            threads._seconds[id(one.oracle)] = 1.0
            found = one.set.separate(one.oracle, weights, order, threads)
        assert found.outputs == cuts.outputs
        assert_array_equal(found.losses, cuts.losses)


def test_room_is_used_again():
    random = np.random.default_rng(0)
    one = Driven.start(make_oracle(random, n_labels=10))
    everyone, room = np.arange(one.oracle.n_examples), 160
    one.set._resize_arena(room)
    for _ in range(200):
        one.move("infer", everyone, 3.0 * random.normal(size=one.oracle.n_features))
        one.move("drop", everyone, None)
    assert len(one.set._table.columns) == room
    for with_outputs, with_entries in zip(one.seen, one.with_entries().seen, strict=True):
        assert_same(with_outputs, with_entries)


def test_room_to_spare_stays():
    random = np.random.default_rng(0)
    one = Driven.start(make_oracle(random, n_labels=10))
    first = len(one.set._table.columns)
    for b in range(one.oracle.n_examples):
        one.move("infer", np.array([b]), random.normal(size=one.oracle.n_features))
        assert len(one.set._table.columns) == first


def test_outputs_are_known_after_an_interrupted_update(monkeypatch):
    random = np.random.default_rng(0)
    one = Driven.start(make_oracle(random))
    everyone = np.arange(one.oracle.n_examples)
    one.move("infer", everyone, random.normal(size=one.oracle.n_features))
    with monkeypatch.context() as patch:
        patch.setattr(one.set, "_note_outputs", interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.move("infer", everyone, random.normal(size=one.oracle.n_features))
    one.set.extrapolate(0.5, one.weights)
    one.set.point()
    assert_same(one.weights, one.with_entries().weights)


def interrupt():
    raise KeyboardInterrupt


def chains():
    random = np.random.default_rng(0)
    y = [random.integers(0, 4, size=length) for length in random.integers(1, 8, size=60)]
    return [np.eye(4)[labels] + random.normal(size=(len(labels), 4)) for labels in y], y


def fitted(**parameters):
    return mm.SequenceTagger(C=3.0, tol=1e-4, **parameters).fit(*chains())


@pytest.mark.parametrize("solver", ["auto", mm.OneSlack(), mm.FrankWolfe(step="pairwise")])
def test_fits_do_not_depend_on_what_is_kept(solver, monkeypatch):
    with_outputs = fitted(solver=solver)
    monkeypatch.setattr(ChainOracle, "output_cuts", None)
    with_entries = fitted(solver=solver)
    for fit in (with_outputs, with_entries):
        assert fit.certificate_.relative_gap <= 1e-4
    assert with_outputs.certificate_.primal == pytest.approx(
        with_entries.certificate_.primal, rel=2e-4
    )


def test_dense_features_of_long_chains_are_merged(monkeypatch):
    oracle = make_oracle(np.random.default_rng(0), dense=True)
    assert oracle.output_cuts is not None
    monkeypatch.setattr(chain_oracle, "_MERGED", 1e-3)
    assert oracle.output_cuts is None


def restored(oracle, spoil=lambda table, outputs: (table, outputs)):
    """A working set, and one that takes over its table and outputs, as from a file."""
    one = Driven.start(oracle)
    everyone = np.arange(oracle.n_examples)
    for direction in np.random.default_rng(1).normal(size=(4, oracle.n_features)):
        one.move("infer", everyone, direction)
    other = Driven.start(oracle)
    table = one.set._table._replace(**{
        name: getattr(one.set._table, name).copy() for name in one.set._table._fields
    })  # fmt: skip
    other.set._table, other.set.outputs = spoil(table, list(one.set.outputs))
    other.set.linear, other.set.dual = one.set.linear, one.set.dual
    other.weights[:] = one.weights
    other.set.check_state()
    return one, other


def test_a_working_set_goes_on_from_a_file():
    oracle = make_oracle(np.random.default_rng(0))
    one, other = restored(oracle)
    everyone = np.arange(oracle.n_examples)
    for name in ("sweep", "infer", "extrapolate", "drop", "sweep"):
        one.move(name, everyone, np.zeros(oracle.n_features))
        other.move(name, everyone, np.zeros(oracle.n_features))
    for a, b in zip(one.seen, other.seen, strict=True):
        assert_array_equal(a, b)


def test_entries_of_earlier_files_are_dropped():
    def older(table, outputs):
        examples, numbers = listed(table)
        cuts = oracle.cuts_of(examples, [outputs[p] for p in numbers])
        table.length[numbers] = np.diff(cuts.starts)
        table.start[numbers] = cuts.starts[:-1]
        table.counts[N_ENTRIES : N_ENTRIES + 2] = cuts.starts[-1]
        return table._replace(columns=cuts.columns, values=cuts.values), outputs

    oracle = make_oracle(np.random.default_rng(0))
    one, other = restored(oracle, older)
    for a, b in zip(one.seen, other.seen, strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("damage", ["missing", "longer", "labels"])
def test_outputs_from_a_file_are_not_trusted(damage):
    def spoil(table, outputs):
        _, numbers = listed(table)
        p = int(numbers[np.argmax(table.length[numbers])])
        if damage == "missing":
            outputs[p] = None
        elif damage == "longer":
            outputs[p] += b"\0\0"
        else:
            outputs[p] = np.full(len(outputs[p]) // 2, 999, dtype=np.uint16).tobytes()
        return table, outputs

    with pytest.raises(ValueError):
        restored(make_oracle(np.random.default_rng(0)), spoil)


def test_the_dual_of_a_point_does_not_depend_on_blocks_of_features(monkeypatch):
    random = np.random.default_rng(0)
    oracle = make_oracle(random)
    one = Driven.start(oracle)
    one.move("infer", np.arange(oracle.n_examples), random.normal(size=oracle.n_features))
    point = one.set.point()
    whole = oracle.dual(point)
    assert whole == pytest.approx(one.set.dual)
    monkeypatch.setattr("maxmargin.core.oracle._FEATURES", 7)
    assert oracle.dual(point) == pytest.approx(whole, rel=1e-12)

"""Working sets that keep outputs in place of entries: the same bits as those with all entries."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.dual import cut_table, working_set
from maxmargin.dual.cut_table import AWAY
from maxmargin.dual.working_set import StepRule, WorkingSet
from maxmargin.structures.chain.oracle import ChainOracle, Layout, Sequences

N_LABELS = 3
MOVES = ("infer", "sweep", "extrapolate", "restart", "revert", "step", "add_best", "drop", "put")


@pytest.fixture
def small_windows(monkeypatch):
    """A working set is large from its second entry on, and windows hold an example or two."""
    monkeypatch.setattr(working_set, "_MOST_ENTRIES", 1)
    monkeypatch.setattr(working_set, "_WINDOW", 40)


def make_oracle(random, **options):
    lengths = random.integers(0, 6, size=8)
    n_rows = int(lengths.sum())
    X = sp.random_array((n_rows, 7), density=0.4, format="csr", rng=random)
    layout = Layout.of(7, N_LABELS, bias=True, ends=True, order=options.pop("order", 1))
    return ChainOracle(
        Sequences.of(sp.csr_array(X, dtype=np.float64), np.r_[0, np.cumsum(lengths)]),
        random.integers(0, N_LABELS, n_rows),
        layout,
        random.uniform(0.1, 2.0, len(lengths)),
        1.0 - np.eye(N_LABELS),
        **options,
    )


class Driven:
    """A working set with its weights, which moves by name."""

    def __init__(self, oracle, expander):
        self.oracle, self.weights = oracle, np.zeros(oracle.n_features)
        self.set = WorkingSet(oracle.C, oracle.n_features, expander)
        # So small that the first cuts do not fit, which makes it a window.
        arena = {"columns": np.zeros(1, dtype=np.uint32), "values": np.zeros(1)}
        self.set._table = self.set._table._replace(**arena)

    def move(self, name, order, direction):
        """What a move tells, if anything."""
        w, own = self.weights, self.set
        if name == "infer":
            cuts = self.oracle.separate(w + direction, order, Threads(1))
            return own.update(order, w, StepRule(max_steps=3), cuts)
        if name == "sweep":
            return own.update(order, w, StepRule(kind=AWAY))
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
            return own.add_best(w, vector)[0], vector.tobytes()
        if name == "drop":
            return own.drop_idle(2)
        cuts = self.oracle.separate(direction, order, Threads(1))
        return own.put(order, cuts, np.zeros(len(order)), w)

    @property
    def seen(self):
        point, table = self.set.point(), self.set._table
        _, numbers = working_set.listed(table)
        return (
            self.weights, self.set.dual, self.set.linear, self.set.hinges(self.weights),
            point.examples, point.coef, table.coef[numbers], table.gram, table.length[numbers],
        )  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"slack": True}, {"zero_one": True}, {"order": 2}])
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    moves=st.lists(st.sampled_from(MOVES), max_size=25),
    most=st.sampled_from([1, 100, 400]),
)
def test_outputs_are_as_good_as_entries(options, seed, moves, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(working_set, "_MOST_ENTRIES", most)
        patch.setattr(working_set, "_WINDOW", 40)
        random = np.random.default_rng(seed)
        oracle = make_oracle(random, **options)
        both = Driven(oracle, None), Driven(oracle, oracle)
        for name in ("infer", *moves):
            order = random.permutation(oracle.n_examples)[: random.integers(1, 9)]
            direction = random.normal(size=oracle.n_features)
            told = [one.move(name, order, direction) for one in both]
            assert told[0] == told[1]
            for with_entries, with_outputs in zip(*(one.seen for one in both), strict=True):
                assert_array_equal(with_entries, with_outputs)
        assert both[0].set._packed is None
        table, most = both[1].set._table, both[1].set._window_at
        assert both[1].set._packed is not None or table.counts[cut_table.N_LIVE] <= most
        assert both[1].set._stay <= most


def test_outputs_are_known_after_an_interrupted_update(small_windows):
    random = np.random.default_rng(0)
    oracle = make_oracle(random)
    both, everyone = (Driven(oracle, None), Driven(oracle, oracle)), np.arange(oracle.n_examples)
    for turn in range(3):
        direction = random.normal(size=oracle.n_features)
        for one in both:
            with pytest.MonkeyPatch.context() as patch:
                if turn == 2:
                    patch.setattr(one.set, "_note_outputs", interrupt)
                try:
                    one.move("infer", everyone, direction)
                except KeyboardInterrupt:
                    assert turn == 2
            one.set.extrapolate(0.5, one.weights)
    for with_entries, with_outputs in zip(*(one.seen for one in both), strict=True):
        assert_array_equal(with_entries, with_outputs)


def interrupt():
    raise KeyboardInterrupt


def chains():
    random = np.random.default_rng(0)
    y = [random.integers(0, 4, size=length) for length in random.integers(1, 8, size=60)]
    return [np.eye(4)[labels] + random.normal(size=(len(labels), 4)) for labels in y], y


def fitted(**parameters):
    return mm.SequenceTagger(C=3.0, tol=1e-2, **parameters).fit(*chains())


@pytest.mark.parametrize("solver", ["auto", mm.OneSlack(), mm.FrankWolfe(step="pairwise")])
def test_fits_do_not_depend_on_what_is_kept(solver, monkeypatch, small_windows):
    with_outputs = fitted(solver=solver)
    monkeypatch.undo()
    with_entries = fitted(solver=solver)
    assert_array_equal(with_outputs.coef_, with_entries.coef_)
    assert with_outputs.certificate_ == with_entries.certificate_
    assert len(with_outputs.history_) == len(with_entries.history_)


def restored(oracle, spoil=lambda table, outputs: (table, outputs)):
    """A large working set, and one that takes over its table and outputs, as from a file."""
    one = Driven(oracle, oracle)
    everyone = np.arange(oracle.n_examples)
    for direction in np.random.default_rng(1).normal(size=(4, oracle.n_features)):
        one.move("infer", everyone, direction)
    other = Driven(oracle, oracle)
    table = one.set._table._replace(**{
        name: getattr(one.set._table, name).copy() for name in one.set._table._fields
    })  # fmt: skip
    other.set._table, other.set.outputs = spoil(table, list(one.set.outputs))
    other.set.linear, other.set.dual = one.set.linear, one.set.dual
    other.weights[:] = one.weights
    other.set.check_state()
    return one, other


def test_a_large_working_set_goes_on_from_a_file(small_windows):
    oracle = make_oracle(np.random.default_rng(0))
    one, other = restored(oracle)
    everyone = np.arange(oracle.n_examples)
    for name in ("sweep", "infer", "extrapolate", "drop", "sweep"):
        one.move(name, everyone, np.zeros(oracle.n_features))
        other.move(name, everyone, np.zeros(oracle.n_features))
    for a, b in zip(one.seen, other.seen, strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("damage", ["missing", "longer", "labels", "other"])
def test_outputs_from_a_file_are_not_trusted(damage, small_windows):
    def spoil(table, outputs):
        _, numbers = working_set.listed(table)
        p = int(numbers[np.argmax(table.length[numbers])])
        if damage == "missing":
            outputs[p] = None
        elif damage == "longer":
            outputs[p] += b"\0\0"
        elif damage == "labels":
            outputs[p] = np.full(len(outputs[p]) // 2, 999, dtype=np.uint16).tobytes()
        else:
            table.length[p] -= 2
            table.counts[cut_table.N_LIVE] -= 2
        return table, outputs

    with pytest.raises(ValueError):
        restored(make_oracle(np.random.default_rng(0)), spoil)


def test_a_window_without_an_expander_is_refused(small_windows):
    one, _ = restored(make_oracle(np.random.default_rng(0)))
    one.set._expander = None
    with pytest.raises(ValueError, match=r"start|counts"):
        one.set.check_state()


def test_the_dual_of_a_point_does_not_depend_on_blocks_of_features(monkeypatch):
    random = np.random.default_rng(0)
    oracle = make_oracle(random)
    one = Driven(oracle, None)
    one.move("infer", np.arange(oracle.n_examples), random.normal(size=oracle.n_features))
    point = one.set.point()
    whole = oracle.dual(point)
    assert whole == pytest.approx(one.set.dual)
    monkeypatch.setattr("maxmargin.core.oracle._FEATURES", 7)
    assert oracle.dual(point) == pytest.approx(whole, rel=1e-12)

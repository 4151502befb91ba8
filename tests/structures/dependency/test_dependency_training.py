"""Training sets of dependency trees against all trees of the same sentences, one by one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, Enumerable, random_cost

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.core.result import Status
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.dependency.inference import Structure, check_trees, projectivized
from maxmargin.structures.dependency.oracle import (
    N_TEMPLATES,
    DependencyOracle,
    EncodedSentences,
    FeatureLayout,
    HashedArcs,
    _set_arc_columns,
    numbers_of,
    parse,
)
from maxmargin.structures.dependency.problem import DependencyTrees, GivenArcs

ONE = Threads(1)
STRUCTURES = [Structure(*flags) for flags in product([True, False], repeat=2)]
structures = pytest.mark.parametrize("structure", STRUCTURES)
seeds = st.integers(0, 2**32 - 1)


def all_outputs(n, structure, n_labels=None):
    """All trees of n words, by the problem's own list, as arcs in one number each."""
    kind = "projective" if structure.projective else "non-projective"
    problem = DependencyTrees(kind, single_root=structure.single_root, n_labels=n_labels)
    listed = problem.outputs(np.zeros((n + 1, n + 1, 1)))
    return [problem._arcs(y).astype(np.uint32) for y in listed]


def hashed(seed, structure, n_labels=None, *, n=5, longest=4, n_columns=64):
    """Random sentences over a few words and tags, hashed into few columns, with random trees."""
    random = np.random.default_rng(seed)
    sentences = [
        list(
            zip(
                random.choice(list("abcdef"), m).tolist(),
                random.choice(list("NVD"), m).tolist(),
                strict=True,
            )
        )
        for m in random.integers(0, longest + 1, n)
    ]
    words = numbers_of(word for one in sentences[1:] for word, _ in one)
    tags = numbers_of(tag for one in sentences for _, tag in one)
    arcs = HashedArcs(
        EncodedSentences.of(sentences, words, tags), FeatureLayout.of(n_columns, 8, n_labels)
    )
    outputs = [all_outputs(m, structure, n_labels) for m in arcs.lengths]
    y_true = [one[random.integers(len(one))] for one in outputs]
    oracle = DependencyOracle(arcs, np.concatenate(y_true), structure, random_cost(random, n))
    return oracle, outputs


def dense(cuts, n_features):
    rows = np.zeros((len(cuts.losses), n_features))
    owners = np.repeat(np.arange(len(rows)), np.diff(cuts.starts))
    np.add.at(rows, (owners, cuts.columns), cuts.values)
    return rows


def tree_score(oracle, weights, i, arcs):
    """Score of a tree by the scores of its arcs; labels by the features of a model of their own."""
    n_labels = oracle.arcs.n_labels
    heads, labels = np.divmod(arcs.astype(int), n_labels)
    total = 0.0
    for y in range(n_labels):
        # All labels but y are made worse than it by far, so that the best label is y.
        layout = oracle.arcs.layout
        only = weights.copy()
        if layout.n_rows:
            table = only[layout.n_columns :].reshape(layout.n_rows, layout.width)
            table[:, : layout.n_labels] -= 1e6
            table[:, y] += 1e6
        scores = oracle.arcs.arc_scores(only, i)
        total += sum(
            scores[h, m] for m, (h, label) in enumerate(zip(heads, labels, strict=True), start=1)
            if label == y
        )  # fmt: skip
    return total


@structures
@pytest.mark.parametrize("n_labels", [None, 3])
def test_planes_of_all_trees_are_differences_of_scores(structure, n_labels):
    for seed in range(3):
        oracle, outputs = hashed(seed, structure, n_labels, longest=3)
        random = np.random.default_rng(seed)
        weights = random.normal(size=oracle.n_features)
        for i, listed in enumerate(outputs):
            blocks = np.full(len(listed), i)
            cuts = oracle.cuts_of(blocks, [one.tobytes() for one in listed])
            y_true = oracle.y_true[oracle.arcs.ends[i] : oracle.arcs.ends[i + 1]]
            own = tree_score(oracle, weights, i, y_true)
            expected = [own - tree_score(oracle, weights, i, one) for one in listed]
            found = dense(cuts, oracle.n_features) @ weights
            assert_allclose(found, expected, atol=1e-7)
            assert_array_equal(cuts.losses, [np.sum(one != y_true) for one in listed])
            assert cuts.outputs == [one.tobytes() for one in listed]


@pytest.mark.diagonal
@structures
@pytest.mark.parametrize("n_labels", [None, 1, 3])
@settings(max_examples=10, deadline=None)
@given(seed=seeds, n_threads=st.integers(1, 3), scale=st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_searches_find_the_best_of_all_trees(structure, n_labels, seed, n_threads, scale):
    oracle, outputs = hashed(seed, structure, n_labels, longest=3)
    random = np.random.default_rng(seed)
    weights = scale * random.normal(size=oracle.n_features)
    blocks = random.permutation(5)[: random.integers(1, 6)]
    with Threads(n_threads) as threads:
        cuts = oracle.separate(weights, blocks, threads)
        _, totals = parse(oracle.arcs, weights, structure, threads)
    slopes = cuts.slopes(weights)
    for slope, output, i in zip(slopes, cuts.outputs, blocks, strict=True):
        listed = outputs[i]
        everything = oracle.cuts_of(np.full(len(listed), i), [y.tobytes() for y in listed])
        assert slope == pytest.approx(everything.slopes(weights).max(), abs=1e-9)
        assert output in [y.tobytes() for y in listed]
        best = max(tree_score(oracle, weights, i, y) for y in listed)
        assert totals[i] == pytest.approx(best, abs=1e-7)


class Listed(Enumerable):
    """The planes of a training set as a problem for the referee; inputs are block numbers."""

    def __init__(self, oracle, outputs):
        super().__init__()
        self.oracle, self.listed = oracle, [[y.tobytes() for y in one] for one in outputs]

    def outputs(self, x):
        return self.listed[x]

    def joint_feature(self, x, y):
        return -dense(self.oracle.cuts_of(np.array([x]), [y]), self.oracle.n_features)[0]

    def loss(self, y_true, y):
        return float(np.sum(np.frombuffer(y_true, np.uint32) != np.frombuffer(y, np.uint32)))


@structures
@pytest.mark.parametrize("n_labels", [None, 2])
def test_the_optimum_is_the_referees(structure, n_labels):
    oracle, outputs = hashed(7, structure, n_labels, longest=3)
    y_true = np.split(oracle.y_true, oracle.arcs.ends[1:-1])
    problem = Listed(oracle, outputs)
    case = Case(problem, list(range(5)), [y.tobytes() for y in y_true], oracle.C)
    result = Auto().solve(oracle, Stopping(1e-5))
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2e-5)
    assert result.certificate.dual <= case.optimum.value * (1.0 + 1e-9)
    assert case.objective(result.weights) == pytest.approx(result.certificate.primal, rel=1e-12)


def random_case(seed, structure="projective", n_labels=None, **options):
    random = np.random.default_rng(seed)
    problem = DependencyTrees(structure, n_labels=n_labels, **options)
    X = [random.normal(size=(m + 1, m + 1, 3)) for m in (1, 3, 2, 0, 3)]
    Y = [listed[random.integers(len(listed))] for listed in map(problem.outputs, X)]
    return Case(problem, X, Y, random_cost(random, len(X)))


@pytest.mark.parametrize("structure", ["projective", "non-projective"])
@pytest.mark.parametrize("n_labels", [None, 2])
def test_given_arcs_bound_and_in_plain_python(structure, n_labels):
    for seed, single_root in product(range(2), [True, False]):
        case = random_case(seed, structure, n_labels, single_root=single_root)
        bound = case.problem.make_oracle(case.X, case.Y, case.C, "margin")
        plain = case.oracle()
        assert bound.n_features == plain.n_features == case.pieces[0].shape[2]
        blocks = np.arange(5)
        for scale in (0.0, 1.0):
            weights = scale * np.random.default_rng(seed).normal(size=plain.n_features)
            expected = case.objective(weights)
            assert bound.primal(weights) == pytest.approx(expected, rel=1e-12, abs=1e-12)
            assert plain.primal(weights) == pytest.approx(expected, rel=1e-12, abs=1e-12)
            ours, theirs = (one.separate(weights, blocks, ONE) for one in (bound, plain))
            assert_allclose(ours.slopes(weights), theirs.slopes(weights), atol=1e-12)
            for x in case.X:
                outputs = case.problem.outputs(x)
                best = max(case.problem.joint_feature(x, y) @ weights for y in outputs)
                found = case.problem.inference(x, weights)
                assert case.problem.joint_feature(x, found) @ weights == pytest.approx(best)


@pytest.mark.parametrize(
    "solver", ["auto", "dual-coordinate", "frank-wolfe", "n-slack", "one-slack"]
)
@pytest.mark.parametrize("structure", ["projective", "non-projective"])
def test_solvers_reach_the_referees_optimum(solver, structure):
    case = random_case(3, structure)
    model = mm.StructuredSVM(
        case.problem, C=1.0, solver=solver, tol=1e-2 if solver == "frank-wolfe" else 1e-4
    )
    model.fit(case.X, case.Y, sample_weight=case.C)
    certificate = model.certificate_
    best = case.optimum.value
    assert certificate.dual - 1e-9 * best <= best <= certificate.primal + 1e-9 * best
    assert certificate.relative_gap <= model.tol


def test_distributions_over_listed_trees():
    """Partial linearization lists the outputs of the plain problem."""
    case = random_case(4)
    result = mm.PartialLinearization().solve(case.oracle(), Stopping(1e-3))
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2e-3)


@pytest.mark.parametrize("n_labels", [None, 3])
def test_top_of_given_arcs(n_labels):
    case = random_case(5, n_labels=n_labels)
    w = np.random.default_rng(0).normal(size=len(case.problem.joint_feature(case.X[0], case.Y[0])))
    for x in case.X:
        scores = sorted(case.problem.joint_feature(x, y) @ w for y in case.problem.outputs(x))
        found = [case.problem.joint_feature(x, y) @ w for y in case.problem.k_best(x, w, 4)]
        assert_allclose(found, scores[::-1][:4], atol=1e-12)


def test_planes_do_not_depend_on_threads_or_on_company():
    for n_labels in (None, 3):
        oracle, _ = hashed(1, Structure(True, True), n_labels, n=40)
        weights = np.random.default_rng(0).normal(size=oracle.n_features)
        everyone = np.arange(40)
        expected = oracle.separate(weights, everyone, ONE)
        for n_threads in (2, 3):
            with Threads(n_threads) as threads:
                found = oracle.separate(weights, everyone, threads)
            for one, other in zip(found[:4], expected[:4], strict=True):
                assert_array_equal(one, other)
            assert found.outputs == expected.outputs
        backwards = oracle.separate(weights, everyone[::-1].copy(), ONE)
        assert backwards.outputs == expected.outputs[::-1]


def test_outputs_of_other_lengths_are_refused():
    oracle, _ = hashed(0, Structure(True, True))
    with pytest.raises(ValueError, match="length"):
        oracle.cuts_of(np.arange(5), [b"1234" * 9] * 5)


def test_outputs_that_are_no_trees_are_refused():
    oracle, _ = hashed(0, Structure(True, True))
    outputs = [np.zeros(n, dtype=np.uint32).tobytes() for n in oracle.arcs.lengths]
    with pytest.raises(ValueError, match="second one with the root"):
        oracle.cuts_of(np.arange(5), outputs)


def columns_of(words, tags, head, modifier):
    """Columns of an arc in a large table; positions count from the root 0."""
    sentences = EncodedSentences(
        np.array([1, 2, *words, 3], dtype=np.int32),
        np.array([1, 2, *tags, 3], dtype=np.int32),
        np.array([0, len(words)]),
    )
    columns = np.empty(2 * N_TEMPLATES, dtype=np.uint32)
    keys = np.empty(N_TEMPLATES, dtype=np.uint64)
    _set_arc_columns(sentences.words, sentences.tags, head + 1, modifier + 1, 2**27, keys, columns)
    return columns


def test_features_look_at_words_tags_neighbours_direction_and_distance():
    words, tags = [10, 11, 12, 13, 14, 15], [4, 5, 6, 7, 8, 9]
    arc = columns_of(words, tags, 2, 5)
    assert len(set(arc)) == len(arc)

    def changed(words, tags, head=2, modifier=5):
        near, far = np.split(arc != columns_of(words, tags, head, modifier), 2)
        assert_array_equal(near, far)
        return int(near.sum())

    def replaced(numbers):
        return [[*numbers[:at], 99, *numbers[at + 1 :]] for at in range(6)]

    assert [changed(other, tags) for other in replaced(words)] == [0, 7, 0, 0, 7, 0]
    assert [changed(words, other) for other in replaced(tags)] == [3, 15, 3, 3, 15, 3]

    shifted = columns_of([10, *words], [4, *tags], 3, 6)
    assert_array_equal(shifted, arc)
    longer = columns_of([10, 11, 12, 16, 13, 14, 15], [4, 5, 6, 99, 7, 8, 9], 2, 6)
    assert_array_equal(longer[:N_TEMPLATES], arc[:N_TEMPLATES])
    assert not (longer[N_TEMPLATES:] == arc[N_TEMPLATES:]).any()
    turned = columns_of(words[::-1], tags[::-1], 5, 2)
    assert not (turned == arc).any()


def test_columns_are_spread_evenly():
    random = np.random.default_rng(0)
    arcs = random.integers(4, [50, 50, 5000, 5000], (4000, 4))
    columns = np.concatenate(
        [columns_of([w, v], [s, t], 1, 2)[[7, 8, 9, 12]] for s, t, w, v in arcs]
    )
    counts = np.bincount(columns >> 23, minlength=128)
    assert counts.min() > 60
    assert counts.max() < 200


def test_names_get_numbers_and_unseen_ones_zero():
    assert numbers_of("abacbc") == {"a": 4, "b": 5, "c": 6}
    one = EncodedSentences.of([[("a", "N"), ("x", "V")], []], {"a": 4}, {"N": 4, "V": 5})
    assert one.words.tolist() == [1, 2, 4, 0, 3, 1, 2, 3]
    assert one.tags.tolist() == [1, 2, 4, 5, 3, 1, 2, 3]
    assert one.ends.tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("heads", "structure", "message"),
    [
        ([2, 5], (False, False), "Sentence 1: the head of word 2 is 5, but heads are 0, .* to 2"),
        ([-1, 1], (False, False), "Sentence 1: the head of word 1 is -1"),
        ([1, 0], (False, False), "Sentence 1: word 1 is its own head"),
        ([0, 3, 2], (False, False), "Sentence 1: following the heads from word 2 .* cycle"),
        ([0, 0], (True, True), "Sentence 1: word 2 is the second one with the root"),
        ([3, 0, 2, 2], (True, True), "Sentence 1: the tree is not projective, .* from 3 to 1 cro"),
    ],
)
def test_faults_of_trees(heads, structure, message):
    flat, ends = np.array([2, 0, *heads]), np.array([0, 2, 2 + len(heads)])
    with pytest.raises(ValueError, match=message) as raised:
        check_trees(flat, ends, Structure(*structure))
    assert "\n" not in str(raised.value)


def test_exactly_the_trees_are_without_fault():
    """Against counts that are known in closed form."""
    for n, (projective, single_root) in product(range(1, 6), STRUCTURES):
        known = n ** (n - 1) if single_root else (n + 1) ** (n - 1)
        if projective:
            known = ([1, 2, 7, 30, 143] if single_root else [1, 3, 12, 55, 273])[n - 1]
        structure = Structure(projective, single_root)
        assert len(all_outputs(n, structure)) == known


def test_projectivized_trees():
    for n in range(1, 6):
        ends = np.array([0, n])
        projective = {tuple(y) for y in all_outputs(n, Structure(True, True))}
        for tree in all_outputs(n, Structure(False, True)):
            heads = tree.astype(np.int64)
            lifted, n_changed = projectivized(heads, ends)
            assert tuple(lifted) in projective
            assert n_changed == (tuple(heads) not in projective)
            assert n_changed == (lifted != heads).any()


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        ([np.zeros((2, 3, 1))], [(0,)], r"Sentence 0: arc features must have shape"),
        ([np.zeros((2, 2))], [(0,)], r"must have shape \(n \+ 1, n \+ 1, n_features\)"),
        ([np.full((2, 2, 1), np.nan)], [(0,)], "must be finite"),
        ([np.zeros((2, 2, 1)), np.zeros((2, 2, 2))], [(0,), (0,)], "Sentence 1 has 2 features"),
        ([np.zeros((2, 2, 1))], [(0, 1)], "Sentence 0 has 1 words but the tree 2 heads"),
        ([np.zeros((2, 2, 1))], [(1,)], "its own head"),
        ([[[["a"]]]], [()], "array of numbers"),
    ],
)
def test_bad_arrays(X, Y, message):
    with pytest.raises(ValueError, match=message):
        mm.StructuredSVM(DependencyTrees()).fit(X, Y)


def test_bad_structure():
    with pytest.raises(ValueError, match="structure must be"):
        DependencyTrees("planar")


def test_work_is_counted_for_no_sentences_and_for_empty_ones():
    oracle, _ = hashed(0, Structure(True, True), longest=0)
    assert oracle.oracle_work == 0.0
    assert Auto().solve(oracle, Stopping()).certificate.primal == 0.0
    assert GivenArcs([np.zeros((1, 1, 2))]).oracle_work == 0.0

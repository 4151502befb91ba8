"""Structured estimators that learn from examples as they come, or from a source."""

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import maxmargin as mm
from maxmargin.data.sources import Examples, Source
from maxmargin.solvers.online import Online
from maxmargin.structures.constituency.formats import read_trees
from maxmargin.structures.constituency.grammar import GrammarError
from maxmargin.training.fit import costs

N = 24


def oracle_of(model, examples):
    """The oracle that `fit` would train."""
    C = costs(model, examples.n_examples, None)
    return model._oracle(examples, C, model._metadata(examples, None))


class Listed(Source):
    """Lists, some at a time, with an empty block among them."""

    def __init__(self, X, y, size=7):
        self.X, self.y, self.size = X, y, size

    def batches(self):
        for start in range(0, len(self.y), self.size):
            part = slice(start, start + self.size)
            yield Examples(self.X[part], self.y[part])
            yield Examples(self.X[:0], self.y[:0])


@dataclass
class Case:
    """Examples for an estimator, and what it must refuse."""

    model: Any
    X: Any
    y: Any
    classes: Any
    strange: Any
    """A target for the first example with a label that is not known."""
    narrow: Any
    """The first example with one feature less."""

    def part(self, *bounds):
        some = slice(*bounds)
        return self.X[some], self.y[some]

    def objective(self, weights):
        """Of all examples."""
        model = clone(self.model)
        oracle = oracle_of(model, model._encode(self.X, self.y, None))
        return oracle.primal(weights)


def sequences():
    random = np.random.default_rng(0)
    lengths = random.integers(2, 6, size=N)
    X = [random.normal(size=(length, 4)) for length in lengths]
    names = np.array(["a", "b", "c"])
    y = [names[(x[:, :3] + 0.3 * random.normal(size=(len(x), 3))).argmax(axis=1)] for x in X]
    return X, y


def tagger(**options):
    X, y = sequences()
    strange = ["z"] * len(y[0])
    return Case(
        mm.SequenceTagger(C=0.2, tol=1e-3, **options), X, y, ["a", "b", "c"], strange, X[0][:, 1:]
    )


def graphs():
    rows, y = sequences()
    X = [(x, [(i, i + 1) for i in range(len(x) - 1)]) for x in rows]
    y = [labels.tolist() for labels in y]
    narrow = (X[0][0][:, 1:], X[0][1])
    strange = ["z"] * len(y[0])
    return Case(mm.GraphLabeler(C=0.2, tol=1e-3), X, y, ["a", "b", "c"], strange, narrow)


def rows(model, classes, strange, as_matrix=np.asarray):
    random = np.random.default_rng(1)
    X = random.normal(size=(N, 4))
    numbers = np.digitize(X[:, 0] + 0.3 * random.normal(size=N), [-0.5, 0.5])
    numbers[:3] = 0, 1, 2
    classes = np.array(classes)
    X = as_matrix(X)
    return Case(model, X, classes[numbers], classes, strange, X[:1, 1:])


def ordinal():
    return rows(mm.OrdinalClassifier(C=0.2, tol=1e-3), [1, 2, 3], 9)


def ordered():
    names = ["low", "middle", "high"]
    return rows(
        mm.OrdinalClassifier(C=0.2, classes=names, loss="squared", tol=1e-3), names, "higher"
    )


def hierarchical():
    model = mm.HierarchicalClassifier(C=0.2, tol=1e-3)
    return rows(model, ["x/a", "x/b", "y/c"], "y/d", sp.csr_array)


def set_rows():
    X, y = sequences()
    return np.array([x.mean(axis=0) for x in X]), [set(labels.tolist()) for labels in y]


def label_sets():
    X, sets = set_rows()
    model = mm.MultilabelClassifier(C=0.2, graph="full", tol=1e-3)
    return Case(model, X, sets, ["a", "b", "c"], {"a", "z"}, X[:1, 1:])


CASES = {
    "tagger": tagger,
    "pairs": lambda: tagger(pair_features=[0, 2], loss="hamming-normalized"),
    "graphs": graphs,
    "ordinal": ordinal,
    "ordered": ordered,
    "hierarchical": hierarchical,
    "sets": label_sets,
}
every = pytest.mark.parametrize("make", CASES.values(), ids=CASES)


def begun(case):
    return clone(case.model).partial_fit(*case.part(8), classes=case.classes)


def same_predictions(a, b):
    return all(np.array_equal(one, other) for one, other in zip(a, b, strict=True))


@every
def test_a_few_cycles_come_close_to_the_fit(make):
    case, cycles = make(), 6
    # Examples that come again count again: each time with a part of the cost.
    model = clone(case.model).set_params(C=case.model.C / cycles)
    for _ in range(cycles):
        for start in range(0, N, 8):
            model.partial_fit(*case.part(start, start + 8), classes=case.classes)
            assert len(model.predict(case.X)) == N
    fitted = clone(case.model).fit(case.X, case.y)
    np.testing.assert_array_equal(model.classes_, fitted.classes_)
    reached, best = case.objective(model._online.run.weights), fitted.certificate_
    assert best.dual <= reached <= 1.05 * best.dual
    assert 0.9 * best.dual <= model.certificate_.dual <= best.primal


@every
def test_later_calls_need_no_classes_and_improve(make):
    case = make()
    model = begun(case)
    before = model.certificate_.dual
    model.partial_fit(*case.part(8, None))
    assert model.certificate_.dual > before
    assert len(model.history_) == 2


@every
def test_fit_begins_anew_and_so_does_what_follows(make):
    case = make()
    fitted = clone(case.model).fit(case.X, case.y)
    model = begun(case).fit(case.X, case.y)
    assert model._online is None
    assert model.certificate_ == fitted.certificate_
    assert same_predictions(model.predict(case.X), fitted.predict(case.X))
    model.partial_fit(*case.part(8))  # the classes are those of the fit
    assert model.certificate_ == begun(case).certificate_


@every
def test_clone_and_pickle_in_between(make):
    case = make()
    model = begun(case)
    copies = [model, pickle.loads(pickle.dumps(model))]
    for each in copies:
        each.partial_fit(*case.part(8, None))
    assert copies[0].certificate_ == copies[1].certificate_
    assert same_predictions(*(each.predict(case.X) for each in copies))
    fresh = clone(model)
    assert fresh._online is None
    assert not hasattr(fresh, "classes_")


@every
def test_what_is_refused_leaves_the_model_as_it_was(make):
    case = make()
    model = begun(case)
    before, certificate = pickle.dumps(model._online.run.weights), model.certificate_
    one = case.part(1)
    narrow = case.narrow if hasattr(case.X, "shape") else [case.narrow]
    calls = {
        "not one of the classes|not among the classes": (one[0], [case.strange], None),
        "known already: they must stay the same": (*one, case.classes[:2]),
        "features": (narrow, one[1], None),
    }
    for message, (X, y, classes) in calls.items():
        with pytest.raises(ValueError, match=message):
            model.partial_fit(X, y, classes)
    assert pickle.dumps(model._online.run.weights) == before
    assert model.certificate_ is certificate


@every
def test_the_first_call_needs_the_classes(make):
    case = make()
    if getattr(case.model, "classes", None) is not None:
        clone(case.model).partial_fit(*case.part(8))  # they are a parameter
        return
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        clone(case.model).partial_fit(*case.part(8))


@every
def test_fit_from_a_source_is_the_fit_of_the_same_data(make):
    case = make()
    fitted = clone(case.model).set_params(tol=1e-4).fit(case.X, case.y)
    model = begun(case).set_params(tol=1e-4).fit(Listed(case.X, case.y))
    assert model._online is None
    assert model.status_ == "converged"
    assert model.certificate_.relative_gap <= 1e-4
    assert model.certificate_.primal == pytest.approx(fitted.certificate_.primal, rel=2e-4)
    assert model.certificate_.dual <= (1.0 + 1e-12) * fitted.certificate_.primal
    np.testing.assert_array_equal(model.classes_, fitted.classes_)
    assert model.n_features_in_ == fitted.n_features_in_
    assert (
        np.mean(
            np.concatenate(model.predict(case.X), axis=None)
            == np.concatenate(fitted.predict(case.X), axis=None)
        )
        > 0.9
    )


@every
def test_a_source_comes_alone(make):
    case = make()
    with pytest.raises(ValueError, match=r"leave \w out"):
        clone(case.model).fit(Listed(case.X, case.y), case.y)
    with pytest.raises(ValueError, match="leave sample_weight out"):
        clone(case.model).fit(Listed(case.X, case.y), sample_weight=np.ones(N))
    with pytest.raises(ValueError, match="no examples"):
        clone(case.model).fit(Listed(case.X[:0], case.y[:0]))


@every
def test_sample_weights_and_a_solver_with_options(make):
    case = make()
    model = clone(case.model).set_params(solver=Online(schedule="gap"))
    weights = np.linspace(0.0, 2.0, 8)
    model.partial_fit(*case.part(8), case.classes, sample_weight=weights)
    point = model._online.run.point()
    used = np.bincount(point.examples, point.coef, 8)
    assert (used <= case.model.C * weights + 1e-12).all()
    assert used.sum() > 0.0


# What only some have.


def test_lengths_are_as_good_as_lists():
    case = tagger()
    X, y = case.part(8)
    lengths = [len(labels) for labels in y]
    flat = clone(case.model).partial_fit(
        np.concatenate(X), np.concatenate(y), case.classes, lengths=lengths
    )
    assert flat.certificate_ == begun(case).certificate_


def named(X):
    return [[{"side": "left" if row[0] > row[1] else "right", "x": row[2]} for row in x] for x in X]


def test_dictionaries_take_the_names_of_the_fit_before():
    case = tagger()
    X = named(case.X)
    with pytest.raises(ValueError, match="call fit on some of them before"):
        clone(case.model).partial_fit(X, case.y, case.classes)
    model = clone(case.model).fit(X[:6], case.y[:6])
    names = dict(model.vocabulary_)
    X[7][0]["other"] = "new"
    model.partial_fit(X[6:12], case.y[6:12], case.classes).partial_fit(X[12:], case.y[12:])
    assert dict(model.vocabulary_) == names
    assert model.n_features_in_ == len(names)
    assert len(model.predict(X)) == N
    with pytest.raises(ValueError, match="trained on feature dictionaries"):
        model.partial_fit(case.X, case.y)
    matrices = model.fit(case.X, case.y)
    assert not hasattr(matrices, "vocabulary_")
    matrices.partial_fit(*case.part(8))
    with pytest.raises(ValueError, match="trained on matrices"):
        matrices.partial_fit(X, case.y)


def test_a_source_of_dictionaries():
    case = tagger()
    X = named(case.X)
    X[20][0]["late"] = "word"
    model = clone(case.model).set_params(tol=1e-4)
    fitted = clone(model).fit(X, case.y)
    model.fit(Listed(X, case.y))
    assert dict(model.vocabulary_) == dict(fitted.vocabulary_)
    assert model.certificate_.primal == pytest.approx(fitted.certificate_.primal, rel=2e-4)
    model.fit(Listed(case.X, case.y))
    assert not hasattr(model, "vocabulary_")


def test_sequences_without_positions():
    case = tagger()
    with pytest.raises(ValueError, match="no positions"):
        clone(case.model).partial_fit([np.zeros((0, 4))], [[]], case.classes)
    model = begun(case)
    before = model.certificate_.dual
    model.partial_fit([np.zeros((0, 4))], [[]])
    assert model.certificate_.dual == pytest.approx(before)


def test_a_file_whose_width_is_known_late(tmp_path):
    lines = ["1 qid:1 1:1", "2 qid:1 2:1", "1 qid:2 1:1 3:1", "2 qid:3 2:1 5:1", "1 qid:3 1:1"]
    path = tmp_path / "sequences.txt"
    path.write_text("\n".join(lines) + "\n")
    source = mm.data.SvmHmmFile(path, batch_bytes=16)
    assert len([block for block in source.batches() if len(block.y)]) > 1
    model = mm.SequenceTagger(tol=1e-3).fit(mm.data.SvmHmmFile(path, batch_bytes=16))
    assert model.n_features_in_ == 5
    assert model.classes_.tolist() == [1, 2]


def test_graphs_with_void_nodes_and_without_edges():
    case = graphs()
    y = [[None, *labels[1:]] for labels in case.y]
    model = clone(case.model).set_params(tol=1e-4)
    fitted = clone(model).fit(case.X, y)
    model.fit(Listed(case.X, y))
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.certificate_.primal == pytest.approx(fitted.certificate_.primal, rel=2e-4)
    model.partial_fit(case.X[:8], y[:8])
    model.partial_fit([(np.ones((1, 4)), [])], [["a"]])
    model.partial_fit([(np.ones((2, 4)), [(0, 1)])], [[None, None]])  # nothing to learn from
    assert len(model.history_) == 3
    with pytest.raises(ValueError, match="Each edge of X has 2 features"):
        model.partial_fit([(np.ones((2, 4)), [(0, 1)], np.ones((1, 2)))], [["a", "b"]])


def test_weights_of_nodes():
    case = graphs()
    X, y = case.part(8)
    twice = [np.full(len(labels), 2.0) for labels in y]
    model = clone(case.model).partial_fit(X, y, case.classes, node_weight=twice)
    assert model.certificate_.dual > begun(case).certificate_.dual


def test_the_order_of_classes_is_that_of_the_parameter():
    model = begun(ordered())
    assert model.classes_.tolist() == ["low", "middle", "high"]
    with pytest.raises(ValueError, match="known already"):
        clone(model).partial_fit([[1.0], [2.0]], ["low", "high"], classes=["low", "high"])


def test_one_class_is_too_few():
    with pytest.raises(ValueError, match="at least two classes"):
        mm.OrdinalClassifier(tol=1e-3).partial_fit([[1.0]], [1], classes=[1])
    with pytest.raises(ValueError, match="at least two classes"):
        mm.OrdinalClassifier(tol=1e-3).fit(Listed(np.ones((3, 1)), np.ones(3)))


@pytest.mark.parametrize("graph", ["independent", "tree", [[0, 2]]])
def test_a_matrix_names_the_labels_itself(graph):
    X, sets = set_rows()
    Y = np.array([[label in labels for label in "abc"] for labels in sets]).astype(int)
    model = mm.MultilabelClassifier(C=0.2, graph=graph, tol=1e-3).partial_fit(X[:8], Y[:8])
    edges = model.edges_
    model.partial_fit(X[8:], Y[8:], classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(model.edges_, edges)
    assert model.predict(X).shape == Y.shape
    with pytest.raises(ValueError, match="they must stay the same"):
        model.partial_fit(X, Y[:, :2])
    with pytest.raises(ValueError, match="list of sets, but was a matrix"):
        model.partial_fit(X, sets)
    source = Listed(X, Y, size=N)  # one block: the tree is that of all
    fitted = clone(model).set_params(tol=1e-4).fit(X, Y)
    model.set_params(tol=1e-4).fit(source)
    assert model.certificate_.primal == pytest.approx(fitted.certificate_.primal, rel=2e-4)


def test_no_label_at_all_is_a_set_too():
    case = label_sets()
    lists = [sorted(labels) for labels in case.y]
    model = clone(case.model).partial_fit(case.X[:8], lists[:8], case.classes)
    model.partial_fit(case.X[:1], [[]])
    assert len(model.history_) == 2


def test_names_of_features_must_stay_the_same():
    pandas = pytest.importorskip("pandas")
    case = ordinal()
    frame = pandas.DataFrame(case.X, columns=list("pqrs"))
    model = clone(case.model).partial_fit(frame[:8], case.y[:8], case.classes)
    assert model.feature_names_in_.tolist() == list("pqrs")
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[list("qprs")], case.y)
    model.partial_fit(frame[8:], case.y[8:])


BANK = """
(S (NP (PRP I)) (VP (VBD saw) (NP (DT a) (NN man)) (PP (IN with) (NP (DT a) (NN telescope)))))
(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NN town))))))
(S (NP (DT the) (NN dog)) (VP (VBZ barks)))
(S (NP (NP (DT the) (NN dog)) (PP (IN in) (NP (NN town)))) (VP (VBZ barks)))
"""


def test_a_parser_with_a_grammar():
    trees = read_trees(BANK)
    sentences = [list(zip(tree.words, tree.tags, strict=True)) for tree in trees]
    fitted = mm.GrammarParser(C=0.2, tol=1e-4).fit(trees)
    model = mm.GrammarParser(C=0.2, tol=1e-4, grammar=fitted.grammar_)
    source = Listed(sentences, trees, size=3)
    assert model.fit(source).certificate_.primal == pytest.approx(
        fitted.certificate_.primal, rel=2e-4
    )
    model.partial_fit(trees[:2]).partial_fit(sentences[2:], trees[2:])
    assert len(model.history_) == 2
    assert 0.5 * fitted.certificate_.dual < model.certificate_.dual <= fitted.certificate_.primal
    assert len(model.predict(sentences)) == 4
    with pytest.raises(ValueError, match="partial_fit needs all rules"):
        fitted.partial_fit(trees)
    with pytest.raises(ValueError, match="A source needs all rules"):
        fitted.fit(source)
    with pytest.raises(GrammarError):
        model.partial_fit(["(S (X (Y new)))"])
    with pytest.raises(ValueError, match="1 sentences but y has 2 trees"):
        model.partial_fit(sentences[:1], trees[:2])


@pytest.mark.parametrize("loss", ["pairwise", "ndcg"])
def test_a_ranker_learns_query_by_query(loss):
    random = np.random.default_rng(3)
    X = random.normal(size=(60, 4))
    y = np.digitize(X[:, 0] + 0.5 * random.normal(size=60), [-0.5, 0.5])
    query = np.repeat(np.arange(10), 6)
    fitted = mm.Ranker(C=0.5, loss=loss, tol=1e-3).fit(X, y, query)
    cycles = 4
    model = mm.Ranker(C=0.5 / cycles, loss=loss, tol=1e-3)
    for _ in range(cycles):
        for q in range(0, 10, 5):
            some = (query >= q) & (query < q + 5)
            model.partial_fit(X[some], y[some], query[some])
            assert model.predict(X).shape == (60,)
    assert model.n_queries_ == cycles * 10
    whole = clone(fitted)
    oracle = oracle_of(whole, whole._encode(X, y, None, query))
    reached = oracle.primal(model.coef_)
    assert fitted.certificate_.dual <= reached <= 1.05 * fitted.certificate_.dual
    before = model.coef_
    with pytest.warns(UserWarning, match="1 of 1 queries are left out"):
        model.partial_fit(X[:3], [1, 1, 1], [0, 0, 0])
    assert model.coef_ is before
    assert (model.n_queries_, model.n_left_out_) == (cycles * 10, 1)
    with pytest.raises(ValueError, match="expecting 4 features"):
        model.partial_fit(X[:, 1:], y, query)
    with pytest.raises(ValueError, match="order matters"):
        mm.Ranker(loss=loss, tol=1e-3).partial_fit(X[:3], [1, 1, 1], [0, 0, 0])
    assert model.fit(X, y, query).n_queries_ == 10


def test_a_source_whose_later_graphs_are_relaxed():
    """Trees first, which are searched exactly, then grids, which are not."""
    random = np.random.default_rng(0)
    tree = [(v, v + 1) for v in range(3)]
    grid = [(9 * r + c, 9 * r + c + 1) for r in range(9) for c in range(8)]
    grid += [(9 * r + c, 9 * r + c + 9) for r in range(8) for c in range(9)]
    X = [(random.normal(size=(4, 2)), tree) for _ in range(6)]
    X += [(random.normal(size=(81, 2)), grid) for _ in range(2)]
    y = [(nodes[:, 0] > 0).astype(int) + (nodes[:, 1] > 1) for nodes, _ in X]

    class TreesThenGrids(Source):
        def batches(self):
            yield Examples(X[:6], y[:6])
            yield Examples(X[6:], y[6:])

    labeler = mm.GraphLabeler(C=0.1, tol=0.05, inference_method="auto").fit(TreesThenGrids())
    assert labeler.certificate_.relaxed
    assert labeler.certificate_.relative_gap <= 0.05

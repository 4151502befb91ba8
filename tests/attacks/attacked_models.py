"""A small fitted model of every kind that a file can hold, with inputs and what `mm.load` needs."""

import dataclasses
import traceback
import warnings
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from latent_problems import Instances, random_bags
from pose_scenes import hooks
from sklearn.datasets import load_iris

import maxmargin as mm
from maxmargin.structures.chain.problem import HiddenChains
from maxmargin.structures.constituency.formats import read_trees

IRIS, SPECIES = load_iris(return_X_y=True)
X, y = IRIS[::5], SPECIES[::5]
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[y]
ROWS, LABELS = [X[:3], X[14:19], X[25:28]], [y[:3], y[14:19], y[25:28]]
WORDS = [[{"word": "a"}], [{"word": "b"}, {"word": "c", "long": 2.0}]]
TREES = read_trees("(S (NP (D the) (N dog)) (VP (V barks))) (S (NP (D a) (N cat)) (VP (V sleeps)))")
UNTAGGED = [["the", "cat", "barks"], ["a", "fox", "sleeps"]]
TAGGED = [[("the", "D"), ("dog", "N"), ("barks", "V")]]
ARCS = [([2, 3, 0], ["det", "subject", "root"])]
PATHS = [(np.eye(3), [(0, 1), (1, 2)])]
CYCLES = [(np.eye(4), [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])]
BAGS, BAG_CLASSES = random_bags(0)
IMAGES, POSES = hooks(6)


class Signs(mm.Problem):
    """Two outputs, +1 and -1, for a number."""

    def joint_feature(self, x, y):
        return np.array([x * y, float(y)])

    def loss(self, y, z):
        return float(y != z)

    def inference(self, x, weights):
        return max((1, -1), key=lambda z: float(self.joint_feature(x, z) @ weights))

    def loss_augmented_inference(self, x, y, weights):
        return max((1, -1), key=lambda z: self.loss(y, z) + self.joint_feature(x, z) @ weights)


class Levels(mm.KernelProblem):
    """One of three levels for a row."""

    def outputs(self, x):
        return [0, 1, 2]

    def loss(self, y_true, y):
        return abs(y_true - y)


def common_letters(a, b):
    """Kernel of two strings."""
    return float(len(set(a) & set(b)))


def of_both(x, y, x2, y2):
    """Kernel of two pairs of input and output."""
    return float(np.exp(-0.5 * np.sum((x - x2) ** 2)) * (y == y2))


class Attacked(NamedTuple):
    """A fitted estimator, inputs that it can answer, and what `mm.load` must be given."""

    model: Any
    inputs: Any
    given: dict[str, Any] = {}


def _kernel(kernel, rows=X, labels=y, own=False):
    model = mm.KernelStructuredSVM(mm.structures.Multiclass(), kernel=kernel, tol=1e-2)
    return Attacked(model.fit(rows, labels), rows, {"kernel": kernel} if own else {})


def _levels(kernel, own=False):
    levels = np.digitize(X[:, 0], [5.2, 6.2]).tolist()
    problem = Levels()
    model = mm.KernelStructuredSVM(problem, kernel=kernel, tol=1e-1).fit(X, levels)
    return Attacked(model, X, {"problem": problem} | ({"kernel": kernel} if own else {}))


def _low_rank(kernel, rows=X):
    return Attacked(mm.LowRankKernel(kernel, 5).fit(rows), rows)


def _pruned():
    random = np.random.default_rng(0)
    rows = random.normal(size=(30, 60))
    classes = np.argmax(rows[:, :3], axis=1)
    return Attacked(mm.prune(mm.LinearClassifier().fit(rows, classes), 0.1).estimator, rows)


def _pruned_words():
    tagger = mm.SequenceTagger().fit(WORDS, [["u"], ["v", "u"]])
    return Attacked(mm.prune(tagger, 0.1).estimator, WORDS)


def _low_rank_problem():
    features = mm.LowRankKernel("rbf", 4).fit(X)
    labels = mm.LowRankKernel("linear", 1).fit([[0.0], [1.0], [2.0]])
    problem = mm.LowRankProblem(Levels(), features, labels)
    model = mm.StructuredSVM(problem, tol=1e-1).fit(X, y.tolist())
    return Attacked(model, X, {"problem": problem})


def _tagger(inputs=ROWS, labels=LABELS, **options):
    return Attacked(mm.SequenceTagger(**options).fit(inputs, labels), inputs)


def _parser(inputs=TREES, **options):
    return Attacked(mm.GrammarParser(**options).fit(TREES), inputs)


def _dependencies(heads, **options):
    parser = mm.DependencyParser(n_features=512, **options)
    return Attacked(parser.fit(TAGGED, heads), TAGGED)


def _graphs(graphs, labels, **options):
    return Attacked(mm.GraphLabeler(**options).fit(graphs, labels), graphs)


def _label_sets(answers, **options):
    return Attacked(mm.MultilabelClassifier(**options).fit(X, answers), X)


def _stream():
    source = mm.data.open_examples(X, NAMES.astype(str), batch_bytes=400)
    return Attacked(mm.LinearClassifier().fit(source), X)


def _learned_online():
    model = mm.LinearClassifier().partial_fit(X, y, classes=[0, 1, 2])
    return Attacked(model.partial_fit(X[:9], y[:9]), X)


def _signs(**options):
    problem = Signs()
    model = mm.StructuredSVM(problem, **options).fit([1.0, -2.0, 3.0], [1, -1, 1])
    return Attacked(model, [2.0, -2.0, 0.3], {"problem": problem})


def _instances():
    problem = Instances(1.0 - np.eye(3))
    model = mm.LatentStructuredSVM(problem).fit(BAGS, BAG_CLASSES)
    return Attacked(model, BAGS, {"problem": problem})


def _hidden_chains():
    # Its predictions are pairs of labels and states.
    model = mm.LatentStructuredSVM(HiddenChains(4, 3, 2), tol=1e-1, max_imputations=3)
    return Attacked(model.fit(ROWS, LABELS), ROWS)


MODELS: dict[str, Callable[[], Attacked]] = {
    "classifier": lambda: Attacked(mm.LinearClassifier(warm_start=True).fit(X, y), X),
    "classifier, two classes": lambda: Attacked(mm.LinearClassifier().fit(X, y == 1), X),
    "classifier, one-vs-rest": lambda: Attacked(
        mm.LinearClassifier(formulation="one-vs-rest").fit(X, NAMES), X
    ),
    "classifier, costs": lambda: Attacked(
        mm.LinearClassifier(
            loss_matrix={("setosa", "virginica"): 3.0},
            class_weight={"setosa": 2.0},
            prior=mm.GaussianPrior(mean=np.ones((3, 4))),
        ).fit(X, NAMES.astype(str)),
        X,
    ),
    "classifier, sparse": lambda: Attacked(
        mm.LinearClassifier(nonnegative=True).fit(sp.csr_array(X), y), sp.csr_array(X)
    ),
    "classifier, pruned": _pruned,
    "classifier, streamed": _stream,
    "classifier, online": _learned_online,
    "regressor": lambda: Attacked(
        mm.LinearRegressor(prior=mm.GaussianPrior(mean=np.ones(4))).fit(X, y * 1.0), X
    ),
    "tagger": _tagger,
    "tagger, order 2": lambda: _tagger(solver=mm.OneSlack(), order=2),
    "tagger, pair features": lambda: _tagger(pair_features=[0, 2], fit_ends=False),
    "tagger, words": lambda: _tagger(WORDS, [["u"], ["v", "u"]]),
    "tagger, pruned words": _pruned_words,
    "tagger, partial linearization": lambda: _tagger(solver="partial-linearization", max_iter=20),
    "ordinal": lambda: Attacked(mm.OrdinalClassifier().fit(X, y), X),
    "ordinal, names": lambda: Attacked(
        mm.OrdinalClassifier(classes=["setosa", "versicolor", "virginica"]).fit(
            X, NAMES.astype(str)
        ),
        X,
    ),
    "multilabel": lambda: _label_sets(np.eye(3, dtype=int)[y]),
    "multilabel, sets": lambda: _label_sets([{name, "flower"} for name in NAMES], loss="f1"),
    "multilabel, full": lambda: _label_sets(np.eye(3, dtype=int)[y], graph="full"),
    "ranker": lambda: Attacked(mm.Ranker().fit(X, y, np.arange(30) % 3), X),
    "performance": lambda: Attacked(mm.PerformanceClassifier(loss="f1").fit(X, y == 1), X),
    "hierarchy": lambda: Attacked(
        mm.HierarchicalClassifier(taxonomy={0: "a", 1: "a", 2: "b"}).fit(X, y), X
    ),
    "hierarchy, names": lambda: Attacked(
        mm.HierarchicalClassifier().fit(X, np.array(["a.b", "a.c", "d.e"])[y]), X
    ),
    "grammar": _parser,
    "grammar, untagged": lambda: _parser(UNTAGGED, tags="predicted"),
    "grammar, markov": lambda: _parser(horizontal=1, vertical=2),
    "dependencies": lambda: _dependencies([[2, 3, 0]]),
    "dependencies, labelled": lambda: _dependencies(
        ARCS, labelled=True, structure="non-projective"
    ),
    "graphs": lambda: _graphs(PATHS, [[0, 1, 0]]),
    "graphs, relaxed": lambda: _graphs(
        CYCLES, [["a", "b", "a", "c"]], inference_method="relaxed", loss="hamming-normalized"
    ),
    "latent": lambda: Attacked(mm.LatentClassifier(restarts=2).fit(BAGS, BAG_CLASSES), BAGS),
    "latent, background": lambda: Attacked(
        mm.LatentClassifier(background="none").fit(
            BAGS, np.array(["none", "one", "two"])[BAG_CLASSES]
        ),
        BAGS,
    ),
    "latent, own problem": _instances,
    "latent, hidden chains": _hidden_chains,
    "pose": lambda: Attacked(
        mm.PoseEstimator(window=16, n_angles=4, tol=1e-1).fit(IMAGES, POSES), IMAGES[:2]
    ),
    "pose, scales": lambda: Attacked(
        mm.PoseEstimator(window=16, n_angles=4, scales=(0.8, 1.0), tol=1e-1).fit(
            IMAGES, np.insert(POSES, 2, 1.0, axis=1)
        ),
        IMAGES[:2],
    ),
    "kernel, linear": lambda: _kernel("linear"),
    "kernel, rbf": lambda: _kernel("rbf"),
    "kernel, polynomial": lambda: _kernel(mm.PolynomialKernel(degree=2)),
    "kernel, sparse": lambda: _kernel(mm.RBFKernel(0.5), sp.csr_array(X), NAMES.astype(str)),
    "kernel, own function": lambda: _kernel(
        mm.FunctionKernel(common_letters, pairwise=True),
        ["abab", "abba", "cdcd", "cddc", "abcd", "bcbc"],
        list("aabbcc"),
        own=True,
    ),
    "kernel, product": lambda: _levels(mm.ProductKernel(mm.RBFKernel(0.5), mm.RBFKernel(0.3))),
    "kernel, joint": lambda: _levels(mm.JointKernel(of_both), own=True),
    "low rank": lambda: _low_rank("rbf"),
    "low rank, polynomial": lambda: _low_rank("polynomial"),
    "low rank, sparse": lambda: _low_rank(mm.LinearKernel(), sp.csr_array(X)),
    "own problem": _signs,
    "own problem, one-slack": lambda: _signs(solver="one-slack", rescaling="margin"),
    "own problem, low rank": _low_rank_problem,
}


RUN_BY_OWN_CODE = {"kernel, own function", "kernel, joint"}
"""Kinds whose stored inputs are any values at all: only a function of the user's knows them."""


def is_of_own_code(error: BaseException) -> bool:
    """Whether an error comes from a function of the user's, such as those above."""
    return traceback.extract_tb(error.__traceback__)[-1].filename == __file__


def fitted(kind: str) -> Attacked:
    """The model of a kind; it need not have converged.

    Without the seconds that its fit has taken, its file is the same in every run.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attacked = MODELS[kind]()
    history = getattr(attacked.model, "history_", None)
    if history is not None:
        attacked.model.history_ = [dataclasses.replace(line, seconds=0.0) for line in history]
    return attacked


def answers(attacked: Attacked) -> str:
    """All that a model answers on its inputs, to the last bit."""
    model = attacked.model
    names = ("predict", "decision_function", "transform")
    found = [(n, getattr(model, n)(attacked.inputs)) for n in names if hasattr(model, n)]
    return "".join(written(found))


def written(value: Any):
    """A value as text that differs whenever a bit of a number does."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype.str}{value.shape}{value.tobytes().hex()}"
    elif sp.issparse(value):
        yield from written(value.toarray())
    elif isinstance(value, list | tuple | np.ndarray):
        yield f"{type(value).__name__}("
        yield from chain.from_iterable(map(written, value))
        yield ")"
    elif isinstance(value, set | frozenset):
        yield from written(sorted(value, key=repr))
    elif isinstance(value, float):
        yield value.hex()
    else:
        yield f"{type(value).__name__} {value!r},"

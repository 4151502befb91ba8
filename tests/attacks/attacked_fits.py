"""A small fit for every kind of state that a checkpoint can hold, and its objective by hand."""

import dataclasses
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from attacked_models import Levels, written
from latent_problems import Instances, objective, random_bags

import maxmargin as mm


class Fit(NamedTuple):
    """An estimator with its options, its data, and its objective."""

    estimator: Any
    options: dict[str, Any]
    data: Callable[[], tuple[Any, ...]]
    objective: Callable[[Any], float] | None
    """Of the fitted estimator's weights, from the data alone; None if it takes too long to say."""
    convex: bool = True
    exact: dict[str, Any] = {}
    """Options that are best to find the optimum."""


_random = np.random.default_rng(0)
ROWS = _random.normal(size=(60, 4))
CLASSES = np.argmax(ROWS[:, :3] + _random.normal(size=(60, 3)), axis=1)
SEQUENCES = [_random.normal(size=(n, 3)) for n in _random.integers(1, 5, size=20)]
TAGS = [np.argmax(x + _random.normal(size=x.shape), axis=1) for x in SEQUENCES]
EDGES = np.array([(u, v) for u in range(4) for v in range(u)])
GRAPHS = [(_random.normal(size=(4, 2)), EDGES) for _ in range(6)]
NODES = [_random.integers(0, 3, 4) for _ in GRAPHS]
BAGS, BAG_CLASSES = random_bags(1, n=20)
MANY, MANY_CLASSES = _random.normal(size=(300, 3)), _random.integers(0, 3, 300)
LEVELS = np.digitize(ROWS[:30, 0] + ROWS[:30, 1] ** 2, [0.3, 1.2]).tolist()


def chain_objective(model: Any) -> float:
    """Of a tagger's weights, by trying every labelling of every sequence."""
    parts = [model.coef_, model.transitions_, model.intercept_, model.first_, model.last_]
    total = 0.5 * sum(float((part**2).sum()) for part in parts)
    for x, y_true in zip(SEQUENCES, TAGS, strict=True):
        labellings = np.array(list(product(range(3), repeat=len(x))))
        scores = _chain_scores(model, x, labellings) - _chain_scores(model, x, y_true[None])
        total += model.C * float(((labellings != y_true).sum(axis=1) + scores).max())
    return total


def _chain_scores(model: Any, x: np.ndarray, labellings: np.ndarray) -> np.ndarray:
    own = x @ model.coef_.T + model.intercept_
    scores = own[np.arange(len(x)), labellings].sum(axis=1)
    scores += model.transitions_[labellings[:, :-1], labellings[:, 1:]].sum(axis=1)
    return scores + model.first_[labellings[:, 0]] + model.last_[labellings[:, -1]]


def _hinges(scores: np.ndarray, Y: Any, loss: np.ndarray | None = None) -> float:
    """Sum of the hinges of examples, from the scores of all outputs."""
    loss = 1.0 - np.eye(scores.shape[1]) if loss is None else loss
    own = scores[np.arange(len(Y)), Y][:, None]
    return float((loss[Y] + scores - own).max(axis=1).sum())


def _weights(model: Any) -> np.ndarray:
    return np.column_stack([model.coef_, model.intercept_])


def classes_objective(model: Any) -> float:
    """Crammer and Singer's, of a linear classifier's weights."""
    weights = _weights(model)
    return 0.5 * float((weights**2).sum()) + model.C * _hinges(_with_one(ROWS) @ weights.T, CLASSES)


def _with_one(rows: np.ndarray) -> np.ndarray:
    return np.column_stack([rows, np.ones(len(rows))])


def one_versus_rest_objective(model: Any) -> float:
    """Sum of those of a binary classifier for each class."""
    weights = _weights(model)
    signs = np.where(CLASSES[:, None] == np.arange(3), 1.0, -1.0)
    hinges = np.maximum(0.0, 1.0 - signs * (_with_one(ROWS) @ weights.T))
    return 0.5 * float((weights**2).sum()) + model.C * float(hinges.sum())


def own_objective(model: Any) -> float:
    """The same as Crammer and Singer's, without intercepts."""
    weights = model.weights_.reshape(3, -1)
    return 0.5 * float((weights**2).sum()) + model.C * _hinges(ROWS[:20] @ weights.T, CLASSES[:20])


def levels_objective(model: Any) -> float:
    """Of the problem of levels, with a kernel of rows times one of levels."""
    numbers = np.arange(3.0)[:, None]
    labels = np.asarray(model.model_.labels, dtype=float).reshape(-1, 1)
    alike, told = _rbf(labels, labels, 0.3), _rbf(labels, numbers, 0.3)
    return _kernel_objective(model, ROWS[:30], LEVELS, alike, told, abs(numbers - numbers.T))


def kernel_classes_objective(model: Any) -> float:
    """Crammer and Singer's with a kernel."""
    return _kernel_objective(model, MANY, MANY_CLASSES, np.eye(3), np.eye(3), 1.0 - np.eye(3))


def _kernel_objective(
    model: Any, X: np.ndarray, Y: Any, alike: np.ndarray, told: np.ndarray, loss: np.ndarray
) -> float:
    """From the factors of rows and labels; `told` is the kernel of labels with all outputs."""
    kept = model.model_
    factors = kept.factors.toarray() if hasattr(kept.factors, "toarray") else kept.factors
    norm = float(
        np.einsum("ik,ij,jl,kl->", factors, _rbf(kept.parts, kept.parts, 0.5), factors, alike)
    )
    return 0.5 * norm + model.C * _hinges(_rbf(X, kept.parts, 0.5) @ factors @ told, Y, loss)


def _rbf(A: np.ndarray, B: np.ndarray, gamma: float) -> np.ndarray:
    return np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(axis=2))


def bags_objective(model: Any) -> float:
    """The one that is not convex, by trying every class and instance."""
    ones = [np.column_stack([x, np.ones(len(x))]) for x in BAGS]
    problem = Instances(1.0 - np.eye(3))
    C = np.full(len(BAGS), model.C)
    return objective(problem, ones, BAG_CLASSES, C, _weights(model).ravel())


class ThreeClasses(mm.Problem):
    """Features of a row in the place of its class, in plain Python."""

    def joint_feature(self, x, y):
        return np.kron(np.eye(3)[y], x)

    def loss(self, y_true, y):
        return float(y_true != y)

    def inference(self, x, w):
        return int(np.argmax(w.reshape(3, -1) @ x))

    def loss_augmented_inference(self, x, y_true, w):
        return int(np.argmax(w.reshape(3, -1) @ x + (np.arange(3) != y_true)))


def _tagger(solver: Any) -> Fit:
    return Fit(
        mm.SequenceTagger,
        {"solver": solver},
        lambda: (SEQUENCES, TAGS),
        chain_objective,
        exact={"solver": "auto"},
    )


def _source_of_sequences() -> tuple[Any, ...]:
    return (mm.data.open_examples(SEQUENCES, TAGS, batch_bytes=300),)


def _source_of_rows() -> tuple[Any, ...]:
    return (mm.data.open_examples(ROWS, CLASSES, batch_bytes=15 * 32),)


def _rows() -> tuple[Any, ...]:
    return ROWS, CLASSES


_ONE_VERSUS_REST = {"formulation": "one-vs-rest"}

FITS: dict[str, Fit] = {
    "auto": _tagger("auto"),
    "dual coordinate": _tagger("dual-coordinate"),
    "frank-wolfe": _tagger("frank-wolfe"),
    "pairwise frank-wolfe": _tagger(
        mm.FrankWolfe(step="pairwise", cache_sweeps=2, gap_sampling=True)
    ),
    "n-slack": _tagger("n-slack"),
    "one-slack": _tagger("one-slack"),
    "partial linearization": _tagger("partial-linearization"),
    "exponentiated gradient": _tagger("exponentiated-gradient"),
    "online": _tagger("online"),
    "online, streamed": Fit(
        mm.SequenceTagger, {"solver": "online"}, _source_of_sequences, chain_objective
    ),
    "own problem": Fit(
        mm.StructuredSVM,
        {"problem": ThreeClasses()},
        lambda: (ROWS[:20], CLASSES[:20].tolist()),
        own_objective,
    ),
    "relaxed graphs": Fit(
        mm.GraphLabeler,
        {"inference_method": "relaxed"},
        lambda: (GRAPHS, NODES),
        None,
        exact={"inference_method": "exact"},
    ),
    "linear": Fit(mm.LinearClassifier, {}, _rows, classes_objective),
    "one-vs-rest": Fit(mm.LinearClassifier, _ONE_VERSUS_REST, _rows, one_versus_rest_objective),
    "linear, streamed": Fit(mm.LinearClassifier, {}, _source_of_rows, classes_objective),
    "one-vs-rest, streamed": Fit(
        mm.LinearClassifier, _ONE_VERSUS_REST, _source_of_rows, one_versus_rest_objective
    ),
    "mini-batches of a kernel": Fit(
        mm.KernelStructuredSVM,
        {
            "problem": Levels(),
            "kernel": mm.ProductKernel(mm.RBFKernel(0.5), mm.RBFKernel(0.3)),
            "solver": mm.MiniBatchDual(batch_size=7, prune_every=3, max_idle=2),
        },
        lambda: (ROWS[:30], LEVELS),
        levels_objective,
    ),
    "classes of a kernel": Fit(
        mm.KernelStructuredSVM,
        {"problem": mm.structures.Multiclass(), "gamma": 0.5},
        lambda: (MANY, MANY_CLASSES),
        kernel_classes_objective,
    ),
    "latent": Fit(
        mm.LatentClassifier,
        {"restarts": 3},
        lambda: (BAGS, BAG_CLASSES),
        bags_objective,
        convex=False,
    ),
}


@contextmanager
def small_blocks():
    """Streams of so few rows are one block otherwise."""
    with mock.patch("maxmargin.training.linear_streams.SMALL_BATCH", 1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fit(kind: str, path: Path | None, callback: Any = None, **options: Any) -> Any:
    """The fitted estimator of a kind, going on from the checkpoint if there is one."""
    found = FITS[kind]
    kept = {} if path is None else {"checkpoint": mm.Checkpoint(path, every=0.0, resume=True)}
    model = found.estimator(**(found.options | options | kept))
    if callback is not None:
        model.set_callbacks(callback)
    with small_blocks():
        return model.fit(*found.data())


def learned(model: Any) -> str:
    """Weights, certificate and history but for its seconds, to the last bit."""
    history = [dataclasses.replace(line, seconds=0.0) for line in model.history_]
    names = [
        name for name in ("coef_", "intercept_", "transitions_", "weights_") if hasattr(model, name)
    ]
    values = [getattr(model, name) for name in names]
    if hasattr(model, "model_"):
        kept = model.model_
        values += [np.asarray(kept.parts), kept.factors]
    values += [model.status_, model.n_iter_, dataclasses.astuple(model.certificate_)]
    return "".join(written([values, [dataclasses.astuple(line) for line in history]]))

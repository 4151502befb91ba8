"""An independent referee for structured problems, and small random problems to try it on.

The referee sees a problem only through ``outputs(x)``, ``joint_feature`` and ``loss``. It writes
out one affine piece for every output of every example and leaves the quadratic program to
`referee`; nothing of maxmargin takes part. Good to about 1e-8, as there.

The problems are plain Python: their searches try every output. Chains can also be had as a
compiled `ChainOracle` over the same data. Its weight table is that of `Chains`, row by row,
with columns of zeros added to the right: `widen` and `narrow` go from one to the other.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import referee
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.problem import Problem
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.structures.chain.oracle import ChainOracle, Layout, Sequences

Floats = NDArray[np.float64]


class Enumerable(Problem):
    """A problem with so few outputs that every search can try them all."""

    def __init__(self) -> None:
        self._tables: dict[Any, tuple[Any, list[Any], Floats, Floats]] = {}

    @abstractmethod
    def outputs(self, x: Any) -> list[Any]: ...

    def inference(self, x: Any, w: Floats) -> Any:
        return max(self.outputs(x), key=lambda y: self.joint_feature(x, y) @ w)

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
        outputs, features, losses = self._table(x, y_true)
        return outputs[np.argmax(features @ w + losses)]

    def slack_rescaled_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
        outputs, features, losses = self._table(x, y_true)
        own = features[outputs.index(y_true)] @ w
        return outputs[np.argmax(losses * (1.0 + features @ w - own))]

    def _table(self, x: Any, y_true: Any) -> tuple[list[Any], Floats, Floats]:
        """All outputs with their features and losses, made once: tests are to be quick."""
        key = id(x), y_true
        if key not in self._tables:
            outputs = self.outputs(x)
            features = np.array([self.joint_feature(x, y) for y in outputs])
            losses = np.array([self.loss(y_true, y) for y in outputs])
            self._tables[key] = x, outputs, features, losses  # x, so that its id stays its own
        return self._tables[key][1:]


class Classes(Enumerable):
    """One of a few classes; an input's features stand in the place of its class."""

    def __init__(self, matrix: Floats) -> None:
        super().__init__()
        self.matrix = matrix

    def outputs(self, x: Any) -> list[Any]:
        return list(range(len(self.matrix)))

    def joint_feature(self, x: Any, y: Any) -> Any:
        return np.kron(np.eye(len(self.matrix))[y], x)

    def loss(self, y_true: Any, y: Any) -> float:
        return float(self.matrix[y_true, y])


class Chains(Enumerable):
    """A label for each row of an input, as a tuple; the features of maxmargin's chains."""

    def __init__(
        self,
        matrix: Floats,
        *,
        bias: bool = True,
        ends: bool = True,
        normalized: bool = False,
        zero_one: bool = False,
        order: int = 1,
        n_tied: int = 0,
    ) -> None:
        super().__init__()
        self.matrix, self.bias, self.ends, self.order = matrix, bias, ends, order
        self.n_tied = n_tied  # so many features also go with the pair of labels that ends there
        self.normalized, self.zero_one = normalized, zero_one

    def outputs(self, x: Any) -> list[Any]:
        return list(product(range(len(self.matrix)), repeat=len(x)))

    def joint_feature(self, x: Any, y: Any) -> Any:
        k = len(self.matrix)
        labels = np.eye(k)[np.array(y, dtype=int)]
        parts = [x.T @ labels, labels[:-1].T @ labels[1:]]
        if self.bias:
            parts.append(labels.sum(axis=0, keepdims=True))
        if self.ends:
            parts += [labels[:1].sum(axis=0, keepdims=True), labels[-1:].sum(axis=0, keepdims=True)]
        if self.order == 2:
            triples = np.zeros((k * k, k))
            for a, b, c in zip(y, y[1:], y[2:], strict=False):
                triples[k * a + b, c] += 1.0
            parts.append(triples)
        for j in range(self.n_tied):
            parts.append(labels[:-1].T @ (x[1:, j, None] * labels[1:]))
        return np.concatenate(parts).ravel()

    def loss(self, y_true: Any, y: Any) -> float:
        if self.zero_one:
            return float(y_true != y)
        total = sum(self.matrix[a, b] for a, b in zip(y_true, y, strict=True))
        return float(total / max(len(y), 1) if self.normalized else total)


@dataclass
class Case:
    """A problem with data, and what the referee knows about it."""

    problem: Enumerable
    X: list[Any]
    Y: list[Any]
    C: Floats
    rescaling: str = "margin"

    def oracle(self) -> PythonOracle:
        return PythonOracle(self.problem, self.X, self.Y, self.C, self.rescaling)

    def with_cost(self, C: Floats) -> "Case":
        return Case(self.problem, self.X, self.Y, C, self.rescaling)

    @cached_property
    def pieces(self) -> tuple[Floats, Floats]:
        """``psi``, (n, most outputs, n_features), and ``loss``, (n, most outputs).

        Where there are fewer outputs, zeros fill up: one more time the truth.
        """
        feature, all_outputs = self.problem.joint_feature, [*map(self.problem.outputs, self.X)]
        shape = len(self.X), max(map(len, all_outputs))
        psi, losses = np.zeros((*shape, len(feature(self.X[0], self.Y[0])))), np.zeros(shape)
        for i, (x, y_true, outputs) in enumerate(zip(self.X, self.Y, all_outputs, strict=True)):
            for j, y in enumerate(outputs):
                psi[i, j] = feature(x, y_true) - feature(x, y)
                losses[i, j] = self.problem.loss(y_true, y)
        if self.rescaling == "slack":
            psi *= losses[:, :, None]
        return psi, losses

    def objective(self, weights: referee.Floats) -> float:
        """The primal value at `weights`, by trying every output."""
        psi, losses = self.pieces
        hinges = (losses - psi @ weights.ravel()).max(axis=1)
        return 0.5 * float(np.sum(weights**2)) + float(self.C @ hinges)

    @cached_property
    def optimum(self) -> referee.Solution:
        """The least primal value and its weights."""
        psi, losses = self.pieces
        model = referee._model(np.zeros((1, psi.shape[2])), 1)
        found = referee._solve(model, -psi[:, :, None, :], losses, self.C, self.objective)
        return referee.Solution(found.weights[0], found.value)


def random_cost(random: np.random.Generator, n: int) -> Floats:
    """Uneven costs, of different sizes from case to case, one of them zero."""
    C = random.uniform(0.1, 1.0, n) * 10.0 ** random.uniform(-1.5, 0.5)
    C[1] = 0.0
    return np.asarray(C)


def random_classes(seed: int, *, n: int = 12, d: int = 3, rescaling: str = "margin") -> Case:
    """Three or four classes with a loss matrix."""
    random = np.random.default_rng(seed)
    k = int(random.integers(3, 5))
    matrix = random.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k))
    X, Y = list(random.normal(size=(n, d))), random.integers(0, k, n).tolist()
    return Case(Classes(matrix), X, Y, random_cost(random, n), rescaling)


def random_chains(
    seed: int,
    *,
    n: int = 8,
    d: int = 3,
    k: int | None = None,
    shortest: int = 1,
    longest: int = 4,
    counting: bool = False,
    rescaling: str = "margin",
    **options: Any,
) -> Case:
    """Sequences with two or three labels, or `k`, and costs of mistakes or a count of them.

    `options` are those of `Chains`; bias, ends and normalized may be anything without.
    """
    random = np.random.default_rng(seed)
    k = k or int(random.integers(2, 4))
    chosen = random.integers(0, 2, 3) > 0
    options = dict(zip(("bias", "ends", "normalized"), chosen.tolist(), strict=True)) | options
    matrix = (1.0 if counting else random.uniform(0.2, 2.0, (k, k))) * (1.0 - np.eye(k))
    lengths = random.integers(shortest, longest + 1, n)
    X = [random.normal(size=(m, d)) * (random.random((m, d)) < 0.7) for m in lengths]
    Y = [tuple(random.integers(0, k, m).tolist()) for m in lengths]
    return Case(Chains(matrix, **options), X, Y, random_cost(random, n), rescaling)


def compiled_chains(case: Case, sparse: bool = False, dtype: Any = np.float64) -> ChainOracle:
    """The same chains with compiled searches."""
    chains = case.problem
    assert isinstance(chains, Chains)
    X = np.concatenate(case.X).astype(dtype)
    ends = np.cumsum([0, *map(len, case.X)], dtype=np.int64)
    tied = sp.csr_array(X[:, : chains.n_tied]) if chains.n_tied else None
    return ChainOracle(
        Sequences.of(sp.csr_array(X) if sparse else X, ends, tied),
        np.array([label for y in case.Y for label in y], dtype=np.int64),
        Layout.of(
            X.shape[1],
            len(chains.matrix),
            bias=chains.bias,
            ends=chains.ends,
            order=chains.order,
            n_tied=chains.n_tied,
        ),
        case.C,
        chains.matrix,
        normalized=chains.normalized,
        zero_one=chains.zero_one,
        slack=case.rescaling == "slack",
    )


def widen(weights: Floats, layout: Layout) -> Floats:
    """Weights of `Chains` as those of its compiled training set."""
    table = np.zeros((layout.n_rows, layout.n_columns))
    table[:, : layout.n_labels] = weights.reshape(layout.n_rows, layout.n_labels)
    return table.ravel()


def narrow(weights: Floats, layout: Layout) -> Floats:
    """The other way round; what is cut off must be zero."""
    table = weights.reshape(layout.n_rows, layout.n_columns)
    assert not table[:, layout.n_labels :].any()
    return table[:, : layout.n_labels].ravel()

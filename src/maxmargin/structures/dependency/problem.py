"""Dependency trees over arc features of one's own, as a `Problem`."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import LARGEST, are_moderate
from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import Problem
from maxmargin.structures.dependency.inference import (
    Numbers,
    Structure,
    best_heads,
    check_trees,
    k_best_trees,
    tree_scratch,
)
from maxmargin.structures.dependency.oracle import (
    ArcFeatures,
    Arcs,
    Batch,
    DependencyOracle,
    Rows,
)


class GivenArcs(ArcFeatures):
    """Arc features ``features[i][h, m]``: a weight for each and, with labels, for each label."""

    def __init__(self, features: Sequence[Any], n_labels: int | None = None) -> None:
        self.features = [_as_features(one, i, features[0]) for i, one in enumerate(features)]
        self.n_arc_features = self.features[0].shape[2] if len(self.features) else 0
        self.labelled = n_labels is not None
        lengths = np.array([len(one) - 1 for one in self.features], dtype=np.int64)
        super().__init__(lengths, n_labels or 1, self.n_arc_features * (1 + (n_labels or 0)))

    @property
    def oracle_work(self) -> float:
        per_arc = self.n_features + 3 * float(self.lengths.mean())
        return per_arc * float(np.mean(self.lengths**2))

    def arc_scores(self, weights: Floats, i: int, temperature: float = 0.0) -> Floats:
        scores, by_label = self._scores(weights, i)
        highest: Floats = by_label.max(axis=2)
        if temperature > 0.0:
            rest = np.exp((by_label - highest[:, :, None]) / temperature).sum(axis=2)
            highest = highest + temperature * np.log(rest)
        return scores + highest

    def infer(
        self, weights: Floats, y_true: Arcs | None, structure: Structure, batch: Batch
    ) -> Floats:
        examples, starts, found = batch
        totals = np.empty(len(examples))
        scratch = tree_scratch(int(self.lengths[examples].max(initial=0)))
        for k, i in enumerate(examples.tolist()):
            n = int(self.lengths[i])
            words = np.arange(1, n + 1)
            scores, by_label = self._scores(weights, i)
            if y_true is not None:
                heads, labels = np.divmod(y_true[self.ends[i] : self.ends[i + 1]], self.n_labels)
                by_label = by_label + 1.0
                by_label[heads, words, labels] -= 1.0
            labels = by_label.argmax(axis=2)
            scores = scores + by_label.max(axis=2)
            heads = np.zeros(n, dtype=np.int32)
            totals[k] = best_heads(scores, *structure, heads, *scratch)
            found[starts[k] : starts[k + 1]] = heads * self.n_labels + labels[heads, words]
        return totals

    def differences(self, y_true: Arcs, batch: Batch, n_wrong: int) -> Rows:
        examples, starts, found = batch
        psi = np.zeros((len(examples), self.n_features))
        for k, i in enumerate(examples.tolist()):
            true = self.feature(i, y_true[self.ends[i] : self.ends[i + 1]])
            psi[k] = true - self.feature(i, found[starts[k] : starts[k + 1]])
        rows = sp.csr_array(psi)
        return rows.indptr.astype(np.int64), rows.indices.astype(np.uint32), rows.data

    def feature(self, i: int, arcs: NDArray[Any]) -> Floats:
        """Joint features of sentence `i` and the tree of these arcs."""
        heads, labels = np.divmod(arcs.astype(np.int64), self.n_labels)
        chosen = self.features[i][heads, np.arange(1, len(arcs) + 1)]
        by_label = np.zeros((self.n_labels if self.labelled else 0, self.n_arc_features))
        if self.labelled:
            np.add.at(by_label, labels, chosen)
        return np.concatenate([chosen.sum(axis=0), by_label.ravel()])

    def _scores(self, weights: Floats, i: int) -> tuple[Floats, Floats]:
        """Scores of arcs, and what each label adds."""
        features, d = self.features[i], self.n_arc_features
        scores: Floats = features @ weights[:d]
        if not self.labelled:
            return scores, np.zeros((*scores.shape, 1))
        return scores, features @ weights[d:].reshape(self.n_labels, d).T


class DependencyTrees(Problem):
    """Dependency trees over arc features of your own, for `StructuredSVM`.

    An input for n words is an array of shape (n + 1, n + 1, n_arc_features): the features of the
    arc from each head to each modifier, with the root at 0. An output is a tuple with the head of
    each word, or with labels of (head, label) pairs. The loss is the number of words whose head (or
    label) is wrong.

    Parameters
    ----------
    structure : {"projective", "non-projective"}, default="projective"
        Only trees without crossing arcs, or any.
    single_root : bool, default=True
        The root has one modifier only.
    n_labels : int, default=None
        Labels are numbers from 0 on; None for trees without.

    See Also
    --------
    DependencyParser : For sentences of words and tags.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> x = np.zeros((3, 3, 2))
    >>> x[0, 2, 0] = x[2, 1, 1] = 1.0
    >>> mm.StructuredSVM(DependencyTrees()).fit([x], [(2, 0)]).predict([x])
    [(2, 0)]
    """

    def __init__(
        self,
        structure: str = "projective",
        *,
        single_root: bool = True,
        n_labels: int | None = None,
    ) -> None:
        if structure not in ("projective", "non-projective"):
            raise ValueError(
                f"structure must be 'projective' or 'non-projective', not {structure!r}."
            )
        self.structure = Structure(structure == "projective", single_root)
        self.n_labels = n_labels

    def joint_feature(self, x: Any, y: Any) -> Floats:
        return GivenArcs([x], self.n_labels).feature(0, self._arcs(y))

    def loss(self, y_true: Any, y: Any) -> float:
        return float(np.sum(self._arcs(y_true) != self._arcs(y)))

    def inference(self, x: Any, w: Floats) -> Any:
        return self._infer(x, w, None)

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
        return self._infer(x, w, self._arcs(y_true).astype(np.uint32))

    def outputs(self, x: Any) -> list[Any]:
        """All trees, for sentences of very few words."""
        n, n_labels = len(x) - 1, self.n_labels or 1
        found: list[Any] = []
        for heads in product(range(n + 1), repeat=n):
            try:
                check_trees(np.array(heads, dtype=np.int64), np.array([0, n]), self.structure)
            except ValueError:
                continue
            first = np.array(heads, dtype=np.int64) * n_labels
            found += [self._output(first + y) for y in product(range(n_labels), repeat=n)]
        return found

    def k_best(self, x: Any, w: Floats, k: int) -> list[Any]:
        """The k best trees, best first; with labels, trees with all their labels."""
        arcs = GivenArcs([x], self.n_labels)
        scores, by_label = arcs._scores(np.asarray(w), 0)
        words = np.arange(1, len(x))
        # A tree with its best labels is no worse than with others: no further tree is needed.
        trees = k_best_trees(scores + by_label.max(axis=2), k, **self.structure._asdict())
        found = []
        for heads, _ in trees:
            own = float(scores[heads, words].sum())
            for score, labels in _best_labels(by_label[heads, words], k):
                found.append((own + score, heads * arcs.n_labels + labels))
        found.sort(key=lambda each: -each[0])
        return [self._output(tree) for _, tree in found[:k]]

    def make_oracle(self, X: Sequence[Any], Y: Sequence[Any], C: Floats, rescaling: str) -> Oracle:
        """The oracle over arrays of arcs, for margin rescaling."""
        arcs = GivenArcs(X, self.n_labels)
        y_true = [self._arcs(y) for y in Y]
        for i, (tree, n) in enumerate(zip(y_true, arcs.lengths.tolist(), strict=True)):
            if len(tree) != n:
                raise ValueError(
                    f"Sentence {i} has {n} words but the tree {len(tree)} heads: give one for each."
                )
        flat = np.concatenate(y_true)
        check_trees(flat // arcs.n_labels, arcs.ends, self.structure)
        return DependencyOracle(arcs, flat, self.structure, C)

    def _infer(self, x: Any, w: Floats, y_true: Arcs | None) -> Any:
        arcs = GivenArcs([x], self.n_labels)
        batch = Batch(np.zeros(1, dtype=np.int64), arcs.ends, np.empty(len(x) - 1, dtype=np.uint32))
        arcs.infer(np.asarray(w), y_true, self.structure, batch)
        return self._output(batch.found)

    def _arcs(self, y: Any) -> Numbers:
        """An output as one number an arc, ``head * n_labels + label``."""
        tree = np.asarray(y, dtype=np.int64)
        if self.n_labels is None:
            return tree.reshape(len(tree))
        tree = tree.reshape(len(tree), 2)
        return tree[:, 0] * self.n_labels + tree[:, 1]

    def _output(self, arcs: NDArray[Any]) -> Any:
        """The output that arcs stand for."""
        if self.n_labels is None:
            return tuple(arcs.tolist())
        heads, labels = np.divmod(arcs, self.n_labels)
        return tuple(zip(heads.tolist(), labels.tolist(), strict=True))


def _best_labels(scores: Floats, k: int) -> list[tuple[float, Numbers]]:
    """The k best labellings by the sum of their scores ``(n_words, n_labels)``."""
    sums, chosen = np.zeros(1), np.zeros((1, 0), dtype=np.int64)
    for of_word in scores:
        all_sums = (sums[:, None] + of_word).ravel()
        best = np.argsort(-all_sums, kind="stable")[:k]
        before, label = np.divmod(best, len(of_word))
        sums, chosen = all_sums[best], np.column_stack([chosen[before], label])
    return list(zip(sums.tolist(), chosen, strict=True))


def _as_features(one: Any, i: int, first: Any) -> Floats:
    """Checked arc features of sentence `i`."""
    try:
        features = np.ascontiguousarray(one, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Sentence {i}: arc features must be an array of numbers.") from error
    shape = features.shape
    if len(shape) != 3 or shape[0] != shape[1] or not shape[0]:
        raise ValueError(
            f"Sentence {i}: arc features must have shape (n + 1, n + 1, n_features) for n words "
            f"and the root, not {shape}."
        )
    expected = np.shape(first)[-1]
    if shape[2] != expected:
        raise ValueError(
            f"Sentence {i} has {shape[2]} features for each arc, but the first {expected}."
        )
    if not np.isfinite(features).all():
        raise ValueError(f"Sentence {i}: arc features must be finite.")
    if not are_moderate(features):
        largest = features.flat[np.abs(features).argmax()]
        raise ValueError(
            f"Sentence {i} has an arc feature of {largest:g}, but squares of numbers beyond "
            f"{LARGEST:g} overflow: scale the features, to about 1."
        )
    return features

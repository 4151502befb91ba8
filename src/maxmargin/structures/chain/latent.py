"""Sequences of labels with hidden states: every label has a few, and which one is latent.

A chain over the states of all labels, where a wrong label costs one and a wrong state of the right
label nothing. State ``s`` of label ``a`` is number ``a * n_states + s``; with these numbers for
labels, imputed true outputs are those of an ordinary chain, and inference is by Viterbi. To impute
states, all but those of the true labels are forbidden.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.checks import check_indices
from maxmargin.core.latent import LatentOracle, LatentProblem
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.core.threads import Threads
from maxmargin.structures.chain.oracle import ChainOracle, Sequences
from maxmargin.structures.chain.problem import Chain

Floats = NDArray[np.float64]
States = NDArray[np.int64]

_ROUNDING = 1e-9


@registered("HiddenChains")
class HiddenChains(Remade, LatentProblem):
    """A label for each row of a matrix, each with one of a few hidden states.

    Outputs are arrays of labels, latent variables arrays of states, one number a row. The score has
    emissions, biases and transitions of states, and of those at both ends; the loss is the number
    of wrong labels.

    Parameters
    ----------
    n_features : int
    n_labels : int
    n_states : int
        Of each label.

    See Also
    --------
    maxmargin.LatentStructuredSVM
    maxmargin.SequenceTagger : Without hidden states.

    Examples
    --------
    Label 1 stands on either side of label 0:

    >>> import numpy as np
    >>> from maxmargin.estimators.latent import LatentStructuredSVM
    >>> from maxmargin.structures.chain.latent import HiddenChains
    >>> X = [np.array([[2.0], [0.1]]), np.array([[-2.0], [0.0], [2.1]]), np.array([[-0.1], [-1.9]])]
    >>> Y = [[1, 0], [1, 0, 1], [0, 1]]
    >>> model = LatentStructuredSVM(HiddenChains(1, 2, 2), C=10.0, restarts=3).fit(X, Y)
    >>> [labels.tolist() for labels in model.predict(X)]
    [[1, 0], [1, 0, 1], [0, 1]]
    """

    def __init__(self, n_features: int, n_labels: int, n_states: int) -> None:
        self.n_labels, self.n_states = n_labels, n_states
        self.chain = Chain(n_labels * n_states, n_features)
        self.layout = self.chain.layout

    def parts(self) -> dict[str, Any]:
        return {
            "n_features": self.layout.n_features,
            "n_labels": self.n_labels,
            "n_states": self.n_states,
        }

    def joint_feature(self, x: Any, y: Any, h: Any) -> Floats:
        return self.chain.joint_feature(x, self.numbers(y, h))

    def loss(self, y_true: Any, y: Any) -> float:
        return self.chain.loss(y_true, y)

    def inference(self, x: Any, w: Floats) -> tuple[Any, Any]:
        return self.split(self.chain.inference(x, w))

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> tuple[Any, Any]:
        imputed = self._bound(x, y_true).imputed([np.zeros(len(y_true), dtype=np.int64)])
        cuts = imputed.separate(w, np.zeros(1, dtype=np.int64), Threads(1))
        return self.split(np.frombuffer(cuts.outputs[0], dtype=np.uint16))

    def latent(self, x: Any, y_true: Any, w: Floats) -> States:
        start = [np.zeros(len(y_true), dtype=np.int64)]
        return self._bound(x, y_true).impute(w, start, Threads(1))[0]

    def init_latent(self, x: Any, y_true: Any, random: np.random.Generator) -> States:
        return random.integers(self.n_states, size=len(y_true))

    def make_oracle(self, X: Sequence[Any], Y: Sequence[Any], C: Floats) -> "HiddenChainOracle":
        """The oracle with compiled inference."""
        of_labels = Chain(self.n_labels, self.layout.n_features)
        labels = [of_labels.checked(i, x, y) for i, (x, y) in enumerate(zip(X, Y, strict=True))]
        return HiddenChainOracle(self, self.chain.sequences(X), labels, C)

    def numbers(self, y: Any, h: Any) -> States:
        """Labels and their states as one number for each position."""
        return np.asarray(y, dtype=np.int64) * self.n_states + np.asarray(h, dtype=np.int64)

    def split(self, numbers: NDArray[Any]) -> tuple[States, States]:
        """The other way round."""
        y, h = np.divmod(numbers.astype(np.int64), self.n_states)
        return y, h

    def _bound(self, x: Any, y_true: Any) -> "HiddenChainOracle":
        return self.make_oracle([x], [y_true], np.ones(1))


class HiddenChainOracle(LatentOracle):
    """Labelled sequences; imputations are lists of arrays of states.

    Parameters
    ----------
    problem : HiddenChains
    sequences : Sequences
    labels : list of ndarray
    C : ndarray of shape (n_sequences,)
    """

    def __init__(
        self, problem: HiddenChains, sequences: Sequences, labels: list[States], C: Floats
    ) -> None:
        self.problem, self.sequences, self.labels, self.C = problem, sequences, labels, C
        of_state = np.arange(problem.layout.n_labels) // problem.n_states
        self._wrong = of_state[:, None] != of_state

    def init_latent(self, random: np.random.Generator) -> list[States]:
        # The best at random weights: the same features then have the same state everywhere, as
        # they will have in the end. States drawn at random for each position would have none of it.
        weights = random.normal(size=self.problem.layout.n_rows * self.problem.layout.n_columns)
        return self.impute(weights, [np.zeros_like(y) for y in self.labels], Threads(1))

    def impute(self, weights: Floats, before: list[States], threads: Threads) -> list[States]:
        chains = self._chains(before, np.where(self._wrong, -np.inf, 0.0))
        found = chains.separate(weights, np.arange(len(before), dtype=np.int64), threads)
        # The slope of the cut is how much better the found states are than those before.
        better = found.slopes(weights) > _ROUNDING
        return [
            self.problem.split(np.frombuffer(output, dtype=np.uint16))[1] if is_better else states
            for output, states, is_better in zip(found.outputs, before, better, strict=True)
        ]

    def imputed(self, imputations: list[States]) -> ChainOracle:
        return self._chains(imputations, self._wrong.astype(np.float64))

    def changes(self, before: list[States], after: list[States]) -> NDArray[np.bool_]:
        return np.array([not np.array_equal(a, b) for a, b in zip(before, after, strict=True)])

    def _chains(self, states: list[States], loss: Floats) -> ChainOracle:
        numbers = map(self.problem.numbers, self.labels, states)
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
        check_indices("states", flat, self.problem.layout.n_labels)
        return ChainOracle(self.sequences, flat, self.problem.layout, self.C, loss)

"""Any problem with a low-rank kernel, as a linear one: for every linear solver."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.problems.structured import Problem

Floats = NDArray[np.float64]


class LowRankProblem(Problem):
    """A problem whose joint features go through a feature map, such as a fitted `LowRankKernel`.

    Scores are then sums over the basis of the map, and every solver of `StructuredSVM` trains it,
    `OneSlack` included. Searches try all outputs.

    Parameters
    ----------
    problem : Problem with ``outputs(x)``, or KernelProblem
        Of a `KernelProblem` the parts are mapped.
    features : transformer
        Fitted; ``transform`` takes rows.
    labels : transformer, default=None
        For a `KernelProblem`: map of the labels. The features of an output are then the products
        of those of its part and of its label.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> from maxmargin.estimators.kernel_low_rank import LowRankKernel
    >>> from maxmargin.problems.kernel import KernelProblem
    >>> from maxmargin.problems.low_rank_kernel import LowRankProblem
    >>> class Parity(KernelProblem):
    ...     def outputs(self, x):
    ...         return [-1.0, 1.0]
    ...     def loss(self, truth, y):
    ...         return float(truth != y)
    >>> X, Y = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [-1.0, 1.0, 1.0, -1.0]
    >>> features = LowRankKernel("rbf", 4, gamma=1.0).fit(X)
    >>> labels = LowRankKernel("linear", 1).fit([[-1.0], [1.0]])
    >>> problem = LowRankProblem(Parity(), features, labels)
    >>> mm.StructuredSVM(problem, C=10.0, solver="one-slack").fit(X, Y).predict(X)
    [-1.0, 1.0, 1.0, -1.0]
    """

    def __init__(self, problem: Any, features: Any, labels: Any = None) -> None:
        self.problem, self.features, self.labels = problem, features, labels

    def outputs(self, x: Any) -> Sequence[Any]:
        """All outputs of an input."""
        return list(self.problem.outputs(x))

    def joint_feature(self, x: Any, y: Any) -> Floats:
        return np.asarray(self._features(x, [y])[0])

    def loss(self, truth: Any, y: Any) -> float:
        return float(self.problem.loss(truth, y))

    def decode(self, x: Any, w: Floats) -> Any:
        outputs = self.outputs(x)
        return outputs[int(np.argmax(self._features(x, outputs) @ w))]

    def separate(self, x: Any, truth: Any, w: Floats) -> Any:
        outputs = self.outputs(x)
        losses = np.array([self.loss(truth, y) for y in outputs])
        return outputs[int(np.argmax(self._features(x, outputs) @ w + losses))]

    def _features(self, x: Any, outputs: Sequence[Any]) -> Floats:
        part = getattr(self.problem, "part", None) or self.problem.joint_feature
        parts = [np.ravel(part(x, y)) for y in outputs]
        features = np.asarray(self.features.transform(np.array(parts)))
        if self.labels is None:
            return features
        labels = [np.ravel(self.problem.label(y)) for y in outputs]
        mapped = np.asarray(self.labels.transform(np.array(labels)))
        products = np.einsum("na,nb->nab", features, mapped)
        return np.asarray(products.reshape(len(outputs), -1))

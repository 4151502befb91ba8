"""The conventions of SVMstruct's programs: what their ``-c`` and ``-e`` mean here.

``svm_multiclass_learn`` and ``svm_hmm_learn`` minimise

    1/2 |v|^2 + c/n * sum_i max_y [ s * loss_i(y) - <v, psi_i(y)> ]

without an intercept, where s is 100 for classes and 1 for tags, and stop when a solution of their
working set violates no constraint by more than ``e``: then the objective is at most ``c * e``
above the optimum. With v = s w this is s^2 times our objective at C = c / (n s). Two classes are
one vector u here where they have u/2 and -u/2: there C is twice as large, and the factor half.
"""

from dataclasses import dataclass

from maxmargin.core.result import AbsoluteGap


@dataclass(frozen=True)
class Conversion:
    """Their parameters as ours.

    Parameters
    ----------
    c, epsilon : float
        Their options ``-c`` and ``-e``.
    n_examples : int
    scale : float
        Their loss of a mistake.
    halves : bool
        Whether two classes share one vector.

    Examples
    --------
    >>> Conversion(c=5000.0, epsilon=0.1, n_examples=50, scale=100.0, halves=False).C
    1.0
    """

    c: float
    epsilon: float
    n_examples: int
    scale: float
    halves: bool

    @property
    def C(self) -> float:  # noqa: N802
        """Ours."""
        return self.c / (self.n_examples * self.scale) * (2.0 if self.halves else 1.0)

    @property
    def factor(self) -> float:
        """Their objective over ours."""
        return self.scale**2 * (0.5 if self.halves else 1.0)

    @property
    def tol(self) -> AbsoluteGap:
        """The gap of our objective at which they would stop."""
        return AbsoluteGap(self.c * self.epsilon / self.factor)

"""Distributions over the outputs of every block: the dual points of partial linearization.

The dual of a structural SVM has, for every block ``b``, a distribution ``p`` over the outputs of
its example. The weights that belong to them and the dual value are

    w = sum_b C_b E_p[psi],        D = sum_b C_b E_p[loss] - 1/2 |w|^2

Mohapatra et al. (2016) move ``p`` towards ``s ~ p * exp((loss - <w, psi>) / temperature)``. There
are two ways to keep a distribution: a number for every output, where these are few, and the
probabilities of the labels of cliques. These are pairs of neighbours for chains, and for labelled
graphs nodes with what they are eliminated into. Weights and losses depend on nothing else, and the
logarithm of ``p`` is taken to be the sum of those of the cliques less those of what neighbouring
cliques share: of all distributions with these probabilities, the one with the most entropy.
"""

from functools import singledispatch
from typing import Any

from maxmargin.core.problem import Oracle, PythonOracle
from maxmargin.dual.marginal import Distributions
from maxmargin.dual.marginal_explicit import ExplicitDistributions
from maxmargin.structures.chain.marginals import ChainDistributions
from maxmargin.structures.chain.problem import ChainOracle


@singledispatch
def distributions_of(oracle: Oracle, temperature: float) -> Distributions:
    """Distributions to start from: the truth or, with a temperature, close to it.

    Raises
    ------
    ValueError
        If nobody can tell what the outputs are.
    """
    raise ValueError(_missing(oracle))


@distributions_of.register
def _(oracle: PythonOracle, temperature: float) -> Distributions:
    if not hasattr(oracle.problem, "outputs"):
        raise ValueError(_missing(oracle.problem))
    outputs = [oracle.outputs(i) for i in range(oracle.n_examples)]
    return ExplicitDistributions(oracle, outputs, temperature)


@distributions_of.register
def _(oracle: ChainOracle, temperature: float) -> Distributions:
    if oracle.layout.triples >= 0 or oracle.zero_one or oracle.slack:
        raise ValueError(
            "PartialLinearization and ExponentiatedGradient train chains of order 1 with margin "
            "rescaling and a loss that adds up over the positions, and no others."
        )
    return ChainDistributions(oracle, temperature)


def _missing(problem: Any) -> str:
    return (
        f"PartialLinearization and ExponentiatedGradient need {type(problem).__name__} to have "
        f"the method outputs(x), the list of all outputs of an input."
    )

"""`check_problem`: whether a problem keeps its contract."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.checking.contract import Broken, ContractChecks, KernelProblemChecks, ProblemCheck
from maxmargin.checking.inferences import LatentProblemChecks, ProblemChecks
from maxmargin.core.kernel import KernelProblem, ListsCandidates, n_rows
from maxmargin.core.problem import as_inputs, check_instance


@dataclass(frozen=True)
class ProblemReport:
    """Result of `check_problem`.

    Parameters
    ----------
    problem : str
        Name of the class.
    examples : tuple of int
        Indices of the examples that were checked.
    checks : tuple of ProblemCheck

    See Also
    --------
    maxmargin.check_problem
    """

    problem: str
    examples: tuple[int, ...]
    checks: tuple[ProblemCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> list[ProblemCheck]:
        """The checks that failed."""
        return [check for check in self.checks if not check.ok]

    def __str__(self) -> str:
        failed = len(self.failures)
        verdict = f"{failed} of {len(self.checks)} checks FAILED" if failed else "ok"
        head = f"{self.problem} on {len(self.examples)} examples: {verdict}"
        return "\n".join([head, *map(str, self.checks)])


def check_problem(
    problem: Any, X: Any, y: Any, *, n_examples: int = 10, seed: int = 0, verbose: bool = True
) -> ProblemReport:
    """Check that a problem keeps its contract, before a certificate relies on it.

    On a sample of the examples, at zero weights and at random weights of several scales: joint
    features are finite and of one length; losses are zero for the true output and never negative;
    methods return the same when called again; `inference` finds no lower score, and
    `loss_augmented_inference` no lower score plus loss, than any known output: the true one, those
    found at any weights, and all of them where ``outputs(x)`` lists them. What else a problem has
    is checked, too: `slack_rescaled_inference`, `k_best`, `cuts`, `make_oracle`; of a
    `LatentProblem` also `latent` and `loss_augmented_inference_wrong`; of a `KernelProblem`
    `outputs`, `loss`, `candidates` and `losses`.

    Where a problem says ``exact = False``, a missed maximum is only noted, with by how much it was
    missed, unless that is more than the `suboptimality` of its cuts.

    Parameters
    ----------
    problem : Problem, LatentProblem or KernelProblem
    X, y : sequence of length n_samples
        Inputs and their true outputs.
    n_examples : int, default=10
        How many of them to check, with about forty calls of each inference.
    seed : int, default=0
        Of the sample and of the random weights.
    verbose : bool, default=True
        Print the report.

    Returns
    -------
    report : ProblemReport
        ``report.ok``, and ``report.failures``.

    See Also
    --------
    Problem : What to write.
    ProblemWarning : Given by a fit that notices a contradiction.

    Examples
    --------
    The sign of the loss is wrong:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> class ThreeClasses(mm.Problem):
    ...     def joint_feature(self, x, y):
    ...         return np.outer(np.arange(3) == y, x).ravel()
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    ...     def inference(self, x, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x))
    ...     def loss_augmented_inference(self, x, y_true, w):
    ...         return int(np.argmax(w.reshape(3, -1) @ x - (np.arange(3) != y_true)))
    >>> report = mm.check_problem(ThreeClasses(), np.eye(3), [0, 1, 2], verbose=False)
    >>> report.ok
    False
    >>> [check.name for check in report.failures]
    ['loss_augmented_inference: the highest score plus loss']
    """
    check_instance(problem)
    X, n = as_inputs(X), n_rows(y)
    if n_rows(X) != n or not n or n_examples < 1:
        raise ValueError(
            f"check_problem needs as many outputs as inputs, and one example at least, but X has "
            f"{n_rows(X)} inputs, y has {n} outputs and n_examples is {n_examples}."
        )
    random = np.random.default_rng(seed)
    examples = np.sort(random.permutation(n)[:n_examples]).tolist()
    kind = _kind_of(problem)
    made = kind(problem, X, y, examples, random)
    with suppress(Broken):
        made.run()
    checks = tuple(check.closed() for check in made.checks.values())
    report = ProblemReport(type(problem).__name__, tuple(examples), checks)
    if verbose:
        print(report)
    return report


def _kind_of(problem: Any) -> type[ContractChecks]:
    if all(
        hasattr(problem, name)
        for name in ("joint_feature", "inference", "loss_augmented_inference", "loss")
    ):
        return LatentProblemChecks if hasattr(problem, "latent") else ProblemChecks
    if isinstance(problem, KernelProblem | ListsCandidates):
        return KernelProblemChecks
    raise ValueError(
        f"{type(problem).__name__} is no problem: write the methods of Problem, LatentProblem or "
        f"KernelProblem."
    )

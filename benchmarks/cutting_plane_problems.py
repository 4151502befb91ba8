"""What the benchmarks of cutting planes share: problems, solvers, trainings that are remembered.

Joachims, Finley and Yu (2009) have a loss of 100 for a wrong class or tree, and C multiplies the
mean of the slacks. With a loss of one, that C is a hundredth of theirs: 100,000 for Covertype and
200 for grammars. Their epsilon is absolute, our tolerance relative to the objective.
"""

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from benchmarks.common import Data, load, say, subsample, timed
from benchmarks.datasets import load as load_real
from benchmarks.sequences import Chains, Split, as_chains, corpus, error, fit, tagging
from benchmarks.treebank import parsed, split, treebank
from maxmargin.structures.chain.vocabulary import Vocabulary
from maxmargin.structures.constituency.estimator import GrammarParser
from maxmargin.structures.constituency.grammar import Tree, bracket_scores

PAPER = "Joachims et al. (2009)"

ONE, UNCACHED, MANY = "1-slack", "1-slack, no cache", "n-slack"
SOLVERS: dict[str, Any] = {ONE: mm.OneSlack(), UNCACHED: mm.OneSlack(cache=0), MANY: mm.NSlack()}

COVERTYPE, BROWN, TREEBANK = "covtype", "brown", "treebank"
SHORT = 15
"""Most words of a sentence that is parsed, as in the paper."""

MOST_TEST = 2000
"""Sentences, or thousands of rows, that are tested on."""


@dataclass(frozen=True)
class Problem:
    """How to get so many examples of a kind, and how to train and test on them.

    Parameters
    ----------
    kind : str
        What the paper calls it.
    sizes : sequence of int
        Numbers of examples, the last being the most.
    mean_cost : float
        What multiplies the mean of the slacks.
    tol : float
        Relative duality gap.
    epsilon : float
        The violation that the paper stops at: its mean for 1-slack, of each example for n-slack.
    measure : str
        What `score` returns, as a share of one.
    take : callable
        ``take(n)`` gives examples to train on and to test on.
    train : callable
        ``train(examples, **settings)`` gives a model.
    score : callable
        ``score(model, examples)``.
    """

    kind: str
    sizes: Sequence[int]
    mean_cost: float
    tol: float
    epsilon: float
    measure: str
    take: Callable[[int], tuple[Any, Any]]
    train: Callable[..., Any]
    score: Callable[[Any, Any], float]


def train_and_test(name: str, quick: bool) -> tuple[Data, Data]:
    """Rows to train on and to test on; a fifth of the rows of a quick run, which are in order."""
    if not quick:
        data = load_real(name)
        return Data(name, data.X_train, data.y_train), Data(name, data.X_test, data.y_test)
    tiny = load(name, quick)
    order = np.random.RandomState(0).permutation(len(tiny.y))
    n_test = len(order) // 5
    return tiny.some(order[n_test:]), tiny.some(order[:n_test])


def covertype(options: argparse.Namespace) -> Problem:
    """Rows with classes: chains of length one."""
    rows, rest = train_and_test("covtype", options.quick)

    def take(n: int) -> Split:
        return Split(as_chains(subsample(rows, n)), as_chains(subsample(rest, 10 * MOST_TEST)))

    sizes = (20, 40) if options.quick else options.rows
    return Problem("multi-class", sizes, 1e5, 0.01, 1e-3, "accuracy", take, _tagger, _accuracy)


def brown(options: argparse.Namespace) -> Problem:
    """Sentences and the tags of their words."""
    data = corpus("brown", options.quick)

    def take(n: int) -> Split:
        vocabulary = Vocabulary()
        train = tagging(data.train[:n], vocabulary, grow=True)
        return Split(train, tagging(data.test[:MOST_TEST], vocabulary, grow=False))

    sizes = (20, 40) if options.quick else options.sentences
    return Problem("HMM", sizes, 10.0, 0.1, 0.1, "words tagged right", take, _tagger, _accuracy)


def grammar(options: argparse.Namespace) -> Problem:
    """Short sentences and their trees; the loss is one for any tree but the right one."""
    train, test = split(treebank(options.quick), SHORT)

    def take(n: int) -> tuple[list[Tree], list[Tree]]:
        return train[:n], test

    def score(model: GrammarParser, trees: list[Tree]) -> float:
        return bracket_scores(trees, parsed(model, trees)).f1

    sizes = (20, 40) if options.quick else [min(n, len(train)) for n in options.trees]
    return Problem("CFG", sizes, 200.0, 0.01, 1e-3, "bracket F1", take, _parser, score)


def _tagger(chains: Chains, **settings: Any) -> Any:
    return fit(chains, fit_intercept=False, fit_ends=False, **settings)


def _parser(trees: list[Tree], **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GrammarParser(loss="zero-one", **settings).fit(trees)


def _accuracy(model: Any, chains: Chains) -> float:
    return 1.0 - error(model, chains)


PROBLEMS = {COVERTYPE: covertype, BROWN: brown, TREEBANK: grammar}


@dataclass(frozen=True)
class Outcome:
    """One training; its seconds are those of the processor, as in the paper."""

    n: int
    seconds: float
    wall_seconds: float
    status: str
    rounds: int
    searches: int
    planes: int
    primal: float
    dual: float
    score: float | None

    @property
    def arrived(self) -> bool:
        """Whether it reached the tolerance."""
        return self.status == "converged"

    @property
    def at_least(self) -> str:
        """What to write before what it took, if it did not arrive."""
        return "" if self.arrived else ">= "

    @property
    def gap(self) -> float:
        """Certified, relative to the objective."""
        return (self.primal - self.dual) / abs(self.primal)

    @property
    def passes(self) -> float:
        """Oracle calls for each example."""
        return self.searches / self.n

    def __str__(self) -> str:
        gap = "" if self.arrived else f", gap {self.gap:.1e}"
        counts = f"{self.searches:,} oracle calls, {self.planes:,} cutting planes"
        return f"{self.seconds:.3g} s, {counts}{gap}"


class Laboratory:
    """Trains on one kind of problem, and remembers."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.problem = name, PROBLEMS[name](options)
        self.limit = 0.2 if options.quick else options.time_limit
        self.outcomes: dict[str, Outcome] = {}
        self._taken: dict[int, tuple[Any, Any]] = {}
        self._warm: set[type] = set()

    def __call__(
        self,
        solver: Any,
        n: int,
        C: float = 1.0,
        tol: float = 1.0,
        tested: bool = False,
        most_rounds: int = 10**6,
    ) -> Outcome:
        """Train on `n` examples with multiples of the problem's own C and tolerance."""
        key = f"{solver}, n={n}, C x {C:g}, tol x {tol:g}"
        known = self.outcomes.get(key)
        if known is None or (tested and known.score is None):
            self.outcomes[key] = known = self._train(solver, n, C, tol, tested, most_rounds)
            say(f"{self.name}, {key}: {known}, {known.rounds} iterations, score {known.score}")
        return known

    def _train(
        self, solver: Any, n: int, C: float, tol: float, tested: bool, most_rounds: int
    ) -> Outcome:
        train, test = self._take(n)
        work = partial(
            self.problem.train,
            train,
            C=C * self.problem.mean_cost / n,
            tol=tol * self.problem.tol,
            solver=solver,
            max_iter=most_rounds,
            time_limit=self.limit,
        )
        if type(solver) not in self._warm:  # loads what is compiled
            self.problem.train(self.problem.take(30)[0], solver=solver, max_iter=3)
            self._warm.add(type(solver))
        done = timed(work)
        model = done.answer
        last = model.history_[-1]
        return Outcome(
            n,
            done.cpu_seconds,
            done.seconds,
            str(model.status_),
            model.n_iter_,
            last.oracle_calls,
            last.cuts,
            model.certificate_.primal,
            model.certificate_.dual,
            self.problem.score(model, test) if tested else None,
        )

    def _take(self, n: int) -> tuple[Any, Any]:
        if n not in self._taken:
            self._taken[n] = self.problem.take(n)
        return self._taken[n]

    def as_json(self) -> dict[str, Any]:
        """All outcomes."""
        return {key: asdict(outcome) for key, outcome in self.outcomes.items()}


def add_sizes(
    arguments: argparse.ArgumentParser,
    time_limit: float,
    rows: Sequence[int],
    sentences: Sequence[int],
    trees: Sequence[int],
) -> argparse.ArgumentParser:
    """Arguments that say how much to train on, and how long."""
    arguments.add_argument(
        "--time-limit", type=float, default=time_limit, help="seconds for each training"
    )
    for name, sizes in (("rows", rows), ("sentences", sentences), ("trees", trees)):
        arguments.add_argument(f"--{name}", type=int, nargs="+", default=list(sizes))
    return arguments


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-12)), 1)[0])


def power(value: float) -> str:
    """An exponent or a factor in words."""
    return "unknown" if np.isnan(value) else f"{value:.2f}"


def listed(values: Sequence[float]) -> str:
    """Numbers one after the other."""
    return ", ".join(f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in values)

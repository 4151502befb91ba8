"""Safe screening, at a certified gap or between calls, saves too few oracle calls to pay.

Weights w with the objective P and a dual point with the weights u and the value D leave a ball for
the optimum, around (w + u) / 2 with the squared radius P - D - |w - u|^2 / 4. Asked for is half of
the oracle calls to a gap of 1e-4. Fits of the default solvers are watched; a rule is tried at each
call, and what it would have saved is counted:

- *ball*: an output that is the best all over the ball is the answer from then on. In its favour,
  the gap is evaluated before every pass, free of charge; for chains only the second best output is
  compared, so that this counts at least what any test with this ball could find.
- *second best*: an answer holds while its margin over the second best, at the weights of the call,
  exceeds what the scores may have changed since. For chains that is the largest change of any
  labelling, by Viterbi: it takes the work of a call. For classes, the length of a row times that of
  the change of the difference of two classes' weights.
- *ten best*: the same for the best of ten labellings, over all others: ten times the work of a
  call.

*Repeated* calls of chains have an answer that an earlier call gave. Classes are also trained
without the waiting of idle examples, which is the default. With *dear calls* the default solver for
chains takes each for a hundred times its work. Chains are the words of fold 0, the first 626 of the
others, and the first 300 sentences of CoNLL-2000 with the features of `chunking`; classes, without
intercept, are those of 3,000 rows of letter, MNIST and 20 Newsgroups. Nothing is timed.
"""

import argparse
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import maxmargin as mm
from benchmarks.chunking import features
from benchmarks.common import Floats, load, parser, run, say, subsample
from benchmarks.reporting import Panel, Quote, Report, Row
from benchmarks.sequences import Chains, corpus, letters
from maxmargin.core.cuts import Cuts
from maxmargin.core.linear import CrammerSinger
from maxmargin.core.oracle import Threads
from maxmargin.dual.sweeps import DUE
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import LinearRun
from maxmargin.solvers.structured import BlockRun
from maxmargin.structures.chain.inference import k_best, viterbi
from maxmargin.structures.chain.oracle import ChainOracle, Layout, Sequences
from maxmargin.structures.chain.vocabulary import Vocabulary

Order = NDArray[np.int64]

TOLERANCES = (1e-2, 1e-3, 1e-4)
WANTED = 0.5
"""Share of the calls to be saved."""

STEPS = (1.02, 1.1, 1.5, 2.0)
"""Factors from one C of a path to the next."""

BALL, SECOND, TEN, REPEATED = "ball", "second best", "ten best", "repeated"
DEAR = 100.0
WORDS, SENTENCES, ROWS, QUICK_ROWS = 626, 300, 3000, 300
CHAINS = {"ocr": (0.1, 0.01), "ocr2": (0.01,), "conll2000": (0.1,)}
"""Lambdas of the words; C of the sentences."""

CLASSES = {"letter": (1.0,), "mnist": (0.1,), "20news": (1.0,)}
DATA = (*CHAINS, *CLASSES)


class Known(NamedTuple):
    """Weights and a dual point, by its weights, with their values."""

    weights: Floats
    primal: float
    dual_weights: Floats
    dual: float


class Ball(NamedTuple):
    """Where the optimal weights are."""

    centre: Floats
    radius: float


def ball(known: Known) -> Ball:
    """The ball of all weights whose squared distances from both add up to at most twice the gap."""
    apart = known.weights - known.dual_weights
    square = known.primal - known.dual - 0.25 * float(np.sum(apart * apart))
    return Ball(0.5 * (known.weights + known.dual_weights), float(np.sqrt(max(square, 0.0))))


def at_next(known: Known, factor: float) -> Known:
    """The same weights, and the dual point in proportion, for C times `factor`."""
    half = 0.5 * float(np.sum(known.weights**2))
    half_dual = 0.5 * float(np.sum(known.dual_weights**2))
    return Known(
        known.weights,
        half + factor * (known.primal - half),
        factor * known.dual_weights,
        factor * (known.dual + half_dual) - factor**2 * half_dual,
    )


@dataclass
class Tally:
    """Oracle calls, those that each rule saved, and both when a tolerance was reached."""

    n: int
    calls: int = 0
    saved: dict[str, int] = field(default_factory=dict)
    marks: dict[float, dict[str, float]] = field(default_factory=dict)
    gaps: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def add(self, calls: int, **saved: int) -> None:
        """More calls."""
        self.calls += calls
        for rule, count in saved.items():
            self.saved[rule.replace("_", " ")] = self.saved.get(rule.replace("_", " "), 0) + count

    def shares(self) -> dict[str, float]:
        """Calls for each example, and the share of them that each rule saved."""
        return {"calls": self.calls / self.n} | {
            rule: count / max(self.calls, 1) for rule, count in self.saved.items()
        }

    def mark(self, gap: float) -> None:
        """Note how things stand at this relative gap."""
        self.gaps.append((gap, self.shares()))
        for tol in TOLERANCES:
            if gap <= tol and tol not in self.marks:
                self.marks[tol] = self.shares()


class Watch:
    """What all watched fits share: the best weights, the best ball, the examples it settles."""

    def __init__(self, n: int, primal: Callable[[Floats], float]) -> None:
        self.tally, self.primal = Tally(n), primal
        self.settled = np.zeros(n, dtype=bool)
        self.best: Known | None = None
        self.dual = -np.inf

    def fixed(self, within: Ball) -> NDArray[np.bool_]:
        """Examples with the same best output all over the ball."""
        raise NotImplementedError

    def before_pass(self, weights: Floats, dual: float, others: Sequence[Floats]) -> None:
        """Evaluate the weights of the dual point, and others, free of charge."""
        pairs = [(self.primal(one), one) for one in (weights, *others)]
        if self.best is not None:
            pairs.append((self.best.primal, self.best.weights))
        known = [Known(one, primal, weights, dual) for primal, one in pairs]
        best = min(known, key=lambda one: one.primal)
        self.best = Known(best.weights.copy(), best.primal, weights.copy(), dual)
        self.dual = max(self.dual, dual)
        self.tally.mark((best.primal - self.dual) / best.primal)
        self.settled |= self.fixed(min(map(ball, known), key=lambda one: one.radius))

    def at_start(self, factor: float) -> float:
        """Share of the examples that the ball settles before the first pass at the next C."""
        assert self.best is not None
        return float(self.fixed(ball(at_next(self.best, factor))).mean())


# Chains


class Answers(NamedTuple):
    """Best labellings at some weights: no other one scores more than the last of them."""

    nodes: Floats
    pairs: Floats
    labels: NDArray[np.uint16]
    last: float
    is_all: bool


def best_labellings(nodes: Floats, pairs: Floats, k: int) -> Answers:
    """The `k` best, or all that there are."""
    (length, width), n_labels = nodes.shape, len(pairs)
    labels, scores = np.zeros((k, length), dtype=np.uint16), np.zeros(k)
    best = np.zeros((length + 1, k, width))
    count = k_best(
        nodes, pairs[None], n_labels, k, labels, scores, best, best.astype(np.int32),
        np.zeros(width), np.zeros(width, dtype=np.int32),
    )  # fmt: skip
    return Answers(nodes, pairs, labels[:count], float(scores[count - 1]), count < k)


def scores_of(labels: NDArray[np.uint16], nodes: Floats, pairs: Floats) -> Floats:
    """Scores of some labellings."""
    score = nodes[np.arange(len(nodes)), labels].sum(axis=1)
    return np.asarray(score + pairs[labels[:, :-1], labels[:, 1:]].sum(axis=1))


class BestOfSome:
    """Save calls whose answer must be among the `k` best labellings of an earlier call."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.answers: dict[int, Answers] = {}

    def saves(self, example: int, nodes: Floats, pairs: Floats) -> bool:
        """Whether a call is saved; if not, it is made."""
        old = self.answers.get(example)
        if old is not None and self.holds(old, nodes, pairs):
            return True
        self.answers[example] = best_labellings(nodes, pairs, self.k)
        return False

    def holds(self, old: Answers, nodes: Floats, pairs: Floats) -> bool:
        """Whether no other labelling than those known can have become the best."""
        if old.is_all:
            return True
        found = np.empty(len(nodes), dtype=np.uint16)
        moved, scratch = (pairs - old.pairs)[None], np.empty_like(nodes)
        change = viterbi(nodes - old.nodes, moved, len(pairs), found, scratch)
        return bool(scores_of(old.labels, nodes, pairs).max() >= old.last + change)


class ChainWatch(Watch):
    """A watched fit of chains."""

    def __init__(self, oracle: ChainOracle) -> None:
        super().__init__(oracle.n_examples, oracle.primal)
        self.oracle = oracle
        self.rules = {"second_best": BestOfSome(2), "ten_best": BestOfSome(10)}
        self.seen: list[set[bytes]] = [set() for _ in range(oracle.n_examples)]
        self.X = sp.csr_matrix(oracle.sequences.matrix)

    def scored(self, weights: Floats, examples: Order) -> Iterator[tuple[Floats, Floats]]:
        """Loss-augmented scores of labels, and of pairs of them, of each example."""
        oracle, layout = self.oracle, self.oracle.layout
        ends, table = oracle.sequences.ends, layout.table(weights)
        rows = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in examples])
        nodes = self.X[rows] @ table[: layout.n_features] + table[layout.bias]
        scales = np.repeat(oracle.loss_scale, oracle.sequences.lengths)
        nodes += scales[rows, None] * oracle.loss[oracle.labels[rows]]
        pairs = table[layout.transitions : layout.transitions + layout.n_labels].copy()
        at = 0
        for i in examples:
            here = nodes[at : at + ends[i + 1] - ends[i]]
            at += len(here)
            here[0] += table[layout.first]
            here[-1] += table[layout.last]
            yield here, pairs

    def fixed(self, within: Ball) -> NDArray[np.bool_]:
        """As `Watch.fixed`, but only the second best output is compared."""
        everything = np.arange(self.oracle.n_examples)
        two = [
            best_labellings(*scored, 2).labels for scored in self.scored(within.centre, everything)
        ]
        cuts = [
            self._planes(everything, [labels[min(at, len(labels) - 1)] for labels in two])
            for at in (0, 1)
        ]
        (psi, slopes), (psi_second, slopes_second) = (
            (plane, losses - plane @ within.centre) for plane, losses in cuts
        )
        apart = psi - psi_second
        lengths = np.sqrt(np.asarray(apart.multiply(apart).sum(axis=1)).ravel())
        return np.asarray(slopes - slopes_second > within.radius * lengths)

    def _planes(self, examples: Order, labels: list[NDArray[np.uint16]]) -> tuple[Any, Floats]:
        """Cutting planes of outputs as a matrix, and their losses."""
        cuts = self.oracle.cuts_of(examples, [one.tobytes() for one in labels])
        entries = cuts.values, cuts.columns.astype(np.int64), cuts.starts
        return sp.csr_matrix(entries, shape=self.oracle.shape), cuts.losses

    def called(self, weights: Floats, examples: Order, outputs: Sequence[bytes]) -> None:
        """Count calls."""
        saved = dict.fromkeys([*self.rules, REPEATED], 0)
        found = zip(examples.tolist(), outputs, self.scored(weights, examples), strict=True)
        for i, output, scored in found:
            for name, rule in self.rules.items():
                saved[name] += rule.saves(i, *scored)
            saved[REPEATED] += output in self.seen[i]
            self.seen[i].add(output)
        self.tally.add(len(examples), ball=int(self.settled[examples].sum()), **saved)


class WatchedOracle(ChainOracle):
    """Tells a watch, if there is one, of its calls; `price` is what a call is taken to cost."""

    watch: ChainWatch | None = None
    price = 1.0

    @property
    def oracle_work(self) -> float:
        return self.price * super().oracle_work

    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        cuts = super().separate(weights, examples, threads)
        if self.watch is not None:
            self.watch.called(weights, examples, cuts.outputs)
        return cuts


@dataclass(frozen=True, kw_only=True)
class WatchedAuto(mm.Auto):
    """The default solver, under a watch."""

    watch: ChainWatch

    def iterate(self, run: BlockRun) -> None:
        others = [] if run.average is None else [run.average]
        self.watch.before_pass(run.weights, run.dual, others)
        super().iterate(run)


def chain_oracle(chains: Chains, C: float, normalized: bool) -> WatchedOracle:
    """The problem of `SequenceTagger` at its default settings."""
    classes, labels = np.unique(chains.y, return_inverse=True)
    k = len(classes)
    layout = Layout.of(chains.X.shape[1], k, bias=True, ends=True)
    sequences = Sequences.of(chains.X, np.concatenate([[0], np.cumsum(chains.lengths)]))
    loss = 1.0 - np.eye(k)
    costs = np.full(chains.n, C)
    return WatchedOracle(sequences, labels, layout, costs, loss, normalized=normalized)


def watched_chains(oracle: WatchedOracle) -> ChainWatch:
    """A fit, watched."""
    watch = ChainWatch(copy.copy(oracle))
    oracle.watch = watch
    WatchedAuto(watch=watch).solve(oracle, Stopping(0.5 * TOLERANCES[-1]))
    oracle.watch = None
    return watch


def calls_for_each(oracle: WatchedOracle, price: float, tol: float) -> tuple[float, float]:
    """Oracle calls, and updates without one, for each example of an ordinary fit."""
    oracle.price = price
    last = mm.Auto().solve(oracle, Stopping(tol)).history[-1]
    return last.oracle_calls / oracle.n_examples, last.cache_hits / oracle.n_examples


def chains_of(name: str, quick: bool) -> Chains:
    """Words or sentences."""
    if name != "conll2000":
        return letters(name, quick).train.first(WORDS)
    vocabulary, some = Vocabulary([]), corpus(name, quick).train[:SENTENCES]
    X = vocabulary.matrix([features(one) for one in some], True)[0]
    y = np.array([token[-1] for one in some for token in one])
    return Chains(sp.csr_matrix(X), y, np.array([len(one) for one in some]))


# Classes


class ClassWatch(Watch):
    """A watched fit of classes; weights are taken as they are before each iteration."""

    def __init__(self, problem: CrammerSinger) -> None:
        super().__init__(problem.n_samples, problem.primal)
        self.problem = problem
        X = sp.csr_matrix(problem.X)
        self.lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        self.asked = np.full(problem.n_samples, -1)
        """Number of the iteration whose answer an example keeps."""
        self.past: dict[int, tuple[Floats, Floats]] = {}
        """Weights and loss-augmented scores of these iterations."""

    def scores(self, weights: Floats) -> Floats:
        """Loss-augmented, of all classes."""
        problem = self.problem
        losses = problem.all_losses()[problem.labels] * problem.margins[:, None]
        return np.asarray(problem.scores(weights) + losses)

    def fixed(self, within: Ball) -> NDArray[np.bool_]:
        ordered = np.sort(self.scores(within.centre), axis=1)
        margins = ordered[:, -1] - ordered[:, -2]
        return np.asarray(margins > within.radius * np.sqrt(2.0) * self.lengths)

    def called(self, weights: Floats, coef: Floats, examples: Order) -> None:
        """Count updates of the examples that are due."""
        keeps = np.zeros(len(self.asked), dtype=bool)
        for past in np.unique(self.asked[examples]):
            if past >= 0:
                some = examples[self.asked[examples] == past]
                keeps[some] = self._holds(*self.past[past], weights, coef, some)
        saved, now = keeps[examples], max(self.past, default=-1) + 1
        self.asked[examples[~saved]] = now
        self.past[now] = weights.copy(), self.scores(weights)
        self.past = {at: self.past[at] for at in {*self.asked.tolist(), now} - {-1}}
        in_ball = int(self.settled[examples].sum())
        self.tally.add(len(examples), ball=in_ball, second_best=int(saved.sum()))

    def _holds(
        self, before: Floats, scores: Floats, weights: Floats, coef: Floats, examples: Order
    ) -> NDArray[np.bool_]:
        """Examples with all of C on one class, which still has the highest score."""
        problem, rows = self.problem, np.arange(len(examples))
        shares = -coef[examples]
        shares[rows, problem.labels[examples]] += problem.C[examples]
        only, moved = shares.argmax(axis=1), weights - before
        gram = moved.T @ moved
        square = gram.diagonal()[:, None] + gram.diagonal() - 2.0 * gram
        margins = scores[examples][rows, only][:, None] - scores[examples]
        change = np.sqrt(np.maximum(square, 0.0))[only] * self.lengths[examples, None]
        single = np.count_nonzero(shares > 0.0, axis=1) == 1
        return np.asarray(single & (margins >= change).all(axis=1))


@dataclass(frozen=True, kw_only=True)
class WatchedDual(mm.SequentialDual):
    """The default solver of classes, under a watch."""

    watch: ClassWatch

    def iterate(self, run: Any) -> None:
        assert isinstance(run, LinearRun)
        state, k = run.dual_state, self.watch.problem.n_outputs
        weights = state.shared.weights[:, :k]
        # The problem has the features that occur, as the run has.
        self.watch.before_pass(weights, state.dual, [state.shared.average[:, :k]])
        due = np.flatnonzero(state.updates[:, DUE] <= state.iteration)
        self.watch.called(weights, state.dual_coef, due)
        super().iterate(run)


def watched_classes(problem: CrammerSinger, waits: bool) -> ClassWatch:
    """A fit, watched."""
    watch = ClassWatch(problem)
    solver = WatchedDual(watch=watch, skip_idle_examples=waits)
    solver.solve(problem, Stopping(0.5 * TOLERANCES[-1]))
    return watch


def class_problem(name: str, C: float, quick: bool) -> CrammerSinger:
    """The problem of `LinearClassifier` without intercept, in the features that occur."""
    data = subsample(load(name, quick), QUICK_ROWS if quick else ROWS)
    X = sp.csr_matrix(data.X, dtype=np.float64)
    X = sp.csr_matrix(X[:, np.unique(X.indices)])
    classes, labels = np.unique(data.y, return_inverse=True)
    n, loss = len(labels), 1.0 - np.eye(len(classes))
    return CrammerSinger(
        X=X, C=np.full(n, C), bias=0.0, nonnegative=False, origin=None,
        labels=labels.astype(np.int32), margins=np.ones(n), loss_matrix=loss,
    )  # fmt: skip


# The table


def rows(title: str, watch: Watch, what: str, usable: Sequence[str], judged: bool) -> Iterator[Row]:
    """What was saved until each tolerance; only rules that are no dearer than a call count."""
    for tol, found in watch.tally.marks.items():
        shares = [f"{rule} {share:.1%}" for rule, share in found.items() if rule != "calls"]
        saved = max(found.get(rule, 0.0) for rule in usable)
        is_judged = judged and tol == TOLERANCES[-1]
        yield Row(
            f"{title}, to {tol:g}",
            f">= {WANTED:.0%} saved" if is_judged else "",
            ", ".join(shares),
            f"{found['calls']:.1f} {what} an example",
            met=saved >= WANTED if is_judged else None,
        )


def note_path(report: Report, title: str, watch: Watch) -> None:
    """What the ball settles before the first pass at the next C."""
    shares = [f"{factor:g} C {watch.at_start(factor):.1%}" for factor in STEPS]
    text = ", ".join(shares)
    report.rows.append(Row(f"{title}, settled before the first pass at", "", text))
    report.quotes.append(
        Quote(
            "Wang, Wonka and Ye (2014), abstract",
            "two classes: what the ball at the next C rules out makes a path up to two orders of "
            "magnitude faster",
            f"{title}: settled before the first pass at {text}",
        )
    )


def note(report: Report, title: str, watch: Watch) -> None:
    """Keep what was found."""
    tally = watch.tally
    say(f"{title}: {tally.shares()}")
    report.details[title] = {"n": tally.n, "marks": {f"{t:g}": m for t, m in tally.marks.items()}}
    gaps = [gap for gap, _ in tally.gaps]
    curves = {
        rule: (gaps, [shares.get(rule, 0.0) for _, shares in tally.gaps]) for rule in tally.saved
    }
    report.panels[title] = Panel(curves, "relative gap", "share of the calls", ("log", "linear"))


def verdict(report: Report) -> str:
    """What was saved to the last tolerance, over all problems."""
    tol = f"{TOLERANCES[-1]:g}"
    marks = {title: found["marks"].get(tol, {}) for title, found in report.details.items()}
    waiting = [found for title, found in marks.items() if "waiting" not in title]
    most = {rule: max(found.get(rule, 0.0) for found in waiting) for rule in (BALL, SECOND, TEN)}
    dear = [found["dear"] for found in report.details.values() if "dear" in found]
    text = (
        f"Of the calls of the default solvers to {tol}, the ball saves at most {most[BALL]:.1%}, "
        f"the second best at most {most[SECOND]:.1%}."
    )
    if dear:
        text += (
            f" The ten best save at most {most[TEN]:.1%} of those of chains, and make the others "
            f"ten times as dear. To count calls as dear makes them {min(dear):.1f} to "
            f"{max(dear):.1f} times fewer: the working set is swept for longer in between."
        )
    return f"{text} None of these rules is in the library."


def measure_chains(name: str, setting: float, options: argparse.Namespace, report: Report) -> None:
    """One problem of chains."""
    chains, words = chains_of(name, options.quick), name != "conll2000"
    C = 1.0 / (setting * chains.n) if words else setting
    title = f"{name}, {'lambda' if words else 'C ='} {setting:g}"
    oracle = chain_oracle(chains, C, normalized=words)
    watch = watched_chains(oracle)
    note(report, title, watch)
    report.rows += rows(title, watch, "calls", (BALL, SECOND), True)
    note_path(report, title, watch)
    tol = TOLERANCES[-1]
    (calls, hits), (dear, dear_hits) = (calls_for_each(oracle, price, tol) for price in (1.0, DEAR))
    report.rows.append(
        Row(
            f"{title}, to {tol:g}, dear calls",
            "",
            f"{calls / dear:.1f} times fewer calls: {dear:.1f}, and {dear_hits:.0f} other updates",
            f"{calls:.1f} calls, and {hits:.0f} other updates",
        )
    )
    report.details[title]["dear"] = calls / dear


def measure_classes(name: str, C: float, options: argparse.Namespace, report: Report) -> None:
    """One problem of classes, with and without waiting."""
    problem = class_problem(name, C, options.quick)
    found = {}
    for waits in (True, False):
        title = f"{name}, C = {C:g}{'' if waits else ', no waiting'}"
        found[waits] = watch = watched_classes(problem, waits)
        note(report, title, watch)
        report.rows += rows(title, watch, "updates", (BALL, SECOND), waits)
    title, tol = f"{name}, C = {C:g}", TOLERANCES[-1]
    note_path(report, title, found[True])
    with_it, without = (found[waits].tally.marks.get(tol) for waits in (True, False))
    if with_it and without:
        share = 1.0 - with_it["calls"] / without["calls"]
        report.rows.append(Row(f"{title}, to {tol:g}: saved by waiting", "", f"{share:.1%}"))


def measure(options: argparse.Namespace) -> Report:
    """All problems."""
    report = Report()
    for name in options.data:
        measure_one = measure_chains if name in CHAINS else measure_classes
        for setting in (CHAINS | CLASSES)[name]:
            measure_one(name, setting, options, report)
    report.notes.append(verdict(report))
    return report


if __name__ == "__main__":
    run(parser(__doc__, DATA), measure)

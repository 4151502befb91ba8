"""StreamedDual: dual coordinate ascent on examples that are read from disk, block by block."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate
from maxmargin.core.checks import check_finite, check_indices, check_types
from maxmargin.core.linear import LinearProblem, OneVersusRest
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status, Stopping
from maxmargin.core.threads import Threads, read_ahead
from maxmargin.dual.row_cache import Portion, StoredCoefficients
from maxmargin.solvers.loop import Solver, SolverRun
from maxmargin.solvers.online_dual import BlockLearner
from maxmargin.solvers.summed_value import SummedValue, parts_of

Floats = NDArray[np.float64]

SETTLED = 1e-3
"""Cached rows have settled when a sweep over them gains less than this times `tol`, relatively.
With each pass that was not the last, the bar is four times lower, and there is time for more."""

RESUMED = 1e-5
"""Relative difference that rounding may make between values kept and evaluated anew."""

BlockProblem = LinearProblem | OneVersusRest
Stored = tuple[StoredCoefficients, ...]
"""Coefficients of a block, for each part of the problem."""


@registered("LateCoefficients")
class _Late(NamedTuple):
    """Coefficients of some rows of a block, newer than those that are stored of the block."""

    rows: NDArray[np.int32]
    coefs: list[StoredCoefficients]


@registered("StreamedDual")
@dataclass(frozen=True, kw_only=True)
class StreamedDual(Solver):
    """Dual coordinate ascent on blocks of examples that need not be in memory all at once.

    In memory are one block (and the next, which a thread reads meanwhile), the weights, the dual
    coefficients that are not zero, and the rows of earlier blocks that still move, as far as
    `cache_bytes` allows. Each block is swept a few times, and the cached rows with it. Every pass
    but the first also values the weights and the dual point it began with, from the
    data alone: the certificate costs one pass in all. So the objective in the history is exact, of
    the weights before the pass; in the first pass it is estimated with the losses that blocks had
    when they were learned from.

    Parameters
    ----------
    cache_bytes : int, default=2**27
        Memory for rows of earlier blocks. Less takes more passes; 0 keeps none.

    See Also
    --------
    maxmargin.LinearClassifier, maxmargin.LinearRegressor : ``fit(source)`` and ``partial_fit``.
    SequentialDual : For data in memory.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import maxmargin as mm
    >>> from maxmargin.data.sources import Examples, Source
    >>> from maxmargin.solvers.streamed_dual import StreamedDual
    >>> class Parts(Source):
    ...     def blocks(self):
    ...         X, y = load_digits(return_X_y=True)
    ...         for at in range(0, len(y), 500):
    ...             yield Examples(X[at : at + 500] / 16, y[at : at + 500])
    >>> solver = StreamedDual(cache_bytes=1_000_000)
    >>> model = mm.LinearClassifier(tol=0.01, solver=solver).fit(Parts())
    >>> model.certificate_.relative_gap <= 0.01
    True
    """

    cache_bytes: int = 1 << 27

    def start(
        self,
        oracle: Callable[[], Iterator[BlockProblem | None]],
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> "StreamedRun":
        """A run over the sum of the problems that `oracle` gives.

        Parameters
        ----------
        oracle : callable
            ``oracle()`` goes through the batches, each a problem on its own examples; None stands
            for a batch of which nothing can be made yet. In the first pass problems may become
            wider from batch to batch; if they get more outputs, what was learned before is lost.
            Later passes must give the same examples. For checkpoints it must have a `content`,
            which tells it from others, and be `Stateful`.
        stopping : Stopping
            An iteration is a pass.
        threads : Threads
            Apart from the one that reads. Same seed and number of threads, same answer.
        seed : int
        """
        return StreamedRun(BlockLearner(self.cache_bytes, seed), oracle, stopping, threads, seed)

    def iterate(self, run: "StreamedRun") -> None:
        run.read(learn=True)

    def finish(self, run: "StreamedRun", status: Status) -> Result:
        # What the last pass has learned is not evaluated yet, and after Ctrl-C nothing may be.
        if status in (Status.MAX_ITER, Status.INTERRUPTED) or not run.best:
            while not run.surveyed:
                run.evaluate()
            run.evaluate()
        return run.result(Status.CONVERGED if run.is_done else status)


class StreamedRun(SolverRun):
    """One solve: what was learned, what is stored, and the best answer so far."""

    state_names: ClassVar[tuple[str, ...]] = (
        "learner", "oracle", "stored", "late", "n_rows", "surveyed", "best", "best_primals",
        "at_zero", "best_dual", "history",
    )  # fmt: skip

    def __init__(
        self,
        learner: BlockLearner,
        oracle: Callable[[], Iterator[BlockProblem | None]],
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> None:
        super().__init__(oracle, stopping, threads, seed)
        self.learner = learner
        self.stored: list[Stored | None] = []
        self.late: dict[int, list[_Late]] = {}
        self.n_rows = 0
        self.surveyed = False
        self.best: list[Floats] = []
        self.best_primals: list[float] = []
        self.at_zero = math.inf
        """Objective of zero weights; infinite before it is evaluated."""

    def check_state(self) -> None:
        """Refuse what is no list of coefficients, or of weights."""
        check_types(
            "the state",
            {"stored": self.stored, "late": self.late, "best": self.best},
            {
                "stored": list[Stored | None],
                "late": dict[int, list[_Late]],
                "best": list[Floats],
            },
        )
        known = range(len(self.stored))
        if not all(k in known for k in (*self.late, *self.learner.cache.portions)):
            raise ValueError("coefficients belong to a block that there is not")
        portions = self.learner.cache.portions.items()
        rows = [(k, portion.rows) for k, portion in portions]
        rows += [(k, one.rows) for k, many in self.late.items() for one in many]
        for k, some in rows:
            n_rows = min((part.shape[0] for part in self.stored[k] or ()), default=0)
            check_indices("rows of a block", some, n_rows)
        for value in (self.best_primals, *self.best):
            check_finite("the best weights and their objective", np.asarray(value))
        if len(self.best) != len(self.best_primals):
            raise ValueError("the weights of its objective are missing")

    def check_resumed(self) -> None:
        """Evaluate the best weights and the dual point anew, in a pass over the batches.

        A file is not believed what they are worth.
        """
        if not self.best:
            return
        self._write_back()
        value = SummedValue([self.best])
        for _ in self._valued(value):
            pass
        primal, dual, known = float(value.primals().sum()), value.dual(), self.certificate
        within = 1.0 + RESUMED
        if not (primal <= within * known.primal and known.dual <= dual + RESUMED * abs(dual)):
            raise ValueError(
                f"its weights have the objective {primal:.6g}, not {known.primal:.6g}, or its dual "
                f"point the value {dual:.6g}, not {known.dual:.6g}"
            )

    @property
    def depends_on(self) -> dict[str, Any]:
        return {"n_jobs": self.threads.n_threads}

    def heed_checker(self) -> None:
        """There is no oracle that a user wrote."""

    def is_whole(self, status: Status | None) -> bool:
        return self.stopping.reason(-1) is None

    @property
    def dual(self) -> float:
        """Of the last certified point: what sweeps keep account of is not believed."""
        return self.best_dual

    @property
    def n_cuts(self) -> int:
        return sum(part.n_stored for stored in self.stored for part in stored or ())

    @property
    def expected(self) -> float:
        return self.learner.expected

    def point(self) -> list[Stored | None]:
        return self.stored

    def resume(self, start: Any) -> None:
        raise ValueError("A streamed solve begins anew.")

    def answer(self) -> Floats:
        """The best weights that are known, or those most likely to be."""
        return np.hstack(self.best or self.learner.average())

    def reason_to_stop(self) -> Status | None:
        if self.is_done:
            return Status.CONVERGED
        return self.stopping.reason(len(self.history))

    @property
    def is_done(self) -> bool:
        return self._closes_gap(self.certificate.primal)

    @property
    def certificate(self) -> Certificate:
        """Of the best weights and dual point so far."""
        return Certificate(sum(self.best_primals) if self.best else math.inf, self.best_dual)

    def result(self, status: Status) -> Result:
        self._write_back()
        tol = self.stopping.relative_tol(self.at_zero)
        certificate = self.certificate.compared_with_zero(self.at_zero, tol)
        return Result(
            self.answer(), self.stored, certificate, status, len(self.history), self.history
        )

    def evaluate(self) -> None:
        """One more pass, without learning, as an iteration of its own."""
        self.evaluated = math.inf
        self.read(learn=False)
        self.history.append(self.as_iteration())

    def read(self, learn: bool) -> None:
        """One pass over the batches, which evaluates what was known at its beginning.

        The first complete pass cannot: it only finds out how many features and outputs there are.
        """
        value = None
        updates, self.learner.loss = self.learner.updates, 0.0
        if self.surveyed:
            self._write_back()
            sums = self.learner.unclipped()
            candidates = [self.learner.average(), self.learner.clipped(sums)]
            if not self.best:  # once is enough: their objective stays
                candidates.append(self.learner.prior_weights())
            value = SummedValue(candidates)
        for k, problem in read_ahead(self._valued(value)):
            if not self.surveyed:
                self._prepare(k, problem)
            if problem is not None and learn and self.stopping.reason(-1) is None:
                self._learn(k, parts_of(problem))
        if value is None:
            self.surveyed = True
            self.learner.resize(self.n_rows)
        else:
            self._settle(value)
            self.learner.correct(sums, value.unclipped())
        if learn and not self.is_done:
            self._polish(self.learner.updates - updates)

    def _valued(self, value: SummedValue | None) -> Iterator[tuple[int, BlockProblem | None]]:
        """The blocks with their numbers, valued where they are read: in the reader's thread.

        Values belong to the beginning of the pass. What is stored of a block stays as it was then
        until the block is learned from, and that is after it has come from here.
        """
        k = -1
        for k, problem in enumerate(self.oracle()):
            if value is not None:
                if problem is None or k >= len(self.stored):
                    raise ValueError("The source gave other blocks than on the first pass.")
                parts = parts_of(problem)
                value.add(problem, self._restored(self.stored[k], parts) or [None] * len(parts))
            yield k, problem
        if value is not None and k + 1 < len(self.stored):
            raise ValueError("The source gave fewer blocks than on the first pass.")

    def _prepare(self, k: int, problem: BlockProblem | None) -> None:
        """In the first pass: make room for what this block is the first to have."""
        if k == len(self.stored):
            self.stored.append(None)
        if problem is None:
            return
        self.n_rows = parts_of(problem)[0].weights_shape[0]
        if not self.learner.prepare(parts_of(problem)):
            self.stored = [None] * len(self.stored)
            self.late.clear()

    def _learn(self, k: int, parts: tuple[LinearProblem, ...]) -> None:
        """Improve the dual over a block, and over the cached rows of others."""
        starts = self._restored(self._current(k), parts)
        self.late.pop(k, None)
        self.learner.cache.take(k)
        portion = self.learner.load(k, parts, starts)
        try:
            self.learner.learn(portion, self.threads)
        finally:
            self.stored[k] = tuple(StoredCoefficients.of(part) for part in portion.fractions())
        self.learner.cache.keep(k, portion, self._let_go)

    def _let_go(self, block: int, portion: Portion, examples: NDArray[np.int32]) -> None:
        """Remember the coefficients of rows that the cache drops, until their block is stored."""
        coefs = [StoredCoefficients.of(part[examples]) for part in portion.fractions()]
        self.late.setdefault(block, []).append(_Late(portion.rows[examples], coefs))

    def _polish(self, updates_of_pass: int) -> None:
        """Before the next pass, which costs far more: let the cached rows settle."""
        allowed = self.stopping.allowed_gap(self.learner.dual)
        passes = len(self.history) + 1
        enough = SETTLED * 4.0 ** (1 - passes) * allowed
        if self.stopping.reason(-1) is None:
            self.learner.polish(passes * updates_of_pass, enough, self.threads)

    def _restored(
        self, stored: Stored | None, parts: tuple[LinearProblem, ...]
    ) -> list[Floats] | None:
        if stored is None:
            return None
        if stored[0].shape[0] != parts[0].n_samples:
            raise ValueError(
                f"The source gave {parts[0].n_samples} examples in a block that had "
                f"{stored[0].shape[0]} on the first pass: it must give the same ones in every pass."
            )
        return [kept.restore(part) for kept, part in zip(stored, parts, strict=True)]

    def _current(self, k: int) -> Stored | None:
        """What is stored of a block, with what its cached rows have learned since."""
        stored = self.stored[k]
        kept = self.learner.cache.portions.get(k)
        changes = [(rows, [part.dense() for part in coefs]) for rows, coefs in self.late.get(k, [])]
        if kept is not None:
            changes.append((kept.rows, kept.fractions()))
        for rows, fractions in changes:
            assert stored is not None  # rows are cached when their block is stored
            pairs = zip(stored, fractions, strict=True)
            stored = tuple(part.changed(rows, new) for part, new in pairs)
        return stored

    def _write_back(self) -> None:
        """Store all that cached rows have learned."""
        for k in {*self.late, *self.learner.cache.portions}:
            self.stored[k] = self._current(k)
        self.late.clear()
        for portion in self.learner.cache.portions.values():
            portion.round()

    def _settle(self, value: SummedValue) -> None:
        """Keep what a pass has found to be better, part by part."""
        primals = value.primals()
        self.evaluated = float(primals.min(axis=1).sum())
        if not self.best:
            self.best, self.best_primals = [*value.candidates[0]], primals[:, 0].tolist()
            self.at_zero = float(primals[:, -1].sum())
        for m, c in enumerate(primals.argmin(axis=1)):
            if primals[m, c] < self.best_primals[m]:
                self.best[m], self.best_primals[m] = value.candidates[c][m], float(primals[m, c])
        self.best_dual = max(self.best_dual, value.dual())

    def as_iteration(self) -> Iteration:
        self.calls, self.hits = self.learner.updates, self.learner.cache_updates
        self.primal = self.certificate.primal
        line = super().as_iteration()
        return line if self.best else replace(line, dual=self.learner.dual)

"""StreamedDual: dual coordinate ascent on examples that are read from disk, block by block."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate
from maxmargin.core.checks import check_finite, check_indices, check_types
from maxmargin.core.linear import LinearProblem, OneVersusRest
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status, Stopping
from maxmargin.core.state import Stateful
from maxmargin.core.threads import Threads, read_ahead
from maxmargin.dual.row_cache import Portion, StoredCoefficients
from maxmargin.io.checkpoint import Checkpoint
from maxmargin.solvers.online_dual import BlockLearner
from maxmargin.solvers.sequential_dual import OnIteration
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
class StreamedDual:
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

    def solve(
        self,
        blocks: Callable[[], Iterator[BlockProblem | None]],
        stopping: Stopping,
        *,
        n_jobs: int = 1,
        seed: int = 0,
        on_iteration: OnIteration | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Result:
        """Solve the sum of the problems that `blocks` gives; see `SequentialDual.solve`.

        Parameters
        ----------
        blocks : callable
            ``blocks()`` goes through the blocks, each a problem on its own examples; None stands
            for a block of which nothing can be made yet. In the first pass problems may become
            wider from block to block; if they get more outputs, what was learned before is lost.
            Later passes must give the same examples.
        stopping : Stopping
            A round is a pass.
        n_jobs : int
            Threads, apart from the one that reads.
        seed : int
            Same seed and `n_jobs`, same answer.
        on_iteration : callable or None
            Called after each pass.
        checkpoint : Checkpoint or None
            Where to keep the state after passes, and whether to go on from there. The `blocks` must
            then have a `content`, which tells them from others, and be `Stateful`.
        """
        with Threads(n_jobs) as threads:
            run = _Run(BlockLearner(self.cache_bytes, seed), blocks, stopping, threads)
            try:
                if checkpoint is not None:
                    content = blocks.content  # type: ignore[attr-defined]
                    if checkpoint.begin(run, content, self, stopping, seed, n_jobs=n_jobs):
                        run.check_resumed(checkpoint.path)
                status = run.reason_to_stop()
                while status is None:
                    run.read(learn=True)
                    stop = on_iteration is not None and on_iteration(run.history[-1], run.weights)
                    status = run.reason_to_stop() or (Status.STOPPED if stop else None)
                    # A pass that ran out of time is not whole: it would lead to another answer.
                    if checkpoint is not None and stopping.reason(-1) is None:
                        checkpoint.offer(lambda: run, final=status is not None)
            except KeyboardInterrupt:
                stopping.cancelled.set()
                status = Status.INTERRUPTED
            # What the last pass has learned is not valued yet, and after Ctrl-C nothing may be.
            if status in (Status.MAX_ITER, Status.INTERRUPTED) or not run.best:
                while not run.read(learn=False):
                    pass
            if run.is_done:
                status = Status.CONVERGED
            return run.result(status)


class _Run(Stateful):
    """One solve: what was learned, what is stored, and the best answer so far."""

    state_names = (
        "learner", "blocks", "stored", "late", "n_rows", "surveyed", "passes", "best",
        "best_primals", "at_zero", "best_dual", "history",
    )  # fmt: skip

    def __init__(
        self,
        learner: BlockLearner,
        blocks: Callable[[], Iterator[BlockProblem | None]],
        stopping: Stopping,
        threads: Threads,
    ) -> None:
        self.learner = learner
        self.blocks, self.stopping, self.threads = blocks, stopping, threads
        self.stored: list[Stored | None] = []
        self.late: dict[int, list[_Late]] = {}
        self.n_rows = 0
        self.surveyed = False
        self.passes = 0
        self.best: list[Floats] = []
        self.best_primals: list[float] = []
        self.at_zero = math.inf
        """Objective of zero weights; infinite before it is evaluated."""
        self.best_dual = -math.inf
        self.evaluated = math.inf
        """The lowest objective that the last pass has found, if it evaluated any."""
        self.history: list[Iteration] = []

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

    def check_resumed(self, path: Path) -> None:
        """Evaluate the best weights and the dual point anew, in a pass over the blocks.

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
                f"{path} is damaged: its weights have the objective {primal:.6g}, not "
                f"{known.primal:.6g}, or its dual point the value {dual:.6g}, not "
                f"{known.dual:.6g}; remove the file to begin anew."
            )

    def reason_to_stop(self) -> Status | None:
        """Why to stop after the passes so far; None to go on."""
        if self.is_done:
            return Status.CONVERGED
        return self.stopping.reason(self.passes)

    @property
    def is_done(self) -> bool:
        """Whether the gap is closed."""
        return self.stopping.is_enough(self.certificate.primal, self.best_dual)

    @property
    def certificate(self) -> Certificate:
        return Certificate(sum(self.best_primals) if self.best else math.inf, self.best_dual)

    def weights(self) -> Floats:
        """The best weights that are known, or those most likely to be."""
        return np.hstack(self.best or self.learner.average())

    def result(self, status: Status) -> Result:
        self._write_back()
        tol = self.stopping.relative_tol(self.at_zero)
        certificate = self.certificate.compared_with_zero(self.at_zero, tol)
        return Result(self.weights(), self.stored, certificate, status, self.passes, self.history)

    def read(self, learn: bool) -> bool:
        """One pass over the blocks; whether it valued what was known at its beginning.

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
        self.passes += 1
        if learn and not self.is_done:
            self._polish(self.learner.updates - updates)
        self.history.append(self._iteration())
        return value is not None

    def _valued(self, value: SummedValue | None) -> Iterator[tuple[int, BlockProblem | None]]:
        """The blocks with their numbers, valued where they are read: in the reader's thread.

        Values belong to the beginning of the pass. What is stored of a block stays as it was then
        until the block is learned from, and that is after it has come from here.
        """
        k = -1
        for k, problem in enumerate(self.blocks()):
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
        enough = SETTLED * 4.0 ** (1 - self.passes) * allowed
        if self.stopping.reason(-1) is None:
            self.learner.polish(self.passes * updates_of_pass, enough, self.threads)

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

    def _iteration(self) -> Iteration:
        """The pass as a line of history."""
        cuts = sum(part.n_stored for stored in self.stored for part in stored or ())
        certificate = self.certificate
        exact = math.isfinite(self.evaluated)
        return Iteration(
            seconds=self.stopping.seconds,
            oracle_calls=self.learner.updates,
            cache_hits=self.learner.cache_updates,
            primal=certificate.primal,
            dual=certificate.dual if self.best else self.learner.dual,
            cuts=cuts,
            objective=self.evaluated if exact else self.learner.expected,
            exact=exact,
        )

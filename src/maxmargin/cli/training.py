"""Commands that train: a model, or models for several values of C."""

import ast
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupShuffleSplit
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import InvalidParameterError

import maxmargin as mm
from maxmargin.cli.commands import Say, answers, print_scores
from maxmargin.cli.files import (
    Model,
    UsageError,
    check_kind,
    check_place,
    check_there,
    choose_task,
    read_for,
    save_model,
)
from maxmargin.cli.main import Reading, TrainOptions
from maxmargin.cli.task import Data, Task
from maxmargin.core.result import AbsoluteGap, Status
from maxmargin.data.files import STANDARD_INPUT
from maxmargin.data.live_line import duration, short
from maxmargin.estimators.convergence import NotConvergedWarning
from maxmargin.io.files import atomic_write
from maxmargin.report.markup import percentage, plural

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_REASONS = {
    Status.CONVERGED: "converged",
    Status.PASSES: "all passes done",
    Status.RELAXED: "converged as far as approximate inference can tell",
    Status.MAX_ITER: "stopped at the maximum number of iterations",
    Status.TIME_LIMIT: "stopped at the time limit",
    Status.INTERRUPTED: "interrupted",
}

OPTIONS = {
    "C": "-C",
    "tol": "--tol",
    "solver": "--solver",
    "time_limit": "--time-limit",
    "max_iter": "--max-iter",
    "n_jobs": "--threads",
    "random_state": "--seed",
}
"""Parameters of estimators that have an option of their own; the others have `--set`."""

_COMPLAINT = re.compile(r"The '(\w+)' parameter of (\w+) must be (.+)\. Got (.+) instead\.", re.S)

_OBJECTS = re.compile(r"an instance of '(?:tuple|[\w.]*\.[\w.]*)'(?:, | or )?")

HELD_OUT = 0.2
"""Fraction of the examples that `path` holds out to compare its models on."""


def train(estimator: Any, task: Task, data: Data, progress: bool) -> dict[str, Any]:
    """Train an estimator; returns what came of it: numbers for scripts."""
    if progress:
        estimator.set_callbacks(mm.ProgressLine())
    cause = ""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        show = warnings.showwarning

        def listen(message: Any, category: type[Warning], *place: Any) -> None:
            """The status says whether the fit converged: of its warning only the cause is kept."""
            nonlocal cause
            if not issubclass(category, ConvergenceWarning):
                show(message, category, *place)
            elif isinstance(message, NotConvergedWarning):
                cause = message.cause

        warnings.showwarning = listen  # type: ignore[assignment]
        task.fit(estimator, data)
    certificate = estimator.certificate_
    # There is no history if it stopped before the first iteration.
    last = estimator.history_[-1] if estimator.history_ else None
    return {
        "status": str(estimator.status_),
        "objective": certificate.primal,
        "dual": certificate.dual,
        "relative_gap": certificate.relative_gap,
        "iterations": 0 if last is None else estimator.n_iter_,
        "oracle_calls": 0 if last is None else last.oracle_calls,
        "seconds": 0.0 if last is None else last.seconds,
        "cause": cause,
    }


def _in_words(numbers: dict[str, Any]) -> str:
    """What came of a fit, for a reader."""
    status = Status(numbers["status"])
    return (
        f"{_REASONS.get(status, status)}: objective {numbers['objective']:.6g}, certified within "
        f"{percentage(numbers['relative_gap'])} of the optimum; "
        f"{plural(numbers['iterations'], 'iteration')}, "
        f"{plural(numbers['oracle_calls'], 'oracle call')}, {duration(numbers['seconds'])}"
    )


def _exit_code(numbers: dict[str, Any]) -> int:
    return INTERRUPTED if numbers["status"] == Status.INTERRUPTED else 0


def _estimator(options: TrainOptions, task: Task) -> Any:
    """An estimator for a task, with these options."""
    wanted: dict[str, Any] = task.defaults() | {
        "C": options.C,
        "solver": options.solver,
        "time_limit": options.time_limit,
        "n_jobs": options.threads,
        "random_state": options.seed,
        "checkpoint": options.checkpoint
        and mm.Checkpoint(options.checkpoint, resume=options.resume),
    }
    optional = {"tol": options.tol, "max_iter": options.max_iter}
    wanted |= {name: value for name, value in optional.items() if value is not None}
    kind = getattr(mm, task.estimator_class)
    known = sorted(kind().get_params())
    for setting in options.settings or ():
        name, is_one, value = setting.partition("=")
        if not is_one or name not in known:
            raise UsageError(
                f"--set {setting} is no parameter of {kind.__name__}: it has {', '.join(known)}."
            )
        wanted[name] = _value(value)
    estimator = kind(**wanted)
    try:
        estimator._validate_params()  # before data are read
    except InvalidParameterError as error:
        raise UsageError(in_words_of_options(str(error))) from None
    return estimator


def _check(options: TrainOptions) -> None:
    """Refuse options that cannot be combined."""
    if options.resume and options.checkpoint is None:
        raise UsageError("--resume needs the file to continue from: give --checkpoint FILE, too.")
    if options.checkpoint is not None:
        check_place(options.checkpoint)
    if options.epsilon is not None and not options.svmstruct:
        raise UsageError("-e needs --svmstruct: without it, give --tol.")
    if options.svmstruct and options.tol is not None:
        raise UsageError("--svmstruct and --tol cannot be combined: give -e instead of --tol.")
    if options.svmstruct and options.stream:
        raise UsageError("--svmstruct and --stream cannot be combined.")
    if options.epsilon is not None and not 0 < options.epsilon < np.inf:
        raise UsageError(f"-e must be a positive number, but is {options.epsilon:g}.")


def train_model(
    path: str,
    output: Path,
    options: TrainOptions,
    reading: Reading,
    threshold: float | None,
    test: str | None,
    say: Say,
    progress: bool,
) -> tuple[dict[str, Any], int]:
    """Train on a file and write the model; returns the results and the exit code."""
    _check(options)
    check_place(output, path, test)
    check_there(test)
    if threshold is not None and not 0 <= threshold < np.inf:
        raise UsageError(f"--prune must be a non-negative number, but is {threshold:g}.")
    if path == test == STANDARD_INPUT:
        raise UsageError("Standard input can be read only once: give a file with --test.")
    if options.stream and path == STANDARD_INPUT:
        raise UsageError("--stream reads its data many times: give a file, not standard input.")
    task, why = choose_task(path, reading)
    if test is not None:
        check_kind(task, test)
    estimator = _estimator(options, task)
    factor = None
    if options.stream:
        if not task.streams:
            raise UsageError(
                "--stream is for classification and regression of LIBSVM files, but this is "
                f"{task.name} of {task.format} files."
            )
        data = task.stream(path)
        say(f"{path}: {why}, read in batches")
    else:
        data = task.read(path)
        say(f"{path}: {why}; {data.size}")
        if options.svmstruct:
            factor = _as_svmstruct(options, task, data, estimator)
    numbers = train(estimator, task, data, progress)
    numbers |= {"task": task.name, "format": task.format, "model": str(output)}
    say(_in_words(numbers))
    if numbers["cause"]:
        say(f"note: {numbers['cause']}")
    if factor is not None:
        numbers["svmstruct_objective"] = numbers["objective"] * factor
        say(f"objective in SVMstruct's units: {numbers['svmstruct_objective']:.6g}")
    model = Model(estimator, task)
    if threshold is not None:
        try:
            model = _pruned(model, threshold, test, numbers, say)
        except ValueError as error:  # the training may have taken hours
            save_model(model, output)
            raise UsageError(f"{error} {output} has all weights.") from None
    save_model(model, output)
    say(f"wrote {output}, {short(output.stat().st_size)}B")
    if test is not None:
        numbers["test"] = print_scores(model, read_for(model, test), say)
    return numbers, _exit_code(numbers)


def train_path(
    path: str,
    folder: Path,
    values: str,
    options: TrainOptions,
    reading: Reading,
    test: str | None,
    say: Say,
    progress: bool,
) -> tuple[dict[str, Any], int]:
    """Train for several values of C; returns the results and the exit code."""
    Cs = _numbers(values)
    check_place(folder, folder=True)
    check_there(test)
    task, why = choose_task(path, reading)
    if test is not None:
        check_kind(task, test)
    estimator = _estimator(options, task).set_params(warm_start=True)
    data = task.read(path)
    say(f"{path}: {why}; {data.size}")
    if test is None:
        trained_on, held_out = _split(data, options.seed)
        say(f"compared on {held_out.n_examples:,} held-out examples")
    else:
        trained_on, held_out = data, None
    folder.mkdir(exist_ok=True)
    rows, code, best = [], 0, (-np.inf, Path())
    say(f"{'C':>10} {'objective':>12} {'gap':>9} {'score':>8} {'seconds':>8}")
    for C in Cs:
        numbers = train(estimator.set_params(C=C), task, trained_on, progress)
        if held_out is None:
            assert test is not None
            held_out = read_for(Model(estimator, task), test)
        score = answers(estimator, held_out).score()
        model_path = save_model(Model(estimator, task), folder / f"C={C:g}.mm")
        rows.append(numbers | {"C": C, "score": score, "model": str(model_path)})
        say(
            f"{C:10g} {numbers['objective']:12.6g} {numbers['relative_gap']:9.1e} {score:8.4f} "
            f"{numbers['seconds']:8.1f}"
        )
        best = max(best, (score, model_path), key=lambda pair: pair[0])
        code = _exit_code(numbers)
        if code:
            break
    chosen = folder / "best.mm"
    with atomic_write(chosen) as file:
        file.write(best[1].read_bytes())
    say(f"best: {best[1].stem}, score {best[0]:.4f}; wrote {chosen}")
    return {"path": rows, "best": best[1].name, "score": best[0], "model": str(chosen)}, code


def _as_svmstruct(options: TrainOptions, task: Task, data: Data, estimator: Any) -> float:
    """Configure an estimator as SVMstruct's programs; returns their objective over ours.

    ``svm_multiclass_learn`` and ``svm_hmm_learn`` minimise, without an intercept,

        1/2 |v|^2 + c/n * sum_i max_y [ s * loss_i(y) - <v, psi_i(y)> ],    s = 100 for classes or 1

    up to violations of ``e``, so that they end at most ``c * e`` above the optimum. With v = s w it
    is s^2 times our objective at C = c / (n s). Two classes have one vector u here, u/2 and -u/2
    there: C is twice as large, and the factor half.
    """
    scale = task.svmstruct_scale
    if scale is None:
        raise UsageError(
            f"--svmstruct is for classification and for SVM-hmm files, but this is {task.name} of "
            f"{task.format} files."
        )
    halves = 2.0 if task.name == "classification" and len(np.unique(data.y)) == 2 else 1.0
    factor = scale**2 / halves
    epsilon = 0.1 if options.epsilon is None else options.epsilon
    settings = {
        "C": options.C / (data.n_examples * scale) * halves,
        "fit_intercept": False,
        "tol": AbsoluteGap(options.C * epsilon / factor),
    }
    if "fit_ends" in estimator.get_params():
        settings["fit_ends"] = False
    estimator.set_params(**settings)
    return factor


def _pruned(
    model: Model, threshold: float, test: str | None, numbers: dict[str, Any], say: Say
) -> Model:
    from maxmargin.estimators.pruning import prune

    data = None if test is None else read_for(model, test)
    arguments = () if data is None else (data.X, data.y)
    pruned = prune(model.estimator, threshold, *arguments)
    numbers["kept"], numbers["dropped"] = pruned.kept, pruned.dropped
    text = f"pruned: {pruned.kept:,} weights kept, {pruned.dropped:,} dropped"
    if data is not None:
        text += f"; score {pruned.score_before:.4f} before, {pruned.score_after:.4f} after"
    say(text)
    return Model(pruned.estimator, model.task)


def _split(data: Data, seed: int) -> tuple[Data, Data]:
    """Training and held-out examples; queries are not split."""
    groups = np.arange(data.n_examples) if data.groups is None else data.groups
    if data.n_examples < 5:
        raise UsageError(
            "There are too few examples to hold some out: give a test file with --test."
        )
    chosen = GroupShuffleSplit(1, test_size=HELD_OUT, random_state=seed)
    train, held_out = next(chosen.split(groups, groups=groups))
    return _part(data, train), _part(data, held_out)


def _part(data: Data, rows: Any) -> Data:
    names = ("X", "y", "groups", "words", "sample_weight")
    given = {name: getattr(data, name) for name in names if getattr(data, name) is not None}
    parts = {name: _safe_indexing(values, rows) for name, values in given.items()}
    n = len(rows) if data.groups is None else len(np.unique(parts["groups"]))
    return replace(data, n_examples=n, size="", originals=None, **parts)


def _numbers(text: str) -> list[float]:
    try:
        values = sorted({float(part) for part in text.split(",")})
    except ValueError as error:
        raise UsageError(f"-C {text} must be numbers separated by commas.") from error
    if not all(0 < value < np.inf for value in values):
        raise UsageError(f"-C {text} must be positive numbers.")
    return values


def in_words_of_options(complaint: str) -> str:
    """scikit-learn's message about a parameter, in terms of the command line.

    >>> in_words_of_options("The 'C' parameter of A must be a float in (0, inf). Got 0 instead.")
    '-C of A must be a float in (0, inf), but is 0.'
    """
    found = _COMPLAINT.fullmatch(complaint)
    if found is None:
        return complaint
    name, kind, must, got = found.groups()
    must = _OBJECTS.sub("", must).removesuffix("None").rstrip(" ,").removesuffix(" or").rstrip(" ,")
    must = must.replace("an instance of 'bool'", "True or False")
    must = must.replace("an instance of 'dict'", "a dictionary")
    must = re.sub(r"a str among \{(.*)\}", lambda names: _one_of(names[1]), must)
    option = f"{OPTIONS.get(name, f'--set {name}')} of {kind}"
    if not must:
        return f"{option} takes an object, which can be given only in Python."
    return f"{option} must be {must}, but is {got}."


def _one_of(names: str) -> str:
    ordered = sorted(names.split(", "))
    return f"one of {', '.join(ordered)}" if len(ordered) > 1 else names


def _value(text: str) -> Any:
    """A Python literal, or a string."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text

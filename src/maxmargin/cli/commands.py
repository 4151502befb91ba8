"""Commands that use a model: predict, evaluate, report, inspect."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import maxmargin as mm
from maxmargin.cli.files import (
    Model,
    UsageError,
    check_place,
    choose_task,
    load_model,
    read_for,
)
from maxmargin.cli.main import Reading
from maxmargin.cli.task import Data
from maxmargin.data.files import STANDARD_INPUT, create
from maxmargin.data.live_line import short
from maxmargin.io.models import ModelFileError
from maxmargin.report.markup import plural

Say = Callable[[str], None]

ROUNDING = 1e-13
"""Relative gap below which there is only rounding."""


def percentage(fraction: float) -> str:
    """A fraction for a reader: ``percentage(0.000684) == '0.068 %'``, ``-2e-16`` is ``'0 %'``."""
    percent = 100 * fraction if fraction > ROUNDING else 0.0
    return f"{percent:.3g} %" if percent >= 10 else f"{percent:.2g} %"


def predict_file(
    model_path: Path, path: str, output: str, threads: int, encoding: str | None
) -> None:
    """Predict, one line per prediction."""
    if output != STANDARD_INPUT:
        check_place(Path(output), model_path, path)
    model = load_model(model_path, encoding, threads, predictor=True)
    lines = (f"{line}\n" for line in model.task.lines(model.estimator, read_for(model, path)))
    if output == STANDARD_INPUT:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
        return
    try:
        with create(output) as file:
            file.writelines(line.encode() for line in lines)
    except OSError as error:
        error.filename = error.filename or output  # the error of a full disk names no file
        raise


def evaluate_file(
    model_path: Path, path: str, threads: int, encoding: str | None, say: Say
) -> dict[str, Any]:
    """Compare predictions with the true outputs."""
    model = load_model(model_path, encoding, threads)
    data = read_for(model, path)
    say(f"{path}: {data.size}")
    return print_scores(model, data, say)


def report_file(
    model_path: Path,
    output: Path,
    test: str | None,
    folder: Path | None,
    title: str | None,
    encoding: str | None,
    say: Say,
) -> None:
    """Write the report about a model."""
    from maxmargin.report.page import write_report

    check_place(output, model_path, test)
    model = load_model(model_path, encoding)
    data = Data(None, None, 0, "") if test is None else read_for(model, test)
    models = None if folder is None else [mm.load(path) for path in sorted(folder.glob("C=*.mm"))]
    if models is not None and len(models) < 2:
        raise UsageError(
            f"{folder} has no models over C: give a folder that `maxmargin path` wrote."
        )
    if any(type(other) is not type(model.estimator) for other in models or []):
        raise UsageError(f"{folder} has models of another class than {model_path}.")
    write_report(
        model.estimator,
        output,
        data.X,
        data.y,
        words=data.words,
        groups=data.groups,
        title=title or model_path.name,
        models=models,
        features=model.task.feature_names(model.estimator),
    )
    say(f"wrote {output}, {short(output.stat().st_size)}B: open it in a browser")


def print_scores(model: Model, data: Data, say: Say) -> dict[str, Any]:
    """How well the model does on the data; returned, and shown to the reader."""
    given = answers(model.estimator, data)
    score, scores = given.score(), dict(given.more_scores())
    shown = scores if score in scores.values() else {"score": score} | scores
    for name, value in shown.items():
        say(f"{value:9.4f}  {name}")
    return {"score": score, "scores": scores}


def answers(estimator: Any, data: Data) -> Any:
    """Predictions of the estimator next to the true outputs of the data."""
    if not data.has_true_output:
        raise UsageError("The file has no true outputs to compare predictions with.")
    from maxmargin.report.page import answers_of

    return answers_of(estimator, data.X, data.y, data.words, data.groups)


def inspect_file(path: str, encoding: str | None, say: Say) -> dict[str, Any]:
    """Describe a model or a data file."""
    header = None if path == STANDARD_INPUT else _model_header(Path(path))
    if header is not None:
        return _inspect_model(Path(path), header, say)
    task, why = choose_task(path, Reading(encoding=encoding))
    data = task.read(path)
    say(f"{path}: {why}; {data.size}")
    return {"task": task.name, "format": task.format, "examples": data.n_examples}


def _inspect_model(path: Path, header: dict[str, Any], say: Say) -> dict[str, Any]:
    certificate = header.pop("certificate")
    facts = header | {
        "objective": certificate.primal,
        "dual": certificate.dual,
        "relative_gap": certificate.relative_gap,
        "bytes": path.stat().st_size,
    }
    classes, iterations = facts["classes"], plural(facts["iterations"], "iteration")
    seconds = facts["seconds"] or 0.0  # None if there was no iteration
    gap = percentage(certificate.relative_gap)
    say(f"{path}: {facts['estimator']}, {short(facts['bytes'])}B, written by {facts['maxmargin']}")
    say(f"  trained: {facts['status']}, {iterations}, {seconds:.1f} s")
    say(f"  objective {certificate.primal:.6g}, certified within {gap} of the optimum")
    if classes is not None:
        some = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
        say(f"  {len(classes)} classes: {some}")
    shown = ("C", "tol", "solver", "loss", "formulation")
    parameters = facts["parameters"].items()
    say("  " + ", ".join(f"{name}={value}" for name, value in parameters if name in shown))
    if facts["about"]:
        say(f"  for {facts['about'].get('format')} files ({facts['about'].get('task')})")
    for name, (shape, kind) in facts["arrays"].items():
        if ".history_." not in name:
            say(f"  {name}: {kind} {' x '.join(f'{n:,}' for n in shape)}")
    return facts


def _model_header(path: Path) -> dict[str, Any] | None:
    """Header of a model file; None for a file that is not one, nor named as one."""
    if not path.is_file():
        return None
    try:
        return mm.read_header(path)
    except ModelFileError:
        if path.suffix == ".mm":
            raise
        return None

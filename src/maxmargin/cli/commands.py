"""Commands that use a model: predict, evaluate, report."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import maxmargin as mm
from maxmargin.cli.files import (
    Model,
    UsageError,
    check_place,
    load_model,
    read_for,
)
from maxmargin.cli.task import Data
from maxmargin.data.files import STANDARD_INPUT, create
from maxmargin.data.live_line import short

Say = Callable[[str], None]


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

"""``maxmargin``: the commands and their options."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click import argument, option
from click.exceptions import Exit

from maxmargin import __version__

FAILED, BAD_USAGE, BAD_FILE = 1, 2, 3
"""Exit codes; 130 is an interrupt."""

_IN_PYTHON = {
    'pass encoding="latin-1"': "give --encoding latin-1",
    "unless multilabel=True": "unless with --task multilabel",
    "give tag_column=None if there are no tags": "there must be one for the tags, too",
    "tag_column=": "--tag-column ",
    "give another, or None if there are no tags": "give another",
}
"""Advice of the readers, in terms of the command line."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Options = TypeVar("Options")


@dataclass(frozen=True)
class TrainOptions:
    """Options of a fit."""

    C: float = 1.0
    tol: float | None = None
    solver: str = "auto"
    time_limit: float | None = None
    max_iter: int | None = None
    threads: int = 1
    checkpoint: Path | None = None
    resume: bool = False
    seed: int = 0
    settings: tuple[str, ...] = ()
    stream: bool = False
    svmstruct: bool = False
    epsilon: float | None = None


@dataclass(frozen=True)
class Reading:
    """Options about how to read a file; a task or format of None is to be detected."""

    task: str | None = None
    format: str | None = None
    template: Path | None = None
    hash_bits: int | None = None
    tag_column: int | None = None
    encoding: str | None = None


def _some_threads(context: click.Context, parameter: click.Parameter, threads: int) -> int:
    if threads == 0:
        raise click.BadParameter("it is 0: use 1 for one thread, or -1 for one per core.")
    return threads


def _bits(context: click.Context, parameter: click.Parameter, bits: int | None) -> int | None:
    if bits is not None and not 1 <= bits <= 30:
        raise click.BadParameter(f"it is {bits}: use 1 to 30, such as 18.")
    return bits


PATH = click.Path(path_type=Path)
DETECTED = "detected from the file"

data_file = argument("data")
model_file = argument("model", type=PATH)
threads = option(
    "--threads",
    default=1,
    callback=_some_threads,
    help="Number of threads; -1 means one per core.",
)
encoding = option("--encoding", show_default="UTF-8", help="Encoding of the text, such as latin-1.")
as_json = option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the results as one JSON object, and nothing else.",
)
quiet = option("--quiet", "-q", is_flag=True, help="Print only errors.")
test = option("--test", help="Data file to test on.")

FIT = (
    option(
        "--tol", type=float, show_default="the estimator's", help="Relative duality gap to stop at."
    ),
    option(
        "--solver",
        default="auto",
        help="auto, dual-coordinate, n-slack, one-slack, frank-wolfe ...",
    ),
    option("--time-limit", type=float, help="Maximum number of seconds."),
    option("--max-iter", type=int, help="Maximum number of iterations."),
    threads,
    option("--seed", default=0, help="Seed of the random numbers."),
    option(
        "--set",
        "settings",
        multiple=True,
        metavar="N=V",
        help="Set any other parameter of the estimator, NAME=VALUE.",
    ),
)
"""Fields of `TrainOptions` that every command has which trains."""

ONE_FIT = (
    option(
        "-C",
        "-c",
        "C",
        default=1.0,
        help="Regularization parameter: weight of the sum of the losses.",
    ),
    *FIT,
    option("--checkpoint", type=PATH, help="File to save the state of training in."),
    option("--resume", is_flag=True, help="Continue from the checkpoint, if there is one."),
    option("--stream", is_flag=True, help="Read the file in batches: it need not fit in memory."),
    option(
        "--svmstruct",
        is_flag=True,
        help="Interpret -c and -e as svm_multiclass_learn and svm_hmm_learn do.",
    ),
    option("-e", "epsilon", type=float, help="With --svmstruct: constraint violation to stop at."),
)
"""All fields of `TrainOptions`."""

READING = (
    option(
        "--task",
        show_default=DETECTED,
        help="classification, regression, multilabel, tagging, parsing, dependencies or ranking.",
    ),
    option(
        "--format",
        show_default=DETECTED,
        help="libsvm, svm-hmm, columns, penn, conllu or letor.",
    ),
    option("--template", type=PATH, help="File of feature templates, for the columns format."),
    option(
        "--hash",
        "hash_bits",
        type=int,
        metavar="BITS",
        callback=_bits,
        help="Hash features into 2**BITS dimensions, for the columns format.",
    ),
    option("--tag-column", type=int, help="Column of the tags, counted from 0; -1 is the last."),
    encoding,
)
"""All fields of `Reading`."""


def options(*some: Decorator) -> Decorator:
    """Several options, in the order in which they are shown."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(some):
            function = one(function)
        return function

    return add


def _filled(kind: type[Options], given: dict[str, Any]) -> Options:
    """Options of this kind; those that a command does not have keep their defaults."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in given.items() if name in names})


class Program(click.Group):
    """Commands in the order in which one needs them, and whose errors are sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        with _sentences():
            return super().invoke(ctx)


@click.group(
    cls=Program,
    no_args_is_help=True,
    context_settings={
        "help_option_names": ["--help", "-h"],
        "show_default": True,
        "max_content_width": 100,
    },
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 malformed file, "
    "130 interrupted (a model that was being trained is still written).",
)
@click.version_option(
    __version__, prog_name="maxmargin", message="%(prog)s %(version)s", help="Print the version."
)
def app() -> None:
    """Max-margin structured prediction: structural SVMs with a certificate of optimality."""


@app.command()
@data_file
@option("-o", "--output", type=PATH, required=True, help="Model file to write.")
@options(*ONE_FIT, *READING)
@option("--prune", type=float, help="Set weights whose absolute value is below this to zero.")
@test
@as_json
@quiet
def train(
    data: str,
    output: Path,
    prune: float | None,
    test: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Train a model on a data file.

    "maxmargin train data.svm -o model.mm" is enough: the task is detected from the file. Ctrl-C
    stops the training, and the best model so far is written.

    DATA is a data file, plain or compressed; - is standard input.
    """
    from maxmargin.cli.training import train_model

    silent = as_json or quiet
    numbers, code = train_model(
        data,
        output,
        _filled(TrainOptions, given),
        _filled(Reading, given),
        prune,
        test,
        _speaker(silent),
        progress=not silent,
    )
    _print_json(numbers, as_json)
    raise Exit(code)


@app.command()
@model_file
@data_file
@option("-o", "--output", default="-", help="File to write; - is standard output.")
@threads
@encoding
def predict(model: Path, data: str, output: str, threads: int, encoding: str | None) -> None:
    """Predict the outputs of the examples in a data file.

    Classes, tags, numbers and scores are written one per line, trees as brackets, dependencies as
    CoNLL-U, and tags of words as a further column.

    MODEL is a model file. DATA is a data file, plain or compressed; - is standard input.
    """
    from maxmargin.cli.commands import predict_file

    predict_file(model, data, output, threads, encoding)


@app.command()
@model_file
@data_file
@threads
@encoding
@as_json
def evaluate(model: Path, data: str, threads: int, encoding: str | None, as_json: bool) -> None:
    """Compare predictions with the true outputs in a data file.

    MODEL is a model file. DATA is a data file, plain or compressed; - is standard input.
    """
    from maxmargin.cli.commands import evaluate_file

    numbers = evaluate_file(model, data, threads, encoding, _speaker(as_json))
    _print_json(numbers, as_json)


@app.command(short_help="Train a model for each of several values of C.")
@data_file
@option("-o", "--output", type=PATH, required=True, help="Folder for the models.")
@option(
    "-C",
    "-c",
    "values",
    default="0.001,0.01,0.1,1,10",
    help="Values of C, separated by commas.",
)
@options(*FIT, *READING)
@test
@as_json
@quiet
def path(
    data: str,
    output: Path,
    values: str,
    test: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Train a model for each of several values of C, warm-started from the one before.

    Models are compared on the test file or, without one, on a fifth of the data, which is held out
    from training. The folder receives all models, and the best one as best.mm.

    DATA is a data file, plain or compressed; - is standard input.
    """
    from maxmargin.cli.training import train_path

    silent = as_json or quiet
    numbers, code = train_path(
        data,
        output,
        values,
        _filled(TrainOptions, given),
        _filled(Reading, given),
        test,
        _speaker(silent),
        progress=not silent,
    )
    _print_json(numbers, as_json)
    raise Exit(code)


@app.command(short_help="Write an HTML report of a model.")
@model_file
@option("-o", "--output", type=PATH, default=Path("report.html"), help="HTML file to write.")
@test
@option(
    "--path",
    "models",
    type=PATH,
    help="Folder that `maxmargin path` wrote, to plot its models over C.",
)
@option("--title", help="Heading of the page.")
@encoding
def report(
    model: Path,
    output: Path,
    test: str | None,
    models: Path | None,
    title: str | None,
    encoding: str | None,
) -> None:
    """Write an HTML report: certificate, convergence, scores, worst mistakes.

    MODEL is a model file.
    """
    from maxmargin.cli.commands import report_file

    report_file(model, output, test, models, title, encoding, _speaker(False))


@app.command(short_help="Convert a LIBSVM file to a folder of arrays.")
@data_file
@argument("folder", type=PATH)
@quiet
def convert(data: str, folder: Path, quiet: bool) -> None:
    """Convert a LIBSVM file to a folder of arrays, which is read many times faster.

    DATA is a data file, plain or compressed; - is standard input. FOLDER is the folder to create.
    """
    from maxmargin.data import convert

    stored = convert(data, folder, progress=False if quiet else None)
    _speaker(quiet)(
        f"wrote {folder}: {stored.X.shape[0]:,} examples, {stored.X.shape[1]:,} features"
    )


@app.command()
@argument("file")
@encoding
@as_json
def inspect(file: str, encoding: str | None, as_json: bool) -> None:
    """Describe a model file or a data file."""
    from maxmargin.cli.inspection import inspect_file

    facts = inspect_file(file, encoding, _speaker(as_json))
    _print_json(facts, as_json)


@app.command()
@option(
    "--processes",
    type=click.IntRange(min=1),
    show_default="one per core",
    help="Number of processes.",
)
@quiet
def compile(processes: int | None, quiet: bool) -> None:
    """Compile all routines now, so that no first fit has to wait.

    Routines that came compiled with the package, or were compiled here before, are found at once.
    """
    from rich.console import Console
    from rich.progress import track

    from maxmargin.compiled.catalogue import catalogue, compile_catalogue

    lines = catalogue()
    done = compile_catalogue(processes)
    console = Console(stderr=True, quiet=quiet)
    for _ in track(done, "compiling", len(lines), console=console):
        pass
    _speaker(quiet)(f"{len(lines)} routines are compiled")


@app.command()
@argument("folder", type=PATH, default=Path("maxmargin-demo"))
def demo(folder: Path) -> None:
    """Train, certify, save and report in a few seconds.

    FOLDER is the folder for the model and the report, maxmargin-demo if none is given.
    """
    from maxmargin.cli.tour import tour

    tour(folder, say=_speaker(False))


def _speaker(silent: bool) -> Any:
    """Prints messages on standard error, where they do not mix with results."""
    return (lambda text: None) if silent else (lambda text: print(text, file=sys.stderr))


def _print_json(numbers: dict[str, Any], wanted: bool) -> None:
    if wanted:
        # A full disk or a closed pipe raises here.
        print(json.dumps(numbers, default=str), flush=True)


@contextmanager
def _sentences() -> Iterator[None]:
    """Errors that users can act on become one sentence, without a traceback."""
    warnings.showwarning = _show_warning
    try:
        yield
    except KeyboardInterrupt:
        raise _failed("interrupted before there was anything to keep", 130) from None
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, and Python would complain on exit
        raise Exit(0) from None
    except (OSError, ImportError, MemoryError, ValueError) as error:
        raise _failed(_sentence(error), _exit_code(error)) from None


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning without its place in the code."""
    print(f"maxmargin: note: {message}", file=sys.stderr)


def _sentence(error: Exception) -> str:
    """An error in terms of the command line, without error numbers."""
    if isinstance(error, OSError) and error.strerror is not None:
        place = "" if error.filename is None else f": {error.filename}"
        return f"{error.strerror}{place}."
    text = str(error) or type(error).__name__
    for python, here in _IN_PYTHON.items():
        text = text.replace(python, here)
    return text


def _exit_code(error: Exception) -> int:
    from maxmargin.cli.files import UsageError
    from maxmargin.data.files import FileFormatError
    from maxmargin.io.models import ModelFileError

    if isinstance(error, UsageError):
        return BAD_USAGE
    return BAD_FILE if isinstance(error, FileFormatError | ModelFileError) else FAILED


def _failed(sentence: str, code: int) -> Exit:
    print(f"maxmargin: {sentence}", file=sys.stderr)
    return Exit(code)


if __name__ == "__main__":
    app()

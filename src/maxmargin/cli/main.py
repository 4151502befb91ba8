"""``maxmargin``: the commands and their options."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

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

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Max-margin structured prediction: structural SVMs with a certificate of optimality.",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 malformed file, "
    "130 interrupted (a model that was being trained is still written).",
)


def _some_threads(threads: int) -> int:
    if threads == 0:
        raise typer.BadParameter("it is 0: use 1 for one thread, or -1 for one per core.")
    return threads


def _bits(bits: int | None) -> int | None:
    if bits is not None and not 1 <= bits <= 30:
        raise typer.BadParameter(f"it is {bits}: use 1 to 30, such as 18.")
    return bits


DataFile = Annotated[
    str, Argument(help="Data file, plain or compressed; - is standard input.", metavar="DATA")
]
ModelFile = Annotated[Path, Argument(help="Model file.", metavar="MODEL")]
Threads = Annotated[
    int, Option(help="Number of threads; -1 means one per core.", callback=_some_threads)
]
Encoding = Annotated[
    str | None, Option(help="Encoding of the text, such as latin-1.", show_default="UTF-8")
]
Json = Annotated[
    bool, Option("--json", help="Print the results as one JSON object, and nothing else.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only errors.")]
TestFile = Annotated[str | None, Option(help="Data file to test on.")]


@dataclass(frozen=True)
class TrainOptions:
    """Options of a fit."""

    C: Annotated[
        float, Option("-C", "-c", help="Regularization parameter: weight of the sum of the losses.")
    ] = 1.0
    tol: Annotated[
        float | None, Option(help="Relative duality gap to stop at.", show_default="1e-3")
    ] = None
    solver: Annotated[
        str, Option(help="auto, dual-coordinate, n-slack, one-slack, frank-wolfe ...")
    ] = "auto"
    time_limit: Annotated[float | None, Option(help="Maximum number of seconds.")] = None
    max_iter: Annotated[int | None, Option(help="Maximum number of iterations.")] = None
    threads: Threads = 1
    checkpoint: Annotated[Path | None, Option(help="File to save the state of training in.")] = None
    resume: Annotated[
        bool, Option("--resume", help="Continue from the checkpoint, if there is one.")
    ] = False
    seed: Annotated[int, Option(help="Seed of the random numbers.")] = 0
    settings: Annotated[
        list[str] | None,
        Option(
            "--set", help="Set any other parameter of the estimator, NAME=VALUE.", metavar="N=V"
        ),
    ] = None
    stream: Annotated[
        bool, Option("--stream", help="Read the file in batches: it need not fit in memory.")
    ] = False
    svmstruct: Annotated[
        bool,
        Option(
            "--svmstruct", help="Interpret -c and -e as svm_multiclass_learn and svm_hmm_learn do."
        ),
    ] = False
    epsilon: Annotated[
        float | None, Option("-e", help="With --svmstruct: constraint violation to stop at.")
    ] = None


@dataclass(frozen=True)
class Reading:
    """Options about how to read a file; a task or format of None is to be detected."""

    task: Annotated[
        str | None,
        Option(
            help="classification, regression, multilabel, tagging, parsing, dependencies or "
            "ranking.",
            show_default="detected from the file",
        ),
    ] = None
    format: Annotated[
        str | None,
        Option(
            help="libsvm, svm-hmm, columns, penn, conllu or letor.",
            show_default="detected from the file",
        ),
    ] = None
    template: Annotated[
        Path | None, Option(help="File of feature templates, for the columns format.")
    ] = None
    hash_bits: Annotated[
        int | None,
        Option(
            "--hash",
            help="Hash features into 2**BITS dimensions, for the columns format.",
            metavar="BITS",
            callback=_bits,
        ),
    ] = None
    tag_column: Annotated[
        int | None, Option(help="Column of the tags, counted from 0; -1 is the last.")
    ] = None
    encoding: Encoding = None


def command(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command, whose arguments may be data classes: all but some fields are options."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = signature(function)
        options: list[Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        for one in own.parameters.values():
            if not is_dataclass(one.annotation):
                options.append(one.replace(kind=Parameter.KEYWORD_ONLY))
                continue
            taken = [field for field in fields(one.annotation) if field.name not in left_out]
            groups[one.name] = one.annotation, [field.name for field in taken]
            options += [
                Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
                for f in taken
            ]

        def run(**given: Any) -> None:
            for name, (kind, names) in groups.items():
                given[name] = kind(**{one: given.pop(one) for one in names})
            with _sentences():
                function(**given)

        run.__signature__ = own.replace(parameters=options)  # type: ignore[attr-defined]
        app.command(function.__name__, help=function.__doc__)(run)
        return function

    return register


@command()
def train(
    data: DataFile,
    output: Annotated[Path, Option("-o", "--output", help="Model file to write.")],
    options: TrainOptions,
    reading: Reading,
    prune: Annotated[
        float | None, Option(help="Set weights whose absolute value is below this to zero.")
    ] = None,
    test: TestFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on a data file.

    [bold]maxmargin train data.svm -o model.mm[/bold] is enough: the task is detected from the
    file. Ctrl-C stops the training, and the best model so far is written.
    """
    from maxmargin.cli.training import train_model

    silent = as_json or quiet
    numbers, code = train_model(
        data, output, options, reading, prune, test, _speaker(silent), progress=not silent
    )
    _print_json(numbers, as_json)
    raise typer.Exit(code)


@command()
def predict(
    model: ModelFile,
    data: DataFile,
    output: Annotated[
        str, Option("-o", "--output", help="File to write; - is standard output.")
    ] = "-",
    threads: Threads = 1,
    encoding: Encoding = None,
) -> None:
    """Predict the outputs of the examples in a data file.

    Classes, tags, numbers and scores are written one per line, trees as brackets, dependencies as
    CoNLL-U, and tags of words as a further column.
    """
    from maxmargin.cli.commands import predict_file

    predict_file(model, data, output, threads, encoding)


@command()
def evaluate(
    model: ModelFile,
    data: DataFile,
    threads: Threads = 1,
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """Compare predictions with the true outputs in a data file."""
    from maxmargin.cli.commands import evaluate_file

    numbers = evaluate_file(model, data, threads, encoding, _speaker(as_json))
    _print_json(numbers, as_json)


@command("C", "checkpoint", "resume", "stream", "svmstruct", "epsilon")
def path(
    data: DataFile,
    output: Annotated[Path, Option("-o", "--output", help="Folder for the models.")],
    *,
    values: Annotated[
        str, Option("-C", "-c", help="Values of C, separated by commas.")
    ] = "0.001,0.01,0.1,1,10",
    options: TrainOptions,
    reading: Reading,
    test: TestFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model for each of several values of C, warm-started from the one before.

    Models are compared on the test file or, without one, on a fifth of the data, which is held out
    from training. The folder receives all models, and the best one as best.mm.
    """
    from maxmargin.cli.training import train_path

    silent = as_json or quiet
    numbers, code = train_path(
        data, output, values, options, reading, test, _speaker(silent), progress=not silent
    )
    _print_json(numbers, as_json)
    raise typer.Exit(code)


@command()
def report(
    model: ModelFile,
    output: Annotated[Path, Option("-o", "--output", help="HTML file to write.")] = Path(
        "report.html"
    ),
    test: TestFile = None,
    models: Annotated[
        Path | None,
        Option("--path", help="Folder that `maxmargin path` wrote, to plot its models over C."),
    ] = None,
    title: Annotated[str | None, Option(help="Heading of the page.")] = None,
    encoding: Encoding = None,
) -> None:
    """Write an HTML report: certificate, convergence, scores, worst mistakes."""
    from maxmargin.cli.commands import report_file

    report_file(model, output, test, models, title, encoding, _speaker(False))


@command()
def convert(
    data: DataFile,
    folder: Annotated[Path, Argument(help="Folder to create.", metavar="FOLDER")],
    quiet: Quiet = False,
) -> None:
    """Convert a LIBSVM file to a folder of arrays, which is read many times faster."""
    from maxmargin.data import convert

    stored = convert(data, folder, progress=False if quiet else None)
    _speaker(quiet)(
        f"wrote {folder}: {stored.X.shape[0]:,} examples, {stored.X.shape[1]:,} features"
    )


@command()
def inspect(
    file: Annotated[str, Argument(help="Model file or data file.", metavar="FILE")],
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """Describe a model file or a data file."""
    from maxmargin.cli.commands import inspect_file

    facts = inspect_file(file, encoding, _speaker(as_json))
    _print_json(facts, as_json)


@command()
def compile(
    processes: Annotated[
        int | None, Option(help="Number of processes.", show_default="one per core", min=1)
    ] = None,
    quiet: Quiet = False,
) -> None:
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


@command()
def demo(
    folder: Annotated[
        Path, Argument(help="Folder for the model and the report.", metavar="[FOLDER]")
    ] = Path("maxmargin-demo"),
) -> None:
    """Train, certify, save and report in a few seconds."""
    from maxmargin.cli.tour import tour

    tour(folder, say=_speaker(False))


@app.callback(invoke_without_command=True)
def start(version: Annotated[bool, Option("--version", help="Print the version.")] = False) -> None:
    """Options of the program itself."""
    if version:
        import maxmargin

        typer.echo(f"maxmargin {maxmargin.__version__}")
        raise typer.Exit


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
        raise typer.Exit(0) from None
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


def _failed(sentence: str, code: int) -> typer.Exit:
    print(f"maxmargin: {sentence}", file=sys.stderr)
    return typer.Exit(code)


if __name__ == "__main__":
    app()

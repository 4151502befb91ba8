"""``maxmargin``: train, predict, evaluate, and look at what came out."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from maxmargin.cli.checks import UsageError, sentence

FAILED, BAD_USAGE, BAD_FILE = 1, 2, 3
"""Exit codes; 130 is an interrupt."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Max-margin structured prediction: structural SVMs with a certificate of optimality.",
    epilog="Exit codes: 0 done, 1 failed, 2 bad usage, 3 a file that cannot be understood, "
    "130 interrupted (the model is written all the same).",
)


def _some_threads(threads: int) -> int:
    if threads == 0:
        raise typer.BadParameter("it is 0: use 1 for one thread, or -1 for one for each core.")
    return threads


def _bits(bits: int | None) -> int | None:
    if bits is not None and not 1 <= bits <= 30:
        raise typer.BadParameter(f"it is {bits}: use 1 to 30, such as 18.")
    return bits


DataFile = Annotated[
    str, typer.Argument(help="Data file, perhaps compressed; - is standard input.", metavar="DATA")
]
ModelFile = Annotated[Path, typer.Argument(help="Model file.", metavar="MODEL")]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="classification, regression, multilabel, tagging, parsing, dependencies or ranking; "
        "guessed from the file.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format", help="libsvm, svm-hmm, columns, penn, conllu or letor; guessed from the file."
    ),
]
Cost = Annotated[
    float, typer.Option("-C", "-c", help="Weight of the sum of the losses.", show_default=True)
]
Tolerance = Annotated[
    float | None,
    typer.Option("--tol", help="Relative duality gap that is good enough. [default: 1e-3]"),
]
Solver = Annotated[
    str, typer.Option("--solver", help="auto, dual-coordinate, n-slack, one-slack, frank-wolfe ...")
]
TimeLimit = Annotated[float | None, typer.Option("--time-limit", help="Most seconds.")]
MaxIter = Annotated[int | None, typer.Option("--max-iter", help="Most rounds.")]
Threads = Annotated[
    int,
    typer.Option("--threads", help="Threads; -1 is one for each core.", callback=_some_threads),
]
Seed = Annotated[int, typer.Option("--seed", help="Order of the examples.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE: any other parameter of the estimator.", metavar="N=V"),
]
TemplateFile = Annotated[
    Path | None, typer.Option("--template", help="Feature templates, for columns.")
]
HashBits = Annotated[
    int | None,
    typer.Option(
        "--hash",
        help="Hash features into 2**BITS columns, for columns.",
        metavar="BITS",
        callback=_bits,
    ),
]
TagColumn = Annotated[
    int | None, typer.Option("--tag-column", help="Column of the tags, from 0; -1 is the last.")
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Of the text, such as latin-1; else UTF-8.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
TestFile = Annotated[str | None, typer.Option("--test", help="Data file to test on.")]


@app.command()
def train(
    data: DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Model file to write.")],
    C: Cost = 1.0,
    task: TaskName = None,
    format: FormatName = None,
    tol: Tolerance = None,
    solver: Solver = "auto",
    time_limit: TimeLimit = None,
    max_iter: MaxIter = None,
    threads: Threads = 1,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="File to keep the state of training in.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")
    ] = False,
    seed: Seed = 0,
    settings: Parameters = None,
    template: TemplateFile = None,
    hash_bits: HashBits = None,
    tag_column: TagColumn = None,
    encoding: Encoding = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read the file block by block: it need not fit.")
    ] = False,
    svmstruct: Annotated[
        bool,
        typer.Option(
            "--svmstruct", help="Read -c and -e as svm_multiclass_learn and svm_hmm_learn do."
        ),
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option("-e", help="With --svmstruct: violation to stop at.")
    ] = None,
    prune: Annotated[
        float | None, typer.Option("--prune", help="Drop weights below this before writing.")
    ] = None,
    test: TestFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on a data file, and write it.

    [bold]maxmargin train data.svm -o model.mm[/bold] is enough: what is to be learned is seen from
    the file. Ctrl-C stops the training; the best model so far is written.
    """
    with _sentences():
        from maxmargin.cli.commands import TrainOptions, train_model

        options = TrainOptions(
            C=C,
            tol=tol,
            solver=solver,
            time_limit=time_limit,
            max_iter=max_iter,
            threads=threads,
            checkpoint=checkpoint,
            resume=resume,
            seed=seed,
            settings=settings or [],
            stream=stream,
            svmstruct=svmstruct,
            epsilon=epsilon,
        )
        reading = _reading(task, format, template, hash_bits, tag_column, encoding)
        say = _speaker(as_json or quiet)
        numbers, code = train_model(
            data, output, options, reading, prune, test, say, progress=not (as_json or quiet)
        )
        _print_json(numbers, as_json)
    raise typer.Exit(code)


@app.command()
def predict(
    model: ModelFile,
    data: DataFile,
    output: Annotated[
        str, typer.Option("-o", "--output", help="File to write; - is standard output.")
    ] = "-",
    threads: Threads = 1,
    encoding: Encoding = None,
) -> None:
    """Predict what a data file leaves open; one prediction a line.

    Classes, tags, numbers and scores come one a line, trees as brackets, dependencies as CoNLL-U,
    and tags of words as a further column.
    """
    with _sentences():
        from maxmargin.cli.commands import predict_file

        predict_file(model, data, output, threads, encoding)


@app.command()
def evaluate(
    model: ModelFile,
    data: DataFile,
    threads: Threads = 1,
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """Compare predictions with the truth in a data file."""
    with _sentences():
        from maxmargin.cli.commands import evaluate_file

        numbers = evaluate_file(model, data, threads, encoding, _speaker(as_json))
        _print_json(numbers, as_json)


@app.command()
def path(
    data: DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the models.")],
    values: Annotated[
        str, typer.Option("-C", "-c", help="Values of C, with commas between them.")
    ] = "0.001,0.01,0.1,1,10",
    test: TestFile = None,
    task: TaskName = None,
    format: FormatName = None,
    tol: Tolerance = None,
    solver: Solver = "auto",
    time_limit: TimeLimit = None,
    max_iter: MaxIter = None,
    threads: Threads = 1,
    seed: Seed = 0,
    settings: Parameters = None,
    template: TemplateFile = None,
    hash_bits: HashBits = None,
    tag_column: TagColumn = None,
    encoding: Encoding = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model for each of several C, each started from the one before.

    Scores are those on the test file, or on a fifth of the data, which is then left out of
    training. The folder gets all models, and the best one as best.mm.
    """
    with _sentences():
        from maxmargin.cli.commands import TrainOptions, train_path

        options = TrainOptions(
            tol=tol,
            solver=solver,
            time_limit=time_limit,
            max_iter=max_iter,
            threads=threads,
            seed=seed,
            settings=settings or [],
        )
        reading = _reading(task, format, template, hash_bits, tag_column, encoding)
        numbers, code = train_path(
            data,
            output,
            values,
            options,
            reading,
            test,
            _speaker(as_json or quiet),
            progress=not (as_json or quiet),
        )
        _print_json(numbers, as_json)
    raise typer.Exit(code)


@app.command()
def report(
    model: ModelFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")] = Path(
        "report.html"
    ),
    test: TestFile = None,
    models: Annotated[
        Path | None, typer.Option("--path", help="Folder of models over C, for a plot of them.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the page.")] = None,
    encoding: Encoding = None,
) -> None:
    """Write a page about a model: certificate, convergence, scores, mistakes."""
    with _sentences():
        from maxmargin.cli.commands import report_file

        report_file(model, output, test, models, title, encoding, _speaker(False))


@app.command()
def convert(
    data: DataFile,
    folder: Annotated[Path, typer.Argument(help="Folder to make.", metavar="FOLDER")],
    quiet: Quiet = False,
) -> None:
    """Turn a LIBSVM file into a folder of arrays that is read many times faster."""
    with _sentences():
        from maxmargin.data import convert

        stored = convert(data, folder, progress=False if quiet else None)
    _speaker(quiet)(f"wrote {folder}: {stored.X.shape[0]:,} rows, {stored.X.shape[1]:,} features")


@app.command()
def inspect(
    file: Annotated[str, typer.Argument(help="Model file or data file.", metavar="FILE")],
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """Tell what is in a model file, or what a data file looks like."""
    with _sentences():
        from maxmargin.cli.commands import inspect_file

        facts = inspect_file(file, encoding, _speaker(as_json))
        _print_json(facts, as_json)


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Argument(help="Folder for the model and the report.", metavar="[FOLDER]")
    ] = Path("maxmargin-demo"),
) -> None:
    """A tour of a few seconds: train, certify, save, report."""
    with _sentences():
        from maxmargin.cli.tour import tour

        tour(folder, say=_speaker(False))


@app.callback(invoke_without_command=True)
def start(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Options of the program itself."""
    if version:
        import maxmargin

        typer.echo(f"maxmargin {maxmargin.__version__}")
        raise typer.Exit


def _reading(
    task: str | None,
    format: str | None,
    template: Path | None,
    hash_bits: int | None,
    tag_column: int | None,
    encoding: str | None,
) -> Any:
    from maxmargin.cli.files import Reading

    return Reading(task, format, template, hash_bits, tag_column, encoding)


def _speaker(silent: bool) -> Any:
    """Says things on standard error, where they do not mix with results."""
    return (lambda text: None) if silent else (lambda text: print(text, file=sys.stderr))


def _print_json(numbers: dict[str, Any], wanted: bool) -> None:
    if wanted:
        print(json.dumps(numbers, default=str), flush=True)  # full disks and closed pipes show here


@contextmanager
def _sentences() -> Iterator[None]:
    """Errors that users can do something about are one sentence, and no traceback."""
    warnings.showwarning = _show_warning
    try:
        yield
    except KeyboardInterrupt:
        _fail("interrupted before there was anything to keep", 130)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read has gone, and Python would complain on its way out
        raise typer.Exit(0) from None
    except (OSError, ImportError, MemoryError, ValueError) as error:
        _fail(sentence(error), _exit_code(error))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning without the place in the code, which only programmers care for."""
    print(f"maxmargin: note: {message}", file=sys.stderr)


def _exit_code(error: Exception) -> int:
    from sklearn.utils._param_validation import InvalidParameterError

    from maxmargin.data.files import FileFormatError
    from maxmargin.io.models import ModelFileError

    if isinstance(error, UsageError | InvalidParameterError):
        return BAD_USAGE
    return BAD_FILE if isinstance(error, FileFormatError | ModelFileError) else FAILED


def _fail(sentence: str, code: int) -> None:
    print(f"maxmargin: {sentence}", file=sys.stderr)
    raise typer.Exit(code)


if __name__ == "__main__":
    app()

"""The command that describes a file; of a model it reads the header, and imports no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import maxmargin as mm
from maxmargin.cli.main import Reading
from maxmargin.data.files import STANDARD_INPUT
from maxmargin.data.live_line import short
from maxmargin.io.models import ModelFileError
from maxmargin.report.markup import percentage, plural

Say = Callable[[str], None]


def inspect_file(path: str, encoding: str | None, say: Say) -> dict[str, Any]:
    """Describe a model or a data file."""
    header = None if path == STANDARD_INPUT else _model_header(Path(path))
    if header is not None:
        return _inspect_model(Path(path), header, say)
    from maxmargin.cli.files import choose_task

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

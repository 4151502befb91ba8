"""What is in a file: a model, or data."""

from pathlib import Path
from typing import Any

import maxmargin as mm
from maxmargin.cli.choosing import Reading, choose_task
from maxmargin.cli.commands import Say
from maxmargin.cli.training import percentage
from maxmargin.data.files import STANDARD_INPUT
from maxmargin.persistence.models import ModelFileError
from maxmargin.report.amounts import short
from maxmargin.report.markup import plural


def inspect_file(path: str, encoding: str | None, say: Say) -> dict[str, Any]:
    """What a model or a data file holds."""
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
    classes, seconds = facts["classes"], facts["seconds"] or 0.0  # None if there was no round
    say(f"{path}: {facts['estimator']}, {short(facts['bytes'])}B, written by {facts['maxmargin']}")
    say(f"  trained: {facts['status']}, {plural(facts['rounds'], 'round')}, {seconds:.1f} s")
    say(f"  objective {certificate.primal:.6g}, within {percentage(certificate.relative_gap)}")
    if classes is not None:
        some = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
        say(f"  {len(classes)} classes: {some}")
    changed = {
        name: value
        for name, value in facts["parameters"].items()
        if name in ("C", "tol", "solver", "loss", "formulation")
    }
    say("  " + ", ".join(f"{name}={value}" for name, value in changed.items()))
    if facts["about"]:
        say(f"  for {facts['about'].get('format')} files ({facts['about'].get('task')})")
    for name, (shape, kind) in facts["arrays"].items():
        if ".history_." not in name:
            say(f"  {name}: {kind} {' x '.join(f'{n:,}' for n in shape)}")
    return facts


def _model_header(path: Path) -> dict[str, Any] | None:
    """What a model file says; None of a file that is none, and is not named as one."""
    if not path.is_file():
        return None
    try:
        return mm.read_header(path)
    except ModelFileError:
        if path.suffix == ".mm":
            raise
        return None

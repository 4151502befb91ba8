"""Files under attack: damaged, killed over, written while they are read.

Every attack runs in a process of its own, because children are forked from it; see run.py for what
it prints, and for how to bring a failure back.
"""

import subprocess
import sys
from pathlib import Path

import attacked_models
import pytest
from attacked_fits import FITS
from attacked_models import MODELS
from save_attacks import WRITERS

import maxmargin as mm

RUNNER = Path(__file__).with_name("run.py")

SOME_FITS = ["auto", "own problem", "linear, streamed", "classes of a kernel", "latent"]
"""Fits that share the least of what they keep."""

FEW = {
    ("models, blind", "models, aimed"): (2, []),
    ("checkpoints, blind", "checkpoints, aimed"): (4, [*SOME_FITS, "n-slack", "online, streamed"]),
    ("kills",): (1, SOME_FITS),
    ("saves",): (20, []),
}
"""Tries that take seconds, of attacks that share what they attack, and the kinds if not all."""

MANY = {
    "models, blind": (MODELS, 10_000),
    "models, aimed": (MODELS, 10_000),
    "checkpoints, blind": (FITS, 10_000),
    "checkpoints, aimed": (FITS, 10_000),
    "kills": (FITS, 100),
    "saves": (WRITERS, 10_000),
}


def attack(attacks: tuple[str, ...], tries: int, *more: str) -> None:
    """Run attacks; the table and the causes of failures are the message if any succeeds."""
    chosen = [word for name in attacks for word in ("--attack", name)]
    command = [sys.executable, str(RUNNER), *chosen, "--tries", str(tries), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"\n{done.stdout}\n{done.stderr}"
    assert "tries in" in done.stdout


@pytest.mark.parametrize("attacks", FEW, ids=lambda names: names[0].partition(",")[0])
def test_no_attack_succeeds(attacks):
    tries, kinds = FEW[attacks]
    attack(attacks, tries, *(word for kind in kinds for word in ("--only", kind)))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, (kinds, _) in MANY.items() for kind in kinds]
)
def test_no_attack_succeeds_however_often_it_is_tried(name, kind):
    attack((name,), MANY[name][1], "--only", kind, "--seed", "1000")


def test_every_estimator_is_attacked():
    estimators = {
        name
        for name in mm.__all__
        if isinstance(getattr(mm, name), type) and hasattr(getattr(mm, name), "get_params")
    }
    text = Path(attacked_models.__file__).read_text()
    assert {name for name in estimators if f"mm.{name}(" not in text} == set()

"""Attack maxmargin's files: python tests/attacks/run.py --help.

Prints how often each attack was tried and how often it succeeded, and for each cause of failure the
kinds and seeds that bring it back: --attack NAME --only KIND --seed SEED --tries 1.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where what tests share is kept

import checkpoint_attacks
import kill_attacks
import model_attacks
import save_attacks
from attacked_fits import FITS
from attacked_models import MODELS
from children import Attempt, Outcome, in_children
from threadpoolctl import threadpool_limits

import maxmargin as mm

Outcomes = Iterable[tuple[int, Outcome]]


class Attack(NamedTuple):
    """What is attacked, and how: `run` takes the kind, a folder, the tries and the first seed."""

    kinds: list[str]
    run: Callable[[str, Path, int, int], Outcomes]


def _by_seeds(prepare: Callable[[str, Path], Attempt]) -> Callable[..., Outcomes]:
    def run(kind: str, folder: Path, tries: int, seed: int) -> Outcomes:
        return in_children(prepare(kind, folder), range(seed, seed + tries))

    return run


ATTACKS = {
    "models, blind": Attack(list(MODELS), _by_seeds(model_attacks.blind)),
    "models, aimed": Attack(list(MODELS), _by_seeds(model_attacks.aimed)),
    "checkpoints, blind": Attack(list(FITS), _by_seeds(checkpoint_attacks.blind)),
    "checkpoints, aimed": Attack(list(FITS), _by_seeds(checkpoint_attacks.aimed)),
    "kills": Attack(list(FITS), kill_attacks.kills),
    "saves": Attack(list(save_attacks.WRITERS), save_attacks.loads),
}


class Tally(NamedTuple):
    """What came of the tries of an attack on a kind."""

    attack: str
    kind: str
    outcomes: list[tuple[int, Outcome]]
    seconds: float

    @property
    def failures(self) -> list[tuple[int, Outcome]]:
        return [(seed, outcome) for seed, outcome in self.outcomes if outcome.failed]


def tallies(attacks: list[str], only: list[str], tries: int, seed: int) -> Iterator[Tally]:
    """Run attacks, each on all its kinds or on those asked for."""
    memory = Path("/dev/shm")  # where writing to disk costs nothing
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as base,
        threadpool_limits(1),
    ):
        for name in attacks:
            for kind in ATTACKS[name].kinds:
                if only and kind not in only:
                    continue
                folder = Path(base, f"{name}-{kind}")
                folder.mkdir()
                began = time.monotonic()
                outcomes = list(ATTACKS[name].run(kind, folder, tries, seed))
                yield Tally(name, kind, outcomes, time.monotonic() - began)


def main() -> int:
    """Attack, and say what came of it; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=100, help="of each attack on each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first try")
    parser.add_argument("--attack", action="append", choices=ATTACKS, help="several may be given")
    parser.add_argument("--only", action="append", default=[], help="kind; several may be given")
    parser.add_argument("--all", action="store_true", help="show what every try came to")
    asked = parser.parse_args()
    found = []
    print(f"maxmargin {mm.__version__} in {Path(mm.__file__).parent}")
    print(f"{'attack':20} | {'kind':30} | {'tries':>6} | {'failures':>8} | seeds")
    for tally in tallies(asked.attack or list(ATTACKS), asked.only, asked.tries, asked.seed):
        found.append(tally)
        seeds = ", ".join(str(seed) for seed, _ in tally.failures[:5])
        more = " ..." if len(tally.failures) > 5 else ""
        print(
            f"{tally.attack:20} | {tally.kind:30} | {len(tally.outcomes):6} | "
            f"{len(tally.failures):8} | {seeds}{more}",
            flush=True,
        )
        if asked.all:
            for seed, outcome in tally.outcomes:
                print(f"    {seed}: {outcome.what}: {outcome.detail}")
    _print_sums(found)
    _print_causes(found)
    return int(any(tally.failures for tally in found))


def _print_sums(found: list[Tally]) -> None:
    print("\nOutcomes")
    for attack in ATTACKS:
        mine = [tally for tally in found if tally.attack == attack]
        counts = Counter(
            "FAILED" if outcome.failed else outcome.what
            for tally in mine
            for _, outcome in tally.outcomes
        )
        if mine:
            seconds = sum(tally.seconds for tally in mine)
            told = ", ".join(f"{n} {what}" for what, n in counts.most_common())
            print(f"{attack:20} | {counts.total():7} tries in {seconds:.0f} s: {told}")


def _print_causes(found: list[Tally]) -> None:
    """Failures by cause, the most frequent first, each with one that shows it."""
    causes: dict[tuple[str, str], list[tuple[str, int, str]]] = {}
    for tally in found:
        for seed, outcome in tally.failures:
            shown = (tally.kind, seed, outcome.detail)
            causes.setdefault((tally.attack, outcome.what), []).append(shown)
    if causes:
        print("\nFailures by cause")
    for (attack, what), shown in sorted(causes.items(), key=lambda item: -len(item[1])):
        kind, seed, detail = min(shown, key=lambda item: len(item[2]))
        kinds = sorted({kind for kind, _, _ in shown})
        print(f"{len(shown):6} | {attack} | {what} | {len(kinds)} kinds: {'; '.join(kinds[:6])}")
        print(f"       | such as --only {kind!r} --seed {seed}: {detail}")


if __name__ == "__main__":
    sys.exit(main())

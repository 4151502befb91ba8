"""Compiling ahead of the first fit: the signatures that estimators and commands use."""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from maxmargin.compiled.machine_code import compile_for
from maxmargin.compiled.signatures import parsed

SIGNATURES = Path(__file__).with_name("signatures.txt")


def catalogue() -> list[str]:
    """Routines with their signatures, as ``module.routine(types)``."""
    return SIGNATURES.read_text("utf-8").split("\n")[:-1]


def compile_line(line: str) -> str:
    """Compile the routine of a line for its signature, unless its machine code is there."""
    name, _, signature = line.removesuffix(")").partition("(")
    module, _, routine = name.rpartition(".")
    getattr(import_module(module), routine).compile(parsed(signature))
    return line


def compile_catalogue(
    processes: int | None = None, tier: tuple[str, Path] | None = None
) -> Iterator[str]:
    """Compile all lines in several processes; yields each as it is done.

    Parameters
    ----------
    processes : int or None
        None means one per core.
    tier : (str, Path) or None
        The tier of processors to compile for, and the folder of its machine code; None means this
        processor and the user's folder.
    """
    pool = ProcessPoolExecutor(
        processes or os.cpu_count(),
        get_context("spawn"),
        *(() if tier is None else (compile_for, tier)),
    )
    with pool:
        waiting = [pool.submit(compile_line, line) for line in catalogue()]
        for done in as_completed(waiting):
            yield done.result()


def compile_tier(folder: str, tier: str, processes: str) -> None:
    """Compile for a tier into its folder in another one, as a build does from the shell."""
    own = Path(folder, tier)
    own.mkdir()
    for _ in compile_catalogue(int(processes), (tier, own)):
        pass

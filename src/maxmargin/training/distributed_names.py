"""Which solver trains on shards, for each that trains in one place."""

from dataclasses import fields
from typing import Any

from maxmargin.solvers.auto import Auto
from maxmargin.solvers.cutting_plane import OneSlack
from maxmargin.solvers.structured import StructuredSolver
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual

ON_SHARDS = (DistributedDual, DistributedOneSlack)


def on_shards(solver: Any) -> StructuredSolver:
    """The solver for shards that does the same, or as it is if it is one."""
    if isinstance(solver, ON_SHARDS):
        return solver
    if solver == "auto":
        return DistributedDual()
    if solver == "one-slack":
        return DistributedOneSlack()
    if type(solver) is OneSlack:
        return DistributedOneSlack(**{f.name: getattr(solver, f.name) for f in fields(solver)})
    if isinstance(solver, Auto):
        return DistributedDual(local=solver)
    name = repr(solver) if isinstance(solver, str) else type(solver).__name__
    raise ValueError(
        f"The solver {name} needs all data in one process: on this engine use 'auto', 'one-slack', "
        f"DistributedDual or OneSlack."
    )

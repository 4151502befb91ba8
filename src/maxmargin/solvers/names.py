"""Solvers of structured problems by name."""

from typing import Any

from maxmargin.solvers.block_coordinate import Auto, DualCoordinate, FrankWolfe
from maxmargin.solvers.cutting_plane import NSlack, OneSlack
from maxmargin.solvers.online import Online
from maxmargin.solvers.partial_linearization import ExponentiatedGradient, PartialLinearization
from maxmargin.solvers.structured import StructuredSolver

SOLVERS: dict[str, type[StructuredSolver]] = {
    "auto": Auto,
    "dual-coordinate": DualCoordinate,
    "exponentiated-gradient": ExponentiatedGradient,
    "frank-wolfe": FrankWolfe,
    "n-slack": NSlack,
    "one-slack": OneSlack,
    "online": Online,
    "partial-linearization": PartialLinearization,
}


def make_solver(solver: Any) -> StructuredSolver:
    """A solver object from its name, or as it is."""
    return SOLVERS[solver]() if isinstance(solver, str) else solver

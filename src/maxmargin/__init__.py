"""Max-margin structured prediction, with a duality-gap certificate on every fit.

Names are imported when they are first used, so that ``import maxmargin`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin import data as data
    from maxmargin.dual.certificate import Certificate
    from maxmargin.dual.planes import Planes
    from maxmargin.estimators.classifier import LinearClassifier
    from maxmargin.estimators.dependency_parser import DependencyParser
    from maxmargin.estimators.graph_labeler import GraphLabeler
    from maxmargin.estimators.hierarchical import HierarchicalClassifier
    from maxmargin.estimators.latent import LatentStructuredSVM
    from maxmargin.estimators.latent_classifier import LatentClassifier
    from maxmargin.estimators.multilabel import MultilabelClassifier
    from maxmargin.estimators.ordinal import OrdinalClassifier
    from maxmargin.estimators.parser import GrammarParser
    from maxmargin.estimators.performance import PerformanceClassifier
    from maxmargin.estimators.ranker import Ranker
    from maxmargin.estimators.regressor import LinearRegressor
    from maxmargin.estimators.structured import StructuredSVM
    from maxmargin.estimators.tagger import SequenceTagger
    from maxmargin.problems.dependency_arrays import DependencyTrees
    from maxmargin.problems.latent import LatentProblem
    from maxmargin.problems.prior import GaussianPrior
    from maxmargin.problems.streams import SourceStream
    from maxmargin.problems.structured import Problem, ProblemError
    from maxmargin.report.progress import ProgressLine
    from maxmargin.solvers.auto import Auto
    from maxmargin.solvers.checkpoint import Checkpoint, CheckpointWarning
    from maxmargin.solvers.cutting_plane import NSlack, OneSlack
    from maxmargin.solvers.dual_coordinate import DualCoordinate
    from maxmargin.solvers.frank_wolfe import FrankWolfe
    from maxmargin.solvers.online import Online
    from maxmargin.solvers.partial_linearization import ExponentiatedGradient, PartialLinearization
    from maxmargin.solvers.sequential_dual import SequentialDual
    from maxmargin.solvers.streamed_dual import StreamedDual

__version__ = "0.1.0"

_HOMES = {
    "Auto": "solvers.auto",
    "Certificate": "dual.certificate",
    "Checkpoint": "solvers.checkpoint",
    "CheckpointWarning": "solvers.checkpoint",
    "DependencyParser": "estimators.dependency_parser",
    "DependencyTrees": "problems.dependency_arrays",
    "DualCoordinate": "solvers.dual_coordinate",
    "ExponentiatedGradient": "solvers.partial_linearization",
    "FrankWolfe": "solvers.frank_wolfe",
    "GaussianPrior": "problems.prior",
    "GrammarParser": "estimators.parser",
    "GraphLabeler": "estimators.graph_labeler",
    "HierarchicalClassifier": "estimators.hierarchical",
    "LatentClassifier": "estimators.latent_classifier",
    "LatentProblem": "problems.latent",
    "LatentStructuredSVM": "estimators.latent",
    "LinearClassifier": "estimators.classifier",
    "LinearRegressor": "estimators.regressor",
    "MultilabelClassifier": "estimators.multilabel",
    "NSlack": "solvers.cutting_plane",
    "OneSlack": "solvers.cutting_plane",
    "Online": "solvers.online",
    "OrdinalClassifier": "estimators.ordinal",
    "PartialLinearization": "solvers.partial_linearization",
    "PerformanceClassifier": "estimators.performance",
    "Planes": "dual.planes",
    "Problem": "problems.structured",
    "ProblemError": "problems.structured",
    "ProgressLine": "report.progress",
    "Ranker": "estimators.ranker",
    "SequenceTagger": "estimators.tagger",
    "SequentialDual": "solvers.sequential_dual",
    "SourceStream": "problems.streams",
    "StreamedDual": "solvers.streamed_dual",
    "StructuredSVM": "estimators.structured",
}

__all__ = [
    "Auto",
    "Certificate",
    "Checkpoint",
    "CheckpointWarning",
    "DependencyParser",
    "DependencyTrees",
    "DualCoordinate",
    "ExponentiatedGradient",
    "FrankWolfe",
    "GaussianPrior",
    "GrammarParser",
    "GraphLabeler",
    "HierarchicalClassifier",
    "LatentClassifier",
    "LatentProblem",
    "LatentStructuredSVM",
    "LinearClassifier",
    "LinearRegressor",
    "MultilabelClassifier",
    "NSlack",
    "OneSlack",
    "Online",
    "OrdinalClassifier",
    "PartialLinearization",
    "PerformanceClassifier",
    "Planes",
    "Problem",
    "ProblemError",
    "ProgressLine",
    "Ranker",
    "SequenceTagger",
    "SequentialDual",
    "SourceStream",
    "StreamedDual",
    "StructuredSVM",
    "__version__",
    "data",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name == "data":
        return import_module(f"{__name__}.data")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

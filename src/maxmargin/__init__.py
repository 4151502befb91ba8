"""Max-margin structured prediction, with a duality-gap certificate on every fit.

Names are imported when they are first used, so that ``import maxmargin`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin import data as data
    from maxmargin import problems as problems
    from maxmargin.dual.certificate import Certificate
    from maxmargin.dual.kernels import (
        FunctionKernel,
        JointKernel,
        KernelError,
        LinearKernel,
        PolynomialKernel,
        ProductKernel,
        RBFKernel,
    )
    from maxmargin.dual.planes import Planes
    from maxmargin.engines.base import EngineError
    from maxmargin.engines.choice import engine
    from maxmargin.estimators.classifier import LinearClassifier
    from maxmargin.estimators.dependency_parser import DependencyParser
    from maxmargin.estimators.graph_labeler import GraphLabeler
    from maxmargin.estimators.hierarchical import HierarchicalClassifier
    from maxmargin.estimators.kernel import KernelStructuredSVM
    from maxmargin.estimators.kernel_low_rank import LowRankKernel
    from maxmargin.estimators.latent import LatentStructuredSVM
    from maxmargin.estimators.latent_classifier import LatentClassifier
    from maxmargin.estimators.multilabel import MultilabelClassifier
    from maxmargin.estimators.ordinal import OrdinalClassifier
    from maxmargin.estimators.parser import GrammarParser
    from maxmargin.estimators.performance import PerformanceClassifier
    from maxmargin.estimators.pose import PoseEstimator
    from maxmargin.estimators.ranker import Ranker
    from maxmargin.estimators.regressor import LinearRegressor
    from maxmargin.estimators.structured import StructuredSVM
    from maxmargin.estimators.tagger import SequenceTagger
    from maxmargin.persistence.models import ModelFileError, load, read_header, save
    from maxmargin.persistence.pruning import Pruned, prune
    from maxmargin.problems.checking import ProblemReport, check_problem
    from maxmargin.problems.checking_sheet import ProblemCheck
    from maxmargin.problems.dependency_arrays import DependencyTrees
    from maxmargin.problems.kernel import Candidates, KernelProblem
    from maxmargin.problems.latent import LatentProblem
    from maxmargin.problems.low_rank_kernel import LowRankProblem
    from maxmargin.problems.oracle_watch import ProblemWarning
    from maxmargin.problems.prior import GaussianPrior
    from maxmargin.problems.streams import SourceStream
    from maxmargin.problems.structured import Problem, ProblemError
    from maxmargin.report.page import write_report
    from maxmargin.report.plots import plot_confusion, plot_convergence, plot_path
    from maxmargin.report.progress import ProgressLine
    from maxmargin.solvers.auto import Auto
    from maxmargin.solvers.checkpoint import Checkpoint, CheckpointWarning
    from maxmargin.solvers.cutting_plane import NSlack, OneSlack
    from maxmargin.solvers.distributed_dual import DistributedDual
    from maxmargin.solvers.dual_coordinate import DualCoordinate
    from maxmargin.solvers.frank_wolfe import FrankWolfe
    from maxmargin.solvers.mini_batch_dual import MiniBatchDual
    from maxmargin.solvers.mini_batch_dual_classes import KernelClassesDual
    from maxmargin.solvers.online import Online
    from maxmargin.solvers.partial_linearization import ExponentiatedGradient, PartialLinearization
    from maxmargin.solvers.sequential_dual import SequentialDual
    from maxmargin.solvers.stopping import AbsoluteGap
    from maxmargin.solvers.streamed_dual import StreamedDual

__version__ = "0.1.0"

_HOMES = {
    "AbsoluteGap": "solvers.stopping",
    "Auto": "solvers.auto",
    "Candidates": "problems.kernel",
    "Certificate": "dual.certificate",
    "Checkpoint": "solvers.checkpoint",
    "CheckpointWarning": "solvers.checkpoint",
    "DependencyParser": "estimators.dependency_parser",
    "DependencyTrees": "problems.dependency_arrays",
    "DistributedDual": "solvers.distributed_dual",
    "DualCoordinate": "solvers.dual_coordinate",
    "EngineError": "engines.base",
    "ExponentiatedGradient": "solvers.partial_linearization",
    "FrankWolfe": "solvers.frank_wolfe",
    "FunctionKernel": "dual.kernels",
    "GaussianPrior": "problems.prior",
    "GrammarParser": "estimators.parser",
    "GraphLabeler": "estimators.graph_labeler",
    "HierarchicalClassifier": "estimators.hierarchical",
    "JointKernel": "dual.kernels",
    "KernelClassesDual": "solvers.mini_batch_dual_classes",
    "KernelError": "dual.kernels",
    "KernelProblem": "problems.kernel",
    "KernelStructuredSVM": "estimators.kernel",
    "LatentClassifier": "estimators.latent_classifier",
    "LatentProblem": "problems.latent",
    "LatentStructuredSVM": "estimators.latent",
    "LinearClassifier": "estimators.classifier",
    "LinearKernel": "dual.kernels",
    "LinearRegressor": "estimators.regressor",
    "LowRankKernel": "estimators.kernel_low_rank",
    "LowRankProblem": "problems.low_rank_kernel",
    "MiniBatchDual": "solvers.mini_batch_dual",
    "ModelFileError": "persistence.models",
    "MultilabelClassifier": "estimators.multilabel",
    "NSlack": "solvers.cutting_plane",
    "OneSlack": "solvers.cutting_plane",
    "Online": "solvers.online",
    "OrdinalClassifier": "estimators.ordinal",
    "PartialLinearization": "solvers.partial_linearization",
    "PerformanceClassifier": "estimators.performance",
    "Planes": "dual.planes",
    "PolynomialKernel": "dual.kernels",
    "PoseEstimator": "estimators.pose",
    "Problem": "problems.structured",
    "ProblemCheck": "problems.checking_sheet",
    "ProblemError": "problems.structured",
    "ProblemReport": "problems.checking",
    "ProblemWarning": "problems.oracle_watch",
    "ProductKernel": "dual.kernels",
    "ProgressLine": "report.progress",
    "Pruned": "persistence.pruning",
    "RBFKernel": "dual.kernels",
    "Ranker": "estimators.ranker",
    "SequenceTagger": "estimators.tagger",
    "SequentialDual": "solvers.sequential_dual",
    "SourceStream": "problems.streams",
    "StreamedDual": "solvers.streamed_dual",
    "StructuredSVM": "estimators.structured",
    "check_problem": "problems.checking",
    "engine": "engines.choice",
    "load": "persistence.models",
    "plot_confusion": "report.plots",
    "plot_convergence": "report.plots",
    "plot_path": "report.plots",
    "prune": "persistence.pruning",
    "read_header": "persistence.models",
    "save": "persistence.models",
    "write_report": "report.page",
}

_PACKAGES = ("data", "problems")

__all__ = [
    "AbsoluteGap",
    "Auto",
    "Candidates",
    "Certificate",
    "Checkpoint",
    "CheckpointWarning",
    "DependencyParser",
    "DependencyTrees",
    "DistributedDual",
    "DualCoordinate",
    "EngineError",
    "ExponentiatedGradient",
    "FrankWolfe",
    "FunctionKernel",
    "GaussianPrior",
    "GrammarParser",
    "GraphLabeler",
    "HierarchicalClassifier",
    "JointKernel",
    "KernelClassesDual",
    "KernelError",
    "KernelProblem",
    "KernelStructuredSVM",
    "LatentClassifier",
    "LatentProblem",
    "LatentStructuredSVM",
    "LinearClassifier",
    "LinearKernel",
    "LinearRegressor",
    "LowRankKernel",
    "LowRankProblem",
    "MiniBatchDual",
    "ModelFileError",
    "MultilabelClassifier",
    "NSlack",
    "OneSlack",
    "Online",
    "OrdinalClassifier",
    "PartialLinearization",
    "PerformanceClassifier",
    "Planes",
    "PolynomialKernel",
    "PoseEstimator",
    "Problem",
    "ProblemCheck",
    "ProblemError",
    "ProblemReport",
    "ProblemWarning",
    "ProductKernel",
    "ProgressLine",
    "Pruned",
    "RBFKernel",
    "Ranker",
    "SequenceTagger",
    "SequentialDual",
    "SourceStream",
    "StreamedDual",
    "StructuredSVM",
    "__version__",
    "check_problem",
    "data",
    "engine",
    "load",
    "plot_confusion",
    "plot_convergence",
    "plot_path",
    "problems",
    "prune",
    "read_header",
    "save",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

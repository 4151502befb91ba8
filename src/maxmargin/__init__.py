"""Max-margin structured prediction, with a duality-gap certificate on every fit."""

from maxmargin.core.lazy import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "": "data structures",
        "checking": "ProblemCheck ProblemReport check_problem",
        "core.certificate": "Certificate",
        "core.cuts": "Cuts",
        "core.kernel": "Candidates FunctionKernel JointKernel KernelError KernelProblem "
        "LinearKernel PolynomialKernel ProductKernel RBFKernel",
        "core.latent": "LatentProblem",
        "core.linear": "GaussianPrior",
        "core.oracle_check": "ProblemWarning",
        "core.problem": "Problem ProblemError",
        "core.result": "AbsoluteGap",
        "estimators.kernel": "KernelStructuredSVM LowRankKernel LowRankProblem",
        "estimators.latent": "LatentStructuredSVM",
        "estimators.regressor": "LinearRegressor",
        "estimators.structured": "StructuredSVM",
        "io.checkpoint": "Checkpoint CheckpointWarning",
        "io.models": "ModelFileError load read_header save",
        "estimators.pruning": "Pruned prune",
        "report.page": "write_report",
        "report.plots": "plot_confusion plot_convergence plot_path",
        "report.progress": "ProgressLine",
        "solvers.block_coordinate": "Auto DualCoordinate FrankWolfe",
        "solvers.cutting_plane": "NSlack OneSlack",
        "solvers.kernel_classes_dual": "KernelClassesDual",
        "solvers.mini_batch_dual": "MiniBatchDual",
        "solvers.online": "Online",
        "solvers.partial_linearization": "ExponentiatedGradient PartialLinearization",
        "solvers.sequential_dual": "SequentialDual",
        "solvers.streamed_dual": "StreamedDual",
        "structures.chain.estimator": "SequenceTagger",
        "structures.constituency.estimator": "GrammarParser",
        "structures.dependency.estimator": "DependencyParser",
        "structures.dependency.problem": "DependencyTrees",
        "structures.graph.estimator": "GraphLabeler",
        "structures.latent.estimator": "LatentClassifier",
        "structures.multiclass.estimator": "LinearClassifier",
        "structures.multilabel.estimator": "MultilabelClassifier",
        "structures.ordinal.estimator": "OrdinalClassifier",
        "structures.performance.estimator": "PerformanceClassifier",
        "structures.pose.estimator": "PoseEstimator",
        "structures.ranking.estimator": "Ranker",
        "structures.taxonomy.estimator": "HierarchicalClassifier",
        "training.distributed_dual": "DistributedDual",
        "training.engines": "EngineError",
        "training.fit": "engine",
        "training.streams": "SourceStream",
    },
)
__all__ += ["__version__"]

"""What is predicted: one folder for each kind of output."""

from maxmargin.core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "structures.chain.latent": "HiddenChains",
        "structures.constituency.problem": "GrammarProblem",
        "structures.dependency.problem": "DependencyTrees",
        "structures.graph.problem": "GraphLabelling",
        "structures.multiclass.problem": "Classes Multiclass",
        "structures.multilabel.problem": "LabelSets",
        "structures.ordinal.problem": "Ordinal",
        "structures.performance.problem": "PerformanceProblem",
        "structures.pose.problem": "PoseProblem",
        "structures.ranking.problem": "RankingProblem",
        "structures.taxonomy.problem": "Hierarchy",
    },
)

READERS = (
    "structures.constituency.trees",
    "structures.dependency.formats",
    "structures.ranking.formats",
    "structures.chain.svm_hmm",
    "data.libsvm",
    "structures.chain.templates",
)
"""Modules that read a format of files (`maxmargin.data.formats`), in the order they are tried."""

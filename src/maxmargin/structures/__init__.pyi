from collections.abc import Iterator
from typing import Any

from maxmargin.core.kernel_oracle import Multiclass as Multiclass
from maxmargin.structures.chain.problem import Chain as Chain
from maxmargin.structures.chain.problem import HiddenChains as HiddenChains
from maxmargin.structures.constituency.problem import GrammarProblem as GrammarProblem
from maxmargin.structures.dependency.problem import DependencyTrees as DependencyTrees
from maxmargin.structures.graph.problem import GraphLabelling as GraphLabelling
from maxmargin.structures.multilabel.problem import LabelSets as LabelSets
from maxmargin.structures.ordinal.problem import Ordinal as Ordinal
from maxmargin.structures.performance.problem import PerformanceProblem as PerformanceProblem
from maxmargin.structures.pose.problem import PoseProblem as PoseProblem
from maxmargin.structures.ranking.problem import RankingProblem as RankingProblem
from maxmargin.structures.rows.oracle import Classes as Classes
from maxmargin.structures.taxonomy.problem import Hierarchy as Hierarchy

READERS: tuple[str, ...]

def registered(module: str, name: str) -> Iterator[Any]: ...

__all__: list[str]

"""Loaders of the real data sets that the benchmarks use."""

from maxmargin.data.datasets import NAMES, Dataset, available, load

__all__ = ["NAMES", "Dataset", "available", "load"]

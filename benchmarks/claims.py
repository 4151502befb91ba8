"""The claims: which there are, in which section each stands, in which order, which come first."""

import ast
from typing import NamedTuple

from benchmarks.fingerprint import ROOT


class Section(NamedTuple):
    """A page of its own, with the claims that belong together."""

    title: str
    claims: tuple[str, ...]
    about: str = ""
    """A sentence below the title."""


SECTIONS = (
    Section(
        "Speed against the peers",
        (
            "crammer_singer",
            "one_vs_rest",
            "binary",
            "regression",
            "linear_peers",
            "path",
            "many_classes",
        ),
    ),
    Section(
        "Sequences",
        ("ocr_chains", "letters", "chunking", "brown_tagging", "long_chains"),
    ),
    Section(
        "Structures",
        (
            "snakes",
            "grids",
            "treebank",
            "dependencies",
            "multilabel",
            "hierarchy",
            "ordinal",
            "ranking",
            "performance",
            "dlib_peer",
            "svmstruct_programs",
        ),
    ),
    Section("Latent variables and kernels", ("latent", "kernels", "pose")),
    Section(
        "Ramanan (2013)",
        ("online", "schedules", "upper_bounds"),
        "*Dual coordinate solvers for large-scale structural SVMs.*",
    ),
    Section(
        "He (2016)",
        ("pose_batches", "plane_pruning"),
        "*Dual solver for the multiplicative kernel structural SVM.*",
    ),
    Section(
        "Mohapatra et al. (2016)",
        ("temperature", "temperature_values"),
        "*Partial linearization based optimization for multi-class SVM.*",
    ),
    Section(
        "Joachims et al. (2009)",
        (
            "cutting_planes",
            "cutting_planes_examples",
            "cutting_planes_settings",
            "cutting_planes_binary",
        ),
        "*Cutting-plane training of structural SVMs.*",
    ),
    Section(
        "Keerthi et al. (2008)",
        ("accuracy", "formulations", "sequential_dual", "heuristics"),
        "*A sequential dual method for large scale multi-class linear SVMs.*",
    ),
    Section("Limits", ("limits", "hard", "regressions", "screening")),
    Section("Scaling", ("scaling", "two_threads")),
    Section("Memory and size", ("memory", "out_of_core", "libsvm_reading", "model_files")),
    Section("Clusters", ("cluster", "cluster_model")),
    Section("Use", ("startup", "short_fits", "latency", "time_left", "defaults")),
)

HEADLINES = (
    ("crammer_singer", "mnist, ours, 1 thread"),
    ("crammer_singer", "20news, ours, 1 thread"),
    ("binary", "a9a, ours, 1 thread"),
    ("regression", "cpu_small, ours, 1 thread"),
    ("path", "mnist, 7 values of C, tol 0.001"),
    ("ocr_chains", "folds 1-9, CPU"),
    ("letters", "ocr, lambda 0.01, time to that gap against BCFW"),
    ("chunking", "crfsuite lbfgs 100, time to its F1"),
    ("chunking", "crfsuite lbfgs, peak memory"),
    ("brown_tagging", "time to gap 0.01, 1 thread(s)"),
    ("snakes", "colours at both ends, time"),
    ("dependencies", "ewt, projective, training"),
    ("dlib_peer", "words, time to 1e-3 of the optimum"),
    ("kernels", "mnist, 10,000 rows, fit"),
    ("online", "mnist, one pass: objective above the optimum"),
    ("libsvm_reading", "covtype, 37 MB, whole"),
    ("cluster", "python, speed-up by two workers"),
    ("startup", "process with import and fit"),
    ("latency", "sparse, 54 classes, 20,000 features"),
    ("latency", "a sentence of 38 tokens"),
)
"""Claims and lines of their tables that the first page shows, met or missed."""


def claims() -> list[str]:
    """Names of all claims whose benchmark is there, in the order of the page."""
    names = [claim for section in SECTIONS for claim in section.claims]
    return [name for name in names if (ROOT / "benchmarks" / f"{name}.py").exists()]


def about(claim: str) -> str:
    """What the claim's file says about it, in Markdown, without running it."""
    source = (ROOT / "benchmarks" / f"{claim}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or claim


def title(about: str) -> str:
    """The first line of what a claim says about itself."""
    return about.partition("\n")[0].strip().rstrip(".")

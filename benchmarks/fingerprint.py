"""What a result depends on: the code, the machine, the versions. While none changes, it stands."""

import ast
import hashlib
import os
import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

ALWAYS = ("maxmargin", "numpy", "scipy", "scikit-learn", "numba")
"""Packages that every result depends on."""

SOMETIMES = {
    "clarabel": "clarabel",
    "dask": "dask",
    "distributed": "distributed",
    "dlib": "dlib",
    "liblinear": "liblinear-official",
    "pycrfsuite": "python-crfsuite",
    "vowpalwabbit": "vowpalwabbit",
}
"""Names of modules, and their packages: a result depends on those that its benchmark names."""

PRESENTATION = {"fingerprint", "recording", "reporting"}
"""Modules that only write down and draw what was measured."""


def surroundings(claim: str) -> dict[str, Any]:
    """What else than the code the claim's result depends on."""
    return {"cpu": cpu(), "cores": os.cpu_count(), "versions": versions(claim)}


def what_changed(claim: str, result: Mapping[str, Any]) -> str:
    """Why the result is no longer that of this code on this machine; empty if it still is."""
    now = surroundings(claim)
    if any(result[key] != now[key] for key in ("cpu", "cores")):
        return "another machine"
    before, after = result["versions"], now["versions"]
    for package in before | after:
        if before.get(package) != after.get(package):
            old, new = before.get(package) or "none", after.get(package) or "none"
            return f"{package} was {old} and is {new}"
    return "" if result["code"] == code(claim) else "the code has changed"


def cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


# Packages


def versions(claim: str) -> dict[str, str | None]:
    """Versions of Python and of the packages that the claim's result depends on."""
    text = "".join(_program(file) for file in sources(claim))
    used = [package for name, package in SOMETIMES.items() if re.search(rf"\b{name}\b", text)]
    found = {package: _version(package) for package in (*ALWAYS, *used)}
    return {"python": platform.python_version()} | found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# Code


def code(claim: str) -> str:
    """A digest of the library and of what the benchmark consists of."""
    parts = _library() + "".join(_digest(file) for file in sources(claim))
    return hashlib.sha256(parts.encode()).hexdigest()


def sources(claim: str) -> list[Path]:
    """The benchmark's own file and those of its folder that it needs, however indirectly."""
    found: set[str] = set()
    new = {claim}
    while new:
        found |= new
        needed = {name for one in new for name in _needed(_program(_file(one)))}
        new = {name for name in needed - found - PRESENTATION if _file(name).exists()}
    return [_file(name) for name in sorted(found)]


def _file(module: str) -> Path:
    return ROOT / "benchmarks" / f"{module}.py"


def _needed(program: str) -> Iterator[str]:
    """Modules of this folder that a program imports, or names to start them as processes."""
    yield from re.findall(r"\bbenchmarks\.(\w+)", program)
    for names in re.findall(r"ImportFrom\(module='benchmarks', names=\[(.*?)\]", program):
        yield from re.findall(r"\bname='(\w+)'", names)


@lru_cache
def _library() -> str:
    return "".join(_digest(file) for file in sorted((ROOT / "src" / "maxmargin").rglob("*.py")))


def _digest(file: Path) -> str:
    name = file.relative_to(ROOT).as_posix()
    return hashlib.sha256(f"{name}\n{_program(file)}".encode()).hexdigest()


class _Bare(ast.NodeTransformer):
    """A program without docstrings (the parser leaves out comments): they change no number."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


@cache
def _program(file: Path) -> str:
    """A program's syntax tree as text."""
    return ast.dump(_Bare().visit(ast.parse(file.read_text(encoding="utf-8"))))

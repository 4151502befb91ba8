"""Brings machine code into the wheel: every routine in the catalogue, for each tier of processors.

MAXMARGIN_PURE=1 leaves it out: such a wheel is for all machines, and compiles on first use.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# By a path of its own: where an editable install has the sources on the path already, pip takes
# them off it.
_COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
from maxmargin.compiled.machine_code import compile_tier
compile_tier(*sys.argv[2:])
"""


def _pure() -> bool:
    return os.environ.get("MAXMARGIN_PURE", "0") != "0"


class CompiledRoutines(BuildHookInterface):
    """Compiles before the files of a wheel are collected, all tiers at the same time."""

    def dependencies(self) -> list[str]:
        """What the modules of the routines import."""
        return [] if _pure() else ["numba>=0.61", "numpy>=2.0", "scipy>=1.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or _pure():
            return
        sources = Path(self.root, "src")
        sys.path.insert(0, str(sources))
        from maxmargin.compiled.machine_code import SHIPPED, tiers

        self.folder = tempfile.TemporaryDirectory()
        each = max(1, (os.cpu_count() or 1) // len(tiers()))
        building = [
            subprocess.Popen(
                [sys.executable, "-c", _COMPILE, sources, self.folder.name, tier, str(each)]
            )
            for tier in tiers()
        ]
        if any(process.wait() for process in building):
            raise RuntimeError(
                "The routines could not be compiled; MAXMARGIN_PURE=1 builds a wheel without them."
            )
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][self.folder.name] = str(SHIPPED.relative_to(sources))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

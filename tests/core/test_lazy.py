"""Names that are imported when they are first used are those that type checkers see."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import maxmargin

PACKAGES = ["maxmargin", "maxmargin.data", "maxmargin.structures"]


def stubs(package):
    """Names in a package's stub file, with the modules that they come from."""
    path = Path(importlib.import_module(package).__file__).with_suffix(".pyi")
    imports = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    names = ((alias.asname, node.module) for node in imports for alias in node.names)
    return {name: home for name, home in names if name}


@pytest.mark.parametrize("package", PACKAGES)
def test_stubs_are_the_public_names(package):
    listed = stubs(package)
    module = importlib.import_module(package)
    assert set(listed) == set(module.__all__) - {"__version__"}
    for name, home in listed.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    assert set(module.__all__) <= set(dir(module)) | {"__version__"}


def test_unknown_names_are_errors():
    with pytest.raises(AttributeError, match="module 'maxmargin' has no attribute 'nothing'"):
        _ = maxmargin.nothing


@pytest.mark.parametrize("was_enabled", [True, False])
def test_garbage_collection_is_as_it_was_after_an_import(was_enabled):
    program = (
        "import gc, sys, maxmargin as mm\n"
        f"if not {was_enabled}: gc.disable()\n"
        "seen = []\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        seen.append(gc.isenabled())\n"
        "sys.meta_path.insert(0, Watch())\n"
        "mm.ModelFileError\n"
        "print(any(seen), gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", str(was_enabled)], done.stderr

"""Compiling ahead: the catalogue is complete, and its notation is that of numba's types."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import types
from numba.core.dispatcher import Dispatcher

from maxmargin.compiled import machine_code
from maxmargin.compiled.catalogue import catalogue, parsed, spelled
from maxmargin.compiled.rows import Rows

ROOT = Path(__file__).parents[2]

scalars = st.sampled_from(
    [types.int64, types.uint8, types.float32, types.float64, types.boolean, types.none]
)
numbers = st.sampled_from([types.int32, types.uint32, types.float32, types.float64, types.boolean])
arrays = st.builds(
    types.Array, numbers, st.integers(1, 4), st.sampled_from("CFA"), readonly=st.booleans()
).map(lambda one: one.copy(layout="C") if one.ndim == 1 and one.layout == "F" else one)
kinds = st.recursive(
    scalars | arrays | st.integers().map(types.Omitted),
    lambda inner: (
        st.lists(inner, max_size=3).map(types.BaseTuple.from_types)
        | st.tuples(*[inner] * 5).map(lambda parts: types.BaseTuple.from_types(parts, Rows))
    ),
    max_leaves=8,
)


@given(st.lists(kinds, max_size=4).map(tuple))
def test_signatures_are_read_as_they_were_written(signature):
    assert parsed(spelled(signature)) == signature


def test_the_catalogue_is_sorted_and_names_routines():
    lines = catalogue()
    assert lines == sorted(set(lines))
    for line in lines:
        module, routine, signature = re.fullmatch(r"([\w.]+)\.(\w+)\((.*)\)", line).groups()
        found = getattr(import_module(module), routine)
        assert isinstance(found, Dispatcher)
        assert machine_code.digest(found)  # or its machine code could not be kept
        assert spelled(parsed(signature)) == signature


def test_the_catalogue_has_all_that_fits_and_predictions_need():
    """In a process of its own: other tests call routines as nobody else does."""
    script = str(ROOT / "tests" / "used_signatures.py")
    found = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    advice = "run `python tests/used_signatures.py write` and commit what it wrote"
    assert not found.stdout.strip(), f"{advice}:\n{found.stdout}"


def test_a_processor_takes_the_best_tier_that_it_can_run(monkeypatch):
    best = dict.fromkeys(machine_code.TIERS["x86-64-v3"].split(), True)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for features, tier in [
        (best, "x86-64-v3"),
        (best | {"fma": False}, "x86-64-v2"),
        (best | {"popcnt": False}, None),
    ]:
        monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda f=features: f)
        assert machine_code._tier.__wrapped__() == tier
    monkeypatch.setattr("numba.config.CPU_NAME", "generic")
    assert machine_code._tier.__wrapped__() is None


def test_numba_is_one_that_the_loader_was_tried_with():
    """A new numba: see that `tests/compiled` pass with it, then add it to `TRIED`."""
    import numba

    version = ".".join(numba.__version__.split(".")[:2])
    assert version in machine_code.TRIED


@pytest.mark.slow
def test_a_wheel_needs_no_compiler(tmp_path):
    """Built, unpacked, and used with no folder to write to: numba compiles nothing."""
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 15e6
    subprocess.run(["unzip", "-q", wheel, "-d", tmp_path / "installed"], check=True)
    script = f"""
import sys
sys.path[:0] = [{str(tmp_path / "installed")!r}, {str(ROOT / "tests")!r}]
from numba.core import event

class Compilations(event.Listener):
    seen = []
    def on_start(self, event):
        self.seen.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compilations())
import maxmargin
from used_signatures import missing_lines
assert maxmargin.__file__.startswith({str(tmp_path)!r})
assert missing_lines() == []
print(Compilations.seen)
"""
    environment = {"NUMBA_CACHE_DIR": "/dev/null", "PYTHONWARNINGS": "ignore"}
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    assert found.stdout == "[]\n", found.stderr

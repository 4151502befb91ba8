"""Machine code on disk: several processes at once, and no folder that can be written to."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import maxmargin
from maxmargin.compiled.compile import compiled

KERNEL = """
from maxmargin.compiled.compile import compiled


@compiled
def total(values, power):
    found = 0.0
    for k in range(len(values)):
        found += values[k] ** power
    return found
"""

FIT = """
import numpy as np
import maxmargin as mm

X = np.random.default_rng(0).normal(size=(30, 4))
model = mm.LinearClassifier().fit(X, X[:, :3].argmax(axis=1))
print(f"{model.certificate_.primal:.10f}", mm.__file__)
"""

KINDS = [np.float64, np.float32, np.int64, np.int32]
NOBODY = [
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
    # The interpreter itself may lie in somebody's home: nobody may read all, and write nothing.
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
]  # fmt: skip
CAN_BE_NOBODY = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("setpriv")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch):
    """Beside the sources, whatever was chosen for the other tests."""
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)


def fresh_kernel(folder):
    """The function as another process would import it."""
    path = folder / "kernel.py"
    path.write_text(KERNEL)
    module = module_from_spec(spec_from_file_location("kernel", path))
    module.__spec__.loader.exec_module(module)
    return module.total


def call_all(total, kinds=KINDS):
    for kind in kinds:
        assert total(np.arange(1, 5).astype(kind), 2) == 30.0


def hits(total):
    return sum(total.stats.cache_hits.values())


def files(folder):
    return sorted(folder.glob("__pycache__/kernel.total*.nbc"))


def test_each_signature_has_a_file_of_its_own(tmp_path):
    first, second = fresh_kernel(tmp_path), fresh_kernel(tmp_path)
    call_all(first, KINDS[:2])
    call_all(second, KINDS[2:])  # which knows nothing of what the first has done since its import
    assert len(files(tmp_path)) == 4
    third = fresh_kernel(tmp_path)
    call_all(third)
    assert hits(third) == 4


def test_code_of_another_signature_is_never_run(tmp_path):
    """What two processes that number their files could leave behind."""
    call_all(fresh_kernel(tmp_path))
    one, other = files(tmp_path)[:2]
    shutil.copy(one, other)
    again = fresh_kernel(tmp_path)
    call_all(again)
    assert hits(again) == 3
    last = fresh_kernel(tmp_path)
    call_all(last)
    assert hits(last) == 4  # it was written anew


@pytest.mark.parametrize("content", [b"", b"no pickle"])
def test_damaged_files_are_compiled_anew(tmp_path, content):
    call_all(fresh_kernel(tmp_path))
    for path in files(tmp_path):
        path.write_bytes(content)
    again = fresh_kernel(tmp_path)
    call_all(again)
    assert hits(again) == 0


def test_changed_sources_are_compiled_anew(tmp_path):
    call_all(fresh_kernel(tmp_path))
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL.replace("found = 0.0", "found = 1.0"))
    module = module_from_spec(spec_from_file_location("kernel", path))
    module.__spec__.loader.exec_module(module)
    assert module.total(np.arange(1.0, 5.0), 2) == 31.0
    assert hits(module.total) == 0
    assert len(files(tmp_path)) == len(KINDS)  # new code takes the place of old


def test_a_disk_that_takes_nothing_does_not_matter(tmp_path, monkeypatch):
    total = fresh_kernel(tmp_path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    call_all(total)
    assert not files(tmp_path)
    assert {path.suffix for path in (tmp_path / "__pycache__").iterdir()} <= {".pyc"}


def test_without_a_folder_it_compiles_all_the_same(monkeypatch):
    monkeypatch.setattr(compiled.__globals__["_MachineCode"]._impl_class, "_locator_classes", [])
    compiled.__globals__["_warn_of_compiling"].cache_clear()

    def twice(value):
        return 2 * value

    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        assert compiled(twice)(4) == 8
    compiled.__globals__["_warn_of_compiling"].cache_clear()


@pytest.fixture
def installation():
    """The package as somebody has installed it, with nothing compiled, and a script that fits."""
    hidden = shutil.ignore_patterns("__pycache__")
    with tempfile.TemporaryDirectory() as name:  # pytest's own are closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(Path(maxmargin.__file__).parent, folder / "maxmargin", ignore=hidden)
        (folder / "fit.py").write_text(FIT)
        yield folder


def started(installation, before=(), **environment):
    """The first fit of somebody, with no more of an environment than this."""
    environment |= {"PYTHONPATH": str(installation), "PATH": os.environ["PATH"]}
    return subprocess.Popen(
        [*before, sys.executable, installation / "fit.py"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def answer(process, installation):
    output, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    value, file = output.split()
    assert file.startswith(str(installation))
    return value, errors


@pytest.mark.slow
def test_several_first_fits_at_once(installation):
    """All compile into the same empty cache, and all find it whole."""
    processes = [started(installation) for _ in range(3)]
    values = {answer(process, installation)[0] for process in processes}
    assert len(values) == 1
    assert {answer(started(installation), installation)[0]} == values
    assert list(installation.rglob("*.nbc"))


@pytest.mark.slow
@pytest.mark.skipif(not CAN_BE_NOBODY, reason="needs root, and setpriv")
@pytest.mark.parametrize("environment", [{}, {"HOME": "/proc/none"}], ids=["unset", "missing"])
def test_a_first_fit_of_nobody_in_an_installation_that_cannot_be_written_to(
    installation, environment
):
    value, errors = answer(started(installation, NOBODY, **environment), installation)
    assert not list(installation.rglob("*.nbc"))
    assert errors.count("NUMBA_CACHE_DIR") == 1
    assert value == answer(started(installation), installation)[0]

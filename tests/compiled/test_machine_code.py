"""Machine code on disk: named by what it was compiled from, for several processes at once."""

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import maxmargin
from maxmargin.compiled import machine_code
from maxmargin.compiled.compile import compiled

ROUTINE = '''
from numba import types
from numba.extending import intrinsic
from maxmargin.compiled.compile import compiled, inlined

START = 0.0


@intrinsic
def doubled(context, value):
    def codegen(context, builder, signature, args):
        return builder.fadd(args[0], args[0])

    return types.float64(types.float64), codegen


@inlined
def raised(value, power):
    return value**power


def make(exponent):
    def half(value):
        return doubled(value) * 0.5**exponent

    return compiled(half)


half = make(2)


@compiled
def total(values, power):
    """The sum of powers."""
    found = START
    for k in range(len(values)):
        found += half(2.0 * raised(values[k], power))  # as a comment says
    return found
'''

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
def folder(monkeypatch, tmp_path):
    """An empty folder for machine code, whatever was chosen for the other tests."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "cache"))
    machine_code.user_folder.cache_clear()
    yield tmp_path / "cache" / "maxmargin"
    machine_code.user_folder.cache_clear()


def fresh_routine(tmp_path, *change):
    """The function as another process would import it, after a change of its module."""
    path = tmp_path / "routine.py"
    assert not change or change[0] in ROUTINE
    path.write_text(ROUTINE.replace(*change) if change else ROUTINE)
    module = module_from_spec(spec_from_file_location("routine", path))
    module.__spec__.loader.exec_module(module)
    return module.total


def call_all(total, kinds=KINDS):
    for kind in kinds:
        assert total(np.arange(1, 5).astype(kind), 2) == 30.0


def hits(total):
    return sum(total.stats.cache_hits.values())


def files(folder):
    return sorted(folder.glob("routine.total*"))


def test_each_signature_has_a_file_of_its_own(tmp_path, folder):
    first, second = fresh_routine(tmp_path), fresh_routine(tmp_path)
    call_all(first, KINDS[:2])
    call_all(second, KINDS[2:])  # which knows nothing of what the first has done since its import
    assert len(files(folder)) == 4
    third = fresh_routine(tmp_path)
    call_all(third)
    assert hits(third) == 4


def library_of(routine):
    (result,) = routine.overloads.values()
    return result.library


def test_bitcode_is_parsed_where_another_routine_is_compiled_with_it(tmp_path):
    call_all(fresh_routine(tmp_path), KINDS[:1])
    again = fresh_routine(tmp_path)
    call_all(again, KINDS[:1])
    assert hits(again) == 1
    assert library_of(again)._shared_module is None
    changed = fresh_routine(tmp_path, "START = 0.0", "START = 100.0")
    half = changed.py_func.__globals__["half"]
    assert changed(np.arange(1.0, 5.0), 2) == 130.0
    assert (hits(changed), hits(half)) == (0, 1)
    assert isinstance(library_of(half), machine_code.LoadedLibrary)
    assert library_of(half)._shared_module is not None
    assert half(3.0) == 1.5


def test_code_of_another_signature_is_never_run(tmp_path, folder):
    call_all(fresh_routine(tmp_path))
    one, other = files(folder)[:2]
    shutil.copy(one, other)
    again = fresh_routine(tmp_path)
    call_all(again)
    assert hits(again) == 3
    last = fresh_routine(tmp_path)
    call_all(last)
    assert hits(last) == 4  # it was written anew


@pytest.mark.parametrize("content", [b"", b"no machine code", zlib.compress(b"no pickle")])
def test_damaged_files_are_compiled_anew(tmp_path, folder, content):
    call_all(fresh_routine(tmp_path))
    for path in files(folder):
        path.write_bytes(content)
    again = fresh_routine(tmp_path)
    call_all(again)
    assert hits(again) == 0


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (("found = START", "found = START + 1.0"), 31.0),
        (("START = 0.0", "START = 3.0"), 33.0),
        (("return value**power", "return 2.0 * value**power"), 60.0),
        (("fadd(args[0], args[0])", "fmul(args[0], args[0])"), 354.0),
        (("make(2)", "make(3)"), 15.0),
        (("2.0 * raised(values[k], power)", "2.0 * raised(values[k], 3)"), 100.0),
    ],
    ids=["the routine", "a constant", "inlined", "an intrinsic", "a closure", "an argument"],
)
def test_changed_code_is_compiled_anew_wherever_it_stands(tmp_path, change, answer):
    call_all(fresh_routine(tmp_path), [np.float64])
    changed = fresh_routine(tmp_path, *change)
    assert changed(np.arange(1.0, 5.0), 2) == answer
    assert hits(changed) == 0
    back = fresh_routine(tmp_path)
    call_all(back, [np.float64])
    assert hits(back) == 1  # two checkouts do not take each other's place


@pytest.mark.parametrize(
    "change",
    [
        ("The sum of powers", "Powers, summed"),
        ("# as a", "# if a"),
        ("START = 0.0", "\nSTART = 0.0"),
    ],
    ids=["docstring", "comment", "lines"],
)
def test_what_does_not_change_the_code_compiles_nothing(tmp_path, change):
    call_all(fresh_routine(tmp_path), [np.float64])
    changed = fresh_routine(tmp_path, *change)
    call_all(changed, [np.float64])
    assert hits(changed) == 1


def test_old_versions_do_not_pile_up(tmp_path, folder):
    for start in range(5):
        changed = fresh_routine(tmp_path, "START = 0.0", f"START = {start}.0")
        assert changed(np.arange(1.0, 5.0), 2) == 30.0 + start
    assert len(files(folder)) == 3


def test_digests_are_those_of_other_processes():
    script = """
import maxmargin.structures.chain.oracle as module
from maxmargin.compiled.machine_code import digest
print(digest(module.infer_first_order), digest(module.fill_cuts))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_routine_that_refers_to_nameless_things_is_compiled_in_every_process(folder):
    class Nameless:
        pass

    thing = Nameless()

    def half(value):
        return value * 0.5 if thing is not None else value

    routine = compiled(half)
    with pytest.raises(machine_code.UnnamedError):
        machine_code.digest(routine)


def test_attributes_of_modules_could_change_unseen():
    def half(value):
        return machine_code.HALF * value

    with pytest.raises(machine_code.UnnamedError, match="import what is used of it"):
        machine_code.digest(compiled(half))


def test_a_disk_that_takes_nothing_does_not_matter(tmp_path, folder, monkeypatch):
    total = fresh_routine(tmp_path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    call_all(total)
    assert not list(folder.iterdir())


def test_without_a_folder_it_compiles_all_the_same(monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", os.devnull)
    machine_code.user_folder.cache_clear()
    machine_code._warn_of_compiling.cache_clear()

    def twice(value):
        return 2 * value

    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        assert compiled(twice)(4) == 8
    machine_code._warn_of_compiling.cache_clear()


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
    cache = {"XDG_CACHE_HOME": str(installation / "cache")}
    processes = [started(installation, **cache) for _ in range(3)]
    values = {answer(process, installation)[0] for process in processes}
    assert len(values) == 1
    assert {answer(started(installation, **cache), installation)[0]} == values
    assert list((installation / "cache").rglob("*.code"))


@pytest.mark.slow
@pytest.mark.skipif(not CAN_BE_NOBODY, reason="needs root, and setpriv")
@pytest.mark.parametrize("environment", [{}, {"HOME": "/proc/none"}], ids=["unset", "missing"])
def test_a_first_fit_of_nobody_in_an_installation_that_cannot_be_written_to(
    installation, environment
):
    value, errors = answer(started(installation, NOBODY, **environment), installation)
    assert not list(installation.rglob("*.code"))
    assert errors.count("NUMBA_CACHE_DIR") == 1
    cache = str(installation / "cache")
    assert value == answer(started(installation, XDG_CACHE_HOME=cache), installation)[0]

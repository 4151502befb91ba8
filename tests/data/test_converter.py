"""Any source of rows becomes a mapped folder, whole or not at all, in little memory."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.data import (
    CsrFolder,
    Examples,
    FunctionSource,
    LibsvmFile,
    convert,
    csr_folder,
    open_examples,
    read_libsvm,
)

TEXT = "1 1:0.5 3:2\n2 2:0.1\n\n1\n2 5:1e300 # last\n"


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "data.svm"
    path.write_text(TEXT)
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("batch_bytes", [8, 1 << 20])
def test_from_text(tmp_path, text_file, batch_bytes):
    source = LibsvmFile(text_file, batch_bytes=batch_bytes)
    stored = convert(source, tmp_path / "stored", progress=False)
    X, y = read_libsvm(text_file)
    assert names(tmp_path) == ["data.svm", "stored"]
    assert names(tmp_path / "stored") == [
        "data.npy", "indices.npy", "indptr.npy", "meta.json", "y.npy",
    ]  # fmt: skip
    assert (stored.n_examples, stored.n_features) == X.shape
    assert (stored.X != X).nnz == 0
    assert stored.X.data.dtype == np.float64
    np.testing.assert_array_equal(stored.y, y)
    assert stored.y.dtype == np.float64
    assert stored.classes().tolist() == [1, 2]
    again = open_examples(tmp_path / "stored", batch_bytes=1)
    blocks = list(again.batches())
    assert [block.X.shape for block in blocks] == [(1, 5)] * 4
    assert (sp.vstack([block.X for block in blocks]) != X).nnz == 0
    assert again.fingerprint() == stored.fingerprint()
    assert again.progress[0] == again.progress[1] == 4 * 12


def test_single_precision(tmp_path, text_file):
    with np.errstate(over="ignore"):
        stored = convert(text_file, tmp_path / "stored", dtype=np.float32, progress=False)
    assert stored.X.dtype == next(stored.batches()).X.dtype == np.float32
    assert stored.X.toarray()[1, 1] == np.float32(0.1)
    with pytest.raises(ValueError, match="dtype must be float32 or float64, not int64"):
        convert(text_file, tmp_path / "other", dtype=int)


@pytest.mark.parametrize(
    ("y", "kind"),
    [([3, 1, 2], "i"), ([True, False, True], "i"), ([1, 2.5, 3], "f"), (["b", "a", "b"], "U")],
)
def test_targets_keep_their_kind(tmp_path, y, kind):
    source = FunctionSource(lambda: zip(np.eye(3), y, strict=True), batch_examples=1)
    stored = convert(source, tmp_path / "stored", progress=False)
    assert stored.y.dtype.kind == kind
    assert stored.y.tolist() == y
    assert stored.classes().tolist() == sorted(set(y))
    assert [block.y.tolist() for block in stored.batches()] == [y]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (lambda: (["a", "b"], [0, 1]), "gives inputs that are no rows of numbers"),
        (lambda: (np.eye(2), [(1, 2), (3,)]), "one target for each row, a number or a string, but"),
        (lambda: (np.eye(2), [2**60, 1]), "whole numbers must be below 9007199254740992"),
        (
            lambda: lambda: iter([Examples(np.eye(1), ["a"]), Examples(np.eye(1), [1])]),
            "Some targets are numbers and some are strings",
        ),
    ],
)
def test_what_a_folder_cannot_hold(tmp_path, source, complaint):
    with pytest.raises(ValueError, match=complaint):
        convert(source(), tmp_path / "stored", progress=False)
    assert names(tmp_path) == []


def test_what_exists_is_left_alone(tmp_path, text_file):
    (tmp_path / "stored").mkdir()
    with pytest.raises(FileExistsError, match="stored' exists: remove it, or give another name"):
        convert(text_file, tmp_path / "stored")

    def made_meanwhile():
        (tmp_path / "late").mkdir()
        yield Examples(np.eye(2), [0, 1])

    with pytest.raises(FileExistsError, match="late' exists"):
        convert(made_meanwhile, tmp_path / "late")
    assert names(tmp_path) == ["data.svm", "late", "stored"]


def test_duplicates_are_summed_and_the_users_matrix_stays(tmp_path):
    X = sp.csr_array(
        (np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2)
    )
    stored = convert(open_examples(X, [1]), tmp_path / "stored", progress=False)
    assert stored.X.toarray().tolist() == [[2, 5]]
    assert stored.X.nnz == 2
    assert X.indices.tolist() == [1, 0, 1]


def test_no_examples(tmp_path):
    (tmp_path / "empty.svm").write_text("# nothing\n")
    stored = convert(LibsvmFile(tmp_path / "empty.svm"), tmp_path / "stored", progress=False)
    assert (stored.n_examples, list(stored.batches())) == (0, [])
    assert stored.X.shape == (0, 0)
    assert stored.classes().tolist() == []


def test_a_malformed_line_leaves_nothing(tmp_path):
    (tmp_path / "data.svm").write_text("1 1:1\n" * 1000 + "1 x\n")
    with pytest.raises(ValueError, match=r"line 1001: .* byte 6000\)"):
        convert(LibsvmFile(tmp_path / "data.svm", batch_bytes=600), tmp_path / "s", progress=False)
    assert names(tmp_path) == ["data.svm"]


def test_a_full_disk_leaves_nothing(tmp_path, text_file, monkeypatch):
    def full(self, piece):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csr_folder.GrowingArray, "append", full)
    with pytest.raises(OSError, match="No space left"):
        convert(text_file, tmp_path / "stored", progress=False)
    assert names(tmp_path) == ["data.svm"]


def test_ctrl_c_leaves_nothing(tmp_path):
    """An endless source, interrupted at several moments."""
    script = (
        "import signal, sys, numpy as np\n"
        "from maxmargin.data import convert, Examples\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def endless():\n"
        "    while True:\n"
        "        yield Examples(np.ones((1000, 10)), np.zeros(1000))\n"
        "print('ready', flush=True)\n"
        "convert(endless, sys.argv[1], progress=False)\n"
    )
    for seconds in (0.0, 0.02, 0.1):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "stored")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            process.stdout.readline()
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
        assert b"KeyboardInterrupt" in errors
        assert names(tmp_path) == []


def broken(stored, name, content):
    if content is None:
        (stored / name).unlink()
    else:
        (stored / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("y.npy", None, "is damaged: it holds no y.npy"),
        ("data.npy", b"", "is damaged or holds no array"),
        ("indices.npy", b"\x93NUMPY garbage", "is damaged or holds no array"),
        ("meta.json", b"{", "is damaged: meta.json is no JSON"),
        ("meta.json", b"[]", "no CSR folder of a kind this version knows"),
        ("meta.json", None, "is no CSR folder: it holds no meta.json"),
    ],
)
def test_damaged_folders(tmp_path, text_file, name, content, complaint):
    convert(text_file, tmp_path / "stored", progress=False)
    broken(tmp_path / "stored", name, content)
    with pytest.raises((ValueError, FileNotFoundError), match=complaint):
        CsrFolder(tmp_path / "stored")


def test_folders_that_do_not_fit_together(tmp_path, text_file):
    convert(text_file, tmp_path / "stored", progress=False)
    path = tmp_path / "stored" / "data.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(ValueError, match=r"data\.npy' is damaged or holds no array"):
        CsrFolder(tmp_path / "stored")
    path.write_bytes(whole)
    meta = tmp_path / "stored" / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"n_entries": 99}))
    with pytest.raises(
        ValueError, match=r"indices\.npy has shape \(4,\), but meta.json says \(99,\)"
    ):
        CsrFolder(tmp_path / "stored")


def test_progress(tmp_path, text_file, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    convert(text_file, tmp_path / "quiet")
    assert shown.getvalue() == ""
    convert(text_file, tmp_path / "one", progress=True)
    assert "4 examples" in shown.getvalue()
    assert " MB/s" in shown.getvalue()
    assert shown.getvalue().rstrip().endswith(" s")
    convert((np.eye(3), [0, 1, 0]), tmp_path / "two", progress=True)
    assert "3 of 3 examples" in shown.getvalue()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    before = len(shown.getvalue())
    convert(text_file, tmp_path / "three")
    assert len(shown.getvalue()) > before


def test_from_standard_input(tmp_path):
    script = "import sys; from maxmargin.data import convert; convert('-', sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path / "stored")]
    subprocess.run(command, input=TEXT.encode(), check=True)
    assert CsrFolder(tmp_path / "stored").n_examples == 4


def test_memory_is_that_of_a_block(tmp_path):
    """Twenty megabytes of text, converted and gone through in a fraction of them."""
    path = tmp_path / "data.svm"
    line = "1 " + " ".join(f"{j}:0.{j}" for j in range(1, 100)) + "\n"
    path.write_text(line * (20_000_000 // len(line)))
    script = (
        "import sys; from maxmargin.data import LibsvmFile, convert\n"
        "import maxmargin.data.libsvm_lines\n"
        "from resource import RUSAGE_SELF, getrusage\n"
        "next(LibsvmFile(sys.argv[1], batch_bytes=1 << 18).batches())\n"
        "before = getrusage(RUSAGE_SELF).ru_maxrss\n"
        "source = LibsvmFile(sys.argv[1], batch_bytes=1 << 18)\n"
        "stored = convert(source, sys.argv[2], progress=False)\n"
        "for block in type(stored)(sys.argv[2], batch_bytes=1 << 18).batches(): pass\n"
        "print(getrusage(RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(tmp_path / "stored")],
        capture_output=True,
        check=True,
        env=os.environ,
    )
    assert int(done.stdout) < 8_000  # kilobytes


@pytest.mark.parametrize(
    ("name", "at", "value", "complaint"),
    [
        ("indices", 0, 10**6, "columns of a sparse matrix must be from 0"),
        ("indices", 1, -1, "columns of a sparse matrix must be from 0"),
        ("indptr", 1, 10**6, "rows of a sparse matrix must rise"),
        ("indptr", 2, -5, "rows of a sparse matrix must rise"),
    ],
)
def test_indices_of_a_folder_are_not_trusted(tmp_path, text_file, name, at, value, complaint):
    convert(text_file, tmp_path / "stored", progress=False)
    array = np.load(tmp_path / "stored" / f"{name}.npy")
    array[at] = value
    np.save(tmp_path / "stored" / f"{name}.npy", array)
    stored = CsrFolder(tmp_path / "stored")
    with pytest.raises(ValueError, match=f"is damaged.*{complaint}.*convert the data anew"):
        list(stored.batches())
    with pytest.raises(ValueError, match="is damaged"):
        _ = stored.X


@pytest.mark.parametrize("name", ["n_examples", "n_features", "n_entries", "classes"])
def test_meta_data_of_a_folder_are_not_trusted(tmp_path, text_file, name):
    convert(text_file, tmp_path / "stored", progress=False)
    path = tmp_path / "stored" / "meta.json"
    meta = json.loads(path.read_text())
    for wrong in (-1, 2.5, "3", [1]):
        path.write_text(json.dumps(meta | {name: wrong}))
        with pytest.raises(ValueError, match="is damaged"):
            CsrFolder(tmp_path / "stored")

"""Files are opened by what they hold, not by what they are called."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys

import pytest

import maxmargin as mm
from maxmargin.data.files import create, open_bytes, read_bytes

CONTENT = b"".join(b"line %d: some text\n" % i for i in range(20_000))


def zstd(content):
    zstandard = pytest.importorskip("zstandard")
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


COMPRESSORS = {
    "": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


@pytest.mark.parametrize("kind", COMPRESSORS)
@pytest.mark.parametrize("name", ["data", "data.bin", "data.gz"])
def test_content_decides(tmp_path, kind, name):
    if name == "data.gz" and not kind:
        return
    path = tmp_path / name
    path.write_bytes(COMPRESSORS[kind](CONTENT))
    assert read_bytes(path) == read_bytes(str(path)) == CONTENT
    with open_bytes(path) as stream:
        assert stream.read(7) == CONTENT[:7]
        assert stream.n_bytes == path.stat().st_size
        stream.read()
        assert stream.bytes_read == stream.n_bytes


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_several_compressed_files_in_one(tmp_path, kind):
    path = tmp_path / "data"
    path.write_bytes(COMPRESSORS[kind](CONTENT) + COMPRESSORS[kind](b"more"))
    assert read_bytes(path) == CONTENT + b"more"


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_damaged_files(tmp_path, kind):
    path = tmp_path / f"data.{kind}"
    compressed = COMPRESSORS[kind](CONTENT)
    path.write_bytes(compressed[: len(compressed) // 2])
    with pytest.raises(ValueError, match=rf"data\.{kind} is damaged or cut short: ") as raised:
        read_bytes(path)
    assert "\n" not in str(raised.value)
    changed = bytearray(compressed)
    middle = slice(len(changed) // 2, len(changed) // 2 + 20)
    changed[middle] = bytes(255 - byte for byte in changed[middle])
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"is damaged or cut short"):
        read_bytes(path)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("content", [b"", b"plain text"])
def test_a_name_that_promises_too_much(tmp_path, kind, content):
    path = tmp_path / f"data.{kind}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged, or not compressed as its name says"):
        open_bytes(path)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_written_files_are_read_again(tmp_path, kind):
    if kind == "zst":
        pytest.importorskip("zstandard")
    path = tmp_path / f"data.{kind}"
    with create(path) as file:
        for start in range(0, len(CONTENT), 1000):
            file.write(CONTENT[start : start + 1000])
    assert read_bytes(path) == CONTENT
    assert (path.read_bytes() == CONTENT) == (kind == "")


def test_an_empty_file(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert read_bytes(tmp_path / "empty") == b""


def test_no_file_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*missing'"):
        open_bytes(tmp_path / "missing")
    with pytest.raises(IsADirectoryError, match="is a folder, not a file"):
        open_bytes(tmp_path)


@pytest.mark.parametrize("content", [CONTENT, gzip.compress(CONTENT)])
def test_standard_input_stays_open(monkeypatch, content):
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
    monkeypatch.setattr(sys, "stdin", stdin)
    with open_bytes("-") as stream:
        assert stream.read() == CONTENT
        assert stream.n_bytes is None
        assert stream.bytes_read is None
    assert not stdin.buffer.closed


def test_a_pipe():
    script = "from maxmargin.data.files import read_bytes; print(len(read_bytes('-')))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=lzma.compress(CONTENT),
        capture_output=True,
        check=True,
    )
    assert int(done.stdout) == len(CONTENT)


def test_zstd_without_a_package(tmp_path, monkeypatch):
    path = tmp_path / "data"
    path.write_bytes(b"\x28\xb5\x2f\xfd rest")
    monkeypatch.setitem(sys.modules, "compression", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"zstd need Python 3\.14 or the package zstandard: pip"):
        open_bytes(path)


def test_errors_of_the_disk_are_not_damage(tmp_path, monkeypatch):
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(CONTENT))

    def fails(self, buffer):
        raise OSError(5, "Input/output error")

    with open_bytes(path) as stream:
        monkeypatch.setattr(gzip.GzipFile, "readinto", fails, raising=False)
        with pytest.raises(OSError, match="Input/output error"):
            stream.read(10)


def test_a_model_needs_a_folder_to_be_written_to(tmp_path):
    model = mm.LinearRegressor().fit([[0.0], [1.0]], [0.0, 2.0])
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nodir .* x\.mm to: make it"):
        mm.save(model, tmp_path / "nodir" / "x.mm")


def test_memory_does_not_grow_with_the_file(tmp_path):
    """64 megabytes of zeros, in small steps."""
    path = tmp_path / "zeros.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    script = (
        "import resource, sys; from maxmargin.data.files import open_bytes\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with open_bytes(sys.argv[1]) as stream:\n"
        "    while stream.read(1 << 16): pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, check=True, env=environment
    )
    assert int(done.stdout) < 8_000  # of 64,000 kilobytes

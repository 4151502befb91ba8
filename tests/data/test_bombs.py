"""Small files that unpack to hundreds of megabytes take little memory, and a sentence."""

import bz2
import gzip
import json
import lzma
import subprocess
import sys
import zipfile

import pytest

from maxmargin.data import FileFormatError, LibsvmFile, SvmHmmFile, files, read_libsvm
from maxmargin.data.files import LONGEST_LINE

MEGABYTES, EMPTY_MEGABYTES = 300, 40
"""Of text in each bomb, and of empty lines, each of which takes eight bytes of who keeps it."""

MOST_MEGABYTES = 200
"""That reading may take: a few times the longest line."""

SCRIPT = """
import json, resource, sys
from maxmargin.data import (
    FileFormatError, LibsvmFile, SvmHmmFile, Templates, convert, guess_format, open_examples,
    read_columns, read_conllu, read_dp, read_letor, read_libsvm, read_svm_hmm, read_tree_file,
)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

READERS = {
    "libsvm": read_libsvm,
    "multilabel": lambda path: read_libsvm(path, multilabel=True, sample_weight=True),
    "libsvm in blocks": lambda path: list(LibsvmFile(path, batch_bytes=1 << 16).batches()),
    "svm-hmm": read_svm_hmm,
    "svm-hmm in blocks": lambda path: list(SvmHmmFile(path).batches()),
    "source": lambda path: list(open_examples(path).batches()),
    "convert": lambda path: convert(path, path + ".folder"),
    "letor": read_letor,
    "columns": read_columns,
    "conllu": read_conllu,
    "dp": read_dp,
    "penn": read_tree_file,
    "templates": Templates.read,
    "guess": guess_format,
}
said = {}
small, path, *names = sys.argv[1:]
for path in [small, path]:
    for name, read in READERS.items():
        if path != small and name not in names:
            continue
        try:
            read(path)
            answer = ""
        except (FileFormatError, ValueError) as error:
            answer = str(error)
        said.setdefault(path, {})[name] = answer
    if path == small:
        before = peak()
print(json.dumps({"said": said, "megabytes": peak() - before}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bombs")


READERS = [
    "libsvm", "multilabel", "libsvm in blocks", "svm-hmm", "svm-hmm in blocks", "source", "convert",
    "letor", "columns", "conllu", "penn", "templates", "guess",
]  # fmt: skip
THAT_READ_WHOLE = ["libsvm", "templates"]
"""Of all that go through files line by line, which takes long, the quickest."""


def measured(folder, path, readers):
    """What readers say of a bomb, and how much memory they needed more than for a line."""
    small = folder / "small"
    small.write_text("1 qid:1 1:1\n")
    call = [sys.executable, "-c", SCRIPT, str(small), str(path), *readers]
    return json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize(
    ("begin", "piece", "readers"),
    [
        pytest.param(b"1 qid:1 1:1\n", b"7" * 64, READERS, id="digits"),
        pytest.param(b"1 1:1\n", b" " * 64, READERS, id="spaces"),
        pytest.param(b"", b"1:1 " * 16, READERS, id="pairs"),
        pytest.param(b"", b"(S " * 20, READERS, id="brackets"),
        pytest.param(b"", b"\n" * 64, THAT_READ_WHOLE, id="empty lines"),
        pytest.param(b"", b" \r\n" * 20, THAT_READ_WHOLE, id="lines of spaces"),
        pytest.param(b"", b"\n" * 64, ["penn"], id="empty trees", marks=pytest.mark.slow),
        pytest.param(b"", b" \r\n" * 20, ["penn"], id="trees of spaces", marks=pytest.mark.slow),
    ],
)
def test_bombs(folder, begin, piece, readers):
    endless = readers is READERS
    path = folder / "bomb"
    many = piece * (2**20 // len(piece))
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(begin)
        for _ in range(MEGABYTES if endless else EMPTY_MEGABYTES):
            file.write(many)
    assert path.stat().st_size < 4e6
    found = measured(folder, path, readers)
    assert found["megabytes"] < MOST_MEGABYTES
    said = found["said"][str(path)]
    sentence = f"the line does not end within {LONGEST_LINE} characters: is this a text?"
    if endless and not piece.startswith(b"("):
        for name in set(READERS) - {"source", "convert", "guess"}:
            # A line that is malformed where it begins is refused for that, if that is seen first.
            assert sentence in said[name] or "line 1: " in said[name], name
        assert sentence in said["libsvm"]
        assert sentence in said["libsvm in blocks"]


@pytest.mark.parametrize("compress", [bz2.compress, lzma.compress])
def test_other_compressions(folder, compress):
    path = folder / "bomb"
    # Many compressed texts one after the other are one: to compress the whole takes seconds.
    path.write_bytes(compress(b"7" * 2**20) * MEGABYTES)
    assert measured(folder, path, ["libsvm", "columns"])["megabytes"] < MOST_MEGABYTES


@pytest.mark.parametrize(
    ("piece", "megabytes"),
    [
        pytest.param(b"7", MEGABYTES, id="digits"),
        pytest.param(b"\n", EMPTY_MEGABYTES, id="empty lines", marks=pytest.mark.slow),
    ],
)
def test_archives(folder, piece, megabytes):
    path, readers = folder / "bomb.zip", ["dp"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.dp", piece * (megabytes << 20))
    assert measured(folder, path, readers)["megabytes"] < MOST_MEGABYTES


@pytest.mark.parametrize("length", [999, 1000, 1001, 1002])
@pytest.mark.parametrize("start", [b"", b"1 1:1\n", b"\n" * 57])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n2 1:1\n"])
def test_the_longest_line_is_the_same_for_all(tmp_path, monkeypatch, length, start, end):
    """Whatever is read at a time, and wherever the line stands."""
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path = tmp_path / "file"
    path.write_bytes(start + b"1 2:3".ljust(length) + end)

    def refused(read):
        try:
            read()
        except FileFormatError as error:
            return str(error)
        return None

    answers = set()
    for n_bytes in (1, 7, 99, 600, 999, 1000):
        monkeypatch.setattr(files, "_BATCH_BYTES", n_bytes)
        answers.add(refused(lambda: list(files.lines_of(path))))
        source = LibsvmFile(path, batch_bytes=n_bytes)
        answers.add(refused(lambda source=source: list(source.batches())))
    where = f"{path}, line {start.count(bytes([10])) + 1}"
    sentence = f"{where}: the line does not end within 1000 characters: is this a text?"
    assert answers == {sentence if length > 1000 else None}


def test_long_lines_are_read(tmp_path):
    path = tmp_path / "file"
    row = " ".join(f"{j}:1" for j in range(1, 300_000))
    path.write_text(f"1 {row}\n2 {row}\n")
    assert read_libsvm(path)[0].nnz == 2 * 299_999
    path.write_text(f"1 qid:1 {row}\n2 qid:1 {row}\n")
    (block,) = SvmHmmFile(path, batch_bytes=1 << 10).batches()
    assert block.X[0].nnz == 2 * 299_999

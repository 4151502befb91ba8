"""Every text format in every disguise in which users have it: read alike, or refused by name."""

import gzip
import io
import sys
from itertools import chain

import numpy as np
import pytest

from maxmargin.data import (
    FileFormatError,
    LibsvmFile,
    Templates,
    guess_format,
    read_columns,
    read_conllu,
    read_dp,
    read_letor,
    read_libsvm,
    read_svm_hmm,
    read_tree_file,
)

SAMPLES = {
    "libsvm": (read_libsvm, b"1 1:0.5 3:2 # n\xc3\xb6\n\n-1 2:1\n# more\n1 9:1\n"),
    "libsvm blocks": (
        lambda path: list(chain.from_iterable(b.y for b in LibsvmFile(path).batches())),
        b"1 1:0.5 3:2\n\n-1 2:1\n# more\n1 9:1\n",
    ),
    "svm-hmm": (read_svm_hmm, b"1 qid:1 1:1\n2 qid:1 2:1 # x\n\n2 qid:7 2:1\n"),
    "letor": (read_letor, "1 qid:1 1:1\n0 qid:1 2:1 # ü\n\n0 qid:ü 2:1\n".encode()),
    "columns": (read_columns, "He PRP B\nsäys VBZ I\n\nYes UH O\n".encode()),
    "conllu": (
        read_conllu,
        "# á\n1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n1\tNö\t_\tX\t_\t_\t0\troot\t_\t_\n".encode(),
    ),
    "dp": (read_dp, "Dogs\tNNS\t2\nbärk\tVBP\t0\n\nGo\tVB\t0\n".encode()),
    "penn": (read_tree_file, "(S (NP (NN dög))\n   (VP (VB bark)))\n\n(S (VB go))\n".encode()),
    "templates": (lambda path: Templates.read(path).names, b"# mine\nword[0]\n\nlower(word[-1])\n"),
    "guess": (guess_format, b"1 1:0.5 3:2\n\n-1 2:1\n1 9:1\n-1 2:3\n"),
}

DISGUISES = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "Windows": lambda text: text.replace(b"\n", b"\r\n"),
    "old Macintosh": lambda text: text.replace(b"\n", b"\r"),
    "mark and Windows": lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
    "no final newline": lambda text: text.rstrip(b"\n"),
    "many final newlines": lambda text: text + b"\n\r\n\n",
    "empty lines first": lambda text: b"\n\n" + text,
    "compressed": gzip.compress,
}
SPACED = {
    "tabs": lambda text: text.replace(b" ", b"\t"),
    "many spaces": lambda text: text.replace(b" ", b"  \t "),
    "spaces at ends of lines": lambda text: text.replace(b"\n", b" \t\n"),
}
BY_SPACES = ("libsvm", "libsvm blocks", "svm-hmm", "letor", "columns", "penn", "guess")


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "toarray"):
        return value.toarray().tolist()
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("disguise", {**DISGUISES, **SPACED})
@pytest.mark.parametrize("name", SAMPLES)
def test_disguises_make_no_difference(tmp_path, monkeypatch, name, disguise):
    if disguise in SPACED and name not in BY_SPACES:
        return
    read, text = SAMPLES[name]
    path = tmp_path / "file"
    path.write_bytes(text)
    expected = plain(read(path))
    disguised = (DISGUISES | SPACED)[disguise](text)
    path.write_bytes(disguised)
    assert plain(read(path)) == expected
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(disguised)))
    monkeypatch.setattr(sys, "stdin", stream)
    assert plain(read("-")) == expected


@pytest.mark.parametrize("name", ["letor", "columns", "conllu", "dp", "penn"])
def test_text_that_is_not_utf_8(tmp_path, name):
    read, text = SAMPLES[name]
    path = tmp_path / "file"
    path.write_bytes(text)
    expected = plain(read(path))
    path.write_bytes(text.decode().encode("latin-1"))
    with pytest.raises(FileFormatError, match=r'file, line \d: .* pass encoding="latin-1"'):
        read(path)
    assert plain(read(path, encoding="latin-1")) == expected


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("templates", "guess")])
def test_an_empty_file_has_no_examples(tmp_path, name):
    path = tmp_path / "file"
    for text in (b"", b"\n", b"\xef\xbb\xbf\r\n"):
        path.write_bytes(text)
        found = SAMPLES[name][0](path)
        examples = found[1] if isinstance(found, tuple) else found
        assert len(examples) == 0


@pytest.mark.parametrize("name", SAMPLES)
def test_nul_bytes_are_refused(tmp_path, name):
    read, text = SAMPLES[name]
    path = tmp_path / "file"
    path.write_bytes(text.rstrip(b"\n") + b"\0\n")
    with pytest.raises(FileFormatError, match=r"file,? "):
        read(path)


@pytest.mark.parametrize("name", SAMPLES)
def test_errors_call_standard_input_by_its_name(monkeypatch, name):
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"\n\n,\0 \n")))
    monkeypatch.setattr(sys, "stdin", stream)
    with pytest.raises(FileFormatError, match=r"^standard input(, line 3:)? "):
        SAMPLES[name][0]("-")


def test_queries_and_sequences_that_come_back(tmp_path):
    path = tmp_path / "file"
    path.write_text("1 qid:5 1:1\n2 qid:5 1:1\n1 qid:3 1:1\n3 qid:5 2:1\n")
    assert [tags.tolist() for tags in read_svm_hmm(path)[1]] == [[1, 2], [1], [3]]
    assert read_letor(path)[2].tolist() == [5, 5, 3, 5]

"""Bytes become lines in one place: every line end, every encoding that is named, no guesses."""

import gzip
import io
import os
import pickle
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.data import FileFormatError, files
from maxmargin.data.files import head_of, lines_of, lines_of_stream, open_bytes, text_of


def written(tmp_path, content, name="data.txt"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 18])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\n\r\nb", ["a", "", "b"]),
        (b"a\r\rb\r", ["a", "", "b"]),
        (b"a\rb\r\nc\nd", ["a", "b", "c", "d"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf", []),
        ("a\u2028b\x85c\x0bd\xa0e\n".encode(), ["a\u2028b\x85c\x0bd\xa0e"]),
        ("日本\n語".encode(), ["日本", "語"]),
    ],
)
def test_line_ends(tmp_path, monkeypatch, content, lines, block):
    monkeypatch.setattr(files, "_BATCH_BYTES", block)
    path = written(tmp_path, content)
    assert list(lines_of(path)) == list(lines_of(str(path))) == lines
    assert text_of(written(tmp_path, gzip.compress(content))) == "\n".join(lines)


@pytest.mark.parametrize("block", [1, 3, 1 << 18])
def test_other_encodings_must_be_named(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "_BATCH_BYTES", block)
    path = written(tmp_path, "a\r\nb\rGrüße\n".encode("latin-1"))
    with pytest.raises(FileFormatError) as raised:
        list(lines_of(path))
    assert str(raised.value) == (
        f'{path}, line 3: the bytes are not UTF-8: pass encoding="latin-1", or whatever the text '
        f"is in."
    )
    assert list(lines_of(path, "latin-1")) == ["a", "b", "Grüße"]
    assert list(lines_of(written(tmp_path, "a\né".encode("utf-16")), "utf-16")) == ["a", "é"]
    with pytest.raises(FileFormatError, match="line 2: the bytes are not ascii: pass"):
        list(lines_of(written(tmp_path, b"a\n\xe9"), "ascii"))
    with pytest.raises(FileFormatError, match="line 2: the bytes are not UTF-8"):
        list(lines_of(written(tmp_path, b"a\n" + "é".encode()[:1])))
    with pytest.raises(FileFormatError, match="line 2: the bytes are not UTF-8"):
        list(lines_of(written(tmp_path, b"a\r" + "é".encode()[:1])))


@pytest.mark.parametrize("encoding", ["no such", "hex", "rot13", "a\0b", "-"])
def test_encodings_that_there_are_not(tmp_path, encoding):
    path = written(tmp_path, b"a")
    with pytest.raises(ValueError, match="There is no encoding "):
        list(lines_of(path, encoding))


def test_wide_text_and_other_files(tmp_path):
    with pytest.raises(FileFormatError, match='line 1: this is UTF-16 or UTF-32: pass encoding="'):
        list(lines_of(written(tmp_path, "ab".encode("utf-16"))))
    with pytest.raises(FileFormatError, match="line 2: there is a NUL"):
        list(lines_of(written(tmp_path, b"a\r\nb\0c\n")))
    with pytest.raises(FileFormatError, match=r"data\.gz is damaged, or not compressed as its"):
        list(lines_of(written(tmp_path, b"plain", "data.gz")))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        list(lines_of(tmp_path / "none"))


def test_a_line_without_an_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    monkeypatch.setattr(files, "_BATCH_BYTES", 10)
    with pytest.raises(FileFormatError, match="line 2: the line does not end within 100"):
        list(lines_of(written(tmp_path, b"a\n" + b"b" * 1000)))
    assert len(list(lines_of(written(tmp_path, b"a\n" + b"b" * 99)))) == 2


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([None, "utf-8", "latin-1", "utf-16", "cp1252"]))
def test_any_bytes(content, encoding):
    """Lines are those of Python's own universal newlines, or the error names a line there is."""
    line, n_ends = None, content.count(b"\n") + content.count(b"\r")
    try:
        lines = list(lines_of_stream(io.BytesIO(content), "bytes", encoding))
    except FileFormatError as error:
        line = error.line
    if line is not None:
        assert 1 <= line <= 1 + n_ends
        return
    codec = encoding if encoding not in (None, "utf-8") else "utf-8-sig"
    expected = io.TextIOWrapper(io.BytesIO(content), encoding=codec, newline=None).read()
    assert lines == (expected[:-1] if expected.endswith("\n") else expected).split("\n") or (
        not expected and not lines
    )


def test_errors_travel_between_processes():
    error = pickle.loads(pickle.dumps(FileFormatError("a.txt", 3, "no.")))
    assert (str(error), error.path, error.line, error.reason) == (
        "a.txt, line 3: no.", "a.txt", 3, "no.",
    )  # fmt: skip
    assert str(FileFormatError("a.gz", None, "is damaged.")) == "a.gz is damaged."


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_standard_input_can_be_looked_at_before_it_is_read(monkeypatch, compress):
    content = b"".join(b"line %d\n" % i for i in range(30_000))
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(compress(content))))
    monkeypatch.setattr(sys, "stdin", stream)
    assert head_of("-", 10) == content[:10]
    assert head_of("-", 100_000) == content[:100_000]
    assert head_of("-", 20) == content[:20]
    with open_bytes("-") as opened:
        assert opened.read() == content
    assert list(lines_of("-")) == []
    other = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"other")))
    monkeypatch.setattr(sys, "stdin", other)
    assert head_of("-", 3) == b"oth"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"third"))))
    assert text_of("-") == "third"


def test_a_named_pipe_can_be_looked_at_too(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"first\nsecond\n",))
    writer.start()
    assert head_of(path, 5) == b"first"
    assert list(lines_of(path)) == ["first", "second"]
    writer.join()


def test_the_head_of_a_file(tmp_path):
    path = written(tmp_path, gzip.compress(b"0123456789"))
    assert head_of(path, 4) == b"0123"
    assert head_of(path, 40) == b"0123456789"

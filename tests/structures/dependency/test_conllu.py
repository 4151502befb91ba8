"""CoNLL-U and .dp: what is read, what is left out, what is written, and complaints."""

import gzip
import lzma
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxmargin.structures.dependency.formats import (
    DependencySentence,
    read_conllu,
    read_dependencies,
    read_dp,
    write_conllu,
)

TEXT = """\
# sent_id = 1
# text = I don't
1\tI\tI\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
3.1\tlike\tlike\tVERB\tVB\t_\t_\t_\t0:root\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\t_

# only comments

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""

SENTENCES = [
    DependencySentence(
        ("I", "do", "n't", "know"),
        ("PRON", "AUX", "PART", "VERB"),
        (4, 4, 4, 0),
        ("nsubj", "aux", "advmod", "root"),
    ),
    DependencySentence(("Yes",), ("INTJ",), (0,), ("root",)),
]

DP = "Dogs\tNNS\t2\nbark\tVBP\t0\n\nGo\tVB\t0\n"

EWT = Path(os.environ.get("MAXMARGIN_DATA", "")) / "ud-english-ewt"
TREEBANK = Path(os.environ.get("MAXMARGIN_DATA", "")) / "dependency_treebank"


def test_text_is_read_without_comments_multiwords_and_empty_nodes():
    assert read_conllu(TEXT) == SENTENCES
    assert read_conllu(TEXT.replace("\n", "\r\n")) == SENTENCES
    assert read_conllu(TEXT.rstrip("\n")) == SENTENCES
    assert read_conllu(TEXT, tag="xpos")[0].tags == ("PRP", "VBP", "RB", "VB")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n"])
def test_nothing_is_no_sentence(text):
    assert read_conllu(text) == []
    assert read_dp("\n") == []


@pytest.mark.parametrize(
    ("name", "compress"),
    [("a.conllu", bytes), ("a.conllu.gz", gzip.compress), ("a.conllu.xz", lzma.compress)],
)
def test_files_plain_and_compressed(tmp_path, name, compress):
    path = tmp_path / name
    path.write_bytes(compress(TEXT.encode()))
    assert read_conllu(path) == read_conllu(str(path)) == read_dependencies(path) == SENTENCES
    written = tmp_path / f"b{path.suffix}"
    text = write_conllu(SENTENCES, written)
    assert read_conllu(written) == read_conllu(text) == SENTENCES


def test_byte_order_marks_are_no_words(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert read_conllu(path) == SENTENCES


def test_heads_and_labels_may_be_unknown():
    text = "1\tGo\t_\tVERB\t_\t_\t_\t_\t_\t_\n"
    assert read_conllu(text) == [DependencySentence(("Go",), ("VERB",), None, None)]
    assert write_conllu(read_conllu(text)) == text + "\n"
    headed = text.replace("VERB\t_\t_\t_", "VERB\t_\t_\t0")
    assert read_conllu(headed) == [DependencySentence(("Go",), ("VERB",), (0,), None)]


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)


@given(st.lists(st.tuples(names, names, names), min_size=1), st.data())
def test_what_is_written_is_read_again(tokens, data):
    words, tags, labels = zip(*tokens, strict=True)
    n = len(words)
    heads = [data.draw(st.integers(0, n).filter(lambda h, m=m: h != m)) for m in range(1, n + 1)]
    known = None if set(labels) == {"_"} else labels
    sentence = DependencySentence(words, tags, tuple(heads), known)
    assert read_conllu(write_conllu([sentence, sentence])) == [sentence, sentence]


def test_dp_texts_and_archives(tmp_path):
    expected = [
        DependencySentence(("Dogs", "bark"), ("NNS", "VBP"), (2, 0)),
        DependencySentence(("Go",), ("VB",), (0,)),
    ]
    assert read_dp(DP) == expected
    plain, archive = tmp_path / "a.dp", tmp_path / "a.zip"
    plain.write_text(DP)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x/b.dp", "So\tRB\t0\n")
        file.writestr("x/a.dp", DP)
        file.writestr("README", "nothing")
    assert read_dependencies(plain) == expected
    assert [one.words for one in read_dependencies(archive)] == [("Dogs", "bark"), ("Go",), ("So",)]


LINE = "1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n"
BAD = {
    "columns": (LINE + "2 words\n", r"line 2: a line of CoNLL-U has 10 columns .* has 1"),
    "numbers": (LINE + LINE, "line 2: the word should have the number 2, but has '1'"),
    "no number": ("x" + LINE, "line 1: .* number 1, but has 'x1'"),
    "head": (LINE.replace("\t0\t", "\tx\t"), "line 1: the head must be a number .* is 'x'"),
    "far head": (LINE.replace("\t0\t", "\t2\t"), "line 1: .* to 1, the last word, but is '2'"),
    "negative head": (LINE.replace("\t0\t", "\t-1\t"), "line 1: the head must be a number"),
    "itself": (LINE.replace("\t0\t", "\t1\t"), "line 1: the word is its own head"),
    "some heads": (
        LINE + LINE.replace("1", "2").replace("\t0\t", "\t_\t"),
        "line 2: the word has no head, but others",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_bad_lines_are_named(tmp_path, text, message):
    path = tmp_path / "bad.conllu"
    path.write_text("# comment\n\n" + text)
    moved = message.replace("line 2", "line 4").replace("line 1", "line 3")
    for source, name, expected in ((text, "the text", message), (path, "bad.conllu", moved)):
        with pytest.raises(ValueError, match=f"{name}, {expected}") as raised:
            read_conllu(source)
        assert "\n" not in str(raised.value)


def test_bad_dp_lines_and_files(tmp_path):
    with pytest.raises(ValueError, match=r"the text, line 2: a line must have 3 columns .* has 2"):
        read_dp("Go\tVB\t0\nGo\tVB\n")
    with pytest.raises(FileNotFoundError, match=r"no file 'missing\.conllu'"):
        read_conllu("missing.conllu")
    with pytest.raises(ValueError, match="tag must be"):
        read_conllu(TEXT, tag="lemma")
    for name in ("a.xz", "a.gz", "a.zip"):
        (tmp_path / name).write_bytes(b"no such thing")
        with pytest.raises(ValueError, match="is damaged, or not compressed"):
            read_dp(tmp_path / name)
    (tmp_path / "latin").write_bytes("1\tGrüße".encode("latin-1"))
    with pytest.raises(
        ValueError, match='latin, line 1: the bytes are not UTF-8: pass encoding="latin-1"'
    ):
        read_conllu(tmp_path / "latin")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(ValueError, match=r"holds no files that end in \.dp"):
        read_dp(tmp_path / "empty.zip")


@pytest.mark.skipif(not EWT.is_dir(), reason="needs MAXMARGIN_DATA")
def test_english_web_treebank():
    dev = read_dependencies(EWT / "en_ewt-ud-dev.conllu.xz")
    assert len(dev) == 2001
    assert sum(len(one.words) for one in dev) == 25147
    assert all(one.heads.count(0) == 1 for one in dev)


@pytest.mark.skipif(not TREEBANK.is_dir(), reason="needs MAXMARGIN_DATA")
def test_dependency_treebank():
    sentences = read_dependencies(TREEBANK / "dependency_treebank.zip")
    assert len(sentences) == 3914
    assert sum(len(one.words) for one in sentences) == 94084
    assert sentences[0].words[:2] == ("Pierre", "Vinken")

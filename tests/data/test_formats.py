"""What a file holds is guessed from its beginning, with a reason; doubts are spoken out."""

import gzip
import io
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_diabetes, load_digits, load_iris

from maxmargin.data import FileFormatError, guess_format, open_examples, read_columns
from maxmargin.data.formats import Format

DATA = Path(os.environ.get("MAXMARGIN_DATA", "/nowhere"))

CONLLU = (
    "# text = Dogs bark\n"
    "1\tDogs\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tbark\t_\tVERB\t_\t_\t0\troot\t_\t_\n"
)
HMM = "".join(
    f"{tag} qid:{i} {word}:1 {word + 7}:1 # w{word}\n"
    for i in range(1, 20)
    for tag, word in ((i % 9 + 1, 3 * i), (i % 7 + 2, 50 + i))
)
RANKING = "".join(
    f"{i % 3} qid:{i // 5} " + " ".join(f"{j}:0.{i + j}" for j in range(1, 6)) + "\n"
    for i in range(30)
)
NUMBERS = "".join(f"{i % 7 + i / 100} 1:{i} 3:2\n" for i in range(30))


@pytest.mark.parametrize(
    ("text", "name", "task", "reason"),
    [
        ("+1 1:1 3:0.5\n-1 2:1\n-1\n+1 4:1", "libsvm", "binary", "labels -1 and 1: two classes"),
        ("0 1:1\n1 2:1\n2 1:1\n", "libsvm", "multiclass", "3 integer labels: multi-class"),
        ("\ufeff# made\n\n0 1:1 # x\r\n1 0:1\r\n", "libsvm", "binary", "labels 0 and 1"),
        ("1,3 1:1\n2 2:1\n\t4:1\n", "libsvm", "multilabel", "any number of labels a line, 3 in"),
        (NUMBERS, "libsvm", "regression", "labels that are no integers: regression"),
        (HMM, "svm-hmm", "tagging", "19 qid: with 9 tags: tagging sequences"),
        (RANKING, "letor", "ranking", "6 qid: with 3 degrees of relevance: ranking"),
        ("1 qid:q1 1:1\n0 qid:q1 2:1\n", "letor", "ranking", "queries with names"),
        ("8 qid:1 1:1 #docid = 7\n1 qid:1 9:1\n", "letor", "ranking", "document numbers after #"),
        ("He PRP B\nis V I\n\nOk UH O\n", "columns", "tagging", "3 columns, 3 tags in the last"),
        ("-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n", "columns", "tagging", "4 columns, 1 tags"),
        ("( -LRB- O\na DT B\n) -RRB- O\n", "columns", "tagging", "3 columns, 2 tags"),
        ("# # O\na DT B\n", "columns", "tagging", "3 columns, 2 tags"),
        ("He\nreckons\n\nYes\n", "columns", "tagging", "1 column: words without tags"),
        ("( (S (NP (NN dog))) )\n(S (VB", "penn", "parsing", "trees in brackets: parsing"),
        ("\n(TOP\n (S (NP (NN dog))))", "penn", "parsing", "trees in brackets"),
        (CONLLU, "conllu", "dependencies", "10 columns with heads: dependency parsing"),
        (CONLLU.replace("\t2\t", "\t_\t").replace("\t0\t", "\t_\t"), "conllu", "dependencies",
         "10 columns without heads"),
    ],
)  # fmt: skip
def test_formats(tmp_path, text, name, task, reason):
    found = guess_format(text.encode())
    assert (found.name, found.task, found.doubt) == (name, task, None)
    assert found.reason.startswith(reason) or reason in found.reason
    assert str(found) == f"{name}, {found.reason}"
    (tmp_path / "file").write_bytes(gzip.compress(text.encode()))
    assert guess_format(tmp_path / "file") == found


@pytest.mark.parametrize(
    ("text", "name", "doubt"),
    [
        (
            "".join(f"{i} 1:1\n" for i in range(40)),
            "libsvm",
            "if they are classes: --task classification",
        ),
        (
            "".join(f"{i % 29} 1:1\n" for i in range(400)),
            "libsvm",
            "if they are amounts: --task regression",
        ),
        ("1 1:1\n1 2:1\n", "libsvm", "a second one must come later"),
        ("1 qid:1 1:1 2:1\n2 qid:1 1:1 2:1\n", "letor", "--format svm-hmm"),
        (HMM.replace("9 qid", "0 qid"), "svm-hmm", "--format letor"),
        ("".join(f"w{i} t{i}\n" for i in range(30)), "columns", "so many tags are rare"),
    ],
)
def test_doubts_are_spoken_out(text, name, doubt):
    found = guess_format(text.encode())
    assert found.name == name
    assert doubt in found.doubt
    assert str(found).endswith(f"({found.doubt})")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf \r\n\n", "is empty"),
        (b"\x89PNG\0\0", "is no text, or one in UTF-16: save it as UTF-8"),
        ("1 1:1\n".encode("utf-16"), "is no text, or one in UTF-16"),
        (b"a,b,c\n1,2,3\n", "is of no format that is read here .* begins with 'a,b,c'"),
        (b"1.5 2 3\n4 5 -6e3\n", r"is of no format .* its reader \(--format\) names the line"),
        (b"This is prose\nand has lines of words, all of\nthem different\n", "is of no format"),
        (b"# only\n", "begins with nothing but comments"),
    ],
)
def test_what_is_nothing_of_the_kind(tmp_path, content, complaint):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"file {complaint}") as raised:
        guess_format(tmp_path / "file")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("load", "task"),
    [(load_iris, "multiclass"), (load_digits, "multiclass"), (load_diabetes, "regression")],
)
def test_data_sets_of_scikit_learn(tmp_path, load, task):
    X, y = load(return_X_y=True)
    path = str(tmp_path / "data.svm")
    dump_svmlight_file(X, np.random.default_rng(0).permutation(y), path)
    assert guess_format(path, 1 << 14).task == task


def test_only_the_beginning_is_looked_at(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("He PRP B\n" * 100_000 + "\0")
    assert guess_format(path, 1000).n_columns == 3
    path.write_text("1 " + " ".join(f"{j}:0.25" for j in range(1, 100_000)) + "\n2 1:1\n")
    assert guess_format(path, 5000).name == "libsvm"


def test_standard_input_is_not_used_up(monkeypatch):
    text = "He PRP B\nis V I\n\n" * 20_000
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress(text.encode()))))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert guess_format("-").name == "columns"
    assert len(read_columns("-")) == 20_000
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(HMM.encode())))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert guess_format("-").name == "svm-hmm"
    blocks = list(open_examples("-").batches())
    assert sum(len(block.y) for block in blocks) == 19


@pytest.mark.parametrize(
    ("text", "reader"),
    [("a N\nb V\n", "read_columns"), (CONLLU, "read_conllu"), ("(S (NN a))", "read_tree_file")],
)
def test_open_examples_names_the_right_reader(tmp_path, text, reader):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=f"holds neither lines .*; mm.data.{reader}.* may read it"):
        open_examples(tmp_path / "file")


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=100)
    | st.text("01 :qid#.,()-\nab\t", max_size=80).map(str.encode)
    | st.sampled_from([HMM, RANKING, NUMBERS, CONLLU]).map(str.encode)
)
def test_any_bytes_are_a_format_or_an_error(content):
    try:
        found = guess_format(content)
    except FileFormatError:
        return
    assert isinstance(found, Format)


@pytest.mark.skipif(not DATA.is_dir(), reason="needs MAXMARGIN_DATA")
@pytest.mark.parametrize(
    ("path", "name", "task"),
    [
        ("a9a/a9a.xz", "libsvm", "binary"),
        ("yeast/yeast_train.svm.xz", "libsvm", "multilabel"),
        ("letor-ohsumed/S1.txt.xz", "letor", "ranking"),
        ("ud-english-ewt/en_ewt-ud-dev.conllu.xz", "conllu", "dependencies"),
        ("conll2000/conll2000.zip:test.txt", "columns", "tagging"),
        ("treebank/treebank.zip:.mrg", "penn", "parsing"),
    ],
)
def test_real_files(path, name, task):
    path, _, ending = path.partition(":")
    if not ending:
        found = guess_format(DATA / path)
    else:
        with zipfile.ZipFile(DATA / path) as archive:
            first = next(name for name in archive.namelist() if name.endswith(ending))
            found = guess_format(archive.read(first))
    assert (found.name, found.task, found.doubt) == (name, task, None)


@pytest.mark.parametrize(
    ("text", "name", "task"),
    [
        ("8:1\n3 qid:1 1", "libsvm", "multilabel"),
        ("8:1\n3 qid:1 1:1\n2 qid:1 2:1", "svm-hmm", "tagging"),
        ("+1 cost:2.5 1:0.3\n-1 1:2 cost:.5\n", "libsvm", "binary"),
        ("1 cost:2 qid:q1 1:1\n0 qid:q1 2:1\n", "letor", "ranking"),
    ],
)
def test_lines_that_are_rare(text, name, task):
    found = guess_format(text.encode())
    assert (found.name, found.task) == (name, task)

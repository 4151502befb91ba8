"""Readers of text are fed damaged files and noise: they read it, or say what is wrong."""

import bz2
import gzip
import lzma
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.data import (
    FileFormatError,
    LibsvmFile,
    SvmHmmFile,
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

SEEDS = {
    "libsvm": b"1 1:0.5 3:2 # a\n-1 2:1e-3\n+1 qid:4 7:.5\r\n",
    "labels": b"1,2 1:0.5 3:2\n2:1 4:1\n0.5 1:1e308 2:5e-324 9:123456789012345678901234567890\n",
    "sparse lines of several kinds": b"8:1\n3 qid:1 1\n+1 cost:2.5 1:0.3\n-1 7:2 cost:.5 1:1\n",
    "svm-hmm": b"1 qid:1 1:1 2:1 # The\n2 qid:1 2:1\n\n1 qid:2 8:0.25\n2 qid:1 3:1\n",
    "letor": b"2 qid:10 1:0.5 3:1.0 #docid = 7\n0 qid:a 2:-1e-3\n",
    "columns": b"\xef\xbb\xbfHe PRP B-NP\nsays\tVBZ\tB-VP\n\n-DOCSTART- O\n\nYes UH O\n",
    "conllu": "# text\n1-2\tGrüße\t_\t_\t_\t_\t_\t_\t_\t_\n1\tDogs\t_\tNOUN\tN\t_\t2\tnsubj\t_\t_\n"
    "2\tbark\t_\tVERB\tV\t_\t0\troot\t_\t_\n\n".encode(),
    "dp": b"Dogs\tNNS\t2\nbark\tVBP\t0\n\nGo\tVB\t0\n",
    "penn": b"( (S (NP-SBJ (-NONE- *)) (VP (VB Stop) (NP=2 (NN it)))) )\n(X (Y z))\n",
    "templates": b"columns: word pos # names\nword[-1..1]\nprefix(lower(word[0]), 1..3) pos[0]\n"
    b"U0:%x[0,1]\n",
}

READERS = {
    "libsvm": read_libsvm,
    "labels": lambda path: read_libsvm(path, multilabel=True, query_id=True, n_features=9),
    "costs": lambda path: read_libsvm(path, sample_weight=True),
    "libsvm in blocks": lambda path: list(LibsvmFile(path, batch_bytes=7, first_index=0).batches()),
    "libsvm with skipping": lambda path: list(
        LibsvmFile(path, batch_bytes=40, on_error="skip").batches()
    ),
    "svm-hmm": read_svm_hmm,
    "svm-hmm in blocks": lambda path: list(SvmHmmFile(path, batch_bytes=7).batches()),
    "letor": read_letor,
    "columns": read_columns,
    "columns without tags": lambda path: read_columns(path, tag_column=None, comment="#"),
    "columns in latin-1": lambda path: read_columns(path, encoding="latin-1", tag_column=0),
    "conllu": read_conllu,
    "dp": read_dp,
    "penn": read_tree_file,
    "templates": Templates.read,
    "guess": guess_format,
}

PIECES = [
    b"", b"\n", b"\r", b"\r\n", b"\n\n", b" ", b"\t", b"\0", b"#", b":", b",", b"(", b")", b"((",
    b"qid:", b"1:1", b"0:1", b"1:nan", b"inf", b"1e999", b"-1e-999", b"9" * 400, b"99999999999:1",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xe9", "\u2028\xa0\x85".encode(), b"1\t" * 9, b"-DOCSTART-",
    b"cost:", b"cost:1", b"cost:-1", b"cost:1e999", b"cost:1e-400", b"qid:1", b"1,2",
    b"%x[0,0]", b"..", b"_", b"\x1f\x8b", b"(" * 300, b"-",
]  # fmt: skip


@st.composite
def damaged_files(draw, name):
    """A valid file, mostly of the format in question, after some accidents."""
    seeds = [seed for format_, seed in SEEDS.items() if name.startswith(format_)]
    content = draw(st.sampled_from([*SEEDS.values(), *seeds * 20]))
    for _ in range(draw(st.integers(0, 4))):
        a, b = sorted(draw(st.integers(0, len(content))) for _ in range(2))
        piece = draw(
            st.sampled_from(PIECES)
            | st.binary(max_size=4)
            | st.sampled_from([content[a:b], *SEEDS.values()])
        )
        b = draw(st.sampled_from([a, a + 1, b]))
        content = content[:a] + piece + content[b:]
    return content


def check(name, path):
    """Read, or be told; nothing else may come out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            READERS[name](path)
        except FileFormatError as error:
            message, shown = str(error), error
        else:
            return
    assert message.startswith(f"{path}, line {shown.line}: " if shown.line else f"{path} ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_readers_read_or_say_why_not(folder, name, data):
    path = folder / "file"
    path.write_bytes(data.draw(damaged_files(name) | st.binary(max_size=200)))
    check(name, path)


@pytest.mark.parametrize("name", ["libsvm", "columns", "guess"])
@settings(max_examples=40, deadline=None)
@given(
    content=st.sampled_from(list(SEEDS.values())),
    compress=st.sampled_from([gzip.compress, bz2.compress, lzma.compress]),
    edits=st.lists(st.tuples(st.integers(0, 1000), st.binary(max_size=3)), max_size=3),
)
def test_damaged_compression(folder, name, content, compress, edits):
    content = compress(content)
    for at, piece in edits:
        at %= len(content)
        content = content[:at] + piece + content[at + len(piece) :]
    path = folder / "file"
    path.write_bytes(content)
    check(name, path)

"""Sentences in columns: CoNLL's files, files to be tagged, and what is written back."""

import os
import zipfile
from pathlib import Path

import pytest

import maxmargin as mm
from maxmargin.data import (
    ColumnFile,
    ColumnSentence,
    FileFormatError,
    Templates,
    iter_columns,
    open_examples,
    read_columns,
    write_columns,
)

CHUNKS = "He PRP B-NP\nreckons VBZ B-VP\n\nYes UH B-INTJ\n"
CONLL2000 = Path(os.environ.get("MAXMARGIN_DATA", "/nowhere"), "conll2000", "conll2000.zip")


def written(tmp_path, content, name="data.txt"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


EXPECTED = [
    ColumnSentence((("He", "reckons"), ("PRP", "VBZ")), ("B-NP", "B-VP")),
    ColumnSentence((("Yes",), ("UH",)), ("B-INTJ",)),
]


@pytest.mark.parametrize(
    "text",
    [
        CHUNKS,
        CHUNKS.rstrip("\n"),
        "\n\n" + CHUNKS.replace("\n\n", "\n \t\n\n\n"),
        CHUNKS.replace(" ", "\t"),
        CHUNKS.replace(" ", " \t  ").replace("\n", " \n"),
        CHUNKS.replace("\n", "\r\n"),
        CHUNKS.replace("\n", "\r"),
        "\ufeff" + CHUNKS,
        "-DOCSTART- -X- O\n\n" + CHUNKS + "\n-DOCSTART- O\n",
    ],
)
def test_files_as_people_have_them(tmp_path, text):
    path = written(tmp_path, text)
    assert read_columns(path) == list(iter_columns(str(path))) == EXPECTED


def test_where_the_tags_stand(tmp_path):
    path = written(tmp_path, CHUNKS)
    assert read_columns(path, tag_column=2) == EXPECTED
    first = read_columns(path, tag_column=1)[0]
    assert first.columns == (("He", "reckons"), ("B-NP", "B-VP"))
    assert first.tags == ("PRP", "VBZ")
    untagged = read_columns(path, tag_column=None)[0]
    assert (len(untagged.columns), untagged.tags, len(untagged)) == (3, None, 2)
    words = read_columns(written(tmp_path, "He\nreckons\n"), tag_column=None)
    assert words == [ColumnSentence((("He", "reckons"),))]


def test_words_may_be_anything(tmp_path):
    odd = "#\t#\tO\nune\xa0fois\t\u2028\tO\n"
    (sentence,) = read_columns(written(tmp_path, odd))
    assert sentence.words == ("#", "une\xa0fois")
    assert sentence.columns[1] == ("#", "\u2028")
    latin = written(tmp_path, "Grüße N\n".encode("latin-1"))
    assert read_columns(latin, encoding="latin-1")[0].words == ("Grüße",)
    with pytest.raises(FileFormatError, match='line 1: the bytes are not UTF-8: pass encoding="la'):
        read_columns(latin)


def test_comments_if_they_are_asked_for(tmp_path):
    path = written(tmp_path, "# id = 1\n" + CHUNKS)
    assert read_columns(path, comment="#") == EXPECTED
    with pytest.raises(
        FileFormatError,
        match=r'2: the number of columns is 3, but 4 in line 1: .* pass comment="#"',
    ):
        read_columns(path)


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (
            "a X\n\nb\n",
            {},
            "line 3: the number of columns is 1, but 2 in line 1: give all lines as many.",
        ),
        ("a X\nb c X\n", {}, "line 2: the number of columns is 3, but 2 in line 1"),
        ("\na\n", {}, "line 2: there is one column only: give tag_column=None"),
        ("a X\n", {"tag_column": 2}, "line 1: there are 2 columns, so that tag_column=2 is none"),
        ("a X\n", {"tag_column": -3}, "line 1: there are 2 columns, so that tag_column=-3"),
        ("a X\nb\0 X\n", {}, "line 2: there is a NUL"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, text, options, complaint):
    path = written(tmp_path, text)
    with pytest.raises(FileFormatError) as raised:
        read_columns(path, **options)
    assert str(raised.value).startswith(f"{path}, {complaint}")
    assert "\n" not in str(raised.value)


def test_an_empty_file_has_no_sentences(tmp_path):
    assert read_columns(written(tmp_path, "")) == []
    assert read_columns(written(tmp_path, "\n\n-DOCSTART- O\n")) == []


def test_reading_on_demand(tmp_path):
    sentences = iter_columns(written(tmp_path, CHUNKS + "\nbad line of five columns\n"))
    assert [next(sentences), next(sentences)] == EXPECTED
    with pytest.raises(FileFormatError, match="line 6: the number of columns is 5"):
        next(sentences)


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz"])
def test_written_with_predictions(tmp_path, name):
    text = write_columns(EXPECTED, [["B-NP", "O"], ["O"]], tmp_path / name)
    assert text == "He PRP B-NP B-NP\nreckons VBZ B-VP O\n\nYes UH B-INTJ O\n\n"
    again = read_columns(tmp_path / name)
    assert [one.tags for one in again] == [("B-NP", "O"), ("O",)]
    assert write_columns(EXPECTED, separator="\t").startswith("He\tPRP\tB-NP\n")
    assert write_columns([ColumnSentence((("He",),))], [[3]]) == "He 3\n\n"


def test_predictions_that_do_not_fit():
    with pytest.raises(ValueError, match="Sentence 1 has 1 tokens, but columns or tags of other"):
        write_columns(EXPECTED, [["O", "O"], ["O", "O"]])
    with pytest.raises(ValueError, match="There are 2 sentences, but tags of 1"):
        write_columns(EXPECTED, [["O", "O"]])


@pytest.mark.skipif(not CONLL2000.exists(), reason="MAXMARGIN_DATA holds no conll2000")
def test_conll_2000(tmp_path):
    with zipfile.ZipFile(CONLL2000) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("test.txt")]
        path = written(tmp_path, archive.read(name))
    sentences = read_columns(path)
    assert len(sentences) == 2012
    assert sum(map(len, sentences)) == 47377
    assert write_columns(sentences).split() == path.read_text().split()


TEMPLATES = Templates("columns: word pos\nword[0]\npos[-1..1]")


@pytest.mark.parametrize("hash_bits", [None, 12])
def test_a_source_of_sentences(tmp_path, hash_bits):
    path = written(tmp_path, CHUNKS * 3)
    source = open_examples(path, templates=TEMPLATES, hash_bits=hash_bits, batch_examples=3)
    assert isinstance(source, ColumnFile)
    for _ in range(2):
        blocks = list(source.batches())
        assert [len(block.y) for block in blocks] == [3, 1]
        assert blocks[0].y[:2] == [("B-NP", "B-VP"), ("B-INTJ", "B-NP", "B-VP")]
        assert [x.shape[0] if hash_bits else len(x) for x in blocks[0].X] == [2, 3, 3]
        assert source.n_examples == 4
    assert source.classes().tolist() == ["B-INTJ", "B-NP", "B-VP"]
    assert (
        source.fingerprint()
        == ColumnFile(
            str(path), templates=Templates(str(TEMPLATES)), hash_bits=hash_bits
        ).fingerprint()
    )
    assert source.fingerprint() != ColumnFile(path, templates=Templates("word[0]")).fingerprint()
    tagger = mm.SequenceTagger(C=10.0).fit(source)
    block = blocks[0]
    assert [tags.tolist() for tags in tagger.predict(block.X)] == [list(tags) for tags in block.y]


def test_sources_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match="Standard input can be read only once"):
        open_examples("-", templates=TEMPLATES)
    with pytest.raises(ValueError, match="templates must be Templates, not str"):
        ColumnFile("train.txt", templates="word[0]")
    with pytest.raises(
        FileFormatError, match="line 2: the number of columns is 1, but 3 in line 1"
    ):
        list(ColumnFile(written(tmp_path, "a b c\nd\n"), templates=TEMPLATES).batches())

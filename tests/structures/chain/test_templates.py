"""Feature templates: what a file asks for is what a tagger gets, by name or hashed."""

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import maxmargin as mm
from maxmargin.data import ColumnSentence, FileFormatError, Templates, read_columns
from maxmargin.structures.chain.vocabulary import Vocabulary

SENTENCE = ColumnSentence((("The", "12-year", "IBM"), ("DT", "JJ", "NNP")))
CONLL2000 = Path(os.environ.get("MAXMARGIN_DATA", "/nowhere"), "conll2000", "conll2000.zip")


def found(line, position, columns="word pos"):
    """What one line of a template file finds, without what it does not."""
    features = Templates(f"columns: {columns}\n{line}").features(SENTENCE)[position]
    return {name: value for name, value in features.items() if value is not None}


@pytest.mark.parametrize(
    ("line", "position", "expected"),
    [
        ("word[0]", 0, {"word[0]": "The"}),
        (" word [ +1 ]  # next", 0, {"word[1]": "12-year"}),
        ("word[-1]", 0, {"word[-1]": "<s>"}),
        ("word[-2..-1]", 2, {"word[-2]": "The", "word[-1]": "12-year"}),
        ("word[5]", 0, {"word[5]": "</s>"}),
        ("pos[0]", 2, {"pos[0]": "NNP"}),
        ("lower(word[0])", 2, {"lower(word[0])": "ibm"}),
        ("shape(word[0])", 0, {"shape(word[0])": "Xx"}),
        ("shape(word[0])", 1, {"shape(word[0])": "0-x"}),
        ("shape(word[1])", 2, {"shape(word[1])": "</s>"}),
        ("prefix(word[0], 1..2)", 2, {"prefix(word[0],1)": "I", "prefix(word[0],2)": "IB"}),
        ("prefix(word[0], 3..4)", 2, {"prefix(word[0],3)": "IBM"}),
        ("suffix(lower(word[0]),2)", 2, {"suffix(lower(word[0]),2)": "bm"}),
        ("suffix(word[-1], 2)", 0, {"suffix(word[-1],2)": "<s>"}),
        ("digit(word[0])", 1, {"digit(word[0])": "yes"}),
        ("digit(word[0])", 0, {}),
        ("digit(word[-1])", 0, {}),
        ("capital(word[0])", 0, {"capital(word[0])": "yes"}),
        ("word[-1] word[0]", 1, {"word[-1] word[0]": "The 12-year"}),
        ("pos[-1] pos[0] pos[1]", 0, {"pos[-1] pos[0] pos[1]": "<s> DT JJ"}),
        ("capital(word[0]) pos[0]", 1, {}),
        ("capital(word[0]) pos[0]", 2, {"capital(word[0]) pos[0]": "yes NNP"}),
        ("word[0..1] pos[0]", 0, {"word[0] pos[0]": "The DT", "word[1] pos[0]": "12-year DT"}),
        ("U01:%x[-1,0]/%x[0,1]", 1, {"U01": "The JJ"}),
        ("U02:%x[-1,0]\nB", 0, {"U02": "<s>"}),
    ],
)
def test_what_a_line_finds(line, position, expected):
    assert found(line, position) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("word[0]\nwort[0]", "line 2: 'wort' is neither a column nor a function: word, lower, sh"),
        ("word", r"line 1: \[ should come next, but the line ends"),
        ("word[x]", r"line 1: a number should come next, but there is 'x\]'"),
        ("word[0", r"line 1: \] should come next, but the line ends"),
        ("word[2..1]", r"line 1: 2\.\.1 must be from -100 to 100 and ascend"),
        ("word[101]", "line 1: 101 must be from -100 to 100"),
        ("word[99999999999999]", "line 1: 99999999999999 must be from -100 to 100"),
        ("word[" + "9" * 5000 + "]", "line 1: 9{30} must be from"),
        ("prefix(word[0])", r"line 1: , should come next, but there is '\)'"),
        ("prefix(word[0], 0)", "line 1: 0 must be from 1 to 100"),
        ("lower(word[0], 3)", r"line 1: \) should come next, but there is ', 3\)'"),
        ("lower[0]", r"line 1: \( should come next"),
        (
            "word[0] $",
            r"line 1: the name of a column or a function should come next, but there is '\$'",
        ),
        ("\n\nword[0]\nword[-1..1]", r"line 4: 'word\[0\]' stands in line 3 already"),
        ("word[0]\ncolumns: word pos", "line 2: the columns are named once, before the first"),
        ("columns: word word\nword[0]", "line 1: write the names of the columns, each once"),
        ("columns:\nword[0]", "line 1: write the names of the columns"),
        ("columns: 3\nword[0]", "line 1: '3' cannot name a column"),
        ("columns: lower\nword[0]", "line 1: 'lower' cannot name a column"),
        ("word[-100..100] word[-100..100]", "line 1: the line asks for 40401 features"),
        ("U00:%x[0,0]\nU00:%x[1,0]", "line 2: 'U00' stands in line 1 already"),
        ("U00:%x[0]", r"line 1: a line of CRF\+\+ must hold places such as %x\[-1,0\]"),
        ("U00:%x[200,0]", "line 1: 100 tokens are the farthest"),
        ("columns: word\nU00:%x[0,1]", "line 2: there are only 1 columns"),
        ("B01:%x[0,0]", "line 1: features of pairs of tags .* pair_features"),
        ("# nothing\n", "the templates names no feature|names no feature: write one a line"),
        ("(" * 1000, "line 1: the name of a column"),
        ("lower(" * 1000 + "word[0]" + ")" * 1000, "line 1: functions are nested deeper than 8"),
    ],
)
def test_errors_name_the_line(text, complaint):
    with pytest.raises(FileFormatError, match=complaint) as raised:
        Templates(text)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_the_text_is_kept(tmp_path):
    text = "columns: word pos # mine\nword[0]\n\npos[-1..1]\n"
    templates = Templates(text)
    assert str(templates) == text
    assert Templates(str(templates)) == templates
    assert pickle.loads(pickle.dumps(templates)) == templates
    assert repr(templates) == "<Templates: 4 features of word pos>"
    (tmp_path / "templates.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert Templates.read(tmp_path / "templates.txt") == templates
    (tmp_path / "templates.txt").write_text("word[")
    with pytest.raises(FileFormatError, match=r"templates\.txt, line 1: a number should come"):
        Templates.read(tmp_path / "templates.txt")
    assert len({templates, Templates(text), Templates("word[0]")}) == 2


def test_sentences_of_all_kinds():
    templates = Templates("columns: word pos\nword[0]\npos[0]")
    expected = templates.features(SENTENCE)
    assert templates.features(list(zip(*SENTENCE.columns, strict=True))) == expected
    assert Templates("word[0]").features(("a", "b")) == [{"word[0]": "a"}, {"word[0]": "b"}]
    assert templates.features([]) == Templates("word[0]").features([]) == []
    assert templates.transform([SENTENCE, []]) == [expected, []]
    with pytest.raises(ValueError, match=r"are of 2 columns \(word pos\), but a sentence has 1"):
        templates.features(["a", "b"])


@pytest.mark.parametrize("n_columns", [1, 2, 3, 5])
def test_default(n_columns):
    templates = Templates.default(n_columns)
    assert len(templates.columns) == n_columns
    assert len(templates.names) == 19 + 10 * (n_columns - 1)
    sentence = ColumnSentence((("Dogs", "bark"),) * n_columns)
    assert len(templates.features(sentence)[1]) == len(templates.names)
    with pytest.raises(ValueError, match="n_columns must be at least 1"):
        Templates.default(0)


def test_hashed_rows_are_the_features():
    """With enough bits no two features share a column: rows differ as the features do."""
    templates = Templates(str(Templates.default(2)) + "capital(word[0]) pos[0]\n")
    random = np.random.default_rng(0)
    words = ["The", "dog", "barks", "IBM", "3.5", "a", "<s>"]
    sentences = [
        ColumnSentence((tuple(random.choice(words, n)), tuple(random.choice(["N", "V"], n))))
        for n in (3, 1, 5, 2)
    ]
    named, _ = Vocabulary().matrix(templates.transform(sentences), grow=True)
    hashed, lengths = templates.hashed(sentences, bits=24)
    assert lengths.tolist() == [3, 1, 5, 2]
    assert hashed.shape == (11, 2**24)
    assert hashed.has_canonical_format
    np.testing.assert_array_equal((hashed @ hashed.T).toarray(), (named @ named.T).toarray())
    assert (np.unique(hashed.indices).shape, hashed.nnz) == ((named.shape[1],), named.nnz)
    few, _ = templates.hashed(sentences, bits=3)
    assert few.sum() == hashed.sum()
    for bits in (0, 31):
        with pytest.raises(ValueError, match="bits must be from 1 to 30"):
            templates.hashed(sentences, bits)


def test_hashes_are_the_same_in_every_process():
    script = (
        "from maxmargin.data import Templates\n"
        "X, _ = Templates.default().hashed([['Grüße', 'an', 'alle']], bits=16)\n"
        "print(X.indices.tolist())"
    )
    outputs = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, env=environment
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_no_sentences_at_all():
    X, lengths = Templates.default().hashed([], bits=4)
    assert X.shape == (0, 16)
    assert lengths.tolist() == []
    assert Templates.default().hashed([[], ["a"], []], bits=4)[1].tolist() == [0, 1, 0]


def test_what_is_kept_of_words_is_bounded(monkeypatch):
    monkeypatch.setattr("maxmargin.structures.chain.templates._MOST_KEPT", 5)
    templates = Templates("lower(word[0])\nword[0]")
    words = [f"W{i}" for i in range(50)]
    assert [one["lower(word[0])"] for one in templates.features(words)] == [
        word.lower() for word in words
    ]
    assert all(len(view.texts) <= 5 for view in templates._views)


@settings(max_examples=300, deadline=None)
@given(
    st.text("word[]()lower,prefix0123.-: #\nUB%x\tcolumns", max_size=60)
    | st.lists(
        st.sampled_from(
            ["word[0]", "lower(", ")", "prefix(word[0],", "1..3", "columns:", "\n", "U0:%x[0,0]"]
        ),
        max_size=8,
    ).map(" ".join)
    | st.text(max_size=30)
)
def test_any_text_is_templates_or_an_error_with_a_line(text):
    try:
        templates = Templates(text)
    except FileFormatError as error:
        line = error.line or 1
    else:
        line = None
    if line is not None:
        assert 1 <= line <= text.count("\n") + 1
        return
    features = templates.features(ColumnSentence((("a", "B2"),) * len(templates.columns)))
    assert all(list(one) == templates.names for one in features)
    assert Templates(str(templates)).names == templates.names


@pytest.mark.skipif(not CONLL2000.exists(), reason="MAXMARGIN_DATA holds no conll2000")
@pytest.mark.parametrize("hashed", [False, True])
def test_tagging_real_text(tmp_path, hashed):
    with zipfile.ZipFile(CONLL2000) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("test.txt")]
        (tmp_path / "chunks.txt").write_bytes(archive.read(name))
    sentences = read_columns(tmp_path / "chunks.txt")
    train, test = sentences[:100], sentences[100:200]
    templates = Templates.default(2)
    tagger = mm.SequenceTagger(C=0.1, tol=0.1)
    y_train, y_test = [one.tags for one in train], [one.tags for one in test]
    if hashed:
        X, lengths = templates.hashed(train, 16)
        tagger.fit(X, np.concatenate(y_train), lengths=lengths)
        X, lengths = templates.hashed(test, 16)
        score = tagger.score(X, np.concatenate(y_test), lengths=lengths)
    else:
        tagger.fit(templates.transform(train), y_train)
        score = tagger.score(templates.transform(test), y_test)
    assert score > 0.85

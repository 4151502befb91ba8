"""Feature templates of taggers, in the language of docs/file-formats.md; nothing of it is run."""

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, product
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import SampledHash
from maxmargin.data.files import STANDARD_INPUT, FileFormatError, PathLike, shown_name, text_of
from maxmargin.data.sources import CountedSource, Examples
from maxmargin.structures.chain.formats import ColumnSentence, iter_columns

FARTHEST = 100
"""Bound on offsets of tokens, and on letters of prefixes and suffixes."""

MOST_FEATURES = 1000
"""Bound on the features of a token."""

_DEEPEST = 8
_COLUMNS = re.compile(r"columns\s*:(.*)")
_NAME = re.compile(r"[^\W\d]\w*")
_CRF_LINE = re.compile(r"U[^:\s]*:\S*")
_CRF_PLACE = re.compile(r"%x\[\s*(-?\d{1,4})\s*,\s*(\d{1,4})\s*\]")
_TOKEN = re.compile(r"\s*(?:([^\W\d]\w*)|([+-]?\d+)|(\.\.)|([\[\](),]))")
_NAME_KIND, _NUMBER_KIND, _DOTS_KIND, _SIGN_KIND = range(1, 5)


def _shape(word: str) -> str:
    """Capitals as X, other letters as x, digits as 0, each run of them once."""
    shape = ""
    for letter in word:
        kind = (
            "X" if letter.isupper() else
            "x" if letter.isalpha() else
            "0" if letter.isdigit() else letter
        )  # fmt: skip
        if not shape.endswith(kind):
            shape += kind
    return shape


def _yes(holds: bool) -> str | None:
    return "yes" if holds else None


FUNCTIONS: dict[str, Callable[..., str | None]] = {
    "lower": str.lower,
    "shape": _shape,
    "digit": lambda word: _yes(any(map(str.isdigit, word))),
    "capital": lambda word: _yes(word[:1].isupper()),
    "prefix": lambda word, n: word[:n] if len(word) >= n else None,
    "suffix": lambda word, n: word[-n:] if len(word) >= n else None,
}
"""Functions of a word: the new text, or None for no feature."""

PARTS = "prefix", "suffix"
"""Functions that take a number of letters."""

TESTS = "digit", "capital"
"""Functions that only say whether something holds, which beyond the sentence it does not."""


class Step(NamedTuple):
    """A function, with its number if it takes one."""

    function: str
    numbers: tuple[int, ...] = ()


class Place(NamedTuple):
    """A column of a token nearby, and the functions applied to it."""

    column: int
    steps: tuple[Step, ...]  # first to last
    offset: int  # of the token, from that which gets the feature

    def has_one_of(self, functions: Sequence[str]) -> bool:
        return any(step.function in functions for step in self.steps)


class Template(NamedTuple):
    """One feature: its name, and the places whose contents are its value."""

    name: str
    places: tuple[Place, ...]


class TemplateError(ValueError):
    """What is wrong with a line; the caller adds which one."""


def parse_columns(line: str) -> list[str] | None:
    """Names of the columns, if the line gives them."""
    match = _COLUMNS.fullmatch(line)
    if match is None:
        return None
    names = match[1].split()
    for name in names:
        if not _NAME.fullmatch(name) or name in FUNCTIONS:
            raise TemplateError(
                f"{name!r:.50} cannot name a column: take letters, digits and _, and no function."
            )
    if len(set(names)) < len(names) or not names:
        raise TemplateError("write the names of the columns, each once: columns: word pos.")
    return names


def parse_line(line: str, columns: Sequence[str]) -> list[Template]:
    """The templates of a line: several, if it has a range."""
    if line == "B":  # transitions, which taggers here always have
        return []
    if _CRF_LINE.fullmatch(line):
        return [_crf_template(line)]
    if line.startswith("B") and "%x[" in line:
        raise TemplateError(
            "features of pairs of tags are no templates here: give SequenceTagger pair_features."
        )
    parts = _Line(line, columns).parts()
    n = math.prod(map(len, parts))
    if n > MOST_FEATURES:
        raise TemplateError(f"the line asks for {n} features: {MOST_FEATURES} are the most.")
    return [
        Template(" ".join(_written(place, columns) for place in places), places)
        for places in product(*parts)
    ]


def _crf_template(line: str) -> Template:
    """A line of CRF++; constant text between its places is left out."""
    name, _, rest = line.partition(":")
    places = tuple(Place(int(match[2]), (), int(match[1])) for match in _CRF_PLACE.finditer(rest))
    if not places or "%" in _CRF_PLACE.sub("", rest):
        raise TemplateError("a line of CRF++ must hold places such as %x[-1,0].")
    if any(abs(place.offset) > FARTHEST for place in places):
        raise TemplateError(f"{FARTHEST} tokens are the farthest that a template can look.")
    return Template(name, places)


def _written(place: Place, columns: Sequence[str]) -> str:
    text = f"{columns[place.column]}[{place.offset}]"
    for function, numbers in place.steps:
        text = f"{function}({','.join([text, *map(str, numbers)])})"
    return text


class _Line:
    """Parser of a line of our own language."""

    def __init__(self, line: str, columns: Sequence[str]) -> None:
        self._line, self._columns, self._at = line, columns, 0

    def parts(self) -> list[list[Place]]:
        """Places of each part, several for a range."""
        parts = []
        while self._line[self._at :].strip():
            parts.append(self._part(0))
        return parts

    def _part(self, depth: int) -> list[Place]:
        start = self._at
        name = self._next(_NAME_KIND, "the name of a column or a function")
        if name in FUNCTIONS:
            if depth == _DEEPEST:
                raise TemplateError(f"functions are nested deeper than {_DEEPEST}.")
            self._sign("(")
            inner = self._part(depth + 1)
            steps = [Step(name)]
            if name in PARTS:
                self._sign(",")
                steps = [Step(name, (n,)) for n in self._range(1)]
            self._sign(")")
            return [place._replace(steps=(*place.steps, step)) for step in steps for place in inner]
        if name not in self._columns:
            known = ", ".join([*self._columns, *FUNCTIONS])
            self._at = start
            raise TemplateError(f"{name!r:.50} is neither a column nor a function: {known} are.")
        self._sign("[")
        offsets = self._range(-FARTHEST)
        self._sign("]")
        return [Place(self._columns.index(name), (), offset) for offset in offsets]

    def _range(self, least: int) -> range:
        """A number, or a range ``first..last``."""
        numbers = [self._next(_NUMBER_KIND, "a number")]
        match = _TOKEN.match(self._line, self._at)
        if match is not None and match.lastindex == _DOTS_KIND:
            self._at = match.end()
            numbers.append(self._next(_NUMBER_KIND, "a number"))
        # No longer than the farthest: Python takes its time for numbers of a million digits.
        ends = [int(number) if len(number) < 9 else FARTHEST + 1 for number in numbers]
        if not least <= ends[0] <= ends[-1] <= FARTHEST:
            written = "..".join(number[:30] for number in numbers)
            order = " and ascend" if len(ends) > 1 else ""
            raise TemplateError(f"{written} must be from {least} to {FARTHEST}{order}.")
        return range(ends[0], ends[-1] + 1)

    def _sign(self, sign: str) -> None:
        self._next(_SIGN_KIND, sign, sign)

    def _next(self, kind: int, wanted: str, exactly: str | None = None) -> str:
        match = _TOKEN.match(self._line, self._at)
        if match is None or match.lastindex != kind or exactly not in (None, match[kind]):
            found = self._line[self._at :].strip()
            rest = f"there is {found!r:.30}" if found else "the line ends"
            raise TemplateError(f"{wanted} should come next, but {rest}.")
        self._at = match.end()
        return match[kind]


BEGIN, END = "<s>", "</s>"
"""Tokens before and after a sentence."""

_USUAL_COLUMNS = "word", "pos", "chunk"


def _usual_names(n_columns: int) -> list[str]:
    """Default names of columns."""
    return [*_USUAL_COLUMNS, *(f"column{k + 1}" for k in range(3, n_columns))][:n_columns]


_OF_WORDS = """\
word[-2..2]
word[-1] word[0]
word[0] word[1]
lower(word[0])
prefix(word[0], 1..4)
suffix(word[0], 1..4)
shape(word[-1..1])
"""

_OF_OTHERS = """\
{0}[-2..2]
{0}[-2] {0}[-1]
{0}[-1] {0}[0]
{0}[0] {0}[1]
{0}[1] {0}[2]
{0}[-1] {0}[0] {0}[1]
"""

_MOST_KEPT = 1 << 20
"""Words whose features are cached."""

_BATCH = 1024
"""Sentences hashed together."""

_MOST_BITS = 30

_NOTHING = np.uint64(0)
_ODD, _ODDER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)

_Kept = TypeVar("_Kept")
_Columns = Sequence[Sequence[str]]
_Codes = NDArray[np.uint64]


class Templates:
    r"""Feature templates for tagging, from a text that names one feature a line.

    The language, and what it makes of lines of CRF++, is described in :doc:`/file-formats`.

    Parameters
    ----------
    text : str
        Lines of the template file.
    source : str, default="the templates"
        What to call the text in errors.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns that a sentence must have.
    names : list of str
        Of the features, in the order of the lines.

    Raises
    ------
    FileFormatError
        With the line, if it is no template.

    See Also
    --------
    maxmargin.data.read_columns : Sentences that templates are for.
    maxmargin.SequenceTagger : What takes their features.

    Examples
    --------
    >>> from maxmargin.data import Templates
    >>> templates = Templates("word[0]\nword[-1]\nsuffix(word[0], 1..2)")
    >>> for features in templates.features(["Dogs", "bark"]):
    ...     print(features)
    {'word[0]': 'Dogs', 'word[-1]': '<s>', 'suffix(word[0],1)': 's', 'suffix(word[0],2)': 'gs'}
    {'word[0]': 'bark', 'word[-1]': 'Dogs', 'suffix(word[0],1)': 'k', 'suffix(word[0],2)': 'rk'}
    """

    def __init__(self, text: str, source: str = "the templates") -> None:
        self._text = text.strip("\n") + "\n"
        self.columns, self._templates = _parsed(text, source)
        self.names = [template.name for template in self._templates]
        places = [place for template in self._templates for place in template.places]
        offsets = [place.offset for place in places]
        self._before, self._after = max(0, -min(offsets)), max(0, max(offsets))
        # Places that differ in their offset only share what is read.
        views = {(place.column, place.steps): _View(place) for place in places}
        self._views = list(views.values())
        self._plan = [
            [(views[place.column, place.steps], place.offset) for place in template.places]
            for template in self._templates
        ]
        self._joins = [
            _together if any(p.has_one_of((*TESTS, *PARTS)) for p in template.places) else " ".join
            for template in self._templates
        ]

    @classmethod
    def read(cls, path: PathLike, encoding: str | None = None) -> "Templates":
        """From a template file."""
        return cls(text_of(path, encoding), shown_name(path))

    @classmethod
    def default(cls, n_columns: int = 1) -> "Templates":
        """Good features of words and, for `n_columns` above 1 (tags aside), of further columns."""
        if n_columns < 1:
            raise ValueError(f"n_columns must be at least 1, but is {n_columns}.")
        names = _usual_names(n_columns)
        others = "".join(_OF_OTHERS.format(name) for name in names[1:])
        return cls(f"columns: {' '.join(names)}\n{_OF_WORDS}{others}")

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Templates: {len(self.names)} features of {' '.join(self.columns)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Templates) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Templates, (self._text,)

    def features(self, sentence: Any) -> list[dict[str, str | None]]:
        """Features of each token of a sentence.

        Parameters
        ----------
        sentence : ColumnSentence, list of words, or list of tuples
            Tuples hold the columns of a token.

        Returns
        -------
        features : list of dict
            As `maxmargin.SequenceTagger` takes them; None where there is no feature.
        """
        columns = self._columns_of(sentence)
        n, before, after = len(columns[0]), self._before, self._after
        read = {
            view: [
                *[view.texts[BEGIN]] * before,
                *map(view.texts.__getitem__, columns[view.column]),
                *[view.texts[END]] * after,
            ]
            for view in self._views
        }
        values: list[Iterable[str | None]] = []
        for places, join in zip(self._plan, self._joins, strict=True):
            parts = [read[view][before + offset : before + offset + n] for view, offset in places]
            values.append(parts[0] if len(parts) == 1 else map(join, zip(*parts, strict=True)))
        names = self.names
        return [
            dict(zip(names, found, strict=False))  # they are as many, and strict takes its time
            for found in zip(*values, strict=True)
        ]

    def transform(self, sentences: Iterable[Any]) -> list[list[dict[str, str | None]]]:
        """Features of all tokens of some sentences, each as `features` takes it."""
        return [self.features(sentence) for sentence in sentences]

    def hashed(
        self, sentences: Iterable[Any], bits: int = 18
    ) -> tuple[sp.csr_array, NDArray[np.int64]]:
        """The features as rows of a matrix, hashed to columns; no names are kept.

        Parameters
        ----------
        sentences : iterable
            As `features` takes them.
        bits : int, default=18
            The matrix has ``2**bits`` columns: the more, the fewer features share one.

        Returns
        -------
        X : csr_array of shape (n_tokens, 2**bits)
            The same in every process and on every machine.
        lengths : ndarray of shape (n_sentences,)
            Tokens of each sentence; `maxmargin.SequenceTagger` takes both.

        Examples
        --------
        >>> from maxmargin.data import Templates
        >>> X, lengths = Templates.default().hashed([["Dogs", "bark"], ["Go"]], bits=10)
        >>> X.shape, lengths
        ((3, 1024), array([2, 1]))
        """
        if not 1 <= bits <= _MOST_BITS:
            raise ValueError(f"bits must be from 1 to {_MOST_BITS}, but are {bits}.")
        waiting = iter(sentences)
        lengths: list[int] = []
        indices, sizes = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        while batch := [self._columns_of(one) for one in islice(waiting, _BATCH)]:
            codes = self._batch_codes(batch)
            indices.append((codes & np.uint64((1 << bits) - 1)).astype(np.int32)[codes != _NOTHING])
            sizes.append((codes != _NOTHING).sum(axis=1))
            lengths += [len(columns[0]) for columns in batch]
        places, starts = np.concatenate(indices), np.cumsum(np.concatenate(sizes))
        shape = len(starts) - 1, 1 << bits
        X = sp.csr_array((np.ones(len(places)), places, starts), shape=shape)
        X.sum_duplicates()
        return X, np.array(lengths, dtype=np.int64)

    def _batch_codes(self, batch: list[_Columns]) -> _Codes:
        """Hashes of all features, one row a token."""
        before, after = [BEGIN] * self._before, [END] * self._after
        flat = [
            list(chain.from_iterable(chain(before, one[k], after) for one in batch))
            for k in range(len(self.columns))
        ]
        lengths = np.array([len(columns[0]) for columns in batch])
        tokens = np.arange(lengths.sum()) + self._before
        tokens += np.repeat(np.arange(len(batch)) * (len(before) + len(after)), lengths)
        n_read = len(flat[0])
        read = {
            view: np.fromiter(map(view.codes.__getitem__, flat[view.column]), np.uint64, n_read)
            for view in self._views
        }
        codes = np.empty((len(tokens), len(self.names)), dtype=np.uint64)
        for j, places in enumerate(self._plan):
            code = np.full(len(tokens), _code(self.names[j]), dtype=np.uint64)
            missing = np.zeros(len(tokens), dtype=bool)
            for view, offset in places:
                found = read[view][tokens + offset]
                missing |= found == _NOTHING
                code = _mixed(code, found)
            codes[:, j] = np.where(missing, _NOTHING, code)
        return codes

    def _columns_of(self, sentence: Any) -> _Columns:
        columns: _Columns
        if isinstance(sentence, ColumnSentence):
            columns = sentence.columns
        elif len(sentence) and isinstance(sentence[0], str):
            columns = [sentence]
        else:
            columns = list(zip(*sentence, strict=True)) or [()] * len(self.columns)
        if len(columns) < len(self.columns):
            raise ValueError(
                f"The templates are of {len(self.columns)} columns ({' '.join(self.columns)}), but "
                f"a sentence has {len(columns)}: name those that there are in the line columns:."
            )
        return columns


class _View:
    """A column after some functions."""

    def __init__(self, place: Place) -> None:
        self.column, self.steps = place.column, place.steps
        self.texts = _Memory(self._text)
        self.codes = _Memory(lambda word: _code(self.texts[word]))
        self._has_test = place.has_one_of(TESTS)

    def _text(self, word: str) -> str | None:
        if word in (BEGIN, END):
            return None if self._has_test else word
        found: str | None = word
        for function, numbers in self.steps:
            found = None if found is None else FUNCTIONS[function](found, *numbers)
        return found


class _Memory(dict[str, _Kept], Generic[_Kept]):
    """A bounded cache of a function of words."""

    def __init__(self, function: Callable[[str], _Kept]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, word: str) -> _Kept:
        if len(self) >= _MOST_KEPT:
            self.clear()
        made = self[word] = self._function(word)
        return made


def _together(found: tuple[str | None, ...]) -> str | None:
    return None if None in found else " ".join(found)  # type: ignore[arg-type]


def _code(found: str | None) -> int:
    """A hash of 64 bits, the same in every process; `_NOTHING` of None."""
    if found is None:
        return int(_NOTHING)
    digest = hashlib.blake2b(found.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def _mixed(first: _Codes, second: _Codes) -> _Codes:
    """The hash of an ordered pair of hashes."""
    code = (first * _ODD) ^ second
    code = (code ^ (code >> np.uint64(32))) * _ODDER
    return code ^ (code >> np.uint64(32))


def _parsed(text: str, source: str) -> tuple[tuple[str, ...], list[Template]]:
    """Names of the columns, and templates, of a text."""
    columns: list[str] | None = None
    lines: dict[str, int] = {}
    templates: list[Template] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            named = parse_columns(line)
            if named is not None and (templates or columns):
                raise TemplateError("the columns are named once, before the first feature.")
            columns = named or columns
            new = [] if named else parse_line(line, columns or _USUAL_COLUMNS[:1])
            for template in new:
                if columns and max(place.column for place in template.places) >= len(columns):
                    raise TemplateError(f"there are only {len(columns)} columns.")
                if template.name in lines:
                    first = lines[template.name]
                    raise TemplateError(f"{template.name!r:.80} stands in line {first} already.")
                lines[template.name] = number
        except TemplateError as error:
            raise FileFormatError(source, number, str(error)) from None
        templates += new
        if len(templates) > MOST_FEATURES:
            raise FileFormatError(source, number, f"there are more than {MOST_FEATURES} features.")
    if not templates:
        raise FileFormatError(source, None, "names no feature: write one a line, such as word[0].")
    n_columns = 1 + max(place.column for one in templates for place in one.places)
    return tuple(columns or _usual_names(n_columns)), templates


def features_of(templates: Templates, sentences: Sequence[Any], hash_bits: int | None) -> list[Any]:
    """Feature dictionaries or, with `hash_bits`, hashed rows, of each sentence."""
    if hash_bits is None:
        return templates.transform(sentences)
    rows, lengths = templates.hashed(sentences, hash_bits)
    return [rows[a:b] for a, b in pairwise([0, *np.cumsum(lengths).tolist()])]


class ColumnFile(CountedSource):
    r"""Tagged sentences of a file in columns, read anew in each pass.

    Inputs are lists of feature dictionaries, or CSR matrices if they are hashed, one row a token;
    targets are the tags of each sentence.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd.
    templates : Templates
        Which features there are.
    tag_column : int, default=-1
        Where the tags stand.
    hash_bits : int, default=None
        Hash features to ``2**hash_bits`` columns; None keeps their names.
    encoding : str, default=None
        Such as ``"latin-1"``; None is UTF-8.
    batch_examples : int, default=1024
        Sentences that are read at a time.

    See Also
    --------
    read_columns : The whole file at once.
    maxmargin.SequenceTagger : What takes this in its ``fit``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from maxmargin.data import ColumnFile, Templates
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.txt")
    ...     _ = path.write_text("He B-NP\nreckons B-VP\n\nYes B-INTJ\n")
    ...     for batch in ColumnFile(path, templates=Templates("word[0]")).batches():
    ...         print(batch.X[1], batch.y)
    [{'word[0]': 'Yes'}] [('B-NP', 'B-VP'), ('B-INTJ',)]
    """

    def __init__(
        self,
        path: PathLike,
        *,
        templates: Templates,
        tag_column: int = -1,
        hash_bits: int | None = None,
        encoding: str | None = None,
        batch_examples: int = 1024,
    ) -> None:
        super().__init__()
        if not isinstance(templates, Templates):
            raise ValueError(f"templates must be Templates, not {type(templates).__name__}.")
        self.path = os.fspath(path)
        if self.path == STANDARD_INPUT:
            raise ValueError(
                "Standard input can be read only once: save it to a file, or use read_columns."
            )
        self.templates, self.hash_bits = templates, hash_bits
        self.tag_column, self.encoding = tag_column, encoding
        self.batch_examples = batch_examples

    def fingerprint(self) -> str:
        content = SampledHash(type(self).__name__)
        content.add([str(self.templates), self.hash_bits, self.tag_column, self.encoding])
        content.add_file(self.path)
        return content.text()

    def _read(self) -> Iterator[Examples]:
        sentences = iter_columns(self.path, tag_column=self.tag_column, encoding=self.encoding)
        while batch := list(islice(sentences, self.batch_examples)):
            X = features_of(self.templates, batch, self.hash_bits)
            yield Examples(X, [sentence.tags for sentence in batch])

    def _name(self) -> str:
        return repr(self.path)

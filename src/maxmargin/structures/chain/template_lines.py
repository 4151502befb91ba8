"""The language of feature templates: lines of a template file, taken apart.

`maxmargin.structures.chain.templates` says what they mean. Nothing of a file is ever run.
"""

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

FARTHEST = 100
"""Most tokens that a template looks away, and most letters that it takes of a word."""

MOST_FEATURES = 1000
"""Most features a token that a file may ask for."""

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


FUNCTIONS: dict[str, Callable[[str], str | None]] = {
    "lower": str.lower,
    "shape": _shape,
    "digit": lambda word: _yes(any(map(str.isdigit, word))),
    "capital": lambda word: _yes(word[:1].isupper()),
}
"""What can be done to a word: the new text, or None if there is nothing to be said."""

PARTS: dict[str, Callable[[str, int], str | None]] = {
    "prefix": lambda word, n: word[:n] if len(word) >= n else None,
    "suffix": lambda word, n: word[-n:] if len(word) >= n else None,
}
"""The same with a number of letters."""

TESTS = "digit", "capital"
"""Functions that give a word of their own; beyond the sentence they do not hold."""


class Step(NamedTuple):
    """A function, with its number if it takes one."""

    function: str
    n: int | None = None

    def apply(self, word: str) -> str | None:
        """What it makes of a word."""
        if self.n is None:
            return FUNCTIONS[self.function](word)
        return PARTS[self.function](word, self.n)


class Place(NamedTuple):
    """What a template looks at: a column of a token nearby, and what is done to it.

    Attributes
    ----------
    column : int
    steps : tuple of Step
        First to last.
    offset : int
        Of the token, from that which gets the feature.
    """

    column: int
    steps: tuple[Step, ...]
    offset: int

    @property
    def may_miss(self) -> bool:
        """Whether there may be nothing to be said."""
        return any(step.function in TESTS or step.n is not None for step in self.steps)

    @property
    def has_test(self) -> bool:
        """Whether it only says that something holds."""
        return any(step.function in TESTS for step in self.steps)


class Template(NamedTuple):
    """One feature: its name and the places whose content, put together, is its value."""

    name: str
    places: tuple[Place, ...]


class TemplateError(ValueError):
    """What is wrong with a line; the caller knows which one it is."""


def parse_columns(line: str) -> list[str] | None:
    """Names of the columns, if the line gives them."""
    match = _COLUMNS.fullmatch(line)
    if match is None:
        return None
    names = match[1].split()
    for name in names:
        if not _NAME.fullmatch(name) or name in FUNCTIONS or name in PARTS:
            raise TemplateError(
                f"{name!r:.50} cannot name a column: take letters, digits and _, and no function."
            )
    if len(set(names)) < len(names) or not names:
        raise TemplateError("write the names of the columns, each once: columns: word pos.")
    return names


def parse_line(line: str, columns: Sequence[str]) -> list[Template]:
    """The templates of a line, of which ranges make several.

    Raises
    ------
    TemplateError
        If it is none.
    """
    if line == "B":  # transitions, which taggers here always have
        return []
    if _CRF_LINE.fullmatch(line):
        return [_crf_template(line)]
    if line.startswith("B") and "%x[" in line:
        raise TemplateError(
            "features of pairs of tags are no templates here: give SequenceTagger pair_features."
        )
    parts = _Line(line, columns).parts()
    n = 1
    for part in parts:
        n *= len(part)
    if n > MOST_FEATURES:
        raise TemplateError(f"the line asks for {n} features: {MOST_FEATURES} are the most.")
    return [
        Template(" ".join(_written(place, columns) for place in places), places)
        for places in product(*parts)
    ]


def _crf_template(line: str) -> Template:
    """A line of CRF++; what stands between the places is the same everywhere, and left out."""
    name, _, rest = line.partition(":")
    places = tuple(Place(int(match[2]), (), int(match[1])) for match in _CRF_PLACE.finditer(rest))
    if not places or "%" in _CRF_PLACE.sub("", rest):
        raise TemplateError("a line of CRF++ must hold places such as %x[-1,0].")
    if any(abs(place.offset) > FARTHEST for place in places):
        raise TemplateError(f"{FARTHEST} tokens are the farthest that a template can look.")
    return Template(name, places)


def _written(place: Place, columns: Sequence[str]) -> str:
    text = f"{columns[place.column]}[{place.offset}]"
    for step in place.steps:
        number = "" if step.n is None else f",{step.n}"
        text = f"{step.function}({text}{number})"
    return text


class _Line:
    """A line of our own language, read from left to right."""

    def __init__(self, line: str, columns: Sequence[str]) -> None:
        self._line, self._columns, self._at = line, columns, 0

    def parts(self) -> list[list[Place]]:
        """Places of each part; of several, a range makes one template each."""
        parts = []
        while self._line[self._at :].strip():
            parts.append(self._part(0))
        return parts

    def _part(self, depth: int) -> list[Place]:
        start = self._at
        name = self._next(_NAME_KIND, "the name of a column or a function")
        if name in FUNCTIONS or name in PARTS:
            if depth == _DEEPEST:
                raise TemplateError(f"functions are nested deeper than {_DEEPEST}.")
            self._sign("(")
            inner = self._part(depth + 1)
            steps = [Step(name)]
            if name in PARTS:
                self._sign(",")
                steps = [Step(name, n) for n in self._range(1)]
            self._sign(")")
            return [place._replace(steps=(*place.steps, step)) for step in steps for place in inner]
        if name not in self._columns:
            known = ", ".join([*self._columns, *FUNCTIONS, *PARTS])
            self._at = start
            raise TemplateError(f"{name!r:.50} is neither a column nor a function: {known} are.")
        self._sign("[")
        offsets = self._range(-FARTHEST)
        self._sign("]")
        return [Place(self._columns.index(name), (), offset) for offset in offsets]

    def _range(self, least: int) -> range:
        """One number, or the first and the last of several."""
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

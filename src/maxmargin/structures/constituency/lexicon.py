"""What the words of a sentence say about their tags: the leaves of a grammar.

Either tags are given with the sentence, and the words do not matter; or they are part of what is
predicted, and a word goes with the tags that it had in the treebank, each with a weight. Words that
were seen less than `min_count` times share a class with those that look alike.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_SUFFIXES = ("ing", "ed", "ly", "ion", "er", "est", "al", "ity", "y", "s")

_NUMBER = re.compile(r"[\d.,:/%-]*\d[\d.,:/%-]*(s|th|st|nd|rd)?")


class Sentence(NamedTuple):
    """A sentence to parse; `tags` are None where they are not known."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None


class Leaves(NamedTuple):
    """Tags that the words of some sentences may have.

    The word at position `t`, all sentences one after the other, may have the tags
    ``symbols[starts[t]:starts[t + 1]]``; `columns` are their weights, -1 for none.
    """

    starts: NDArray[np.int64]
    symbols: NDArray[np.int64]
    columns: NDArray[np.int64]


def shape(word: str) -> str:
    """Class of a rare word by its looks: number, capital, hyphen and ending.

    Examples
    --------
    >>> from maxmargin.structures.constituency.lexicon import shape
    >>> shape("1,300"), shape("Nekoosa"), shape("well-suited"), shape("slowly")
    ('<number>', '<Capital>', '<hyphen-ed>', '<-ly>')
    """
    if _NUMBER.fullmatch(word):
        return "<number>"
    begin = "Capital" if word[:1].isupper() else ""
    hyphen = "hyphen" if "-" in word[1:-1] else ""
    ending = next((f"-{end}" for end in _SUFFIXES if word.lower().endswith(end)), "")
    return f"<{begin}{hyphen}{ending}>"


class Lexicon:
    """Tags of words.

    Parameters
    ----------
    tags : dict
        Number of each tag.
    pairs : Counter of (word, tag) or None
        How often the treebank has them; None if sentences come with their tags.
    min_count : int
        Words that were seen as often are classes of their own.

    Attributes
    ----------
    given : bool
        Whether sentences come with their tags.
    entries : list of (class, tag)
        What the weights of the leaves are for, in their order; none if tags are given.
    counts : list of int
        How often the treebank has them.
    """

    UNKNOWN = "<unknown>"
    """Class of words that look as no rare word of the treebank; it counts all of these."""

    def __init__(
        self, tags: dict[str, int], pairs: "Counter[tuple[str, str]] | None", min_count: int
    ) -> None:
        self.tags, self.pairs, self.given = tags, pairs, pairs is None
        self._columns: dict[str, list[tuple[int, int]]] = {}
        words: Counter[str] = Counter()
        for (word, _), count in (pairs or {}).items():
            words[word] += count
        self._known = {word for word, count in words.items() if count >= min_count}
        counts: Counter[tuple[str, str]] = Counter()
        for (word, tag), count in (pairs or {}).items():
            counts[self._class(word), tag] += count
            if word not in self._known or len(self._known) == len(words):
                counts[self.UNKNOWN, tag] += count
        self.entries = sorted(counts)
        self.counts = [counts[entry] for entry in self.entries]
        for column, (name, tag) in enumerate(self.entries):
            self._columns.setdefault(name, []).append((tags[tag], column))

    def _class(self, word: str) -> str:
        return word if word in self._known else shape(word)

    def of_word(self, word: str) -> list[tuple[int, int]]:
        """Tags of a word by number, with the columns of their weights."""
        return self._columns.get(self._class(word)) or self._columns[self.UNKNOWN]

    def commonest_tag(self, word: str) -> str:
        """The tag that words of its class had most often."""
        _, column = max(self.of_word(word), key=lambda pair: self.counts[pair[1]])
        return self.entries[column][1]

    def leaves(self, sentences: Sequence[Sentence], first_column: int) -> Leaves:
        """Of some sentences; the weights of the leaves stand from `first_column` on.

        A given tag that the grammar has not leaves its word without any.
        """
        found: list[list[tuple[int, int]]] = []
        for sentence in sentences:
            if self.given:
                assert sentence.tags is not None
                known = [self.tags.get(tag) for tag in sentence.tags]
                found += [[] if number is None else [(number, -1)] for number in known]
            else:
                found += [
                    [(number, first_column + column) for number, column in self.of_word(word)]
                    for word in sentence.words
                ]
        flat = np.array([pair for pairs in found for pair in pairs], dtype=np.int64).reshape(-1, 2)
        starts = np.zeros(len(found) + 1, dtype=np.int64)
        np.cumsum([len(pairs) for pairs in found], out=starts[1:])
        return Leaves(starts, flat[:, 0].copy(), flat[:, 1].copy())

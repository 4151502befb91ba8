"""What makes heads a dependency tree: compiled checks, and how to make one projective."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.registry import registered

Numbers = NDArray[np.int64]

_FINE, _OUTSIDE, _ITSELF, _CYCLE, _ROOTS, _CROSSING = range(6)


@registered("Structure")
class Structure(NamedTuple):
    """Which trees are meant."""

    projective: bool
    single_root: bool


def check_trees(heads: Numbers, ends: Numbers, structure: Structure) -> None:
    """Refuse heads that are no trees of this structure.

    Parameters
    ----------
    heads : ndarray of int64, shape (n_words,)
        Heads of the words of all sentences.
    ends : ndarray of int64, shape (n_sentences + 1,)
    structure : Structure

    Raises
    ------
    ValueError
        Names the sentence and the word.
    """
    first = np.zeros(2, dtype=np.int64)
    fault = find_fault(heads, ends, *structure, first)
    if fault == _FINE:
        return
    i, word = first.tolist()
    n, head = int(ends[i + 1] - ends[i]), int(heads[ends[i] + word - 1])
    what = {
        _OUTSIDE: f"the head of word {word} is {head}, but heads are 0, the root, to {n}, the last "
        f"word.",
        _ITSELF: f"word {word} is its own head.",
        _CYCLE: f"following the heads from word {word} leads round in a circle, not to the root 0.",
        _ROOTS: f"word {word} is the second one with the root as its head: give each sentence one, "
        f"or set single_root=False.",
        _CROSSING: f"the tree is not projective, the arc from {head} to {word} crosses another: "
        f"set structure='non-projective' or, of a DependencyParser, projectivize=True.",
    }
    raise ValueError(f"Sentence {i}: {what[fault]}")


def projectivized(heads: Numbers, ends: Numbers) -> tuple[Numbers, int]:
    """Projective trees near to the given ones, and how many trees had to change.

    The shortest arc that crosses others is lifted, from its head to the head's head, until none is
    left (Nivre and Nilsson 2005).

    Examples
    --------
    >>> import numpy as np
    >>> projectivized(np.array([3, 0, 2, 1]), np.array([0, 4]))[0].tolist()
    [2, 0, 2, 2]
    """
    lifted = heads.copy()
    n_changed = int(lift_crossing(lifted, ends))
    return lifted, n_changed


@inlined
def _crossing_word(heads):  # type: ignore[no-untyped-def]
    """The word with the shortest arc over a word that is not below its head; 0 if there is none."""
    n = len(heads)
    chosen, shortest = 0, n + 1
    for m in range(1, n + 1):
        h = heads[m - 1]
        if abs(h - m) >= shortest:
            continue
        for between in range(min(h, m) + 1, max(h, m)):
            above = between
            while above != h and above != 0:
                above = heads[above - 1]
            if above != h:
                chosen, shortest = m, abs(h - m)
                break
    return chosen


@compiled
def find_fault(heads, ends, projective, single_root, first):  # type: ignore[no-untyped-def]
    """The kind of the first fault; `first` gets its sentence and its word."""
    for i in range(len(ends) - 1):
        here = heads[ends[i] : ends[i + 1]]
        n = len(here)
        first[0] = i
        n_roots = 0
        for m in range(1, n + 1):
            first[1] = m
            if here[m - 1] < 0 or here[m - 1] > n:
                return _OUTSIDE
            if here[m - 1] == m:
                return _ITSELF
            n_roots += here[m - 1] == 0
            if single_root and n_roots > 1:
                return _ROOTS
        for m in range(1, n + 1):
            above = m
            for _ in range(n):
                if above != 0:
                    above = here[above - 1]
            if above != 0:
                first[1] = m
                return _CYCLE
        if projective:
            first[1] = _crossing_word(here)
            if first[1] > 0:
                return _CROSSING
    return _FINE


@compiled
def lift_crossing(heads, ends):  # type: ignore[no-untyped-def]
    """Lift arcs, shortest first, until none cross; returns how many trees have changed."""
    n_changed = 0
    for i in range(len(ends) - 1):
        here = heads[ends[i] : ends[i + 1]]
        m = _crossing_word(here)
        n_changed += m > 0
        while m > 0:
            here[m - 1] = here[here[m - 1] - 1]
            m = _crossing_word(here)
    return n_changed

"""Tagged sequences in a report."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxmargin.report.answers import LabellingAnswers, PairWeights, text_of

WORD_KEYS = ("word", "token", "form", "w", "w0", "w[0]", "word.lower()")
"""Keys under which feature dictionaries usually have the word."""


class SequenceAnswers(LabellingAnswers):
    """Labels of the positions of sequences."""

    unit = "sequence"

    def pair_weights(self) -> list[PairWeights]:
        caption = "Weight of each label (row) followed by each label (column)"
        return [PairWeights(self.estimator.transitions_, caption, "then")]

    def true_labels(self, y: Any) -> Sequence[Any]:
        """Labels of each sequence, also if given concatenated."""
        if len(y) and np.ndim(y[0]) == 0:
            return np.split(np.asarray(y), np.cumsum([len(z) for z in self.predictions])[:-1])
        return super().true_labels(y)

    def position_names(self, i: int) -> list[str]:
        """Words of feature dictionaries, or the numbers of positions."""
        n = len(self.y_true[i])
        positions = self.X[i] if isinstance(self.X[i], Sequence) else [None] * n
        return [_word(position, at) for at, position in enumerate(positions)]


def _word(position: Any, at: int) -> str:
    if isinstance(position, Mapping):
        for key in WORD_KEYS:
            if isinstance(position.get(key), str):
                return text_of(position[key])
    return str(at + 1)


ANSWERS = (("SequenceTagger", SequenceAnswers),)

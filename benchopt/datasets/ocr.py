"""Handwritten words, letter by letter (Kassel and Taskar), from a local copy."""

import numpy as np

from benchopt import BaseDataset
from maxmargin.data import available, load_letters


class Dataset(BaseDataset):
    """16 x 8 pixels a letter, 26 letters, words of 3 to 14 letters.

    "ocr" trains on fold 0 (626 words) and tests on the others, "ocr2" the other way round. The
    folder named by MAXMARGIN_DATA must have them; nothing is downloaded.
    """

    name = "OCR"
    requirements = ["pip::maxmargin"]
    parameters = {"protocol": ["ocr"]}

    def get_data(self):
        """Words to train and to test on; none where there is no local copy."""
        if not available("letters"):
            return {"X": None, "why": "MAXMARGIN_DATA names no folder with letters/letters.npz"}
        words = load_letters()
        train = (words.folds == 0) == (self.protocol == "ocr")
        result = {}
        for suffix, chosen in (("", train), ("_test", ~train)):
            rows = np.repeat(chosen, words.lengths)
            result[f"X{suffix}"] = words.X[rows]
            result[f"y{suffix}"] = words.y[rows].astype(np.int64)
            result[f"lengths{suffix}"] = words.lengths[chosen]
        return result

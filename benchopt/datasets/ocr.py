"""Handwritten words, letter by letter (Kassel and Taskar), from a local copy."""

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchopt import BaseDataset


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
        path = Path(os.environ.get("MAXMARGIN_DATA", ""), "letters", "letters.npz")
        if not path.is_file():
            return {"X": None, "why": "MAXMARGIN_DATA names no folder with letters/letters.npz"}
        with np.load(path, allow_pickle=False) as words:
            pixels, letters = words["pixels"].astype(np.float64), words["labels"]
            lengths, folds = words["word_lengths"].astype(np.int64), words["folds"]
        train = (folds == 0) == (self.protocol == "ocr")
        result = {}
        for suffix, chosen in (("", train), ("_test", ~train)):
            rows = np.repeat(chosen, lengths)
            result[f"X{suffix}"] = sp.csr_matrix(pixels[rows])
            result[f"y{suffix}"] = letters[rows].astype(np.int64)
            result[f"lengths{suffix}"] = lengths[chosen]
        return result

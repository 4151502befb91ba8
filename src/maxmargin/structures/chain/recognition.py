"""How files of tagged sequences are recognised: tokens in columns, and SVM-hmm's rows."""

import re
from collections import Counter

import numpy as np

from maxmargin.data.formats import MOST_WRONG, FileFormat, Format, Head

DOCUMENT = "-DOCSTART-"
"""First word of the lines that begin a document in CoNLL-2003; no part of a sentence."""

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
fields_of = re.compile("[^ \t]+").findall  # other spaces of Unicode may be part of words


def _recognise_columns(head: Head) -> Format | None:
    """Columns, if nearly all lines have equally many."""
    tokens = [fields for fields in map(fields_of, head.lines) if fields and fields[0] != DOCUMENT]
    if not tokens:
        return None
    (n, most), *_ = Counter(map(len, tokens)).most_common(1)
    if len(tokens) - most > MOST_WRONG * len(tokens):
        return None
    tokens = [fields for fields in tokens if len(fields) == n]
    if all(_NUMBER.fullmatch(field) for fields in tokens[:1000] for field in fields):
        return None  # a table of numbers
    if n == 1:
        if sum("," in fields[0] or ";" in fields[0] for fields in tokens) > 0.5 * len(tokens):
            return None  # a table with commas
        return Format("columns", "tagging", "1 column: words without tags", n_columns=1)
    n_tags = len({fields[-1] for fields in tokens})
    reason = f"{n} columns, {n_tags} tags in the last: tagging"
    doubt = None
    if len(tokens) > 20 and n_tags > 0.5 * len(tokens):
        doubt = "so many tags are rare: is it the last column that holds them?"
    return Format("columns", "tagging", reason, doubt, n)


def _recognise_svm_hmm(head: Head) -> Format | None:
    """Rows with ``qid:`` that do not look like documents."""
    rows, signs = head.grouped_rows, head.signs_of_documents
    if rows is None or sum(signs) >= 2:
        return None
    n_sequences, n_tags = len(np.unique(rows.groups)), len(np.unique(rows.labels))
    doubt = "if lines are documents of queries: --format letor" if any(signs) else None
    reason = f"{n_sequences} qid: with {n_tags} tags: tagging sequences"
    return Format("svm-hmm", "tagging", reason, doubt)


SVM_HMM = FileFormat("svm-hmm", "SVM-hmm", _recognise_svm_hmm, source="SvmHmmFile")
COLUMNS = FileFormat(
    "columns",
    "CoNLL columns",
    _recognise_columns,
    reader="mm.data.read_columns, or open_examples with templates=,",
    source="ColumnFile",
    option="templates",
)

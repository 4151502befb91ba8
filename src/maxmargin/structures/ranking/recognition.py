"""How documents of queries are told from other sparse rows."""

import re

import numpy as np

from maxmargin.data.formats import FileFormat, Format, Head


def _recognise(head: Head) -> Format | None:
    if not all(re.fullmatch(r"-?[0-9]{1,18}", query) for query in head.queries):
        return Format("letor", "ranking", "queries with names: ranking")
    rows, signs = head.grouped_rows, head.signs_of_documents
    if rows is None:
        return None
    if any("docid" in line.partition("#")[2].lower() for line in head.lines[:100]):
        return Format("letor", "ranking", "qid: and document numbers after #: ranking")
    if sum(signs) < 2:
        return None
    n_queries, n_grades = len(np.unique(rows.groups)), len(np.unique(rows.labels))
    doubt = None if all(signs) else "if lines are positions of sequences: --format svm-hmm"
    reason = f"{n_queries} qid: with {n_grades} degrees of relevance: ranking"
    return Format("letor", "ranking", reason, doubt)


LETOR = FileFormat("letor", "LETOR", _recognise, reader="mm.data.read_letor")

"""How files in CoNLL-U format are recognised."""

import re

from maxmargin.data.formats import FileFormat, Format, Head


def _recognise(head: Head) -> Format | None:
    words = [line.split("\t") for line in head.lines if line.strip() and not line.startswith("#")]
    if not words or len(words[0]) != 10 or not re.fullmatch("1|1-[0-9]+|0\\.1", words[0][0]):
        return None
    if any(len(word) > 6 and word[6] != "_" for word in words):
        return Format("conllu", "dependencies", "10 columns with heads: dependency parsing")
    reason = "10 columns without heads: sentences for a dependency parser"
    return Format("conllu", "dependencies", reason)


CONLLU = FileFormat("conllu", "CoNLL-U", _recognise, reader="mm.data.read_conllu")

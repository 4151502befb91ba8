"""How files of trees in Penn brackets are recognised."""

from itertools import chain

from maxmargin.data.formats import FileFormat, Format, Head


def _recognise(head: Head) -> Format | None:
    """Penn brackets, if the text begins with a whole tree."""
    depth, tree = 0, ""
    for letter in chain.from_iterable(f"{line}\n" for line in head.lines):
        if not depth and letter.isspace():
            continue
        depth += (letter == "(") - (letter == ")")
        tree += letter
        if depth <= 0:
            break
    if not tree.startswith("("):
        return None
    from maxmargin.structures.constituency.formats import TreeTextError, read_trees

    try:
        read = read_trees(tree, clean=False)
    except TreeTextError:
        return None
    return Format("penn", "parsing", "trees in brackets: parsing") if read else None


PENN = FileFormat("penn", "Penn trees", _recognise, reader="mm.data.read_tree_file")

"""Trees: brackets of the Penn Treebank, and dependencies in CoNLL-U."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from maxmargin.cli.tasks.base import Data, Path, Task
from maxmargin.data.conllu import DependencySentence, read_conllu, write_conllu
from maxmargin.data.text import shown_name, text_of
from maxmargin.data.trees import read_trees
from maxmargin.report.markup import plural


@dataclass
class Constituents(Task):
    """Trees of phrases. What is to be parsed may be trees, or sentences, one a line.

    Parameters
    ----------
    encoding : str or None
    """

    encoding: str | None = None

    name = "parsing"
    format = "penn"
    estimator_class = "GrammarParser"

    def defaults(self) -> dict[str, Any]:
        # With tags to be predicted, a trained parser can read plain text.
        return {"tags": "predicted"}

    def read(self, path: Path, model: Any = None) -> Data:
        text = text_of(path, self.encoding)
        if model is not None and not text.lstrip().startswith("("):
            sentences = [line.split() for line in text.splitlines() if line.strip()]
            return Data(sentences, None, len(sentences), plural(len(sentences), "sentence"), False)
        trees = read_trees(text, source=shown_name(path))
        n_words = sum(len(tree.words) for tree in trees)
        size = f"{plural(len(trees), 'tree')}, {plural(n_words, 'word')}"
        words = [tree.words for tree in trees]
        return Data(trees, trees, len(trees), size, words=words)


@dataclass
class Dependencies(Task):
    """Heads of words.

    Parameters
    ----------
    encoding : str or None
    tag : {"upos", "xpos"}
        Which tags are used.
    """

    encoding: str | None = None
    tag: str = "upos"

    name = "dependencies"
    format = "conllu"
    estimator_class = "DependencyParser"

    def defaults(self) -> dict[str, Any]:
        return {"labelled": True, "projectivize": True, "tag": self.tag}

    def read(self, path: Path, model: Any = None) -> Data:
        sentences = read_conllu(path, tag=self.tag, encoding=self.encoding)
        n_words = sum(len(sentence.words) for sentence in sentences)
        size = f"{plural(len(sentences), 'sentence')}, {plural(n_words, 'word')}"
        words = [sentence.words for sentence in sentences]
        has_trees = all(sentence.heads is not None for sentence in sentences)
        return Data(sentences, None, len(sentences), size, has_trees, words=words)

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        for sentence, tree in zip(data.X, model.predict(data.X), strict=True):
            heads, labels = tree if isinstance(tree, tuple) else (tree, None)
            answer = DependencySentence(
                sentence.words,
                sentence.tags,
                tuple(map(int, heads)),
                None if labels is None else tuple(map(str, labels)),
            )
            yield write_conllu([answer]).rstrip("\n") + "\n"

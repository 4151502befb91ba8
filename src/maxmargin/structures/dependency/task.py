"""Dependency parsing on the command line: sentences in CoNLL-U."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from maxmargin.cli.task import Data, Path, Task, counted


@dataclass
class Dependencies(Task):
    """Heads of words, by the tags "upos" or "xpos"."""

    encoding: str | None = None
    tag: str = "upos"

    name = "dependencies"
    format = "conllu"
    estimator_class = "DependencyParser"

    def defaults(self) -> dict[str, Any]:
        return {"labelled": True, "projectivize": True, "tag": self.tag}

    def read(self, path: Path, model: Any = None) -> Data:
        from maxmargin.structures.dependency.formats import read_conllu

        sentences = read_conllu(path, tag=self.tag, encoding=self.encoding)
        words = [sentence.words for sentence in sentences]
        size = counted(sentence=len(sentences), word=sum(map(len, words)))
        has_trees = all(sentence.heads is not None for sentence in sentences)
        return Data(sentences, None, len(sentences), size, has_trees, words=words)

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        from maxmargin.structures.dependency.formats import write_conllu

        for sentence, tree in zip(data.X, model.predict(data.X), strict=True):
            heads, labels = tree if isinstance(tree, tuple) else (tree, None)
            answer = sentence.words, sentence.tags, heads, labels
            yield write_conllu([answer]).rstrip("\n") + "\n"


TASKS = (Dependencies,)

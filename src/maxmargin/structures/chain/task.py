"""Sequences: rows of numbers in SVM-hmm's format, and words in columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maxmargin.cli.task import Data, Path, Task, counted, fitting, numbered
from maxmargin.data.files import FileFormatError
from maxmargin.report.markup import plural

if TYPE_CHECKING:
    from maxmargin.structures.chain.formats import ColumnSentence


@dataclass
class NumberedSequences(Task):
    """Tags of rows of numbers."""

    name = "tagging"
    format = "svm-hmm"
    estimator_class = "SequenceTagger"
    svmstruct_scale = 1.0

    def read(self, path: Path, model: Any = None) -> Data:
        from maxmargin.structures.chain.formats import read_svm_hmm

        X, y = read_svm_hmm(path)
        X = [fitting(rows, model) for rows in X]
        width = X[0].shape[1] if X else 0
        size = counted(sequence=len(X), position=sum(map(len, y)), feature=width)
        return Data(X, y, len(X), size)

    def feature_names(self, model: Any) -> list[str]:
        return numbered(model.n_features_in_)

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        return (str(tag) for tags in model.predict(data.X) for tag in tags)


@dataclass
class WordSequences(Task):
    """Tags of words in columns.

    Without `templates`, `Templates.default` for the columns of the training file; `hash_bits` of
    None keeps names of features. `n_columns` are those without the tags, 0 before training.
    """

    tag_column: int = -1
    templates: str | None = None
    hash_bits: int | None = None
    n_columns: int = 0
    encoding: str | None = None

    name = "tagging"
    format = "columns"
    estimator_class = "SequenceTagger"

    @classmethod
    def from_options(cls, **options: Any) -> "WordSequences":
        """With the templates of a file."""
        from maxmargin.structures.chain.templates import Templates

        if "templates" in options:
            options["templates"] = str(Templates.read(options["templates"]))
        return cls(**options)

    def read(self, path: Path, model: Any = None) -> Data:
        from maxmargin.structures.chain.templates import Templates, features_of

        sentences = self._sentences(path)
        if not self.n_columns and sentences:
            self.n_columns = len(sentences[0].columns)
        if self.templates is None:
            self.templates = str(Templates.default(max(self.n_columns, 1)))
        tagged = all(sentence.tags is not None for sentence in sentences)
        size = counted(sentence=len(sentences), word=sum(map(len, sentences)))
        return Data(
            features_of(Templates(self.templates), sentences, self.hash_bits),
            [sentence.tags for sentence in sentences] if tagged else None,
            len(sentences),
            size,
            tagged,
            words=[sentence.words for sentence in sentences],
            originals=sentences,
        )

    def _sentences(self, path: Path) -> "list[ColumnSentence]":
        """Sentences of a file; a trained tagger also reads files without tags."""
        from maxmargin.structures.chain.formats import read_columns, with_tags

        if not self.n_columns:
            return read_columns(path, tag_column=self.tag_column, encoding=self.encoding)
        sentences = read_columns(path, tag_column=None, encoding=self.encoding)
        if not sentences or len(sentences[0].columns) == self.n_columns:
            return sentences
        if len(sentences[0].columns) != self.n_columns + 1:
            raise FileFormatError(
                str(path),
                None,
                f"has {plural(len(sentences[0].columns), 'column')}, but the model was trained on "
                f"{self.n_columns} and one for the tags.",
            )
        return [with_tags(sentence.columns, self.tag_column) for sentence in sentences]

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        from maxmargin.structures.chain.formats import write_columns

        for sentence, tags in zip(data.originals or [], model.predict(data.X), strict=True):
            yield write_columns([sentence], [tags]).removesuffix("\n")


TASKS = (NumberedSequences, WordSequences)

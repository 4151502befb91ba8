"""What the command line can do with one kind of file."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar

Path = str | PathLike[str]


@dataclass(frozen=True)
class Data:
    """Examples of a file.

    Parameters
    ----------
    X : object
        Inputs, as the estimator takes them.
    y : object or None
        Outputs; None if the file has none, or if inputs bring them along.
    n_examples : int
        Over which the objective sums.
    size : str
        What is said about them.
    has_true_output : bool, default=True
        Whether the file says what should be predicted.
    groups : ndarray, default=None
        Queries, for rankings.
    words : sequence, default=None
        What a reader should see of each example.
    sample_weight : ndarray, default=None
        Factor of the C of each example, if the file has them.
    originals : sequence, default=None
        The examples as they stand in the file, if predictions are written beside them.
    """

    X: Any
    y: Any
    n_examples: int
    size: str
    has_true_output: bool = True
    groups: Any = None
    words: Sequence[Any] | None = None
    originals: Sequence[Any] | None = None
    sample_weight: Any = None


@dataclass
class Task(ABC):
    """A kind of file, and the estimator for it.

    Tasks are data classes whose fields, plain values, are kept in the model: how its files are to
    be read.

    Parameters
    ----------
    trained_on : str or None
        What the training file looked like, which may be something else than what it was said to
        be; None if that cannot be known.
    """

    trained_on: str | None = field(default=None, kw_only=True)

    name: ClassVar[str]
    """As the option `--task` has it."""

    format: ClassVar[str]
    """Of its files, as the option `--format` has it."""

    estimator_class: ClassVar[str]
    """Name in `maxmargin`."""

    also_reads: ClassVar[tuple[str, ...]] = ()
    """Formats that a trained model takes beside its own, as files without the truth may be."""

    streams: ClassVar[bool] = False
    """Whether it can be trained from a file that does not fit in memory."""

    svmstruct_scale: ClassVar[float | None] = None
    """Loss of a mistake in the program of SVMstruct for such files, if there is one."""

    @abstractmethod
    def read(self, path: Path, model: Any = None) -> Data:
        """Examples of a file, with the features of a model if it has been trained."""

    def stream(self, path: Path) -> Data:
        """The same as a source that is read block by block, if the task `streams`."""
        raise NotImplementedError

    def defaults(self) -> dict[str, Any]:
        """Parameters of the estimator that are not those of Python."""
        return {}

    def fit(self, estimator: Any, data: Data) -> Any:
        """Train."""
        weight = {} if data.sample_weight is None else {"sample_weight": data.sample_weight}
        return estimator.fit(data.X, data.y, **weight)

    def feature_names(self, model: Any) -> list[str] | None:
        """What a reader calls the columns, where the model has no names of them."""
        return None

    def lines(self, model: Any, data: Data) -> Iterator[str]:
        """Predictions, as lines of the output file."""
        return (str(answer) for answer in model.predict(data.X))

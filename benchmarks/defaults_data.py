"""What the benchmark of defaults fits: training data in two parts, one of them held out."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import maxmargin as mm
from benchmarks import chunking, dependencies, hierarchy, multilabel, ordinal, ranking, treebank
from benchmarks.common import load
from benchmarks.datasets import Sentence
from benchmarks.grid_data import horses, pretend_images, pretend_snakes, snakes
from benchmarks.sequences import BATCH, Chains, corpus, letters, tag_features
from maxmargin.structures.chain.vocabulary import Vocabulary
from maxmargin.structures.constituency.grammar import bracket_scores
from maxmargin.structures.taxonomy.problem import Taxonomy

Dictionaries = list[dict[str, Any]]


class Sizes(NamedTuple):
    """Examples to fit and examples held out."""

    fit: int
    held_out: int


@dataclass(frozen=True)
class Study:
    """An estimator, the two parts of a training set, and what counts on the part held out.

    Parameters
    ----------
    name : str
    fit : callable
        Takes a part and the estimator's settings, gives the fitted model.
    score : callable
        Takes a model and a part; one is the best that can be.
    train, held_out : Any
        The two parts.
    """

    name: str
    fit: Callable[..., Any]
    score: Callable[[Any, Any], float]
    train: Any
    held_out: Any

    def fitted(self, **settings: Any) -> Any:
        """The model; that it stopped early is no reason to warn here."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.fit(self.train, **settings)

    def scores(self, model: Any) -> tuple[float, float]:
        """Scores on the part held out and on the part fitted."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.score(model, self.held_out), self.score(model, self.train)

    def loss_at_zero(self) -> float:
        """Sum of the slacks of zero weights: with a C next to nothing no others are found."""
        C = 1e-9
        return float(self.fitted(C=C, tol=0.9).certificate_.primal / C)


def parts(n: int, sizes: Sizes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of random examples to fit and held out, three to one if there are too few."""
    order = np.random.RandomState(0).permutation(n)
    if sum(sizes) > n:
        sizes = Sizes(3 * n // 4, n - 3 * n // 4)
    return np.sort(order[: sizes.fit]), np.sort(order[sizes.fit : sum(sizes)])


# Chains


def fit_chains(part: Chains, **settings: Any) -> Any:
    return mm.SequenceTagger(**settings).fit(part.X, part.y, lengths=part.lengths)


def right_labels(model: Any, part: Chains) -> float:
    return float(model.score(part.X, part.y, lengths=part.lengths))


def chunk_f1(model: Any, part: Chains) -> float:
    guesses = model.predict(part.X, lengths=part.lengths)
    ends = np.cumsum(part.lengths)[:-1]
    truths, found = (
        [one.tolist() for one in np.split(labels, ends)] for labels in (part.y, guesses)
    )
    return chunking.f1(truths, found)


def chains(
    sentences: Sequence[Sentence],
    features: Callable[[Sentence], Any],
    label: int,
    vocabulary: Vocabulary,
    grow: bool,
) -> Chains:
    """Sentences as one matrix; dictionaries live only shortly."""
    matrices = [
        vocabulary.matrix([list(features(one)) for one in sentences[at : at + BATCH]], grow)[0]
        for at in range(0, len(sentences), BATCH)
    ]
    for matrix in matrices:
        matrix.resize((matrix.shape[0], len(vocabulary)))
    y = np.array([token[label] for sentence in sentences for token in sentence])
    lengths = np.array([len(sentence) for sentence in sentences])
    return Chains(sp.vstack(matrices, format="csr"), y, lengths)


def joined(part: Chains, n: int) -> Chains:
    """Every `n` sequences as a single one."""
    lengths = np.add.reduceat(part.lengths, np.arange(0, part.n, n))
    return part._replace(lengths=lengths)


def of_sentences(
    name: str,
    source: str,
    label: int,
    sizes: Sizes,
    quick: bool,
    features: Callable[[Sentence], Any] = tag_features,
    together: int = 1,
) -> Study:
    """Tagging, by F1 of the chunks where there are chunks."""
    sentences = corpus(source, quick).train
    vocabulary = Vocabulary()
    made = [
        joined(chains([sentences[i] for i in chosen], features, label, vocabulary, grow), together)
        for chosen, grow in zip(parts(len(sentences), sizes), (True, False), strict=True)
    ]
    score = chunk_f1 if source == "conll2000" and label == 2 else right_labels
    return Study(name, fit_chains, score, *made)


def words(name: str, sizes: Sizes, quick: bool) -> Study:
    """Handwritten words."""
    train = letters("ocr2", quick).train
    chosen = [np.isin(np.arange(train.n), part) for part in parts(train.n, sizes)]
    return Study(name, fit_chains, right_labels, *(train.some(one) for one in chosen))


# Graphs and trees


def fit_graphs(part: Any, directed: bool, **settings: Any) -> Any:
    return mm.GraphLabeler(directed=directed, **settings).fit(*part)


def model_score(model: Any, part: Any) -> float:
    return float(model.score(*part))


def graphs(name: str, sizes: Sizes, quick: bool) -> Study:
    """Grids of cells or pixels."""
    if quick:
        train = (pretend_snakes() if name == "snakes" else pretend_images(2)).train
    else:
        train = (snakes() if name == "snakes" else horses()).train
    made = [
        ([train.X[i] for i in chosen], [train.y[i] for i in chosen])
        for chosen in parts(len(train.y), sizes)
    ]
    return Study(name, partial(fit_graphs, directed=name == "snakes"), model_score, *made)


def grammars(name: str, sizes: Sizes, quick: bool) -> Study:
    """Trees of short sentences."""
    trees, _ = treebank.split(treebank.treebank(quick), 15)
    made = [[trees[i] for i in chosen] for chosen in parts(len(trees), sizes)]

    def score(model: Any, part: Any) -> float:
        return float(bracket_scores(part, model.predict(part)).f1)

    return Study(name, lambda part, **of: mm.GrammarParser(**of).fit(part), score, *made)


def arcs(name: str, sizes: Sizes, quick: bool, source: str) -> Study:
    """Dependency trees."""
    sentences = dependencies.load(source, quick).train
    made = [[sentences[i] for i in chosen] for chosen in parts(len(sentences), sizes)]

    def fit(part: Any, **settings: Any) -> Any:
        return mm.DependencyParser(projectivize=True, **settings).fit(part)

    def score(model: Any, part: Any) -> float:
        return float(model.score(part))

    return Study(name, fit, score, *made)


# Rows


def rows(
    name: str,
    X: Any,
    y: NDArray[Any],
    sizes: Sizes,
    fit: Callable[..., Any],
    score: Callable[[Any, Any], float],
) -> Study:
    """Rows of features, whatever their targets are."""
    made = [(X[chosen], y[chosen]) for chosen in parts(len(y), sizes)]
    return Study(name, fit, score, *made)


def labels(name: str, sizes: Sizes, quick: bool, source: str, loss: str) -> Study:
    """Sets of labels, by the loss that is trained for."""
    data = multilabel.load(source, quick)

    def fit(part: Any, **settings: Any) -> Any:
        return mm.MultilabelClassifier(loss=loss, **settings).fit(*part)

    def score(model: Any, part: Any) -> float:
        found = np.asarray(model.predict(part[0])).astype(int)
        return 1.0 - multilabel.ERRORS[loss](part[1], found)

    return rows(name, data.X_train, data.y_train, sizes, fit, score)


def classes(name: str, sizes: Sizes, quick: bool, source: str) -> Study:
    """Classes in a tree: one less the length of the path to the truth, of the longest path."""
    data, taxonomy = hierarchy.load(source, quick)
    names = np.unique(data.y_train).tolist()
    lengths = Taxonomy.of(taxonomy, names).distances()

    def fit(part: Any, **settings: Any) -> Any:
        return mm.HierarchicalClassifier(taxonomy=taxonomy, **settings).fit(*part)

    def score(model: Any, part: Any) -> float:
        both = np.searchsorted(names, part[1]), np.searchsorted(names, model.predict(part[0]))
        return float(1.0 - lengths[both].mean() / lengths.max())

    return rows(name, data.X_train, data.y_train, sizes, fit, score)


def ordered(name: str, sizes: Sizes, quick: bool) -> Study:
    """Numbers of rings: one less the mean distance, of that of the median."""
    data = ordinal.load(quick)
    values = np.arange(data.y_train.min(), data.y_train.max() + 1)

    def fit(part: Any, **settings: Any) -> Any:
        return mm.OrdinalClassifier(classes=values, **settings).fit(*part)

    def score(model: Any, part: Any) -> float:
        X, y = part
        of_median = ordinal.absolute(y, np.median(y))
        return 1.0 - ordinal.absolute(y, model.predict(X)) / of_median

    return rows(name, data.X_train, data.y_train, sizes, fit, score)


def queries(name: str, quick: bool, loss: str) -> Study:
    """LETOR's first fold: three parts to train on, the validation part held out."""
    data = ranking.parts(quick)

    def fit(part: Any, **settings: Any) -> Any:
        return mm.Ranker(loss=loss, **settings).fit(*part)

    def score(model: Any, part: Any) -> float:
        return ranking.figures(model, part).average_precision

    return Study(name, fit, score, ranking.together(data[:3]), data[3])


def measures(name: str, sizes: Sizes, quick: bool, loss: str) -> Study:
    """Two classes for a measure of the whole data set."""
    data = load("a9a", quick)

    def fit(part: Any, **settings: Any) -> Any:
        return mm.PerformanceClassifier(loss=loss, **settings).fit(*part)

    return rows(name, data.X, data.y, sizes, fit, model_score)


STUDIES: dict[str, Callable[[str, bool], Study]] = {
    "letters": lambda name, quick: words(name, Sizes(1000, 2500), quick),
    "chunking": lambda name, quick: of_sentences(
        name, "conll2000", 2, Sizes(1500, 2500), quick, chunking.features
    ),
    "long chains": lambda name, quick: of_sentences(
        name, "conll2000", 2, Sizes(1000, 2500), quick, chunking.features, together=25
    ),
    "POS": lambda name, quick: of_sentences(name, "conll2000", 1, Sizes(700, 2500), quick),
    "Brown": lambda name, quick: of_sentences(name, "brown", 1, Sizes(700, 2500), quick),
    "snakes": lambda name, quick: graphs(name, Sizes(60, 140), quick),
    "horses": lambda name, quick: graphs(name, Sizes(15, 40), quick),
    "grammars": lambda name, quick: grammars(name, Sizes(500, 300), quick),
    "EWT": lambda name, quick: arcs(name, Sizes(600, 1000), quick, "ewt"),
    "treebank": lambda name, quick: arcs(name, Sizes(400, 600), quick, "treebank"),
    "scene": lambda name, quick: labels(name, Sizes(800, 411), quick, "scene", "hamming"),
    "yeast": lambda name, quick: labels(name, Sizes(1000, 500), quick, "yeast", "hamming"),
    "yeast, F1": lambda name, quick: labels(name, Sizes(1000, 500), quick, "yeast", "f1"),
    "ImCLEF D": lambda name, quick: classes(name, Sizes(2500, 2500), quick, "imclef07d"),
    "20news": lambda name, quick: classes(name, Sizes(2500, 2500), quick, "20news"),
    "abalone": lambda name, quick: ordered(name, Sizes(2000, 1133), quick),
    "OHSUMED": lambda name, quick: queries(name, quick, "pairwise"),
    "OHSUMED, MAP": lambda name, quick: queries(name, quick, "map"),
    "a9a, F1": lambda name, quick: measures(name, Sizes(8000, 16000), quick, "f1"),
    "a9a, ROC area": lambda name, quick: measures(name, Sizes(8000, 16000), quick, "auc"),
}
"""How each study is made, by its name."""


def study(name: str, quick: bool) -> Study | None:
    """The study of this name, if its data are there."""
    try:
        return STUDIES[name](name, quick)
    except (FileNotFoundError, SystemExit):
        return None
    except KeyError as error:
        if error.args != ("MAXMARGIN_DATA",):
            raise
        return None


# For python-crfsuite, too


def tutorial_features(sentence: Sentence) -> Dictionaries:
    """Words as the tutorial of sklearn-crfsuite describes them, for (word, tag, ...)."""
    result = []
    for i, (word, tag, *_) in enumerate(sentence):
        found = {
            "bias": 1.0,
            "word.lower()": word.lower(),
            "word[-3:]": word[-3:],
            "word[-2:]": word[-2:],
            "word.isupper()": word.isupper(),
            "word.istitle()": word.istitle(),
            "word.isdigit()": word.isdigit(),
            "postag": tag,
            "postag[:2]": tag[:2],
        }
        for place, end in ((-1, "BOS"), (1, "EOS")):
            if 0 <= i + place < len(sentence):
                other, other_tag = sentence[i + place][:2]
                found |= {
                    f"{place:+d}:word.lower()": other.lower(),
                    f"{place:+d}:word.istitle()": other.istitle(),
                    f"{place:+d}:word.isupper()": other.isupper(),
                    f"{place:+d}:postag": other_tag,
                    f"{place:+d}:postag[:2]": other_tag[:2],
                }
            else:
                found[end] = True
        result.append(found)
    return result

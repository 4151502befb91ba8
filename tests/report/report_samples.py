"""A small fitted estimator of every kind with test data, and a reader of pages that is strict."""

from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from typing import Any, NamedTuple

import numpy as np
from latent_problems import Instances, random_bags
from pose_scenes import hooks
from sklearn.datasets import load_diabetes, load_iris

import maxmargin as mm
from maxmargin.core.kernel_oracle import Multiclass
from maxmargin.structures.dependency.formats import DependencySentence


class Page(HTMLParser):
    """Reads a page and complains where its elements do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} stands twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        assert "svg" in self.open, f"{tag} has no end"  # only drawings know such
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} ends, but nothing is open"
        assert self.open.pop() == tag, f"{tag} ends inside of something else"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text_in(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]

    @property
    def text(self) -> str:
        return " ".join(text for inside, text in self.texts if inside != "style")


class Sample(NamedTuple):
    """An estimator, test data, and what its report must have."""

    estimator: Any
    X: Any
    y: Any
    sections: set[str]
    options: dict[str, Any] = {}


LABELLED = {"scores-by-class", "confusions"}


@cache
def sample(name: str) -> Sample:
    return SAMPLES[name]()


def iris_rows() -> tuple[Any, Any, Any, Any]:
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = load_iris().target_names[y]
    order = np.random.default_rng(0).permutation(len(X))
    X, names = X.iloc[order], names[order]
    return X[:100], names[:100], X[100:], names[100:]


def classifier() -> Sample:
    X, y, X_test, y_test = iris_rows()
    models = mm.LinearClassifier().path(X, y, Cs=[0.001, 0.01])
    sections = LABELLED | {"strongest-features", "worst-mistakes", "path-over-c"}
    return Sample(models[0], X_test, y_test, sections, {"models": models})


def two_classes() -> Sample:
    X, y, X_test, y_test = iris_rows()
    model = mm.LinearClassifier(C=0.001).fit(X, y == "virginica")
    return Sample(
        model, X_test, y_test == "virginica", LABELLED | {"strongest-features", "worst-mistakes"}
    )


def performance() -> Sample:
    X, y, X_test, y_test = iris_rows()
    model = mm.PerformanceClassifier(C=0.01, pos_label="other")
    kinds = [np.where(one == "versicolor", one, "other") for one in (y, y_test)]
    model.fit(X, kinds[0])
    return Sample(model, X_test, kinds[1], LABELLED | {"strongest-features", "worst-mistakes"})


def regressor() -> Sample:
    X, y = load_diabetes(return_X_y=True)
    model = mm.LinearRegressor(C=10.0).fit(X[:300], y[:300])
    return Sample(model, X[300:], y[300:], {"predictions", "strongest-features", "worst-mistakes"})


def ordinal() -> Sample:
    X, y, X_test, y_test = iris_rows()
    order = ["setosa", "versicolor", "virginica"]
    model = mm.OrdinalClassifier(C=0.003, classes=order).fit(X, y)
    return Sample(model, X_test, y_test, LABELLED | {"strongest-features", "worst-mistakes"})


def hierarchical() -> Sample:
    X, y, X_test, y_test = iris_rows()
    taxonomy = {"setosa": "iris", "versicolor": "large", "virginica": "large", "large": "iris"}
    model = mm.HierarchicalClassifier(C=0.003, taxonomy=taxonomy).fit(X, y)
    return Sample(model, X_test, y_test, LABELLED | {"strongest-features", "worst-mistakes"})


def multilabel() -> Sample:
    X, y, X_test, y_test = iris_rows()
    sets = [[{str(name), "flower"} for name in one] for one in (y, y_test)]
    model = mm.MultilabelClassifier(C=0.003).fit(X, sets[0])
    sections = {"scores-by-class", "neighbouring-labels", "strongest-features", "worst-mistakes"}
    return Sample(model, X_test, sets[1], sections)


def chunk_words() -> tuple[list[Any], list[Any], list[Any]]:
    random = np.random.default_rng(0)
    lexicon = {"B-NP": ["the", "a"], "I-NP": ["dog", "fly"], "B-VP": ["barks", "fly"], "O": ["."]}
    words, tags = [], []
    for _ in range(30):
        tag_row = ["B-NP", *["I-NP"] * int(random.integers(1, 3)), "B-VP", "O"]
        tags.append(tag_row)
        words.append([str(random.choice(lexicon[tag])) for tag in tag_row])
    X = [[{"word": word, "last": word[-1]} for word in row] for row in words]
    return words, X, tags


def tagger() -> Sample:
    words, X, y = chunk_words()
    model = mm.SequenceTagger(C=0.01).fit(X[:10], y[:10])
    sections = LABELLED | {"neighbouring-labels", "strongest-features", "worst-mistakes"}
    return Sample(model, X[10:], y[10:], sections, {"words": words[10:]})


def graphs() -> Sample:
    random = np.random.default_rng(0)
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    y = [np.repeat(random.choice(["land", "sea"], 2), 2) for _ in range(20)]
    X = [((one == "land")[:, None] + random.normal(size=(4, 1)), ring) for one in y]
    y[0][0] = "?"
    model = mm.GraphLabeler(C=0.1, void="?").fit(X[10:], y[10:])
    sections = LABELLED | {"neighbouring-labels", "strongest-features", "worst-mistakes"}
    return Sample(model, X, y, sections)


TREES = (
    "(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NN town))))))",
    "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))",
    "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN man))))",
)


def grammar() -> Sample:
    model = mm.GrammarParser(C=0.001).fit(TREES)
    attached = "(S (NP (PRP I)) (VP (VBD saw) (NP (DT a) (NN man)) (PP (IN in) (NP (NN town)))))"
    sections = {"scores-by-class", "strongest-features", "worst-mistakes"}
    return Sample(model, [attached, *TREES[1:]], None, sections)


def dependencies(labelled: bool) -> Sample:
    words, tags = ("the", "dog", "chases", "cats"), ("DET", "NOUN", "VERB", "NOUN")
    right = DependencySentence(words, tags, (2, 3, 0, 3), ("det", "subj", "root", "obj"))
    wrong = right._replace(heads=(3, 3, 0, 2), labels=("det", "subj", "root", "mod"))
    model = mm.DependencyParser(C=1.0, labelled=labelled, n_features=256).fit([right] * 2)
    sections = {"worst-mistakes"} | ({"scores-by-class"} if labelled else set())
    return Sample(model, [right, wrong], None, sections)


def ranker() -> Sample:
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    y = np.clip(np.round(X[:, 0] + random.normal(size=60)), 0, 2)
    queries = np.repeat(np.arange(6), 10)
    model = mm.Ranker(C=0.1).fit(X, y, queries)
    return Sample(model, X, y, {"strongest-features", "worst-mistakes"}, {"groups": queries})


def latent_classifier() -> Sample:
    X, numbers = random_bags(0, n=40, d=4, k=3, most=5)
    y = np.array(["one", "two", "zero"])[numbers]
    model = mm.LatentClassifier(C=0.1).fit(X[:30], y[:30])
    return Sample(model, X, y, LABELLED | {"strongest-features", "worst-mistakes"})


def latent_problem() -> Sample:
    X, y = random_bags(0, n=20, d=3, k=2, most=3)
    model = mm.LatentStructuredSVM(Instances(1.0 - np.eye(2)), C=0.01).fit(X, y)
    return Sample(model, X, y, {"strongest-features", "worst-mistakes"})


class ThreeClasses(mm.Problem):
    """Plain classes, in plain Python."""

    def joint_feature(self, x, y):
        return np.outer(np.arange(3) == y, x).ravel()

    def loss(self, y_true, y):
        return float(y_true != y)

    def inference(self, x, w):
        return int(np.argmax(w.reshape(3, -1) @ x))

    def loss_augmented_inference(self, x, y_true, w):
        return int(np.argmax(w.reshape(3, -1) @ x + (np.arange(3) != y_true)))


def any_problem() -> Sample:
    X, y = load_iris(return_X_y=True)
    model = mm.StructuredSVM(ThreeClasses(), C=0.001).fit(X[::5], y[::5].tolist())
    return Sample(model, X, y.tolist(), {"strongest-features", "worst-mistakes"})


def kernel_classes() -> Sample:
    X, y, X_test, y_test = iris_rows()
    model = mm.KernelStructuredSVM(Multiclass(), C=0.01).fit(np.asarray(X), y)
    return Sample(model, np.asarray(X_test), y_test, LABELLED | {"worst-mistakes"})


def poses() -> Sample:
    images, found = hooks(12)
    model = mm.PoseEstimator(C=1.0, window=16, tol=0.1).fit(images, found)
    return Sample(model, images, found, set())


SAMPLES: dict[str, Callable[[], Sample]] = {
    "classifier": classifier,
    "two classes": two_classes,
    "performance": performance,
    "regressor": regressor,
    "ordinal": ordinal,
    "hierarchical": hierarchical,
    "multilabel": multilabel,
    "tagger": tagger,
    "graphs": graphs,
    "grammar": grammar,
    "dependencies": lambda: dependencies(labelled=False),
    "labelled dependencies": lambda: dependencies(labelled=True),
    "ranker": ranker,
    "latent classifier": latent_classifier,
    "latent problem": latent_problem,
    "any problem": any_problem,
    "kernel classes": kernel_classes,
    "poses": poses,
}

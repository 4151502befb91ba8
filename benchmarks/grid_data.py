"""What the benchmarks of grids share: images as graphs, quiet fits."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from sklearn.exceptions import ConvergenceWarning

from maxmargin.structures.graph.estimator import GraphLabeler
from maxmargin.structures.graph.formats import grid_edges

Floats = NDArray[np.float64]

VOID = -1
"""In the place of a label that is not known."""


class Labelled(NamedTuple):
    """Graphs and the labels of their nodes."""

    X: list[Any]
    y: list[NDArray[Any]]

    @property
    def n_nodes(self) -> int:
        """Nodes of all graphs."""
        return sum(map(len, self.y))

    def first(self, n: int) -> "Labelled":
        """Only the first `n` graphs."""
        return Labelled(self.X[:n], self.y[:n])

    def mapped(self, change: Callable[[Any], Any]) -> "Labelled":
        """The same with every graph changed."""
        return Labelled([change(x) for x in self.X], self.y)


class Split(NamedTuple):
    """Graphs to train on and to test on."""

    train: Labelled
    test: Labelled

    def mapped(self, change: Callable[[Any], Any]) -> "Split":
        """The same with every graph changed."""
        return Split(self.train.mapped(change), self.test.mapped(change))

    def first(self, n: int) -> "Split":
        """Only the first `n` graphs of either."""
        return Split(self.train.first(n), self.test.first(n))


def fit(train: Labelled, **settings: Any) -> GraphLabeler:
    """Train without a word; the certificate says how far it got."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GraphLabeler(**{"tol": 1e-3, **settings})
        model.fit(train.X, train.y)
        return model


def without_edges(graph: Any) -> Any:
    """Nodes on their own: independent classification with the same features."""
    return graph[0], graph[1][:0], graph[2][:0]


def data_file(name: str) -> Path:
    """Where a data set is kept.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    """
    path = Path(os.environ.get("MAXMARGIN_DATA", "")) / name
    if not path.exists():
        raise FileNotFoundError(f"{name} is not there: set MAXMARGIN_DATA to the data's folder.")
    return path


# Snakes

COLOURS = np.array([1, 2, 3, 4, 6])
"""Red, green and blue as bits; 4, blue, is the background."""


def snakes() -> Split:
    """Snakes with the colours of a cell and its eight neighbours, and of both ends of an edge.

    Features of an edge are apart for edges to the right and down.
    """
    with np.load(data_file("snakes/snakes.npz")) as data:
        return Split(*(_snakes(data, part) for part in ("train", "test")))


def _snakes(data: Any, part: str) -> Labelled:
    X, y, at = [], [], 0
    for height, width in data[f"shape_{part}"].astype(int):
        cells = slice(at, at + height * width)
        at = cells.stop
        code = (data[f"X_{part}"][cells] > 0) @ np.array([1, 2, 4])
        X.append(snake_graph(code.reshape(height, width)))
        y.append(data[f"y_{part}"][cells].astype(np.int64))
    return Labelled(X, y)


def snake_graph(code: NDArray[Any]) -> Any:
    """A grid of colours as a graph."""
    height, width = code.shape
    around = np.pad(code, 1, constant_values=4)
    window = np.stack(
        [around[i : i + height, j : j + width] for i in range(3) for j in range(3)], axis=-1
    )
    nodes = (window[..., None] == COLOURS).reshape(height * width, -1).astype(np.float64)
    edges = grid_edges(height, width)
    ends = np.concatenate([nodes[edges[:, 0]], nodes[edges[:, 1]]], axis=1)
    down = (np.arange(len(edges)) >= height * (width - 1))[:, None]
    return nodes, edges, sp.csr_array(np.concatenate([ends * ~down, ends * down], axis=1))


def directions_only(graph: Any) -> Any:
    """The same with edges that know nothing but whether they go to the right or down."""
    nodes, edges, _ = graph
    down = (edges[:, 1] - edges[:, 0] > 1).astype(np.float64)
    return nodes, edges, np.stack([1.0 - down, down], axis=1)


# Images


def horses() -> Split:
    """Weizmann horses, 64 x 64: the first 200 images to train on, the last 128 to test on."""
    with np.load(data_file("weizmann-horses/horses64.npz")) as data:
        images, masks = data["images"], data["masks"]
    return _standardized(_images(images[:200], masks[:200]), _images(images[200:], masks[200:]))


def camvid() -> Split:
    """CamVid, 45 x 60: the usual 367 images to train on, 233 to test on."""
    with np.load(data_file("camvid/camvid_45x60.npz")) as data:
        parts = [
            _images(
                data[f"X_{part}"],
                np.where(data[f"y_{part}"] == 11, VOID, data[f"y_{part}"].astype(np.int64)),
            )
            for part in ("train", "test")
        ]
    return _standardized(*parts)


def _images(images: NDArray[np.uint8], labels: NDArray[Any]) -> Labelled:
    return Labelled([image_graph(image) for image in images], [y.ravel() for y in labels])


def _standardized(train: Labelled, test: Labelled) -> Split:
    """Node features with mean 0 and deviation 1 over the training data."""
    rows = np.concatenate([x[0] for x in train.X])
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    return Split(train, test).mapped(lambda x: ((x[0] - mean) / deviation, *x[1:]))


def image_graph(image: NDArray[np.uint8]) -> Any:
    """Pixels with their colours, those around, and their place; edges with changes of colour."""
    height, width, _ = image.shape
    colours = image / 255.0
    rest = colours - colours.mean(axis=(0, 1))
    grey = colours.mean(axis=2, keepdims=True)
    variances = [around(grey**2, size) - around(grey, size) ** 2 for size in (5, 11)]
    down, right = np.meshgrid(*(np.linspace(-1, 1, n) for n in (height, width)), indexing="ij")
    centre = np.exp(-2.0 * (right**2 + down**2))
    parts = [
        *(colours, colours**2, rest, rest**2),
        *(around(colours, size) for size in (5, 11, 21)),
        *(np.sqrt(np.maximum(variance, 0.0)) for variance in variances),
        np.stack([right, down, right**2, down**2, right * down, centre], axis=2),
    ]
    nodes = np.concatenate(parts, axis=2).reshape(height * width, -1)
    edges = grid_edges(height, width)
    ends = colours.reshape(-1, 3)[edges]
    apart = ((ends[:, 0] - ends[:, 1]) ** 2).sum(axis=1)
    of_edges = np.stack([np.ones(len(edges)), np.exp(-20 * apart), np.exp(-200 * apart)], axis=1)
    return nodes, edges, of_edges


def around(image: Floats, size: int) -> Floats:
    """The mean of the square around each pixel."""
    mean: Floats = uniform_filter(image, (size, size, 0), mode="nearest")
    return mean


# In the place of data sets, if quick


def pretend_images(n_labels: int, n: int = 8, size: int = 10) -> Split:
    """Noisy stripes."""
    random = np.random.default_rng(0)
    masks = np.array([np.roll(np.arange(size) * n_labels // size, shift) for shift in range(2 * n)])
    labels = np.repeat(masks[:, :, None], size, axis=2)
    colours = random.uniform(0, 255, (n_labels, 3))[labels]
    colours += random.normal(0, 40, colours.shape)
    images = np.clip(colours, 0, 255).astype(np.uint8)
    return _standardized(_images(images[:n], labels[:n]), _images(images[n:], labels[n:]))


def pretend_snakes(n: int = 10) -> Split:
    """Grids of colours whose label is the colour's number."""
    random = np.random.default_rng(0)
    grids = [random.integers(0, 5, (4, 4)) for _ in range(2 * n)]
    graphs = [snake_graph(COLOURS[grid]) for grid in grids]
    labels = [grid.ravel() for grid in grids]
    return Split(Labelled(graphs[:n], labels[:n]), Labelled(graphs[n:], labels[n:]))

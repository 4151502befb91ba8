"""Plots of fits and predictions, with matplotlib."""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from maxmargin.report.markup import Markup, printable, tag
from maxmargin.solvers.loop import Stopping

Labels = NDArray[Any]

MISSING = 'Plots need matplotlib: pip install "maxmargin[report]"'

PANEL = (4.6, 2.9)
"""Inches of one plot in a page: legible on a phone, too."""

MARGINS = {"left": 0.165, "right": 0.97, "bottom": 0.175, "top": 0.89}
"""Room for tick labels: measuring them would take most of the time of a plot."""

REM_PER_INCH = 7.4
"""Width in the page per inch of a figure."""

RESOLUTION = 160
"""Dots per inch of raster parts, such as the cells of heat maps."""

BLUE, ORANGE = (0.16, 0.43, 0.86), (0.85, 0.40, 0.05)

INKS = {
    "#100001": "var(--ink)",
    "#100002": "var(--line)",
    "#100011": "var(--series-1)",
    "#100012": "var(--series-2)",
    "#100013": "var(--series-3)",
    "#100014": "var(--series-4)",
}
"""Placeholders for the colours of the page, which may be light or dark."""

STRONG, THIN, *SERIES = INKS

STYLE = {
    "axes.edgecolor": THIN,
    "axes.facecolor": "none",
    "axes.grid": False,
    "axes.labelcolor": STRONG,
    "axes.prop_cycle": f"cycler(color={SERIES})",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": STRONG,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titley": 1.0,
    "figure.facecolor": "none",
    "font.size": 9,
    "legend.frameon": False,
    "legend.labelcolor": STRONG,
    "svg.fonttype": "none",
    "svg.hashsalt": "maxmargin",
    "text.color": STRONG,
    "xtick.color": STRONG,
    "ytick.color": STRONG,
}
"""Settings of matplotlib for plots in a page."""

MAX_NUMBERS, MAX_NAMES = 16, 40
"""Classes up to which a confusion matrix shows its numbers, and the names of all classes."""

MAX_POINTS = 500
"""Iterations of a fit that are drawn."""

MAX_MARKED = 30
"""Iterations up to which each has a marker."""


def pyplot() -> Any:
    """Matplotlib's pyplot, or an error that says how to install it."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(MISSING) from error
    return matplotlib.pyplot


def new_axes(given: Any, n: int, size: tuple[float, float] = PANEL) -> Any:
    """`n` axes: those given, or new ones, side by side."""
    if given is None:
        width, height = size
        _, made = pyplot().subplots(
            1, n, figsize=(width * n, height), squeeze=False, layout="constrained"
        )
        return made[0]
    axes = np.atleast_1d(np.asarray(given, dtype=object)).ravel()
    if len(axes) != n:
        raise ValueError(f"axes must be {n} axes, but there are {len(axes)}.")
    return axes


def heat_colors(both_signs: bool = False) -> Any:
    """Colours from clear to blue, with `both_signs` from orange over clear to blue."""
    from matplotlib.colors import LinearSegmentedColormap

    clear_blue, blue = (*BLUE, 0.0), (*BLUE, 1.0)
    if not both_signs:
        return LinearSegmentedColormap.from_list("amount", [clear_blue, blue])
    orange, clear_orange = (*ORANGE, 1.0), (*ORANGE, 0.0)
    parts = [(0.0, orange), (0.4999, clear_orange), (0.5001, clear_blue), (1.0, blue)]
    return LinearSegmentedColormap.from_list("sign", parts)


class Figures:
    """Makes the plots of one page, each with unique ids."""

    def __init__(self) -> None:
        self._made = 0

    def draw(
        self, plot: Callable[[Any], Any], captions: Sequence[str], *, side: float | None = None
    ) -> Markup:
        """Plots side by side, one for each caption; `side` are the inches of a matrix."""
        pyplot()
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has more fonts
            if side is None:
                panels = [Figure(figsize=PANEL) for _ in captions]
                for panel in panels:
                    panel.subplots_adjust(**MARGINS)
            else:
                size = side, 0.94 * side
                panels = [Figure(figsize=size, layout="constrained") for _ in captions]
            plot([panel.subplots() for panel in panels])
            figures = [self._figure(*each) for each in zip(panels, captions, strict=True)]
        widest = None if side is None else f"max-width: {REM_PER_INCH * side:.1f}rem"
        return tag("div", *figures, class_="plots", style=widest)

    def _figure(self, panel: Any, caption: str) -> Markup:
        self._made += 1
        file = StringIO()
        nothing = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        panel.savefig(file, format="svg", transparent=True, metadata=nothing, dpi=RESOLUTION)
        drawing = embedded(file.getvalue(), f"plot{self._made}-", caption)
        inches = float(panel.get_size_inches()[0])
        return tag(
            "figure",
            tag("div", drawing, class_="scroll"),
            tag("figcaption", caption),
            class_="plot wide" if inches > PANEL[0] else "plot",
        )


def embedded(svg: str, prefix: str, alternative: str) -> Markup:
    """An SVG of matplotlib for a page: no metadata, ids with `prefix`, the page's colours."""
    unused = r'<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|\sxmlns(:\w+)?="[^"]*"'
    svg = re.sub(unused, "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{prefix}", svg)
    for ink, color in INKS.items():
        svg = svg.replace(ink, color)
    opening, _, drawn = svg.partition(">")
    (box,) = re.findall(r'viewBox="[\d. ]+"', opening)
    return Markup(f'<svg role="img" {box}>{tag("title", alternative)}{drawn.strip()}')


def plot_convergence(
    estimators: Any, *, axes: Any = None, against: str = "seconds"
) -> NDArray[np.object_]:
    """Plot how the duality gap closed, and the two objectives it lies between.

    Solid lines and filled points are where the solver evaluated the objective, which takes a pass
    over the data; dashed lines and hollow points are estimates. The last point is the certificate.

    Parameters
    ----------
    estimators : fitted estimator, or dict of them by name
        Several are compared in the same axes.
    axes : two Axes, default=None
        For the gap and for the objectives; None makes them.
    against : {"seconds", "oracle_calls"}, default="seconds"
        The x-axis: time, or oracle calls (updates of examples, for solvers without an oracle).

    Returns
    -------
    axes : ndarray of two Axes
        For the gap and for the objectives.

    See Also
    --------
    plot_path : The same for many values of C.
    write_report : A page with this and much more.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> X, y = load_iris(return_X_y=True)
    >>> fits = {f"C = {C}": mm.LinearClassifier(C=C).fit(X, y) for C in (0.1, 1.0)}
    >>> gap, objectives = mm.plot_convergence(fits, against="oracle_calls")
    >>> gap.get_yscale(), gap.get_xlabel()
    ('log', 'oracle calls')
    """
    if against not in ("seconds", "oracle_calls"):
        raise ValueError(f"against must be 'seconds' or 'oracle_calls', but is {against!r}.")
    pyplot()
    named = dict(estimators) if isinstance(estimators, Mapping) else {None: estimators}
    if not named:
        raise ValueError("There are no estimators to plot: give at least one.")
    histories = {name: _history(one) for name, one in named.items()}
    gap_axis, objective_axis = axes = new_axes(axes, 2)
    for number, (name, history) in enumerate(histories.items()):
        at = [getattr(line, against) for line in history]
        before, color = "" if name is None else f"{name}, ", f"C{number}"
        _draw_primal(axes, named[name], list(zip(at, history, strict=True)), color, before)
        look = {"color": "C1"} if name is None else {"color": color, "linestyle": "-."}
        objective_axis.plot(at, [line.dual for line in history], label=f"{before}dual", **look)
    _mark_tolerance(gap_axis, list(named.values()))
    gap_axis.set(ylabel="relative duality gap", title="Duality gap")
    _logarithmic(gap_axis, "y")
    objective_axis.set(ylabel="objective", title="Primal and dual objective")
    _leave_out_the_start(objective_axis, [_last(history) for history in histories.values()])
    names = [] if None in named else [*named]
    for axis in axes:
        axis.set(xlabel=against.replace("_", " "))
        axis.locator_params(axis="x", nbins=6)
        _explain(axis, names)
    return np.asarray(axes)


def _draw_primal(
    axes: Any, estimator: Any, lines: list[tuple[float, Any]], color: str, before: str
) -> None:
    """The objective of a fit and its gap: estimates dashed and hollow, what was evaluated solid."""
    exact = [(x, line) for x, line in lines if _is_evaluated(line)]
    guessed = [] if len(exact) == len(lines) else lines
    gaps = [(x, line.relative_gap) for x, line in exact]
    values = [(x, _objective(line)) for x, line in exact]
    # Most fits are certified after their last iteration, and that is no part of the history.
    end = getattr(estimator, "certificate_", None)
    if end is not None and np.isfinite(end.gap):
        gaps.append((lines[-1][0], end.relative_gap))
        values.append((lines[-1][0], end.primal))
    guessed_gaps = [(x, line.objective_gap) for x, line in guessed if line.objective_gap > 0.0]
    guessed_values = [(x, line.objective) for x, line in guessed]
    dashed: dict[str, Any] = {"color": color, "linestyle": "--", "linewidth": 1}
    if len(lines) <= MAX_MARKED:
        dashed |= {"marker": "o", "markersize": 3.5, "markerfacecolor": "none"}
    for axis, estimated, evaluated in zip(
        axes, (guessed_gaps, guessed_values), (_visible(gaps), values), strict=True
    ):
        x, y = _finite(estimated)
        if len(x):
            axis.plot(x, y, label=f"{before}estimated", **dashed)
        x, y = _finite(evaluated)
        if len(x):
            marker = "o" if len(x) <= MAX_MARKED else None
            axis.plot(x, y, color=color, marker=marker, markersize=4, label=f"{before}evaluated")


def _is_evaluated(line: Any) -> bool:
    """Whether the objective is exact; in histories of old files, whether it had ever been."""
    return bool(line.exact or (np.isinf(line.objective) and np.isfinite(line.primal)))


def _objective(line: Any) -> float:
    return float(line.objective if np.isfinite(line.objective) else line.primal)


def _last(history: list[Any]) -> float:
    """Where the objective ended, as far as it is known."""
    primal = history[-1].primal
    return float(primal if np.isfinite(primal) else history[-1].objective)


def _explain(axis: Any, names: Sequence[Any]) -> None:
    """A legend: the lines of one estimator; or the colours of several, and the line styles."""
    lines, labels = axis.get_legend_handles_labels()
    if not lines:
        return
    if names:
        from matplotlib.lines import Line2D

        colors = [Line2D([], [], color=f"C{number}") for number in range(len(names))]
        kinds: dict[str, Any] = {}
        for line, label in zip(lines, labels, strict=True):
            kind = label.rpartition(", ")[2]
            if kind not in kinds:
                kinds[kind] = Line2D([], [])
                kinds[kind].update_from(line)
                kinds[kind].set(color=line.get_color() if kind == "tol" else "gray")
                if kind == "evaluated":
                    kinds[kind].set(marker="o", markersize=4)
        lines, labels = [*colors, *kinds.values()], [*map(str, names), *kinds]
    axis.legend(lines, labels, fontsize="small")


def plot_path(
    models: Sequence[Any],
    X: Any = None,
    y: Any = None,
    *,
    axes: Any = None,
    **score_parameters: Any,
) -> NDArray[np.object_]:
    """Plot what changes with C: score, objective, certified gap and size of the model.

    Parameters
    ----------
    models : sequence of fitted estimators
        As `LinearClassifier.path` gives them, or any that differ in C.
    X, y : default=None
        What to score them on; None leaves the score out.
    axes : three Axes, or four with the score, default=None
        None makes them.
    **score_parameters
        Handed on to ``score``: `groups` of a `Ranker`, for example.

    Returns
    -------
    axes : ndarray of Axes
        For the score (if there is one), the objective, the gap and the size.

    See Also
    --------
    plot_convergence : The iterations of one fit.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> X, y = load_iris(return_X_y=True)
    >>> models = mm.LinearClassifier().path(X, y, Cs=[0.01, 0.1, 1.0])
    >>> [axis.get_title() for axis in mm.plot_path(models, X, y)]
    ['Score', 'Objective', 'Certified gap', 'Size of the model']
    """
    pyplot()
    models = sorted(models, key=lambda model: model.C)
    if not models:
        raise ValueError("There are no models to plot: give at least one.")
    histories = [_history(model) for model in models]
    axes = new_axes(axes, 3 if X is None else 4)
    Cs = [model.C for model in models]
    *score_axes, objective_axis, gap_axis, size_axis = axes
    for axis in score_axes:
        data = (X,) if y is None else (X, y)
        scores = [model.score(*data, **score_parameters) for model in models]
        axis.plot(Cs, scores, marker="o", color="C0")
        axis.set(title="Score", ylabel="score")
    certificates = [(model.C, model.certificate_) for model in models]
    objective_axis.plot(
        *_finite((C, one.primal) for C, one in certificates), "C0o-", label="primal"
    )
    objective_axis.plot(*_finite((C, one.dual) for C, one in certificates), "C1.--", label="dual")
    objective_axis.set(title="Objective", ylabel="objective")
    _logarithmic(objective_axis, "y")
    gaps = _visible((C, one.relative_gap) for C, one in certificates)
    gap_axis.plot(*_finite(gaps), "C0o-")
    _mark_tolerance(gap_axis, models)
    gap_axis.set(title="Certified gap", ylabel="relative duality gap")
    _logarithmic(gap_axis, "y")
    sizes = {
        "non-zero weights": [_n_weights(model) for model in models],
        "cutting planes or support vectors": [history[-1].cuts for history in histories],
    }
    for number, (name, counts) in enumerate(sizes.items()):
        if not any(count is None for count in counts):
            size_axis.plot(Cs, counts, marker="o", color=f"C{number}", label=name)
    size_axis.set(title="Size of the model", ylabel="number", ylim=(0, None))
    for axis in axes:
        axis.set(xlabel="C")
        _logarithmic(axis, "x")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small")
    return np.asarray(axes)


def plot_confusion(
    y_true: Any,
    y_pred: Any,
    *,
    labels: Sequence[Any] | None = None,
    normalize: str | None = None,
    ax: Any = None,
) -> Any:
    """Plot how often each class was predicted as each other.

    The colour grows with the square root of the count. Counts are written for up to 16 classes.

    Parameters
    ----------
    y_true, y_pred : array-like of labels, or lists of such
        Labels of examples, or the labels of the positions of sequences.
    labels : sequence, default=None
        Classes to show, in this order; None shows all that occur, sorted.
    normalize : {"true", "pred", "all"}, default=None
        Fractions of each row, of each column or of all, instead of counts.
    ax : Axes, default=None
        None makes one.

    Returns
    -------
    ax : Axes
        With the table.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import maxmargin as mm
    >>> axis = mm.plot_confusion([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]])
    >>> [label.get_text() for label in axis.get_yticklabels()]
    ['DET', 'NOUN', 'VERB']
    """
    from sklearn.metrics import confusion_matrix

    pyplot()
    true, predicted = flat_pairs(y_true, y_pred)
    if normalize not in (None, "true", "pred", "all"):
        raise ValueError(f"normalize must be 'true', 'pred', 'all' or None, not {normalize!r}.")
    if not len(true):
        raise ValueError("There are no labels to compare: y_true is empty.")
    found = np.union1d(true, predicted)
    names = found if labels is None else np.asarray(labels)
    if names.dtype.kind != found.dtype.kind and found.dtype.kind in "US":
        names = names.astype(str)
    if not np.isin(names, true).any():
        raise ValueError("None of the labels occurs in y_true.")
    counts = confusion_matrix(true, predicted, labels=names, normalize=normalize)
    if ax is None:
        side = confusion_side(len(names))
        (ax,) = new_axes(None, 1, (side, side))
    plot_matrix(counts, names.tolist(), ax=ax, root=True)
    ax.set(xlabel="predicted", ylabel="true")
    return ax


def flat_pairs(y_true: Any, y_pred: Any) -> tuple[Labels, Labels]:
    """True and predicted labels one after the other, of examples or of positions of sequences."""
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_true has {len(y_true)} entries but y_pred has {len(y_pred)}.")
    for i, (labels, predicted) in enumerate(zip(y_true, y_pred, strict=True)):
        if np.ndim(labels) != np.ndim(predicted) or np.size(labels) != np.size(predicted):
            raise ValueError(f"y_true[{i}] and y_pred[{i}] have different numbers of labels.")
    y_true, predicted = _flat(y_true), _flat(y_pred)
    if {y_true.dtype.kind, predicted.dtype.kind} & set("USO") and y_true.dtype != predicted.dtype:
        return y_true.astype(str), predicted.astype(str)
    return y_true, predicted


def _flat(labels: Any) -> Labels:
    if len(labels) and np.ndim(labels[0]):
        parts = [np.asarray(part) for part in labels if len(part)]
        return np.concatenate(parts) if parts else np.zeros(0)
    return np.asarray(labels)


def confusion_side(n: int) -> float:
    """Inches of a legible matrix of `n` classes."""
    return min(2.6 + 0.2 * n if n <= 10 else 2.4 + 0.22 * n, 10.0)


def plot_matrix(values: NDArray[Any], names: Sequence[Any], *, ax: Any, root: bool = False) -> None:
    """Draw a square matrix as a heat map; with `root` the colour grows as the square root."""
    from matplotlib.colors import Normalize, PowerNorm
    from matplotlib.ticker import FixedFormatter, FixedLocator

    n = len(names)
    highest = float(np.abs(values).max(initial=0.0)) or 1.0
    both = bool((values < 0).any())
    norm = Normalize(-highest if both else 0.0, highest)
    if root and not both:
        norm = PowerNorm(0.5, 0.0, highest)
    image = ax.imshow(values, cmap=heat_colors(both), norm=norm, interpolation="nearest")
    whole = values.dtype.kind in "iu"
    if n <= MAX_NUMBERS and (whole or 0.1 <= highest < 1000.0):
        for (row, column), value in np.ndenumerate(values):
            amount = f"{value:d}" if whole else _brief(value, highest)
            if not amount.strip("-.0"):
                continue
            strong = abs(2.0 * norm(value) - 1.0) if both else norm(value)
            color = {"color": "white"} if strong > 0.6 else {}
            size = 9.0 if n <= 10 else 7.0
            ax.text(column, row, amount, ha="center", va="center", fontsize=size, **color)
    else:
        ax.figure.colorbar(image, ax=ax, shrink=0.7)
    step = -(-n // MAX_NAMES)
    written = [_short(name) for name in names[::step]]
    longest = max(map(len, written), default=0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator(range(0, n, step)))
        axis.set_major_formatter(FixedFormatter(written))
    ax.tick_params(labelsize=9 if n <= 12 else 7, length=0)
    if longest > 2:
        ax.tick_params(axis="x", labelrotation=90)


def _brief(value: float, highest: float) -> str:
    """A number in four characters, with as many digits as the largest of its table has."""
    if highest < 1.0:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.1f}" if highest < 10.0 else f"{value:.0f}"


def plot_predictions(y_true: NDArray[Any], y_pred: NDArray[Any], axes: Any) -> None:
    """Plot predicted against true values, and a histogram of the errors."""
    pair_axis, residual_axis = axes
    chosen = np.linspace(0, len(y_true) - 1, min(len(y_true), 4 * MAX_POINTS)).astype(int)
    true, predicted = y_true[chosen], y_pred[chosen]
    pair_axis.scatter(true, predicted, s=8, alpha=0.5, linewidths=0)
    ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
    pair_axis.plot(ends, ends, color="C1", linestyle="--", linewidth=1, label="perfect")
    pair_axis.legend(fontsize="small")
    pair_axis.set(xlabel="true", ylabel="predicted", title="Predicted and true values")
    residual_axis.hist(y_pred - y_true, bins="auto" if len(y_true) < 10_000 else 60)
    residual_axis.set(xlabel="predicted - true", ylabel="examples", title="Errors")


def _history(estimator: Any) -> list[Any]:
    """Iterations of a fit, a sample of them if there are very many."""
    history = getattr(estimator, "history_", None)
    if not history:
        raise NotFittedError(
            f"This {type(estimator).__name__} has no history to plot: call fit first."
        )
    if len(history) <= MAX_POINTS:
        return list(history)
    kept = np.linspace(0, len(history) - 1, MAX_POINTS).astype(int).tolist()
    exact = [i for i, line in enumerate(history) if line.exact]
    few = exact if len(exact) <= MAX_POINTS else []  # evaluated ones are kept if they are few
    return [history[i] for i in sorted({*kept, *few})]


def _finite(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Coordinates of the points whose value is known."""
    known = [(x, y) for x, y in points if np.isfinite(y)]
    return [x for x, _ in known], [y for _, y in known]


def _visible(gaps: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Gaps on a logarithmic axis: zero is drawn far below."""
    return [(x, max(gap, 1e-16)) for x, gap in gaps]


def _mark_tolerance(axis: Any, estimators: Sequence[Any]) -> None:
    """A line at the tolerance, if it is the same for all."""
    tolerances = {Stopping.within(one.tol).relative_tol(_last(one.history_)) for one in estimators}
    if len(tolerances) == 1:
        axis.axhline(tolerances.pop(), color="C1", linestyle=":", linewidth=1, label="tol")


def _logarithmic(axes: Any, which: str) -> None:
    """A logarithmic scale with tick labels such as 0.001."""
    from matplotlib.ticker import FuncFormatter

    getattr(axes, f"set_{which}scale")("log")
    lowest, highest = getattr(axes, f"get_{which}lim")()
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    digits = "123456789" if highest < 4.0 * lowest else "25" if highest < 30.0 * lowest else ""
    axis.set_minor_formatter(
        FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in digits else "")
    )


def _leave_out_the_start(axis: Any, ends: Sequence[float]) -> None:
    """Objectives start far above where they end: limit the y-axis."""
    lowest, highest = axis.get_ylim()
    end = max((value for value in ends if np.isfinite(value)), default=highest)
    if end > 0.0 and highest > 3.0 * end:
        axis.set_ylim(max(lowest, -0.15 * end), 3.0 * end)


def _n_weights(model: Any) -> int | None:
    """Number of non-zero weights, if a model has weights."""
    for name in ("coef_", "weights_"):
        if hasattr(model, name):
            weights = getattr(model, name)
            return int(
                weights.count_nonzero() if sp.issparse(weights) else np.count_nonzero(weights)
            )
    return None


def _short(name: Any) -> str:
    """A name, shortened for the side of a matrix."""
    text = printable(name)
    text = text if len(text) <= 14 else f"{text[:13]}…"
    return text.replace("$", r"\$")  # or matplotlib takes it for a formula

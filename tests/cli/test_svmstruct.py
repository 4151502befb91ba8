"""--svmstruct: the objective that SVMstruct's programs would reach, in their own units."""

import json
from itertools import pairwise, product

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file, load_digits, load_iris

import maxmargin as mm
from maxmargin.cli.main import app


def train(*arguments):
    result = CliRunner().invoke(app, ["train", "--json", "--svmstruct", *map(str, arguments)])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def multiclass_objective(V, X, y, c):
    """That of svm_multiclass_learn: one vector for each class, 100 for a mistake."""
    scores = X @ V.T
    wrong = 100.0 * (np.arange(len(V)) != y[:, None])
    slacks = (wrong + scores).max(axis=1) - scores[np.arange(len(y)), y]
    return 0.5 * (V**2).sum() + c * slacks.mean()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_multiclass(n_classes, tmp_path):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    X = X - X.mean(axis=0)
    dump_svmlight_file(X, y + 1, str(tmp_path / "iris.svm"), zero_based=False)
    c, epsilon = 50.0, 0.5
    numbers = train(tmp_path / "iris.svm", "-o", tmp_path / "m.mm", "-c", c, "-e", epsilon)
    model = mm.load(tmp_path / "m.mm")
    assert not np.any(model.intercept_)
    coef = model.coef_ if n_classes > 2 else np.vstack([-model.coef_, model.coef_]) / 2
    theirs = multiclass_objective(100.0 * coef, X, y, c)
    assert numbers["svmstruct_objective"] == pytest.approx(theirs, rel=1e-9)
    tight = train(tmp_path / "iris.svm", "-o", tmp_path / "m.mm", "-c", c, "-e", 1e-4)
    optimum = tight["svmstruct_objective"]
    assert optimum - 1e-6 <= numbers["svmstruct_objective"] <= optimum + c * epsilon + 1e-6


def test_hmm(tmp_path):
    random = np.random.default_rng(0)
    lines, sequences = [], []
    for qid in range(1, 13):
        tags = random.integers(0, 3, size=3)
        rows = np.eye(3)[tags] + random.normal(scale=0.7, size=(3, 3)).round(3)
        sequences.append((rows, tags))
        for tag, row in zip(tags, rows, strict=True):
            features = " ".join(f"{k}:{value!r}" for k, value in enumerate(row.tolist(), start=1))
            lines.append(f"{tag + 1} qid:{qid} {features}")
    path = tmp_path / "hmm.dat"
    path.write_text("\n".join(lines) + "\n")
    c, epsilon = 6.0, 0.05
    options = ["--task", "tagging", "--format", "svm-hmm", "-o", tmp_path / "m.mm", "-c", c]
    numbers = train(path, *options, "-e", epsilon)
    model = mm.load(tmp_path / "m.mm")

    def score(rows, tags):
        pairs = model.transitions_[tags[:-1], tags[1:]].sum()
        return (rows * model.coef_[tags]).sum() + pairs

    slacks = [
        max(
            (np.array(z) != tags).sum() + score(rows, np.array(z)) - score(rows, tags)
            for z in product(range(3), repeat=3)
        )
        for rows, tags in sequences
    ]
    norm = (model.coef_**2).sum() + (model.transitions_**2).sum()
    assert numbers["svmstruct_objective"] == pytest.approx(0.5 * norm + c * np.mean(slacks))
    assert numbers["objective"] - numbers["dual"] <= c * epsilon + 1e-9


def digit_sequences(path):
    """Handwritten digits, six in a row, which grow by one as often as not."""
    X, y = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    lines = []
    for qid in range(1, 151):
        digit = int(random.integers(10))
        for _ in range(6):
            row = X[random.choice(np.flatnonzero(y == digit))] / 16.0
            features = " ".join(f"{k + 1}:{row[k]:g}" for k in np.flatnonzero(row))
            lines.append(f"{digit + 1} qid:{qid} {features}")
            digit = (digit + 1) % 10 if random.random() < 0.5 else int(random.integers(10))
    path.write_text("\n".join(lines) + "\n")


def test_a_looser_epsilon_stops_earlier(tmp_path):
    """As SVMstruct does: where the gap is at most c * e, and not where it is nearly closed."""
    digit_sequences(tmp_path / "hmm.dat")
    options = ["--task", "tagging", "--format", "svm-hmm", "-o", tmp_path / "m.mm", "-c", 75]
    epsilons = [0.5, 0.1, 0.01, 1e-5]
    fits = [train(tmp_path / "hmm.dat", *options, "-e", epsilon) for epsilon in epsilons]
    optimum = fits[-1]["objective"]
    for fit, epsilon in zip(fits, epsilons, strict=True):
        assert fit["status"] == "converged"
        assert fit["objective"] - fit["dual"] <= 75 * epsilon
        assert fit["objective"] <= optimum + 75 * epsilon
    for looser, tighter in pairwise(fits):
        assert looser["iterations"] < tighter["iterations"]
        assert looser["oracle_calls"] < tighter["oracle_calls"]


def test_a_looser_epsilon_stops_earlier_with_classes(tmp_path):
    X, y = load_digits(return_X_y=True)
    dump_svmlight_file(X / 16, y + 1, str(tmp_path / "digits.svm"), zero_based=False)
    options = [tmp_path / "digits.svm", "-o", tmp_path / "m.mm", "-c", 50_000]
    epsilons = [0.5, 0.1, 0.01]
    fits = [train(*options, "-e", epsilon) for epsilon in epsilons]
    for fit, epsilon in zip(fits, epsilons, strict=True):
        assert 1e4 * (fit["objective"] - fit["dual"]) <= 50_000 * epsilon
    for looser, tighter in pairwise(fits):
        assert looser["iterations"] < tighter["iterations"]
        assert looser["oracle_calls"] < tighter["oracle_calls"]


def test_other_files_are_refused(tmp_path):
    (tmp_path / "t.mrg").write_text("(S (NP (N dogs)) (VP (V bark)))\n")
    arguments = ["train", "--svmstruct", str(tmp_path / "t.mrg"), "-o", str(tmp_path / "m.mm")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--svmstruct is for classification" in result.stderr

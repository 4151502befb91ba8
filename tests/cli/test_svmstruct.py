"""--svmstruct: the objective that SVMstruct's programs would reach, in their own units."""

import json
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_iris
from typer.testing import CliRunner

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


def test_other_files_are_refused(tmp_path):
    (tmp_path / "t.mrg").write_text("(S (NP (N dogs)) (VP (V bark)))\n")
    arguments = ["train", "--svmstruct", str(tmp_path / "t.mrg"), "-o", str(tmp_path / "m.mm")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--svmstruct is for classification" in result.stderr

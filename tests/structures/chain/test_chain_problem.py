"""`Chain` as a problem: its verbs against all labellings, and the same fits as `SequenceTagger`."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.structures.chain.problem import Chain

SHAPES = {
    "first order": {},
    "second order": {"order": 2},
    "bare": {"fit_intercept": False, "fit_ends": False},
}


def case(seed, length, options, sparse=False):
    random = np.random.default_rng(seed)
    problem = Chain(n_labels=3, n_features=2, **options)
    x = random.normal(size=(length, 2))
    y_true = random.integers(0, 3, length)
    n_weights = problem.layout.n_rows * problem.layout.n_columns
    w = random.normal(size=n_weights)
    return problem, sp.csr_array(x) if sparse else x, y_true, w


@pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("length", [1, 2, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_verbs_find_the_best_of_all_labellings(options, length, sparse):
    for seed in range(5):
        problem, x, y_true, w = case(seed, length, options, sparse)
        every = [np.array(y) for y in product(range(3), repeat=length)]
        scores = np.array([problem.joint_feature(x, y) @ w for y in every])
        losses = np.array([problem.loss(y_true, y) for y in every])

        def score(y, problem=problem, x=x, w=w):
            return problem.joint_feature(x, y) @ w

        assert score(problem.inference(x, w)) == pytest.approx(scores.max())
        found = problem.loss_augmented_inference(x, y_true, w)
        assert score(found) + problem.loss(y_true, found) == pytest.approx((scores + losses).max())
        best = [score(y) for y in problem.k_best(x, w, 3)]
        np.testing.assert_allclose(best, np.sort(scores)[::-1][:3])
        probabilities = np.exp(scores - scores.max())
        probabilities /= probabilities.sum()
        expected = np.zeros((length, 3))
        for y, p in zip(every, probabilities, strict=True):
            expected[np.arange(length), y] += p
        np.testing.assert_allclose(problem.marginals(x, w), expected, atol=1e-9)
        if problem.order == 1:
            slacks = losses * (1.0 + scores - score(y_true))
            found = problem.slack_rescaled_inference(x, y_true, w)
            slack = problem.loss(y_true, found) * (1.0 + score(found) - score(y_true))
            assert slack == pytest.approx(slacks.max())


def examples(seed=0, n=12):
    random = np.random.default_rng(seed)
    Y = [random.integers(0, 3, random.integers(1, 6)) for _ in range(n)]
    Y[0] = np.array([0, 1, 2])
    return [random.normal(size=(len(y), 4)) + np.eye(3, 4)[y] for y in Y], Y


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("order", [1, 2])
def test_trains_to_the_objective_of_the_tagger(order, rescaling):
    X, Y = examples()
    settings = {"C": 0.3, "tol": 1e-4, "rescaling": rescaling}
    if order == 2 and rescaling == "slack":
        settings["tol"] = 0.5  # relaxed
    tagger = mm.SequenceTagger(order=order, **settings).fit(X, Y)
    model = mm.StructuredSVM(Chain(3, 4, order=order), **settings).fit(X, Y)
    assert model.certificate_.primal == tagger.certificate_.primal
    assert model.certificate_.dual == tagger.certificate_.dual
    for one, other in zip(model.predict(X), tagger.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_partial_linearization_has_its_marginals():
    X, Y = examples()
    model = mm.StructuredSVM(Chain(3, 4), C=0.3, tol=1e-3, solver=mm.PartialLinearization())
    assert model.fit(X, Y).certificate_.relative_gap <= 1e-3


def test_keeps_its_contract():
    X, Y = examples()
    for options in SHAPES.values():
        assert mm.check_problem(Chain(3, 4, **options), X, Y).ok


def test_files(tmp_path):
    X, Y = examples()
    model = mm.StructuredSVM(Chain(3, 4, order=2, fit_ends=False), tol=0.1).fit(X, Y)
    mm.save(model, tmp_path / "chain.mm")
    again = mm.load(tmp_path / "chain.mm")
    assert again.problem.parts() == model.problem.parts()
    np.testing.assert_array_equal(again.predict(X)[0], model.predict(X)[0])


def test_bad_input():
    with pytest.raises(ValueError, match="order is 1 or 2"):
        Chain(3, 4, order=3)
    for labels in ([0, 1], [0, 1, 3], [0.5, 1, 2]):
        with pytest.raises(ValueError, match=r"Sequence 0 has 3 positions: .* from 0 to 2"):
            Chain(3, 1).make_oracle([np.ones((3, 1))], [labels], np.ones(1))
    with pytest.raises(ValueError, match="Sequence 0 has 2 features, but 1 were expected"):
        Chain(3, 1).make_oracle([np.ones((3, 2))], [[0, 0, 0]], np.ones(1))

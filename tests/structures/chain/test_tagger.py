"""SequenceTagger: what goes in, what comes out, and what it says to bad input."""

import gc
import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import maxmargin as mm
from maxmargin.structures.chain.oracle import ChainOracle


def words(n=60, n_features=6, n_labels=3, seed=0):
    """Sequences of length 0 to 6 whose labels follow features and the label before."""
    random = np.random.default_rng(seed)
    emissions = random.normal(size=(n_labels, n_features))
    follows = 2.0 * random.normal(size=(n_labels, n_labels))
    X, y = [], []
    for _ in range(n):
        rows = random.normal(size=(random.integers(0, 7), n_features))
        labels = []
        for row in rows:
            scores = emissions @ row + (follows[labels[-1]] if labels else 0.0)
            labels.append(int(np.argmax(scores + 0.3 * random.normal(size=n_labels))))
        X.append(rows)
        y.append(np.array(["abc"[label] for label in labels], dtype="<U1"))
    return X, y


X, Y = words()
LENGTHS = np.array([len(x) for x in X])
FLAT, FLAT_Y = np.concatenate(X), np.concatenate(Y)


@pytest.fixture(scope="module")
def tagger():
    return mm.SequenceTagger(C=1.0, tol=1e-3).fit(X, Y)


def score_of(tagger, x, labels):
    """Score of a labelling from the named attributes alone."""
    at = [int(np.flatnonzero(tagger.classes_ == label)[0]) for label in labels]
    total = sum(tagger.coef_[k] @ row + tagger.intercept_[k] for k, row in zip(at, x, strict=True))
    total += sum(tagger.transitions_[a, b] for a, b in itertools.pairwise(at))
    if hasattr(tagger, "second_order_"):
        total += sum(tagger.second_order_[t] for t in zip(at, at[1:], at[2:], strict=False))
    if hasattr(tagger, "pair_coef_"):
        for t, (a, b) in enumerate(itertools.pairwise(at), start=1):
            total += tagger.pair_coef_[:, a, b] @ x[t][tagger._tied]
    return total + tagger.first_[at[0]] + tagger.last_[at[-1]]


def best_by_hand(tagger, x, k=1):
    ranked = sorted(
        itertools.product(tagger.classes_, repeat=len(x)), key=lambda y: -score_of(tagger, x, y)
    )
    return ranked[:k]


def test_it_learns_and_certifies(tagger):
    assert tagger.score(X, Y) > 0.85
    assert tagger.certificate_.relative_gap <= 1e-3
    assert tagger.status_ == "converged"


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("parts", [{}, {"fit_intercept": False}, {"fit_ends": False}])
def test_predictions_follow_from_the_named_weights(order, parts):
    tagger = mm.SequenceTagger(C=1.0, order=order, tol=1e-2, **parts).fit(X, Y)
    some = [x for x in X if 0 < len(x) <= 4][:12]
    for x, predicted, score in zip(
        some, tagger.predict(some), tagger.decision_function(some), strict=True
    ):
        by_hand = best_by_hand(tagger, x)[0]
        assert tuple(predicted) == by_hand
        assert score == pytest.approx(score_of(tagger, x, by_hand))


@pytest.mark.parametrize("columns", ["all", [4, 1]])
def test_features_tied_to_pairs(columns):
    tagger = mm.SequenceTagger(pair_features=columns, tol=1e-3).fit(X, Y)
    plain = mm.SequenceTagger(tol=1e-3).fit(X, Y)
    assert tagger.certificate_.primal < plain.certificate_.primal
    assert tagger.pair_coef_.shape == (6 if columns == "all" else 2, 3, 3)
    some = [x for x in X if 0 < len(x) <= 4][:12]
    marginals = tagger.predict_marginals(some)
    for x, predicted, shares in zip(some, tagger.predict(some), marginals, strict=True):
        assert tuple(predicted) == best_by_hand(tagger, x)[0]
        expected = np.zeros((len(x), 3))
        for labels in itertools.product(range(3), repeat=len(x)):
            weight = np.exp(score_of(tagger, x, tagger.classes_[list(labels)]))
            expected[np.arange(len(x)), labels] += weight
        np.testing.assert_allclose(shares, expected / expected.sum(axis=1, keepdims=True))


def test_forms_of_input_are_the_same_data(tagger):
    one = mm.SequenceTagger(tol=1e-3).fit(FLAT, FLAT_Y, lengths=LENGTHS)
    two = mm.SequenceTagger(tol=1e-3).fit([sp.csr_matrix(x) if len(x) else x for x in X], Y)
    three = mm.SequenceTagger(tol=1e-3).fit(sp.csr_matrix(FLAT), Y, lengths=LENGTHS)
    named = [[{f"f{j}": v for j, v in enumerate(row)} for row in x] for x in X]
    four = mm.SequenceTagger(tol=1e-3).fit(named, [labels.tolist() for labels in Y])
    for other in (one, two, three, four):
        np.testing.assert_allclose(other.coef_, tagger.coef_, atol=0.05)
        assert other.certificate_.primal == pytest.approx(tagger.certificate_.primal, rel=2e-3)
    flat = one.predict(FLAT, lengths=LENGTHS)
    np.testing.assert_array_equal(flat, np.concatenate(one.predict(X)))
    assert list(four.vocabulary_) == [f"f{j}" for j in range(6)]
    assert four.score(named, Y) == pytest.approx(tagger.score(X, Y), abs=0.03)


def test_feature_dictionaries():
    positions = [{"w": "a", "n": 2.0, "yes": True, "no": False, "many": ["p", "q"], "in": {"x": 3}}]
    tagger = mm.SequenceTagger(tol=1e-3).fit([positions, [["w=a", "other"]]], [["A"], ["B"]])
    assert list(tagger.vocabulary_) == ["w=a", "n", "yes", "many=p", "many=q", "in=x", "other"]
    assert tagger.n_features_in_ == 7
    assert len(tagger.predict([[{"w": "never seen"}], []])) == 2


@pytest.mark.parametrize("order", [1, 2])
def test_indicators_give_the_weights_of_their_matrix_to_the_bit(order):
    named = [[{f"f{j}": str(np.sign(v)) for j, v in enumerate(row)} for row in x] for x in X]
    one = mm.SequenceTagger(order=order, tol=1e-3).fit(named, Y)
    matrix, ends = one.vocabulary_.matrix(named, grow=False)
    two = mm.SequenceTagger(order=order, tol=1e-3).fit(matrix, FLAT_Y, lengths=np.diff(ends))
    np.testing.assert_array_equal(one._table, two._table)
    assert one.certificate_ == two.certificate_


def test_a_fit_leaves_its_data_to_no_collector_of_cycles():
    gc.collect()
    gc.disable()
    try:
        before = set(map(id, gc.get_objects()))
        mm.SequenceTagger(tol=1e-3).fit(X, Y)
        new = [one for one in gc.get_objects() if id(one) not in before]
    finally:
        gc.enable()
    assert not [one for one in new if isinstance(one, ChainOracle)]


def test_numbers_strings_and_labels_never_seen(tagger):
    numbers = mm.SequenceTagger(tol=1e-3).fit(
        X, [np.array([ord(c) for c in y], dtype=int) for y in Y]
    )
    assert set(numbers.classes_) == {97, 98, 99}
    wrong = [np.where(y == y, "z", y) for y in Y]
    assert tagger.score(X, wrong) == 0.0


def test_one_label_only():
    tagger = mm.SequenceTagger(tol=1e-3).fit(X, [np.full(len(x), "a") for x in X])
    assert tagger.certificate_.primal == 0.0
    assert all(set(y) <= {"a"} for y in tagger.predict(X))


def test_empty_sequences_get_empty_answers(tagger):
    empty = np.zeros((0, 6))
    assert [len(y) for y in tagger.predict([empty, X[1]])] == [0, len(X[1])]
    assert tagger.predict_marginals([empty])[0].shape == (0, 3)
    assert tagger.predict_k_best([empty], 2)[0][0][1] == 0.0


@pytest.mark.parametrize(
    "loss",
    [
        "hamming",
        "hamming-normalized",
        "zero-one",
        [[0, 1, 2], [1, 0, 1], [3, 1, 0]],
        {("a", "b"): 5},
    ],
)
def test_losses_bound_what_is_lost(loss):
    tagger = mm.SequenceTagger(C=1.0, loss=loss, tol=1e-3).fit(X, Y)
    certificate = tagger.certificate_
    weights = tagger._table
    hinge = certificate.primal - 0.5 * np.sum(weights**2)
    matrix = np.ones((3, 3)) - np.eye(3)
    if isinstance(loss, dict):
        matrix[0, 1] = 5
    elif not isinstance(loss, str):
        matrix = np.array(loss)
    lost = 0.0
    for y_true, found in zip(Y, tagger.predict(X), strict=True):
        if len(y_true):
            costs = [
                matrix["abc".index(a), "abc".index(b)] for a, b in zip(y_true, found, strict=True)
            ]
            lost += {"hamming-normalized": np.mean(costs), "zero-one": float(any(costs))}.get(
                loss if isinstance(loss, str) else "", sum(costs)
            )
    assert lost <= hinge + 1e-9


def test_slack_rescaling_is_margin_rescaling_where_they_agree():
    """One mistake at most is possible in a sequence of one position."""
    single = [x[:1] for x in X if len(x)]
    labels = [y[:1] for y in Y if len(y)]
    margin = mm.SequenceTagger(tol=1e-5).fit(single, labels)
    slack = mm.SequenceTagger(rescaling="slack", tol=1e-5).fit(single, labels)
    assert slack.certificate_.primal == pytest.approx(margin.certificate_.primal, rel=1e-4)


def test_top_and_marginals_by_hand(tagger):
    some = [x for x in X if 0 < len(x) <= 4][:6]
    for x, found in zip(some, tagger.predict_k_best(some, 4), strict=True):
        by_hand = best_by_hand(tagger, x, 4)
        assert [tuple(labels) for labels, _ in found] == by_hand
        np.testing.assert_allclose(
            [score for _, score in found], [score_of(tagger, x, y) for y in by_hand]
        )
    for temperature in (0.5, 2.0):
        marginals = tagger.predict_marginals(some, temperature=temperature)
        for x, found in zip(some, marginals, strict=True):
            expected = np.zeros((len(x), 3))
            for labels in itertools.product(range(3), repeat=len(x)):
                weight = np.exp(score_of(tagger, x, tagger.classes_[list(labels)]) / temperature)
                expected[np.arange(len(x)), labels] += weight
            np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("options", [{"order": 2}, {"pair_features": "all"}, {}])
def test_all_labellings_listed_agree_with_the_best_and_the_marginals(options):
    tagger = mm.SequenceTagger(tol=1e-2, **options).fit(X, Y)
    some = [x for x in X if 0 < len(x) <= 4][:6]
    scores = tagger.decision_function(some)
    for i, (x, found) in enumerate(zip(some, tagger.predict_k_best(some, 1000), strict=True)):
        assert len({tuple(labels) for labels, _ in found}) == len(found) == 3 ** len(x)
        values = np.array([score for _, score in found])
        assert (np.diff(values) <= 1e-12).all()
        best, score = tagger.predict_k_best([x], 1)[0][0]
        assert best.tolist() == tagger.predict([x])[0].tolist() == found[0][0].tolist()
        assert score == pytest.approx(scores[i]) == values[0]
        weights = np.exp(values - values[0])
        expected = sum(
            weight * (labels[:, None] == tagger.classes_)
            for weight, (labels, _) in zip(weights, found, strict=True)
        )
        np.testing.assert_allclose(
            tagger.predict_marginals([x])[0], expected / weights.sum(), atol=1e-12
        )


def test_second_order_marginals_sum_to_one():
    tagger = mm.SequenceTagger(order=2, tol=0.1).fit(X, Y)
    for found in tagger.predict_marginals(X):
        np.testing.assert_allclose(found.sum(axis=1), 1.0)


@pytest.mark.parametrize("solver", ["auto", "dual-coordinate", "n-slack", "one-slack"])
def test_solvers_agree(solver, tagger):
    other = mm.SequenceTagger(solver=solver, tol=1e-4).fit(X, Y)
    assert other.certificate_.dual <= tagger.certificate_.primal
    assert other.certificate_.primal == pytest.approx(tagger.certificate_.primal, rel=1.1e-3)


def test_threads_do_not_change_the_answer(tagger):
    two = clone(tagger).set_params(n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(two.coef_, tagger.coef_)
    np.testing.assert_array_equal(np.concatenate(two.predict(X)), np.concatenate(tagger.predict(X)))


def test_warm_start_goes_on():
    tagger = mm.SequenceTagger(warm_start=True, tol=1e-4).fit(X, Y)
    first = tagger.history_[-1].oracle_calls
    tagger.fit(X, Y)
    assert tagger.history_[-1].oracle_calls < first / 2
    tagger.set_params(C=2.0).fit(X, Y)
    cold = mm.SequenceTagger(C=2.0, tol=1e-4).fit(X, Y)
    assert tagger.certificate_.primal == pytest.approx(cold.certificate_.primal, rel=3e-4)


def test_sample_weight_is_repetition():
    weighted = mm.SequenceTagger(tol=1e-5).fit(X, Y, sample_weight=np.arange(len(X)) % 3)
    repeated = mm.SequenceTagger(tol=1e-5).fit(
        [x for i, x in enumerate(X) for _ in range(i % 3)],
        [y for i, y in enumerate(Y) for _ in range(i % 3)],
    )
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=3e-5)


def test_early_stops_keep_the_best_and_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 iterations at a relative duality gap"):
        tagger = mm.SequenceTagger(C=100.0, max_iter=1, tol=1e-8).fit(X, Y)
    assert tagger.status_ == "max_iter"
    assert np.isfinite(tagger.certificate_.primal)
    assert tagger.certificate_.primal >= tagger.certificate_.dual


WITH_NAN = (
    [np.zeros((3, 3)), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, np.nan]])],
    [["a", "b", "a"], ["a", "b"]],
)

BAD = {
    "unequal lengths": ((X, [*Y[:3], Y[3][:-1], *Y[4:]]), {}, "Sequence 3 has .* labels"),
    "too few sequences": ((X, Y[:-1]), {}, "60 sequences but y has 59"),
    "wrong width": (([*X[:5], np.ones((2, 4))], [*Y[:5], ["a", "b"]]), {}, "Sequence 5 has 4 feat"),
    "NaN": (WITH_NAN, {}, "NaN .* at sequence 1, position 1, column 2: remove"),
    "sparse NaN": (
        ([sp.csr_array(x) for x in WITH_NAN[0]], WITH_NAN[1]),
        {},
        "NaN .* at sequence 1, position 1, column 2: remove",
    ),
    "NaN in one matrix": (
        (np.concatenate(WITH_NAN[0]), ["a"] * 5),
        {"lengths": [3, 2]},
        "NaN .* at row 4, column 2: remove",
    ),
    "one matrix": ((FLAT, FLAT_Y), {}, "give lengths"),
    "wrong lengths": ((FLAT, FLAT_Y), {"lengths": [3]}, "lengths add up to 3"),
    "negative lengths": ((FLAT, FLAT_Y), {"lengths": [-1, len(FLAT) + 1]}, "not be negative"),
    "flat labels": ((FLAT, FLAT_Y[:-1]), {"lengths": LENGTHS}, "positions but y has"),
    "nothing": (([], []), {}, "empty"),
    "no positions": (([np.zeros((0, 2))], [[]]), {}, "no positions"),
    "a value": (([[{"f": object()}]], [["a"]]), {}, "Sequence 0, position 0: feature 'f'"),
    "infinite": (
        ([[{"f": 1.0}, {"g": np.inf}]], [["a", "b"]]),
        {},
        "position 1: feature 'g' is inf",
    ),
    "weights": ((X, Y), {"sample_weight": [1.0]}, "sample_weight"),
    "text": ((["abc"], [["a"]]), {}, "position 0: features must be a dictionary"),
}


@pytest.mark.parametrize(("arguments", "more", "message"), BAD.values(), ids=BAD)
def test_bad_input(arguments, more, message):
    tagger = mm.SequenceTagger(tol=1e-3)
    with pytest.raises(ValueError, match=message) as raised:
        tagger.fit(*arguments, **more)
    assert "\n" not in str(raised.value)
    with pytest.raises(NotFittedError):
        tagger.predict(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "zero-one", "order": 2}, "zero-one"),
        ({"loss": [[1, 1, 1], [1, 0, 1], [1, 1, 0]]}, "diagonal"),
        ({"pair_features": "all", "order": 2}, "pair_features"),
        ({"pair_features": [6]}, "pair_features names 6"),
        ({"C": -1.0}, "C"),
        ({"solver": "simplex"}, "solver"),
        ({"order": 3}, "order"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        mm.SequenceTagger(tol=1e-3, **parameters).fit(X, Y)


def test_bad_questions(tagger):
    with pytest.raises(ValueError, match="Sequence 0 has 2 features, but 6"):
        tagger.predict([np.ones((1, 2))])
    with pytest.raises(ValueError, match="trained on matrices"):
        tagger.predict([[{"f": 1.0}]])
    with pytest.raises(ValueError, match="temperature"):
        tagger.predict_marginals(X, temperature=0.0)
    with pytest.raises(ValueError, match="k must"):
        tagger.predict_k_best(X, 0)
    named = mm.SequenceTagger(tol=1e-3).fit([[{"f": 1.0}]], [["a"]])
    with pytest.raises(ValueError, match="trained on feature dictionaries"):
        named.predict(X)


def test_no_warnings_on_the_way():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mm.SequenceTagger(tol=1e-3).fit(X, Y).predict(X)

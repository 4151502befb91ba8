"""PoseEstimator: what goes in, what comes out, and what it says to bad input."""

import pickle

import numpy as np
import pytest
from pose_scenes import draw, hooks
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import maxmargin as mm
from maxmargin.solvers.mini_batch_dual import MiniBatchDual
from maxmargin.structures.pose.estimator import PoseEstimator
from maxmargin.structures.pose.features import Pose, overlaps
from maxmargin.structures.pose.problem import TURN, angular_distance

IMAGES, POSES = hooks(40)
TEST_IMAGES, TEST_POSES = hooks(25, seed=1)
SETTINGS = {"C": 1.0, "window": 16}


@pytest.fixture(scope="module")
def estimator():
    return PoseEstimator(**SETTINGS).fit(IMAGES, POSES)


@pytest.fixture(scope="module")
def scaled():
    random = np.random.default_rng(0)
    scales = random.choice([1.0, 2.0], size=80)
    centres, angles = random.uniform(16, 28, size=(80, 2)), random.uniform(0, TURN, size=80)
    poses = np.column_stack([centres, scales, angles])
    images = [draw(x, y, angle, (44, 44), scale) for x, y, scale, angle in poses]
    model = PoseEstimator(**SETTINGS, scales=(1.0, 2.0)).fit(images[:60], poses[:60])
    return model, images[60:], poses[60:]


def test_it_learns_and_certifies(estimator):
    assert estimator.status_ == "converged"
    assert estimator.certificate_.relative_gap <= 1e-2
    errors = estimator.errors(TEST_IMAGES, TEST_POSES)
    assert estimator.accuracy(TEST_IMAGES, TEST_POSES) > 0.9
    assert np.degrees(np.median(errors.angles)) < 8
    assert estimator.score(TEST_IMAGES, TEST_POSES) > 0.85


def test_errors_and_score_follow_from_predictions(estimator):
    predicted = estimator.predict(TEST_IMAGES)
    assert predicted.shape == (25, 3)
    assert ((predicted[:, 2] >= 0) & (predicted[:, 2] < TURN)).all()
    errors = estimator.errors(TEST_IMAGES, TEST_POSES)
    np.testing.assert_allclose(errors.angles, angular_distance(predicted[:, 2], TEST_POSES[:, 2]))
    for k in range(25):
        a, b = (np.r_[p[k, :2] - 8, p[k, :2] + 8] for p in (predicted, TEST_POSES))
        assert errors.overlaps[k] == pytest.approx(overlaps(a, b[None])[0])
    loss = 0.5 * errors.angles / np.pi + 0.5 * (1 - errors.overlaps)
    assert estimator.score(TEST_IMAGES, TEST_POSES) == pytest.approx(1 - loss.mean())


def test_predictions_follow_from_the_named_attributes(estimator):
    assert estimator.angles_.tolist() == pytest.approx((TURN / 16 * np.arange(16)).tolist())
    plain = clone(estimator).set_params(refine=False).fit(IMAGES, POSES)
    grid = plain._problem.grid
    assert plain.coef_.shape == (16, grid.n_features)
    pairs = zip(plain.predict(TEST_IMAGES), plain.decision_function(TEST_IMAGES), strict=True)
    for image, (pose, score) in zip(TEST_IMAGES, pairs, strict=True):
        windows = grid.windows(image)
        scores = windows.features() @ plain.coef_.T
        window, angle = np.unravel_index(scores.argmax(), scores.shape)
        assert score == pytest.approx(scores.max())
        assert pose.tolist() == [*windows.pose(window, 0.0)[:2], plain.angles_[angle]]


def test_refined_angles_score_higher_and_are_nearer(estimator):
    plain = pickle.loads(pickle.dumps(estimator)).set_params(refine=False)
    coarse, fine = plain.predict(TEST_IMAGES), estimator.predict(TEST_IMAGES)
    np.testing.assert_array_equal(coarse[:, :2], fine[:, :2])
    assert (angular_distance(coarse[:, 2], fine[:, 2]) <= TURN / 16 + 1e-9).all()
    gains = estimator.decision_function(TEST_IMAGES) - plain.decision_function(TEST_IMAGES)
    assert (gains >= 0).all()
    assert (gains > 0).any()
    of_coarse, of_fine = (e.errors(TEST_IMAGES, TEST_POSES).angles for e in (plain, estimator))
    assert of_fine.mean() < of_coarse.mean()


def test_several_scales(scaled):
    model, images, poses = scaled
    predicted = model.predict(images)
    assert predicted.shape == (20, 4)
    assert set(predicted[:, 2]) == {1.0, 2.0}
    assert np.mean(predicted[:, 2] == poses[:, 2]) >= 0.8
    assert model.accuracy(images, poses) >= 0.8


def test_images_of_different_sizes(estimator):
    large = [np.pad(image, ((0, 8), (4, 0))) for image in TEST_IMAGES]
    mixed = [*TEST_IMAGES[:5], *large[5:]]
    predicted = estimator.predict(mixed)
    np.testing.assert_allclose(predicted[:5], estimator.predict(TEST_IMAGES[:5]))
    shift = np.array([4.0, 0.0, 0.0])
    assert estimator.accuracy(mixed, [*TEST_POSES[:5], *(TEST_POSES[5:] + shift)]) > 0.9


def test_an_array_of_images_is_a_list_of_them(estimator):
    np.testing.assert_array_equal(
        estimator.predict(np.array(TEST_IMAGES)), estimator.predict(TEST_IMAGES)
    )
    shown = (255 * np.clip(TEST_IMAGES, 0, 1)).astype(np.uint8)
    assert estimator.predict(shown).shape == (25, 3)


def test_whole_turns_do_not_matter():
    turned = POSES + TURN * np.array([0, 0, 3])
    a, b = (PoseEstimator(**SETTINGS).fit(IMAGES, poses) for poses in (POSES, turned))
    assert a.certificate_.dual <= b.certificate_.primal * (1 + 1e-9)
    assert b.certificate_.dual <= a.certificate_.primal * (1 + 1e-9)
    np.testing.assert_allclose(a.errors(IMAGES, POSES).angles, a.errors(IMAGES, turned).angles)


def test_top_poses(estimator):
    two = [np.hstack([a, b]) for a, b in zip(TEST_IMAGES[:6], TEST_IMAGES[6:12], strict=True)]
    tops = estimator.predict_k_best(two, 3, max_overlap=0.2)
    best = estimator.predict(two)
    for top, pose, image in zip(tops, best, two, strict=True):
        assert len(top) == 3
        scores = [score for _, score in top]
        assert scores == sorted(scores, reverse=True)
        np.testing.assert_allclose(top[0][0], pose)
        boxes = np.array([np.r_[p[:2] - 8, p[:2] + 8] for p, _ in top])
        for k in range(3):
            assert (np.delete(overlaps(boxes[k], boxes), k) <= 0.2).all()
        assert estimator.decision_function([image])[0] == pytest.approx(scores[0])
    places = [sorted(p[0] // 32 for p, _ in top[:2]) for top in tops]
    assert sum(place == [0, 1] for place in places) >= 5  # one hook in each half
    few = estimator.predict_k_best([TEST_IMAGES[0][:16, :16]], 5)
    assert len(few[0]) == 1


def test_slack_rescaling_multiplies_the_loss():
    images, poses = IMAGES[:10], POSES[:10]
    model = PoseEstimator(C=0.5, window=16, n_angles=6, rescaling="slack").fit(images, poses)
    assert model.certificate_.relative_gap <= 1e-2
    grid = model._problem.grid
    total = model.model_.half_square
    for image, (x, y, angle) in zip(images, poses, strict=True):
        windows = grid.windows(image)
        y_true = windows.pose(windows.nearest(Pose(x, y, 1.0, angle)), angle)
        own = model.model_.pair_scores(windows.feature(y_true)[None], np.array([[angle]]))[0]
        scores = windows.features() @ model.coef_.T
        losses = [
            [model._problem.loss(y_true, windows.pose(w, a)) for a in model.angles_]
            for w in range(len(windows))
        ]
        total += 0.5 * max(0.0, np.max(np.array(losses) * (1.0 + scores - own)))
    assert total == pytest.approx(model.certificate_.primal)


def test_one_angle_weight_learns_angles_only():
    model = PoseEstimator(**SETTINGS, angle_weight=1.0).fit(IMAGES, POSES)
    errors = model.errors(TEST_IMAGES, TEST_POSES)
    expected = 1 - errors.angles.mean() / np.pi
    assert model.score(TEST_IMAGES, TEST_POSES) == pytest.approx(expected)


@pytest.mark.parametrize(
    "solver",
    [
        MiniBatchDual(batch_size=40),
        MiniBatchDual(outputs_per_call=3, diversity=0.5),
        MiniBatchDual(steps="smo"),
    ],
)
def test_solvers_agree(estimator, solver):
    other = PoseEstimator(**SETTINGS, solver=solver).fit(IMAGES, POSES)
    assert other.status_ == "converged"
    assert other.certificate_.dual <= estimator.certificate_.primal * (1 + 1e-9)
    assert estimator.certificate_.dual <= other.certificate_.primal * (1 + 1e-9)


def test_threads_and_seeds_and_copies(estimator):
    again = PoseEstimator(**SETTINGS, n_jobs=2).fit(IMAGES, POSES)
    np.testing.assert_array_equal(again.predict(TEST_IMAGES), estimator.predict(TEST_IMAGES))
    copied = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(copied.predict(TEST_IMAGES), estimator.predict(TEST_IMAGES))


def test_models_come_back_from_files(scaled, tmp_path):
    model, images, _ = scaled
    again = mm.load(mm.save(model, tmp_path / "poses.mm"))
    np.testing.assert_array_equal(again.predict(images), model.predict(images))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert again.certificate_ == model.certificate_


def test_warm_start_needs_fewer_rounds():
    model = PoseEstimator(**SETTINGS, warm_start=True).fit(IMAGES, POSES)
    first = model.n_iter_
    model.fit(IMAGES, POSES)
    assert model.n_iter_ < first
    assert model.status_ == "converged"


def test_weights_of_zero_are_images_left_out():
    weight = np.r_[np.ones(30), np.zeros(10)]
    a = PoseEstimator(**SETTINGS, tol=1e-4).fit(IMAGES, POSES, sample_weight=weight)
    b = PoseEstimator(**SETTINGS, tol=1e-4).fit(IMAGES[:30], POSES[:30])
    assert a.certificate_.primal == pytest.approx(b.certificate_.primal, rel=3e-4)


def test_stopping_early_warns_and_keeps_the_best():
    model = PoseEstimator(**SETTINGS, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="PoseEstimator was stopped by max_iter=1"):
        model.fit(IMAGES, POSES)
    assert model.predict(TEST_IMAGES).shape == (25, 3)
    assert np.isfinite(model.certificate_.gap)


def test_no_images_no_poses(estimator):
    assert estimator.predict([]).shape == (0, 3)
    assert estimator.decision_function([]).shape == (0,)
    assert estimator.predict_k_best([], 2) == []


def changed(poses, row, column, value):
    poses = poses.copy()
    poses[row, column] = value
    return poses


def spoilt(image, value):
    image = image.copy()
    image[3, 4] = value
    return image


BAD = {
    "no images": (lambda: ([], np.zeros((0, 3))), {}, "X is empty"),
    "small": (lambda: ([*IMAGES[:2], np.ones((32, 15))], POSES[:3]), {}, "Image 2 has 32 x 15"),
    "colour": (lambda: ([np.ones((32, 32, 3))], POSES[:1]), {}, "Image 0 has 3 dimensions"),
    "NaN": (lambda: ([spoilt(IMAGES[0], np.nan)], POSES[:1]), {}, "Image 0 .* row 3, column 4"),
    "infinity": (lambda: ([spoilt(IMAGES[0], np.inf)], POSES[:1]), {}, "infinity .* at row 3"),
    "words": (lambda: ([[["a"]]], POSES[:1]), {}, "Image 0 must hold numbers"),
    "one image": (lambda: (IMAGES[0], POSES[:1]), {}, r"a single image: give a list"),
    "too few poses": (lambda: (IMAGES, POSES[:3]), {}, "There are 40 images but 3 poses"),
    "too few columns": (lambda: (IMAGES, POSES[:, :2]), {}, "one row for each image, with x, y, a"),
    "no scale": (lambda: (IMAGES, POSES), {"scales": (1.0, 2.0)}, "with x, y, scale, angle"),
    "pose with NaN": (
        lambda: (IMAGES, changed(POSES, 2, 1, np.nan)),
        {},
        "Pose 2 has NaN or infinity as its y",
    ),
    "scale of zero": (
        lambda: (IMAGES, np.insert(POSES, 2, 0.0, axis=1)),
        {"scales": (1.0, 1.5)},
        "Pose 0 has the scale 0",
    ),
    "outside": (
        lambda: (IMAGES, changed(POSES, 5, 0, 99.0)),
        {},
        "Pose 5, at x = 99 .* outside of its image",
    ),
    "window": (lambda: (IMAGES, POSES), {"window": 18}, "height is 18 pixels"),
    "windows": (lambda: (IMAGES, POSES), {"window": (16, 16, 16)}, "window is .* height and width"),
    "weights": (lambda: (IMAGES, POSES), {"angle_weight": 1.5}, "angle_weight"),
    "angles": (lambda: (IMAGES, POSES), {"n_angles": 1}, "n_angles"),
    "solver": (lambda: (IMAGES, POSES), {"solver": "one-slack"}, "solver"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_sentence(name):
    data, settings, says = BAD[name]
    with pytest.raises(ValueError, match=says) as caught:
        PoseEstimator(**SETTINGS | settings).fit(*data())
    assert "\n" not in str(caught.value)


def test_bad_input_to_a_trained_model(estimator):
    with pytest.raises(ValueError, match="Image 1 has 8 x 8 pixels, too few for a window of 16"):
        estimator.predict([IMAGES[0], np.ones((8, 8))])
    with pytest.raises(ValueError, match="k must be at least 1"):
        estimator.predict_k_best(IMAGES, 0)
    with pytest.raises(ValueError, match="25 images but 40 poses"):
        estimator.score(TEST_IMAGES, POSES)
    with pytest.raises(NotFittedError):
        PoseEstimator().predict(IMAGES)


def test_a_single_image_and_images_without_anything():
    model = PoseEstimator(**SETTINGS).fit(IMAGES[:1], POSES[:1])
    assert model.accuracy(IMAGES[:1], POSES[:1]) == 1.0
    blank = [np.zeros((32, 32))] * 2
    with pytest.warns(ConvergenceWarning, match="hardly better than none") as caught:
        model = PoseEstimator(**SETTINGS).fit(blank, POSES[:2])
    assert len(caught) == 1
    assert model.predict(blank).shape == (2, 3)


def test_a_pose_is_a_plain_tuple():
    assert Pose(1.0, 2.0, 1.0, 0.5) == (1.0, 2.0, 1.0, 0.5)

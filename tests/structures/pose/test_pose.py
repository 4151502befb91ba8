"""The pose problem: windows, losses, the kernel, and searches against all windows and angles."""

import itertools

import numpy as np
import pytest
from pose_scenes import hooks

from maxmargin.core.certificate import DualPoint
from maxmargin.core.kernel import LinearKernel, ProductKernel
from maxmargin.core.kernel_oracle import KernelOracle
from maxmargin.core.oracle import Threads
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.mini_batch_dual import MiniBatchDual
from maxmargin.structures.pose.features import Pose, WindowGrid, hog_blocks, overlaps
from maxmargin.structures.pose.problem import (
    TURN,
    AngleKernel,
    LinearPoses,
    PoseGrid,
    PoseOracle,
    PoseProblem,
    angular_distance,
)

GRIDS = {
    "square": WindowGrid(16, 16),
    "flat": WindowGrid(8, 16, cell=4, n_orientations=5, signed=True),
    "scales": WindowGrid(12, 12, cell=4, scales=(1.0, 1.5, 0.75)),
}


def training_set(grid, n=6, seed=0, n_angles=6, **options):
    images, rows = hooks(n, seed, shape=(24, 28))
    problem = PoseProblem(grid, n_angles, **options)
    windows = [grid.windows(image) for image in images]
    y_true = [
        each.pose(each.nearest(Pose(x, y, grid.scales[0], angle)), angle)
        for each, (x, y, angle) in zip(windows, rows.tolist(), strict=True)
    ]
    return PoseOracle(problem, windows, y_true, np.full(n, 0.5))


def some_point(oracle, n=8, seed=0):
    """A feasible dual point: coefficients of poses drawn at random."""
    random = np.random.default_rng(seed)
    blocks = np.sort(random.integers(oracle.n_examples, size=n))
    outputs = []
    for i in blocks:
        grid = oracle.problem.outputs(oracle.X[i])
        outputs.append(grid[int(random.integers(len(grid)))])
    return DualPoint(examples=blocks, outputs=outputs, coef=np.full(n, 0.5 / n))


def box_overlap(a, b):
    """Intersection over union by counting small squares."""
    common = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(
        0.0, min(a[3], b[3]) - max(a[1], b[1])
    )
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return common / (sum(areas) - common)


# Windows


@pytest.mark.parametrize("name", GRIDS)
def test_windows_show_the_blocks_inside_them(name):
    grid = GRIDS[name]
    image = np.random.default_rng(0).normal(size=(24, 28))
    windows = grid.windows(image)
    high, wide = grid.shape
    features = windows.features()
    assert features.shape == (len(windows), grid.n_features)
    blocks = hog_blocks(image, 4, grid.n_orientations, grid.signed)
    places = list(
        itertools.product(range(blocks.shape[0] - high + 1), range(blocks.shape[1] - wide + 1))
    )
    for k, (row, column) in enumerate(places):  # those of scale one come first
        expected = blocks[row : row + high, column : column + wide].ravel()
        np.testing.assert_array_equal(features[k], expected)
        left, top = 4 * column, 4 * row
        assert windows.boxes[k].tolist() == [left, top, left + grid.width, top + grid.height]
    for k in range(len(windows)):
        pose = windows.pose(k, 0.3)
        np.testing.assert_array_equal(windows.feature(pose), features[k])
        np.testing.assert_allclose(grid.box(pose), windows.boxes[k])
        assert windows.nearest(pose) == k


def test_windows_of_larger_scales_see_the_same_in_a_larger_image():
    grid = WindowGrid(16, 16, scales=(1.0, 2.0))

    def sampled(side, scale):
        down, right = (np.mgrid[:side, :side] + 0.5) / scale
        return np.sin(0.5 * right + 0.2 * down) + np.cos(0.4 * down - 0.1 * right)

    near = grid.windows(sampled(28, 1.0)).feature(Pose(12, 12, 1.0, 0.0))
    far = grid.windows(sampled(56, 2.0)).feature(Pose(24, 24, 2.0, 0.0))
    cosine = near @ far / np.linalg.norm(near) / np.linalg.norm(far)
    assert cosine > 0.98


def test_images_smaller_than_a_window_have_none():
    assert len(GRIDS["square"].windows(np.ones((15, 40)))) == 0
    assert len(WindowGrid(16, 16, scales=(1.0, 0.5)).windows(np.ones((10, 10)))) > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"height": 18, "width": 16},
            "height is 18 pixels, but must be a multiple of the cell's 4",
        ),
        ({"height": 16, "width": 4}, "width is 4 pixels.*8 at least"),
        ({"height": 16, "width": 16, "scales": (1.0, 1.0)}, "different positive numbers"),
        ({"height": 16, "width": 16, "scales": ()}, "one at least"),
        ({"height": 16, "width": 16, "scales": (-1.0,)}, "different positive numbers"),
    ],
)
def test_grids_that_cannot_be(arguments, says):
    with pytest.raises(ValueError, match=says):
        WindowGrid(**arguments)


def test_overlaps():
    random = np.random.default_rng(0)
    corners = random.uniform(0, 10, size=(50, 2))
    boxes = np.hstack([corners, corners + random.uniform(1, 6, size=(50, 2))])
    expected = [box_overlap(boxes[0], box) for box in boxes]
    np.testing.assert_allclose(overlaps(boxes[0], boxes), expected)
    assert overlaps(boxes[0], boxes)[0] == 1.0


# Losses and the kernel


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_losses_by_hand(name, weight):
    grid = GRIDS[name]
    problem = PoseProblem(grid, n_angles=5, angle_weight=weight)
    windows = grid.windows(np.random.default_rng(0).normal(size=(24, 28)))
    y_true = windows.pose(2, 1.234)
    candidates = problem.candidates(windows)
    assert len(candidates.outputs) == 5 * len(windows)
    for pose, loss in zip(candidates.outputs, problem.losses(y_true, candidates), strict=True):
        overlap = box_overlap(grid.box(y_true), grid.box(pose))
        turned = angular_distance(y_true.angle, pose.angle) / np.pi
        assert loss == pytest.approx(weight * turned + (1 - weight) * (1 - overlap), abs=1e-12)
        assert problem.loss(y_true, pose) == pytest.approx(loss, abs=1e-12)
    assert problem.loss(y_true, y_true) == 0.0


def test_candidates_are_windows_times_angles():
    problem = PoseProblem(GRIDS["scales"], n_angles=3)
    windows = problem.grid.windows(np.random.default_rng(0).normal(size=(24, 28)))
    candidates = problem.candidates(windows)
    assert isinstance(candidates.outputs, PoseGrid)
    for c in range(len(candidates.outputs)):
        pose = candidates.outputs[c]
        part, label = candidates.part_of[c], candidates.label_of[c]
        np.testing.assert_array_equal(candidates.parts[part], problem.part(windows, pose))
        assert candidates.labels[label] == problem.label(pose)
    with pytest.raises(IndexError):
        candidates.outputs[len(candidates.outputs)]


def test_the_kernel_is_that_of_the_paper():
    oracle = training_set(GRIDS["square"], gamma=2.5)
    model = oracle.model_of(some_point(oracle))
    point = some_point(oracle)
    x = oracle.X[0]
    pose = x.pose(3, 0.777)

    def kernel(x1, y1, x2, y2):
        angle = angular_distance(y1.angle, y2.angle)
        return x1.feature(y1) @ x2.feature(y2) * np.exp(-2.5 * angle**2)

    expected = 0.0
    for i, y, a in zip(point.examples, point.outputs, point.coef, strict=True):
        expected += a * kernel(oracle.X[i], oracle.Y[i], x, pose)
        expected -= a * kernel(oracle.X[i], y, x, pose)
    found = model.pair_scores(x.feature(pose)[None], np.array([[pose.angle]]))
    assert found[0] == pytest.approx(expected, abs=1e-10)


# Searches


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_highest_of_all(name, seed):
    oracle = training_set(GRIDS[name], seed=seed)
    model = oracle.model_of(some_point(oracle, seed=seed))
    blocks = np.array([4, 0, 3])
    found = oracle.infer(model, blocks, Threads(1))
    assert found.outputs.examples.tolist() == [4, 0, 3]
    for k, i in enumerate(blocks):
        x, y_true = oracle.X[i], oracle.Y[i]

        def score(y, x=x):
            return model.pair_scores(x.feature(y)[None], np.array([[y.angle]]))[0]

        slopes = [
            oracle.problem.loss(y_true, y) + score(y) - score(y_true)
            for y in oracle.problem.outputs(x)
        ]
        assert found.slopes[k] == pytest.approx(max(slopes))
        assert found.hinges[k] == pytest.approx(max(max(slopes), 0.0))
        y = found.outputs.outputs[k]
        expected = oracle.problem.loss(y_true, y) + score(y) - score(y_true)
        assert found.slopes[k] == pytest.approx(expected)
        np.testing.assert_array_equal(found.outputs.parts[k], x.feature(y))
        assert found.outputs.labels[k] == y.angle
        assert found.outputs.losses[k] == pytest.approx(oracle.problem.loss(y_true, y))


@pytest.mark.parametrize(("count", "diversity"), [(1, 0.0), (3, 0.0), (4, 2.0)])
def test_the_search_is_that_of_any_kernel_problem(count, diversity):
    """Image by image or many at once: the same outputs."""
    oracle = training_set(GRIDS["scales"])
    kernel = ProductKernel(LinearKernel(), AngleKernel(oracle.problem.gamma))
    plain = KernelOracle(oracle.problem, oracle.X, oracle.Y, oracle.C, kernel)
    model = oracle.model_of(some_point(oracle))
    blocks = np.arange(6)
    ours = oracle.infer(model, blocks, Threads(1), count, diversity)
    theirs = plain.infer(model, blocks, Threads(1), count, diversity)
    assert ours.outputs.outputs == theirs.outputs.outputs
    assert len(ours.outputs.outputs) == 6 * count
    np.testing.assert_array_equal(ours.outputs.examples, theirs.outputs.examples)
    np.testing.assert_allclose(ours.slopes, theirs.slopes)
    np.testing.assert_allclose(ours.hinges, theirs.hinges)
    np.testing.assert_allclose(ours.outputs.parts, theirs.outputs.parts)


def test_threads_find_the_same():
    oracle = training_set(GRIDS["square"], n=7)
    model = oracle.model_of(some_point(oracle))
    one = oracle.infer(model, np.arange(7), Threads(1), 2, 1.0)
    with Threads(3) as threads:
        three = oracle.infer(model, np.arange(7), threads, 2, 1.0)
    assert one.outputs.outputs == three.outputs.outputs
    np.testing.assert_array_equal(one.slopes, three.slopes)


def test_diverse_poses_are_further_apart():
    oracle = training_set(GRIDS["square"])
    model = oracle.model_of(some_point(oracle))

    def apart(diversity):
        outputs = oracle.infer(model, np.arange(6), Threads(1), 3, diversity).outputs.outputs
        triples = zip(outputs[::3], outputs[1::3], outputs[2::3], strict=True)
        loss = oracle.problem.loss
        return sum(loss(a, b) + loss(a, c) + loss(b, c) for a, b, c in triples)

    assert apart(5.0) > 1.5 * apart(0.0)


def test_refined_angles_are_the_highest_nearby():
    oracle = training_set(GRIDS["square"], n_angles=16)
    problem, model = oracle.problem, oracle.model_of(some_point(oracle, n=20))
    features = oracle.X[0].features()
    grid_angles = problem.angles[(features @ problem.detectors(model)).argmax(axis=1)]
    angles, scores = problem.refined(model, features, grid_angles)
    dense = np.linspace(-problem.spacing, problem.spacing, 4001)
    for k in range(len(features)):
        rows = (grid_angles[k] + dense)[:, None]
        values = model.pair_scores(np.tile(features[k], (len(rows), 1)), rows)
        assert scores[k] >= values.max() - 1e-12
        assert angular_distance(angles[k], rows[values.argmax(), 0]) < 1e-3
        own = model.pair_scores(features[[k]], np.array([[angles[k]]]))
        assert scores[k] == pytest.approx(own[0], abs=1e-12)


# The same problem with its weights written out


def test_waves_are_features_of_the_kernel():
    problem = PoseProblem(GRIDS["square"], gamma=3.0)
    angles = np.random.default_rng(0).uniform(0, TURN, size=20)
    waves = LinearPoses(problem).waves(angles)
    kernel = AngleKernel(3.0)(angles[:, None], angles[:, None])
    np.testing.assert_allclose(waves @ waves.T, kernel, atol=1e-8)


@pytest.mark.parametrize("solver", ["auto", "one-slack"])
def test_the_linear_problem_has_the_same_optimum(solver):
    import maxmargin as mm

    oracle = training_set(GRIDS["square"], n=12)
    result = MiniBatchDual().solve(oracle, Stopping(tol=1e-4))
    linear = mm.StructuredSVM(LinearPoses(oracle.problem), C=0.5, solver=solver, tol=1e-4)
    linear.fit(oracle.X, oracle.Y)
    assert result.certificate.relative_gap <= 1e-4
    low, high = linear.certificate_.dual, linear.certificate_.primal
    assert result.certificate.dual <= high * (1 + 1e-6)
    assert low <= result.certificate.primal * (1 + 1e-6)
    inferred_best = linear.predict(oracle.X)
    detectors = oracle.problem.detectors(result.weights)
    for x, pose in zip(oracle.X, inferred_best, strict=True):
        scores = (x.features() @ detectors).ravel()
        at = list(oracle.problem.outputs(x)).index(pose)
        assert scores[at] >= scores.max() - 0.05 * np.ptp(scores)


def test_batched_planes_are_the_searches_one_by_one():
    oracle = training_set(GRIDS["flat"])
    linear = LinearPoses(oracle.problem)
    size = linear.joint_feature(oracle.X[0], oracle.Y[0]).size
    w = 0.1 * np.random.default_rng(0).normal(size=size)
    for weights in (w, 0 * w):
        cuts = linear.cuts(oracle.X, oracle.Y, weights)
        for k, (x, y_true) in enumerate(zip(oracle.X, oracle.Y, strict=True)):
            assert cuts.outputs[k] == linear.loss_augmented_inference(x, y_true, weights)
            y = cuts.outputs[k]
            values = cuts.values[cuts.starts[k] : cuts.starts[k + 1]]
            expected = linear.joint_feature(x, y_true) - linear.joint_feature(x, y)
            np.testing.assert_allclose(values, expected)


def test_the_truth_is_found_when_nothing_is_higher():
    """A truth between two angles of the search may be above all of them."""
    oracle = training_set(GRIDS["square"], n=1, n_angles=2, gamma=20.0)
    linear = LinearPoses(oracle.problem)
    x, y_true = oracle.X[0], oracle.Y[0]
    w = 10.0 * linear.joint_feature(x, y_true)
    assert linear.loss_augmented_inference(x, y_true, w) == y_true

"""Small images with a turned hook: a bar with an arm at one end."""

import numpy as np


def draw(x, y, angle, shape=(32, 32), scale=1.0):
    down, right = np.mgrid[: shape[0], : shape[1]] + 0.5
    along = (right - x) * np.cos(angle) + (down - y) * np.sin(angle)
    across = (down - y) * np.cos(angle) - (right - x) * np.sin(angle)
    bar = (np.abs(along) < 7 * scale) & (np.abs(across) < 1.5 * scale)
    arm = (np.abs(along - 5.5 * scale) < 1.5 * scale) & (np.abs(across - 3 * scale) < 4 * scale)
    return 1.0 * (bar | arm)


def hooks(n, seed=0, shape=(32, 32)):
    """Images and their poses: x, y, angle."""
    random = np.random.default_rng(seed)
    x = random.uniform(10, shape[1] - 10, size=n)
    y = random.uniform(10, shape[0] - 10, size=n)
    poses = np.column_stack([x, y, random.uniform(0, 2 * np.pi, size=n)])
    images = [draw(*pose, shape) + random.normal(scale=0.05, size=shape) for pose in poses]
    return images, poses

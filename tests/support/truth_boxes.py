"""Boxes with exact signed distance in float64: scenes whose costs and slopes are quick to tell."""

from functools import partial

import numpy as np

import shapes
from reference import Array, Body, Obstacle


class Box(Body):
    """A box at a pose (7,); ``extents`` (3,) are its edges [m]."""

    def __init__(self, extents: Array, pose: Array):
        super().__init__(partial(_box_distance, 0.5 * extents), pose)
        self.extents = extents

    @property
    def obstacle(self) -> Obstacle:
        """The same as a mesh."""
        return shapes.box(tuple(self.extents))._replace(pose=self.pose)


def _box_distance(half: Array, points: Array) -> Array:
    beyond = np.abs(points) - half
    outside = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)
    return outside + np.minimum(beyond.max(axis=-1), 0.0)


def random_boxes(rng: np.random.Generator, count: int, spread: float = 0.4) -> list[Box]:
    """Boxes of all proportions, plates and posts among them, turned at random."""
    boxes = []
    for _ in range(count):
        extents = shapes.rounded(rng.choice([0.001, 0.05, 0.3, 0.6], size=3))
        boxes.append(Box(extents, shapes.random_pose(rng, spread)))
    return boxes


def spheres_around(
    rng: np.random.Generator, boxes: list[Box], shape: tuple[int, int, int], step: float
) -> Array:
    """Paths (*shape, 4) that begin near, in or between the boxes; some spheres are disabled."""
    batch, horizon, n_spheres = shape
    begin = np.concatenate(
        [
            shapes.mixed_points(rng, one.obstacle, -(-batch * n_spheres // len(boxes)))
            for one in boxes
        ]
    )
    begin = rng.permutation(begin)[: batch * n_spheres].reshape(batch, 1, n_spheres, 3)
    moves = rng.normal(size=(batch, horizon, n_spheres, 3)) * step / np.sqrt(3.0)
    moves[:, 0] = 0.0
    centers = np.clip(begin + np.cumsum(moves, axis=1), -1.5, 1.5)
    return shapes.spheres_at(rng, centers.reshape(-1, 3), shape, disabled=0.05)

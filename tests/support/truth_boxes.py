"""Boxes with exact signed distance in float64, as a fast model of the costs and of their slopes."""

from dataclasses import dataclass

import numpy as np

import reference_sweep
import shapes
from reference import Array, Obstacle, hinge, rotation_matrix


@dataclass(frozen=True)
class Box:
    """A box at a pose (7,); ``extents`` (3,) are its edges [m]."""

    extents: Array
    pose: Array

    @property
    def obstacle(self) -> Obstacle:
        """The same as a mesh."""
        return shapes.box(tuple(self.extents))._replace(pose=self.pose)

    def distance(self, points: Array) -> Array:
        """Signed distance (n,) of points (n, 3)."""
        local = (points - self.pose[:3]) @ rotation_matrix(self.pose[3:])
        beyond = np.abs(local) - 0.5 * self.extents
        outside = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)
        return outside + np.minimum(beyond.max(axis=-1), 0.0)


def random_boxes(rng: np.random.Generator, count: int, spread: float = 0.4) -> list[Box]:
    """Boxes of all proportions, plates and posts among them, turned at random."""
    boxes = []
    for _ in range(count):
        extents = shapes.rounded(rng.choice([0.001, 0.05, 0.3, 0.6], size=3))
        boxes.append(Box(extents, shapes.random_pose(rng, spread)))
    return boxes


def sphere_cost(spheres: Array, boxes: list[Box], weight: float, eta: float) -> Array:
    """Cost (batch, horizon, n_spheres) of spheres at rest."""
    cost = np.zeros(spheres.shape[:3])
    for one in boxes:
        distance = one.distance(spheres[..., :3].reshape(-1, 3)).reshape(cost.shape)
        cost += hinge(spheres[..., 3] + eta - distance, eta)
    return np.where(spheres[..., 3] < 0.0, 0.0, weight * cost)


def swept_cost(
    spheres: Array, boxes: list[Box], weight: float, eta: float, dt: float | None = None
) -> Array:
    """Cost (batch, horizon, n_spheres) of moving spheres, scaled by their speed with a ``dt``."""
    cost = np.zeros(spheres.shape[:3])
    for one in boxes:
        lowest = reference_sweep.swept_distance(spheres, one.distance, reach=eta)
        cost += hinge(spheres[..., 3] + eta - lowest, eta)
    scale = 1.0
    if dt is not None:
        scale = np.maximum(reference_sweep.speeds(spheres, dt), reference_sweep.SPEED_FLOOR)
    return np.where(spheres[..., 3] < 0.0, 0.0, weight * scale * cost)


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

"""Scenes whose obstacles move between waypoints, in float64 NumPy.

Between two waypoints an obstacle turns at a constant rate about a fixed axis, by 180 degrees at
most, and its origin moves straight. Nothing here knows how the library computes that.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import trimesh

from reference import Array, dots, hinge, rotation_matrix
from reference_sweep import SPEED_FLOOR, speeds
from shapes import rounded


def angle_and_axis(rotation: Array) -> tuple[Array, Array]:
    """Angles (n,) and axes (n, 3) of rotation matrices (n, 3, 3) by less than 180 degrees."""
    skew = 0.5 * (rotation - rotation.swapaxes(-1, -2))
    sine = np.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], axis=-1)
    length = np.linalg.norm(sine, axis=-1)
    angle = np.arctan2(length, 0.5 * (np.trace(rotation, axis1=-2, axis2=-1) - 1.0))
    axis = np.where(length[..., None] > 0.0, sine, [1.0, 0.0, 0.0])
    return angle, axis / np.linalg.norm(axis, axis=-1, keepdims=True)


def turned(axis: Array, angle: Array, vector: Array) -> Array:
    """Vectors (..., 3) turned about axes (..., 3), by the formula of Rodrigues."""
    cosine, sine = np.cos(angle)[..., None], np.sin(angle)[..., None]
    along = dots(axis, vector)[..., None] * axis
    return along + cosine * (vector - along) + sine * np.cross(axis, vector)


class Segments(NamedTuple):
    """Points that move straight from one waypoint to another, and an obstacle's poses there."""

    begin: Array  # (n, 3)
    end: Array  # (n, 3)
    first: Array  # (n, 7)
    second: Array  # (n, 7)

    def places(self, shares: Array) -> Array:
        """Where the points are (n, k, 3), in the frame of the obstacle, at shares (n, k)."""
        start = rotation_matrix(self.first[:, 3:])
        stop = rotation_matrix(self.second[:, 3:])
        angle, axis = angle_and_axis(stop @ start.swapaxes(-1, -2))
        begin, end = self.begin - self.first[:, :3], self.end - self.second[:, :3]
        offset = begin[:, None] + shares[..., None] * (end - begin)[:, None]
        # The inverse of the obstacle's rotation, which is its turn after its rotation at first.
        back = turned(axis[:, None], -angle[:, None] * shares, offset)
        return np.einsum("nji,nkj->nki", start, back)


def seen_on_the_way(points: Array, shares: Array, first: Array, second: Array) -> Array:
    """Points (k, m, 3), those of row i at a share i of the way, in the frame of the obstacle."""
    start, stop = (rotation_matrix(pose[3:]) for pose in (first, second))
    angle, axis = angle_and_axis(stop @ start.T)
    origin = first[:3] + shares[:, None] * (second[:3] - first[:3])
    return turned(axis, -angle * shares[:, None], points - origin[:, None]) @ start


def smallest_distances(
    segments: Segments,
    distance: Callable[[Array], Array],
    *,
    samples: int = 129,
    levels: int = 9,
    kept: int = 8,
) -> Array:
    """Smallest distances (n,), as the obstacle sees it, on the first halves of segments.

    Samples, then more of them around the lowest ones, closer and closer.

    Args:
        segments: the segments.
        distance: signed distance (m,) of points (m, 3) in the frame of the obstacle.
        samples: of each half on the first level.
        levels: how often.
        kept: the lowest samples of each, around which the next ones are.
    """
    shares = np.broadcast_to(np.linspace(0.0, 0.5, samples), (len(segments.begin), samples))
    step, best = 0.5 / (samples - 1), np.full(len(segments.begin), np.inf)
    for _ in range(levels):
        values = distance(segments.places(shares).reshape(-1, 3)).reshape(shares.shape)
        best = np.minimum(best, values.min(axis=1))
        chosen = np.take_along_axis(shares, np.argsort(values, axis=1)[:, :kept], axis=1)
        inner = np.linspace(-step, step, 13)
        shares = np.clip(chosen[..., None] + inner, 0.0, 0.5).reshape(len(shares), -1)
        step /= 6.0
    return best


def swept_distance(
    spheres: Array, poses: Array, distance: Callable[[Array], Array], **sampling: int
) -> Array:
    """Smallest signed distance m (batch, horizon, n_spheres) of what each waypoint owns.

    Args:
        spheres: (batch, horizon, n_spheres, 4); +inf for disabled ones.
        poses: (horizon, 7) of one obstacle.
        distance: in its frame.
        sampling: options of `smallest_distances`.
    """
    disabled = spheres[..., 3] < 0.0
    shape = (*disabled.shape, 7)
    at = np.broadcast_to(poses[:, None], shape)
    here = Segments(
        *(part.reshape(-1, part.shape[-1]) for part in (spheres[..., :3],) * 2 + (at,) * 2)
    )
    lowest = distance(here.places(np.zeros((disabled.size, 1)))[:, 0]).reshape(disabled.shape)
    for own, other in ((slice(None, -1), slice(1, None)), (slice(1, None), slice(None, -1))):
        moves = ~disabled[:, own] & ~disabled[:, other]
        if moves.any():
            ends = (spheres[:, own, :, :3], spheres[:, other, :, :3], at[:, own], at[:, other])
            segments = Segments(*(part[moves] for part in ends))
            half = smallest_distances(segments, distance, **sampling)
            lowest[:, own][moves] = np.minimum(lowest[:, own][moves], half)
    return np.where(disabled, np.inf, lowest)


def swept_cost(
    spheres: Array,
    poses: Array,
    distances: Sequence[Callable[[Array], Array]],
    activation_distance: float,
    dt: float | None = None,
    **sampling: int,
) -> Array:
    """Cost (batch, horizon, n_spheres) against obstacles with poses (horizon, n_obstacles, 7)."""
    cost = np.zeros(spheres.shape[:3])
    for k, distance in enumerate(distances):
        lowest = swept_distance(spheres, poses[:, k], distance, **sampling)
        cost += hinge(spheres[..., 3] + activation_distance - lowest, activation_distance)
    scale = 1.0 if dt is None else np.maximum(speeds(spheres, dt), SPEED_FLOOR)
    return np.where(spheres[..., 3] < 0.0, 0.0, scale * cost)


def random_motion(
    rng: np.random.Generator, horizon: int, count: int, *, turn: float, travel: float
) -> Array:
    """Poses (horizon, count, 7): random, then in steps of up to `turn` [rad] and `travel` [m].

    Quaternions have either sign.
    """
    poses = np.empty((horizon, count, 7))
    poses[0, :, :3] = rng.uniform(-0.3, 0.3, (count, 3))
    poses[0, :, 3:] = rng.normal(size=(count, 4))
    for t in range(1, horizon):
        for k in range(count):
            axis = rng.normal(size=3)
            angle = turn * rng.uniform(0.2, 1.0)
            step = trimesh.transformations.quaternion_about_axis(angle, axis)
            poses[t, k, 3:] = trimesh.transformations.quaternion_multiply(step, poses[t - 1, k, 3:])
            poses[t, k, :3] = poses[t - 1, k, :3] + travel * rng.uniform(-1.0, 1.0, 3)
    poses[..., 3:] /= np.linalg.norm(poses[..., 3:], axis=-1, keepdims=True)
    poses[..., 3:] *= rng.choice([-1.0, 1.0], (horizon, count, 1))
    return rounded(poses)


def matrices_of(poses: torch.Tensor) -> torch.Tensor:
    """Matrices (..., 4, 4) of poses (..., 7)."""
    matrices = torch.zeros(*poses.shape[:-1], 4, 4)
    for index in np.ndindex(*poses.shape[:-1]):
        pose = poses[index].double().cpu().numpy()
        matrices[index] = torch.from_numpy(trimesh.transformations.quaternion_matrix(pose[3:]))
        matrices[index][:3, 3] = poses[index][:3].cpu()
    return matrices.to(poses.device)


def chained(poses: Array, others: Array) -> Array:
    """Poses (n, 7) in whose frames others (n, 7) are given: those in the world."""
    found = []
    for pose, other in zip(np.array(poses), np.array(others), strict=True):
        place = pose[:3] + rotation_matrix(pose[3:]) @ other[:3]
        turn = trimesh.transformations.quaternion_multiply(pose[3:], other[3:])
        found.append(np.concatenate([place, turn]))
    return rounded(np.array(found))


def split_box(size: tuple[float, float, float]) -> trimesh.Trimesh:
    """A box whose faces are so uneven that nobody takes it for a cuboid."""
    box = trimesh.creation.box(size)
    return trimesh.util.concatenate([box, box.copy().apply_scale(1.0 - 1e-4)])

"""Scenes whose obstacles move between waypoints, in float64 NumPy.

Between two waypoints an obstacle turns at a constant rate about a fixed axis, by 180 degrees at
most, and its origin moves straight. Nothing here knows how the library computes that.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import trimesh

from reference import Array, Obstacle, hinge, obstacle_signed_distance, rotation_matrix
from shapes import rounded


def pose_between(first: Array, second: Array, s: float | Array) -> Array:
    """Poses (..., 7) at a share s of the way, by the logarithm of matrices."""
    s = np.asarray(s, dtype=np.float64)
    begin, end = rotation_matrix(first[3:]), rotation_matrix(second[3:])
    angle, axis = angle_and_axis(end @ begin.T)
    poses = np.empty((*s.shape, 7))
    poses[..., :3] = first[:3] + s[..., None] * (second[:3] - first[:3])
    for index in np.ndindex(s.shape):
        turned = np.eye(4)
        turned[:3, :3] = about(axis, s[index] * angle) @ begin
        poses[(*index, slice(3, None))] = trimesh.transformations.quaternion_from_matrix(turned)
    return poses


def angle_and_axis(rotation: Array) -> tuple[float, Array]:
    """Of a rotation matrix (3, 3) by less than 180 degrees."""
    skew = 0.5 * (rotation - rotation.T)
    sine = np.array([skew[2, 1], skew[0, 2], skew[1, 0]])
    angle = float(np.arctan2(np.linalg.norm(sine), 0.5 * (np.trace(rotation) - 1.0)))
    length = np.linalg.norm(sine)
    return angle, sine / length if length > 0.0 else np.array([1.0, 0.0, 0.0])


def about(axis: Array, angle: float) -> Array:
    """The rotation matrix of Rodrigues."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


def relative_places(begin: Array, end: Array, first: Array, second: Array, s: Array) -> Array:
    """Places (len(s), 3) of a point, that moves straight in the world, as an obstacle sees it."""
    angle, axis = angle_and_axis(rotation_matrix(second[3:]) @ rotation_matrix(first[3:]).T)
    start = rotation_matrix(first[3:])
    world = begin + s[:, None] * (end - begin)
    origin = first[:3] + s[:, None] * (second[:3] - first[:3])
    return np.stack(
        [(about(axis, t * angle) @ start).T @ v for t, v in zip(s, world - origin, strict=True)]
    )


def smallest_distance(
    begin: Array,
    end: Array,
    first: Array,
    second: Array,
    distance: Callable[[Array], Array],
    *,
    until: float = 0.5,
    samples: int = 65,
    levels: int = 6,
) -> float:
    """Smallest distance, as an obstacle sees it, over the shares [0, until] of a segment.

    Samples, then samples around the lowest of them, closer and closer: whatever a curve with
    these samples as neighbours can hide is looked at.

    Args:
        begin: (3,) where the point is at the first waypoint.
        end: and at the second.
        first: (7,) pose of the obstacle at the first waypoint.
        second: and at the second.
        distance: signed distance (n,) in the frame of the obstacle.
        until: how far along the segment.
        samples: on the first level, and around each of the lowest later.
        levels: how often.
    """
    shares = np.linspace(0.0, until, samples)
    step, best = shares[1], np.inf
    for _ in range(levels):
        places = relative_places(begin, end, first, second, shares)
        values = distance(places)
        best = min(best, values.min())
        # No place moves faster than this between two shares that were looked at.
        speed = 1.2 * np.linalg.norm(np.diff(places, axis=0), axis=1).max() + 1e-12
        chosen = shares[values <= best + speed]
        chosen = chosen[np.argsort(values[values <= best + speed])[:24]]
        inner = np.linspace(-step, step, 17)
        shares = np.unique(np.clip(chosen[:, None] + inner, 0.0, until))
        step /= 8.0
    return float(best)


def swept_distance(spheres: Array, poses: Array, distance: Callable[[Array], Array]) -> Array:
    """Smallest signed distance m (batch, horizon, n_spheres) of what each waypoint owns.

    Args:
        spheres: (batch, horizon, n_spheres, 4); +inf for disabled ones.
        poses: (horizon, 7) of one obstacle.
        distance: in its frame.
    """
    lowest = np.full(spheres.shape[:3], np.inf)
    for b, t, i in np.ndindex(*spheres.shape[:3]):
        own = spheres[b, t, i]
        if own[3] < 0.0:
            continue
        here = (own[:3] - poses[t, :3]) @ rotation_matrix(poses[t, 3:])
        found = [float(distance(here[None])[0])]
        for other in (t - 1, t + 1):
            if 0 <= other < spheres.shape[1] and spheres[b, other, i, 3] >= 0.0:
                there = spheres[b, other, i, :3]
                found.append(smallest_distance(own[:3], there, poses[t], poses[other], distance))
        lowest[b, t, i] = min(found)
    return lowest


def swept_cost(
    spheres: Array,
    poses: Array,
    distances: Sequence[Callable[[Array], Array]],
    activation_distance: float,
) -> Array:
    """Cost (batch, horizon, n_spheres) against obstacles with poses (horizon, n_obstacles, 7)."""
    cost = np.zeros(spheres.shape[:3])
    for k, distance in enumerate(distances):
        lowest = swept_distance(spheres, poses[:, k], distance)
        cost += hinge(spheres[..., 3] + activation_distance - lowest, activation_distance)
    return np.where(spheres[..., 3] < 0.0, 0.0, cost)


def obstacles_at(obstacles: Sequence[Obstacle], poses: Array) -> list[Obstacle]:
    """The same meshes at other poses (n_obstacles, 7)."""
    return [one._replace(pose=pose) for one, pose in zip(obstacles, poses, strict=True)]


def distance_to(obstacle: Obstacle) -> Callable[[Array], Array]:
    """Signed distance of a mesh in its own frame."""
    at_home = obstacle._replace(pose=(0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    return lambda points: obstacle_signed_distance(points, at_home).distance


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
            step = about(axis / np.linalg.norm(axis), turn * rng.uniform(0.2, 1.0))
            turned = np.eye(4)
            turned[:3, :3] = step @ rotation_matrix(poses[t - 1, k, 3:])
            poses[t, k, 3:] = trimesh.transformations.quaternion_from_matrix(turned)
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

"""Checks of results against the float64 reference of the tests, on a sample of the spheres."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

import reference
import reference_sweep
from benchmarks.harness import require
from benchmarks.scenes import ACTIVATION_DISTANCE, Content, Placed

SWEEP_TOLERANCE = 0.05 * ACTIVATION_DISTANCE  # [m], the library's default
RELATIVE = 1e-5  # of a cost
ABSOLUTE = 1e-6  # [m] of a cost, for every metre of the coordinates: they are float32
SLOPE = 1e-3  # of a gradient
MOST_TILTED = 0.05  # fraction of gradients that may be off: at kinks either side is right
# Of the paths, which are some centimetres long: fine enough for the tolerance of a sweep.
SAMPLING = {"samples": 17, "split": 8, "levels": 4, "kept": 4}


def obstacles_near(placed: Sequence[Placed], path: np.ndarray) -> list[reference.Obstacle]:
    """The meshes that can reach a path (horizon, 4)."""
    # Whatever the rotation, a mesh lies in a ball around its origin.
    meshes = {id(mesh): mesh for mesh, _ in placed}
    balls = {key: np.linalg.norm(m.vertices, axis=1).max() for key, m in meshes.items()}
    origins = np.array([pose[:3] for _, pose in placed], dtype=np.float64).reshape(-1, 3)
    middle = path[:, :3].mean(axis=0)
    reach = np.linalg.norm(path[:, :3] - middle, axis=1).max() + path[:, 3].max()
    away = np.linalg.norm(origins - middle, axis=1) - reach - ACTIVATION_DISTANCE
    return [
        reference.Obstacle(
            mesh.vertices.astype(np.float32).astype(np.float64),
            np.asarray(mesh.faces),
            np.asarray(pose, dtype=np.float64),
        )
        for (mesh, pose), far in zip(placed, away, strict=True)
        if far <= balls[id(mesh)]
    ]


def resting(sphere: np.ndarray, scene: Sequence[reference.Obstacle]) -> tuple[float, np.ndarray]:
    """Cost of a sphere (4,) and its gradient (4,)."""
    eta, cost, gradient = ACTIVATION_DISTANCE, 0.0, np.zeros(4)
    for obstacle in scene:
        found = reference.obstacle_signed_distance(sphere[None, :3], obstacle)
        overlap = sphere[3] + eta - found.distance
        cost += float(reference.hinge(overlap, eta)[0])
        outward = np.append(-found.gradient[0], 1.0)
        gradient += np.clip(overlap[0] / eta, 0.0, 1.0) * outward
    return cost, gradient


def moving(path: np.ndarray, scene: Sequence[reference.Obstacle]) -> np.ndarray:
    """Costs (horizon,) of a sphere that moves along a path (horizon, 4)."""
    spheres, eta = path[None, :, None], ACTIVATION_DISTANCE
    found = reference_sweep.swept_sphere_cost(spheres, [scene], activation_distance=eta, **SAMPLING)
    return found[0, :, 0]


def check(
    content: Content, cost: Tensor, gradient: Tensor | None = None, swept: bool = False
) -> None:
    """Compares a sample of the costs with the reference; half of the sample where there is a cost.

    Args:
        content: what was computed.
        cost: (b, h, n) of the first b rows of the spheres.
        gradient: (b, h, n, 4) of the sum of the costs, or None not to look at it; those of moving
            spheres are not looked at here, but in the tests.
        swept: whether the spheres move.

    Raises:
        WrongResultError: costs or gradients differ by more than rounding, or a sweep's tolerance.
    """
    spheres, given = content.spheres.astype(np.float64), _array(cost)
    tolerance = ABSOLUTE * max(1.0, float(np.abs(spheres[..., :3]).max()))
    tolerance += SWEEP_TOLERANCE if swept else 0.0
    places = choose(given.sum(axis=1, keepdims=True) if swept else given, 4 if swept else 32)
    tilted = []
    for b, h, s in places:
        waypoints = slice(None) if swept else slice(h, h + 1)
        path = spheres[b, waypoints, s]
        env = 0 if content.env_index is None else int(content.env_index[b])
        scene = obstacles_near(content.scenes[env], path)
        expected, slope = (moving(path, scene), None) if swept else resting(path[0], scene)
        off = np.abs(given[b, waypoints, s] - expected)
        is_right = (off <= tolerance + RELATIVE * np.abs(expected)).all()
        require(is_right, f"a cost is off by {off.max():.1e} m")
        if gradient is not None and slope is not None:
            difference = np.abs(_array(gradient[b, h, s]) - slope).max()
            tilted.append(difference > SLOPE * (1.0 + np.abs(slope).max()))
    if tilted:
        message = f"{sum(tilted)} of {len(tilted)} gradients differ from the reference"
        require(np.mean(tilted) <= MOST_TILTED, message)


def choose(cost: np.ndarray, samples: int) -> np.ndarray:
    """Indices (n, 3) of a sample, half of it where there is a cost."""
    rng, flat = np.random.default_rng(0), cost.reshape(-1)
    costly = np.flatnonzero(flat > 0.0)
    half = rng.choice(costly, min(len(costly), samples // 2), replace=False)
    rest = rng.choice(len(flat), min(len(flat), samples - len(half)), replace=False)
    return np.stack(np.unravel_index(np.unique(np.concatenate([half, rest])), cost.shape), axis=1)


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().astype(np.float64)

"""Checks of results against the float64 reference of the tests, on a sample of the spheres."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from benchmarks.harness import ROOT, WrongResultError
from benchmarks.scenes import ACTIVATION_DISTANCE, Content, Placed

# The reference belongs to the tests, whose folder is no package.
sys.path.append(str(ROOT / "tests" / "support"))

import reference
import reference_sweep

SWEEP_TOLERANCE = 0.05 * ACTIVATION_DISTANCE  # [m], the library's default
RELATIVE = 1e-5  # of a cost
ABSOLUTE = 1e-6  # [m] of a cost, for every metre of the coordinates: they are float32
SLOPE = 1e-3  # of a gradient
MOST_TILTED = 0.05  # fraction of gradients that may be off: at kinks either side is right
# Of the paths, which are some centimetres long: fine enough for the tolerance of a sweep.
SAMPLING = {"samples": 17, "split": 8, "levels": 4, "kept": 4}
FEW = 16  # with more meshes than this the reference looks only at those that can be near


class Truth(NamedTuple):
    """What the reference says of spheres (n, horizon, 1, 4): costs (n, horizon, 1), gradients."""

    cost: np.ndarray
    gradient: np.ndarray | None  # (n, 4) of resting spheres


def obstacles_of(placed: Sequence[Placed], path: np.ndarray) -> list[reference.Obstacle]:
    """The meshes that can reach a path (horizon, 4); all of them where there are few."""
    if len(placed) > FEW:
        # Whatever the rotation, a mesh lies in a ball around its origin.
        balls = {id(mesh): np.linalg.norm(mesh.vertices, axis=1).max() for mesh, _ in placed}
        origins = np.array([pose[:3] for _, pose in placed], dtype=np.float64)
        middle = path[:, :3].mean(axis=0)
        spread = np.linalg.norm(path[:, :3] - middle, axis=1).max()
        reach = spread + path[:, 3].max() + ACTIVATION_DISTANCE
        away = np.linalg.norm(origins - middle, axis=1) - reach
        placed = [one for one, far in zip(placed, away, strict=True) if far <= balls[id(one.mesh)]]
    return [
        reference.Obstacle(
            mesh.vertices.astype(np.float32).astype(np.float64),
            np.asarray(mesh.faces),
            np.asarray(pose, dtype=np.float64),
        )
        for mesh, pose in placed
    ]


def expected(
    paths: np.ndarray, scenes: Sequence[list[reference.Obstacle]], swept: bool = False
) -> Truth:
    """Costs of paths (n, horizon, 1, 4), each among a scene of its own, and resting gradients."""
    eta, envs = ACTIVATION_DISTANCE, list(range(len(scenes)))
    if swept:
        options = {"activation_distance": eta, "env_index": envs, **SAMPLING}
        return Truth(reference_sweep.swept_sphere_cost(paths, scenes, **options), None)
    spheres = paths[:, 0, 0]
    cost, gradient = np.zeros(len(paths)), np.zeros((len(paths), 4))
    rows_of: dict[int, list[int]] = {}
    for row, scene in enumerate(scenes):
        rows_of.setdefault(id(scene), []).append(row)
    for rows in rows_of.values():
        for obstacle in scenes[rows[0]]:
            found = reference.obstacle_signed_distance(spheres[rows, :3], obstacle)
            overlap = spheres[rows, 3] + eta - found.distance
            cost[rows] += reference.hinge(overlap, eta)
            outward = np.hstack([-found.gradient, np.ones((len(rows), 1))])
            gradient[rows] += np.clip(overlap / eta, 0.0, 1.0)[:, None] * outward
    return Truth(cost[:, None, None], gradient)


def check(
    content: Content, cost: Tensor, gradient: Tensor | None = None, swept: bool = False
) -> float:
    """Compares a sample of the costs with the reference; half of the sample where there is a cost.

    Args:
        content: what was computed.
        cost: (b, h, n) of the first b rows of the spheres.
        gradient: (b, h, n, 4) of the sum of the costs, or None not to look at it; those of moving
            spheres are not looked at here, but in the tests.
        swept: whether the spheres move.

    Returns:
        Largest difference of a cost.

    Raises:
        WrongResultError: costs or gradients differ by more than rounding, or a sweep's tolerance.
    """
    samples, tolerance = (4, SWEEP_TOLERANCE) if swept else (32, 0.0)
    spheres, given = content.spheres.astype(np.float64), _array(cost)
    places = choose(given.sum(axis=1, keepdims=True) if swept else given, samples)
    paths, scenes, actual = [], [], []
    whole: dict[int, list[reference.Obstacle]] = {}
    for b, h, s in places:
        waypoints = slice(None) if swept else slice(h, h + 1)
        paths.append(spheres[b, waypoints, s, None])
        env = 0 if content.env_index is None else int(content.env_index[b])
        near = obstacles_of(content.scenes[env], paths[-1][:, 0])
        scenes.append(near if len(content.scenes[env]) > FEW else whole.setdefault(env, near))
        actual.append(given[b, waypoints, s, None])
    truth = expected(np.stack(paths), scenes, swept)
    worst = float(np.abs(actual - truth.cost).max())
    tolerance += ABSOLUTE * max(1.0, float(np.abs(spheres[..., :3]).max()))
    if not np.allclose(actual, truth.cost, rtol=RELATIVE, atol=tolerance):
        raise WrongResultError(f"a cost is off by {worst:.1e} m")
    if gradient is not None and truth.gradient is not None:
        slopes = _array(gradient)[tuple(places.T)]
        bound = SLOPE * (1.0 + np.abs(truth.gradient).max(axis=1))
        off = np.abs(slopes - truth.gradient).max(axis=1) > bound
        if off.mean() > MOST_TILTED:
            raise WrongResultError(f"{off.sum()} of {len(off)} gradients differ from the reference")
    return worst


def signed_distance(points: np.ndarray, placed: Placed) -> np.ndarray:
    """Signed distances (n,) of points (n, 3) to one mesh, by the reference."""
    (obstacle,) = obstacles_of([placed], points[:1])
    return reference.obstacle_signed_distance(points.astype(np.float64), obstacle).distance


def choose(cost: np.ndarray, samples: int) -> np.ndarray:
    """Indices (n, 3) of a sample, half of it where there is a cost."""
    rng, flat = np.random.default_rng(0), cost.reshape(-1)
    costly = np.flatnonzero(flat > 0.0)
    half = rng.choice(costly, min(len(costly), samples // 2), replace=False)
    rest = rng.choice(len(flat), min(len(flat), samples - len(half)), replace=False)
    return np.stack(np.unravel_index(np.unique(np.concatenate([half, rest])), cost.shape), axis=1)


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().astype(np.float64)

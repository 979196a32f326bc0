"""Checks of results against the float64 reference of the tests, on a sample of the spheres."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from benchmarks.workloads import ACTIVATION_DISTANCE, Placed, Problem

# The reference belongs to the tests, whose folder is no package.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import reference
import reference_sweep

RELATIVE = 1e-5  # of a cost
ABSOLUTE = 1e-6  # [m] of a cost, for every metre of the coordinates: they are float32
SLOPE = 1e-3  # of a gradient
MOST_TILTED = 0.05  # share of gradients that may be off: at kinks either side is right
# Of the paths, which are some centimetres long: fine enough for the tolerance of a sweep.
SAMPLING = {"samples": 17, "split": 8, "levels": 4, "kept": 4}
FEW = 16  # with more meshes than this the reference looks only at those that can be near


class WrongResultError(Exception):
    """A contender computed something else than the reference."""


class _Place(NamedTuple):
    """Where a sampled sphere stands; a path is all waypoints of a row and column."""

    row: int
    waypoint: int
    column: int


def check(
    problem: Problem,
    cost: Tensor,
    gradient: Tensor | None,
    *,
    samples: int = 32,
    tolerance: float = 0.0,
) -> float:
    """Compares a sample of the costs with the reference; half of the sample where there is a cost.

    Args:
        problem: what was computed.
        cost: (b, h, n) of the first b rows of the problem.
        gradient: (b, h, n, 4) of the sum of the costs, or None not to look at it; those of moving
            spheres are not looked at here, but in the tests.
        samples: number of spheres, or of whole paths where the spheres move.
        tolerance: of a sweep [m].

    Returns:
        Largest difference of a cost.

    Raises:
        WrongResultError: costs or gradients differ by more than rounding.
    """
    swept = problem.workload.swept
    spheres, given = _array(problem.spheres), _array(cost)
    places = _choose(given, samples, swept)
    envs = problem.content.env_index
    paths, scenes, actual = [], [], []
    for place in places:
        waypoints = slice(None) if swept else slice(place.waypoint, place.waypoint + 1)
        path = spheres[place.row, waypoints, place.column]
        placed = problem.content.scenes[0 if envs is None else int(envs[place.row])]
        paths.append(path[:, None])
        scenes.append(_obstacles(placed, path))
        actual.append(given[place.row, waypoints, place.column, None])
    picked = np.stack(paths)  # (samples, horizon or 1, 1, 4)
    expected = _expected(picked, scenes, swept)
    worst = float(np.abs(actual - expected).max())
    tolerance += ABSOLUTE * max(1.0, float(np.abs(spheres[..., :3]).max()))
    if not np.allclose(actual, expected, rtol=RELATIVE, atol=tolerance):
        raise WrongResultError(f"a cost is off by {worst:.1e} m")
    if gradient is not None and not swept:
        slopes = _array(gradient)
        _check_gradients(picked, scenes, np.stack([slopes[place] for place in places]))
    return worst


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().astype(np.float64)


def _choose(cost: np.ndarray, samples: int, whole_paths: bool) -> list[_Place]:
    rng = np.random.default_rng(0)
    if whole_paths:
        cost = cost.sum(axis=1, keepdims=True)
    flat = cost.reshape(-1)
    costly = np.flatnonzero(flat > 0.0)
    half = rng.choice(costly, min(len(costly), samples // 2), replace=False)
    rest = rng.choice(len(flat), min(len(flat), samples - len(half)), replace=False)
    places = np.unravel_index(np.unique(np.concatenate([half, rest])), cost.shape)
    return [_Place(int(r), int(w), int(c)) for r, w, c in zip(*places, strict=True)]


def _obstacles(placed: Sequence[Placed], path: np.ndarray) -> list[reference.Obstacle]:
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


def _expected(
    picked: np.ndarray, scenes: list[list[reference.Obstacle]], swept: bool
) -> np.ndarray:
    options = {"activation_distance": ACTIVATION_DISTANCE, "env_index": list(range(len(scenes)))}
    if swept:
        return reference_sweep.swept_sphere_cost(picked, scenes, **options, **SAMPLING)
    return reference.sphere_cost(picked, scenes, **options)


def _check_gradients(
    picked: np.ndarray, scenes: list[list[reference.Obstacle]], actual: np.ndarray
) -> None:
    expected = np.zeros((len(picked), 4))
    for row, scene in enumerate(scenes):
        sphere = picked[row, 0, 0]
        for obstacle in scene:
            found = reference.obstacle_signed_distance(sphere[None, :3], obstacle)
            overlap = sphere[3] + ACTIVATION_DISTANCE - found.distance[0]
            slope = np.clip(overlap / ACTIVATION_DISTANCE, 0.0, 1.0)
            expected[row] += slope * np.append(-found.gradient[0], 1.0)
    off = np.abs(actual - expected).max(axis=1) > SLOPE * (1.0 + np.abs(expected).max(axis=1))
    if off.mean() > MOST_TILTED:
        raise WrongResultError(f"{off.sum()} of {len(off)} gradients differ from the reference")


def signed_distance(points: np.ndarray, placed: Placed) -> np.ndarray:
    """Signed distance (n,) of points (n, 3) to one mesh, in float64."""
    (obstacle,) = _obstacles([placed], np.zeros((1, 4)))
    return reference.obstacle_signed_distance(points.astype(np.float64), obstacle).distance

"""Balls of an overshoot, of which a cover of a mesh or shape is chosen.

They are those around the points of a lattice, and largest ones: of the balls inside that touch a
point of the surface, the largest one has its center on the medial axis, and covers most of the
surface when it is larger by the overshoot. It is found as in Ma, Bae and Choi, "3D medial axis
point approximation using nearest neighbors and the normal field" (2012): a ball that holds another
point is shrunk until that one lies on it.
"""

from __future__ import annotations

import numpy as np

from warp_collision.robot.fitting import pieces as geometry
from warp_collision.robot.fitting.solid import Solid

_MAX_POINTS = 20_000  # of a lattice
_MAX_CENTERS = 3_000
_LARGEST = 1_500  # points of the surface for largest balls
_MOST_SHRINKS = 16
_TOLERANCE = 0.02  # of the overshoot, by which a largest ball may stick out
# Multiples of these, without their whole parts, are spread evenly over a square (Roberts, 2018).
_SPREAD = 0.7548776662466927, 0.5698402909980532


def candidate_balls(solid: Solid, overshoot: float) -> np.ndarray:
    """Balls (n, 4) with the given overshoot, inside and near a solid."""
    largest = balls_at(solid, _largest(solid, overshoot), overshoot, least=0.5 * overshoot)
    return np.concatenate([_lattice(solid, overshoot), largest])


def balls_at(
    solid: Solid,
    centers: np.ndarray,
    overshoot: float,
    *,
    least: float = 0.0,
    on_surface: bool = False,
) -> np.ndarray:
    """Balls around centers with the given overshoot, without those of too small a radius."""
    centers = centers.astype(np.float32).astype(np.float64)
    distance = solid.distance(centers)
    if on_surface:  # that of a sliver too, of which `distance` knows nothing
        distance = np.minimum(distance, 0.0)
    radius = overshoot - distance - 2.0 * solid.rounding
    return np.column_stack([centers, radius])[radius > least]


def _lattice(solid: Solid, overshoot: float) -> np.ndarray:
    """Balls around the points of a lattice in the box of the solid, inside and near it."""
    lower, upper = solid.bounds
    extent = upper - lower
    balls = np.empty((0, 4))
    pitch = float(np.cbrt(np.maximum(extent, 1e-3 * extent.max()).prod() / _MAX_POINTS))
    for _ in range(3):
        while _odd(extent / pitch).prod() > 2 * _MAX_POINTS:
            pitch *= 1.1
        counts = _odd(extent / pitch)
        axes = [
            low + (np.arange(n) + 0.5) * (length / n)
            for low, n, length in zip(lower, counts, extent, strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
        balls = balls_at(solid, points, overshoot, least=0.5 * overshoot)
        if len(balls) <= _MAX_CENTERS:
            break
        pitch *= float(np.cbrt(len(balls) / _MAX_CENTERS)) * 1.02
    return balls


def _odd(counts: np.ndarray) -> np.ndarray:
    """Odd numbers near counts, so that the middle of the lattice is that of the solid."""
    return 2.0 * np.floor(0.5 * counts) + 1.0


def _largest(solid: Solid, overshoot: float) -> np.ndarray:
    """Centers (n, 3) of the largest balls inside that touch some points of the surface."""
    points, normals = _points(solid.triangles[~solid.slivers])
    if len(points) == 0:
        return points
    step = 0.1 * overshoot * normals
    is_inward = solid.distance(points + step) < solid.distance(points - step)
    inward = np.where(is_inward[:, None], normals, -normals)
    radius = np.full(len(points), 0.5 * solid.size)
    still = np.arange(len(points))
    for _ in range(_MOST_SHRINKS):
        centers = points[still] + radius[still, None] * inward[still]
        distance, nearest = solid.nearest(centers)
        is_large = np.abs(distance) < radius[still] - _TOLERANCE * overshoot
        still, chord = still[is_large], (nearest - points[still])[is_large]
        if len(still) == 0:
            break
        # Of the ball that touches the point and the nearest one, which lies in this ball.
        rise = np.einsum("ij,ij->i", chord, inward[still])
        squared = np.einsum("ij,ij->i", chord, chord)
        radius[still] = np.minimum(radius[still], 0.5 * squared / np.maximum(rise, 1e-12))
    return points + radius[:, None] * inward


def _points(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 3) spread evenly over triangles (m, 3, 3), and unit normals there."""
    areas = geometry.areas(triangles)
    triangles, areas = triangles[areas > 0.0], areas[areas > 0.0]
    if len(triangles) == 0:
        return np.empty((0, 3)), np.empty((0, 3))
    shares = (np.arange(_LARGEST) + 0.5) / _LARGEST
    chosen = np.searchsorted(np.cumsum(areas) / areas.sum(), shares).clip(max=len(areas) - 1)
    along, across = (np.arange(_LARGEST) * step % 1.0 for step in _SPREAD)
    outside = along + across > 1.0
    along, across = (np.where(outside, 1.0 - x, x)[:, None] for x in (along, across))
    a, b, c = triangles[chosen].swapaxes(0, 1)
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return a + along * (b - a) + across * (c - a), normals

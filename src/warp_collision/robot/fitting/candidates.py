"""Balls of an overshoot, of which a cover of a mesh or shape is chosen.

They are those around the points of a lattice, and largest ones: of the balls inside that touch a
point of the surface, the largest one has its center on the medial axis, and covers most of the
surface when it is larger by the overshoot. A ball that holds
another point is shrunk until that point lies on it, as in Ma, Bae and Choi, "3D medial axis point
approximation using nearest neighbors and the normal field" (2012).
"""

from __future__ import annotations

import numpy as np

from warp_collision.robot.fitting import pieces as geometry
from warp_collision.robot.fitting.solid import Solid

_MAX_POINTS = 20_000  # of a lattice
_FEW_POINTS = 2_000
_CENTERS = 2_900  # of balls of a lattice, about
_LARGEST = 1_500  # points of the surface for largest balls
_MOST_SHRINKS = 16
_TOLERANCE = 0.02  # of the overshoot, by which a largest ball may stick out
# Multiples of these, without their whole parts, are spread evenly over a square (Roberts, 2018).
_SPREAD = 0.7548776662466927, 0.5698402909980532


class Candidates:
    """Balls of which covers of a solid are chosen.

    Attributes:
        solid: the mesh or shape.
    """

    def __init__(self, solid: Solid):
        self.solid = solid
        # Centers of largest balls, and the overshoot [m] that they were found for.
        self._largest: tuple[np.ndarray, float] = np.empty((0, 3)), np.inf

    def balls(self, overshoot: float) -> np.ndarray:
        """Balls (n, 4) with the given overshoot, inside and near the solid."""
        if overshoot < self._largest[1]:  # what is accurate enough for one is so for larger ones
            self._largest = _largest(self.solid, overshoot), overshoot
        least = 0.5 * overshoot
        largest = balls_at(self.solid, self._largest[0], overshoot, least=least)
        return np.concatenate([_lattice(self.solid, overshoot), largest])


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
    balls, count = np.empty((0, 4)), _FEW_POINTS
    for _ in range(2):  # few points tell how many of all are near the solid
        points = _lattice_points(lower, upper, count)
        balls = balls_at(solid, points, overshoot, least=0.5 * overshoot)
        count = min(_MAX_POINTS, _CENTERS * len(points) // max(1, len(balls)))
        if count <= len(points):
            break
    return balls


def _lattice_points(lower: np.ndarray, upper: np.ndarray, count: int) -> np.ndarray:
    """About `count` points (n, 3) in a box, of which the middle is one."""
    extent = upper - lower
    pitch = float(np.cbrt(np.maximum(extent, 1e-3 * extent.max()).prod() / count))
    while _odd(extent / pitch).prod() > 2 * count:
        pitch *= 1.1
    axes = [
        low + (np.arange(n) + 0.5) * (length / n)
        for low, n, length in zip(lower, _odd(extent / pitch), extent, strict=True)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)


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

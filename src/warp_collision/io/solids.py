"""Closed meshes of bodies of files that have no formula: cones, prisms."""

from __future__ import annotations

import numpy as np
import trimesh

from warp_collision.io.polygons import ClippingBudget, triangulate
from warp_collision.messages import short_repr
from warp_collision.obstacles.shapes import CAPSULE_SIDES, SIDES, cap_outline, revolved

_ROWS = 256  # of edges that are compared with all others at once


def frustum_around(bottom: float, top: float, height: float) -> trimesh.Trimesh:
    """A mesh of a cone or truncated cone around z, centered, from the outside.

    Args:
        bottom: radius at -height / 2 [m].
        top: radius at height / 2 [m]; 0 for either of the two is a tip.
        height: along z [m].
    """
    end = 0.5 * height
    rings = [(radius, z) for radius, z in ((bottom, -end), (top, end)) if radius > 0.0]
    outline = np.array([(0.0, -end), *rings, (0.0, end)])
    return trimesh.Trimesh(*revolved(outline, SIDES), process=False)


def tapered_capsule_around(bottom: float, top: float, length: float) -> trimesh.Trimesh:
    """A mesh of a truncated cone around z, centered, with half spheres on both ends.

    It contains the body, and sticks out by at most 0.25 % of the larger radius.

    Args:
        bottom: radius at -length / 2 [m].
        top: radius at length / 2 [m]; 0 for either of the two is a tip.
        length: along z without the half spheres [m].
    """
    end = np.array([0.0, 0.5 * length])
    lower, upper = (
        np.concatenate(([(radius, 0.0)], cap_outline(radius))) if radius > 0.0 else np.zeros((1, 2))
        for radius in (bottom, top)
    )
    outline = np.concatenate((lower[::-1] * (1.0, -1.0) - end, upper + end))
    return trimesh.Trimesh(*revolved(outline, CAPSULE_SIDES), process=False)


def prism(corners: np.ndarray, height: float, budget: ClippingBudget) -> trimesh.Trimesh:
    """A polygon in the plane of x and y, extruded along z to both sides.

    Args:
        corners: (n, 2) of the polygon, either way round, concave or not [m]; one that is the same
            as the one before is passed over.
        height: along z, half of it on each side [m].
        budget: for the work, which grows with the square of the number of corners.

    Raises:
        ValueError: no area, edges that cross, or too many corners.
    """
    corners = corners[(corners != np.roll(corners, 1, axis=0)).any(axis=1)]
    n = len(corners)
    local = corners - corners[0] if n else corners
    following = np.roll(local, -1, axis=0)
    doubled_area = float((local[:, 0] * following[:, 1] - local[:, 1] * following[:, 0]).sum())
    if n < 3 or not abs(doubled_area) > 1e-12 * float(np.square(np.ptp(local, axis=0)).sum()):
        raise ValueError(f"a polygon must have an area, got {short_repr(corners.tolist())}")
    if doubled_area < 0.0:
        corners = corners[::-1]
    end = 0.5 * height
    low, high = (np.column_stack((corners, np.full(n, z))) for z in (-end, end))
    budget.spend(n * n)
    _require_simple(corners)
    cap = triangulate(high, np.array([n]), np.arange(n), budget)
    this, ring = np.arange(n), np.roll(np.arange(n), -1)
    faces = (
        cap + n,
        cap[:, ::-1],
        np.stack((this, ring, ring + n), axis=1),
        np.stack((this, ring + n, this + n), axis=1),
    )
    return trimesh.Trimesh(np.concatenate((low, high)), np.concatenate(faces), process=False)


def _require_simple(corners: np.ndarray) -> None:
    """Raises if edges of a polygon (n, 2) cross: its inside is ambiguous."""
    n, following = len(corners), np.roll(corners, -1, axis=0)

    def sides(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
        """On which side of the edges (m,) points (m, n, 2) or (1, n, 2) are."""
        edge = (following - corners)[rows, None]
        to = points - corners[rows, None]
        return np.sign(edge[..., 0] * to[..., 1] - edge[..., 1] * to[..., 0])

    whole = np.arange(n)
    for first in range(0, n, _ROWS):
        rows = whole[first : first + _ROWS]
        across = sides(rows, corners[None]) * sides(rows, following[None]) < 0.0
        back = sides(whole, corners[None, rows]) * sides(whole, following[None, rows]) < 0.0
        crossing = np.argwhere(across & back.T)
        if len(crossing):
            one, other = (int(i) for i in (rows[crossing[0, 0]], crossing[0, 1]))
            raise ValueError(f"edges of a polygon must not cross, got edges {one} and {other}")

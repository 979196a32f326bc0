"""Polygons to triangles, concave ones too, and closed meshes of bodies without a formula."""

from __future__ import annotations

import numpy as np
import trimesh

from warp_collision.io.scene_builder import ClippingBudget
from warp_collision.messages import short_repr
from warp_collision.obstacles.shapes import CAPSULE_SIDES, SIDES, cap_outline, revolved

_FLAT = 1e-9  # of a cross product, in units of the polygon's squared size
_ROWS = 256  # of edges that are compared with all others at once


def triangulate(
    points: np.ndarray,
    counts: np.ndarray,
    indices: np.ndarray,
    budget: ClippingBudget | None = None,
) -> np.ndarray:
    """Triangles (n, 3) of polygons with the same orientation.

    Args:
        points: (n_points, 3).
        counts: (n_polygons,) corners of each polygon, at least 3.
        indices: (sum of counts,) their points.
        budget: of the file; by default one of this call.

    Raises:
        ValueError: concave polygons that exceed the budget.

    Example:
        >>> import numpy as np
        >>> from warp_collision.io.solids import triangulate
        >>> corners = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
        >>> triangulate(corners, np.array([4]), np.arange(4)).tolist()
        [[0, 1, 2], [0, 2, 3]]
    """
    budget = budget or ClippingBudget()
    starts = np.cumsum(counts) - counts
    pieces, order = [np.empty((0, 3), np.int64)], [np.empty(0, np.int64)]
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        polygons = indices[starts[rows][:, None] + np.arange(count)]
        if count == 4:  # its fan starts at the corner that may be concave
            first = _turns(points[polygons]).argmin(axis=1)
            polygons = np.take_along_axis(polygons, (first[:, None] + np.arange(4)) % 4, axis=1)
        faces = np.stack([polygons[:, [0, i, i + 1]] for i in range(1, count - 1)], axis=1)
        concave = np.flatnonzero(~_are_convex(points[polygons])) if count > 4 else []
        budget.spend(len(concave) * int(count) ** 2)
        for row in concave:
            faces[row] = polygons[row][_clip_ears(_flattened(points[polygons[row]]))]
        pieces.append(faces.reshape(-1, 3))
        order.append(np.repeat(rows, count - 2))
    return np.concatenate(pieces)[np.argsort(np.concatenate(order), kind="stable")]


def _normals(corners: np.ndarray) -> np.ndarray:
    """Newell's normals (n, 3) of polygons (n, corners, 3), not normalised."""
    local = corners - corners[:, :1]
    return np.cross(local, np.roll(local, -1, axis=1)).sum(axis=1)


def _turns(corners: np.ndarray) -> np.ndarray:
    """How far polygons turn left at each corner (n, corners), about their normals."""
    edges = np.roll(corners, -1, axis=1) - corners
    turns = np.roll(np.cross(edges, np.roll(edges, -1, axis=1)), 1, axis=1)
    normals = _normals(corners)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.einsum("ncx,nx->nc", turns, normals / np.maximum(lengths, 1e-300))


def _are_convex(corners: np.ndarray) -> np.ndarray:
    size = np.ptp(corners, axis=1).max(axis=1)
    left = _turns(corners) >= -_FLAT * (size * size)[:, None]
    # A star turns left at every corner too, but more than once around.
    edges = np.roll(corners, -1, axis=1) - corners
    unit = edges / np.maximum(np.linalg.norm(edges, axis=2, keepdims=True), 1e-300)
    cosines = np.einsum("ncx,ncx->nc", unit, np.roll(unit, -1, axis=1))
    return left.all(axis=1) & (np.arccos(np.clip(cosines, -1.0, 1.0)).sum(axis=1) < 3.0 * np.pi)


def _flattened(corners: np.ndarray) -> np.ndarray:
    """The polygon (n, 2) in its plane, counter-clockwise."""
    normal = _normals(corners[None])[0]
    length = np.linalg.norm(normal)
    normal = normal / length if length > 0.0 else np.array([0.0, 0.0, 1.0])
    first = np.cross(normal, np.eye(3)[np.abs(normal).argmin()])
    first /= np.linalg.norm(first)
    return (corners - corners[0]) @ np.stack((first, np.cross(normal, first)), axis=1)


def _clip_ears(polygon: np.ndarray) -> np.ndarray:
    """Triangles (n - 2, 3) of a polygon (n, 2), by its corners."""
    left = np.arange(len(polygon))
    faces = []
    while len(left) > 3:
        at = next((i for i in range(len(left)) if _is_ear(polygon[left], i)), 1)
        faces.append(left[[at - 1, at, (at + 1) % len(left)]])
        left = np.delete(left, at)
    return np.array([*faces, left])


def _is_ear(polygon: np.ndarray, at: int) -> bool:
    """Whether the triangle at a corner is in the polygon, without another corner in it."""
    a, b, c = polygon[at - 1], polygon[at], polygon[(at + 1) % len(polygon)]
    if _cross(b - a, c - b) <= 0.0:
        return False
    inside = np.ones(len(polygon), bool)
    for begin, end in ((a, b), (b, c), (c, a)):
        inside &= _cross(end - begin, polygon - begin) >= 0.0
    for corner in (a, b, c):
        inside &= (polygon != corner).any(axis=1)
    return not inside.any()


def _cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


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

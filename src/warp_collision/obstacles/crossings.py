"""Which components of a mesh points are in, by the faces that a ray from each point crosses.

Faces are found by a grid over the plane across the rays, of cells as large as each face, so that
thousands of components take no longer than their faces and points do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warp_collision.obstacles.topology import Faces, Vertices, lengths

# No ray runs along an axis: rows of a rotation matrix, of no small whole numbers.
_AXES = np.linalg.qr(np.array([[0.61, -0.37, 0.55], [0.29, 0.83, -0.41], [-0.47, 0.23, 0.71]]))[0]
# Nearer than this to an edge or a face, relative to the largest coordinate, a crossing is invalid.
_DOUBT = 2.0**-20
_PAIRS_AT_ONCE = 1 << 20


def component_windings(
    points: np.ndarray, before: np.ndarray, vertices: Vertices, faces: Faces, component: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Winding numbers of closed components around points: whole, but for points on their surface.

    Args:
        points: (n, 3).
        before: (n,) each is only asked about components of lower numbers than this.
        vertices: (n_vertices, 3).
        faces: (n_faces, 3), of closed components.
        component: (n_faces,) the component of each face.

    Returns:
        Where they are not zero: indices of points, components, and the winding numbers.
    """
    center = vertices[faces].mean(axis=(0, 1), dtype=np.float64)
    corners = ((vertices - center) @ _AXES.T)[faces]
    projected = (points - center) @ _AXES.T
    n_components = int(component.max(initial=0)) + 1
    found: list[tuple[np.ndarray, np.ndarray]] = []
    doubtful: list[np.ndarray] = []
    for point, face in _pairs(projected[:, :2], corners[..., :2]):
        earlier = component[face] < before[point]
        point, face = point[earlier], face[earlier]
        sign, doubt = _crossings(projected[point], corners[face])
        key = point * n_components + component[face]
        found.append((key[sign != 0], sign[sign != 0]))
        doubtful.append(np.unique(key[doubt]))
    keys = np.concatenate([key for key, _ in found] or [np.zeros(0, dtype=np.int64)])
    signs = np.concatenate([sign for _, sign in found] or [np.zeros(0)])
    keys, inverse = np.unique(keys, return_inverse=True)
    numbers = np.bincount(inverse, weights=signs, minlength=len(keys))
    unsure = np.unique(np.concatenate(doubtful or [keys[:0]]))
    known = ~np.isin(keys, unsure) & (numbers != 0.0)
    order = np.argsort(component, kind="stable")
    starts = np.searchsorted(component[order], np.arange(n_components + 1))
    summed = [
        winding_number(points[i], vertices, faces[order[starts[b] : starts[b + 1]]])
        for i, b in zip(*np.divmod(unsure, n_components), strict=True)
    ]
    keys = np.concatenate((keys[known], unsure))
    return (
        keys // n_components,
        keys % n_components,
        np.concatenate((numbers[known], np.array(summed))),
    )


def _pairs(points: np.ndarray, corners: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points (n, 2) and triangles (m, 3, 2) that share a cell: indices of both, some at a time."""
    if len(points) == 0:
        return
    lower, upper = corners.min(axis=1), corners.max(axis=1)
    slack = 2.0 * _DOUBT * np.abs(corners).max()
    lower, upper = lower - slack, upper + slack
    level = np.ceil(np.log2((upper - lower).max(axis=1))).astype(np.int64)
    for size in np.unique(level):
        chosen = np.flatnonzero(level == size)
        first, last = (np.floor(x[chosen] * 0.5**size).astype(np.int64) for x in (lower, upper))
        cells, owners = [], []
        for dx, dy in ((0, 0), (0, 1), (1, 0), (1, 1)):
            inside = (first[:, 0] + dx <= last[:, 0]) & (first[:, 1] + dy <= last[:, 1])
            cells.append(first[inside] + (dx, dy))
            owners.append(chosen[inside])
        keys = _cell_keys(np.concatenate(cells))
        order = np.argsort(keys, kind="stable")
        keys, owner = keys[order], np.concatenate(owners)[order]
        at = _cell_keys(np.floor(points * 0.5**size).astype(np.int64))
        begin, end = np.searchsorted(keys, at), np.searchsorted(keys, at, side="right")
        ends = np.cumsum(end - begin)
        start = 0
        while start < len(points):
            done = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + _PAIRS_AT_ONCE, side="right")))
            count = (end - begin)[start:stop]
            point = np.repeat(np.arange(start, stop), count)
            skip = np.repeat(begin[start:stop] - (np.cumsum(count) - count), count)
            face = owner[np.arange(len(point)) + skip]
            position, low, high = points[point].T, lower[face].T, upper[face].T
            hit = (position[0] >= low[0]) & (position[1] >= low[1])
            hit &= (position[0] <= high[0]) & (position[1] <= high[1])
            yield point[hit], face[hit]
            start = stop


def _cell_keys(cells: np.ndarray) -> np.ndarray:
    """One number for each cell (n, 2); cells that share one by accident only cost time."""
    return cells[:, 0] * np.int64(0x1F1F1F1F1) + cells[:, 1]


def _crossings(points: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How rays upward from points cross triangles, 1 from behind, and where that is uncertain."""
    margin = _DOUBT * np.maximum(np.abs(points).max(axis=1), np.abs(corners).max(axis=(1, 2)))
    offsets = corners - points[:, None]
    edges = np.roll(offsets, -1, axis=1) - offsets
    flat = lengths(edges * (1.0, 1.0, 0.0))
    across = offsets[..., 0] * edges[..., 1] - offsets[..., 1] * edges[..., 0]
    normal = np.cross(edges[:, 0], edges[:, 1])
    up = np.where(normal[:, 2] < 0.0, -1.0, 1.0)
    # How far inside of each edge the ray passes, and how far above the point it meets the plane.
    inside = (up[:, None] * across / np.maximum(flat, 1e-300)).min(axis=1)
    height = np.einsum("ni,ni->n", normal, offsets[:, 0])
    steep = np.abs(normal[:, 2]) < 1e-6 * lengths(normal)
    height = height / np.where(steep, 1.0, normal[:, 2])
    reach = margin * lengths(normal) / np.maximum(np.abs(normal[:, 2]), 1e-300)
    doubt = (inside > -margin) & (steep | (np.abs(height) <= reach) | (inside < margin))
    doubt &= steep | (height > -reach)
    return np.where((inside > 0.0) & (height > 0.0) & ~doubt, up, 0.0), doubt


def winding_number(point: np.ndarray, vertices: Vertices, faces: Faces) -> float:
    """Generalized winding number of a point, summed over all faces in float64.

    In the plane of a face, where its share jumps, it is the mean of both sides: on a surface 1/2.
    """
    a, b, c = np.moveaxis(vertices[faces].astype(np.float64) - point, 1, 0)
    la, lb, lc = (lengths(x) for x in (a, b, c))
    volume = np.einsum("fi,fi->f", a, np.cross(b, c))
    dots = [np.einsum("fi,fi->f", x, y) for x, y in ((a, b), (b, c), (c, a))]
    span = la * lb * lc + dots[0] * lc + dots[1] * la + dots[2] * lb
    off_plane = np.abs(volume) > 1e-9 * la * lb * lc
    return float(np.arctan2(volume, span)[off_plane].sum() / (2.0 * np.pi))

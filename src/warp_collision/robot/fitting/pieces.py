"""Pieces of surfaces and solids: triangles, groups of triangles, and cubes, by their corners.

All lie in the convex hull of their corners: a ball that contains these contains the piece.
"""

from __future__ import annotations

import numpy as np


def centers(pieces: np.ndarray) -> np.ndarray:
    """(n, 3) means of the corners (n, k, 3) of convex pieces."""
    return pieces.mean(axis=1)


def radii(pieces: np.ndarray) -> np.ndarray:
    """(n,) largest distance of the corners of pieces (n, k, 3) from their means."""
    return np.linalg.norm(pieces - centers(pieces)[:, None], axis=2).max(axis=1)


def areas(triangles: np.ndarray) -> np.ndarray:
    """(n,) areas of triangles (n, 3, 3)."""
    a, b, c = triangles.swapaxes(0, 1)
    return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)


def longest_edges(triangles: np.ndarray) -> np.ndarray:
    """(n,) length of the longest edge of each triangle."""
    return np.linalg.norm(triangles - np.roll(triangles, -1, axis=1), axis=2).max(axis=1)


def bisected(triangles: np.ndarray) -> np.ndarray:
    """(2 n, 3, 3): triangles cut in two at the middle of their longest edge."""
    edges = np.linalg.norm(triangles - np.roll(triangles, -1, axis=1), axis=2)
    order = (edges.argmax(axis=1)[:, None] + np.arange(3)) % 3
    a, b, c = np.take_along_axis(triangles, order[..., None], axis=1).swapaxes(0, 1)
    middle = 0.5 * (a + b)
    return np.concatenate([np.stack([a, middle, c], 1), np.stack([middle, b, c], 1)])


def octants(cubes: np.ndarray) -> np.ndarray:
    """(8 n, 8, 3): the eighths of cubes (n, 8, 3)."""
    return (0.5 * (cubes[:, :, None] + cubes[:, None, :])).reshape(-1, 8, 3)


def edges(cubes: np.ndarray) -> np.ndarray:
    """(n,) edge of each cube (n, 8, 3)."""
    return cubes[:, 7, 0] - cubes[:, 0, 0]


def groups(triangles: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray]:
    """Triangles (n, 3, 3) in groups, one for each cube of an edge that has centers of them.

    Returns:
        Corners (n_groups, k, 3) of groups, the first one repeated where there are fewer, and the
        group (n,) of each triangle.
    """
    cells = np.floor(centers(triangles) / edge).astype(np.int64)
    order = np.lexsort(cells.T[::-1])
    group = np.empty(len(cells), dtype=np.int64)
    group[order] = np.append(0, np.cumsum(np.diff(cells[order], axis=0).any(axis=1)))
    corners, index = distinct(triangles)
    owner, corner = np.divmod(np.unique(group[:, None] * len(corners) + index), len(corners))
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    counts = np.diff(starts, append=len(owner))
    rank = np.arange(len(owner)) - np.repeat(starts, counts)
    members = np.tile(corner[starts][:, None], (1, int(counts.max())))
    members[owner, rank] = corner
    return corners[members], group


def distinct(pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct corners (m, 3) of pieces (n, k, 3), and their indices (n, k)."""
    corners = pieces.reshape(-1, 3)
    order = np.lexsort(corners.T)
    ordered = corners[order]
    new = np.ones(len(corners), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    index = np.empty(len(corners), dtype=np.int64)
    index[order] = np.cumsum(new) - 1
    return ordered[new], index.reshape(pieces.shape[:2])


def contains(spheres: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """(n_spheres, n_pieces) bool: whether a sphere contains a piece, as it contains its corners."""
    corners, index = distinct(pieces)
    reach = np.linalg.norm(spheres[:, None, :3] - corners[None], axis=2) <= spheres[:, 3:]
    result = reach[:, index[:, 0]]
    for corner in index.T[1:]:
        result &= reach[:, corner]
    return result


def gaps(points: np.ndarray, spheres: np.ndarray) -> np.ndarray:
    """(n,) distance of points (n, 3) to the nearest sphere, negative inside [m]."""
    result = np.full(len(points), np.inf)
    for part in np.array_split(np.arange(len(points)), len(points) // 4096 + 1):
        offsets = points[part, None] - spheres[None, :, :3]
        distances = np.linalg.norm(offsets, axis=2) - spheres[:, 3]
        result[part] = distances.min(axis=1, initial=np.inf)
    return result


def chunks(count: int, size: int) -> list[slice]:
    """Slices of at most `size` of `count` elements, which bound the memory of what is computed."""
    return [slice(begin, begin + size) for begin in range(0, count, size)]

"""Faces too thin for float32: split where that makes queries exact, dropped where covered.

Warp's closest-point queries pass over the thinnest faces, see `topology.degenerate_faces`. One of
them may go only where the others cover its surface to rounding.
"""

from __future__ import annotations

import numpy as np

from warp_collision.obstacles.topology import Faces, Vertices, degenerate_faces, find_edges, lengths

# How far the surface may move, in parts of the largest coordinate: two roundings to float32.
ROUNDING = 2.0**-22
# Maximum length of chains of covering neighbours, and of faces that are examined one by one.
_LONGEST_CHAIN, _MAX_EXAMINED = 64, 10_000


def heights(vertices: Vertices, faces: Faces) -> np.ndarray:
    """Height (n,) of each face over its longest edge [m]."""
    corners = vertices.astype(np.float64)[faces]
    doubled = lengths(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    longest = lengths(np.roll(corners, -1, axis=1) - corners).max(axis=1)
    return doubled / np.where(longest > 0.0, longest, 1.0)


def are_on_a_line(vertices: Vertices, faces: Faces) -> np.ndarray:
    """Mask (n,) of the faces that have no surface to lose, not even in float64."""
    scale = np.abs(vertices[faces]).max(axis=(1, 2), initial=0.0)
    return heights(vertices, faces) <= 1e-15 * scale


def uncovered_faces(
    vertices: Vertices, faces: Faces, dropped: np.ndarray, tolerance: float
) -> np.ndarray:
    """Which of the faces to be dropped (n,) the others do not cover.

    A face is covered if each of its points has one of a face that stays within the tolerance.
    Neighbours tell most: all of a face is within its height of its longest edge, and of its two
    others taken together. The rest are compared with all faces that stay.

    Args:
        vertices: (n_vertices, 3).
        faces: (n, 3).
        dropped: mask (n,).
        tolerance: [m].
    """
    left = dropped & ~_covered_by_neighbours(vertices, faces, dropped, tolerance)
    left[left] = ~are_on_a_line(vertices, faces[left])
    thin = np.flatnonzero(left)
    kept = vertices.astype(np.float64)[faces[~dropped]]
    lower, upper = kept.min(axis=1) - tolerance, kept.max(axis=1) + tolerance
    if len(thin) > _MAX_EXAMINED:
        return left
    # All of a face is within its height of its longest edge.
    reach = tolerance - heights(vertices, faces[thin])
    for face, rest in zip(thin[reach > 0.0], reach[reach > 0.0], strict=True):
        corners = vertices[faces[face]].astype(np.float64)
        beside = ((lower <= corners.max(axis=0)) & (upper >= corners.min(axis=0))).all(axis=1)
        side = _longest_edges(corners[None])[0, 0]
        if _cover_segment(kept[beside], corners[side], corners[(side + 1) % 3], rest):
            left[face] = False
    return left


def _longest_edges(corners: np.ndarray) -> np.ndarray:
    """Sides (n, 3) of triangles (n, 3, 3) by number, the longest first."""
    return np.argsort(-lengths(np.roll(corners, -1, axis=1) - corners), axis=1, kind="stable")


def _covered_by_neighbours(
    vertices: Vertices, faces: Faces, dropped: np.ndarray, tolerance: float
) -> np.ndarray:
    """Which faces are covered by those that stay, as far as edges tell."""
    edges = find_edges(faces)
    edge_of = np.empty(3 * len(faces), dtype=np.int64)
    edge_of[edges.order] = np.repeat(np.arange(len(edges.counts)), edges.counts)
    edge_of = edge_of.reshape(-1, 3)
    # How far the points of an edge are from the faces that stay, at most.
    distance = np.full(len(edges.counts), np.inf)
    distance[edge_of[~dropped]] = 0.0
    thin = np.flatnonzero(dropped)
    sides = _longest_edges(vertices[faces[thin]].astype(np.float64))
    longest, *shorter = np.take_along_axis(edge_of[thin], sides, axis=1).T
    height = heights(vertices, faces[thin])
    by_longest = by_shorter = np.full(len(thin), np.inf)
    # What a longer chain of neighbours covers is left to a closer look.
    for _ in range(_LONGEST_CHAIN):
        by_longest = distance[longest] + height
        by_shorter = np.maximum(distance[shorter[0]], distance[shorter[1]]) + height
        updated = distance.copy()
        np.minimum.at(updated, shorter[0], by_longest)
        np.minimum.at(updated, shorter[1], by_longest)
        np.minimum.at(updated, longest, by_shorter)
        if np.array_equal(updated, distance):
            break
        distance = updated
    covered = np.zeros(len(faces), dtype=bool)
    covered[thin] = np.minimum(by_longest, by_shorter) <= tolerance
    return covered


def _cover_segment(
    corners: np.ndarray, begin: np.ndarray, end: np.ndarray, tolerance: float
) -> bool:
    """Whether triangles (n, 3, 3) have all points of a segment within a tolerance [m].

    Each triangle, grown by two thirds of the tolerance within its plane, to both sides of it and
    along the segment, cuts an interval out of the segment.
    """
    along = (end - begin) / lengths(end - begin)
    sides = np.roll(corners, -1, axis=1) - corners
    normals = np.cross(sides[:, 0], sides[:, 1])[:, None]
    inward = np.cross(normals, sides)
    direction = np.broadcast_to(along, normals.shape)
    planes = np.concatenate((inward, normals, -normals, direction, -direction), axis=1)
    planes /= lengths(planes)[..., None]
    # The lowest height over a plane that is still in the triangle.
    base = np.einsum("npi,nki->npk", planes, corners).min(axis=2) - 2.0 / 3.0 * tolerance
    first, last = planes @ begin - base, planes @ end - base
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = first / (first - last)
    enter = np.where(first >= 0.0, 0.0, np.where(last >= 0.0, crossing, np.inf)).max(axis=1)
    leave = np.where(last >= 0.0, 1.0, np.where(first >= 0.0, crossing, -np.inf)).min(axis=1)
    reached = 0.0
    for index in np.argsort(enter):
        if enter[index] > reached + 1e-9:
            break
        reached = max(reached, leave[index])
    return reached >= 1.0 - 1e-9


def rounding_of_triangles(corners: np.ndarray) -> np.ndarray:
    """How much float32 loses on triangles (n, 3, 3) [m], in units of 2e-8.

    A closest-point query solves for the two edges that leave the first corner. With b the longer
    and c the shorter of them it is rounded by about 2e-8 b^3 |b . c| / |b x c|^2: by nothing where
    they are at right angles, by more than the triangle's height at the end of a sliver.
    """
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    longer = np.maximum(lengths(first), lengths(second))
    dots = np.abs(np.einsum("fi,fi->f", first, second))
    cross = np.cross(first, second)
    return longer**3 * dots / np.maximum(np.einsum("fi,fi->f", cross, cross), 1e-300)


def widest_first(vertices: Vertices, faces: Faces) -> tuple[Faces, np.ndarray]:
    """Faces (n, 3) rolled so that the widest corner comes first, and their corners (n, 3, 3)."""
    corners = vertices[faces]
    widest = lengths(np.roll(corners, 1, axis=1) - np.roll(corners, -1, axis=1)).argmax(axis=1)
    faces = np.take_along_axis(faces, (widest[:, None] + np.arange(3)) % 3, axis=1)
    return faces, vertices[faces]


def condition_slivers(
    vertices: Vertices, faces: Faces, max_loss: float
) -> tuple[Vertices, Faces, int]:
    """Makes slivers such that closest-point queries in float32 are exact on them.

    A sliver begins with its widest corner: that suffices where it is nearly a right angle. Others
    are split at the foot of that corner's height, into two triangles with a right angle there.
    The surface stays the same.

    Args:
        vertices: (n, 3).
        faces: (n, 3); those that queries do not see are left alone.
        max_loss: what is tolerated, in units of 2e-8 of the mesh's size.

    Returns:
        vertices, faces, and how many of the faces given were split.
    """
    vertices = vertices.astype(np.float64)
    limit = max_loss * np.ptp(vertices, axis=0).max()
    poor = np.flatnonzero(rounding_of_triangles(vertices[faces]) > limit)
    poor = poor[~degenerate_faces(vertices, faces[poor])]
    if len(poor) == 0:
        return vertices, faces, 0
    faces = faces.copy()
    faces[poor], corners = widest_first(vertices, faces[poor])
    split = np.zeros(len(faces), dtype=bool)
    split[poor] = rounding_of_triangles(corners) > limit
    if not split.any():
        return vertices, faces, 0

    apex, left, right = np.moveaxis(vertices[faces[split]], 1, 0)
    base = right - left
    along = np.einsum("fi,fi->f", apex - left, base) / np.einsum("fi,fi->f", base, base)
    feet, index = np.unique(left + along[:, None] * base, axis=0, return_inverse=True)
    foot = len(vertices) + index.reshape(-1)
    halves = (
        np.stack((foot, faces[split, 0], faces[split, 1]), axis=1),
        np.stack((foot, faces[split, 2], faces[split, 0]), axis=1),
    )
    faces = np.concatenate((faces[~split], *halves))
    return np.concatenate((vertices, feet)), faces, int(split.sum())

"""Faces too thin for float32: split where that makes queries exact, dropped where covered.

Warp's closest-point queries pass over the thinnest faces, see `topology.degenerate_faces`. One of
them may go only where the others cover its surface to rounding.

Needles in pairs, the quads of long thin bodies: sliced across, so that float32 resolves them.

The two halves of a long narrow quad, a side of a rod, say, touch along a diagonal that is nearly as
long as the quad and runs into its corners at almost no angle. Halving such needles leaves tips of
the same shape. So the diagonal is taken out, the long sides are cut at common places, and the quads
between the cuts are triangulated anew. Neighbours across a cut side are fanned out to the cuts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warp_collision.obstacles.topology import (
    Faces,
    Vertices,
    connected_components,
    degenerate_faces,
    find_edges,
    lengths,
)

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
    and c the shorter of them it is rounded by about 2e-8 b^3 |b . c| / |b x c|^2. That is nothing
    at right angles, and more than the triangle's height at the end of a sliver.
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


# Needles are longer than this many times their height and their shortest edge.
NEEDLE = 300.0
# Slices are shorter than this many times their width: queries see twice that.
_LONGEST = 2.0e5
# A slice is rounded like a quad that is skewed by so much of the largest coordinate.
_SKEW = 2.0**-23
# How many faces slices may be at most.
MOST_SLICES = 1_000_000


class Quads(NamedTuple):
    """Long quads, each of two needles.

    Attributes:
        corners: (n, 4) vertices around each, its long sides from the first to the last and from the
            second to the third.
        faces: (n, 2) the needles.
    """

    corners: np.ndarray
    faces: np.ndarray

    def chosen(self, index: np.ndarray) -> Quads:
        """Some of them."""
        return Quads(self.corners[index], self.faces[index])

    def long_sides(self, n_vertices: int) -> np.ndarray:
        """The keys (n, 2) of the long sides."""
        return _side_keys(self.corners[:, [0, 1]], self.corners[:, [3, 2]], n_vertices)


def _side_keys(begin: np.ndarray, end: np.ndarray, n_vertices: int) -> np.ndarray:
    """One number for each edge between vertices, whichever comes first."""
    return np.minimum(begin, end).astype(np.int64) * n_vertices + np.maximum(begin, end)


def slice_needles(
    vertices: Vertices, faces: Faces, max_loss: float, tolerance: float
) -> tuple[Vertices, Faces, int]:
    """Slices pairs of needles where float32 would round too much or miss them.

    Args:
        vertices: (n_vertices, 3) [m].
        faces: (n, 3), neighbours oriented alike.
        max_loss: rounding that is tolerated, see `condition_slivers`.
        tolerance: how far the surface may move [m]: a pair that is not so flat stays as it is.

    Returns:
        vertices, faces, and how many faces were sliced.

    Raises:
        ValueError: the slices would be more than `MOST_SLICES` faces.
    """
    vertices = vertices.astype(np.float64)
    corners = vertices[faces]
    sides = lengths(np.roll(corners, -1, axis=1) - corners)
    seen, sharp = _wanted_slices(vertices, faces, sides, max_loss, 0.25 * tolerance)
    if not (sharp > 1.0).any():
        return vertices, faces, 0
    quads = _find_quads(vertices, faces, sides, sharp > 0.0, tolerance)
    long_sides = quads.long_sides(len(vertices))
    # A needle that is in no pair would be fanned out into thinner ones: only if there is need.
    lone = NEEDLE * sides.min(axis=1) < sides.max(axis=1)
    lone[quads.faces] = False
    around = _side_keys(faces[lone], np.roll(faces[lone], -1, axis=1), len(vertices))
    group = _groups(long_sides)
    fanned = np.isin(group, group[np.isin(long_sides, around).any(axis=1)])
    wanted = np.where(fanned[:, None], seen[quads.faces], sharp[quads.faces]).max(axis=1, initial=0)
    most = np.zeros(len(quads.faces))
    np.maximum.at(most, group, wanted)
    slices = most[group]
    if 2.0 * slices[slices > 1.0].sum() > MOST_SLICES:
        raise ValueError(
            f"must be resolved by at most {MOST_SLICES:,} faces, got {2.0 * slices.sum():,.0f}"
        )
    if not (slices > 1.0).any():
        return vertices, faces, 0
    quads, slices = quads.chosen(slices > 1.0), slices[slices > 1.0].astype(np.int64)
    return *_cut(vertices, faces, quads, slices), 2 * len(slices)


def _wanted_slices(
    vertices: Vertices, faces: Faces, sides: np.ndarray, max_loss: float, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """How many slices of each face queries need to see it, and to be accurate on it.

    0 for all that are no needles, and for those with less than the least height [m], which float32
    cannot tell from a line.
    """
    seen, sharp = np.zeros(len(faces)), np.zeros(len(faces))
    longest = sides.max(axis=1)
    slender = np.flatnonzero(NEEDLE * sides.min(axis=1) < longest)
    corners = widest_first(vertices, faces[slender])[1]
    doubled = lengths(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    aspect = longest[slender] ** 2 / np.maximum(doubled, 1e-300)
    limit = max_loss * np.ptp(vertices, axis=0).max()
    rounded = rounding_of_triangles(corners) > limit
    # The rounding of a slice grows with its skew and with the square of its aspect ratio.
    skew = _SKEW * np.abs(vertices[faces]).max()
    slices = np.where(rounded, np.ceil(1.5 * aspect * np.sqrt(skew / limit)), 1.0)
    needle = (aspect >= NEEDLE) & (doubled > least * longest[slender])
    chosen, aspect = slender[needle], aspect[needle]
    seen[chosen] = np.where(aspect > 2.0 * _LONGEST, np.ceil(aspect / _LONGEST), 1.0)
    sharp[chosen] = np.maximum(np.ceil(aspect / _LONGEST), slices[needle])
    return seen, sharp


def _find_quads(
    vertices: Vertices, faces: Faces, sides: np.ndarray, needles: np.ndarray, tolerance: float
) -> Quads:
    """Pairs of needles in one plane that touch along a long edge, with their tips at its two ends.

    No needle is in two of them.
    """
    edges = find_edges(faces)
    twice = edges.starts[edges.counts == 2]
    touching = np.stack((edges.order[twice], edges.order[twice + 1]), axis=1)
    owner, side = np.divmod(touching, 3)
    shortest = sides.argmin(axis=1)[owner]
    # The tip, between the two long sides, is where the one after the shortest ends.
    begins_at_tip = side == (shortest + 2) % 3
    agree = edges.upward[touching[:, 0]] != edges.upward[touching[:, 1]]
    fit = agree & needles[owner].all(axis=1) & (side != shortest).all(axis=1)
    fit &= begins_at_tip[:, 0] == begins_at_tip[:, 1]
    owner, side, begins_at_tip = owner[fit], side[fit], begins_at_tip[fit, 0]

    begin, end = (faces[owner[:, 0], (side[:, 0] + k) % 3] for k in (0, 1))
    left, right = (faces[owner[:, k], (side[:, k] + 2) % 3] for k in (0, 1))
    corners = np.where(
        begins_at_tip[:, None],
        np.stack((begin, right, end, left), axis=1),
        np.stack((left, begin, right, end), axis=1),
    )
    gap = _gaps(vertices[corners])
    flat = np.flatnonzero(gap <= tolerance)
    flat = flat[_match(len(faces), owner[flat], gap[flat])]
    return Quads(corners[flat], owner[flat])


def _gaps(corners: np.ndarray) -> np.ndarray:
    """How far the surface of quads (n, 4, 3) moves if both long sides are joined; inf: no quad."""
    a, b, c, d = np.moveaxis(corners, 1, 0)
    normal = np.cross(c - a, d - b)
    size = lengths(normal)
    normal /= np.where(size > 0.0, size, 1.0)[:, None]
    gap = 0.25 * np.abs(np.einsum("ni,ni->n", a + c - b - d, normal))
    edges = np.roll(corners, -1, axis=1) - corners
    turns = np.cross(np.roll(edges, 1, axis=1), edges)
    convex = (np.einsum("nki,ni->nk", turns, normal) > 0.0).all(axis=1)
    return np.where(convex, gap, np.inf)


def _match(n_faces: int, pairs: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Which pairs (n, 2) of faces to choose, so that no face is in two and few are in none.

    A face is in two pairs at most, so that pairs are links of chains and rings: every other one is
    chosen, from the side that leaves fewer faces or, if that is equal, has the smaller gaps.
    """
    links: list[list[int]] = [[] for _ in range(n_faces)] if len(pairs) else []
    for index, (first, second) in enumerate(pairs.tolist()):
        links[first].append(index)
        links[second].append(index)
    ends = pairs.tolist()
    done = [False] * len(pairs)
    chosen: list[int] = []
    inner = [face for index in range(len(pairs)) for face in ends[index]]
    for face in sorted(inner, key=lambda face: len(links[face])):  # ends of chains come first
        chain: list[int] = []
        here = face
        while (link := next((k for k in links[here] if not done[k]), None)) is not None:
            done[link] = True
            chain.append(link)
            here = ends[link][1] if ends[link][0] == here else ends[link][0]
        ring = len(chain) > 1 and here == face
        options = [chain[start : len(chain) - (ring and len(chain) % 2)][::2] for start in (0, 1)]
        chosen += min(options, key=lambda some: (-len(some), gaps[some].max(initial=0.0)))
    return np.array(chosen, dtype=np.int64)


def _groups(long_sides: np.ndarray) -> np.ndarray:
    """Which quads (n,) hang together by long sides (n, 2), by number."""
    _, first, inverse = np.unique(long_sides, return_index=True, return_inverse=True)
    beside = np.stack((np.arange(long_sides.size), first[inverse.ravel()]), axis=1) // 2
    return connected_components(len(long_sides), beside)


def _cut(
    vertices: Vertices, faces: Faces, quads: Quads, slices: np.ndarray
) -> tuple[Vertices, Faces]:
    """The mesh with quads cut into so many slices each (n,), and their neighbours fanned out."""
    n_vertices = len(vertices)
    keys, first = np.unique(quads.long_sides(n_vertices).ravel(), return_index=True)
    parts = slices[first // 2]
    # Vertices on each cut edge follow each other from its lower vertex to its higher one.
    offsets = n_vertices + np.cumsum(parts - 1) - (parts - 1)
    along = np.arange(1, int((parts - 1).sum()) + 1) - np.repeat(offsets - n_vertices, parts - 1)
    fraction = (along / np.repeat(parts, parts - 1))[:, None]
    low, high = (np.repeat(end, parts - 1) for end in np.divmod(keys, n_vertices))
    vertices = np.concatenate(
        (vertices, (1.0 - fraction) * vertices[low] + fraction * vertices[high])
    )

    def on_side(begin: np.ndarray, end: np.ndarray, k: np.ndarray) -> np.ndarray:
        """The vertex after k parts of a cut edge."""
        edge = np.searchsorted(keys, _side_keys(begin, end, n_vertices))
        inner = offsets[edge] + np.where(begin < end, k, parts[edge] - k) - 1
        return np.where(k == 0, begin, np.where(k == parts[edge], end, inner))

    quad = np.repeat(np.arange(len(slices)), slices)
    k = np.arange(len(quad)) - np.repeat(np.cumsum(slices) - slices, slices)
    a, b, c, d = quads.corners[quad].T
    ring = [on_side(a, d, k), on_side(b, c, k), on_side(b, c, k + 1), on_side(a, d, k + 1)]
    done = [np.stack((ring[0], ring[i], ring[j]), axis=1) for i, j in ((1, 2), (2, 3))]

    rest = np.delete(faces, quads.faces.ravel(), axis=0)
    while len(rest):
        following = np.roll(rest, -1, axis=1)
        side_keys = _side_keys(rest, following, n_vertices)
        side_keys[np.maximum(rest, following) >= n_vertices] = -1
        edge = np.minimum(np.searchsorted(keys, side_keys), len(keys) - 1)
        cut = keys[edge] == side_keys
        hit = cut.any(axis=1)
        done.append(rest[~hit])
        rolled = (cut[hit].argmax(axis=1)[:, None] + np.arange(3)) % 3
        some = np.take_along_axis(rest[hit], rolled, axis=1)
        count = parts[np.take_along_axis(edge[hit], rolled[:, :1], axis=1)[:, 0]]
        k = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        begin, end, apex = np.repeat(some, count, axis=0).T
        rest = np.stack((on_side(begin, end, k), on_side(begin, end, k + 1), apex), axis=1)
    return vertices, np.concatenate(done)

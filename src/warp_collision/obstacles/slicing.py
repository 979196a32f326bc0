"""Needles in pairs, the quads of long thin bodies: sliced across, so that float32 resolves them.

The two halves of a long narrow quad, a side of a rod, say, touch along a diagonal that is nearly as
long as the quad and runs into its corners at almost no angle. Halving such needles leaves tips of
the same shape. So the diagonal is taken out, the long sides are cut at common places, and the quads
between the cuts are triangulated anew. Neighbours across a cut side are fanned out to the cuts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warp_collision.obstacles.slivers import rounding_of_triangles, widest_first
from warp_collision.obstacles.topology import (
    Faces,
    Vertices,
    connected_components,
    find_edges,
    lengths,
)

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
        max_loss: rounding that is tolerated, see `slivers.condition_slivers`.
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
    share = (along / np.repeat(parts, parts - 1))[:, None]
    low, high = (np.repeat(end, parts - 1) for end in np.divmod(keys, n_vertices))
    vertices = np.concatenate((vertices, (1.0 - share) * vertices[low] + share * vertices[high]))

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

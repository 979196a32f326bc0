"""Convex pieces that cover the shapes of a link: hulls of few points, each with a radius.

A piece is the convex hull of some points, widened by a radius: a sphere is one point, a capsule
two, a box eight. A mesh is cut by planes where the hulls of both sides have less volume than that
of the whole, so that what is hollow between its parts is left out. Of a hull with many corners some
come first, and the radius is the largest distance of the others from the hull of these. The rest
decides where a piece touches an obstacle by its radius alone.

Pieces cover the inside of a closed mesh too. All cuts are across an axis, so that each part is the
solid within a box, its cell. An extreme point of that part is on the surface, or it is a corner of
the cell: around any other point of the inside a segment lies in both. So the hull of a part is that
of its triangles and of those corners of its cell that are inside of the mesh.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, KDTree, QhullError
from trimesh.triangles import closest_point

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.messages import short_repr
from warp_collision.obstacles.geometry import content_key
from warp_collision.obstacles.orientation import cones, winding_number_of_cones
from warp_collision.robot.fitting.fit_cache import cached_result
from warp_collision.robot.fitting.pieces import bisected, centers, chunks, distinct, radii
from warp_collision.robot.fitting.solid import Solid

_VERSION = 11  # of the algorithm: another one for each change of what it returns
_MOST_PIECES = 24  # of a link
_SLABS = 5  # along each axis, between which it may be cut
_LEAST_GAIN = 0.002  # of the volume of the link's hull: what a cut has to save
# How far a hull of few points may be inside of all of them: of the size of the shape, at least and
# at most [m].
_SHARE, _ACCURACY = 1.0e-3, (1.0e-4, 3.0e-4)
# Corners that are added to a hull at once, at least, and of those that it has.
_AT_ONCE, _GROWTH = 6, 0.125
# Products of points and directions, about, that are computed at once: the cache of a processor has
# them, and BLAS wakes no threads, that would wait for each other longer than they compute.
_PRODUCTS = 1 << 16
_MOST_POINTS = 1000  # about, of a piece: then the radius is larger
_MOST_FILLED = 1.02  # of the volume of a shape: what pieces may have that follow it
# By how much they may stick out: of the size of the shape, at least [m]; how fine it is asked.
_OVERSHOOT, _LEAST_OVERSHOOT, _FINE = 0.01, 2.0e-3, 0.25
_STEPS = 20  # of lengths that are tried, to metres
_LEAST_CORNERS = 12  # of a hull, none of which is left out
_DIRECTIONS = np.array([*itertools.product((-1.0, 0.0, 1.0), repeat=3)])
_SUPPORTS = 64  # extreme points by which hulls are compared
_FEW, _CELLS = 1000, 48  # triangles that are cut as they are; cells of a grid for others
_ROUNDING = 1.0e-6  # of coordinates: of float32, and of what a hull leaves out as flat
_EVERYWHERE = np.array([3 * [-np.inf], 3 * [np.inf]])
# Of e / r in `_convex_corners`, and of the products that it takes.
_NOT_CONVEX, _MOST_PAIRS = _LEAST_GAIN / 3.0, 1 << 28
_INSIDE = 0.499  # winding number from which on a point is inside
_DIGITS = 6  # of coordinates [m] that are kept
_FLAT = 1.0e-12  # [m], by which rounding alone makes two distances differ

Array = NDArray[np.float64]


class ConvexPiece(NamedTuple):
    """The convex hull of points, widened.

    Attributes:
        points: (n, 3) [m].
        radius: [m].
        rest: (m, 3) corners that the radius is for [m]; none if the points are all of them.
        slack: of the radius, what the hull of all corners does not need [m].
    """

    points: Array
    radius: float
    rest: Array = np.empty((0, 3))
    slack: float = 0.0

    def moved(self, pose: Array) -> ConvexPiece:
        """At a pose (4, 4)."""
        points, rest = (some @ pose[:3, :3].T + pose[:3, 3] for some in (self.points, self.rest))
        return self._replace(points=points, rest=rest)

    def without_rest(self) -> ConvexPiece:
        """With its first points alone."""
        return ConvexPiece(self.points, self.radius)


def convex_pieces(triangles: Array) -> list[ConvexPiece]:
    """Pieces that cover triangles (n, 3, 3) and what they enclose, at most 24."""
    return _cover(triangles)[0]


def _cover(triangles: Array) -> tuple[list[ConvexPiece], float]:
    """`convex_pieces`, and a bound of how far they stick out [m], infinite where none is known."""
    size = _size(triangles)
    accuracy = float(np.clip(_SHARE * size, *_ACCURACY))
    corners = _convex_corners(triangles)
    if corners is None:
        return _cut(triangles, accuracy), math.inf
    piece = _piece(corners, accuracy)
    return [piece], piece.radius + _NOT_CONVEX * size


def _most_overshoot(triangles: Array, overshoot: float | None) -> float:
    """By how much pieces may stick out that follow triangles [m]."""
    return max(_OVERSHOOT * _size(triangles), _LEAST_OVERSHOOT) if overshoot is None else overshoot


def _size(triangles: Array) -> float:
    """Diagonal of the box around triangles (n, 3, 3) [m]."""
    return float(np.linalg.norm(np.ptp(triangles.reshape(-1, 3), axis=0)))


def _cut(triangles: Array, accuracy: float) -> list[ConvexPiece]:
    # Where to cut is found on a coarse mesh.
    coarse = _coarse(triangles)
    inside = _Inside(coarse, _is_closed(triangles))
    whole = _Region.of(coarse, _EVERYWHERE, inside)
    least = _LEAST_GAIN * whole.volume
    parts = [_Part.of(triangles, whole)]
    while len(parts) < _MOST_PIECES:
        part = parts.pop(max(range(len(parts)), key=lambda i: parts[i].gain))
        if part.gain <= least:
            parts.append(part)
            break
        if not part.halves:
            parts.append(part.with_best_cut(inside, least))
        else:
            sides = _sides(part.triangles, *part.cut)
            parts += map(_Part.of, sides, part.halves)
    inside = _Inside(triangles)
    corners = (
        _solid_hull(part.triangles, inside.corners(part.region.cell)).points for part in parts
    )
    return [_piece(points, accuracy) for points in corners if len(points)]


def _coarse(triangles: Array) -> Array:
    """Triangles (n, 3, 3) with one corner for all within a cell of a grid."""
    corners = triangles.reshape(-1, 3)
    cell = float(np.ptp(corners, axis=0).max()) / _CELLS
    if len(triangles) < _FEW or not cell > 0.0:
        return triangles
    cells = np.round((corners - corners.min(axis=0)) / cell).astype(np.int64)
    keys = (cells[:, 0] * 4 * _CELLS + cells[:, 1]) * 4 * _CELLS + cells[:, 2]
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    faces = number.reshape(-1, 3)
    a, b, c = faces.T
    faces = np.unique(faces[(a != b) & (b != c) & (a != c)], axis=0)
    return corners[first][faces] if len(faces) else triangles


class Pieces(NamedTuple):
    """Pieces that cover triangles, and whether they follow what these enclose closely."""

    pieces: list[ConvexPiece]
    is_solid: bool


def cached_pieces(triangles: Array, overshoot: float | None = None) -> Pieces:
    """`convex_pieces`, from the cache on disk if equal triangles were cut before; see `follow`."""

    def make() -> dict[str, Any]:
        pieces, out = _cover(triangles)
        follows = out <= _most_overshoot(triangles, overshoot)
        is_solid = follows or follow(pieces, triangles, overshoot)
        return {"pieces": [*map(row_of, pieces)], "is_solid": is_solid}

    def parse(content: dict[str, Any]) -> Pieces:
        return Pieces([*map(piece_from, content["pieces"])], bool(content["is_solid"]))

    key = content_key(triangles, np.empty(0), _VERSION, overshoot)
    return cached_result("pieces", key, make, parse)


def _convex_corners(triangles: Array) -> Array | None:
    """Corners (n, 3) of the hull of closed triangles (n, 3, 3), if they enclose nearly all of it.

    A point behind the planes of all faces is inside. If corners are at most e before a plane, and a
    center is r behind all planes, then the hull shrunk toward the center by 1 + e / r is behind
    them. So what is not inside has at most 3 e / r of the volume of the hull, less than a cut has
    to save, and is within e / r of its size.
    """
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    areas = np.linalg.norm(normals, axis=1)
    normals, first = normals[areas > 0.0] / areas[areas > 0.0, None], triangles[areas > 0.0, 0]
    offsets = np.einsum("ij,ij->i", normals, first)
    behind = (offsets - normals @ triangles.mean(axis=(0, 1))).min(initial=np.inf)
    if not 0.0 < behind < np.inf:
        return None
    corners = _solid_hull(triangles, np.empty((0, 3))).points
    if len(corners) * len(normals) > _MOST_PAIRS:
        return None
    for some in chunks(len(normals), 1 + _PRODUCTS // len(corners)):
        if ((normals[some] @ corners.T).max(axis=1) - offsets[some]).max() > _NOT_CONVEX * behind:
            return None
    faces = np.arange(3 * len(triangles)).reshape(-1, 3)
    is_closed = trimesh.Trimesh(triangles.reshape(-1, 3), faces).is_watertight
    return corners if is_closed else None


def follow(pieces: Sequence[ConvexPiece], triangles: Array, overshoot: float | None = None) -> bool:
    """Whether pieces follow closed triangles (n, 3, 3) that they cover; open ones they do not.

    They stick out by at most 2 mm, or 1 % of the size, and have hardly more volume. Or they stick
    out by at most an overshoot that is given [m], whatever their volume.
    """
    faces = np.arange(3 * len(triangles)).reshape(-1, 3)
    mesh = trimesh.Trimesh(triangles.reshape(-1, 3), faces)  # with equal corners merged
    if not mesh.is_watertight:
        return False
    if overshoot is None:
        whole = sum(_hull(piece.points).volume for piece in pieces)
        if whole > _MOST_FILLED * abs(mesh.volume):
            return False
    solid = Solid("mesh", (mesh.vertices, mesh.faces), grid_cells=0)
    return not _stick_out(pieces, solid, _most_overshoot(triangles, overshoot))


def _stick_out(pieces: Sequence[ConvexPiece], solid: Solid, length: float) -> bool:
    """Whether a facet of pieces is farther than a length [m] from a solid, or nearly so.

    Distances grow by no more than the way: facets are halved until these bound all of them. The
    distance from one triangle is convex, so that that of a facet is at most the largest at its
    corners. Bounds of the distance at the center come from that triangle and from the facet that
    was halved. The distance itself is computed where these leave open what it says.
    """
    hulls = [_facets(piece.points) for piece in pieces]
    facets, counts = np.concatenate(hulls), [*map(len, hulls)]
    limit = length - np.repeat([piece.radius for piece in pieces], counts)
    middle, tree = centers(facets), KDTree(centers(solid.triangles))
    high = np.full(len(facets), np.inf)
    low = -high
    while len(facets):
        before, middle = middle, centers(facets)
        way, reach = np.linalg.norm(middle - before, axis=1), radii(facets)
        points = np.concatenate([facets, middle[:, None]], axis=1).reshape(-1, 3)
        near = solid.triangles[tree.query(middle)[1]].repeat(4, axis=0)
        away = np.linalg.norm(closest_point(near, points) - points, axis=1).reshape(-1, 4)
        low, high = np.maximum(low - way, -away[:, 3]), np.minimum(high + way, away[:, 3])
        is_open = ~((away[:, :3].max(axis=1) <= limit) | (high + reach <= limit))
        asked = np.flatnonzero(is_open & ((high > limit) | (low + reach <= limit)))
        if len(asked):
            low[asked] = high[asked] = solid.distance(middle[asked])
        is_open &= ~(high + reach <= limit)
        if (low > limit).any() or (is_open & (reach < _FINE * length)).any():
            return True
        facets = bisected(facets[is_open])
        low, high, limit = (np.tile(x[is_open], 2) for x in (low, high, limit))
        middle = np.tile(middle[is_open], (2, 1))
    return False


def overshoot_of(pieces: Sequence[ConvexPiece], solid: Solid) -> float:
    """A length by which pieces stick out of a solid at most [m], the least of some from 2 mm on."""
    lengths = (_LEAST_OVERSHOOT * 1.5**step for step in range(_STEPS))
    return next((n for n in lengths if not _stick_out(pieces, solid, n)), math.inf)


def _facets(points: Array) -> Array:
    """Triangles (n, 3, 3) of the surface of a convex hull, flat ones too."""
    if len(points) < 4:
        return points[[0, len(points) // 2, -1]][None]
    return points[ConvexHull(points, qhull_options="QJ").simplices]


def row_of(piece: ConvexPiece) -> list[float]:
    """A piece as numbers: radius, slack, how many points come first, and x, y, z of all corners."""
    corners = np.concatenate([piece.points, piece.rest]).ravel().tolist()
    return [piece.radius, piece.slack, len(piece.points), *corners]


def piece_from(row: Sequence[float]) -> ConvexPiece:
    """The piece of `row_of`; raises ValueError for anything else."""
    radius, slack, first, *values = map(float, row)
    corners = np.array(values).reshape(-1, 3)
    is_finite = (np.abs([radius, slack, *values]) < MAX_COORDINATE).all()
    if not is_finite or first not in range(1, len(corners) + 1):
        raise ValueError(f"a piece must be radii, a number and points, got {short_repr(list(row))}")
    return ConvexPiece(corners[: int(first)], radius, corners[int(first) :], slack)


class _Hull(NamedTuple):
    """Corners (n, 3) of a convex hull, and its volume."""

    points: Array
    volume: float


class _Region(NamedTuple):
    """What of the coarse mesh is within a cell.

    A cell is a box (2, 3), its lower and its upper bounds, infinite where nothing was cut.
    """

    triangles: Array
    cell: Array
    corners: Array  # of the cell that are inside
    volume: float  # of the hull [m^3]
    solid: float  # what of it is enclosed, 0 where that is not known [m^3]

    @classmethod
    def of(cls, triangles: Array, cell: Array, inside: _Inside) -> _Region:
        """Of the triangles within the cell, and what all of the coarse mesh encloses."""
        corners = inside.corners(cell)
        hull = _solid_hull(triangles, corners)
        solid = _solid_volume(triangles, cell) if inside.is_closed else 0.0
        return cls(triangles, cell, corners, hull.volume, solid)


class _Part(NamedTuple):
    """What of a mesh is within a cell, and the best cut once it is known."""

    triangles: Array
    region: _Region
    gain: float  # volume that cuts save [m^3], at most before the best one is known
    halves: Sequence[_Region] = ()  # that the cut makes
    cut: tuple[int, float] = (0, 0.0)

    @classmethod
    def of(cls, triangles: Array, region: _Region) -> _Part:
        """Of the triangles within the region's cell; cuts save what its hull has of hollow."""
        return cls(triangles, region, region.volume - region.solid)

    def with_best_cut(self, inside: _Inside, least: float) -> _Part:
        """With the best cut, by what all of the coarse mesh encloses, if it saves enough.

        Bounds come first. Of a closed mesh the halves have at least the volume of the slabs, and
        that of the hulls of a few extreme points of each half.
        """
        region, limit = self.region, self.region.volume - least
        best = self._replace(gain=-np.inf)
        if len(region.triangles) == 0:
            return best
        every = [_slabs(region, axis) for axis in range(3)]
        bounds = [sum(slab.volume for slab in slabs) for _, slabs in every]
        for axis in np.argsort(bounds, kind="stable").tolist():
            if bounds[axis] > limit:
                break
            bound, place = _best_place(*every[axis])
            if bound > limit:
                continue
            sides = _sides(region.triangles, axis, place), _halves(region.cell, axis, place)
            halves = [_Region.of(*side, inside) for side in zip(*sides, strict=True)]
            volume = sum(half.volume for half in halves)
            if (volume, axis) < (limit, best.cut[0]):
                limit = volume
                best = best._replace(halves=halves, cut=(axis, place), gain=region.volume - volume)
        return best


def _halves(cell: Array, axis: int, place: float) -> tuple[Array, Array]:
    """The parts of a cell below and above a plane across an axis."""
    below, above = cell.copy(), cell.copy()
    below[1, axis] = above[0, axis] = place
    return below, above


class _Inside:
    """Which corners of cells triangles (n, 3, 3) enclose; each is computed once.

    Attributes:
        is_closed: whether the triangles are known to be closed, but for rounding.
    """

    def __init__(self, triangles: Array, is_closed: bool = False):
        self.is_closed = is_closed
        self._cones = cones(triangles)
        self._known: dict[tuple[float, ...], bool] = {}

    def corners(self, cell: Array) -> Array:
        """The corners (n, 3) of a cell that are enclosed."""
        sides = (sorted({*filter(math.isfinite, side)}) for side in cell.T.tolist())
        return np.array([*filter(self._encloses, itertools.product(*sides))]).reshape(-1, 3)

    def _encloses(self, corner: tuple[float, ...]) -> bool:
        if corner not in self._known:
            number = winding_number_of_cones(np.array(corner), self._cones)
            # Meshes that are inside out count too; a point on the surface has 1/2.
            self._known[corner] = abs(number) > _INSIDE
        return self._known[corner]


def _is_closed(triangles: Array) -> bool:
    """Whether triangles (n, 3, 3) go along each edge as often in one direction as in the other."""
    _, index = distinct(triangles)
    begin, end = index, np.roll(index, -1, axis=1)
    one, other = (np.sort((a * index.size + b).ravel()) for a, b in ((begin, end), (end, begin)))
    return np.array_equal(one, other)


def _solid_volume(triangles: Array, cell: Array) -> float:
    """What the part of a closed mesh within a cell encloses [m^3], by the flux along an axis.

    None goes through the sides of the cell that the axis is in, nor through the one it begins at.
    So the axis is one that the cell is cut across at most once; without one, 0 is the answer.
    """
    axis = int(np.isfinite(cell).sum(axis=0).argmin())
    cuts = cell[np.isfinite(cell[:, axis]), axis]
    if len(cuts) == 2:
        return 0.0
    a, b, c = triangles.swapaxes(0, 1)
    heights = (a + b + c)[:, axis] / 3.0 - cuts.sum()
    return 0.5 * abs(float(heights @ np.cross(b - a, c - a)[:, axis]))


def _solid_hull(triangles: Array, corners: Array) -> _Hull:
    """The convex hull of triangles (n, 3, 3) and of corners (m, 3) of a cell."""
    points, _ = distinct(np.concatenate([triangles.reshape(-1, 3), corners])[:, None])
    return _hull(points)


def _hull(points: Array) -> _Hull:
    """The convex hull of points, all of them where it is flat."""
    if len(points) > 4:
        try:
            hull = ConvexHull(points)
            return _Hull(points[hull.vertices], float(hull.volume))
        except QhullError:
            pass
    return _Hull(points, 0.0)


def _supports(points: Array) -> Array:
    """Extreme points (n, 3), whose hull has a little less volume than that of all."""
    if len(points) <= 2 * _SUPPORTS:
        return points
    few = chunks(_SUPPORTS, max(1, _PRODUCTS // len(points)))
    extremes = [(_SPREAD[some] @ points.T).argmax(axis=1) for some in few]
    is_extreme = np.zeros(len(points), dtype=bool)
    is_extreme[np.concatenate(extremes)] = True
    return points[is_extreme]


def _spread(count: int) -> Array:
    """Unit vectors (count, 3) on a spiral of Fibonacci, spread evenly."""
    height = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    turn = np.pi * (1.0 + np.sqrt(5.0)) * np.arange(count)
    ring = np.sqrt(1.0 - height**2)
    return np.column_stack([ring * np.cos(turn), ring * np.sin(turn), height])


_SPREAD = _spread(_SUPPORTS)


def _slabs(region: _Region, axis: int) -> tuple[Array, list[_Hull]]:
    """Places along an axis, and hulls of a few extreme points between each two of them."""
    corners = region.corners[:, None].repeat(3, axis=1)  # as triangles
    triangles = np.concatenate([region.triangles, corners])
    heights = triangles[..., axis]
    places = np.linspace(heights.min(), heights.max(), _SLABS + 1)
    return places, [*map(_hull, map(_supports, _between_places(triangles, axis, places)))]


def _best_place(places: Array, slabs: list[_Hull]) -> tuple[float, float]:
    """The least volume of the hulls of both sides of a cut, about, and where that is."""
    below = [*itertools.accumulate(slabs[:-1], _joined)]
    above = [*itertools.accumulate(slabs[:0:-1], _joined)][::-1]
    volumes = [one.volume + other.volume for one, other in zip(below, above, strict=True)]
    best = int(np.argmin(volumes))
    return volumes[best], float(places[1 + best])


def _joined(one: _Hull, other: _Hull) -> _Hull:
    return _hull(_supports(np.concatenate([one.points, other.points])))


def _between_places(triangles: Array, axis: int, places: Array) -> list[Array]:
    """Corners (n, 3) of the parts of triangles between each two neighboring heights."""
    heights, corners = triangles[..., axis], triangles.reshape(-1, 3)
    lowest, highest = heights.min(axis=1), heights.max(axis=1)
    cuts = [_crossings(triangles[(lowest < x) & (highest > x)], axis, x) for x in places]
    flat = heights.ravel()
    return [
        np.concatenate([corners[(flat >= low) & (flat <= high)], *both])
        for (low, high), both in zip(
            itertools.pairwise(places), itertools.pairwise(cuts), strict=True
        )
    ]


def _crossings(triangles: Array, axis: int, place: float) -> Array:
    """Points (n, 3) where edges of triangles cross a plane across an axis."""
    begin, end = triangles.reshape(-1, 3), np.roll(triangles, -1, axis=1).reshape(-1, 3)
    crosses = (begin[:, axis] < place) & (end[:, axis] > place)
    crosses |= (begin[:, axis] > place) & (end[:, axis] < place)
    return _between(begin[crosses], end[crosses], axis, place)


def _sides(triangles: Array, axis: int, place: float) -> list[Array]:
    """Triangles below and above a plane across an axis; those across it are cut."""
    found = []
    for sign in (1.0, -1.0):
        heights = sign * (triangles[..., axis] - place)
        is_in = heights <= 0.0
        count = is_in.sum(1)
        parts = [triangles[count == 3]]
        for inside in (1, 2):
            rows = triangles[count == inside]
            flags = is_in[count == inside]
            # The corner that is alone on its side comes first.
            alone = np.argmax(flags if inside == 1 else ~flags, axis=1)
            order = (alone[:, None] + np.arange(3)) % 3
            a, b, c = np.moveaxis(np.take_along_axis(rows, order[..., None], axis=1), 1, 0)
            p, q = (_between(a, other, axis, place) for other in (b, c))
            pieces = [(a, p, q)] if inside == 1 else [(b, c, p), (c, q, p)]
            parts += [np.stack(piece, axis=1) for piece in pieces]
        found.append(np.concatenate(parts))
    return found


def _between(a: Array, b: Array, axis: int, place: float) -> Array:
    """Where lines from a to b (n, 3) cross a plane across an axis, between a and b."""
    share = (place - a[:, axis]) / (b[:, axis] - a[:, axis])
    return a + share[:, None] * (b - a)


def _piece(points: Array, accuracy: float) -> ConvexPiece:
    """A piece around the hull of points (n, 3), which are its corners."""
    rounding = _ROUNDING * float(np.abs(points).max()) + 10.0**-_DIGITS
    points = points.round(_DIGITS)
    chosen = np.unique((_DIRECTIONS @ points.T).argmax(axis=1))
    if len(points) <= _LEAST_CORNERS or len(chosen) < 4:
        return ConvexPiece(points, rounding)
    radius, left = 0.0, np.delete(np.arange(len(points)), chosen)
    while len(left):
        try:
            hull = ConvexHull(points[chosen])
        except QhullError:
            return ConvexPiece(points, rounding)
        limit = accuracy if len(chosen) < _MOST_POINTS else np.inf
        distances, facets = _distances(points[left], points[chosen], hull, limit)
        is_in = distances <= limit
        radius = max(radius, float(distances[is_in].max(initial=0.0)))
        left, facets, distances = left[~is_in], facets[~is_in], distances[~is_in]
        # Of each facet the farthest, of some facets at once.
        order = np.argsort(-distances)
        _, first = np.unique(facets[order], return_index=True)
        farthest = order[np.sort(first)[: max(_AT_ONCE, int(_GROWTH * len(chosen)))]]
        chosen = np.append(chosen, left[farthest])
        left = np.delete(left, farthest)
    if radius <= rounding:
        return ConvexPiece(points[chosen], radius + rounding)
    rest = np.delete(points, chosen, axis=0)
    return ConvexPiece(points[chosen], radius + rounding, rest, radius)


def _distances(
    points: Array, corners: Array, hull: ConvexHull, limit: float
) -> tuple[Array, NDArray[np.int64]]:
    """How far points (n, 3) are from a hull with corners (m, 3), and the facets they are above.

    Exactly where that is at most a limit; of those beyond it, by how much they are above a facet,
    which is beyond it too, or the distance.
    """
    parts = chunks(len(points), 1 + _PRODUCTS // len(hull.equations))
    found = [_distances_of_few(points[part], corners, hull, limit) for part in parts]
    distances, facets = zip(*found, strict=True)
    return np.concatenate(distances), np.concatenate(facets)


def _distances_of_few(
    points: Array, corners: Array, hull: ConvexHull, limit: float
) -> tuple[Array, NDArray[np.int64]]:
    """`_distances` of so few points that the cache of a processor has all heights."""
    heights = points @ hull.equations[:, :3].T + hull.equations[:, 3]
    facets = heights.argmax(axis=1)
    distances = np.maximum(np.take_along_axis(heights, facets[:, None], axis=1)[:, 0], 0.0)
    near = np.flatnonzero((distances > 0.0) & (distances <= limit))
    if len(near):
        exact = _apart(corners[hull.simplices[facets[near]]], points[near])
        # Above the inside of that facet nothing is nearer. Else it is a side seen from the point.
        beside = np.flatnonzero(exact > distances[near] + _FLAT)
        of, seen = np.nonzero(heights[near[beside]] > 0.0)
        if len(of):
            apart = _apart(corners[hull.simplices[seen]], points[near[beside[of]]])
            np.minimum.at(exact, beside[of], apart)
        distances[near] = exact
    return distances, facets


def _apart(triangles: Array, points: Array) -> Array:
    """(n,) distances of points (n, 3) from triangles (n, 3, 3)."""
    return np.linalg.norm(closest_point(triangles, points) - points, axis=1)

"""Fits few spheres that cover a mesh or shape; certified and deterministic.

A triangle of the surface, or a cube of the inside, lies in a ball if its corners do. A ball around
c of radius `overshoot - sdf(c)` extends beyond the surface by at most the overshoot, as the sdf is
1-Lipschitz. From such balls around the points of a lattice and of the medial axis, a greedy set
cover (Chvatal, 1979) repeatedly takes the one that covers most of the uncovered pieces. Pieces that
lie in no ball are split, and finally get balls around themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import trimesh
from scipy import sparse

from warp_collision import validate
from warp_collision.messages import errors_at
from warp_collision.obstacles.geometry import MeshLike
from warp_collision.obstacles.shapes import Shape
from warp_collision.robot.fitting import pieces as geometry
from warp_collision.robot.fitting.candidates import Candidates, balls_at
from warp_collision.robot.fitting.coverage import Coverage, cover_of
from warp_collision.robot.fitting.solid import Solid

_DEFAULT_COUNT = 40  # of the spheres of a link or mesh for which no overshoot is given, about
_DEFAULT_FRACTION = 0.05  # of its size, by which they may extend beyond its surface at least
_LEAST_OVERSHOOT = 1e-4  # [m], of a mesh without size
_MAX_PIECES = 5_000  # before those that no ball contains are split
_MAX_GROUPS = 1_500  # of the triangles of a fine mesh, before those that no ball contains are split
_MAX_SPLIT_PIECES = 30_000
_MAX_CORNERS = 256  # about, that are compared with all balls at once, in the cache of a processor
_ROWS = 4  # of a product of small matrices
_MAX_GROUPS_AT_ONCE = 32  # the same for pieces of more corners
_MOST_AT_ONCE = 16  # of their corners that are compared at once
_FEW_CORNERS = 8  # of a piece, which are compared with all balls
_LEAST_EDGE = 0.2  # of what is split, in parts of the overshoot
_SPACING = 0.25  # of additional balls, in parts of the overshoot
_WEIGHTS = float(1 << 23)  # sum of weights, which are whole numbers: sums are exact in any order
_STEPS = 6  # of a bisection for the smallest overshoot
_FEW_HOLDERS = 8_000  # of pieces together, for which numpy is faster than a sparse product
_POWERS = (0.0, 0.5, 1.0)  # of the weight of pieces that few balls contain
_RESOLUTION = 1e-3  # [m], of reports


class SphereFit(NamedTuple):
    """Result of `fit_spheres`.

    Attributes:
        spheres: (n, 4) float64 x, y, z, radius [m], each of them exact in float32.
        report: their coverage and overshoot.
    """

    spheres: np.ndarray
    report: Coverage


def fit_spheres(
    mesh: MeshLike | Shape,
    *,
    count: int | None = None,
    max_overshoot: float | None = None,
    fill: bool = False,
) -> SphereFit:
    """Covers a mesh or shape with spheres.

    With `max_overshoot` alone few spheres cover everything. With `count` alone they cover
    everything with the smallest overshoot found. With both they cover as much as they can, and the
    report says what is uncovered. With neither, the overshoot is a 20th of the mesh's size, the
    diagonal of its box, or larger where that would take more than 40 spheres. Equal input has equal
    results.

    Args:
        mesh: what `MeshWorld.add` takes.
        count: maximum number of spheres.
        max_overshoot: how far they may extend beyond the surface [m].
        fill: cover the inside too. Without, an obstacle may fit between the spheres of the surface,
            but cannot get there without a collision.

    Returns:
        The spheres, and a `Coverage`; see `SphereFit`.

    Raises:
        TypeError, ValueError: no mesh, numbers that are not positive, or an overshoot for which
            the mesh would have to be split into more than 30,000 pieces.

    Example:
        >>> from warp_collision import Cuboid
        >>> from warp_collision.robot import fit_spheres
        >>> fit = fit_spheres(Cuboid((0.3, 0.1, 0.1)), max_overshoot=0.03)
        >>> fit.report.uncovered, fit.report.overshoot < 0.0301, fit.report.count < 30
        (0.0, True, True)
    """
    if count is not None:
        validate.require_count("count", count)
    if max_overshoot is not None:
        validate.require_number("max_overshoot", max_overshoot, positive=True)
    candidates = Candidates(solid := Solid("mesh", mesh))
    if max_overshoot is not None:
        cover = _Cover(_cover(candidates, max_overshoot, fill, count), max_overshoot)
    elif count is not None:
        cover = _fit_count(candidates, count, fill)
    else:
        [cover] = _covers_by_size([candidates], solid.size, fill)
    return cover.fit(solid, fill)


class Part(NamedTuple):
    """One of several meshes or shapes that are covered together.

    Attributes:
        name: that errors begin with.
        mesh: the body.
    """

    name: str
    mesh: Shape | trimesh.Trimesh


def fit_parts(parts: Sequence[Part], size: float, max_overshoot: float | None) -> list[SphereFit]:
    """Spheres that cover the surface of all parts of a link, see `fit_spheres`.

    Args:
        parts: the bodies.
        size: of all parts together [m].
        max_overshoot: [m]; by the size if None, so that the spheres of all parts are few.
    """
    all_candidates, covers = [], []
    for part in parts:
        with errors_at(part.name):
            all_candidates.append(candidates := Candidates(Solid("mesh", part.mesh)))
            if max_overshoot is not None:
                cover = _cover(candidates, max_overshoot, fill=False)
                covers.append(_Cover(cover, max_overshoot))
    if max_overshoot is None:
        covers = _covers_by_size(all_candidates, size, fill=False)
    return [
        cover.fit(candidates.solid, fill=False)
        for cover, candidates in zip(covers, all_candidates, strict=True)
    ]


def _covers_by_size(solids: Sequence[Candidates], size: float, fill: bool) -> list[_Cover]:
    """Covers of solids with an overshoot by their size, so that spheres are about 40."""
    overshoot = max(_DEFAULT_FRACTION * size, _LEAST_OVERSHOOT)
    covers: dict[int, _Cover] = {}
    while True:
        try:
            for index, candidates in enumerate(solids):
                # One sphere needs no larger overshoot.
                if index not in covers or len(covers[index].spheres) > 1:
                    covers[index] = _Cover(_cover(candidates, overshoot, fill), overshoot)
        except TooManyPieces:
            overshoot *= 2.0
            continue
        total = sum(len(cover.spheres) for cover in covers.values())
        if total <= max(_DEFAULT_COUNT, len(covers)) or overshoot > size:
            return [*covers.values()]
        # As of sheets, whose count is as overshoot**-2; of solids it falls more slowly.
        overshoot *= max(1.15, (total / _DEFAULT_COUNT) ** 0.55)


class _Cover(NamedTuple):
    """Spheres (n, 4), and the overshoot that they were fitted with [m]."""

    spheres: np.ndarray
    overshoot: float

    def fit(self, solid: Solid, fill: bool) -> SphereFit:
        """The spheres with their certificate."""
        # What the fit splits has longer edges, so that none of it is left undecided.
        resolution = min(_RESOLUTION, 0.45 * _LEAST_EDGE * self.overshoot)
        return SphereFit(self.spheres, cover_of(self.spheres, solid, resolution, fill))


def _fit_count(candidates: Candidates, count: int, fill: bool) -> _Cover:
    """At most `count` spheres, with the smallest overshoot found by bisection."""
    solid = candidates.solid
    lower, upper = solid.bounds
    center = 0.5 * (lower + upper)
    # One ball around the middle of the box is always enough.
    radius = float(np.linalg.norm(solid.triangles - center, axis=2).max()) + 2.0 * solid.rounding
    best = _Cover(_round_to_float32(np.append(center, radius)[None]), radius)
    low = 0.5 * radius
    while len(spheres := _cover_or_none(candidates, low, fill, count)):
        best, low = _Cover(spheres, low), 0.5 * low
    for _ in range(_STEPS):
        middle = 0.5 * (low + best.overshoot)
        spheres = _cover_or_none(candidates, middle, fill, count)
        if len(spheres):
            best = _Cover(spheres, middle)
        else:
            low = middle
    return best


class TooManyPieces(ValueError):
    """An overshoot that is too small for the limits of time and memory."""


def _cover_or_none(
    candidates: Candidates, overshoot: float, fill: bool, max_count: int
) -> np.ndarray:
    """At most `max_count` spheres (n, 4) that cover everything; none if there is no such cover."""
    try:
        return _cover(candidates, overshoot, fill, max_count, whole=True)
    except TooManyPieces:
        return np.empty((0, 4))


def _cover(
    candidates: Candidates,
    overshoot: float,
    fill: bool,
    max_count: int | None = None,
    whole: bool = False,
) -> np.ndarray:
    """Spheres (n, 4) for an overshoot; none if `whole`, and they do not cover everything."""
    solid, balls = candidates.solid, candidates.balls(overshoot)
    if not fill and len(around := _around(solid, balls)):
        return around
    kinds = [_surface(solid, balls, overshoot)]
    if fill:
        kinds.append(_inside(solid, balls, overshoot))
    parts = [part for kind in kinds for part in kind]
    pieces = [part.pieces for part in parts]
    extra = np.concatenate([part.balls for part in parts])
    holders = [
        sparse.hstack([part.holders, _holders(extra, part.pieces, solid.rounding)])
        for part in parts
    ]
    weights = np.concatenate([_weights(kind) for kind in kinds])
    chosen, table = _smallest_cover(sparse.csr_array(sparse.vstack(holders)), weights, max_count)
    if whole and not table.any(axis=0).all():
        return np.empty((0, 4))
    return _shrink(np.concatenate([balls, extra])[chosen], table, pieces, solid.rounding)


def _around(solid: Solid, balls: np.ndarray) -> np.ndarray:
    """The first of some balls (n, 4) that contains all of the surface, shrunk; or none."""
    corners = solid.triangles.reshape(-1, 3)
    while len(balls):
        squared = ((corners - balls[0, :3]) ** 2).sum(axis=1)
        far = int(squared.argmax())
        needed = np.sqrt(squared[far]) + solid.rounding
        if needed <= balls[0, 3]:
            return _round_to_float32(np.append(balls[0, :3], needed + solid.rounding)[None])
        # Others do not contain this corner either.
        apart = np.linalg.norm(balls[1:, :3] - corners[far], axis=1)
        balls = balls[1:][apart + solid.rounding <= balls[1:, 3]]
    return balls


class _Part(NamedTuple):
    """Pieces of one kind, of which each lies in a ball."""

    pieces: np.ndarray  # (n, k, 3)
    sizes: np.ndarray  # (n,) areas or volumes
    holders: sparse.csr_array  # (n, n_balls) 1 where one of the given balls contains a piece
    balls: np.ndarray  # (m, 4) additional balls


def _surface(solid: Solid, balls: np.ndarray, overshoot: float) -> list[_Part]:
    """The surface in triangles; those of fine meshes in groups, as far as balls contain these."""
    parts: list[_Part] = []
    pieces = solid.triangles[~solid.slivers]
    edge = float(np.sqrt(solid.area / _MAX_GROUPS))
    while len(pieces) > _MAX_PIECES:
        is_small = geometry.longest_edges(pieces) <= edge
        if 4 * is_small.sum() < len(pieces):
            break
        groups, group = geometry.groups(pieces[is_small], edge)
        if 2 * len(groups) > is_small.sum():
            break
        part, is_done = _in_balls(solid, groups, balls, overshoot)
        sizes = np.bincount(group, geometry.areas(pieces[is_small]), len(groups))
        parts.append(part._replace(sizes=sizes[is_done]))
        pieces = np.concatenate([pieces[~is_small], pieces[is_small][~is_done[group]]])
        edge *= 0.5
    if not parts:
        pieces = _bisect_large(pieces, solid.area, overshoot)
    pieces = np.concatenate([pieces, solid.triangles[solid.slivers]])
    while len(pieces):
        part, is_done = _in_balls(solid, pieces, balls, overshoot, on_surface=True)
        parts.append(part._replace(sizes=geometry.areas(part.pieces)))
        pieces = geometry.bisected(pieces[~is_done])
        _require_max_pieces(len(pieces), overshoot)
    return parts


def _bisect_large(pieces: np.ndarray, area: float, overshoot: float) -> np.ndarray:
    """Triangles, the large ones bisected."""
    longest = max(2.0 * float(np.sqrt(area / _MAX_PIECES)), _LEAST_EDGE * overshoot)
    while len(pieces) < _MAX_PIECES:
        edges = geometry.longest_edges(pieces)
        large = edges > max(longest, 0.7 * float(edges.max(initial=0.0)))
        if not large.any():
            break
        pieces = np.concatenate([pieces[~large], geometry.bisected(pieces[large])])
    return pieces


def _inside(solid: Solid, balls: np.ndarray, overshoot: float) -> list[_Part]:
    """The inside in cubes."""
    parts, pieces = [], _cubes(solid, overshoot)
    while len(pieces):
        part, is_done = _in_balls(solid, pieces, balls, overshoot)
        parts.append(part._replace(sizes=geometry.edges(part.pieces) ** 3))
        pieces = solid.reaching_inside(geometry.octants(pieces[~is_done]))
        _require_max_pieces(len(pieces), overshoot)
    return parts


def _cubes(solid: Solid, overshoot: float) -> np.ndarray:
    """Cubes that cover the inside, and extend beyond the surface by less than the overshoot."""
    pieces, small = solid.root_cube(), []
    lower, upper = solid.bounds
    edge = max(float((upper - lower).max()) / 16.0, _LEAST_EDGE * overshoot)
    while len(pieces):
        reach = geometry.radii(pieces)
        depth = -solid.distance(geometry.centers(pieces))
        done = (geometry.edges(pieces) <= edge) & ((depth > reach) | (2.2 * reach <= overshoot))
        small.append(pieces[done])
        pieces = solid.reaching_inside(geometry.octants(pieces[~done]))
        _require_max_pieces(len(pieces), overshoot)
    return np.concatenate(small)


def _in_balls(
    solid: Solid,
    pieces: np.ndarray,
    balls: np.ndarray,
    overshoot: float,
    *,
    on_surface: bool = False,
) -> tuple[_Part, np.ndarray]:
    """The pieces that lie in a given ball, or are small enough for one around them; and which."""
    holders = _holders(balls, pieces, solid.rounding)
    is_done = np.diff(holders.indptr) > 0
    # The surface is as near to the center as its corners, or as a cube that reaches the inside.
    small = ~is_done & (geometry.radii(pieces) <= 0.45 * overshoot - 4.0 * solid.rounding)
    extra = _balls_around(solid, pieces[small], overshoot, on_surface)
    is_done |= small
    return _Part(pieces[is_done], np.empty(0), holders[is_done], extra), is_done


def _balls_around(
    solid: Solid, pieces: np.ndarray, overshoot: float, on_surface: bool
) -> np.ndarray:
    """Balls of which each small piece lies in one: around some that stand apart, then the rest."""
    centers = geometry.centers(pieces)
    cells = np.floor(centers / (_SPACING * overshoot))
    _, apart = np.unique(cells, axis=0, return_index=True)
    balls = balls_at(solid, centers[np.sort(apart)], overshoot, on_surface=on_surface)
    left = np.diff(_holders(balls, pieces, solid.rounding).indptr) == 0
    rest = balls_at(solid, centers[left], overshoot, on_surface=on_surface)
    return np.concatenate([balls, rest])


def _weights(parts: list[_Part]) -> np.ndarray:
    """Fractions of the surface or of the volume."""
    sizes = np.concatenate([part.sizes for part in parts])
    whole = sizes.sum()
    return sizes / whole if whole > 0.0 else np.full(len(sizes), 1.0 / len(sizes))


def _require_max_pieces(count: int, overshoot: float) -> None:
    if count > _MAX_SPLIT_PIECES:
        raise TooManyPieces(
            f"max_overshoot must be larger for a mesh of this size, which is split into more than "
            f"{_MAX_SPLIT_PIECES} pieces, got {overshoot}"
        )


def _holders(balls: np.ndarray, pieces: np.ndarray, margin: float) -> sparse.csr_array:
    """(n_pieces, n_balls) 1 where a ball contains a piece, with a margin."""
    if len(balls) == 0:
        return sparse.csr_array((len(pieces), 0), dtype=np.float32)
    if pieces.shape[1] > _FEW_CORNERS and len(pieces) > 0:
        parts = geometry.chunks(len(pieces), _MAX_GROUPS_AT_ONCE)
        found = [_holders_of_groups(balls, pieces[part], margin) for part in parts]
        return sparse.csr_array(sparse.vstack(found))
    x, y, z, radii = balls.T.copy()
    counts, columns = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
    parts = _neighbors(geometry.centers(pieces), 1 + _MAX_CORNERS // pieces.shape[1])
    for part in parts:
        corners, index = geometry.distinct(pieces[part])
        middle = corners.mean(axis=0)
        reach = np.linalg.norm(corners - middle, axis=1).max() + radii
        # Others hold none of these corners.
        squared = (x - middle[0]) ** 2 + (y - middle[1]) ** 2 + (z - middle[2]) ** 2
        near = np.flatnonzero(squared <= reach**2).astype(np.int32)
        inside = _squared_beyond(balls[near], corners, margin) <= 0.0
        holds = inside[index[:, 0]]
        for corner in index.T[1:]:
            holds &= inside[corner]
        where, starts = np.flatnonzero(holds), len(near) * np.arange(len(holds) + 1)
        counts.append(np.diff(np.searchsorted(where, starts)))
        columns.append(near[where - np.repeat(starts[:-1], counts[-1])])
    found = _ones(np.concatenate(counts), np.concatenate(columns), len(balls))
    return found[np.argsort(np.concatenate(parts))] if len(parts) > 1 else found


def _neighbors(points: np.ndarray, most: int) -> list[np.ndarray]:
    """Indices of points (n, 3) in parts of at most so many, cut across their longest side."""
    if len(points) <= most:
        return [np.arange(len(points))] if len(points) else []
    order = np.argsort(points[:, np.ptp(points, axis=0).argmax()], kind="stable")
    halves = np.array_split(order, 2)
    return [half[part] for half in halves for part in _neighbors(points[half], most)]


def _ones(counts: np.ndarray, columns: np.ndarray, width: int) -> sparse.csr_array:
    """A sparse matrix of so many ones in each row, at columns that are in the order of rows."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    ones = np.ones(len(columns), dtype=np.float32)
    return sparse.csr_array((ones, columns, starts), shape=(len(counts), width))


def _squared_beyond(balls: np.ndarray, points: np.ndarray, margin: float) -> np.ndarray:
    """(n_points, n_balls) squared distance to the center beyond that of a ball's surface [m^2]."""
    middle = points.mean(axis=0)
    points, centers = points - middle, balls[:, :3] - middle
    # |v|^2 - 2 c v - (r^2 - |c|^2). The product is one of small matrices, for which BLAS wakes no
    # threads, that would wait for each other longer than they compute.
    limit = np.maximum(balls[:, 3] - margin, 0.0) ** 2 - (centers**2).sum(axis=1)
    rows = np.zeros((-(-len(points) // _ROWS), _ROWS, 5))
    rows.reshape(-1, 5)[: len(points)] = np.column_stack(
        [points, (points**2).sum(axis=1), np.ones(len(points))]
    )
    columns = np.stack([*(-2.0 * centers.T), np.ones(len(balls)), -limit])
    return np.matmul(rows, columns).reshape(rows.size // 5, len(balls))[: len(points)]


def _holders_of_groups(balls: np.ndarray, pieces: np.ndarray, margin: float) -> sparse.csr_array:
    """`_holders` of pieces of many corners, of which few are asked: the farthest ones first."""
    centers, radii = geometry.centers(pieces), np.maximum(balls[:, 3] - margin, 0.0)
    reach = np.linalg.norm(pieces - centers[:, None], axis=2)
    order = np.argsort(-reach, axis=1)
    reach = np.take_along_axis(reach, order, axis=1)
    corners = np.take_along_axis(pieces, order[..., None], axis=1)
    squared = _squared_beyond(balls, centers, margin) + radii**2
    apart = np.sqrt(np.maximum(squared, 0.0))
    # As a ball has to hold the center.
    rows, columns = np.divmod(np.flatnonzero(apart <= radii), len(balls))
    apart, is_held = apart[rows, columns], np.ones(len(rows), dtype=bool)
    pair = np.flatnonzero(apart + reach[rows, 0] > radii[columns])
    begin, end, count = 0, 1, pieces.shape[1]
    while len(pair) and begin < count:
        piece, ball = rows[pair], columns[pair]
        offset = corners[piece, begin:end] - balls[ball, None, :3]
        inside = np.einsum("ijk,ijk->ij", offset, offset).max(axis=1) <= radii[ball] ** 2
        is_held[pair[~inside]] = False
        # All others are as near to the center of the piece as the next one.
        farthest = apart[pair] + (reach[piece, end] if end < count else 0.0)
        pair = pair[inside & (farthest > radii[ball])]
        begin, end = end, min(2 * end, end + _MOST_AT_ONCE, count)
    counts = np.bincount(rows[is_held], minlength=len(pieces))
    return _ones(counts, columns[is_held].astype(np.int32), len(balls))


def _smallest_cover(
    holders: sparse.csr_array, weights: np.ndarray, max_count: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The smallest of several greedy covers, which weigh pieces in few balls differently.

    Returns:
        Indices (n,) of its balls, and which pieces each contains, (n, n_pieces) bool.
    """
    held = holders.T.tocsr()
    rare = 1.0 / np.diff(holders.indptr)
    covers = []
    for power in _POWERS:
        chosen = _greedy(holders, held, _whole(weights * rare**power), max_count)
        table = held[chosen].toarray() > 0.0
        kept = _not_redundant(table)
        covers.append((chosen[kept], table[kept]))
    return min(covers, key=lambda cover: (-float(weights @ cover[1].any(axis=0)), len(cover[0])))


def _whole(weights: np.ndarray) -> np.ndarray:
    """Weights in whole numbers, of which float32 has all sums."""
    whole = np.floor(weights / weights.sum() * (_WEIGHTS - len(weights)))
    return np.maximum(whole, 1.0).astype(np.float32)


def _not_redundant(table: np.ndarray) -> np.ndarray:
    """(n_balls,) bool: balls that are needed where the last ones are left out first."""
    times = table.sum(axis=0)
    kept = np.ones(len(table), dtype=bool)
    for ball in range(len(table))[::-1]:
        if (times[table[ball]] > 1).all():
            times -= table[ball]
            kept[ball] = False
    return kept


def _greedy(
    holders: sparse.csr_array, held: sparse.csr_array, weights: np.ndarray, max_count: int | None
) -> np.ndarray:
    """Indices of balls, each covering most of what those before it leave uncovered.

    Args:
        holders: (n_pieces, n_balls) 1 where a ball contains a piece.
        held: the same by balls, (n_balls, n_pieces).
        weights: (n_pieces,) whole numbers.
        max_count: of balls.
    """
    left, gains = weights.copy(), np.asarray(held @ weights)
    starts, ends, balls = holders.indptr[:-1], holders.indptr[1:], holders.indices
    count = len(weights) if max_count is None else max_count
    chosen: list[int] = []
    while len(chosen) < count and gains.max(initial=0.0) > 0.0:
        chosen.append(best := int(gains.argmax()))
        pieces = held.indices[held.indptr[best] : held.indptr[best + 1]]
        pieces = pieces[left[pieces] > 0.0]
        counts = ends[pieces] - starts[pieces]
        # Sums are exact, so that what is covered gains nothing.
        if counts.sum() > _FEW_HOLDERS:
            gains -= left[pieces] @ holders[pieces]
        else:  # a product of sparse matrices takes longer to begin
            at = np.arange(counts.sum()) + np.repeat(ends[pieces] - counts.cumsum(), counts)
            lost = np.bincount(balls[at], np.repeat(left[pieces], counts), len(gains))
            gains -= lost.astype(np.float32)
        left[pieces] = 0.0
    return np.array(chosen, dtype=np.int64)


def _shrink(
    balls: np.ndarray, table: np.ndarray, pieces: list[np.ndarray], margin: float
) -> np.ndarray:
    """Shrinks balls as far as their pieces allow, and sorts them, the largest first."""
    balls, table, times = balls.copy(), table.copy(), table.sum(axis=0)
    starts = np.cumsum([0, *map(len, pieces)])
    for ball, holds in zip(balls, table, strict=True):
        held = np.flatnonzero(holds)
        groups = np.split(held, np.searchsorted(held, starts[1:-1]))
        reach = np.concatenate(
            [
                np.linalg.norm(part[rows - start] - ball[:3], axis=2).max(axis=1)
                for part, rows, start in zip(pieces, groups, starts, strict=False)
            ]
        )
        ball[3] = min(ball[3], reach[times[held] == 1].max() + 2.0 * margin)
        gone = held[reach > ball[3] - margin]
        times[gone] -= 1
        holds[gone] = False
    order = np.argsort(-balls[:, 3], kind="stable")
    return _round_to_float32(balls[order])


def _round_to_float32(balls: np.ndarray) -> np.ndarray:
    """Balls that are exact in float32; centers already are, radii are rounded up."""
    result = balls.astype(np.float32)
    result[:, 3] = np.nextafter(result[:, 3], np.float32(np.inf))
    return result.astype(np.float64)

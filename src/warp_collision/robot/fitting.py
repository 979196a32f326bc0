"""Spheres that cover a mesh or shape: certified, deterministic, few.

A piece of the surface, a triangle, lies in a ball if its corners do; so does a cube of the inside.
A ball around c of the radius `overshoot - sdf(c)` sticks out by no more than the overshoot, as the
sdf is 1-Lipschitz. Of such balls, around the points of a lattice, the one that covers most of what
is uncovered is taken again and again (greedy set cover: Chvatal, 1979). Pieces that lie in none are
split, and get balls around themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warp_collision import validate
from warp_collision.obstacles.geometry import MeshLike
from warp_collision.obstacles.shapes import Shape
from warp_collision.robot import solid as geometry
from warp_collision.robot.coverage import Coverage, cover_of
from warp_collision.robot.solid import Solid

DEFAULT_OVERSHOOT = 0.02
_MAX_POINTS = 20_000  # of a lattice
_MAX_CENTERS = 3_000
_MAX_PIECES = 5_000  # before those that no ball holds are split
_TOO_MANY = 30_000
_WEIGHTS = float(1 << 23)  # sums of whole numbers up to here are exact in float32, in any order
_STEPS = 6  # of a bisection for the smallest overshoot
_POWERS = (0.0, 0.5, 1.0)
_RESOLUTION = 1e-3


class SphereFit(NamedTuple):
    """Result of `fit_spheres`.

    Attributes:
        spheres: (n, 4) float64 x, y, z, radius [m], each of them exact in float32.
        report: what they cover, and how far they stick out.
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

    With `max_overshoot` alone (0.02 m if nothing is given) they cover everything and are few; with
    `count` alone they cover everything, and stick out as little as was found; with both they cover
    as much as such spheres do, and the report says what is left. Equal input has equal results.

    Args:
        mesh: what `MeshWorld.add` takes.
        count: most spheres.
        max_overshoot: how far they may stick out [m].
        fill: cover the inside too, not only the surface. An obstacle that is smaller than the
            hollow between the spheres of a surface fits into it, but cannot get there unnoticed.

    Returns:
        The spheres, and a `Coverage`; see `SphereFit`.

    Raises:
        TypeError, ValueError: no mesh, or numbers that are not positive.

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
    solid = Solid("mesh", mesh)
    if count is None:
        spheres = _cover(solid, max_overshoot or DEFAULT_OVERSHOOT, fill)
    elif max_overshoot is not None:
        spheres = _cover(solid, max_overshoot, fill, most=count)
    else:
        spheres = _fewest(solid, count, fill)
    return SphereFit(spheres, cover_of(spheres, solid, _RESOLUTION, fill))


def _fewest(solid: Solid, count: int, fill: bool) -> np.ndarray:
    """So many spheres or fewer, with the smallest overshoot found by bisection."""
    lower, upper = solid.bounds
    center = 0.5 * (lower + upper)
    # Around the middle of the box one ball is enough.
    radius = float(np.linalg.norm(solid.triangles - center, axis=2).max()) + 2.0 * solid.rounding
    best, high = _rounded(np.append(center, radius)[None]), radius
    low = 0.5 * high
    while len(found := _cover_or_none(solid, low, fill, count)):
        best, high, low = found, low, 0.5 * low
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        found = _cover_or_none(solid, middle, fill, count)
        if len(found):
            best, high = found, middle
        else:
            low = middle
    return best


class _TooManyPieces(ValueError):
    """An overshoot is too small for the time and memory that a fit may take."""


def _cover_or_none(solid: Solid, overshoot: float, fill: bool, most: int) -> np.ndarray:
    """Spheres (n, 4) that cover everything, none if so many do not."""
    try:
        return _cover(solid, overshoot, fill, most, whole=True)
    except _TooManyPieces:
        return np.empty((0, 4))


def _cover(
    solid: Solid, overshoot: float, fill: bool, most: int | None = None, whole: bool = False
) -> np.ndarray:
    """Spheres (n, 4) for an overshoot; none if at most so many do not cover the whole."""
    lattice = _lattice(solid, overshoot)
    kinds = [_triangles(solid), _cubes(solid, overshoot)] if fill else [_triangles(solid)]
    ready = [_holdable(solid, pieces, lattice, overshoot) for pieces in kinds]
    pieces = [some.pieces for some in ready]
    extra = np.concatenate([some.balls for some in ready])
    # One row for each piece, which says what balls hold it.
    table = np.concatenate(
        [
            np.concatenate([some.held, _holders(extra, some.pieces, solid.rounding)], axis=1)
            for some in ready
        ]
    )
    weights = np.concatenate([geometry.sizes(some) / geometry.sizes(some).sum() for some in pieces])
    chosen = _fewest_of(table, weights, most)
    table = table[:, chosen]
    if whole and not table.any(axis=1).all():
        return np.empty((0, 4))
    return _shrunk(np.concatenate([lattice, extra])[chosen], table, pieces, solid.rounding)


def _balls(solid: Solid, centers: np.ndarray, overshoot: float, least: float = 0.0) -> np.ndarray:
    """Balls around centers that stick out as far as they may, those that are large enough."""
    centers = centers.astype(np.float32).astype(np.float64)
    radius = overshoot - solid.distance(centers) - 2.0 * solid.rounding
    return np.column_stack([centers, radius])[radius > least]


def _lattice(solid: Solid, overshoot: float) -> np.ndarray:
    """Balls around the points of a lattice in the box of the solid, inside and near to it."""
    lower, upper = solid.bounds
    extent = upper - lower
    found = np.empty((0, 4))
    pitch = float(np.cbrt(np.maximum(extent, 1e-3 * extent.max()).prod() / _MAX_POINTS))
    for _ in range(3):
        while _odd(extent / pitch).prod() > 2 * _MAX_POINTS:
            pitch *= 1.1
        counts = _odd(extent / pitch)
        axes = [
            low + (np.arange(n) + 0.5) * (length / n)
            for low, n, length in zip(lower, counts, extent, strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
        found = _balls(solid, points, overshoot, 0.5 * overshoot)
        if len(found) <= _MAX_CENTERS:
            break
        pitch *= float(np.cbrt(len(found) / _MAX_CENTERS)) * 1.02
    return found


def _odd(counts: np.ndarray) -> np.ndarray:
    """Odd numbers near counts: the middle of a lattice is that of the solid then."""
    return 2.0 * np.floor(0.5 * counts) + 1.0


def _triangles(solid: Solid) -> np.ndarray:
    """The surface in triangles, none of them much larger than others need be."""
    pieces = solid.triangles[geometry.areas(solid.triangles) > 0.0]
    longest = 2.0 * float(np.sqrt(solid.area / _MAX_PIECES))
    while len(pieces) < _MAX_PIECES:
        edges = geometry.longest_edges(pieces)
        large = edges > max(longest, 0.7 * float(edges.max()))
        if not large.any():
            break
        pieces = np.concatenate([pieces[~large], geometry.bisected(pieces[large])])
    return pieces


def _cubes(solid: Solid, overshoot: float) -> np.ndarray:
    """The inside in cubes, and what of them lies outside is less than the overshoot away."""
    pieces, small = solid.root_cube(), []
    lower, upper = solid.bounds
    edge = float((upper - lower).max()) / 16.0
    while len(pieces):
        reach = geometry.radii(pieces)
        depth = -solid.distance(geometry.centers(pieces))
        done = (pieces[:, 7, 0] - pieces[:, 0, 0] <= edge) & (
            (depth > reach) | (2.2 * reach <= overshoot)
        )
        small.append(pieces[done])
        pieces = solid.reaching_inside(geometry.octants(pieces[~done]))
        _require_few(len(pieces), overshoot)
    return np.concatenate(small)


class _Ready(NamedTuple):
    """Pieces each of which lies in a ball."""

    pieces: np.ndarray  # (n, k, 3)
    held: np.ndarray  # (n, n_balls) bool, of the balls that were there
    balls: np.ndarray  # (m, 4) that are needed besides


def _holdable(solid: Solid, pieces: np.ndarray, balls: np.ndarray, overshoot: float) -> _Ready:
    """Splits pieces until each lies in one of the balls, or is small enough for one around it."""
    done, held, extra = [], [], [np.empty((0, 4))]
    while len(pieces):
        _require_few(len(pieces), overshoot)
        table = _holders(balls, pieces, solid.rounding)
        is_held = table.any(axis=1)
        # One around a piece holds it if it is this small: its center is not far from the surface.
        small = geometry.radii(pieces) <= 0.45 * overshoot - 4.0 * solid.rounding
        extra.append(_balls(solid, geometry.centers(pieces[small & ~is_held]), overshoot))
        done.append(pieces[is_held | small])
        held.append(table[is_held | small])
        pieces = geometry.split(pieces[~is_held & ~small])
        if pieces.shape[1] == 8:
            pieces = solid.reaching_inside(pieces)
    return _Ready(np.concatenate(done), np.concatenate(held), np.concatenate(extra))


def _require_few(count: int, overshoot: float) -> None:
    if count > _TOO_MANY:
        raise _TooManyPieces(
            f"max_overshoot must be larger for a mesh of this size, which falls into more than "
            f"{_TOO_MANY} pieces, got {overshoot}"
        )


def _holders(balls: np.ndarray, pieces: np.ndarray, margin: float) -> np.ndarray:
    """(n_pieces, n_balls) bool: whether a ball holds a piece with some margin."""
    corners, index = geometry.distinct(pieces)
    middle = corners.mean(axis=0)
    corners, centers = corners - middle, balls[:, :3] - middle
    # |v|^2 - 2 c v <= r^2 - |c|^2, with one product of matrices.
    limit = np.maximum(balls[:, 3] - margin, 0.0) ** 2 - (centers**2).sum(axis=1)
    inside = (corners**2).sum(axis=1)[:, None] - 2.0 * corners @ centers.T <= limit
    result = inside[index[:, 0]]
    for corner in index.T[1:]:
        result &= inside[corner]
    return result


def _fewest_of(table: np.ndarray, weights: np.ndarray, most: int | None) -> np.ndarray:
    """The fewest balls of greedy covers that care more or less for what few balls hold."""
    rare = 1.0 / table.sum(axis=1)
    covers = [_needed(table, _greedy(table, weights * rare**power, most)) for power in _POWERS]
    return min(covers, key=lambda some: (-float(weights @ table[:, some].any(axis=1)), len(some)))


def _needed(table: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The balls without those that others make superfluous."""
    times = table[:, chosen].sum(axis=1)
    kept = []
    for ball in chosen[::-1]:
        if (times[table[:, ball]] > 1).all():
            times -= table[:, ball]
        else:
            kept.append(ball)
    return np.array(kept[::-1], dtype=np.int64)


def _greedy(table: np.ndarray, weights: np.ndarray, most: int | None) -> np.ndarray:
    """Indices of balls, each of which holds most of what those before it left."""
    whole = np.maximum(np.floor(weights / weights.sum() * (_WEIGHTS - len(weights))), 1.0)
    weights = whole.astype(np.float32)
    holds = table.astype(np.float32)
    gains = weights @ holds
    left = np.ones(len(table), dtype=bool)
    chosen: list[int] = []
    while left.any() and (most is None or len(chosen) < most):
        best = int(gains.argmax())
        if gains[best] <= 0.0:
            break
        chosen.append(best)
        new = left & table[:, best]
        gains -= weights[new] @ holds[new]
        left &= ~new
    return np.array(chosen, dtype=np.int64)


def _shrunk(
    balls: np.ndarray, table: np.ndarray, pieces: list[np.ndarray], margin: float
) -> np.ndarray:
    """Balls as small as what they hold allows, the largest first."""
    balls, table, times = balls.copy(), table.copy(), table.sum(axis=1)
    for ball, holds in zip(balls, table.T, strict=True):
        reach = np.concatenate(
            [np.linalg.norm(some - ball[:3], axis=2).max(axis=1) for some in pieces]
        )
        ball[3] = min(ball[3], reach[holds & (times == 1)].max() + 2.0 * margin)
        still = reach <= ball[3] - margin
        times -= holds & ~still
        holds &= still
    order = np.argsort(-balls[:, 3], kind="stable")
    return _rounded(balls[order])


def _rounded(balls: np.ndarray) -> np.ndarray:
    """Balls that are exact in float32; their centers already are, or have a margin around them."""
    result = balls.astype(np.float32)
    result[:, 3] = np.nextafter(result[:, 3], np.float32(np.inf))
    return result.astype(np.float64)

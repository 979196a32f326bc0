"""How well spheres cover a mesh or a shape, with certified bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from warp_collision import validate
from warp_collision.obstacles.geometry import MeshLike
from warp_collision.obstacles.shapes import Shape
from warp_collision.robot.fitting import pieces as geometry
from warp_collision.robot.fitting.solid import ROUNDING, Solid
from warp_collision.robot.fitting.sphere_arrays import sphere_array

_CHUNK = 2048  # pieces


class Coverage(NamedTuple):
    """How well spheres approximate a mesh or shape; each number is an upper bound.

    Attributes:
        count: spheres that are not disabled; an exact number.
        overshoot: how far spheres extend beyond the surface [m]; negative if all are inside.
        uncovered: fraction of the surface that lies in no sphere, 0 to 1; 0 is a proof of full
            coverage.
        gap: largest distance of the surface to the nearest sphere [m]; 0 where all is covered,
            infinite without spheres.
        uncovered_inside: fraction of the volume that lies in no sphere; None without `fill`.
    """

    count: int
    overshoot: float
    uncovered: float
    gap: float
    uncovered_inside: float | None = None

    def __str__(self) -> str:
        inside = self.uncovered_inside
        return (
            f"{self.count} spheres stick out by at most {1e3 * self.overshoot:.1f} mm; "
            f"{100 * self.uncovered:.1f} % of the surface is uncovered, by up to "
            f"{1e3 * self.gap:.1f} mm"
            + ("" if inside is None else f"; {100 * inside:.1f} % of the inside")
        )


def coverage(
    spheres: Any, mesh: MeshLike | Shape, *, resolution: float | None = None, fill: bool = False
) -> Coverage:
    """Checks spheres against the mesh or shape that they approximate.

    A triangle lies in a sphere if its corners do. Other triangles are bisected until they lie in
    one, are certainly outside of all, or are small. Distances are 1-Lipschitz, so that one sample
    bounds a whole piece.

    Args:
        spheres: rows x, y, z, radius [m]; a radius below 0 disables one.
        mesh: what `MeshWorld.add` takes; the inside of an open mesh is that of its signed distance.
        resolution: edge [m] of the smallest pieces, by which the bounds may be too large. By
            default 1 mm, or 1/250 of the diagonal of the mesh's box if that is less.
        fill: whether to check the inside too.

    Raises:
        TypeError, ValueError: no spheres, no mesh, or a resolution that is not positive.

    Example:
        >>> from warp_collision import Cuboid
        >>> from warp_collision.robot import coverage
        >>> print(coverage([[0.0, 0.0, 0.0, 0.18]], Cuboid((0.2, 0.2, 0.2))))
        1 spheres stick out by at most 80.0 mm; 0.0 % of the surface is uncovered, by up to 0.0 mm
        >>> coverage([[0.0, 0.0, 0.0, 0.1]], Cuboid((0.2, 0.2, 0.2))).uncovered > 0.9
        True
    """
    if resolution is not None:
        validate.require_number("resolution", resolution, positive=True)
    rows, solid = sphere_array("spheres", spheres), Solid("mesh", mesh)
    return cover_of(rows, solid, resolution or min(1e-3, 0.004 * solid.size), fill)


def cover_of(spheres: np.ndarray, solid: Solid, resolution: float, fill: bool) -> Coverage:
    """`coverage` of validated spheres (n, 4)."""
    spheres = spheres[spheres[:, 3] >= 0.0]
    rounding = np.maximum(solid.rounding, ROUNDING * np.abs(spheres[:, :3]).max(axis=1))
    outside = solid.distance_to_all(spheres[:, :3]) + spheres[:, 3] + rounding
    area, gap = _uncovered(spheres, solid.triangles, resolution)
    uncovered_inside = None
    if fill:
        uncovered_inside = _fraction(_uncovered_volume(spheres, solid, resolution), solid.volume)
    return Coverage(
        len(spheres),
        float(outside.max(initial=-np.inf)),
        _fraction(area, solid.area),
        gap,
        uncovered_inside,
    )


def _fraction(part: float, whole: float) -> float:
    """An upper bound of a part of the whole, which is 0 for a mesh that encloses nothing."""
    return part / whole if part < whole else float(part > 0.0)


def covered(pieces: np.ndarray, spheres: np.ndarray) -> np.ndarray:
    """(n,) bool: whether any sphere contains the piece."""
    result = np.zeros(len(pieces), dtype=bool)
    for part in geometry.chunks(len(pieces), _CHUNK):
        result[part] = geometry.contains(spheres, pieces[part]).any(axis=0)
    return result


def _uncovered(
    spheres: np.ndarray, triangles: np.ndarray, resolution: float
) -> tuple[float, float]:
    """Bounds of the area outside of all spheres, and of the largest distance to them."""
    if len(spheres) == 0:
        return float(geometry.areas(triangles).sum()), np.inf
    area, gap, least = 0.0, 0.0, 0.0
    pieces, counted = triangles, np.zeros(len(triangles), dtype=bool)
    while True:
        outside = ~covered(pieces, spheres)
        pieces, counted = pieces[outside], counted[outside]
        if len(pieces) == 0:
            return area, gap
        middle = geometry.gaps(geometry.centers(pieces), spheres)
        reach = geometry.radii(pieces)
        least = max(least, float(middle.max()))  # a lower bound of the gap
        small = geometry.longest_edges(pieces) <= resolution
        new = ~counted & ((middle > reach) | small)
        area += float(geometry.areas(pieces[new]).sum())
        counted |= new
        done = small | (counted & (middle + reach <= least + resolution))
        gap = max(gap, float((middle + reach)[done].max(initial=0.0)))
        pieces = geometry.bisected(pieces[~done])
        counted = np.tile(counted[~done], 2)


def _uncovered_volume(spheres: np.ndarray, solid: Solid, resolution: float) -> float:
    """A bound of the volume inside the solid and outside of all spheres."""
    volume, cubes = 0.0, solid.reaching_inside(solid.root_cube())
    while len(cubes):
        cubes = cubes[~covered(cubes, spheres)]
        reach = geometry.radii(cubes)
        outside_of_spheres = geometry.gaps(geometry.centers(cubes), spheres) > reach
        inside = solid.distance(geometry.centers(cubes)) < -reach
        small = geometry.edges(cubes) <= resolution
        done = small | (inside & outside_of_spheres)
        volume += float((geometry.edges(cubes[done]) ** 3).sum())
        cubes = solid.reaching_inside(geometry.octants(cubes[~done]))
    return volume

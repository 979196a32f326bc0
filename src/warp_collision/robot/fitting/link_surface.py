"""Distances between the shapes of links, from their signed distances at points of the surface."""

from __future__ import annotations

import numpy as np

from warp_collision.obstacles.geometry import MeshLike
from warp_collision.robot.fitting import pieces as geometry
from warp_collision.robot.fitting.solid import Solid

_POINTS = 3_000  # on the surface of a link, about
_NEAR = 0.05  # of a link's size: points that may be nearest to it
_ACCURACY = 2.0e-4  # [m], of distances
_MAX_PIECES = 60_000
_MAX_POINTS_AT_ONCE = 400_000


class LinkSurface:
    """The shapes of a link, by points on its surface, for distances to other links.

    Args:
        name: of the link, for errors.
        mesh: in the frame of the link.

    Attributes:
        solid: surface and signed distance.
        points: (n, 3) on the surface [m].
        spacing: of the points: the surface is at most this far from one [m].
    """

    def __init__(self, name: str, mesh: MeshLike):
        self.solid = Solid(name, mesh)
        triangles = self.solid.triangles
        edge = max(float(np.sqrt(2.0 * self.solid.area / _POINTS)), _ACCURACY)
        while (large := geometry.longest_edges(triangles) > edge).any():
            triangles = np.concatenate([triangles[~large], geometry.bisected(triangles[large])])
        self._triangles = triangles
        corners, _ = geometry.distinct(triangles)
        _, first = np.unique(np.floor(2.0 * corners / edge), axis=0, return_index=True)
        self.points, self.spacing = corners[np.sort(first)], edge

    def distances(self, other: LinkSurface, self_from_other: np.ndarray) -> np.ndarray:
        """(m,) distance of points of this surface or the other's to the other one, signed [m].

        An upper bound of the distance of the links, negative where one reaches into the other.
        Points far from the box of a link are not asked.

        Args:
            other: another link.
            self_from_other: (m, 4, 4) its poses in the frame of this one.
        """
        inverse = np.linalg.inv(self_from_other)
        return np.minimum(
            self._to_points(other.points, self_from_other), other._to_points(self.points, inverse)
        )

    def _to_points(self, points: np.ndarray, poses: np.ndarray) -> np.ndarray:
        """(m,) smallest signed distance of this surface to points (n, 3) at poses (m, 4, 4)."""
        result = np.empty(len(poses))
        for part in geometry.chunks(len(poses), 1 + _MAX_POINTS_AT_ONCE // len(points)):
            moved = points @ poses[part, :3, :3].swapaxes(1, 2) + poses[part, None, :3, 3]
            # Where points are inside all of them are asked; elsewhere those nearest to the box,
            # of which another one may be nearer to the surface.
            lower, upper = self.solid.bounds
            outside = np.linalg.norm(moved - np.clip(moved, lower, upper), axis=2)
            near = outside <= outside.min(axis=1, keepdims=True) + _NEAR * self.solid.size
            values = np.full(outside.shape, np.inf)
            values[near] = self.solid.distance(moved[near])
            result[part] = values.min(axis=1)
        return result

    def distance(self, other: LinkSurface, self_from_other: np.ndarray) -> float:
        """Distance [m] to another link at a pose (4, 4), to 0.2 mm; not above 0 in contact."""
        inverse = np.linalg.inv(self_from_other)
        best = float(self.distances(other, self_from_other[None])[0])
        for solid, triangles, pose in (
            (self.solid, other._triangles, self_from_other),
            (other.solid, self._triangles, inverse),
        ):
            if best > 0.0:
                moved = triangles @ pose[:3, :3].T + pose[:3, 3]
                best = min(best, _nearest(solid, moved, best))
        return best


def _nearest(solid: Solid, triangles: np.ndarray, best: float) -> float:
    """Smallest signed distance of triangles (n, 3, 3) to a solid where it is below a bound."""
    lower, upper = solid.bounds
    while len(triangles) and best > 0.0:
        reach, middle = geometry.radii(triangles), geometry.centers(triangles)
        outside = np.linalg.norm(middle - np.clip(middle, lower, upper), axis=1)
        near = outside - reach < best
        triangles, reach, middle = triangles[near], reach[near], middle[near]
        distance = solid.distance(middle)
        best = min(best, float(distance.min(initial=np.inf)))
        open_ones = (distance - reach < best - _ACCURACY) & (reach > 0.5 * _ACCURACY)
        if 2 * open_ones.sum() > _MAX_PIECES:  # parallel faces: a bound that holds is enough
            return min(best, float((distance - reach).min()))
        triangles = geometry.bisected(triangles[open_ones])
    return best if best > _ACCURACY else min(best, 0.0)

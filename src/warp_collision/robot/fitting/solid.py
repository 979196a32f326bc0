"""A mesh or shape for fitting: pieces of its surface and inside, and its signed distance."""

from __future__ import annotations

import numpy as np
import torch

from warp_collision.obstacles.geometry import MeshLike, read_mesh
from warp_collision.obstacles.shapes import Shape
from warp_collision.queries.sphere_queries import SCENE_DISTANCE
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import scene_tables

# Distances are computed in float32, with an error of some units of its last place.
ROUNDING = 1.0e-6
_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)


class Solid:
    """A mesh or an exact shape.

    Attributes:
        triangles: (n, 3, 3) float64 corners of its faces [m].
        rounding: error of a distance near it [m].
    """

    def __init__(self, name: str, mesh: MeshLike | Shape):
        self._world = MeshWorld(max_obstacles=1, device="cpu")
        if isinstance(mesh, Shape):
            vertices, faces = mesh.tessellate()
            self._world.add(name, mesh)
        else:
            vertices, faces = read_mesh(name, mesh)
            self._world.add(name, (vertices, faces))
        self.triangles = vertices[faces]
        self.rounding = ROUNDING * float(np.abs(self.triangles).max())

    @property
    def area(self) -> float:
        """Area of the surface [m^2]."""
        return float(areas(self.triangles).sum())

    @property
    def volume(self) -> float:
        """Volume enclosed by the surface [m^3]."""
        a, b, c = self.triangles.swapaxes(0, 1)
        return abs(float(np.einsum("ij,ij->", a, np.cross(b, c)))) / 6.0

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner (3,) of the bounding box [m]."""
        return self.triangles.min(axis=(0, 1)), self.triangles.max(axis=(0, 1))

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Signed distance (n,) of points (n, 3), negative inside [m]."""
        flat = torch.from_numpy(np.asarray(points, dtype=np.float32))[None].contiguous()
        with torch.no_grad():
            distance = SCENE_DISTANCE.run(flat, scene_tables(self._world), None)[0]
        return distance[0].numpy().astype(np.float64)

    def root_cube(self) -> np.ndarray:
        """(1, 8, 3) corners of a bounding cube."""
        lower, upper = self.bounds
        half = 0.5 * float((upper - lower).max()) * (1.0 + ROUNDING)
        return 0.5 * (lower + upper) + half * _CORNERS[None]

    def reaching_inside(self, cubes: np.ndarray) -> np.ndarray:
        """The cubes (n, 8, 3) that are not certainly outside."""
        return cubes[self.distance(centers(cubes)) <= radii(cubes) + self.rounding]


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


def split(pieces: np.ndarray) -> np.ndarray:
    """Triangles (n, 3, 3) or cubes (n, 8, 3), cut into smaller ones."""
    return bisected(pieces) if pieces.shape[1] == 3 else octants(pieces)


def sizes(pieces: np.ndarray) -> np.ndarray:
    """(n,) areas of triangles or volumes of cubes."""
    if pieces.shape[1] == 3:
        return areas(pieces)
    return (pieces[:, 7, 0] - pieces[:, 0, 0]) ** 3


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

"""A mesh or shape for fitting: its surface, and its signed distance."""

from __future__ import annotations

import numpy as np
import torch

from warp_collision.obstacles import topology
from warp_collision.obstacles.geometry import MeshLike, read_mesh
from warp_collision.obstacles.shapes import HalfSpace, Shape
from warp_collision.queries.evaluate import scene_of
from warp_collision.queries.sphere_queries import SCENE_DISTANCE
from warp_collision.robot.fitting.pieces import areas, centers, chunks, radii
from warp_collision.world import MeshWorld

# Distances are computed in float32, with an error of some units of its last place.
ROUNDING = 1.0e-6
# Of the grid of distances: more of them take longer to fill than a fit's few queries save.
_GRID_CELLS = 4096
_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
# Faces that are more slender are set apart; the next limit where a MeshWorld refuses the rest.
_SLENDER = (topology.UNSEEN, 1e5, 1e4, 300.0)


class Solid:
    """A mesh or an exact shape.

    Faces that float32 cannot tell from a line are no obstacle that a `MeshWorld` takes, but belong
    to the surface: they are set apart, and their distance is computed in float64.

    Attributes:
        triangles: (n, 3, 3) float64 corners of its faces [m].
        slivers: (n,) bool, which of them are set apart.
        rounding: error of a distance near it [m].
    """

    def __init__(self, name: str, mesh: MeshLike | Shape, grid_cells: int = _GRID_CELLS):
        self._world: MeshWorld | None = MeshWorld(
            max_obstacles=1, device="cpu", grid_cells=grid_cells
        )
        if isinstance(mesh, Shape):
            if isinstance(mesh, HalfSpace):
                raise ValueError(f"{name!r} must have an end on all sides, got {mesh}")
            vertices, faces = mesh.tessellate()
            self._world.add(name, mesh)
            self.slivers = np.zeros(len(faces), dtype=bool)
        else:
            vertices, faces = read_mesh(name, mesh)
            self.slivers = self._add(name, vertices, faces)
        self.triangles = vertices[faces]
        self.rounding = ROUNDING * float(np.abs(self.triangles).max())

    def _add(self, name: str, vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
        """Adds the faces that a MeshWorld takes; returns which are set apart."""
        assert self._world is not None
        slender = np.maximum(
            topology.slenderness(vertices, faces),
            topology.slenderness(vertices.astype(np.float32), faces),
        )
        # Of those, it finds first itself which others cover.
        for n, limit in enumerate(_SLENDER):
            apart = slender >= limit
            if apart.all():
                self._world = None
                return apart
            try:
                self._world.add(name, (vertices, faces if n == 0 else faces[~apart]))
            except ValueError:
                if n == len(_SLENDER) - 1:
                    raise
            else:
                return apart
        raise AssertionError

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

    @property
    def size(self) -> float:
        """Diagonal of the bounding box [m]."""
        lower, upper = self.bounds
        return float(np.linalg.norm(upper - lower))

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Signed distance (n,) of points (n, 3) to all but the slivers, negative inside [m]."""
        return self.nearest(points)[0]

    def nearest(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`distance` (n,) of points (n, 3), and the points (n, 3) of the surface next to them."""
        if self._world is None:
            return np.full(len(points), np.inf), np.full(points.shape, np.nan)
        flat = torch.from_numpy(np.asarray(points, dtype=np.float32))[None].contiguous()
        with torch.no_grad():
            distance, gradient, _ = SCENE_DISTANCE.run(flat, scene_of(self._world), None)
        signed = distance[0].numpy().astype(np.float64)
        return signed, points - signed[:, None] * gradient[0].numpy().astype(np.float64)

    def distance_to_all(self, points: np.ndarray) -> np.ndarray:
        """An upper bound (n,) of `distance`, the slivers included [m]."""
        result = self.distance(points)
        slivers = self.triangles[self.slivers]
        ends = slivers[:, :, None], np.roll(slivers, -1, axis=1)[:, :, None]
        for part in chunks(len(points), 1 + (1 << 20) // (1 + 3 * len(slivers))):
            # The edges belong to them.
            to_edges = distance_to_segments(points[part], *ends)
            result[part] = np.minimum(result[part], to_edges.min(axis=(0, 1), initial=np.inf))
        return result

    def root_cube(self) -> np.ndarray:
        """(1, 8, 3) corners of a bounding cube."""
        lower, upper = self.bounds
        half = 0.5 * float((upper - lower).max()) * (1.0 + ROUNDING)
        return 0.5 * (lower + upper) + half * _CORNERS[None]

    def reaching_inside(self, cubes: np.ndarray) -> np.ndarray:
        """The cubes (n, 8, 3) that are not certainly outside."""
        return cubes[self.distance(centers(cubes)) <= radii(cubes) + self.rounding]


def distance_to_segments(points: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Distance of points (..., 3) to segments from start to end (..., 3), which broadcast."""
    along = end - start
    squared = (along**2).sum(axis=-1)
    fraction = ((points - start) * along).sum(axis=-1) / np.where(squared > 0.0, squared, 1.0)
    nearest = start + np.clip(fraction, 0.0, 1.0)[..., None] * along
    return np.linalg.norm(points - nearest, axis=-1)

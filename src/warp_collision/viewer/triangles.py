"""Triangles of what is drawn: obstacles of every kind, links of robots, spheres, lines."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import trimesh
from numpy.typing import ArrayLike
from scipy.spatial import ConvexHull

from warp_collision.io.placing import joined
from warp_collision.messages import escaped
from warp_collision.obstacles import shapes
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.voxel_grid import VoxelGrid
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.viewer.colors import Floats

MOST_FACES = 4000  # of a link that are drawn; of more of them neighbours are merged
_MOST_OUTLINED = 500  # faces of an obstacle that a camera is chosen by
_CREASE = 40.0  # degrees
_TUBE_SIDES = 8


class Triangles(shapes.Triangles):
    """A mesh, oriented outward: vertices (n, 3) [m], faces (m, 3)."""

    @property
    def middle(self) -> Floats:
        """(3,) middle of the box around it [m]."""
        return 0.5 * (self.vertices.min(0) + self.vertices.max(0))

    def moved(self, transform: Floats) -> Triangles:
        """The same under a transform (4, 4)."""
        return Triangles(self.vertices @ transform[:3, :3].T + transform[:3, 3], self.faces)


def box_corners(points: Floats) -> Floats:
    """Returns (8, 3) the corners of the box around points (n, 3)."""
    picks = np.indices((2, 2, 2)).reshape(3, 8).T
    return np.where(picks, points.max(0), points.min(0))


def of_mesh(mesh: trimesh.Trimesh) -> Triangles:
    """Returns the triangles of a mesh."""
    return Triangles(np.asarray(mesh.vertices, float), np.asarray(mesh.faces))


def of_geometry(geometry: Any) -> Triangles:
    """Returns the triangles of an obstacle in its own frame.

    Raises:
        TypeError: it is of another kind.

    Example:
        >>> from warp_collision import Cuboid
        >>> from warp_collision.viewer.triangles import of_geometry
        >>> of_geometry(Cuboid((1.0, 1.0, 1.0))).faces.shape
        (12, 3)
    """
    if not isinstance(geometry, trimesh.Trimesh | shapes.Shape | Sensed):
        raise TypeError(f"geometry must be of a kind that is drawn, got {type(geometry).__name__}")
    return of_mesh(shapes.mesh_of(geometry))


def outline_of(geometry: Any) -> Triangles:
    """Returns the triangles of an obstacle, of one with many of them the box around it.

    Example:
        >>> import numpy as np
        >>> from warp_collision import PointCloud
        >>> from warp_collision.viewer.triangles import outline_of
        >>> outline_of(PointCloud(np.random.rand(1000, 3), radius=0.01)).faces.shape
        (12, 3)
    """
    if isinstance(geometry, Sensed):
        return Triangles(*shapes.box_around(geometry.bounds))
    mesh = of_geometry(geometry)
    if len(mesh.faces) <= _MOST_OUTLINED:
        return mesh
    bounds = np.stack([mesh.vertices.min(0), mesh.vertices.max(0)])
    return Triangles(*shapes.box_around(bounds))


def is_unseen(geometry: Any) -> bool:
    """Returns whether an obstacle stands for space that no camera saw."""
    return isinstance(geometry, VoxelGrid) and geometry.is_unseen


def parts_of(geometry: Any) -> tuple[Any, VoxelGrid | None]:
    """Returns an obstacle, or what of a map was seen and what counts as occupied and was not.

    Example:
        >>> import numpy as np
        >>> from warp_collision import VoxelGrid
        >>> from warp_collision.viewer.triangles import parts_of
        >>> wall, never = np.zeros((2, 4, 4, 4), bool)
        >>> wall[0], never[1:] = True, True
        >>> seen, unseen = parts_of(VoxelGrid(wall, 0.1, unknown_mask=never))
        >>> seen.n_occupied, unseen.n_occupied
        (16, 48)
    """
    if not isinstance(geometry, VoxelGrid) or geometry.is_unseen or geometry.unknown_mask is None:
        return geometry, None
    if not (geometry.occupied & geometry.unknown_mask).any():
        return geometry, None
    return geometry.seen, geometry.unseen


def inflated(triangles: Triangles, padding: float) -> Triangles:
    """Returns a mesh whose vertices are moved out along their normals [m]: the hull of a padding.

    Near edges it is a drawing, not a proof: corners of the real hull are round.
    """
    mesh = trimesh.Trimesh(*triangles, process=True)
    normals = np.asarray(mesh.vertex_normals)
    # Corners of boxes go out along all their faces.
    faces = np.asarray(mesh.faces)
    facing = np.einsum("fci,fi->fc", normals[faces], np.asarray(mesh.face_normals))
    least = np.ones(len(normals))
    np.minimum.at(least, faces.reshape(-1), facing.reshape(-1))
    reach = padding / np.clip(least, 0.5, 1.0)
    return Triangles(np.asarray(mesh.vertices) + reach[:, None] * normals, faces)


def corner_normals(triangles: Triangles) -> Floats:
    """Returns (n_faces, 3, 3) normals: the vertex's mean where the face is near it, else its own.

    Faces are weighted by their angles at the vertex, so that it does not matter how a side is cut
    into triangles.
    """
    vertices, faces = triangles
    corners = vertices[faces]
    own = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-30)
    along = np.roll(corners, -1, axis=1) - corners
    along /= np.maximum(np.linalg.norm(along, axis=2, keepdims=True), 1e-30)
    cosines = -np.einsum("fci,fci->fc", along, np.roll(along, 1, axis=1))
    angles = np.arccos(np.clip(cosines, -1.0, 1.0))
    mean = np.zeros((len(vertices), 3))
    for axis in range(3):
        weighted = (angles * own[:, None, axis]).reshape(-1)
        mean[:, axis] = np.bincount(faces.reshape(-1), weighted, len(vertices))
    mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-30)
    smooth = mean[faces]
    near = np.einsum("fci,fi->fc", smooth, own) > np.cos(np.radians(_CREASE))
    return np.where(near[..., None], smooth, own[:, None, :])


def thinned(triangles: Triangles, most: int = MOST_FACES) -> Triangles:
    """Returns a mesh with about that many faces at most: vertices in one cell become their mean.

    CAD meshes of robots have some 100,000 triangles a link, of which a picture shows none.

    Example:
        >>> import trimesh
        >>> from warp_collision.viewer.triangles import Triangles, thinned
        >>> ball = trimesh.creation.icosphere(subdivisions=5)
        >>> len(ball.faces), 500 < len(thinned(Triangles(ball.vertices, ball.faces)).faces) <= 4000
        (20480, True)
    """
    vertices, faces = triangles
    if len(faces) <= most:
        return triangles
    low, size = vertices.min(0), float(np.ptp(vertices, axis=0).max())
    cells = 2.0 * np.sqrt(most)
    while True:
        places = np.floor((vertices - low) / (size / cells)).astype(np.int64)
        keys = (places[:, 0] * 4096 + places[:, 1]) * 4096 + places[:, 2]
        _, index, counts = np.unique(keys, return_inverse=True, return_counts=True)
        kept = index[faces]
        ok = (kept != np.roll(kept, 1, axis=1)).all(axis=1)
        kept = kept[ok]
        # Of faces that fell together one is enough.
        _, once = np.unique(np.sort(kept, axis=1), axis=0, return_index=True)
        if len(once) <= most or cells < 8:
            sums = [np.bincount(index, vertices[:, axis], len(counts)) for axis in range(3)]
            return Triangles(np.stack(sums, axis=1) / counts[:, None], kept[np.sort(once)])
        cells *= 0.8


@functools.cache
def ball(subdivisions: int = 2) -> Triangles:
    """Returns the unit sphere."""
    return of_mesh(trimesh.creation.icosphere(subdivisions=subdivisions))


def of_spheres(spheres: ArrayLike, subdivisions: int = 2) -> Triangles:
    """Returns one mesh of spheres (n, 4) x, y, z, radius [m]; disabled ones are left out."""
    rows = np.asarray(spheres, float).reshape(-1, 4)
    rows = rows[rows[:, 3] > 0.0]
    unit = ball(subdivisions)
    vertices = rows[:, None, :3] + rows[:, None, 3:] * unit.vertices
    starts = len(unit.vertices) * np.arange(len(rows))
    return Triangles(vertices.reshape(-1, 3), (starts[:, None, None] + unit.faces).reshape(-1, 3))


def of_piece(points: ArrayLike, radius: float) -> Triangles:
    """Returns the convex hull of balls of a radius around points (n, 3) [m].

    Example:
        >>> from warp_collision.viewer.triangles import of_piece
        >>> round(float(of_piece([[0, 0, 0], [0, 0, 1.0]], 0.1).vertices[:, 2].max()), 6)
        1.1
    """
    around = radius * ball(1).vertices if radius > 0.0 else np.zeros((1, 3))
    corners = (np.asarray(points, float).reshape(-1, 1, 3) + around).reshape(-1, 3)
    hull = ConvexHull(corners, qhull_options="QJ")  # flat ones, too
    faces = hull.simplices.copy()
    sides = corners[faces]
    across = np.cross(sides[:, 1] - sides[:, 0], sides[:, 2] - sides[:, 0])
    inward = np.einsum("fi,fi->f", across, hull.equations[:, :3]) < 0.0
    faces[inward] = faces[inward, ::-1]
    kept, faces = np.unique(faces, return_inverse=True)
    return Triangles(corners[kept], faces.reshape(-1, 3))


def piece_meshes(robot: RobotSpheres) -> dict[str, Triangles]:
    """Returns the convex pieces that cover the links, by link, in the frames of the links."""
    bodies = robot.layout.bodies
    return {
        link: of_mesh(joined([trimesh.Trimesh(*of_piece(p.points, p.radius)) for p in some]))
        for link in robot.link_names
        if link in bodies and (some := bodies[link].pieces)
    }


def tube(points: ArrayLike, radius: float) -> Triangles:
    """Returns a tube along points (n, 3), open at its ends [m]."""
    points = np.asarray(points, float).reshape(-1, 3)
    if len(points) > 1:
        moved = np.linalg.norm(np.diff(points, axis=0), axis=1) > 1e-9
        points = points[np.concatenate([[True], moved])]
    if len(points) < 2:
        return Triangles(np.zeros((0, 3)), np.zeros((0, 3), int))
    tangents = np.gradient(points, axis=0)
    tangents /= np.maximum(np.linalg.norm(tangents, axis=1, keepdims=True), 1e-12)
    side = np.cross(tangents, np.eye(3)[np.abs(tangents).argmin(axis=1)])
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    angles = 2.0 * np.pi * np.arange(_TUBE_SIDES) / _TUBE_SIDES
    ring = (
        np.cos(angles)[:, None] * side[:, None]
        + np.sin(angles)[:, None] * np.cross(tangents, side)[:, None]
    )
    vertices = (points[:, None] + radius * ring).reshape(-1, 3)
    index = np.arange(len(points) * _TUBE_SIDES).reshape(-1, _TUBE_SIDES)
    a, b = index[:-1], np.roll(index[:-1], -1, axis=1)
    c, d = index[1:], np.roll(index[1:], -1, axis=1)
    faces = np.concatenate([np.stack([a, b, d], -1), np.stack([a, d, c], -1)]).reshape(-1, 3)
    return Triangles(vertices, faces)


class LinkMeshes(NamedTuple):
    """The meshes of a robot's links, in the frames of the links.

    Attributes:
        links: by link.
        missing: by link, why it has no mesh.
    """

    links: Mapping[str, Triangles]
    missing: Mapping[str, str]


def link_meshes(robot: RobotSpheres, kinds: Sequence[str] = ("visual", "collision")) -> LinkMeshes:
    """Returns the meshes of a robot's links, thinned; links without any are left out.

    Warns where there should be some and none can be read.

    Args:
        robot: the robot.
        kinds: "visual" and "collision", of which a link has the first that can be read.
    """
    links: dict[str, Triangles] = {}
    missing: dict[str, str] = {}
    visuals: dict[str, list[Any]] = {}
    for visual in robot.link_meshes:
        visuals.setdefault(visual.link, []).append(visual)
    for link in robot.link_names:
        of_kind = {"visual": visuals.get(link, []), "collision": robot.link_shapes.get(link, [])}
        for parts in map(of_kind.__getitem__, kinds):
            if not parts or link in links:
                continue
            try:
                mesh = joined([_read(part) for part in parts])
            except (OSError, ValueError, ImportError) as error:
                missing[link] = str(error)
                continue
            links[link] = thinned(of_mesh(mesh))
            missing.pop(link, None)
    if missing and not links:
        why = escaped(next(iter(missing.values())), 200)
        warnings.warn(
            f"the robot is drawn as its spheres, none of its meshes can be read: {why}",
            stacklevel=2,
        )
    return LinkMeshes(links, missing)


def _read(shape: Any) -> trimesh.Trimesh:
    """Returns a shape of a link in its frame; visual meshes are drawn as they are, damaged too."""
    if hasattr(shape, "shape"):
        return mesh_in_link(shape)
    if shape.missing:
        raise FileNotFoundError(shape.missing)
    mesh: Any = trimesh.load_mesh(shape.path)
    mesh = trimesh.Trimesh(mesh.vertices, mesh.faces)  # corners at the same place become one
    return mesh.apply_transform(shape.link_from_mesh)

"""USD stages as scenes: their shapes and meshes in metres, with z up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.formats.extras import import_extra
from warp_collision.formats.usd_trial import ATTRIBUTES, openusd
from warp_collision.io.content import Content, Obstacle, errors_begin_with
from warp_collision.io.placing import frame_along, place_mesh, place_shape, require_invertible
from warp_collision.io.polygons import ClippingBudget, triangulate
from warp_collision.io.solids import frustum_around, tapered_capsule_around
from warp_collision.io.usd_layers import open_stage
from warp_collision.io.usd_prims import StageWalk, reason_to_leave_out
from warp_collision.messages import MAX_SHOWN, escaped, shown
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Sphere

_AXES = {"X": (1.0, 0.0, 0.0), "Y": (0.0, 1.0, 0.0), "Z": (0.0, 0.0, 1.0)}
_Z_FROM_Y_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])


def add_usd(content: Content, path: Path, package_dirs: Sequence[Path] = ()) -> None:
    """Adds the shapes and meshes of a USD stage under their paths, without the first slash.

    If anything on the stage has a collision API, only what has one, itself or by an ancestor, is an
    obstacle, visible or not; else all that is visible is, but guides. Instances are there one by
    one, those of a PointInstancer as `instancer/0`, `instancer/1` and so on, with the paths below
    their prototypes. Lengths are scaled to metres (`metersPerUnit`, 0.01 if not written), and a
    stage with y up (also if not written) is turned so that z is up. Values are those at the
    earliest time. Subdivision surfaces are their cages.

    Layers lie in the folder of the file or below, or in `package_dirs` or below.

    Raises:
        ImportError: usd-core is not installed.
        ValueError: the stage or a layer of it cannot be opened, or a prim is wrong.
    """
    Usd = import_extra("pxr.Usd", f"{content.where}: reading USD", "usd-core", "usd")
    with errors_begin_with(content.where):
        stage = open_stage(path, package_dirs)
        time = Usd.TimeCode.EarliestTime()
        to_metres = _metres_from_stage(stage)
        prims = StageWalk(stage, time, content).prims()
        has_physics = any(placed.collides is not None for placed in prims)
        meshes: dict[Any, trimesh.Trimesh | str] = {}
        for placed in prims:
            reason = reason_to_leave_out(placed, has_physics, _READERS)
            if reason is not None:
                content.leave_out(placed.name, reason)
                continue
            with errors_begin_with(f"{content.where}: {escaped(placed.name, MAX_SHOWN)}"):
                matrix = to_metres @ placed.frame
                require_invertible(matrix, "the transform")
                values = _Attributes(placed.prim, time, content.clipping, meshes)
                found = _READERS[placed.prim.GetTypeName()](values, matrix)
            if isinstance(found, str):
                content.leave_out(placed.name, found)
            else:
                content.add(placed.name, found)


def _metres_from_stage(stage: Any) -> np.ndarray:
    """The transform (4, 4) from a stage's units and axes."""
    UsdGeom = openusd("UsdGeom")
    unit = float(UsdGeom.GetStageMetersPerUnit(stage))
    if not 0.0 < unit < np.inf:
        raise ValueError(f"metersPerUnit must be positive, got {unit}")
    to_metres = np.diag([unit, unit, unit, 1.0])
    is_y_up = UsdGeom.GetStageUpAxis(stage) == UsdGeom.Tokens.y
    return _Z_FROM_Y_UP @ to_metres if is_y_up else to_metres


class _Attributes:
    """Attributes of a prim at a time, by the names that USD gives them."""

    def __init__(
        self,
        prim: Any,
        time: Any,
        clipping: ClippingBudget,
        meshes: dict[Any, trimesh.Trimesh | str],
    ) -> None:
        self._prim, self._time = prim, time
        self.clipping = clipping
        self._meshes = meshes  # by path: instances share them

    def mesh(self) -> trimesh.Trimesh | str:
        """The mesh of a Mesh, or why there is none."""
        shared = self._prim.GetPrimInPrototype() if self._prim.IsInstanceProxy() else self._prim
        path = shared.GetPath()
        if path not in self._meshes:
            self._meshes[path] = _triangles(self)
        return self._meshes[path]

    def __getitem__(self, name: str) -> Any:
        assert name in ATTRIBUTES, name
        return self._prim.GetAttribute(name).Get(self._time)

    def array(self, name: str, dtype: type) -> np.ndarray:
        """An array, empty if it is not written."""
        value = self[name]
        return np.array([] if value is None else value, dtype)

    @property
    def frame(self) -> np.ndarray:
        """The frame (4, 4) whose z axis is the one that `axis` names."""
        return frame_along(np.array(_AXES[self["axis"]]), np.zeros(3))


def _cube(values: _Attributes, matrix: np.ndarray) -> Obstacle:
    size = values["size"]
    return place_shape(Cuboid((size, size, size)), matrix)


def _sphere(values: _Attributes, matrix: np.ndarray) -> Obstacle:
    return place_shape(Sphere(values["radius"]), matrix)


def _cylinder(values: _Attributes, matrix: np.ndarray) -> Obstacle:
    return place_shape(Cylinder(values["radius"], values["height"]), matrix @ values.frame)


def _capsule(values: _Attributes, matrix: np.ndarray) -> Obstacle:
    return place_shape(Capsule(values["radius"], values["height"]), matrix @ values.frame)


def _cone(values: _Attributes, matrix: np.ndarray) -> Obstacle:
    radius, height = values["radius"], values["height"]
    if not (radius > 0.0 and height > 0.0):
        raise ValueError(f"radius and height must be positive, got {radius} and {height}")
    return place_mesh(frustum_around(radius, 0.0, height), matrix @ values.frame)


def _cylinder_1(values: _Attributes, matrix: np.ndarray) -> Obstacle:
    top, bottom, height = values["radiusTop"], values["radiusBottom"], values["height"]
    if top == bottom:
        return place_shape(Cylinder(top, height), matrix @ values.frame)
    if not (min(top, bottom) >= 0.0 and 0.0 < max(top, bottom, height) < np.inf and height > 0.0):
        raise ValueError(
            f"radii must not be negative, height positive, got {bottom}, {top} and {height}"
        )
    return place_mesh(frustum_around(bottom, top, height), matrix @ values.frame)


def _capsule_1(values: _Attributes, matrix: np.ndarray) -> Obstacle:
    top, bottom, length = values["radiusTop"], values["radiusBottom"], values["height"]
    if top == bottom:
        return place_shape(Capsule(top, length), matrix @ values.frame)
    if not (min(top, bottom, length) >= 0.0 and max(top, bottom, length) < np.inf):
        raise ValueError(f"radii and height must not be negative, got {bottom}, {top} and {length}")
    return place_mesh(tapered_capsule_around(bottom, top, length), matrix @ values.frame)


def _mesh(values: _Attributes, matrix: np.ndarray) -> Obstacle | str:
    mesh = values.mesh()
    return mesh if isinstance(mesh, str) else place_mesh(mesh, matrix)


def _triangles(values: _Attributes) -> trimesh.Trimesh | str:
    points = values.array("points", np.float64).reshape(-1, 3)
    counts = values.array("faceVertexCounts", np.int64)
    indices = values.array("faceVertexIndices", np.int64)
    if len(values.array("primvars:skel:jointIndices", np.int64)):
        return "a Mesh that bends with a skeleton"
    if len(points) == 0 or len(counts) == 0:
        return "a Mesh without faces"
    if not np.isfinite(points).all():
        raise ValueError("points must be finite")
    if counts.min() < 3 or counts.sum() != len(indices):
        raise ValueError(
            f"faceVertexCounts must be 3 or more and add up to {len(indices)}, got "
            f"{shown(counts[:50].tolist())}"
        )
    if indices.min() < 0 or indices.max() >= len(points):
        raise ValueError(
            f"faceVertexIndices must be from 0 to {len(points) - 1}, got {indices.min()} to "
            f"{indices.max()}"
        )
    holes = values.array("holeIndices", np.int64)
    if len(holes):
        kept = ~np.isin(np.arange(len(counts)), holes)
        counts, indices = counts[kept], indices[np.repeat(kept, counts)]
        if len(counts) == 0:
            return "a Mesh without faces"
    faces = triangulate(points, counts, indices, values.clipping)
    if values["orientation"] == "leftHanded":
        faces = faces[:, ::-1]
    return trimesh.Trimesh(points, faces, process=False)


_READERS = {
    "Cube": _cube,
    "Sphere": _sphere,
    "Cylinder": _cylinder,
    "Capsule": _capsule,
    "Cone": _cone,
    "Cylinder_1": _cylinder_1,
    "Capsule_1": _capsule_1,
    "Mesh": _mesh,
}

"""USD stages as scenes: their shapes and meshes in metres, with z up."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.io.content import Content, Obstacle, errors_begin_with
from warp_collision.io.placing import (
    frame_along,
    place_mesh,
    place_shape,
    require_invertible,
)
from warp_collision.io.polygons import ClippingBudget, triangulate
from warp_collision.io.solids import frustum_around
from warp_collision.messages import MAX_SHOWN, escaped, shown
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Sphere

MAX_BYTES = 1 << 30  # of the file itself; OpenUSD opens what it refers to
MAX_PRIMS = 1_000_000  # with what instances repeat
_AXES = {"X": (1.0, 0.0, 0.0), "Y": (0.0, 1.0, 0.0), "Z": (0.0, 0.0, 1.0)}
_Z_FROM_Y_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])


def add_usd(content: Content, path: Path) -> None:
    """Adds the shapes and meshes of a USD stage under their paths, without the first slash.

    If anything on the stage has a collision API, only what has one, itself or by an ancestor, is an
    obstacle, visible or not; else all that is visible is. Lengths are scaled to metres
    (`metersPerUnit`, 0.01 if not written), and a stage with y up (also if not written) is turned so
    that z is up. Values are those at the earliest time. Subdivision surfaces are their cages.

    Raises:
        ImportError: usd-core is not installed.
        ValueError: the stage or a layer of it cannot be opened, or a prim is wrong.
    """
    try:
        Usd, UsdGeom = _module("Usd"), _module("UsdGeom")
    except ImportError as error:
        raise ImportError(
            f"{content.where}: reading USD needs usd-core: pip install 'warp-collision[usd]'"
        ) from error
    with errors_begin_with(content.where):
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"a file must have at most {MAX_BYTES} bytes, got {size}")
        stage = Usd.Stage.Open(str(path))
        failed = stage.GetCompositionErrors()
        if failed:
            raise ValueError(f"all parts of a stage must open, got {failed[0]}")
        time = Usd.TimeCode.EarliestTime()
        transforms = UsdGeom.XformCache(time)
        to_metres = _metres_from_stage(stage)
        prims = list(_prims(stage, content))
        has_physics = any(collides is not None for _, collides in prims)
        for prim, collides in prims:
            name = str(prim.GetPath()).removeprefix("/")
            reason = _reason(prim, collides, has_physics, time)
            if reason is not None:
                content.leave_out(name, reason)
                continue
            with errors_begin_with(f"{content.where}: {escaped(name, MAX_SHOWN)}"):
                local = np.array(transforms.GetLocalToWorldTransform(prim), np.float64).T
                matrix = to_metres @ local
                require_invertible(matrix, "the transform")
                found = _READERS[prim.GetTypeName()](
                    _Attributes(prim, time, content.clipping), matrix
                )
            if isinstance(found, str):
                content.leave_out(name, found)
            else:
                content.add(name, found)


def _metres_from_stage(stage: Any) -> np.ndarray:
    """The transform (4, 4) from a stage's units and axes."""
    UsdGeom = _module("UsdGeom")
    unit = float(UsdGeom.GetStageMetersPerUnit(stage))
    if not 0.0 < unit < np.inf:
        raise ValueError(f"metersPerUnit must be positive, got {unit}")
    to_metres = np.diag([unit, unit, unit, 1.0])
    is_y_up = UsdGeom.GetStageUpAxis(stage) == UsdGeom.Tokens.y
    return _Z_FROM_Y_UP @ to_metres if is_y_up else to_metres


def _reason(prim: Any, collides: bool | None, has_physics: bool, time: Any) -> str | None:
    """Why something with a geometry is left out, None if it is not."""
    UsdGeom = _module("UsdGeom")
    kind = prim.GetTypeName()
    if has_physics and not collides:
        off = "its collision is off" if collides is False else "it has no collision API"
        return f"a {kind}: {off}"
    hidden = UsdGeom.Imageable(prim).ComputeVisibility(time) == UsdGeom.Tokens.invisible
    if hidden and not has_physics:
        return f"a {kind}: it is invisible"
    return None if kind in _READERS else f"a {kind}"


def _module(name: str) -> Any:
    return importlib.import_module(f"pxr.{name}")


def _prims(stage: Any, content: Content) -> Iterator[tuple[Any, bool | None]]:
    """What has a geometry, and whether it collides: None if nothing is said."""
    Usd, UsdGeom, UsdPhysics = (_module(name) for name in ("Usd", "UsdGeom", "UsdPhysics"))
    registry = Usd.SchemaRegistry()
    predicate = Usd.TraverseInstanceProxies(Usd.PrimDefaultPredicate)
    collides: dict[Any, bool | None] = {}
    prims = iter(Usd.PrimRange(stage.GetPseudoRoot(), predicate))
    for count, prim in enumerate(prims):
        if count > MAX_PRIMS:
            raise ValueError(f"a stage must have at most {MAX_PRIMS} prims, got more")
        path = prim.GetPath()
        collides[path] = collides.get(path.GetParentPath())
        if prim.HasAPI(UsdPhysics.CollisionAPI):
            collides[path] = bool(UsdPhysics.CollisionAPI(prim).GetCollisionEnabledAttr().Get())
        kind = prim.GetTypeName()
        if prim.IsA(UsdGeom.PointInstancer):
            content.leave_out(str(path).removeprefix("/"), "instances of a PointInstancer")
            prims.PruneChildren()
        elif prim.IsA(UsdGeom.Gprim):
            yield prim, collides[path]
        elif kind and registry.FindConcretePrimDefinition(kind) is None:
            content.leave_out(str(path).removeprefix("/"), f"of an unknown type, {shown(kind)}")


class _Attributes:
    """Attributes of a prim at a time, by the names that USD gives them."""

    def __init__(self, prim: Any, time: Any, clipping: ClippingBudget) -> None:
        self._prim, self._time = prim, time
        self.clipping = clipping

    def __getitem__(self, name: str) -> Any:
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


def _capsule_1(values: _Attributes, matrix: np.ndarray) -> Obstacle | str:
    top, bottom = values["radiusTop"], values["radiusBottom"]
    if top != bottom:
        return "a tapered capsule: its radii differ"
    return place_shape(Capsule(top, values["height"]), matrix @ values.frame)


def _mesh(values: _Attributes, matrix: np.ndarray) -> Obstacle | str:
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
    return place_mesh(trimesh.Trimesh(points, faces, process=False), matrix)


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

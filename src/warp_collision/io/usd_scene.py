"""USD stages as scenes: their shapes and meshes in metres, with z up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.extras import require_extra
from warp_collision.formats.usd_stage import read_stage
from warp_collision.io.placing import (
    Z_FROM_Y_UP,
    frame_along,
    place_mesh,
    place_plane,
    place_shape,
    require_invertible,
)
from warp_collision.io.scene_builder import Obstacle, SceneBuilder, errors_begin_with
from warp_collision.io.solids import frustum_around, tapered_capsule_around, triangulate
from warp_collision.messages import MAX_REPR, escaped, short_repr
from warp_collision.obstacles.shapes import Capsule, Cone, Cuboid, Cylinder, Sphere

_AXES = {"X": (1.0, 0.0, 0.0), "Y": (0.0, 1.0, 0.0), "Z": (0.0, 0.0, 1.0)}


def add_usd(
    builder: SceneBuilder,
    path: Path,
    package_dirs: Sequence[Path] = (),
    values: Mapping[str, float] | None = None,
) -> None:
    """Adds the shapes and meshes of a USD stage under their paths, without the first slash.

    If anything on the stage has a collision API, the obstacles are the prims that have one, or
    whose ancestor has one, visible or not. Otherwise they are all visible prims except guides.
    Instances are there one by one, those of a PointInstancer as `instancer/0`, `instancer/1` and so
    on, with the paths below their prototypes. Lengths are scaled to metres (`metersPerUnit`, 0.01
    if not written), and a stage with y up (also if not written) is turned so that z is up. Values
    are those at the earliest time. Subdivision surfaces are their cages. A Plane is solid below and
    has no end, whatever size it is drawn with, as in physics engines.

    Bodies are moved so that revolute and prismatic joints have given values. A joint has the name
    of its prim, or its path if others have this name.

    Layers lie in the folder of the file or below, or in `package_dirs` or below.

    Raises:
        ImportError: usd-core is not installed.
        ValueError: the stage or a layer of it cannot be opened, or a prim or a joint value is
            wrong.
    """
    require_extra("pxr.Usd", f"{builder.where}: reading USD")
    with errors_begin_with(builder.where):
        stage = read_stage(path, package_dirs, values)
        unit = stage.metres_per_unit
        to_metres = np.diag([unit, unit, unit, 1.0])
        if stage.is_y_up:
            to_metres = Z_FROM_Y_UP @ to_metres
    for name, reason in stage.left_out:
        builder.leave_out(name, reason)
    meshes: dict[int, trimesh.Trimesh | str] = {}  # by the values, which instances share
    for prim in stage.prims:
        with errors_begin_with(f"{builder.where}: {escaped(prim.name, MAX_REPR)}"):
            matrix = to_metres @ prim.frame
            require_invertible(matrix, "the transform")
            if prim.kind == "Mesh":
                if id(prim.values) not in meshes:
                    meshes[id(prim.values)] = _triangles(prim.values, builder)
                mesh = meshes[id(prim.values)]
                obstacle = mesh if isinstance(mesh, str) else place_mesh(mesh, matrix)
            else:
                obstacle = _obstacle(prim.kind, prim.values, matrix)
        if isinstance(obstacle, str):
            builder.leave_out(prim.name, obstacle)
        else:
            builder.add(prim.name, obstacle)


def _obstacle(kind: str, values: dict[str, Any], matrix: np.ndarray) -> Obstacle:
    """A prim that has a formula, or a mesh around it."""
    if "axis" in values:
        matrix = matrix @ frame_along(np.array(_AXES[values["axis"]]), np.zeros(3))
    match kind:
        case "Plane":
            return place_plane(matrix)
        case "Cube":
            size = values["size"]
            return place_shape(Cuboid((size, size, size)), matrix)
        case "Sphere":
            return place_shape(Sphere(values["radius"]), matrix)
        case "Cone":
            return place_shape(Cone(values["radius"], values["height"]), matrix)
        case "Cylinder":
            return place_shape(Cylinder(values["radius"], values["height"]), matrix)
        case "Capsule":
            return place_shape(Capsule(values["radius"], values["height"]), matrix)
    top, bottom, height = values["radiusTop"], values["radiusBottom"], values["height"]
    is_capsule = kind == "Capsule_1"
    if top == bottom:
        return place_shape((Capsule if is_capsule else Cylinder)(top, height), matrix)
    is_valid = min(top, bottom) >= 0.0 and max(top, bottom, height) < np.inf
    sizes = f"got {bottom}, {top} and {height}"
    if is_capsule:
        if not (is_valid and height >= 0.0):
            raise ValueError(f"radii and height must not be negative, {sizes}")
        return place_mesh(tapered_capsule_around(bottom, top, height), matrix)
    if not (is_valid and height > 0.0):
        raise ValueError(f"radii must not be negative, height positive, {sizes}")
    return place_mesh(frustum_around(bottom, top, height), matrix)


def _triangles(values: dict[str, Any], builder: SceneBuilder) -> trimesh.Trimesh | str:
    points = values["points"].reshape(-1, 3)
    counts = values["faceVertexCounts"]
    indices = values["faceVertexIndices"]
    if len(values["primvars:skel:jointIndices"]):
        return "a Mesh that bends with a skeleton"
    if len(points) == 0 or len(counts) == 0:
        return "a Mesh without faces"
    if not np.isfinite(points).all():
        raise ValueError("points must be finite")
    if counts.min() < 3 or counts.sum() != len(indices):
        raise ValueError(
            f"faceVertexCounts must be 3 or more and add up to {len(indices)}, got "
            f"{short_repr(counts[:50].tolist())}"
        )
    if indices.min() < 0 or indices.max() >= len(points):
        raise ValueError(
            f"faceVertexIndices must be from 0 to {len(points) - 1}, got {indices.min()} to "
            f"{indices.max()}"
        )
    holes = values["holeIndices"]
    if len(holes):
        kept = ~np.isin(np.arange(len(counts)), holes)
        counts, indices = counts[kept], indices[np.repeat(kept, counts)]
        if len(counts) == 0:
            return "a Mesh without faces"
    faces = triangulate(points, counts, indices, builder.clipping)
    if values["orientation"] == "leftHanded":
        faces = faces[:, ::-1]
    return trimesh.Trimesh(points, faces, process=False)

"""MuJoCo models as scenes: MJCF files as MuJoCo compiles them, at their initial positions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import trimesh

from warp_collision.extras import require_extra
from warp_collision.formats.mjcf_model import MjcfGeom, MjcfModel, read_model
from warp_collision.io.placing import matrix_from, place_mesh, place_plane, place_shape
from warp_collision.io.scene_builder import Obstacle, SceneBuilder, errors_begin_with
from warp_collision.messages import escaped
from warp_collision.obstacles.height_field import HeightField
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Sphere

_VISUAL = "it collides with nothing: contype and conaffinity are 0, and no contact pair names it"
_PLUGIN = "a signed distance of a plugin"


def add_mjcf(builder: SceneBuilder, path: Path, values: Mapping[str, float] | None = None) -> None:
    """Adds the geoms of an MJCF file, where bodies stand at the model's start (`qpos0`).

    Hinges and slides have the given values instead, in the units of `qpos`.

    A geom has its name; without one that of its body, if it is the only one there, else `body/0`,
    `body/1` and so on. Meshes are as they are, where MuJoCo collides with their convex hulls.
    Height fields have MuJoCo's own triangles, down to their bases. Planes are solid below and have
    no end, whatever size they are drawn with, as in MuJoCo.

    Raises:
        ImportError: mujoco is not installed.
        ValueError: MuJoCo cannot compile it, or a joint value is wrong; it names the file.
    """
    require_extra("mujoco", f"{builder.where}: reading MJCF")
    with errors_begin_with(builder.where):
        model = read_model(path, values or {})
        frames: list[np.ndarray] = []
        for parent, pose in model.bodies:
            frames.append(frames[parent] @ _matrix(pose) if frames else _matrix(pose))
    for geom in model.geoms:
        entry = f"geom {escaped(geom.name)!r}"
        if not geom.collides:
            builder.leave_out(entry, _VISUAL)
        elif geom.kind == "sdf" and geom.is_plugin:
            builder.leave_out(entry, _PLUGIN)
        else:
            with errors_begin_with(f"{builder.where}: {entry}"):
                obstacle = _obstacle(model, geom, frames[geom.body] @ _matrix(geom.pose))
            builder.add(geom.name, obstacle)
    for name in model.flexes:
        builder.leave_out(f"flex {name!r}", "a body that deforms")


def _obstacle(model: MjcfModel, geom: MjcfGeom, matrix: np.ndarray) -> Obstacle:
    x, y, z = (float(size) for size in geom.sizes)
    match geom.kind:
        case "plane":
            return place_plane(matrix)
        case "box":
            return place_shape(Cuboid((2.0 * x, 2.0 * y, 2.0 * z)), matrix)
        case "sphere":
            return place_shape(Sphere(x), matrix)
        case "capsule":
            return place_shape(Capsule(radius=x, length=2.0 * y), matrix)
        case "cylinder":
            return place_shape(Cylinder(radius=x, height=2.0 * y), matrix)
        case "ellipsoid":
            return place_shape(Sphere(1.0), matrix @ np.diag([x, y, z, 1.0]))
        case "hfield":
            heights, (half_x, half_y, top, base) = model.height_fields[geom.data]
            # Rows are along y.
            field = HeightField(top * heights.T, (2.0 * half_x, 2.0 * half_y), base)
            return place_shape(field, matrix)
        case "mesh" | "sdf":
            vertices, faces = model.meshes[geom.data]
            if len(faces) == 0:
                raise ValueError("a mesh must have faces, got none")
            return place_mesh(trimesh.Trimesh(vertices, faces, process=False), matrix)
    raise ValueError(f"a geom of this type is not known, got {geom.kind}")


def _matrix(pose: np.ndarray) -> np.ndarray:
    # MuJoCo lets infinity pass; products must not overflow, and worlds have a limit of their own.
    if not (np.abs(pose) < 1e100).all():
        raise ValueError(
            f"positions and quaternions must be finite and below 1e100, got {pose[:3].tolist()} "
            f"and {pose[3:].tolist()}"
        )
    return matrix_from(pose)

"""Worlds in cuRobo's layout, as YAML or as a mapping: kinds of obstacles, names, values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import trimesh

from warp_collision.formats.files import MAX_COORDINATE, is_file
from warp_collision.io.fields import Fields, check_keys, mapping
from warp_collision.io.placing import (
    frame_along,
    matrix_from,
    place_shape,
    transformed,
)
from warp_collision.io.scene import MeshFiles
from warp_collision.io.scene_builder import Obstacle, SceneBuilder
from warp_collision.messages import MAX_REPR, errors_at, escaped, short_repr
from warp_collision.obstacles.geometry import read_mesh
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Shape, Sphere
from warp_collision.validate import check_padding

# Irrelevant to collisions.
_IGNORED = (
    *("color", "texture", "texture_id", "material"),
    *("vertex_colors", "vertex_normals", "face_colors"),
)
_OURS = ("padding", "enabled")
_LEFT_OUT = {
    "blox": "a map of nvblox",
    "voxel": "a grid of voxels",
}


def add_mapping(builder: SceneBuilder, document: object, folder: Path) -> None:
    """Adds the obstacles of a mapping of kinds to names to values.

    Args:
        builder: gets the obstacles; its `where` begins errors.
        document: `warp_collision.io.load_world_file` has the format.
        folder: what relative file paths start from.

    Raises:
        FileNotFoundError: a mesh file does not exist.
        ValueError: anything else that is wrong; it names the key, the rule and the value.
    """
    where = builder.where
    kinds = mapping(document, where, "kinds of obstacles")
    check_keys(kinds, where, allowed=("mesh", *_SHAPES, *_LEFT_OUT))
    files = MeshFiles()
    kind_of: dict[str, str] = {}
    for kind, entries in kinds.items():
        named = {} if entries is None else entries  # `cuboid:` with nothing behind it
        for name, entry in mapping(named, f"{where}: {kind}", "names").items():
            if not isinstance(name, str) or not name:
                raise ValueError(
                    f"{where}: {kind}: names must be text, got {short_repr(name)}; quote it"
                )
            if name in kind_of:
                raise ValueError(
                    f"{where}: names must be unique, got {short_repr(name)} in {kind_of[name]} and "
                    f"in {kind}"
                )
            kind_of[name] = kind
            if kind in _LEFT_OUT:
                builder.leave_out(f"{kind}.{name}", _LEFT_OUT[kind])
                continue
            fields = Fields(f"{where}: {kind}.{escaped(name, MAX_REPR)}", entry, folder)
            builder.add(name, _obstacle(kind, fields, files))


def _obstacle(kind: str, fields: Fields, files: MeshFiles) -> Obstacle:
    geometry, pose = _mesh(fields, files) if kind == "mesh" else _SHAPES[kind](fields)
    with errors_at(fields.where, (TypeError, ValueError)):
        padding = check_padding("padding", fields.values.get("padding", 0.0))
    return Obstacle(geometry, pose, padding, fields.flag("enabled", True))


def _expect(fields: Fields, *required: str, optional: tuple[str, ...] = ()) -> None:
    fields.expect(*required, optional=(*optional, *_IGNORED, *_OURS))


def _mesh(fields: Fields, files: MeshFiles) -> tuple[trimesh.Trimesh, tuple[float, ...]]:
    _expect(fields, "pose", optional=("file_path", "vertices", "faces", "scale"))
    fields.expect_either("file_path", "vertices")
    stretch = np.eye(3)
    if "scale" in fields:
        count = 1 if isinstance(fields.values["scale"], int | float) else 3
        stretch *= fields.lengths("scale", "1 or 3 positive numbers", count, positive=True)
    if "vertices" in fields:
        return transformed(_triangles(fields), stretch), fields.pose()
    path = fields.folder / fields.text("file_path")
    if not is_file(path):
        raise FileNotFoundError(
            f"{fields.where}.file_path must be an existing file, got {short_repr(str(path))}"
        )
    with errors_at(f"{fields.where}.file_path"):
        mesh = files.read(path)
    return transformed(mesh, stretch), fields.pose()


def _triangles(fields: Fields) -> trimesh.Trimesh:
    _expect(fields, "vertices", "faces", "pose", optional=("scale",))
    with errors_at(fields.where, (TypeError, ValueError)):
        vertices, faces = read_mesh(
            "of vertices", (fields.values["vertices"], fields.values["faces"])
        )
    return trimesh.Trimesh(vertices, faces, process=False)


def _cuboid(fields: Fields) -> tuple[Shape, tuple[float, ...]]:
    _expect(fields, "dims", "pose")
    x, y, z = fields.lengths("dims", "3 positive numbers", 3, positive=True)
    return Cuboid((x, y, z)), fields.pose()


def _cylinder(fields: Fields) -> tuple[Shape, tuple[float, ...]]:
    _expect(fields, "radius", "height", "pose")
    return Cylinder(fields.length("radius"), fields.length("height")), fields.pose()


def _sphere(fields: Fields) -> tuple[Shape, tuple[float, ...]]:
    _expect(fields, "radius", optional=("pose", "position"))
    fields.expect_either("pose", "position")
    if "pose" in fields:
        pose = fields.pose()
    else:
        pose = (*fields.lengths("position", "3 finite numbers x, y, z", 3), 1.0, 0.0, 0.0, 0.0)
    return Sphere(fields.length("radius")), pose


def _capsule(fields: Fields) -> tuple[Shape, tuple[float, ...]]:
    """A capsule from base to tip, which are points of the frame that the pose is of."""
    _expect(fields, "radius", "base", "tip", "pose")
    base, tip = (
        np.array(fields.lengths(end, "3 finite numbers x, y, z", 3)) for end in ("base", "tip")
    )
    length = float(np.linalg.norm(tip - base))
    if length >= MAX_COORDINATE:
        raise ValueError(f"{fields.where} must be shorter than 1e9, got {length}")
    pose_from_capsule = frame_along(tip - base, 0.5 * (base + tip))
    shape = Capsule(fields.length("radius"), length)
    placed = place_shape(shape, matrix_from(fields.pose()) @ pose_from_capsule)
    return shape, placed.pose


_SHAPES: dict[str, Callable[[Fields], tuple[Shape, tuple[float, ...]]]] = {
    "cuboid": _cuboid,
    "sphere": _sphere,
    "capsule": _capsule,
    "cylinder": _cylinder,
}

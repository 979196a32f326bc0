"""Worlds in cuRobo's layout, as YAML or as a mapping: kinds of obstacles, names, values."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import trimesh

from warp_collision.io.curobo_voxels import has_values, read_voxels
from warp_collision.io.fields import Fields, check_keys, mapping
from warp_collision.io.placing import transformed
from warp_collision.io.scene import MeshFiles
from warp_collision.io.scene_builder import Obstacle, SceneBuilder, warn_of_millimetres
from warp_collision.io.shape_entries import ENTRIES, expect_keys, file_of
from warp_collision.messages import MAX_REPR, errors_at, escaped, short_repr
from warp_collision.obstacles.geometry import SignMethod, read_mesh
from warp_collision.validate import check_padding

_LEFT_OUT = {
    "blox": "a map of nvblox",
    "voxel": "a grid of voxels without values",
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
    check_keys(kinds, where, allowed=("mesh", *ENTRIES, *_LEFT_OUT))
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
            if kind in _LEFT_OUT and not (kind == "voxel" and has_values(entry)):
                builder.leave_out(f"{kind}.{name}", _LEFT_OUT[kind])
                continue
            fields = Fields(f"{where}: {kind}.{escaped(name, MAX_REPR)}", entry, folder)
            builder.add(name, _obstacle(kind, fields, files))


def _obstacle(kind: str, fields: Fields, files: MeshFiles) -> Obstacle:
    if kind == "mesh":
        geometry, pose = _mesh(fields, files)
    else:
        read = read_voxels if kind == "voxel" else ENTRIES[kind].read
        geometry, pose = read(fields)
    with errors_at(fields.where, (TypeError, ValueError)):
        padding = check_padding("padding", fields.values.get("padding", 0.0))
    enabled, sign = fields.flag("enabled", True), fields.values.get("sign", "auto")
    if sign not in get_args(SignMethod):
        known = ", ".join(get_args(SignMethod))
        raise ValueError(f"{fields.where}.sign must be one of {known}, got {short_repr(sign)}")
    return Obstacle(geometry, pose, padding, enabled, sign)


def _mesh(fields: Fields, files: MeshFiles) -> tuple[trimesh.Trimesh, tuple[float, ...]]:
    expect_keys(fields, "pose", optional=("file_path", "vertices", "faces", "scale", "sign"))
    fields.expect_either("file_path", "vertices")
    stretch = np.eye(3)
    if "scale" in fields:
        count = 1 if isinstance(fields.values["scale"], int | float) else 3
        stretch *= fields.lengths("scale", "1 or 3 positive numbers", count, positive=True)
    if "vertices" in fields:
        return transformed(_triangles(fields), stretch), fields.pose()
    path = file_of(fields)
    with errors_at(f"{fields.where}.file_path"):
        mesh = transformed(files.read(path), stretch)
    warn_of_millimetres(fields.where, mesh, "scale: 0.001")
    return mesh, fields.pose()


def _triangles(fields: Fields) -> trimesh.Trimesh:
    expect_keys(fields, "vertices", "faces", "pose", optional=("scale", "sign"))
    with errors_at(fields.where, (TypeError, ValueError)):
        vertices, faces = read_mesh(
            "of vertices", (fields.values["vertices"], fields.values["faces"])
        )
    return trimesh.Trimesh(vertices, faces, process=False)

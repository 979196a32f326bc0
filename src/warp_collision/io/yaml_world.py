"""Worlds in cuRobo's layout, as YAML or as a mapping: kinds of obstacles, names, values.

Grids of distances are of one of its two conventions. Up to 0.7 values are positive inside, and a
grid has a layer more along each axis than its `dims` have voxels. From 0.8 on values are negative
inside, and there are as many as `dims` have, rounded. Both have x running slowest.
(`VoxelGrid.get_grid_shape` of its geom/types.py, and the kernels that read the values.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
import trimesh

from warp_collision.formats.files import MAX_COORDINATE, is_file
from warp_collision.formats.point_files import read_arrays
from warp_collision.io.fields import Fields, check_keys, mapping, plain
from warp_collision.io.placing import frame_along, matrix_from, place_shape, transformed
from warp_collision.io.scene import MeshFiles
from warp_collision.io.scene_builder import Obstacle, SceneBuilder, warn_of_millimetres
from warp_collision.messages import MAX_REPR, any_error_at, errors_at, escaped, short_repr
from warp_collision.obstacles.geometry import SignMethod, read_mesh
from warp_collision.obstacles.height_field import HeightField
from warp_collision.obstacles.point_cloud import PointCloud
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import (
    Capsule,
    Cone,
    Cuboid,
    Cylinder,
    HalfSpace,
    Shape,
    Sphere,
)
from warp_collision.obstacles.voxel_grid import EsdfGrid, VoxelGrid
from warp_collision.validate import check_padding

Pose = tuple[float, ...]

_OF_ALL = ("padding", "enabled")
# Irrelevant to collisions.
_IGNORED = "color texture texture_id material vertex_colors vertex_normals face_colors".split()
_UNUSED = ("feature_dtype", "xyzr_tensor")
_VOXEL = 0.02  # cuRobo's default [m]
_HALF_DIAGONAL = 0.5 * 3.0**0.5
_LEFT_OUT = {"blox": "a map of nvblox", "voxel": "a grid of voxels without values"}


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


class ShapeEntry(NamedTuple):
    """How a kind of obstacle stands in a file.

    Attributes:
        read: from the values of an entry to the shape and its pose.
        write: to the values of an entry at the shape's own pose; arrays of sensed shapes stand in a
            file beside it.
    """

    read: Callable[[Fields], tuple[Shape | Sensed, Pose]]
    write: Callable[[Any], dict[str, Any]]


def expect_keys(fields: Fields, *required: str, optional: tuple[str, ...] = ()) -> None:
    """Raises unless an entry has the required keys, and no others but those that any may have."""
    fields.expect(*required, optional=(*optional, *_IGNORED, *_OF_ALL))


def _cuboid(fields: Fields) -> tuple[Shape, Pose]:
    expect_keys(fields, "dims", "pose")
    x, y, z = fields.lengths("dims", "3 positive numbers", 3, positive=True)
    return Cuboid((x, y, z)), fields.pose()


def _of_radius_and_height(fields: Fields, kind: type[Cylinder | Cone]) -> tuple[Shape, Pose]:
    expect_keys(fields, "radius", "height", "pose")
    return kind(fields.length("radius"), fields.length("height")), fields.pose()


def _sphere(fields: Fields) -> tuple[Shape, Pose]:
    expect_keys(fields, "radius", optional=("pose", "position"))
    fields.expect_either("pose", "position")
    if "pose" in fields:
        pose = fields.pose()
    else:
        pose = (*fields.lengths("position", "3 finite numbers x, y, z", 3), 1.0, 0.0, 0.0, 0.0)
    return Sphere(fields.length("radius")), pose


def _capsule(fields: Fields) -> tuple[Shape, Pose]:
    """A capsule from base to tip, which are points of the frame that the pose is of."""
    expect_keys(fields, "radius", "base", "tip", "pose")
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


def _base_and_tip(shape: Capsule) -> dict[str, Any]:
    end = 0.5 * shape.length
    return {"radius": shape.radius, "base": [0.0, 0.0, -end], "tip": [0.0, 0.0, end]}


def _half_space(fields: Fields) -> tuple[Shape, Pose]:
    """Of this library; its pose may be left out."""
    expect_keys(fields, "normal", optional=("offset", "pose"))
    normal = tuple(fields.lengths("normal", "3 finite numbers, not all 0", 3))
    offset = fields.lengths("offset", "a number", 1)[0] if "offset" in fields else 0.0
    with errors_at(fields.where, (ValueError,)):
        shape = HalfSpace(normal, offset)  # pyright: ignore[reportArgumentType]
    return shape, fields.pose() if "pose" in fields else (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def _point_cloud(fields: Fields) -> tuple[Sensed, Pose]:
    expect_keys(fields, "file_path", "pose", optional=("radius", "drop_invalid", "capacity"))
    radius = fields.length("radius") if "radius" in fields else None
    options: dict[str, Any] = {"drop_invalid": fields.flag("drop_invalid", False)}
    options["capacity"] = plain(fields.values.get("capacity"))
    path = file_of(fields)
    with errors_at(fields.where):
        return PointCloud.from_file(path, radius, **options), fields.pose()


def _updates(cloud: PointCloud) -> dict[str, Any]:
    """What is to hold of updates of a cloud, where it is not the default."""
    values = {"drop_invalid": cloud.drop_invalid, "capacity": cloud.capacity}
    return {key: value for key, value in values.items() if value}


def _from_arrays(kind: type[Sensed]) -> Callable[[Fields], tuple[Sensed, Pose]]:
    """Reads a sensed shape that is an .npz file of its arguments."""

    def read(fields: Fields) -> tuple[Sensed, Pose]:
        expect_keys(fields, "file_path", "pose")
        path = file_of(fields)
        with errors_at(fields.where):
            return kind.from_file(path), fields.pose()

    return read


def file_of(fields: Fields) -> Path:
    """The file that an entry names, which exists."""
    path = fields.folder / fields.text("file_path")
    if not is_file(path):
        raise FileNotFoundError(
            f"{fields.where}.file_path must be an existing file, got {short_repr(str(path))}"
        )
    return path


# By the names of their kinds, in the order in which files have them.
ENTRIES = {
    "cuboid": ShapeEntry(_cuboid, asdict),
    "sphere": ShapeEntry(_sphere, asdict),
    "capsule": ShapeEntry(_capsule, _base_and_tip),
    "cylinder": ShapeEntry(partial(_of_radius_and_height, kind=Cylinder), asdict),
    "cone": ShapeEntry(partial(_of_radius_and_height, kind=Cone), asdict),
    "half_space": ShapeEntry(_half_space, asdict),
    "point_cloud": ShapeEntry(_point_cloud, _updates),
    "voxel_grid": ShapeEntry(_from_arrays(VoxelGrid), lambda grid: {}),
    "esdf_grid": ShapeEntry(_from_arrays(EsdfGrid), lambda grid: {}),
    "height_field": ShapeEntry(_from_arrays(HeightField), lambda field: {}),
}


class Convention(NamedTuple):
    """What a version of cuRobo makes of values.

    Attributes:
        inside: the sign of values inside of obstacles.
        shape: nx, ny, nz.
        origin: (3,) lower corner of the first voxel where its kernels look for it [m].
    """

    inside: str
    shape: tuple[int, ...]
    origin: np.ndarray


def has_values(entry: Any) -> bool:
    """Whether an entry of `voxel` is an obstacle; others say how much room is wanted."""
    return isinstance(entry, dict) and ("feature_tensor" in entry or "file_path" in entry)


def read_voxels(fields: Fields) -> tuple[EsdfGrid, Pose]:
    """The grid of an entry of `voxel`, and its pose; see `load_world_file`."""
    optional = ("voxel_size", "feature_tensor", "file_path", "error", "inside", *_UNUSED)
    expect_keys(fields, "dims", "pose", optional=optional)
    fields.expect_either("feature_tensor", "file_path")
    dims = np.array(fields.lengths("dims", "3 positive numbers", 3, positive=True))
    edge = fields.length("voxel_size") if "voxel_size" in fields else _VOXEL
    values = _values(fields)
    chosen = _convention(fields, values, dims / edge, edge)
    # Its own list of centers is off from what its kernels read, where a side is an odd number of
    # voxels: the values may be of either.
    listed = -edge * np.round(0.5 * dims / edge)
    error = _HALF_DIAGONAL * edge
    if "error" in fields:
        error = fields.lengths("error", "a number that is not negative", 1)[0]
    error += float(np.linalg.norm(chosen.origin - listed)) * (1.0 + 1e-9)
    shaped = values.reshape(chosen.shape)
    with errors_at(fields.where, (TypeError, ValueError)):
        grid = EsdfGrid(
            -shaped if chosen.inside == "positive" else shaped,
            edge,
            error=error,
            origin=chosen.origin,
        )
    return grid, fields.pose()


def _convention(fields: Fields, values: Any, counts: np.ndarray, edge: float) -> Convention:
    """The convention that has as many values, by what the entry says of their sign.

    Args:
        fields: the entry.
        values: an array or tensor of any shape.
        counts: (3,) sides in voxels.
        edge: of a voxel [m].
    """
    nearest = np.round(counts)
    # Within 1e-4 of a whole number cuRobo takes that.
    whole = np.where(np.abs(counts - nearest) < 1e-4, nearest, np.floor(counts))
    known = (
        Convention("positive", tuple((1 + whole).astype(int).tolist()), -0.5 * edge * counts),
        Convention("negative", tuple(nearest.astype(int).tolist()), -0.5 * edge * nearest),
    )
    given = tuple(values.shape)
    sizes = [size for size in given if size > 1]
    size = math.prod(given)
    fitting = [
        one
        for one in known
        if math.prod(one.shape) == size
        and (len(sizes) < 2 or sizes == [n for n in one.shape if n > 1])
    ]
    inside = fields.values.get("inside")
    if inside is not None:
        if inside not in ("positive", "negative"):
            raise ValueError(
                f"{fields.where}.inside must be 'positive' or 'negative', the sign of values "
                f"inside of obstacles, got {short_repr(inside)}"
            )
        own = [one for one in fitting if one.inside == inside]
        fitting = own or [one._replace(inside=inside) for one in fitting]
    if not fitting:
        raise ValueError(
            f"{fields.where} must have values for {' x '.join(map(str, known[1].shape))} voxels, "
            f"or up to cuRobo 0.7 for {' x '.join(map(str, known[0].shape))}, got {given}"
        )
    if len(fitting) > 1:
        raise ValueError(
            f"{fields.where} must say whether values inside of obstacles are positive, as up to "
            "cuRobo 0.7, or negative, as from 0.8 on: inside: positive, or inside: negative; their "
            "number does not tell"
        )
    return fitting[0]


def _values(fields: Fields) -> Any:
    """Values as an array or a tensor of floating point numbers."""
    if "file_path" in fields:
        path = file_of(fields)
        with any_error_at(f"{fields.where}.file_path"):
            arrays = read_arrays(path)
            if len(arrays) != 1:
                raise ValueError(
                    f"must be an .npz file of one array, got {short_repr(list(arrays))}"
                )
            return next(iter(arrays.values()))
    given = fields.values["feature_tensor"]
    if isinstance(given, torch.Tensor):
        return given.detach().cpu()
    with errors_at(f"{fields.where}.feature_tensor", (TypeError, ValueError)):
        array = np.asarray(given)
        return array if array.dtype.kind not in "iu" else array.astype(np.float32)

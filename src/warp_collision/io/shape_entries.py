"""Exact shapes as entries of worlds in cuRobo's layout: one way in and out for each kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warp_collision.formats.files import MAX_COORDINATE, is_file
from warp_collision.io.fields import Fields, plain
from warp_collision.io.placing import frame_along, matrix_from, place_shape
from warp_collision.messages import errors_at, short_repr
from warp_collision.obstacles.height_field import HeightField
from warp_collision.obstacles.point_cloud import PointCloud
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Shape, Sphere
from warp_collision.obstacles.voxel_grid import EsdfGrid, VoxelGrid

Pose = tuple[float, ...]

_OF_ALL = ("padding", "enabled")
# Irrelevant to collisions.
_IGNORED = (
    *("color", "texture", "texture_id", "material"),
    *("vertex_colors", "vertex_normals", "face_colors"),
)


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


def _cylinder(fields: Fields) -> tuple[Shape, Pose]:
    expect_keys(fields, "radius", "height", "pose")
    return Cylinder(fields.length("radius"), fields.length("height")), fields.pose()


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


def _dims(shape: Cuboid) -> dict[str, Any]:
    return {"dims": list(shape.dims)}


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
    "cuboid": ShapeEntry(_cuboid, _dims),
    "sphere": ShapeEntry(_sphere, asdict),
    "capsule": ShapeEntry(_capsule, _base_and_tip),
    "cylinder": ShapeEntry(_cylinder, asdict),
    "point_cloud": ShapeEntry(_point_cloud, _updates),
    "voxel_grid": ShapeEntry(_from_arrays(VoxelGrid), lambda grid: {}),
    "esdf_grid": ShapeEntry(_from_arrays(EsdfGrid), lambda grid: {}),
    "height_field": ShapeEntry(_from_arrays(HeightField), lambda field: {}),
}

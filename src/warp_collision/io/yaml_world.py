"""YAML worlds, to obstacles and poses: mesh files and exact shapes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.formats.mesh_files import MAX_COORDINATE, is_file
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.io.scene import Obstacle, pose_of, read_parts, transformed
from warp_collision.messages import MAX_SHOWN, escaped, shown
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Sphere

_IGNORED = ("color",)  # what makes no difference to a collision


def read_yaml_world(path: Path) -> dict[str, Obstacle]:
    """Reads the obstacles of a YAML file; `warp_collision.io.load_world_file` has the format."""
    return world_from_mapping(read_yaml(path), where=escaped(str(path)), folder=path.parent)


def world_from_mapping(document: object, *, where: str, folder: Path) -> dict[str, Obstacle]:
    """Obstacles from what a world file says, as a mapping of kinds to names to values.

    Args:
        document: for example ``{"cuboid": {"table": {"dims": [1, 1, 1], "pose": [...]}}}``;
            `warp_collision.io.load_world_file` has the format.
        where: what errors begin with.
        folder: what relative file paths start from.

    Raises:
        FileNotFoundError: a mesh file does not exist.
        ValueError: anything else that is wrong; it names the key, the rule and the value.
    """
    kinds = _mapping(document, where, "kinds of obstacles")
    _check_keys(kinds, where, allowed=tuple(_READERS))
    obstacles: dict[str, Obstacle] = {}
    kind_of: dict[str, str] = {}
    for kind, entries in kinds.items():
        named = {} if entries is None else entries  # `cuboid:` with nothing behind it
        for name, entry in _mapping(named, f"{where}: {kind}", "names").items():
            if not isinstance(name, str) or not name:
                raise ValueError(
                    f"{where}: {kind}: names must be text, got {shown(name)}; quote it"
                )
            if name in kind_of:
                raise ValueError(
                    f"{where}: names must be unique, got {shown(name)} in {kind_of[name]} and "
                    f"in {kind}"
                )
            kind_of[name] = kind
            place = f"{where}: {kind}.{escaped(name, MAX_SHOWN)}"
            obstacles[name] = _READERS[kind](_Fields(place, _mapping(entry, place, "keys"), folder))
    return obstacles


class _Fields:
    """The fields of one obstacle, read with errors that say where they stand."""

    def __init__(self, where: str, values: dict[str, Any], folder: Path) -> None:
        self.where = where
        self.values = values
        self.folder = folder  # what relative paths start from

    def expect(self, *required: str, optional: tuple[str, ...] = ()) -> None:
        _check_keys(self.values, self.where, allowed=(*required, *optional, *_IGNORED))
        for key in required:
            if key not in self.values:
                raise ValueError(f"{self.where}: the key {key!r} is required, got {self._keys()}")

    def expect_either(self, first: str, second: str) -> None:
        if (first in self.values) == (second in self.values):
            raise ValueError(
                f"{self.where}: either {first!r} or {second!r} is required, got {self._keys()}"
            )

    def text(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not value:
            raise ValueError(f"{self.where}.{key} must be text, got {shown(value)}")
        return value

    def numbers(self, key: str, rule: str, count: int, *, positive: bool = False) -> list[float]:
        """Reads a list of finite numbers, or a bare number where `count` is 1."""
        value = self.values[key]
        values = [value] if count == 1 else value
        good = (
            isinstance(values, list)
            and len(values) == count
            and all(_is_number(item) and (item > 0 or not positive) for item in values)
        )
        if not good:
            raise ValueError(f"{self.where}.{key} must be {rule}, got {shown(value)}")
        return [float(item) for item in values]

    def lengths(self, key: str, rule: str, count: int, *, positive: bool = False) -> list[float]:
        """Reads numbers that a coordinate can have."""
        values = self.numbers(key, rule, count, positive=positive)
        if max(map(abs, values)) >= MAX_COORDINATE:
            raise ValueError(f"{self.where}.{key} must be below 1e9, got {shown(self.values[key])}")
        return values

    def length(self, key: str) -> float:
        return self.lengths(key, "a positive number", 1, positive=True)[0]

    def point(self, key: str) -> list[float]:
        return self.lengths(key, "3 finite numbers x, y, z", 3)

    def pose(self) -> tuple[float, ...]:
        rule = "7 finite numbers x, y, z, qw, qx, qy, qz with a quaternion that is not zero"
        values = self.numbers("pose", rule, 7)
        if max(map(abs, values[:3])) >= MAX_COORDINATE:
            raise ValueError(
                f"{self.where}.pose must have a position below 1e9, got {shown(values)}"
            )
        norm = math.hypot(*values[3:])
        if not 0.0 < norm < math.inf:
            raise ValueError(f"{self.where}.pose must be {rule}, got {shown(self.values['pose'])}")
        return (*values[:3], *(value / norm for value in values[3:]))

    def _keys(self) -> str:
        return ", ".join(self.values) or "none"


def _mesh(fields: _Fields) -> Obstacle:
    fields.expect("file_path", "pose", optional=("scale",))
    path = fields.folder / fields.text("file_path")
    if not is_file(path):
        raise FileNotFoundError(
            f"{fields.where}.file_path must be an existing file, got {shown(str(path))}"
        )
    try:
        parts = read_parts(path)
    except ValueError as error:
        raise ValueError(f"{fields.where}.file_path: {error}") from error
    stretch = np.eye(3)
    if "scale" in fields.values:
        count = 3 if isinstance(fields.values["scale"], list) else 1
        stretch *= fields.lengths("scale", "1 or 3 positive numbers", count, positive=True)
    meshes = [
        transformed(
            part.mesh, stretch @ part.world_from_mesh[:3, :3], stretch @ part.world_from_mesh[:3, 3]
        )
        for part in parts
    ]
    return _joined(meshes), fields.pose()


def _joined(meshes: list[trimesh.Trimesh]) -> trimesh.Trimesh:
    # One name is one obstacle, which is enabled and moved as a whole.
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    return trimesh.Trimesh(
        vertices=np.concatenate([mesh.vertices for mesh in meshes]),
        faces=np.concatenate(
            [mesh.faces + start for mesh, start in zip(meshes, starts, strict=False)]
        ),
        process=False,
    )


def _cuboid(fields: _Fields) -> Obstacle:
    fields.expect("dims", "pose")
    x, y, z = fields.lengths("dims", "3 positive numbers", 3, positive=True)
    return Cuboid((x, y, z)), fields.pose()


def _cylinder(fields: _Fields) -> Obstacle:
    fields.expect("radius", "height", "pose")
    return Cylinder(fields.length("radius"), fields.length("height")), fields.pose()


def _sphere(fields: _Fields) -> Obstacle:
    fields.expect("radius", optional=("pose", "position"))
    fields.expect_either("pose", "position")
    if "pose" in fields.values:
        pose = fields.pose()
    else:
        pose = (*fields.point("position"), 1.0, 0.0, 0.0, 0.0)
    return Sphere(fields.length("radius")), pose


def _capsule(fields: _Fields) -> Obstacle:
    fields.expect("radius", "base", "tip", "pose")
    base, tip = np.array(fields.point("base")), np.array(fields.point("tip"))
    length = float(np.linalg.norm(tip - base))
    if length >= MAX_COORDINATE:
        raise ValueError(f"{fields.where}.tip must be within 1e9 of the base, got {length:g}")
    # The axis of a capsule is z, and its middle the origin.
    pose_from_capsule = np.eye(4)
    if length > 0.0:
        turn = trimesh.geometry.align_vectors((0.0, 0.0, 1.0), (tip - base) / length)
        pose_from_capsule = np.array(turn)
    pose_from_capsule[:3, 3] = 0.5 * (base + tip)
    pose = fields.pose()
    world_from_pose = trimesh.transformations.quaternion_matrix(pose[3:])
    world_from_pose[:3, 3] = pose[:3]
    capsule = Capsule(fields.length("radius"), length)
    return capsule, pose_of(world_from_pose @ pose_from_capsule)


_READERS: dict[str, Callable[[_Fields], Obstacle]] = {
    "mesh": _mesh,
    "cuboid": _cuboid,
    "cylinder": _cylinder,
    "sphere": _sphere,
    "capsule": _capsule,
}


def _mapping(value: object, where: str, what: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a mapping of {what}, got {shown(value)}")
    return value


def _check_keys(values: dict, where: str, *, allowed: tuple[str, ...]) -> None:
    for key in values:
        if key not in allowed:
            raise ValueError(f"{where}: keys must be among {', '.join(allowed)}, got {shown(key)}")


def _is_number(value: object) -> bool:
    # bool is a kind of int in Python, but `yes` is no length.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max

"""URDF files as scenes: the collision shapes of all links, at given joint values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.joint_values import joint_value, require_joint_names
from warp_collision.formats.urdf_document import read_urdf
from warp_collision.formats.urdf_joints import (
    followed_joints,
    joints_from_root,
    read_joint,
    with_limits,
)
from warp_collision.formats.urdf_shapes import UrdfShape, read_shape, required
from warp_collision.io.placing import place_mesh, place_plane, place_shape, transformed
from warp_collision.io.scene import MeshFiles
from warp_collision.io.scene_builder import Obstacle, SceneBuilder, errors_begin_with
from warp_collision.messages import errors_at, short_repr
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Shape, Sphere

_JOINTS = ("fixed", "revolute", "continuous", "prismatic", "floating", "planar")


def add_urdf(
    builder: SceneBuilder,
    path: Path,
    package_dirs: Sequence[Path] = (),
    values: Mapping[str, float] | None = None,
) -> None:
    """Adds the collision shapes of a URDF file; the root link stands in the world's origin.

    A link of one shape gives its name to it; shapes of others are `link/name` or, without a name,
    `link/0`, `link/1` and so on.

    Joints have the given values, or 0; those that mimic others follow them.

    Raises:
        ValueError: anything that is wrong; it names the file, the link or joint, and the value.
    """
    robot = read_urdf(path, planes=True)
    with errors_begin_with(builder.where):
        frames, files = _link_frames(robot, values or {}), MeshFiles()
        for link in robot.findall("link"):
            name = required(link, "name")
            collisions = link.findall("collision")
            for index, collision in enumerate(collisions):
                where = f"link {short_repr(name)}"
                record = read_shape(
                    collision,
                    where=where,
                    folder=path.parent,
                    package_dirs=package_dirs,
                )
                full = name
                if len(collisions) > 1:
                    full = f"{name}/{collision.get('name') or index}"
                builder.add(full, _placed(record, frames[name], where, files))
            if not collisions and link.find("visual") is not None:
                builder.leave_out(
                    f"link {short_repr(name)}", "it has visuals and no collision shape"
                )


def shape_of(record: UrdfShape) -> Shape | None:
    """The exact shape that a URDF file means; None for a mesh or a plane."""
    match record.kind:
        case "box":
            return Cuboid((record.sizes[0], record.sizes[1], record.sizes[2]))
        case "sphere":
            return Sphere(*record.sizes)
        case "cylinder":
            return Cylinder(*record.sizes)
        case "capsule":
            return Capsule(*record.sizes)
    return None


def _placed(
    record: UrdfShape, world_from_link: np.ndarray, where: str, files: MeshFiles
) -> Obstacle:
    world_from_shape = world_from_link @ record.link_from_shape
    if record.kind == "plane":
        x, y, z = record.sizes
        return place_plane(world_from_shape, (x, y, z))
    shape = shape_of(record)
    if shape is not None:
        return place_shape(shape, world_from_shape)
    assert record.path is not None  # a mesh has one
    with errors_at(where):
        mesh = files.read(record.path)
    return place_mesh(transformed(mesh, np.diag(record.sizes)), world_from_shape)


def _link_frames(robot: Element, values: Mapping[str, float]) -> dict[str, np.ndarray]:
    """The frame (4, 4) of each link in that of the root, at joint values."""
    names = [required(link, "name") for link in robot.findall("link")]
    elements = {required(element, "name"): element for element in robot.findall("joint")}
    joints = [read_joint(element, _JOINTS) for element in robot.findall("joint")]
    root, ordered = joints_from_root(names, joints)
    gears = followed_joints(joints)
    free = {joint.name: joint for joint in joints if joint.moves and joint.mimic is None}
    at = dict.fromkeys(free, 0.0)
    for name, value in require_joint_names("joints", values, free).items():
        joint = with_limits(free[name], elements[name])
        slides = joint.kind == "prismatic"
        at[name] = joint_value(f"joints[{name!r}]", value, joint.limits, slides=slides)
    frames = {root: np.eye(4)}
    for joint in ordered:
        motion = joint.parent_from_joint
        if joint.moves:
            gear = gears[joint.name]
            motion = joint.parent_from_child(gear.multiplier * at[gear.joint] + gear.offset)
        frames[joint.child] = frames[joint.parent] @ motion
    return frames

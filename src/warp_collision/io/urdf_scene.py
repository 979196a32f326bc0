"""URDF files as scenes: the collision shapes of all links, at joint values 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.urdf_document import read_urdf
from warp_collision.formats.urdf_shapes import (
    UrdfShape,
    read_numbers,
    read_origin,
    read_shape,
    required,
    rotation_terms,
)
from warp_collision.io.content import Content, Obstacle, errors_begin_with
from warp_collision.io.placing import place_mesh, place_shape, transformed
from warp_collision.io.scene import MeshFiles
from warp_collision.messages import errors_at, shown
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Shape, Sphere

_JOINTS = ("fixed", "revolute", "continuous", "prismatic", "floating", "planar")


def add_urdf(content: Content, path: Path, package_dirs: Sequence[Path] = ()) -> None:
    """Adds the collision shapes of a URDF file; the root link stands in the world's origin.

    A link of one shape gives its name to it; shapes of others are `link/name` or, without a name,
    `link/0`, `link/1` and so on.

    Raises:
        ValueError: anything that is wrong; it names the file, the link or joint, and the value.
    """
    robot = read_urdf(path)
    version = robot.get("version", "1.0")
    with errors_begin_with(content.where):
        frames, files = _link_frames(robot), MeshFiles()
        for link in robot.findall("link"):
            name = required(link, "name")
            collisions = link.findall("collision")
            for index, collision in enumerate(collisions):
                where = f"link {shown(name)}"
                found = read_shape(
                    collision,
                    where=where,
                    version=version,
                    folder=path.parent,
                    package_dirs=package_dirs,
                )
                full = name
                if len(collisions) > 1:
                    full = f"{name}/{collision.get('name') or index}"
                content.add(full, _placed(found, frames[name], where, files))
            if not collisions and link.find("visual") is not None:
                content.leave_out(f"link {shown(name)}", "it has visuals and no collision shape")


def shape_of(found: UrdfShape) -> Shape | None:
    """The exact shape that a URDF file means; None for a mesh."""
    sizes = found.sizes
    if found.kind == "box":
        return Cuboid((sizes[0], sizes[1], sizes[2]))
    if found.kind == "sphere":
        return Sphere(sizes[0])
    if found.kind == "cylinder":
        return Cylinder(radius=sizes[0], height=sizes[1])
    return Capsule(radius=sizes[0], length=sizes[1]) if found.kind == "capsule" else None


def _placed(
    found: UrdfShape, world_from_link: np.ndarray, where: str, files: MeshFiles
) -> Obstacle:
    world_from_shape = world_from_link @ found.link_from_shape
    shape = shape_of(found)
    if shape is not None:
        return place_shape(shape, world_from_shape)
    assert found.path is not None  # a mesh has one
    with errors_at(where):
        mesh = files.read(found.path)
    return place_mesh(transformed(mesh, np.diag(found.sizes)), world_from_shape)


def _link_frames(robot: Element) -> dict[str, np.ndarray]:
    """The frame (4, 4) of each link in that of the root, at joint values 0."""
    names = [required(link, "name") for link in robot.findall("link")]
    frames: dict[str, np.ndarray] = {}
    joints: dict[str, list[tuple[str, np.ndarray]]] = {}
    children: set[str] = set()
    known = {*names}
    if len(known) != len(names):
        raise ValueError("names of links must be unique, got one twice")
    for joint in robot.findall("joint"):
        where = f"joint {shown(required(joint, 'name'))}"
        ends = [joint.find(end) for end in ("parent", "child")]
        parent, child = (None if end is None else end.get("link") for end in ends)
        if parent not in known or child not in known:
            raise ValueError(f"{where} must join links that exist, got {shown([parent, child])}")
        if child in children:
            raise ValueError(f"{where} must be the only joint to its child, got {shown(child)}")
        children.add(str(child))
        joints.setdefault(str(parent), []).append((str(child), _motion(joint, where)))
    reached = [name for name in names if name not in children]
    frames.update({name: np.eye(4) for name in reached})
    if len(reached) != 1:
        raise ValueError(f"the links must form one tree, got the roots {shown(reached)}")
    for name in reached:
        for child, parent_from_child in joints.get(name, ()):
            frames[child] = frames[name] @ parent_from_child
            reached.append(child)
    if len(reached) != len(names):
        loop = sorted(known - {*reached})
        raise ValueError(f"the links must form one tree, got a loop through {shown(loop)}")
    return frames


def _motion(joint: Element, where: str) -> np.ndarray:
    """The transform (4, 4) of a joint at the value 0, or at its offset if it mimics another."""
    kind = required(joint, "type", where)
    if kind not in _JOINTS:
        raise ValueError(f"{where} must be of type {', '.join(_JOINTS)}, got {shown(kind)}")
    origin = read_origin(joint, where)
    mimic = joint.find("mimic")
    if mimic is None or kind not in ("revolute", "continuous", "prismatic"):
        return origin
    value = float(read_numbers(mimic.get("offset", "0"), 1, f"{where}: offset")[0])
    found = joint.find("axis")
    axis = read_numbers(
        "1 0 0" if found is None else found.get("xyz", "1 0 0"), 3, f"{where}: axis"
    )
    length = np.linalg.norm(axis)
    if length == 0.0:
        raise ValueError(f"{where}: axis must not be zero")
    motion = np.eye(4)
    if kind == "prismatic":
        motion[:3, 3] = value * axis / length
    else:
        sine, versine = rotation_terms(axis / length)
        motion[:3, :3] += np.sin(value) * sine + (1.0 - np.cos(value)) * versine
    return origin @ motion

"""A robot as spheres on its links: reads a URDF, batched and differentiable forward kinematics."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
import torch

from warp_collision.formats.mesh_files import is_file
from warp_collision.formats.urdf_document import read_urdf
from warp_collision.formats.urdf_shapes import (
    read_numbers,
    read_origin,
    required,
    rotation_terms,
)
from warp_collision.messages import escaped, shown
from warp_collision.robot.kinematics import MovingJoint
from warp_collision.robot.robot_model import RobotModel

_MOVING = ("revolute", "continuous", "prismatic")


class LinkMesh(NamedTuple):
    """A mesh that a link looks like."""

    link: str
    path: Path
    link_from_mesh: np.ndarray  # (4, 4) [m], the scale included


@dataclass(frozen=True, eq=False)
class _Joint:
    name: str
    kind: str
    parent: str
    child: str
    parent_from_joint: np.ndarray  # (4, 4)
    axis: np.ndarray  # (3,), unit
    limits: tuple[float, float]


@dataclass
class _Chain:
    """The moving frames of a robot, with every fixed joint folded into a constant (float64).

    Frame 0 is the root link; frame i + 1 moves with joint i. A link or sphere is constant in its
    frame.
    """

    order: list[int] = field(default_factory=list)  # joints, parents before children
    parents: dict[int, int] = field(default_factory=dict)  # joint to the frame that it moves in
    terms: dict[int, np.ndarray] = field(default_factory=dict)  # joint to its (4, 4, 4) factors
    link_frame: dict[str, int] = field(default_factory=dict)
    frame_from_link: dict[str, np.ndarray] = field(default_factory=dict)


class RobotSpheres(RobotModel):
    """The spheres on a robot's links, moved by forward kinematics.

    Reads the links, the joints and the `<sphere>` collision shapes of a URDF file; other collision
    shapes raise, as they would be left out of a collision check unnoticed; so do links, joints and
    shapes inside other elements than their own (but for `<gazebo>`, `<transmission>` and
    `<ros2_control>`), a second shape in one `<collision>`, and macros of xacro. The root link
    stands in the origin of the world frame. Joints: revolute, continuous, prismatic (one joint
    value each, in the order of the file) and fixed.

    Args:
        urdf: Path of the URDF file. Mesh file names in it are relative to its folder.

    Attributes:
        joint_names: Names of the joints that move, in the order of the joint values.
        joint_limits: (n_joints, 2) float32, lower and upper limit [rad or m], infinite without one.
        link_names: Names of all links, in the order of the file.
        sphere_links: For each sphere the name of the link that it sits on. Spheres are in the order
            of the file, but those that move with the same joint stand together.
        link_meshes: The visual meshes of the links (not loaded).

    Raises:
        FileNotFoundError: `urdf` does not exist.
        ValueError: It is not a URDF, not a tree, has no spheres, or has parts not supported here.
            The message names the file and the link or joint.

    Example:
        >>> from importlib.resources import files
        >>> from warp_collision.robot import RobotSpheres
        >>> panda = RobotSpheres(str(files("warp_collision.assets") / "panda" / "panda.urdf"))
        >>> len(panda.joint_names), len(panda.sphere_links)
        (7, 59)
        >>> panda.link_meshes[0].link  # a `LinkMesh`
        'panda_link0'
    """

    def __init__(self, urdf: str | os.PathLike[str]):
        path = Path(urdf)
        if not is_file(path):
            raise FileNotFoundError(f"urdf must be an existing file, got {shown(str(path))}")
        robot = read_urdf(path)
        try:
            self._read(robot, path.parent)
        except ValueError as error:
            raise ValueError(f"{escaped(str(path))}: {error}") from error

    def _read(self, robot: Element, folder: Path) -> None:
        self.link_names = tuple(required(link, "name") for link in robot.findall("link"))
        joints = [_read_joint(element) for element in robot.findall("joint")]
        moving = [joint for joint in joints if joint.kind != "fixed"]
        self.joint_names = tuple(joint.name for joint in moving)
        self.joint_limits = torch.tensor([j.limits for j in moving], dtype=torch.float32)
        self.joint_limits = self.joint_limits.reshape(-1, 2)
        chain = _fold_chain(self.link_names, joints)

        spheres = [s for link in robot.findall("link") for s in _read_spheres(link)]
        spheres.sort(key=lambda sphere: chain.link_frame[sphere[0]])  # stable
        if not spheres:
            raise ValueError("links must have <sphere> collision shapes, got none")
        self.sphere_links = tuple(link for link, _, _ in spheres)
        self.link_meshes = [
            mesh for link in robot.findall("link") for mesh in _read_meshes(link, folder)
        ]
        place = {0: 0} | {joint + 1: i for i, joint in enumerate(chain.order, start=1)}
        frames = [chain.link_frame[link] for link in self.sphere_links]
        centers = [chain.frame_from_link[link] @ [*center, 1.0] for link, center, _ in spheres]
        points = np.stack(centers)
        points[:, 3] = [radius for _, _, radius in spheres]
        moved = [_moving_joint(chain, joint, place) for joint in chain.order]
        link_frames = np.array([place[chain.link_frame[name]] for name in self.link_names])
        self._build(
            moved,
            np.array([place[frame] for frame in frames]),
            points,
            link_frames,
            np.stack([chain.frame_from_link[name] for name in self.link_names]),
            [(joint.parent, joint.child) for joint in joints],
        )


def _read_joint(element: Element) -> _Joint:
    name, kind = required(element, "name"), required(element, "type")
    if kind not in (*_MOVING, "fixed"):
        raise ValueError(
            f"joint {shown(name)} must be of type {', '.join(_MOVING)} or fixed, got {shown(kind)}"
        )
    if kind != "fixed" and element.find("mimic") is not None:
        raise ValueError(f"joint {shown(name)} must not mimic another: that is not supported")
    ends = [element.find(end) for end in ("parent", "child")]
    if ends[0] is None or ends[1] is None:
        raise ValueError(f"joint {shown(name)} must have a <parent> and a <child>")
    axis, limits = np.array([1.0, 0.0, 0.0]), (-np.inf, np.inf)
    if kind != "fixed":
        axis = _read_axis(element, name)
        limit = element.find("limit")
        if limit is not None and kind != "continuous":
            low, high = (limit.get(side, "0") for side in ("lower", "upper"))
            limits = tuple(read_numbers(f"{low} {high}", 2, f"the limits of joint {shown(name)}"))
    parent, child = (required(end, "link") for end in ends if end is not None)
    return _Joint(name, kind, parent, child, read_origin(element), axis, limits)


def _read_axis(element: Element, name: str) -> np.ndarray:
    found = element.find("axis")
    text = "1 0 0" if found is None else found.get("xyz", "1 0 0")
    axis = read_numbers(text, 3, f"the axis of joint {shown(name)}")
    length = np.linalg.norm(axis)
    if length == 0.0:
        raise ValueError(f"the axis of joint {shown(name)} must not be zero, got {shown(text)}")
    return axis / length


def _joint_terms(joint: _Joint, frame_from_joint: np.ndarray) -> np.ndarray:
    """Returns (4, 4, 4): the transform's factors of 1, sin(value), 1 - cos(value) and value."""
    motion = np.zeros((4, 4, 4))
    motion[0] = np.eye(4)
    if joint.kind == "prismatic":
        motion[3, :3, 3] = joint.axis
    else:
        motion[1, :3, :3], motion[2, :3, :3] = rotation_terms(joint.axis)
    return frame_from_joint @ motion


def _moving_joint(chain: _Chain, joint: int, place: dict[int, int]) -> MovingJoint:
    """A joint with the frames in the order of the chain."""
    parent_from_joint, sine, _, slide = chain.terms[joint]
    turn = parent_from_joint[:3, :3].T @ sine[:3, :3]  # the cross product with the axis
    slides = bool(slide.any())
    along = parent_from_joint[:3, :3].T @ slide[:3, 3]
    axis = along if slides else np.array([turn[2, 1], turn[0, 2], turn[1, 0]])
    return MovingJoint(place[chain.parents[joint]], parent_from_joint, axis, slides, joint)


def _check_names(links: tuple[str, ...], joints: list[_Joint]) -> str:
    """Raises unless every name is unique and every link is there; returns the root link."""
    for names in (links, tuple(joint.name for joint in joints)):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise ValueError(f"names must be unique, got {shown(twice)} twice")
    known = set(links)
    for joint in joints:
        for link in (joint.parent, joint.child):
            if link not in known:
                raise ValueError(
                    f"joint {shown(joint.name)} must join links that exist, got {shown(link)}"
                )
    children = {joint.child for joint in joints}
    roots = [link for link in links if link not in children]
    if len(roots) != 1 or len(children) != len(joints):
        raise ValueError(f"the links must form one tree, got the roots {shown(roots)}")
    return roots[0]


def _fold_chain(links: tuple[str, ...], joints: list[_Joint]) -> _Chain:
    """Walks the tree from its root and folds the fixed joints into constants."""
    root = _check_names(links, joints)
    index = {j.name: i for i, j in enumerate(j for j in joints if j.kind != "fixed")}
    chain = _Chain(link_frame={root: 0}, frame_from_link={root: np.eye(4)})
    below: dict[str, list[_Joint]] = {}
    for joint in joints:
        below.setdefault(joint.parent, []).append(joint)
    reached = [root]
    for link in reached:
        for joint in below.get(link, []):
            frame = chain.link_frame[link]
            frame_from_joint = chain.frame_from_link[link] @ joint.parent_from_joint
            if joint.kind != "fixed":
                moved = index[joint.name]
                chain.order.append(moved)
                chain.parents[moved] = frame
                chain.terms[moved] = _joint_terms(joint, frame_from_joint)
                frame, frame_from_joint = moved + 1, np.eye(4)
            chain.link_frame[joint.child] = frame
            chain.frame_from_link[joint.child] = frame_from_joint
            reached.append(joint.child)
    if len(reached) != len(links):
        loop = sorted(set(links) - set(reached))
        raise ValueError(f"the links must form one tree, got a loop through {shown(loop)}")
    return chain


def _read_spheres(link: Element) -> list[tuple[str, np.ndarray, float]]:
    """Returns (link, center (3,) in the link's frame [m], radius [m]) of each collision shape."""
    name = required(link, "name")
    spheres = []
    for collision in link.findall("collision"):
        sphere = collision.find("geometry/sphere")
        if sphere is None:
            raise ValueError(
                f"collision shapes must be <sphere>, got another on link {shown(name)}"
            )
        where = f"the sphere radius of link {shown(name)}"
        radius = float(read_numbers(required(sphere, "radius"), 1, where)[0])
        if radius < 0.0:
            raise ValueError(f"{where} must not be negative, got {radius}")
        spheres.append((name, read_origin(collision)[:3, 3], radius))
    return spheres


def _read_meshes(link: Element, folder: Path) -> list[LinkMesh]:
    """Returns the visual meshes of a link; other visual shapes are left out."""
    meshes = []
    for visual in link.findall("visual"):
        mesh = visual.find("geometry/mesh")
        if mesh is not None:
            scale = np.diag([*read_numbers(mesh.get("scale", "1 1 1"), 3, "a mesh scale"), 1.0])
            path = folder / required(mesh, "filename")
            meshes.append(LinkMesh(required(link, "name"), path, read_origin(visual) @ scale))
    return meshes

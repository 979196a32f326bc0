"""Links, joints and shapes of a URDF, as records with checked values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.mesh_files import is_file
from warp_collision.formats.urdf_document import read_urdf
from warp_collision.formats.urdf_shapes import (
    find_mesh,
    read_numbers,
    read_origin,
    read_shape,
    required,
)
from warp_collision.messages import errors_at, escaped, shown
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Shape

_MOVING = ("revolute", "continuous", "prismatic")
_KINDS = (*_MOVING, "fixed", "floating")
PathLike = str | os.PathLike[str]


class LinkMesh(NamedTuple):
    """A mesh of a link."""

    link: str
    path: Path
    link_from_mesh: np.ndarray  # (4, 4) [m], the scale included


class LinkShape(NamedTuple):
    """A shape of a link that is neither a sphere nor a mesh."""

    link: str
    shape: Shape
    link_from_shape: np.ndarray  # (4, 4) [m]


class LinkSphere(NamedTuple):
    """A `<sphere>` of a link."""

    link: str
    center: np.ndarray  # (3,) in the frame of the link [m]
    radius: float  # [m]


class Mimic(NamedTuple):
    """The joint that a mimic joint follows: its value is multiplier * other + offset."""

    joint: str
    multiplier: float
    offset: float


@dataclass(frozen=True, eq=False)
class Joint:
    """A joint of a URDF.

    Attributes:
        name: its name.
        kind: revolute, continuous, prismatic, fixed or floating.
        parent: a link.
        child: the link that it moves.
        parent_from_joint: (4, 4) [m].
        axis: (3,), unit, in the frame of the joint.
        limits: lower and upper [rad or m], infinite without.
        mimic: the joint that it follows, if any.
    """

    name: str
    kind: str
    parent: str
    child: str
    parent_from_joint: np.ndarray
    axis: np.ndarray
    limits: tuple[float, float]
    mimic: Mimic | None = None

    @property
    def moves(self) -> bool:
        """Whether it has a value; floating joints have none, the base pose moves them."""
        return self.kind in _MOVING


@dataclass(frozen=True, eq=False)
class Description:
    """The content of a URDF.

    Attributes:
        link_names: in the order of the file.
        joints: in the order of the file.
        collisions: collision shapes, in the order of the file.
        visuals: visual meshes; other visual shapes are ignored.
    """

    link_names: tuple[str, ...]
    joints: tuple[Joint, ...]
    collisions: tuple[LinkSphere | LinkShape | LinkMesh, ...]
    visuals: tuple[LinkMesh, ...]


def read_description(urdf: PathLike, package_dirs: Sequence[PathLike] = ()) -> Description:
    """Reads a URDF file; mesh files are not loaded.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is no URDF, or a value in it breaks a rule. The message names the file and
            the link or joint.
    """
    path = Path(urdf)
    if not is_file(path):
        raise FileNotFoundError(f"urdf must be an existing file, got {shown(str(path))}")
    robot = read_urdf(path)
    if isinstance(package_dirs, str | os.PathLike):
        raise TypeError(f"package_dirs must be a sequence of folders, got {package_dirs!r}")
    folders = tuple(Path(folder) for folder in package_dirs)
    source = _Source(path.parent, folders, robot.get("version", "1.0"))
    links = robot.findall("link")
    with errors_at(escaped(str(path))):
        return Description(
            tuple(required(link, "name") for link in links),
            tuple(_read_joint(element) for element in robot.findall("joint")),
            tuple(
                _read_shape(required(link, "name"), collision, source)
                for link in links
                for collision in link.findall("collision")
            ),
            tuple(mesh for link in links for mesh in _read_visuals(link, source)),
        )


class _Source(NamedTuple):
    """Folders and URDF version that shapes are read with."""

    folder: Path
    package_dirs: tuple[Path, ...]
    version: str

    def mesh_path(self, name: str, where: str) -> Path:
        """The path of a mesh file, which need not exist.

        Links may have no visual mesh, or spheres from elsewhere; a missing file raises when it is
        read.
        """
        try:
            return find_mesh(name, where, self.folder, self.package_dirs)
        except ValueError:
            return Path(name) if "://" in name else self.folder / name


def _read_joint(element: Element) -> Joint:
    name, kind = required(element, "name"), required(element, "type")
    if kind not in _KINDS:
        raise ValueError(
            f"joint {shown(name)} must be of type {', '.join(_KINDS)}, got {shown(kind)}"
        )
    ends = [element.find(end) for end in ("parent", "child")]
    if ends[0] is None or ends[1] is None:
        raise ValueError(f"joint {shown(name)} must have a <parent> and a <child>")
    axis, limits, mimic = np.array([1.0, 0.0, 0.0]), (-np.inf, np.inf), None
    if kind in _MOVING:
        axis, mimic = _read_axis(element, name), _read_mimic(element, name)
        limit = element.find("limit")
        if limit is not None and kind != "continuous":
            low, high = (limit.get(side, "0") for side in ("lower", "upper"))
            limits = tuple(read_numbers(f"{low} {high}", 2, f"the limits of joint {shown(name)}"))
    parent, child = (required(end, "link") for end in ends if end is not None)
    return Joint(name, kind, parent, child, read_origin(element), axis, limits, mimic)


def _read_axis(element: Element, name: str) -> np.ndarray:
    found = element.find("axis")
    text = "1 0 0" if found is None else found.get("xyz", "1 0 0")
    axis = read_numbers(text, 3, f"the axis of joint {shown(name)}")
    length = np.linalg.norm(axis)
    if length == 0.0:
        raise ValueError(f"the axis of joint {shown(name)} must not be zero, got {shown(text)}")
    return axis / length


def _read_mimic(element: Element, name: str) -> Mimic | None:
    found = element.find("mimic")
    if found is None:
        return None
    gear = f"{found.get('multiplier', '1')} {found.get('offset', '0')}"
    multiplier, offset = read_numbers(gear, 2, f"multiplier and offset of joint {shown(name)}")
    return Mimic(required(found, "joint"), float(multiplier), float(offset))


def _read_shape(
    link: str, collision: Element, source: _Source
) -> LinkSphere | LinkShape | LinkMesh:
    """Returns the one shape of a collision element."""
    where = f"link {shown(link)}"
    sphere, mesh = (collision.find(f"geometry/{kind}") for kind in ("sphere", "mesh"))
    if mesh is not None:
        return _read_mesh(link, mesh, read_origin(collision, where), source)
    if sphere is not None:
        text = required(sphere, "radius", where)
        radius = float(read_numbers(text, 1, f"the sphere radius of {where}")[0])
        if radius < 0.0:
            raise ValueError(f"the sphere radius of {where} must not be negative, got {radius}")
        return LinkSphere(link, read_origin(collision, where)[:3, 3], radius)
    found = read_shape(collision, where=where, version=source.version, folder=source.folder)
    sizes = found.sizes
    if found.kind == "box":
        shape = Cuboid((sizes[0], sizes[1], sizes[2]))
    elif found.kind == "cylinder":
        shape = Cylinder(*sizes)
    else:
        shape = Capsule(*sizes)
    return LinkShape(link, shape, found.link_from_shape)


def _read_visuals(link: Element, source: _Source) -> list[LinkMesh]:
    """Returns the visual meshes of a link; other visual shapes are ignored."""
    meshes = []
    for visual in link.findall("visual"):
        mesh = visual.find("geometry/mesh")
        if mesh is not None:
            name = required(link, "name")
            meshes.append(_read_mesh(name, mesh, read_origin(visual), source))
    return meshes


def _read_mesh(link: str, mesh: Element, link_from_mesh: np.ndarray, source: _Source) -> LinkMesh:
    where = f"link {shown(link)}"
    scale = read_numbers(mesh.get("scale", "1 1 1"), 3, f"{where}: a mesh scale")
    if (scale == 0.0).any():
        raise ValueError(f"{where}: a mesh scale must not be 0, got {scale.tolist()}")
    path = source.mesh_path(required(mesh, "filename", where), where)
    return LinkMesh(link, path, link_from_mesh @ np.diag([*scale, 1.0]))

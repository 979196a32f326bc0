"""Links, joints and shapes of a URDF, as records with checked values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.files import is_file
from warp_collision.formats.urdf_document import read_urdf
from warp_collision.formats.urdf_joints import Joint, read_joint, warn_of_limits, with_limits
from warp_collision.formats.urdf_shapes import (
    find_mesh,
    read_numbers,
    read_origin,
    read_shape,
    required,
)
from warp_collision.io.urdf_scene import shape_of
from warp_collision.messages import errors_at, escaped, short_repr
from warp_collision.obstacles.shapes import Shape

_KINDS = ("revolute", "continuous", "prismatic", "fixed", "floating")
SHAPES_OF = ("collision", "visual")
PathLike = str | os.PathLike[str]


class LinkMesh(NamedTuple):
    """A mesh of a link."""

    link: str
    path: Path
    link_from_mesh: np.ndarray  # (4, 4) [m], the scale included
    missing: str = ""  # of a URI that no file was found for: why


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


@dataclass(frozen=True, eq=False)
class UrdfModel:
    """The content of a URDF.

    Attributes:
        link_names: in the order of the file.
        joints: in the order of the file.
        collisions: collision shapes, in the order of the file; with `shapes` "visual", of links
            that have none, the visual ones.
        visuals: visual meshes; other visual shapes are not read.
        shaped_links: links with a <collision> or <visual> of any kind.
    """

    link_names: tuple[str, ...]
    joints: tuple[Joint, ...]
    collisions: tuple[LinkSphere | LinkShape | LinkMesh, ...]
    visuals: tuple[LinkMesh, ...]
    shaped_links: frozenset[str]
    shapes: str = "collision"


def read_urdf_model(
    urdf: PathLike, package_dirs: Sequence[PathLike] = (), shapes: str = "collision"
) -> UrdfModel:
    """Reads a URDF file; mesh files are not loaded.

    Args:
        urdf: path of the file.
        package_dirs: where packages are looked for.
        shapes: "collision", or "visual" for the visual shapes of links without others.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is no URDF, or a value in it breaks a rule. The message names the file and
            the link or joint.
    """
    if shapes not in SHAPES_OF:
        raise ValueError(f"shapes must be one of {', '.join(SHAPES_OF)}, got {short_repr(shapes)}")
    path = Path(urdf)
    if not is_file(path):
        raise FileNotFoundError(f"urdf must be an existing file, got {short_repr(str(path))}")
    robot = read_urdf(path)
    if isinstance(package_dirs, str | os.PathLike):
        raise TypeError(f"package_dirs must be a sequence of folders, got {package_dirs!r}")
    folders = tuple(Path(folder) for folder in package_dirs)
    source = _Source(path.parent, folders, {})
    links = robot.findall("link")
    with errors_at(escaped(str(path))):
        joints = tuple(with_limits(read_joint(e, _KINDS), e) for e in robot.findall("joint"))
        for joint in joints:
            warn_of_limits(joint)
        return UrdfModel(
            tuple(required(link, "name") for link in links),
            joints,
            tuple(
                _read_shape(required(link, "name"), shape, source)
                for link in links
                for shape in _shape_elements(link, shapes)
            ),
            tuple(mesh for link in links for mesh in _read_visuals(link, source)),
            frozenset(
                required(link, "name")
                for link in links
                if any(link.find(kind) is not None for kind in ("collision", "visual"))
            ),
            shapes,
        )


def _shape_elements(link: Element, shapes: str) -> list[Element]:
    """The <collision> elements of a link, or its <visual> ones where these are to stand in."""
    found = link.findall("collision")
    return link.findall("visual") if shapes == "visual" and not found else found


class _Source(NamedTuple):
    """Folders that shapes are read with."""

    folder: Path
    package_dirs: tuple[Path, ...]
    packages: dict[str, list[Path]]

    def mesh_path(self, name: str, where: str) -> tuple[Path, str]:
        """The path of a mesh file, which need not exist, and why a URI leads to none.

        Links may have no visual mesh, or spheres from elsewhere; a missing file raises when it is
        read.
        """
        try:
            return find_mesh(name, where, self.folder, self.package_dirs, self.packages), ""
        except ValueError as error:
            is_uri = "://" in name
            return (Path(name), str(error)) if is_uri else (self.folder / name, "")


def _read_shape(
    link: str, collision: Element, source: _Source
) -> LinkSphere | LinkShape | LinkMesh:
    """Returns the one shape of a collision element."""
    where = f"link {short_repr(link)}"
    sphere, mesh = (collision.find(f"geometry/{kind}") for kind in ("sphere", "mesh"))
    if mesh is not None:
        return _read_mesh(link, mesh, read_origin(collision, where), source)
    if sphere is not None:
        text = required(sphere, "radius", where)
        radius = float(read_numbers(text, 1, f"the sphere radius of {where}")[0])
        if radius < 0.0:
            raise ValueError(f"the sphere radius of {where} must not be negative, got {radius}")
        return LinkSphere(link, read_origin(collision, where)[:3, 3], radius)
    record = read_shape(collision, where=where, folder=source.folder)
    shape = shape_of(record)
    assert shape is not None  # a mesh is read above
    return LinkShape(link, shape, record.link_from_shape)


def _read_visuals(link: Element, source: _Source) -> list[LinkMesh]:
    """Returns the visual meshes of a link."""
    meshes = []
    for visual in link.findall("visual"):
        mesh = visual.find("geometry/mesh")
        if mesh is not None:
            name = required(link, "name")
            meshes.append(_read_mesh(name, mesh, read_origin(visual), source))
    return meshes


def _read_mesh(link: str, mesh: Element, link_from_mesh: np.ndarray, source: _Source) -> LinkMesh:
    where = f"link {short_repr(link)}"
    scale = read_numbers(mesh.get("scale", "1 1 1"), 3, f"{where}: a mesh scale")
    if (scale == 0.0).any():
        raise ValueError(f"{where}: a mesh scale must not be 0, got {scale.tolist()}")
    path, missing = source.mesh_path(required(mesh, "filename", where), where)
    return LinkMesh(link, path, link_from_mesh @ np.diag([*scale, 1.0]), missing)

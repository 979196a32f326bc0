"""Geometry of the <collision> and <visual> elements of URDF files: shapes, mesh files, origins."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element

import numpy as np
from trimesh.transformations import euler_matrix, quaternion_matrix

from warp_collision.formats.files import MAX_COORDINATE, is_file
from warp_collision.messages import escaped, short_repr

_LARGEST = 3e38  # of a number: they are used in float32
_MOST_TRIED = 5  # files that a message lists
_LENGTHS = {
    "box": (("size", 3),),
    "sphere": (("radius", 1),),
    "cylinder": (("radius", 1), ("length", 1)),
    "capsule": (("radius", 1), ("length", 1)),
}


class UrdfShape(NamedTuple):
    """The geometry of a <collision> or <visual>.

    Attributes:
        kind: "box", "sphere", "cylinder", "capsule", "mesh" or "plane".
        sizes: full edges x, y, z of a box. The radius of a sphere. Radius and length along z of a
            cylinder, and of a capsule without its caps, where the length may be 0. Three factors of
            a mesh, negative where it is mirrored. The normal of a plane. All others are above 0
            [m].
        path: the file of a mesh, which exists; else None.
        link_from_shape: (4, 4), rigid [m].
    """

    kind: str
    sizes: tuple[float, ...]
    path: Path | None
    link_from_shape: np.ndarray


def read_shape(
    element: Element,
    *,
    where: str,
    folder: Path,
    package_dirs: Sequence[Path] = (),
) -> UrdfShape:
    """Reads the shape of a <collision> or <visual>, as `read_urdf` lets it pass.

    Args:
        element: the <collision> or <visual>.
        where: what it belongs to, with which errors begin: "link 'arm'".
        folder: of the URDF file, where relative names of meshes start.
        package_dirs: folders in which packages are looked for, see `find_mesh`.

    Raises:
        ValueError: no such shape, a size that is none, or a mesh file that does not exist.

    Example:
        >>> from pathlib import Path
        >>> from xml.etree import ElementTree
        >>> from warp_collision.formats.urdf_shapes import read_shape
        >>> text = "<collision><geometry><box size='1 2 3'/></geometry></collision>"
        >>> element = ElementTree.fromstring(text)
        >>> read_shape(element, where="link 'a'", folder=Path()).sizes
        (1.0, 2.0, 3.0)
    """
    geometry = element.find("geometry")
    if geometry is None or len(geometry) != 1:
        raise ValueError(f"{where}: <{element.tag}> must have a <geometry> with one shape")
    shape = geometry[0]
    kind = shape.tag
    link_from_shape = read_origin(element, where)
    if kind == "mesh":
        scale = read_numbers(shape.get("scale", "1 1 1"), 3, f"{where}: scale")
        if not (scale != 0.0).all() or np.abs(scale).max() >= MAX_COORDINATE:
            raise ValueError(f"{where}: scale must not be 0, got {short_repr(shape.get('scale'))}")
        path = find_mesh(required(shape, "filename", where), where, folder, package_dirs)
        return UrdfShape(kind, tuple(scale.tolist()), path, link_from_shape)
    if kind == "plane":  # of Bullet
        text = shape.get("normal", "0 0 1")
        normal = read_numbers(text, 3, f"{where}: normal")
        if not normal.any():
            raise ValueError(f"{where}: normal of <plane> must not be 0, got {short_repr(text)}")
        return UrdfShape(kind, tuple(normal.tolist()), None, link_from_shape)
    if kind not in _LENGTHS:
        kinds = ", ".join((*_LENGTHS, "mesh"))
        raise ValueError(f"{where}: shapes must be one of {kinds}, got <{escaped(kind, 50)}>")
    sizes = [
        length for name, count in _LENGTHS[kind] for length in _read(shape, name, count, where)
    ]
    return UrdfShape(kind, tuple(sizes), None, link_from_shape)


def _read(shape: Element, name: str, count: int, where: str) -> list[float]:
    """Lengths of a shape: above 0, but for the middle of a capsule, and below 1e9."""
    text = required(shape, name, where)
    lengths = read_numbers(text, count, f"{where}: {name} of <{shape.tag}>").tolist()
    least_is_zero = shape.tag == "capsule" and name == "length"
    if not all(0.0 < v < MAX_COORDINATE or (v == 0.0 and least_is_zero) for v in lengths):
        raise ValueError(
            f"{where}: {name} of <{shape.tag}> must be positive and below 1e9, got "
            f"{short_repr(text)}"
        )
    return lengths


def find_mesh(
    name: str,
    where: str,
    folder: Path,
    package_dirs: Sequence[Path] = (),
    packages: dict[str, list[Path]] | None = None,
) -> Path:
    """The file that a mesh is in.

    Args:
        name: a path, absolute or relative to the URDF file, or a URI: ``file://``, or
            ``package://NAME/PATH``, where ``package:///NAME/PATH`` is the same. The package is the
            first folder NAME of these. One of `package_dirs` itself, or a folder in it or in its
            folder "share". A folder that the URDF file is in, or beside one of them. A folder in
            ROS_PACKAGE_PATH, or in "share" of AMENT_PREFIX_PATH.
        where: what it belongs to, with which errors begin.
        folder: of the URDF file.
        package_dirs: where packages are looked for first, in this order.
        packages: where those of one URDF were found before, which is added to.

    Raises:
        ValueError: another kind of URI, or no such file; it names the files that were tried, and
            one whose name differs in upper and lower case alone.
    """
    scheme, separator, rest = name.partition("://")
    if not separator:
        return _existing(folder / name, where, str(folder / name))
    if scheme == "file":
        return _existing(Path(unquote(urlsplit(name).path)), where, name)
    if scheme != "package":
        raise ValueError(
            f"{where}: a mesh must be a path, file:// or package://, got {short_repr(name)}"
        )
    package, _, inside = rest.lstrip("/").partition("/")
    packages = {} if packages is None else packages
    if package not in packages:
        home, given = folder.resolve(), [*map(Path, package_dirs)]
        packages[package] = _package_roots(package, home, given)
    roots = packages[package]
    for root in roots:
        if is_file(root / inside):
            return root / inside
    tried = ", ".join(short_repr(str(root / inside)) for root in roots[:_MOST_TRIED])
    raise ValueError(
        f"{where}: the file of a mesh must be found, got {_with_hint(name)}; "
        + (
            f"tried {tried}"
            if tried
            else f"no folder around the URDF is named {short_repr(package)}"
        )
        + "".join(map(_other_case, [root / inside for root in roots][:_MOST_TRIED]))
        + f"; package_dirs, --package-dir in the shell, must name a DIR with {short_repr(inside)} "
        f"in DIR/{escaped(package, 100)}"
    )


def _existing(path: Path, where: str, name: str) -> Path:
    if is_file(path):
        return path
    raise ValueError(
        f"{where}: a mesh must be an existing file, got {_with_hint(name)}{_other_case(path)}"
    )


def _package_roots(package: str, home: Path, package_dirs: Sequence[Path]) -> list[Path]:
    """Folders that a package may be, in the order in which they are tried.

    Args:
        package: its name.
        home: the folder of the URDF file.
        package_dirs: see `find_mesh`.
    """
    if package in ("", ".", ".."):
        return []
    given = [root for folder in package_dirs for root in (folder / package, folder)]
    roots = [root for root in given if root.resolve().name == package]
    folders = [home, *home.parents]
    roots += [around for around in folders if around.name == package]
    ros, ament = (
        [Path(entry) for entry in os.environ.get(key, "").split(os.pathsep) if entry]
        for key in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH")
    )
    beside = [
        *(folder / "share" / package for folder in package_dirs),
        *(folder / package for folder in folders),
        *(root for folder in ros for root in (folder / package, folder) if root.name == package),
        *(folder / "share" / package for folder in ament),
    ]
    return list(dict.fromkeys((*roots, *filter(os.path.isdir, beside))))


def _other_case(path: Path) -> str:
    """Says which file there is whose path differs in upper and lower case alone; "" if none."""
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    try:
        for part in path.relative_to(existing).parts:
            names = [entry for entry in os.listdir(existing) if entry.lower() == part.lower()]
            if not names:
                return ""
            existing = existing / min(names)
    except (OSError, ValueError):  # no folder, or one that must not be read
        return ""
    is_other = existing != path and is_file(existing)
    return f"; there is {short_repr(str(existing))}, in another case" if is_other else ""


def required(element: Element, key: str, where: str = "") -> str:
    """An attribute that an element must have."""
    value = element.get(key)
    if value is None:
        begin = f"{where}: " if where else ""
        raise ValueError(f"{begin}<{element.tag}> must have the attribute {short_repr(key)}")
    return value


def read_numbers(text: str, count: int, where: str) -> np.ndarray:
    """So many finite numbers (count,), in float64, that float32 can hold."""
    try:
        values = np.array([float(word) for word in text.split()])
    except ValueError:
        values = np.empty(0)
    # Python reads 1_0 as 10.
    is_valid = len(values) == count and (np.abs(values) < _LARGEST).all() and "_" not in text
    if not is_valid:
        raise ValueError(f"{where} must be {count} finite numbers, got {_with_hint(text)}")
    return values


def _with_hint(text: str) -> str:
    """A value for a message, and what to do where it is an expression of xacro."""
    is_expression = "${" in text or "$(" in text
    return short_repr(text) + (
        ", an expression: run xacro on the file first" if is_expression else ""
    )


def read_origin(element: Element, where: str = "") -> np.ndarray:
    """The (4, 4) transform of an element's <origin>; roll, pitch, yaw about fixed axes [rad]."""
    begin = f"{where}: " if where else ""
    origin = element.find("origin")
    if origin is None:
        return np.eye(4)
    if "quat_xyzw" in origin.attrib:
        transform = _rotation(origin, begin)
    else:
        transform = euler_matrix(*read_numbers(origin.get("rpy", "0 0 0"), 3, f"{begin}rpy"))
    transform[:3, 3] = read_numbers(origin.get("xyz", "0 0 0"), 3, f"{begin}xyz")
    return transform


def _rotation(origin: Element, begin: str) -> np.ndarray:
    """The rotation (4, 4) of an <origin> with a quaternion, as version 1.1 has it."""
    text = required(origin, "quat_xyzw")
    x, y, z, w = read_numbers(text, 4, f"{begin}quat_xyzw")
    if "rpy" in origin.attrib or not math.hypot(x, y, z, w) > 0.0:
        raise ValueError(
            f"{begin}<origin> must have rpy or a quat_xyzw, not 0, got {short_repr(text)}"
        )
    return quaternion_matrix([w, x, y, z])

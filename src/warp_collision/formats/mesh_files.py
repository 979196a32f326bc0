"""Mesh files to trimesh scenes: checked against the formats' rules, without silent losses.

trimesh's readers raise whatever a broken file leads to, and leave out in silence what they do not
understand: the rest of a truncated text, faces with vertices that are not finite, parts of an
archive. Whatever is left out would be free, so here it is an error.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import trimesh
from trimesh.exchange.load import mesh_formats
from trimesh.resolvers import Resolver

from warp_collision.formats.files import (
    MAX_COORDINATE,
    MAX_FACES,
    check_vertices,
    is_file,
    read_xml,
)
from warp_collision.formats.gltf import read_glb, read_gltf
from warp_collision.formats.worker import allow, run_limited
from warp_collision.messages import MAX_REPR, any_error_at, escaped, short_repr

MAX_PARTS = 4_000  # of a text file: trimesh takes quadratic time to name them

_STL_FACE = np.dtype([("normal", "<f4", 3), ("vertices", "<f4", (3, 3)), ("color", "<u2")])
# Irrelevant to collisions, and the part that is most often broken.
_APPEARANCE = frozenset(
    "library_images library_effects library_materials library_lights library_cameras "
    "library_animations library_animation_clips bind_material instance_light instance_camera "
    "extra".split()
)
_ARCHIVES = ("zip", "zae", "bz2", "gz")  # trimesh skips members that it cannot read


def load_scene(path: Path) -> trimesh.Scene:
    """Reads a mesh file; every part is a triangle mesh with finite vertices and valid faces.

    Files that it refers to are read where they are in its folder or below. Vertices are not merged.
    Formats that are more than arrays or lines of numbers are read by the worker process.

    Raises:
        ValueError: trimesh does not read such files, or the file is damaged, holds no mesh, or a
            part that is no mesh. It names the file.
    """
    ending = path.suffix.lower().removeprefix(".")
    with any_error_at(escaped(str(path))):
        if ending not in mesh_endings():
            endings = ", ".join(mesh_endings())
            raise ValueError(f"the name must end in one of {endings}; got {short_repr(ending)}")
        if ending in _CHECKS or ending in _GLTF:
            return _load(path, ending)
        return run_limited(_load, Path(os.path.abspath(path)), ending, library="trimesh")


def _load(path: Path, ending: str) -> trimesh.Scene:
    allow(path.stat().st_size)
    siblings = _Siblings(path)
    data, n_faces, options = _prepare(path, ending, siblings)
    with any_error_at("trimesh cannot read it"), warnings.catch_warnings():
        # Older NumPy only warns where it stops reading a text, and where NaN becomes an index.
        warnings.filterwarnings("error", "string or file could not be read", DeprecationWarning)
        warnings.filterwarnings("error", "invalid value encountered in cast", RuntimeWarning)
        scene = trimesh.load_scene(
            io.BytesIO(data), file_type=ending, resolver=siblings, process=False, **options
        )
    _check_meshes(scene, n_faces)
    return scene


def mesh_endings() -> list[str]:
    """The suffixes of mesh files, without the dot."""
    return sorted({*mesh_formats()} - {*_ARCHIVES})


def _prepare(path: Path, ending: str, siblings: _Siblings) -> tuple[bytes, int, dict[str, Any]]:
    """Input for trimesh, the least number of faces that it must yield, and options."""
    if ending == "dae":
        return _read_collada(path), 0, {"ignore_broken": False}
    data = path.read_bytes()
    if ending in _GLTF:
        return _GLTF[ending](data, siblings.get), 0, {"skip_materials": True}
    data, n_faces = _CHECKS[ending](data) if ending in _CHECKS else (data, 0)
    return data, n_faces, {}


def _check_meshes(scene: trimesh.Scene, n_faces: int) -> None:
    """Raises unless the scene has valid meshes with at least so many faces."""
    total = read = 0
    seen: set[Any] = set()
    for node in scene.graph.nodes_geometry:
        transform, key = scene.graph[node]
        mesh = scene.geometry[key]
        name = short_repr(node)
        if not (np.abs(transform) < MAX_COORDINATE).all():
            raise ValueError(
                f"the transform of part {name} must be finite and below 1e9, got "
                f"{short_repr(transform.tolist())}"
            )
        if not isinstance(mesh, trimesh.Trimesh):
            raise ValueError(f"part {name} must be a triangle mesh, got a {type(mesh).__name__}")
        total += len(mesh.faces)
        if total > MAX_FACES:
            raise ValueError(f"must hold at most {MAX_FACES} faces, got more")
        if key in seen:
            continue
        seen.add(key)
        read += len(mesh.faces)
        _check_mesh(mesh, f"part {name}")
    if not seen:
        raise ValueError("holds no triangle mesh")
    if read < n_faces:
        raise ValueError(f"must hold {n_faces} faces, got {read} that can be read")


def _check_mesh(mesh: trimesh.Trimesh, where: str) -> None:
    vertices, faces = np.asarray(mesh.vertices), np.asarray(mesh.faces)
    if len(faces) == 0 or faces.ndim != 2 or faces.shape[1] != 3:
        raise ValueError(f"{where} must have triangles, got faces of shape {faces.shape}")
    if vertices.ndim != 2 or vertices.shape[1] != 3:
        raise ValueError(f"{where} must have vertices of shape (n, 3), got {vertices.shape}")
    with any_error_at(where):
        check_vertices(vertices)
    bad = ((faces < 0) | (faces >= len(vertices))).any(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{where}: faces must index vertices 0 to {len(vertices) - 1}, got "
            f"{faces[row].tolist()} in face {row}"
        )


class _Siblings(Resolver):
    """The files that a file refers to by names: regular files in its folder or below."""

    def __init__(self, path: Path) -> None:
        self.file_name = path.name  # what trimesh names the parts of an OBJ file after
        self._folder = path.parent
        self._found: dict[str, bytes] = {}  # a small file may name a large one very often

    def get(self, key: str) -> bytes:
        if key not in self._found:
            self._found[key] = self._read(key)
        return self._found[key]

    def _read(self, key: str) -> bytes:
        for name in dict.fromkeys((key, unquote(key))):
            relative = Path(name)
            if relative.is_absolute() or ".." in relative.parts:
                raise ValueError(
                    f"a file must refer to files in its folder or below, got {short_repr(name)}"
                )
            if is_file(self._folder / relative):
                return (self._folder / relative).read_bytes()
        raise FileNotFoundError(f"it refers to {short_repr(key)}, which does not exist")

    def namespaced(self, namespace: str) -> Any:
        return _Siblings(self._folder / namespace / self.file_name)

    def keys(self) -> list[str]:
        return []

    def write(self, name: str, data: Any) -> None:
        raise NotImplementedError("nothing is written beside a file that is read")


def _check_stl(data: bytes) -> tuple[bytes, int]:
    n_faces = int.from_bytes(data[80:84], "little")
    if len(data) == 84 + 50 * n_faces:
        check_vertices(np.frombuffer(data, _STL_FACE, offset=84)["vertices"].reshape(-1, 3))
        return data, n_faces
    text = data.lower()
    if b"endsolid" not in text:
        raise ValueError(
            f"an STL file must be a text that ends in endsolid, or 84 + 50 bytes a face, got "
            f"{len(data)} bytes for {n_faces} faces"
        )
    _check_parts(text.count(b"endsolid"))
    n_vertices = len(re.findall(rb"(?m)^[ \t]*vertex\b", text))
    if n_vertices % 3:
        raise ValueError(f"faces must have three vertices, got {n_vertices} vertices in all")
    # Some releases of trimesh drop faces whose numbers are none.
    bad = re.search(rb"(?m)^[ \t]*vertex\b[^\n]*(?:nan|inf|e\+?0*[1-9]\d\d)[^\n]*", text)
    if bad:
        raise ValueError(f"vertices must be finite and below 1e9, got {_text(bad)}")
    return data, n_vertices // 3


def _check_ply(data: bytes) -> tuple[bytes, int]:
    header, separator, body = data.partition(b"end_header")
    if not separator:
        raise ValueError("a PLY file must have a line end_header")
    elements = re.findall(rb"(?m)^[ \t]*element[ \t]+(\S+)[ \t]+(\S+)", header)
    lengths = [int(length) for _, length in elements]
    if any(length < 0 for length in lengths):
        raise ValueError(f"elements must be 0 or more, got {short_repr(lengths)}")
    if re.search(rb"(?m)^[ \t]*format[ \t]+ascii", header):
        rows = sum(not line.isspace() for line in body.splitlines()[1:] if line)
        if rows != sum(lengths):
            raise ValueError(f"elements must be {sum(lengths)} lines, got {rows}")
    return data, sum(n for (name, _), n in zip(elements, lengths, strict=True) if name == b"face")


def _check_off(data: bytes) -> tuple[bytes, int]:
    lines = [line.partition(b"#")[0].split() for line in data.split(b"\n")]
    words = [line for line in lines if line]
    first = words[0] if words else []
    if first and first[0].endswith(b"OFF"):  # the counts may stand in the same line
        words = [first[1:], *words[1:]] if len(first) > 1 else words[1:]
    if not words or len(words[0]) < 2:
        raise ValueError("an OFF file must start with OFF and the numbers of vertices and faces")
    n_vertices, n_faces = (int(word) for word in words[0][:2])
    if min(n_vertices, n_faces) < 0 or len(words) - 1 != n_vertices + n_faces:
        raise ValueError(
            f"{n_vertices} vertices and {n_faces} faces must each have a line, got {len(words) - 1}"
        )
    return data, n_faces


def _check_obj(data: bytes) -> tuple[bytes, int]:
    # trimesh takes only lines that start with the keyword and a space.
    if re.search(rb"(?m)^(?:[ \t]+[vfou]|\w+\t)", data):
        data = re.sub(rb"(?m)^ +", b"", data.replace(b"\t", b" "))
    materials = set(re.findall(rb"(?m)^usemtl[^\n]*", data))
    _check_parts(len(materials))
    zero = re.search(rb"(?m)^f (?:[^\n]* )?0+(?:[/ \r\n]|$)", data)
    if zero:
        raise ValueError(f"faces must count vertices from 1, got {_text(zero)}")
    # trimesh counts them from the end of the file, the format from the line.
    negative = re.search(rb"(?m)^f (?:[^\n]* )?-[^\n]*", data)
    if negative and re.search(rb"(?m)^v ", data[negative.start() :]):
        raise ValueError(
            f"faces that count vertices backwards must follow all vertices, got {_text(negative)}"
        )
    return data, len(re.findall(rb"(?m)^f +[^\s]+ +[^\s]+ +[^\s]+", data))


def _read_collada(path: Path) -> bytes:
    """The file as plain XML without materials, textures, lights and cameras.

    Raises:
        ValueError: no well-formed XML, or what trimesh leaves out: numbers that are not finite, a
            skinned mesh.
    """
    root = read_xml(path)
    _strip_appearance(root)
    return ElementTree.tostring(root)


def _strip_appearance(element: Element) -> None:
    for child in list(element):
        name = child.tag.rpartition("}")[2]
        if name == "instance_controller":
            raise ValueError("meshes must not be skinned, got an <instance_controller>")
        if name == "float_array":
            _check_numbers(child)
        if name in _APPEARANCE:
            element.remove(child)
        else:
            _strip_appearance(child)


def _check_numbers(element: Element) -> None:
    words = (element.text or "").split()
    with np.errstate(over="ignore"):
        numbers = np.array(words, dtype=np.float64).astype(np.float32)
    if not np.isfinite(numbers).all():
        first = words[int(np.flatnonzero(~np.isfinite(numbers))[0])]
        raise ValueError(
            f"<float_array> {short_repr(element.get('id'))} must hold finite numbers, got "
            f"{escaped(first, MAX_REPR)}"
        )


def _check_parts(number: int) -> None:
    if number > MAX_PARTS:
        raise ValueError(f"must have at most {MAX_PARTS} parts, got {number}")


def _text(match: re.Match[bytes]) -> str:
    return escaped(match.group().decode("utf-8", "replace").strip(), MAX_REPR)


_GLTF = {"glb": read_glb, "gltf": read_gltf}
# The data to read, and the number of faces that it must have at the least.
_CHECKS: dict[str, Callable[[bytes], tuple[bytes, int]]] = {
    "stl": _check_stl,
    "stl_ascii": _check_stl,
    "ply": _check_ply,
    "off": _check_off,
    "obj": _check_obj,
}

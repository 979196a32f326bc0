"""glTF files, checked against their buffers before arrays are made of them.

Sizes, offsets and indices of the JSON part are believed only where they agree with the data, and
what trimesh would leave out or fill with zeros is refused: sparse and compressed accessors,
instancing by extension, triangle fans, nodes with two parents.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

from warp_collision.messages import short_repr

MAX_INSTANCES = 100_000
MAX_DEPTH = 256
# Limits of what is stored once and used often: overlapping parts of a file, instances.
MAX_EXPANDED = 1 << 30  # bytes of views and of accessors
MAX_CORNERS = 30_000_000  # of all instances

_MAGIC, _JSON, _BIN = 0x46546C67, 0x4E4F534A, 0x004E4942
_ITEM = {5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4}  # bytes of a component
_WIDTH = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
_MODES = (0, 1, 4, 5)  # points, lines, triangles, strips; trimesh leaves out the others
_HARMLESS = ("KHR_materials_", "KHR_texture_", "EXT_texture_", "MSFT_texture_", "KHR_lights_")
_GEOMETRY_EXTENSIONS = ("KHR_mesh_quantization",)
_INSTANCING = "EXT_mesh_gpu_instancing"

Resolve = Callable[[str], bytes]  # a name that the file refers to, to its content


def read_gltf(data: bytes, resolve: Resolve) -> bytes:
    """Checks a .gltf file; returns it as .gltf without cameras.

    Raises:
        ValueError: it is damaged, or has parts that would be left out or are not supported.
        FileNotFoundError: a buffer's file does not exist.
    """
    tree = _parse(data)
    buffers = [_fetch(buffer, resolve) for buffer in _objects(tree, "buffers")]
    _check(tree, buffers)
    return json.dumps(tree).encode()


def read_glb(data: bytes, resolve: Resolve) -> bytes:
    """Checks a .glb file as `read_gltf` does a .gltf file; returns it as .glb without cameras."""
    if len(data) < 20:
        raise ValueError(f"a .glb file must have at least 20 bytes, got {len(data)}")
    magic, version, length, json_length, kind = struct.unpack_from("<5I", data)
    if magic != _MAGIC or version != 2:
        raise ValueError(
            f"a .glb file must start with glTF and version 2, got {short_repr(data[:8])}"
        )
    if length != len(data):
        raise ValueError(f"a .glb file must be as long as it says, {length} bytes, got {len(data)}")
    if kind != _JSON or 20 + json_length > len(data):
        raise ValueError("the first chunk of a .glb file must be JSON and lie inside of the file")
    tree = _parse(data[20 : 20 + json_length])
    rest = data[20 + json_length :]
    binary = None
    if rest:
        if len(rest) < 8:
            raise ValueError(f"a chunk must have a header of 8 bytes, got {len(rest)}")
        size, kind = struct.unpack_from("<2I", rest)
        if kind != _BIN or size != len(rest) - 8:
            raise ValueError(
                f"the second chunk must be the last, {size} bytes, got {len(rest) - 8}"
            )
        binary = rest[8:]
    buffers = [
        binary if binary is not None and index == 0 and "uri" not in buffer
        else _fetch(buffer, resolve)
        for index, buffer in enumerate(_objects(tree, "buffers"))
    ]  # fmt: skip
    _check(tree, buffers)
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<5I", _MAGIC, 2, 20 + len(text) + len(rest), len(text), _JSON)
    return head + text + rest


def _parse(data: bytes) -> dict[str, Any]:
    tree = json.loads(data.decode("utf-8-sig"), parse_constant=_not_a_number)
    if not isinstance(tree, dict):
        raise ValueError(f"the JSON of a glTF file must be an object, got {short_repr(tree)}")
    return tree


def _not_a_number(text: str) -> float:
    raise ValueError(f"numbers must be finite, got {text}")


def _fetch(buffer: dict[str, Any], resolve: Resolve) -> bytes:
    uri = buffer.get("uri")
    if not isinstance(uri, str):
        raise ValueError(f"a buffer must have a uri, got {short_repr(uri)}")
    if uri.startswith("data:"):
        head, separator, text = uri.partition(";base64,")
        if not separator:
            raise ValueError(f"data of a buffer must be base64, got {short_repr(head)}")
        return base64.b64decode(text, validate=True)
    return resolve(uri)


def _objects(tree: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = tree.get(key, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{key} must be a list of objects, got {short_repr(items)}")
    return items


def _whole(item: dict[str, Any], key: str, where: str, end: int, default: int | None = None) -> int:
    """The whole number at a key, 0 or more and less than `end`."""
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < end:
        raise ValueError(f"{where}.{key} must be from 0 to {end - 1}, got {short_repr(value)}")
    return value


def _check(tree: dict[str, Any], buffers: list[bytes]) -> None:
    for name in tree.get("extensionsRequired", []):
        if not str(name).startswith(_HARMLESS) and name not in _GEOMETRY_EXTENSIONS:
            raise ValueError(f"a file must not require the extension {short_repr(name)}")
    for index, buffer in enumerate(_objects(tree, "buffers")):
        _whole(buffer, "byteLength", f"buffers[{index}]", len(buffers[index]) + 1)
    views = [
        _check_view(view, f"bufferViews[{i}]", buffers)
        for i, view in enumerate(_objects(tree, "bufferViews"))
    ]
    accessors = [
        _check_accessor(accessor, f"accessors[{i}]", views)
        for i, accessor in enumerate(_objects(tree, "accessors"))
    ]
    counts = [count for count, _ in accessors]
    most = max(MAX_EXPANDED, sum(map(len, buffers)))
    for key, size in (
        ("bufferViews", sum(length for length, _ in views)),
        ("accessors", sum(size for _, size in accessors)),
    ):
        if size > most:
            raise ValueError(f"{key} must be at most {most} bytes in all, got {size}")
    sizes = [
        _check_mesh(mesh, f"meshes[{i}]", tree, counts)
        for i, mesh in enumerate(_objects(tree, "meshes"))
    ]
    _check_nodes(tree, sizes, max(MAX_CORNERS, sum(counts)))


def _check_view(view: dict[str, Any], where: str, buffers: list[bytes]) -> tuple[int, int]:
    """Returns the length of a buffer view and its stride, 0 without one, in bytes."""
    size = len(buffers[_whole(view, "buffer", where, len(buffers))])
    start = _whole(view, "byteOffset", where, size + 1, 0)
    length = _whole(view, "byteLength", where, size - start + 1)
    return length, _whole(view, "byteStride", where, 253, 0)


def _check_accessor(
    accessor: dict[str, Any], where: str, views: list[tuple[int, int]]
) -> tuple[int, int]:
    """Returns the numbers of items and of bytes; 0 where no mesh may use it, as it is emptied."""
    if "sparse" in accessor or "bufferView" not in accessor:
        accessor.clear()
        accessor.update(componentType=5126, type="SCALAR", count=0)
        return 0, 0
    length, stride = views[_whole(accessor, "bufferView", where, len(views))]
    component, kind = accessor.get("componentType"), accessor.get("type")
    if component not in _ITEM or kind not in _WIDTH:
        raise ValueError(
            f"{where} must have a componentType and a type of glTF, got "
            f"{short_repr([component, kind])}"
        )
    row = _ITEM[component] * _WIDTH[kind]
    if stride and stride < row:
        raise ValueError(f"{where} must have a byteStride of at least {row}, got {stride}")
    start = _whole(accessor, "byteOffset", where, length + 1, 0)
    count = _whole(accessor, "count", where, (length - start - row) // (stride or row) + 2)
    return count, count * row


def _check_mesh(
    mesh: dict[str, Any], where: str, tree: dict[str, Any], counts: list[int]
) -> tuple[int, int]:
    """Returns the numbers of primitives and of corners."""
    total = 0
    primitives = _objects(mesh, "primitives")
    for index, primitive in enumerate(primitives):
        entry = f"{where}.primitives[{index}]"
        mode = primitive.get("mode", 4)
        if mode not in _MODES:
            raise ValueError(f"{entry}.mode must be one of {_MODES}, got {short_repr(mode)}")
        position = _whole(primitive["attributes"], "POSITION", f"{entry}.attributes", len(counts))
        indices = position
        if "indices" in primitive:
            indices = _whole(primitive, "indices", entry, len(counts))
        if 0 in (counts[position], counts[indices]):
            raise ValueError(f"{entry} must have positions and indices, not sparse or compressed")
        for key in set(primitive) - {"indices", "mode"}:
            del primitive[key]  # colours, normals and compressed copies make no difference
        primitive["attributes"] = {"POSITION": position}
        accessor = tree["accessors"][position]
        if accessor["type"] != "VEC3" or accessor.get("normalized"):
            raise ValueError(f"{entry} must have positions of type VEC3 that are not normalized")
        total += max(counts[indices], counts[position])
    return len(primitives), total


def _check_nodes(tree: dict[str, Any], sizes: list[tuple[int, int]], most: int) -> None:
    """Raises unless the nodes are trees, and their instances come to a bounded size."""
    nodes = _objects(tree, "nodes")
    parents: dict[int, int] = {}
    instances, corners = (sum(part) for part in zip((0, 0), *sizes, strict=True))
    for index, node in enumerate(nodes):
        where = f"nodes[{index}]"
        node.pop("camera", None)  # trimesh leaves out what such a node holds
        if _INSTANCING in node.get("extensions", {}):
            raise ValueError(f"{where} must not use {_INSTANCING}")
        if "mesh" in node:
            size = sizes[_whole(node, "mesh", where, len(sizes))]
            instances, corners = instances + size[0], corners + size[1]
        for child in node.get("children", []):
            _whole({"children": child}, "children", where, len(nodes))
            if child in parents:
                raise ValueError(f"{where} must not share a child, got {child} again")
            parents[child] = index
    if instances > MAX_INSTANCES or corners > most:
        raise ValueError(
            f"a file must instantiate at most {MAX_INSTANCES} primitives and {most} "
            f"corners, got {instances} and {corners}"
        )
    for index in range(len(nodes)):
        depth, parent = 0, parents.get(index)
        while parent is not None:
            depth, parent = depth + 1, parents.get(parent)
            if depth > MAX_DEPTH:
                raise ValueError(f"nodes must be nested at most {MAX_DEPTH} deep, got more")
    for scene in _objects(tree, "scenes"):
        for root in scene.get("nodes", []):
            _whole({"nodes": root}, "nodes", "scenes", len(nodes))
            if root in parents:
                raise ValueError(f"the root node {root} of a scene must not be a child")

"""glTF files that are damaged, hostile or odd."""

import base64
import json
import struct
from collections.abc import Callable

import numpy as np


def glb(tree: object, binary: bytes = b"", **head: int) -> bytes:
    """A .glb file of any content; `length` and `json_length` may lie."""
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    chunk = struct.pack("<2I", len(binary), 0x004E4942) + binary if binary else b""
    length = head.get("length", 20 + len(text) + len(chunk))
    json_length = head.get("json_length", len(text))
    return struct.pack("<5I", 0x46546C67, 2, length, json_length, 0x4E4F534A) + text + chunk


CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype="<f4").tobytes()


def triangle() -> dict:
    """A glTF tree of one triangle, whose buffer is `CORNERS`."""
    uri = "data:application/octet-stream;base64," + base64.b64encode(CORNERS).decode()
    return {
        "asset": {"version": "2.0"},
        "buffers": [{"byteLength": 36, "uri": uri}],
        "bufferViews": [{"buffer": 0, "byteLength": 36}],
        "accessors": [{"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
        "nodes": [{"mesh": 0, "name": "t"}],
        "scenes": [{"nodes": [0]}],
        "scene": 0,
    }


def gltf(change: Callable[[dict], object] = lambda tree: None) -> bytes:
    """`triangle` after a change."""
    tree = triangle()
    change(tree)
    return json.dumps(tree).encode()


def set_in(*path: str | int, value: object) -> Callable[[dict], None]:
    def change(tree: dict) -> None:
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = value

    return change


def chain(levels: int) -> Callable[[dict], None]:
    def change(tree: dict) -> None:
        tree["nodes"] = [{"children": [i + 1]} for i in range(levels)] + [{"mesh": 0}]

    return change


def repeating(key: str, times: int) -> Callable[[dict], None]:
    """A buffer of a megabyte, and what uses it very often."""

    def change(tree: dict) -> None:
        uri = "data:;base64," + base64.b64encode(bytes(1 << 20)).decode()
        tree["buffers"] = [{"byteLength": 1 << 20, "uri": uri}]
        tree["bufferViews"][0]["byteLength"] = 1 << 20
        tree["accessors"][0]["count"] = (1 << 20) // 12
        (tree["meshes"][0] if key == "primitives" else tree)[key] *= times

    return change


def many_instances(tree: dict) -> None:
    tree["meshes"][0]["primitives"] *= 1000
    tree["nodes"] = [{"mesh": 0}] * 1000


GLTFS: dict[str, tuple[bytes, str]] = {
    "an array": (b"[]", r"must be an object, got \[\]"),
    "half JSON": (b'{"asset":', "Expecting value"),
    "deep JSON": (b"[" * 200_000, "recursion"),
    "NaN": (gltf().replace(b'"count": 3', b'"count": NaN'), "numbers must be finite, got NaN"),
    "a huge number": (gltf().replace(b'"count": 3', b'"count": ' + b"9" * 9000), "4300 digits"),
    "version 1": (gltf(set_in("asset", "version", value="1.0")), "only GLTF 2"),
    "a missing buffer": (
        gltf(set_in("buffers", 0, "uri", value="no.bin")),
        "it refers to 'no.bin', which does not exist",
    ),
    "a buffer outside": (
        gltf(set_in("buffers", 0, "uri", value="../../etc/passwd")),
        "in its folder or below, got '../../etc/passwd'",
    ),
    "an encoded way out": (
        gltf(set_in("buffers", 0, "uri", value="%2e%2e/passwd")),
        r"in its folder or below, got '\.\./passwd'",
    ),
    "an absolute buffer": (
        gltf(set_in("buffers", 0, "uri", value="/dev/zero")),
        "in its folder or below, got '/dev/zero'",
    ),
    "a buffer from the net": (
        gltf(set_in("buffers", 0, "uri", value="http://localhost/a.bin")),
        "it refers to 'http://localhost/a.bin', which does not exist",
    ),
    "a long uri": (gltf(set_in("buffers", 0, "uri", value="x" * 9000)), "which does not exist"),
    "a uri of nul": (gltf(set_in("buffers", 0, "uri", value="a\0b")), r"refers to 'a\\x00b'"),
    "no uri": (gltf(lambda tree: tree["buffers"][0].pop("uri")), "must have a uri, got None"),
    "bad base64": (gltf(set_in("buffers", 0, "uri", value="data:x;base64,A")), "base64|padding"),
    "a longer buffer": (gltf(set_in("buffers", 0, "byteLength", value=37)), "from 0 to 36, got 37"),
    "a view beyond": (
        gltf(set_in("bufferViews", 0, "byteLength", value=40)),
        r"bufferViews\[0\].byteLength must be from 0 to 36, got 40",
    ),
    "a view before": (gltf(set_in("bufferViews", 0, "byteOffset", value=-4)), "got -4"),
    "a count that lies": (
        gltf(set_in("accessors", 0, "count", value=2**40)),
        r"accessors\[0\].count must be from 0 to 3, got 1099511627776",
    ),
    "a negative count": (gltf(set_in("accessors", 0, "count", value=-1)), "count must .* got -1"),
    "a true count": (gltf(set_in("accessors", 0, "count", value=True)), "count must .* got True"),
    "an empty mesh": (gltf(set_in("accessors", 0, "count", value=0)), "must have positions"),
    "an unknown type": (
        gltf(set_in("accessors", 0, "type", value="VEC9")),
        r"got \[5126, 'VEC9'\]",
    ),
    "a stride of 1": (
        gltf(set_in("bufferViews", 0, "byteStride", value=1)),
        "byteStride of at least 12, got 1",
    ),
    "no view": (
        gltf(
            lambda tree: tree["accessors"].__setitem__(
                0, triangle()["accessors"][0] | {"count": 10**12, "sparse": {}}
            )
        ),
        "positions and indices, not sparse or compressed",
    ),
    "zeros": (
        gltf(lambda tree: tree["accessors"][0].pop("bufferView")),
        "positions and indices, not sparse or compressed",
    ),
    "flat positions": (
        gltf(set_in("accessors", 0, "type", value="VEC2")),
        "positions of type VEC3",
    ),
    "a fan": (
        gltf(set_in("meshes", 0, "primitives", 0, "mode", value=6)),
        r"meshes\[0\].primitives\[0\].mode must be one of \(0, 1, 4, 5\), got 6",
    ),
    "points": (
        gltf(set_in("meshes", 0, "primitives", 0, "mode", value=0)),
        "part 't' must be a triangle mesh, got a PointCloud",
    ),
    "an index beyond": (
        gltf(set_in("meshes", 0, "primitives", 0, "indices", value=1)),
        "indices must be from 0 to 0, got 1",
    ),
    "no positions": (
        gltf(set_in("meshes", 0, "primitives", 0, "attributes", value={})),
        "POSITION must be from 0 to 0, got None",
    ),
    "compressed": (
        gltf(set_in("extensionsRequired", value=["KHR_draco_mesh_compression"])),
        "must not require the extension 'KHR_draco_mesh_compression'",
    ),
    "instanced": (
        gltf(set_in("nodes", 0, "extensions", value={"EXT_mesh_gpu_instancing": {}})),
        r"nodes\[0\] must not use EXT_mesh_gpu_instancing",
    ),
    "a child of two": (
        gltf(set_in("nodes", value=[{"mesh": 0}, {"children": [0]}, {"children": [0]}])),
        r"nodes\[2\] must not share a child, got 0 again",
    ),
    "a child of itself": (
        gltf(set_in("nodes", 0, "children", value=[0])),
        "nested at most 256 deep|must not be a child",
    ),
    "deep nodes": (gltf(chain(20_000)), "nested at most 256 deep"),
    "a mesh beyond": (gltf(set_in("nodes", 0, "mesh", value=7)), "mesh must be from 0 to 0, got 7"),
    "a scene beyond": (gltf(set_in("scene", value=7)), "IndexError|list index"),
    "no scene": (gltf(lambda tree: tree.pop("scenes")), "holds no triangle mesh"),
    "many instances": (gltf(many_instances), "at most 100000 primitives .* got 1001000"),
    "many views": (
        gltf(repeating("bufferViews", 1100)),
        "bufferViews must be at most 1073741824 bytes in all, got 1153433600",
    ),
    "many accessors": (
        gltf(repeating("accessors", 1100)),
        "accessors must be at most 1073741824 bytes in all, got 1153429200",
    ),
    "many primitives": (
        gltf(repeating("primitives", 400)),
        "at most 100000 primitives and 30000000 corners, got 800 and 69904800",
    ),
    "an infinite corner": (
        gltf(
            set_in(
                "buffers",
                0,
                "uri",
                value="data:;base64,"
                + base64.b64encode(struct.pack("<9f", *[0] * 8, np.inf)).decode(),
            )
        ),
        r"part 't': vertices must be finite and below 1e9, got \[0.0, 0.0, inf\] at 2",
    ),
    "an infinite transform": (
        gltf(set_in("nodes", 0, "translation", value=[1e300, 0, 1e400])),
        "numbers must be finite, got|transform of part 't' must be finite",
    ),
}

GLB = glb({**triangle(), "buffers": [{"byteLength": 36}]}, CORNERS)

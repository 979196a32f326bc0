"""Mesh files that are damaged, hostile or odd."""

import struct

import numpy as np
import trimesh

from hostile_files import LAUGHS, Case, replaced
from hostile_gltf import GLB, GLTFS, glb, triangle
from hostile_numpy import npz

BOX = trimesh.creation.box((1.0, 2.0, 3.0))


def exported(ending: str, mesh: trimesh.Trimesh = BOX, **options: object) -> bytes:
    data = mesh.export(file_type=ending, **options)
    return data.encode() if isinstance(data, str) else data


STL, STL_TEXT = exported("stl"), exported("stl_ascii")
PLY, PLY_TEXT = exported("ply"), exported("ply", encoding="ascii")
OBJ, OFF, DAE = exported("obj"), exported("off"), exported("dae")


def ply_header(elements: str, encoding: str = "binary_little_endian") -> bytes:
    return f"ply\nformat {encoding} 1.0\n{elements}end_header\n".encode()


XYZ = "property float x\nproperty float y\nproperty float z\n"

FACES = "property list uchar int vertex_indices\n"

MESHES: dict[str, Case] = {
    f"{name} ({data[:4].hex()})": ("world.gltf", data, message)
    for name, (data, message) in GLTFS.items()
} | {
    "a short glb": ("w.glb", GLB[:19], "at least 20 bytes, got 19"),
    "a cut glb": ("w.glb", GLB[:-1], rf"as long as it says, {len(GLB)} bytes, got {len(GLB) - 1}"),
    "glb 1": ("w.glb", replaced(GLB, b"\x02\0\0\0", b"\x01\0\0\0"), "with glTF and version 2"),
    "a glb that lies": ("w.glb", glb(triangle(), json_length=2**32 - 1), "inside of the file"),
    "a chunk that lies": (
        "w.glb",
        replaced(GLB, struct.pack("<I", 36) + b"BIN\0", struct.pack("<I", 2**32 - 1) + b"BIN\0"),
        "second chunk must be the last, 4294967295 bytes, got 36",
    ),
    "a glb of no JSON": ("w.glb", glb(b"\xff\xfe"), "utf-8"),
    "stl of many faces": (
        "w.stl",
        STL[:80] + struct.pack("<I", 2**32 - 1) + STL[84:],
        "84 \\+ 50 bytes a face, got 684 bytes for 4294967295 faces",
    ),
    "a cut stl": ("w.stl", STL[:-20], "got 664 bytes for 12 faces"),
    "an stl of nothing": ("w.stl", bytes(84), "holds no triangle mesh"),
    "an stl with NaN": (
        "w.stl",
        STL[:96] + struct.pack("<f", np.nan) + STL[100:],
        r"vertices must be finite and below 1e9, got \[nan, .*\] at 0",
    ),
    "a cut stl text": ("w.stl", STL_TEXT[:-30], "must be a text that ends in endsolid"),
    "half an stl text": (
        "w.stl",
        STL_TEXT + replaced(STL_TEXT, b"solid", b"solid second").partition(b"endsolid")[0],
        "must hold 24 faces, got 12 that can be read",
    ),
    "an stl text with a word": ("w.stl", replaced(STL_TEXT, b"vertex ", b"vertex x"), "w.stl"),
    "an stl text with NaN": (
        "w.stl",
        b"solid a\nvertex 0 0 0\nvertex 1 0 0\nvertex nan 1 0\nendsolid\n"
        b"solid b\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendsolid\n",
        "vertices must be finite and below 1e9, got vertex nan 1 0",
    ),
    "an stl text that overflows": (
        "w.stl",
        STL_TEXT.replace(b"vertex ", b"vertex 1e400 ", 1),
        "vertices must be finite and below 1e9, got vertex 1e400",
    ),
    "many solids": ("w.stl", b"solid\nendsolid\n" * 10_000, "at most 4000 parts, got 10000"),
    "a cut ply": ("w.ply", PLY[:-1], "unexpected length"),
    "a ply header without end": ("w.ply", PLY[:40], "must have a line end_header"),
    "a ply of many": (
        "w.ply",
        ply_header(f"element vertex 1000000000000\n{XYZ}") + bytes(36),
        "unexpected length",
    ),
    "a ply text of many": (
        "w.ply",
        ply_header(f"element vertex 1000000000000\n{XYZ}", "ascii") + b"0 0 0\n",
        "elements must be 1000000000000 lines, got 1",
    ),
    "a negative ply": (
        "w.ply",
        ply_header(f"element vertex -3\n{XYZ}") + bytes(36),
        r"elements must be 0 or more, got \[-3\]",
    ),
    "a ply of long lists": (
        "w.ply",
        ply_header(f"element vertex 1\n{XYZ}element face 1\n{FACES.replace('uchar', 'uint')}")
        + bytes(12)
        + b"\xff\xff\xff\x7f",
        "w.ply",
    ),
    "a cut ply text": ("w.ply", b"\n".join(PLY_TEXT.split(b"\n")[:-4]), "must be 20 lines"),
    "a ply index beyond": (
        "w.ply",
        ply_header(f"element vertex 3\n{XYZ}element face 1\n{FACES}", "ascii")
        + b"0 0 0\n1 0 0\n0 1 0\n3 0 1 3\n",
        r"faces must index vertices 0 to 2, got \[0, 1, 3\] in face 0|index 3 is out of bounds",
    ),
    "a ply of points": ("w.ply", ply_header(f"element vertex 1\n{XYZ}", "ascii") + b"0 0 0\n",
                        "must be a triangle mesh, got a PointCloud"),
    "a cut off": ("w.off", b"\n".join(OFF.strip().split(b"\n")[:-2]), "each have a line, got 18"),
    "an off of many": ("w.off", b"OFF\n9999999999999 1 0\n0 0 0\n", "each have a line, got 1"),
    "a negative off": ("w.off", b"OFF\n-1 2 0\n0 0 0\n", "each have a line"),
    "an off of words": ("w.off", b"OFF\nx y z\n", "invalid literal"),
    "no off": ("w.off", b"", "must start with OFF and the numbers"),
    "an off index beyond": ("w.off", b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n", "index"),
    "an obj without faces": ("w.obj", b"v 0 0 0\n", "must be a triangle mesh, got a PointCloud"),
    "an empty obj": ("w.obj", b"", "holds no triangle mesh"),
    "an obj index beyond": ("w.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "w.obj"),
    "an obj index of 0": (
        "w.obj",
        b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n",
        "count vertices from 1, got f 0",
    ),
    "an obj that counts back": (
        "w.obj",
        b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\nv 5 5 5\n",
        "must follow all vertices, got f -3 -2 -1",
    ),
    "an obj with NaN": ("w.obj", b"v 0 0 0\nv 1 0 0\nv 0 nan 0\nf 1 2 3\n", "must be finite"),
    "an obj with words": ("w.obj", b"v 0 0 0\nv 1 0 x\nv 0 1 0\nf 1 2 3\n", "w.obj"),
    "an obj of many materials": (
        "w.obj",
        b"v 0 0 0\nv 1 0 0\nv 0 1 0\n" + b"".join(b"usemtl %d\nf 1 2 3\n" % i for i in range(9999)),
        "at most 4000 parts, got 9999",
    ),
    "a flat obj": ("w.obj", b"v 0 0\nv 1 0\nv 0 1\nf 1 2 3\n", "w.obj"),
    "a cut dae": ("w.dae", DAE[:-9], "well-formed XML"),
    "another dae": ("w.dae", b"<robot/>", "trimesh cannot read it: "),
    "a laughing dae": (
        "w.dae",
        replaced(
            replaced(DAE, b"<COLLADA", f"<!DOCTYPE x [{LAUGHS}]>\n<COLLADA".encode()),
            b"-0.5",
            b"&l11;",
        ),
        "limit on input amplification factor",
    ),
    "a dae with NaN": (
        "w.dae",
        replaced(DAE, b"-0.5", b"1e99"),
        "'verts-array-array' must hold finite numbers, got 1e99",
    ),
    "a skinned dae": (
        "w.dae",
        DAE.replace(b"instance_geometry", b"instance_controller"),
        "must not be skinned",
    ),
    "a dae that refers to nothing": (
        "w.dae",
        DAE.replace(b'instance_geometry url="#', b'instance_geometry url="#no'),
        "trimesh cannot read it: ",
    ),
    "a dae of lines": ("w.dae", DAE.replace(b"triangles", b"linestrips"), "read it: .*linest"),
    "an archive": ("w.zip", npz(("a.stl", STL), ("b.stl", b"?")), "must end in .* got 'zip'"),
    "no ending": ("w", STL, "must end in one of .*; got ''"),
    "a 3mf": ("w.3mf", b"PK\x03\x04", "w.3mf"),
    "a cloud": ("w.xyz", b"0 0 0\n1 0 0\n", "must be a triangle mesh, got a PointCloud"),
}  # fmt: skip


def collada_nodes(levels: int) -> bytes:
    """Nodes of which each instantiates the next one twice."""
    nodes = "".join(
        f'<node id="n{i}"><instance_node url="#n{i + 1}"/><instance_node url="#n{i + 1}"/></node>'
        for i in range(levels)
    )
    leaf = f'<node id="n{levels}"><instance_geometry url="#g"/></node>'
    scene = '<visual_scene id="s"><node id="top"><instance_node url="#n0"/></node></visual_scene>'
    head = '<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">'
    return (
        f"{head}<library_geometries><geometry id='g'><mesh/></geometry></library_geometries>"
        f"<library_nodes>{nodes}{leaf}</library_nodes>"
        f"<library_visual_scenes>{scene}</library_visual_scenes>"
        '<scene><instance_visual_scene url="#s"/></scene></COLLADA>'
    ).encode()


MESHES["a dae that doubles"] = ("w.dae", collada_nodes(30), "in 3 s and 1024 MiB, .* got SIGXCPU")
MESHES["a dae in a circle"] = (
    "w.dae",
    collada_nodes(2).replace(b"#n2", b"#n0"),
    "trimesh cannot read it: .*#n1",
)

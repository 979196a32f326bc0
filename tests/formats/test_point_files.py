"""Points from files of all kinds, whole and damaged."""

import struct
from pathlib import Path

import numpy as np
import pytest
import trimesh

from warp_collision import MeshWorld, PointCloud
from warp_collision.formats.point_files import read_points, unpacked_lzf
from warp_collision.io import load_world_mapping

POINTS = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)


def pcd(kind: str, **replaced: str) -> bytes:
    """A PCD file whose points have an intensity between y and z, and a normal of two numbers."""
    header = {
        "VERSION": ".7",
        "FIELDS": "x y intensity z normal",
        "SIZE": "4 4 1 8 4",
        "TYPE": "F F U F F",
        "COUNT": "1 1 1 1 2",
        "WIDTH": "50",
        "HEIGHT": "1",
        "VIEWPOINT": "0 0 0 1 0 0 0",
        "POINTS": "50",
        "DATA": kind,
    } | replaced
    dtype = [("x", "<f4"), ("y", "<f4"), ("i", "u1"), ("z", "<f8"), ("n", "<f4", 2)]
    rows = np.zeros(50, dtype)
    rows["x"], rows["y"], rows["z"] = POINTS.T
    rows["i"] = 7
    text = "# a comment\n" + "".join(f"{key} {value}\n" for key, value in header.items())
    if kind == "ascii":
        lines = [" ".join(map(repr, map(float, (r["x"], r["y"], 7, r["z"], 0, 0)))) for r in rows]
        return text.encode() + "\n".join(lines).encode() + b"\n"
    if kind == "binary":
        return text.encode() + rows.tobytes()
    columns = [rows["x"], rows["y"], rows["i"], rows["z"], rows["n"][:, 0], rows["n"][:, 1]]
    packed, size = packed_lzf(b"".join(column.tobytes() for column in columns))
    return text.encode() + struct.pack("<II", len(packed), size) + packed


def packed_lzf(content: bytes) -> tuple[bytes, int]:
    """LZF with runs of equal bytes as repetitions, and the size of the content."""
    packed, at, plain = bytearray(), 0, bytearray()

    def flush() -> None:
        for begin in range(0, len(plain), 32):
            piece = plain[begin : begin + 32]
            packed.extend((len(piece) - 1, *piece))
        plain.clear()

    while at < len(content):
        run = 1
        while at + run < len(content) and content[at + run] == content[at] and run < 260:
            run += 1
        plain.append(content[at])
        at += 1
        if run > 3:
            flush()
            length = run - 1 - 2
            packed.extend((length << 5, 0) if length < 7 else (7 << 5, length - 7, 0))
            at += run - 1
    flush()
    return bytes(packed), len(content)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["ascii", "binary", "binary_compressed"])
def test_pcd(kind: str, tmp_path: Path) -> None:
    found = read_points(write(tmp_path / "a.pcd", pcd(kind)))
    np.testing.assert_array_equal(found, POINTS)


@pytest.mark.parametrize("encoding", ["ascii", "binary"])
def test_ply(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.PLY"
    trimesh.PointCloud(POINTS, np.full((50, 4), 9, np.uint8)).export(
        path, file_type="ply", encoding=encoding
    )
    np.testing.assert_allclose(read_points(path), POINTS, rtol=0, atol=1e-6)
    mesh = trimesh.creation.box()
    mesh.export(tmp_path / "mesh.ply", encoding=encoding)
    np.testing.assert_allclose(read_points(tmp_path / "mesh.ply"), mesh.vertices, atol=1e-7)


def test_ply_of_the_other_byte_order(tmp_path: Path) -> None:
    header = "ply\nformat binary_big_endian 1.0\nelement vertex 50\n"
    header += "".join(
        f"property {kind} {name}\n"
        for kind, name in zip(
            ("double", "float", "uchar", "float"), ("z", "y", "red", "x"), strict=True
        )
    )
    rows = np.zeros(50, [("z", ">f8"), ("y", ">f4"), ("r", "u1"), ("x", ">f4")])
    rows["x"], rows["y"], rows["z"] = POINTS.T
    path = write(tmp_path / "a.ply", (header + "end_header\n").encode() + rows.tobytes())
    np.testing.assert_array_equal(read_points(path), POINTS)


def test_numpy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", POINTS)
    np.testing.assert_array_equal(read_points(tmp_path / "a.npy"), POINTS)
    np.savez(tmp_path / "a.npz", other=np.zeros(3), points=np.c_[POINTS, np.ones(50)])
    assert read_points(tmp_path / "a.npz").shape == (50, 4)
    np.savez_compressed(tmp_path / "b.npz", scan=POINTS)
    np.testing.assert_array_equal(read_points(tmp_path / "b.npz"), POINTS)


PLY = b"ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\n"
BAD = {
    "a.xyz": (b"0 0 0", r"points must be a \.npz, \.npy, \.ply, \.pcd file, got '\.xyz'"),
    "empty.ply": (b"", "must have a header that ends with end_header"),
    "endless.ply": (b"ply\n" + b"comment x\n" * 10_000, "must have a header"),
    "other.ply": (b"plx\nend_header\n", "must begin with ply"),
    "flat.ply": (PLY + b"end_header\n0 0\n1 1\n", "must have x, y and z once each"),
    "short.ply": (PLY + b"property float z\nend_header\n0 0 0 1 1\n", "must hold 2 points"),
    "words.ply": (PLY + b"property float z\nend_header\n0 0 0 1 1 one\n", "could not convert"),
    "kind.ply": (PLY + b"property real z\nend_header\n", "real"),
    "order.ply": (PLY.replace(b"ascii", b"middle") + b"end_header\n", "must have a format"),
    "faces.ply": (PLY.replace(b"vertex", b"face") + b"end_header\n", "vertex first"),
    "many.ply": (PLY.replace(b" 2\n", b" 999999999999\n") + b"end_header\n", "at most 200000000"),
    "short.pcd": (pcd("binary")[:-1], "must hold 1250 bytes of points, got 1249"),
    "more.pcd": (pcd("ascii", POINTS="51"), "must hold 51 points"),
    "kind.pcd": (pcd("ascii").replace(b"DATA ascii", b"DATA zip"), "DATA must be ascii"),
    "size.pcd": (pcd("ascii", SIZE="4 4"), "must have a SIZE, TYPE and COUNT"),
    "count.pcd": (pcd("ascii", COUNT="1 1 1 1 99999999"), "must have a COUNT"),
    "bomb.pcd": (
        pcd("binary_compressed").split(b"DATA")[0]
        + b"DATA binary_compressed\n"
        + struct.pack("<II", 8, 0xFFFFFFFF)
        + bytes(8),
        "must unpack to the size of its points",
    ),
    "damaged.npy": (b"\x93NUMPY\x01", "."),
    "no.npz": (b"PK", "not a zip file"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_are_named(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        read_points(write(tmp_path / name, content))
    assert name in str(caught.value)
    with pytest.raises(FileNotFoundError):
        read_points(tmp_path / "none.ply")


def test_lzf_is_bounded() -> None:
    content = bytes(range(200)) + bytes(1000) + b"abc" * 5
    packed, size = packed_lzf(content)
    assert unpacked_lzf(packed, size) == content
    with pytest.raises(ValueError, match="must unpack to 1214 bytes"):
        unpacked_lzf(packed, size - 1)
    with pytest.raises(ValueError, match="before its first byte"):
        unpacked_lzf(b"\x20\x05", 3)
    # A repetition that reaches into itself.
    assert unpacked_lzf(b"\x01ab\xe0\x01\x01", 12) == b"ab" * 6


def test_entries_of_worlds(tmp_path: Path) -> None:
    write(tmp_path / "scan.pcd", pcd("binary"))
    entry = {"file_path": "scan.pcd", "radius": 0.01, "pose": [0, 0, 1, 1, 0, 0, 0]}
    world = MeshWorld.from_mapping({"point_cloud": {"scan": entry}}, "cpu", folder=tmp_path)
    cloud = world.report("scan").shape
    assert isinstance(cloud, PointCloud)
    np.testing.assert_array_equal(cloud.points, POINTS)
    for wrong, message in (
        ({"radius": -1}, r"point_cloud\.scan\.radius must be a positive number, got -1"),
        ({"radius": None}, r"point_cloud\.scan\.radius must be"),
        ({"file_path": "none.pcd"}, r"point_cloud\.scan\.file_path must be an existing file"),
        ({"colour": 1}, "keys must be among"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            load_world_mapping({"point_cloud": {"scan": entry | wrong}}, folder=tmp_path)
    del entry["radius"]
    with pytest.raises(ValueError, match=r"point_cloud\.scan: .*radius must be given for points"):
        load_world_mapping({"point_cloud": {"scan": entry}}, folder=tmp_path)
    bad = POINTS.copy()
    bad[3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    entry |= {"file_path": "bad.npy", "radius": 0.1}
    with pytest.raises(ValueError, match="got 1 of 50 that are not"):
        load_world_mapping({"point_cloud": {"scan": entry}}, folder=tmp_path)
    read = load_world_mapping(
        {"point_cloud": {"scan": entry | {"drop_invalid": True}}}, folder=tmp_path
    )
    assert isinstance(read["scan"].geometry, PointCloud)
    assert len(read["scan"].geometry) == 49

"""Array files that are damaged, hostile or odd."""

import io
import struct
import zipfile

import numpy as np

from hostile_files import Case, replaced


def npy(
    shape: object = (2, 4), descr: object = "<f4", data: bytes = b"\0" * 32, **changes
) -> bytes:
    """An .npy file with any header, however wrong."""
    header = {"descr": descr, "fortran_order": False, "shape": shape, **changes}
    return raw_npy(repr(header).encode(), data)


def raw_npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header) + 1) + header + b"\n" + data


def npz(
    *members: tuple[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b""
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
        archive.comment = comment
    return file.getvalue()


def patched(data: bytes, local: int, central: int, value: bytes) -> bytes:
    """A zip file of one member with a field of both its headers changed."""
    start = data.rindex(b"PK\x01\x02")
    changed = bytearray(data)
    changed[local : local + len(value)] = value
    changed[start + central : start + central + len(value)] = value
    return bytes(changed)


GOOD_NPY = npy()
GOOD_NPZ = npz(("spheres.npy", GOOD_NPY))
DEFLATED = npz(("spheres.npy", npy((400, 4), data=bytes(range(256)) * 25)), method=8)

NUMPY: dict[str, Case] = {
    "an empty npy": ("s.npy", b"", "EOF|expected 8 bytes"),
    "no magic": ("s.npy", b"1, 2, 3, 4\n" * 9, "magic string is not correct"),
    "version 3": (
        "s.npy",
        raw_npy(b"{}", version=b"\x03\x00"),
        "EOF: reading array header",
    ),
    "version 9": ("s.npy", raw_npy(b"{}", version=b"\x09\x07"), r"format version .* not \(9, 7\)"),
    "a header of nothing": ("s.npy", raw_npy(b""), "header"),
    "a header of code": ("s.npy", raw_npy(b"__import__('os')"), "header"),
    "a deep header": ("s.npy", raw_npy(b"[" * 9000), "header|nested|memory|recursion"),
    "a header that is cut": ("s.npy", raw_npy(b" " * 500)[:40], "EOF"),
    "an absurd shape": ("s.npy", npy((2**40, 4)), "must end with its array, of shape"),
    "a shape beyond 64 bits": ("s.npy", npy((2**64, 2**64, 4)), "must end with its array"),
    "a negative shape": ("s.npy", npy((-1, 4)), "must end with its array"),
    "a shape of floats": ("s.npy", npy((2.0, 4)), "shape"),
    "a shape of text": ("s.npy", npy("24"), "shape"),
    "no spheres": ("s.npy", npy((0, 4), data=b""), r"holds no spheres, got shape \(0, 4\)"),
    "too many axes": ("s.npy", npy((1,) * 30 + (4,), data=bytes(16)), "must have shape"),
    "cut data": (
        "s.npy",
        GOOD_NPY[:-1],
        r"must end with its array, of shape \(2, 4\); got",
    ),
    "more data": ("s.npy", GOOD_NPY + b"\0", "must end with its array"),
    "objects": ("s.npy", npy(descr="|O"), "must be numbers, got dtype object"),
    "text": ("s.npy", npy(descr="<U1"), "must be numbers, got dtype <U1"),
    "nothing": ("s.npy", npy(descr="|V0", data=b""), "must be numbers, got dtype"),
    "fields": ("s.npy", npy(descr=[("x", "<f4")]), "must be numbers, got dtype"),
    "huge items": (
        "s.npy",
        npy(descr="|V2000000000"),
        "must be numbers, got dtype",
    ),
    "an unknown type": ("s.npy", npy(descr="<q77"), "descr"),
    "a NaN": ("s.npy", npy((1, 4), data=struct.pack("<4f", 0, 0, 0, np.nan)), "must be finite"),
    "a pickle": ("s.npy", b"\x80\x04K\x01.", "magic|EOF|expected"),
    "an empty npz": ("s.npz", b"", "zip"),
    "noise": ("s.npz", bytes(range(256)), "zip"),
    "no members": ("s.npz", npz(), r"one array 'spheres' or a single array, got \[\]"),
    "two members": ("s.npz", npz(("a.npy", GOOD_NPY), ("b.npy", GOOD_NPY)), r"got \['a', 'b'\]"),
    "a name that controls": (
        "s.npz",
        npz(("a\x1b[31m.npy", GOOD_NPY), ("b.npy", GOOD_NPY)),
        r"got \['a\\x1b\[31m', 'b'\]",
    ),
    "a foreign member": ("s.npz", npz(("spheres", b"hello")), "member 'spheres': .*magic|expected"),
    "an empty member": ("s.npz", npz(("spheres.npy", b"")), "member 'spheres.npy': .*expected|EOF"),
    "a member of objects": (
        "s.npz",
        npz(("spheres.npy", npy(descr="|O"))),
        "member 'spheres.npy': Object arrays cannot be loaded",
    ),
    "an absurd member": ("s.npz", npz(("a.npy", npy((2**50, 4)))), "Unable to allocate"),
    "a longer member": ("s.npz", npz(("a.npy", GOOD_NPY + b"x")), "must end with its array"),
    "encrypted": ("s.npz", patched(GOOD_NPZ, 6, 8, b"\x01\x00"), "is encrypted, password required"),
    "method 97": (
        "s.npz",
        patched(GOOD_NPZ, 8, 10, b"\x61\x00"),
        "compression method is not supported",
    ),
    "stored called deflated": ("s.npz", patched(GOOD_NPZ, 8, 10, b"\x08\x00"), "member 'spheres"),
    "a huge unpacked size": (
        "s.npz",
        patched(DEFLATED, 22, 24, struct.pack("<I", 4_000_000_000)),
        "must unpack to at most 1073741824 bytes, got 4000000000",
    ),
    "a wrong unpacked size": (
        "s.npz",
        patched(DEFLATED, 22, 24, struct.pack("<I", 500)),
        "CRC|EOF: reading array data",
    ),
    "a wrong checksum": ("s.npz", replaced(GOOD_NPZ, b"\0" * 30, b"\1" + b"\0" * 29), "CRC"),
    "a damaged stream": (
        "s.npz",
        DEFLATED[:150] + bytes(40) + DEFLATED[190:],
        "member 'spheres.npy': ",
    ),
    "a cut archive": ("s.npz", GOOD_NPZ[:-30], "zip"),
    "text as spheres": ("s.csv", b"1,2,3,4", "must be a .npy or .npz file, got '.csv'"),
}

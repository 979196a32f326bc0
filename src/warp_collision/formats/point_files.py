"""Points from files: arrays of NumPy, PLY and PCD; what else such files hold is passed over."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from warp_collision.formats.files import existing_file
from warp_collision.messages import any_error_at, escaped, short_repr

MAX_POINTS = 200_000_000  # of a file
MAX_UNPACKED = 1 << 30  # bytes of what is compressed
_MAX_HEADER = 1 << 16  # bytes
_PLY_TYPES = {
    **{"char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1"},
    **{"short": "i2", "int16": "i2", "ushort": "u2", "uint16": "u2"},
    **{"int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4"},
    **{"float": "f4", "float32": "f4", "double": "f8", "float64": "f8"},
}
_PLY_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_PCD_KINDS = {"F": "f", "I": "i", "U": "u"}
ENDINGS = (".npz", ".npy", ".ply", ".pcd")


class _Table(NamedTuple):
    """A table in a file.

    Attributes:
        count: of its rows.
        columns: name and dtype of each.
    """

    count: int
    columns: list[tuple[str, str]]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a row; columns of equal names, as of padding, are told apart."""
        return np.dtype([(f"{i} {name}", kind) for i, (name, kind) in enumerate(self.columns)])

    def points(self, content: bytes, is_text: bool) -> np.ndarray:
        """The columns x, y, z (n, 3) of a content that begins with the table."""
        names = [name for name, _ in self.columns]
        missing = [axis for axis in "xyz" if names.count(axis) != 1]
        if missing:
            raise ValueError(f"points must have x, y and z once each, got {short_repr(names)}")
        places = [names.index(axis) for axis in "xyz"]
        if is_text:
            rows = content.split(None, self.count * len(names))[: self.count * len(names)]
            if len(rows) != self.count * len(names):
                raise ValueError(f"must hold {self.count} points, got fewer")
            return np.array(rows).reshape(self.count, -1)[:, places].astype(np.float64)
        need = self.count * self.dtype.itemsize
        if len(content) < need:
            raise ValueError(f"must hold {need} bytes of points, got {len(content)}")
        rows = np.frombuffer(content, self.dtype, self.count)
        return np.column_stack([rows[f"{i} {names[i]}"].astype(np.float64) for i in places])


def read_points(path: str | os.PathLike[str]) -> np.ndarray:
    """Points (n, 3) float64 of a file, or (n, 4) of one of NumPy that has radii.

    Args:
        path: .npy, .npz with an array `points` or a single array, .ply with a text or binary table
            `vertex`, or .pcd of any kind.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another ending, damaged, more than 200 million points, or none.
    """
    path = existing_file(path)
    where, suffix = escaped(str(path)), path.suffix.lower()
    if suffix not in ENDINGS:
        raise ValueError(
            f"{where}: points must be a {', '.join(ENDINGS)} file, got {short_repr(suffix)}"
        )
    with any_error_at(where):
        if suffix == ".npz":
            arrays = read_arrays(path)
            if "points" not in arrays and len(arrays) != 1:
                raise ValueError(f"must hold an array 'points', got {short_repr(list(arrays))}")
            return _numbers(arrays["points"] if "points" in arrays else next(iter(arrays.values())))
        with path.open("rb") as file:
            if suffix == ".npy":
                return _numbers(np.lib.format.read_array(file, allow_pickle=False))
            return _read_ply(file) if suffix == ".ply" else _read_pcd(file)


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """Opens a member of an .npz file, which unpacks to at most 1 GiB if it is compressed."""
    if member.file_size > max(MAX_UNPACKED, member.compress_size):
        raise ValueError(f"must unpack to at most {MAX_UNPACKED} bytes, got {member.file_size}")
    return archive.open(member)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by their names; the caller names the file."""
    with zipfile.ZipFile(path) as archive:
        arrays = {}
        for member in archive.infolist():
            with open_member(archive, member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            arrays[member.filename.removesuffix(".npy")] = array
    return arrays


def _numbers(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "fiu" or array.ndim != 2 or array.shape[1] not in (3, 4):
        raise ValueError(
            f"points must be numbers of shape (n, 3) or (n, 4), got {array.dtype} {array.shape}"
        )
    return array.astype(np.float64)


def _header(file: IO[bytes], last: bytes) -> list[list[str]]:
    """Words of the lines up to the one that begins with a word."""
    lines: list[list[str]] = []
    size = 0
    while not lines or lines[-1][:1] != [last.decode()]:
        line = file.readline(_MAX_HEADER)
        size += len(line)
        if not line or size > _MAX_HEADER:
            raise ValueError(f"must have a header that ends with {last.decode()}")
        words = line.decode("ascii", "replace").split()
        if words:
            lines.append(words)
    return lines


def _count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= MAX_POINTS:
        raise ValueError(f"must hold at most {MAX_POINTS} points, got {short_repr(text)}")
    return count


def _read_ply(file: IO[bytes]) -> np.ndarray:
    lines = _header(file, b"end_header")
    if lines[0] != ["ply"]:
        raise ValueError(f"must begin with ply, got {short_repr(lines[0])}")
    order: str | None = None
    elements: list[tuple[str, _Table]] = []
    for words in lines[1:]:
        if words[0] == "format":
            order = _PLY_ORDERS.get(words[1])
        elif words[0] == "element":
            elements.append((words[1], _Table(_count(words[2]), [])))
        elif words[0] == "property":
            if elements[-1][0] == "vertex" or "vertex" not in dict(elements):
                # Before the vertices, or in them, lists have no length that is known.
                elements[-1][1].columns.append((words[-1], (order or "") + _PLY_TYPES[words[1]]))
    if order is None:
        raise ValueError(f"must have a format among {', '.join(_PLY_ORDERS)}")
    if not elements or elements[0][0] != "vertex":
        raise ValueError("must have its element vertex first")
    vertices = elements[0][1]
    if order == "":
        return vertices.points(file.read(), True)
    return vertices.points(file.read(vertices.count * vertices.dtype.itemsize), False)


def _read_pcd(file: IO[bytes]) -> np.ndarray:
    values = {words[0]: words[1:] for words in _header(file, b"DATA")}
    names = values["FIELDS"]
    counts = [int(text) for text in values.get("COUNT", ["1"] * len(names))]
    if not len(names) == len(values["SIZE"]) == len(values["TYPE"]) == len(counts):
        raise ValueError("must have a SIZE, TYPE and COUNT for each of its FIELDS")
    if sum(counts) > 1024 or min(counts, default=0) < 1:
        raise ValueError(f"must have a COUNT of 1 to 1024 in all, got {short_repr(counts)}")
    fields = list(zip(names, values["SIZE"], values["TYPE"], counts, strict=True))
    kinds = [f"<{_PCD_KINDS[kind]}{int(size)}" for _, size, kind, _ in fields]
    table = _Table(
        _count(values["POINTS"][0]),
        [
            (name, kind)
            for (name, _, _, count), kind in zip(fields, kinds, strict=True)
            for _ in range(count)
        ],
    )
    (data,) = values["DATA"]
    if data == "ascii":
        return table.points(file.read(), True)
    if data == "binary":
        return table.points(file.read(table.count * table.dtype.itemsize), False)
    if data != "binary_compressed":
        raise ValueError(f"DATA must be ascii, binary or binary_compressed, got {short_repr(data)}")
    packed, size = np.frombuffer(file.read(8), "<u4").tolist()
    if size > MAX_UNPACKED or size < table.count * table.dtype.itemsize:
        raise ValueError(f"must unpack to the size of its points, below 1 GiB, got {size}")
    content = unpacked_lzf(file.read(packed), size)
    # Column by column, unlike in the other kinds.
    columns, at = [], 0
    for name, kind in table.columns:
        width = np.dtype(kind).itemsize * table.count
        columns.append((name, np.frombuffer(content[at : at + width], kind)))
        at += width
    return np.column_stack([dict(columns)[axis].astype(np.float64) for axis in "xyz"])


def unpacked_lzf(packed: bytes, size: int) -> bytes:
    """What LZF, as PCD files have it, was packed from; of exactly that size.

    A byte below 32 is followed by one byte more than its value, as they are. Any other byte repeats
    earlier bytes. Its upper bits have their number. Its lower bits and the next byte say how far
    back they are.
    """
    content = bytearray()
    at = 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:
            content += packed[at : at + control + 1]
            at += control + 1
        else:
            length = control >> 5
            if length == 7:
                length += packed[at]
                at += 1
            back = ((control & 31) << 8) + packed[at] + 1
            at += 1
            begin, length = len(content) - back, length + 2
            if begin < 0:
                raise ValueError("must not repeat what is before its first byte")
            while length:  # what is repeated may reach into itself
                piece = content[begin : begin + length]
                content += piece
                length -= len(piece)
        if len(content) > size:
            break
    if len(content) != size:
        raise ValueError(f"must unpack to {size} bytes, got {len(content)}")
    return bytes(content)

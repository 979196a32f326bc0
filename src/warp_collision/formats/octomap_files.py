"""OctoMap files: octrees of voxels that are free or occupied, as .bt and as .ot.

A tree has 16 levels below its root. The voxel with the key (i, j, k) begins at (key - 32768) times
the resolution along each axis. Child c of a node is its half of greater x, y, z where bit 0, 1,
2 of c is set. After a header of text come the nodes, each before its children, these in order:

- .bt: 16 bits a node, two for each child: 00 unknown, 10 free, 01 occupied, 11 with children, the
  first bit of each pair lower. Leaves have no bytes of their own.
- .ot: 4 bytes, the logarithm of the odds that a node is occupied, then a byte of which children
  there are. Trees with colors have three bytes between.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from warp_collision.formats.files import existing_file
from warp_collision.messages import any_error_at, escaped, short_repr

ENDINGS = (".bt", ".ot")
DEPTH = 16
ORIGIN = 1 << (DEPTH - 1)  # key of the voxel that begins at 0
_UNSEEN, _FREE, _OCCUPIED, _INNER, _WITH_HITS = 0, 1, 2, 3, 4  # inner nodes without and with hits
# OctoMap's bounds of what a voxel that was measured often is taken for, as logarithms of odds.
_ODDS = {_FREE: -2.0, _OCCUPIED: 3.5}
_IDS: dict[str, tuple[str, tuple[str, ...]]] = {
    ".bt": ("# Octomap OcTree binary file", ("OcTree",))
}
_IDS[".ot"] = ("# Octomap OcTree file", ("OcTree", "ColorOcTree"))


class _Level(NamedTuple):
    """Nodes of a level, in the box around what was seen.

    Attributes:
        children: the states of eight for each node, as a child or an inner node has them.
        first: x, y, z of the first node.
        shape: nx, ny, nz of the box.
    """

    children: bytes
    first: list[int]
    shape: tuple[int, ...]

    def of(self, x: int, y: int, z: int) -> bytes:
        """The states of the children of a node."""
        i, j, k = (value - low for value, low in zip((x, y, z), self.first, strict=True))
        place = 8 * ((i * self.shape[1] + j) * self.shape[2] + k)
        return self.children[place : place + 8]


class OctoLeaves(NamedTuple):
    """The leaves of a tree.

    Attributes:
        resolution: edge of a voxel [m].
        corners: (n, 3) keys of the first voxels of leaves.
        sizes: (n,) edges in voxels.
        is_occupied: (n,) else free.
    """

    resolution: float
    corners: np.ndarray
    sizes: np.ndarray
    is_occupied: np.ndarray


def read_octomap(path: str | os.PathLike[str]) -> OctoLeaves:
    """The leaves of a .bt or .ot file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another ending, or a damaged file.
    """
    file = existing_file(path)
    suffix = _suffix(file)
    with any_error_at(escaped(str(file))):
        header, content = _split(file.read_bytes(), suffix)
        resolution, count = float(header["res"]), int(header["size"])
        if not 0.0 < resolution < 1e9 or count < 0:
            raise ValueError(f"res must be positive and size not negative, got {header}")
        rows: list[tuple[int, int, int, int, int]] = []
        if count:
            is_colored = header["id"] == "ColorOcTree"
            found = _bits(content, rows) if suffix == ".bt" else _odds(content, rows, is_colored)
            if found != count:
                raise ValueError(f"the tree must have the {count} nodes of its header, got {found}")
        table = np.array(rows, np.int64).reshape(-1, 5)
        return OctoLeaves(resolution, table[:, :3], table[:, 3], table[:, 4] == _OCCUPIED)


def write_octomap(
    path: str | os.PathLike[str], states: np.ndarray, corner: np.ndarray, resolution: float
) -> None:
    """Writes voxels as a tree; eight that are the same become one.

    Args:
        path: ends with .bt or .ot.
        states: (nx, ny, nz) 0 unseen, 1 free, 2 occupied.
        corner: (3,) key of the first voxel.
        resolution: edge of a voxel [m].

    Raises:
        ValueError: another ending, or voxels beyond the keys from 0 to 65535.
    """
    file = Path(path)
    suffix = _suffix(file)
    if (corner < 0).any() or (corner + states.shape > 2 * ORIGIN).any():
        raise ValueError(
            f"an OctoMap must lie within {ORIGIN} voxels of 0 along each axis, got voxels from "
            f"{(corner - ORIGIN).tolist()} on, {states.shape}"
        )
    levels = _pyramid(states, corner)
    count, body = _body(levels, suffix)
    first = _IDS[suffix][0]
    header = f"{first}\n#\nid OcTree\nsize {count}\nres {resolution!r}\ndata\n"
    file.write_bytes(header.encode("ascii") + body)


def _suffix(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix not in ENDINGS:
        raise ValueError(f"path must end with .bt or .ot, got {short_repr(str(file))}")
    return suffix


def _split(content: bytes, suffix: str) -> tuple[dict[str, str], bytes]:
    """The lines of the header, and what is behind them."""
    title, known = _IDS[suffix]
    if not content.startswith(title.encode("ascii")):
        raise ValueError(f"must begin with {title!r}, got {short_repr(content[:30])}")
    head, mark, body = content.partition(b"\ndata\n")
    if not mark:
        raise ValueError("must have a line 'data' after its header, got none")
    lines = [line.split() for line in head.decode("ascii", "replace").splitlines()]
    header = {line[0]: line[1] for line in lines if len(line) > 1 and line[0] != "#"}
    if missing := [name for name in ("id", "size", "res") if name not in header]:
        raise ValueError(f"the header must have id, size and res, got none of {missing}")
    if header["id"] not in known:
        raise ValueError(f"id must be {' or '.join(known)}, got {short_repr(header['id'])}")
    return header, body


def _children(x: int, y: int, z: int, half: int, numbers: list[int]) -> list[tuple[int, ...]]:
    """Corner and edge of these children, the last first, as a stack has them."""
    return [
        (x + half * (c & 1), y + half * (c >> 1 & 1), z + half * (c >> 2), half)
        for c in reversed(numbers)
    ]


def _bits(content: bytes, rows: list[tuple[int, int, int, int, int]]) -> int:
    """Adds the leaves of a .bt file, and returns how many nodes it has."""
    stack: list[tuple[int, ...]] = [(0, 0, 0, 2 * ORIGIN)]
    place, count = 0, 1
    while stack:
        x, y, z, size = stack.pop()
        (bits,) = struct.unpack_from("<H", content, place)
        place += 2
        if size == 1 and bits:
            raise ValueError("no node must have children below level 16, got one that has")
        inner, half = [], size // 2
        for c in range(8):
            kind = bits >> 2 * c & 3  # free has the lower bit, occupied the upper one
            if kind == _INNER:
                inner.append(c)
            elif kind:
                rows.append((*_children(x, y, z, half, [c])[0], kind))  # pyright: ignore
            count += kind != _UNSEEN
        stack.extend(_children(x, y, z, half, inner))
    return count


def _odds(content: bytes, rows: list[tuple[int, int, int, int, int]], is_colored: bool) -> int:
    """Adds the leaves of an .ot file, and returns how many nodes it has."""
    node = struct.Struct("<f3xB" if is_colored else "<fB")
    stack: list[tuple[int, ...]] = [(0, 0, 0, 2 * ORIGIN)]
    place, count = 0, 0
    while stack:
        x, y, z, size = stack.pop()
        odds, bits = node.unpack_from(content, place)
        place, count = place + node.size, count + 1
        if bits and size == 1:
            raise ValueError("no node must have children below level 16, got one that has")
        if not bits:
            if odds != odds:
                raise ValueError("odds must be numbers, got NaN")
            rows.append((x, y, z, size, _OCCUPIED if odds >= 0.0 else _FREE))
        numbers = [c for c in range(8) if bits >> c & 1]
        stack.extend(_children(x, y, z, size // 2, numbers))
    return count


def _pyramid(states: np.ndarray, corner: np.ndarray) -> list[_Level]:
    """What the children of the nodes of each level are, from the root's to the voxels."""
    below, first = np.asarray(states, np.uint8), np.asarray(corner, np.int64)
    levels: list[_Level] = []
    for _ in range(DEPTH):
        padded = np.pad(below, np.stack((first % 2, (first + below.shape) % 2), axis=1))
        nx, ny, nz = (length // 2 for length in padded.shape)
        eight = padded.reshape(nx, 2, ny, 2, nz, 2).transpose(0, 2, 4, 5, 3, 1)
        eight = np.ascontiguousarray(eight).reshape(nx, ny, nz, 8)
        first = first // 2
        levels.insert(0, _Level(eight.tobytes(), first.tolist(), eight.shape[:3]))
        has_hit = ((eight == _OCCUPIED) | (eight == _WITH_HITS)).any(axis=-1)
        inner = np.where(has_hit, _WITH_HITS, _INNER)
        is_leaf = (eight == eight[..., :1]).all(axis=-1) & (eight[..., 0] <= _OCCUPIED)
        below = np.where(is_leaf, eight[..., 0], inner).astype(np.uint8)
    return levels


def _body(levels: list[_Level], suffix: str) -> tuple[int, bytes]:
    """Number of nodes, and their bytes."""
    is_binary = suffix == ".bt"
    if not any(levels[-1].children):
        return 0, b""
    found, count = bytearray(), 0
    has_hit = any(state in (_OCCUPIED, _WITH_HITS) for state in levels[0].children)
    stack = [(0, 0, 0, 0, _WITH_HITS if has_hit else _INNER)]
    while stack:
        depth, x, y, z, kind = stack.pop()
        count += 1
        states = levels[depth].of(x, y, z) if kind >= _INNER else b""
        if is_binary:
            found += struct.pack("<H", sum(min(s, _INNER) << 2 * c for c, s in enumerate(states)))
            count += sum(0 < state < _INNER for state in states)
        else:
            bits = sum(1 << c for c, state in enumerate(states) if state)
            odds = _ODDS[_OCCUPIED if kind in (_OCCUPIED, _WITH_HITS) else _FREE]
            found += struct.pack("<fB", odds, bits)
        least = _INNER if is_binary else _FREE
        for c in range(len(states) - 1, -1, -1):
            if states[c] >= least:
                at = 2 * x + (c & 1), 2 * y + (c >> 1 & 1), 2 * z + (c >> 2)
                stack.append((depth + 1, *at, states[c]))
    return count, bytes(found)

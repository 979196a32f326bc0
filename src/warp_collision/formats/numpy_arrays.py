"""Arrays from NumPy's files, read by NumPy; none is left out, cut or of another shape."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from warp_collision.messages import any_error_at, escaped, short_repr

MAX_UNPACKED = 1 << 30  # bytes of a compressed array: a file of 1 MiB can unpack to 1 GiB


class ArrayRule(NamedTuple):
    """Requirements on an array in a file.

    Attributes:
        name: of the member of an .npz file, and in messages.
        shapes: those that are allowed, as text.
        axes: minimum and maximum number.
        last: length of the last axis, None for any.
        hint: added to the message of a wrong shape.
        kinds: of NumPy's dtypes.
    """

    name: str
    shapes: str
    axes: tuple[int, int]
    last: int | None
    hint: str = ""
    kinds: str = "iuf"

    def check(self, shape: tuple[int, ...], dtype: Any) -> None:
        """Raises a ValueError for another shape, another kind of numbers, or none."""
        if dtype.kind not in self.kinds:
            what = "numbers" if "f" in self.kinds else "text"
            raise ValueError(f"{self.name} must be {what}, got dtype {escaped(str(dtype), 100)}")
        low, high = self.axes
        if not low <= len(shape) <= high or self.last not in (None, shape[-1]):
            raise ValueError(
                f"{self.name} must have shape {self.shapes}, got {short_repr(shape)}{self.hint}"
            )
        if 0 in shape:
            raise ValueError(f"holds no {self.name}, got shape {short_repr(shape)}")


_SPHERES = ArrayRule(
    "spheres",
    "(n_spheres, 4), (horizon, n_spheres, 4) or (batch, horizon, n_spheres, 4)",
    (2, 4),
    4,
)


def read_spheres(path: Path) -> np.ndarray:
    """Reads the array of a .npy file, or the array `spheres` or the only array of an .npz file.

    Returns:
        (..., n_spheres, 4) of two to four axes and at least one sphere, of any real number type.

    Raises:
        ValueError: no such file, damaged, or no such array; it names the file and the member.
    """
    return _read(path, _SPHERES)


_NAMES = ArrayRule("joint_names", "(n_joints,)", (1, 1), None, kinds="US")


def read_joints(path: Path, n_joints: int, hint: str = "") -> np.ndarray:
    """The same for the joint values (..., n_joints) of a robot, of up to three axes, `joints`.

    Args:
        path: the file.
        n_joints: number of joint values.
        hint: added to the message of a wrong shape.
    """
    shapes = f"({n_joints},), (horizon, {n_joints}) or (batch, horizon, {n_joints})"
    return _read(path, ArrayRule("joints", shapes, (1, 3), n_joints, hint))


def read_joint_names(path: Path) -> tuple[str, ...] | None:
    """The names in an array `joint_names` of an .npz file; None if there is none.

    Raises:
        ValueError: the array is damaged, or no text.
    """
    if path.suffix.lower() != ".npz":
        return None
    with any_error_at(f"{escaped(str(path))}: {_NAMES.name}"), zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if m.filename == f"{_NAMES.name}.npy"]
        names = _read_member(archive, members[-1], _NAMES) if members else None
    return None if names is None else tuple(map(str, names.astype(np.str_)))


def _read(path: Path, rule: ArrayRule) -> np.ndarray:
    where = escaped(str(path))
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz"):
        raise ValueError(
            f"{where}: {rule.name} must be a .npy or .npz file, got {short_repr(suffix)}"
        )
    with any_error_at(where):  # zipfile, zlib and NumPy's header reader raise many kinds
        if suffix == ".npz":
            return _read_npz(path, rule)
        with path.open("rb") as file:
            return _read_npy(file, rule)


def _read_npz(path: Path, rule: ArrayRule) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        if names.count(rule.name) != 1 and len(names) != 1:
            raise ValueError(
                f"must hold one array {rule.name!r} or a single array, got {short_repr(names)}"
            )
        name = rule.name if rule.name in names else names[0]
        member = members[names.index(name)]
        with any_error_at(f"member {short_repr(member.filename)}"):
            return _read_member(archive, member, rule)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, rule: ArrayRule) -> np.ndarray:
    if member.file_size > max(MAX_UNPACKED, member.compress_size):
        raise ValueError(f"must unpack to at most {MAX_UNPACKED} bytes, got {member.file_size}")
    with archive.open(member) as file:
        return _read_npy(file, rule)


def _read_npy(file: IO[bytes], rule: ArrayRule) -> np.ndarray:
    array = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):  # at the end of a member its checksum is compared
        raise ValueError("must end with its array")
    rule.check(array.shape, array.dtype)
    return array

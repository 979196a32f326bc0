"""Spheres and joint values from files of NumPy and CSV; no array is left out, cut or reshaped."""

from __future__ import annotations

import csv
import io
import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from warp_collision.formats.files import existing_file
from warp_collision.formats.point_files import open_member
from warp_collision.messages import any_error_at, escaped, short_repr

_MAX_BYTES = 256 << 20  # of a .csv file


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
_NAMES = ArrayRule("joint_names", "(n_joints,)", (1, 1), None, kinds="US")


def load_spheres(path: str | os.PathLike[str]) -> torch.Tensor:
    """Reads spheres from a NumPy file.

    Args:
        path: a .npy file, or an .npz file with an array `spheres` or with a single array, of at
            most 1 GiB if it is compressed. Its shape is (n_spheres, 4), (horizon, n_spheres, 4) or
            (batch, horizon, n_spheres, 4), with x, y, z, radius [m] along the last axis. Integers
            and other floats are converted to float32. A negative radius disables a sphere.

    Returns:
        (batch, horizon, n_spheres, 4) float32 on the CPU; missing leading axes have length 1.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is no such file, or damaged, or the array has another shape, no spheres,
            another kind of values, or values that are not finite.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from warp_collision.io import load_spheres
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.ones((32, 59, 4)))
        ...     load_spheres(file.name).shape
        torch.Size([1, 32, 59, 4])
    """
    path = existing_file(path)
    spheres = _finite(path, "spheres", read_spheres(path))
    return spheres.reshape((1,) * (4 - spheres.ndim) + spheres.shape)


def load_joints(
    path: str | os.PathLike[str], n_joints: int, *, joint_names: Sequence[str] | None = None
) -> torch.Tensor:
    """Reads joint values of a robot from a NumPy or CSV file.

    Args:
        path: as for `load_spheres`, with an array `joints` of shape (n_joints,), (horizon,
            n_joints) or (batch, horizon, n_joints) [rad, prismatic: m]. Or a .csv file, whose first
            line has the names of the joints, with a line for each waypoint.
        n_joints: number of joint values of the robot.
        joint_names: their names, in order. The columns of a file that names its joints, a .csv or
            an .npz with an array `joint_names`, are put in this order.

    Returns:
        (batch, horizon, n_joints) float32 on the CPU; missing leading axes have length 1.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: as `load_spheres`; or the file names other joints.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from warp_collision.io import load_joints
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.zeros((32, 7)))
        ...     load_joints(file.name, 7).shape
        torch.Size([1, 32, 7])
    """
    path = existing_file(path)
    names = None if joint_names is None else tuple(joint_names)
    if names is not None and len(names) != n_joints:
        raise ValueError(
            f"joint_names must be n_joints = {n_joints} names, got {short_repr(names)}"
        )
    joints = _finite(path, "joints", read_joints(path, n_joints, names))
    return joints.reshape((1,) * (3 - joints.ndim) + joints.shape)


def _finite(path: Path, name: str, array: np.ndarray) -> torch.Tensor:
    """A float32 tensor of an array whose last axis belongs together."""
    with np.errstate(over="ignore"):  # a double beyond float32 becomes inf, refused below
        values = array.astype(np.float32)
    bad = np.argwhere(~np.isfinite(values).all(axis=-1))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{escaped(str(path))}: {name} must be finite, got {array[index]} at index {index}"
        )
    return torch.from_numpy(values)


def read_spheres(path: Path) -> np.ndarray:
    """Spheres (..., 4) of a file, finite or not; a .npy file is mapped, not read."""
    return _read(path, _SPHERES)


def read_joints(path: Path, n_joints: int, names: tuple[str, ...] | None) -> np.ndarray:
    """Joint values (..., n_joints); where the file names its joints, in the order of `names`.

    They may not be finite; a .npy file is mapped, not read.

    Raises:
        ValueError: damaged, another shape, no numbers, or other joints than `names`.
    """
    if path.suffix.lower() == ".csv":
        columns, values = read_csv(path)
        if names is None and len(columns) != n_joints:
            raise ValueError(
                f"{escaped(str(path))}: joints must be {n_joints} columns, got {len(columns)}"
            )
        return values if names is None else values[:, order_of(path, columns, names)]
    hint = ""
    if names is not None:
        listed = escaped(", ".join(names), 250)
        hint = f"; one for each of {listed}, mimic joints have none"
    shapes = f"({n_joints},), (horizon, {n_joints}) or (batch, horizon, {n_joints})"
    values = _read(path, ArrayRule("joints", shapes, (1, 3), n_joints, hint))
    columns = None if names is None else read_names(path)
    if names is None or columns is None:
        return values
    return values[..., order_of(path, columns, names)]


def order_of(path: Path, columns: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """The column of each joint."""
    if sorted(columns) != sorted(names):
        unknown = [name for name in columns if name not in names]
        missing = [name for name in names if name not in columns]
        raise ValueError(
            f"{escaped(str(path))}: joint names must be {escaped(', '.join(names), 300)}, each "
            f"once, got {short_repr(list(columns))}"
            + (f"; unknown is {short_repr(unknown[0])}" if unknown else "")
            + (f"; missing is {short_repr(missing[0])}" if missing else "")
        )
    return [columns.index(name) for name in names]


def read_csv(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the first line, and the values (n_lines, n_names) below it."""
    where = escaped(str(path))
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{where}: must have at most {_MAX_BYTES} bytes, got {size}")
    try:
        text = path.read_text("utf-8-sig")
        # Whole, as ends of lines in quotes belong to a value.
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{where}: no valid CSV: {error}") from error
    names = tuple(cell.strip().removeprefix("#").strip() for cell in lines[0]) if lines else ()
    if not names or any(_number(name) is not None for name in names):
        raise ValueError(
            f"{where}: the first line must be the names of the joints, separated by commas, got "
            f"{short_repr(lines[0] if lines else '')}"
        )
    rows = []
    for index, line in enumerate(lines[1:]):
        row = [_number(cell) for cell in line]
        if len(row) != len(names) or None in row:
            raise ValueError(
                f"{where}: row {index} must be {len(names)} numbers, got {short_repr(line)}"
            )
        rows.append(row)
    if not rows:
        raise ValueError(f"{where}: holds no joints, got the names alone")
    return names, np.array(rows, dtype=np.float64)


def _number(text: str) -> float | None:
    """A number, None for other text; Python reads 1_0 as 10."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def read_names(path: Path) -> tuple[str, ...] | None:
    """The names in an array `joint_names` of an .npz file; None if there is none.

    Raises:
        ValueError: the array is damaged, or no text.
    """
    if path.suffix.lower() != ".npz":
        return None
    with any_error_at(f"{escaped(str(path))}: {_NAMES.name}"), zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if m.filename == f"{_NAMES.name}.npy"]
        names = read_member(archive, members[-1], _NAMES) if members else None
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
        return _map_npy(path, rule)


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
            return read_member(archive, member, rule)


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, rule: ArrayRule) -> np.ndarray:
    """An array of an .npz file, as a rule asks for."""
    with open_member(archive, member) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # at the end of a member its checksum is compared
            raise ValueError("must end with its array")
    rule.check(array.shape, array.dtype)
    return array


def _map_npy(path: Path, rule: ArrayRule) -> np.ndarray:
    """The array of a .npy file, of which parts are read where they are used."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"the format version must be 1.0, 2.0 or 3.0, not {version}")
        read_header = np.lib.format.read_array_header_1_0
        if version > (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        begin = file.tell()
    rule.check(shape, dtype)
    size = path.stat().st_size
    if size != begin + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"must end with its array, of shape {shape}; got {size} bytes")
    return np.load(path, mmap_mode="r", allow_pickle=False)

"""Joint values of a robot from NumPy and CSV files, ordered by the names that these give."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from warp_collision.formats.numpy_arrays import read_joint_names, read_joints
from warp_collision.messages import escaped, short_repr

_MAX_BYTES = 256 << 20  # of a .csv file


def read_joint_values(path: Path, n_joints: int, names: tuple[str, ...] | None) -> np.ndarray:
    """Joint values (..., n_joints); where the file names its joints, in the order of `names`.

    Raises:
        ValueError: damaged, another shape, no numbers, or other joints than `names`.
    """
    if path.suffix.lower() == ".csv":
        found, values = _read_csv(path)
        if names is None and len(found) != n_joints:
            raise ValueError(
                f"{escaped(str(path))}: joints must be {n_joints} columns, got {len(found)}"
            )
        return values if names is None else values[:, _order(path, found, names)]
    hint = ""
    if names is not None:
        listed = escaped(", ".join(names), 250)
        hint = f"; one for each of {listed}, mimic joints have none"
    values = read_joints(path, n_joints, hint)
    found = None if names is None else read_joint_names(path)
    if names is None or found is None:
        return values
    return values[..., _order(path, found, names)]


def _order(path: Path, found: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """The column of each joint."""
    if sorted(found) != sorted(names):
        unknown = [name for name in found if name not in names]
        missing = [name for name in names if name not in found]
        raise ValueError(
            f"{escaped(str(path))}: joint names must be {escaped(', '.join(names), 300)}, each "
            f"once, got {short_repr(list(found))}"
            + (f"; unknown is {short_repr(unknown[0])}" if unknown else "")
            + (f"; missing is {short_repr(missing[0])}" if missing else "")
        )
    return [found.index(name) for name in names]


def _read_csv(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
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
            f"{where}: the first line must be the names of the joints, got "
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

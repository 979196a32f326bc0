"""Files of trajectories: joint values at times, with velocities and accelerations.

A file is .csv, .npz, or .json in the layout of trajectory_msgs/JointTrajectory. It means what
controllers make of it: between points joints move on straight lines, on cubics where there are
velocities, on quintics where there are accelerations too.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warp_collision.io.arrays import ArrayRule, order_of, read_csv, read_member, read_names
from warp_collision.messages import any_error_at, escaped, short_repr

Array = NDArray[np.float64]

ENDINGS = (".csv", ".npz", ".json")
TIME = "time"  # the column of a .csv file
_SUFFIXES = (".velocity", ".acceleration")  # of its columns
_MAX_BYTES = 256 << 20  # of a .json file
_NANO = 1_000_000_000
_RULES = (
    ArrayRule("times", "(horizon,)", (1, 1), None),
    ArrayRule("joints", "(horizon, n_joints)", (2, 2), None),
    ArrayRule("velocities", "(horizon, n_joints)", (2, 2), None),
    ArrayRule("accelerations", "(horizon, n_joints)", (2, 2), None),
)


class TrajectoryPoints(NamedTuple):
    """Points of a trajectory, float64.

    Attributes:
        times: (horizon,) [s].
        positions: (horizon, n_joints) [rad, prismatic: m].
        velocities: of the same shape, per second; None where the file has none.
        accelerations: of the same shape, per second squared; None where the file has none.
    """

    times: Array
    positions: Array
    velocities: Array | None = None
    accelerations: Array | None = None


def is_trajectory(path: Path) -> bool:
    """Whether a file is one of a trajectory.

    That is a .json, a .csv with a column `time`, or an .npz with `times` and `velocities`. Times
    alone do not define how a robot moves between waypoints. False too where it cannot
    be read: its reader has the error.
    """
    ending = path.suffix.lower()
    if ending == ".csv":
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return TIME in (cell.strip("# \t\r\n\"'") for cell in file.readline(1 << 20).split(","))
    if ending == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                return {"times.npy", "velocities.npy"} <= {*archive.namelist()}
        except (OSError, zipfile.BadZipFile):
            return False
    return ending == ".json"


def read_trajectory(path: Path, names: Sequence[str] | None) -> TrajectoryPoints:
    """Reads the points of a trajectory, joints in the order of `names`, or as in the file.

    Numbers may not be finite, times may not grow.

    Raises:
        ValueError: damaged, another layout or shape, other joints; the message names the file.
    """
    ending = path.suffix.lower()
    readers = {".csv": _read_csv, ".npz": _read_npz, ".json": _read_json}
    if ending not in readers:
        raise ValueError(
            f"{escaped(str(path))}: trajectories must be files that end in {', '.join(ENDINGS)}, "
            f"got {short_repr(ending)}"
        )
    columns, points = readers[ending](path)
    if names is None:
        return points
    if columns is None:
        if points.positions.shape[1] != len(names):
            raise ValueError(
                f"{escaped(str(path))}: joints must have shape (horizon, {len(names)}), got "
                f"{points.positions.shape}"
            )
        return points
    order = order_of(path, columns, tuple(names))
    velocities, accelerations = (None if part is None else part[:, order] for part in points[2:])
    return TrajectoryPoints(points.times, points.positions[:, order], velocities, accelerations)


def write_trajectory(
    path: Path,
    points: TrajectoryPoints,
    names: Sequence[str],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes the points of a trajectory, and of an .npz file also arrays of other facts.

    Times are whole nanoseconds, as in messages of ROS.
    """
    ending = path.suffix.lower()
    if ending == ".csv":
        _write_csv(path, points, names)
    elif ending == ".json":
        _write_json(path, points, names)
    else:
        arrays = dict(zip([rule.name for rule in _RULES], points, strict=True))
        known = {name: array for name, array in arrays.items() if array is not None}
        with path.open("wb") as file:  # as it is: by name alone NumPy adds an ending
            np.savez(file, **known, joint_names=np.array(names), **(facts or {}))


def _read_csv(path: Path) -> tuple[tuple[str, ...], TrajectoryPoints]:
    columns, values = read_csv(path)
    where = escaped(str(path))
    if columns.count(TIME) != 1:
        raise ValueError(f"{where}: must have one column {TIME!r}, got {columns.count(TIME)}")
    rest = [name for name in columns if name != TIME]
    joints = tuple(name for name in rest if not name.endswith(_SUFFIXES))
    parts: list[Array | None] = [_columns(values, columns, joints)]
    for suffix in _SUFFIXES:
        given = [name for name in rest if name.endswith(suffix)]
        wanted = [f"{name}{suffix}" for name in joints]
        if given and sorted(given) != sorted(wanted):
            raise ValueError(
                f"{where}: columns of {suffix[1:]} must be {escaped(', '.join(wanted), 300)}, each "
                f"once, got {short_repr(given)}"
            )
        parts.append(_columns(values, columns, wanted) if given else None)
    return joints, _points(where, values[:, columns.index(TIME)], *parts)


def _columns(values: Array, columns: Sequence[str], names: Sequence[str]) -> Array:
    return values[:, [columns.index(name) for name in names]]


def _read_npz(path: Path) -> tuple[tuple[str, ...] | None, TrajectoryPoints]:
    where, parts = escaped(str(path)), []
    with any_error_at(where), zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        for rule in _RULES:
            member = members.get(f"{rule.name}.npy")
            if member is None and rule in _RULES[:2]:
                raise ValueError(f"must hold an array {rule.name!r}, got {short_repr([*members])}")
            if member is None:
                parts.append(None)
                continue
            with any_error_at(f"member {short_repr(member.filename)}"):
                parts.append(read_member(archive, member, rule).astype(np.float64))
    return read_names(path), _points(where, *parts)


def _read_json(path: Path) -> tuple[tuple[str, ...], TrajectoryPoints]:
    where = escaped(str(path))
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{where}: must have at most {_MAX_BYTES} bytes, got {size}")
    try:
        found = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: no valid JSON: {error}") from error
    rule = "must be a trajectory_msgs/JointTrajectory: joint_names and points"
    if not isinstance(found, dict) or not {"joint_names", "points"} <= found.keys():
        raise ValueError(f"{where}: {rule}, got {short_repr(found)}")
    names, rows = found["joint_names"], found["points"]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{where}: joint_names must be names, got {short_repr(names)}")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{where}: points must be a list of points, got {short_repr(rows)}")
    parts = []
    for key in ("positions", "velocities", "accelerations"):
        values = [row.get(key) for row in rows]
        if key != "positions" and all(not value for value in values):
            parts.append(None)
            continue
        for index, value in enumerate(values):
            if not _are_numbers(value, len(names)):
                raise ValueError(
                    f"{where}: points[{index}].{key} must be {len(names)} numbers, one for each of "
                    f"joint_names, got {short_repr(value)}"
                )
        parts.append(np.array(values, dtype=np.float64))
    times = [_seconds(f"{where}: points[{i}]", row) for i, row in enumerate(rows)]
    return tuple(names), _points(where, np.array(times), *parts)


def _are_numbers(value: Any, count: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == count
        and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    )


def _seconds(where: str, row: Mapping[str, Any]) -> float:
    """The time of a point: `sec` and `nanosec`, as of ROS 1 `secs` and `nsecs`."""
    time = row.get("time_from_start")
    for keys in (("sec", "nanosec"), ("secs", "nsecs")):
        if isinstance(time, dict) and {*keys} == time.keys():
            seconds, nanos = (time[key] for key in keys)
            if _are_numbers([seconds, nanos], 2):
                return float(seconds) + float(nanos) / _NANO
    raise ValueError(
        f"{where}.time_from_start must have numbers sec and nanosec, got {short_repr(time)}"
    )


def _points(
    where: str,
    times: Array,
    positions: Array | None,
    velocities: Array | None,
    accelerations: Array | None,
) -> TrajectoryPoints:
    """Points whose arrays fit together."""
    assert positions is not None
    if accelerations is not None and velocities is None:
        raise ValueError(f"{where}: accelerations must come with velocities, got none")
    found = TrajectoryPoints(times, positions, velocities, accelerations)
    for rule, part in zip(_RULES, found, strict=True):
        wanted = positions.shape if rule.axes == (2, 2) else positions.shape[:1]
        if part is not None and part.shape != wanted:
            raise ValueError(
                f"{where}: {rule.name} must have shape {wanted} as the joints, got {part.shape}"
            )
    if len(times) < 2:
        raise ValueError(f"{where}: a trajectory must have at least 2 points, got {len(times)}")
    return found


def _write_csv(path: Path, points: TrajectoryPoints, names: Sequence[str]) -> None:
    import csv

    parts = [part for part in points[1:] if part is not None]
    columns = [f"{name}{suffix}" for suffix in ("", *_SUFFIXES)[: len(parts)] for name in names]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([TIME, *columns])
        for time, *row in zip(points.times.tolist(), *parts, strict=True):
            writer.writerow([f"{time:.9f}", *(repr(float(v)) for part in row for v in part)])


def _write_json(path: Path, points: TrajectoryPoints, names: Sequence[str]) -> None:
    rows = []
    for index, time in enumerate(points.times.tolist()):
        seconds, nanos = divmod(round(time * _NANO), _NANO)
        position, velocity, acceleration = (
            [] if part is None else part[index].tolist() for part in points[1:]
        )
        rows.append(
            {
                "positions": position,
                "velocities": velocity,
                "accelerations": acceleration,
                "effort": [],
                "time_from_start": {"sec": seconds, "nanosec": nanos},
            }
        )
    header = {"stamp": {"sec": 0, "nanosec": 0}, "frame_id": ""}
    message = {"header": header, "joint_names": list(names), "points": rows}
    path.write_text(json.dumps(message, allow_nan=False) + "\n", encoding="utf-8")

"""Curves from files of trajectories, and to them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision import validate
from warp_collision.formats.files import existing_file
from warp_collision.io.trajectories import (
    ENDINGS,
    TrajectoryPoints,
    read_trajectory,
    write_trajectory,
)
from warp_collision.messages import errors_at, escaped, short_repr
from warp_collision.robot.model.joint_curve import JointCurve

_NANO = 1.0e9
# By how much a velocity or acceleration may change at a point, relative to the largest.
_STEP = 1.0e-6
_DEGREES = 1, 3, 5  # of what is between points: of positions, with velocities, with accelerations


def load_trajectory(
    path: str | os.PathLike[str], joint_names: Sequence[str] | None = None
) -> JointCurve:
    """Reads a trajectory as the curve that controllers make of it.

    Between points joints move on straight lines; with velocities on cubics; with accelerations on
    quintics, as in ROS' `joint_trajectory_controller`.

    Args:
        path: a file with a point for each time, of at most 256 MiB, in s, rad, prismatic: m.
            A .json has the layout of trajectory_msgs/JointTrajectory.
            A .csv has the columns `time`, the joints, and perhaps `NAME.velocity` and
            `NAME.acceleration` of each.
            An .npz has the arrays `times` (horizon,), `joints` (horizon, n_joints), and perhaps
            `velocities`, `accelerations` and `joint_names`.
        joint_names: the order of the joints; that of the file if None.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: damaged, another layout, other joints, values that are not finite, times that do
            not grow; the message names the file.

    Example:
        >>> import tempfile
        >>> from warp_collision.robot import JointCurve, load_trajectory, save_trajectory
        >>> curve = JointCurve.from_hermite([0.0, 1.0], [[0.0], [1.0]], [[0.0], [0.0]])
        >>> with tempfile.NamedTemporaryFile(suffix=".json") as file:
        ...     save_trajectory(file.name, curve, ["turn"])
        ...     load_trajectory(file.name, ["turn"]).at([0.5]).item()
        0.5
    """
    file = existing_file(path)
    points = read_trajectory(file, joint_names)
    with errors_at(escaped(str(file))):
        return curve_through(points)


def curve_through(points: TrajectoryPoints) -> JointCurve:
    """The curve of the points of a trajectory, see `load_trajectory`."""
    times, positions, velocities, accelerations = points
    if velocities is None:
        return JointCurve.from_waypoints(positions, times)
    return JointCurve.from_hermite(times, positions, velocities, accelerations)


def save_trajectory(
    path: str | os.PathLike[str],
    curve: JointCurve,
    joint_names: Sequence[str],
    *,
    period: float | None = None,
) -> None:
    """Writes a curve as a trajectory, from which `load_trajectory` reads the same motion.

    Times begin at 0 and are whole nanoseconds. Velocities and accelerations are left out where they
    have steps, as those of straight lines.

    Args:
        path: the file, see `load_trajectory`; an existing one is overwritten.
        curve: one curve of degree up to 5; of a batch `curve[i]`.
        joint_names: its joints, in order.
        period: time between points [s]; None for points at the ends of pieces. Between points of a
            period a quintic is next to the curve, not on it: check what was written.

    Raises:
        TypeError, ValueError: another ending, more than one curve, another number of names, a
            period that is not positive, a curve that jumps, or one that no such points describe:
            quintics with steps of the acceleration, other curves with steps of the velocity.

    Example:
        >>> import tempfile
        >>> from warp_collision.robot import JointCurve, save_trajectory
        >>> curve = JointCurve.from_hermite([0.0, 1.0], [[0.0], [1.0]], [[0.0], [0.0]])
        >>> with tempfile.NamedTemporaryFile("r+", suffix=".csv") as file:
        ...     save_trajectory(file.name, curve, ["turn"], period=0.5)
        ...     print(file.read().splitlines()[0])
        time,turn,turn.velocity,turn.acceleration
    """
    if period is not None:
        validate.require_number("period", period, positive=True)
    write_curve(Path(path), curve, joint_names, period)


def write_curve(
    path: Path,
    curve: JointCurve,
    joint_names: Sequence[str],
    period: float | None = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """`save_trajectory`, with arrays of other facts for an .npz file."""
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"trajectories must be files that end in {', '.join(ENDINGS)}, got "
            f"{short_repr(str(path))}"
        )
    if len(curve.times) != 1:
        raise ValueError(
            f"curve must be one curve, got a batch of {len(curve.times)}: take curve[0]"
        )
    if len(joint_names) != curve.n_joints:
        raise ValueError(
            f"joint_names must be {curve.n_joints} names as the curve has joints, got "
            f"{short_repr(list(joint_names))}"
        )
    write_trajectory(path, points_of(curve, period), joint_names, facts)


def points_of(curve: JointCurve, period: float | None = None) -> TrajectoryPoints:
    """Points on a curve whose cubics or quintics are the curve, at whole nanoseconds."""
    curve.require_no_jumps()
    knots = curve.times[0].numpy() if period is None else curve.sample(period)[0][0].numpy()
    begin = float(curve.times[0, 0])
    ticks = np.round((knots - begin) * _NANO)
    ticks[-1] = np.ceil((knots[-1] - begin) * _NANO * (1.0 - 1.0e-15))
    ticks = ticks[np.append(np.diff(ticks) > 0.0, True)]
    times, degree = ticks / _NANO, curve.degree
    parts = [curve.at(begin + times)[0].numpy()]
    for _ in range(2):
        curve = curve.derivative()
        if _steps(curve):
            break
        parts.append(curve.at(begin + times)[0].numpy())
    if period is None and degree > _DEGREES[len(parts) - 1]:
        what = ("velocity", "acceleration")[len(parts) - 1]
        raise ValueError(
            f"curve must have no steps of the {what} where its degree is {degree}: with a period "
            "its points are next to it"
        )
    return TrajectoryPoints(times, *parts)


def _steps(curve: JointCurve) -> bool:
    """Whether a curve of velocities or accelerations has steps between its pieces."""
    c = curve.coefficients
    gap = (c[:, 1:, 0] - c[:, :-1, -1]).abs()
    return bool((gap > _STEP * c.abs().amax()).any())

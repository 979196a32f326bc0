"""Curves that begin and end with velocities: a motion to rest before and after the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warp_collision import validate
from warp_collision.messages import escaped
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.planning.problems import ROUNDING
from warp_collision.planning.rest_to_rest import braking_curve
from warp_collision.robot import RobotSpheres

_Array = NDArray[np.float64]
_Piecewise = tuple[_Array, _Array]
_ON_LINE = 1.0e-9  # rad or m, how far the place of rest may be from the path's first line
_NAMES = "start_velocity", "end_velocity"


def end_velocities(
    given: tuple[Any, Any], batch: int, robot: RobotSpheres, limits: MotionLimits
) -> _Array:
    """Velocities (batch, 2, n_joints) at the ends of paths, 0 for None.

    Raises:
        TypeError, ValueError: of another type or shape, not finite, or above the limit.
    """
    ends = zip(_NAMES, given, strict=True)
    return np.stack([_velocities(*end, batch, robot, limits) for end in ends], axis=1)


def _velocities(
    name: str, value: Any, batch: int, robot: RobotSpheres, limits: MotionLimits
) -> _Array:
    shape = batch, robot.n_joints
    if value is None:
        return np.zeros(shape)
    array = validate.float64_array(name, value)
    if array.shape not in (shape, shape[1:]):
        raise ValueError(f"{name} must have shape {shape} or {shape[1:]}, got {array.shape}")
    array = np.array(np.broadcast_to(array, shape))
    wrong = np.argwhere(~(np.abs(array) <= limits.velocity))
    if len(wrong):
        row, joint = wrong[0].tolist()
        raise ValueError(
            f"{name} must be finite and within the limit of the velocity, "
            f"{limits.velocity[joint]:g}, got {array[row, joint]:g} for joint "
            f"{escaped(robot.joint_names[joint])} in batch row {row}"
        )
    return array


class MovingEnds:
    """The motions from the velocity at the begin to rest, and from rest to that at the end.

    Args:
        corners: (m, n_joints) of a path.
        rates: (2, n_joints), the velocities.
        limits: of the joints.

    Attributes:
        corners: of the path between them: from the first place of rest to the last one. It leads
            back to an end where the velocity there is not along the path.
    """

    def __init__(self, corners: _Array, rates: _Array, limits: MotionLimits):
        # The end is a begin, seen backwards.
        self._ends = corners[[0, -1]]
        self._begin = braking_curve(corners[0], rates[0], limits)
        self._end = braking_curve(corners[-1], -rates[1], limits)
        for _, pieces in (self._begin, self._end):
            if len(pieces):
                rest = pieces[-1, -1]
                corners = np.concatenate((rest[None], corners[_is_on(rest, *corners[:2]) :]))
            corners = corners[::-1]
        self.corners = corners

    @property
    def are_moving(self) -> bool:
        """Whether a velocity is not 0."""
        return len(self._begin[0]) + len(self._end[0]) > 0

    def require_room(self, row: int, robot: RobotSpheres) -> None:
        """Requires places of rest within the joint limits, or no farther beyond than the ends.

        Between an end and its place of rest each joint moves in one direction.
        """
        low, high = robot.joint_limits.double().numpy().T
        for name, end, (_, pieces) in zip(
            _NAMES, self._ends, (self._begin, self._end), strict=True
        ):
            rest = pieces[-1, -1] if len(pieces) else end
            beyond = np.flatnonzero(
                (rest < np.minimum(low, end) - ROUNDING) | (rest > np.maximum(high, end) + ROUNDING)
            )
            if len(beyond):
                joint = beyond[0]
                comes = "comes to" if name == _NAMES[0] else "starts from"
                raise ValueError(
                    f"{name} must leave room between the path and the joint limits, got a motion "
                    f"that {comes} rest at {rest[joint]:.6g} for joint "
                    f"{escaped(robot.joint_names[joint])} in batch row {row}, whose limits are "
                    f"{low[joint]:.6g} and {high[joint]:.6g}"
                )

    def around(self, part: _Piecewise) -> _Piecewise:
        """The whole curve, from the part between the places of rest."""
        times, middle = part
        spans = np.concatenate((self._begin[0], np.diff(times), self._end[0][::-1]))
        pieces = np.concatenate((self._begin[1], middle, self._end[1][::-1, ::-1]))
        return np.concatenate(([0.0], np.cumsum(spans))), pieces


def _is_on(point: _Array, begin: _Array, end: _Array) -> bool:
    """Whether a point is between two others, on their line."""
    line = end - begin
    share = float((point - begin) @ line / max(float(line @ line), 1.0e-300))
    return 0.0 <= share <= 1.0 and float(np.abs(begin + share * line - point).max()) < _ON_LINE

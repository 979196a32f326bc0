"""Limits of velocities, accelerations and jerks of joints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warp_collision import validate
from warp_collision.messages import escaped, short_repr
from warp_collision.robot import JointCurve, RobotSpheres

_Array = NDArray[np.float64]
_UNITS = ("rad/s", "rad/s^2", "rad/s^3")
_EXAMPLES = ("velocity=2.0", "acceleration=10.0", "jerk=500.0")


class MotionLimits(NamedTuple):
    """Largest absolute values of the derivatives of each joint, (n_joints,) float64 each."""

    velocity: _Array
    acceleration: _Array
    jerk: _Array

    @classmethod
    def of(
        cls, robot: RobotSpheres, velocity: Any = None, acceleration: Any = None, jerk: Any = None
    ) -> MotionLimits:
        """Reads the limits that a caller gave.

        Args:
            robot: whose joints; its `velocity_limits` are the default.
            velocity: a number for all joints, one for each, or a mapping from joint names.
            acceleration: likewise, finite.
            jerk: likewise.

        Raises:
            TypeError, ValueError: a limit that is missing, of another shape or not positive.
        """
        if velocity is None and len(robot.joint_names):
            velocity = robot.velocity_limits
            unlimited = np.flatnonzero(np.isinf(velocity.numpy()))
            if len(unlimited):
                raise ValueError(
                    "velocity must be given, such as velocity=2.0 or one for each joint [rad/s], "
                    f"as the URDF has none for joint {escaped(robot.joint_names[unlimited[0]])}"
                )
        given = velocity, acceleration, jerk
        limits = cls(*(_limit(order, value, robot) for order, value in enumerate(given)))
        endless = np.flatnonzero(np.isinf(limits.acceleration))
        if len(endless):
            raise ValueError(
                "acceleration must be finite, got inf for joint "
                f"{escaped(robot.joint_names[endless[0]])}"
            )
        return limits

    @classmethod
    def known(
        cls, robot: RobotSpheres, velocity: Any = None, acceleration: Any = None, jerk: Any = None
    ) -> MotionLimits:
        """The limits that are known: inf for others, velocities by default those of the URDF."""
        velocity = robot.velocity_limits if velocity is None else velocity
        given = velocity, *(np.inf if one is None else one for one in (acceleration, jerk))
        return cls(*(_limit(order, value, robot) for order, value in enumerate(given)))

    @property
    def pace(self) -> _Array:
        """Seconds that each joint takes for a radian or metre of a motion (n_joints,).

        At its limit of the velocity, or what it reaches on a radian or metre from rest to rest.
        """
        return 1.0 / np.minimum(self.velocity, np.sqrt(self.acceleration))

    def shares(self, curve: JointCurve) -> list[_Array]:
        """The largest share of each limit that a curve uses, (batch,) each, from hulls."""
        spans = np.diff(curve.times.numpy(), axis=1)[..., None, None]
        values, found = curve.coefficients.numpy(), []
        for limit in self:  # the coefficients of one derivative after the other
            degree = values.shape[2] - 1
            steps = values[:, :, 1:] - values[:, :, :-1] if degree > 0 else np.zeros_like(values)
            values = max(degree, 1) * steps / spans
            found.append((np.abs(values).max(axis=(1, 2)) / limit).max(axis=1))
        return found


def _limit(order: int, value: Any, robot: RobotSpheres) -> _Array:
    """One limit of each joint."""
    name, names = MotionLimits._fields[order], robot.joint_names
    if value is None:
        raise ValueError(
            f"{name} must be given, for all joints such as {_EXAMPLES[order]}, or for each of "
            f"{escaped(', '.join(names), 100)} [{_UNITS[order]}], got None; data sheets and "
            "joint_limits.yaml of MoveIt have it (load_motion_limits, --limits in the shell, reads "
            "these files); inf is no limit of velocity or jerk"
        )
    if isinstance(value, Mapping):
        missing = [joint for joint in names if joint not in value]
        unknown = [joint for joint in value if joint not in names]
        if missing or unknown:
            what = f"no {escaped(missing[0])}" if missing else short_repr(unknown[0])
            raise ValueError(f"{name} must have a value for each joint of the robot, got {what}")
        value = [value[joint] for joint in names]
    array = array_of_joints(name, value, len(names))
    wrong = np.flatnonzero(~(array > 0.0))
    if len(wrong):
        raise ValueError(
            f"{name} must be positive, got {array[wrong[0]]:g} for joint {escaped(names[wrong[0]])}"
        )
    return array


def array_of_joints(name: str, value: Any, n_joints: int) -> _Array:
    """A number for each joint, (n_joints,), from one for all or one for each."""
    array = validate.float64_array(name, value)
    if array.shape not in ((), (n_joints,)):
        raise ValueError(f"{name} must be a number or have shape ({n_joints},), got {array.shape}")
    return np.array(np.broadcast_to(array, n_joints))

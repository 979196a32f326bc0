"""Joints locked at a value: they become fixed joints, as do the mimic joints that follow them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from warp_collision import validate
from warp_collision.formats.urdf_joints import Joint
from warp_collision.messages import shown

_ROUNDING = 1e-6  # of a value at a limit [rad or m]


def check_locks(locks: Any, joints: Sequence[Joint]) -> dict[str, float | None]:
    """Values by names of joints; None for a joint that stays free.

    Raises:
        TypeError, ValueError: another type, a joint that is unknown or that does not move,
            or a value that is not finite or beyond the limits of its joint.
    """
    validate.require_mapping("lock_joints", locks, "a mapping of joints to values")
    moving = {joint.name: joint for joint in joints if joint.moves}
    unknown = [name for name in locks if name not in moving]
    if unknown:
        raise ValueError(f"lock_joints must be joints that move, got {shown(unknown)}")
    found: dict[str, float | None] = {}
    for name, value in locks.items():
        if value is not None:
            where = f"lock_joints[{name!r}]"
            if not isinstance(value, Real) or isinstance(value, bool):
                raise TypeError(f"{where} must be a number, got {type(value).__name__}")
            if not math.isfinite(value):
                raise ValueError(f"{where} must be finite, got {value}")
            value = float(value)
            _require_limits(where, value, moving[name])
        found[name] = value
    return found


def _require_limits(where: str, value: float, joint: Joint) -> None:
    low, high = joint.limits
    if not low - _ROUNDING <= value <= high + _ROUNDING:
        unit = "m" if joint.kind == "prismatic" else "rad"
        degrees = "; in degrees?" if unit == "rad" and abs(value) > 2.0 * math.pi else ""
        raise ValueError(
            f"{where} must be within the limits {low:g} to {high:g} {unit}, got {value:g}{degrees}"
        )


def with_locked(joints: Sequence[Joint], locks: Mapping[str, float]) -> tuple[Joint, ...]:
    """The joints, with some fixed at a value [rad, prismatic: m].

    A locked mimic joint is fixed at its own value; mimic joints of a locked joint are fixed too.
    """
    values = dict(locks)
    known = -1
    while len(values) > known:  # mimic joints of mimic joints too
        known = len(values)
        for joint in joints:
            if joint.moves and joint.mimic is not None and joint.mimic.joint in values:
                value = values[joint.mimic.joint]
                values.setdefault(joint.name, joint.mimic.multiplier * value + joint.mimic.offset)
    return tuple(
        replace(
            joint,
            kind="fixed",
            parent_from_joint=joint.parent_from_child(values[joint.name]),
            mimic=None,
        )
        if joint.name in values
        else joint
        for joint in joints
    )

"""Limits of joints' motion from files of MoveIt and cuRobo."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warp_collision.formats.files import existing_file
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.messages import errors_at, escaped, short_repr
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model.urdf_model import PathLike

_KINDS = ("velocity", "acceleration", "jerk")
_DEEPEST = 5  # level of `joint_limits` or `cspace` in a file
_Limits = dict[str, NDArray[np.float64]]


def load_motion_limits(path: PathLike, robot: RobotSpheres) -> _Limits:
    """Reads limits of joints for `timed`, as its arguments `velocity`, `acceleration` and `jerk`.

    What is not in the file is not in the result: give it to `timed` yourself. Factors that MoveIt
    applies to a request are not applied.

    Args:
        path: `joint_limits.yaml` of MoveIt, with `max_velocity`, `max_acceleration` and `max_jerk`
            of each joint, and `has_..._limits` that are true; a smaller `max_deceleration` counts.
            Or a robot YAML of cuRobo: `max_acceleration` and `max_jerk` of its `cspace`, and its
            scales. Velocities that a file lacks are those of the URDF. Joints that the robot does
            not have are left out.
        robot: whose joints.

    Raises:
        FileNotFoundError: the file does not exist.
        ImportError: PyYAML is not installed.
        ValueError: neither of the two, a limit that is not positive, or accelerations or jerks of
            some joints alone; the message names the file and the joint.

    Example:
        >>> import tempfile
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import load_motion_limits
        >>> panda = load_panda()
        >>> with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     _ = file.write("robot_cfg: {kinematics: {cspace: {joint_names: ["
        ...                    + ", ".join(panda.joint_names)
        ...                    + "], max_acceleration: 15.0, max_jerk: 500.0}}}")
        ...     file.flush()
        ...     limits = load_motion_limits(file.name, panda)
        >>> sorted(limits), limits["acceleration"].tolist()[:2]
        (['acceleration', 'jerk', 'velocity'], [15.0, 15.0])
    """
    file = existing_file(path)
    content = read_yaml(file)
    with errors_at(escaped(str(file))):
        of_moveit, of_curobo = _find(content, "joint_limits"), _find(content, "cspace")
        if of_moveit is not None:
            return _of_moveit(of_moveit, robot)
        if of_curobo is not None:
            return _of_curobo(of_curobo, robot)
        raise ValueError(
            "must have joint_limits as of MoveIt, or cspace as of cuRobo, got "
            f"{short_repr(list(content) if isinstance(content, Mapping) else content)}"
        )


def _find(value: object, name: str, depth: int = 0) -> Any:
    """The first mapping of a name, however deep it is; None if there is none."""
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return None
    if isinstance(value.get(name), Mapping):
        return value[name]
    found = (_find(inner, name, depth + 1) for inner in value.values())
    return next((inner for inner in found if inner is not None), None)


def _of_moveit(limits: Mapping[str, Any], robot: RobotSpheres) -> _Limits:
    found: dict[str, list[float | None]] = {}
    for kind in _KINDS:
        found[kind] = []
        for name in robot.joint_names:
            entry = limits.get(name)
            if entry is not None and not isinstance(entry, Mapping):
                raise ValueError(f"{escaped(name)} must be a mapping, got {short_repr(entry)}")
            found[kind].append(_moveit_limit(entry or {}, kind, f"joint_limits.{escaped(name)}"))
    return _complete(found, robot)


def _moveit_limit(entry: Mapping[str, Any], kind: str, where: str) -> float | None:
    """One limit of a joint, None where it has none."""
    values = []
    for name in (kind, "deceleration") if kind == "acceleration" else (kind,):
        if entry.get(f"has_{name}_limits"):
            value = entry.get(f"max_{name}")
            if name == "deceleration" and isinstance(value, int | float):
                value = abs(value)  # MoveIt's are below 0
            values.append(_number(f"{where}.max_{name}", value))
    return min(values, default=None)


def _of_curobo(space: Mapping[str, Any], robot: RobotSpheres) -> _Limits:
    names = space.get("joint_names")
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise ValueError(f"cspace.joint_names must be names, got {short_repr(names)}")
    found: dict[str, list[float | None]] = {"velocity": [None] * robot.n_joints}
    for kind in _KINDS[1:]:
        values = _by_name(space, f"max_{kind}", names)
        found[kind] = [values.get(name) for name in robot.joint_names]
    limits = _complete(found, robot)
    for kind in {*limits} & {*_KINDS}:
        scales = _by_name(space, f"{kind}_scale", names)
        limits[kind] *= np.array([scales.get(name, 1.0) for name in robot.joint_names])
    return limits


def _by_name(space: Mapping[str, Any], key: str, names: Sequence[str]) -> dict[str, float]:
    """A number for all joints, or one for each; empty where there is none."""
    value = space.get(key)
    if value is None:
        return {}
    values = value if isinstance(value, list) else [value] * len(names)
    if len(values) == 1:
        values = values * len(names)
    if len(values) != len(names):
        raise ValueError(
            f"cspace.{key} must be a number or {len(names)} as joint_names, got {short_repr(value)}"
        )
    return {
        name: _number(f"cspace.{key} of {escaped(str(name))}", one)
        for name, one in zip(names, values, strict=True)
    }


def _number(where: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0.0 < value < math.inf:
        raise ValueError(f"{where} must be a positive number, got {short_repr(value)}")
    return float(value)


def _complete(found: Mapping[str, list[float | None]], robot: RobotSpheres) -> _Limits:
    """Limits of all joints; velocities that are missing are those of the URDF."""
    limits = {}
    for kind, values in found.items():
        known = [value for value in values if value is not None]
        if kind == "velocity":
            urdf = robot.velocity_limits.tolist()
            values = [b if a is None else a for a, b in zip(values, urdf, strict=True)]
            if any(map(math.isinf, values)) and not known:
                continue
        elif not known:
            continue
        elif len(known) < len(values):
            missing = robot.joint_names[values.index(None)]
            raise ValueError(
                f"must have a limit of the {kind} for each joint of the robot, got none for "
                f"{escaped(missing)}"
            )
        limits[kind] = np.array(values, dtype=np.float64)
    return limits

"""One path of a data set, with its world; and what may be wrong with its numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from warp_collision.devices import CPU
from warp_collision.messages import short_repr
from warp_collision.robot import JointCurve

_MOST = 1e6  # of a coordinate [m] or a joint value [rad, prismatic: m]


class PathRow(NamedTuple):
    """A path to be labelled.

    Attributes:
        path: (horizon, n_joints) joint values [rad, prismatic: m], or (horizon, n_spheres, 4)
            spheres x, y, z, radius [m]; of any horizon from 1 on. Or a `JointCurve` of one curve,
            whose ends of pieces count as waypoints. None where there is none.
        world: a name among the worlds of the labeler, or the path of a world file. Or a mapping for
            `warp_collision.io.load_world_mapping`, as it is or as JSON. None for the labeler's only
            world.
        id: of the row.
        base_pose: (7,) of the robot's root link in the world; None for the labeler's.
        env: which env of a world that has several.
        robot: a name among the robots of the labeler; None for its only robot.
        error: what was wrong with the row when it was read.
        source: the name of the file that the row is from, and its number there.

    Example:
        >>> import numpy as np
        >>> from warp_collision.labeling import PathRow
        >>> PathRow(np.zeros((32, 7)), "kitchen.yaml").world
        'kitchen.yaml'
    """

    path: Any
    world: Any = None
    id: Any = None
    base_pose: Any = None
    env: int | None = None
    robot: str | None = None
    error: str | None = None
    source: tuple[str, int] | None = None


def checked_curve(curve: JointCurve, width: int | None) -> np.ndarray:
    """The control points (pieces * degree + 1, n_joints) float32 of one curve of a robot.

    Raises:
        ValueError: paths are spheres, a batch of curves, another number of joints, or a jump.
    """
    if width is None:
        raise ValueError("path must be spheres without a robot, got a curve of joints")
    if len(curve) != 1 or curve.n_joints != width:
        raise ValueError(f"path must be one curve of {width} joints, got {curve!r}")
    return checked_path(curve.points(CPU).detach()[0].numpy(), width)


def checked_waypoints(path: Any, n_joints: int) -> np.ndarray:
    """Joint values (horizon, n_joints) float32 at waypoints, of a curve at the ends of its pieces.

    Raises:
        ValueError: as `checked_path` and `checked_curve`.
    """
    if isinstance(path, JointCurve):
        return checked_curve(path, n_joints)[:: path.degree]
    return checked_path(path, n_joints)


def checked_path(path: Any, width: int | None) -> np.ndarray:
    """The float32 array of a path.

    Args:
        path: array or nested lists.
        width: number of joint values, None for spheres.

    Raises:
        ValueError: another shape, values that are not finite, or values beyond 1e6, of which
            float32 says nothing.
    """
    if path is None:
        raise ValueError("path must be given, got none")
    try:
        array = np.asarray(path)
        if array.dtype == object:  # of arrays, as tables have them
            array = np.stack([np.stack([*part]) if part.dtype == object else part for part in path])
        values = array
        if array.dtype != np.float32:
            with np.errstate(over="ignore"):  # a double beyond float32 becomes inf, refused below
                values = array.astype(np.float32)
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            "path must be numbers, the same count at each waypoint, got " + short_repr(path)
        ) from None
    rule = "(horizon, n_spheres, 4)" if width is None else f"(horizon, {width})"
    last, axes = (4, 3) if width is None else (width, 2)
    if values.ndim != axes or values.shape[-1] != last or 0 in values.shape:
        raise ValueError(f"path must have shape {rule}, got {values.shape}")
    if not np.abs(values).max() <= _MOST:  # NaN is not
        for rule, is_wrong in (
            ("be finite", ~np.isfinite(values)),
            (f"have values of at most {_MOST:g}", np.abs(values) > _MOST),
        ):
            for index in np.argwhere(is_wrong)[:1].tolist():
                wrong = array[tuple(index)]
                raise ValueError(f"path must {rule}, got {wrong} at waypoint {index[0]}")
    return values


def checked_pose(pose: Any) -> np.ndarray:
    """The float64 array (7,) of a pose with a unit quaternion.

    Raises:
        ValueError: another shape, values that are not finite, or a quaternion of 0.
    """
    try:
        values = np.asarray(pose, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape != (7,) or not np.isfinite(values).all():
        raise ValueError(f"base_pose must be 7 finite numbers, got {short_repr(pose)}")
    length = np.linalg.norm(values[3:])
    if length == 0.0:
        raise ValueError("base_pose must have a quaternion (qw, qx, qy, qz) other than 0")
    values = values.copy()
    values[3:] /= length
    return values

"""Joint paths with time: curves within limits of motors, proven free."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import escaped
from warp_collision.planning.blended import Blend
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.planning.moving_ends import MovingEnds, end_velocities
from warp_collision.planning.problems import Problems
from warp_collision.planning.rest_to_rest import corners_of, stopping_curve
from warp_collision.planning.timed_splines import DEGREE, SplineDescent, bernstein
from warp_collision.poses import PoseLike
from warp_collision.queries.dispatch import reads_values
from warp_collision.robot import (
    JointCurve,
    RobotSpheres,
    SelfCollisionPairs,
)
from warp_collision.robot.checks.path_operands import require_robot_and_world
from warp_collision.robot.model.base_pose import base_operand
from warp_collision.summaries import summary
from warp_collision.world import MeshWorld

_Array = NDArray[np.float64]
_Piecewise = tuple[_Array, _Array]
# Spans of a spline beside the pieces that stop at corners, at most, and rounded up to multiples.
_SPANS, _MOST_SPANS, _ROUNDED_TO = 20, 128, 16
# How often corners that hit are passed more slowly; and how often spans are doubled where a spline
# along the curve that stops is not free.
_SLOWED, _DOUBLED = 4, 2
_FINER = (1.0, 0.1, 0.01)  # tolerances of the last proof, relative to the margin
_STILL = 1.0e-12  # rad or m, of a path without motion
MOST_ITERATIONS = 60
_ABOVE = 1.0 + 1.0e-12  # of times, so that rounding exceeds no limit


class TimedPaths(NamedTuple):
    """Result of `timed`.

    Attributes:
        curve: `JointCurve` in seconds, cubic pieces, at rest at ends without a given velocity.
        free: (batch,) bool, whether `joint_path_in_collision` proves these curves free.
        clearance: (batch,) [m], the smaller one of the two following.
        world_clearance: (batch,) [m], lower bound of the clearance to the world on the curve.
        self_clearance: (batch,) [m], the same between spheres of the robot; see `PlannedPaths`.
        duration: (batch,) float64 [s].
        velocity_share: (batch,) float64, the largest share of a velocity limit that is used, at
            most 1: a bound by Bernstein coefficients, not by samples.
        acceleration_share: (batch,) float64, likewise.
        jerk_share: (batch,) float64, likewise.
        stops: (batch,) bool, whether the curve stops at corners of the path, as no faster one was
            proven free.
    """

    curve: JointCurve
    free: Tensor
    clearance: Tensor
    world_clearance: Tensor
    self_clearance: Tensor
    duration: Tensor
    velocity_share: Tensor
    acceleration_share: Tensor
    jerk_share: Tensor
    stops: Tensor

    __repr__ = summary

    def of(self, rows: Tensor) -> TimedPaths:
        """Those of some rows (m,) int64.

        Example:
            >>> import torch
            >>> from warp_collision import MeshWorld
            >>> from warp_collision.examples import load_panda
            >>> from warp_collision.planning import timed
            >>> ready = torch.tensor([0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8])
            >>> paths = torch.stack((ready, ready + 0.1, ready, ready + 0.2)).view(2, 2, 7)
            >>> found = timed(paths, load_panda(), MeshWorld(), acceleration=10.0, jerk=200.0)
            >>> found.of(found.duration.argsort()[:1]).duration.item() == found.duration[0].item()
            True
        """
        curve, *values = self
        at = rows.to(curve.times.device)
        chosen = (value[rows.to(value.device)] for value in values)
        return TimedPaths(JointCurve(curve.times[at], curve.coefficients[at]), *chosen)


@reads_values
def timed(
    path: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    velocity: Any = None,
    acceleration: Any = None,
    jerk: Any = None,
    start_velocity: Any = None,
    end_velocity: Any = None,
    margin: float = 1e-3,
    env_index: Tensor | None = None,
    shapes: Literal["spheres", "exact"] = "spheres",
    self_collision: bool | SelfCollisionPairs = True,
    ignore: Iterable[tuple[str, str]] = (),
    base_pose: PoseLike | None = None,
    max_iterations: int = MOST_ITERATIONS,
) -> TimedPaths:
    """Joint paths as curves in time within the limits of the motors, proven free.

    First a curve follows the path and stops at its corners: as free as the path. Then a spline
    rounds the corners, and its time is shortened, iteration by iteration; each one that is kept is
    proven free. So corners become as wide as obstacles allow. The largest velocity, acceleration
    and jerk of the result are bounded by the coefficients of its derivatives.

    Args:
        path: (batch, horizon, n_joints) [rad, prismatic: m], straight between waypoints, as of
            `optimize_paths`, on the device of the world.
        robot: the robot, with what is attached to it.
        world: the obstacles, at rest.
        velocity: limit of the absolute value [rad/s, prismatic: m/s]: a number for all joints,
            (n_joints,) numbers, or a mapping from the names of all joints. That of the URDF if
            None. inf is no limit.
        acceleration: likewise [rad/s^2, prismatic: m/s^2], finite. Required.
        jerk: likewise [rad/s^3, prismatic: m/s^3]. Required; inf is no limit.
        start_velocity: (n_joints,) or (batch, n_joints) [rad/s, prismatic: m/s], with which curves
            begin; at rest if None. They brake along it first, and go on from rest.
        end_velocity: likewise, with which curves end.
        margin: [m], the `tolerance` of `joint_path_in_collision`: no curve with a clearance below
            it is chosen, where the path itself has it.
        env_index: (batch,) int32, the env of each path; env 0 for all if None.
        shapes: see `optimize_paths`.
        self_collision: see `optimize_paths`.
        ignore: allowed contacts, see `joint_path_in_collision`.
        base_pose: (7,) for all or (batch, 7), pose of the root link in the world, or 4 x 4
            matrices; the origin if None.
        max_iterations: of making curves faster. 0 stops at all corners.

    Returns:
        Curves, certificates and shares of the limits, see `TimedPaths`. Where nothing is proven
        free, the curve stops at the corners, and `free` is false. A path without motion takes
        10 ms.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range, such as a limit
            that is missing or not positive; the message names the joint. A path without a finite
            time; the message names joint and piece. A velocity at an end that cannot be braked
            within the joint limits.

    Example:
        >>> import torch
        >>> from warp_collision import Cylinder, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import timed
        >>> world = MeshWorld()
        >>> world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
        0
        >>> ready = [0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8]
        >>> path = torch.tensor([[[-0.9, *ready[1:]], [0.0, -1.0, *ready[2:]], [0.9, *ready[1:]]]])
        >>> found = timed(path, load_panda(), world, velocity=2.0, acceleration=10.0, jerk=200.0)
        >>> found.free.item(), bool(found.duration < 1.9), bool(found.jerk_share <= 1.0)
        (True, True, True)
        >>> times, joints = found.curve.sample(1e-3)  # for a controller of 1 kHz
    """
    require_robot_and_world(robot, world)
    robot.layout.is_exact(shapes)  # raises for others
    validate.require_number("margin", margin, positive=True)
    validate.require_int("max_iterations", max_iterations)
    if max_iterations < 0:
        raise ValueError(f"max_iterations must be at least 0, got {max_iterations}")
    limits = MotionLimits.of(robot, velocity, acceleration, jerk)
    joints = _paths(path, robot, world)
    velocities = end_velocities((start_velocity, end_velocity), len(joints), robot, limits)
    env_index = validate.env_operand(env_index, len(joints), world.n_envs, world.device, check=True)
    start = joints[:, 0]
    if base_pose is not None:
        base_pose = base_operand(base_pose, start).detach().expand(len(start), 7)
    tolerances = float(margin), joints.new_full((len(joints),), margin), float(margin)
    ends, contacts = (start, joints[:, -1]), (self_collision, tuple(ignore))
    problems = Problems(robot, world, *ends, env_index, *tolerances, *contacts, base_pose, shapes)
    with torch.no_grad():
        corners = [corners_of(row) for row in joints.cpu().double().numpy()]
        around = [
            MovingEnds(each, rates, limits) for each, rates in zip(corners, velocities, strict=True)
        ]
        for row, ends in enumerate(around):
            ends.require_room(row, robot)
        corners = [each.corners for each in around]
        parts = [stopping_curve(each, limits) for each in corners]
        for row, part in enumerate(parts):
            _require_time(row, part, corners[row], limits, robot)
        stops = np.array([len(each) > 2 for each in corners])
        faster = np.zeros_like(stops)
        if max_iterations > 0:
            moves = np.array([bool((each[0] != each[1]).any()) for each in corners])
            descent = SplineDescent(problems, limits)
            faster = _make_faster(parts, corners, moves, descent, max_iterations)
        parts = [ends.around(part) for ends, part in zip(around, parts, strict=True)]
        moving = np.array([ends.are_moving for ends in around])
        curve = _within_limits(parts, limits, moving)
        # Splines are proven, to the bit, unless pieces are cut or added.
        pieces = np.array([len(coefficients) for _, coefficients in parts])
        proven = faster & ~moving & (pieces == curve.coefficients.shape[1])
        return _certified(curve, problems, limits, stops & ~faster, proven)


def _paths(path: Tensor, robot: RobotSpheres, world: MeshWorld) -> Tensor:
    """Joint paths, valid."""
    robot.check_joints(path, "path")
    if path.ndim != 3 or path.shape[0] == 0 or path.shape[1] < 2:
        raise ValueError(
            "path must have shape (batch, horizon, n_joints) with at least 2 waypoints, got "
            f"{validate.shape_of(path)}"
        )
    validate.require_device("path", path, world.device)
    validate.require_finite("path", path)
    return path.detach()


def _require_time(
    row: int, part: _Piecewise, corners: _Array, limits: MotionLimits, robot: RobotSpheres
) -> None:
    """Requires a finite time for a path; the error names the piece and the joint that has none."""
    if np.isfinite(part[0]).all() and np.isfinite(part[1]).all():
        return
    for piece, ends in enumerate(pairwise(corners)):
        if not np.isfinite(stopping_curve(np.stack(ends), limits)[0]).all():
            way = np.abs(ends[1] - ends[0])
            with np.errstate(over="ignore"):
                shares = np.stack([way / limit for limit in limits])
            order, joint = np.unravel_index(shares.argmax(), shares.shape)
            name = MotionLimits._fields[order]
            raise ValueError(
                "path must have a finite time within the limits, got none for joint "
                f"{escaped(robot.joint_names[joint])} on piece {piece} between corners of batch "
                f"row {row}: it moves by {way[joint]:g}, its limit of the {name} is "
                f"{limits[order][joint]:g}"
            )


def _proven(points: Tensor, degree: int, problems: Problems, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Which curves (m,) of rows (m,) are proven free, and with which tolerances (m,) [m].

    By their control points. A smaller tolerance where the curve is nearer than the margin.
    """
    free = torch.zeros_like(rows, dtype=torch.bool)
    margins = points.new_full(rows.shape, problems.margin)
    for finer in _FINER:
        if bool(free.all()):
            break
        margins[~free] = finer * problems.margin
        margin = points.new_full((1,), finer * problems.margin)
        free |= ~problems.curve_hits(points, rows, degree, margin).any(1)
    return free, margins


def _lower_margins(parts: list[_Piecewise], rows: NDArray[np.int64], problems: Problems) -> bool:
    """Lowers margins of rows (m,) to what their curves are proven to keep; whether one is less."""
    index = torch.from_numpy(rows).to(problems.margins.device)
    curve = JointCurve.from_pieces([parts[row] for row in rows])
    points = curve.points(index.device)
    _, problems.margins[index] = _proven(points, curve.degree, problems, index)
    return bool((problems.margins[index] < problems.margin).any())


def _make_faster(
    parts: list[_Piecewise],
    corners: list[_Array],
    moves: NDArray[np.bool_],
    descent: SplineDescent,
    max_iterations: int,
) -> NDArray[np.bool_]:
    """Replaces curves that stop at corners by faster ones, and returns which (batch,).

    Rows with equally many spans go side by side: what becomes of a row depends on no other one.
    """
    faster = np.zeros_like(moves)
    spans = np.array([_SPANS + len(times) for times, _ in parts])
    spans = np.minimum(-(-spans // _ROUNDED_TO) * _ROUNDED_TO, _MOST_SPANS)
    for count in np.unique(spans[moves]).tolist():
        rows = np.flatnonzero(moves & (spans == count))
        faster[rows] = _made_faster(parts, corners, rows, descent, count, max_iterations)
    return faster


def _made_faster(
    parts: list[_Piecewise],
    corners: list[_Array],
    rows: NDArray[np.int64],
    descent: SplineDescent,
    spans: int,
    max_iterations: int,
) -> NDArray[np.bool_]:
    """`_make_faster` of some rows (m,), by splines with so many spans."""
    faster = np.zeros(len(parts), dtype=np.bool_)
    left = rows
    blends = {row: Blend(corners[row], descent.limits) for row in left.tolist()}
    free: dict[int, _Array] = {}
    known = np.zeros_like(faster)  # whether the margins are

    def hits_of(points: _Array) -> NDArray[np.bool_]:
        """What first splines of the rows left hit; keeps the free ones of them."""
        points = descent.start(points)
        hits = descent.hits(points, left)
        # Only here: where a path is nearer than the margin, its first spline hits.
        unknown = left[hits.any(axis=1) & ~known[left]]
        known[unknown] = True
        if len(unknown) > 0 and _lower_margins(parts, unknown, descent.problems):
            hits = descent.hits(points, left)
        clear = ~hits.any(axis=1)
        free.update(zip(left[clear].tolist(), points[clear], strict=True))
        return hits

    def run() -> None:
        """Makes the free ones faster."""
        if not free:
            return
        index_of = np.array(list(free), dtype=np.int64)
        found = descent.run(np.stack(list(free.values())), index_of, max_iterations)
        pieces = bernstein(found.points)
        for index, row in enumerate(free):
            if found.duration[index] < parts[row][0][-1]:
                times = found.span[index] * np.arange(pieces.shape[1] + 1)
                parts[row], faster[row] = (times, pieces[index]), True
        free.clear()

    for _ in range(_SLOWED + 1):
        if len(left) > 0:
            hits = hits_of(np.stack([blends[row].points(spans) for row in left]))
            for row, own in zip(left, hits, strict=True):
                blends[row].slow_down(np.flatnonzero(own))
            left = left[hits.any(axis=1)]
    run()
    for _ in range(_DOUBLED + 1):
        if len(left) > 0:
            hits = hits_of(np.stack([_samples(parts[row], spans) for row in left]))
            left, spans = left[hits.any(axis=1)], 2 * spans
            run()
    return faster[rows]


def _samples(part: _Piecewise, spans: int) -> _Array:
    """Control points (spans + 3, n_joints) along a curve, those at each end equal."""
    times = np.linspace(0.0, part[0][-1], spans + 1)
    inner = JointCurve.from_pieces([part]).at(times)[0].numpy()
    points = np.concatenate((inner[:1], inner, inner[-1:]))
    points[:DEGREE], points[-DEGREE:] = points[0], points[-1]
    return points


def _within_limits(
    parts: list[_Piecewise], limits: MotionLimits, moving: NDArray[np.bool_]
) -> JointCurve:
    """The curves, stretched until no limit is exceeded by rounding, or shortened to the limits.

    Those that begin or end `moving` (batch,) keep their velocities: they are not shortened.
    """
    curve = JointCurve.from_pieces(parts)
    shares = limits.shares(curve)
    stretch = np.max([share ** (1.0 / (k + 1)) for k, share in enumerate(shares)], axis=0)
    stretch = np.where(moving, np.where(stretch > 1.0, stretch, 1.0 / _ABOVE), stretch)
    moves = curve.coefficients.flatten(1, 2).numpy()
    moves = (moves.max(axis=1) - moves.min(axis=1)).max(axis=1) > _STILL
    stretch = torch.from_numpy(np.where(moves, stretch * _ABOVE, 1.0))
    return JointCurve(curve.times * stretch[:, None], curve.coefficients)


def _certified(
    curve: JointCurve,
    problems: Problems,
    limits: MotionLimits,
    stops: NDArray[np.bool_],
    proven: NDArray[np.bool_],
) -> TimedPaths:
    """Curves with what is proven of them, or was before."""
    rows = torch.arange(len(curve), device=problems.world.device)
    points, free = curve.points(rows.device), torch.from_numpy(proven).to(rows.device)
    if not proven.all():
        left = rows[~free]
        free[left], _ = _proven(points[left], curve.degree, problems, left)
    lower = problems.curve_clearance(points, rows, curve.degree)
    lower = torch.where(free[:, None], lower.clamp(min=0.0), lower)
    world, itself = lower.unbind(1)
    velocity, acceleration, jerk = map(torch.from_numpy, limits.shares(curve))
    return TimedPaths(
        curve,
        free,
        lower.amin(1),
        world,
        itself,
        curve.duration,
        velocity,
        acceleration,
        jerk,
        torch.from_numpy(stops).to(free.device),
    )

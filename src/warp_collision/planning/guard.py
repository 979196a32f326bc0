"""A guard for controllers: what it passes on can always be followed by a proven stop."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warp_collision import validate
from warp_collision.devices import CPU
from warp_collision.kernels import guard_step as kernels
from warp_collision.kernels.guard_motion import N_POINTS
from warp_collision.messages import escaped, short_repr
from warp_collision.planning.guard_launch import GuardedRobots, GuardTables
from warp_collision.planning.motion_limits import MotionLimits, array_of_joints
from warp_collision.planning.obstacle_speeds import ObstacleSpeeds, SpeedTable
from warp_collision.poses import PoseLike
from warp_collision.robot import JointCurve, RobotSpheres, SelfCollisionPairs, joint_path_clearance
from warp_collision.robot.checks.path_operands import require_robot_and_world
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.robot.model.allowed_pairs import Contacts, as_pairs
from warp_collision.robot.model.base_pose import base_operand
from warp_collision.world import MeshWorld

_Array = NDArray[np.float64]
_KINDS = ("position", "velocity")
# How far joint values may be off that were rounded to float32 on their way [rad or m].
_ROUNDED = 1.0e-6
# Beside the largest clearance that is kept at rest, the smallest one.
_LEAST = 1.0 / 64.0
_CAUSES = {
    int(kernels.PASSED): "passed on",
    int(kernels.NOT_PROVEN): "not proven free",
    int(kernels.BEYOND_LIMITS): "beyond a joint limit",
    int(kernels.NOT_FINITE): "not finite",
    int(kernels.RAN_OUT): "not decided within the budget",
}


class Refusal(NamedTuple):
    """Why not all of a command was passed on.

    Attributes:
        cause: "not proven free", "beyond a joint limit", "not finite", or "not decided within the
            budget".
        link: nearest to an obstacle, or to another link, on the motion that was refused and the
            braking after it; None where no link is the cause.
        obstacle: the obstacle, or the other link.
        distance: lower bound of their clearance [m], obstacles where they are now.
    """

    cause: str
    link: str | None = None
    obstacle: str | None = None
    distance: float = math.nan


class GuardedStep:
    """What a guard passed on. Numbers, or tensors where joint values were given as a tensor.

    Attributes:
        joints: (n_joints,) or (n, n_joints), where the robot is to be at the end of the step.
        velocities: of the same shape, at the end of the step.
        accelerations: of the same shape, likewise where jerk is limited; zeros where it is not.
        share: of the change of velocities that the command asked for: 1 all, 0 nothing, the robot
            goes on with its braking.
        time_to_rest: of the proven braking after the step [s].
        breached: whether no braking is proven, as when an obstacle was moved into the way.
        clearance: that the robot keeps at rest after its braking [m], at most the tolerance.
    """

    __slots__ = (
        "_guard", "_points", "_report", "accelerations", "breached", "clearance", "joints", "share",
        "time_to_rest", "velocities",
    )  # fmt: skip

    def __init__(self, guard: MotionGuard, state: Any, report: Sequence[Any], points: Any):
        # Each for itself, for this is part of each step.
        self._guard = guard
        self._report = report
        self.joints, self.velocities, self.accelerations = state
        self.clearance = report[0]
        self.share = report[1]
        self.time_to_rest = report[2]
        self.breached = report[0] == 0.0
        self._points: Tensor | NDArray[np.float32] | None = points

    def __repr__(self) -> str:
        return (
            f"GuardedStep(share={self.share}, time_to_rest={self.time_to_rest}, "
            f"breached={self.breached})"
        )

    @property
    def slides(self) -> Any:
        """Whether it is the change along the nearest surfaces that was passed on."""
        return self._report[5] != 0.0

    def why(self, robot: int = 0) -> Refusal | None:
        """Why not all of the command was passed on, or why nothing is proven; None if all was.

        Computed when it is asked for, of the world as it is then: half a millisecond.

        Args:
            robot: which one.
        """
        cause = int(torch.as_tensor(self._report[3]).flatten()[robot])
        breached = bool(torch.as_tensor(self.breached).flatten()[robot])
        if cause == kernels.PASSED and not breached:
            return None
        points = self._points
        is_motion = cause in (kernels.NOT_PROVEN, kernels.RAN_OUT)
        if points is None or not (breached or is_motion):
            return Refusal(_CAUSES[cause])
        points = torch.as_tensor(points).reshape(-1, *points.shape[-2:])[robot]
        return self._guard._refusal(_CAUSES[cause], points, robot, breached)

    def braking(self, robot: int = 0) -> JointCurve | None:
        """The braking as a curve from the end of the step on; None at rest.

        It is proven free unless the step is `breached`: within `latency` later, too.

        Args:
            robot: which one.

        Example:
            >>> from warp_collision import MeshWorld
            >>> from warp_collision.examples import load_panda
            >>> from warp_collision.planning import MotionGuard
            >>> guard = MotionGuard(load_panda(), MeshWorld(), dt=0.001, acceleration=10.0)
            >>> ready, fast = [0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8], [1.0, 0, 0, 0, 0, 0, 0]
            >>> braking = guard.step(ready, fast, fast).braking()
            >>> round(braking.duration.item(), 3), round(braking.at([1.0])[0, 0, 0].item(), 3)
            (0.1, 0.051)
        """
        rest = torch.as_tensor(self.time_to_rest).detach().flatten()[robot].item()
        if not rest > 0.0:
            return None
        q, v, a = (
            torch.as_tensor(part).detach().double().cpu().reshape(-1, self._guard.shape[-1])[robot]
            for part in (self.joints, self.velocities, self.accelerations)
        )
        phases = (torch.as_tensor(phase).flatten()[robot].item() for phase in self._report[6:9])
        first, middle, last = phases
        b = -(v + 0.5 * first * a) / (0.5 * (first + last) + middle)  # see kernels/guard_motion.py
        knots = [(0.0, q, v)]
        for time, begin, end in ((first, a, b), (middle, b, b), (last, b, 0.0 * b)):
            if knots[-1][0] + time > knots[-1][0]:
                q = q + time * (v + time * (begin / 3.0 + end / 6.0))
                v = v + 0.5 * time * (begin + end)
                knots.append((knots[-1][0] + time, q, v))
        times, positions, velocities = zip(*knots, strict=True)
        return JointCurve.from_hermite(times, torch.stack(positions), torch.stack(velocities))


class MotionGuard:
    """Passes a controller's command on if a stop after it is proven.

    Each step proves its motion, and the braking to rest after it, free as a curve. If that fails,
    it tries half of the change of velocities, then a quarter, then the part along the nearest
    surfaces. Otherwise the robot goes on with the braking that was proven before. So there is a
    proven stop at all times. This assumes that the robot keeps the limits of acceleration and jerk,
    and follows what is passed on within `tracking_error`. Obstacles are where the world has them.

    Braking brings all joints to rest at the same moment. Without a limit of jerk velocities have
    corners, and braking is a straight line in joint space. At rest the robot keeps a clearance of
    at least `tolerance`, or half of its first clearance if it began nearer. So a command that leads
    away is passed on.

    One thread steps a guard; any thread may change the world.

    Args:
        robot: the robot, with what is attached to it.
        world: the obstacles. After a change the next step proves the braking again.
        dt: length of a step [s].
        velocity: limit of the absolute value [rad/s, prismatic: m/s]: a number for all joints,
            (n_joints,) numbers, or a mapping from the names of all joints. That of the URDF if
            None.
        acceleration: likewise [rad/s^2, prismatic: m/s^2], finite. Required.
        jerk: likewise [rad/s^3, prismatic: m/s^3]; None for no limit. With one `latency` must be
            0, and where the guard begins anew it takes accelerations as zero.
        command: "velocity" or "position": what `step` takes. All joints reach a position at the
            same time.
        tracking_error: how far each joint may be from what was passed on, at any time [rad,
            prismatic: m]: a number, (n_joints,) numbers or a mapping.
        latency: the longest time for which velocities of a step may go on before the next one takes
            effect [s], summed over the steps of a braking. A later step is proven again, and may be
            `breached`.
        obstacle_speed: how fast obstacles may move in any direction [m/s], until the robot is at
            rest: a number for all, or a mapping from names; all others rest.
        slide: whether a command that is not proven free is tried along the nearest surfaces. Joints
            that it does not move stay where they are.
        tolerance: clearance to keep at rest [m].
        self_collision: see `configuration_in_collision`.
        ignore: allowed contacts, see `configuration_in_collision`.
        env_index: (n,) int32, for n robots the env of each; None for one robot in env 0.
        base_pose: (7,) for all or (n, 7), pose of the root link in the world, or 4 x 4 matrices.
        max_evaluations: configurations that the proofs of a step may check; beyond them a command
            is not passed on. Each proof of a braking may check as many.
        max_seconds: limit of the time for these proofs: allows fewer evaluations, by the slowest
            one so far. For one robot on a CPU.

    Attributes:
        robot: the robot.
        world: the obstacles.
        dt: length of a step [s].
        command: "velocity" or "position".
        limits: of velocity and acceleration, (n_joints,) each.
        shape: (n_joints,) or (n, n_joints), of what `step` takes.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range.

    Example:
        >>> from warp_collision import Cuboid, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import MotionGuard
        >>> world = MeshWorld()
        >>> world.add("plate", Cuboid((0.5, 0.02, 0.5)), (0.5, 0.3, 0.5, 1, 0, 0, 0))
        0
        >>> guard = MotionGuard(load_panda(), world, dt=0.001, acceleration=10.0)
        >>> joints, velocities = [0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8], [0.0] * 7
        >>> for _ in range(1000):  # towards the plate, as fast as can be
        ...     step = guard.step(joints, velocities, [2.0, 0, 0, 0, 0, 0, 0])  # a GuardedStep
        ...     joints, velocities = step.joints, step.velocities
        >>> step.share, step.time_to_rest, step.why().obstacle  # why() gives a Refusal
        (0.0, 0.0, 'plate')
    """

    def __init__(
        self,
        robot: RobotSpheres,
        world: MeshWorld,
        dt: float,
        *,
        velocity: Any = None,
        acceleration: Any = None,
        jerk: Any = None,
        command: str = "velocity",
        tracking_error: Any = 0.0,
        latency: float = 0.0,
        obstacle_speed: ObstacleSpeeds = 0.0,
        slide: bool = True,
        tolerance: float = 1e-3,
        self_collision: bool | SelfCollisionPairs = True,
        ignore: Contacts = (),
        env_index: Tensor | None = None,
        base_pose: PoseLike | None = None,
        max_evaluations: int = 256,
        max_seconds: float | None = None,
    ):
        require_robot_and_world(robot, world)
        for name, value in {"dt": dt, "tolerance": tolerance}.items():
            validate.require_number(name, value, positive=True)
        validate.require_number("latency", latency)
        if jerk is not None and latency > 0.0:
            raise ValueError(f"latency must be 0 where jerk is limited, got {latency:g}")
        validate.require_count("max_evaluations", max_evaluations)
        if command not in _KINDS:
            raise ValueError(f"command must be one of {_KINDS}, got {short_repr(command)}")
        if env_index is not None:
            env_index = validate.env_operand(
                env_index, len(env_index), world.n_envs, world.device, check=True
            )
        if max_seconds is not None:
            validate.require_number("max_seconds", max_seconds, positive=True)
            if env_index is not None or world.device != CPU:
                raise ValueError("max_seconds must be None but for one robot on a CPU")
        limits = MotionLimits.of(robot, velocity, acceleration, math.inf if jerk is None else jerk)
        rows = *limits, *robot.joint_limits.double().numpy().T
        is_smooth = bool(np.isfinite(limits.jerk).any())
        speeds = SpeedTable(world, obstacle_speed)
        errors = _errors(tracking_error, robot) * (1.0 + 1.0e-6) + _ROUNDED
        numbers = float(dt), float(latency), speeds.fastest, float(tolerance)
        tables = GuardTables.on(
            world.device,
            np.column_stack(rows),
            errors,
            *numbers,
            _LEAST * tolerance,
            int(command == "position"),
            int(slide),
            3 if is_smooth else 2,
        )
        base = _bases(base_pose, robot, world, env_index)
        self._placed = RobotScene(robot, world, base, as_pairs(ignore), self_collision)
        self._envs = [0] if env_index is None else env_index.tolist()
        self._is_one = env_index is None
        self._robots = GuardedRobots(
            self._placed, env_index, tables, int(max_evaluations), max_seconds, speeds
        )
        self.shape = (robot.n_joints,) if self._is_one else (len(self._envs), robot.n_joints)
        self.robot, self.world = robot, world
        self.dt, self.command, self.limits = float(dt), command, limits
        self._degree = tables.degree
        # Of one robot on a CPU they are its memory.
        of_all = self._robots.given, self._robots.state, self._robots.report, self._robots.points
        first = (part[0].cpu().numpy() for part in of_all)
        self._given, passed, self._report, self._points = first
        self._passed = tuple(passed)  # rows of it: making them takes longer than copying them
        self._is_on_cpu = world.device == CPU
        self._pack_into = struct.Struct(f"{3 * robot.n_joints}d").pack_into
        self._memory = memoryview(self._given)  # type: ignore[arg-type]
        self._tolerance = float(tolerance)

    def __reduce__(self) -> NoReturn:
        """A copy would guard the same robot, with the same memory."""
        raise TypeError("a MotionGuard cannot be copied or sent to other processes: make one there")

    def __repr__(self) -> str:
        return f"MotionGuard({self._placed.robot!r}, {self._placed.world!r})"

    def step(self, joints: Any, velocities: Any, command: Any) -> GuardedStep:
        """What to pass on of a command.

        Args:
            joints: (n_joints,) numbers or a tensor, of n robots a tensor (n, n_joints): where the
                robot is when the command takes effect [rad, prismatic: m]. Within `tracking_error`
                of the joint values that were passed on last, or where their velocities lead within
                `latency`; anywhere else the guard begins anew.
            velocities: of the same shape; used where the guard begins anew.
            command: of the same shape, velocities or joint values.

        Returns:
            Joint values and velocities for the end of the step, see `GuardedStep`. Values that are
            not finite are not passed on: the robot brakes.

        Raises:
            TypeError, ValueError: an argument of another type, shape or device.
        """
        robots = self._robots
        if isinstance(joints, Tensor):
            self._write(joints, velocities, command)
            robots.run()
            return self._tensors(joints)
        self._write_numbers(joints, velocities, command)
        robots.run()
        return self._numbers(joints)

    def _write(self, joints: Tensor, velocities: Any, command: Any) -> None:
        robots, device = self._robots, self._placed.world.device
        names = ("joints", "velocities", "command")
        targets = robots.given.unbind(1)
        values = joints, velocities, command
        for name, value, target in zip(names, values, targets, strict=True):
            validate.require_tensor(name, value, str(self.shape))
            validate.require_device(name, value, device)
            if value.shape != self.shape:
                raise ValueError(
                    f"{name} must have shape {self.shape}, got {validate.shape_of(value)}"
                )
            target.copy_(value.detach().reshape(target.shape))

    def _write_numbers(self, joints: Any, velocities: Any, command: Any) -> None:
        if not self._is_one:
            raise TypeError(
                f"joints must be a tensor of shape {self.shape}, got {type(joints).__name__}"
            )
        n = self.shape[0]
        # Written out, for this is part of each step.
        q = joints.tolist() if isinstance(joints, np.ndarray) else joints
        v = velocities.tolist() if isinstance(velocities, np.ndarray) else velocities
        asked = command.tolist() if isinstance(command, np.ndarray) else command
        try:
            are_all = len(q) == len(v) == len(asked) == n
            if are_all:
                self._pack_into(self._memory, 0, *q, *v, *asked)
        except (TypeError, struct.error):
            are_all = False
        if not are_all:
            wrong = [_are_numbers(row, n) for row in (q, v, asked)].index(False)
            name = ("joints", "velocities", "command")[wrong]
            value = (joints, velocities, command)[wrong]
            raise ValueError(f"{name} must be {n} numbers, got {short_repr(value)}")
        if not self._is_on_cpu:
            self._robots.given[0].copy_(torch.from_numpy(self._given))

    def _tensors(self, joints: Tensor) -> GuardedStep:
        robots = self._robots
        passed = robots.state.to(joints.dtype, copy=True)
        report = robots.report.clone().unbind(1)
        if self._is_one:
            report, passed = [column[0] for column in report], passed[0]
        return GuardedStep(self, passed.unbind(-2), report, robots.points.clone())

    def _numbers(self, joints: Any) -> GuardedStep:
        robots = self._robots
        (q, v, a), report, points = self._passed, self._report, self._points
        if not self._is_on_cpu:
            parts = robots.state, robots.report, robots.points
            (q, v, a), report, points = (part[0].cpu().numpy() for part in parts)
        if isinstance(joints, np.ndarray):
            state = q.copy(), v.copy(), a.copy()
        else:
            state = q.tolist(), v.tolist(), a.tolist()
        values = report.tolist()
        is_told = values[0] == 0.0 or values[3] != kernels.PASSED
        return GuardedStep(self, state, values, points.copy() if is_told else None)

    def _refusal(self, cause: str, points: Tensor, robot: int, breached: bool) -> Refusal:
        """What is nearest on the motion that was asked for, or on a braking that is not proven."""
        placed, env = self._placed, self._envs[robot]
        n = self._degree
        n_pieces = 1 if n == 2 else 3  # of a braking
        pieces = points[N_POINTS + n if breached else 0 :].double().cpu()
        count = n_pieces if breached else 1 + n_pieces
        rows = [pieces[n * i : n * i + n + 1] for i in range(count)]
        times = torch.arange(len(rows) + 1, dtype=torch.float64)[None]
        base = placed.base_pose
        if isinstance(base, Tensor) and base.ndim == 2:
            base = base[robot]
        found = joint_path_clearance(
            JointCurve(times, torch.stack(rows)[None]),
            placed.robot,
            placed.world,
            tolerance=self._tolerance,
            **placed._replace(env=env, base_pose=base).of_paths,
        )
        piece = int(found.lower[0].argmin())
        links, names = placed.robot.sphere_links, placed.world.names(env)
        world, itself = float(found.world_lower[0, piece]), float(found.self_lower[0, piece])
        if itself < world:
            pair = int(found.self_sphere[0, piece]), int(found.self_other[0, piece])
            return Refusal(cause, links[pair[0]], links[pair[1]], itself)
        sphere, obstacle = int(found.sphere[0, piece]), int(found.obstacle[0, piece])
        if sphere < 0 or not 0 <= obstacle < len(names):
            return Refusal(cause)
        return Refusal(cause, links[sphere], names[obstacle], world)


def _are_numbers(row: Any, count: int) -> bool:
    """Whether it is a sequence of so many numbers."""
    try:
        return len(row) == count and bool(struct.pack(f"{count}d", *row))
    except (TypeError, struct.error):
        return False


def _errors(value: Any, robot: RobotSpheres) -> _Array:
    """How far each joint may be off, (n_joints,)."""
    names = robot.joint_names
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise ValueError(
                "tracking_error must have a value for each of the joints "
                f"{escaped(', '.join(names), 100)}, got {short_repr(value)}"
            )
        value = [value[joint] for joint in names]
    array = array_of_joints("tracking_error", value, len(names))
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise ValueError(f"tracking_error must be finite and at least 0, got {short_repr(value)}")
    return array


def _bases(
    base_pose: PoseLike | None, robot: RobotSpheres, world: MeshWorld, env_index: Tensor | None
) -> PoseLike | None:
    """Poses of the robots' roots, (7,) or (n, 7)."""
    if not isinstance(base_pose, Tensor):
        return base_pose
    n = 1 if env_index is None else len(env_index)
    like = torch.zeros((n, robot.n_joints), device=world.device)
    return base_operand(base_pose, like).detach()

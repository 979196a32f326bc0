"""The planners that are compared: the library's optimizer, and RRT-Connect of OMPL."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from warp_collision import (
    MeshWorld,
    configuration_in_collision,
    joint_path_in_collision,
)
from warp_collision.robot import RobotSpheres

# Clearance that both planners keep, as one goal of the Panda has no more than 0.68 mm [m].
MARGIN = 5e-4
# Longest motion of RRT-Connect [rad]. With OMPL's own value, a fifth of the extent of the joint
# space, it needs more time, fails more often in narrow places, and its paths are longer.
RANGE = 0.5


class Planned(NamedTuple):
    """What a planner did.

    Attributes:
        path: (horizon, n_joints) float32, None if none was found.
        free: whether the library proves that it is free.
        seconds: of one core, for planning and shortening.
        iterations: of the optimizer; motions checked by RRT-Connect.
        reason: why there is no path.
    """

    path: np.ndarray | None
    free: bool
    seconds: float
    iterations: int
    reason: str = ""


Planner = Callable[..., Planned]


class OutOfTime(Exception):
    """A planner has used its time."""


class Clock:
    """Time of one core since the start, all threads of this process together."""

    def __init__(self, limit: float):
        self.limit = limit
        self._begin = time.process_time()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.process_time() - self._begin

    def check(self, *_: Any) -> None:
        """Raises when the time is up."""
        if self.seconds > self.limit:
            raise OutOfTime


class MotionChecker:
    """One motion or configuration at a time, for planners that ask for one after the other.

    Joint values are written into tensors that are there already; what is left of a call is the
    library's own.

    Args:
        robot: the robot.
        world: its world, on the CPU.
    """

    def __init__(self, robot: RobotSpheres, world: MeshWorld):
        self._robot, self._world = robot, world
        self._pairs = robot.default_pairs
        self._motion = torch.zeros((1, 2, robot.n_joints))
        self._both = self._motion.numpy()
        self._tolerance = torch.tensor([MARGIN])
        self.count = 0

    def motion_is_free(self, begin: Any, end: Any) -> bool:
        """Whether the straight motion between two configurations (n_joints,) is proven free."""
        self.count += 1
        self._both[0, 0], self._both[0, 1] = begin, end
        hit = joint_path_in_collision(
            self._motion,
            self._robot,
            self._world,
            tolerance=self._tolerance,
            self_collision=self._pairs,
        )
        return not hit.item()

    def configuration_is_free(self, joints: Any) -> bool:
        """Whether nothing touches at a configuration (n_joints,)."""
        self._both[0, 0] = joints
        hit = configuration_in_collision(
            self._motion[:, :1], self._robot, self._world, self_collision=self._pairs
        )
        return not hit.item()


def ends_in_collision(
    start: np.ndarray, goal: np.ndarray, robot: RobotSpheres, world: MeshWorld
) -> str:
    """Why a problem cannot be solved: what the start or the goal is in; "" if it is free."""
    for name, joints in (("start", start), ("goal", goal)):
        row = torch.tensor(joints, dtype=torch.float32).reshape(1, 1, -1)
        if configuration_in_collision(row, robot, world).item():
            report = robot.report(row, world)
            pair = f"{report.link[0]} in {report.obstacle[0]}"
            return f"{name} in collision: {pair}, {1e3 * report.depth[0]:.2f} mm deep"
    return ""


def optimize(
    robot: RobotSpheres,
    world: MeshWorld,
    start: np.ndarray,
    goal: np.ndarray,
    *,
    limit: float,
    seed: int,
) -> Planned:
    """The library's `optimize_paths`, one problem at a time; see `rrt_connect`."""
    from warp_collision.planning import optimize_paths

    ends = [torch.tensor(joints[None], dtype=torch.float32) for joints in (start, goal)]
    generator = torch.Generator().manual_seed(seed)
    clock = Clock(limit)
    try:
        found = optimize_paths(
            *ends, robot, world, margin=MARGIN, generator=generator, progress=clock.check
        )
    except OutOfTime:
        return Planned(None, False, clock.seconds, 0, "no path within the time")
    except ValueError as error:
        return Planned(None, False, clock.seconds, 0, str(error))
    seconds = clock.seconds
    path, free = found.joints[0].numpy(), bool(found.free[0])
    return Planned(path, free, seconds, int(torch.as_tensor(found.iterations).max()))


def rrt_connect(
    robot: RobotSpheres,
    world: MeshWorld,
    start: np.ndarray,
    goal: np.ndarray,
    *,
    limit: float,
    seed: int,
) -> Planned:
    """OMPL's RRT-Connect, then its path simplifier, with `joint_path_in_collision` for motions.

    Args:
        robot: see `MotionChecker`.
        world: see `MotionChecker`.
        start: (n_joints,).
        goal: (n_joints,).
        limit: seconds of one core until RRT-Connect gives up.
        seed: of OMPL's random numbers; it takes the first one of a process only.
    """
    from ompl import base, geometric, util

    util.setLogLevel(util.LogLevel.LOG_NONE)
    _seed_once(seed)
    reason = ends_in_collision(start, goal, robot, world)
    if reason:
        return Planned(None, False, 0.0, 0, reason)
    checker = MotionChecker(robot, world)

    class Validator(base.MotionValidator):
        def checkMotion(self, begin: Any, end: Any) -> bool:
            return checker.motion_is_free(begin[:n], end[:n])

    n = robot.n_joints
    space = base.RealVectorStateSpace(n)
    bounds = base.RealVectorBounds(n)
    limits = robot.joint_limits.double().numpy()
    low = np.minimum(np.minimum(limits[:, 0], start), goal)
    high = np.maximum(np.maximum(limits[:, 1], start), goal)
    for i in range(n):
        bounds.setLow(i, float(low[i]))
        bounds.setHigh(i, float(high[i]))
    space.setBounds(bounds)
    setup = geometric.SimpleSetup(space)
    information = setup.getSpaceInformation()
    setup.setStateValidityChecker(lambda state: checker.configuration_is_free(state[:n]))
    validator = Validator(information)
    information.setMotionValidator(validator)
    first, last = space.allocState(), space.allocState()
    first[:n], last[:n] = start.tolist(), goal.tolist()
    setup.setStartAndGoalStates(first, last)
    planner = geometric.RRTConnect(information)
    planner.setRange(RANGE)
    setup.setPlanner(planner)
    clock = Clock(limit)
    up = base.PlannerTerminationCondition(lambda: clock.seconds > limit)
    solved = bool(setup.solve(up))
    if not solved or not setup.haveExactSolutionPath():
        return Planned(None, False, clock.seconds, checker.count, "no path within the time")
    setup.simplifySolution()
    seconds = clock.seconds
    states = setup.getSolutionPath().getStates()
    path = np.array([state[:n] for state in states], dtype=np.float32)
    free = not joint_path_in_collision(
        torch.from_numpy(path)[None], robot, world, tolerance=MARGIN
    ).any()
    return Planned(path, free, seconds, checker.count)


@cache
def _seed_once(seed: int) -> None:
    from ompl import util

    util.RNG.setSeed(seed + 1)  # 0 would mean the time of day


PLANNERS: dict[str, Planner] = {"optimize_paths": optimize, "RRT-Connect": rrt_connect}

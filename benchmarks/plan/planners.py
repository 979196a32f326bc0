"""The planners that are compared: the library's optimizer, and RRT-Connect of OMPL.

And what one question of a sampling planner costs: a motion at a time, through Python.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from benchmarks.plan.problems import list_problems, load_robot, read_problem
from warp_collision import MeshWorld, configuration_in_collision, joint_path_in_collision
from warp_collision.planning import optimize_paths
from warp_collision.robot import RobotSpheres

# Clearance that both planners keep, as one goal of the Panda has no more than 0.68 mm [m].
MARGIN = 5e-4
# Longest motion of RRT-Connect [rad]. With OMPL's own value, a fifth of the extent of the joint
# space, it needs more time, fails more often in narrow places, and its paths are longer.
RANGE = 0.5
LENGTHS = (0.0, 0.1, 0.3, 1.0, 3.0)  # of single motions, Euclidean in joint space [rad]
COUNT = 400
NO_PATH = "no path within the time"


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


class OutOfTime(Exception):
    """A planner has used its time."""


class Clock:
    """Time of one core since the start, all threads of this process together."""

    def __init__(self, limit: float):
        self.limit, self._begin = limit, time.process_time()

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
    library's own. The world is on the CPU.
    """

    def __init__(self, robot: RobotSpheres, world: MeshWorld):
        self._of = robot, world
        self._pairs: Any = {"self_collision": robot.default_pairs}
        self._motion = torch.zeros((1, 2, robot.n_joints))
        self._both = self._motion.numpy()
        self._tolerance = torch.tensor([MARGIN])
        self.count = 0

    def motion_is_free(self, begin: Any, end: Any) -> bool:
        """Whether the straight motion between two configurations (n_joints,) is proven free."""
        self.count += 1
        self._both[0, 0], self._both[0, 1] = begin, end
        hit = joint_path_in_collision(
            self._motion, *self._of, tolerance=self._tolerance, **self._pairs
        )
        return not hit.item()

    def configuration_is_free(self, joints: Any) -> bool:
        """Whether nothing touches at a configuration (n_joints,)."""
        self._both[0, 0] = joints
        return not configuration_in_collision(self._motion[:, :1], *self._of, **self._pairs).item()


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
    start: Any,
    goal: Any,
    *,
    limit: float,
    seed: int,
    until: Literal["first", "converged"] = "converged",
) -> Planned:
    """The library's `optimize_paths`, one problem at a time; see `rrt_connect`."""
    ends = [torch.tensor(joints[None], dtype=torch.float32) for joints in (start, goal)]
    options: Any = {"margin": MARGIN, "generator": torch.Generator().manual_seed(seed)}
    clock = Clock(limit)
    try:
        found = optimize_paths(*ends, robot, world, until=until, progress=clock.check, **options)
    except (OutOfTime, ValueError) as error:
        reason = NO_PATH if isinstance(error, OutOfTime) else str(error)
        return Planned(None, False, clock.seconds, 0, reason)
    seconds, iterations = clock.seconds, int(torch.as_tensor(found.iterations).max())
    return Planned(found.joints[0].numpy(), bool(found.free[0]), seconds, iterations)


def rrt_connect(
    robot: RobotSpheres, world: MeshWorld, start: Any, goal: Any, *, limit: float, seed: int
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
    checker, n = MotionChecker(robot, world), robot.n_joints

    class Validator(base.MotionValidator):
        def checkMotion(self, begin: Any, end: Any) -> bool:
            return checker.motion_is_free(begin[:n], end[:n])

    space, bounds = base.RealVectorStateSpace(n), base.RealVectorBounds(n)
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
    if not setup.solve(up) or not setup.haveExactSolutionPath():
        return Planned(None, False, clock.seconds, checker.count, NO_PATH)
    setup.simplifySolution()
    seconds, states = clock.seconds, setup.getSolutionPath().getStates()
    path = np.array([state[:n] for state in states], dtype=np.float32)
    joints = torch.from_numpy(path)[None]
    free = not joint_path_in_collision(joints, robot, world, tolerance=MARGIN).any()
    return Planned(path, free, seconds, checker.count)


@cache
def _seed_once(seed: int) -> None:
    from ompl import util

    util.RNG.setSeed(seed + 1)  # 0 would mean the time of day


PLANNERS: dict[str, Callable[..., Planned]] = {
    "optimize_paths": optimize,
    "first path": partial(optimize, until="first"),
    "RRT-Connect": rrt_connect,
}


def measure_motions(folder: Path, robot: str) -> list[dict[str, Any]]:
    """Times of motions in the first scene of each set, on one core.

    Motions begin at random free configurations and go in random directions.

    Returns:
        For each length the median and the 95th percentile [µs] of motions that are proven free, and
        the median of others; None where there are too few.
    """
    arm, generator = load_robot(folder, robot), torch.Generator().manual_seed(0)
    low, high = arm.joint_limits.unbind(-1)
    times: dict[float, list[tuple[bool, float]]] = {length: [] for length in LENGTHS}
    for which in {kind: (kind, i) for kind, i in reversed(list_problems(folder, robot))}.values():
        problem = read_problem(folder, robot, *which, list(arm.joint_names))
        world = MeshWorld.from_file(problem.scene, device="cpu")
        checker = MotionChecker(arm, world)
        begin = low + torch.rand((COUNT, len(low)), generator=generator) * (high - low)
        begin = begin[~configuration_in_collision(begin, arm, world)]
        for length in LENGTHS:
            step = torch.randn(begin.shape, generator=generator)
            end = begin + length * step / step.norm(dim=1, keepdim=True)
            for pair in zip(begin.tolist(), end.tolist(), strict=True):
                before = time.perf_counter()
                free = checker.motion_is_free(*pair)
                times[length].append((free, 1e6 * (time.perf_counter() - before)))
    rows = []
    for length, found in times.items():
        free, hit = ([t for is_free, t in found if is_free == kind] for kind in (True, False))
        middle, high95 = np.quantile(free, (0.5, 0.95)).round(1).tolist() if free else (None, None)
        median = round(float(np.median(hit)), 1) if len(hit) > 10 else None
        rows.append({"length": length, "free": middle, "free95": high95, "hit": median})
    return rows

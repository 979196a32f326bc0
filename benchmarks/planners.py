"""The planners that are compared: the library's, and RRT-Connect of OMPL."""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from benchmarks.problems import Problem
from warp_collision import MeshWorld, configuration_in_collision, joint_path_in_collision
from warp_collision.planning import optimize_paths
from warp_collision.robot import RobotChecker, RobotSpheres

# Clearance that planners keep, as one goal of the Panda has no more than 0.68 mm [m].
MARGIN = 5e-4
# Longest motion of RRT-Connect [rad]. With OMPL's own value, a fifth of the extent of the joint
# space, it needs more time, fails more often in narrow places, and its paths are longer.
RANGE = 0.5
# Rounds of trees; one problem of the Baxter takes 54,098.
MAX_ITERATIONS = 100_000


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


def optimize(
    problem: Problem,
    robot: RobotSpheres,
    limit: float,
    until: Literal["first", "converged"] = "converged",
) -> Planned:
    """The library's `optimize_paths`, one problem at a time, for so many seconds at most."""
    world = MeshWorld.from_file(problem.scene, device="cpu")
    ends = [torch.tensor(end[None], dtype=torch.float32) for end in (problem.start, problem.goal)]
    options: Any = {"generator": torch.Generator().manual_seed(0), "max_seconds": limit}
    options["max_iterations"] = MAX_ITERATIONS
    begin = time.process_time()
    try:
        found = optimize_paths(*ends, robot, world, margin=MARGIN, until=until, **options)
    except ValueError as error:
        return Planned(None, False, time.process_time() - begin, 0, str(error))
    seconds, iterations = time.process_time() - begin, torch.as_tensor(found.iterations).max()
    return Planned(found.joints[0].numpy(), bool(found.free[0]), seconds, int(iterations))


def rrt_connect(
    problem: Problem,
    robot: RobotSpheres,
    limit: float,
    resolution: float | None = None,
    *,
    simplify: bool = True,
) -> Planned:
    """OMPL's RRT-Connect, then its path simplifier; the library proves one motion in a call.

    With a resolution OMPL decides as it does by default, with steps of its own choice: motions are
    free if states along them are, of which neighbours are apart by that share of the extent of the
    joint space. `free` is what OMPL says of the path.
    """
    from ompl import base, geometric

    _seed_once()
    world, start, goal = MeshWorld.from_file(problem.scene, device="cpu"), *problem[1:]
    ends = torch.tensor(np.stack((start, goal)), dtype=torch.float32)
    if configuration_in_collision(ends, robot, world).any():
        return Planned(None, False, 0.0, 0, "start or goal in collision")
    checker, n = RobotChecker(robot, world, tolerance=MARGIN), robot.n_joints
    motion, n_motions = torch.zeros((1, 2, n)), 0
    both = motion.numpy()  # the same memory

    class Validator(base.MotionValidator):
        def checkMotion(self, begin: Any, end: Any) -> bool:
            nonlocal n_motions
            n_motions += 1
            both[0, 0], both[0, 1] = begin[:n], end[:n]
            return not checker.path_in_collision(motion).item()

    def is_free(state: Any) -> bool:
        both[0, 0] = state[:n]
        return not checker.configuration_in_collision(motion[:, :1]).item()

    space, bounds = base.RealVectorStateSpace(n), base.RealVectorBounds(n)
    limits = robot.joint_limits.double().numpy()
    for i, (low, high) in enumerate(limits):
        bounds.setLow(i, float(min(low, start[i], goal[i])))
        bounds.setHigh(i, float(max(high, start[i], goal[i])))
    space.setBounds(bounds)
    setup = geometric.SimpleSetup(space)
    information = setup.getSpaceInformation()
    setup.setStateValidityChecker(is_free)
    validator = Validator(information)
    if resolution is None:
        information.setMotionValidator(validator)
    else:
        information.setStateValidityCheckingResolution(resolution)
    first, last = space.allocState(), space.allocState()
    first[:n], last[:n] = start.tolist(), goal.tolist()
    setup.setStartAndGoalStates(first, last)
    planner = geometric.RRTConnect(information)
    if resolution is None:
        planner.setRange(RANGE)
    setup.setPlanner(planner)
    begin = time.process_time()
    if not setup.solve(limit) or not setup.haveExactSolutionPath():
        return Planned(None, False, time.process_time() - begin, n_motions, "no path in time")
    if simplify:
        setup.simplifySolution()
    seconds, states = time.process_time() - begin, setup.getSolutionPath().getStates()
    path = np.array([state[:n] for state in states], dtype=np.float32)
    joints = torch.from_numpy(path)[None]
    if resolution is None:
        free = not joint_path_in_collision(joints, robot, world, tolerance=MARGIN).any()
    else:
        free = bool(setup.getSolutionPath().check())
    return Planned(path, free, seconds, n_motions)


def vamp_rrt_connect(name: str, problem: Problem) -> Planned:
    """VAMP's RRT-Connect of a robot, then its path simplifier; it takes 32 samples a radian."""
    from benchmarks.vamp import environment_of, load
    from path_judge import Scene

    vamp = load()
    settings = vamp.configure_robot_and_planner_with_kwargs(name, "rrtc")
    module, plan, of_plan, of_simplifier = settings
    environment, sampler = environment_of(vamp, Scene.from_file(problem.scene)), module.halton()
    begin = time.process_time()
    found = plan(problem.start, problem.goal, environment, of_plan, sampler)
    if not found.solved:
        return Planned(None, False, time.process_time() - begin, 0, "no path")
    path = module.simplify(found.path, environment, of_simplifier, sampler).path
    seconds = time.process_time() - begin
    return Planned(path.numpy().astype(np.float32), path.validate(environment), seconds, 0)


@cache
def _seed_once() -> None:
    from ompl import util

    util.setLogLevel(util.LogLevel.LOG_NONE)
    util.RNG.setSeed(1)  # it takes the first one of a process only


PLANNERS: dict[str, Callable[[Problem, RobotSpheres, float], Planned]] = {
    "optimize_paths": optimize,
    "first path": partial(optimize, until="first"),
    "RRT-Connect": rrt_connect,
    "its first path": partial(rrt_connect, simplify=False),
}

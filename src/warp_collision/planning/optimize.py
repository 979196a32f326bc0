"""Certified joint paths by batched trajectory optimisation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import short_repr
from warp_collision.notebooks import notebook_html
from warp_collision.planning.endpoints import (
    NearEnd,
    endpoint_operand,
    near_ends,
    require_valid,
    with_margins,
)
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.planning.moving import Traffic, both, soonest
from warp_collision.planning.objective import Objective
from warp_collision.planning.problems import Problems
from warp_collision.planning.search import BestPaths, Budget, PlanningProgress, Search
from warp_collision.planning.shortcuts import path_length, shortest_of_each
from warp_collision.planning.terms import SELF_WEIGHT, CollisionTerm, Term
from warp_collision.planning.timing import MOST_ITERATIONS, TimedPaths, timed
from warp_collision.poses import PoseLike
from warp_collision.queries.dispatch import reads_values
from warp_collision.robot import (
    RobotSpheres,
    SelfCollisionPairs,
    joint_path_clearance,
)
from warp_collision.robot.checks.path_operands import require_robot_and_world
from warp_collision.robot.model.base_pose import base_operand
from warp_collision.summaries import summary
from warp_collision.world import MeshWorld

# What paths among moving obstacles have of their motion.
_OF_MOTION = "free", "clearance", "world_clearance", "self_clearance"


class PlannedPaths(NamedTuple):
    """Result of `optimize_paths`.

    Attributes:
        joints: (batch, horizon, n_joints) float32, from start to goal, straight between waypoints.
        free: (batch,) bool, whether `joint_path_in_collision` proves these paths free.
        clearance: (batch,) [m], the smaller one of the two following. NaN, as these two and the
            cost, of `until="first"`, which does not compute them.
        world_clearance: (batch,) [m], lower bound of the clearance to the world on the path: the
            `world_lower` of `joint_path_clearance`, at least 0 where `free`; +inf without any.
        self_clearance: (batch,) [m], the same between spheres of the robot, +inf if no pairs are
            checked. Pairs above the margin whose clearance is the same at all joint values
            (`SelfCollisionPairs.constant`) are left out: no path could change it.
        cost: (batch,) the objective of these paths: the sum of all terms; with `limits` the time
            of `motion` [s], +inf where it is not free.
        length: (batch,) sum of the Euclidean lengths of the segments [rad, prismatic: m].
        iterations: (batch,) int64, rounds of the trees until the first free path, 0 where the
            straight line is free.
        has_preferred_clearance: (batch,) bool, whether `clearance` reaches `preferred_clearance`
            minus `margin`, the uncertainty of `clearance`; of `until="first"`, whether it is proven
            to be kept. False if start or goal have a smaller clearance, if all paths found have,
            and where `free` is false.
        margin: (batch,) [m], the tolerance of the proof: the argument `margin`, and less where a
            start or goal that is proven free is nearer to something.
        near_ends: what is nearer than the argument `margin` at starts and goals, see `NearEnd`.
        motion: with `limits` the paths as curves in time, see `TimedPaths`; else None.
    """

    joints: Tensor
    free: Tensor
    clearance: Tensor
    world_clearance: Tensor
    self_clearance: Tensor
    cost: Tensor
    length: Tensor
    iterations: Tensor
    has_preferred_clearance: Tensor
    margin: Tensor
    near_ends: tuple[NearEnd, ...]
    motion: TimedPaths | None = None

    __repr__ = summary
    _repr_html_ = notebook_html

    def timed(self, robot: RobotSpheres, world: MeshWorld, **options: Any) -> TimedPaths:
        """The paths as curves in time within limits of the motors, proven free; see `timed`.

        Args:
            robot: the robot.
            world: the obstacles.
            **options: of `timed`: the limits, and the options of the scene as they were planned
                with, such as `env_index` and `ignore`.

        Example:
            >>> import torch
            >>> from warp_collision import MeshWorld
            >>> from warp_collision.examples import load_panda
            >>> from warp_collision.planning import optimize_paths
            >>> robot, world = load_panda(), MeshWorld()
            >>> ready = torch.tensor([[0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8]])
            >>> found = optimize_paths(ready, ready + 0.3, robot, world)
            >>> motion = found.timed(robot, world, acceleration=10.0, jerk=200.0)
            >>> motion.free.item(), round(motion.duration.item(), 1)
            (True, 0.4)
        """
        return timed(self.joints, robot, world, **options)


@reads_values
@torch.inference_mode(False)  # the descent needs gradients
def optimize_paths(
    start: Tensor,
    goal: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    env_index: Tensor | None = None,
    until: Literal["first", "converged"] = "converged",
    n_seeds: int = 4,
    horizon: int = 32,
    margin: float = 1e-3,
    preferred_clearance: float = 0.01,
    terms: Sequence[Term] = (),
    limits: Mapping[str, Any] | None = None,
    times: Tensor | None = None,
    poses: Tensor | None = None,
    shapes: Literal["spheres", "exact"] = "spheres",
    self_collision: bool | SelfCollisionPairs = True,
    ignore: Iterable[tuple[str, str]] = (),
    base_pose: PoseLike | None = None,
    max_iterations: int = 2_500,
    max_seconds: float | None = None,
    on_invalid_endpoints: Literal["raise", "mark"] = "raise",
    generator: torch.Generator | None = None,
    progress: Callable[[PlanningProgress], object] | None = None,
) -> PlannedPaths:
    """Plans joint paths from starts to goals, and proves them free.

    An anytime planner. Where the straight line is not free, trees of free motions grow from start
    and goal (`RrtConnect`): the path that they find is proven. Then it and those of other trees are
    improved: by shortcuts, each proven free, and by gradient descent on `CollisionTerm`,
    `SmoothnessTerm`, `JointLimitsTerm` and the caller's terms, with smoothness as its metric, every
    few iterations of which `joint_path_in_collision` checks whether the path is free. Every better
    path is given to `progress` as it comes.

    Args:
        start: (batch, n_joints) [rad, prismatic: m], on the device of the world.
        goal: (batch, n_joints). Values of continuous joints do not wrap.
        robot: the robot, with what is attached to it.
        world: the obstacles.
        env_index: (batch,) int32, the env of each problem; env 0 for all if None.
        until: "first" returns the first proven path of each problem, as the trees found it, and
            no clearances and costs; "converged" improves paths until nothing is gained.
        n_seeds: paths of trees for each problem, the best of which are improved.
        horizon: waypoints of a path, including the ends.
        margin: [m], the `tolerance` of `joint_path_in_collision`: paths with a clearance below it
            may be rejected. Starts and goals that are nearer are planned from and to where they
            are proven free, with a margin that is at most half of their clearance. The result
            names each, a `NearEnd` in `PlannedPaths.near_ends`.
        preferred_clearance: [m], of shortcuts. Not a constraint: smaller clearances remain where
            the way around costs more, as near a goal in a narrow space. `has_preferred_clearance`
            of the result says whether it is kept.
        terms: callables of joints (n, horizon, n_joints) that return (n, horizon) or (n,) and are
            differentiable. One with a parameter `problem` is given (n,) int64 by that name: the
            batch row that each path is for. They weigh against half the squared joint velocity,
            integrated over unit time; among free paths the cheapest is returned. Values and
            derivatives must be finite, also beyond joint limits, where a descent may pass. Without
            terms the shortest path is returned, where parts nearer than the preferred clearance
            count twice.
        limits: of the motors, `velocity`, `acceleration` and `jerk` of `timed`: plans for the time.
            Shortcuts count seconds instead of radians. In the end the best path of each problem and
            those of other trees become curves, as by `timed`. The fastest one is returned, as
            `motion`, with the path that it was made of. `cost` is its time [s]. Not with `terms`.
        times: (k,) of `poses` [s], from 0 on, with `limits` and in a world of one env: plans among
            obstacles that move. Paths past where these stand in the world, and others that pay no
            heed to them, wait at their start until their curve is proven in time. The one that
            arrives first is returned: `free` and clearances are of its `motion`, in time, and
            `cost` is its arrival [s]. What happens after it is not looked at.
        poses: (k, n_obstacles, 7), where obstacles are at these times, see `sphere_cost`. After the
            last time they rest.
        shapes: see `configuration_in_collision`. With "exact" all proofs are of the shapes, those
            of starts and goals too, and the clearances of the result are. Costs stay those of
            spheres.
        self_collision: whether self-collisions are checked, by the pairs of
            `RobotSpheres.self_collision_pairs`; or the pairs to check.
        ignore: allowed contacts, pairs of a link, or attached object, and an obstacle; see
            `joint_path_in_collision`.
        base_pose: (7,) for all or (batch, 7), pose of the root link in the world, or 4 x 4
            matrices; the origin if None.
        max_iterations: rounds of the trees, after which a problem without a path is not pursued.
        max_seconds: of the search, looked at between its steps; no limit if None. With a limit
            results may differ from run to run.
        on_invalid_endpoints: "raise" an error if a start or goal is not proven free, is beyond
            joint limits or is not finite, or "mark" its row as not free.
        generator: of the random numbers; a fixed seed in every call if None.
        progress: called regularly with a `PlanningProgress`, and at once with better paths.

    Returns:
        Paths, certificates and costs, see `PlannedPaths`. Where `free` is false no free path was
        found, and `joints` is the straight line.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range; a start or goal
            that is not finite or not valid; the message names batch row, link and obstacle. A term
            that is not finite; the message has its name, batch row, waypoint and iteration.
        RuntimeError: inside of a transform of `torch.func`.

    Example:
        >>> import torch
        >>> from warp_collision import Cylinder, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import optimize_paths
        >>> world = MeshWorld()
        >>> world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
        0
        >>> start = torch.tensor([[-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> goal = torch.tensor([[0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> found = optimize_paths(start, goal, load_panda(), world)
        >>> found.free.tolist(), tuple(found.joints.shape), found.clearance.item() >= 0.0
        ([True], (1, 32, 7), True)
        >>> limits = {"acceleration": 15.0, "jerk": 500.0}  # velocities are those of the URDF
        >>> motion = optimize_paths(start, goal, load_panda(), world, limits=limits).motion
        >>> motion.free.tolist(), bool(motion.jerk_share <= 1.0)
        ([True], True)
        >>> found.has_preferred_clearance.tolist()  # 10 mm by default
        [True]
    """
    if times is not None or poses is not None:
        if limits is None:
            raise ValueError("limits must be given with times and poses, got None")
        require_robot_and_world(robot, world)
        plan = partial(
            optimize_paths,
            start,
            goal,
            robot,
            world,
            env_index=env_index,
            until=until,
            n_seeds=n_seeds,
            horizon=horizon,
            margin=margin,
            preferred_clearance=preferred_clearance,
            terms=terms,
            limits=limits,
            shapes=shapes,
            self_collision=self_collision,
            base_pose=base_pose,
            max_iterations=max_iterations,
            max_seconds=max_seconds,
            generator=generator,
            progress=progress,
        )
        traffic = Traffic.of(times, poses, world)
        links = (*robot.link_names, *robot.attached)
        heedless = tuple((link, mover) for link in links for mover in traffic.movers)
        plans = (
            plan(ignore=(*ignore, *heedless), on_invalid_endpoints=on_invalid_endpoints),
            plan(ignore=ignore, on_invalid_endpoints="mark"),
        )
        contacts = {"ignore": tuple(ignore), "self_collision": self_collision}
        base = None if base_pose is None else base_operand(base_pose, start).expand(len(start), 7)
        return _first_to_arrive(plans, traffic, robot, world, contacts, base, margin, shapes)
    _require_counts(n_seeds, horizon, max_iterations)
    _require_amounts(max_seconds, margin, preferred_clearance)
    _require_choices(until, on_invalid_endpoints)
    budget = Budget(max_iterations, max_seconds)
    require_robot_and_world(robot, world)
    robot.layout.is_exact(shapes)  # raises for others
    if isinstance(terms, str) or not isinstance(terms, Iterable):
        raise TypeError(f"terms must be a sequence of callables, got {short_repr(terms)}")
    limits_of_time = None if limits is None else _limits_of_time(robot, limits, terms)
    must_be_valid = on_invalid_endpoints == "raise"
    start = endpoint_operand("start", start, robot, world, must_be_valid)
    goal = endpoint_operand("goal", goal, robot, world, must_be_valid)
    if start.shape != goal.shape:
        raise ValueError(
            f"goal must have the shape of start {tuple(start.shape)}, got {tuple(goal.shape)}"
        )
    env_index = validate.env_operand(env_index, len(start), world.n_envs, world.device, check=True)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    seed = torch.randint(1 << 62, (1,), generator=generator, device=generator.device)
    numbers = random.Random(int(seed))
    if base_pose is not None:  # in each problem
        base_pose = base_operand(base_pose, start).detach().expand(len(start), 7)
    margin, contacts = float(margin), (self_collision, tuple(ignore))
    clearances = margin, start.new_full((1,), margin), max(margin, float(preferred_clearance))
    options = *clearances, *contacts, base_pose, shapes
    problems = Problems(
        *(robot, world, start, goal, env_index), *options, limits_of_time=limits_of_time
    )
    with torch.no_grad():
        problems, valid = with_margins(problems)
        if must_be_valid:
            require_valid(problems, valid)
        near = near_ends(problems, valid)
        objective = _objective(problems, terms)
        best = BestPaths(problems, objective if terms else None, horizon, progress)
        first_only = until == "first"
        search = Search(problems, objective, best, budget, numbers, n_seeds, first_only)
        search.run(valid.all(0))
        motion = None
        if limits is not None:
            most = 0 if budget.is_late else MOST_ITERATIONS
            motion = _soonest(problems, best, search.others, limits, most)
        measured = _measured(problems, objective, best, first_only)
    clearance, world_clearance, self_clearance, cost, is_far = measured
    cost = cost if motion is None else best.cost
    return PlannedPaths(
        best.joints,
        best.free,
        clearance,
        world_clearance,
        self_clearance,
        cost,
        path_length(best.joints),
        best.iterations,
        is_far,
        problems.margins.expand(len(start)).clone(),
        near,
        motion,
    )


def _require_counts(n_seeds: int, horizon: int, max_iterations: int) -> None:
    for name, count, least in (
        ("n_seeds", n_seeds, 1),
        ("horizon", horizon, 2),
        ("max_iterations", max_iterations, 0),
    ):
        validate.require_int(name, count)
        if count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")


def _require_amounts(max_seconds: float | None, margin: float, preferred: float) -> None:
    if max_seconds is not None:
        validate.require_number("max_seconds", max_seconds)
    validate.require_number("margin", margin, positive=True)
    validate.require_number("preferred_clearance", preferred)


def _require_choices(until: str, on_invalid_endpoints: str) -> None:
    if on_invalid_endpoints not in ("raise", "mark"):
        raise ValueError(
            f"on_invalid_endpoints must be 'raise' or 'mark', got {on_invalid_endpoints!r}"
        )
    if until not in ("first", "converged"):
        raise ValueError(f"until must be 'first' or 'converged', got {until!r}")


def _limits_of_time(
    robot: RobotSpheres, limits: Mapping[str, Any], terms: Sequence[Term]
) -> MotionLimits:
    if not isinstance(limits, Mapping) or not limits.keys() <= set(MotionLimits._fields):
        raise TypeError(
            "limits must be a mapping with velocity, acceleration and jerk, got "
            f"{short_repr(limits)}"
        )
    if len(terms):
        raise ValueError(f"limits must be without terms, got {len(terms)} terms")
    return MotionLimits.of(robot, **limits)


def _first_to_arrive(
    plans: tuple[PlannedPaths, PlannedPaths],
    traffic: Traffic,
    robot: RobotSpheres,
    world: MeshWorld,
    contacts: dict[str, Any],
    base: Tensor | None,
    margin: float,
    shapes: Literal["spheres", "exact"],
) -> PlannedPaths:
    """Of two plans of each problem the one that arrives first among obstacles that move."""
    first, second = plans
    batch = len(first.joints)
    assert first.motion is not None
    assert second.motion is not None

    def options(problem: int) -> dict[str, Any]:
        return contacts | {"base_pose": None if base is None else base[problem]}

    every = torch.arange(batch).repeat(2)
    motions, scene = both(first.motion, second.motion), (traffic, robot, world)
    motion, rows = soonest(motions, every, *scene, options, margin, shapes)
    rows = rows.to(first.joints.device)
    fields = {
        name: torch.cat((value, getattr(second, name)))[rows]
        for name, value in first._asdict().items()
        if isinstance(value, Tensor)
    }
    fields |= {name: getattr(motion, name).to(rows.device) for name in _OF_MOTION}
    cost = torch.where(motion.free.to(rows.device), motion.duration.to(fields["cost"]), torch.inf)
    return first._replace(**{**fields, "cost": cost, "motion": motion})


def _soonest(
    problems: Problems,
    best: BestPaths,
    others: list[tuple[Tensor, Tensor]],
    limits: Mapping[str, Any],
    max_iterations: int,
) -> TimedPaths:
    """The fastest curve of each problem, whose path becomes the best one."""
    batch = len(best.joints)
    every = torch.arange(batch, device=best.joints.device)
    paths = torch.cat([best.joints, *(paths for paths, _ in others)])
    problem = torch.cat([every, *(problem for _, problem in others)])
    # Those that have more vertices than the horizon are NaN.
    kept = problems.is_free(paths, problem)
    kept[:batch] = True
    paths, problem = paths[kept], problem[kept]
    motion = timed(
        paths.nan_to_num(),  # of ends that are not finite
        problems.robot,
        problems.world,
        **limits,
        margin=problems.margin,
        shapes=problems.shapes,
        self_collision=problems.self_collision,
        max_iterations=max_iterations,
        **problems.world_of(problem),
    )
    motion = motion._replace(free=motion.free & best.free[problem])
    seconds = torch.where(motion.free.cpu(), motion.duration, torch.inf)
    rows = shortest_of_each(seconds, problem.cpu(), 1)
    chosen = motion.of(rows)
    best.joints, best.cost = paths[rows], seconds[rows].to(best.cost)
    best.report()
    return chosen


def _objective(problems: Problems, terms: Sequence[Term]) -> Objective:
    pairs = problems.self_collision
    collision = CollisionTerm(
        problems.robot,
        problems.world,
        env_index=problems.env_index,
        pairs=pairs if isinstance(pairs, SelfCollisionPairs) else None,
        self_weight=0.0 if pairs is False else SELF_WEIGHT,
        ignore=problems.ignore,
        base_pose=problems.base_pose,
    )
    return Objective(terms, collision, problems.limits)


def _measured(
    problems: Problems, objective: Objective, best: BestPaths, first_only: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The clearances and costs of `PlannedPaths`, and what has the preferred clearance."""
    joints, free = best.joints, best.free
    if first_only:
        unknown = torch.full_like(best.cost, torch.nan)
        return unknown, unknown.clone(), unknown.clone(), unknown.clone(), best.far
    world, itself = torch.empty((2, len(joints)), device=joints.device)
    for margin in problems.margins.unique().tolist():  # one, or some halves of it
        rows = torch.nonzero(problems.margins.expand(len(joints)) == margin)[:, 0]
        found = joint_path_clearance(
            joints[rows],
            problems.robot,
            problems.world,
            tolerance=margin,
            shapes=problems.shapes,
            self_collision=problems.changing_pairs,
            **problems.world_of(rows),
        )
        world[rows], itself[rows] = found.world_lower.amin(1), found.self_lower.amin(1)
    world, itself = (torch.where(free, lower.clamp(min=0.0), lower) for lower in (world, itself))
    clearance = torch.minimum(world, itself)
    every = torch.arange(len(joints), device=joints.device)
    cost = objective(joints, every, None)  # of a bad end it may be NaN
    is_far = free & (clearance >= problems.preferred_clearance - problems.margins)
    if problems.shapes == "exact":
        is_far |= free & ~problems.near(joints, every).any(1)
    return clearance, world, itself, cost, is_far

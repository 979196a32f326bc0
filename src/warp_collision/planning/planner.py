"""A planner of one robot in one world, whose options are validated once."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import short_repr
from warp_collision.planning.endpoints import (
    NearEnd,
    endpoint_operands,
    near_ends,
    require_valid,
    with_margins,
)
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.planning.moving import Traffic, both, soonest
from warp_collision.planning.objective import Objective, require_callables
from warp_collision.planning.planned_paths import PlannedPaths
from warp_collision.planning.problems import Problems
from warp_collision.planning.rrt_connect import FirstPaths
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
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.checks.path_operands import require_robot_and_world
from warp_collision.robot.model.base_pose import base_operand
from warp_collision.world import MeshWorld

# What paths among moving obstacles have of their motion.
_OF_MOTION = "free", "clearance", "world_clearance", "self_clearance"


@dataclass(frozen=True)
class _Options:
    """The options of `optimize_paths` that are the same in all calls of a planner."""

    until: Literal["first", "converged"] = "converged"
    n_seeds: int = 4
    horizon: int = 32
    margin: float = 1e-3
    preferred_clearance: float = 0.01
    terms: Sequence[Term] = ()
    limits: Mapping[str, Any] | None = None
    times: Tensor | None = None
    poses: Tensor | None = None
    shapes: Literal["spheres", "exact"] = "spheres"
    self_collision: bool | SelfCollisionPairs = True
    ignore: Iterable[tuple[str, str]] = ()
    max_iterations: int = 2_500
    max_seconds: float | None = None
    on_invalid_endpoints: Literal["raise", "mark"] = "raise"

    def __post_init__(self) -> None:
        """Requires what can be required without a robot and a world."""
        _require_counts(self.n_seeds, self.horizon, self.max_iterations)
        _require_amounts(self.max_seconds, self.margin, self.preferred_clearance)
        _require_choices(self.until, self.on_invalid_endpoints)
        if isinstance(self.terms, str) or not isinstance(self.terms, Iterable):
            raise TypeError(f"terms must be a sequence of callables, got {short_repr(self.terms)}")
        object.__setattr__(self, "terms", tuple(self.terms))
        object.__setattr__(self, "ignore", tuple(self.ignore))
        require_callables(self.terms)


class Planner:
    """`optimize_paths` for callers who plan again and again, as in a loop of control.

    The options are validated once, and tables of the robot are looked up once. Its paths are those
    of `optimize_paths`. Later plans notice obstacles that are added or moved, objects that are
    attached to the robot, and links that may touch since.

    Args:
        robot: the robot.
        world: the obstacles.
        **options: of `optimize_paths`, but for those of a call.

    Raises:
        TypeError, ValueError: an option of another name, type or range.

    Example:
        >>> import torch
        >>> from warp_collision import Cylinder, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import Planner
        >>> world = MeshWorld()
        >>> world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
        0
        >>> planner = Planner(load_panda(), world, until="first", margin=5e-4)
        >>> start = torch.tensor([[-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> goal = torch.tensor([[0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> planner.plan(start, goal).free.tolist()
        [True]
        >>> world.enable("post", False)
        >>> round(planner.plan(start, goal).length.item(), 3)  # the straight line
        1.8
    """

    def __init__(self, robot: RobotSpheres, world: MeshWorld, **options: Any):
        require_robot_and_world(robot, world)
        if unknown := [*(options.keys() - _Options.__dataclass_fields__.keys())]:
            raise TypeError(
                f"options must be those of optimize_paths but not of plan, got {unknown[0]!r}"
            )
        own = self._options = _Options(**options)
        self._robot, self._world = robot, world
        robot.layout.is_exact(own.shapes)  # raises for others
        self._among_movers: _AmongMovers | None = None
        if own.times is not None or own.poses is not None:
            self._among_movers = _AmongMovers(robot, world, options)
            return
        self._limits = None if own.limits is None else _limits_of_time(robot, own.limits, own.terms)
        scene_with_contacts(own.ignore, robot, world)  # looks up the names
        self._tables_of: tuple[Any, Any] = None, None

    def __repr__(self) -> str:
        return f"Planner({self._robot!r}, {self._world!r})"

    @reads_values
    @torch.inference_mode(False)  # the descent needs gradients
    def plan(
        self,
        start: Tensor,
        goal: Tensor,
        *,
        env_index: Tensor | None = None,
        base_pose: PoseLike | None = None,
        generator: torch.Generator | None = None,
        progress: Callable[[PlanningProgress], object] | None = None,
    ) -> PlannedPaths:
        """Plans joint paths from starts to goals; see `optimize_paths`.

        Args:
            start: (batch, n_joints) [rad, prismatic: m], on the device of the world.
            goal: (batch, n_joints).
            env_index: (batch,) int32, the env of each problem; env 0 for all if None.
            base_pose: (7,) for all or (batch, 7), pose of the root link in the world.
            generator: of the random numbers; a fixed seed in every call if None.
            progress: called with better and better paths.

        Raises:
            TypeError, ValueError: an argument of another type, shape, device or range; a start or
                goal that is not finite or not valid.
        """
        if self._among_movers is not None:
            self._among_movers = self._among_movers.as_of_now()
            call = {"env_index": env_index, "generator": generator, "progress": progress}
            return self._among_movers.plan(start, goal, base_pose, call)
        own, robot, world = self._options, self._robot, self._world
        budget = Budget(own.max_iterations, own.max_seconds)
        must_be_finite = own.on_invalid_endpoints == "raise"
        ends = endpoint_operands(start, goal, robot, world, must_be_finite)
        batch = ends.shape[1]
        env_index = validate.env_operand(env_index, batch, world.n_envs, world.device, check=True)
        numbers, seed = random.Random(), _seed_of(generator)
        if base_pose is not None:  # in each problem
            base_pose = base_operand(base_pose, ends[0]).detach().expand(batch, 7)
        self._look_for_changes()
        with torch.no_grad():
            problems = self._problems(ends, env_index, base_pose)
            first = None
            if progress is None and self._is_for_first_paths(problems, budget):
                numbers.seed(seed)
                first = FirstPaths(problems, numbers, own.horizon, own.max_iterations)
            if first is not None and first.are_all_found:
                return _of_first(problems, first)
            if first is not None and not first.are_peculiar:
                search = self._search(problems, budget, numbers)
                search.go_on(first)
                return self._planned(problems, search, ())
            numbers.seed(seed)
            problems, valid, straight = with_margins(problems)
            if own.on_invalid_endpoints == "raise":
                require_valid(problems, valid)
            near = near_ends(problems, valid)
            search = self._search(problems, budget, numbers, progress)
            search.run(valid.all(0), straight)
            return self._planned(problems, search, near)

    def _is_for_first_paths(self, problems: Problems, budget: Budget) -> bool:
        """Whether one launch may find what is asked for."""
        own = self._options
        if own.until != "first" or own.terms or self._limits is not None:
            return False
        may_grow = own.horizon > 2 and own.max_iterations > 0 and not budget.is_late
        return may_grow and problems.are_in_lanes

    def _search(
        self,
        problems: Problems,
        budget: Budget,
        numbers: random.Random,
        progress: Callable[[PlanningProgress], object] | None = None,
    ) -> Search:
        own = self._options
        objective = functools.cache(functools.partial(_objective, problems, own.terms))
        best = BestPaths(problems, objective() if own.terms else None, own.horizon, progress)
        return Search(problems, objective, best, budget, numbers, own.n_seeds, own.until == "first")

    def _planned(
        self, problems: Problems, search: Search, near: tuple[NearEnd, ...]
    ) -> PlannedPaths:
        """What a search has found, with clearances and motions where they are asked for."""
        best, motion = search.best, None
        if self._limits is not None:
            most = 0 if search.budget.is_late else MOST_ITERATIONS
            motion = _soonest(problems, best, search.others, self._limits, most)
        measured = _measured(problems, search.objective, best, search.first_only)
        clearance, world_clearance, self_clearance, cost, is_far = measured
        return PlannedPaths(
            best.joints,
            best.free,
            clearance,
            world_clearance,
            self_clearance,
            cost if motion is None else best.cost,
            path_length(best.joints),
            best.iterations,
            is_far,
            problems.margins.expand(len(best.joints)).clone(),
            near,
            motion,
        )

    def _look_for_changes(self) -> None:
        """Forgets tables of the robot if links, or pairs that it checks, have changed."""
        robot = self._robot
        now = robot.layout, self._options.self_collision is True and robot.default_pairs
        if any(a is not b for a, b in zip(self._tables_of, now, strict=True)):
            self._tables_of, self._known = now, {}

    def _problems(
        self, ends: Tensor, env_index: Tensor | None, base_pose: Tensor | None
    ) -> Problems:
        own = self._options
        margin, preferred = float(own.margin), float(own.preferred_clearance)
        margins, start, goal = ends.new_full((1,), margin), *ends
        scene = self._robot, self._world, start, goal, env_index
        clearances = margin, margins, max(margin, preferred)
        options = own.self_collision, tuple(own.ignore), base_pose, own.shapes
        times = {"limits_of_time": self._limits, "known": self._known}
        return Problems(*scene, *clearances, *options, **times)


class _AmongMovers:
    """Two planners: one pays no heed to obstacles that move, one sees them where they stand."""

    def __init__(self, robot: RobotSpheres, world: MeshWorld, options: Mapping[str, Any]):
        if options.get("limits") is None:
            raise ValueError("limits must be given with times and poses, got None")
        own = self._options = _Options(**options)
        self._robot, self._world, self._given = robot, world, {**options, "ignore": own.ignore}
        self._named = robot.layout, world.names(0)
        self._traffic = Traffic.of(own.times, own.poses, world)
        links = (*robot.link_names, *robot.attached)
        heedless = tuple((link, mover) for link in links for mover in self._traffic.movers)
        within = {**self._given, "times": None, "poses": None}
        without = {**within, "ignore": (*own.ignore, *heedless)}
        within["on_invalid_endpoints"] = "mark"
        self._planners = Planner(robot, world, **without), Planner(robot, world, **within)

    def as_of_now(self) -> _AmongMovers:
        """The same, or others where links or obstacles have come or gone."""
        layout, names = self._named
        if self._robot.layout is layout and self._world.names(0) == names:
            return self
        return _AmongMovers(self._robot, self._world, self._given)

    def plan(
        self, start: Tensor, goal: Tensor, base_pose: PoseLike | None, call: dict[str, Any]
    ) -> PlannedPaths:
        """See `Planner.plan`."""
        own = self._options
        first, second = (
            planner.plan(start, goal, base_pose=base_pose, **call) for planner in self._planners
        )
        contacts = {"ignore": tuple(own.ignore), "self_collision": own.self_collision}
        base = None if base_pose is None else base_operand(base_pose, start).expand(len(start), 7)
        scene = self._traffic, self._robot, self._world
        return _first_to_arrive((first, second), *scene, contacts, base, own.margin, own.shapes)


def _seed_of(generator: torch.Generator | None) -> int:
    if generator is None:
        return _fixed_seed()
    return int(torch.randint(1 << 62, (1,), generator=generator, device=generator.device))


@functools.cache
def _fixed_seed() -> int:
    return _seed_of(torch.Generator().manual_seed(0))


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
    limits: MotionLimits,
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
        **limits._asdict(),
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


def _of_first(problems: Problems, first: FirstPaths) -> PlannedPaths:
    """What a first launch has found for all problems."""
    joints, found = first.joints, first.cost.isfinite()
    unknown = torch.full_like(first.cost, torch.nan)
    return PlannedPaths(
        joints,
        found,
        unknown,
        unknown.clone(),
        unknown.clone(),
        unknown.clone(),
        path_length(joints),
        first.iterations,
        first.far,
        problems.margins.expand(len(joints)).clone(),
        (),
    )


def _measured(
    problems: Problems, objective: Callable[[], Objective], best: BestPaths, first_only: bool
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
    cost = objective()(joints, every, None)  # of a bad end it may be NaN
    is_far = free & (clearance >= problems.preferred_clearance - problems.margins)
    if problems.shapes == "exact":
        is_far |= free & ~problems.near(joints, every).any(1)
    return clearance, world, itself, cost, is_far

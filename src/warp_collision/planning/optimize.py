"""Certified joint paths by batched trajectory optimisation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import escaped, short_repr
from warp_collision.planning.objective import Objective
from warp_collision.planning.problems import Problems
from warp_collision.planning.search import BestPaths, Budget, PlanningProgress, Search
from warp_collision.planning.shortcuts import path_length
from warp_collision.planning.terms import SELF_WEIGHT, CollisionTerm, Term
from warp_collision.poses import PoseLike
from warp_collision.queries.dispatch import reads_values
from warp_collision.robot import (
    RobotSpheres,
    SelfCollisionPairs,
    joint_path_clearance,
)
from warp_collision.robot.model.base_pose import base_operand
from warp_collision.robot.model.robot_spheres import require_robot_and_world
from warp_collision.summaries import notebook_html, summary
from warp_collision.world import MeshWorld

_ROUNDING = 1.0e-5  # of limits [rad or m]


class PlannedPaths(NamedTuple):
    """Result of `optimize_paths`.

    Attributes:
        joints: (batch, horizon, n_joints) float32, from start to goal, straight between waypoints.
        free: (batch,) bool, whether `joint_path_in_collision` proves these paths free.
        clearance: (batch,) [m], the smaller one of the two following. NaN, as these two and the
            cost, of `until="first"`, which does not compute them.
        world_clearance: (batch,) [m], lower bound of the clearance to the world on the path: the
            `lower` of `joint_path_clearance`, at least 0 where `free`; +inf without obstacles.
        self_clearance: (batch,) [m], the same between spheres of the robot, +inf if no pairs are
            checked. Pairs above the margin whose clearance is the same at all joint values
            (`SelfCollisionPairs.constant`) are left out: no path could change it.
        cost: (batch,) the objective of these paths: the sum of all terms.
        length: (batch,) sum of the Euclidean lengths of the segments [rad, prismatic: m].
        iterations: (batch,) int64, rounds of the trees until the first free path, 0 where the
            straight line is free.
        has_preferred_clearance: (batch,) bool, whether `clearance` reaches `preferred_clearance`
            minus `margin`, the uncertainty of `clearance`; of `until="first"`, whether it is proven
            to be kept. False if start or goal have a smaller clearance, if all paths found have,
            and where `free` is false.
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

    __repr__ = summary
    _repr_html_ = notebook_html


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
    self_collision: bool | SelfCollisionPairs = True,
    ignore: Iterable[tuple[str, str]] = (),
    base_pose: PoseLike | None = None,
    max_iterations: int = 10_000,
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
        margin: [m], the `tolerance` of `joint_path_in_collision`: paths, starts and goals with a
            clearance below it may be rejected.
        preferred_clearance: [m], of shortcuts: smaller clearances remain only where necessary, such
            as near a goal in a narrow space. Not a constraint: `has_preferred_clearance` of the
            result says whether it is kept.
        terms: callables of joints (n, horizon, n_joints) that return (n, horizon) or (n,) and are
            differentiable. One with a parameter `problem` is given (n,) int64 by that name: the
            batch row that each path is for. They weigh against half the squared joint velocity,
            integrated over unit time; among free paths the cheapest is returned. Values and
            derivatives must be finite, also beyond joint limits, where a descent may pass. Without
            terms the shortest path is returned, where parts nearer than the preferred clearance
            count twice.
        self_collision: whether self-collisions are checked, by the pairs of
            `RobotSpheres.self_collision_pairs`; or the pairs to check.
        ignore: allowed contacts, pairs of a link, or attached object, and an obstacle; see
            `joint_path_in_collision`.
        base_pose: (7,) for all or (batch, 7), pose of the root link in the world, or 4 x 4
            matrices; the origin if None.
        max_iterations: rounds of the trees, after which a problem without a path is not pursued.
        max_seconds: of the search, looked at between its steps; no limit if None. With a limit
            results may differ from run to run.
        on_invalid_endpoints: "raise" an error if a start or goal is in collision, has a clearance
            below the margin or is beyond joint limits, or "mark" its row as not free.
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
        >>> found.has_preferred_clearance.tolist()  # 10 mm by default
        [True]
    """
    for name, count, least in (
        ("n_seeds", n_seeds, 1),
        ("horizon", horizon, 2),
        ("max_iterations", max_iterations, 0),
    ):
        validate.require_int(name, count)
        if count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")
    if max_seconds is not None:
        validate.require_number("max_seconds", max_seconds)
    validate.require_number("margin", margin, positive=True)
    validate.require_number("preferred_clearance", preferred_clearance)
    if on_invalid_endpoints not in ("raise", "mark"):
        raise ValueError(
            f"on_invalid_endpoints must be 'raise' or 'mark', got {on_invalid_endpoints!r}"
        )
    if until not in ("first", "converged"):
        raise ValueError(f"until must be 'first' or 'converged', got {until!r}")
    budget = Budget(max_iterations, max_seconds)
    require_robot_and_world(robot, world)
    if isinstance(terms, str) or not isinstance(terms, Iterable):
        raise TypeError(f"terms must be a sequence of callables, got {short_repr(terms)}")
    start = _endpoint_operand("start", start, robot, world)
    goal = _endpoint_operand("goal", goal, robot, world)
    if start.shape != goal.shape:
        raise ValueError(
            f"goal must have the shape of start {tuple(start.shape)}, got {tuple(goal.shape)}"
        )
    env_index = validate.env_operand(env_index, len(start), world.n_envs, world.device, check=True)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    if base_pose is not None:  # in each problem
        base_pose = base_operand(base_pose, start).detach().expand(len(start), 7)
    clearances = float(margin), max(float(margin), float(preferred_clearance))
    contacts = self_collision, tuple(ignore)
    problems = Problems(robot, world, start, goal, env_index, *clearances, *contacts, base_pose)
    with torch.no_grad():
        valid = _check_endpoints(problems, on_invalid_endpoints)
        objective = _objective(problems, terms)
        best = BestPaths(problems, objective if terms else None, horizon, progress)
        first_only = until == "first"
        Search(problems, objective, best, budget, generator, n_seeds, first_only).run(valid)
        return _first(best) if first_only else _result(problems, objective, best)


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


def _first(best: BestPaths) -> PlannedPaths:
    """What is known of first paths."""
    lengths = path_length(best.joints)
    unknown = torch.full_like(lengths, torch.nan)
    measured = (unknown, unknown.clone(), unknown.clone(), unknown.clone())
    return PlannedPaths(best.joints, best.free, *measured, lengths, best.iterations, best.far)


def _result(problems: Problems, objective: Objective, best: BestPaths) -> PlannedPaths:
    joints, free = best.joints, best.free
    every = torch.arange(len(joints), device=joints.device)
    found = joint_path_clearance(
        joints,
        problems.robot,
        problems.world,
        tolerance=problems.margin,
        self_collision=problems.changing_pairs,
        **problems.world_of(every),
    )
    world, itself = (
        torch.where(free, lower.clamp(min=0.0), lower)
        for lower in (found.lower.amin(1), found.self_lower.amin(1))
    )
    clearance = torch.minimum(world, itself)
    cost = objective(joints, every, None)  # of a bad end it may be NaN
    is_far = free & (clearance >= problems.preferred_clearance - problems.margin)
    lengths = path_length(joints)
    return PlannedPaths(
        joints, free, clearance, world, itself, cost, lengths, best.iterations, is_far
    )


# -- starts and goals -----------------------------------------------------------------------------


def _endpoint_operand(name: str, value: Tensor, robot: RobotSpheres, world: MeshWorld) -> Tensor:
    """Joint values (batch, n_joints) float32, finite, a copy without a gradient."""
    robot.check_joints(value)
    if value.ndim != 2:
        raise ValueError(
            f"{name} must have shape (batch, n_joints), got {validate.shape_of(value)}"
        )
    value = value.detach().float().contiguous().clone()
    if value.device != world.device:
        raise ValueError(f"{name} must be on device {world.device}, got {value.device}")
    wrong = torch.nonzero(~value.isfinite())
    if len(wrong):
        row, joint = wrong[0].tolist()
        raise ValueError(
            f"{name} must be finite, got {value[row, joint].item()} in batch row {row} for "
            f"{robot.joint_names[joint]}"
        )
    return value


def _check_endpoints(problems: Problems, on_invalid: str) -> Tensor:
    """Which problems (batch,) have valid ends."""
    ends = torch.stack((problems.start, problems.goal))
    low, high = problems.limits.unbind(-1)
    beyond = ((ends < low - _ROUNDING) | (ends > high + _ROUNDING)).any(2)
    every = torch.arange(ends.shape[1], device=ends.device)
    at_rest = ends.flatten(0, 1)[:, None].repeat(1, 2, 1)
    valid = ~beyond & problems.is_free(at_rest, every.repeat(2)).view(2, -1)
    if on_invalid == "raise" and not bool(valid.all()):
        end, row = (~valid).nonzero()[0].tolist()
        raise ValueError(
            f"{('start', 'goal')[end]} must be free and within joint limits, got batch row {row}: "
            f"{_reason(problems, ends[end], row)}"
        )
    return valid.all(0)


def _reason(problems: Problems, ends: Tensor, row: int) -> str:
    """Why a row of ends (batch, n_joints) is not valid."""
    robot, only = problems.robot, slice(row, row + 1)
    for name, value, (low, high) in zip(
        robot.joint_names, ends[row].tolist(), problems.limits.tolist(), strict=True
    ):
        if not low - _ROUNDING <= value <= high + _ROUNDING:
            return f"{escaped(name)} = {value:.4f} is beyond its limits [{low:.4f}, {high:.4f}]"
    report = robot.report(
        ends[only, None],
        problems.world,
        margin=problems.margin,
        self_collision=problems.self_collision,
        **problems.world_of(only),
    )
    if len(report.link) == 0:
        return _always_near(problems) or "it cannot be proven free"
    link, other, depth = report.link[0], report.obstacle[0], 1e3 * float(report.depth[0])
    what = f"link {escaped(other)}" if report.with_itself[0] else escaped(other)
    if depth <= 0.0:
        return (
            f"{escaped(link)} is {-depth:.2f} mm from {what}, below the margin of "
            f"{1e3 * problems.margin:.2f} mm"
        )
    hint = f"; {_too_large(link, other)}" if report.with_itself[0] else ""
    if report.at_all_values[0] and not report.with_itself[0]:
        pair = f"({escaped(link)!r}, {escaped(other)!r})"
        hint = f", as at all joint values: ignore=[{pair}] allows it"
    return f"{escaped(link)} is in collision with {what}, {depth:.1f} mm deep{hint}"


def _always_near(problems: Problems) -> str | None:
    """Two links whose clearance no joint value changes, and which is below the margin."""
    pairs = problems.changing_pairs
    if not isinstance(pairs, SelfCollisionPairs) or not pairs.constant:
        return None
    first, second, clearance = min(pairs.constant, key=lambda pair: pair.clearance)
    link, other = pairs.sphere_links[first], pairs.sphere_links[second]
    return (
        f"{escaped(link)} is {1e3 * clearance:.2f} mm from link {escaped(other)} at all joint "
        f"values, below the margin of {1e3 * problems.margin:.2f} mm; {_too_large(link, other)}"
    )


def _too_large(link: str, other: str) -> str:
    """What to do about two links whose spheres touch."""
    pair = f"({escaped(link)!r}, {escaped(other)!r})"
    return (
        "if they do not touch, their spheres may be too large: leave the pair out by "
        f"self_collision=robot.self_collision_pairs(ignore=[{pair}])"
    )

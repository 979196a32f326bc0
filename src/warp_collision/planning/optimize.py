"""Certified joint paths by batched trajectory optimisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.planning.descent import PathDescent, SmoothMetric, straight_lines
from warp_collision.planning.ends import bad_ends, end_operand, reason
from warp_collision.planning.seeds import first_paths
from warp_collision.planning.shortcuts import path_length, resample, shorten
from warp_collision.planning.terms import (
    SELF_WEIGHT,
    CollisionTerm,
    JointLimitsTerm,
    Objective,
    SmoothnessTerm,
    Term,
)
from warp_collision.robot import (
    RobotSpheres,
    SelfCollisionPairs,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.world import MeshWorld

_LEARNING_RATE = 0.03
_CHECK_EVERY = 5  # iterations
_ROUND = 100  # iterations, after which a problem that is not solved gets new seeds
_GROWTH = 1.4  # of the spread of seeds from round to round
_ENOUGH, _SETTLE = 4, 20  # free paths, or iterations after the first one, that end a descent
_SHORTCUT_ROUNDS, _NODES = 8, 40
_REFINEMENTS = 150  # iterations on free paths for the sake of a caller's terms


class PlannedPaths(NamedTuple):
    """Result of `optimize_paths`.

    Attributes:
        joints: (batch, horizon, n_joints) float32, from start to goal, straight between waypoints.
        free: (batch,) bool, whether `joint_path_in_collision` proves these paths free.
        clearance: (batch,) [m], nowhere on the path is the clearance to the world, or of the robot
            to itself, smaller: the `lower` of `joint_path_clearance`, at least 0 where `free`.
        cost: (batch,) the objective of these paths: the sum of all terms.
        length: (batch,) sum of the Euclidean lengths of the segments [rad, prismatic: m].
        iterations: (batch,) int64, of the descent until a free path was there.
    """

    joints: Tensor
    free: Tensor
    clearance: Tensor
    cost: Tensor
    length: Tensor
    iterations: Tensor


class PlanningProgress(NamedTuple):
    """What `progress` of `optimize_paths` is called with.

    Attributes:
        iterations: of the descent so far.
        n_free: problems with a free path.
        n_problems: all of them.
    """

    iterations: int
    n_free: int
    n_problems: int


@dataclass(frozen=True)
class _Problems:
    """The problems of a call, and the certificate that all paths have to have."""

    robot: RobotSpheres
    world: MeshWorld
    start: Tensor  # (batch, n_joints)
    goal: Tensor
    env_index: Tensor | None  # (batch,) int32
    margin: float
    self_collision: bool | SelfCollisionPairs
    limits: Tensor  # (n_joints, 2) on the device

    def envs(self, problem: Tensor) -> Tensor | None:
        return None if self.env_index is None else self.env_index[problem]

    def is_free(self, paths: Tensor, problem: Tensor) -> Tensor:
        """Whether paths (n, horizon, n_joints) of problems (n,) are proven free, (n,) bool."""
        return ~joint_path_in_collision(
            paths,
            self.robot,
            self.world,
            tolerance=self.margin,
            self_collision=self.self_collision,
            env_index=self.envs(problem),
        ).any(1)

    def within_limits(self, paths: Tensor) -> Tensor:
        """The paths with their inner waypoints moved to the joint limits they are beyond."""
        paths = paths.clone()
        paths[:, 1:-1].clamp_(self.limits[:, 0], self.limits[:, 1])
        return paths


class _Found:
    """Free paths by problem, as they are found; of others the last one of the first seed."""

    def __init__(self, problems: _Problems, horizon: int):
        batch = len(problems.start)
        self.paths: list[Tensor] = []
        self.problem: list[Tensor] = []
        self.count = torch.zeros(batch, dtype=torch.int64, device=problems.start.device)
        self.first = torch.full_like(self.count, -1)  # iteration of the first free path
        self.fallback = straight_lines(problems.start, problems.goal, horizon)

    def add(self, paths: Tensor, problem: Tensor, iteration: int) -> None:
        self.paths.append(paths)
        self.problem.append(problem)
        new = torch.bincount(problem, minlength=len(self.count))
        self.first[(self.count == 0) & (new > 0)] = iteration
        self.count += new


def optimize_paths(
    robot: RobotSpheres,
    world: MeshWorld,
    start: Tensor,
    goal: Tensor,
    *,
    env_index: Tensor | None = None,
    n_seeds: int = 12,
    horizon: int = 32,
    margin: float = 1e-3,
    terms: Sequence[Term] = (),
    self_collision: bool | SelfCollisionPairs = True,
    max_iterations: int = 1000,
    on_bad_ends: Literal["raise", "mark"] = "raise",
    generator: torch.Generator | None = None,
    progress: Callable[[PlanningProgress], object] | None = None,
) -> PlannedPaths:
    """Plans joint paths from starts to goals, and proves them free.

    Gradient descent on the inner waypoints of several seeds of each problem: on `CollisionTerm`,
    `SmoothnessTerm`, `JointLimitsTerm` and what terms a caller adds, with smoothness as its metric.
    Every few iterations `joint_path_in_collision` looks whether a path is free. Paths that are
    become shorter by shortcuts, each proven, and the best one of a problem is returned. Problems
    that are solved leave the batch; the others get new seeds, farther from the straight line, until
    an iteration limit.

    Args:
        robot: the robot, whose root stands in the origin of the world.
        world: the obstacles.
        start: (batch, n_joints) [rad, prismatic: m], on the device of the world.
        goal: (batch, n_joints). Continuous joints go the way of the numbers, they do not wrap.
        env_index: (batch,) int32, the env of each problem; env 0 for all if None.
        n_seeds: paths that are optimised for each problem.
        horizon: waypoints of a path, the ends included.
        margin: [m], the `tolerance` of `joint_path_in_collision`: paths, starts and goals with a
            clearance below it may be refused.
        terms: callables of joints (n, horizon, n_joints) that return (n, horizon) or (n,) and are
            differentiable. One with a parameter `problem` is given (n,) int64 by that name: the
            batch row that each path is for. They weigh against half the squared joint velocity,
            integrated over unit time; among free paths the cheapest is returned.
        self_collision: whether the robot may not touch itself either, by the pairs of
            `RobotSpheres.self_collision_pairs`, or the pairs that count.
        max_iterations: of the descent, after which a problem is given up.
        on_bad_ends: "raise" an error if a start or goal is in collision, nearer than the margin to
            something or beyond joint limits, or "mark" its row as not free.
        generator: of the random numbers; the same ones in every call if None.
        progress: called now and then with a `PlanningProgress`.

    Returns:
        Paths and what is known of them, see `PlannedPaths`. Where `free` is false no path was found
        and `joints` is the straight line.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range; a start or goal
            that is not finite, or is bad; the message names batch row, link and obstacle.

    Example:
        >>> import torch
        >>> from warp_collision import Cylinder, MeshWorld
        >>> from warp_collision.cli.demo import load_panda
        >>> from warp_collision.planning import optimize_paths
        >>> world = MeshWorld()
        >>> world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
        0
        >>> start = torch.tensor([[-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> goal = torch.tensor([[0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> found = optimize_paths(load_panda(), world, start, goal)
        >>> found.free.tolist(), tuple(found.joints.shape), found.clearance.item() >= 0.0
        ([True], (1, 32, 7), True)
    """
    for name, count, least in (
        ("n_seeds", n_seeds, 1),
        ("horizon", horizon, 2),
        ("max_iterations", max_iterations, 0),
    ):
        validate.require_int(name, count)
        if count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")
    validate.require_number("margin", margin, positive=True)
    if on_bad_ends not in ("raise", "mark"):
        raise ValueError(f"on_bad_ends must be 'raise' or 'mark', got {on_bad_ends!r}")
    start = end_operand("start", start, robot, world)
    goal = end_operand("goal", goal, robot, world)
    if start.shape != goal.shape:
        raise ValueError(
            f"goal must have the shape of start {tuple(start.shape)}, got {tuple(goal.shape)}"
        )
    env_index = validate.env_operand(env_index, len(start), world.n_envs, world.device)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    limits = robot.joint_limits.to(start.device)
    problems = _Problems(
        robot, world, start, goal, env_index, float(margin), self_collision, limits
    )
    with torch.no_grad():
        good = _check_ends(problems, on_bad_ends)
        objective = _objective(problems, terms)
        found = _Found(problems, horizon)
        iterations = _search(
            problems, objective, found, good, n_seeds, horizon, max_iterations, generator, progress
        )
        joints = _best(problems, objective, found, horizon, generator, bool(terms))
        return _result(problems, objective, joints, good, iterations)


def _objective(problems: _Problems, terms: Sequence[Term]) -> Objective:
    pairs = problems.self_collision
    collision = CollisionTerm(
        problems.robot,
        problems.world,
        env_index=problems.env_index,
        pairs=pairs if isinstance(pairs, SelfCollisionPairs) else None,
        self_weight=0.0 if pairs is False else SELF_WEIGHT,
    )
    return Objective([collision, SmoothnessTerm(), JointLimitsTerm(problems.limits), *terms])


def _check_ends(problems: _Problems, on_bad_ends: str) -> Tensor:
    """Which problems (batch,) have ends that a free path can have."""
    good = torch.ones(len(problems.start), dtype=torch.bool, device=problems.start.device)
    rules = {"margin": problems.margin, "self_collision": problems.self_collision}
    for name, ends in (("start", problems.start), ("goal", problems.goal)):
        bad = bad_ends(ends, problems.robot, problems.world, env_index=problems.env_index, **rules)
        good &= ~bad
        if on_bad_ends == "raise" and bool(bad.any()):
            row = int(bad.int().argmax())
            index = problems.env_index
            why = reason(
                ends[row : row + 1],
                problems.robot,
                problems.world,
                env_index=None if index is None else index[row : row + 1],
                **rules,
            )
            raise ValueError(
                f"{name} must be free and within joint limits, got batch row {row}: {why}"
            )
    return good


def _search(
    problems: _Problems,
    objective: Objective,
    found: _Found,
    good: Tensor,
    n_seeds: int,
    horizon: int,
    max_iterations: int,
    generator: torch.Generator,
    progress: Callable[[PlanningProgress], object] | None,
) -> Tensor:
    """Looks for free paths of the good problems; how many iterations that took, (batch,)."""
    iterations = torch.zeros_like(found.count)
    device = problems.start.device
    lines = found.fallback
    open_problems = torch.nonzero(good)[:, 0]
    straight = problems.is_free(lines[open_problems], open_problems)
    found.add(lines[open_problems[straight]], open_problems[straight], 0)
    open_problems = open_problems[~straight]
    metric = SmoothMetric(horizon, device) if horizon > 2 else None
    iteration, spread = 0, 1.0
    while len(open_problems) and metric is not None and iteration <= max_iterations:
        paths = first_paths(
            problems.robot,
            problems.world,
            problems.start[open_problems],
            problems.goal[open_problems],
            metric,
            env_index=problems.envs(open_problems),
            n_seeds=n_seeds,
            horizon=horizon,
            spread=spread,
            generator=generator,
        )
        problem = open_problems.repeat_interleave(n_seeds)
        descent = PathDescent(problems.within_limits(paths.flatten(0, 1)), metric, _LEARNING_RATE)
        last = min(iteration + _ROUND, max_iterations)
        while len(problem):
            if iteration % _CHECK_EVERY == 0 or iteration == last:
                paths = problems.within_limits(descent.paths())
                free = problems.is_free(paths, problem)
                found.add(paths[free], problem[free], iteration)
                settled = (found.count >= _ENOUGH) | (
                    (found.count > 0) & (iteration - found.first >= _SETTLE)
                )
                if progress is not None:
                    n_free = int((found.count > 0).sum())
                    progress(PlanningProgress(iteration, n_free, len(found.count)))
                keep = torch.nonzero(~free & ~settled[problem])[:, 0]
                if len(keep) < len(problem):
                    descent.keep(keep)
                    problem = problem[keep]
            if iteration == last or len(problem) == 0:
                break
            descent.step(objective.gradient(descent.paths(), problem))
            iteration += 1
        open_problems = open_problems[found.count[open_problems] == 0]
        iterations[open_problems] = iteration
        if iteration >= max_iterations:
            break
        spread *= _GROWTH
    return torch.where(found.count > 0, found.first, iterations)


def _best(
    problems: _Problems,
    objective: Objective,
    found: _Found,
    horizon: int,
    generator: torch.Generator,
    by_cost: bool,
) -> Tensor:
    """The best free path (batch, horizon, n_joints) of each problem, else the straight line."""
    best = found.fallback.clone()
    paths, problem = torch.cat(found.paths), torch.cat(found.problem)
    if len(paths) == 0:
        return best
    shorter = shorten(
        paths,
        lambda motions, rows: problems.is_free(motions, problem[rows]),
        rounds=_SHORTCUT_ROUNDS,
        n_nodes=_NODES,
        generator=generator,
    )
    shorter = resample(shorter, horizon)
    free = problems.is_free(shorter, problem)
    candidates = torch.cat((shorter[free], paths))
    owner = torch.cat((problem[free], problem))
    if by_cost and horizon > 2:
        candidates = _refine(problems, objective, candidates, owner)
    score = objective(candidates, owner) if by_cost else path_length(candidates)
    order = score.argsort(descending=True)  # the best one is written last
    for index in order.tolist():
        best[owner[index]] = candidates[index]
    return best


def _refine(problems: _Problems, objective: Objective, paths: Tensor, problem: Tensor) -> Tensor:
    """Cheaper free paths from free ones: the cheapest on a descent that is proven free."""
    metric = SmoothMetric(paths.shape[1], paths.device)
    descent = PathDescent(paths, metric, _LEARNING_RATE)
    best, lowest = paths, objective(paths, problem)
    for iteration in range(1, _REFINEMENTS + 1):
        descent.step(objective.gradient(descent.paths(), problem))
        if iteration % _CHECK_EVERY == 0:
            paths = problems.within_limits(descent.paths())
            cost = objective(paths, problem)
            better = (cost < lowest) & problems.is_free(paths, problem)
            best = torch.where(better[:, None, None], paths, best)
            lowest = torch.where(better, cost, lowest)
    return best


def _result(
    problems: _Problems, objective: Objective, joints: Tensor, good: Tensor, iterations: Tensor
) -> PlannedPaths:
    every = torch.arange(len(joints), device=joints.device)
    free = problems.is_free(joints, every) & good
    found = joint_path_clearance(
        joints,
        problems.robot,
        problems.world,
        tolerance=problems.margin,
        self_collision=problems.self_collision,
        env_index=problems.env_index,
    )
    lower = torch.minimum(found.lower, found.self_lower).amin(1)
    clearance = torch.where(free, lower.clamp(min=0.0), lower)
    return PlannedPaths(
        joints, free, clearance, objective(joints, every), path_length(joints), iterations
    )

"""Anytime search: the first free paths by trees, then better ones by shortcuts and descents."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.kernels import best_paths as kernels
from warp_collision.launching.launch import launch
from warp_collision.planning.descent import PathDescent, straight_lines
from warp_collision.planning.objective import Objective
from warp_collision.planning.problems import Problems
from warp_collision.planning.rrt_connect import FirstPaths, RrtConnect, Solved, TreesInLanes
from warp_collision.planning.shortcuts import (
    path_length,
    resample,
    shorten,
    shortest_of_each,
    stacked,
)
from warp_collision.summaries import summary

_GROUP = 40  # rounds of trees, after which the problems solved so far are improved, then twice ...
_MORE_ROUNDS = 8  # of other trees for the same problems than the first trees needed
_MAX_ROUNDS = 16  # of other trees
_NODES = 16  # per path and round of shortcuts
# Rounds of shortcuts of paths of trees, and of how many of the shortest of a problem. Several paths
# become curves in time, where only one is to be short.
_SEED_PHASES, _SEED_PHASES_FOR_TIME = ((1, None), (2, 1)), ((2, None), (2, 2))
_ROUNDS = 4  # of shortcuts after a descent
# By length a second pass gains little; by costs of the caller and by time it may gain more.
_PASSES, _PASSES_FOR_COST = 1, 3  # at most
_GAIN = 0.03  # of the cost, without which there is no other pass
_ITERATIONS = 16  # of a descent
_ITERATIONS_BY_COST = 150  # if the caller has terms, which no shortcut sees
_CHECK_EVERY = 8  # iterations between checks whether paths are free


class PlanningProgress(NamedTuple):
    """Argument of the callback `progress` of `optimize_paths`.

    Attributes:
        iterations: rounds of the trees so far.
        n_free: problems with a free path.
        n_problems: number of problems.
        joints: (batch, horizon, n_joints), the best paths so far; straight lines where there is
            none.
        free: (batch,) bool, whether these paths are proven free.
        length: (batch,) of these paths [rad, prismatic: m].
        cost: (batch,) what is minimised, +inf where not free: the length, where parts nearer than
            the preferred clearance count twice; with terms the sum of all terms.
    """

    iterations: int
    n_free: int
    n_problems: int
    joints: Tensor
    free: Tensor
    length: Tensor
    cost: Tensor

    __repr__ = summary


class BestPaths:
    """The best path of each problem so far.

    Args:
        problems: all problems.
        objective: by which paths are compared; if None, by length, where parts nearer than the
            preferred clearance count twice.
        horizon: waypoints of a path.
        progress: called with every better path.

    Attributes:
        horizon: waypoints of a path.
        joints: (batch, horizon, n_joints), straight lines where nothing is proven free.
        cost: (batch,) of the proven paths, else +inf.
        far: (batch,) bool, which of these keep the preferred clearance.
        rounds: of trees so far.
        iterations: (batch,) int64, rounds of trees until the first path.
        by_objective: whether there is one.
    """

    def __init__(
        self,
        problems: Problems,
        objective: Objective | None,
        horizon: int,
        progress: Callable[[PlanningProgress], object] | None,
    ):
        self._problems, self._objective, self._progress = problems, objective, progress
        self.horizon, self.by_objective = horizon, objective is not None
        self.joints = straight_lines(problems.start, problems.goal, horizon)
        self.cost = torch.full_like(problems.start[:, 0], torch.inf)
        self.far = torch.zeros_like(self.cost, dtype=torch.bool)
        self.rounds, self.iterations = 0, torch.zeros_like(self.cost, dtype=torch.int64)

    @property
    def free(self) -> Tensor:
        """Which problems (batch,) have a path."""
        return self.cost.isfinite()

    def take(self, first: FirstPaths) -> None:
        """Takes the paths that a first launch has found."""
        found = first.cost.isfinite()
        self.joints = torch.where(found[:, None, None], first.joints, self.joints)
        self.cost, self.far, self.iterations = first.cost, first.far, first.iterations

    def offer(self, paths: Tensor, problem: Tensor, rounds: Tensor | None = None) -> None:
        """Keeps those of the paths (n, horizon, n_joints) of problems (n,) that are better.

        They were found in a round (n,) int64, or in that of now.
        """
        if len(paths) == 0:
            return
        near = self._problems.near(paths, problem)
        hit = self._problems.hits_where_near(paths, problem, near)
        if self._objective is not None:  # terms of the caller see proven paths alone
            proven = torch.nonzero(~(near & hit).any(1))[:, 0]
            paths, problem, near = paths[proven], problem[proven], near[proven]
            rounds = None if rounds is None else rounds[proven]
            cost = self._objective(paths, problem)
        else:
            cost = costs_of(paths, near, hit, self._problems.pace)
        before = self.cost.clone() if self._progress is not None else None
        rounds = torch.full_like(problem, self.rounds) if rounds is None else rounds
        kept = self.joints, self.far, self.iterations, self.cost
        operands = paths, near, cost, problem, rounds, *kept
        launch(kernels.keep_best, (len(paths),), *operands, device=paths.device)
        if before is not None and not torch.equal(before, self.cost):
            self.report()

    def offer_polylines(self, paths: Tensor, problem: Tensor, rounds: Tensor | None = None) -> None:
        """Offers paths (n, m, n_joints), if they have no more vertices than the horizon."""
        if len(paths):
            self.offer(resample(paths, self.horizon), problem, rounds)

    def report(self) -> None:
        """Calls `progress`."""
        if self._progress is not None:
            free, joints = self.free, self.joints.clone()
            counts = self.rounds, int(free.sum()), len(free)
            self._progress(
                PlanningProgress(*counts, joints, free, path_length(joints), self.cost.clone())
            )


def costs_of(paths: Tensor, near: Tensor, hit: Tensor, pace: Tensor) -> Tensor:
    """Lengths or times (n,) of paths (n, horizon, n_joints), infinite where not proven free.

    Args:
        paths: the paths.
        near: (n, horizon - 1) bool, segments that count twice.
        hit: (n, horizon - 1) bool, which of these are not proven free.
        pace: of times, see `Problems.pace`.
    """
    costs = paths.new_empty(len(paths))
    operands = paths.contiguous(), near, hit, pace, costs
    launch(kernels.costs_of_paths, (len(paths),), *operands, device=paths.device)
    return costs


class Budget:
    """When a search ends.

    Attributes:
        max_iterations: rounds of trees.
    """

    def __init__(self, max_iterations: int, max_seconds: float | None):
        self.max_iterations = max_iterations
        self._deadline = math.inf if max_seconds is None else time.monotonic() + max_seconds

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self._deadline


@dataclass(frozen=True)
class Search:
    """A search of the paths of some problems.

    Attributes:
        problems: all problems.
        objective: makes that of the descents from free paths, once.
        best: has the paths, and takes better ones.
        budget: when to end.
        numbers: of which random numbers are drawn.
        n_seeds: paths of trees for each problem, of which the best ones are improved.
        first_only: whether paths are not improved.
        others: paths (n, horizon, n_joints) of problems (n,) that were the best before a descent.
    """

    problems: Problems
    objective: Callable[[], Objective]
    best: BestPaths
    budget: Budget
    numbers: random.Random
    n_seeds: int
    first_only: bool
    others: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached."""
        return self.best.rounds >= self.budget.max_iterations or self.budget.is_late

    def run(self, valid: Tensor, straight: Tensor) -> None:
        """Searches until each problem has a path or a limit is reached.

        Args:
            valid: (batch,) whether its ends are valid.
            straight: (batch,) whether its straight line is proven free.
        """
        best = self.best
        rows = torch.nonzero(valid)[:, 0]
        found = rows[straight[rows]]  # whose paths are to be improved
        best.offer(best.joints[found], found)
        best.report()
        if best.horizon == 2:
            return
        if len(found):
            rows = rows[~best.free[rows]]
        self._search(rows, found)

    def go_on(self, first: FirstPaths) -> None:
        """Goes on from a first launch until each problem has a path or a limit is reached."""
        self.best.take(first)
        self.best.rounds = first.n_grown
        first.go_on()
        rows = first.rows
        self._search(rows, rows[:0], first)

    def _search(self, rows: Tensor, found: Tensor, trees: RrtConnect | None = None) -> None:
        """Grows trees of problems (n,); improves their paths, and those of some others first."""
        best = self.best
        while len(rows) and not self.is_over:
            before = 0 if trees is not None else best.rounds
            trees = trees or self._trees(rows)  # others after too many vertices
            while len(trees.rows) and not self.is_over:
                solved = self._first_paths(trees, before, max(2 * best.rounds, _GROUP))
                best.report()
                if self.first_only:
                    continue
                found = torch.cat((found, *(each.problem for each in solved)))
                if len(found):
                    self._improve(found, solved)
                    found = found[:0]
            rows, trees = rows[~best.free[rows]], None
        if not self.first_only and len(found):
            self._improve(found, [])
        if len(rows):
            best.iterations[rows] = best.rounds

    def _trees(self, rows: Tensor) -> RrtConnect:
        kind = TreesInLanes if self.problems.are_in_lanes else RrtConnect
        return kind(self.problems, rows, self.numbers)

    def _first_paths(self, trees: RrtConnect, before: int, last: int) -> list[Solved]:
        """Grows trees up to a round, or until all are solved, and offers their paths at once.

        There were some rounds before these trees.
        """
        best, found = self.best, []
        while len(trees.rows) and best.rounds < last and not self.is_over:
            grown, solved = trees.grow(min(last, self.budget.max_iterations) - best.rounds)
            best.rounds += grown
            for each in solved:
                self._offer_first(each, before + each.rounds)
            found += solved
        return found

    def _offer_first(self, solved: Solved, rounds: Tensor) -> None:
        """Offers paths of trees of rounds (n,), with fewer vertices where they have too many."""
        paths, problem, n_vertices, _ = solved
        self.best.offer_polylines(paths, problem, rounds)
        many = torch.nonzero(n_vertices > self.best.horizon)[:, 0]
        if len(many):
            many = many.to(problem.device)
            paths, problem, rounds = paths[many], problem[many], rounds[many]
            hits = self.problems.hits
            options = {"rounds": 3, "n_nodes": 40, "numbers": self.numbers}
            shorter = shorten(paths, problem, hits, hits, **options)
            self.best.offer_polylines(shorter, problem, rounds)

    def _other_paths(self, rows: Tensor) -> list[Solved]:
        """Paths of other trees for the same problems, as far as they come about as soon."""
        found: list[Solved] = []
        if len(rows) and self.n_seeds > 1:
            trees = self._trees(rows.repeat_interleave(self.n_seeds - 1))
            left = min(self.best.rounds + _MORE_ROUNDS, _MAX_ROUNDS)
            while left > 0 and len(trees.rows) and not self.budget.is_late:
                grown, solved = trees.grow(left)
                left -= grown
                found += solved
        return found

    # -- improvement of free paths ----------------------------------------------------------------

    def _improve(self, rows: Tensor, solved: list[Solved]) -> None:
        """Improves the paths of problems (n,), until nothing is gained.

        Args:
            rows: (n,) int64, which have a free path.
            solved: what trees found of these problems.
        """
        best, budget, by_cost = self.best, self.budget, self.best.by_objective
        for_time = self.problems.limits_of_time is not None
        if solved:
            solved = solved + self._other_paths(torch.cat([each.problem for each in solved]))
            paths = stacked([each.paths for each in solved])
            problem = torch.cat([each.problem for each in solved])
            for rounds, most in _SEED_PHASES_FOR_TIME if for_time else _SEED_PHASES:
                if budget.is_late:
                    break
                if most is not None:
                    kept = shortest_of_each(self._far_costs(paths), problem, most)
                    paths, problem = paths[kept], problem[kept]
                paths = self._shorten(paths, problem, rounds)
                best.offer_polylines(paths, problem)
            if for_time:
                self.others.append((resample(paths, best.horizon), problem))
        straight = self._far_costs(torch.stack((self.problems.start, self.problems.goal), dim=1))
        cost = best.cost[rows]
        may_gain = cost.isfinite()  # not one that was proven by trees, and then was not
        if not by_cost:
            may_gain &= cost > (1.0 + 1e-4) * straight[rows]
        rows = rows[may_gain]
        for _ in range(_PASSES_FOR_COST if by_cost or for_time else _PASSES):
            if len(rows) == 0 or budget.is_late:
                break
            before = best.cost[rows]
            paths = self._descend(rows, _ITERATIONS_BY_COST if by_cost else _ITERATIONS)
            best.offer(paths, rows)
            if not (by_cost or budget.is_late):
                best.offer_polylines(self._shorten(paths, rows, _ROUNDS), rows)
            rows = rows[best.cost[rows] < (1.0 - _GAIN) * before]

    def _far_costs(self, paths: Tensor) -> Tensor:
        """Costs (n,) of paths that are near nothing."""
        if self.problems.limits_of_time is None:
            return path_length(paths)
        near = torch.zeros(paths[:, 1:, 0].shape, dtype=torch.bool, device=paths.device)
        return costs_of(paths, near, near, self.problems.pace)

    def _shorten(self, paths: Tensor, problem: Tensor, rounds: int) -> Tensor:
        checks = self.problems.hits, self.problems.near
        pace = self.problems.pace
        options = {"rounds": rounds, "n_nodes": _NODES, "numbers": self.numbers, "pace": pace}
        return shorten(paths, problem, *checks, **options)

    def _descend(self, problem: Tensor, iterations: int) -> Tensor:
        """The cheapest proven free path on a descent from the best path of each problem (n,)."""
        problems, objective, best = self.problems, self.objective(), self.best.joints[problem]
        has_terms = self.best.by_objective  # of the caller, which may be not finite
        descent = PathDescent(best, problems.limits)
        derivative = objective.derivative(descent.paths, problem)
        lowest = objective(best, problem, "" if has_terms else None)
        for iteration in range(1, iterations + 1):
            descent.step(*derivative())
            if iteration % _CHECK_EVERY == 0:
                paths = problems.within_limits(descent.paths)
                cost = objective(paths, problem, None)
                if has_terms:
                    self._require_finite(descent, iteration, paths, problem, cost)
                better = (cost < lowest) & problems.is_free(paths, problem)
                best = torch.where(better[:, None, None], paths, best)
                lowest = torch.where(better, cost, lowest)
                if self.budget.is_late:
                    break
        return best

    def _require_finite(
        self, descent: PathDescent, iteration: int, paths: Tensor, problem: Tensor, cost: Tensor
    ) -> None:
        """Requires that all paths have made all steps, and have finite costs (n,)."""
        is_finite = (descent.steps == iteration) & cost.isfinite()
        if not bool(is_finite.all()):
            last = int(descent.steps.amin()) + 1
            stopped = descent.steps < last
            when = f"iteration {last} on free paths"
            objective = self.objective()
            objective.require_finite(descent.paths[stopped], problem[stopped], when)
            objective(paths, problem)

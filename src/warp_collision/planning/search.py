"""Anytime search: the first free paths by trees, then better ones by shortcuts and descents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.planning.descent import PathDescent, straight_lines
from warp_collision.planning.objective import Objective
from warp_collision.planning.problems import Problems
from warp_collision.planning.rrt_connect import RrtConnect
from warp_collision.planning.shortcuts import (
    path_length,
    resample,
    shorten,
    shortest_of_each,
    stacked,
)
from warp_collision.summaries import summary

_GROUP = 20  # rounds of trees, after which the problems solved so far are improved
_MORE_ROUNDS = 10  # of other trees for the same problems than the first trees needed
_MAX_ROUNDS = 40  # of other trees
_NODES = 20  # per path and round of shortcuts
# Rounds of shortcuts of paths of trees, and of how many of the shortest of a problem.
_SEED_PHASES = ((2, None), (2, 2))
_ROUNDS = 3  # of shortcuts after a descent
_PASSES = 4  # at most
_GAIN = 0.03  # of the cost, without which there is no other pass
_ITERATIONS = 20  # of a descent
_ITERATIONS_BY_COST = 150  # if the caller has terms, which no shortcut sees
_CHECK_EVERY = 10  # iterations between checks whether paths are free


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

    def offer(self, paths: Tensor, problem: Tensor) -> None:
        """Keeps those of the paths (n, horizon, n_joints) of problems (n,) that are better."""
        if len(paths) == 0:
            return
        near = self._problems.is_near(paths, problem)
        proven = torch.nonzero(self._problems.is_free_where_near(paths, problem, near))[:, 0]
        paths, problem, near = paths[proven], problem[proven], near[proven]
        if len(paths) == 0:
            return
        cost = self._cost(paths, problem, near)
        chosen = shortest_of_each(cost, problem, 1)
        chosen = chosen[cost[chosen] < self.cost[problem[chosen]]]
        if len(chosen) == 0:
            return
        better = problem[chosen]
        self.iterations[better[~self.free[better]]] = self.rounds
        self.joints[better], self.cost[better] = paths[chosen], cost[chosen]
        self.far[better] = ~near[chosen].any(1)
        self.report()

    def offer_polylines(self, paths: Tensor, problem: Tensor) -> None:
        """Offers paths (n, m, n_joints) with any number of vertices, the first ones repeated."""
        fits = (paths[:, : -self.horizon + 1] == paths[:, :1]).flatten(1).all(1)
        rows = torch.nonzero(fits)[:, 0]
        if len(rows):
            fitting = paths[rows][:, -self.horizon :]
            self.offer(resample(fitting, self.horizon), problem[rows])

    def _cost(self, paths: Tensor, problem: Tensor, near: Tensor) -> Tensor:
        if self._objective is not None:
            return self._objective(paths, problem)
        steps = torch.linalg.vector_norm(paths[:, 1:] - paths[:, :-1], dim=-1)
        return (steps * (1.0 + near)).sum(1)

    def report(self) -> None:
        """Calls `progress`."""
        if self._progress is not None:
            free, joints = self.free, self.joints.clone()
            counts = self.rounds, int(free.sum()), len(free)
            self._progress(
                PlanningProgress(*counts, joints, free, path_length(joints), self.cost.clone())
            )


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
        objective: of the descents from free paths.
        best: has the paths, and takes better ones.
        budget: when to end.
        generator: of the random numbers.
        n_seeds: paths of trees for each problem, of which the best ones are improved.
        first_only: whether paths are not improved.
    """

    problems: Problems
    objective: Objective
    best: BestPaths
    budget: Budget
    generator: torch.Generator
    n_seeds: int
    first_only: bool

    def run(self, valid: Tensor) -> None:
        """Searches until each problem with valid ends (batch,) has a path or a limit is reached."""
        problems, best, budget = self.problems, self.best, self.budget
        rows = torch.nonzero(valid)[:, 0]
        straight = torch.stack((problems.start[rows], problems.goal[rows]), dim=1)
        direct = rows[problems.is_free(straight, rows)]
        best.offer(best.joints[direct], direct)
        best.report()
        if best.horizon == 2:
            return
        if not self.first_only:
            self._improve(rows[best.free[rows]], [])
        rows = rows[~best.free[rows]]
        while len(rows) and best.rounds < budget.max_iterations and not budget.is_late:
            trees = self._trees(rows)  # again where a path had too many vertices
            while len(trees.rows) and best.rounds < budget.max_iterations and not budget.is_late:
                last = min(best.rounds + _GROUP, budget.max_iterations)
                found: list[tuple[int, Tensor]] = []
                while len(trees.rows) and best.rounds < last and not budget.is_late:
                    new = trees.grow(1)
                    best.rounds += 1
                    found += new
                    self._offer_first(new)
                best.report()
                found = [(row, path) for row, path in found if best.free[row]]
                if found and not self.first_only:
                    solved = torch.tensor([row for row, _ in found], device=rows.device)
                    self._improve(solved, found + self._other_paths(solved))
            rows = rows[~best.free[rows]]
        best.iterations[rows] = best.rounds

    def _trees(self, rows: Tensor) -> RrtConnect:
        return RrtConnect(self.problems, rows, self.generator)

    def _offer_first(self, found: list[tuple[int, Tensor]]) -> None:
        """Offers paths of trees, with fewer vertices where they have too many."""
        if not found:
            return
        paths, problem = stacked(found, self.best.joints)
        self.best.offer_polylines(paths, problem)
        missing = torch.nonzero(~self.best.free[problem])[:, 0]
        if len(missing):
            paths, problem = paths[missing], problem[missing]
            is_free = self.problems.certificate(problem)
            shorter = shorten(
                paths, is_free, is_free, rounds=3, n_nodes=40, generator=self.generator
            )
            self.best.offer_polylines(shorter, problem)

    def _other_paths(self, rows: Tensor) -> list[tuple[int, Tensor]]:
        """Paths of other trees for the same problems, as far as they come about as soon."""
        trees = self._trees(rows.repeat_interleave(self.n_seeds - 1))
        found: list[tuple[int, Tensor]] = []
        for _ in range(min(self.best.rounds + _MORE_ROUNDS, _MAX_ROUNDS)):
            if self.budget.is_late:
                break
            found += trees.grow(1)
        return found

    # -- improvement of free paths ----------------------------------------------------------------

    def _improve(self, rows: Tensor, seeds: list[tuple[int, Tensor]]) -> None:
        """Improves the paths of problems (n,), until nothing is gained.

        Args:
            rows: (n,) int64, which have a free path.
            seeds: free paths (m_i, n_joints) of these problems.
        """
        best, budget, by_cost = self.best, self.budget, self.best.by_objective
        paths, problem = stacked(seeds, best.joints)
        for rounds, most in _SEED_PHASES:
            if len(paths) == 0 or budget.is_late:
                break
            if most is not None:
                kept = shortest_of_each(path_length(paths), problem, most)
                paths, problem = paths[kept], problem[kept]
            paths = self._shorten(paths, problem, rounds)
            best.offer_polylines(paths, problem)
        straight = torch.linalg.vector_norm(self.problems.goal - self.problems.start, dim=1)
        if not by_cost:
            rows = rows[best.cost[rows] > (1.0 + 1e-4) * straight[rows]]
        for _ in range(_PASSES):
            if len(rows) == 0 or budget.is_late:
                break
            before = best.cost[rows]
            paths = self._descend(rows, _ITERATIONS_BY_COST if by_cost else _ITERATIONS)
            best.offer(paths, rows)
            if not (by_cost or budget.is_late):
                best.offer_polylines(self._shorten(paths, rows, _ROUNDS), rows)
            rows = rows[best.cost[rows] < (1.0 - _GAIN) * before]

    def _shorten(self, paths: Tensor, problem: Tensor, rounds: int) -> Tensor:
        return shorten(
            paths,
            self.problems.certificate(problem),
            lambda motions, rows: ~self.problems.is_near(motions, problem[rows])[:, 0],
            rounds=rounds,
            n_nodes=_NODES,
            generator=self.generator,
        )

    def _descend(self, problem: Tensor, iterations: int) -> Tensor:
        """The cheapest proven free path on a descent from the best path of each problem (n,)."""
        problems, objective, best = self.problems, self.objective, self.best.joints[problem]
        descent = PathDescent(best, problems.limits)
        derivative = objective.derivative(descent.paths, problem)
        lowest = objective(best, problem)
        for iteration in range(1, iterations + 1):
            descent.step(*derivative())
            if iteration % _CHECK_EVERY == 0:
                paths = problems.within_limits(descent.paths)
                cost = objective(paths, problem, None)
                is_finite = (descent.steps == iteration) & cost.isfinite()
                if not bool(is_finite.all()):
                    last = int(descent.steps.amin()) + 1
                    stopped = descent.steps < last
                    when = f"iteration {last} on free paths"
                    objective.require_finite(descent.paths[stopped], problem[stopped], when)
                    objective(paths, problem)
                better = (cost < lowest) & problems.is_free(paths, problem)
                best = torch.where(better[:, None, None], paths, best)
                lowest = torch.where(better, cost, lowest)
                if self.budget.is_late:
                    break
        return best

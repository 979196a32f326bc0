"""The best paths found so far, each proven free."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.planning.descent import straight_lines
from warp_collision.planning.objective import Objective
from warp_collision.planning.problems import Problems
from warp_collision.planning.shortcuts import path_length, resample, shortest_of_each
from warp_collision.summaries import summary


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

    def __repr__(self) -> str:
        return summary(self)


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

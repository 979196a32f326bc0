"""The search for free paths: rounds of descents from several seeds of each problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.planning.descent import (
    CHECK_EVERY,
    LEARNING_RATE,
    PathDescent,
    SmoothMetric,
    straight_lines,
)
from warp_collision.planning.problems import Problems
from warp_collision.planning.seeds import first_paths
from warp_collision.planning.terms import Objective

_ROUND = 100  # iterations, after which a problem that is not solved gets new seeds
_GROWTH = 1.4  # of the spread of seeds from round to round
_ENOUGH, _SETTLE = 4, 20  # free paths, or iterations after the first one, that end a descent


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


class FreePaths:
    """Free paths by problem, as they are found.

    Args:
        problems: all of them.
        horizon: waypoints of a path.

    Attributes:
        paths: free paths, a tensor for each time that some were found.
        problem: the problems that they are of.
        count: (batch,) free paths of each problem.
        first: (batch,) iteration of its first one, -1 if there is none.
        lines: (batch, horizon, n_joints), the straight lines.
    """

    def __init__(self, problems: Problems, horizon: int):
        batch = len(problems.start)
        self.paths: list[Tensor] = []
        self.problem: list[Tensor] = []
        self.count = torch.zeros(batch, dtype=torch.int64, device=problems.start.device)
        self.first = torch.full_like(self.count, -1)
        self.lines = straight_lines(problems.start, problems.goal, horizon)

    def add(self, paths: Tensor, problem: Tensor, iteration: int) -> None:
        """Keeps free paths (n, horizon, n_joints) of problems (n,)."""
        self.paths.append(paths)
        self.problem.append(problem)
        new = torch.bincount(problem, minlength=len(self.count))
        self.first[(self.count == 0) & (new > 0)] = iteration
        self.count += new


def search_free_paths(
    problems: Problems,
    objective: Objective,
    found: FreePaths,
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
    lines = found.lines
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
            options=problems.world_of(open_problems),
            n_seeds=n_seeds,
            horizon=horizon,
            spread=spread,
            generator=generator,
        )
        problem = open_problems.repeat_interleave(n_seeds)
        descent = PathDescent(problems.within_limits(paths.flatten(0, 1)), metric, LEARNING_RATE)
        last = min(iteration + _ROUND, max_iterations)
        while len(problem):
            if iteration % CHECK_EVERY == 0 or iteration == last:
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

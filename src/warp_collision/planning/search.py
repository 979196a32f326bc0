"""Search for free paths: rounds of descents from several seeds, then of motion trees."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.planning.descent import (
    CHECK_EVERY,
    LEARNING_RATE,
    PathDescent,
    SmoothMetric,
)
from warp_collision.planning.problems import FreePaths, Problems
from warp_collision.planning.refinement import refine
from warp_collision.planning.rrt_connect import RrtConnect
from warp_collision.planning.seeds import first_paths
from warp_collision.planning.shortcuts import resample, shorten
from warp_collision.planning.terms import Objective

_ROUND = 100  # iterations, after which an unsolved problem gets new seeds
_GROWTH = 1.4  # factor of the spread of seeds from round to round
_TREES_FROM = 30  # iterations, after which trees grow too
_TREE_ROUNDS = 15  # of growth at each check
# A descent ends after this many free paths, or iterations after the first free path.
_MAX_FREE_PATHS, _EXTRA_ITERATIONS = 4, 20


class PlanningProgress(NamedTuple):
    """Argument of the callback `progress` of `optimize_paths`.

    Attributes:
        iterations: of the descent so far.
        n_free: problems with a free path.
        n_problems: number of problems.
    """

    iterations: int
    n_free: int
    n_problems: int


class Budget:
    """When a search ends.

    Attributes:
        max_iterations: of the descent.
    """

    def __init__(self, max_iterations: int, max_seconds: float | None):
        self.max_iterations = max_iterations
        self._deadline = math.inf if max_seconds is None else time.monotonic() + max_seconds

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self._deadline


def search_free_paths(
    problems: Problems,
    objective: Objective,
    free_paths: FreePaths,
    valid: Tensor,
    n_seeds: int,
    budget: Budget,
    generator: torch.Generator,
    progress: Callable[[PlanningProgress], object] | None,
) -> Tensor:
    """Searches free paths of the problems with valid ends; returns their iterations (batch,)."""
    iterations = torch.zeros_like(free_paths.count)
    lines = free_paths.lines
    open_problems = torch.nonzero(valid)[:, 0]
    straight = problems.is_free(lines[open_problems], open_problems)
    free_paths.add(lines[open_problems[straight]], open_problems[straight], 0)
    open_problems = open_problems[~straight]
    metric = SmoothMetric(free_paths.horizon, lines.device) if free_paths.horizon > 2 else None
    iteration, spread = 0, 1.0
    trees = _TreePaths(problems, objective, free_paths, generator)
    while len(open_problems) and metric is not None:
        paths = first_paths(
            problems,
            open_problems,
            free_paths.lines[open_problems],
            metric,
            n_seeds=n_seeds,
            spread=spread,
            generator=generator,
        )
        problem = open_problems.repeat_interleave(n_seeds)
        descent = PathDescent(problems.within_limits(paths.flatten(0, 1)), metric, LEARNING_RATE)
        last = min(iteration + _ROUND, budget.max_iterations)
        while len(problem):
            if iteration % CHECK_EVERY == 0 or iteration == last:
                paths = problems.within_limits(descent.paths())
                free = problems.is_free(paths, problem)
                free_paths.add(paths[free], problem[free], iteration)
                without = open_problems[free_paths.count[open_problems] == 0]
                if iteration >= _TREES_FROM and len(without) and not budget.is_late:
                    trees.grow(without, iteration)
                is_finished = (free_paths.count >= _MAX_FREE_PATHS) | (
                    (free_paths.count > 0) & (iteration - free_paths.first >= _EXTRA_ITERATIONS)
                )
                if progress is not None:
                    n_free = int((free_paths.count > 0).sum())
                    progress(PlanningProgress(iteration, n_free, len(free_paths.count)))
                keep = torch.nonzero(~free & ~is_finished[problem])[:, 0]
                if len(keep) < len(problem):
                    descent.keep(keep)
                    problem = problem[keep]
                if budget.is_late:
                    break
            if iteration == last or len(problem) == 0:
                break
            when = f"iteration {iteration}"
            descent.step(objective.gradient(descent.paths(), problem, when))
            iteration += 1
        open_problems = open_problems[free_paths.count[open_problems] == 0]
        iterations[open_problems] = iteration
        if iteration >= budget.max_iterations or budget.is_late:
            break
        spread *= _GROWTH
    return torch.where(free_paths.count > 0, free_paths.first, iterations)


class _TreePaths:
    """Paths of motion trees, for problems that no descent has solved so far."""

    def __init__(
        self,
        problems: Problems,
        objective: Objective,
        free_paths: FreePaths,
        generator: torch.Generator,
    ):
        self._problems, self._objective, self._free_paths = problems, objective, free_paths
        self._generator = generator
        self._trees: RrtConnect | None = None

    def grow(self, open_problems: Tensor, iteration: int) -> None:
        """Grows the trees of problems (n,) without a path, and adds the paths found."""
        if self._trees is None:
            self._trees = RrtConnect(self._problems, open_problems, self._generator)
        self._trees.drop(self._free_paths.count > 0)
        for row, path in self._trees.grow(_TREE_ROUNDS):
            self._add(path[None], torch.tensor([row], device=path.device), iteration)

    def _add(self, path: Tensor, problem: Tensor, iteration: int) -> None:
        """Shortens, refines and adds a path, unless it has too many vertices."""
        is_free = self._problems.certificate(problem)
        horizon = self._free_paths.horizon
        path = shorten(path, is_free, is_free, rounds=3, n_nodes=40, generator=self._generator)
        if path.shape[1] <= horizon:
            path = resample(path, horizon)
            if self._problems.is_free(path, problem).item():
                path = refine(self._problems, self._objective, path, problem)
                self._free_paths.add(path, problem, iteration)

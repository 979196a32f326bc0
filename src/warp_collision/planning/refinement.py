"""Improves the free paths found: by shortcuts, and with respect to the caller's terms."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.planning.descent import (
    CHECK_EVERY,
    LEARNING_RATE,
    PathDescent,
    SmoothMetric,
)
from warp_collision.planning.problems import FreePaths, Problems
from warp_collision.planning.shortcuts import path_length, resample, shorten
from warp_collision.planning.terms import Objective

# Rounds of shortcuts, and of how many of the shortest paths of a problem (None: all).
_PHASES = ((2, None), (6, 3))
_NODES = 40  # per path and round
_REFINEMENTS = 150  # iterations on free paths, if the caller has terms


def best_paths(
    problems: Problems,
    objective: Objective,
    free_paths: FreePaths,
    generator: torch.Generator,
    by_cost: bool,
) -> Tensor:
    """The best free path (batch, horizon, n_joints) of each problem, else the straight line."""
    best = free_paths.lines.clone()
    paths, problem = torch.cat(free_paths.paths), torch.cat(free_paths.problem)
    if len(paths) == 0:
        return best
    shorter, owner = _shortened(problems, paths, problem, free_paths.horizon, generator)
    candidates, owner = torch.cat((shorter, paths)), torch.cat((owner, problem))
    if by_cost and free_paths.horizon > 2:
        candidates = refine(problems, objective, candidates, owner)
    score = objective(candidates, owner) if by_cost else path_length(candidates)
    order = score.argsort(descending=True)  # the best one is written last
    for index in order.tolist():
        best[owner[index]] = candidates[index]
    return best


def _shortened(
    problems: Problems, paths: Tensor, problem: Tensor, horizon: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Shorter paths (n, horizon, n_joints), each proven free, and their problems (n,)."""
    for rounds, most in _PHASES:
        if most is not None:
            rows = _shortest_of_each(path_length(paths), problem, most)
            paths, problem = paths[rows], problem[rows]
        paths = shorten(
            paths,
            problems.certificate(problem),
            problems.certificate(problem, problems.preferred_clearance),
            rounds=rounds,
            n_nodes=_NODES,
            generator=generator,
        )
    paths = resample(paths, horizon)
    free = problems.is_free(paths, problem)
    return paths[free], problem[free]


def _shortest_of_each(length: Tensor, problem: Tensor, most: int) -> Tensor:
    """Rows of the shortest paths of each problem, at most `most` of each."""
    order = length.argsort(stable=True)
    order = order[problem[order].argsort(stable=True)]
    owner = problem[order]
    index = torch.arange(len(owner), device=owner.device)
    begins = torch.ones_like(owner, dtype=torch.bool)
    begins[1:] = owner[1:] != owner[:-1]
    rank = index - torch.where(begins, index, 0).cummax(0).values
    return order[rank < most]


def refine(problems: Problems, objective: Objective, paths: Tensor, problem: Tensor) -> Tensor:
    """The cheapest proven free path on a descent from each free path."""
    metric = SmoothMetric(paths.shape[1], paths.device)
    descent = PathDescent(paths, metric, LEARNING_RATE)
    best, lowest = paths, objective(paths, problem)
    for iteration in range(1, _REFINEMENTS + 1):
        when = f"iteration {iteration} on free paths"
        descent.step(objective.gradient(descent.paths(), problem, when))
        if iteration % CHECK_EVERY == 0:
            paths = problems.within_limits(descent.paths())
            cost = objective(paths, problem)
            better = (cost < lowest) & problems.is_free(paths, problem)
            best = torch.where(better[:, None, None], paths, best)
            lowest = torch.where(better, cost, lowest)
    return best

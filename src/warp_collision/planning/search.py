"""Anytime search: the first free paths by trees, then better ones."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from warp_collision.planning.best_paths import BestPaths
from warp_collision.planning.problems import Problems
from warp_collision.planning.refinement import Refinement
from warp_collision.planning.rrt_connect import RrtConnect
from warp_collision.planning.shortcuts import shorten, stacked

_GROUP = 20  # rounds of trees, after which the problems solved so far are improved
_MORE_ROUNDS = 10  # of other trees for the same problems than the first trees needed
_MAX_ROUNDS = 40  # of other trees


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


def search_paths(
    problems: Problems,
    best: BestPaths,
    valid: Tensor,
    n_seeds: int,
    budget: Budget,
    generator: torch.Generator,
    refinement: Refinement | None,
) -> None:
    """Searches paths of the problems with valid ends, until each has one or a limit is reached.

    Args:
        problems: all problems.
        best: takes the paths.
        valid: (batch,) bool.
        n_seeds: paths of trees for each problem, of which the best ones are improved.
        budget: when to end.
        generator: of the random numbers.
        refinement: improves the paths; None for the first ones.
    """
    rows = torch.nonzero(valid)[:, 0]
    straight = torch.stack((problems.start[rows], problems.goal[rows]), dim=1)
    direct = rows[problems.is_free(straight, rows)]
    best.offer(best.joints[direct], direct)
    best.report()
    if best.horizon == 2:
        return
    if refinement is not None:
        refinement.improve(rows[best.free[rows]], [], lambda: budget.is_late)
    rows = rows[~best.free[rows]]
    while len(rows) and best.rounds < budget.max_iterations and not budget.is_late:
        trees = RrtConnect(problems, rows, generator)  # again where a path had too many vertices
        while len(trees.rows) and best.rounds < budget.max_iterations and not budget.is_late:
            last = min(best.rounds + _GROUP, budget.max_iterations)
            found: list[tuple[int, Tensor]] = []
            while len(trees.rows) and best.rounds < last and not budget.is_late:
                new = trees.grow(1)
                best.rounds += 1
                found += new
                _offer_first(problems, best, new, generator)
            best.report()
            found = [(row, path) for row, path in found if best.free[row]]
            if refinement is not None and found:
                solved = torch.tensor([row for row, _ in found], device=rows.device)
                found += _other_paths(problems, solved, n_seeds - 1, best.rounds, budget, generator)
                refinement.improve(solved, found, lambda: budget.is_late)
        rows = rows[~best.free[rows]]
    best.iterations[rows] = best.rounds


def _offer_first(
    problems: Problems, best: BestPaths, found: list[tuple[int, Tensor]], generator: torch.Generator
) -> None:
    """Offers paths of trees, with fewer vertices where they have too many."""
    if not found:
        return
    paths, problem = stacked(found, best.joints)
    best.offer_polylines(paths, problem)
    missing = torch.nonzero(~best.free[problem])[:, 0]
    if len(missing):
        paths, problem = paths[missing], problem[missing]
        is_free = problems.certificate(problem)
        best.offer_polylines(
            shorten(paths, is_free, is_free, rounds=3, n_nodes=40, generator=generator), problem
        )


def _other_paths(
    problems: Problems,
    rows: Tensor,
    count: int,
    rounds: int,
    budget: Budget,
    generator: torch.Generator,
) -> list[tuple[int, Tensor]]:
    """Paths of other trees for the same problems, as far as they come about as soon."""
    trees = RrtConnect(problems, rows.repeat_interleave(count), generator)
    found: list[tuple[int, Tensor]] = []
    for _ in range(min(rounds + _MORE_ROUNDS, _MAX_ROUNDS)):
        if budget.is_late:
            break
        found += trees.grow(1)
    return found

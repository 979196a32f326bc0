"""Improves free paths: by shortcuts, and by descents on the objective."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from warp_collision.planning.best_paths import BestPaths
from warp_collision.planning.descent import PathDescent
from warp_collision.planning.objective import Objective
from warp_collision.planning.problems import Problems
from warp_collision.planning.shortcuts import path_length, shorten, shortest_of_each, stacked

_NODES = 20  # per path and round of shortcuts
# Rounds of shortcuts of paths of trees, and of how many of the shortest of a problem.
_SEED_PHASES = ((2, None), (2, 2))
_ROUNDS = 3  # of shortcuts after a descent
_PASSES = 4  # at most
_GAIN = 0.03  # of the cost, without which there is no other pass
_ITERATIONS = 20  # of a descent
_ITERATIONS_BY_COST = 150  # if the caller has terms, which no shortcut sees
_CHECK_EVERY = 10  # iterations between checks whether paths are free


class Refinement:
    """Passes of descents and shortcuts from the best paths of problems.

    Args:
        problems: all problems.
        objective: of the descents.
        best: has the paths, and takes better ones.
        generator: of random numbers.
        by_cost: whether paths are compared by the objective.
    """

    def __init__(
        self,
        problems: Problems,
        objective: Objective,
        best: BestPaths,
        generator: torch.Generator,
        by_cost: bool,
    ):
        self._problems, self._objective, self._best = problems, objective, best
        self._generator, self._by_cost = generator, by_cost

    def improve(
        self, rows: Tensor, seeds: list[tuple[int, Tensor]], is_late: Callable[[], bool]
    ) -> None:
        """Improves the paths of problems (n,), until nothing is gained.

        Args:
            rows: (n,) int64, which have a free path.
            seeds: free paths (m_i, n_joints) of these problems.
            is_late: whether to end.
        """
        best = self._best
        paths, problem = stacked(seeds, best.joints)
        for rounds, most in _SEED_PHASES:
            if len(paths) == 0 or is_late():
                break
            if most is not None:
                kept = shortest_of_each(path_length(paths), problem, most)
                paths, problem = paths[kept], problem[kept]
            paths = self._shorten(paths, problem, rounds)
            best.offer_polylines(paths, problem)
        straight = torch.linalg.vector_norm(self._problems.goal - self._problems.start, dim=1)
        if not self._by_cost:
            rows = rows[best.cost[rows] > (1.0 + 1e-4) * straight[rows]]
        for _ in range(_PASSES):
            if len(rows) == 0 or is_late():
                break
            before = best.cost[rows]
            iterations = _ITERATIONS_BY_COST if self._by_cost else _ITERATIONS
            paths = refine(
                self._problems, self._objective, best.joints[rows], rows, iterations, is_late
            )
            best.offer(paths, rows)
            if not (self._by_cost or is_late()):
                best.offer_polylines(self._shorten(paths, rows, _ROUNDS), rows)
            rows = rows[best.cost[rows] < (1.0 - _GAIN) * before]

    def _shorten(self, paths: Tensor, problem: Tensor, rounds: int) -> Tensor:
        return shorten(
            paths,
            self._problems.certificate(problem),
            lambda motions, rows: ~self._problems.is_near(motions, problem[rows])[:, 0],
            rounds=rounds,
            n_nodes=_NODES,
            generator=self._generator,
        )


def refine(
    problems: Problems,
    objective: Objective,
    paths: Tensor,
    problem: Tensor,
    iterations: int,
    is_late: Callable[[], bool],
) -> Tensor:
    """The cheapest proven free path on a descent from each free path."""
    descent = PathDescent(paths, problems.limits)
    derivative = objective.derivative(descent.paths, problem)
    best, lowest = paths, objective(paths, problem)
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
            if is_late():
                break
    return best

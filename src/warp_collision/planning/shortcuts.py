"""Shortcuts: the shortest path through nodes on a free path, by free straight segments."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels import best_paths
from warp_collision.kernels import cheapest_ways as kernels
from warp_collision.launching.launch import launch

# Segments (n, horizon - 1) of paths (n, horizon, n_joints) of problems (n,) that are not proven to
# be free; of the first so many (n,) int32 of each, or of all if None.
Hits = Callable[[Tensor, Tensor, Tensor | None], Tensor]
# Segments between all nodes that are in memory at a time.
_MOTIONS_ON_CPU, _MOTIONS_ON_GPU = 1 << 15, 1 << 18


def path_length(paths: Tensor) -> Tensor:
    """(batch,) sum of the lengths of the segments of paths (batch, n, n_joints)."""
    return torch.linalg.vector_norm(paths[:, 1:] - paths[:, :-1], dim=-1).sum(1)


def shortest_of_each(length: Tensor, problem: Tensor, most: int) -> Tensor:
    """Rows of the shortest paths (n,) of each problem (n,), at most `most` of each."""
    order = length.argsort(stable=True)
    order = order[problem[order].argsort(stable=True)]
    owner = problem[order]
    index = torch.arange(len(owner), device=owner.device)
    begins = torch.ones_like(owner, dtype=torch.bool)
    begins[1:] = owner[1:] != owner[:-1]
    rank = index - torch.where(begins, index, 0).cummax(0).values
    return order[rank < most]


@dataclass(frozen=True)
class _Draw:
    """Random points on paths, see the struct `Draw` of the kernels."""

    seed: int
    n_nodes: int

    def values(self) -> tuple[float, ...]:
        """The fields of the struct."""
        return self.seed, self.n_nodes


def shorten(
    paths: Tensor,
    problem: Tensor,
    hits: Hits,
    near: Hits,
    *,
    rounds: int,
    n_nodes: int,
    numbers: random.Random,
    pace: Tensor | None = None,
) -> Tensor:
    """Shorter paths with the same ends and no more vertices; each segment is proven free.

    In each round but the last one, random points on a path are added to its vertices as nodes. The
    shortest path through nodes with free segments replaces the path. All segments between nodes of
    all paths are checked by one call. On a CPU the last round is left out where it cannot gain.

    Args:
        paths: (batch, n, n_joints), free; the start is repeated before those with fewer vertices.
        problem: (batch,) int64, of which each is.
        hits: segments that are not proven free.
        near: the same with a larger clearance, of new segments.
        rounds: number of rounds.
        n_nodes: nodes of a path in a round, if it does not have more vertices.
        numbers: of which the random points are drawn.
        pace: (n_joints,) [s/rad, prismatic: s/m], by which the soonest path is taken; or (0,), for
            the shortest.

    Returns:
        (batch, n, n_joints), as `paths`.
    """
    pace = paths.new_empty(0) if pace is None else pace
    count = max(n_nodes, paths.shape[1])
    most = _MOTIONS_ON_CPU if paths.device == CPU else _MOTIONS_ON_GPU
    at_once = max(most // (count * (count - 1) // 2), 1)
    shorter = [
        _shorten(part, problem_of_part, hits, near, rounds, n_nodes, numbers, pace)
        for part, problem_of_part in zip(
            paths.contiguous().split(at_once), problem.split(at_once), strict=True
        )
    ]
    return shorter[0] if len(shorter) == 1 else torch.cat(shorter)


def _shorten(
    paths: Tensor,
    problem: Tensor,
    hits: Hits,
    near: Hits,
    rounds: int,
    n_nodes: int,
    numbers: random.Random,
    pace: Tensor,
) -> Tensor:
    (batch, n, n_joints), device = paths.shape, paths.device
    is_kept = torch.ones(batch, dtype=torch.bool, device=device)
    for index in range(rounds):
        draw = _Draw(numbers.getrandbits(31), n_nodes if index < rounds - 1 else 0)
        # Vertices alone were nodes of the round before, of which the cheapest way was taken, unless
        # it was refused or had too many. A GPU does not wait to know.
        if index == rounds - 1 and device == CPU and not bool(is_kept.any()):
            break
        count = max(n, draw.n_nodes)
        n_pairs = count * (count - 1) // 2
        nodes, positions = (
            paths.new_empty((batch, count, n_joints)),
            paths.new_empty((batch, count)),
        )
        begins = torch.empty(batch, dtype=torch.int32, device=device)
        launch(kernels.place_nodes, (batch,), paths, draw, nodes, positions, begins, device=device)
        motions = paths.new_empty((batch, n_pairs, 2, n_joints))
        n_segments = begins.new_empty((batch, n_pairs))
        operands = nodes, positions, begins, motions, n_segments
        launch(kernels.connect_nodes, (batch, n_pairs), *operands, device=device)
        owner = problem.repeat_interleave(n_pairs)
        hit = near(motions.flatten(0, 1), owner, n_segments.flatten()).view(batch, n_pairs)
        shorter, before = torch.empty_like(paths), begins.new_empty((batch, count))
        operands = paths, nodes, positions, begins, hit, pace
        operands = *operands, torch.empty_like(positions), before, shorter
        launch(kernels.cheapest_ways, (batch,), *operands, device=device)
        # Parts of a free segment are free up to rounding: the result is checked again.
        is_hit = hits(shorter, problem, None).any(1)
        is_kept = is_hit | (shorter == paths).flatten(1).all(1)
        paths = torch.where(is_hit[:, None, None], paths, shorter)
    return paths


def stacked(paths: list[Tensor]) -> Tensor:
    """Paths (n_i, m_i, n_joints) in one tensor, the start repeated before those with fewer."""
    most = max(each.shape[1] for each in paths)
    return torch.cat([pad_start(each, most) for each in paths])


def pad_start(paths: Tensor, n: int) -> Tensor:
    """Paths padded to n vertices by repeating the start."""
    if paths.shape[1] == n:
        return paths
    return torch.cat((paths[:, :1].expand(-1, n - paths.shape[1], -1), paths), dim=1)


def resample(paths: Tensor, horizon: int) -> Tensor:
    """The same polylines with `horizon` waypoints: all vertices, and points between them.

    Args:
        paths: (batch, n, n_joints), the start repeated before those with fewer vertices.
        horizon: number of waypoints.

    Returns:
        (batch, horizon, n_joints), as evenly spaced as the vertices allow. With NaN where a path
        has more vertices.
    """
    batch, n, n_joints = paths.shape
    fine = paths.new_empty((batch, horizon, n_joints))
    parts = torch.empty((batch, n - 1), dtype=torch.int32, device=paths.device)
    operands = paths.contiguous(), parts, fine
    launch(best_paths.resample_paths, (batch,), *operands, device=paths.device)
    return fine

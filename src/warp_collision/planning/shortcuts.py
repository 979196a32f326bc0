"""Shortcuts: the shortest path through nodes on a free path, by free straight segments."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.planning.problems import Certificate, random_uniform

# Cost of a segment, as a fraction of the length: removes vertices that do not shorten the path.
_PER_SEGMENT = 1.0e-4
_ROWS_AT_ONCE = 128  # paths whose segments between all nodes are in memory at a time


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


def shorten(
    paths: Tensor,
    is_free: Certificate,
    keeps_clearance: Certificate,
    *,
    rounds: int,
    n_nodes: int,
    generator: torch.Generator,
) -> Tensor:
    """Shorter paths with the same ends and no more vertices; each segment is proven free.

    In each round random points on a path are added to its vertices as nodes, and the path is
    replaced by the shortest one through nodes with free segments. All segments between nodes of
    all paths are checked by one call.

    Args:
        paths: (batch, n, n_joints), free.
        is_free: check of motions, with the rows of `paths` that they belong to.
        keeps_clearance: the same check with a larger clearance, for new segments.
        rounds: number of rounds.
        n_nodes: nodes of a path in a round, if it does not have more vertices.
        generator: of the random points.

    Returns:
        (batch, m, n_joints) with m <= n; the start is repeated in rows with fewer vertices.
    """
    most = paths.shape[1]
    for index in range(rounds):
        extra = max(n_nodes - paths.shape[1], 0) if index < rounds - 1 else 0
        draw = random_uniform((len(paths), extra), generator, paths.device)
        parts = [
            _shorten_once(part, rows, is_free, keeps_clearance, numbers)
            for part, rows, numbers in zip(
                paths.split(_ROWS_AT_ONCE),
                torch.arange(len(paths), device=paths.device).split(_ROWS_AT_ONCE),
                draw.split(_ROWS_AT_ONCE),
                strict=True,
            )
        ]
        width = max(part.shape[1] for part in parts)
        shorter = torch.cat([pad_start(part, width) for part in parts])
        if shorter.shape[1] > most:
            too_many = (shorter[:, : -most + 1 or None] != shorter[:, :1]).flatten(1).any(1)
            old = pad_start(paths, width)
            shorter = torch.where(too_many[:, None, None], old, shorter)[:, -most:]
        paths = shorter
    return paths


def stacked(paths: list[tuple[int, Tensor]], like: Tensor) -> tuple[Tensor, Tensor]:
    """Paths (n, m, n_joints) from paths (m_i, n_joints) of problems, and the problems (n,)."""
    if not paths:
        return like[:0], torch.zeros(0, dtype=torch.int64, device=like.device)
    most = max(len(path) for _, path in paths)
    padded = torch.cat([pad_start(path[None], most) for _, path in paths])
    return padded, torch.tensor([problem for problem, _ in paths], device=like.device)


def pad_start(paths: Tensor, n: int) -> Tensor:
    """Paths padded to n vertices by repeating the start."""
    return torch.cat((paths[:, :1].expand(-1, n - paths.shape[1], -1), paths), dim=1)


def _shorten_once(
    paths: Tensor, rows: Tensor, is_free: Certificate, keeps_clearance: Certificate, draw: Tensor
) -> Tensor:
    nodes, position = _nodes(paths, draw)
    count = nodes.shape[1]
    i, j = torch.triu_indices(count, count, 1, device=paths.device).unbind(0)
    begin, end = nodes[:, i], nodes[:, j]
    straight = torch.linalg.vector_norm(end - begin, dim=-1)
    # Parts of one segment of the path are free, as the segment is.
    same_segment = position[:, j].ceil() - position[:, i].floor() <= 1.0
    row, pair = torch.nonzero(~same_segment, as_tuple=True)
    free = same_segment.clone()
    motions = torch.stack((begin[row, pair], end[row, pair]), dim=1)
    free[row, pair] = keeps_clearance(motions, rows[row])
    weight = straight + _PER_SEGMENT * path_length(paths)[:, None]
    cost = straight.new_full((len(paths), count, count), torch.inf)
    cost[:, i, j] = torch.where(free, weight, torch.inf)
    shorter = nodes.gather(1, _shortest(cost)[..., None].expand(-1, -1, nodes.shape[2]))
    # Parts of a free segment are free up to rounding: the result is checked again.
    width = max(shorter.shape[1], paths.shape[1])
    old, shorter = pad_start(paths, width), pad_start(shorter, width)
    proven = is_free(shorter, rows)
    return _without_repeats(torch.where(proven[:, None, None], shorter, old))


def _without_repeats(paths: Tensor) -> Tensor:
    """Removes the repeated starts that all rows have."""
    same = (paths[:, 1:-1] == paths[:, :1]).all(-1).all(0)
    return paths[:, int(same.long().cumprod(0).sum()) :]


def _nodes(paths: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
    """Vertices and points (batch, n_nodes, n_joints) in order, and their positions on the path.

    Integer positions are vertices. Points are stratified: one in each of equal parts of the length.
    """
    steps = torch.linalg.vector_norm(paths[:, 1:] - paths[:, :-1], dim=-1)
    ends = steps.cumsum(1)
    count = draw.shape[1]
    lengths = (torch.arange(count, device=paths.device) + draw) / max(count, 1) * ends[:, -1:]
    segment = torch.searchsorted(ends, lengths, right=True).clamp(max=steps.shape[1] - 1)
    beyond = lengths - (ends - steps).gather(1, segment)
    fraction = (beyond / steps.gather(1, segment).clamp(min=1e-12)).clamp(0.0, 1.0)
    index = segment[..., None].expand(-1, -1, paths.shape[2])
    points = torch.lerp(paths.gather(1, index), paths.gather(1, index + 1), fraction[..., None])
    vertices = torch.arange(paths.shape[1], dtype=paths.dtype, device=paths.device)
    position = torch.cat((vertices.expand(len(paths), -1), segment + fraction), dim=1)
    position, order = position.sort(dim=1, stable=True)
    nodes = torch.cat((paths, points), dim=1)
    return nodes.gather(1, order[..., None].expand(-1, -1, paths.shape[2])), position


def _shortest(cost: Tensor) -> Tensor:
    """Nodes (batch, m) of the cheapest paths from the first to the last; the first is repeated.

    Args:
        cost: (batch, n, n) of the segment from node i to a later node j.
    """
    batch, count, _ = cost.shape
    total = cost.new_full((batch, count), torch.inf)
    total[:, 0] = 0.0
    before = torch.zeros((batch, count), dtype=torch.int64, device=cost.device)
    for node in range(1, count):
        total[:, node], before[:, node] = (total[:, :node] + cost[:, :node, node]).min(dim=1)
    path = [torch.full((batch, 1), count - 1, dtype=torch.int64, device=cost.device)]
    for _ in range(count - 1):
        path.append(before.gather(1, path[-1]))
    return _without_repeats(torch.cat(path[::-1], dim=1)[..., None])[..., 0]


def resample(paths: Tensor, horizon: int) -> Tensor:
    """The same polylines with `horizon` waypoints: all vertices, and points between them.

    Args:
        paths: (batch, n, n_joints) with n <= horizon; vertices may be repeated.
        horizon: number of waypoints.

    Returns:
        (batch, horizon, n_joints), as evenly spaced as the vertices allow.
    """
    batch, count, n_joints = paths.shape
    steps = torch.linalg.vector_norm(paths[:, 1:] - paths[:, :-1], dim=-1)
    # Segments without length get no waypoints.
    parts = (steps > 0.0).long()
    parts[:, 0] += (parts.sum(1) == 0).long()
    # The widest part is halved, thirded, ... one after another: by its segment, the largest widths.
    widths = steps[..., None] / torch.arange(1, horizon, device=paths.device)
    order = widths.flatten(1).argsort(dim=1, descending=True, stable=True)[:, : horizon - 1]
    spare = torch.arange(order.shape[1], device=paths.device) < horizon - 1 - parts.sum(1)[:, None]
    parts.scatter_add_(1, order // (horizon - 1), spare.long())
    last = parts.cumsum(1)
    index = torch.arange(horizon - 1, device=paths.device).expand(batch, -1).contiguous()
    segment = torch.searchsorted(last, index, right=True).clamp(max=count - 2)
    fraction = (index - (last - parts).gather(1, segment)) / parts.gather(1, segment)
    gathered = segment[..., None].expand(-1, -1, n_joints)
    points = torch.lerp(
        paths.gather(1, gathered), paths.gather(1, gathered + 1), fraction[..., None]
    )
    return torch.cat((points, paths[:, -1:]), dim=1)

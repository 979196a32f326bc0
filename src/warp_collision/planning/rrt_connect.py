"""Trees of motions from both ends of a problem: free paths through narrow passages."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from warp_collision.planning.problems import Problems, random_uniform
from warp_collision.planning.shortcuts import shortest_of_each

_RANGE = 1.0  # longest motion between a node and its parent [rad, prismatic: m]
# Random configurations for each problem and round: few are less work, and more rounds, which many
# problems share.
_MOST_SAMPLES, _LEAST_SAMPLES, _SHARED_SAMPLES = 32, 8, 128


class RrtConnect:
    """RRT-Connect (Kuffner and LaValle, 2000) for many problems, many motions at once.

    Two trees of configurations grow for each problem, from its start and from its goal. In each
    round the one with fewer nodes, which is in the narrower space, is extended towards random
    configurations, by one motion each; the other one is extended towards each new node, until it
    reaches the node or a motion is not free. Motions are straight in joint space and proven free.

    A round has two launches for all problems: the motions of the first trees, and those on the
    lines from the second trees to the new nodes.

    Args:
        problems: all problems.
        rows: (n,) int64, the problems to grow trees for; each time one is named it has two trees.
        generator: of the random configurations.

    Attributes:
        rows: (n,) int64, the problems without a path so far.
    """

    def __init__(self, problems: Problems, rows: Tensor, generator: torch.Generator):
        self.rows = rows
        self._problems, self._generator = problems, generator
        ends = torch.stack((problems.start[rows], problems.goal[rows]), dim=1)
        # One revolution of continuous joints.
        limits = torch.nan_to_num(problems.limits, nan=0.0, posinf=math.pi, neginf=-math.pi)
        low, high = limits.unbind(-1)
        self._low, self._high = torch.minimum(low, ends.amin(1)), torch.maximum(high, ends.amax(1))
        # Tree 2 i is that of the start of problem rows[i], tree 2 i + 1 that of its goal.
        self._nodes = ends.flatten(0, 1)[:, None]  # (2 n, capacity, n_joints)
        # Length of the branch from the root to each node, +inf where there is none yet.
        self._length = torch.zeros_like(self._nodes[..., 0])
        self._parent = torch.zeros_like(self._length, dtype=torch.int64)
        self._count = torch.ones_like(self._parent[:, 0])

    def grow(self, rounds: int) -> list[tuple[int, Tensor]]:
        """Grows for some rounds; returns the solved problems, with paths (n_nodes, n_joints)."""
        solved: list[tuple[int, Tensor]] = []
        for _ in range(rounds):
            if len(self.rows) == 0:
                break
            meeting = self._grow_once()
            met = (meeting >= 0).all(1)
            for i in torch.nonzero(met)[:, 0].tolist():
                first, last = (self._branch(2 * i + k, int(meeting[i, k])) for k in (0, 1))
                path = torch.cat((first.flip(0), last[1:]))  # both contain the common node
                solved.append((int(self.rows[i]), path))
            self._keep(~met)
        return solved

    def _grow_once(self) -> Tensor:
        """One round; returns the nodes (n, 2) at which the two trees meet, or -1."""
        n, n_joints = self._low.shape
        m = min(max(_SHARED_SAMPLES // n, _LEAST_SAMPLES), _MOST_SAMPLES)
        draw = random_uniform((n, m, n_joints), self._generator, self._low.device)
        target = torch.lerp(self._low[:, None], self._high[:, None], draw)
        smaller = 2 * torch.arange(n, device=target.device) + self._count.view(n, 2).argmin(1)
        tree, node = smaller[:, None].expand(-1, m), self._nearest(smaller, target)
        begin = self._nodes[tree, node]
        step = target - begin
        distance = torch.linalg.vector_norm(step, dim=2, keepdim=True)
        end = begin + step * (_RANGE / distance).clamp(max=1.0)
        motions = torch.stack((begin, end), dim=2).flatten(0, 1)
        other = (tree ^ 1).flatten()
        opposite = self._nearest(smaller ^ 1, end).flatten()
        tree, node, end = tree.flatten(), node.flatten(), end.flatten(0, 1)
        free = self._problems.is_free(motions, self.rows[tree // 2])
        grown = torch.nonzero(free)[:, 0]
        tree, other, end = tree[grown], other[grown], end[grown]
        distance = distance.flatten()[grown].clamp(max=_RANGE)
        first = self._add(tree, end, self._length[tree, node[grown]] + distance)
        self._parent[tree, first] = node[grown]
        line, last = self._connect(other, opposite[grown], end)
        return self._shortest_meeting(tree[line], first[line], other[line], last)

    def _connect(self, tree: Tensor, node: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Motions from nodes (m,) of trees (m,) towards configurations (m, n_joints).

        Returns:
            Rows (k,) of the configurations that are reached, and their nodes (k,).
        """
        begin = self._nodes[tree, node]
        length = torch.linalg.vector_norm(target - begin, dim=1)
        parts = (length / _RANGE).ceil().long().clamp(min=1)
        line = torch.arange(len(tree), device=tree.device).repeat_interleave(parts)
        part = torch.arange(len(line), device=tree.device) - (parts.cumsum(0) - parts)[line]

        def point(which: Tensor) -> Tensor:
            fraction = (which / parts[line])[:, None]
            return torch.lerp(begin[line], target[line], fraction)

        motions = torch.stack((point(part), point(part + 1)), dim=1)
        free = self._problems.is_free(motions, self.rows[tree[line] // 2])
        # Up to the first motion of a line that is not free.
        blocked = torch.where(free, parts[line], part)
        reached = parts.scatter_reduce(0, line, blocked, "amin")
        kept = torch.nonzero(part < reached[line])[:, 0]
        line, part = line[kept], part[kept]
        owner, before = tree[line], node[line]
        lengths = self._length[owner, before] + length[line] * ((part + 1) / parts[line])
        index = self._add(owner, motions[kept, 1], lengths)
        self._parent[owner, index] = torch.where(part == 0, before, index - 1)
        arrived = torch.nonzero(part == parts[line] - 1)[:, 0]
        return line[arrived], index[arrived]

    def _shortest_meeting(self, tree: Tensor, node: Tensor, other: Tensor, last: Tensor) -> Tensor:
        """Nodes (n, 2) of the shortest of the paths by nodes (k,) of two trees (k,) each."""
        meeting = torch.full((len(self.rows), 2), -1, device=tree.device)
        length, pair = self._length[tree, node] + self._length[other, last], tree // 2
        chosen = shortest_of_each(length, pair, 1)
        meeting[pair[chosen], tree[chosen] % 2] = node[chosen]
        meeting[pair[chosen], other[chosen] % 2] = last[chosen]
        return meeting

    def _add(self, tree: Tensor, new: Tensor, length: Tensor) -> Tensor:
        """Adds nodes (k, n_joints) to trees (k,), in ascending order; returns their indices."""
        added = torch.bincount(tree, minlength=len(self._count))
        rank = torch.arange(len(tree), device=tree.device) - (added.cumsum(0) - added)[tree]
        index = self._count[tree] + rank
        self._count += added
        most, capacity = int(self._count.max()), self._nodes.shape[1]
        if most > capacity:
            room = (0, 2 * most - capacity)
            self._parent = pad(self._parent, room)
            self._length = pad(self._length, room, value=torch.inf)
            self._nodes = pad(self._nodes, (0, 0, *room))
        self._nodes[tree, index], self._length[tree, index] = new, length
        return index

    def _nearest(self, tree: Tensor, target: Tensor) -> Tensor:
        """Nodes (n, m) of trees (n,) nearest to configurations (n, m, n_joints)."""
        most = int(self._count[tree].max())
        nodes = self._nodes[tree, :most]
        offset = torch.where(self._length[tree, :most].isinf(), torch.inf, nodes.square().sum(2))
        return torch.baddbmm(offset[:, None], target, nodes.mT, alpha=-2.0).argmin(2)

    def _branch(self, tree: int, node: int) -> Tensor:
        """The nodes (m, n_joints) from one to the root of its tree."""
        indices = [node]
        while indices[-1] != 0:
            indices.append(int(self._parent[tree, indices[-1]]))
        return self._nodes[tree, indices]

    def _keep(self, which: Tensor) -> None:
        if not bool(which.all()):
            self.rows, self._low, self._high = self.rows[which], self._low[which], self._high[which]
            trees = which.repeat_interleave(2)
            self._nodes, self._length = self._nodes[trees], self._length[trees]
            self._parent, self._count = self._parent[trees], self._count[trees]

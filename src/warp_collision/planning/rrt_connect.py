"""Trees of motions from both ends of a problem: free paths through narrow passages."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.planning.problems import Problems
from warp_collision.planning.seeds import bounded, random_uniform

_RANGE = 0.5  # longest motion between a node and its parent [rad, prismatic: m]
_SAMPLES = 32  # random configurations for each problem and round


class RrtConnect:
    """RRT-Connect (Kuffner and LaValle, 2000) for many problems, many motions at once.

    Two trees of configurations grow for each problem, from its start and from its goal. In each
    round the one with fewer nodes, which is in the narrower space, is extended towards random
    configurations, by one motion each; the other one is extended towards each new node, until it
    reaches the node or a motion is not free. Motions are straight in joint space and proven free.

    Args:
        problems: all problems.
        rows: (n,) int64, the problems to grow trees for.
        generator: of the random configurations.

    Attributes:
        rows: (n,) int64, the problems without a path so far.
    """

    def __init__(self, problems: Problems, rows: Tensor, generator: torch.Generator):
        self.rows = rows
        self._problems, self._generator = problems, generator
        ends = torch.stack((problems.start[rows], problems.goal[rows]), dim=1)
        low, high = bounded(problems.limits).unbind(-1)
        self._low, self._high = torch.minimum(low, ends.amin(1)), torch.maximum(high, ends.amax(1))
        # Tree 2 i is that of the start of problem rows[i], tree 2 i + 1 that of its goal.
        self._nodes = ends.flatten(0, 1)[:, None]  # (2 n, capacity, n_joints)
        self._parent = torch.zeros_like(self._nodes[..., 0], dtype=torch.int64)
        self._count = torch.ones_like(self._parent[:, 0])

    def grow(self, rounds: int) -> list[tuple[int, Tensor]]:
        """Grows for some rounds; returns the solved problems, with paths (n_nodes, n_joints)."""
        solved: list[tuple[int, Tensor]] = []
        for _ in range(rounds):
            if len(self.rows) == 0:
                break
            meeting = self._grow_once()
            met = meeting[::2] >= 0
            for i in torch.nonzero(met)[:, 0].tolist():
                first, last = (self._branch(t, int(meeting[t])) for t in (2 * i, 2 * i + 1))
                path = torch.cat((first.flip(0), last[1:]))  # both contain the common node
                solved.append((int(self.rows[i]), path))
            self._keep(~met)
        return solved

    def _grow_once(self) -> Tensor:
        """One round; returns the node (2 n,) at which each tree meets the other one, or -1."""
        n, n_joints = self._low.shape
        draw = random_uniform((n, _SAMPLES, n_joints), self._generator, self._low.device)
        target = torch.lerp(self._low[:, None], self._high[:, None], draw).flatten(0, 1)
        smaller = 2 * torch.arange(n, device=target.device) + self._count.view(n, 2).argmin(1)
        tree = smaller.repeat_interleave(_SAMPLES)
        grown, goal, _ = self._extend(tree, self._nearest(tree, target), target)
        tree = tree[grown]
        target, other = self._nodes[tree, goal], tree ^ 1
        node = self._nearest(other, target)
        meeting = torch.full_like(self._count, -1)
        while len(tree):
            grown, node, arrived = self._extend(other, node, target)
            tree, other, target, goal = tree[grown], other[grown], target[grown], goal[grown]
            reached = self._one_of_each(tree, arrived)
            meeting[tree[reached]], meeting[other[reached]] = goal[reached], node[reached]
            going = meeting[tree] < 0
            tree, other, target, goal = tree[going], other[going], target[going], goal[going]
            node = node[going]
        return meeting

    def _one_of_each(self, tree: Tensor, which: Tensor) -> Tensor:
        """Indices at which `which` (m,) is true, at most one for each tree (m,)."""
        rows = torch.nonzero(which)[:, 0]
        chosen = torch.full_like(self._count, -1)
        chosen[tree[rows]] = rows
        return chosen[chosen >= 0]

    def _extend(self, tree: Tensor, node: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Motions from nodes (m,) of trees (m,) towards configurations (m, n_joints).

        Returns:
            Indices (k,) of the free motions, their end nodes (k,), and whether they reach the
            configurations.
        """
        begin = self._nodes[tree, node]
        step = target - begin
        length = torch.linalg.vector_norm(step, dim=1, keepdim=True)
        near = length <= _RANGE
        end = torch.where(near, target, begin + step * (_RANGE / length))
        motions = torch.stack((begin, end), dim=1)
        free = self._problems.is_free(motions, self.rows[tree // 2])
        grown = torch.nonzero(free)[:, 0]
        return grown, self._add(tree[grown], node[grown], end[grown]), near[grown, 0]

    def _add(self, tree: Tensor, parent: Tensor, new: Tensor) -> Tensor:
        """Adds nodes (k, n_joints) to trees (k,), in ascending order; returns their indices."""
        order = tree.argsort(stable=True)
        added = torch.bincount(tree, minlength=len(self._count))
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(tree), device=tree.device)
        index = self._count[tree] + rank - (added.cumsum(0) - added)[tree]
        self._count += added
        most, capacity = int(self._count.max()), self._nodes.shape[1]
        if most > capacity:
            room = (0, 2 * most - capacity)
            self._parent = torch.nn.functional.pad(self._parent, room)
            self._nodes = torch.nn.functional.pad(self._nodes, (0, 0, *room))
        self._nodes[tree, index], self._parent[tree, index] = new, parent
        return index

    def _nearest(self, tree: Tensor, target: Tensor) -> Tensor:
        """The nodes (m,) of trees (m,) that are nearest to configurations (m, n_joints)."""
        nearest = torch.zeros_like(tree)
        for t in torch.unique(tree).tolist():
            rows = tree == t
            distance = torch.cdist(target[rows], self._nodes[t, : int(self._count[t])])
            nearest[rows] = distance.argmin(1)
        return nearest

    def _branch(self, tree: int, node: int) -> Tensor:
        """The nodes (m, n_joints) from one to the root of its tree."""
        indices = [node]
        while indices[-1] != 0:
            indices.append(int(self._parent[tree, indices[-1]]))
        return self._nodes[tree, indices]

    def drop(self, problems: Tensor) -> None:
        """Drops the trees of problems, a mask over all problems."""
        self._keep(~problems[self.rows])

    def _keep(self, which: Tensor) -> None:
        if not bool(which.all()):
            self.rows, self._low, self._high = self.rows[which], self._low[which], self._high[which]
            trees = which.repeat_interleave(2)
            self._nodes, self._parent = self._nodes[trees], self._parent[trees]
            self._count = self._count[trees]

"""Trees of motions from both ends of a problem: free paths through narrow passages."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels import trees as kernels
from warp_collision.launching.launch import launch
from warp_collision.planning.problems import Problems, random_uniform

# Random configurations for each problem and round: few are less work, and more rounds, which many
# problems share. Easy problems need few, so that their number grows with the rounds.
_MOST_SAMPLES, _LEAST_SAMPLES, _SHARED_SAMPLES = 32, 8, 128
_FIRST_SAMPLES, _MORE_SAMPLES = 16, 4  # at most in the first round, and more in each further one
# Of the lines between two trees, at most; in a larger space they are longer than the range.
_MOST_PARTS = 64
# Rounds between looks at what is solved: on a GPU each of them waits for the device.
_ROUNDS_PER_LOOK = 4


class _Trees(NamedTuple):
    """Two trees for each problem, see the struct `Trees` of the kernels.

    Attributes:
        nodes: (2 n, capacity, n_joints) float32.
        lengths: (2 n, capacity) float32, from the root.
        parents: (2 n, capacity) int32.
        state: (4 n,) int32: the numbers of nodes (2 n,), and the nodes (n, 2) at which the trees of
            a problem meet, or -1.
    """

    nodes: Tensor
    lengths: Tensor
    parents: Tensor
    state: Tensor

    @classmethod
    def of_roots(cls, roots: Tensor, capacity: int) -> _Trees:
        """Trees of one node each.

        Args:
            roots: (2 n, n_joints).
            capacity: nodes that there is memory for.
        """
        nodes = roots.new_empty((len(roots), capacity, roots.shape[1]))
        nodes[:, 0] = roots
        parents = torch.zeros(nodes.shape[:2], dtype=torch.int32, device=roots.device)
        state = parents.new_ones(2 * len(roots))
        state[len(roots) :] = -1
        return cls(nodes, nodes.new_zeros(nodes.shape[:2]), parents, state)

    @property
    def n_problems(self) -> int:
        """Number of problems."""
        return len(self.nodes) // 2

    @property
    def meeting(self) -> Tensor:
        """(n, 2) int32, the nodes at which trees meet."""
        return self.state[len(self.nodes) :].view(-1, 2)

    @property
    def token(self) -> int:
        """See `StructTables`: pointers are written anew for every launch."""
        return 0

    def addresses(self) -> list[int]:
        """See `StructTables`."""
        return []

    def write(self, scene: Any) -> None:
        """See `StructTables`."""
        scene.nodes, scene.lengths = self.nodes.data_ptr(), self.lengths.data_ptr()
        scene.parents, scene.counts = self.parents.data_ptr(), self.state.data_ptr()
        scene.n_trees, scene.capacity, scene.n_joints = self.nodes.shape

    def kept(self, problems: Tensor, used: int, capacity: int) -> _Trees:
        """The trees of some problems, of which up to `used` nodes are used."""
        trees = (2 * problems[:, None] + torch.arange(2, device=problems.device)).flatten()
        copied = self.of_roots(self.nodes[trees, 0], capacity)
        for new, old in zip(copied[:3], self[:3], strict=True):
            new[:, :used] = old[trees, :used]
        n = len(self.nodes)
        copied.state[: len(trees)], copied.state[len(trees) :] = (
            self.state[:n][trees],
            self.state[n:][trees],
        )
        return copied


class RrtConnect:
    """RRT-Connect (Kuffner and LaValle, 2000) for many problems, many motions at once.

    Two trees of configurations grow for each problem, from its start and from its goal. In each
    round the one with fewer nodes, which is in the narrower space, is extended towards random
    configurations, by one motion each; the other one is extended towards each new node, until it
    reaches the node or a motion is not free. Motions are straight in joint space and proven free.

    The trees grow on the device. A round has five launches for all problems: nearest nodes and
    motions, their check, new nodes and the lines to them from the other trees, their check, and the
    nodes on these lines. Once in four rounds, on the CPU in each, the host looks at what is solved.

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
        longest = float(torch.linalg.vector_norm(self._high - self._low, dim=1).max())
        self._most_parts = max(math.ceil(min(longest / kernels.RANGE, _MOST_PARTS)), 1)
        self._n_grown = 0
        self._rounds = 1 if rows.device == CPU else _ROUNDS_PER_LOOK
        self._trees = _Trees.of_roots(ends.flatten(0, 1), 1 + self._room())

    def grow(self, rounds: int) -> list[tuple[int, Tensor]]:
        """Grows for some rounds; returns the solved problems, with paths (n_nodes, n_joints)."""
        solved: list[tuple[int, Tensor]] = []
        while rounds > 0 and len(self.rows):
            count = min(rounds, self._rounds)
            self._grow(count)
            solved += self._take_solved()
            rounds -= count
        return solved

    def _n_samples(self) -> int:
        shared = max(_SHARED_SAMPLES // len(self.rows), _LEAST_SAMPLES)
        return min(shared, _MOST_SAMPLES, _FIRST_SAMPLES + _MORE_SAMPLES * self._n_grown)

    def _room(self) -> int:
        """Nodes that a tree may get between two looks."""
        return self._rounds * self._n_samples() * self._most_parts

    def _grow(self, rounds: int) -> None:
        (n, n_joints), m, parts = self._low.shape, self._n_samples(), self._most_parts
        self._n_grown += rounds
        trees, device = self._trees, self.rows.device
        draws = random_uniform((rounds, n, m, n_joints), self._generator, device)
        targets = torch.lerp(self._low[:, None], self._high[:, None], draws)
        motions = targets.new_empty((n, m, 2, n_joints))
        lines = targets.new_empty((n, m, parts + 1, n_joints))
        near, count = torch.empty((2, n, m), dtype=torch.int32, device=device)
        links = near.new_empty((n, m, 2))
        owner = self.rows.repeat_interleave(m)
        for target in targets:
            operands = target, trees, trees.meeting, motions, near
            launch(kernels.extend_trees, (n, m), *operands, device=device)
            hit = self._problems.hits(motions.flatten(0, 1), owner).view(n, m)
            operands = motions, near, hit, trees, lines, count, links
            launch(kernels.connect_trees, (n, m), *operands, device=device)
            hit = self._problems.hits(lines.flatten(0, 1), owner, count.flatten())
            operands = lines, count, links, hit.view(n, m, parts), trees, trees.meeting
            launch(kernels.join_trees, (n,), *operands, device=device)

    def _take_solved(self) -> list[tuple[int, Tensor]]:
        """The paths of problems whose trees have met; the others go on."""
        trees, state = self._trees, self._trees.state.cpu()
        counts, meeting = state.split(len(trees.nodes))
        meeting = meeting.view(-1, 2)
        met = meeting[:, 0] >= 0
        solved: list[tuple[int, Tensor]] = []
        for i in met.nonzero().flatten().tolist():
            first, last = (self._branch(2 * i + k, int(meeting[i, k])) for k in (0, 1))
            path = torch.cat((first.flip(0), last[1:]))  # both contain the common node
            solved.append((int(self.rows[i]), path))
        used = int(counts.max())
        is_full = used + self._room() > trees.nodes.shape[1]
        if len(solved) < len(met) and (solved or is_full):
            kept = (~met).nonzero().flatten().to(self.rows.device)
            self.rows, self._low, self._high = self.rows[kept], self._low[kept], self._high[kept]
            self._trees = trees.kept(kept, used, 2 * (used + self._room()))
        elif solved:
            self.rows = self.rows[:0]
        return solved

    def _branch(self, tree: int, node: int) -> Tensor:
        """The nodes (m, n_joints) from one to the root of its tree."""
        parents, indices = self._trees.parents[tree].cpu().numpy(), [node]
        while indices[-1] != 0:
            indices.append(int(parents[indices[-1]]))
        return self._trees.nodes[tree, indices]

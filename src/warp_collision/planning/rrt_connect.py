"""Trees of motions from both ends of a problem: free paths through narrow passages."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels import trees as kernels
from warp_collision.kernels.lanes.first_paths import PECULIAR, first_paths
from warp_collision.kernels.lanes.growing_trees import grow_trees, scratch_of_steps
from warp_collision.launching.launch import launch
from warp_collision.planning.problems import Problems


class _Sizes(NamedTuple):
    """Random configurations for each problem and round, and rounds between looks.

    Few configurations are less work, and more rounds, which many problems share. On a CPU easy
    problems are to be cheap: the number grows with the rounds. A GPU has room for some thousands at
    once, but waits for each round, and more for each look at what is solved.

    Attributes:
        first: configurations in the first round.
        more: in each further round, ...
        most: ... up to so many.
        shared: of all problems together.
        rounds: between two looks, at least.
    """

    first: int
    more: int
    most: int
    shared: int
    rounds: int


_LEAST_SAMPLES = 16
_ON_CPU, _ON_GPU = _Sizes(16, 16, 128, 2048, 1), _Sizes(128, 128, 1024, 8192, 4)
# In lanes at most so many rounds before the first look, and between others; and new nodes that
# there is memory for, so that of many problems a limit of time is looked at after few rounds.
_ROUNDS_IN_LANES, _ROOM_IN_LANES = (16, 4), 1 << 18
_WORK_OF_A_PROBLEM = 4096  # in points, see `launch`
# Between looks at the trees on a GPU they grow by a part of what they have grown, ...
_GROWTH = 4
_MOST_ROOM = 1 << 22  # ... as far as there are no more new nodes than this.
# Of the lines between two trees, at most; in a larger space they are longer than the range.
_MOST_PARTS = 64


class _Trees(NamedTuple):
    """Two trees for each problem, see the struct `Trees` of the kernels.

    Attributes:
        nodes: (2 n, capacity, n_joints) float32.
        lengths: (2 n, capacity) float32, from the root.
        parents: (2 n, capacity) int32.
        state: (6 n,) int32: the numbers of nodes (2 n,), the nodes (n, 2) at which the trees of a
            problem meet, or -1, the vertices (n,) of the path there, and the rounds (n,) up to
            there, which `TreesInLanes` alone writes.
        seed: of the random configurations of a round.
    """

    nodes: Tensor
    lengths: Tensor
    parents: Tensor
    state: Tensor
    seed: int = 0

    @classmethod
    def with_room(cls, n_trees: int, capacity: int, like: Tensor) -> _Trees:
        """Trees that have not met, for so many nodes each, of as many joints as a tensor's rows."""
        nodes = like.new_empty((n_trees, capacity, like.shape[-1]))
        parents = torch.empty((n_trees, capacity), dtype=torch.int32, device=nodes.device)
        state = parents.new_full((3 * n_trees,), -1)
        return cls(nodes, nodes.new_empty((n_trees, capacity)), parents, state)

    @classmethod
    def of_roots(cls, roots: Tensor, capacity: int) -> _Trees:
        """Trees of one node each, (2 n, n_joints)."""
        trees = cls.with_room(len(roots), capacity, roots)
        trees.nodes[:, 0], trees.lengths[:, 0], trees.parents[:, 0] = roots, 0.0, 0
        trees.state[: len(roots)] = 1
        return trees

    @property
    def capacity(self) -> int:
        """Nodes that there is memory for, of each tree."""
        return self.nodes.shape[1]

    @property
    def n_problems(self) -> int:
        """Number of problems."""
        return len(self.nodes) // 2

    @property
    def meeting(self) -> Tensor:
        """(n, 2) int32, the nodes at which trees meet."""
        return self.state[len(self.nodes) : 2 * len(self.nodes)].view(-1, 2)

    @property
    def n_vertices(self) -> Tensor:
        """(n,) int32, of the paths where trees meet."""
        return self.state[2 * len(self.nodes) :][: self.n_problems]

    @property
    def n_rounds(self) -> Tensor:
        """(n,) int32, until trees met."""
        return self.state[2 * len(self.nodes) + self.n_problems :]

    def values(self) -> tuple[float, ...]:
        """The fields of the kernels' `Trees`."""
        tensors = self.nodes, self.lengths, self.parents, self.state
        return *(t.data_ptr() for t in tensors), *self.nodes.shape, self.seed

    def kept(self, problems: Tensor, used: int, capacity: int) -> _Trees:
        """The trees of some problems without a path, of which up to `used` nodes are used."""
        copied = self.with_room(2 * len(problems), capacity, self.nodes)
        operands = self, problems, copied
        launch(kernels.copy_trees, (len(copied.nodes), used), *operands, device=problems.device)
        return copied


class Solved(NamedTuple):
    """Problems that were solved, and the paths of their trees.

    Attributes:
        paths: (n, m, n_joints), the start repeated before those with fewer vertices.
        problem: (n,) int64.
        n_vertices: (n,) int32, on the CPU.
        rounds: (n,) int64, of the trees so far.
    """

    paths: Tensor
    problem: Tensor
    n_vertices: Tensor
    rounds: Tensor


class RrtConnect:
    """RRT-Connect (Kuffner and LaValle, 2000) for many problems, many motions at once.

    Two trees of configurations grow for each problem, from its start and from its goal. In each
    round the tree with fewer nodes, which is in the narrower space, is extended towards random
    configurations, by one motion each. The other tree is extended towards each new node, until it
    reaches the node or a motion is not free. Motions are straight in joint space and proven free.

    The trees grow on the device. A round has five launches for all problems. These are nearest
    nodes and motions; their check; new nodes, and the lines to them from the other trees; the check
    of these; the nodes on the lines. On a CPU the host looks at what is solved after each of them,
    see `TreesInLanes` too. On a GPU, where it has to wait for that, it looks after four, and less
    often as the trees grow.

    Args:
        problems: all problems.
        rows: (n,) int64, the problems to grow trees for; each time one is named it has two trees.
        numbers: of which the random configurations are drawn.

    Attributes:
        rows: (n,) int64, the problems without a path so far.
        n_grown: rounds so far.
    """

    def __init__(self, problems: Problems, rows: Tensor, numbers: random.Random):
        ends = torch.stack((problems.start[rows], problems.goal[rows]), dim=1)
        low, high = problems.joint_range
        low, high = torch.minimum(low, ends.amin(1)), torch.maximum(high, ends.amax(1))
        self._begin(problems, rows, numbers, low, high)
        self._trees = _Trees.of_roots(ends.flatten(0, 1), 1 + self._room())

    def _begin(
        self, problems: Problems, rows: Tensor, numbers: random.Random, low: Tensor, high: Tensor
    ) -> None:
        """Begins without trees, of which nodes are in a range (n, n_joints)."""
        self.rows, self._problems, self._low, self._high = rows, problems, low, high
        longest = float(torch.linalg.vector_norm(high - low, dim=1).max())
        self._most_parts = max(math.ceil(min(longest / kernels.RANGE, _MOST_PARTS)), 1)
        self.n_grown, self._seed = 0, numbers.getrandbits(30)
        self._sizes = _ON_CPU if rows.device == CPU else _ON_GPU

    def grow(self, most: int) -> tuple[int, list[Solved]]:
        """Grows for at most so many rounds; returns how many, and what was solved in them."""
        rounds = min(most, self._rounds())
        self._grow(rounds)
        self.n_grown += rounds
        return rounds, self._take_solved()

    def _most_samples(self) -> int:
        return min(max(self._sizes.shared // len(self.rows), _LEAST_SAMPLES), self._sizes.most)

    def _n_samples(self) -> int:
        return min(self._most_samples(), self._sizes.first + self._sizes.more * self.n_grown)

    def _rounds(self) -> int:
        """Rounds until the next look."""
        least = self._sizes.rounds
        if least == 1:
            return 1
        per_round = 2 * len(self.rows) * self._n_samples() * self._most_parts
        return max(min(self.n_grown // _GROWTH, _MOST_ROOM // per_round), least)

    def _room(self) -> int:
        """Nodes that a tree may get until the next look."""
        return self._rounds() * self._n_samples() * self._most_parts

    def _grow(self, rounds: int) -> None:
        for index in range(rounds):
            self._grow_once(self._seed + self.n_grown + index)

    def _grow_once(self, seed: int) -> None:
        (n, n_joints), m, parts = self._low.shape, self._n_samples(), self._most_parts
        device = self.rows.device
        trees = self._trees._replace(seed=seed)
        motions = self._low.new_empty((n, m, 2, n_joints))
        lines = motions.new_empty((n, m, parts + 1, n_joints))
        near, count = torch.empty((2, n, m), dtype=torch.int32, device=device)
        links = near.new_empty((n, m, 2))
        owner = self.rows.repeat_interleave(m)
        operands = self._low, self._high, trees, trees.meeting, motions, near
        launch(kernels.extend_trees, (n, m), *operands, device=device)
        hit = self._problems.hits(motions.flatten(0, 1), owner).view(n, m)
        operands = motions, near, hit, trees, lines, count, links
        launch(kernels.connect_trees, (n, m), *operands, device=device)
        hit = self._problems.hits(lines.flatten(0, 1), owner, count.flatten())
        operands = lines, count, links, hit.view(n, m, parts), trees
        operands = *operands, trees.n_vertices, trees.meeting
        launch(kernels.join_trees, (n,), *operands, device=device)

    def _rounds_of(self, chosen: Tensor) -> Tensor:
        """(m,) int64, of the trees of problems (m,) that have met, without waiting."""
        return self.rows.new_full((len(chosen),), self.n_grown)

    def _take_solved(self) -> list[Solved]:
        """The paths of problems whose trees have met since the last look; the others go on."""
        trees, n = self._trees, self._trees.n_problems
        sizes = 2 * n, 2 * n, n, n
        counts, meeting, n_vertices, _ = trees.state.cpu().split(sizes)  # the one wait
        met = meeting.view(n, 2)[:, 0] >= 0
        n_met, used = int(met.sum()), int(counts.max())
        solved: list[Solved] = []
        if n_met == 0 and used + self._room() <= trees.capacity:
            return solved
        # First those that have met, then the others.
        order = trees.meeting[:, 0].clamp(max=0).argsort(descending=True, stable=True)
        if n_met:
            chosen, n_vertices = order[:n_met], n_vertices[met]
            paths = trees.nodes.new_empty((n_met, int(n_vertices.max()), self._low.shape[1]))
            operands = trees, trees.meeting, chosen, paths
            launch(kernels.paths_of_trees, (n_met,), *operands, device=paths.device)
            solved.append(Solved(paths, self.rows[chosen], n_vertices, self._rounds_of(chosen)))
        self._keep(order[n_met:], used)
        return solved

    def _keep(self, kept: Tensor, used: int) -> None:
        """Goes on with some problems alone, of whose trees up to `used` nodes are used."""
        self.rows = self.rows[kept]
        if len(kept):
            self._low, self._high = self._low[kept], self._high[kept]
            self._trees = self._trees.kept(kept, used, 2 * (used + self._room()))


class _Rounds(NamedTuple):
    """Rounds of the trees, see the struct `Rounds` of the kernels."""

    begin: int
    end: int
    first: int
    more: int
    most: int
    parts: int
    n_bytes: int

    def values(self) -> tuple[float, ...]:
        """The fields of the struct."""
        return self


class _Pointers(NamedTuple):
    """A struct of the kernels: pointers to tensors, then numbers."""

    tensors: tuple[Tensor | None, ...]
    numbers: tuple[int, ...]

    def values(self) -> tuple[int, ...]:
        """The fields of the struct."""
        return *(0 if each is None else each.data_ptr() for each in self.tensors), *self.numbers


class TreesInLanes(RrtConnect):
    """The same on a CPU, where a launch has up to 16 rounds with the proofs of their motions.

    A thread has a problem. Of one problem, the paths are those of `RrtConnect`.
    """

    def _rounds(self) -> int:
        per_round = 2 * len(self.rows) * self._most_samples() * self._most_parts
        most = _ROUNDS_IN_LANES[min(self.n_grown, 1)]
        return max(min(_ROOM_IN_LANES // per_round, most), 1)

    def _room(self) -> int:
        return self._rounds() * self._most_samples() * self._most_parts

    def _rounds_of(self, chosen: Tensor) -> Tensor:
        return self._trees.n_rounds[chosen].long()

    def _grow(self, rounds: int) -> None:
        counted = self._counted(rounds)
        trees = self._trees._replace(seed=self._seed)
        operands = self._low, self._high, trees, counted
        operands = *operands, *self._problems.in_lanes(self.rows, counted.n_bytes)
        self._launch(grow_trees, *operands, trees.state)

    def _counted(self, rounds: int) -> _Rounds:
        """So many rounds from now on."""
        sizes, begin, m, parts = self._sizes, self.n_grown, self._most_samples(), self._most_parts
        n_bytes = scratch_of_steps(m, parts, self._low.shape[1])
        return _Rounds(begin, begin + rounds, sizes.first, sizes.more, m, parts, n_bytes)

    def _launch(self, kernel: Any, *operands: Any) -> None:
        n = len(self.rows)
        work = _WORK_OF_A_PROBLEM * n if n > 1 else 0
        launch(kernel, (n,), *operands, device=CPU, items=work)


class FirstPaths(TreesInLanes):
    """The first launch of trees in lanes, with all that a first path needs.

    That is, ends and straight lines are proven free, and paths have so many waypoints and are
    compared as in `Search`. Problems without peculiarities are those whose ends keep the margin and
    are within the range that joints are sampled in, with paths of few vertices.

    Args:
        problems: all problems, of one margin.
        numbers: of which the random configurations are drawn.
        horizon: waypoints of a path.
        most: rounds, at most.

    Attributes:
        joints: (batch, horizon, n_joints), the paths.
        cost: (batch,) of these, infinite where there is none.
        far: (batch,) bool, which of them keep the preferred clearance.
        iterations: (batch,) int64, rounds of trees until the path.
    """

    def __init__(self, problems: Problems, numbers: random.Random, horizon: int, most: int):
        start, known = problems.start, problems.joint_range
        n, n_joints = start.shape
        low, high = known[:, None].expand(2, n, n_joints)
        self._begin(problems, torch.arange(n), numbers, low, high)
        rounds = min(most, self._rounds())
        counted = self._counted(rounds)
        self._trees = _Trees.with_room(2 * n, 1 + self._room(), start)
        trees = self._trees._replace(seed=self._seed)
        self.joints, self.cost = start.new_empty((n, horizon, n_joints)), start.new_empty(n)
        self.far = torch.zeros(n, dtype=torch.bool)
        flags = torch.empty((2 * n, horizon - 1), dtype=torch.bool)
        paths = _Pointers((self.joints, self.cost, self.far, flags), (n, horizon))
        tensors = start, problems.goal, known, *problems.wanted
        counts = [0 if each is None else len(each) for each in problems.wanted]
        asked = _Pointers(tensors, (counts[0], counts[1], counts[3]))
        *scene, scratch = problems.in_lanes(self.rows, counted.n_bytes)
        self._launch(first_paths, asked, trees, counted, *scene, scratch, trees.state, paths)
        self.n_grown, self.iterations = rounds, trees.n_rounds.long()

    @property
    def are_all_found(self) -> bool:
        """Whether each problem has a path."""
        return bool(self.cost.isfinite().all())

    @property
    def are_peculiar(self) -> bool:
        """Whether a problem is left to other functions."""
        return bool((self.iterations == PECULIAR).any())

    def go_on(self) -> None:
        """Goes on with the problems that have no path."""
        n_nodes = int(self._trees.state[: 2 * len(self.rows)].max())
        self._keep(torch.nonzero(self.cost.isinf())[:, 0], n_nodes)

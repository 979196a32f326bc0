"""Candidate lists: the triangles that can be closest to a point of a cell of a grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.kernels.candidate_lists import BLOCK, fill_candidates
from warp_collision.kernels.candidates import Candidate, CandidateCell, CandidateGrid
from warp_collision.launching import launch
from warp_collision.obstacles.distance_grid import cubic_cells

# Memory of the lists of a mesh [bytes]: the maximum, and limits per face, which takes 225 without
# lists, and per mesh.
LIST_BYTES = 16 * 2**20
_BYTES_PER_FACE = 400
_MIN_BYTES = 32 * 2**10
# A grid reaches beyond the box of its mesh by this share of the longest edge: spheres are there.
_MARGIN = 1.0 / 16.0
# Workspace for the triangles near a block of cells, as a stack of four lists.
_MAX_GATHERED = 16_384
_BLOCKS_PER_STEP = 4
# With fewer cells there are hardly any lists that are short enough.
_MIN_CELLS = 64
# Triangles of a group, by how many faces a mesh has at most.
_GROUP_SIZES = ((4_000, 1), (10_000, 2))
_LARGEST_GROUP = 4
_CELL_BYTES = int(CandidateCell.numpy_dtype()["itemsize"])
_CANDIDATE_BYTES = int(Candidate.numpy_dtype()["itemsize"])


class _Stack(NamedTuple):
    """Workspace of the kernel, in the order of its `Stack` struct."""

    groups: Tensor
    planes: Tensor
    distances: Tensor
    needed: Tensor
    group_of: Tensor
    seen: Tensor


class Groups(NamedTuple):
    """Triangles in groups of neighbours, each group the same number.

    Attributes:
        corners: (n, 3, 3) float32 [m], by group.
        faces: (n,) int32, which face of the mesh each is.
        size: how many are a group; a short one repeats a triangle.
    """

    corners: Tensor
    faces: Tensor
    size: int


class CandidateLists:
    """The lists of a mesh.

    Attributes:
        grid: (1, n) uint8, the kernels' description of the rest.
        cells: (n_cells, 3) int32.
        candidates: (n_candidates, 2) int32.
        groups: the triangles by groups.
    """

    def __init__(self, groups: Groups, n_cells: int, n_bytes: int):
        """Lays a grid over triangles, with empty lists.

        Args:
            groups: the triangles.
            n_cells: how many cells, at most.
            n_bytes: how many bytes cells and lists may take.
        """
        lower = groups.corners.amin(dim=(0, 1)).numpy().astype(np.float64)
        upper = groups.corners.amax(dim=(0, 1)).numpy().astype(np.float64)
        margin = _MARGIN * (upper - lower).max()
        self._edge, self._shape = cubic_cells(upper - lower + 2.0 * margin, n_cells)
        self._origin = 0.5 * (lower + upper) - 0.5 * self._edge * np.array(self._shape)
        self.groups = groups
        count = int(np.prod(self._shape))
        room = max(1, (n_bytes - count * _CELL_BYTES) // _CANDIDATE_BYTES)
        self.cells = torch.zeros((count, 3), dtype=torch.int32)
        self.candidates = torch.empty((room, 2), dtype=torch.int32)
        self.grid = self._describe()

    @property
    def address(self) -> int:
        """Address of the description that kernels read."""
        return self.grid.data_ptr()

    @property
    def n_blocks(self) -> int:
        """Number of blocks of cells."""
        return int(np.prod([-(-n // int(BLOCK)) for n in self._shape]))

    def trim(self, used: int) -> None:
        """Frees the memory that no list uses."""
        self.candidates = self.candidates[: max(1, used)].clone()
        self.grid = self._describe()

    def _describe(self) -> Tensor:
        grid: Any = CandidateGrid()
        grid.cells = self.cells.data_ptr()
        grid.candidates = self.candidates.data_ptr()
        grid.corners = self.groups.corners.data_ptr()
        grid.faces = self.groups.faces.data_ptr()
        grid.n_candidates, grid.n_triangles = len(self.candidates), len(self.groups.faces)
        grid.group_size = self.groups.size
        grid.origin, grid.cell = wp.vec3(*self._origin), self._edge
        grid.shape = wp.vec3i(*self._shape)
        host = wp.array([grid], dtype=CandidateGrid, device="cpu").numpy()
        return torch.from_numpy(np.frombuffer(host.tobytes(), np.uint8).copy())[None]


def bytes_of_lists(n_faces: int, most: int) -> int:
    """The memory budget of the lists of a mesh [bytes]."""
    return min(most, _BYTES_PER_FACE * n_faces + _MIN_BYTES)


def build(mesh: wp.Mesh, record: Tensor, n_bytes: int) -> CandidateLists | None:
    """Builds the lists of a mesh on the CPU, or none where there is no room for them.

    Args:
        mesh: on the CPU.
        record: (1, n) uint8, what the kernels know of it.
        n_bytes: what the lists may take.
    """
    faces = np.asarray(mesh.indices.numpy(), dtype=np.int64).reshape(-1, 3)
    groups = _group(np.asarray(mesh.points.numpy(), dtype=np.float32)[faces])
    n_groups = len(groups.faces) // groups.size
    stack = _workspace(groups, len(faces))
    n_cells = _affordable_cells(n_groups, n_bytes)
    while n_groups > 0 and n_cells >= _MIN_CELLS:
        lists = CandidateLists(groups, n_cells, n_bytes)
        used = _fill(lists, record, stack)
        if used is not None:
            lists.trim(used)
            return lists
        n_cells = int(0.7 * n_cells)
    return None


def _fill(lists: CandidateLists, record: Tensor, stack: _Stack) -> int | None:
    """Fills the lists block by block; how many candidates they have, or None without room."""
    progress = torch.zeros(2, dtype=torch.int32)
    stack.seen.fill_(-1)
    for _ in range(0, lists.n_blocks, _BLOCKS_PER_STEP):
        launch.launch(
            fill_candidates,
            (_BLOCKS_PER_STEP,),
            *(record, lists.grid, *stack, progress),
            device=progress.device,
        )
        if int(progress[1]) > len(lists.candidates):
            return None
    return int(progress[1])


def _group(corners: np.ndarray) -> Groups:
    """Sorts triangles (n, 3, 3) into groups, halving along the longest edge of the box."""
    size = next((size for most, size in _GROUP_SIZES if len(corners) <= most), _LARGEST_GROUP)
    ab, ac = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    edges = (ab**2).sum(axis=1) + (ac**2).sum(axis=1) + ((ac - ab) ** 2).sum(axis=1)
    # Warp's queries pass over slivers, by this rule.
    order = np.flatnonzero(np.linalg.norm(np.cross(ab, ac), axis=1) >= 1.0e-6 * edges)
    centers = corners.mean(axis=1)
    ends = np.array([len(order)])
    while (parts := np.diff(ends, prepend=0)).max() > size:
        begins = ends - parts
        part_of = np.repeat(np.arange(len(parts)), parts)
        placed = centers[order]
        extents = np.maximum.reduceat(placed, begins) - np.minimum.reduceat(placed, begins)
        along = placed[np.arange(len(order)), extents.argmax(axis=1)[part_of]]
        order = order[np.lexsort((along, part_of))]
        # Whole groups on the left of each cut, so that only the last one is short.
        half = begins + size * ((-(-parts // size) + 1) // 2)
        ends = np.unique(np.concatenate((np.minimum(half, ends), ends)))
    order = np.concatenate((order, np.repeat(order[-1:], -len(order) % size)))
    return Groups(
        torch.from_numpy(np.ascontiguousarray(corners[order])),
        torch.from_numpy(order.astype(np.int32)),
        size,
    )


def _affordable_cells(n_groups: int, n_bytes: int) -> int:
    """How many cells can have lists in so many bytes.

    Lists were measured to have about 7 + 3 n_groups / n_cells^(2/3) entries: the second term is
    the share of the surface that a cell sees.
    """
    constant = _CELL_BYTES + 7.0 * _CANDIDATE_BYTES
    roots = np.roots([constant, 0.0, 3.0 * _CANDIDATE_BYTES * n_groups, -float(n_bytes)])
    edge = float(roots[np.abs(roots.imag).argmin()].real)
    return max(8, int(edge**3))


def _workspace(groups: Groups, n_faces: int) -> _Stack:
    n_groups = len(groups.faces) // groups.size
    size = 4 * min(n_groups, _MAX_GATHERED) + 4
    group_of = torch.full((n_faces,), -1, dtype=torch.int32)
    group_of[groups.faces.long()] = (
        torch.arange(len(groups.faces), dtype=torch.int32) // groups.size
    )
    return _Stack(
        torch.empty(size, dtype=torch.int32),
        torch.empty((size, 4)),
        torch.empty(size),
        torch.empty(size, dtype=torch.int32),
        group_of,
        torch.empty(n_groups, dtype=torch.int32),
    )

"""The grid of signed distances of a mesh: a query gets bounds of the distance by one read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.kernels.mesh_grid import fill_distance_grid
from warp_collision.kernels.mesh_record import FAR, MeshRecord
from warp_collision.kernels.open_mesh_grid import fill_open_mesh_grid
from warp_collision.launching import launch
from warp_collision.launching.structs import offset_in
from warp_collision.obstacles.geometry import Geometry

# Most cells of the distance grid of a mesh, how many a face is worth, and how many a mesh gets that
# has few faces.
GRID_CELLS = 32_768
_CELLS_PER_FACE = 64
_MIN_CELLS = 512
_MIN_OPEN_CELLS = 4_096
# How far the grid of an open mesh goes beyond its box, in parts of its size: points outside of the
# box can count as inside, and the grid shows how far.
_MARGIN = 0.3
# Most pairs of a cell and an edge of the border that the grid of an open mesh is worth.
_BORDER_WORK = 20_000_000


class DistanceGrid:
    """The grid of one mesh on a device; filling it makes queries faster and changes no result.

    Attributes:
        values: (nz, ny, nx) float32 [m].
        kernel: computes them.
    """

    def __init__(self, geometry: Geometry, record: Any, cells: int, device: torch.device):
        """Lays a grid over the box of a mesh and describes it in the record of the mesh.

        Args:
            geometry: the mesh.
            record: a `MeshRecord`, not yet on the device.
            cells: how many cells the grid may have.
            device: where to.
        """
        lower, upper = np.array([record.lower, record.upper], dtype=np.float64)
        self._border: list[Tensor] = []  # of an open mesh
        self.kernel: Any = fill_distance_grid
        if geometry.sensed is not None:
            self.kernel = geometry.sensed.grid_kernel
        margin = 0.0
        if geometry.has_jumps:
            self._border = [torch.from_numpy(geometry.border).to(device).contiguous()]
            self.kernel = fill_open_mesh_grid
            margin = _MARGIN * float((upper - lower).max())
        extents = upper - lower + 2.0 * margin
        # A layer more keeps points of the surface, rounded, in the grid.
        edge, shape = cubic_cells(extents, cells)
        self.values = torch.empty(shape[::-1], dtype=torch.float32, device=device)
        origin = 0.5 * (lower + upper) - 0.5 * edge * np.array(shape)
        record.grid.origin = wp.vec3(*origin)
        record.grid.cell = self._edge = edge
        record.grid.shape = wp.vec3i(*shape)
        self._box = np.stack((lower, upper)) - origin

    def fill(self, record: Tensor) -> None:
        """Computes the values, and makes the record (1, n bytes) on the device point to them."""
        dim, items = self.values.shape[:2], self.values.numel()
        arguments = record, *self._border, self.values
        launch.launch(self.kernel, dim, *arguments, device=self.values.device, items=items)
        if self._border:
            self._narrow(record)
        # The kernels use the grid once they see its address: eight bytes, written at once.
        record.view(torch.int64)[0, offset_in(MeshRecord, "grid") // 8] = self.values.data_ptr()

    def _narrow(self, record: Tensor) -> None:
        """Lowers how far from its box an open mesh can count points as inside.

        Winding numbers are harmonic off the surface and vanish far away: they are nowhere larger
        than on a shell around the surface. If all of the outermost cells are outside, so is
        whatever is beyond them, and the farthest cell that is not certainly outside counts.
        """
        outside = (self.values > 0.0) & (self.values < 0.5 * FAR)
        sealed = outside.sum() - outside[1:-1, 1:-1, 1:-1].sum() == _n_outermost(outside.shape)
        # From the box to the farthest corner of each cell, by axis.
        distances = []
        for axis, count in enumerate(reversed(outside.shape)):
            begin = self._edge * torch.arange(count, device=outside.device)
            low, high = self._box[:, axis].tolist()
            distances.append(torch.maximum(low - begin, begin + self._edge - high).clamp(min=0.0))
        x, y, z = distances
        distance = (x**2 + y[:, None] ** 2 + z[:, None, None] ** 2).sqrt()
        farthest = 1.0001 * torch.where(outside, 0.0, distance).max()
        reach = record.view(torch.float32)[0, offset_in(MeshRecord, "inside_reach") // 4 :][:1]
        reach.copy_(torch.where(sealed, torch.minimum(farthest, reach), reach))


def _n_outermost(shape: torch.Size) -> int:
    """How many cells of a grid have none beyond them on some side."""
    return int(np.prod(shape) - np.prod(np.maximum(np.array(shape) - 2, 0)))


def create_grid(
    geometry: Geometry, record: Any, max_cells: int, device: torch.device
) -> DistanceGrid | None:
    """A grid for a mesh, or None where it is not worth its memory and time.

    Args:
        geometry: the mesh.
        record: its `MeshRecord`, which gets the grid's origin, cell and shape.
        max_cells: at most so many cells, 4 bytes each; 0 for none.
        device: where to.
    """
    if geometry.sensed is not None:
        cells = min(max_cells, geometry.sensed.grid_cells)
        return DistanceGrid(geometry, record, cells, device) if cells >= _MIN_CELLS else None
    min_cells = _MIN_OPEN_CELLS if geometry.has_jumps else _MIN_CELLS
    cells = min(max_cells, max(_CELLS_PER_FACE * len(geometry.faces), min_cells))
    if geometry.has_jumps and len(geometry.border):
        cells = min(cells, _BORDER_WORK // len(geometry.border))
    if max_cells <= 0 or cells < min(max_cells, min_cells):
        return None
    return DistanceGrid(geometry, record, cells, device)


def cubic_cells(extents: np.ndarray, max_cells: int) -> tuple[float, tuple[int, int, int]]:
    """Edge of cubic cells over a box and their counts nx, ny, nz, as fine as a number allows.

    A layer of them is beyond the box, on each side.

    Args:
        extents: (3,) of the box [m].
        max_cells: how many cells there may be, unless even the fewest possible are more.
    """
    edge = max(float(extents.prod() / max_cells) ** (1.0 / 3.0), float(extents.max()) / max_cells)
    while True:
        shape = np.ceil(extents / edge * 1.0001).astype(int) + 2
        if shape.prod() <= max(max_cells, 3**3):
            return edge, (int(shape[0]), int(shape[1]), int(shape[2]))
        edge *= 1.02

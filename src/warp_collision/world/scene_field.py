"""Distance field of a world at rest: bounds of the signed distance at the centers of cells."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels import scene_walk
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.scene_bounds import FIELD_REACH, fill_scene_field
from warp_collision.launching.launch import launch
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.launching.structs import dtype_of, upload_struct
from warp_collision.obstacles.distance_grid import cubic_cells
from warp_collision.world.broad_phase import Snapshot

# Maximum number of cells of an env, and of all envs, which fit into the cache of a core together: a
# value from memory takes longer than a query. Minimum for an env to have a field.
_MAX_CELLS = 65_536
_MAX_ALL_CELLS = 2**18
_MIN_CELLS = 4_096
# Margin of a field around the obstacles, as a fraction of their extent: spheres are there.
_MARGIN = 0.15
# Obstacles this many times as long as the median, such as floors, do not enlarge the cells.
_LONG = 4.0
# Queries that pay for a cell, which takes as long as 3 to 30 of them among many obstacles; and how
# many a world is asked at rest before it begins a field.
QUERIES_PER_CELL = 64
_PATIENCE = 2**20
_HEADER = dtype_of(scene_walk.SceneField).itemsize


class SceneField:
    """Lower bounds of the signed distance of all envs, for CPUs, where most spheres are free.

    A query out of reach of all obstacles ends after one read. The field is invalid as soon as
    anything that it depends on is written. Cells that are not filled yet have a bound that tells
    nothing: queries may read the field meanwhile.

    Attributes:
        buffer: (n,) uint8, the kernels' `SceneField` of each env, then their values, in one tensor.
    """

    def __init__(self, tables: SceneTables, boxes: tuple[Tensor, Tensor], fitted: object):
        """Lays out a field with empty cells.

        Args:
            tables: on the CPU, with records and a tree.
            boxes: (n_envs, slots, 3) lower and upper corners of the world boxes [m].
            fitted: token of the poses that tree and boxes were fit to.
        """
        self._fitted = fitted
        # Which obstacles count, and how much they are inflated by.
        masks = tables.records, tables.enabled, tables.n_meshes, tables.padding
        self._masks = [table for table in masks if table is not None]
        self._counted = Snapshot(self._masks)
        self._tables = tables
        n_envs = tables.shape[0]
        most = min(_MAX_CELLS, _MAX_ALL_CELLS // n_envs)
        grids = [_create_grid(*_enabled_boxes(tables, boxes, env), most) for env in range(n_envs)]
        sizes = [int(np.prod(grid.shape)) for grid in grids]
        header_bytes = n_envs * _HEADER
        with torch.inference_mode(False):
            self.buffer = torch.zeros(header_bytes + 4 * sum(sizes), dtype=torch.uint8)
        headers = self.buffer[:header_bytes].view(n_envs, _HEADER)
        # Not 0, which would say of a point at the center of a cell that it is free.
        cells = self.buffer[header_bytes:].view(torch.float32).fill_(-float(FAR))
        values = cells.split(sizes)
        # What is still to be filled: env, its grid, all of its cells, and how many layers are.
        self._unfilled: deque[tuple[int, Any, Tensor, int]] = deque()
        self._paid = 0.0  # cells
        for env, (grid, of_env) in enumerate(zip(grids, values, strict=True)):
            if len(of_env):
                grid.values = of_env.data_ptr()
                headers[env : env + 1].copy_(upload_struct(grid, CPU))
                self._unfilled.append((env, grid, of_env.view(*reversed([*grid.shape])), 0))

    @property
    def is_filled(self) -> bool:
        """Whether all cells have their bounds."""
        return not self._unfilled

    def fill(self, n_cells: float = math.inf) -> None:
        """Computes bounds, for one thread at a time.

        Args:
            n_cells: how many more cells are paid for; they are filled in whole layers.
        """
        self._paid += n_cells
        while self._unfilled:
            env, grid, cells, begin = self._unfilled[0]
            layer = cells[0].numel()
            count = len(cells) - begin
            if self._paid < count * layer:
                count = int(self._paid // layer)
            if count == 0:
                return
            end = begin + count
            _fill(self._tables, env, grid, cells, begin, end)
            self._paid -= count * layer
            if end < len(cells):
                self._unfilled[0] = env, grid, cells, end
            else:
                self._unfilled.popleft()

    def fits(self, fitted: object) -> bool:
        """Whether nothing was written since, by torch or past it.

        Args:
            fitted: token of the current poses.
        """
        return fitted is self._fitted and self._counted.is_of(self._masks)


class Rest:
    """How much a world was asked since something moved: is a field likely to pay?"""

    def __init__(self) -> None:
        self._since: object = None
        self._asked = 0
        self._patience = _PATIENCE

    def is_long(self, fitted: object, n_queries: int) -> bool:
        """Counts queries, and tells whether they are enough to begin a field.

        Args:
            fitted: token of the current poses, None where there are no fields.
            n_queries: spheres or points of the present call.
        """
        if fitted is not self._since:
            self._since, self._asked = fitted, 0
        self._asked += n_queries
        return fitted is not None and self._asked >= self._patience

    def field_begins(self, is_wasted: bool) -> None:
        """To be called when a field begins, after one that was of no use or not."""
        self._asked = 0
        self._patience = 2 * self._patience if is_wasted else _PATIENCE


def _enabled_boxes(
    tables: SceneTables, boxes: tuple[Tensor, Tensor], env: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corners of the boxes of the obstacles of an env that are enabled."""
    count = int(tables.n_meshes[env])
    on = (tables.enabled[env] != 0) & (tables.records[env] != 0)
    on = on[:count].numpy()
    lower, upper = (box[env, :count].numpy().astype(np.float64)[on] for box in boxes)
    return lower, upper


def _create_grid(lower: np.ndarray, upper: np.ndarray, most: int) -> Any:
    """The grid of a `SceneField` over obstacles that have ends; without cells if there are none."""
    grid: Any = scene_walk.SceneField()
    has_ends = (np.maximum(-lower, upper) < 0.5 * float(FAR)).all(axis=1)
    lower, upper = lower[has_ends], upper[has_ends]
    far = float(FIELD_REACH) / 3.0**0.5
    if most < _MIN_CELLS or not len(lower) or np.abs((lower, upper)).max() > far:
        return grid
    edges = (upper - lower).max(axis=1)
    short = edges <= _LONG * np.median(edges)
    low, high = lower[short].min(axis=0), upper[short].max(axis=0)
    margin = _MARGIN * float((high - low).max())
    edge, shape = cubic_cells(high - low + 2.0 * margin, most)
    grid.origin = wp.vec3(*(0.5 * (low + high) - 0.5 * edge * np.array(shape)))
    grid.cell, grid.per_metre = edge, 1.0 / edge
    grid.shape = wp.vec3i(*shape)
    return grid


def _fill(tables: SceneTables, env: int, grid: Any, cells: Tensor, begin: int, end: int) -> None:
    """Computes some layers of the cells (nz, ny, nx) of a grid."""
    layers: Any = scene_walk.SceneField()
    layers.origin = grid.origin + wp.vec3(0.0, 0.0, begin * grid.cell)
    layers.cell, layers.shape = grid.cell, grid.shape
    launch(
        fill_scene_field,
        (end - begin, cells.shape[1]),
        tables,
        torch.tensor([env], dtype=torch.int32),
        upload_struct(layers, CPU),
        cells[begin:end],
        device=cells.device,
        items=cells[begin:end].numel(),
    )

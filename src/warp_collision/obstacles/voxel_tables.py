"""What queries of voxels read, computed on a device: squared distances, and faces."""

from __future__ import annotations

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.kernels.voxel_faces import FacePlanes, count_faces, write_faces
from warp_collision.kernels.voxel_transform import (
    BAND,
    LANES,
    Lines,
    transform_along,
    transform_rows,
)
from warp_collision.launching.launch import launch
from warp_collision.launching.structs import upload_struct


def squares_of(solid: Tensor, is_solid_outside: bool, band: int = int(BAND)) -> Tensor:
    """Squared distances (nz, ny, nx) int16 in half cells, see `kernels.voxel_transform`.

    Args:
        solid: (nz, ny, nx) uint8 0 or 1 on a device.
        is_solid_outside: what is beyond the grid.
        band: how many cells the search goes.
    """
    device = solid.device
    nz, ny, nx = solid.shape
    lanes = LANES if device.type == "cpu" else 1
    squares = torch.empty(solid.shape, dtype=torch.int16, device=device)
    lines = Lines()
    lines.shape, lines.lanes, lines.band = wp.vec3i(nx, ny, nz), lanes, band
    lines.outside = -1 if is_solid_outside else 1
    lines.count = nx
    arguments = solid.view(-1), upload_struct(lines, device), squares.view(-1)
    launch(transform_rows, (ny * nz,), *arguments, device=device)
    for count, stride, others, across in ((ny, nx, nz, nx * ny), (nz, nx * ny, ny, nx)):
        lines.count, lines.stride, lines.across = count, stride, across
        found = torch.empty_like(squares)
        arguments = squares.view(-1), upload_struct(lines, device), found.view(-1)
        launch(transform_along, (others, -(-nx // lanes)), *arguments, device=device)
        squares = found
    return squares


def faces_of(solid: Tensor, is_solid_outside: bool, origin: np.ndarray, edge: float) -> Tensor:
    """Rectangles (n, 2, 4) float32 between solid and free cells, see `VoxelMap`.

    Args:
        solid: (nz, ny, nx) uint8 0 or 1 on a device, which is waited for.
        is_solid_outside: what is beyond the grid.
        origin: (3,) lower corner of the grid [m].
        edge: of a cell [m].
    """
    device = solid.device
    nz, ny, nx = solid.shape
    along_y = solid.transpose(1, 2).contiguous()  # planes across x have rows along y
    tables: list[Tensor] = []
    for cells, count, stride, rows, row_stride, length, axes in (
        (along_y, nx, ny, nz, nx * ny, ny, (0, 2, 1)),
        (solid, ny, nx, nz, nx * ny, nx, (1, 2, 0)),
        (solid, nz, nx * ny, ny, nx, nx, (2, 1, 0)),
    ):
        planes = FacePlanes()
        planes.solid, planes.count, planes.plane_stride = cells.data_ptr(), count, stride
        planes.rows, planes.row_stride, planes.length = rows, row_stride, length
        planes.outside, planes.axes = int(is_solid_outside), wp.vec3i(*axes)
        planes.origin, planes.cell = wp.vec3d(*origin), edge
        tables.append(upload_struct(planes, device))
    sizes = [nx + 1, ny + 1, nz + 1]
    counts = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
    for table, part in zip(tables, counts.split(sizes), strict=True):
        launch(count_faces, (len(part),), table, part, device=device)
    ends = counts.cumsum(0, dtype=torch.int32)
    faces = torch.empty((int(ends[-1]), 2, 4), device=device)
    for table, first in zip(tables, (ends - counts).split(sizes), strict=True):
        launch(write_faces, (len(first),), table, first, faces.view(-1), device=device)
    return faces

"""What queries of voxels read, computed on a device: squared distances, and faces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.devices import sent
from warp_collision.kernels.voxel_faces import FacePlanes, count_faces, write_faces
from warp_collision.kernels.voxel_transform import (
    BAND,
    LANES,
    Lines,
    transform_along,
    transform_rows,
)
from warp_collision.launching.launch import launch
from warp_collision.launching.structs import sent_struct


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
    arguments = solid.view(-1), sent_struct(lines, device), squares.view(-1)
    launch(transform_rows, (ny * nz,), *arguments, device=device)
    for count, stride, others, across in ((ny, nx, nz, nx * ny), (nz, nx * ny, ny, nx)):
        lines.count, lines.stride, lines.across = count, stride, across
        found = torch.empty_like(squares)
        arguments = squares.view(-1), sent_struct(lines, device), found.view(-1)
        launch(transform_along, (others, -(-nx // lanes)), *arguments, device=device)
        squares = found
    return squares


def squares_after(
    squares: Tensor, solid: Tensor, is_solid_outside: bool, changed: list[range]
) -> Tensor:
    """Those of `squares_of` after some cells have changed, from those before.

    What is more than the band from a change is as it was. The search from a cell that is nearer
    ends within twice the band: what is beyond that is not read.

    Args:
        squares: those before.
        solid: see `squares_of`.
        is_solid_outside: see there.
        changed: (3,) ranges of z, y and x that all changes are in.
    """

    def grown(cells: int) -> list[slice]:
        ends = zip(changed, solid.shape, strict=True)
        return [slice(max(0, r.start - cells), min(n, r.stop + cells)) for r, n in ends]

    near, read = grown(int(BAND)), grown(2 * int(BAND))
    part = squares_of(solid[tuple(read)].contiguous(), is_solid_outside)
    within = [slice(a.start - b.start, a.stop - b.start) for a, b in zip(near, read, strict=True)]
    found = squares.clone()
    found[tuple(near)] = part[tuple(within)]
    return found


class Faces(NamedTuple):
    """Rectangles between solid and free cells.

    Attributes:
        rectangles: (n, 2, 4) float32, see `VoxelMap`, plane by plane: across x, y, then z.
        counts: how many each plane has: three of (planes,), on the host.
    """

    rectangles: Tensor
    counts: list[Tensor]


def faces_of(
    solid: Tensor,
    is_solid_outside: bool,
    origin: np.ndarray,
    edge: float,
    before: Faces | None = None,
    changed: list[range] | None = None,
) -> Faces:
    """The faces of a grid.

    Args:
        solid: (nz, ny, nx) uint8 0 or 1 on a device, which is waited for.
        is_solid_outside: what is beyond the grid.
        origin: (3,) lower corner of the grid [m].
        edge: of a cell [m].
        before: the faces before some cells changed, if known: other planes have these.
        changed: (3,) ranges of z, y and x that these are in; all of them without.
    """
    device = solid.device
    nz, ny, nx = solid.shape
    along_y = solid.transpose(1, 2).contiguous()  # planes across x have rows along y
    ranges = [range(n) for n in solid.shape] if changed is None else changed
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
        planes.first = ranges[2 - axes[0]].start
        tables.append(sent_struct(planes, device))
    sizes = [len(cells) + 1 for cells in reversed(ranges)]
    counts = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
    for table, part in zip(tables, counts.split(sizes), strict=True):
        launch(count_faces, (len(part),), table, part, device=device)
    known = counts.cpu()
    ends = known.cumsum(0, dtype=torch.int32)
    faces = torch.empty((int(ends[-1]), 2, 4), device=device)
    firsts = sent(ends - known, device).split(sizes)
    for table, first in zip(tables, firsts, strict=True):
        launch(write_faces, (len(first),), table, first, faces.view(-1), device=device)
    new = Faces(faces, list(known.split(sizes)))
    return new if before is None else _put_in(before, new, [r.start for r in reversed(ranges)])


def _put_in(before: Faces, new: Faces, begins: list[int]) -> Faces:
    """Faces with those of some planes along each axis in the place of others, from a first one."""
    pieces: list[Tensor] = []
    old_at, new_at, counts = 0, 0, []
    for old, part, begin in zip(before.counts, new.counts, begins, strict=True):
        end = begin + len(part)
        at = old_at + int(old[:begin].sum())
        pieces.append(before.rectangles[old_at:at])
        pieces.append(new.rectangles[new_at : new_at + int(part.sum())])
        at += int(old[begin:end].sum())
        old_at, new_at = old_at + int(old.sum()), new_at + int(part.sum())
        pieces.append(before.rectangles[at:old_at])
        counts.append(torch.cat((old[:begin], part, old[end:])))
    return Faces(torch.cat(pieces), counts)

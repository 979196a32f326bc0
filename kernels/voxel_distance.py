"""Signed distance of a grid of voxels: exactly that of the union of the solid boxes.

The squares of `voxel_transform` bound it by one read; where that does not decide, the nearest face
between a solid cell and a free one does.
"""

import warp as wp

from warp_collision.kernels.mesh_record import FAR, ROUNDING, cell_along, cell_around, cell_center
from warp_collision.kernels.nearest_part import PartTree, nearest_part, part_vector
from warp_collision.kernels.shape_distance import POINT, ShapeSample
from warp_collision.kernels.voxel_transform import BAND_SQUARE


@wp.struct
class VoxelMap:
    """A grid of free and solid cells, x running fastest, and the faces between them."""

    faces: PartTree  # boxes without extent along one axis; 1 or -1 beside the upper corner: normal
    squares: wp.uint64  # pointer to (nz, ny, nx) int16, see `voxel_transform`
    origin: wp.vec3  # lower corner of the first cell [m]
    cell: float  # edge of a cell [m]
    shape: wp.vec3i  # nx, ny, nz
    outside: float  # 1: what is beyond the grid is free, -1: solid


@wp.func
def load_map(pointer: wp.uint64) -> VoxelMap:
    """The grid that an exact shape points to."""
    return wp.array(ptr=pointer, shape=(1,), dtype=VoxelMap)[0]


@wp.func
def voxel_bounds(voxels: VoxelMap, point: wp.vec3) -> wp.vec2:
    """Certified bounds of the signed distance, by the cell that is closest to a point."""
    local = (point - voxels.origin) / voxels.cell
    shape = voxels.shape
    x = cell_along(local[0], shape[0])
    y = cell_along(local[1], shape[1])
    z = cell_along(local[2], shape[2])
    squares = wp.array(ptr=voxels.squares, shape=(shape[2], shape[1], shape[0]), dtype=wp.int16)
    square = int(squares[z, y, x])
    value = 0.5 * voxels.cell * wp.sqrt(float(wp.abs(square)))
    center = cell_center(voxels.origin, voxels.cell, x, y, z)
    reach = wp.length(point - center) + ROUNDING * (wp.length(center) + wp.length(point) + value)
    # What is not found out is at least as far.
    farthest = wp.where(wp.abs(square) >= BAND_SQUARE, FAR, value)
    if square > 0:
        return wp.vec2(value - reach, farthest + reach)
    return wp.vec2(-farthest - reach, reach - value)


@wp.func
def side_at(voxels: VoxelMap, point: wp.vec3) -> float:
    """1 in a free cell, -1 in a solid one."""
    shape = voxels.shape
    cell = cell_around(point, voxels.origin, voxels.cell, shape)
    if cell[0] < 0:
        return voxels.outside
    squares = wp.array(ptr=voxels.squares, shape=(shape[2], shape[1], shape[0]), dtype=wp.int16)
    return wp.where(squares[cell[2], cell[1], cell[0]] > wp.int16(0), 1.0, -1.0)


@wp.func
def voxel_distance(voxels: VoxelMap, point: wp.vec3, limit: float, lower: float) -> ShapeSample:
    """Signed distance where it is below a limit, else the limit without a gradient.

    Args:
        voxels: the grid.
        point: in its frame.
        limit: [m].
        lower: a lower bound of it [m].
    """
    sample = ShapeSample(limit, wp.vec3(0.0))
    side = side_at(voxels, point)
    search = wp.where(side > 0.0, limit, wp.min(1.0e-5 - 1.00001 * lower, FAR))
    index = nearest_part(voxels.faces, point, search, False)
    if index >= 0:
        low = part_vector(voxels.faces, index, 0)
        high = part_vector(voxels.faces, index, 1)
        below = wp.vec3(low[0], low[1], low[2])
        above = wp.vec3(high[0], high[1], high[2])
        way = point - wp.min(wp.max(point, below), above)
        height = wp.length(way)
        sample.distance = side * height
        # Over a face the gradient is its normal, however near the point is.
        sample.gradient = side * way / wp.max(height, POINT)
        normal = high[3] * wp.vec3(
            wp.where(above[0] == below[0], 1.0, 0.0),
            wp.where(above[1] == below[1], 1.0, 0.0),
            wp.where(above[2] == below[2], 1.0, 0.0),
        )
        if height * (1.0 - 1.0e-6) <= wp.abs(wp.dot(way, normal)):
            sample.gradient = normal
    return sample


@wp.func
def is_nearer_to_voxels(voxels: VoxelMap, point: wp.vec3, limit: float) -> bool:
    """Whether the signed distance is below a limit."""
    if side_at(voxels, point) > 0.0:
        return nearest_part(voxels.faces, point, limit, True) >= 0
    if limit > 0.0:
        return True
    # At least that deep: no face is nearer.
    return nearest_part(voxels.faces, point, -limit, True) < 0

"""Scans: distances by azimuth and elevation, whose rays are anywhere in their pixels.

Two rays of neighbouring pixels may be beside each other, or two pixels apart: they do not say how
steep a surface is. Those of pixels with one between them do, as they are a pixel apart at least.
"""

import warp as wp

from warp_collision.kernels.carving import VoxelBlock, hit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.depth_pixels import (
    SAME,
    SURFACE,
    PixelRules,
    depth_at,
    relation,
    surely,
)
from warp_collision.kernels.mesh_record import cell_around

wp.set_module_options(OPTIONS)

# A solid with an edge, or a corner of a right angle at any turn, that reaches into a voxel fills a
# whole pixel whose center is at most this far from there.
BESIDE_RAYS = wp.constant(2.5)


@wp.func
def rise_of(rules: PixelRules, here: float, opposite: float, one_on: float, two_on: float) -> float:
    """How much nearer a surface may be one pixel on, if it ends here or has a ridge [m].

    Where only two pixels of it are in a row, it is as steep as it may be at all.
    """
    rise = float(0.0)
    goes_on = relation(rules, rules.steepness, here, opposite) == SAME and opposite <= here
    if not goes_on and relation(rules, rules.steepness, here, one_on) == SAME:
        rise = rules.steepness * here
        if relation(rules, rules.steepness, one_on, two_on) == SAME:
            rise = wp.max(wp.max(two_on, one_on) - here, 0.0)
    return rise


@wp.kernel
def lower_bounds(
    # operands
    depth: wp.array2d[wp.float32],  # (height, width) [m], 0 without a return
    kinds: wp.array2d[wp.uint8],  # see `sort_pixels`
    rules: wp.array[PixelRules],  # (1,)
    # outputs
    bounds: wp.array2d[wp.float32],  # only those of surfaces are written
):
    """One thread per pixel; surfaces go on beyond their last ray as they came."""
    row, column = wp.tid()
    if kinds[row, column] == wp.uint8(SURFACE):
        here = depth[row, column]
        rise = float(0.0)
        for side in range(9):
            down = side / 3 - 1
            right = side % 3 - 1
            if side != 4:
                opposite = depth_at(depth, row - down, column - right)
                one_on = depth_at(depth, row + down, column + right)
                two_on = depth_at(depth, row + 2 * down, column + 2 * right)
                rise = wp.max(rise, rise_of(rules[0], here, opposite, one_on, two_on))
        bounds[row, column] = surely(rules[0], here - (BESIDE_RAYS + 0.5) * rise)


@wp.kernel
def mark_points(
    # operands
    points: wp.array[wp.vec3],  # (n,) of surfaces in the map [m]
    grid: wp.array[VoxelBlock],  # (1,)
    now: wp.array[wp.float32],  # (1,) [s]
    # outputs
    states: wp.array[wp.uint8],  # see `carve`
    parts: wp.array[wp.uint8],
    stamps: wp.array[wp.float32],
):
    """One thread per point: the voxel that it is in is occupied."""
    voxels = grid[0]
    cell = cell_around(points[wp.tid()], voxels.origin, voxels.cell, voxels.shape)
    if cell[0] >= 0:
        place = (cell[2] * voxels.shape[1] + cell[1]) * voxels.shape[0] + cell[0]
        hit(place, now[0], states, parts, stamps)

"""Which voxels of a map a camera would show, and which rays pass through what is there."""

import warp as wp

from warp_collision.kernels.carving import OCCUPIED, View, VoxelBlock
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_record import cell_around

wp.set_module_options(OPTIONS)

EDGE = wp.constant(2.0)  # pixels at the edge of an image that show nothing


@wp.func
def is_in_image(camera: View, place: wp.vec3, farthest: float) -> bool:
    """Whether a point of the map is in view and near enough."""
    at = camera.rotation * place + camera.place
    is_in = at[2] > 0.0 and at[2] <= farthest
    if is_in:
        column = camera.middle[0] + camera.focal[0] * at[0] / at[2]
        row = camera.middle[1] + camera.focal[1] * at[1] / at[2]
        is_in = column >= EDGE and column <= float(camera.width - 1) - EDGE
        is_in = is_in and row >= EDGE and row <= float(camera.height - 1) - EDGE
    return is_in


@wp.func
def is_clear(grid: VoxelBlock, states: wp.array[wp.uint8], place: wp.vec3, eye: wp.vec3) -> bool:
    """Whether no occupied voxel is between two points, by samples half a voxel apart."""
    way = eye - place
    count = int(wp.ceil(2.0 * wp.length(way) / grid.cell))
    is_free = bool(True)
    step = int(1)
    while step < count and is_free:
        at = place + way * (float(step) / float(count))
        cell = cell_around(at, grid.origin, grid.cell, grid.shape)
        if cell[0] < 0:  # it has left the map, for good
            step = count
        else:
            index = (cell[2] * grid.shape[1] + cell[1]) * grid.shape[0] + cell[0]
            is_free = states[index] != wp.uint8(OCCUPIED)
            step += 1
    return is_free


@wp.kernel
def find_shown(
    # operands
    cameras: wp.array[View],  # (n,)
    farthest: wp.array[wp.float32],  # (1,) [m]
    grid: wp.array[VoxelBlock],  # (1,)
    states: wp.array[wp.uint8],  # see `carve`
    wanted: wp.array[wp.int32],  # (m,) indices of voxels
    # outputs
    shown: wp.array2d[wp.bool],  # (n, m)
):
    """One thread per camera and voxel."""
    c, w = wp.tid()
    shape = grid[0].shape
    index = wanted[w]
    cell = wp.vec3i(index % shape[0], index / shape[0] % shape[1], index / (shape[0] * shape[1]))
    half = wp.vec3(0.5)
    place = grid[0].origin + grid[0].cell * (
        wp.vec3(float(cell[0]), float(cell[1]), float(cell[2])) + half
    )
    is_shown = is_in_image(cameras[c], place, farthest[0])
    if is_shown:
        is_shown = is_clear(grid[0], states, place, cameras[c].eye)
    shown[c, w] = is_shown


@wp.kernel
def find_through(
    # operands
    rays: wp.array2d[wp.vec3],  # (n, 2) where they enter the map and where they leave it or end [m]
    margin: wp.array[wp.float32],  # (n,) what is behind an occupied voxel, beyond the map, less
    #   what a ray needs there to have passed it [m]
    grid: wp.array[VoxelBlock],  # (1,)
    states: wp.array[wp.uint8],  # see `carve`
    # outputs
    is_through: wp.array[wp.bool],  # (n,) whether it passed an occupied voxel
):
    """One thread per ray, by samples half a voxel apart.

    Rays along a surface stay in its voxels: what counts is what is seen behind them.
    """
    r = wp.tid()
    begin = rays[r, 0]
    way = rays[r, 1] - begin
    count = int(wp.ceil(2.0 * wp.length(way) / grid[0].cell))
    is_hit = bool(False)
    behind = float(0.0)
    for step in range(count):
        at = begin + way * ((float(step) + 0.5) / float(count))
        cell = cell_around(at, grid[0].origin, grid[0].cell, grid[0].shape)
        if cell[0] >= 0:
            index = (cell[2] * grid[0].shape[1] + cell[1]) * grid[0].shape[0] + cell[0]
            if states[index] == wp.uint8(OCCUPIED):
                is_hit = True
            elif is_hit:
                behind += wp.length(way) / float(count)
    is_through[r] = is_hit and behind + margin[r] > 0.0

"""What sensed shapes are prepared with: parts in the order of their tree, a grid of distances.

A tree has as many parts as it was made for. Where fewer are given, each stands in it several
times, all about equally often: copies change no distance.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_record import FAR, MeshRecord, cell_center
from warp_collision.kernels.part_tree import PartTree
from warp_collision.kernels.point_cloud import cloud_distance

wp.set_module_options(OPTIONS)


@wp.func_native("""
    return wp::bvh_get(bvh).primitive_indices[place];
""")
def index_at(bvh: wp.uint64, place: int) -> int:
    """Which item stands at a place in the order of the leaves of a tree."""
    ...


@wp.kernel
def spread_corners(
    # operands
    given: wp.array2d[wp.vec4],  # (n, stride) see `PartTree`
    # outputs
    corners: wp.array2d[wp.vec3],  # (stride, capacity) lower and upper corners of the parts [m]
):
    """One thread per vector of a part."""
    row, index = wp.tid()
    vector = given[index % given.shape[0], row]
    corners[row, index] = wp.vec3(vector[0], vector[1], vector[2])


@wp.kernel
def order_parts(
    # operands
    tree: wp.array[PartTree],  # (1,)
    given: wp.array2d[wp.vec4],  # (n, stride) see `PartTree`
    # outputs
    parts: wp.array2d[wp.vec4],  # (capacity, stride)
):
    """One thread per vector of a part."""
    place, row = wp.tid()
    parts[place, row] = given[index_at(tree[0].bvh, place) % given.shape[0], row]


@wp.kernel
def fill_cloud_grid(
    # operands
    record: wp.array[MeshRecord],  # (1,)
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the rows
    # outputs
    values: wp.array3d[wp.float32],  # (nz, ny, nx) signed distance at the centers of the cells [m]
):
    """One thread per row of cells; the bound of a cell limits the search of the next one."""
    z, y = wp.tid()
    z += launch_offset[0]
    y += launch_offset[1]
    cloud = record[0]
    grid = cloud.grid
    limit = float(FAR)
    for x in range(grid.shape[0]):
        center = cell_center(grid.origin, grid.cell, x, y, z)
        distance = cloud_distance(cloud.exact.data, center, limit).distance
        values[z, y, x] = distance
        limit = distance + 1.001 * grid.cell + 1.0e-5 * (wp.length(center) + wp.abs(distance))

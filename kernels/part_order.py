"""What sensed shapes are prepared with: parts in the order of their tree, a grid of distances.

A tree has as many parts as it was made for. Where fewer are given, each stands in it several
times, all about equally often: copies change no distance.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.grid_rows import make_fill_row
from warp_collision.kernels.mesh_record import MeshRecord
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


@wp.func
def distance_of_cloud(mesh: MeshRecord, center: wp.vec3, limit: float, side: float) -> wp.vec2:
    """It has its sign by itself."""
    return wp.vec2(cloud_distance(mesh.exact.data, center, limit).distance, 0.0)


fill_row = make_fill_row(distance_of_cloud)


@wp.kernel
def fill_cloud_grid(
    # operands
    record: wp.array[MeshRecord],  # (1,)
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the rows
    # outputs
    values: wp.array3d[wp.float32],  # (nz, ny, nx) signed distance at the centers of the cells [m]
):
    """One thread per row of cells."""
    z, y = wp.tid()
    fill_row(record[0], z + launch_offset[0], y + launch_offset[1], values)

"""The grid of distances of a point cloud."""

import warp as wp

from warp_collision.kernels.cloud_distance import cloud_distance
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.grid_rows import make_fill_row
from warp_collision.kernels.mesh_record import MeshRecord

wp.set_module_options(OPTIONS)


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

"""Fills the grid of signed distances of a mesh."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.grid_rows import make_fill_row
from warp_collision.kernels.mesh_record import MeshRecord
from warp_collision.kernels.winding import side_of_mesh

wp.set_module_options(OPTIONS)


@wp.func
def distance_of_mesh(mesh: MeshRecord, center: wp.vec3, limit: float, side: float) -> wp.vec2:
    """The side is constant until the row comes near the surface; only there it is asked again."""
    query = wp.mesh_query_point_no_sign(mesh.mesh_id, center, limit)
    nearest = wp.mesh_eval_position(mesh.mesh_id, query.face, query.u, query.v)
    distance = wp.length(nearest - center)
    is_near = distance < 1.001 * mesh.grid.cell
    sign = float(side)
    if sign == 0.0 or is_near:
        sign = side_of_mesh(mesh, center)
    return wp.vec2(sign * distance, wp.where(is_near, 0.0, sign))


fill_row = make_fill_row(distance_of_mesh)


@wp.kernel
def fill_distance_grid(
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

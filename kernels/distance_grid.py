"""Fills the grid of signed distances of a mesh."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_distance import WIDEN
from warp_collision.kernels.mesh_record import FAR, MeshRecord, cell_center
from warp_collision.kernels.winding import side_of_mesh

wp.set_module_options(OPTIONS)


@wp.kernel
def fill_distance_grid(
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
    mesh = record[0]
    grid = mesh.grid
    limit = float(FAR)
    side = float(0.0)
    for x in range(grid.shape[0]):
        center = cell_center(grid.origin, grid.cell, x, y, z)
        query = wp.mesh_query_point_no_sign(mesh.mesh_id, center, limit)
        nearest = wp.mesh_eval_position(mesh.mesh_id, query.face, query.u, query.v)
        distance = wp.length(nearest - center)
        # The side is constant until the row comes near the surface; only there it is queried again.
        if side == 0.0 or distance < 1.001 * grid.cell:
            side = side_of_mesh(mesh.mesh_id, mesh, center)
        values[z, y, x] = side * distance
        limit = (distance + grid.cell) * (WIDEN * WIDEN) + 1.0e-5 * wp.length(center)
        if distance < 1.001 * grid.cell:
            side = 0.0

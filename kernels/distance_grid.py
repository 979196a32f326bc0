"""Fills the grid of signed distances of a mesh."""

import warp as wp

from warp_collision.kernels.mesh_distance import WIDEN
from warp_collision.kernels.mesh_record import FAR, ROUNDING, MeshRecord, cell_center
from warp_collision.kernels.winding import side_of_ball, side_of_mesh

# From the center of a cube to its corners, in edges, with room for rounding.
HALF_DIAGONAL = wp.constant(0.8661)


@wp.kernel(enable_backward=False)
def fill_distance_grid(
    # operands
    record: wp.array[MeshRecord],  # (1,)
    # parameters
    first: wp.vec2i,  # where in the rows this launch begins
    # outputs
    values: wp.array3d[wp.float32],  # (nz, ny, nx) signed distance at the centers of the cells [m]
):
    """One thread per row of cells; each cell starts from what the one before it knows."""
    z, y = wp.tid()
    z += first[0]
    y += first[1]
    mesh = record[0]
    grid = mesh.grid
    limit = float(FAR)
    side = float(0.0)
    for x in range(grid.shape[0]):
        center = cell_center(grid, x, y, z)
        query = wp.mesh_query_point_no_sign(mesh.mesh_id, center, limit)
        nearest = wp.mesh_eval_position(mesh.mesh_id, query.face, query.u, query.v)
        distance = wp.length(nearest - center)
        # The side stays until the row comes near the surface; only there it is asked again.
        if side == 0.0 or distance < 1.001 * grid.cell:
            near = distance * 1.001 + 1.0e-5 * (wp.length(nearest) + grid.cell)
            side = side_of_mesh(mesh.mesh_id, mesh, center, near)
        values[z, y, x] = side * distance
        limit = (distance + grid.cell) * (WIDEN * WIDEN) + 1.0e-5 * wp.length(center)
        if distance < 1.001 * grid.cell:
            side = 0.0


@wp.kernel(enable_backward=False)
def fill_open_grid(
    # operands
    record: wp.array[MeshRecord],  # (1,)
    border: wp.array2d[wp.vec3],  # (n_edges, 2) where the surface ends
    # parameters
    first: wp.vec2i,  # where in the rows this launch begins
    # outputs
    values: wp.array3d[wp.float32],  # (nz, ny, nx) signed distance at the centers, or FAR [m]
):
    """One thread per row of cells. Cells that the surface may cross have no value."""
    z, y = wp.tid()
    z += first[0]
    y += first[1]
    mesh = record[0]
    grid = mesh.grid
    limit = float(FAR)
    for x in range(grid.shape[0]):
        center = cell_center(grid, x, y, z)
        query = wp.mesh_query_point_no_sign(mesh.mesh_id, center, limit)
        nearest = wp.mesh_eval_position(mesh.mesh_id, query.face, query.u, query.v)
        distance = wp.length(nearest - center)
        limit = (distance + grid.cell) * (WIDEN * WIDEN) + 1.0e-5 * wp.length(center)
        reach = HALF_DIAGONAL * grid.cell + ROUNDING * (wp.length(center) + distance)
        side = float(0.0)
        if distance > reach:
            side = side_of_ball(mesh.mesh_id, border, center, reach, limit)
        values[z, y, x] = wp.where(side == 0.0, FAR, side * distance)

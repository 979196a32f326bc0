"""Fills the grid of signed distances of an open mesh: a cell can have points of both sides."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_distance import WIDEN
from warp_collision.kernels.mesh_record import FAR, ROUNDING, MeshRecord, cell_center
from warp_collision.kernels.winding import (
    SUMMED,
    WINDING_ACCURACY,
    doubt_of_tree,
    finer_accuracy,
    winding_number,
)

wp.set_module_options(OPTIONS)

# From the center of a cube to its corners, in edges, with room for rounding.
HALF_DIAGONAL = wp.constant(0.8661)
# Finest accuracy at which the tree is asked, and the doubt that remains of the sum over triangles.
FINEST = wp.constant(4.0)
DOUBT_OF_SUM = wp.constant(1.0e-3)
# Most corners of triangles over which winding numbers are summed that the tree leaves in doubt.
MAX_SUMMED = wp.constant(6000)


@wp.func
def change_of_winding(
    border: wp.array2d[wp.vec3], center: wp.vec3, reach: float, enough: float
) -> float:
    """Bound of how much the winding number changes within ``reach``, with no surface in between.

    By Biot and Savart its gradient at p is the integral of dl x r / (4 pi |r|^3) over the border
    of the surface alone. An edge at the distance r or more adds at most
    its length by r^2, and at most pi / r, as an infinite line. Stops at ``enough``.
    """
    change = float(0.0)
    for edge in range(border.shape[0]):
        a = border[edge, 0]
        along = border[edge, 1] - a
        fraction = wp.dot(center - a, along) / wp.max(wp.length_sq(along), 1.0e-30)
        nearest = a + wp.clamp(fraction, 0.0, 1.0) * along
        distance = wp.length(center - nearest) - reach
        if distance <= 1.0e-3 * reach:
            return enough
        change += wp.min(wp.length(along) / distance, wp.pi) / distance * reach / (4.0 * wp.pi)
        if change >= enough:
            break
    return change


@wp.func
def side_of_ball(
    mesh_id: wp.uint64, border: wp.array2d[wp.vec3], center: wp.vec3, reach: float
) -> float:
    """-1 if all points within ``reach`` are inside, 1 if all are outside, 0 if neither is certain.

    Args:
        mesh_id: an open mesh.
        border: (n_edges, 2) ends of the edges at which its surface ends.
        center: of the ball.
        reach: radius of the ball, into which no surface may reach [m].
    """
    # Beyond this change neither can be certain.
    most = 0.5 - doubt_of_tree(WINDING_ACCURACY)
    change = change_of_winding(border, center, reach, most)
    if change >= most:
        return 0.0
    is_small = wp.mesh_get(mesh_id).indices.shape[0] <= MAX_SUMMED
    accuracy = float(WINDING_ACCURACY)
    side = float(0.0)
    is_open = bool(True)
    while is_open:
        excess = winding_number(mesh_id, center, accuracy) - 0.5
        doubt = wp.max(doubt_of_tree(accuracy), DOUBT_OF_SUM)
        if wp.abs(excess) > doubt + change:
            side = -wp.sign(excess)
        is_open = accuracy < SUMMED and wp.abs(excess) <= doubt + change
        # No accuracy tells what is certainly within the change.
        is_open = is_open and wp.abs(excess) + doubt > change
        accuracy = finer_accuracy(mesh_id, accuracy)
        is_open = is_open and (accuracy <= FINEST or is_small)
    return side


@wp.kernel
def fill_open_mesh_grid(
    # operands
    record: wp.array[MeshRecord],  # (1,)
    border: wp.array2d[wp.vec3],  # (n_edges, 2) where the surface ends
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the rows
    # outputs
    values: wp.array3d[wp.float32],  # (nz, ny, nx) signed distance at the centers, or FAR [m]
):
    """One thread per row of cells. Cells that the surface may cross have no value."""
    z, y = wp.tid()
    z += launch_offset[0]
    y += launch_offset[1]
    mesh = record[0]
    grid = mesh.grid
    limit = float(FAR)
    for x in range(grid.shape[0]):
        center = cell_center(grid.origin, grid.cell, x, y, z)
        query = wp.mesh_query_point_no_sign(mesh.mesh_id, center, limit)
        nearest = wp.mesh_eval_position(mesh.mesh_id, query.face, query.u, query.v)
        distance = wp.length(nearest - center)
        limit = (distance + grid.cell) * (WIDEN * WIDEN) + 1.0e-5 * wp.length(center)
        reach = HALF_DIAGONAL * grid.cell + ROUNDING * (wp.length(center) + distance)
        side = float(0.0)
        if distance > reach:
            side = side_of_ball(mesh.mesh_id, border, center, reach)
        values[z, y, x] = wp.where(side == 0.0, FAR, side * distance)

"""Fills the field of an env: lower bounds of its signed distance at the centers of cubic cells.

The walk over the obstacles reads it first, see `is_clear_by_field` in `scene_walk`.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_distance import obstacle_distance
from warp_collision.kernels.mesh_record import FAR, cell_center, distance_to_box
from warp_collision.kernels.precision import NEGLIGIBLE, ROUND_OFF, is_in_range
from warp_collision.kernels.scene_walk import (
    NOTHING_IGNORED,
    Obstacle,
    Scene,
    SceneField,
    make_walk,
    record_of,
)

wp.set_module_options(OPTIONS)

# Fields stay within this distance of the origin [m]: there rounding is negligible for obstacles
# whose frames are within it too.
FIELD_REACH = wp.constant(200.0)
# Rounding of poses and distances, relative to the coordinates; that of the boxes of the tree.
FIELD_ROUNDING = wp.constant(1.0e-5)


@wp.func
def lower_bound(obstacle: Obstacle, point: wp.vec3, least: float) -> float:
    """The smaller of a bound and that of one obstacle; NaN from the first invalid obstacle on.

    Bounds are 1-Lipschitz, and below the signed distance wherever they are positive. The signed
    distance of an open mesh jumps: its bound is the distance to all points that may be inside.
    """
    pose = obstacle.mesh_from_world
    local = wp.transform_point(pose, point)
    origin_distance = wp.length(wp.transform_get_translation(pose))
    if wp.isnan(least) or not is_in_range(local):
        return wp.nan
    if ROUND_OFF * (origin_distance + 2.0 * FIELD_REACH) > NEGLIGIBLE:
        return wp.nan
    record = record_of(obstacle)
    if record.inside_reach > 0.0:
        bound = distance_to_box(local, record.lower, record.upper) - record.inside_reach
        return wp.min(least, bound - obstacle.padding)
    limit = least + obstacle.padding
    sample = obstacle_distance(obstacle.record, local, limit)
    if sample.found:
        return sample.distance - obstacle.padding
    return least


least_bound = make_walk(lower_bound, wp.vec3, float)


@wp.kernel
def fill_scene_field(
    # operands
    scene: Scene,
    env_index: wp.array[wp.int32],  # (1,) which env
    field: wp.array[SceneField],  # (1,) its cells
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the rows
    # outputs
    values: wp.array3d[wp.float32],  # (nz, ny, nx) bounds at the centers of the cells [m]
):
    """One thread per row of cells; the bound of a cell limits the search of the next one."""
    z, y = wp.tid()
    z += launch_offset[0]
    y += launch_offset[1]
    grid = field[0]
    limit = float(FAR)
    for x in range(grid.shape[0]):
        center = cell_center(grid.origin, grid.cell, x, y, z)
        bound = least_bound(scene, env_index[0], NOTHING_IGNORED, center, limit, center, limit)
        rounding = FIELD_ROUNDING * (wp.length(center) + wp.abs(bound) + grid.cell)
        values[z, y, x] = bound - rounding
        limit = float(FAR)
        if bound < 0.5 * FAR:
            limit = bound + grid.cell + 2.0 * rounding

"""Fills the field of an env: lower bounds of its signed distance at the centers of cubic cells.

The walk over the obstacles asks it first, see `is_clear_by_field` in `scene`.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_distance import obstacle_distance
from warp_collision.kernels.mesh_record import FAR, cell_center, distance_to_box
from warp_collision.kernels.precision import NEGLIGIBLE, ROUND_OFF, is_in_range
from warp_collision.kernels.scene import Obstacle, Scene, SceneField, make_walk, record_of

wp.set_module_options(OPTIONS)

# Fields reach no farther from the origin than this [m]. Then rounding is negligible there for
# obstacles whose frames are no farther either.
FIELD_REACH = wp.constant(200.0)
# Rounding of poses and distances, relative to the coordinates, as of the boxes of the tree.
FIELD_ROUNDING = wp.constant(1.0e-5)


@wp.func
def lower_bound(obstacle: Obstacle, point: wp.vec3, least: float) -> float:
    """The least of a bound and that of one obstacle; NaN for good where nothing is known of it.

    A bound changes by no more than the way, and is below the signed distance wherever it is
    positive. That of an open mesh, whose signed distance jumps, is the distance to all places that
    may be inside.
    """
    pose = obstacle.mesh_from_world
    local = wp.transform_point(pose, point)
    away = wp.length(wp.transform_get_translation(pose))
    if wp.isnan(least) or not is_in_range(local):
        return wp.nan
    if ROUND_OFF * (away + 2.0 * FIELD_REACH) > NEGLIGIBLE:
        return wp.nan
    record = record_of(obstacle)
    if record.inside_reach > 0.0:
        bound = distance_to_box(local, record.lower, record.upper) - record.inside_reach
        return wp.min(least, bound - obstacle.padding)
    limit = least + obstacle.padding
    sample = obstacle_distance(obstacle.mesh_id, obstacle.record, local, limit)
    if sample.found:
        return sample.distance - obstacle.padding
    return least


least_bound = make_walk(lower_bound, wp.vec3, float)


@wp.kernel
def fill_scene_field(
    # operands
    scene: Scene,
    env_index: wp.array[wp.int32],  # (1,) which env
    field: wp.array[SceneField],  # (1,) where its cells are
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the rows
    # outputs
    values: wp.array3d[wp.float32],  # (nz, ny, nx) bounds at the centers of the cells [m]
):
    """One thread per row of cells; each cell starts from what the one before it knows."""
    z, y = wp.tid()
    z += launch_offset[0]
    y += launch_offset[1]
    grid = field[0]
    limit = float(FAR)
    for x in range(grid.shape[0]):
        center = cell_center(grid.origin, grid.cell, x, y, z)
        bound = least_bound(scene, env_index[0], center, limit, center, limit)
        rounding = FIELD_ROUNDING * (wp.length(center) + wp.abs(bound) + grid.cell)
        values[z, y, x] = bound - rounding
        limit = float(FAR)
        if bound < 0.5 * FAR:
            limit = bound + grid.cell + 2.0 * rounding

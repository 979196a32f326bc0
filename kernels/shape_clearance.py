"""Smallest clearance of a robot on joint paths by the shapes of its links.

The clearance of a link from an obstacle is the larger one of two: of its spheres, and of its convex
pieces where these are apart. The search is that of `path_clearance`.
"""

import warp as wp

from warp_collision.kernels.body_check import DISTANCE_ROUNDING, BodyCheck, travel
from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.path_clearance import (
    SPLITTING_GAINS,
    Nearest,
    make_clearance_kernel,
    make_clearance_of_segment,
    make_nearest_to_bodies,
    nearer_of_body,
)
from warp_collision.kernels.pieces_over_obstacles import (
    MovingLink,
    bounds_over_obstacle,
    link_in_motion,
)
from warp_collision.kernels.robot_motion import (
    Robot,
    velocity_of,
)
from warp_collision.kernels.scene_walk import Obstacle, Scene, make_walk

wp.set_module_options(FEW_THREADS)


@wp.func
def splits_link(obstacle: Obstacle, check: BodyCheck) -> bool:
    """Whether the pieces of a body move more over the interval than their distance is rounded."""
    interval = check.interval
    spread = wp.max(check.body.spread, check.body.far_piece)
    arm = check.center - check.state.frame_pose.origin
    speed = wp.length(velocity_of(check.state, arm))
    speed += wp.length(check.state.twist.angular) * spread
    size = wp.length(check.center) + wp.length(
        wp.transform_get_translation(obstacle.mesh_from_world)
    )
    error = interval.slack + DISTANCE_ROUNDING * (2.0 * size + spread)
    return travel(interval, speed) > SPLITTING_GAINS * error


@wp.func
def nearer_of_link(obstacle: Obstacle, link: MovingLink, best: Nearest) -> Nearest:
    """Updates the bounds by a body against one obstacle."""
    before = best
    before.is_open = False
    found = nearer_of_body(obstacle, link.check, before)
    is_nearer = found.upper < best.upper
    if wp.isnan(found.upper) or not (is_nearer or found.is_open):
        return kept_open(found, best)
    link.reach = wp.max(best.upper, 0.0)
    bounds = bounds_over_obstacle(obstacle, link)
    if not (bounds[1] > 0.0) or (is_nearer and bounds[2] <= found.upper):
        return kept_open(found, best)
    before.floor = found.floor
    if not is_nearer:
        before.lower = found.lower
    elif bounds[2] < best.upper:
        before.upper = bounds[2]
        before.sphere = found.sphere
        before.other = found.other
    tolerance = link.check.interval.tolerance
    # Where the pieces may touch within the interval, the clearance is that of the spheres there.
    if bounds[0] > 0.0 and bounds[0] >= before.upper - tolerance:
        before.lower = wp.min(before.lower, bounds[0])
    elif found.is_open or splits_link(obstacle, link.check):
        before.is_open = True
    else:
        before.lower = found.lower
    return kept_open(before, best)


@wp.func
def kept_open(found: Nearest, before: Nearest) -> Nearest:
    """Bounds after one obstacle of several, any of which may have left the body open."""
    found.is_open = found.is_open or before.is_open
    return found


nearest_link = make_walk(nearer_of_link, MovingLink, Nearest)


@wp.func
def nearest_to_link(
    check: BodyCheck, robot: Robot, scene: Scene, env: int, reach: float, best: Nearest
) -> Nearest:
    """Updates the bounds by a body against the obstacles of an env."""
    link = MovingLink(robot.pieces, check, 0.0, 0.0)
    return nearest_link(scene, env, check.body.begin, check.center, reach, link, best)


nearest_to_links = make_nearest_to_bodies(link_in_motion, nearest_to_link, "shapes")
clearance_of_shapes = make_clearance_of_segment(nearest_to_links, "shapes")
shape_clearance = make_clearance_kernel(clearance_of_shapes, "shape_clearance", __name__)

"""Bodies of a guarded robot against obstacles: by planes that obstacles are below.

An exact shape is convex: its distance is at least the height over each plane that has all of it
below. Over an interval this height changes by the velocity along the normal, and by half of the
square of the interval's half times the bound of |c''|. So a motion along a surface, or right
towards it, is proven on few intervals, where bounds by the speed take one for each time that the
distance is halved.

What is proven by a plane keeps the tolerance on all of the interval.
"""

import warp as wp

from warp_collision.kernels.bisection import NONE, everything
from warp_collision.kernels.body_check import (
    CLEAR,
    DISTANCE_ROUNDING,
    HIT,
    UNDECIDED,
    BodyCheck,
    Interval,
    body_in_motion,
    check_obstacle,
    deviating,
    reach_of,
    slower_by,
    travel,
)
from warp_collision.kernels.forward_kinematics import point_in_world, xyz
from warp_collision.kernels.joint_path_hit import Open, make_open_bodies, open_pairs
from warp_collision.kernels.mesh_record import ExactShape, is_exact, load_exact
from warp_collision.kernels.precision import is_finite3, is_in_range
from warp_collision.kernels.robot_motion import (
    EPSILON,
    Robot,
    Segment,
    sphere_of,
    velocity_of,
)
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Obstacle, Scene, make_walk
from warp_collision.kernels.shape_distance import (
    height_over_shape,
    height_over_support,
    shape_distance,
)
from warp_collision.kernels.sphere_lanes import near_spheres


@wp.func
def check_sphere(
    obstacle: Obstacle,
    exact: ExactShape,
    check: BodyCheck,
    interval: Interval,
    sphere: wp.vec4,
    error: float,
    is_open: bool,
) -> int:
    """Checks a sphere of a body against an exact shape.

    Args:
        obstacle: with the shape.
        exact: the shape.
        check: the body.
        interval: of its motion among this obstacle.
        sphere: of the body.
        error: rounding of distances [m].
        is_open: only hits are looked for.
    """
    pose = obstacle.mesh_from_world
    center = wp.transform_point(pose, point_in_world(check.state.frame_pose, xyz(sphere)))
    sample = shape_distance(exact, center)
    gap = sample.distance - obstacle.padding - sphere[3]
    if not (gap >= interval.tolerance - error):
        return HIT
    velocity = velocity_of(check.state, check.state.frame_pose.rotation * xyz(sphere))
    speed = wp.length(velocity)
    if is_open or gap >= travel(interval, speed) + error:
        return CLEAR
    height = height_over_support(exact, center, sample.gradient) - obstacle.padding
    along = wp.abs(wp.dot(sample.gradient, wp.transform_vector(pose, velocity)))
    # A sum has the rounding of its terms, a normal that of its length.
    along += 8.0 * EPSILON * speed
    size = wp.length(exact.size) + wp.length(exact.center) + wp.abs(obstacle.padding)
    error += DISTANCE_ROUNDING * size
    if height - sphere[3] >= travel(interval, along) + interval.kept + error:
        return CLEAR
    return UNDECIDED


@wp.func
def check_by_planes(obstacle: Obstacle, check: BodyCheck, verdict: int) -> int:
    """As `check_obstacle`, with planes where spheres move farther than they are away."""
    if verdict == HIT or not is_exact(obstacle.record):
        return check_obstacle(obstacle, check, verdict)
    exact = load_exact(obstacle.record)
    slower = slower_by(check, obstacle.slot)
    interval = deviating(check.interval, -slower)
    moved = check.ball_travel - slower[1]
    body = check.body
    point = wp.transform_point(obstacle.mesh_from_world, check.center)
    if not is_in_range(point):
        return HIT
    size = wp.length(point) + wp.length(check.center)
    error = interval.rounding * size + interval.slack
    needed = interval.tolerance
    if verdict == CLEAR:
        needed = wp.max(moved + error, needed)
    if height_over_shape(exact, point) - obstacle.padding >= body.radius + needed:
        return verdict
    # Of any sphere; lanes may round in another way.
    needed += error + DISTANCE_ROUNDING * size
    needed += interval.half * wp.length(check.state.twist.angular) * body.spread
    for first in range(body.begin, body.end, 8):
        # fmt: off
        near = near_spheres(
            exact, obstacle.mesh_from_world, obstacle.padding, check.state.frame_pose,
            check.spheres, body, first, needed,
        )
        # fmt: on
        for index in range(first, wp.min(first + 8, body.end)):
            sphere = sphere_of(check.spheres, index)
            is_near = near >> wp.uint32(index - first) & wp.uint32(1)
            if is_near != wp.uint32(0) and not (sphere[3] < 0.0):
                is_open = verdict == UNDECIDED
                found = check_sphere(obstacle, exact, check, interval, sphere, error, is_open)
                if found == HIT:
                    return HIT
                verdict = wp.max(verdict, found)
    return verdict


check_all_by_planes = make_walk(check_by_planes, BodyCheck, int)


@wp.func
def check_body_by_planes(check: BodyCheck, robot: Robot, scene: Scene, env: int) -> int:
    """Checks a body against all enabled obstacles of an env."""
    if not is_finite3(check.center):
        return HIT
    first = check.body.begin
    return check_all_by_planes(scene, env, first, check.center, reach_of(check), check, CLEAR)


open_bodies = make_open_bodies(body_in_motion, check_body_by_planes, "planes")


@wp.struct
class OpenParts:
    """Bodies, and pairs of them, that are not certified free over an interval; see `Open`."""

    bodies: wp.uint64
    pairs: wp.uint64
    is_hit: bool


@wp.func
def open_parts(
    segment: Segment,
    interval: Interval,
    scene: Scene,
    env: int,
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    bodies: wp.uint64,
    pairs: wp.uint64,
    goes_on: bool,
    balls: wp.array[wp.vec4],
) -> OpenParts:
    """The requested bodies and pairs that are not certified free, up to a hit or all of them."""
    share = everything()
    world = open_bodies(segment, interval, scene, env, share, bodies, goes_on, balls)
    itself = Open(NONE, False)
    if goes_on or not world.is_hit:
        # fmt: off
        itself = open_pairs(
            segment, interval, body_pairs, left_out, share, pairs, goes_on, balls, bodies
        )
        # fmt: on
    return OpenParts(world.mask, itself.mask, world.is_hit or itself.is_hit)

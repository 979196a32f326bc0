"""Bodies of a guarded robot against obstacles: by planes that obstacles are below.

An exact shape is convex: its distance is at least the height over each plane that has all of it
below. Over an interval this height changes by the velocity along the normal, and by half of the
square of the interval's half times the bound of |c''|. So a motion along a surface, or right
towards it, is proven on few intervals, where bounds by the speed take one for each time that the
distance is halved.

What is proven by a plane keeps the tolerance on all of the interval.
"""

import warp as wp

from warp_collision.kernels.bisection import NONE, bit_of
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
    deviating_body,
    reach_of,
    slower_by,
    travel,
)
from warp_collision.kernels.compiling import runs_on_cpu
from warp_collision.kernels.forward_kinematics import RobotFrame, point_in_world, xyz
from warp_collision.kernels.joint_path_hit import check_pair
from warp_collision.kernels.mesh_record import FAR, ExactShape, is_exact, load_exact
from warp_collision.kernels.motion_lanes import write_motion_bounds
from warp_collision.kernels.precision import is_finite3, is_in_range
from warp_collision.kernels.robot_motion import (
    EPSILON,
    RobotBody,
    Segment,
    body_of,
    error_of_frame,
    joint_bounds,
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
def write_joint_limits(segment: Segment):
    """Keeps for each frame `joint_bounds` over an interval and the error of its joint.

    Where curves keep their bounds: once for all bodies.
    """
    frames = segment.frames
    for k in range(1, segment.robot.n_frames):
        bounds = joint_bounds(segment, k)
        limits = wp.vec3(bounds[0], bounds[1], error_of_frame(segment, k))
        frames[segment.robot.n_frames + k].twist.angular = limits


@wp.func
def write_bounds(segment: Segment, asked: wp.uint64, half: float, bounds: wp.array[wp.vec4]):
    """On a CPU writes `write_motion_bounds` of the bodies asked for, whose root rests."""
    robot = segment.robot
    count = robot.first_body + robot.n_bodies
    chain = wp.array(ptr=robot.frames, shape=(robot.n_frames,), dtype=RobotFrame)
    bodies = wp.array(ptr=robot.bodies, shape=(count,), dtype=RobotBody)
    if runs_on_cpu():
        write_joint_limits(segment)
        write_motion_bounds(segment.frames, chain, bodies, robot, asked, half, bounds)


@wp.func
def bounded_body(
    segment: Segment, body: RobotBody, interval: Interval, bounds: wp.vec4
) -> BodyCheck:
    """As `body_in_motion`; on a CPU with what `write_bounds` has written."""
    if not runs_on_cpu():
        return body_in_motion(segment, body, interval)
    center = point_in_world(segment.frames[body.frame].frame_pose, body.center)
    interval.acceleration_bound = bounds[0]
    return deviating_body(segment, body, center, interval, wp.vec2(bounds[1], bounds[2]))


@wp.struct
class OpenParts:
    """Bodies, and pairs of them, that are not certified free over an interval."""

    bodies: wp.uint64
    pairs: wp.uint64
    is_hit: bool


@wp.func
def open_bodies(
    segment: Segment,
    interval: Interval,
    scene: Scene,
    env: int,
    asked: wp.uint64,
    goes_on: bool,
    balls: wp.array[wp.vec4],
) -> OpenParts:
    """The bodies asked for that are not certified free of obstacles, up to a hit or all of them.

    Writes balls that hold them over the interval, by more than all rounding.
    """
    robot = segment.robot
    result = OpenParts(NONE, NONE, False)
    write_bounds(segment, asked, interval.half, balls)
    for b in range(robot.n_bodies):
        if asked & bit_of(b) != NONE and (goes_on or not result.is_hit):
            body = body_of(robot, b)
            bounds = balls[b]
            balls[b] = wp.vec4(0.0, 0.0, 0.0, -FAR)
            if body.radius >= 0.0:
                check = bounded_body(segment, body, interval, bounds)
                center = check.center
                rounding = interval.rounding * (wp.length(center) + body.spread)
                reach = body.radius + check.ball_travel + interval.slack + rounding
                balls[b] = wp.vec4(center[0], center[1], center[2], reach)
                verdict = int(HIT)
                if is_finite3(center):
                    # fmt: off
                    verdict = check_all_by_planes(
                        scene, env, body.begin, center, reach_of(check), check, CLEAR
                    )
                    # fmt: on
                if verdict != CLEAR:
                    result.bodies = result.bodies | bit_of(b)
                result.is_hit = result.is_hit or verdict == HIT
    return result


@wp.func
def are_beyond(first: wp.vec4, second: wp.vec4, buffer: float) -> bool:
    """Whether balls are farther apart than a buffer, by more than the rounding of their offset."""
    offset = xyz(first) - xyz(second)
    reach = (1.0 + DISTANCE_ROUNDING) * (first[3] + second[3] + buffer)
    return reach < 0.0 or wp.dot(offset, offset) > reach * reach


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
    result = open_bodies(segment, interval, scene, env, bodies, goes_on, balls)
    for k in range(body_pairs.shape[0]):
        if pairs & bit_of(k) != NONE and (goes_on or not result.is_hit):
            pair = body_pairs[k]
            both = bit_of(pair.first) | bit_of(pair.second)
            if bodies & both == both:
                buffer = pair.buffer + interval.tolerance
                if are_beyond(balls[pair.first], balls[pair.second], buffer):
                    continue
            verdict = check_pair(segment, pair, interval, left_out)
            if verdict != CLEAR:
                result.pairs = result.pairs | bit_of(k)
            result.is_hit = result.is_hit or verdict == HIT
    return result

"""Bodies of a robot against the obstacles of an env, at rest and over an interval of a motion."""

import warp as wp

from warp_collision.kernels.forward_kinematics import FramePose, point_in_world, xyz
from warp_collision.kernels.mesh_distance import SdfSample, distance_of_obstacle, is_nearer
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.precision import is_finite3, is_in_range, uncertainty
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    RobotBody,
    Segment,
    acceleration_bound,
    sphere_of,
    tracking_deviation,
    velocity_of,
)
from warp_collision.kernels.scene_walk import Obstacle, Scene, is_hit, make_walk, record_of

# Results of a check.
CLEAR = wp.constant(0)  # proven free
UNDECIDED = wp.constant(1)
HIT = wp.constant(2)  # clearance below the tolerance at the configuration, or not finite

# Rounding of distances, relative to the coordinates from which they are computed.
DISTANCE_ROUNDING = wp.constant(1.0e-6)


@wp.struct
class Interval:
    """An interval of a segment around a configuration, and the bounds that a check needs."""

    half: float  # of its length
    acceleration_bound: float  # bound of |c''| of all spheres of the body
    slack: float  # rounding of the spheres' positions [m]
    rounding: float  # of distances, relative to coordinates; 0 at rest, as in `in_collision`
    tolerance: float  # [m], a clearance below it may count as a collision
    middle: float  # position of the configuration on the segment
    closing: wp.vec2  # how far obstacles may move until its middle, and until its end [m]
    deviation: float  # bound of how far bodies are from where joints say, see `deviating` [m]
    kept: float  # the tolerance without that, which `check_by_planes` keeps on all of it [m]


@wp.func
def interval_around(
    middle: float, half: float, slack: float, rounding: float, tolerance: float
) -> Interval:
    """An interval of a motion that is followed exactly, among obstacles at rest."""
    still = wp.vec2(0.0)
    return Interval(half, 0.0, slack, rounding, tolerance, middle, still, 0.0, tolerance)


@wp.func
def deviating(interval: Interval, deviation: wp.vec2) -> Interval:
    """The interval for a body that may be elsewhere than the joint values say.

    Args:
        interval: of exact motion.
        deviation: by how much, at the configuration and on all of the interval [m].
    """
    interval.tolerance += deviation[0]
    interval.deviation += deviation[1]
    return interval


@wp.func
def travel(interval: Interval, speed: float) -> float:
    """Largest displacement of a point over an interval, from its position in the middle.

    With the deviation from that motion.
    """
    motion = interval.half * (speed + 0.5 * interval.half * interval.acceleration_bound)
    return interval.deviation + motion


@wp.struct
class BodyCheck:
    """A body at a configuration, and the interval to check."""

    spheres: wp.uint64  # pointer, see `Robot`
    body: RobotBody
    state: MovingFrame
    center: wp.vec3  # of the body's ball, in the world
    ball_travel: float  # of that center over the interval [m]
    interval: Interval
    speeds: wp.uint64  # of obstacles, see `Segment`


@wp.func
def slower_by(check: BodyCheck, slot: int) -> wp.vec2:
    """By how much less an obstacle may move than the fastest one; see `closing`.

    But for a millionth, which covers the rounding of what is taken back.
    """
    if check.speeds == wp.uint64(0):
        return wp.vec2(0.0)
    share = wp.array(ptr=check.speeds, shape=(slot + 1,), dtype=wp.float32)[slot]
    return (1.0 - share) * (1.0 - DISTANCE_ROUNDING) * check.interval.closing


@wp.func
def deviating_body(
    segment: Segment, body: RobotBody, center: wp.vec3, interval: Interval, deviation: wp.vec2
) -> BodyCheck:
    """A body over an interval, with what it deviates by: see `tracking_deviation`."""
    state = segment.frames[body.frame]
    interval = deviating(interval, deviation + interval.closing)
    speed = wp.length(velocity_of(state, center - state.frame_pose.origin))
    # fmt: off
    return BodyCheck(
        segment.robot.spheres, body, state, center, travel(interval, speed), interval,
        segment.speeds,
    )
    # fmt: on


@wp.func
def body_in_motion(segment: Segment, body: RobotBody, interval: Interval) -> BodyCheck:
    """A body at the configuration of a segment's frames, in the middle of an interval."""
    center = point_in_world(segment.frames[body.frame].frame_pose, body.center)
    if interval.half > 0.0:
        interval.acceleration_bound = acceleration_bound(segment, body, center, 0, interval.half)
    deviation = tracking_deviation(segment, body, center, 0, interval.half)
    return deviating_body(segment, body, center, interval, deviation)


@wp.func
def padded_distance(obstacle: Obstacle, point: wp.vec3, limit: float) -> SdfSample:
    """Signed distance of an obstacle, lowered by its padding; found where below ``limit``."""
    sample = distance_of_obstacle(obstacle.record, point, limit + obstacle.padding)
    sample.distance -= obstacle.padding
    return sample


@wp.func
def ball_distance(obstacle: Obstacle, center: wp.vec3, limit: float) -> float:
    """Signed distance at the center of a ball where it is below a limit, else the limit.

    -FAR for open meshes, whose signed distance is not Lipschitz: it jumps away from the surface.
    """
    if record_of(obstacle).inside_reach > 0.0:
        return -FAR
    sample = padded_distance(obstacle, center, limit)
    return wp.where(sample.found, sample.distance, limit)


@wp.func
def check_obstacle(obstacle: Obstacle, check: BodyCheck, verdict: int) -> int:
    """Checks a body against one obstacle: its ball first, then its spheres."""
    if verdict == HIT:
        return HIT
    interval = check.interval
    slower = slower_by(check, obstacle.slot)
    interval = deviating(interval, -slower)
    ball_travel = check.ball_travel - slower[1]
    body = check.body
    point = wp.transform_point(obstacle.mesh_from_world, check.center)
    if not is_in_range(point):
        return HIT
    size = wp.length(point) + wp.length(check.center)
    error = interval.rounding * size + interval.slack
    needed = interval.tolerance
    if verdict == CLEAR:
        needed = wp.max(ball_travel + error, needed)
    reach = body.radius + needed
    ball = ball_distance(obstacle, point, reach)
    if ball >= reach:
        return verdict
    # If the body moves farther than its size, its spheres give no better bound over the interval
    # than its ball; they still decide whether it collides at the configuration, as they do where
    # something else has left it undecided.
    moved = ball_travel - interval.deviation
    is_coarse = verdict == UNDECIDED or (moved > body.radius and ball > -FAR)
    if is_coarse:
        verdict = UNDECIDED
        if ball > body.radius + interval.tolerance:
            return verdict
    frame_pose = check.state.frame_pose
    for index in range(body.begin, body.end):
        sphere = sphere_of(check.spheres, index)
        if not (sphere[3] < 0.0):
            local = xyz(sphere)
            needed = interval.tolerance - error
            if not is_coarse:
                speed = wp.length(velocity_of(check.state, frame_pose.rotation * local))
                needed = wp.max(needed, travel(interval, speed) + error)
            limit = sphere[3] + needed
            if ball - wp.length(local - body.center) < limit + DISTANCE_ROUNDING * size:
                center = point_in_world(frame_pose, local)
                center = wp.transform_point(obstacle.mesh_from_world, center)
                sample = padded_distance(obstacle, center, limit)
                if sample.found:
                    verdict = UNDECIDED
                    is_coarse = True
                    if sample.distance < sphere[3] + interval.tolerance - error:
                        return HIT
                    if ball > body.radius + interval.tolerance:
                        return verdict
    return verdict


check_obstacles = make_walk(check_obstacle, BodyCheck, int)


@wp.func
def reach_of(check: BodyCheck) -> float:
    """Within what distance of the center of a body obstacles matter [m]."""
    interval = check.interval
    reach = check.body.radius + wp.max(check.ball_travel, interval.tolerance)
    return reach + DISTANCE_ROUNDING * wp.length(check.center) + interval.slack


@wp.func
def check_body(check: BodyCheck, scene: Scene, env: int) -> int:
    """Checks a body against all enabled obstacles of an env."""
    center = check.center
    if not is_finite3(center):
        return HIT
    return check_obstacles(scene, env, check.body.begin, center, reach_of(check), check, CLEAR)


@wp.struct
class RestingBody:
    """A body at a configuration."""

    spheres: wp.uint64  # pointer, see `Robot`
    body: RobotBody
    frame_pose: FramePose
    center: wp.vec3  # of the body's ball, in the world


@wp.func
def touches_body(obstacle: Obstacle, resting: RestingBody, hit: bool) -> bool:
    """Whether an obstacle touches a sphere of a body, after a check of its ball."""
    body = resting.body
    pose = obstacle.mesh_from_world
    point = wp.transform_point(pose, resting.center)
    if not is_in_range(point):
        return True
    # As in `touches` of single spheres.
    far = wp.length(resting.center) + body.radius + wp.length(wp.transform_get_translation(pose))
    rounding = uncertainty(far, 0.0)
    ball = ball_distance(obstacle, point, body.radius + rounding)
    if ball >= body.radius + rounding:
        return False
    error = DISTANCE_ROUNDING * (wp.length(point) + wp.length(resting.center)) + rounding
    for index in range(body.begin, body.end):
        sphere = sphere_of(resting.spheres, index)
        if not (sphere[3] < 0.0):
            local = xyz(sphere)
            if ball - wp.length(local - body.center) < sphere[3] + error:
                center = wp.transform_point(pose, point_in_world(resting.frame_pose, local))
                limit = sphere[3] + obstacle.padding + rounding
                if is_nearer(obstacle.record, center, limit):
                    return True
    return False


touches_resting = make_walk(touches_body, RestingBody, bool, is_hit)


@wp.func
def body_collides(
    robot: Robot, body: RobotBody, frame_pose: FramePose, center: wp.vec3, scene: Scene, env: int
) -> bool:
    """Whether a body touches an enabled obstacle of an env, or is not finite."""
    if not is_finite3(center):
        return True
    resting = RestingBody(robot.spheres, body, frame_pose, center)
    return touches_resting(scene, env, body.begin, center, body.radius, resting, False)

"""Checks bodies of a robot against each other, at rest and over an interval of a motion.

Joints common to two bodies do not move them relative to each other: both are considered in the
frame of their common ancestor. To first order the distance of two centers changes at the rate of
their offset along its own direction.
"""

import warp as wp

from warp_collision.kernels.body_check import CLEAR, HIT, UNDECIDED, Interval, travel
from warp_collision.kernels.convex_pieces import Separation, piece_at, separation
from warp_collision.kernels.kinematics import FramePose, Twist, point_in_world, xyz
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    Segment,
    acceleration_bound,
    body_of,
    group_ball,
    group_span,
    n_groups_of,
    sphere_of,
    velocity_of,
)
from warp_collision.kernels.self_collision import is_listed

# Rounding of the distance of convex pieces, relative to the coordinates of their balls.
PIECE_ROUNDING = wp.constant(2.0e-6)


@wp.struct
class BodyPair:
    """Two bodies to check against each other."""

    first: int
    second: int
    begin: int  # of their pairs of spheres that are left out, which are sorted
    end: int  # behind the last of them
    ancestor: int  # deepest common ancestor of their frames
    buffer: float  # minimum clearance of their spheres [m]


@wp.func
def is_left_out(pair: BodyPair, left_out: wp.array[wp.vec2i], a: int, b: int) -> bool:
    """Whether a pair of spheres of two bodies is not checked."""
    return is_listed(left_out, pair.begin, pair.end, a, b)


@wp.func
def pair_acceleration_bound(segment: Segment, pair: BodyPair, half: float) -> float:
    """Bound of the second derivative of offsets between two bodies; see `acceleration_bound`.

    Of their spheres and of their convex pieces.
    """
    one = body_of(segment.robot, pair.first)
    other = body_of(segment.robot, pair.second)
    one.spread = wp.max(one.spread, one.far_piece)
    other.spread = wp.max(other.spread, other.far_piece)
    here = point_in_world(segment.frames[one.frame].frame_pose, one.center)
    there = point_in_world(segment.frames[other.frame].frame_pose, other.center)
    bound = acceleration_bound(segment, one, here, pair.ancestor, half)
    return bound + acceleration_bound(segment, other, there, pair.ancestor, half)


@wp.func
def approach(
    interval: Interval,
    first: MovingFrame,
    second: MovingFrame,
    ancestor: MovingFrame,
    here: wp.vec3,
    there: wp.vec3,
) -> wp.vec2:
    """Returns (distance, lower bound of it over the interval) of two points, one of each frame."""
    offset = here - there
    distance = wp.length(offset)
    rate = velocity_of(first, here - first.frame_pose.origin)
    rate -= velocity_of(second, there - second.frame_pose.origin)
    rate -= wp.cross(ancestor.twist.angular, offset)
    speed = wp.length(rate)
    if distance > 0.0:
        speed = wp.abs(wp.dot(rate, offset)) / distance
    least = distance - interval.half * (speed + 0.5 * interval.half * interval.acceleration_bound)
    error = 2.0 * interval.slack + interval.rounding * (wp.length(here) + wp.length(there))
    return wp.vec2(distance + error, least - error)


@wp.func
def farthest_approach(
    interval: Interval,
    first: MovingFrame,
    second: MovingFrame,
    ancestor: MovingFrame,
    spread: float,
    here: wp.vec3,
    there: wp.vec3,
) -> float:
    """Bound of how much any two spheres of two bodies approach over an interval, with rounding.

    Args:
        interval: the interval.
        first: frame of one body.
        second: frame of the other.
        ancestor: deepest common ancestor of both frames.
        spread: sum of the spreads of both bodies [m].
        here: center of the ball of the first body.
        there: center of the ball of the other.
    """
    size = wp.length(here) + wp.length(there) + spread
    error = 2.0 * interval.slack + interval.rounding * size
    if interval.half == 0.0:
        return error
    rate = velocity_of(first, here - first.frame_pose.origin)
    rate -= velocity_of(second, there - second.frame_pose.origin)
    rate -= wp.cross(ancestor.twist.angular, here - there)
    angular = wp.length(first.twist.angular - ancestor.twist.angular)
    angular += wp.length(second.twist.angular - ancestor.twist.angular)
    return travel(interval, wp.length(rate) + angular * spread) + error


@wp.struct
class PairMotion:
    """Two bodies at a configuration, and the interval to check."""

    pair: BodyPair
    first: MovingFrame
    second: MovingFrame
    ancestor: MovingFrame
    interval: Interval
    margin: float  # bound of how much any two of their spheres approach [m]


@wp.func
def check_groups(
    spheres: wp.uint64,
    motion: PairMotion,
    left_out: wp.array[wp.vec2i],
    span: wp.vec2i,
    other_span: wp.vec2i,
    there: wp.vec3,
    radius: float,
) -> int:
    """Checks the spheres of a group of the first body with those of one of the second.

    Args:
        spheres: pointer, see `Robot`.
        motion: the bodies.
        left_out: pairs of spheres that are not checked.
        span: begin and end of the spheres of the first group.
        other_span: of the other one.
        there: center of the ball of the other group, in the world.
        radius: of that ball.
    """
    verdict = int(CLEAR)
    interval = motion.interval
    margin = float(motion.margin)
    for index in range(span[0], span[1]):
        a = sphere_of(spheres, index)
        here = point_in_world(motion.first.frame_pose, xyz(a))
        own = a[3] + motion.pair.buffer
        # A sphere far from the ball of the other group is far from all of its spheres.
        if not (a[3] < 0.0 or wp.length(here - there) > own + radius + margin):
            for other in range(other_span[0], other_span[1]):
                b = sphere_of(spheres, other)
                center = point_in_world(motion.second.frame_pose, xyz(b))
                offset = here - center
                reach = own + b[3] + margin
                is_far = b[3] < 0.0 or wp.dot(offset, offset) > reach * reach
                if not (is_far or is_left_out(motion.pair, left_out, index, other)):
                    gap = approach(
                        interval, motion.first, motion.second, motion.ancestor, here, center
                    )
                    if not (gap[0] >= own + b[3] + interval.tolerance):
                        return HIT
                    if not (gap[1] > own + b[3]):
                        # Now only spheres that touch at the configuration are looked for.
                        verdict = UNDECIDED
                        margin = interval.tolerance
    return verdict


@wp.func
def gap_of_balls(
    pair: BodyPair, robot: Robot, first: wp.vec4, second: wp.vec4, interval: Interval
) -> wp.vec2:
    """Clearance of the balls of two bodies [m], and by how much the bodies may come nearer.

    By how far each of them moves. FAR without spheres.

    Args:
        pair: of the bodies.
        robot: the robot.
        first: center of the ball in the middle of the interval, and how far it moves from there.
        second: the same of the other body.
        interval: the interval.
    """
    here = xyz(first)
    there = xyz(second)
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    if one.radius < 0.0 or other.radius < 0.0:
        return wp.vec2(FAR, 0.0)
    size = wp.length(here) + wp.length(there) + one.spread + other.spread
    margin = first[3] + second[3] + 2.0 * interval.slack + interval.rounding * size
    return wp.vec2(wp.length(here - there) - one.radius - other.radius - pair.buffer, margin)


@wp.func
def relative_pose(first: FramePose, second: FramePose) -> FramePose:
    """Pose of a frame in another one."""
    second_from_world = wp.transpose(second.rotation)
    return FramePose(
        second_from_world * first.rotation, second_from_world * (first.origin - second.origin)
    )


@wp.func
def piece_margin(robot: Robot, motion: PairMotion) -> float:
    """Bound of how much any two points of the pieces of two bodies approach, with rounding [m]."""
    one = body_of(robot, motion.pair.first)
    other = body_of(robot, motion.pair.second)
    here = point_in_world(motion.first.frame_pose, one.center)
    there = point_in_world(motion.second.frame_pose, other.center)
    spread = one.far_piece + other.far_piece
    return farthest_approach(
        motion.interval, motion.first, motion.second, motion.ancestor, spread, here, there
    )


@wp.func
def approach_along(
    motion: PairMotion, found: Separation, here: wp.vec4, there: wp.vec4, error: float
) -> float:
    """Bound of how much two pieces approach along the direction that separates them [m].

    Args:
        motion: the bodies.
        found: of the pieces.
        here: ball around the first piece, in the world.
        there: ball around the second one.
        error: rounding of their distance [m].
    """
    interval = motion.interval
    if interval.half == 0.0:
        return error
    normal = motion.second.frame_pose.rotation * found.normal
    arm = xyz(here) - motion.first.frame_pose.origin
    other_arm = xyz(there) - motion.second.frame_pose.origin
    turning = motion.ancestor.twist.angular
    rate = velocity_of(motion.first, arm) - velocity_of(motion.second, other_arm)
    rate -= wp.cross(turning, xyz(here) - xyz(there))
    speed = wp.abs(wp.dot(normal, rate))
    speed += here[3] * wp.length(wp.cross(normal, motion.first.twist.angular - turning))
    speed += there[3] * wp.length(wp.cross(normal, motion.second.twist.angular - turning))
    return travel(interval, speed) + error


@wp.func
def ball_in_world(frame_pose: FramePose, ball: wp.vec4) -> wp.vec4:
    """A ball of a frame."""
    center = point_in_world(frame_pose, xyz(ball))
    return wp.vec4(center[0], center[1], center[2], ball[3])


@wp.func
def bounds_of_pieces(robot: Robot, motion: PairMotion, needed: float, least: float) -> wp.vec3:
    """Bounds of the distance of the convex pieces of two bodies, less the buffer [m].

    A lower one over the interval, and a lower and an upper one at the configuration. Without pieces
    the lower ones are -FAR.

    Args:
        robot: the robot.
        motion: the bodies.
        needed: pieces that are farther over the interval do not matter [m].
        least: pieces that are nearer at the configuration end the search; at most `needed` [m].
    """
    pair = motion.pair
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    if one.n_pieces == 0 or other.n_pieces == 0:
        return wp.vec3(-FAR, -FAR, -FAR)
    margin = piece_margin(robot, motion)
    relative = relative_pose(motion.first.frame_pose, motion.second.frame_pose)
    low = float(FAR)
    lower = float(FAR)
    upper = float(FAR)
    row = int(one.first_piece)
    for _p in range(one.n_pieces):
        a = piece_at(robot.pieces, row)
        row = a.end
        here = ball_in_world(motion.first.frame_pose, a.ball)
        other_row = int(other.first_piece)
        for _q in range(other.n_pieces):
            b = piece_at(robot.pieces, other_row)
            other_row = b.end
            there = ball_in_world(motion.second.frame_pose, b.ball)
            gap = wp.length(xyz(here) - xyz(there)) - here[3] - there[3] - pair.buffer
            if gap - margin > needed:
                low = wp.min(low, gap - margin)
                lower = wp.min(lower, gap)
            else:
                enough = needed + margin + pair.buffer
                found = separation(robot.pieces, a, b, relative, enough, least + pair.buffer)
                size = wp.length(xyz(here)) + wp.length(xyz(there)) + here[3] + there[3]
                error = 2.0 * motion.interval.slack + PIECE_ROUNDING * size
                moved = approach_along(motion, found, here, there, error)
                if not (moved < FAR):
                    return wp.vec3(-FAR, -FAR, -FAR)
                low = wp.min(low, found.lower - moved - pair.buffer)
                lower = wp.min(lower, found.lower - error - pair.buffer)
                upper = wp.min(upper, found.upper + error - pair.buffer)
                if not (lower > least):
                    return wp.vec3(low, lower, upper)
    return wp.vec3(low, lower, upper)


@wp.func
def check_pieces(robot: Robot, motion: PairMotion, verdict: int) -> int:
    """What is found by the convex pieces of two bodies, whose spheres are not proven free."""
    tolerance = motion.interval.tolerance
    found = bounds_of_pieces(robot, motion, tolerance, tolerance)
    if found[1] > tolerance:
        return wp.where(found[0] > 0.0, CLEAR, UNDECIDED)
    return verdict


@wp.func
def pair_at_rest(pair: BodyPair, first: FramePose, second: FramePose) -> PairMotion:
    """Two bodies that do not move."""
    still = Twist(wp.vec3(0.0), wp.vec3(0.0))
    one = MovingFrame(first, still)
    interval = Interval(0.0, 0.0, 0.0, PIECE_ROUNDING, 0.0, 0.0)
    return PairMotion(pair, one, MovingFrame(second, still), one, interval, 0.0)


@wp.func
def are_pieces_apart(robot: Robot, pair: BodyPair, first: FramePose, second: FramePose) -> bool:
    """Whether two bodies at rest are proven apart by their convex pieces."""
    return check_pieces(robot, pair_at_rest(pair, first, second), HIT) == CLEAR


@wp.func
def check_body_pair(
    robot: Robot,
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    first: MovingFrame,
    second: MovingFrame,
    ancestor: MovingFrame,
    interval: Interval,
) -> int:
    """Checks two bodies by their spheres, and where these are not proven free by their pieces."""
    verdict = check_spheres(robot, pair, left_out, first, second, ancestor, interval)
    if verdict == CLEAR:
        return CLEAR
    return check_pieces(robot, PairMotion(pair, first, second, ancestor, interval, 0.0), verdict)


@wp.func
def check_spheres(
    robot: Robot,
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    first: MovingFrame,
    second: MovingFrame,
    ancestor: MovingFrame,
    interval: Interval,
) -> int:
    """Checks two bodies: their balls first, then those of their groups, then the spheres."""
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    here = point_in_world(first.frame_pose, one.center)
    there = point_in_world(second.frame_pose, other.center)
    spread = one.spread + other.spread
    margin = farthest_approach(interval, first, second, ancestor, spread, here, there)
    margin = wp.max(margin, interval.tolerance)
    gap_of_balls = wp.length(here - there) - one.radius - other.radius - pair.buffer
    if gap_of_balls > margin:
        return CLEAR
    motion = PairMotion(pair, first, second, ancestor, interval, margin)
    verdict = int(CLEAR)
    for g in range(n_groups_of(one)):
        ball = group_ball(robot, one, g)
        here = point_in_world(first.frame_pose, xyz(ball))
        reach = ball[3] + pair.buffer + margin
        if not (ball[3] < 0.0 or wp.length(here - there) > reach + other.radius):
            for h in range(n_groups_of(other)):
                near = group_ball(robot, other, h)
                center = point_in_world(second.frame_pose, xyz(near))
                if not (near[3] < 0.0 or wp.length(here - center) > reach + near[3]):
                    span = group_span(one, g)
                    other_span = group_span(other, h)
                    found = check_groups(
                        robot.spheres, motion, left_out, span, other_span, center, near[3]
                    )
                    if found == HIT or (found == UNDECIDED and gap_of_balls > interval.tolerance):
                        return found
                    verdict = wp.max(verdict, found)
    return verdict

"""Checks bodies of a robot against each other, at rest and over an interval of a motion.

Joints common to two bodies do not move them relative to each other: both are considered in the
frame of their common ancestor. To first order the distance of two centers changes at the rate of
their offset along its own direction.
"""

import warp as wp

from warp_collision.kernels.body_check import CLEAR, HIT, UNDECIDED, Interval, travel
from warp_collision.kernels.kinematics import point_in_world, xyz
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    Segment,
    acceleration_bound,
    body_of,
    sphere_of,
    velocity_of,
)


@wp.struct
class BodyPair:
    """Two bodies to check against each other."""

    first: int
    second: int
    begin: int  # first pair of spheres; pairs are sorted
    end: int  # behind the last pair of spheres
    ancestor: int  # deepest common ancestor of their frames
    buffer: float  # minimum clearance of their spheres [m]


@wp.func
def next_sphere(pair: BodyPair, pairs: wp.array[wp.vec2i], p: int, end: int) -> int:
    """The next pair to check after pair p, whose first sphere is far from the second body.

    If that sphere has a pair with each sphere of the second body, whose last one is before ``end``,
    all of them are skipped.
    """
    last = p + end - 1 - pairs[p][1]
    if last > p and last < pair.end and pairs[last][0] == pairs[p][0]:
        return last + 1
    return p + 1


@wp.func
def pair_acceleration_bound(segment: Segment, pair: BodyPair, half: float) -> float:
    """Bound of the second derivative of offsets between two bodies; see `acceleration_bound`."""
    one = body_of(segment.robot, pair.first)
    other = body_of(segment.robot, pair.second)
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


@wp.func
def balls_stay_apart(
    pair: BodyPair, robot: Robot, first: wp.vec4, second: wp.vec4, interval: Interval
) -> bool:
    """Whether the balls of two bodies are proven apart by how far each of them moves.

    True without spheres.

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
        return True
    size = wp.length(here) + wp.length(there) + one.spread + other.spread
    margin = first[3] + second[3] + 2.0 * interval.slack + interval.rounding * size
    reach = one.radius + other.radius + pair.buffer + wp.max(margin, interval.tolerance)
    return wp.length_sq(here - there) > reach * reach


@wp.func
def check_body_pair(
    robot: Robot,
    pair: BodyPair,
    pairs: wp.array[wp.vec2i],
    first: MovingFrame,
    second: MovingFrame,
    ancestor: MovingFrame,
    interval: Interval,
) -> int:
    """Checks two bodies: their balls first, then their pairs of spheres."""
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
    verdict = int(CLEAR)
    index = int(-1)
    is_near = bool(False)
    radius = float(0.0)
    p = int(pair.begin)
    while p < pair.end:
        if pairs[p][0] != index:
            index = pairs[p][0]
            a = sphere_of(robot.spheres, index)
            radius = a[3] + pair.buffer
            here = point_in_world(first.frame_pose, xyz(a))
            # A sphere far from the other body's ball is far from all of its spheres.
            is_near = not (a[3] < 0.0)
            if wp.length(here - there) > radius + other.radius + margin:
                is_near = False
        if is_near:
            b = sphere_of(robot.spheres, pairs[p][1])
            center = point_in_world(second.frame_pose, xyz(b))
            offset = here - center
            reach = radius + b[3] + margin
            if not (b[3] < 0.0 or wp.dot(offset, offset) > reach * reach):
                gap = approach(interval, first, second, ancestor, here, center)
                if not (gap[0] >= radius + b[3] + interval.tolerance):
                    return HIT
                if not (gap[1] > radius + b[3]):
                    # From here on only spheres that touch at the configuration are looked for.
                    verdict = UNDECIDED
                    margin = interval.tolerance
                    if gap_of_balls > margin:
                        return verdict
            p += 1
        else:
            p = next_sphere(pair, pairs, p, other.end)
    return verdict

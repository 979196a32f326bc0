"""Checks bodies of a robot against each other, at rest and over an interval of a motion.

Joints common to two bodies do not move them relative to each other: both are considered in the
frame of their common ancestor. To first order the distance of two centers changes at the rate of
their offset along its own direction.
"""

import warp as wp

from warp_collision.kernels.body_check import (
    CLEAR,
    HIT,
    UNDECIDED,
    Interval,
    deviating,
    interval_around,
    travel,
)
from warp_collision.kernels.compiling import compiled_once
from warp_collision.kernels.forward_kinematics import FramePose, Twist, point_in_world, xyz
from warp_collision.kernels.link_surfaces import (
    TreeWalk,
    advanced,
    descended,
    gap_of_boxes,
    has_part_inside,
    is_at_leaves,
    node_row,
    surface_at,
)
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.pair_cost import is_listed
from warp_collision.kernels.piece_separation import Piece, Separation, piece_at, row_of, separation
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
    tracking_deviation,
    velocity_of,
)

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
    buffer: float  # minimum clearance of their spheres, negative if they may overlap [m]


@wp.func
def is_left_out(pair: BodyPair, left_out: wp.array[wp.vec2i], a: int, b: int) -> bool:
    """Whether a pair of spheres of two bodies is not checked."""
    return is_listed(left_out, pair.begin, pair.end, a, b)


@wp.func
def interval_of_pair(segment: Segment, pair: BodyPair, interval: Interval) -> Interval:
    """An interval with bounds of the offsets between two bodies, in the frame of their ancestor.

    Of their second derivative and their deviation, for spheres and for convex pieces.
    """
    one = body_of(segment.robot, pair.first)
    other = body_of(segment.robot, pair.second)
    one.spread = wp.max(one.spread, one.far_piece)
    other.spread = wp.max(other.spread, other.far_piece)
    here = point_in_world(segment.frames[one.frame].frame_pose, one.center)
    there = point_in_world(segment.frames[other.frame].frame_pose, other.center)
    half = interval.half
    bound = acceleration_bound(segment, one, here, pair.ancestor, half)
    interval.acceleration_bound = bound + acceleration_bound(
        segment, other, there, pair.ancestor, half
    )
    deviation = tracking_deviation(segment, one, here, pair.ancestor, half)
    deviation += tracking_deviation(segment, other, there, pair.ancestor, half)
    return deviating(interval, deviation)


@wp.struct
class PairMotion:
    """Two bodies at a configuration, and the interval to check."""

    pair: BodyPair
    first: MovingFrame
    second: MovingFrame
    turning: wp.vec3  # angular velocity of the deepest common ancestor of both
    interval: Interval


@wp.func
def motion_of_pair(segment: Segment, pair: BodyPair, interval: Interval) -> PairMotion:
    """Two bodies at the configuration of a segment's frames, in the middle of an interval."""
    interval = interval_of_pair(segment, pair, interval)
    first = segment.frames[body_of(segment.robot, pair.first).frame]
    second = segment.frames[body_of(segment.robot, pair.second).frame]
    turning = segment.frames[pair.ancestor].twist.angular
    return PairMotion(pair, first, second, turning, interval)


@wp.func
def rate_of_offset(motion: PairMotion, here: wp.vec3, there: wp.vec3) -> wp.vec3:
    """Rate of the offset of two points, one of each body, in the frame of their ancestor."""
    rate = velocity_of(motion.first, here - motion.first.frame_pose.origin)
    rate -= velocity_of(motion.second, there - motion.second.frame_pose.origin)
    return rate - wp.cross(motion.turning, here - there)


@wp.func
def approach(motion: PairMotion, here: wp.vec3, there: wp.vec3) -> wp.vec2:
    """Returns (distance, lower bound of it over the interval) of two points, one of each body."""
    interval = motion.interval
    offset = here - there
    distance = wp.length(offset)
    rate = rate_of_offset(motion, here, there)
    speed = wp.length(rate)
    if distance > 0.0:
        speed = wp.abs(wp.dot(rate, offset)) / distance
    least = distance - travel(interval, speed)
    error = 2.0 * interval.slack + interval.rounding * (wp.length(here) + wp.length(there))
    return wp.vec2(distance + error, least - error)


@wp.struct
class PairBalls:
    """The balls of two bodies at a configuration."""

    gap: float  # clearance of the balls [m]
    speed: float  # of the offset of their centers, in the frame of the ancestor [m]
    turn: float  # sum of the angular speeds of both bodies there [rad]
    size: float  # sum of the distances of the centers from the origin [m]


@wp.func
def balls_of_pair(robot: Robot, motion: PairMotion) -> PairBalls:
    """The balls of two bodies."""
    one = body_of(robot, motion.pair.first)
    other = body_of(robot, motion.pair.second)
    here = point_in_world(motion.first.frame_pose, one.center)
    there = point_in_world(motion.second.frame_pose, other.center)
    turn = wp.length(motion.first.twist.angular - motion.turning)
    turn += wp.length(motion.second.twist.angular - motion.turning)
    return PairBalls(
        wp.length(here - there) - one.radius - other.radius - motion.pair.buffer,
        wp.length(rate_of_offset(motion, here, there)),
        turn,
        wp.length(here) + wp.length(there),
    )


@wp.func
def farthest_approach(interval: Interval, balls: PairBalls, spread: float) -> wp.vec2:
    """How much any two points of two bodies approach over an interval: a bound, and its rounding.

    Args:
        interval: the interval.
        balls: of the bodies.
        spread: sum of the largest distances of the points from the centers of the balls [m].
    """
    error = 2.0 * interval.slack + interval.rounding * (balls.size + spread)
    if interval.half == 0.0:
        return wp.vec2(interval.deviation + error, error)
    return wp.vec2(travel(interval, balls.speed + balls.turn * spread) + error, error)


@wp.func
def approach_of_spheres(robot: Robot, motion: PairMotion, balls: PairBalls) -> wp.vec2:
    """How much any two spheres of two bodies approach; see `farthest_approach`."""
    one = body_of(robot, motion.pair.first)
    other = body_of(robot, motion.pair.second)
    return farthest_approach(motion.interval, balls, one.spread + other.spread)


@wp.func
def approach_of_pieces(robot: Robot, motion: PairMotion, balls: PairBalls) -> wp.vec2:
    """How much any two points of the convex pieces of two bodies approach."""
    one = body_of(robot, motion.pair.first)
    other = body_of(robot, motion.pair.second)
    return farthest_approach(motion.interval, balls, one.far_piece + other.far_piece)


@wp.func
def check_groups(
    spheres: wp.uint64,
    motion: PairMotion,
    left_out: wp.array[wp.vec2i],
    span: wp.vec2i,
    other_span: wp.vec2i,
    there: wp.vec3,
    radius: float,
    margin: float,
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
        margin: bound of how much any two spheres approach [m].
    """
    verdict = int(CLEAR)
    tolerance = motion.interval.tolerance
    within = float(margin)
    for index in range(span[0], span[1]):
        a = sphere_of(spheres, index)
        here = point_in_world(motion.first.frame_pose, xyz(a))
        own = a[3] + motion.pair.buffer
        # A sphere far from the ball of the other group is far from all of its spheres.
        if not (a[3] < 0.0 or wp.length(here - there) > own + radius + within):
            for other in range(other_span[0], other_span[1]):
                b = sphere_of(spheres, other)
                center = point_in_world(motion.second.frame_pose, xyz(b))
                offset = here - center
                reach = own + b[3] + within
                is_far = b[3] < 0.0 or wp.dot(offset, offset) > reach * reach
                if not (is_far or is_left_out(motion.pair, left_out, index, other)):
                    gap = approach(motion, here, center)
                    if not (gap[0] >= own + b[3] + tolerance):
                        return HIT
                    if not (gap[1] > own + b[3]):
                        # Now only spheres that touch at the configuration are looked for.
                        verdict = UNDECIDED
                        within = tolerance
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
        return interval.deviation + error
    normal = motion.second.frame_pose.rotation * found.normal
    rate = rate_of_offset(motion, xyz(here), xyz(there))
    speed = wp.abs(wp.dot(normal, rate))
    speed += here[3] * wp.length(wp.cross(normal, motion.first.twist.angular - motion.turning))
    speed += there[3] * wp.length(wp.cross(normal, motion.second.twist.angular - motion.turning))
    return travel(interval, speed) + error


@wp.func
def ball_in_world(frame_pose: FramePose, ball: wp.vec4) -> wp.vec4:
    """A ball of a frame."""
    center = point_in_world(frame_pose, xyz(ball))
    return wp.vec4(center[0], center[1], center[2], ball[3])


@wp.struct
class PieceSearch:
    """What a search for the nearest pieces of two bodies needs of these."""

    relative: FramePose  # of the first body's frame in the second's
    margin: float  # bound of how much any two points of pieces approach [m]
    needed: float  # pieces that are farther over the interval do not matter [m]
    least: float  # pieces that are nearer at the configuration end the search; at most `needed` [m]
    enough: float  # pieces that are nearer over the interval leave the configuration alone [m]


@wp.func
def margin_of(search: PieceSearch, found: wp.vec3) -> float:
    """By how much the rest may approach, as far as it matters [m]."""
    return wp.where(found[0] > search.enough, search.margin, 0.0)


@wp.func
def bounds_of_two(
    robot: Robot, motion: PairMotion, search: PieceSearch, a: Piece, b: Piece, found: wp.vec3
) -> wp.vec3:
    """Bounds of the distance of two pieces, see `bounds_of_pieces`.

    Farther than an upper bound they do not matter either; then their own one is FAR.
    """
    buffer = motion.pair.buffer
    here = ball_in_world(motion.first.frame_pose, a.ball)
    there = ball_in_world(motion.second.frame_pose, b.ball)
    gap = wp.length(xyz(here) - xyz(there)) - here[3] - there[3] - buffer
    within, margin = wp.min(search.needed, found[2]), margin_of(search, found)
    if gap - margin > within:
        return wp.vec3(gap - margin, gap, FAR)
    size = wp.length(xyz(here)) + wp.length(xyz(there)) + here[3] + there[3]
    error = 2.0 * motion.interval.slack + PIECE_ROUNDING * size
    enough = within + wp.max(margin, error) + buffer
    apart = separation(robot.pieces, a, b, search.relative, enough, search.least + buffer)
    moved = approach_along(motion, apart, here, there, error)
    if not (moved < FAR):
        return wp.vec3(-FAR, -FAR, -FAR)
    lower = apart.lower - buffer
    return wp.vec3(lower - moved, lower - error, apart.upper + error - buffer)


@wp.func
def bounds_of_pieces(robot: Robot, motion: PairMotion, search: PieceSearch) -> wp.vec3:
    """Bounds of the distance of the convex pieces of two bodies, less the buffer [m].

    A lower one over the interval, and a lower and an upper one at the configuration. Without pieces
    the lower ones are -FAR.
    """
    one = body_of(robot, motion.pair.first)
    other = body_of(robot, motion.pair.second)
    if one.n_pieces == 0 or other.n_pieces == 0:
        return wp.vec3(-FAR, -FAR, -FAR)
    result = wp.vec3(FAR, FAR, FAR)
    row = int(one.first_piece)
    for _p in range(one.n_pieces):
        a = piece_at(robot.pieces, row)
        row = a.behind
        other_row = int(other.first_piece)
        for _q in range(other.n_pieces):
            b = piece_at(robot.pieces, other_row)
            other_row = b.behind
            result = wp.min(result, bounds_of_two(robot, motion, search, a, b, result))
            if not (result[1] > search.least):
                return result
    return result


@wp.func
def bounds_of_leaves(
    robot: Robot,
    motion: PairMotion,
    search: PieceSearch,
    leaf: int,
    other_leaf: int,
    found: wp.vec3,
) -> wp.vec3:
    """Bounds of the distance of the elements of two leaves of surfaces, by their first rows."""
    result = found
    row = int(row_of(robot.pieces, leaf)[3])
    for _p in range(int(row_of(robot.pieces, leaf + 1)[3])):
        a = piece_at(robot.pieces, row)
        row = a.behind
        other_row = int(row_of(robot.pieces, other_leaf)[3])
        for _q in range(int(row_of(robot.pieces, other_leaf + 1)[3])):
            b = piece_at(robot.pieces, other_row)
            other_row = b.behind
            result = wp.min(result, bounds_of_two(robot, motion, search, a, b, result))
            if not (result[1] > search.least):
                return result
    return result


@wp.func
def approach_of_nodes(robot: Robot, motion: PairMotion, row: int, other_row: int) -> float:
    """How much any two points of the boxes of two nodes of surfaces approach, a bound [m].

    As fast as the centers do, and as both boxes turn around these; see `farthest_approach`.
    """
    interval = motion.interval
    here = point_in_world(motion.first.frame_pose, xyz(row_of(robot.pieces, row)))
    there = point_in_world(motion.second.frame_pose, xyz(row_of(robot.pieces, other_row)))
    radius = wp.length(xyz(row_of(robot.pieces, row + 1)))
    other_radius = wp.length(xyz(row_of(robot.pieces, other_row + 1)))
    speed = wp.length(rate_of_offset(motion, here, there))
    speed += radius * wp.length(motion.first.twist.angular - motion.turning)
    speed += other_radius * wp.length(motion.second.twist.angular - motion.turning)
    size = wp.length(here) + wp.length(there) + radius + other_radius
    rounding = interval.rounding + PIECE_ROUNDING
    return travel(interval, speed) + 2.0 * interval.slack + rounding * size


@compiled_once
def bounds_of_surfaces(robot: Robot, motion: PairMotion, search: PieceSearch) -> wp.vec3:
    """Bounds of the distance of the surfaces of two bodies, see `bounds_of_pieces`.

    The lower ones are -FAR where a part of one body is inside of the other.
    """
    pieces = robot.pieces
    first = surface_at(pieces, body_of(robot, motion.pair.first).surface)
    second = surface_at(pieces, body_of(robot, motion.pair.second).surface)
    result = wp.vec3(FAR, FAR, FAR)
    walk = TreeWalk(1, 1, 0, first.levels, second.levels)
    while walk.level >= 0:
        row = node_row(first, walk.first)
        other_row = node_row(second, walk.second)
        # Of boxes that overlap nothing is known: a buffer may be negative.
        gap = gap_of_boxes(pieces, row, other_row, search.relative)
        gap = wp.where(gap > 0.0, gap - motion.pair.buffer, -FAR)
        margin, within = margin_of(search, result), wp.min(search.needed, result[2])
        if gap > 0.0 and gap - margin <= within and motion.interval.half > 0.0:
            margin = wp.min(margin, approach_of_nodes(robot, motion, row, other_row))
        low = gap - margin
        if low > within:
            result = wp.min(result, wp.vec3(low, gap, FAR))
        elif not is_at_leaves(walk):
            walk = descended(walk)
            continue
        else:
            result = bounds_of_leaves(robot, motion, search, row, other_row, result)
            if not (result[1] > search.least):
                return result
        walk = advanced(walk)
    back = relative_pose(motion.second.frame_pose, motion.first.frame_pose)
    if has_part_inside(pieces, first, second, search.relative) or has_part_inside(
        pieces, second, first, back
    ):
        return wp.vec3(-FAR, -FAR, -FAR)
    return result


@wp.func
def bounds_of_shapes(
    robot: Robot,
    motion: PairMotion,
    balls: PairBalls,
    needed: float,
    least: float,
    enough: float,
) -> wp.vec3:
    """Bounds of the distance of two bodies by their pieces; by their surfaces where these touch.

    See `bounds_of_pieces`.
    """
    margin = approach_of_pieces(robot, motion, balls)[0]
    relative = relative_pose(motion.first.frame_pose, motion.second.frame_pose)
    search = PieceSearch(relative, margin, needed, least, enough)
    found = bounds_of_pieces(robot, motion, search)
    if found[0] > 0.0 and found[1] > least:
        return found
    one = body_of(robot, motion.pair.first)
    other = body_of(robot, motion.pair.second)
    if one.surface == 0 or other.surface == 0:
        return found
    return bounds_of_surfaces(robot, motion, search)


@wp.func
def shapes_at_rest(
    robot: Robot, pair: BodyPair, first: FramePose, second: FramePose, needed: float
) -> wp.vec3:
    """Bounds of the distance of the shapes of two bodies at rest; see `bounds_of_shapes`."""
    still = Twist(wp.vec3(0.0), wp.vec3(0.0))
    interval = interval_around(0.0, 0.0, 0.0, PIECE_ROUNDING, 0.0)
    motion = PairMotion(
        pair, MovingFrame(first, still), MovingFrame(second, still), wp.vec3(0.0), interval
    )
    here = point_in_world(first, body_of(robot, pair.first).center)
    there = point_in_world(second, body_of(robot, pair.second).center)
    balls = PairBalls(0.0, 0.0, 0.0, wp.length(here) + wp.length(there))
    return bounds_of_shapes(robot, motion, balls, needed, 0.0, -FAR)


@wp.func
def check_body_pair(
    robot: Robot, motion: PairMotion, left_out: wp.array[wp.vec2i], balls: PairBalls
) -> int:
    """Checks two bodies by their spheres, and where these are not proven free by their shapes."""
    verdict = check_spheres(robot, motion, left_out, balls)
    if verdict == CLEAR:
        return CLEAR
    tolerance = motion.interval.tolerance
    found = bounds_of_shapes(robot, motion, balls, tolerance, tolerance, 0.0)
    if found[1] > tolerance:
        return wp.where(found[0] > 0.0, CLEAR, UNDECIDED)
    return verdict


@wp.func
def check_spheres(
    robot: Robot, motion: PairMotion, left_out: wp.array[wp.vec2i], balls: PairBalls
) -> int:
    """Checks the spheres of two bodies whose balls are near: the balls of their groups first."""
    pair = motion.pair
    tolerance = motion.interval.tolerance
    margin = wp.max(approach_of_spheres(robot, motion, balls)[0], tolerance)
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    other_center = point_in_world(motion.second.frame_pose, other.center)
    verdict = int(CLEAR)
    for g in range(n_groups_of(one)):
        ball = group_ball(robot, one, g)
        here = point_in_world(motion.first.frame_pose, xyz(ball))
        reach = ball[3] + pair.buffer + margin
        if not (ball[3] < 0.0 or wp.length(here - other_center) > reach + other.radius):
            for h in range(n_groups_of(other)):
                near = group_ball(robot, other, h)
                center = point_in_world(motion.second.frame_pose, xyz(near))
                if not (near[3] < 0.0 or wp.length(here - center) > reach + near[3]):
                    span = group_span(one, g)
                    other_span = group_span(other, h)
                    found = check_groups(
                        robot.spheres, motion, left_out, span, other_span, center, near[3], margin
                    )
                    if found == HIT or (found == UNDECIDED and balls.gap > tolerance):
                        return found
                    verdict = wp.max(verdict, found)
    return verdict


@wp.func
def are_apart(offset: wp.vec3, reach: float) -> bool:
    """Whether the distance of two centers is at least the sum of the radii."""
    return reach <= 0.0 or wp.dot(offset, offset) >= reach * reach


@wp.func
def groups_touch(
    spheres: wp.uint64,
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    span: wp.vec2i,
    other_span: wp.vec2i,
    second_from_first: FramePose,
    ball: wp.vec4,
) -> bool:
    """Whether spheres of two groups overlap, computed in the frame of the second body.

    Args:
        spheres: pointer, see `Robot`.
        pair: the bodies.
        left_out: pairs of spheres that are not checked.
        span: begin and end of the spheres of the first group.
        other_span: of the other one.
        second_from_first: relative pose of the bodies' frames.
        ball: of the other group.
    """
    for index in range(span[0], span[1]):
        a = sphere_of(spheres, index)
        radius = a[3] + pair.buffer
        center = point_in_world(second_from_first, xyz(a))
        # A sphere far from the ball of the other group is far from all of its spheres.
        if not (a[3] < 0.0 or are_apart(center - xyz(ball), radius + ball[3])):
            for other in range(other_span[0], other_span[1]):
                b = sphere_of(spheres, other)
                if not (b[3] < 0.0 or are_apart(center - xyz(b), radius + b[3])):
                    if not is_left_out(pair, left_out, index, other):
                        return True
    return False


@wp.func
def spheres_touch(
    robot: Robot, pair: BodyPair, left_out: wp.array[wp.vec2i], first: FramePose, second: FramePose
) -> bool:
    """Whether spheres of two bodies overlap: the balls of their groups first."""
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    second_from_first = relative_pose(first, second)
    for g in range(n_groups_of(one)):
        ball = group_ball(robot, one, g)
        center = point_in_world(second_from_first, xyz(ball))
        reach = ball[3] + pair.buffer
        if not (ball[3] < 0.0 or are_apart(center - other.center, reach + other.radius)):
            for h in range(n_groups_of(other)):
                near = group_ball(robot, other, h)
                if not (near[3] < 0.0 or are_apart(center - xyz(near), reach + near[3])):
                    span = group_span(one, g)
                    other_span = group_span(other, h)
                    if groups_touch(
                        robot.spheres, pair, left_out, span, other_span, second_from_first, near
                    ):
                        return True
    return False


@wp.func
def bodies_touch(
    robot: Robot, pair: BodyPair, left_out: wp.array[wp.vec2i], first: FramePose, second: FramePose
) -> bool:
    """Whether two bodies overlap by their spheres, and are not apart by their shapes."""
    if not spheres_touch(robot, pair, left_out, first, second):
        return False
    return not (shapes_at_rest(robot, pair, first, second, 0.0)[1] > 0.0)


@wp.func
def balls_meet(first: wp.vec4, second: wp.vec4, buffer: float) -> bool:
    """Whether the balls of two bodies, in the world, overlap."""
    offset = xyz(first) - xyz(second)
    return not are_apart(offset, first[3] + second[3] + buffer)

"""Smallest signed distance to an obstacle that moves, along a path that moves too, certified.

Between waypoints an obstacle turns at a constant rate about a fixed axis, its origin moves straight
and so does the sphere. Seen from the obstacle, the center of the sphere goes on a curve

    u(s) = E^s v(s),        v(s) = u(0) + s w,

with E^s a turn by s theta about a fixed axis a. With omega = theta a its derivatives are, but for
the turn E^s, affine in s, so that the largest of either is at an end of the curve:

    u'(s) ~ omega x v + w        u''(s) ~ omega x (omega x v + 2 w)

A chord of the curve over h is nowhere farther from it than max |u''| h^2 / 8, so that the bounds of
`sweep` along chords are bounds along the curve when they are lowered by that.
"""

import warp as wp

from warp_collision.kernels.march import (
    March,
    PathSample,
    make_advance,
    make_is_free,
    make_refine,
    next_step,
)
from warp_collision.kernels.mesh_distance import SdfSample, obstacle_distance
from warp_collision.kernels.mesh_record import ROUNDING, is_exact
from warp_collision.kernels.precision import is_in_range
from warp_collision.kernels.scene import Obstacle
from warp_collision.kernels.sweep import PATH_ROUNDING, Path, lower_bound

# A turn rounds places by more than a straight way does.
CURVE_ROUNDING = wp.constant(2.0 * PATH_ROUNDING)
# The least cosine of half an angle of turns that go the way that the quaternions' signs say. About
# 0 it is rounded to any sign: all that follow an obstacle have to agree on the way round. That of
# Python is `poses.HALF_TURN`.
HALF_TURN = wp.constant(-1.0e-6)
# Bounds of derivatives are larger than computed, by more than their rounding.
SAFETY_FACTOR = wp.constant(1.0 + 1.0e-5)


@wp.struct
class Curve:
    """The way from one waypoint halfway to another, in the frame of an obstacle that moves too.

    Its position is the share of the segment times a bound of its speed.
    """

    mesh_id: wp.uint64
    record: wp.uint64  # pointer to what is known of the mesh, read anew by each query
    begin: wp.vec3  # u(0)
    change: wp.vec3  # w
    axis: wp.vec3  # a, unit
    angle: float  # theta [rad]
    speed: float  # bound of |u'| [m per segment]
    length: float  # half of that
    bend: float  # bound of the second derivative by the position [1/m]
    is_valid: bool  # both ends are somewhere


@wp.func
def curve_between(
    obstacle: Obstacle, here: wp.transform, there: wp.transform, begin: wp.vec3, end: wp.vec3
) -> Curve:
    """The first half of a segment as an obstacle sees it.

    Of the two ways to turn it takes the shorter one; of two that are equal but for rounding that of
    the quaternions as they are. Backwards in time that is the same way.

    Args:
        obstacle: the obstacle.
        here: mesh_from_world at the waypoint.
        there: and at the other one.
        begin: where the sphere is at the waypoint, in the world.
        end: and at the other one.
    """
    curve = Curve()
    curve.mesh_id = obstacle.mesh_id
    curve.record = obstacle.record
    curve.begin = wp.transform_point(here, begin)
    last = wp.transform_point(there, end)
    curve.is_valid = is_in_range(curve.begin) and is_in_range(last)
    turn = wp.transform_get_rotation(there) * wp.quat_inverse(wp.transform_get_rotation(here))
    if turn[3] < HALF_TURN:
        turn = -turn
    axis = wp.vec3(turn[0], turn[1], turn[2])
    sine = wp.length(axis)
    curve.axis = wp.vec3(1.0, 0.0, 0.0)
    if sine > 0.0:
        curve.axis = axis / sine
        curve.angle = 2.0 * wp.atan2(sine, turn[3])
    curve.change = wp.quat_rotate_inv(turn, last) - curve.begin

    omega = curve.angle * curve.axis
    slow = wp.cross(omega, curve.begin) + curve.change
    fast = slow + 0.5 * wp.cross(omega, curve.change)
    curve.speed = SAFETY_FACTOR * wp.max(wp.length(slow), wp.length(fast))
    # What is no farther than places are rounded is no way.
    if curve.speed > CURVE_ROUNDING * wp.length(curve.begin):
        curve.length = 0.5 * curve.speed
        bend = wp.max(
            wp.length(wp.cross(omega, slow + curve.change)),
            wp.length(wp.cross(omega, fast + curve.change)),
        )
        curve.bend = SAFETY_FACTOR * bend / (curve.speed * curve.speed)
    return curve


@wp.func
def rotate_back(curve: Curve, share: float, direction: wp.vec3) -> wp.vec3:
    """A direction seen by the obstacle at a share of the segment, in its frame at the waypoint."""
    return wp.quat_rotate_inv(wp.quat_from_axis_angle(curve.axis, share * curve.angle), direction)


@wp.func
def point_on_curve(curve: Curve, position: float) -> wp.vec3:
    """A place of the curve."""
    share = position / curve.speed
    turn = wp.quat_from_axis_angle(curve.axis, share * curve.angle)
    return wp.quat_rotate(turn, curve.begin + share * curve.change)


@wp.func
def curve_sample(curve: Curve, position: float, sample: SdfSample) -> PathSample:
    """A sample of the mesh, seen from the curve."""
    result = PathSample()
    result.position = position
    result.distance = sample.distance
    result.gradient = sample.gradient
    result.closest = sample.closest
    result.found = sample.found
    if curve.length > 0.0:
        share = position / curve.speed
        place = curve.begin + share * curve.change
        velocity = curve.angle * wp.cross(curve.axis, place) + curve.change
        result.slope = wp.dot(rotate_back(curve, share, sample.gradient), velocity) / curve.speed
    return result


@wp.func
def sample_curve(curve: Curve, position: float, near: wp.vec3) -> PathSample:
    """Signed distance at a place of the curve; the search ends at ``near``, a surface point."""
    point = point_on_curve(curve, position)
    limit = wp.length(near - point) * 1.001 + ROUNDING * (wp.length(near) + wp.length(point))
    sample = obstacle_distance(curve.mesh_id, curve.record, point, limit)
    return curve_sample(curve, position, sample)


@wp.func
def rounding_on_curve(curve: Curve) -> float:
    """How far rounding may put a distance on a curve off [m]."""
    return CURVE_ROUNDING * (wp.length(curve.begin) + wp.length(curve.change) + curve.length)


@wp.func
def bound_by_tangents(direction: wp.vec3, length: float, a: PathSample, b: PathSample) -> float:
    """Lower bound of a convex distance on a chord, which lies above its tangents at both ends."""
    falling = wp.dot(a.gradient, direction)
    rising = wp.dot(b.gradient, direction)
    if falling >= 0.0:
        return a.distance
    if rising <= 0.0:
        return b.distance
    meet = (a.distance - b.distance + rising * length) / (rising - falling)
    return a.distance + falling * wp.clamp(meet, 0.0, length)


@wp.func
def bound_on_curve(curve: Curve, a: PathSample, b: PathSample) -> float:
    """Certified lower bound of the signed distance between two samples of a curve."""
    step = b.position - a.position
    sure = 0.5 * (a.distance + b.distance - step)
    sag = SAFETY_FACTOR * 0.125 * curve.bend * step * step + rounding_on_curve(curve)
    chord = Path()
    chord.mesh_id = curve.mesh_id
    chord.record = curve.record
    chord.origin = point_on_curve(curve, a.position)
    way = point_on_curve(curve, b.position) - chord.origin
    chord.length = wp.length(way)
    if chord.length == 0.0:
        return wp.max(sure, wp.min(a.distance, b.distance) - sag)
    chord.direction = way / chord.length
    first = a
    first.position = 0.0
    second = b
    second.position = chord.length
    bound = lower_bound(chord, first, second)
    if is_exact(curve.mesh_id, curve.record) and a.found and b.found:
        bound = wp.max(bound, bound_by_tangents(chord.direction, chord.length, a, b))
    return wp.max(sure, bound - sag)


@wp.func
def step_on_curve(curve: Curve, distance: float, floor: float) -> float:
    """How far a bound is likely to reach: a bend costs what the curvature of a ball does."""
    step = next_step(distance, floor) / wp.sqrt(1.0 + curve.bend * wp.abs(distance))
    return wp.max(distance - floor, step)


refine_on_curve, refine_around_on_curve = make_refine(Curve, "curve", sample_curve)
advance_on_curve = make_advance(Curve, "curve", bound_on_curve, step_on_curve)
is_curve_free = make_is_free(
    Curve, "curve", sample_curve, bound_on_curve, step_on_curve, rounding_on_curve
)


@wp.func
def sweep_curve(curve: Curve, start: PathSample, reach: float, tolerance: float) -> PathSample:
    """Smallest signed distance on a curve, to the tolerance, if it is below ``reach``.

    As `sweep`: the value is that of a place of the curve, and no place is lower than it, or than
    ``reach``, by more than the tolerance. An infinite tolerance asks for the start alone.
    """
    if wp.isinf(tolerance) or curve.length == 0.0:
        return start
    finest = 2.0 * rounding_on_curve(curve)
    slack = wp.where(tolerance > finest, tolerance, finest)
    march = March()
    march.best = start
    march.left = start
    march.right = start
    march.here = start
    march.step = curve.length
    march.unsure = start.distance - (wp.min(start.distance, reach) - slack) < curve.length
    while march.unsure:
        here = march.here
        position = wp.min(here.position + march.step, curve.length)
        there = sample_curve(curve, position, here.closest)
        march = advance_on_curve(march, there, curve, reach, slack)
    if march.best.distance >= reach:
        return march.best
    return refine_around_on_curve(curve, march.left, march.best, march.right)

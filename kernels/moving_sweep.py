"""Smallest signed distance between a moving sphere and a moving obstacle, certified.

Between waypoints an obstacle rotates at a constant rate about a fixed axis; its origin and the
sphere move on straight lines. In the obstacle's frame the center of the sphere moves on a curve

    u(s) = E^s v(s),        v(s) = u(0) + s w,

with E^s a rotation by s theta about a fixed axis a. With omega = theta a its derivatives are, up to
the rotation E^s, affine in s, so that their maxima are at an end of the curve:

    u'(s) ~ omega x v + w        u''(s) ~ omega x (omega x v + 2 w)

The curve deviates from its chord over h by at most max |u''| h^2 / 8: the bounds of `sweep` along
chords, lowered by that, are bounds along the curve.
"""

import warp as wp

from warp_collision.kernels.march import PathSample, make_is_free, make_lowest_on, next_step
from warp_collision.kernels.mesh_distance import SdfSample
from warp_collision.kernels.precision import is_in_range
from warp_collision.kernels.scene_walk import Obstacle
from warp_collision.kernels.sweep import (
    PATH_ROUNDING,
    Path,
    distance_near,
    lower_bound,
    sample_with_slope,
)

# Points on a curve have more rounding than those on a straight path.
CURVE_ROUNDING = wp.constant(2.0 * PATH_ROUNDING)
# Below this cosine of half its angle a relative rotation is negated, to the shorter one. It is not
# 0: at 180 degrees the sign is rounding, and all computations must choose the same direction.
# `poses.HALF_TURN` is the same in Python.
HALF_TURN = wp.constant(-1.0e-6)
# Bounds of derivatives are enlarged by more than their rounding.
SAFETY_FACTOR = wp.constant(1.0 + 1.0e-5)


@wp.struct
class Curve:
    """Half of a segment in the frame of a moving obstacle, from a waypoint to the middle.

    Its position is the fraction of the segment times a bound of the speed.
    """

    record: wp.uint64  # pointer to that of the obstacle, read by each query
    origin: wp.vec3  # u(0)
    change: wp.vec3  # w
    axis: wp.vec3  # a, unit
    angle: float  # theta [rad]
    speed: float  # bound of |u'| [m per segment]
    length: float  # half of that
    before: float  # 0: it begins at the waypoint
    acceleration_bound: float  # bound of the second derivative by the position [1/m]
    is_valid: bool  # coordinates of both ends are in range


@wp.func
def curve_between(
    obstacle: Obstacle, here: wp.transform, there: wp.transform, begin: wp.vec3, end: wp.vec3
) -> Curve:
    """The first half of a segment in the frame of an obstacle.

    The obstacle rotates by the smaller angle; at 180 degrees, within rounding, in the direction of
    the quaternions as they are. The same in reversed time.

    Args:
        obstacle: the obstacle.
        here: mesh_from_world at the waypoint.
        there: mesh_from_world at the other waypoint.
        begin: center of the sphere at the waypoint, in the world.
        end: center of the sphere at the other waypoint.
    """
    curve = Curve()
    curve.record = obstacle.record
    curve.origin = wp.transform_point(here, begin)
    last = wp.transform_point(there, end)
    curve.is_valid = is_in_range(curve.origin) and is_in_range(last)
    rotation = wp.transform_get_rotation(there) * wp.quat_inverse(wp.transform_get_rotation(here))
    if rotation[3] < HALF_TURN:
        rotation = -rotation
    axis = wp.vec3(rotation[0], rotation[1], rotation[2])
    sine = wp.length(axis)
    curve.axis = wp.vec3(1.0, 0.0, 0.0)
    if sine > 0.0:
        curve.axis = axis / sine
        curve.angle = 2.0 * wp.atan2(sine, rotation[3])
    curve.change = wp.quat_rotate_inv(rotation, last) - curve.origin

    omega = curve.angle * curve.axis
    velocity_begin = wp.cross(omega, curve.origin) + curve.change
    velocity_end = velocity_begin + 0.5 * wp.cross(omega, curve.change)
    curve.speed = SAFETY_FACTOR * wp.max(wp.length(velocity_begin), wp.length(velocity_end))
    # A displacement below rounding is none.
    if curve.speed > CURVE_ROUNDING * wp.length(curve.origin):
        curve.length = 0.5 * curve.speed
        acceleration = wp.max(
            wp.length(wp.cross(omega, velocity_begin + curve.change)),
            wp.length(wp.cross(omega, velocity_end + curve.change)),
        )
        curve.acceleration_bound = SAFETY_FACTOR * acceleration / (curve.speed * curve.speed)
    return curve


@wp.func
def rotate_back(curve: Curve, fraction: float, direction: wp.vec3) -> wp.vec3:
    """Rotates a direction from the obstacle's frame at a fraction of the segment to that at 0."""
    return wp.quat_rotate_inv(
        wp.quat_from_axis_angle(curve.axis, fraction * curve.angle), direction
    )


@wp.func
def point_on_curve(curve: Curve, position: float) -> wp.vec3:
    """The point at a position of the curve."""
    fraction = position / curve.speed
    rotation = wp.quat_from_axis_angle(curve.axis, fraction * curve.angle)
    return wp.quat_rotate(rotation, curve.origin + fraction * curve.change)


@wp.func
def curve_sample(curve: Curve, position: float, sample: SdfSample) -> PathSample:
    """A sample of the mesh at a position of the curve."""
    slope = float(0.0)
    if curve.length > 0.0:
        fraction = position / curve.speed
        point = curve.origin + fraction * curve.change
        velocity = curve.angle * wp.cross(curve.axis, point) + curve.change
        slope = wp.dot(rotate_back(curve, fraction, sample.gradient), velocity) / curve.speed
    return sample_with_slope(position, slope, sample)


@wp.func
def sample_curve(curve: Curve, position: float, near: wp.vec3, limit: float) -> PathSample:
    """Signed distance below a limit at a position of the curve; see `distance_near`."""
    point = point_on_curve(curve, position)
    sample = distance_near(curve.record, point, near, limit)
    return curve_sample(curve, position, sample)


@wp.func
def rounding_on_curve(curve: Curve) -> float:
    """Bound of the rounding of distances on a curve [m]."""
    return CURVE_ROUNDING * (wp.length(curve.origin) + wp.length(curve.change) + curve.length)


@wp.func
def bound_on_curve(curve: Curve, a: PathSample, b: PathSample) -> float:
    """Certified lower bound of the signed distance between two samples of a curve."""
    step = b.position - a.position
    lipschitz = 0.5 * (a.distance + b.distance - step)
    sag = SAFETY_FACTOR * 0.125 * curve.acceleration_bound * step * step + rounding_on_curve(curve)
    chord = Path()
    chord.record = curve.record
    chord.origin = point_on_curve(curve, a.position)
    offset = point_on_curve(curve, b.position) - chord.origin
    chord.length = wp.length(offset)
    if chord.length == 0.0:
        return wp.max(lipschitz, wp.min(a.distance, b.distance) - sag)
    chord.direction = offset / chord.length
    first = a
    first.position = 0.0
    second = b
    second.position = chord.length
    return wp.max(lipschitz, lower_bound(chord, first, second) - sag)


@wp.func
def step_on_curve(curve: Curve, distance: float, floor: float) -> float:
    """Step over which a bound likely holds; it shrinks with the acceleration."""
    step = next_step(distance, floor) / wp.sqrt(1.0 + curve.acceleration_bound * wp.abs(distance))
    return wp.max(distance - floor, step)


@wp.func
def end_of_curve(curve: Curve, start: PathSample, reach: float, limit: float) -> PathSample:
    """The sample at the end of the curve."""
    return sample_curve(curve, curve.length, start.closest, limit)


lowest_on_curve = make_lowest_on(
    Curve, "curve", sample_curve, end_of_curve, bound_on_curve, step_on_curve
)
is_curve_free = make_is_free(
    Curve, "curve", sample_curve, end_of_curve, bound_on_curve, step_on_curve, rounding_on_curve
)


@wp.func
def sweep_curve(curve: Curve, start: PathSample, reach: float, tolerance: float) -> PathSample:
    """Smallest signed distance on a curve, to the tolerance, if it is below ``reach``.

    As `sweep`: the value is attained on the curve, and nowhere on the curve is the distance lower
    than it, or than ``reach``, by more than the tolerance. An infinite tolerance samples the start
    only.
    """
    if wp.isinf(tolerance) or curve.length == 0.0:
        return start
    finest = 2.0 * rounding_on_curve(curve)
    slack = wp.where(tolerance > finest, tolerance, finest)
    return lowest_on_curve(curve, start, reach, slack, False)

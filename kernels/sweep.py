"""Smallest signed distance along a straight path, certified to a tolerance.

Bounds between samples of the signed distance certify the path. Let a sample at `a` have the signed
distance f and the closest surface point c. Then for every point q of the path

    sdf(q) >= f - |q - a|              the distance is 1-Lipschitz,
    |sdf(q)| <= |q - c|                c is a point of the surface,

and if two samples are outside, the surface is outside the union of their two empty balls. The last
two bounds are of second order in the step, so few samples certify a path along a wall, where the
Lipschitz bound alone needs one sample per tolerance.

The signed distance of a convex shape is convex, and lies above its tangents. If it increases from
the start, or its tangent stays beyond the reach, no further sample is needed.
"""

import warp as wp

from warp_collision.kernels.march import PathSample, make_is_free, make_lowest_on, next_step
from warp_collision.kernels.mesh_distance import SdfSample, distance_of_obstacle, nothing_nearer
from warp_collision.kernels.mesh_record import ROUNDING, convexity, knows_surface

# Rounding of a distance on a path, relative to the coordinates there.
PATH_ROUNDING = wp.constant(2.5e-7)


@wp.struct
class Path:
    """A straight path in the frame of one mesh."""

    record: wp.uint64  # pointer to that of the obstacle, read by each query
    origin: wp.vec3
    direction: wp.vec3  # unit
    length: float  # [m]
    before: float  # of a longer path, what lies before the origin [m]
    after: float  # and behind the end [m]
    whole: float  # length of that longer path [m]


@wp.func
def sample_with_slope(position: float, slope: float, sample: SdfSample) -> PathSample:
    """A sample of the mesh at a position of any path."""
    return PathSample(
        position, sample.distance, slope, sample.gradient, sample.closest, sample.found
    )


@wp.func
def path_sample(path: Path, position: float, sample: SdfSample) -> PathSample:
    """A sample of the mesh at a position of the path."""
    return sample_with_slope(position, wp.dot(sample.gradient, path.direction), sample)


@wp.func
def distance_near(record: wp.uint64, point: wp.vec3, near: wp.vec3, limit: float) -> SdfSample:
    """Signed distance at a point below a limit; ``near``, a surface point, is another limit."""
    of_near = wp.length(near - point) * 1.001 + ROUNDING * (wp.length(near) + wp.length(point))
    return distance_of_obstacle(record, point, wp.min(limit, of_near))


@wp.func
def sample_path(path: Path, position: float, near: wp.vec3, limit: float) -> PathSample:
    """Signed distance below a limit at a position of the path; see `distance_near`."""
    point = path.origin + position * path.direction
    sample = distance_near(path.record, point, near, limit)
    return path_sample(path, position, sample)


@wp.func
def rounding_on(path: Path) -> float:
    """Bound of the rounding of distances on a path [m]."""
    return PATH_ROUNDING * (wp.length(path.origin) + path.length)


@wp.func
def bound_by_empty_balls(a: float, b: float, length: float) -> float:
    """Lower bound of the distance between two points outside whose empty balls overlap.

    The surface is outside the union of the balls. The points of the union's boundary nearest to the
    path are the circle in which the two spheres intersect, unless a center is nearer.

    Args:
        a: radius of one ball [m]; the overlap of too large balls grows with the root of the excess.
        b: of the other.
        length: between their centers [m].
    """
    meet = 0.5 * (length + (a - b) * (a + b) / length)
    if meet <= 0.0 or meet >= length:
        return wp.min(a, b)
    return wp.sqrt(wp.max((a - meet) * (a + meet), 0.0))


@wp.func
def bound_by_closest_points(path: Path, a: PathSample, b: PathSample) -> float:
    """Lower bound of the signed distance from the two closest points: a bound of the depth."""
    # Relative to `a`: squares of large coordinates would cancel.
    begin = path.origin + a.position * path.direction
    to_a = a.closest - begin
    to_b = b.closest - begin
    depth = wp.max(wp.abs(a.distance), wp.abs(b.distance))
    # |q - c|^2 = x^2 - 2 x along + |to|^2 at the distance x from `a`: equal for both at one x.
    gap = 2.0 * wp.dot(to_b - to_a, path.direction)
    if gap > 0.0:
        x = wp.clamp(wp.dot(to_b - to_a, to_b + to_a) / gap, 0.0, b.position - a.position)
        q = x * path.direction
        depth = wp.max(depth, wp.min(wp.length(q - to_a), wp.length(q - to_b)))
    return -depth


@wp.func
def tilt_of(path: Path, sample: PathSample) -> float:
    """Bound of what rounding changes of a slope, beside a mesh; formulas are not that imprecise."""
    return rounding_on(path) / wp.max(wp.abs(sample.distance), rounding_on(path))


@wp.func
def bound_by_tangents(path: Path, a: PathSample, b: PathSample, is_mesh: bool) -> float:
    """Lower bound of a convex distance between two samples of the path, by its tangents there.

    The slope that is steepest stands for one that is not known.
    """
    length = b.position - a.position
    falling = wp.where(a.found, wp.dot(a.gradient, path.direction), -1.0)
    rising = wp.where(b.found, wp.dot(b.gradient, path.direction), 1.0)
    if is_mesh:
        falling = wp.max(falling - tilt_of(path, a), -1.0)
        rising = wp.min(rising + tilt_of(path, b), 1.0)
    if falling >= 0.0:
        return a.distance
    if rising <= 0.0:
        return b.distance
    meet = (a.distance - b.distance + rising * length) / (rising - falling)
    return a.distance + falling * wp.clamp(meet, 0.0, length)


@wp.func
def lower_bound(path: Path, a: PathSample, b: PathSample) -> float:
    """Certified lower bound of the signed distance between two samples of the path."""
    length = b.position - a.position
    bound = 0.5 * (a.distance + b.distance - length)
    loss = convexity(path.record)
    if loss >= 0.0:
        bound = wp.max(bound, bound_by_tangents(path, a, b, loss > 0.0) - loss)
    if a.distance > 0.0 and b.distance > 0.0:
        rounding = rounding_on(path)
        ball_a = a.distance - rounding
        ball_b = b.distance - rounding
        if ball_a > 0.0 and ball_b > 0.0 and ball_a + ball_b > length:
            return wp.max(bound, bound_by_empty_balls(ball_a, ball_b, length))
    if a.found and b.found:
        if knows_surface(path.record, wp.min(a.distance, b.distance) >= 0.0):
            return wp.max(bound, bound_by_closest_points(path, a, b))
    return bound


@wp.func
def step_beyond(path: Path, distance: float, floor: float) -> float:
    """See `next_step`."""
    return next_step(distance, floor)


@wp.func
def end_of(path: Path, start: PathSample, reach: float, limit: float) -> PathSample:
    """The sample at the end of the path, beyond which nothing is within reach or the path ends."""
    if path.after > 0.0:
        return path_sample(path, path.length, nothing_nearer(reach))
    return sample_path(path, path.length, start.closest, limit)


lowest_on = make_lowest_on(Path, "straight", sample_path, end_of, lower_bound, step_beyond)
is_free = make_is_free(Path, "straight", sample_path, end_of, lower_bound, step_beyond, rounding_on)


@wp.func
def sweep(path: Path, start: PathSample, reach: float, tolerance: float) -> PathSample:
    """Smallest signed distance of a path, to the tolerance, if it is below ``reach``.

    The value is attained on the path, and nowhere on the path is the distance lower than it, or
    than ``reach``, by more than the tolerance. An infinite tolerance samples the start only.
    """
    if wp.isinf(tolerance):
        return start
    # Steps below the rounding of positions would never end; NaN selects the finest.
    finest = 2.0 * rounding_on(path)
    loss = convexity(path.record)
    # A distance with a formula is settled whatever the tolerance, in few samples.
    slack = wp.where(tolerance > finest and loss != 0.0, tolerance, finest)
    if start.found and loss >= 0.0 and slack > loss:
        slope = start.slope - wp.where(loss > 0.0, tilt_of(path, start), 0.0)
        if slope >= 0.0 or start.distance + slope * path.length - loss >= reach:
            return start
    return lowest_on(path, start, reach, slack, loss == 0.0)

"""Smallest signed distance along a straight piece of path, certified to a tolerance.

Samples along the path are joined by bounds that no surface can pass. Let a sample at `a` have the
signed distance f and the closest surface point c. Then for every point q of the path

    sdf(q) >= f - |q - a|              the distance is 1-Lipschitz,
    |sdf(q)| <= |q - c|                c is a point of the surface,

and where two samples are outside, the surface is outside the union of their two empty balls. The
last two bounds are of second order in the step, so few samples certify a path along a wall, where
the Lipschitz bound alone needs one sample per tolerance.

The signed distance of an exact shape is convex, as the shape is: all of it lies above its tangents.
One that rises from the start, or whose tangent stays beyond the reach, needs no further sample.
"""

import warp as wp

from warp_collision.kernels.mesh_distance import SdfSample, obstacle_distance
from warp_collision.kernels.mesh_record import ROUNDING, is_exact

# Refinements of a minimum that is already certified: they sharpen its value and its gradient.
MAX_REFINEMENTS = wp.constant(16)
# Steps, relative to the root of a sum and a difference of distances: 2 is as far as bounds reach
# where the distance stays what it is. Any slope makes such a step fail, which costs a query.
CAUTION = wp.constant(1.5)
# Distances that differ by less may be equal but for rounding [m].
BLUR = wp.constant(1.0e-7)
# Rounding of a distance on a path, relative to the coordinates there.
PATH_ROUNDING = wp.constant(2.5e-7)


@wp.struct
class Path:
    """A straight piece of path through the frame of one mesh, as the kernel marches along it."""

    mesh_id: wp.uint64
    record: wp.uint64  # pointer to what is known of the mesh, read anew by each query
    origin: wp.vec3
    direction: wp.vec3  # unit
    length: float  # [m]


@wp.struct
class PathSample:
    """The signed distance at one place of a path."""

    position: float  # along the path [m]
    distance: float  # [m]
    slope: float  # d distance / d position
    gradient: wp.vec3
    closest: wp.vec3
    found: bool  # False: the distance is only known to be at least the value


@wp.func
def path_sample(path: Path, position: float, sample: SdfSample) -> PathSample:
    """A sample of the mesh, seen from the path."""
    result = PathSample()
    result.position = position
    result.distance = sample.distance
    result.gradient = sample.gradient
    result.slope = wp.dot(sample.gradient, path.direction)
    result.closest = sample.closest
    result.found = sample.found
    return result


@wp.func
def sample_path(path: Path, position: float, near: wp.vec3) -> PathSample:
    """Signed distance at a place of the path; the search ends at ``near``, a surface point."""
    point = path.origin + position * path.direction
    limit = wp.length(near - point) * 1.001 + ROUNDING * (wp.length(near) + wp.length(point))
    sample = obstacle_distance(path.mesh_id, path.record, point, limit)
    return path_sample(path, position, sample)


@wp.func
def rounding_on(path: Path) -> float:
    """How far rounding may put a distance on a path off [m]."""
    return PATH_ROUNDING * (wp.length(path.origin) + path.length)


@wp.func
def bound_by_empty_balls(a: float, b: float, length: float) -> float:
    """Lower bound of the distance between two places outside whose empty balls overlap.

    The nearest place that the union of the balls leaves to a surface is the circle in which their
    spheres meet, unless one center is nearer still.

    Args:
        a: radius of one ball; balls that are too large by rounding seem to overlap by its root [m].
        b: of the other.
        length: between their centers [m].
    """
    meet = 0.5 * (length + (a - b) * (a + b) / length)
    if meet <= 0.0 or meet >= length:
        return wp.min(a, b)
    return wp.sqrt(wp.max((a - meet) * (a + meet), 0.0))


@wp.func
def bound_by_closest_points(path: Path, a: PathSample, b: PathSample) -> float:
    """Lower bound of the signed distance from the two closest points: no place is deeper."""
    # Seen from `a`, so that squares of far coordinates do not swallow what differs.
    begin = path.origin + a.position * path.direction
    to_a = a.closest - begin
    to_b = b.closest - begin
    depth = wp.max(wp.abs(a.distance), wp.abs(b.distance))
    # |q - c|^2 = x^2 - 2 x along + |to|^2 at x beyond `a`: both are equal at one x.
    gap = 2.0 * wp.dot(to_b - to_a, path.direction)
    if gap > 0.0:
        x = wp.clamp(wp.dot(to_b - to_a, to_b + to_a) / gap, 0.0, b.position - a.position)
        place = x * path.direction
        depth = wp.max(depth, wp.min(wp.length(place - to_a), wp.length(place - to_b)))
    return -depth


@wp.func
def lower_bound(path: Path, a: PathSample, b: PathSample) -> float:
    """Certified lower bound of the signed distance between two samples of the path."""
    length = b.position - a.position
    bound = 0.5 * (a.distance + b.distance - length)
    if a.distance > 0.0 and b.distance > 0.0:
        rounding = rounding_on(path)
        ball_a = a.distance - rounding
        ball_b = b.distance - rounding
        if ball_a > 0.0 and ball_b > 0.0 and ball_a + ball_b > length:
            return wp.max(bound, bound_by_empty_balls(ball_a, ball_b, length))
    if a.found and b.found:
        return wp.max(bound, bound_by_closest_points(path, a, b))
    return bound


@wp.func
def next_step(distance: float, floor: float) -> float:
    """How far a bound is likely to reach, as the distance changes little; at least a sure step."""
    sure = distance - floor
    if distance > 0.0 and floor > 0.0:
        return wp.max(sure, CAUTION * wp.sqrt(wp.max((distance - floor) * (distance + floor), 0.0)))
    if distance < 0.0:
        return wp.max(
            sure, CAUTION * wp.sqrt(wp.max((distance - floor) * -(distance + floor), 0.0))
        )
    return CAUTION * sure


@wp.func
def refine(path: Path, left: PathSample, right: PathSample) -> PathSample:
    """A minimum between two samples, the lower of which falls towards the other.

    Cuts where an evenly growing slope is zero, or where the two tangents meet, as at a kink; in the
    middle while the slopes do not face each other. Where they stay apart to the end the minimum is
    a kink: the derivative of its value is the mean of the two gradients without slope.
    """
    settled = bool(False)
    cut = float(0.0)
    sharp = 2.0e-4 * path.length  # the place shares the gradient out between the two waypoints
    for step in range(MAX_REFINEMENTS):
        width = right.position - left.position
        cut = 0.5 * width
        blurred = bool(False)
        if left.slope < 0.0 and right.slope > 0.0:
            rise = right.slope - left.slope
            meet = (left.distance - right.distance + right.slope * width) / rise
            gain = wp.min(left.distance, right.distance) - (left.distance + left.slope * meet)
            # Rounded distances do not tell where tangents meet that are nearly parallel: slopes do.
            blurred = gain < BLUR and BLUR > sharp * rise
            if blurred:
                settled = width < 2.0 * sharp or wp.min(-left.slope, right.slope) < 1.0e-5
            else:
                settled = gain < BLUR and wp.min(meet, width - meet) < sharp
            bend = right.distance - left.distance - 0.5 * (left.slope + right.slope) * width
            if blurred or wp.abs(bend) < 0.01 * rise * width:
                meet = -left.slope / rise * width
            if settled or width < 1.0e-6:
                settled = True
                cut = meet
                break
            if not blurred or step % 2 == 0:
                cut = wp.clamp(meet, 0.05 * width, 0.95 * width)
        middle = sample_path(path, left.position + cut, left.closest)
        lowest = wp.min(left.distance, right.distance)
        falls_right = left.distance <= right.distance
        if blurred or middle.distance < lowest:
            falls_right = middle.slope < 0.0
        else:
            falls_right = not falls_right
        if falls_right:
            left = middle
        else:
            right = middle
    best = lower_of(left, right)
    if settled:
        share = right.slope / (right.slope - left.slope)
        best.gradient = share * left.gradient + (1.0 - share) * right.gradient
        best.position = left.position + cut
    return best


@wp.func
def lower_of(first: PathSample, second: PathSample) -> PathSample:
    """The sample of smaller distance, the second if they are equal."""
    if first.distance < second.distance:
        return first
    return second


@wp.func
def refine_around(path: Path, left: PathSample, best: PathSample, right: PathSample) -> PathSample:
    """Sharpens the best sample by its neighbour on the side to which the distance falls."""
    if best.slope < 0.0 and best.position < path.length:
        other = right
        if right.position <= best.position:
            other = sample_path(path, path.length, best.closest)
        return lower_of(best, refine(path, best, other))
    if best.slope > 0.0 and best.position > left.position:
        return lower_of(best, refine(path, left, best))
    return best


@wp.struct
class March:
    """How far along a path the minimum is known."""

    best: PathSample
    left: PathSample  # nearest samples on both sides of the best
    right: PathSample
    here: PathSample  # of a mesh, the path is certified up to here
    step: float  # from the sample on the left, or from here, to the next one [m]
    unsure: bool  # whether there is a next one


@wp.func
def narrow(march: March, there: PathSample, path: Path, reach: float) -> March:
    """One more sample of a convex distance: the minimum is where it turns from falling to rising.

    The distance lies above its tangents, so their meeting point is the next place to look at. So
    few samples settle it that the tolerance is not made use of.
    """
    march.best = lower_of(march.best, there)
    march.unsure = False
    if there.slope >= 0.0:
        march.right = there
    else:
        march.left = there
        march.here = there
    if march.right.position > march.left.position:
        width = march.right.position - march.left.position
        fall = march.left.distance - march.right.distance + march.right.slope * width
        meet = wp.clamp(fall / (march.right.slope - march.left.slope), 0.0, width)
        march.step = wp.clamp(meet, 0.05 * width, 0.95 * width)
        # One within reach is refined later, and beyond it nobody asks how far.
        bound = march.left.distance + march.left.slope * meet
        finest = 2.0 * rounding_on(path)
        march.unsure = bound < reach - finest and march.best.distance >= reach
        # A twentieth of less would be no step.
        march.unsure = march.unsure and width > 5.0 * finest
    return march


@wp.func
def advance(march: March, there: PathSample, path: Path, reach: float, slack: float) -> March:
    """One more sample of a mesh: certifies the way to it, or lets the next trial be nearer."""
    here = march.here
    if there.distance < march.best.distance:
        # Trials only shrink towards `here`, so nothing nearer was sampled before this one.
        march.left = here
        march.right = wp.where(march.best.position > there.position, march.best, there)
        march.best = there
    elif there.position > march.best.position and (
        march.right.position <= march.best.position or there.position < march.right.position
    ):
        march.right = there
    floor = wp.min(march.best.distance, reach) - slack
    if march.step <= here.distance - floor or lower_bound(path, here, there) >= floor:
        march.here = there
        march.step = next_step(there.distance, floor)
    else:
        march.step = wp.max(0.5 * (there.position - here.position), here.distance - floor)
    march.unsure = march.here.distance - floor < path.length - march.here.position
    return march


@wp.func
def sweep(path: Path, start: PathSample, reach: float, tolerance: float) -> PathSample:
    """Smallest signed distance of a path, to the tolerance, if it is below ``reach``.

    The value returned is that of a place on the path, and no place of the path is lower than it,
    or than ``reach``, by more than the tolerance. An infinite tolerance asks for the start alone.
    """
    if wp.isinf(tolerance):
        return start
    is_convex = is_exact(path.mesh_id, path.record)
    # Steps below the rounding of a place on the path would never end; NaN takes the finest.
    finest = 2.0 * rounding_on(path)
    slack = wp.where(tolerance > finest and not is_convex, tolerance, finest)
    end_of_tangent = start.distance + start.slope * path.length
    if is_convex and (start.slope >= 0.0 or end_of_tangent >= reach):
        return start
    march = March()
    march.best = start
    march.left = start
    march.right = start
    march.here = start
    # The far end first: it settles short paths, and lowers the floor of those that go in.
    march.step = path.length
    march.unsure = start.distance - (wp.min(start.distance, reach) - slack) < path.length
    while march.unsure:
        here = march.here
        there = sample_path(path, wp.min(here.position + march.step, path.length), here.closest)
        if is_convex:
            march = narrow(march, there, path, reach)
        else:
            march = advance(march, there, path, reach, slack)
    if march.best.distance >= reach:
        return march.best
    return refine_around(path, march.left, march.best, march.right)


@wp.func
def is_free(path: Path, start: PathSample, radius: float, tolerance: float) -> bool:
    """Whether no place of a path is nearer than ``radius``, by the bounds that `sweep` uses.

    True is a proof; False means a place that is nearer than the radius plus the tolerance.
    """
    rounding = rounding_on(path)
    reach = radius + wp.where(tolerance > 2.0 * rounding, tolerance, 2.0 * rounding)
    floor = radius + rounding
    here = start
    step = path.length
    while here.distance >= reach and here.distance - floor < path.length - here.position:
        there = sample_path(path, wp.min(here.position + step, path.length), here.closest)
        sure = here.distance - floor
        if there.distance < reach or step <= sure or lower_bound(path, here, there) >= floor:
            here = there
            step = next_step(here.distance, floor)
        else:
            step = wp.max(0.5 * (there.position - here.position), sure)
    return here.distance >= reach

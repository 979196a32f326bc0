"""Certified minimum of the signed distance along a path, for paths of any kind.

A path is parametrised by a position [m] from 0 to its length, at a speed of at most 1. The
factories take what differs between kinds of paths: samples, and lower bounds between two samples.
"""

import warp as wp

from warp_collision.kernels.compiling import named
from warp_collision.kernels.mesh_record import FAR

# Iterations that refine the value and the gradient of a minimum.
MAX_REFINEMENTS = wp.constant(24)
# Samples that are farther apart, relative to the path, see a mesh as a ball rather than its faces.
FAR_APART = wp.constant(0.1)
# Iterations in which they do: beside an edge a ball may be nowhere near.
MAX_BALLS = wp.constant(3)
# Step length, relative to sqrt((distance - floor) (distance + floor)): bounds hold up to 2 if the
# distance is constant. With any slope such a step fails, which costs a query.
STEP_FACTOR = wp.constant(1.5)
# Distances that differ by less may differ by rounding only [m].
DISTANCE_NOISE = wp.constant(1.0e-7)


@wp.struct
class PathSample:
    """The signed distance at one position of a path."""

    position: float  # along the path [m]
    distance: float  # [m]
    slope: float  # d distance / d position
    gradient: wp.vec3
    closest: wp.vec3
    found: bool  # False: the distance is a lower bound


@wp.func
def next_step(distance: float, floor: float) -> float:
    """Step over which a bound likely holds, if the distance changes little."""
    proven = distance - floor
    if distance > 0.0 and floor > 0.0:
        return wp.max(
            proven, STEP_FACTOR * wp.sqrt(wp.max((distance - floor) * (distance + floor), 0.0))
        )
    if distance < 0.0:
        return wp.max(
            proven, STEP_FACTOR * wp.sqrt(wp.max((distance - floor) * -(distance + floor), 0.0))
        )
    return STEP_FACTOR * proven


@wp.func
def step_between(here: PathSample, there: PathSample, floor: float) -> float:
    """Step from a sample to the middle of what it and the one ahead leave open.

    The distance changes by no more than the position, so that each proves a part of the path. A
    step into what the first one proves nearly all of would be followed by ever smaller ones.
    """
    proven = here.distance - floor
    open_to = there.position - wp.max(there.distance - floor, 0.0)
    step = 0.5 * (proven + open_to - here.position)
    return wp.where(step > 1.5 * proven, step, proven)


@wp.func
def open_beside(here: PathSample, there: PathSample, step: float, floor: float) -> float:
    """How far what two samples leave open goes from a step between them, to the farther side."""
    proven = here.distance - floor
    open_to = there.position - wp.max(there.distance - floor, 0.0) - here.position
    return wp.max(step - proven, open_to - step)


@wp.func
def lower_of(first: PathSample, second: PathSample) -> PathSample:
    """The sample with the smaller distance, the second one if they are equal."""
    if first.distance < second.distance:
        return first
    return second


@wp.func
def lower_by_more_than_noise(sample: PathSample, best: PathSample) -> PathSample:
    """The sample if it is lower than the best one by more than rounding.

    Else the best one, which has been refined: beside an edge, rounding of distances hides the last
    micrometres to a minimum, on which the gradient turns. The smaller distance stays in any case.
    """
    if sample.distance < best.distance - DISTANCE_NOISE:
        return sample
    if sample.distance < best.distance:
        best.distance = sample.distance
    return best


@wp.struct
class Minimum:
    """A minimum, and the outermost samples on both sides of it that were taken to find it."""

    lowest: PathSample
    left: PathSample
    right: PathSample


@wp.func
def next_of(position: float, sample: PathSample, other: PathSample) -> PathSample:
    """The first of two samples that is beyond a position, where the other one is."""
    if sample.position > position and sample.position < other.position:
        return sample
    return other


@wp.func
def nearest_to_ball(left: PathSample, right: PathSample, default: float) -> float:
    """From the left sample to where a straight path is nearest to a ball, given by two samples.

    At distance d from a ball of radius r the slope is x / (d + r), with x the position beyond the
    nearest one: two samples give both unknowns. Returns the default where it is no ball.
    """
    width = right.position - left.position
    at_left = left.distance * left.slope
    radius = (width + at_left - right.distance * right.slope) / (right.slope - left.slope)
    if radius + wp.min(left.distance, right.distance) > 0.0:
        return -left.slope * radius - at_left
    return default


@wp.struct
class Cut:
    """Where the next sample of a refinement is."""

    offset: float  # from the left sample [m]
    is_noisy: bool  # where tangents meet is rounding: slopes decide
    is_converged: bool  # the minimum is there


@wp.func
def cut_between(
    left: PathSample, right: PathSample, precision: float, is_far: bool, step: int
) -> Cut:
    """Where a minimum between two samples is to be looked for.

    Where a ball would be nearest, between close samples at the zero of the interpolated slope, or
    at a kink where the two tangents intersect, and in the middle unless both slopes point inwards.

    Args:
        left: one sample.
        right: the other one.
        precision: of the position [m].
        is_far: whether the samples see the mesh as a ball rather than its faces.
        step: number of the cut, of those that refine a minimum.
    """
    width = right.position - left.position
    cut = Cut(0.5 * width, False, False)
    if left.slope < 0.0 and right.slope > 0.0:
        rise = right.slope - left.slope
        meet = (left.distance - right.distance + right.slope * width) / rise
        gain = wp.min(left.distance, right.distance) - (left.distance + left.slope * meet)
        # The intersection of nearly parallel tangents is lost in rounding; slopes are not.
        cut.is_noisy = gain < DISTANCE_NOISE and DISTANCE_NOISE > precision * rise
        if cut.is_noisy:
            is_flat = wp.min(-left.slope, right.slope) < 1.0e-5
            cut.is_converged = width < 2.0 * precision or is_flat
        else:
            is_beside = wp.min(meet, width - meet) < precision
            # The gradient of a far sample may be another one where the tangents meet.
            cut.is_converged = gain < DISTANCE_NOISE and is_beside and not is_far
        cubic_term = right.distance - left.distance - 0.5 * (left.slope + right.slope) * width
        if cut.is_noisy or wp.abs(cubic_term) < 0.01 * rise * width:
            meet = -left.slope / rise * width
        elif is_far and step < MAX_BALLS:
            meet = nearest_to_ball(left, right, meet)
        if cut.is_converged or width < 1.0e-6:
            cut.is_converged = True
            cut.offset = meet
        elif not cut.is_noisy or step % 2 == 0:
            cut.offset = wp.clamp(meet, 0.05 * width, 0.95 * width)
    return cut


@wp.func
def falls_right_of(middle: PathSample, left: PathSample, right: PathSample, is_noisy: bool) -> bool:
    """Whether the minimum is between the middle and the right one of three samples."""
    if is_noisy or middle.distance < wp.min(left.distance, right.distance) + DISTANCE_NOISE:
        return middle.slope < 0.0
    return not (left.distance <= right.distance)


def make_refine(Track, kind, sample):
    """The function that refines a minimum between two samples.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        sample: device function (path: Track, position: float, near: vec3, limit: float) ->
            PathSample, found where the distance is below the limit; of ``near``, a surface point,
            the distance is not below it.
    """

    def refine(path: Track, left: PathSample, right: PathSample, is_convex: bool) -> Minimum:
        """A minimum between two samples; the distance decreases from the lower to the other one.

        If the slopes stay apart the minimum is a kink: its gradient is the mean of the two
        gradients, weighted to have no slope.
        """
        around = Minimum(left, left, right)
        begin = left.position
        end = right.position
        cut = Cut()
        # The position distributes the gradient to the two waypoints.
        precision = 2.0e-4 * path.length
        for step in range(MAX_REFINEMENTS):
            width = right.position - left.position
            is_far = width > FAR_APART * path.length and not is_convex
            cut = cut_between(left, right, precision, is_far, step)
            if cut.is_converged:
                break
            middle = sample(path, left.position + cut.offset, left.closest, FAR)
            if falls_right_of(middle, left, right, cut.is_noisy):
                left = middle
                if around.left.position == begin:
                    around.left = middle
            else:
                right = middle
                if around.right.position == end:
                    around.right = middle
        best = lower_of(left, right)
        if cut.is_converged:
            weight = right.slope / (right.slope - left.slope)
            best.gradient = weight * left.gradient + (1.0 - weight) * right.gradient
            best.position = left.position + cut.offset
        around.lowest = best
        return around

    return named(refine, kind)


@wp.func
def falls_inwards(start: PathSample, end: PathSample, reach: float) -> bool:
    """Whether a minimum that matters lies between two samples, beside the lower one."""
    if start.distance < end.distance:
        return start.slope < 0.0 and start.distance < reach
    return end.slope > 0.0 and end.distance < reach


def make_lowest_on(Track, kind, sample, end_of, lower_bound, step_beyond):
    """The function that finds the smallest distance on a path, and certifies it.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        sample: see `make_refine`.
        end_of: device function (path: Track, start: PathSample, reach: float, limit: float) ->
            PathSample, the sample at the end; the reach is that of `make_cost`.
        lower_bound: device function (path: Track, a: PathSample, b: PathSample) -> float, certified
            lower bound of the distance between two samples.
        step_beyond: device function (path: Track, distance: float, floor: float) -> float, step
            over which a bound likely holds.
    """
    refine = make_refine(Track, kind, sample)

    def lowest_on(
        path: Track, start: PathSample, reach: float, slack: float, is_convex: bool
    ) -> PathSample:
        """The smallest distance; nowhere is it, or the reach, undercut by more than the slack.

        What is below all samples before is refined at once: the lower the minimum, the farther
        reach the samples that certify the rest. Of a convex distance there is one minimum.
        """
        least = wp.min(start.distance, reach)
        floor = least - slack
        falls = start.slope < 0.0 and start.distance < reach
        if not falls and not (start.distance - floor < path.length):
            return start
        # Of a sample that certifies all that is open beside it no more is asked than that.
        limit = wp.max(floor + (path.length - (start.distance - floor)), least)
        end = end_of(path, start, reach, limit)
        best = lower_of(end, start)
        around = Minimum(best, start, end)
        falls = falls_inwards(start, end, reach)
        here = start
        ahead = end
        step = float(path.length)
        floor = wp.min(best.distance, reach) - slack
        while falls or here.distance - floor < path.length - here.position:
            if falls:
                around = refine(path, around.left, around.right, is_convex)
                best = lower_by_more_than_noise(best, around.lowest)
                if is_convex:
                    return best
                floor = wp.min(best.distance, reach) - slack
                falls = False
            there = next_of(here.position, around.right, end)
            there = next_of(here.position, around.left, there)
            there = next_of(here.position, ahead, there)
            length = there.position - here.position
            if length <= here.distance - floor or lower_bound(path, here, there) >= floor:
                here = there
                step = step_beyond(path, here.distance, floor)
            else:
                step = wp.min(step, step_between(here, there, floor))
                least = wp.min(best.distance, reach)
                limit = wp.max(floor + open_beside(here, there, step, floor), least)
                ahead = sample(path, here.position + step, here.closest, limit)
                step = path.length
                falls = ahead.slope != 0.0 and ahead.distance < least - DISTANCE_NOISE
                if falls and ahead.slope < 0.0:
                    around = Minimum(ahead, ahead, there)
                elif falls:
                    around = Minimum(ahead, here, ahead)
                best = lower_by_more_than_noise(ahead, best)
                floor = wp.min(best.distance, reach) - slack
        return best

    return named(lowest_on, kind)


def make_is_free(Track, kind, sample, end_of, lower_bound, step_beyond, rounding_on):
    """The function that decides whether a path is free.

    Args:
        Track: see `make_lowest_on`.
        kind: see `make_lowest_on`.
        sample: see `make_lowest_on`.
        end_of: see `make_lowest_on`.
        lower_bound: see `make_lowest_on`.
        step_beyond: see `make_lowest_on`.
        rounding_on: device function (path: Track) -> float, rounding of distances [m].
    """

    def is_free(path: Track, start: PathSample, radius: float, tolerance: float) -> bool:
        """Whether the distance is nowhere below ``radius``, by the bounds of `sweep`.

        True is a proof; False means that somewhere it is below the radius plus the tolerance.
        """
        rounding = rounding_on(path)
        reach = radius + wp.where(tolerance > 2.0 * rounding, tolerance, 2.0 * rounding)
        floor = radius + rounding
        here = start
        there = start
        if not start.found:
            here.distance = reach  # nothing is within reach there
        step = float(path.length)
        while here.distance >= reach and here.distance - floor < path.length - here.position:
            proven = here.distance - floor
            if here.position + step < path.length:
                limit = wp.max(floor + step - proven, reach)
                there = sample(path, here.position + step, here.closest, limit)
            else:
                limit = wp.max(floor + path.length - here.position - proven, reach)
                there = end_of(path, here, reach, limit)
            if there.distance < reach or step <= proven or lower_bound(path, here, there) >= floor:
                here = there
                step = step_beyond(path, here.distance, floor)
            else:
                step = step_between(here, there, floor)
        return here.distance >= reach

    return named(is_free, kind)

"""Certified minimum of the signed distance along a path, for paths of any kind.

A path is parametrised by a position [m] from 0 to its length, at a speed of at most 1. The
factories take what differs between kinds of paths: samples, and lower bounds between two samples.
"""

import warp as wp

# Iterations that refine the value and the gradient of a minimum that is already certified.
MAX_REFINEMENTS = wp.constant(16)
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
def lower_of(first: PathSample, second: PathSample) -> PathSample:
    """The sample with the smaller distance, the second one if they are equal."""
    if first.distance < second.distance:
        return first
    return second


@wp.struct
class March:
    """State of the march: up to where the minimum is certified."""

    best: PathSample
    left: PathSample  # nearest samples on both sides of the best
    right: PathSample
    here: PathSample  # on meshes, the path is certified up to here
    ahead: PathSample  # the last sample up to which the path was not certified
    step: float  # from the left sample, or from here, to the next one [m]
    needs_sample: bool  # whether a next sample is needed
    tries_ahead: bool  # whether that is the one ahead, which is known


@wp.func
def begin_march(start: PathSample, length: float, reach: float, slack: float) -> March:
    """The march at the start of a path; the first step is to its end."""
    march = March()
    march.best = start
    march.left = start
    march.right = start
    march.here = start
    march.ahead = start
    march.step = length
    march.needs_sample = start.distance - (wp.min(start.distance, reach) - slack) < length
    return march


def named(function, kind):
    """A device function made by a factory; Warp identifies functions by their qualified names."""
    function.__name__ = function.__qualname__ = f"{function.__name__}_{kind}"
    return wp.func(function)


def make_refine(Track, kind, sample):
    """Functions (refine, refine_around) that refine a minimum between samples.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        sample: device function (path: Track, position: float, near: vec3) -> PathSample.
    """

    def refine(path: Track, left: PathSample, right: PathSample) -> PathSample:
        """A minimum between two samples; the distance decreases from the lower to the other one.

        Cuts at the zero of the interpolated slope, or at a kink where the two tangents intersect,
        and in the middle unless both slopes point inwards. If the slopes stay apart the minimum is
        a kink: its gradient is the mean of the two gradients, weighted to have no slope.
        """
        converged = bool(False)
        cut = float(0.0)
        # The position distributes the gradient to the two waypoints.
        precision = 2.0e-4 * path.length
        for step in range(MAX_REFINEMENTS):
            width = right.position - left.position
            cut = 0.5 * width
            is_noisy = bool(False)
            if left.slope < 0.0 and right.slope > 0.0:
                rise = right.slope - left.slope
                meet = (left.distance - right.distance + right.slope * width) / rise
                gain = wp.min(left.distance, right.distance) - (left.distance + left.slope * meet)
                # The intersection of nearly parallel tangents is lost in rounding; slopes are not.
                is_noisy = gain < DISTANCE_NOISE and DISTANCE_NOISE > precision * rise
                if is_noisy:
                    converged = width < 2.0 * precision or wp.min(-left.slope, right.slope) < 1.0e-5
                else:
                    converged = gain < DISTANCE_NOISE and wp.min(meet, width - meet) < precision
                cubic_term = (
                    right.distance - left.distance - 0.5 * (left.slope + right.slope) * width
                )
                if is_noisy or wp.abs(cubic_term) < 0.01 * rise * width:
                    meet = -left.slope / rise * width
                if converged or width < 1.0e-6:
                    converged = True
                    cut = meet
                    break
                if not is_noisy or step % 2 == 0:
                    cut = wp.clamp(meet, 0.05 * width, 0.95 * width)
            middle = sample(path, left.position + cut, left.closest)
            lowest = wp.min(left.distance, right.distance)
            falls_right = left.distance <= right.distance
            if is_noisy or middle.distance < lowest:
                falls_right = middle.slope < 0.0
            else:
                falls_right = not falls_right
            if falls_right:
                left = middle
            else:
                right = middle
        best = lower_of(left, right)
        if converged:
            weight = right.slope / (right.slope - left.slope)
            best.gradient = weight * left.gradient + (1.0 - weight) * right.gradient
            best.position = left.position + cut
        return best

    refine = named(refine, kind)

    def refine_around(
        path: Track, left: PathSample, best: PathSample, right: PathSample
    ) -> PathSample:
        """Refines the best sample on the side to which the distance decreases."""
        if best.slope < 0.0 and best.position < path.length:
            other = right
            if right.position <= best.position:
                other = sample(path, path.length, best.closest)
            return lower_of(best, refine(path, best, other))
        if best.slope > 0.0 and best.position > left.position:
            return lower_of(best, refine(path, left, best))
        return best

    return refine, named(refine_around, kind)


def make_advance(Track, kind, lower_bound, step_beyond):
    """The function that updates the march with one more sample.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        lower_bound: device function (path: Track, a: PathSample, b: PathSample) -> float, certified
            lower bound of the distance between two samples.
        step_beyond: device function (path: Track, distance: float, floor: float) -> float, step
            over which a bound likely holds.
    """

    def advance(march: March, there: PathSample, path: Track, reach: float, slack: float) -> March:
        """Certifies the path up to the sample ``there``, or shortens the next step."""
        here = march.here
        if there.distance < march.best.distance:
            # Steps only shrink towards `here`: no sample lies between.
            march.left = here
            march.right = wp.where(march.best.position > there.position, march.best, there)
            march.best = there
        elif there.position > march.best.position and (
            march.right.position <= march.best.position or there.position < march.right.position
        ):
            march.right = there
        floor = wp.min(march.best.distance, reach) - slack
        length = wp.where(march.tries_ahead, there.position - here.position, march.step)
        if length <= here.distance - floor or lower_bound(path, here, there) >= floor:
            march.here = there
            march.step = step_beyond(path, there.distance, floor)
            march.tries_ahead = march.ahead.position > there.position
        else:
            march.ahead = there
            march.tries_ahead = False
            march.step = step_between(here, there, floor)
        march.needs_sample = march.here.distance - floor < path.length - march.here.position
        return march

    return named(advance, kind)


def make_is_free(Track, kind, sample, lower_bound, step_beyond, rounding_on):
    """The function that decides whether a path is free; see `make_refine` and `make_advance`.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        sample: see `make_refine`.
        lower_bound: see `make_advance`.
        step_beyond: see `make_advance`.
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
        step = path.length
        while here.distance >= reach and here.distance - floor < path.length - here.position:
            there = sample(path, wp.min(here.position + step, path.length), here.closest)
            proven = here.distance - floor
            if there.distance < reach or step <= proven or lower_bound(path, here, there) >= floor:
                here = there
                step = step_beyond(path, here.distance, floor)
            else:
                step = step_between(here, there, floor)
        return here.distance >= reach

    return named(is_free, kind)

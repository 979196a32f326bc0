"""Marching along a path to its smallest signed distance: what all kinds of paths have in common.

A path is parametrised by a position [m] from 0 to its length, at a speed of 1 or less. Factories
take what tells the kinds apart: a sample at a position, a lower bound between two samples.
"""

import warp as wp

# Refinements of a minimum that is already certified: they sharpen its value and its gradient.
MAX_REFINEMENTS = wp.constant(16)
# Steps, relative to the root of a sum and a difference of distances: 2 is as far as bounds reach
# where the distance stays what it is. Any slope makes such a step fail, which costs a query.
STEP_FACTOR = wp.constant(1.5)
# Distances that differ by less may be equal but for rounding [m].
DISTANCE_NOISE = wp.constant(1.0e-7)


@wp.struct
class PathSample:
    """The signed distance at one position of a path."""

    position: float  # along the path [m]
    distance: float  # [m]
    slope: float  # d distance / d position
    gradient: wp.vec3
    closest: wp.vec3
    found: bool  # False: the distance is only known to be at least the value


@wp.func
def next_step(distance: float, floor: float) -> float:
    """How far a bound is likely to reach, as the distance changes little; certain at least."""
    certain = distance - floor
    if distance > 0.0 and floor > 0.0:
        return wp.max(
            certain, STEP_FACTOR * wp.sqrt(wp.max((distance - floor) * (distance + floor), 0.0))
        )
    if distance < 0.0:
        return wp.max(
            certain, STEP_FACTOR * wp.sqrt(wp.max((distance - floor) * -(distance + floor), 0.0))
        )
    return STEP_FACTOR * certain


@wp.func
def lower_of(first: PathSample, second: PathSample) -> PathSample:
    """The sample of smaller distance, the second if they are equal."""
    if first.distance < second.distance:
        return first
    return second


@wp.struct
class March:
    """How far along a path the minimum is known."""

    best: PathSample
    left: PathSample  # nearest samples on both sides of the best
    right: PathSample
    here: PathSample  # of a mesh, the path is certified up to here
    step: float  # from the sample on the left, or from here, to the next one [m]
    unsure: bool  # whether there is a next one


def named(function, kind):
    """A device function of a factory; Warp knows functions by their qualified names."""
    function.__name__ = function.__qualname__ = f"{function.__name__}_{kind}"
    return wp.func(function)


def make_refine(Track, kind, sample):
    """Functions (refine, refine_around) that sharpen a minimum between samples.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        sample: device function (path: Track, position: float, near: vec3) -> PathSample.
    """

    def refine(path: Track, left: PathSample, right: PathSample) -> PathSample:
        """A minimum between two samples, the lower of which falls towards the other.

        Cuts where an evenly growing slope is zero, or where the two tangents meet, as at a kink; in
        the middle while the slopes do not face each other. Where they stay apart to the end the
        minimum is a kink: the derivative of its value is the mean of the two gradients without
        slope.
        """
        converged = bool(False)
        cut = float(0.0)
        sharp = 2.0e-4 * path.length  # the position distributes the gradient to the two waypoints
        for step in range(MAX_REFINEMENTS):
            width = right.position - left.position
            cut = 0.5 * width
            is_noisy = bool(False)
            if left.slope < 0.0 and right.slope > 0.0:
                rise = right.slope - left.slope
                meet = (left.distance - right.distance + right.slope * width) / rise
                gain = wp.min(left.distance, right.distance) - (left.distance + left.slope * meet)
                # Rounded distances do not tell where nearly parallel tangents meet: slopes do.
                is_noisy = gain < DISTANCE_NOISE and DISTANCE_NOISE > sharp * rise
                if is_noisy:
                    converged = width < 2.0 * sharp or wp.min(-left.slope, right.slope) < 1.0e-5
                else:
                    converged = gain < DISTANCE_NOISE and wp.min(meet, width - meet) < sharp
                bend = right.distance - left.distance - 0.5 * (left.slope + right.slope) * width
                if is_noisy or wp.abs(bend) < 0.01 * rise * width:
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
            share = right.slope / (right.slope - left.slope)
            best.gradient = share * left.gradient + (1.0 - share) * right.gradient
            best.position = left.position + cut
        return best

    refine = named(refine, kind)

    def refine_around(
        path: Track, left: PathSample, best: PathSample, right: PathSample
    ) -> PathSample:
        """Sharpens the best sample by its neighbour on the side to which the distance falls."""
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
    """The function that takes one more sample into account on the way along a path.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        lower_bound: device function (path: Track, a: PathSample, b: PathSample) -> float, certified
            lower bound of the distance between two samples.
        step_beyond: device function (path: Track, distance: float, floor: float) -> float, how far
            a bound is likely to reach.
    """

    def advance(march: March, there: PathSample, path: Track, reach: float, slack: float) -> March:
        """One more sample: certifies the path up to it, or lets the next trial be nearer."""
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
            march.step = step_beyond(path, there.distance, floor)
        else:
            march.step = wp.max(0.5 * (there.position - here.position), here.distance - floor)
        march.unsure = march.here.distance - floor < path.length - march.here.position
        return march

    return named(advance, kind)


def make_is_free(Track, kind, sample, lower_bound, step_beyond, rounding_on):
    """The function that tells whether a path stays clear; see `make_refine` and `make_advance`.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        sample: see `make_refine`.
        lower_bound: see `make_advance`.
        step_beyond: see `make_advance`.
        rounding_on: device function (path: Track) -> float, how far distances are rounded [m].
    """

    def is_free(path: Track, start: PathSample, radius: float, tolerance: float) -> bool:
        """Whether no point of a path is nearer than ``radius``, by the bounds that `sweep` uses.

        True is a proof; False means a point that is nearer than the radius plus the tolerance.
        """
        rounding = rounding_on(path)
        reach = radius + wp.where(tolerance > 2.0 * rounding, tolerance, 2.0 * rounding)
        floor = radius + rounding
        here = start
        step = path.length
        while here.distance >= reach and here.distance - floor < path.length - here.position:
            there = sample(path, wp.min(here.position + step, path.length), here.closest)
            certain = here.distance - floor
            if there.distance < reach or step <= certain or lower_bound(path, here, there) >= floor:
                here = there
                step = step_beyond(path, here.distance, floor)
            else:
                step = wp.max(0.5 * (there.position - here.position), certain)
        return here.distance >= reach

    return named(is_free, kind)

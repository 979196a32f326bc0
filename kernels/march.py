"""Certified minimum of the signed distance along a path, for paths of any kind.

A path is parametrised by a position [m] from 0 to its length, at a speed of at most 1. The
factories take what differs between kinds of paths: samples, and lower bounds between two samples.
"""

import warp as wp

# Iterations that refine the value and the gradient of a minimum that is already certified.
MAX_REFINEMENTS = wp.constant(16)
# Samples farther apart than this, relative to the path, see a mesh as a ball rather than its faces.
ROUND_WIDTH = wp.constant(0.1)
# Step length, relative to sqrt((distance - floor) (distance + floor)): bounds hold up to 2 if the
# distance is constant. With any slope such a step fails, which costs a query.
STEP_FACTOR = wp.constant(1.5)
# Samples that are kept of a path, whichever they are: what is forgotten may be asked again.
N_SAMPLES = wp.constant(8)
row_of_sample = wp.types.vector(length=10, dtype=wp.float32)
rows_of_samples = wp.types.matrix(shape=(8, 10), dtype=wp.float32)
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
class Samples:
    """The last samples of a path, in any order; rows of position 0 are empty."""

    rows: rows_of_samples
    count: int  # of all that were taken


@wp.struct
class Search:
    """A search for the smallest distance on a path."""

    best: PathSample
    left: PathSample  # the nearest samples on both sides of the minimum that is refined
    right: PathSample
    samples: Samples


@wp.func
def with_sample(samples: Samples, sample: PathSample) -> Samples:
    """The samples and one more, in place of the one that was taken first."""
    g = sample.gradient
    c = sample.closest
    found = wp.where(sample.found, 1.0, 0.0)
    rows = samples.rows
    rows[samples.count % N_SAMPLES] = row_of_sample(
        sample.position, sample.distance, sample.slope, g[0], g[1], g[2], c[0], c[1], c[2], found
    )
    return Samples(rows, samples.count + 1)


@wp.func
def next_sample(samples: Samples, position: float, end: PathSample) -> PathSample:
    """The first sample beyond a position, of those that are kept and the one at the end."""
    nearest = int(-1)
    reach = end.position
    for index in range(wp.min(samples.count, N_SAMPLES)):
        there = samples.rows[index, 0]
        if there > position and there < reach:
            nearest = index
            reach = there
    if nearest < 0:
        return end
    row = samples.rows[nearest]
    gradient = wp.vec3(row[3], row[4], row[5])
    closest = wp.vec3(row[6], row[7], row[8])
    return PathSample(row[0], row[1], row[2], gradient, closest, row[9] > 0.0)


def named(function, kind):
    """A device function made by a factory; Warp identifies functions by their qualified names."""
    function.__name__ = function.__qualname__ = f"{function.__name__}_{kind}"
    return wp.func(function)


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


def make_refine(Track, kind, sample):
    """The function that refines a minimum between two samples.

    Args:
        Track: type of the path, which has a `length`.
        kind: name of that kind of path.
        sample: device function (path: Track, position: float, near: vec3) -> PathSample.
    """

    def refine(path: Track, search: Search) -> Search:
        """Goes on to a minimum between two samples; from the lower one the distance decreases.

        Cuts where a ball would be nearest; between close samples at the zero of the interpolated
        slope, or at a kink where the two tangents intersect; in the middle unless both slopes point
        inwards. If the slopes stay apart the minimum is
        a kink: its gradient is the mean of the two gradients, weighted to have no slope.
        """
        left = search.left
        right = search.right
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
                    converged = converged and width < 0.05 * path.length
                cubic_term = (
                    right.distance - left.distance - 0.5 * (left.slope + right.slope) * width
                )
                if is_noisy or wp.abs(cubic_term) < 0.01 * rise * width:
                    meet = -left.slope / rise * width
                elif width > ROUND_WIDTH * path.length:
                    meet = nearest_to_ball(left, right, meet)
                if converged or width < 1.0e-6:
                    converged = True
                    cut = meet
                    break
                if not is_noisy or step % 2 == 0:
                    cut = wp.clamp(meet, 0.05 * width, 0.95 * width)
            middle = sample(path, left.position + cut, left.closest)
            search.samples = with_sample(search.samples, middle)
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
        search.best = lower_of(search.best, best)
        return search

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
        sample: device function (path: Track, position: float, near: vec3) -> PathSample.
        end_of: device function (path: Track, start: PathSample, reach: float) -> PathSample, the
            sample at the end.
        lower_bound: device function (path: Track, a: PathSample, b: PathSample) -> float, certified
            lower bound of the distance between two samples.
        step_beyond: device function (path: Track, distance: float, floor: float) -> float, step
            over which a bound likely holds.
    """
    refine = make_refine(Track, kind, sample)

    def lowest_on(path: Track, start: PathSample, reach: float, slack: float) -> PathSample:
        """The smallest distance; nowhere is it, or the reach, undercut by more than the slack.

        What is below all samples before is refined at once: the lower the minimum, the farther
        reach the samples that certify the rest.
        """
        floor = wp.min(start.distance, reach) - slack
        falls = start.slope < 0.0 and start.distance < reach
        if not falls and not (start.distance - floor < path.length):
            return start
        end = end_of(path, start, reach)
        search = Search()
        search.best = lower_of(start, end)
        search.left = start
        search.right = end
        falls = falls_inwards(start, end, reach)
        here = start
        step = float(path.length)
        floor = wp.min(search.best.distance, reach) - slack
        while falls or here.distance - floor < path.length - here.position:
            if falls:
                search = refine(path, search)
                falls = False
                floor = wp.min(search.best.distance, reach) - slack
            ahead = next_sample(search.samples, here.position, end)
            length = ahead.position - here.position
            if length <= here.distance - floor or lower_bound(path, here, ahead) >= floor:
                here = ahead
                step = step_beyond(path, here.distance, floor)
            else:
                step = wp.min(step, step_between(here, ahead, floor))
                there = sample(path, here.position + step, here.closest)
                search.samples = with_sample(search.samples, there)
                step = path.length
                falls = there.slope != 0.0 and there.distance < wp.min(search.best.distance, reach)
                if falls:
                    search.left = here
                    search.right = there
                    if there.slope < 0.0:
                        search.left = there
                        search.right = ahead
                search.best = lower_of(search.best, there)
                floor = wp.min(search.best.distance, reach) - slack
        return search.best

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
        if not start.found:
            here.distance = reach  # nothing is within reach there
        step = float(path.length)
        while here.distance >= reach and here.distance - floor < path.length - here.position:
            there = end_of(path, here, reach)
            if here.position + step < path.length:
                there = sample(path, here.position + step, here.closest)
            proven = here.distance - floor
            if there.distance < reach or step <= proven or lower_bound(path, here, there) >= floor:
                here = there
                step = step_beyond(path, here.distance, floor)
            else:
                step = step_between(here, there, floor)
        return here.distance >= reach

    return named(is_free, kind)

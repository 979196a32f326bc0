"""The two half segments at a waypoint against one obstacle: their cost, and whether they are free.

In the frame of an obstacle at rest they are straight, in that of a moving one they are curves. Each
kind is a struct of both halves, with

- `begin`: the center of the sphere at the waypoint, in the frame of the obstacle,
- `mesh_from_world` at the waypoint,
- `longest`: the length of the longer half [m],
- `coordinates`: the sum of the lengths to which the rounding of distances is relative [m],
- `is_valid`: whether its coordinates are in range,

and the functions that the factories take.
"""

from typing import Any

import warp as wp

from warp_collision.kernels.compiling import named
from warp_collision.kernels.hinge import hinge
from warp_collision.kernels.march import PathSample
from warp_collision.kernels.mesh_distance import SdfSample, distance_of_obstacle, nothing_nearer
from warp_collision.kernels.precision import is_in_range, is_length, uncertainty
from warp_collision.kernels.scene_walk import Obstacle
from warp_collision.kernels.transforms import to_world

# A distance is below another one that is larger by this, relative to it.
SLIGHTLY = wp.constant(1.0e-6)


@wp.struct
class Motion:
    """One sphere at one waypoint, and its centers at the neighbouring waypoints."""

    center: wp.vec3
    radius: float
    previous: wp.vec3  # the center itself where the path begins
    following: wp.vec3  # the center itself where the path ends
    has_previous: bool
    has_following: bool
    sphere: int  # index of the sphere


@wp.struct
class SweepQuery:
    """The half segments at one waypoint, their activation distance and sweep tolerance."""

    motion: Motion
    activation_distance: float  # [m]
    tolerance: float  # [m]


@wp.struct
class SweptCost:
    """Unweighted cost of one sphere at one waypoint, and its gradient."""

    cost: float
    radius: float  # d cost / d radius
    previous: wp.vec3  # d cost / d center at the waypoint before
    center: wp.vec3
    following: wp.vec3
    contact: wp.vec3  # the point of smallest distance, in the world
    by_contact: wp.vec3  # d cost / d contact, in the frame of the obstacle at the waypoint
    fraction: float  # of the segment to the neighbour, where that point is
    is_backward: bool  # whether the neighbour is the previous waypoint


@wp.func
def neighbour(
    spheres: wp.array3d[wp.vec4], row: int, waypoint: int, index: int, sphere: wp.vec4
) -> wp.vec4:
    """The sphere at a neighbouring waypoint, a disabled one where the path ends."""
    if waypoint < 0 or waypoint >= spheres.shape[1] or spheres[row, waypoint, index][3] < 0.0:
        return wp.vec4(sphere[0], sphere[1], sphere[2], -1.0)
    return spheres[row, waypoint, index]


@wp.func
def load_motion(spheres: wp.array3d[wp.vec4], row: int, waypoint: int, index: int) -> Motion:
    """Reads a sphere and its two neighbours along the horizon."""
    sphere = spheres[row, waypoint, index]
    before = neighbour(spheres, row, waypoint - 1, index, sphere)
    after = neighbour(spheres, row, waypoint + 1, index, sphere)
    motion = Motion()
    motion.center = wp.vec3(sphere[0], sphere[1], sphere[2])
    motion.radius = sphere[3]
    motion.previous = wp.vec3(before[0], before[1], before[2])
    motion.following = wp.vec3(after[0], after[1], after[2])
    motion.has_previous = not (before[3] < 0.0)
    motion.has_following = not (after[3] < 0.0)
    motion.sphere = index
    return motion


@wp.func
def is_valid(motion: Motion, activation_distance: float) -> bool:
    """Whether the coordinates and lengths of a motion that is not disabled are valid."""
    return (
        is_in_range(motion.center)
        and is_in_range(motion.previous)
        and is_in_range(motion.following)
        and is_length(motion.radius)
        and is_length(activation_distance)
    )


@wp.func
def not_a_number() -> SweptCost:
    """NaN, the cost of a path that is not finite: never free."""
    unknown = wp.vec3(wp.nan, wp.nan, wp.nan)
    result = SweptCost()
    result.cost = wp.nan
    result.radius = wp.nan
    result.previous = unknown
    result.center = unknown
    result.following = unknown
    result.by_contact = unknown
    return result


@wp.func
def is_before(first: wp.vec3, second: wp.vec3) -> bool:
    """An order of points, by their coordinates."""
    if first[0] != second[0]:
        return first[0] < second[0]
    if first[1] != second[1]:
        return first[1] < second[1]
    return first[2] < second[2]


@wp.struct
class Start:
    """The signed distance where a half segment, or its part, begins."""

    sample: SdfSample
    is_near: bool  # whether anything of it may be within reach
    is_at_waypoint: bool  # where the other half may begin, too


@wp.func
def start_of(obstacle: Obstacle, known: Start, track: Any, longest: float, reach: float) -> Start:
    """The distance where a half, or its part, begins; at the waypoint as known of the other one.

    Args:
        obstacle: the obstacle.
        known: of the other half.
        track: see `make_cost`; nothing is found of one of negative length.
        longest: length of the longer half [m].
        reach: how near to the obstacle matters [m].
    """
    if track.length < 0.0:
        return Start()
    if track.before > 0.0:
        return Start(nothing_nearer(reach), True, False)
    if known.is_at_waypoint:
        return known
    sample = distance_of_obstacle(obstacle.record, track.origin, reach + longest)
    return Start(sample, sample.found, True)


def make_cost(Halves, Track, kind, half_of, sample, sweep, fraction_at, rotate_to_begin):
    """The function that computes the cost of both half segments against one obstacle.

    Args:
        Halves: type of both half segments.
        Track: type of one or its part, which has an `origin`, a `length` and what lies `before`.
        kind: name of that kind.
        half_of: device function (obstacle: Obstacle, halves: Halves, side: int, reach: float) ->
            Track, all of the half to the neighbour before (side 0) or after that may be as near to
            the obstacle as the reach; of negative length if nothing.
        sample: device function (track: Track, position: float, sample: SdfSample) -> PathSample.
        sweep: device function (track: Track, start: PathSample, reach: float, tolerance: float) ->
            PathSample, the smallest distance.
        fraction_at: device function (track: Track, position: float) -> float, of the segment.
        rotate_to_begin: device function (track: Track, fraction: float, direction: vec3) -> vec3,
            from the frame of the obstacle at a fraction of the segment to that at its begin.
    """

    def cost_of(obstacle: Obstacle, query: SweepQuery, halves: Halves) -> SweptCost:
        """Cost of the half segments at one waypoint, against one obstacle."""
        if not halves.is_valid:
            return not_a_number()
        motion = query.motion
        result = SweptCost()
        rounding = uncertainty(halves.coordinates, query.activation_distance)
        reach = motion.radius + query.activation_distance + obstacle.padding + rounding
        lowest = PathSample()
        lowest.distance = wp.inf
        start = Start()
        nearest = Track()
        neighbour = motion.center
        # Each half is swept from the center, in an order that is the same for a reversed path, so
        # that its cost is, too: of the second half only what is below the first matters, and what
        # is above that by less than the tolerance, so that the lower one of two is always found.
        # The count is not a constant, so that the sweep is not compiled twice.
        limit = float(reach)
        for index in range(wp.where(halves.longest > 0.0, 2, 1)):
            side = wp.where(is_before(motion.following, motion.previous), 1 - index, index)
            track = half_of(obstacle, halves, side, limit)
            start = start_of(obstacle, start, track, halves.longest, limit)
            if start.is_near:
                first = sample(track, 0.0, start.sample)
                swept = sweep(track, first, limit, query.tolerance)
                # A distance of NaN stays.
                if not (swept.distance >= lowest.distance or wp.isnan(lowest.distance)):
                    lowest = swept
                    above = swept.distance + SLIGHTLY * wp.abs(swept.distance) + query.tolerance
                    limit = wp.where(above < reach, above, reach)
                    nearest = track
                    result.fraction = fraction_at(track, swept.position)
                    result.is_backward = side == 0
                    neighbour = wp.where(side == 0, motion.previous, motion.following)
        if lowest.distance >= reach:
            return result
        if rounding > 0.0 and lowest.distance >= reach - rounding:
            return not_a_number()
        term = hinge(reach - rounding - lowest.distance, query.activation_distance)
        result.cost = term[0]
        result.radius = term[1]
        # Envelope theorem: the gradient at the fixed minimiser, shared between the two waypoints.
        result.by_contact = rotate_to_begin(nearest, result.fraction, lowest.gradient * (-term[1]))
        result.contact = wp.lerp(motion.center, neighbour, result.fraction)
        force = to_world(halves.mesh_from_world, result.by_contact)
        if result.is_backward:
            result.previous = result.fraction * force
        else:
            result.following = result.fraction * force
        result.center = force - result.previous - result.following
        return result

    return named(cost_of, kind)


def make_touches(Halves, kind, half_of, sample, is_free):
    """The function that decides whether an obstacle touches a half segment; see `make_cost`.

    Args:
        Halves: see `make_cost`.
        kind: see `make_cost`.
        half_of: see `make_cost`.
        sample: see `make_cost`.
        is_free: device function (track: Track, start: PathSample, radius: float, tolerance: float)
            -> bool, see `make_is_free` in `march`.
    """

    def touches(obstacle: Obstacle, query: SweepQuery, halves: Halves) -> bool:
        """Whether the half segments at a waypoint are not certified free of an obstacle."""
        if not halves.is_valid:
            return True
        radius = query.motion.radius + obstacle.padding + uncertainty(halves.coordinates, 0.0)
        reach = radius + query.tolerance
        start = Start()
        # As in `make_cost`.
        for side in range(wp.where(halves.longest > 0.0, 2, 1)):
            track = half_of(obstacle, halves, side, reach)
            start = start_of(obstacle, start, track, halves.longest, reach)
            if start.is_near:
                first = sample(track, 0.0, start.sample)
                if not is_free(track, first, radius, query.tolerance):
                    return True
        return False

    return named(touches, kind)

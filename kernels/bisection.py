"""Bisection of a segment: the next interval, and the bodies and pairs that are open in it."""

import warp as wp

# Limits of a bisection: 2^MAX_LEVEL parts, and the number of evaluations.
MAX_LEVEL = wp.constant(20)
MAX_EVALUATIONS = wp.constant(65536)

masks = wp.types.vector(length=21, dtype=wp.uint64)
ALL = wp.constant(wp.uint64(0xFFFFFFFFFFFFFFFF))
NONE = wp.constant(wp.uint64(0))


@wp.struct
class Bisection:
    """A dyadic interval of [0, 1], and what is open in it: bit i % 64 for number i."""

    first_level: int  # of the parts that the segment begins with
    level: int  # the interval is 2^-level long
    index: int  # and begins at that many of its lengths
    evaluations: int  # intervals that were evaluated
    is_done: bool
    is_exhausted: bool  # a limit was reached with something open
    bodies: masks  # by level
    pairs: masks


@wp.func
def bit_of(number: int) -> wp.uint64:
    """The bit of a number; numbers with the same bit are open together."""
    return wp.uint64(1) << wp.uint64(number % 64)


@wp.func
def parts_of_segment(level: int) -> Bisection:
    """Everything is open in 2^level equal parts."""
    return Bisection(level, level, 0, 0, False, False, masks(ALL), masks(ALL))


@wp.func
def half_of(search: Bisection) -> float:
    """Half the length of the interval."""
    return 0.5 / float(1 << search.level)


@wp.func
def middle_of(search: Bisection) -> float:
    """The middle of the interval, exact in float32."""
    return (2.0 * float(search.index) + 1.0) * half_of(search)


@wp.func
def next_interval(search: Bisection, bodies: wp.uint64, pairs: wp.uint64) -> Bisection:
    """The first half of the interval if something is open in it, else the next interval."""
    search.evaluations += 1
    if bodies != NONE or pairs != NONE:
        if search.level == MAX_LEVEL or search.evaluations >= MAX_EVALUATIONS:
            search.is_exhausted = True
            search.is_done = True
            return search
        search.level += 1
        search.index *= 2
        of_bodies = search.bodies
        of_bodies[search.level] = bodies
        search.bodies = of_bodies
        of_pairs = search.pairs
        of_pairs[search.level] = pairs
        search.pairs = of_pairs
        return search
    search.index += 1
    while search.index % 2 == 0 and search.level > search.first_level:
        search.index /= 2
        search.level -= 1
    at_end = search.index == 1 << search.first_level
    search.is_done = at_end and search.level == search.first_level
    return search


@wp.func
def outward_middle_of(search: Bisection) -> float:
    """The middle of the interval, where a search goes from the middle of the segment outwards.

    The same intervals in another order: first the second half from its begin, then the first half
    from its end.
    """
    middle = middle_of(search)
    if search.level == 0:
        return middle
    return wp.where(middle < 0.5, 0.5 + middle, 1.0 - middle)

"""Bisection of a segment: the next interval, and the bodies and pairs that are open in it.

Several threads may share the search of a segment, see `Lane`. What is found of a body or pair in an
interval depends on no other one. So each takes some of them in a part of the segment, and all
intervals are those of the search by one thread.
"""

import warp as wp

# Limits of a bisection: 2^MAX_LEVEL parts, and the number of evaluations.
MAX_LEVEL = wp.constant(20)
MAX_EVALUATIONS = wp.constant(65536)

masks = wp.types.vector(length=21, dtype=wp.uint64)
ALL = wp.constant(wp.uint64(0xFFFFFFFFFFFFFFFF))
NONE = wp.constant(wp.uint64(0))


@wp.struct
class Lane:
    """One of the threads of a warp that share the check of a segment or configuration."""

    index: int
    count: int  # how many, a power of two up to 32; 1: it has all to itself
    hits: wp.array[wp.bool]  # of a row; where several share a check, False until one has a hit
    place: int  # of the segment or configuration among them


@wp.struct
class Share:
    """What a lane has of a search: numbers k with k % step == begin, in a part of the segment."""

    begin: int
    step: int  # a power of two
    level: int  # the part is 2^-level long, one of those that the search begins with or more
    part: int  # and begins at that many of its lengths


@wp.struct
class Bisection:
    """A dyadic interval of [0, 1], and what is open in it: bit i % 64 for number i."""

    share: Share  # only intervals in its part are searched
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


@wp.func_native("return ((volatile const bool*)hits.data)[place];")
def read_again(hits: wp.array[wp.bool], place: int) -> bool:
    """Reads what other threads may have written meanwhile."""
    ...


@wp.func
def has_ended(lane: Lane) -> bool:
    """Whether another lane has found a hit."""
    if lane.count == 1:
        return False
    return read_again(lane.hits, lane.place)


@wp.func
def tell(lane: Lane, is_hit: bool):
    """Writes what a lane has found, which for several is a hit of one of them."""
    if is_hit or lane.count == 1:
        hits = lane.hits
        hits[lane.place] = is_hit


@wp.func
def everything() -> Share:
    """All numbers, in all of the segment."""
    return Share(0, 1, 0, 0)


@wp.func
def share_of(lane: Lane, first_level: int) -> Share:
    """What a lane has of a search that begins with 2^first_level parts: as few as possible."""
    level = int(0)
    step = int(lane.count)
    while level < first_level and step > 1:
        level += 1
        step /= 2
    return Share(lane.index >> level, step, level, lane.index & ((1 << level) - 1))


@wp.func
def first_of(share: Share, offset: int) -> int:
    """The first number of a share, of numbers that are counted on from others."""
    return (share.begin - offset) & (share.step - 1)


@wp.func
def bits_of(share: Share, offset: int) -> wp.uint64:
    """The bits of all numbers of a share, see `first_of`."""
    bits = NONE
    for bit in range(first_of(share, offset), 64, share.step):
        bits = bits | bit_of(bit)
    return bits


@wp.func
def parts_of_segment(level: int, share: Share, n_bodies: int) -> Bisection:
    """All bodies and pairs of a share are open in 2^level equal parts of the segment."""
    bodies, pairs = masks(ALL), masks(ALL)
    if share.step > 1:
        bodies, pairs = masks(bits_of(share, 0)), masks(bits_of(share, n_bodies))
    begin = share.part << (level - share.level)
    return Bisection(share, level, level, begin, 0, False, False, bodies, pairs)


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
    share = search.share
    search.is_done = search.index >> (search.level - share.level) != share.part
    while search.index % 2 == 0 and search.level > search.first_level:
        search.index /= 2
        search.level -= 1
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

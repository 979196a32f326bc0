"""Exact Euclidean distances of the cells of a grid to cells of the other kind, axis by axis.

Distances are from the center of a cell to the nearest box of the other kind, free or solid, squared
and in half cells: to the box that is k cells away along an axis 2 k - 1. They are integers, and
negative in solid cells. Those that reach `BAND_SQUARE` are not found out, but no less than that.

Squares are minimised one axis after the other (Felzenszwalb and Huttenlocher 2012, for boxes).
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)

# Cells that the search goes along each axis.
BAND = wp.constant(10)
# A box that is farther along an axis has at least this square.
BAND_SQUARE = wp.constant((2 * 10 + 1) * (2 * 10 + 1))


@wp.func
def square_of(steps: int) -> int:
    """Squared distance to a box that many cells along an axis, in half cells."""
    side = 2 * steps - 1
    return side * side


@wp.func
def candidate(
    squares: wp.array[wp.int16], place: int, is_there: bool, is_free: bool, outside: int
) -> int:
    """Square of a neighbour's distance to what is not of the kind of a cell; 0 if it is that."""
    value = outside * BAND_SQUARE
    if is_there:
        value = int(squares[place])
    return wp.where((value > 0) == is_free, wp.abs(value), 0)


@wp.kernel
def transform_along(
    # operands
    squares: wp.array[wp.int16],  # (cells,) BAND_SQUARE where free, else negative; or along others
    # parameters
    strides: wp.array[wp.int32],  # (4,) cells along the axis, their stride, that of both others
    outside: wp.array[wp.int32],  # (1,) 1: what is beyond the grid is free, -1: solid
    # outputs
    found: wp.array[wp.int16],  # (cells,)
):
    """One thread per line along an axis."""
    i, j = wp.tid()
    count = strides[0]
    stride = strides[1]
    begin = i * strides[2] + j * strides[3]
    for k in range(count):
        place = begin + k * stride
        own = int(squares[place])
        best = wp.min(wp.abs(own), BAND_SQUARE)
        steps = int(1)
        while steps <= BAND and square_of(steps) < best:
            before = candidate(squares, place - steps * stride, steps <= k, own > 0, outside[0])
            after = candidate(
                squares, place + steps * stride, k + steps < count, own > 0, outside[0]
            )
            best = wp.min(best, square_of(steps) + wp.min(before, after))
            steps += 1
        found[place] = wp.int16(wp.where(own > 0, best, -best))

"""Exact Euclidean distances of the cells of a grid to cells of the other kind, axis by axis.

Distances are from the center of a cell to the nearest box of the other kind, free or solid, squared
and in half cells: to the box that is k cells away along an axis 2 k - 1. They are integers, and
negative in solid cells. Those that reach the square of the band are not found out, but no less.

Squares are minimised one axis after the other (Felzenszwalb and Huttenlocher 2012, for boxes):
along x run by run, then along y and z for some neighbours in x at once, which a CPU has in the
lanes of vector instructions.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)

# Cells that the search of a grid in a world goes along each axis.
BAND = wp.constant(10)
# A box that is farther along an axis has at least this square.
BAND_SQUARE = wp.constant((2 * 10 + 1) * (2 * 10 + 1))
LARGEST_BAND = 60  # whose squares, two of them added, are int16
LANES = 32  # cells along x that one thread of a CPU transforms; one of a GPU has one


@wp.struct
class Lines:
    """A grid of cells, and lines of it along an axis."""

    shape: wp.vec3i  # nx, ny, nz
    count: int  # cells of a line
    stride: int  # from a cell of it to the next
    across: int  # from a line to the next one that is not its neighbour in x
    lanes: int  # neighbours in x of a thread
    outside: int  # 1: what is beyond the grid is free, -1: solid
    band: int  # cells that the search goes


@wp.func_native("""
    typedef wp::int16 Number;
    const wp::uint8* cells = solid.data + (wp::int64)row * lines.count;
    Number* out = squares.data + (wp::int64)row * lines.count;
    const int count = lines.count, band = lines.band;
    const wp::uint8 beyond = lines.outside < 0;
    const Number far = (Number)((2 * band + 1) * (2 * band + 1));
    for (int begin = 0, end = 0; begin < count; begin = end) {
        const wp::uint8 kind = cells[begin];
        end = begin + 1;
        while (end < count && cells[end] == kind) ++end;
        const Number sign = kind ? (Number)-1 : (Number)1;
        for (int i = begin; i < end; ++i) out[i] = (Number)(sign * far);
        const auto keep = [&](const int i, const int steps) {
            const Number square = (Number)((2 * steps - 1) * (2 * steps - 1));
            if (square < sign * out[i]) out[i] = (Number)(sign * square);
        };
        // The box beside either end of the run, as far as the search goes.
        const int most = end - begin < band ? end - begin : band;
        if (begin > 0 || beyond != kind)
            for (int k = 0; k < most; ++k) keep(begin + k, k + 1);
        if (end < count || beyond != kind)
            for (int k = 0; k < most; ++k) keep(end - 1 - k, k + 1);
    }
""")
def transform_row(solid: wp.array[wp.uint8], lines: Lines, row: int, squares: wp.array[wp.int16]):
    """Squares along a row of cells, run by run.

    Args:
        solid: (cells,) 0 or 1.
        lines: along x.
        row: which.
        squares: (cells,) written.
    """
    ...


@wp.kernel
def transform_rows(
    # operands
    solid: wp.array[wp.uint8],  # (cells,) 0 or 1, x running fastest
    lines: wp.array[Lines],  # (1,) along x
    # outputs
    squares: wp.array[wp.int16],  # (cells,) negative where solid
):
    """One thread per row along x."""
    transform_row(solid, lines[0], wp.tid(), squares)


# The types, and how many neighbours in x a thread has at most. A constant number of lanes is what
# compilers turn into a few instructions.
_LANES = """
#if defined(__CUDA_ARCH__)
    constexpr int most = 1;
#else
    constexpr int most = 32;
#endif
    typedef wp::int16 Number;
    struct Whole { static constexpr int count(int) { return most; } };
    struct Part { static constexpr int count(int width) { return width; } };
    const Number* in = squares.data;
    Number* out = found.data;
"""
# 1, -1: all cells at a place on the lines are free, or solid, and far from the other kind; else 0.
_FAR_KIND = """
    const Number far = (Number)((2 * lines.band + 1) * (2 * lines.band + 1));
    const auto far_kind = [&](const int k, const int lanes) {
        if (k < 0 || k >= lines.count) return lines.outside;
        const Number* own = in + begin + (wp::int64)k * lines.stride;
        bool free = true, solid = true;
        for (int i = 0; i < lanes; ++i) free &= own[i] == far, solid &= own[i] == -far;
        return free ? 1 : (solid ? -1 : 0);
    };
"""
# Takes what a neighbour on the lines, or the box beyond their end, is from a place.
_COMPARE = """
    const auto compare = [&](const int k, const int steps, const int side, const int lanes,
                             Number* to_solid, Number* to_free) {
        const Number square = (Number)((2 * steps - 1) * (2 * steps - 1));
        const int there = k + side * steps;
        if (there < 0 || there >= lines.count) {
            Number* best = lines.outside > 0 ? to_free : to_solid;
            for (int i = 0; i < lanes; ++i) best[i] = square < best[i] ? square : best[i];
            return;
        }
        const Number* other = in + begin + (wp::int64)there * lines.stride;
        for (int i = 0; i < lanes; ++i) {
            const Number value = other[i], away = value < 0 ? (Number)-value : (Number)0;
            const Number solid = (Number)((value > 0 ? value : (Number)0) + square);
            const Number free = (Number)(away + square);
            to_solid[i] = solid < to_solid[i] ? solid : to_solid[i];
            to_free[i] = free < to_free[i] ? free : to_free[i];
        }
    };
"""
# Of free cells the squares to solid ones, of solid cells those to free ones, else 0.
_MINIMISE = """
    const auto minimise = [&](const int k, const int lanes) {
        const wp::int64 place = begin + (wp::int64)k * lines.stride;
        Number to_solid[most], to_free[most];
        for (int i = 0; i < lanes; ++i) {
            const Number own = in[place + i];
            to_solid[i] = own > 0 ? own : (Number)0;
            to_free[i] = own < 0 ? (Number)-own : (Number)0;
        }
        for (int steps = 1; steps <= lines.band; ++steps) {
            Number largest = 0;
            for (int i = 0; i < lanes; ++i) {
                const Number one = to_solid[i] > to_free[i] ? to_solid[i] : to_free[i];
                largest = one > largest ? one : largest;
            }
            if (largest <= (2 * steps - 1) * (2 * steps - 1)) break;
            compare(k, steps, -1, lanes, to_solid, to_free);
            compare(k, steps, 1, lanes, to_solid, to_free);
        }
        for (int i = 0; i < lanes; ++i)
            out[place + i] = in[place + i] > 0 ? to_solid[i] : (Number)-to_free[i];
    };
"""


@wp.func_native(
    _LANES
    + _FAR_KIND
    + _COMPARE
    + _MINIMISE
    + """
    const auto transform = [&](auto kind_of_width) {
        const int lanes = kind_of_width.count(width);
        // Up to where all is of one kind, around a place: there nothing changes.
        int run_begin = -lines.band, run_end = -lines.band, kind = lines.outside;
        for (int k = 0; k < lines.count; ++k) {
            while (run_end <= k + lines.band) {
                const int next = far_kind(run_end, lanes);
                if (next != kind || next == 0) run_begin = run_end, kind = next;
                ++run_end;
            }
            const wp::int64 place = begin + (wp::int64)k * lines.stride;
            if (kind == 0 || run_begin > k - lines.band) minimise(k, lanes);
            else for (int i = 0; i < lanes; ++i) out[place + i] = in[place + i];
        }
    };
    if (width == most) transform(Whole{});
    else transform(Part{});
"""
)
def transform_line(
    squares: wp.array[wp.int16],
    lines: Lines,
    begin: int,
    width: int,
    found: wp.array[wp.int16],
):
    """Minimises squares along lines that are neighbours in x.

    Args:
        squares: (cells,) along the axes before.
        lines: which.
        begin: first cell of the first line.
        width: how many lines, at most `LANES`; on a GPU 1.
        found: (cells,) written.
    """
    ...


@wp.kernel
def transform_along(
    # operands
    squares: wp.array[wp.int16],  # (cells,) along x, or x and y
    lines: wp.array[Lines],  # (1,) along y or z
    # outputs
    found: wp.array[wp.int16],  # (cells,)
):
    """One thread per some neighbours in x of the lines in a plane."""
    i, j = wp.tid()
    given = lines[0]
    width = wp.min(given.lanes, given.shape[0])
    first = wp.min(j * given.lanes, given.shape[0] - width)  # the last ones again, as they are
    transform_line(squares, given, i * given.across + first, width, found)

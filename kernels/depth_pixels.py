"""What each pixel of a depth image is of, and up to where it says that nothing is.

A pixel is compared with its eight neighbours. Two depths are of one surface where they differ by no
more than the steepest surface that is looked at, and the noise, make them differ. A pixel with one
neighbour before it and the opposite one behind it, neither on its surface, is a mean of both. Where
one or two pixels beside each other are before both sides, neither need see anything else: what they
see may be thinner and nearer.
"""

import warp as wp

from warp_collision.kernels.carving import BESIDE
from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)

NO_RETURN = wp.constant(0)
SURFACE = wp.constant(1)
MIXED = wp.constant(2)  # between what is before it and what is behind
THIN = wp.constant(3)  # of at most two beside each other before both sides: means, like `MIXED`
LONE = wp.constant(4)  # fewer than two neighbours are on its surface
UNSORTED = wp.constant(255)
SUPPORT = wp.constant(2)
NEAR_SIDE = wp.constant(2)  # pixels: of a chain of mixed ones as many are beside each other
# What a neighbour on the same surface, before or behind it is, and where there is none.
SAME, NEARER, FARTHER, NONE = wp.constant(0), wp.constant(1), wp.constant(2), wp.constant(3)


@wp.struct
class PixelRules:
    """The camera, and what is assumed of what it sees."""

    focal: wp.vec2  # pixels
    middle: wp.vec2
    steepness: float  # a depth of 1 m in the middle differs from the next one by at most this [m]
    noise: wp.vec3  # a, b, c: a depth z is right up to a + b z + c z^2 [m]
    max_depth: float  # nothing is said beyond it [m]
    max_hole: int  # pixels: a hole of at most so many hides nothing


@wp.func
def noise_of(rules: PixelRules, depth: float) -> float:
    """How wrong a depth may be [m]."""
    return rules.noise[0] + depth * (rules.noise[1] + depth * rules.noise[2])


@wp.func
def steepness_at(rules: PixelRules, row: int, column: int) -> float:
    """By how much two neighbours of a surface at a depth of 1 m may differ [m]."""
    x = (float(column) - rules.middle[0]) / rules.focal[0]
    y = (float(row) - rules.middle[1]) / rules.focal[1]
    return rules.steepness * wp.sqrt(1.0 + x * x + y * y)


@wp.func
def depth_at(depth: wp.array2d[wp.float32], row: int, column: int) -> float:
    """A depth, 0 without a return and beyond the image."""
    found = float(0.0)
    if row >= 0 and row < depth.shape[0] and column >= 0 and column < depth.shape[1]:
        found = depth[row, column]
    return found


@wp.func
def relation(rules: PixelRules, steepness: float, here: float, there: float) -> int:
    """What a neighbour at a depth is to a pixel."""
    kind = int(NONE)
    if there > 0.0:
        near = wp.min(here, there)
        kind = wp.where(here < there, FARTHER, NEARER)
        if wp.abs(there - here) <= steepness * near + 2.0 * noise_of(rules, near):
            kind = SAME
    return kind


@wp.func
def is_strip(next: int, one_on: int, opposite: int) -> bool:
    """Whether a pixel and at most the next one are before what is on both sides."""
    ends = next == FARTHER or (next == SAME and one_on == FARTHER)
    return ends and opposite == FARTHER


@wp.func
def kind_of(is_mixed: bool, support: int, is_thin: bool) -> int:
    """What a pixel with a return is of."""
    kind = int(SURFACE)
    if is_mixed:
        kind = MIXED
    elif support < SUPPORT:
        kind = LONE
    elif is_thin:
        kind = THIN
    return kind


@wp.func
def surely(rules: PixelRules, depth: float) -> float:
    """Where something that seems to be at a depth is at least [m]."""
    return wp.max(wp.min(depth - noise_of(rules, depth), rules.max_depth), 0.0)


@wp.func
def side_slope(here: float, there: float, kind: int, other: float, other_kind: int) -> float:
    """How much nearer a surface is one pixel on, if it ends there or has a ridge [m]."""
    is_end = other_kind != SAME or other > here
    return wp.where(kind == SAME and is_end, wp.max(there - here, 0.0), 0.0)


# Compiled for many lanes: no branches, and products apart, so that none is fused with a sum.
@wp.func_native("""
    typedef wp::float32 Number;
    const int height = depth.shape[0], width = depth.shape[1];
    const wp::int64 offset = (wp::int64)row * width;
    const Number* own = depth.data + offset;
    wp::uint8* kind = kinds.data + offset;
    Number* bound = bounds.data + offset;
    const bool is_inside = row > 0 && row + 1 < height;
    const int first = begin > 1 ? begin : 1, last = end < width ? end : width - 1;
    for (int i = begin; i < end; ++i) kind[i] = 255;
    for (int i = first; is_inside && i < last; ++i) {
        const Number here = own[i], low = 0.9f * here;
        const auto less = [](const Number a, const Number b) { return a < b ? a : b; };
        const auto more = [](const Number a, const Number b) { return a < b ? b : a; };
        const auto noise = [&](const Number z) {
            const Number square = z * rules.noise[2], by_depth = z * (rules.noise[1] + square);
            return rules.noise[0] + by_depth;
        };
        Number lowest = here, highest = here, slope = 0.0f;
        for (int axis = 0; axis < 4; ++axis) {  // right, and three down
            const int step = axis == 0 ? 1 : width + axis - 2;
            const Number one = less(own[i + step], own[i - step]);
            const Number other = more(own[i + step], own[i - step]);
            lowest = less(lowest, one), highest = more(highest, other);
            slope = more(slope, one > here ? other - here : 0.0f);
        }
        // By so much neighbours may differ that are surely on its surface: none is nearer than low.
        const Number steepest = rules.steepness * low, doubled = 2.0f * noise(low);
        const Number most = less(steepest + doubled, 0.1f * here), ahead = beside * slope;
        const bool is_smooth = highest - here <= most && here - lowest <= most;
        const Number near = here - ahead, off = noise(near);
        const Number surely = more(less(near - off, rules.max_depth), 0.0f);
        kind[i] = here > 0.0f ? (is_smooth ? 1 : 255) : 0;
        bound[i] = here > 0.0f ? surely : 0.0f;
    }
""")
def sort_smooth(
    depth: wp.array2d[wp.float32],
    rules: PixelRules,
    row: int,
    begin: int,
    end: int,
    beside: float,
    kinds: wp.array2d[wp.uint8],
    bounds: wp.array2d[wp.float32],
):
    """Sorts pixels of a row that have no return, or a surface all around; others get `UNSORTED`.

    Args:
        depth: see `sort_pixels`.
        rules: see there.
        row: which.
        begin: its first pixel.
        end: the first one that is left to others.
        beside: `BESIDE`.
        kinds: see `sort_pixels`.
        bounds: see there.
    """
    ...


@wp.func
def sort_pixel(
    depth: wp.array2d[wp.float32],
    rules: PixelRules,
    row: int,
    column: int,
    kinds: wp.array2d[wp.uint8],
    bounds: wp.array2d[wp.float32],
):
    """Sorts any pixel."""
    here = depth[row, column]
    if here <= 0.0:
        kinds[row, column] = wp.uint8(NO_RETURN)
        bounds[row, column] = 0.0
        return
    steepness = steepness_at(rules, row, column)
    support = int(0)
    slope = float(0.0)
    is_mixed = bool(False)
    is_thin = bool(False)
    for axis in range(4):  # right, down, and both diagonals
        down = wp.where(axis == 0, 0, 1)
        right = wp.where(axis == 1, 0, wp.where(axis == 3, -1, 1))
        after = depth_at(depth, row + down, column + right)
        before = depth_at(depth, row - down, column - right)
        first = relation(rules, steepness, here, after)
        second = relation(rules, steepness, here, before)
        support += wp.where(first == SAME, 1, 0) + wp.where(second == SAME, 1, 0)
        is_mixed = is_mixed or (first == NEARER and second == FARTHER)
        is_mixed = is_mixed or (first == FARTHER and second == NEARER)
        slope = wp.max(slope, side_slope(here, after, first, before, second))
        slope = wp.max(slope, side_slope(here, before, second, after, first))
        # A corner is before both sides of a diagonal.
        if axis < 2 and (first == FARTHER or second == FARTHER):
            two_on = depth_at(depth, row + 2 * down, column + 2 * right)
            two_back = depth_at(depth, row - 2 * down, column - 2 * right)
            third = relation(rules, steepness, here, two_on)
            fourth = relation(rules, steepness, here, two_back)
            is_thin = is_thin or is_strip(first, third, second)
            is_thin = is_thin or is_strip(second, fourth, first)
    kind = kind_of(is_mixed, support, is_thin)
    near = wp.where(kind == SURFACE, here - BESIDE * slope, here)
    kinds[row, column] = wp.uint8(kind)
    bounds[row, column] = wp.where(kind == THIN, 0.0, surely(rules, near))


@wp.kernel
def sort_pixels(
    # operands
    depth: wp.array2d[wp.float32],  # (height, width) [m], 0 without a return
    rules: wp.array[PixelRules],  # (1,)
    # outputs
    kinds: wp.array2d[wp.uint8],  # (height, width) NO_RETURN, SURFACE, MIXED, THIN or LONE
    bounds: wp.array2d[wp.float32],  # (height, width) nothing is nearer [m], 0 where unknown
):
    """One thread per row; bounds of mixed pixels and holes are those of their own depth.

    Between the last ray on a surface and the first one beside it may be a ridge or an edge: it is
    not nearer than the surface goes on to be up to there.
    """
    row = wp.tid()
    sort_smooth(depth, rules[0], row, 0, depth.shape[1], BESIDE, kinds, bounds)
    for column in range(depth.shape[1]):
        if kinds[row, column] == wp.uint8(UNSORTED):
            sort_pixel(depth, rules[0], row, column, kinds, bounds)


@wp.func
def nearer_side(
    depth: wp.array2d[wp.float32], kinds: wp.array2d[wp.uint8], row: int, column: int
) -> float:
    """Depth of the surface before a mixed pixel, 0 where there is none [m]."""
    here = depth[row, column]
    near = float(here)
    for i in range(wp.max(row - NEAR_SIDE, 0), wp.min(row + NEAR_SIDE + 1, depth.shape[0])):
        for j in range(
            wp.max(column - NEAR_SIDE, 0), wp.min(column + NEAR_SIDE + 1, depth.shape[1])
        ):
            if kinds[i, j] == wp.uint8(SURFACE):
                near = wp.min(near, depth[i, j])
    return wp.where(near < here, near, 0.0)


@wp.kernel
def bound_mixed(
    # operands
    depth: wp.array2d[wp.float32],  # see `sort_pixels`
    kinds: wp.array2d[wp.uint8],
    rules: wp.array[PixelRules],  # (1,)
    # outputs
    bounds: wp.array2d[wp.float32],  # only those of mixed pixels are written
):
    """One thread per pixel; a mixed one counts as the surface before it."""
    row, column = wp.tid()
    if kinds[row, column] == wp.uint8(MIXED):
        bounds[row, column] = surely(rules[0], nearer_side(depth, kinds, row, column))


@wp.func
def is_hole(kinds: wp.array2d[wp.uint8], row: int, column: int) -> bool:
    """Whether a pixel says nothing of itself."""
    return kinds[row, column] == wp.uint8(NO_RETURN) or kinds[row, column] == wp.uint8(LONE)


@wp.func
def root_of(roots: wp.array[wp.int32], pixel: int) -> int:
    """The first pixel of a hole; ways to it become half as long."""
    at = int(pixel)
    while roots[at] != at:
        roots[at] = roots[roots[at]]
        at = roots[at]
    return at


@wp.func
def join(roots: wp.array[wp.int32], first: int, second: int):
    """Makes two holes one."""
    a = root_of(roots, first)
    b = root_of(roots, second)
    roots[wp.max(a, b)] = wp.min(a, b)


@wp.func
def nearest_around(
    kinds: wp.array2d[wp.uint8], bounds: wp.array2d[wp.float32], row: int, column: int
) -> float:
    """Least bound of the pixels beside one that says nothing; 0 at the edge of the image."""
    near = float(1.0e9)
    for side in range(9):
        i = row + side / 3 - 1
        j = column + side % 3 - 1
        if i < 0 or j < 0 or i >= kinds.shape[0] or j >= kinds.shape[1]:
            near = 0.0
        elif not is_hole(kinds, i, j):
            near = wp.min(near, bounds[i, j])
    return near


@wp.kernel
def fill_holes(
    # operands
    kinds: wp.array2d[wp.uint8],  # see `sort_pixels`
    rules: wp.array[PixelRules],  # (1,)
    # scratch
    roots: wp.array[wp.int32],  # (pixels,) of holes: the first pixel of each, by links
    sizes: wp.array[wp.int32],  # (pixels,) of holes, at their first pixels
    pixels: wp.array[wp.int32],  # (pixels,) those of holes, one after the other
    around: wp.array[wp.float32],  # (pixels,) least bounds around holes [m], at their first pixels
    # outputs
    bounds: wp.array2d[wp.float32],  # only those of holes are written
):
    """One thread, on the host; what small holes do not say, the pixels around them do."""
    height = kinds.shape[0]
    width = kinds.shape[1]
    count = int(0)
    for row in range(height):
        for column in range(width):
            if is_hole(kinds, row, column):
                pixel = row * width + column
                pixels[count] = pixel
                count += 1
                roots[pixel] = pixel
                sizes[pixel] = 0
                around[pixel] = 1.0e9
                for side in range(4):  # those above, and the one before
                    i = row - wp.where(side < 3, 1, 0)
                    j = column - wp.where(side < 3, 1 - side, 1)
                    if i >= 0 and j >= 0 and j < width and is_hole(kinds, i, j):
                        join(roots, pixel, i * width + j)
    for index in range(count):
        pixel = pixels[index]
        root = root_of(roots, pixel)
        sizes[root] += 1
        near = nearest_around(kinds, bounds, pixel / width, pixel % width)
        around[root] = wp.min(around[root], near)
    for index in range(count):
        pixel = pixels[index]
        root = root_of(roots, pixel)
        if sizes[root] <= rules[0].max_hole and around[root] > 0.0:
            bounds[pixel / width, pixel % width] = around[root]


# Compiled for many lanes: no branches.
@wp.func_native("""
    int count = 0;
    for (int row = window[1]; row < window[3]; ++row) {
        const wp::int64 offset = (wp::int64)row * depth.shape[1];
        const wp::float32* depths = depth.data + offset;
        bool* out = is_surface.data + offset;
        const wp::float32 y = (row - rules.middle[1]) / rules.focal[1];
        for (int i = window[0]; i < window[2]; ++i) {
            const wp::float32 z = depths[i], x = (i - rules.middle[0]) / rules.focal[0];
            const wp::float32 right = x * z - sphere[0], down = y * z - sphere[1];
            const wp::float32 ahead = z - sphere[2];
            const wp::float32 noise
                = rules.noise[0] + z * (rules.noise[1] + z * rules.noise[2]);
            const wp::float32 reach = sphere[3] + noise;
            const bool is_far = right * right + down * down + ahead * ahead > reach * reach;
            count += out[i] & !is_far;
            out[i] = out[i] & is_far;
        }
    }
    return count;
""")
def drop_ball(
    depth: wp.array2d[wp.float32],
    rules: PixelRules,
    sphere: wp.vec4,
    window: wp.vec4i,
    is_surface: wp.array2d[wp.bool],
) -> int:
    """Takes pixels near a sphere from the surface; returns how many, see `drop_spheres`."""
    ...


@wp.kernel
def drop_spheres(
    # operands
    depth: wp.array2d[wp.float32],  # see `sort_pixels`
    rules: wp.array[PixelRules],  # (1,)
    spheres: wp.array[wp.vec4],  # (n,) in the axes of the camera, x, y, z, radius [m]
    windows: wp.array[wp.vec4i],  # (n,) first column and row, those behind the last
    # outputs
    is_surface: wp.array2d[wp.bool],  # (height, width) False where a sphere and its noise reach
    counts: wp.array[wp.int32],  # (n,) how many became so
):
    """One thread per sphere, one after the other on the host."""
    s = wp.tid()
    sphere = spheres[s]
    window = windows[s]
    counts[s] = drop_ball(depth, rules[0], sphere, window, is_surface)

"""Nearest and farthest depths of square windows of an image, of twice the size level by level."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)


@wp.func_native("""
    const wp::int64 pixels = (wp::int64)height * width;
    const int half = 1 << (level - 1);
    // Beyond the image windows end with it.
    const wp::float32* first = (const wp::float32*)windows.data
        + 2 * ((level - 1) * pixels + (wp::int64)row * width);
    const wp::float32* second = first + (row + half < height ? 2 * (wp::int64)half * width : 0);
    wp::float32* out = (wp::float32*)windows.data + 2 * (level * pixels + (wp::int64)row * width);
    const auto larger = [](const wp::float32 a, const wp::float32 b) { return a > b ? a : b; };
    const int inside = width > half ? 2 * (width - half) : 0;
    for (int x = 0; x < inside; ++x)
        out[x] = larger(larger(first[x], second[x]),
            larger(first[x + 2 * half], second[x + 2 * half]));
    for (int x = inside; x < 2 * width; ++x) out[x] = larger(first[x], second[x]);
""")
def widen_row(level: int, row: int, height: int, width: int, windows: wp.array[wp.vec2]):
    """A row of one level from two rows of the level before.

    Args:
        level: whose windows are 2^level pixels wide.
        row: which.
        height: of the image.
        width: of the image.
        windows: see `widen_windows`.
    """
    ...


@wp.kernel
def widen_windows(
    # operands
    size: wp.array[wp.int32],  # (3,) level, at least 1, height and width of the image
    # outputs
    windows: wp.array[wp.vec2],  # (levels x pixels,) less the nearest, farthest from a pixel on [m]
):
    """One thread per row; the level before is there."""
    widen_row(size[0], wp.tid(), size[1], size[2], windows)

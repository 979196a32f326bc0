"""World boxes of the first slots of an env, in blocks of eight that a CPU compares at once.

With few obstacles that is several times as fast as a tree, whose branches no CPU can predict.
"""

import warp as wp

# Envs with more filled slots than this are left to the tree.
FEW = wp.constant(32)
# Lower x, y, z and upper x, y, z of eight boxes [m].
BLOCK_BYTES = wp.constant(6 * 8 * 4)


@wp.func
def count_blocks(n_slots: int) -> int:
    """How many blocks there are of each env."""
    return (wp.min(n_slots, FEW) + 7) / 8


@wp.func_native("""
    wp::uint32 near = 0;
#if !defined(__CUDA_ARCH__)
    typedef wp::float32 floats __attribute__((vector_size(32), aligned(4)));
    typedef wp::int32 ints __attribute__((vector_size(32)));
    const ints bits = {1, 2, 4, 8, 16, 32, 64, 128};
    const floats* corners = (const floats*)blocks;
    for (wp::int32 first = 0; first < count; first += 8, corners += 6) {
        const ints overlap = (lower[0] <= corners[3]) & (upper[0] >= corners[0])
            & (lower[1] <= corners[4]) & (upper[1] >= corners[1])
            & (lower[2] <= corners[5]) & (upper[2] >= corners[2]);
        near |= (wp::uint32)__builtin_reduce_or(overlap & bits) << first;
    }
    near &= (wp::uint32)((1ull << count) - 1);
#endif
    return near;
""")
def near_boxes(blocks: wp.uint64, count: int, lower: wp.vec3, upper: wp.vec3) -> wp.uint32:
    """Which of the first boxes, ``FEW`` at most, overlap one of these corners, as bits."""
    ...


@wp.func_native("""
    wp::float32 least = 1.0e30f;
#if !defined(__CUDA_ARCH__)
    typedef wp::float32 floats __attribute__((vector_size(32), aligned(4)));
    const floats* corners = (const floats*)blocks;
    for (wp::int32 first = 0; first < count; first += 8, corners += 6) {
        floats squares = {};
        for (wp::int32 axis = 0; axis < 3; ++axis) {
            const floats below = corners[axis] - point[axis];
            const floats above = point[axis] - corners[3 + axis];
            floats outside = below > above ? below : above;
            outside = outside > 0.0f ? outside : 0.0f;
            squares += outside * outside;
        }
        for (wp::int32 i = 0; i < 8 && first + i < count; ++i)
            least = squares[i] < least ? squares[i] : least;
    }
#endif
    return wp::sqrt(least);
""")
def distance_to_boxes(blocks: wp.uint64, count: int, point: wp.vec3) -> float:
    """Distance of a point to the nearest of the first boxes, ``FEW`` at most [m]."""
    ...


@wp.func_native("""
    wp::vec_t<2, wp::float32> found(1.0e30f, 0.0f);
#if !defined(__CUDA_ARCH__)
    typedef wp::float32 floats __attribute__((vector_size(32), aligned(4)));
    typedef wp::int32 ints __attribute__((vector_size(32)));
    const ints numbers = {0, 1, 2, 3, 4, 5, 6, 7};
    const floats* corners = (const floats*)blocks;
    floats least = floats{} + 1.0e30f;
    ints at = {};
    for (wp::int32 first = 0; left >> first; first += 8, corners += 6) {
        floats squares = {};
        for (wp::int32 axis = 0; axis < 3; ++axis) {
            const floats below = corners[axis] - point[axis];
            const floats above = point[axis] - corners[3 + axis];
            floats outside = below > above ? below : above;
            outside = outside > 0.0f ? outside : 0.0f;
            squares += outside * outside;
        }
        const ints is_less = (squares < least) & (((wp::int32)left >> (numbers + first) & 1) != 0);
        least = is_less ? squares : least;
        at = is_less ? numbers + first : at;
        if (first == 24) break;
    }
    const ints bits = {1, 2, 4, 8, 16, 32, 64, 128};
    const wp::float32 lowest = __builtin_reduce_min(least);
    const ints is_lowest = least == lowest;
    found[0] = wp::sqrt(lowest);
    found[1] = (wp::float32)at[__builtin_ctz(__builtin_reduce_or(is_lowest & bits))];
#endif
    return found;
""")
def nearest_box(blocks: wp.uint64, left: wp.uint32, point: wp.vec3) -> wp.vec2:
    """Distance of a point to the nearest of some of the first boxes [m], and its number.

    Args:
        blocks: the boxes.
        left: which of them, as bits; some.
        point: in the world.
    """
    ...


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return 0;
#else
    return __builtin_ctz(bits);
#endif
""")
def lowest_bit(bits: wp.uint32) -> int:
    """Index of the lowest bit that is set; there must be one."""
    ...

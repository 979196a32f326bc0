"""Vectors of eight numbers, one for each lane: types and functions of the native code.

They are vectors of the compiler: of AVX where the CPU has it, else of what there is.
"""

import warp as wp

# Lanes of a block.
LANES = wp.constant(8)
# Lanes have sines of angles up to this, see `lanes.kinematics` [rad].
LARGEST_VALUE = wp.constant(4096.0)
# Two units of float32 rounding, relative, as in `robot_motion`.
EPSILON = wp.constant(2.4e-7)

# Rounding of a distance, relative to coordinates, see `lanes.bodies`.
SHAPE_ROUNDING = wp.constant(20.0 * EPSILON)

# What the native functions begin with. Bits of masks are lanes.
PREAMBLE = """
    typedef wp::float32 F __attribute__((vector_size(32), aligned(4)));
    typedef wp::int32 I __attribute__((vector_size(32), aligned(4)));
    typedef wp::float32 Q __attribute__((vector_size(16), aligned(4)));
    const auto bits_of = [](I mask) __attribute__((always_inline)) -> wp::uint32 {
        typedef bool B __attribute__((ext_vector_type(8)));
        return __builtin_bit_cast(unsigned char, __builtin_convertvector(mask, B));
    };
    const auto any = [](I mask) __attribute__((always_inline)) -> bool {
        return __builtin_reduce_or(mask) != 0;
    };
    const auto mask_of = [](wp::uint32 bits) __attribute__((always_inline)) -> I {
        const I bit = {1, 2, 4, 8, 16, 32, 64, 128};
        return (bit & (wp::int32)bits) != 0;
    };
    const auto larger = [](F a, F b) __attribute__((always_inline)) -> F {
        return a > b ? a : b;
    };
    const auto lowest = [](F a) __attribute__((always_inline)) -> wp::float32 {
        F b = __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3);
        a = a < b ? a : b;
        b = __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5);
        a = a < b ? a : b;
        b = __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6);
        a = a < b ? a : b;
        return a[0];
    };
    const auto size_of = [](F a) __attribute__((always_inline)) -> F {
        return __builtin_elementwise_abs(a);
    };
    const auto root_of = [](F a) __attribute__((always_inline)) -> F {
        return __builtin_elementwise_sqrt(a);
    };
    // A point of a frame: a row of nine numbers of its rotation and three of its origin.
    const auto place = [](const F* frame, const wp::float32* point, F* placed)
            __attribute__((always_inline)) {
        for (int i = 0; i < 3; ++i)
            placed[i] = frame[3 * i] * point[0] + frame[3 * i + 1] * point[1]
                + frame[3 * i + 2] * point[2] + frame[9 + i];
    };
    (void)bits_of; (void)any; (void)mask_of; (void)larger;
    (void)lowest; (void)size_of; (void)root_of; (void)place;
"""

# The same for functions that decide outside of a margin. The compiler may fuse a product and a sum,
# which are then rounded once instead of twice: bounds of the rounding hold as they are.
FUSED = "    #pragma clang fp contract(fast)\n" + PREAMBLE

# Places the spheres of a body, if that was not done for this block.
PLACE_SPHERES = """
    const auto place_spheres = [&](const auto& body, int index) {
        wp::int32* is_placed = (wp::int32*)((F*)lanes.balls + 5 * index + 4);
        if (*is_placed) return;
        *is_placed = 1;
        const F* frame = (const F*)lanes.frames + 12 * body.frame;
        for (int s = body.begin; s < body.end; ++s)
            place(frame, (const wp::float32*)robot.spheres + 4 * s, (F*)lanes.spheres + 3 * s);
    };
"""

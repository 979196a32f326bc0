"""Precision of float32: the range of valid coordinates, and bounds of their rounding.

Whether numbers are finite is asked by one product on a CPU, by Warp's function on a GPU. A product
with 0 is NaN for NaN and for infinity. It is several times faster on a CPU, where Warp calls a
function for each number, and takes more registers on a GPU.
"""

import warp as wp

# Coordinates are below this [m]: the fourth power of a distance, of which closest-point queries
# make use, must not overflow.
FARTHEST = wp.constant(1.0e9)
# The largest number of float32.
LARGEST = wp.constant(3.4028234e38)
# Rounding of a point in the frame of a mesh and of a distance there, relative to the coordinates.
ROUND_OFF = wp.constant(1.0e-6)
# Rounding below this is part of the documented precision [m].
NEGLIGIBLE = wp.constant(1.0e-3)


@wp.func
def is_in_range(point: wp.vec3) -> bool:
    """Whether coordinates are finite and in range; NaN compares false, and squares overflow."""
    return wp.length_sq(point) < FARTHEST * FARTHEST


@wp.func
def is_length(value: float) -> bool:
    """Whether a radius or an activation distance is valid: finite and not negative."""
    return value >= 0.0 and value <= LARGEST


@wp.func
def uncertainty(coordinates: float, activation_distance: float) -> float:
    """Rounding of a clearance where it could hide a contact, else 0 [m].

    A sphere is reported free when its clearance is the activation distance or more. Rounding of
    less than that does not turn a contact into free space.

    Args:
        coordinates: sum of the lengths that are rounded: center, position of the mesh, path [m].
        activation_distance: [m].
    """
    rounding = ROUND_OFF * coordinates
    if rounding <= wp.max(activation_distance, NEGLIGIBLE):
        return 0.0
    return rounding


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return wp::isfinite(v);
#else
    return wp::dot(v, wp::vec_t<3, wp::float32>()) == 0.0f;
#endif
""")
def is_finite3(v: wp.vec3) -> bool:
    """Whether all parts of a vector are finite."""
    ...


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return wp::isfinite(v);
#else
    return wp::dot(v, wp::vec_t<4, wp::float32>()) == 0.0f;
#endif
""")
def is_finite4(v: wp.vec4) -> bool:
    """Whether all parts of a vector are finite."""
    ...


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return wp::isnan(x);
#else
    return x != x;
#endif
""")
def is_nan(x: float) -> bool:
    """Whether a number is NaN."""
    ...

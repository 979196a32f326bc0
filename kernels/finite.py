"""Whether numbers are finite: by one product on a CPU, by Warp's function on a GPU.

A product with 0 is NaN for NaN and for infinity. It is several times faster on a CPU, where Warp
calls a function for each number, and takes more registers on a GPU.
"""

import warp as wp


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

"""The cost of a penetration: zero, then quadratic over the activation distance, then linear."""

import warp as wp


@wp.func
def hinge(depth: float, activation_distance: float) -> wp.vec2:
    """Returns (cost, d cost / d depth) of ``depth = radius + activation_distance - sdf``.

    Once continuously differentiable; with an activation distance of 0 it is ``max(depth, 0)``.
    A NaN depth gives a NaN cost.
    """
    if depth <= 0.0:
        return wp.vec2(0.0, 0.0)
    if depth <= activation_distance:
        slope = depth / activation_distance
        return wp.vec2(0.5 * depth * slope, slope)
    return wp.vec2(depth - 0.5 * activation_distance, 1.0)

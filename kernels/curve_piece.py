"""A joint on one piece of a curve, a polynomial by its Bernstein coefficients: value and bounds.

With the control points b_i of a piece of degree n, q' has the coefficients n (b_i+1 - b_i), q'' the
second differences times n (n - 1), the third derivative the third differences times
n (n - 1) (n - 2). A polynomial is within the hull of its coefficients: they bound it on the piece.
Up to h from s, |q''| is also at most |q''(s)| plus h times the bound of the third derivative.
"""

import warp as wp

ONE = wp.constant(wp.float64(1.0))


@wp.struct
class JointMotion:
    """A joint at s on a piece, and bounds of its motion up to half an interval's length from s."""

    value: float  # [rad or m]
    rate: float  # its derivative by s
    most_rate: float  # bound of |q'|
    most_change: float  # bound of |q''|


@wp.func
def joint_motion(
    points: wp.array2d[wp.float32], first: int, degree: int, joint: int, s: float, half: float
) -> JointMotion:
    """Evaluates a joint by Horner's scheme for Bernstein polynomials.

    In float64, as differences of control points cancel: all is rounded once.

    Args:
        points: (n, n_joints) control points of a path.
        first: control point of the piece.
        degree: of the piece, from 2 on.
        joint: index of the joint.
        s: position on the piece, from 0 to 1.
        half: half the length of the interval around s.
    """
    at = wp.float64(s)
    t = ONE - at
    n = wp.float64(degree)
    before = wp.float64(points[first, joint])
    step_before = wp.float64(0.0)
    bend_before = wp.float64(0.0)
    # Polynomials: the value, q' / n, q'' / (n (n - 1)).
    value = wp.float64(before)
    rate = wp.float64(0.0)
    change = wp.float64(0.0)
    weight = wp.float64(1.0)
    rate_weight = wp.float64(1.0)
    change_weight = wp.float64(1.0)
    largest_step = wp.float64(0.0)
    largest_bend = wp.float64(0.0)
    largest_third = wp.float64(0.0)
    for i in range(1, degree + 1):
        point = wp.float64(points[first + i, joint])
        left = at * wp.float64(degree - i + 1)
        weight *= left / wp.float64(i)
        value = value * t + weight * point
        step = point - before
        if i > 1:
            rate_weight *= left / wp.float64(i - 1)
            bend = step - step_before
            if i > 2:
                change_weight *= left / wp.float64(i - 2)
                largest_third = wp.max(largest_third, wp.abs(bend - bend_before))
            change = change * t + change_weight * bend
            largest_bend = wp.max(largest_bend, wp.abs(bend))
            bend_before = bend
        rate = rate * t + rate_weight * step
        largest_step = wp.max(largest_step, wp.abs(step))
        step_before = step
        before = point
    radius = wp.float64(half)
    nearby = wp.abs(change) + radius * (n - ONE - ONE) * largest_third
    most_change = n * (n - ONE) * wp.min(largest_bend, nearby)
    rate *= n
    most_rate = wp.min(wp.abs(rate) + radius * most_change, n * largest_step)
    return JointMotion(float(value), float(rate), float(most_rate), float(most_change))


@wp.func
def polygon_length(points: wp.array2d[wp.float32], first: int, degree: int, joint: int) -> float:
    """Length of the control polygon of a joint, at least that of its motion."""
    length = float(0.0)
    for i in range(degree):
        length += wp.abs(points[first + i + 1, joint] - points[first + i, joint])
    return length


@wp.func
def excursion_of(points: wp.array2d[wp.float32], first: int, degree: int, joint: int) -> float:
    """Largest distance of a joint's control points from the first one; NaN if one of them is."""
    begin = points[first, joint]
    farthest = float(0.0)
    for i in range(1, degree + 1):
        offset = points[first + i, joint] - begin
        # A sum keeps a NaN, which a maximum drops.
        farthest = wp.max(farthest, wp.abs(offset)) + 0.0 * (offset + farthest)
    return farthest

"""Newton steps of cubic B-splines on a barrier of the limits of their motion, in float64.

The barrier is the sum of -log(1 - u^2) over the first, second and third differences of the control
points, u their share of a limit. A difference touches four points at most, so the Hessian of a
joint is a band of seven diagonals: it is factored as L D L^T row by row, and no joint touches
another one. Limits of the joints' values are a barrier too.
"""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import vec1i

wp.set_module_options(FEW_THREADS)

ONE = wp.constant(wp.float64(1.0))
TWO = wp.constant(wp.float64(2.0))
THREE = wp.constant(wp.float64(3.0))
FOUR = wp.constant(wp.float64(4.0))
NINE = wp.constant(wp.float64(9.0))
NOTHING = wp.constant(wp.float64(0.0))
THIRD = wp.constant(wp.float64(1.0 / 3.0))
SIXTH = wp.constant(wp.float64(1.0 / 6.0))
# Control points at each end that stay, and of the way to the nearest limit, at most, in a step.
FIXED = wp.constant(3)
INSIDE = wp.constant(wp.float64(0.9))
# Of collision costs against the barrier [1/m].
PUSH = wp.constant(wp.float64(1.0e3))


@wp.struct
class Slopes:
    """Derivatives of the barrier by the differences at a control point, of orders 1 to 3."""

    first: wp.vec3d
    second: wp.vec3d


@wp.func
def differences(p: wp.vec4d) -> wp.vec3d:
    """The first, second and third difference of four control points, from the first one on."""
    return wp.vec3d(p[1] - p[0], p[2] - TWO * p[1] + p[0], p[3] - THREE * (p[2] - p[1]) - p[0])


@wp.func
def slopes_at(difference: wp.vec3d, inverse: wp.vec3d) -> Slopes:
    """Derivatives of -log(1 - u^2) by differences, from the inverses of their limits."""
    found = Slopes()
    for k in range(3):
        u = difference[k] * inverse[k]
        weight = inverse[k] / (ONE - u * u)
        found.first[k] = TWO * u * weight
        found.second[k] = TWO * (ONE + u * u) * weight * weight
    return found


@wp.func
def gradient_of(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, d: wp.vec3d) -> wp.float64:
    """Derivative by a control point; d are the slopes of the differences that begin at it."""
    return (c[0] - d[0]) + (b[1] - TWO * c[1] + d[1]) + (a[2] - THREE * b[2] + THREE * c[2] - d[2])


@wp.func
def band_of(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, d: wp.vec3d) -> wp.vec4d:
    """The Hessian at a control point: by itself, and by the one, two and three before it."""
    return wp.vec4d(
        (c[0] + d[0]) + (b[1] + FOUR * c[1] + d[1]) + (a[2] + NINE * (b[2] + c[2]) + d[2]),
        -c[0] - TWO * (b[1] + c[1]) - THREE * (a[2] + c[2]) - NINE * b[2],
        b[1] + THREE * (a[2] + b[2]),
        -a[2],
    )


@wp.func
def push_at(gradient: wp.array2d[wp.float32], i: int, joint: int) -> wp.float64:
    """Derivative of collision costs by a control point, from that by the values at knots."""
    found = wp.float64(gradient[i - 2, joint]) + wp.float64(gradient[i, joint])
    found = SIXTH * PUSH * (found + FOUR * wp.float64(gradient[i - 1, joint]))
    return wp.where(wp.isfinite(found), found, NOTHING)


@wp.struct
class Factors:
    """Of the last rows of a band matrix, the latest one first."""

    row: wp.vec3d  # of L
    row_before: wp.vec3d
    pivots: wp.vec3d  # inverses of D
    solved: wp.vec3d  # L y = r


@wp.func
def next_factors(known: Factors, band: wp.vec4d, right: wp.float64) -> Factors:
    """The factors of one more row, by its band and its right side."""
    third = band[3]
    second = band[2] - third * known.row_before[0]
    first = band[1] - third * known.row[1] - second * known.row[0]
    entries = wp.vec3d(first, second, third)
    found = Factors()
    found.row = wp.cw_mul(entries, known.pivots)
    found.row_before = known.row
    pivot = ONE / (band[0] - wp.dot(entries, found.row))
    found.pivots = wp.vec3d(pivot, known.pivots[0], known.pivots[1])
    solved = right - wp.dot(found.row, known.solved)
    found.solved = wp.vec3d(solved, known.solved[0], known.solved[1])
    return found


@wp.func
def points_from(points: wp.array2d[wp.float64], i: int, joint: int) -> wp.vec4d:
    """Four control points of a joint, from one on; behind the last one, that one again."""
    last = points.shape[0] - 1
    return wp.vec4d(
        points[i, joint],
        points[wp.min(i + 1, last), joint],
        points[wp.min(i + 2, last), joint],
        points[wp.min(i + 3, last), joint],
    )


@wp.func
def write_step(
    points: wp.array2d[wp.float64],
    gradient: wp.array2d[wp.float32],
    weight: wp.array[wp.float64],
    joint: int,
    inverse: wp.vec3d,
    limits: wp.vec2d,
    factors: wp.array[wp.vec4d],
    step: wp.array2d[wp.float64],
):
    """Writes the Newton step of a joint.

    Args:
        points: control points (n, n_joints), those at the ends stay.
        gradient: derivative of the collision cost by the values at knots (n - 2, n_joints).
        weight: of each control point (n,), which holds it.
        joint: its index.
        inverse: inverses of the limits of differences.
        limits: of the joint's values.
        factors: scratch (n,).
        step: (n, n_joints).
    """
    a = Slopes()
    b = Slopes()
    c = Slopes()
    known = Factors()
    end = points.shape[0] - FIXED
    for i in range(end):
        four = points_from(points, i, joint)
        d = slopes_at(differences(four), inverse)
        if i >= FIXED:
            above = ONE / (limits[1] - four[0])
            below = ONE / (four[0] - limits[0])
            band = band_of(a.second, b.second, c.second, d.second)
            band[0] += weight[i] + above * above + below * below
            slope = gradient_of(a.first, b.first, c.first, d.first) + above - below
            known = next_factors(known, band, -slope - push_at(gradient, i, joint))
            row = known.row
            factors[i] = wp.vec4d(row[0], row[1], row[2], known.solved[0] * known.pivots[0])
        a = b
        b = c
        c = d
    # L^T x = y, backwards: of the rows behind, their entries in this column.
    rest = wp.vec3d()
    for k in range(end - FIXED):
        i = end - 1 - k
        factor = factors[i]
        move = factor[3] - rest[0]
        step[i, joint] = move
        rest = wp.vec3d(rest[1] + factor[0] * move, rest[2] + factor[1] * move, factor[2] * move)


@wp.func
def fastest_approach(
    points: wp.array2d[wp.float64],
    step: wp.array2d[wp.float64],
    joint: int,
    inverse: wp.vec3d,
    limits: wp.vec2d,
) -> wp.float64:
    """The largest share of the way to a limit that the step of a joint goes."""
    largest = wp.float64(0.0)
    for i in range(points.shape[0] - 1):
        four = points_from(points, i, joint)
        steps = points_from(step, i, joint)
        value = wp.cw_mul(differences(four), inverse)
        moves = wp.cw_mul(differences(steps), inverse)
        for k in range(3):
            # Behind the last point there is no motion: differences there are smaller.
            largest = wp.max(largest, wp.abs(moves[k]) / (ONE - wp.sign(moves[k]) * value[k]))
        if i >= FIXED and i < points.shape[0] - FIXED:
            largest = wp.max(largest, steps[0] / (limits[1] - four[0]))
            largest = wp.max(largest, -steps[0] / (four[0] - limits[0]))
    return largest


@wp.func
def span_of(points: wp.array2d[wp.float64], limits: wp.array2d[wp.float64]) -> wp.float64:
    """The shortest span of time with which a spline keeps the limits of its motion [s]."""
    shares = wp.vec3d()
    for joint in range(points.shape[1]):
        inverse = wp.vec3d(limits[0, joint], limits[1, joint], limits[2, joint])
        for i in range(points.shape[0] - 1):
            difference = differences(points_from(points, i, joint))
            for k in range(3):
                shares[k] = wp.max(shares[k], wp.abs(difference[k]) * inverse[k])
    return wp.max(shares[0], wp.max(wp.sqrt(shares[1]), wp.pow(shares[2], THIRD)))


@wp.kernel
def spline_step(
    # operands
    points: wp.array3d[wp.float64],  # (batch, n, n_joints) control points
    span: wp.array[wp.float64],  # (batch,) the shortest that the limits allow [s]
    slack: wp.array[wp.float64],  # (batch,) how much longer spans to aim at are, relative
    weight: wp.array2d[wp.float64],  # (batch, n)
    gradient: wp.array3d[wp.float32],  # (batch, n - 2, n_joints) of collision costs by knots
    inverse_limits: wp.array2d[wp.float64],  # (3, n_joints) of velocity, acceleration, jerk
    joint_limits: wp.array3d[wp.float64],  # (batch, n_joints, 2)
    # parameters
    n_steps: wp.array[wp.int32],  # (1,)
    launch_offset: vec1i,  # of this launch in the splines
    # outputs
    factors: wp.array2d[wp.vec4d],  # (batch, n) scratch
    step: wp.array3d[wp.float64],  # (batch, n, n_joints) scratch
    moved: wp.array3d[wp.float64],  # (batch, n, n_joints) control points
):
    """One thread per spline: some Newton steps, each with the span that the one before allows."""
    row = wp.tid() + launch_offset[0]
    current = moved[row]
    for i in range(points.shape[1]):
        for joint in range(points.shape[2]):
            current[i, joint] = points[row, i, joint]
            step[row, i, joint] = NOTHING
    h = span[row]
    for _ in range(n_steps[0]):
        h *= ONE + slack[row]
        approach = wp.float64(0.0)
        for joint in range(points.shape[2]):
            inverse = wp.vec3d(
                inverse_limits[0, joint] / h,
                inverse_limits[1, joint] / (h * h),
                inverse_limits[2, joint] / (h * h * h),
            )
            limits = wp.vec2d(joint_limits[row, joint, 0], joint_limits[row, joint, 1])
            write_step(
                current, gradient[row], weight[row], joint, inverse, limits, factors[row], step[row]
            )
            fastest = fastest_approach(current, step[row], joint, inverse, limits)
            approach = wp.max(approach, fastest)
        size = INSIDE / wp.max(INSIDE, approach)
        for i in range(FIXED, points.shape[1] - FIXED):
            for joint in range(points.shape[2]):
                current[i, joint] += size * step[row, i, joint]
        h = span_of(current, inverse_limits)

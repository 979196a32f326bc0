"""Newton steps of cubic B-splines on a barrier of the limits of their motion, in float64.

The barrier is the sum of -log(1 - u^2) over the first, second and third differences of the control
points, u their share of a limit. A difference touches four points at most, so the Hessian of a
joint is a band of seven diagonals: it is factored as L D L^T row by row, and no joint touches
another one. Limits of the joints' values are a barrier too.

Eight joints go side by side in lanes. Lanes without a joint are points at 0, which no limit holds.
Divisions take longer than all else, so what was divided once is kept.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import vec1i
from warp_collision.kernels.lanes.vectors import LANES

wp.set_module_options(OPTIONS)

ONE = wp.constant(wp.float64(1.0))
NOTHING = wp.constant(wp.float64(0.0))
FOUR = wp.constant(wp.float64(4.0))
THIRD = wp.constant(wp.float64(1.0 / 3.0))
SIXTH = wp.constant(wp.float64(1.0 / 6.0))
# Control points at each end that stay, and of the way to the nearest limit, at most, in a step.
FIXED = wp.constant(3)
INSIDE = wp.constant(wp.float64(0.9))
# Of collision costs against the barrier [1/m].
PUSH = wp.constant(wp.float64(1.0e3))
# Rows of scratch memory of eight joints, see `_ROWS`. Each has a number for each control point, but
# for the last one: that of limits.
POINTS, STEP, PUSHED = wp.constant(0), wp.constant(1), wp.constant(2)
LIMITS = wp.constant(12)
N_ROWS = 13

# What the native functions begin with: the rows, and the differences at a control point.
_ROWS = """
    typedef wp::float64 D __attribute__((vector_size(64), aligned(8)));
    const int n = rows.shape[1], end = n - 3;
    D* const points = (D*)rows.data;
    D* const step = points + n;
    D* const push = points + 2 * n;    // derivatives of the collision cost
    D* const above = points + 3 * n;   // inverses of the room to limits of joints
    D* const below = points + 4 * n;
    D* const solved = points + 5 * n;
    D* const factor = points + 6 * n;  // three for each point: of L
    D* const room = points + 9 * n;    // three for each point: 1 / (1 - u^2) of differences
    const D* const limits = points + 12 * n;  // inverses of those of differences; low, high
    const D one = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    const auto larger = [](D a, D b) __attribute__((always_inline)) -> D { return b > a ? b : a; };
    const auto largest_of = [](D a) __attribute__((always_inline)) -> wp::float64 {
        wp::float64 found = a[0];
        for (int i = 1; i < 8; ++i) found = a[i] > found ? a[i] : found;
        return found;
    };
    const auto size_of = [](D a) __attribute__((always_inline)) -> D {
        return __builtin_elementwise_abs(a);
    };
    // Of orders 1 to 3, relative to their limits; those that begin behind the end are 0.
    const auto shares = [&](const D* p, D* u) __attribute__((always_inline)) {
        const D first = p[1] - p[0], second = p[2] - p[1] - first;
        u[0] = first * limits[0];
        u[1] = second * limits[1];
        u[2] = (p[3] - p[2] - (p[2] - p[1]) - second) * limits[2];
    };
    (void)step; (void)push; (void)above; (void)below; (void)solved; (void)factor; (void)room;
    (void)one; (void)larger; (void)largest_of; (void)size_of;
"""

_WRITE_STEP = """
    struct Slopes { D first[3], second[3]; };
    Slopes a{}, b{}, c{}, d{};
    D l[3] = {}, before[3] = {}, pivots[3] = {}, y[3] = {};
    for (int i = 0; i < end; ++i) {
        D u[3];
        shares(points + i, u);
        for (int k = 0; k < 3; ++k) {
            const D r = one / (one - u[k] * u[k]), w = limits[k] * r;
            room[3 * i + k] = r;
            d.first[k] = 2.0 * u[k] * w;
            d.second[k] = 2.0 * (one + u[k] * u[k]) * w * w;
        }
        if (i >= 3) {
            above[i] = one / (limits[4] - points[i]);
            below[i] = one / (points[i] - limits[3]);
            const D *p = a.first, *q = b.first, *r = c.first, *s = d.first;
            const D slope = (r[0] - s[0]) + (q[1] - 2.0 * r[1] + s[1])
                + (p[2] - 3.0 * q[2] + 3.0 * r[2] - s[2]) + above[i] - below[i];
            // The band of the Hessian: the point by itself, and by the three before it.
            p = a.second; q = b.second; r = c.second; s = d.second;
            const D diagonal = (r[0] + s[0]) + (q[1] + 4.0 * r[1] + s[1])
                + (p[2] + 9.0 * (q[2] + r[2]) + s[2])
                + weight[i] + above[i] * above[i] + below[i] * below[i];
            const D third = -p[2];
            const D second = q[1] + 3.0 * (p[2] + q[2]) - third * before[0];
            const D first = -r[0] - 2.0 * (q[1] + r[1]) - 3.0 * (p[2] + r[2]) - 9.0 * q[2]
                - third * l[1] - second * l[0];
            for (int k = 0; k < 3; ++k) before[k] = l[k];
            l[0] = first * pivots[0]; l[1] = second * pivots[1]; l[2] = third * pivots[2];
            const D pivot = one / (diagonal - first * l[0] - second * l[1] - third * l[2]);
            const D next = -slope - push[i] - l[0] * y[0] - l[1] * y[1] - l[2] * y[2];
            pivots[2] = pivots[1]; pivots[1] = pivots[0]; pivots[0] = pivot;
            y[2] = y[1]; y[1] = y[0]; y[0] = next;
            for (int k = 0; k < 3; ++k) factor[3 * i + k] = l[k];
            solved[i] = next * pivot;
        }
        a = b; b = c; c = d;
    }
    // L^T x = y, backwards: of the rows behind, their entries in this column.
    D rest[3] = {};
    for (int i = end - 1; i >= 3; --i) {
        const D move = solved[i] - rest[0];
        step[i] = move;
        rest[0] = rest[1] + factor[3 * i] * move;
        rest[1] = rest[2] + factor[3 * i + 1] * move;
        rest[2] = factor[3 * i + 2] * move;
    }
    // |m| / (1 - sign(m) u) of moves m of differences, as a product.
    D largest = {};
    for (int i = 0; i < end; ++i) {
        D u[3], m[3];
        shares(points + i, u);
        shares(step + i, m);
        for (int k = 0; k < 3; ++k)
            largest = larger(largest, (size_of(m[k]) + m[k] * u[k]) * room[3 * i + k]);
        if (i >= 3)
            largest = larger(largest, larger(step[i] * above[i], -step[i] * below[i]));
    }
    return largest_of(largest);
"""

_MOVE = """
    D largest[3] = {};
    for (int i = 3; i < end; ++i) points[i] += size * step[i];
    for (int i = 0; i < end; ++i) {
        D u[3];
        shares(points + i, u);
        for (int k = 0; k < 3; ++k) largest[k] = larger(largest[k], size_of(u[k]));
    }
    wp::vec_t<3, wp::float64> found;
    for (int k = 0; k < 3; ++k) found[k] = largest_of(largest[k]);
    return found;
"""


@wp.func_native(_ROWS + _WRITE_STEP)
def write_step(rows: wp.array3d[wp.float64], weight: wp.array[wp.float64]) -> wp.float64:
    """Writes the Newton step of eight joints; the largest share of the way to a limit it goes."""
    ...


@wp.func_native(_ROWS + _MOVE)
def moved_by(rows: wp.array3d[wp.float64], size: wp.float64) -> wp.vec3d:
    """Adds a share of the step; the largest share of the limits of each order of differences."""
    ...


@wp.func
def push_at(gradient: wp.array2d[wp.float32], i: int, joint: int) -> wp.float64:
    """Derivative of collision costs by a control point, from that by the values at knots."""
    found = wp.float64(gradient[i - 2, joint]) + wp.float64(gradient[i, joint])
    found = SIXTH * PUSH * (found + FOUR * wp.float64(gradient[i - 1, joint]))
    return wp.where(wp.isfinite(found), found, NOTHING)


@wp.func
def load(
    points: wp.array2d[wp.float64],
    gradient: wp.array2d[wp.float32],
    joint_limits: wp.array2d[wp.float64],
    first: int,
    rows: wp.array3d[wp.float64],
):
    """Writes eight joints, from one on: control points, steps of 0, what pushes, and limits."""
    n = points.shape[0]
    for lane in range(LANES):
        joint = first + lane
        is_joint = joint < points.shape[1]
        for i in range(n):
            rows[POINTS, i, lane] = NOTHING
            rows[STEP, i, lane] = NOTHING
            rows[PUSHED, i, lane] = NOTHING
            if is_joint:
                rows[POINTS, i, lane] = points[i, joint]
                if i >= FIXED and i < n - FIXED:
                    rows[PUSHED, i, lane] = push_at(gradient, i, joint)
        rows[LIMITS, 3, lane] = -ONE
        rows[LIMITS, 4, lane] = ONE
        if is_joint:
            rows[LIMITS, 3, lane] = joint_limits[joint, 0]
            rows[LIMITS, 4, lane] = joint_limits[joint, 1]


@wp.func
def write_inverses(
    inverse_limits: wp.array2d[wp.float64], h: wp.float64, first: int, rows: wp.array3d[wp.float64]
):
    """Writes the inverses of the limits of differences of eight joints, with a span of time."""
    for lane in range(LANES):
        scale = ONE
        for k in range(3):
            scale *= h
            rows[LIMITS, k, lane] = NOTHING
            if first + lane < inverse_limits.shape[1]:
                rows[LIMITS, k, lane] = inverse_limits[k, first + lane] / scale


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
    scratch: wp.array4d[wp.float64],  # (batch * blocks of eight joints, N_ROWS, n, LANES)
    moved: wp.array3d[wp.float64],  # (batch, n, n_joints) control points
):
    """One thread per spline: some Newton steps, each with the span that the one before allows."""
    row = wp.tid() + launch_offset[0]
    n_blocks = (points.shape[2] + LANES - 1) / LANES
    first = row * n_blocks
    for block in range(n_blocks):
        rows = scratch[first + block]
        load(points[row], gradient[row], joint_limits[row], LANES * block, rows)
    h = span[row]
    for _ in range(n_steps[0]):
        h *= ONE + slack[row]
        approach = NOTHING
        for block in range(n_blocks):
            rows = scratch[first + block]
            write_inverses(inverse_limits, h, LANES * block, rows)
            approach = wp.max(approach, write_step(rows, weight[row]))
        size = INSIDE / wp.max(INSIDE, approach)
        # Relative to the limits with the span so far.
        shares = wp.vec3d()
        for block in range(n_blocks):
            shares = wp.max(shares, moved_by(scratch[first + block], size))
        longest = wp.max(wp.sqrt(shares[1]), wp.pow(shares[2], THIRD))
        h *= wp.max(shares[0], longest)
    for i in range(points.shape[1]):
        for joint in range(points.shape[2]):
            moved[row, i, joint] = scratch[first + joint / LANES, POINTS, i, joint % LANES]

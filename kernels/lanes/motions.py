"""Rates of motion in lanes: eight intervals of segments of joint paths, and bounds over them.

**Rounding.** With W the sum of the rates of a robot's joints, h half the length of an interval and
`slack` that of `lanes.kinematics`: velocities that lanes and the scalar functions compute differ by
at most 4 W slack, bounds of second derivatives by 4 W W slack, and so what a point travels by
h W (4 + 2 h W) slack. Interpolated joint values add EPSILON times the joint values at both ends.
All that, with positions, is the `margin` below. Lanes decide where a decision is the same with this
margin added and taken off; elsewhere the scalar functions decide.

On a curve w are the bounds of rates over the interval, W their sum, and A the sum of the bounds of
their changes. Joint values and rates are those of the scalar functions to a unit of float32
rounding. They are evaluated in float64, at an error of some 1e-15 of the control points, which
EPSILON times twice the largest of these covers. A distance rho from an axis differs by at most
2 slack, and by what the joints distal to it add: h times the sum of w_k times the difference of
rho_k. That is at most 2 G slack, G the product of all 1 + h w_k. The sum of
w_j (2 (w_1 + ... + w_j-1) + w_j) is W W, so that bounds of second derivatives differ by at most
2 (W W + A) G slack, and what a point travels by (4 h W + h h (W W + A) G) slack. The `margin` has
twice the second part.
"""

import warp as wp

from warp_collision.kernels.forward_kinematics import RobotFrame
from warp_collision.kernels.lanes.bodies import SHAPE
from warp_collision.kernels.lanes.frames import Lanes
from warp_collision.kernels.lanes.pairs import LEFT_OUT
from warp_collision.kernels.lanes.vectors import (
    EPSILON,
    FUSED,
    PLACE_SPHERES,
    SHAPE_ROUNDING,
)
from warp_collision.kernels.mesh_record import ExactShape
from warp_collision.kernels.robot_motion import Robot, RobotBody
from warp_collision.kernels.robot_pairs import BodyPair

# Names of the vectors of `Lanes.window`, and what follows from twists and motions.
MOTION = """
    F* window = (F*)lanes.window;
    const F half = window[0], tolerance = window[1], slack = window[2], margin = window[3];
    const F* twists = (const F*)lanes.twists;
    const F* frames_of_lanes = (const F*)lanes.frames;
    const auto length_of = [&](const F* v) __attribute__((always_inline)) -> F {
        return root_of(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    };
    const auto velocity_at = [&](int frame, const F* point, F* velocity)
            __attribute__((always_inline)) {
        const F* origin = frames_of_lanes + 12 * frame + 9;
        const F* w = twists + 8 * frame;
        const F x = point[0] - origin[0], y = point[1] - origin[1], z = point[2] - origin[2];
        velocity[0] = w[3] + w[1] * z - w[2] * y;
        velocity[1] = w[4] + w[2] * x - w[0] * z;
        velocity[2] = w[5] + w[0] * y - w[1] * x;
    };
    (void)half; (void)tolerance; (void)slack; (void)margin; (void)length_of; (void)velocity_at;
"""

# As `acceleration_bound`, of a root at rest.
ACCELERATION = """
    const auto acceleration_at = [&](int frame, const F* center, wp::float32 spread, int ancestor) {
        F bound = {}, drift = {};
        for (int k = frame; k != ancestor; k = frames.data[k].parent) {
            const F rate = twists[8 * k + 6], change = twists[8 * k + 7];
            if (frames.data[k].slides) { drift += rate; bound += change; continue; }
            const F* row = frames_of_lanes + 12 * k;
            const F x = center[0] - row[9], y = center[1] - row[10], z = center[2] - row[11];
            const F arm[3] = {row[5] * z - row[8] * y, row[8] * x - row[2] * z,
                row[2] * y - row[5] * x};
            const F resting = length_of(arm) + spread, rho = resting + half * drift;
            bound += rate * (2.0f * drift + rate * rho) + change * rho;
            // drift + rate * rho, by one fused operation behind the last one.
            drift = drift * (1.0f + half * rate) + rate * resting;
        }
        return bound;
    };
"""


# As `joint_motion`, of the control points of a joint.
_CURVE = """
    const D at = __builtin_convertvector(middle, D), h = __builtin_convertvector(window[0], D);
    const D t = 1.0 - at;
    const auto size = [](D a) { return __builtin_elementwise_abs(a); };
    const auto most = [](D a, D b) { return a > b ? a : b; };
    const wp::float64 n = degree;
    D before = __builtin_convertvector(begin, D), from = before, place = before;
    D rate = {}, change = {}, step_before = {}, bend_before = {}, far = {};
    D weight = D{} + 1.0, rate_weight = weight, change_weight = weight;
    D steps = {}, bends = {}, thirds = {};
    for (int i = 1; i <= degree; ++i) {
        const D point = __builtin_convertvector(point_at(i), D), left = at * (n - i + 1.0);
        const D step = point - before, bend = step - step_before;
        weight *= left * (1.0 / i);
        place = place * t + weight * point;
        if (i > 1) {
            rate_weight *= left * (1.0 / (i - 1));
            if (i > 2) {
                change_weight *= left * (1.0 / (i - 2));
                thirds = most(thirds, size(bend - bend_before));
            }
            change = change * t + change_weight * bend;
            bends = most(bends, size(bend));
            bend_before = bend;
        }
        rate = rate * t + rate_weight * step;
        steps = most(steps, size(step));
        far = most(far, size(point - from));
        step_before = step;
        before = point;
    }
    const D nearby = size(change) + h * (n - 2.0) * thirds;
    const D most_change = n * (n - 1.0) * (bends < nearby ? bends : nearby);
    const D fast = n * size(rate) + h * most_change, fastest = n * steps;
    rates[0] = __builtin_convertvector(n * rate, F);
    rates[1] = 2.0f * (size_of(begin) + __builtin_convertvector(far, F));
    rates[2] = __builtin_convertvector(fast < fastest ? fast : fastest, F);
    rates[3] = __builtin_convertvector(most_change, F);
    value = __builtin_convertvector(place, F);
"""


@wp.func_native(
    FUSED
    + """
    typedef wp::float64 D __attribute__((vector_size(64), aligned(8)));
    const F* window = (const F*)lanes.window;
    const F middle = window[4];
    const wp::float32* const* points = (const wp::float32* const*)(window + 5);
    F* rates = (F*)lanes.rates;
    for (int joint = 0; joint < lanes.n_joints; ++joint, rates += 4) {
        const auto point_at = [&](int i) __attribute__((always_inline)) -> F {
            F point;
            for (int k = 0; k < 8; ++k) point[k] = points[k][i * lanes.n_joints + joint];
            return point;
        };
        const F begin = point_at(0);
        F value;
        if (degree == 1) {
            const F end = point_at(1);
            rates[0] = end - begin;
            rates[1] = size_of(begin) + size_of(end);
            value = begin + middle * rates[0];
        } else {
"""
    + _CURVE
    + """
        }
        wp::float32* values = (wp::float32*)lanes.joints + joint;
        for (int k = 0; k < 8; ++k) values[k * lanes.n_joints] = value[k];
    }
"""
)
def write_values(lanes: Lanes, degree: int):
    """Writes the joint values in the lanes, and of each joint four vectors about its motion.

    These are its rate, and the sizes of its values; of curves also the bounds of the rate and of
    its change, see `JointMotion`.

    `Lanes.window` has vectors: half the length of the intervals, the tolerance [m], the scalar
    functions' `slack` [m], the margin [m] by `write_twists`; the middle of the intervals; and
    pointers to the first control points of the segments.
    """
    ...


@wp.func_native(
    FUSED
    + f"    const wp::float32 epsilon = {float(EPSILON)}f;"
    + """
    const F* rows = (const F*)lanes.frames;
    F* twists = (F*)lanes.twists;
    F* window = (F*)lanes.window;
    const F half = window[0];
    F turning = {}, bending = {}, travel = {}, sizes = {}, growth = F{} + 1.0f;
    for (int i = 0; i < 8; ++i) twists[i] = F{};
    for (int k = 1; k < robot.n_frames; ++k) {
        const auto& frame = frames.data[k];
        const F* parent = rows + 12 * frame.parent;
        const F* row = rows + 12 * k;
        const F* before = twists + 8 * frame.parent;
        F* twist = twists + 8 * k;
        const wp::float32 multiplier = wp::abs(frame.multiplier);
        const F* joint = (const F*)lanes.rates + 4 * frame.value;
        const F change = frame.multiplier * joint[0];
        const F rate = degree == 1 ? size_of(change) : multiplier * joint[2];
        const F bend = degree == 1 ? F{} : multiplier * joint[3];
        sizes += multiplier * joint[1];
        const F x = row[9] - parent[9], y = row[10] - parent[10], z = row[11] - parent[11];
        twist[3] = before[3] + before[1] * z - before[2] * y;
        twist[4] = before[4] + before[2] * x - before[0] * z;
        twist[5] = before[5] + before[0] * y - before[1] * x;
        for (int i = 0; i < 3; ++i) {
            const F along = change * row[3 * i + 2];
            twist[i] = frame.slides ? before[i] : before[i] + along;
            if (frame.slides) twist[3 + i] += along;
        }
        twist[6] = rate;
        twist[7] = bend;
        if (frame.slides) travel += joint[1];
        const wp::float32 unit = frame.slides ? 1.0f / robot.reach : 1.0f;
        turning += unit * rate;
        bending += unit * bend;
        if (degree > 1) growth *= 1.0f + half * unit * rate;
    }
    const F part = half * turning, curving = part * part + half * half * bending;
    const F reach = robot.reach + travel;
    window[3] = lanes.slack * (1.0f + 4.0f * part + 2.0f * curving * growth)
        + epsilon * reach * sizes;
"""
)
def write_twists(robot: Robot, frames: wp.array[RobotFrame], lanes: Lanes, degree: int):
    """Writes the twists of all frames, by the position on the segments, and the margin."""
    ...


@wp.func_native(
    FUSED
    + MOTION
    + ACCELERATION
    + f"    const wp::float32 rounding = {float(SHAPE_ROUNDING)}f;"
    + """
    for (int b = 0; b < robot.n_bodies; ++b) {
        const auto& body = bodies.data[robot.first_body + b];
        const wp::float32 at[3] = {body.center[0], body.center[1], body.center[2]};
        F* ball = (F*)lanes.balls + 5 * b;
        F* motion = (F*)lanes.motions + 5 * b;
        place(frames_of_lanes + 12 * body.frame, at, ball);
        ball[4] = F{};
        if (!(asked >> b % 64 & 1) || body.radius < 0.0f) continue;
        velocity_at(body.frame, ball, motion);
        motion[3] = acceleration_at(body.frame, ball, body.spread, 0);
        motion[4] = half * (length_of(motion) + 0.5f * half * motion[3]);
        ball[3] = body.radius + larger(motion[4] + slack, tolerance) + margin
            + rounding * lanes.far;
    }
"""
)
def write_motions(
    robot: Robot,
    frames: wp.array[RobotFrame],
    bodies: wp.array[RobotBody],
    lanes: Lanes,
    asked: wp.uint64,
):
    """Writes the balls of all bodies, and of those asked for how they move over the intervals.

    By body: its velocity, the bound of the second derivative of its spheres, and by how far its
    center moves from where it is in the middle of the interval.
    """
    ...


# Of what is found for a body or a pair of bodies in the lanes: hits, what is open, and where the
# scalar functions decide, each in eight bits.
RESULT = """
    const auto result = [&](I near, I hit, I open, I may_hit, I may_open)
            __attribute__((always_inline)) -> wp::uint32 {
        const I unsure = near & ~hit & (may_hit | (may_open & ~open));
        return bits_of(near & hit) | bits_of(near & open & ~hit & ~unsure) << 8
            | bits_of(unsure) << 16;
    };
"""


@wp.func_native(
    FUSED
    + PLACE_SPHERES
    + SHAPE
    + MOTION
    + RESULT
    + """
    const F* ball = (const F*)lanes.balls + 5 * index;
    const F* motion = (const F*)lanes.motions + 5 * index;
    const F wide = margin + rounding;
    const F height = height_over(ball) - padding;
    const F reach = body.radius + larger(motion[4] + slack, tolerance);
    const I near = ~(height >= reach + wide) & mask_of(bits), is_near = height < reach - wide;
    if (!any(near)) return 0;
    I hit = {}, may_hit = {};
    I open = motion[4] > body.radius + wide, may_open = ~(motion[4] <= body.radius - wide);
    if (any(near & (~open | ~(height > body.radius + tolerance + wide)))) {
        place_spheres(body, index);
        for (int s = body.begin; s < body.end; ++s) {
            const wp::float32 radius = ((const wp::float32*)robot.spheres)[4 * s + 3];
            if (radius < 0.0f) continue;
            const F* center = (const F*)lanes.spheres + 3 * s;
            const F gap = height_over(center) - padding - radius;
            hit |= gap < tolerance - slack - wide;
            may_hit |= ~(gap >= tolerance - slack + wide);
            if (!any(near & ~(open & is_near))) continue;
            F velocity[3];
            velocity_at(body.frame, center, velocity);
            const F travel = half * (length_of(velocity) + 0.5f * half * motion[3]);
            const F needed = larger(travel + slack, tolerance - slack);
            open |= gap < needed - wide;
            may_open |= ~(gap >= needed + wide);
        }
    }
    return result(near, hit & is_near, open & is_near, may_hit, may_open);
"""
)
def body_beside_shape(
    exact: ExactShape,
    pose: wp.transform,
    padding: float,
    robot: Robot,
    body: RobotBody,
    lanes: Lanes,
    index: int,
    rounding: float,
    bits: wp.uint32,
) -> wp.uint32:
    """What `check_obstacle` finds in some lanes, for a shape with a formula; see `RESULT`."""
    ...


_PAIR = """
    const auto& one = bodies.data[robot.first_body + pair.first];
    const auto& other = bodies.data[robot.first_body + pair.second];
    const F* here = (const F*)lanes.balls + 5 * pair.first;
    const F* there = (const F*)lanes.balls + 5 * pair.second;
    const F* moved = (const F*)lanes.motions;
    const F wide = 2.0f * margin + rounding, error = 2.0f * slack;
    const F offset[3] = {here[0] - there[0], here[1] - there[1], here[2] - there[2]};
    const F gap = length_of(offset) - one.radius - other.radius - pair.buffer;
    const F apart = larger(moved[5 * pair.first + 4] + moved[5 * pair.second + 4] + error,
        tolerance);
    // By how far each of the balls moves, where that is known.
    const I both = mask_of(known);
    I near = mask_of(bits) & ~(both & (gap > apart + wide));
    if (!any(near)) return 0;
    const I is_apart = both & ~(gap < apart - wide);
    const F* turning = twists + 8 * pair.ancestor;
    const auto relative = [&](const F* a, const F* b, const F* d, F* rate)
            __attribute__((always_inline)) {
        rate[0] = a[0] - b[0] - (turning[1] * d[2] - turning[2] * d[1]);
        rate[1] = a[1] - b[1] - (turning[2] * d[0] - turning[0] * d[2]);
        rate[2] = a[2] - b[2] - (turning[0] * d[1] - turning[1] * d[0]);
    };
    F u[3], v[3], rate[3], first[3], second[3];
    velocity_at(one.frame, here, u);
    velocity_at(other.frame, there, v);
    relative(u, v, offset, rate);
    for (int i = 0; i < 3; ++i) {
        first[i] = twists[8 * one.frame + i] - turning[i];
        second[i] = twists[8 * other.frame + i] - turning[i];
    }
    const F bend = 0.5f * half
        * (acceleration_at(one.frame, here, wp::max(one.spread, one.far_piece), pair.ancestor)
        + acceleration_at(other.frame, there, wp::max(other.spread, other.far_piece),
            pair.ancestor));
    const F turn = (length_of(first) + length_of(second)) * (one.spread + other.spread);
    const F within = larger(half * (length_of(rate) + turn + bend) + error, tolerance);
    near &= ~(gap > within + wide);
    const I is_near = near & ~is_apart & (gap < within - wide);
"""


# Spheres of two bodies whose balls are near: of the second those near to the first ball, of which a
# mask has 32. A negative reach has a negative square.
_SPHERES = """
    I hit = {}, may_hit = {}, open = {}, may_open = {};
    const auto within_reach = [&](const F* a, const F* b, F reach) __attribute__((always_inline)) {
        const F x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
        return x * x + y * y + z * z <= reach * size_of(reach);
    };
    for (int begin = other.begin; begin < other.end; begin += 32) {
        wp::uint32 some = 0;
        for (int t = begin; t < wp::min(begin + 32, other.end); ++t) {
            const F reach = within + wide + (one.radius + pair.buffer + radii[4 * t]);
            if (radii[4 * t] >= 0.0f && any(near & within_reach(spheres + 3 * t, here, reach)))
                some |= 1u << (t - begin);
        }
        for (int s = one.begin; some && s < one.end; ++s) {
            const F* a = spheres + 3 * s;
            const wp::float32 radius = radii[4 * s] + pair.buffer;
            if (radii[4 * s] < 0.0f) continue;
            // Of lanes where the pair is open, hits alone are still looked for.
            const F reach = (open & is_near ? tolerance : within) + wide + radius;
            const I is_close = near & within_reach(a, there, reach + other.radius);
            if (!any(is_close)) continue;
            velocity_at(one.frame, a, u);
            for (wp::uint32 rest = some; rest; rest &= rest - 1) {
                const int t = begin + __builtin_ctz(rest);
                const F* b = spheres + 3 * t;
                const I touch = is_close & within_reach(a, b, reach + radii[4 * t]);
                if (!any(touch) || is_left_out(s, t)) continue;
                const F d[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
                const F distance = length_of(d) - (radius + radii[4 * t]);
                velocity_at(other.frame, b, v);
                relative(u, v, d, rate);
                const F length = larger(length_of(d), F{} + 1.0e-3f);
                const F along = size_of(rate[0] * d[0] + rate[1] * d[1] + rate[2] * d[2]) / length;
                const F least = distance - half * (along + bend) - error;
                hit |= touch & (distance < tolerance - error - wide);
                may_hit |= touch & ~(distance >= tolerance - error + wide);
                open |= touch & (least < -wide);
                may_open |= touch & (~(least > wide) | ~(length_of(d) > 2.0e-3f));
            }
        }
    }
"""


@wp.func_native(
    FUSED
    + PLACE_SPHERES
    + MOTION
    + ACCELERATION
    + RESULT
    + LEFT_OUT
    + _PAIR
    + """
    if (!any(near)) return 0;
    place_spheres(one, pair.first);
    place_spheres(other, pair.second);
    const wp::float32* radii = (const wp::float32*)robot.spheres + 3;
    const F* spheres = (const F*)lanes.spheres;
"""
    + _SPHERES
    + """
    if (one.n_pieces && other.n_pieces) may_hit |= may_open;
    if (one.n_pieces && other.n_pieces) hit = open = I{};
    return result(near, hit & is_near, open & is_near, may_hit, may_open);
"""
)
def pair_in_motion(
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    frames: wp.array[RobotFrame],
    bodies: wp.array[RobotBody],
    robot: Robot,
    lanes: Lanes,
    rounding: float,
    known: wp.uint32,
    bits: wp.uint32,
) -> wp.uint32:
    """What is found of a pair of bodies in some lanes, see `RESULT`; by their spheres.

    Args:
        pair: the bodies.
        left_out: pairs of spheres that are not checked.
        frames: of the robot.
        bodies: of the robot in all envs.
        robot: the robot.
        lanes: with motions.
        rounding: of a distance [m].
        known: lanes in which the motions of both bodies were asked for.
        bits: the lanes to check.
    """
    ...

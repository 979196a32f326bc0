"""Pairs of bodies in lanes: balls first, then groups of spheres, then spheres.

**Rounding.** Lanes compare positions in the world, each within the `slack` of the scalar functions'
own, which compare them in the frame of the second body: that adds at most 30 u times the
coordinates, with EPSILON = 4 u less than 8 EPSILON, and `uncertainty` 9 EPSILON.
"""

import warp as wp

from warp_collision.kernels.box_blocks import lowest_bit
from warp_collision.kernels.forward_kinematics import point_in_world
from warp_collision.kernels.lanes.frames import Lanes, pose_of_lane
from warp_collision.kernels.lanes.vectors import EPSILON, FUSED, PLACE_SPHERES
from warp_collision.kernels.precision import uncertainty
from warp_collision.kernels.robot_motion import GROUP_SIZE, Robot, RobotBody, body_of
from warp_collision.kernels.robot_pairs import BodyPair, balls_meet, bodies_touch

# Rounding of a gap, relative to coordinates.
PAIR_ROUNDING = wp.constant(20.0 * EPSILON)


@wp.func_native(
    FUSED
    + """
    const I asked = mask_of(bits);
    const F* balls = (const F*)lanes.balls;
    for (; begin < pairs.shape[0]; ++begin) {
        const auto& pair = pairs.data[begin];
        const auto& one = bodies.data[robot.first_body + pair.first];
        const auto& other = bodies.data[robot.first_body + pair.second];
        if (one.radius < 0.0f || other.radius < 0.0f) continue;
        const F* here = balls + 5 * pair.first;
        const F* there = balls + 5 * pair.second;
        const wp::float32 reach = one.radius + other.radius + pair.buffer + margin;
        F square = {};
        for (int k = 0; k < 3; ++k) square += (here[k] - there[k]) * (here[k] - there[k]);
        if (reach > 0.0f && any((square < reach * reach) & asked)) break;
    }
    return begin;
"""
)
def next_near_pair(
    pairs: wp.array[BodyPair],
    bodies: wp.array[RobotBody],
    robot: Robot,
    lanes: Lanes,
    margin: float,
    bits: wp.uint32,
    begin: int,
) -> int:
    """The first pair, from one on, whose balls may overlap in some of the lanes; else their count.

    Args:
        pairs: of bodies.
        bodies: of the robot in all envs.
        robot: the robot.
        lanes: with placed balls.
        margin: rounding of a gap [m].
        bits: the lanes to check.
        begin: the first pair.
    """
    ...


# Whether a pair of spheres is left out.
LEFT_OUT = """
    const auto is_left_out = [&](int a, int b) {
        int low = pair.begin, high = pair.end;
        while (low < high) {
            const int middle = (low + high) / 2;
            const auto& entry = left_out.data[middle];
            if (entry[0] < a || (entry[0] == a && entry[1] < b)) low = middle + 1;
            else high = middle;
        }
        return low < pair.end && left_out.data[low][0] == a && left_out.data[low][1] == b;
    };
"""
_WITHIN = """
    const auto within = [&](const F* a, const F* b, wp::float32 reach)
            __attribute__((always_inline)) -> I {
        const F x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
        const F square = x * x + y * y + z * z;
        return reach > 0.0f ? square < reach * reach : I{};
    };
"""


@wp.func_native(
    FUSED
    + PLACE_SPHERES
    + LEFT_OUT
    + _WITHIN
    + f"    const int group_size = {int(GROUP_SIZE)};"
    + """
    const auto& one = bodies.data[robot.first_body + pair.first];
    const auto& other = bodies.data[robot.first_body + pair.second];
    place_spheres(one, pair.first);
    place_spheres(other, pair.second);
    const wp::float32* radii = (const wp::float32*)robot.spheres + 3;
    const F* spheres = (const F*)lanes.spheres;
    const F* frame = (const F*)lanes.frames + 12 * other.frame;
    const F* there = (const F*)lanes.balls + 5 * pair.second;
    const bool has_groups = other.end - other.begin > group_size;
    const I asked = mask_of(bits);
    I hit = {}, open = {};
    for (int s = one.begin; s < one.end && any(asked & ~hit); ++s) {
        const F* here = spheres + 3 * s;
        const wp::float32 radius = radii[4 * s] + pair.buffer, wide = radius + margin;
        if (radii[4 * s] < 0.0f || !any(within(here, there, wide + other.radius) & asked))
            continue;
        const wp::float32* group = (const wp::float32*)robot.groups + 4 * other.first_group;
        for (int t = other.begin; t < other.end; ++t) {
            if (has_groups && (t - other.begin) % group_size == 0) {
                F ball[3];
                place(frame, group, ball);
                const wp::float32 reach = group[3];
                group += 4;
                if (reach < 0.0f || !any(within(here, ball, wide + reach) & asked)) {
                    t += group_size - 1;
                    continue;
                }
            }
            if (radii[4 * t] < 0.0f) continue;
            const I touch = within(here, spheres + 3 * t, wide + radii[4 * t]) & asked & ~hit;
            if (!any(touch) || is_left_out(s, t)) continue;
            hit |= touch & within(here, spheres + 3 * t, radius - margin + radii[4 * t]);
            open |= touch;
        }
    }
    wp::uint32 certain = bits_of(hit) & bits, rest = bits_of(open) & bits & ~certain;
    // Where links have convex pieces these may prove that they are apart.
    if (one.n_pieces && other.n_pieces) { rest |= certain; certain = 0; }
    return certain | rest << 8;
"""
)
def spheres_touch_spheres(
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    bodies: wp.array[RobotBody],
    robot: Robot,
    lanes: Lanes,
    margin: float,
    bits: wp.uint32,
) -> wp.uint32:
    """In which lanes two bodies touch: the lower eight bits; and behind them, may touch."""
    ...


@wp.func
def pair_touches_in_lane(
    pair: BodyPair, left_out: wp.array[wp.vec2i], robot: Robot, lanes: Lanes, lane: int
) -> bool:
    """Whether two bodies touch in one lane, by the scalar functions, as in `configuration_hit`."""
    root = pose_of_lane(robot, lanes, lane, 0)
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    first = pose_of_lane(robot, lanes, lane, one.frame)
    second = pose_of_lane(robot, lanes, lane, other.frame)
    pair.buffer += uncertainty(2.0 * wp.length(root.origin), 0.0)
    here = point_in_world(first, one.center)
    there = point_in_world(second, other.center)
    first_ball = wp.vec4(here[0], here[1], here[2], one.radius)
    second_ball = wp.vec4(there[0], there[1], there[2], other.radius)
    if not balls_meet(first_ball, second_ball, pair.buffer):
        return False
    return bodies_touch(robot, pair, left_out, first, second)


@wp.func
def lanes_free_of_pairs(
    pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    robot: Robot,
    lanes: Lanes,
    free: wp.uint32,
) -> wp.uint32:
    """Those of some known lanes in which no pair of bodies touches."""
    n_rows = robot.first_body + robot.n_bodies
    bodies = wp.array(ptr=robot.bodies, shape=(n_rows,), dtype=RobotBody)
    margin = 2.0 * lanes.slack + PAIR_ROUNDING * lanes.far
    k = next_near_pair(pairs, bodies, robot, lanes, margin, free, 0)
    while k < pairs.shape[0] and free != wp.uint32(0):
        pair = pairs[k]
        found = spheres_touch_spheres(pair, left_out, bodies, robot, lanes, margin, free)
        free &= ~found
        open = (found >> wp.uint32(8)) & wp.uint32(255)
        while open != wp.uint32(0):
            lane = lowest_bit(open)
            open &= open - wp.uint32(1)
            if pair_touches_in_lane(pair, left_out, robot, lanes, lane):
                free &= ~(wp.uint32(1) << wp.uint32(lane))
        k = next_near_pair(pairs, bodies, robot, lanes, margin, free, k + 1)
    return free

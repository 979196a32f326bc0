"""Bounds of the motion of a robot's bodies, eight bodies at once in the lanes of a CPU."""

import warp as wp

from warp_collision.kernels.forward_kinematics import RobotFrame
from warp_collision.kernels.lanes.vectors import PREAMBLE
from warp_collision.kernels.robot_motion import (
    LARGEST_ACCELERATION,
    MovingFrame,
    Robot,
    RobotBody,
)

# Eight bodies from `first` on: the centers of their balls in the world, and their frames.
_BODIES = """
    F center[3], spread;
    I frame;
    for (int i = 0; i < 8; ++i) {
        const auto& body = bodies.data[robot.first_body + wp::min(first + i, count - 1)];
        const wp::float32* row = rows + 18 * body.frame;
        for (int j = 0; j < 3; ++j)
            center[j][i] = row[3 * j] * body.center[0] + row[3 * j + 1] * body.center[1]
                + row[3 * j + 2] * body.center[2] + row[9 + j];
        spread[i] = body.spread;
        frame[i] = body.frame;
    }
"""
# What a joint adds to the sums of the bodies that it moves: as in `acceleration_bound` and
# `tracking_deviation`.
_SUMS = """
    const F none = {};
    F bound = {}, drift = {}, off[2] = {}, moved[2] = {};
    const auto add_joint = [&](const wp::float32* row, const wp::float32* limits, bool slides,
            I is_moved, const F* center, F spread) {
        const F rate = is_moved ? none + limits[0] : none;
        const F change = is_moved ? none + limits[1] : none;
        const F error = is_moved ? none + limits[2] : none;
        const F own[2] = {error, half * rate + error};
        if (slides) {
            drift += rate;
            bound += change;
            for (int i = 0; i < 2; ++i) off[i] += error, moved[i] += own[i];
            return;
        }
        const F x = center[0] - row[9], y = center[1] - row[10], z = center[2] - row[11];
        const F a = row[5] * z - row[8] * y, b = row[8] * x - row[2] * z;
        const F c = row[2] * y - row[5] * x;
        const F arm = root_of(a * a + b * b + c * c) + spread;
        const F rho = arm + half * drift;
        bound += rate * (2.0f * drift + rate * rho) + change * rho;
        drift += rate * rho;
        for (int i = 0; i < 2; ++i) {
            const F reach = arm + moved[i];
            off[i] += error * reach;
            moved[i] += own[i] * reach;
        }
    };
"""


@wp.func_native(
    """
#if !defined(__CUDA_ARCH__)
"""
    + PREAMBLE
    + f"    const wp::float32 largest = {float(LARGEST_ACCELERATION)}f;"
    + """
    const wp::float32* rows = (const wp::float32*)states.data;
    const wp::int32 count = robot.n_bodies, n_frames = robot.n_frames;
    for (int first = 0; first < count; first += 8) {
        if ((asked >> (first % 64) & 255) == 0) continue;
"""
    + _BODIES
    + _SUMS
    + """
        for (int k = n_frames - 1; k > 0; --k) {
            const I is_moved = frame == k;
            if (!any(is_moved)) continue;
            const wp::float32* limits = rows + 18 * (n_frames + k) + 12;
            add_joint(rows + 18 * k, limits, chain.data[k].slides, is_moved, center, spread);
            frame = is_moved ? I{} + chain.data[k].parent : frame;
        }
        bound = bound < largest ? bound : none + largest;
        for (int i = 0; i < 8 && first + i < count; ++i)
            bounds.data[first + i] = {bound[i], off[0][i], off[1][i], 0.0f};
    }
#endif
"""
)
def write_motion_bounds(
    states: wp.array[MovingFrame],
    chain: wp.array[RobotFrame],
    bodies: wp.array[RobotBody],
    robot: Robot,
    asked: wp.uint64,
    half: float,
    bounds: wp.array[wp.vec4],
):
    """On a CPU `acceleration_bound` and both of `tracking_deviation` of bodies, with their bits.

    Args:
        states: of the frames, and behind them what `write_joint_limits` keeps of each. The root
            rests.
        chain: the frames.
        bodies: of all envs.
        robot: with its bodies in an env.
        asked: bits of those that are needed.
        half: half the length of the interval.
        bounds: of each body, to write.
    """
    ...

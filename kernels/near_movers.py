"""How near a robot may come to moving obstacles on a segment, by balls around both."""

import warp as wp

from warp_collision.kernels.body_check import body_in_motion, interval_around
from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import xyz
from warp_collision.kernels.mesh_record import FAR, load_record
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    body_of,
    robot_in_env,
    root_at,
    segment_of,
    write_frames,
    write_root,
)
from warp_collision.kernels.scene_walk import env_of_row
from warp_collision.kernels.transforms import load_transform, vec8

wp.set_module_options(FEW_THREADS)

# Rounding of the distance of two balls, relative to coordinates: far more than it is.
ROUNDING = wp.constant(1.0e-4)


@wp.func
def origin_in_world(row: vec8) -> wp.vec3:
    """The origin of an obstacle in the world."""
    return wp.transform_get_translation(wp.transform_inverse(load_transform(row)))


@wp.func
def enlarged(center: wp.vec3, radius: float) -> wp.vec4:
    """A ball with the rounding of its distance from others."""
    radius += ROUNDING * (wp.length(center) + wp.abs(radius))
    return wp.vec4(center[0], center[1], center[2], radius)


@wp.func
def ball_of_mover(record: wp.uint64, first: vec8, second: vec8) -> wp.vec4:
    """A ball around an obstacle on a segment: its origin moves straight, all else around it."""
    shape = load_record(record)
    corner = wp.max(wp.abs(shape.lower), wp.abs(shape.upper))
    begin = origin_in_world(first)
    end = origin_in_world(second)
    middle = 0.5 * (begin + end)
    radius = wp.length(corner) + shape.inside_reach + 0.5 * wp.length(end - begin)
    return enlarged(middle, radius)


@wp.func
def least_gap(balls: wp.array[wp.vec4], mover: wp.vec4) -> float:
    """A lower bound of the distance of the balls of a robot from another ball, NaN if one is."""
    least = float(wp.inf)
    for b in range(balls.shape[0]):
        ball = balls[b]
        gap = wp.length(xyz(ball) - xyz(mover)) - ball[3]
        if not (gap >= least or wp.isnan(least)):
            least = gap
    return least - mover[3]


@wp.kernel
def bound_movers(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, n, n_joints) [rad or m], see `segment_of`
    env_index: wp.array[wp.int32],  # (batch,) or empty
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, 1) of the root, or empty
    moving: wp.array2d[wp.uint8],  # (n_envs, slots), which obstacles count
    records: wp.array2d[wp.uint64],  # (n_envs, slots) pointers
    padding: wp.array2d[wp.float32],  # [m]
    mesh_from_world: wp.array3d[vec8],  # (n_envs, horizon, slots)
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the segments
    # outputs
    states: wp.array3d[MovingFrame],  # (batch, horizon - 1, n_frames) scratch
    balls: wp.array3d[wp.vec4],  # (batch, horizon - 1, n_bodies) scratch
    least: wp.array3d[wp.float32],  # (batch, slots, horizon - 1) lower bounds [m]; +inf: not there
):
    """One thread per segment."""
    row, index = wp.tid()
    row += launch_offset[0]
    index += launch_offset[1]
    env = env_of_row(env_index, row)
    is_valid = env >= 0 and env < records.shape[0]
    own_robot, frames = robot_in_env(robot, env), states[row, index]
    segment = segment_of(own_robot, joints, row, index, states.shape[1], frames)
    slack = write_root(segment, root_at(base, row, index))
    write_frames(segment, 0.5, 0.5)
    for b in range(segment.robot.n_bodies):
        body = body_of(segment.robot, b)
        check = body_in_motion(segment, body, interval_around(0.5, 0.5, slack, 0.0, 0.0))
        reach = body.radius + check.ball_travel + slack
        balls[row, index, b] = enlarged(check.center, wp.where(body.radius < 0.0, -FAR, reach))
    for slot in range(records.shape[1]):
        bound = wp.where(is_valid, wp.inf, wp.nan)
        if is_valid:
            if moving[env, slot] != wp.uint8(0):
                mover = ball_of_mover(
                    records[env, slot],
                    mesh_from_world[env, index, slot],
                    mesh_from_world[env, index + 1, slot],
                )
                bound = least_gap(balls[row, index], mover) - padding[env, slot]
        least[row, slot, index] = bound

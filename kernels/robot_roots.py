"""Frames of a robot's root: at base poses, and seen from obstacles that move.

All is computed in float64 and rounded once.
"""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import MovingFrame, Twist, pose_in, vec1i
from warp_collision.kernels.robot_motion import root_at
from warp_collision.kernels.scene_walk import env_of_row
from warp_collision.kernels.turns import (
    TWO,
    Placed,
    Turn,
    combined_turn,
    inverse_turn,
    placed_by,
    rounded,
    turned,
    widened,
)

wp.set_module_options(FEW_THREADS)

# Smallest cosine of half the angle of the shorter rotation, as in `moving_sweep`.
HALF_TURN = wp.constant(wp.float64(-1.0e-6))
ZERO = wp.constant(wp.float64(0.0))


def _make_place_roots(name, Scalar):
    vec7 = wp.types.vector(length=7, dtype=Scalar)

    def place(
        # operands
        poses: wp.array[vec7],  # (n,) x, y, z [m], qw, qx, qy, qz
        # parameters
        launch_offset: vec1i,  # of this launch in the poses
        # outputs
        roots: wp.array[MovingFrame],  # (n,)
    ):
        """One thread per base pose."""
        row = wp.tid()
        row += launch_offset[0]
        frame_pose = pose_in(placed_by(poses[row]), wp.identity(n=3, dtype=float))
        roots[row] = MovingFrame(frame_pose, Twist(wp.vec3(0.0), wp.vec3(0.0)))

    # Warp knows kernels by their qualified names.
    place.__name__ = place.__qualname__ = name
    return wp.kernel(place)


place_roots_float32 = _make_place_roots("place_roots_float32", wp.float32)
place_roots_float64 = _make_place_roots("place_roots_float64", wp.float64)


@wp.kernel
def find_moving(
    # operands
    mesh_from_world: wp.array4d[wp.float32],  # (n_envs, horizon, slots, 8)
    is_on: wp.array2d[wp.uint8],  # (n_envs, slots), which slots queries check
    # outputs
    resting: wp.array2d[wp.uint8],  # (n_envs, slots), which are on and do not move
    moving: wp.array2d[wp.uint8],  # (n_envs, slots), which are on and move, or are NaN
):
    """One thread per env and slot."""
    env, slot = wp.tid()
    moves = bool(False)
    for t in range(mesh_from_world.shape[1]):
        for k in range(mesh_from_world.shape[3]):
            if mesh_from_world[env, t, slot, k] != mesh_from_world[env, 0, slot, k]:
                moves = True
    on = is_on[env, slot] != wp.uint8(0)
    resting[env, slot] = wp.uint8(wp.where(on and not moves, 1, 0))
    moving[env, slot] = wp.uint8(wp.where(on and moves, 1, 0))


@wp.func
def seen_from(obstacle: Placed, origin: wp.vec3) -> wp.vec3d:
    """A point of the world in the frame of an obstacle."""
    return turned(obstacle.turn, widened(origin)) + obstacle.origin


@wp.func
def root_in_obstacle(first: Placed, second: Placed, root: MovingFrame) -> MovingFrame:
    """A resting root at the start of a segment, seen from an obstacle that moves on it."""
    relative = combined_turn(second.turn, inverse_turn(first.turn))
    if relative.w < HALF_TURN:
        relative = Turn(-relative.w, -relative.u)
    sine = wp.length(relative.u)
    factor = TWO  # its limit without rotation
    if sine > ZERO:
        factor = TWO * wp.atan2(sine, relative.w) / sine
    omega = factor * relative.u
    begin = seen_from(first, root.frame_pose.origin)
    end = seen_from(second, root.frame_pose.origin)
    shift = turned(inverse_turn(relative), end) - begin
    twist = Twist(rounded(omega), rounded(wp.cross(omega, begin) + shift))
    return MovingFrame(pose_in(Placed(first.turn, begin), root.frame_pose.rotation), twist)


@wp.kernel
def place_roots_in_obstacles(
    # operands
    mesh_from_world: wp.array4d[wp.float32],  # (n_envs, horizon, slots, 8)
    moving: wp.array2d[wp.uint8],  # (n_envs, slots); others may have poses that are not valid
    env_index: wp.array[wp.int32],  # (batch,) or empty
    base: wp.array2d[MovingFrame],  # (batch or 1, 1) of the root in the world, or empty
    # parameters
    launch_offset: wp.vec3i,  # of this launch in the outputs
    # outputs
    single_env: wp.array2d[wp.int32],  # (batch, slots) env * slots + slot, -1: no such env
    roots: wp.array3d[MovingFrame],  # (batch, slots, horizon - 1)
):
    """One thread per path, slot and segment."""
    row, slot, index = wp.tid()
    row += launch_offset[0]
    slot += launch_offset[1]
    index += launch_offset[2]
    root = root_at(base, row, 0)
    env = env_of_row(env_index, row)
    is_valid = env >= 0 and env < mesh_from_world.shape[0]
    if index == 0:
        single_env[row, slot] = wp.where(is_valid, env * moving.shape[1] + slot, -1)
    if is_valid:
        if moving[env, slot] != wp.uint8(0):
            first = placed_by(mesh_from_world[env, index, slot])
            second = placed_by(mesh_from_world[env, index + 1, slot])
            root = root_in_obstacle(first, second, root)
    roots[row, slot, index] = root

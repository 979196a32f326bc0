"""Collision checks of single configurations, eight in the lanes of vector instructions."""

import warp as wp

from warp_collision.kernels.body_check import body_collides
from warp_collision.kernels.box_blocks import lowest_bit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import point_in_world
from warp_collision.kernels.lanes.bodies import BodyInLanes, free_lanes
from warp_collision.kernels.lanes.frames import (
    Lanes,
    place_lanes,
    pose_of_lane,
    write_pose,
)
from warp_collision.kernels.lanes.pairs import lanes_free_of_pairs, pair_touches_in_lane
from warp_collision.kernels.lanes.vectors import LANES
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    body_of,
    robot_in_env,
    root_at,
)
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Scene, env_of_row, is_env

wp.set_module_options(OPTIONS)

# Blocks of lanes that a thread checks one after the other, in the same scratch memory.
BLOCKS = wp.constant(16)
CONFIGURATIONS = BLOCKS * LANES
# Bytes of a vector, and of a `FramePose`.
VECTOR_BYTES = wp.constant(32)
POSE_BYTES = wp.constant(48)


def scratch_bytes(n_frames: int, n_bodies: int, n_spheres: int) -> int:
    """Scratch memory of a thread, see `lanes_of`."""
    return (
        VECTOR_BYTES * (12 * n_frames + 5 * n_bodies + 3 * n_spheres)
        + 8 * POSE_BYTES * n_frames
        + VECTOR_BYTES
    )


@wp.func_native("return (wp::uint64)(joints.data + first * joints.shape[2]);")
def joints_from(joints: wp.array3d[wp.float32], first: int) -> wp.uint64:
    """Pointer to the joint values of a configuration."""
    ...


@wp.func_native("return (wp::uint64)(scratch.data + row * scratch.strides[0]);")
def row_from(scratch: wp.array2d[wp.uint8], row: int) -> wp.uint64:
    """Pointer to a row of scratch memory."""
    ...


@wp.func
def behind(pointer: wp.uint64, n_bytes: int) -> wp.uint64:
    """Pointer to what is behind so many bytes."""
    return pointer + wp.uint64(n_bytes)


@wp.func
def lanes_of(robot: Robot, scratch: wp.uint64) -> Lanes:
    """Lanes with scratch memory."""
    lanes = Lanes()
    lanes.pose_size = 12
    lanes.frames = scratch
    lanes.balls = behind(lanes.frames, 12 * VECTOR_BYTES * robot.n_frames)
    lanes.facts = behind(lanes.balls, 5 * VECTOR_BYTES * robot.n_bodies)
    lanes.poses = behind(lanes.facts, VECTOR_BYTES)
    lanes.spheres = behind(lanes.poses, 8 * POSE_BYTES * robot.n_frames)
    return lanes


@wp.func
def is_free_in_lane(
    robot: Robot,
    lanes: Lanes,
    lane: int,
    scene: Scene,
    env: int,
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
) -> bool:
    """Whether a configuration is free, by the scalar functions alone."""
    for b in range(robot.n_bodies):
        body = body_of(robot, b)
        if body.radius >= 0.0:
            pose = pose_of_lane(robot, lanes, lane, body.frame)
            center = point_in_world(pose, body.center)
            if body_collides(robot, body, pose, center, scene, env):
                return False
    for m in range(body_pairs.shape[0]):
        if pair_touches_in_lane(body_pairs[m], left_out, robot, lanes, lane):
            return False
    return True


@wp.func
def free_in_env(
    robot: Robot,
    lanes: Lanes,
    scene: Scene,
    env: int,
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    asked: wp.uint32,
) -> wp.uint32:
    """Which of the asked lanes, which are in one env, are free."""
    if not is_env(scene, env):
        return wp.uint32(0)
    free = asked & lanes.finite & lanes.known
    unknown = asked & lanes.finite & ~lanes.known
    query = BodyInLanes(robot, lanes, 0)
    for b in range(robot.n_bodies):
        if free != wp.uint32(0):
            body = body_of(robot, b)
            if body.radius >= 0.0:
                query.index = b
                free = free_lanes(query, scene, env, body.begin, free, free)
    if free != wp.uint32(0):
        free = lanes_free_of_pairs(body_pairs, left_out, robot, lanes, free)
    while unknown != wp.uint32(0):
        lane = lowest_bit(unknown)
        unknown &= unknown - wp.uint32(1)
        if is_free_in_lane(robot, lanes, lane, scene, env, body_pairs, left_out):
            free |= wp.uint32(1) << wp.uint32(lane)
    return free


@wp.kernel
def configurations_hit(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, horizon, n_joints) [rad or m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, horizon or 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the threads
    # outputs
    scratch: wp.array2d[wp.uint8],  # (threads, `scratch_bytes`)
    hit: wp.array2d[wp.bool],  # (batch, horizon)
):
    """As `configuration_hit`, with the same answers; one thread for each `BLOCKS` of lanes."""
    _row, thread = wp.tid()
    thread += launch_offset[1]
    horizon = hit.shape[1]
    n = hit.shape[0] * horizon
    lanes = lanes_of(robot, row_from(scratch, thread))
    lanes.n_joints = joints.shape[2]
    for block in range(thread * BLOCKS, wp.min((thread + 1) * BLOCKS, (n + LANES - 1) / LANES)):
        first = block * LANES
        lanes.joints = joints_from(joints, first)
        lanes.count = wp.min(LANES, n - first)
        # Scratch memory keeps a root that all configurations have.
        n_roots = wp.where(block == thread * BLOCKS or base.shape[0] > 0, lanes.count, 0)
        for lane in range(n_roots):
            row = (first + lane) / horizon
            root = root_at(base, row, first + lane - row * horizon)
            write_pose(lanes, lane, robot.n_frames, root.frame_pose)
        rest = (wp.uint32(1) << wp.uint32(lanes.count)) - wp.uint32(1)
        while rest != wp.uint32(0):
            # Lanes of the same env.
            env = env_of_row(env_index, (first + lowest_bit(rest)) / horizon)
            asked = wp.uint32(0)
            for lane in range(lanes.count):
                if env_of_row(env_index, (first + lane) / horizon) == env:
                    asked |= wp.uint32(1) << wp.uint32(lane)
            env_robot = robot_in_env(robot, env)
            placed = place_lanes(env_robot, lanes)
            free = free_in_env(env_robot, placed, scene, env, body_pairs, left_out, asked)
            for lane in range(lanes.count):
                bit = wp.uint32(1) << wp.uint32(lane)
                if asked & bit != wp.uint32(0):
                    index = first + lane
                    row = index / horizon
                    hit[row, index - row * horizon] = free & bit == wp.uint32(0)
            rest &= ~asked

"""What of the configurations and segments that spheres refuse collides by the shapes of links."""

import warp as wp

from warp_collision.kernels.bisection import Lane, tell
from warp_collision.kernels.compiling import FEW_THREADS, resident_warps
from warp_collision.kernels.forward_kinematics import FramePose
from warp_collision.kernels.joint_path_hit import (
    make_collides,
    make_open_bodies,
    make_segment_collides,
)
from warp_collision.kernels.pieces_over_obstacles import (
    check_shape_of_body,
    link_collides,
    link_in_motion,
)
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    robot_in_env,
    root_at,
    segment_of,
    write_root,
)
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Scene, env_of_row, is_env

wp.set_module_options(FEW_THREADS)

shapes_collide = make_collides(link_collides, "shapes")
open_links = make_open_bodies(link_in_motion, check_shape_of_body, "shapes")
shapes_collide_on_segment = make_segment_collides(open_links, "shapes")


@wp.kernel(**resident_warps(16, block=32))
def shape_hit(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, horizon, n_joints) [rad or m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, horizon or 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    # parameters
    spheres_hit: wp.array2d[wp.bool],  # (batch, horizon)
    launch_offset: wp.vec3i,  # of this launch in the configurations and their lanes
    # outputs
    frame_poses: wp.array4d[FramePose],  # (batch, horizon, n_lanes, n_frames) scratch
    balls: wp.array4d[wp.vec4],  # (batch, horizon, n_lanes, n_bodies) scratch
    hit: wp.array2d[wp.bool],  # (batch, horizon), False before
):
    """One thread per configuration and lane; it ends at once where spheres are free."""
    row, waypoint, number = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    if spheres_hit[row, waypoint]:
        env = env_of_row(env_index, row)
        root = root_at(base, row, waypoint).frame_pose
        lane = Lane(number, balls.shape[2], hit[row], waypoint)
        poses = frame_poses[row, waypoint, number]
        own = balls[row, waypoint, number]
        collides = shapes_collide(
            joints, row, waypoint, scene, env, robot, root, body_pairs, left_out, lane, poses, own
        )
        tell(lane, collides)


@wp.kernel(**resident_warps(16, block=32))
def segment_shape_hit(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, n, n_joints) [rad or m], see `segment_of`
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, horizon - 1 or 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    # parameters
    tolerance: wp.array[wp.float32],  # (1,) for all paths, or (batch,) [m]
    spheres_hit: wp.array2d[wp.bool],  # (batch, horizon - 1)
    launch_offset: wp.vec3i,  # of this launch in the segments and their lanes
    # outputs
    states: wp.array4d[MovingFrame],  # (batch, horizon - 1, n_lanes, n_frames) scratch
    balls: wp.array4d[wp.vec4],  # (batch, horizon - 1, n_lanes, n_bodies) scratch
    hit: wp.array2d[wp.bool],  # (batch, horizon - 1), False before
):
    """One thread per segment and lane; it ends at once where spheres are free."""
    row, index, number = wp.tid()
    row += launch_offset[0]
    index += launch_offset[1]
    if spheres_hit[row, index]:
        env = env_of_row(env_index, row)
        lane = Lane(number, balls.shape[2], hit[row], index)
        frames = states[row, index, number]
        segment = segment_of(robot_in_env(robot, env), joints, row, index, hit.shape[1], frames)
        slack = write_root(segment, root_at(base, row, index))
        collides = not is_env(scene, env) or not wp.isfinite(slack)
        if not collides:
            kept = tolerance[wp.min(row, tolerance.shape[0] - 1)]
            own = balls[row, index, number]
            collides = shapes_collide_on_segment(
                segment, base, row, index, slack, kept, scene, env, body_pairs, left_out, lane, own
            )
        tell(lane, collides)

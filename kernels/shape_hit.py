"""What of the configurations and segments that spheres refuse collides by the shapes of links."""

import warp as wp

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
    launch_offset: wp.vec2i,  # of this launch in the configurations
    # outputs
    frame_poses: wp.array3d[FramePose],  # (batch, horizon, n_frames) scratch
    balls: wp.array3d[wp.vec4],  # (batch, horizon, n_bodies) scratch
    hit: wp.array2d[wp.bool],  # (batch, horizon) by spheres, and after it by shapes
):
    """One thread per configuration; it ends at once where spheres are free."""
    row, waypoint = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    if hit[row, waypoint]:
        env = env_of_row(env_index, row)
        root = root_at(base, row, waypoint).frame_pose
        hit[row, waypoint] = shapes_collide(
            joints, row, waypoint, scene, env, robot, root, body_pairs, left_out, frame_poses, balls
        )


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
    launch_offset: wp.vec2i,  # of this launch in the segments
    # outputs
    states: wp.array3d[MovingFrame],  # (batch, horizon - 1, n_frames) scratch
    balls: wp.array3d[wp.vec4],  # (batch, horizon - 1, n_bodies) scratch
    hit: wp.array2d[wp.bool],  # (batch, horizon - 1) by spheres, and after it by shapes
):
    """One thread per segment; it ends at once where spheres are free."""
    row, index = wp.tid()
    row += launch_offset[0]
    index += launch_offset[1]
    if hit[row, index]:
        env = env_of_row(env_index, row)
        segment = segment_of(robot_in_env(robot, env), joints, row, index, states)
        slack = write_root(segment, root_at(base, row, index))
        if is_env(scene, env) and wp.isfinite(slack):
            kept = tolerance[wp.min(row, tolerance.shape[0] - 1)]
            own = balls[row, index]
            hit[row, index] = shapes_collide_on_segment(
                segment, base, row, index, slack, kept, scene, env, body_pairs, left_out, own
            )

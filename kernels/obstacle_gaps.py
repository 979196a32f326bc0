"""Clearance of a robot's links at rest from obstacles by their convex pieces."""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import FramePose, point_in_world, vec1i
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.piece_gaps import write_frame_poses
from warp_collision.kernels.pieces_over_obstacles import (
    bounds_at_rest,
    is_touching,
    resting_link,
)
from warp_collision.kernels.robot_motion import MovingFrame, Robot, body_of, robot_in_env, root_at
from warp_collision.kernels.scene_walk import Scene, load_obstacle

wp.set_module_options(FEW_THREADS)


@wp.kernel
def obstacle_gaps(
    # operands
    asked: wp.array[wp.vec4i],  # (n,) row of the joints, body, env, slot in it
    joints: wp.array2d[wp.float32],  # (rows, n_joints) [rad or m]
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (rows or 1, 1) of the root, or empty
    # parameters
    margin: wp.array[wp.float32],  # (1,) [m]
    launch_offset: vec1i,  # of this launch in what is asked
    # outputs
    frame_poses: wp.array2d[FramePose],  # (n, n_frames) scratch
    gaps: wp.array[wp.float32],  # (n,) [m]
):
    """One thread per body and obstacle: a lower bound of the distance of the body's pieces from it.

    It is found to rounding below the margin, and -FAR where they touch or there are none.
    """
    index = wp.tid()
    index += launch_offset[0]
    row = asked[index][0]
    env = asked[index][2]
    env_robot = robot_in_env(robot, env)
    own = frame_poses[index]
    write_frame_poses(env_robot, root_at(base, row, 0).frame_pose, joints[row], own)
    body = body_of(env_robot, asked[index][1])
    frame_pose = own[body.frame]
    link = resting_link(env_robot, body, frame_pose, point_in_world(frame_pose, body.center))
    link.reach = wp.max(margin[0], 0.0)
    obstacle = load_obstacle(scene, env * scene.n_slots + asked[index][3])
    gaps[index] = -FAR
    if obstacle.is_present:
        found = bounds_at_rest(obstacle, link)
        if not is_touching(found):
            gaps[index] = found[1]

"""Clearance of a robot's links at rest by their shapes: convex pieces, and surfaces."""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import FramePose, frame_at_value, root_pose, vec1i
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.robot_motion import Robot, body_of, frame_of
from warp_collision.kernels.robot_pairs import BodyPair, shapes_at_rest

wp.set_module_options(FEW_THREADS)


@wp.func
def write_frame_poses(
    robot: Robot, root: FramePose, joints: wp.array[wp.float32], frame_poses: wp.array[FramePose]
):
    """Writes the frames of a robot at joint values (n_joints,)."""
    frame_pose = root
    for k in range(robot.n_frames):
        if k > 0:
            frame = frame_of(robot, k)
            if frame.parent != k - 1:
                frame_pose = frame_poses[frame.parent]
            frame_pose = frame_at_value(frame, frame_pose, joints[frame.value])
        frame_poses[k] = frame_pose


@wp.kernel
def piece_gaps(
    # operands
    joints: wp.array2d[wp.float32],  # (n, n_joints) [rad or m]
    robot: Robot,
    body_pairs: wp.array[BodyPair],
    # parameters
    margin: wp.array[wp.float32],  # (1,) [m]
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    frame_poses: wp.array2d[FramePose],  # (n, n_frames) scratch
    gaps: wp.array2d[wp.float32],  # (n, n_pairs) [m]
):
    """One thread per configuration: a lower bound of the distance of the shapes of two bodies.

    It is found to rounding below the margin, and -FAR where they touch or there are none.
    """
    row = wp.tid()
    row += launch_offset[0]
    write_frame_poses(robot, root_pose(), joints[row], frame_poses[row])
    needed = wp.max(margin[0], 0.0)
    for m in range(body_pairs.shape[0]):
        pair = body_pairs[m]
        one = frame_poses[row, body_of(robot, pair.first).frame]
        other = frame_poses[row, body_of(robot, pair.second).frame]
        found = shapes_at_rest(robot, pair, one, other, needed)
        gaps[row, m] = wp.where(found[1] > 0.0, found[1], -FAR)

"""Poses and twists of a robot's frames along a segment, with bounds of the motion of its spheres.

For a point c moved by joints 1..m at the rates w the second derivative is the sum over pairs of
joints of w_j w_k a_j x (a_k x (c - o_k)), k the more distal one (a_j x d_k where k is prismatic, 0
where j is). So |c''| is at most the sum of |w_j w_k| rho_k, where rho_k is the largest distance of
c from the axis of joint k, or 1. Over an interval around a configuration rho_k is the distance at
the configuration, plus what the joints distal to k add to it. Where rates change, by at most A_j,
A_j rho_j (A_j where j is prismatic) is added for each joint.

A segment is a piece of a curve. On one of degree 1 joints move at constant rates; on others the
rates and their changes are bounded on each interval, see `curve_piece`.
"""

import warp as wp

from warp_collision.kernels.curve_piece import excursion_of, joint_motion, polygon_length
from warp_collision.kernels.forward_kinematics import (
    FramePose,
    MovingFrame,
    RobotFrame,
    Twist,
    axis_of,
    child_twist,
    frame_at_value,
    root_pose,
)
from warp_collision.kernels.precision import FARTHEST

# Two units of float32 rounding, relative.
EPSILON = wp.constant(2.4e-7)
# A larger bound of a second derivative proves nothing even on the shortest interval [m].
LARGEST_ACCELERATION = wp.constant(1.0e30)
# Spheres of a group, the level of the bounding balls below that of links.
GROUP_SIZE = wp.constant(8)


@wp.struct
class RobotBody:
    """The spheres of one link, which are consecutive, and their bounding ball."""

    frame: int  # of the link
    begin: int  # first sphere
    end: int  # behind the last sphere
    first_group: int  # of its spheres, by GROUP_SIZE
    center: wp.vec3  # of the ball, in the frame [m]
    radius: float  # of the ball; negative if all spheres are disabled
    spread: float  # largest distance of a sphere's center from that of the ball
    first_piece: int  # row of its first convex piece
    n_pieces: int  # convex pieces that cover its shapes; 0 if it is its spheres
    far_piece: float  # largest distance of a point of these from the center of the ball
    surface: int  # row of its surface, see `link_surfaces`; 0: none


@wp.struct
class Robot:
    """A tree of frames and the spheres on them, given by pointers as a `Scene`."""

    frames: wp.uint64  # to (n_frames,) RobotFrame, parents before children
    bodies: wp.uint64  # to (n_bodies,) RobotBody
    ranges: wp.uint64  # to (n_frames,) vec2i, begin and end of the bodies of each frame
    spheres: wp.uint64  # to (n_spheres,) vec4: x, y, z in their frame, radius; < 0: disabled
    groups: wp.uint64  # to (n_groups,) vec4: balls around the spheres of groups; < 0: all disabled
    pieces: wp.uint64  # to vec4, see `piece_separation`
    n_frames: int
    n_bodies: int
    n_envs: int  # tables of bodies; the last one is for all further envs
    first_body: int  # of the selected env
    reach: float  # of the farthest sphere, without prismatic travel [m]


@wp.func
def frame_of(robot: Robot, k: int) -> RobotFrame:
    """The frame that joint k - 1 moves; frame 0 is the root."""
    return wp.array(ptr=robot.frames, shape=(robot.n_frames,), dtype=RobotFrame)[k]


@wp.func
def body_of(robot: Robot, b: int) -> RobotBody:
    """The spheres of a link."""
    index = robot.first_body + b
    return wp.array(ptr=robot.bodies, shape=(index + 1,), dtype=RobotBody)[index]


@wp.func
def robot_in_env(robot: Robot, env: int) -> Robot:
    """Selects the bodies of an env; objects attached in other envs have no radius."""
    robot.first_body = wp.clamp(env, 0, robot.n_envs - 1) * robot.n_bodies
    return robot


@wp.func
def bodies_of_frame(robot: Robot, k: int) -> wp.vec2i:
    """Begin and end of the bodies of a frame."""
    return wp.array(ptr=robot.ranges, shape=(robot.n_frames,), dtype=wp.vec2i)[k]


@wp.func
def sphere_of(spheres: wp.uint64, index: int) -> wp.vec4:
    """A sphere in its frame."""
    return wp.array(ptr=spheres, shape=(index + 1,), dtype=wp.vec4)[index]


@wp.func
def n_groups_of(body: RobotBody) -> int:
    """Number of the groups of a body's spheres."""
    return (body.end - body.begin + GROUP_SIZE - 1) / GROUP_SIZE


@wp.func
def group_ball(robot: Robot, body: RobotBody, g: int) -> wp.vec4:
    """The ball of a group of a body, in the frame of the body."""
    return sphere_of(robot.groups, body.first_group + g)


@wp.func
def group_span(body: RobotBody, g: int) -> wp.vec2i:
    """Begin and end of the spheres of a group of a body."""
    begin = body.begin + g * GROUP_SIZE
    return wp.vec2i(begin, wp.min(begin + GROUP_SIZE, body.end))


@wp.struct
class Segment:
    """One segment of a joint path, and the frames of a robot at a configuration on it."""

    robot: Robot
    points: wp.array2d[wp.float32]  # control points (n, n_joints) of its path [rad or m]
    first: int  # of its degree + 1 control points, the joint values at its begin
    degree: int  # of its polynomials; 1: straight
    # (n_frames,) scratch; twists by the position s in [0, 1]. Of curves (2 n_frames,): the second
    # half is for bounds of the joints' motion, see `write_joint_bounds`.
    frames: wp.array[MovingFrame]
    # Pointer to (n_joints,) float32, how far each joint may be from its value; 0: nowhere [rad, m].
    errors: wp.uint64
    # Pointer to float32, the speed of each slot's obstacle as a share of the fastest one, by which
    # an interval closes; 0: all are alike.
    speeds: wp.uint64


@wp.func
def segment_of(
    robot: Robot,
    joints: wp.array3d[wp.float32],
    row: int,
    index: int,
    count: int,
    frames: wp.array[MovingFrame],
) -> Segment:
    """A segment of one of the paths.

    Args:
        robot: the robot.
        joints: (batch, degree * segments + 1, n_joints) control points; waypoints where the degree
            is 1.
        row: of the path.
        index: of the segment.
        count: of the segments of each path.
        frames: scratch, see `Segment`.
    """
    degree = (joints.shape[1] - 1) / count
    none = wp.uint64(0)
    return Segment(robot, joints[row], index * degree, degree, frames, none, none)


@wp.func
def begin_of(segment: Segment, joint: int) -> float:
    """The value of a joint at the begin of a segment."""
    return segment.points[segment.first, joint]


@wp.func
def end_of(segment: Segment, joint: int) -> float:
    """The value of a joint at the end of a segment."""
    return segment.points[segment.first + segment.degree, joint]


@wp.func
def resting_root() -> MovingFrame:
    """The root without a base pose, at rest."""
    return MovingFrame(root_pose(), Twist(wp.vec3(0.0), wp.vec3(0.0)))


@wp.func
def root_at(base: wp.array2d[MovingFrame], row: int, index: int) -> MovingFrame:
    """The root in the world, or in the frame of a moving obstacle; without base poses, the origin.

    Args:
        base: (batch or 1, n or 1), or empty; twists are those at the begin of a segment.
        row: of the joints.
        index: waypoint or segment of the joints.
    """
    root = resting_root()
    if base.shape[0] > 0:
        root = base[wp.min(row, base.shape[0] - 1), wp.min(index, base.shape[1] - 1)]
    return root


@wp.func
def shift_of(root: MovingFrame) -> wp.vec3:
    """Velocity of a root without its rotation about the origin of the world."""
    return root.twist.linear - wp.cross(root.twist.angular, root.frame_pose.origin)


@wp.func
def write_root_at(segment: Segment, root: MovingFrame, s: float):
    """Writes the root at s in [0, 1] of a segment, if it moves.

    It translates at a constant rate and rotates about the origin, like a prismatic joint on a
    revolute one.
    """
    omega = root.twist.angular
    # True for NaN.
    if not (wp.length_sq(omega) + wp.length_sq(root.twist.linear) == 0.0):
        angle = wp.length(omega)
        axis = omega / wp.max(angle, 1.0e-20)
        rotation = wp.quat_to_matrix(wp.quat_from_axis_angle(axis, s * angle))
        shift = shift_of(root)
        origin = rotation * (root.frame_pose.origin + s * shift)
        linear = wp.cross(omega, origin) + rotation * shift
        frame_pose = FramePose(rotation * root.frame_pose.rotation, origin)
        frames = segment.frames
        frames[0] = MovingFrame(frame_pose, Twist(omega, linear))


@wp.func
def write_joint_bounds(segment: Segment, k: int, most_rate: float, most_change: float):
    """Keeps the bounds of the motion of the joint of a frame over an interval of a curve."""
    frames = segment.frames
    size = wp.abs(frame_of(segment.robot, k).multiplier)
    bounds = Twist(size * wp.vec3(most_rate, most_change, 0.0), wp.vec3(0.0))
    frames[segment.robot.n_frames + k] = MovingFrame(root_pose(), bounds)


@wp.func
def joint_bounds(segment: Segment, k: int) -> wp.vec2:
    """Bounds over an interval of the rate of a frame's joint, and of the change of this rate."""
    if segment.degree == 1:
        return wp.vec2(rate_of_frame(segment, k), 0.0)
    kept = segment.frames[segment.robot.n_frames + k].twist.angular
    return wp.vec2(kept[0], kept[1])


@wp.func
def write_frames(segment: Segment, s: float, half: float):
    """Writes all frames but the root at s in [0, 1] of a segment, with twists by s.

    On a curve also the bounds of its joints' motion up to half an interval's length from s.
    """
    robot = segment.robot
    frames = segment.frames
    state = frames[0]
    for k in range(1, robot.n_frames):
        frame = frame_of(robot, k)
        if frame.parent != k - 1:
            state = frames[frame.parent]
        begin = begin_of(segment, frame.value)
        rate = end_of(segment, frame.value) - begin
        value = begin + s * rate
        if segment.degree != 1:
            points = segment.points
            motion = joint_motion(points, segment.first, segment.degree, frame.value, s, half)
            write_joint_bounds(segment, k, motion.most_rate, motion.most_change)
            value = motion.value
            rate = motion.rate
        parent = state.frame_pose
        frame_pose = frame_at_value(frame, parent, value)
        twist = child_twist(frame, parent, state.twist, frame_pose, frame.multiplier * rate)
        state = MovingFrame(frame_pose, twist)
        frames[k] = state


@wp.func
def velocity_of(state: MovingFrame, arm: wp.vec3) -> wp.vec3:
    """Velocity of a point of a frame, given by its offset from the frame's origin in the world."""
    return state.twist.linear + wp.cross(state.twist.angular, arm)


@wp.func
def rate_of_frame(segment: Segment, k: int) -> float:
    """Change of the joint of a frame along a segment; of a curve that of its control polygon."""
    frame = frame_of(segment.robot, k)
    change = end_of(segment, frame.value) - begin_of(segment, frame.value)
    if segment.degree != 1:
        change = polygon_length(segment.points, segment.first, segment.degree, frame.value)
    return wp.abs(frame.multiplier * change)


@wp.func
def acceleration_bound(
    segment: Segment, body: RobotBody, center: wp.vec3, ancestor: int, half: float
) -> float:
    """Bound of |c''| over an interval, for all spheres of a body, in an ancestor's frame.

    Args:
        segment: with the frames at the middle of the interval.
        body: whose spheres.
        center: of the body's ball, in the world.
        ancestor: the frame relative to which they move.
        half: half the length of the interval.
    """
    bound = float(0.0)
    drift = float(0.0)  # sum of w rho of the joints distal to k
    k = body.frame
    while k != ancestor:
        limits = joint_bounds(segment, k)
        w = limits[0]
        if frame_of(segment.robot, k).slides != 0:
            drift += w
            bound += limits[1]
        else:
            frame_pose = segment.frames[k].frame_pose
            arm = wp.length(wp.cross(axis_of(frame_pose), center - frame_pose.origin))
            rho = arm + body.spread + half * drift
            bound += w * (2.0 * drift + w * rho) + limits[1] * rho
            drift += w * rho
        k = frame_of(segment.robot, k).parent
    if ancestor == 0:
        # A moving root: a prismatic joint on a revolute one about the origin.
        root = segment.frames[0]
        theta = wp.length(root.twist.angular)
        drift += wp.length(shift_of(root))
        arm = wp.length(wp.cross(root.twist.angular, center))
        bound += theta * (2.0 * drift + arm + theta * (body.spread + half * drift))
    # An overflow, and NaN from a product of that with a joint at rest, must not count as free.
    return wp.where(bound < LARGEST_ACCELERATION, bound, LARGEST_ACCELERATION)


@wp.func
def error_of_frame(segment: Segment, k: int) -> float:
    """How far the joint of a frame may be from its value."""
    frame = frame_of(segment.robot, k)
    errors = wp.array(ptr=segment.errors, shape=(frame.value + 1,), dtype=wp.float32)
    return wp.abs(frame.multiplier) * errors[frame.value]


@wp.func
def tracking_deviation(
    segment: Segment, body: RobotBody, center: wp.vec3, ancestor: int, half: float
) -> wp.vec2:
    """Bound of how far the spheres of a body are from where they would be without joint errors.

    A joint that is off by e moves a point by at most e rho, with rho as in `acceleration_bound`;
    the joints distal to it may be anywhere on the interval, and off by their errors.

    Returns:
        At the configuration, and over the interval [m].
    """
    bounds = wp.vec2(0.0)
    drift = wp.vec2(0.0)
    if segment.errors == wp.uint64(0):
        return bounds
    k = body.frame
    while k != ancestor:
        error = error_of_frame(segment, k)
        moved = wp.vec2(error, half * joint_bounds(segment, k)[0] + error)
        if frame_of(segment.robot, k).slides != 0:
            bounds += wp.vec2(error)
            drift += moved
        else:
            frame_pose = segment.frames[k].frame_pose
            arm = wp.length(wp.cross(axis_of(frame_pose), center - frame_pose.origin))
            rho = wp.vec2(arm + body.spread) + drift
            bounds += error * rho
            drift += wp.cw_mul(moved, rho)
        k = frame_of(segment.robot, k).parent
    return bounds


@wp.func
def kinematic_rounding(robot: Robot, angles: float, travel: float) -> float:
    """Bound of the rounding of positions, by the sums of all angles and of all travel [m].

    Each frame adds a rotation by some units of rounding, and each joint value some units of itself.
    """
    turns = float(robot.n_frames) + angles
    return EPSILON * ((robot.reach + travel) * turns + travel)


@wp.func
def path_rounding(segment: Segment) -> float:
    """Bound of the rounding of positions on a segment [m]; NaN if joints are not finite."""
    robot = segment.robot
    angles = float(0.0)
    travel = float(0.0)
    for k in range(1, robot.n_frames):
        frame = frame_of(robot, k)
        begin = frame.multiplier * begin_of(segment, frame.value)
        end = frame.multiplier * end_of(segment, frame.value)
        size = wp.max(wp.abs(begin), wp.abs(end)) + wp.abs(frame.shift)
        # A sum keeps a NaN, which a maximum drops.
        size += 0.0 * (begin + end)
        if segment.degree != 1:
            # Also of the control points between the ends, and of changes, which may be larger.
            far = excursion_of(segment.points, segment.first, segment.degree, frame.value)
            size += 2.0 * wp.abs(frame.multiplier) * far
        if frame.slides != 0:
            travel += size
        else:
            angles += size
    return kinematic_rounding(robot, angles, travel)


@wp.func
def write_root(segment: Segment, root: MovingFrame) -> float:
    """Writes the root of a segment; returns the rounding of all positions on it.

    That of `path_rounding`, and that of the sum with the root's position at each frame. NaN where
    positions would not be in range.
    """
    frames = segment.frames
    frames[0] = root
    rounding = path_rounding(segment)
    n_frames = float(segment.robot.n_frames)
    far = wp.length(root.frame_pose.origin)
    theta = wp.length(root.twist.angular)
    shift = wp.length(shift_of(root))
    rounding += EPSILON * n_frames * far
    if not (theta + shift == 0.0):
        rounding *= 1.0 + (2.0 + theta) / n_frames
        rounding += EPSILON * (n_frames + 4.0) * (1.0 + theta) * (far + shift)
    return wp.where(rounding < FARTHEST, rounding, wp.nan)

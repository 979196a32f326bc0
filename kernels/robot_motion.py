"""A robot at joint values and the rates of its frames, with bounds of how its spheres move.

For a point c that hangs on joints 1..m whose values change at rates w, the second derivative is
the sum over pairs of joints of w_j w_k a_j x (a_k x (c - o_k)), k the more distal one (a_j x d_k
where k is prismatic, nothing where j is). So |c''| is at most the sum of |w_j w_k| rho_k, where
rho_k is the largest distance of c from the axis of joint k, or 1. Over an interval around a
configuration rho_k is that at the configuration and what the joints beyond k add to it.
"""

import warp as wp

from warp_collision.kernels.kinematics import (
    FramePose,
    RobotFrame,
    Twist,
    axis_of,
    child_pose,
    child_twist,
    root_pose,
)

# Two steps of float32, relative.
FLOAT_STEP = wp.constant(2.4e-7)


@wp.struct
class RobotBody:
    """The spheres of one link, consecutive, and a ball that holds them."""

    frame: int  # that they move with
    begin: int  # spheres: from, to
    end: int
    center: wp.vec3  # of the ball, in the frame [m]
    radius: float  # of the ball; negative if all spheres are disabled
    spread: float  # largest distance of the spheres' centers from that of the ball


@wp.struct
class Robot:
    """A tree of frames and the spheres on them, given by pointers as a `Scene`."""

    frames: wp.uint64  # to (n_frames,) RobotFrame, parents before children
    bodies: wp.uint64  # to (n_bodies,) RobotBody
    ranges: wp.uint64  # to (n_frames,) vec2i, bodies of each frame: from, to
    spheres: wp.uint64  # to (n_spheres,) vec4: x, y, z in their frame, radius; < 0: disabled
    n_frames: int
    n_bodies: int
    n_envs: int  # tables of bodies; the last one is of all further envs
    first_body: int  # of the env in question
    reach: float  # of the farthest sphere, without prismatic travel [m]


@wp.func
def frame_of(robot: Robot, k: int) -> RobotFrame:
    """What moves with joint k - 1; frame 0 is the root."""
    return wp.array(ptr=robot.frames, shape=(robot.n_frames,), dtype=RobotFrame)[k]


@wp.func
def body_of(robot: Robot, b: int) -> RobotBody:
    """The spheres of a link."""
    index = robot.first_body + b
    return wp.array(ptr=robot.bodies, shape=(index + 1,), dtype=RobotBody)[index]


@wp.func
def robot_in_env(robot: Robot, env: int) -> Robot:
    """The robot with what it carries in an env; what it carries elsewhere has no radius."""
    return Robot(
        robot.frames,
        robot.bodies,
        robot.ranges,
        robot.spheres,
        robot.n_frames,
        robot.n_bodies,
        robot.n_envs,
        wp.clamp(env, 0, robot.n_envs - 1) * robot.n_bodies,
        robot.reach,
    )


@wp.func
def bodies_of_frame(robot: Robot, k: int) -> wp.vec2i:
    """Bodies that move with a frame: from, to."""
    return wp.array(ptr=robot.ranges, shape=(robot.n_frames,), dtype=wp.vec2i)[k]


@wp.func
def sphere_of(spheres: wp.uint64, index: int) -> wp.vec4:
    """A sphere in its frame."""
    return wp.array(ptr=spheres, shape=(index + 1,), dtype=wp.vec4)[index]


@wp.struct
class MovingFrame:
    """Where a frame is and how it moves."""

    frame_pose: FramePose
    twist: Twist


@wp.func
def moving_child(
    robot: Robot, k: int, parent: MovingFrame, value: float, rate: float
) -> MovingFrame:
    """Frame k from its parent, the value of its joint in `joints` and the rate of that."""
    frame = frame_of(robot, k)
    angle = frame.multiplier * value + frame.shift
    frame_pose = child_pose(frame, parent.frame_pose, angle)
    twist = child_twist(frame, parent.frame_pose, parent.twist, frame_pose, frame.multiplier * rate)
    return MovingFrame(frame_pose, twist)


@wp.func
def resting_root() -> MovingFrame:
    """The root, which does not move."""
    return MovingFrame(root_pose(), Twist(wp.vec3(0.0), wp.vec3(0.0)))


@wp.func
def root_at(base: wp.array2d[MovingFrame], row: int, place: int) -> MovingFrame:
    """The root in the world, or as an obstacle that moves sees it; without poses, in the origin.

    Args:
        base: (batch or 1, places or 1), or empty; how it moves is that at the begin of a segment.
        row: of the joints.
        place: waypoint or segment of the joints.
    """
    root = resting_root()
    if base.shape[0] > 0:
        root = base[wp.min(row, base.shape[0] - 1), wp.min(place, base.shape[1] - 1)]
    return root


@wp.func
def shift_of(root: MovingFrame) -> wp.vec3:
    """What moves a root beside its turn about the origin."""
    return root.twist.linear - wp.cross(root.twist.angular, root.frame_pose.origin)


@wp.func
def write_root_at(
    base: wp.array2d[MovingFrame],
    row: int,
    segment: int,
    s: float,
    states: wp.array3d[MovingFrame],
):
    """Writes the root at a place s of a segment, if it moves.

    It shifts at a constant rate and turns about the origin: a joint that slides on one that turns.
    """
    root = root_at(base, row, segment)
    omega = root.twist.angular
    # What is not a number moves.
    if not (wp.length_sq(omega) + wp.length_sq(root.twist.linear) == 0.0):
        angle = wp.length(omega)
        axis = omega / wp.max(angle, 1.0e-20)
        turn = wp.quat_to_matrix(wp.quat_from_axis_angle(axis, s * angle))
        shift = shift_of(root)
        origin = turn * (root.frame_pose.origin + s * shift)
        linear = wp.cross(omega, origin) + turn * shift
        frame_pose = FramePose(turn * root.frame_pose.rotation, origin)
        states[row, segment, 0] = MovingFrame(frame_pose, Twist(omega, linear))


@wp.func
def write_frames(
    robot: Robot,
    joints: wp.array3d[wp.float32],
    row: int,
    segment: int,
    s: float,
    states: wp.array3d[MovingFrame],
):
    """Writes all frames but the root at a place s in [0, 1] of a segment, and their rates by s."""
    state = states[row, segment, 0]
    for k in range(1, robot.n_frames):
        frame = frame_of(robot, k)
        if frame.parent != k - 1:
            state = states[row, segment, frame.parent]
        begin = joints[row, segment, frame.value]
        rate = joints[row, segment + 1, frame.value] - begin
        state = moving_child(robot, k, state, begin + s * rate, rate)
        states[row, segment, k] = state


@wp.func
def velocity_of(state: MovingFrame, arm: wp.vec3) -> wp.vec3:
    """Rate of a point of a frame, given from the frame's origin along the axes of the world."""
    return state.twist.linear + wp.cross(state.twist.angular, arm)


@wp.func
def rate_of_frame(
    robot: Robot, joints: wp.array3d[wp.float32], row: int, segment: int, k: int
) -> float:
    """How much the joint of a frame changes along a segment."""
    frame = frame_of(robot, k)
    change = joints[row, segment + 1, frame.value] - joints[row, segment, frame.value]
    return wp.abs(frame.multiplier * change)


@wp.func
def bend_bound(
    robot: Robot,
    joints: wp.array3d[wp.float32],
    row: int,
    segment: int,
    states: wp.array3d[MovingFrame],
    body: RobotBody,
    center: wp.vec3,
    ancestor: int,
    half: float,
) -> float:
    """Bound of |c''| over `half` to both sides, of all spheres of a body, in an ancestor's frame.

    Args:
        robot: the robot.
        joints: (batch, horizon, n_joints).
        row: of the joints.
        segment: of the path.
        states: frames at the middle of the interval.
        body: whose spheres.
        center: of the body's ball, in the world.
        ancestor: the frame in which they are seen.
        half: of the interval's length.
    """
    bend = float(0.0)
    drift = float(0.0)  # sum of w rho of the joints beyond
    k = body.frame
    while k != ancestor:
        w = rate_of_frame(robot, joints, row, segment, k)
        if frame_of(robot, k).slides != 0:
            drift += w
        else:
            frame_pose = states[row, segment, k].frame_pose
            arm = wp.length(wp.cross(axis_of(frame_pose), center - frame_pose.origin))
            rho = arm + body.spread + half * drift
            bend += w * (2.0 * drift + w * rho)
            drift += w * rho
        k = frame_of(robot, k).parent
    if ancestor == 0:
        # A root that moves: a joint that slides on one that turns about the origin.
        root = states[row, segment, 0]
        theta = wp.length(root.twist.angular)
        drift += wp.length(shift_of(root))
        arm = wp.length(wp.cross(root.twist.angular, center))
        bend += theta * (2.0 * drift + arm + theta * (body.spread + half * drift))
    return bend


@wp.func
def path_rounding(robot: Robot, joints: wp.array3d[wp.float32], row: int, segment: int) -> float:
    """How far float32 may put a sphere off the path of a segment [m]; NaN if joints are not finite.

    Each frame turns what hangs on it by some steps of float32, and a joint's value is off by some
    steps of itself.
    """
    reach = robot.reach
    angles = float(0.0)
    travel = float(0.0)
    for k in range(1, robot.n_frames):
        frame = frame_of(robot, k)
        begin = frame.multiplier * joints[row, segment, frame.value]
        end = frame.multiplier * joints[row, segment + 1, frame.value]
        size = wp.max(wp.abs(begin), wp.abs(end)) + wp.abs(frame.shift)
        # A sum keeps a NaN, which a maximum drops.
        size += 0.0 * (begin + end)
        if frame.slides != 0:
            travel += size
        else:
            angles += size
    return FLOAT_STEP * ((reach + travel) * (float(robot.n_frames) + angles) + travel)


@wp.func
def write_root(
    robot: Robot,
    joints: wp.array3d[wp.float32],
    row: int,
    segment: int,
    base: wp.array2d[MovingFrame],
    states: wp.array3d[MovingFrame],
) -> float:
    """Writes the root of a segment; returns the rounding of all places on it, see `path_rounding`.

    Each frame is placed by a sum with where the root is.
    """
    root = root_at(base, row, segment)
    states[row, segment, 0] = root
    rounding = path_rounding(robot, joints, row, segment)
    far = wp.length(root.frame_pose.origin)
    theta = wp.length(root.twist.angular)
    shift = wp.length(shift_of(root))
    rounding += FLOAT_STEP * float(robot.n_frames) * far
    if not (theta + shift == 0.0):
        rounding *= 1.0 + (2.0 + theta) / float(robot.n_frames)
        rounding += FLOAT_STEP * (float(robot.n_frames) + 4.0) * (1.0 + theta) * (far + shift)
    return rounding

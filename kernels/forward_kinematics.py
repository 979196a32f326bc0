"""Forward kinematics of a tree of joints: points in the world, and products with their Jacobian.

The z axis of a frame is the axis of its joint, so that a joint rotates two columns of a matrix.
"""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.turns import Placed, placed_by, rounded, turned, widened

wp.set_module_options(FEW_THREADS)

vec1i = wp.types.vector(length=1, dtype=wp.int32)


@wp.struct
class RobotFrame:
    """The frame that one joint moves. Frame 0 is the root, which is fixed."""

    rotation: wp.mat33  # parent_from_frame at value 0
    offset: wp.vec3  # [m]
    multiplier: float  # the joint's value is multiplier * joints[value] + shift
    shift: float
    value: int  # index of the joint value
    parent: int  # frame, before this one
    slides: int  # 1 where the joint is prismatic, 0 where it is revolute


@wp.struct
class FramePose:
    """Pose of a frame in the world."""

    rotation: wp.mat33
    origin: wp.vec3  # [m]


@wp.struct
class Twist:
    """Rate of change of a frame's pose along a change of the joint values."""

    angular: wp.vec3
    linear: wp.vec3  # of the origin [m]


@wp.struct
class MovingFrame:
    """Pose and twist of a frame."""

    frame_pose: FramePose
    twist: Twist


@wp.struct
class Wrench:
    """Sum of gradients by points in the world, as force and moment at the origin of a frame."""

    force: wp.vec3
    moment: wp.vec3


@wp.func
def root_pose() -> FramePose:
    """The pose of the root without a base pose."""
    return FramePose(wp.identity(n=3, dtype=float), wp.vec3(0.0))


@wp.func
def pose_in(placed: Placed, axes: wp.mat33) -> FramePose:
    """A frame with these axes in a rigid transform; NaN axes make its position NaN too."""
    x = rounded(turned(placed.turn, widened(axes[:, 0])))
    y = rounded(turned(placed.turn, widened(axes[:, 1])))
    z = rounded(turned(placed.turn, widened(axes[:, 2])))
    validity = 0.0 * (x[0] + y[0] + z[0])
    origin = rounded(placed.origin) + wp.vec3(validity)
    return FramePose(wp.matrix_from_cols(x, y, z), origin)


@wp.func
def root_of(numbers: wp.array[wp.float32]) -> FramePose:
    """The root by the numbers of a pose, or by those of a `MovingFrame` as far as it is at rest."""
    if numbers.shape[0] == 7:
        return pose_in(placed_by(numbers), wp.identity(n=3, dtype=float))
    rotation = wp.mat33()
    for i in range(3):
        for k in range(3):
            rotation[i, k] = numbers[3 * i + k]
    return FramePose(rotation, wp.vec3(numbers[9], numbers[10], numbers[11]))


@wp.func
def axis_of(frame_pose: FramePose) -> wp.vec3:
    """Axis of the joint of a frame, in the world."""
    rotation = frame_pose.rotation
    return wp.vec3(rotation[0, 2], rotation[1, 2], rotation[2, 2])


@wp.func
def xyz(row: wp.vec4) -> wp.vec3:
    """The center of a sphere."""
    return wp.vec3(row[0], row[1], row[2])


@wp.func
def point_in_world(frame_pose: FramePose, point: wp.vec3) -> wp.vec3:
    """Transforms a point of a frame to the world."""
    return frame_pose.rotation * point + frame_pose.origin


@wp.func
def child_pose(frame: RobotFrame, parent: FramePose, value: float) -> FramePose:
    """Pose of a frame from the pose of its parent and the value of its joint."""
    r = parent.rotation * frame.rotation
    origin = parent.rotation * frame.offset + parent.origin
    if frame.slides != 0:
        origin += value * wp.vec3(r[0, 2], r[1, 2], r[2, 2])
        return FramePose(r, origin)
    s = wp.sin(value)
    c = wp.cos(value)
    # fmt: off
    rotated = wp.mat33(
        c * r[0, 0] + s * r[0, 1], c * r[0, 1] - s * r[0, 0], r[0, 2],
        c * r[1, 0] + s * r[1, 1], c * r[1, 1] - s * r[1, 0], r[1, 2],
        c * r[2, 0] + s * r[2, 1], c * r[2, 1] - s * r[2, 0], r[2, 2],
    )
    # fmt: on
    return FramePose(rotated, origin)


@wp.func
def frame_at_value(frame: RobotFrame, parent: FramePose, value: float) -> FramePose:
    """Pose of a frame from the pose of its parent and the value in `joints`."""
    return child_pose(frame, parent, frame.multiplier * value + frame.shift)


@wp.func
def child_twist(
    frame: RobotFrame, parent: FramePose, parent_twist: Twist, frame_pose: FramePose, rate: float
) -> Twist:
    """Twist of a frame from the twist of its parent and the rate of its joint's value."""
    linear = parent_twist.linear + wp.cross(parent_twist.angular, frame_pose.origin - parent.origin)
    if frame.slides != 0:
        return Twist(parent_twist.angular, linear + rate * axis_of(frame_pose))
    return Twist(parent_twist.angular + rate * axis_of(frame_pose), linear)


@wp.kernel
def place_points(
    # operands
    joints: wp.array2d[wp.float32],  # (n, n_joints) [rad or m]
    frames: wp.array[RobotFrame],  # (n_frames,)
    ranges: wp.array[wp.vec2i],  # (n_frames,) the points of each frame: from, to
    points: wp.array[wp.vec4],  # (n_points,) x, y, z in their frame and a radius [m]
    roots: wp.array2d[wp.float32],  # (m, 7 or 18), each for n / m rows, see `root_of`; or empty
    # parameters
    launch_offset: vec1i,  # of this launch in the joint values
    # outputs
    placed: wp.array2d[wp.vec4],  # (n, n_points) in the world
    frame_poses: wp.array2d[FramePose],  # (n, n_frames)
):
    """One thread per configuration."""
    row = wp.tid()
    row += launch_offset[0]
    frame_pose = root_pose()
    if roots.shape[0] > 0:
        frame_pose = root_of(roots[row // (joints.shape[0] // roots.shape[0])])
    for k in range(frames.shape[0]):
        if k > 0:
            frame = frames[k]
            if frame.parent != k - 1:
                frame_pose = frame_poses[row, frame.parent]
            frame_pose = frame_at_value(frame, frame_pose, joints[row, frame.value])
        frame_poses[row, k] = frame_pose
        span = ranges[k]
        for index in range(span[0], span[1]):
            point = points[index]
            placed_point = point_in_world(frame_pose, xyz(point))
            placed[row, index] = wp.vec4(
                placed_point[0], placed_point[1], placed_point[2], point[3]
            )


@wp.func
def write_gradient_by_joints(
    gradient: wp.array2d[wp.vec4],
    frame_poses: wp.array2d[FramePose],
    frames: wp.array[RobotFrame],
    ranges: wp.array[wp.vec2i],
    points: wp.array[wp.vec4],
    row: int,
    wrenches: wp.array2d[Wrench],
    total: wp.array2d[wp.float32],
):
    """Sums the wrenches of a configuration from the tips to the root; see `place_points_vjp`."""
    for joint in range(total.shape[1]):
        total[row, joint] = 0.0
    count = frames.shape[0]
    for k in range(count):
        wrenches[row, k] = Wrench(wp.vec3(0.0), wp.vec3(0.0))
    for step in range(count - 1):
        k = count - 1 - step
        frame = frames[k]
        frame_pose = frame_poses[row, k]
        wrench = Wrench(wp.vec3(0.0), wp.vec3(0.0))
        span = ranges[k]
        for index in range(span[0], span[1]):
            by_point = xyz(gradient[row, index])
            wrench.force += by_point
            wrench.moment += wp.cross(frame_pose.rotation * xyz(points[index]), by_point)
        distal = wrenches[row, k]
        wrench.force += distal.force
        wrench.moment += distal.moment
        effort = wp.where(frame.slides != 0, wrench.force, wrench.moment)
        total[row, frame.value] += frame.multiplier * wp.dot(axis_of(frame_pose), effort)
        proximal = wrenches[row, frame.parent]
        proximal.force += wrench.force
        arm = frame_pose.origin - frame_poses[row, frame.parent].origin
        proximal.moment += wrench.moment + wp.cross(arm, wrench.force)
        wrenches[row, frame.parent] = proximal


@wp.kernel
def place_points_vjp(
    # operands
    gradient: wp.array2d[wp.vec4],  # (n, n_points) d loss / d placed
    frame_poses: wp.array2d[FramePose],  # (n, n_frames) as `place_points` wrote them
    frames: wp.array[RobotFrame],
    ranges: wp.array[wp.vec2i],
    points: wp.array[wp.vec4],
    # parameters
    launch_offset: vec1i,
    # outputs
    wrenches: wp.array2d[Wrench],  # (n, n_frames) scratch
    total: wp.array2d[wp.float32],  # (n, n_joints) d loss / d joint value
):
    """One thread per configuration."""
    row = wp.tid() + launch_offset[0]
    write_gradient_by_joints(gradient, frame_poses, frames, ranges, points, row, wrenches, total)


@wp.kernel
def place_points_jvp(
    # operands
    rates: wp.array2d[wp.float32],  # (n, n_joints) of the joint values
    frame_poses: wp.array2d[FramePose],  # (n, n_frames) as `place_points` wrote them
    frames: wp.array[RobotFrame],
    ranges: wp.array[wp.vec2i],
    points: wp.array[wp.vec4],
    # parameters
    launch_offset: vec1i,
    # outputs
    twists: wp.array2d[Twist],  # (n, n_frames) scratch
    velocity: wp.array2d[wp.vec4],  # (n, n_points) of the points, and 0 for the radius
):
    """One thread per configuration."""
    row = wp.tid()
    row += launch_offset[0]
    for k in range(frames.shape[0]):
        twist = Twist(wp.vec3(0.0), wp.vec3(0.0))
        frame_pose = frame_poses[row, k]
        if k > 0:
            frame = frames[k]
            parent = frame.parent
            rate = frame.multiplier * rates[row, frame.value]
            twist = child_twist(
                frame, frame_poses[row, parent], twists[row, parent], frame_pose, rate
            )
        twists[row, k] = twist
        span = ranges[k]
        for index in range(span[0], span[1]):
            arm = frame_pose.rotation * xyz(points[index])
            v = twist.linear + wp.cross(twist.angular, arm)
            velocity[row, index] = wp.vec4(v[0], v[1], v[2], 0.0)

"""Forward kinematics of a tree of joints: places of points, and products with their Jacobian.

The z axis of a frame is the axis of its joint, so that a joint turns two columns of a matrix.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)

vec1i = wp.types.vector(length=1, dtype=wp.int32)


@wp.struct
class RobotFrame:
    """What moves with one joint. Frame 0 is the root, which does not move."""

    rotation: wp.mat33  # parent_from_frame at value 0
    offset: wp.vec3  # [m]
    multiplier: float  # the joint's value is multiplier * joints[value] + shift
    shift: float
    value: int  # which of the joint values
    parent: int  # frame, before this one
    slides: int  # 1 where the joint is prismatic, 0 where it is revolute


@wp.struct
class Placement:
    """Pose of a frame in the world."""

    rotation: wp.mat33
    origin: wp.vec3  # [m]


@wp.struct
class Twist:
    """Rate of change of a frame's pose along a change of the joint values."""

    angular: wp.vec3
    linear: wp.vec3  # of the origin [m]


@wp.struct
class Wrench:
    """What gradients by the places of points add up to, at the origin of a frame."""

    force: wp.vec3
    moment: wp.vec3


@wp.func
def root_placement() -> Placement:
    """Where the root is."""
    return Placement(wp.identity(n=3, dtype=float), wp.vec3(0.0))


@wp.func
def axis_of(placement: Placement) -> wp.vec3:
    """Axis of the joint that moves a frame, in the world."""
    turn = placement.rotation
    return wp.vec3(turn[0, 2], turn[1, 2], turn[2, 2])


@wp.func
def first_three(row: wp.vec4) -> wp.vec3:
    """The center of a sphere."""
    return wp.vec3(row[0], row[1], row[2])


@wp.func
def place_point(placement: Placement, point: wp.vec3) -> wp.vec3:
    """Where a point of a frame is in the world."""
    return placement.rotation * point + placement.origin


@wp.func
def place_frame(frame: RobotFrame, parent: Placement, value: float) -> Placement:
    """Pose of a frame from that of its parent and the value of its joint."""
    turn = parent.rotation * frame.rotation
    origin = parent.rotation * frame.offset + parent.origin
    if frame.slides != 0:
        origin += value * wp.vec3(turn[0, 2], turn[1, 2], turn[2, 2])
        return Placement(turn, origin)
    s = wp.sin(value)
    c = wp.cos(value)
    # fmt: off
    turned = wp.mat33(
        c * turn[0, 0] + s * turn[0, 1], c * turn[0, 1] - s * turn[0, 0], turn[0, 2],
        c * turn[1, 0] + s * turn[1, 1], c * turn[1, 1] - s * turn[1, 0], turn[1, 2],
        c * turn[2, 0] + s * turn[2, 1], c * turn[2, 1] - s * turn[2, 0], turn[2, 2],
    )
    # fmt: on
    return Placement(turned, origin)


@wp.func
def move_frame(
    frame: RobotFrame, parent: Placement, moving: Twist, placement: Placement, rate: float
) -> Twist:
    """Rate of change of a frame's pose from that of its parent and of its joint's value."""
    linear = moving.linear + wp.cross(moving.angular, placement.origin - parent.origin)
    if frame.slides != 0:
        return Twist(moving.angular, linear + rate * axis_of(placement))
    return Twist(moving.angular + rate * axis_of(placement), linear)


@wp.kernel
def place_points(
    # operands
    joints: wp.array2d[wp.float32],  # (n, n_joints) [rad or m]
    frames: wp.array[RobotFrame],  # (n_frames,)
    ranges: wp.array[wp.vec2i],  # (n_frames,) the points of each frame: from, to
    points: wp.array[wp.vec4],  # (n_points,) x, y, z in their frame and a radius [m]
    # parameters
    first: vec1i,  # where in the joint values this launch begins
    # outputs
    placed: wp.array2d[wp.vec4],  # (n, n_points) in the world
    placements: wp.array2d[Placement],  # (n, n_frames)
):
    """One thread per configuration."""
    row = wp.tid()
    row += first[0]
    placement = root_placement()
    for k in range(frames.shape[0]):
        if k > 0:
            frame = frames[k]
            if frame.parent != k - 1:
                placement = placements[row, frame.parent]
            value = frame.multiplier * joints[row, frame.value] + frame.shift
            placement = place_frame(frame, placement, value)
        placements[row, k] = placement
        span = ranges[k]
        for index in range(span[0], span[1]):
            point = points[index]
            place = place_point(placement, first_three(point))
            placed[row, index] = wp.vec4(place[0], place[1], place[2], point[3])


@wp.func
def wrench_of_points(
    gradient: wp.array2d[wp.vec4],
    points: wp.array[wp.vec4],
    row: int,
    span: wp.vec2i,
    rotation: wp.mat33,
) -> Wrench:
    """Sum of the gradients by the points of one frame."""
    force = wp.vec3(0.0)
    moment = wp.vec3(0.0)
    for index in range(span[0], span[1]):
        pull = gradient[row, index]
        push = wp.vec3(pull[0], pull[1], pull[2])
        force += push
        moment += wp.cross(rotation * first_three(points[index]), push)
    return Wrench(force, moment)


@wp.kernel
def place_points_vjp(
    # operands
    gradient: wp.array2d[wp.vec4],  # (n, n_points) d loss / d place
    placements: wp.array2d[Placement],  # (n, n_frames) as `place_points` wrote them
    frames: wp.array[RobotFrame],
    ranges: wp.array[wp.vec2i],
    points: wp.array[wp.vec4],
    # parameters
    first: vec1i,
    # outputs
    wrenches: wp.array2d[Wrench],  # (n, n_frames) scratch
    total: wp.array2d[wp.float32],  # (n, n_joints) d loss / d joint value
):
    """One thread per configuration; forces and moments add up from the tips to the root."""
    row = wp.tid()
    row += first[0]
    for joint in range(total.shape[1]):
        total[row, joint] = 0.0
    count = frames.shape[0]
    for k in range(count):
        wrenches[row, k] = Wrench(wp.vec3(0.0), wp.vec3(0.0))
    for step in range(count - 1):
        k = count - 1 - step
        frame = frames[k]
        placement = placements[row, k]
        wrench = wrench_of_points(gradient, points, row, ranges[k], placement.rotation)
        beyond = wrenches[row, k]
        wrench.force += beyond.force
        wrench.moment += beyond.moment
        effort = wp.where(frame.slides != 0, wrench.force, wrench.moment)
        total[row, frame.value] += frame.multiplier * wp.dot(axis_of(placement), effort)
        above = wrenches[row, frame.parent]
        above.force += wrench.force
        arm = placement.origin - placements[row, frame.parent].origin
        above.moment += wrench.moment + wp.cross(arm, wrench.force)
        wrenches[row, frame.parent] = above


@wp.kernel
def place_points_jvp(
    # operands
    rates: wp.array2d[wp.float32],  # (n, n_joints) of the joint values
    placements: wp.array2d[Placement],  # (n, n_frames) as `place_points` wrote them
    frames: wp.array[RobotFrame],
    ranges: wp.array[wp.vec2i],
    points: wp.array[wp.vec4],
    # parameters
    first: vec1i,
    # outputs
    twists: wp.array2d[Twist],  # (n, n_frames) scratch
    velocity: wp.array2d[wp.vec4],  # (n, n_points) of the points, and 0 for the radius
):
    """One thread per configuration."""
    row = wp.tid()
    row += first[0]
    for k in range(frames.shape[0]):
        twist = Twist(wp.vec3(0.0), wp.vec3(0.0))
        placement = placements[row, k]
        if k > 0:
            frame = frames[k]
            parent = frame.parent
            rate = frame.multiplier * rates[row, frame.value]
            twist = move_frame(frame, placements[row, parent], twists[row, parent], placement, rate)
        twists[row, k] = twist
        span = ranges[k]
        for index in range(span[0], span[1]):
            arm = placement.rotation * first_three(points[index])
            v = twist.linear + wp.cross(twist.angular, arm)
            velocity[row, index] = wp.vec4(v[0], v[1], v[2], 0.0)

"""Forward kinematics in lanes: the frames of eight configurations, and the balls of their bodies.

**Rounding.** Let u be half a unit of float32 rounding, 6e-8. From frame to frame a rotation gains
at most 9 u by the product of two rotations, 4 u by two sums of two products, 5 u by sine and
cosine, which lanes have to 3 u for angles up to `LARGEST_VALUE` and the C library to 1 u, and 2 u
times the angle by the joint's value. An origin gains 4 u times its distance from the root and u
times the root's from the world's origin, and a sliding joint 3 u times its travel. So the positions
that lanes and the scalar functions compute differ by at most twice the sum of these over a robot's
frames; with EPSILON = 4 u that is `slack` below.
"""

import warp as wp

from warp_collision.kernels.forward_kinematics import FramePose, RobotFrame, frame_at_value
from warp_collision.kernels.lanes.vectors import (
    EPSILON,
    FUSED,
    LARGEST_VALUE,
    SHAPE_ROUNDING,
)
from warp_collision.kernels.robot_motion import Robot, RobotBody, frame_of

# Robots and roots that are larger or farther than this are left to the scalar functions [m].
FARTHEST_ROBOT = wp.constant(1.0e6)


@wp.struct
class Lanes:
    """A block of up to eight configurations, and scratch memory for it by pointers.

    Lanes without a configuration have the joint values of the first one.
    """

    joints: wp.uint64  # to (count, n_joints) float32 [rad or m]
    n_joints: int
    count: int  # of configurations
    frames: wp.uint64  # to (n_frames, 12) vectors: rotation, by rows, and origin
    balls: wp.uint64  # to (n_bodies, 5) vectors: center, reach; the last tells of placed spheres
    spheres: wp.uint64  # to (n_spheres, 3) vectors, written where they are asked for
    poses: wp.uint64  # to (8, n_frames) FramePose by the scalar functions; roots are always there
    pose_size: int  # numbers of a pose, where they are of `MovingFrame`
    # In motion: to (n_frames, 8) vectors: angular and linear rates, bounds of the joint's rate and
    # of its change.
    twists: wp.uint64
    rates: wp.uint64  # in motion: to (n_joints, 4) vectors, see `write_values`
    motions: wp.uint64  # in motion: to (n_bodies, 5) vectors: velocity, acceleration, travel
    window: wp.uint64  # in motion: see `write_values`
    facts: wp.uint64  # to 8 words: slack, far, finite, known; lanes whose other poses are there
    finite: wp.uint32  # lanes with finite joint values
    known: wp.uint32  # lanes whose frames are within the slack
    slack: float  # bound of what positions differ by from those of the scalar functions [m]
    far: float  # bound of the coordinates of spheres in the world [m]


# Sine and cosine of `value`, below `LARGEST_VALUE`. Multiples of a quarter turn are taken off in
# three parts, the products with the first two of which are exact. Then there are series for up to
# an eighth turn (S. Moshier's Cephes).
_SINES = """
    const F quarters = __builtin_elementwise_roundeven(value * 0.636619772f);
    F r = value - quarters * 1.5703125f;
    r -= quarters * 4.837512969970703125e-4f;
    r -= quarters * 7.54978995489188e-8f;
    const F z = r * r;
    const F odd = r + r * z
        * (-1.6666654611e-1f + z * (8.3321608736e-3f - z * 1.9515295891e-4f));
    const F even = 1.0f - 0.5f * z + z * z
        * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
    const I turn = __builtin_convertvector(is_small ? quarters : F{}, I);
    const I is_odd = (turn & 1) != 0;
    F sine = is_odd ? even : odd, cosine = is_odd ? odd : even;
    sine = (turn & 2) != 0 ? -sine : sine;
    cosine = ((turn + 1) & 2) != 0 ? -cosine : cosine;
"""

# Bounds of the rounding and of the coordinates of all lanes, and which of them are known.
_FACTS = f"""
    const F root = root_of(rows[9] * rows[9] + rows[10] * rows[10] + rows[11] * rows[11]);
    is_small &= root < {float(FARTHEST_ROBOT)}f;  // NaN is not
    if (!(robot.reach < {float(FARTHEST_ROBOT)}f)) is_small = I{{}};
    const F reach = robot.reach + travel, n = F{{}} + (wp::float32)n_frames;
    const F slack = {float(EPSILON)}f
        * (reach * (12.0f * n + angles) + n * root + 2.0f * travel);
    wp::float32* lengths = (wp::float32*)lanes.facts;
    wp::uint32* masks = (wp::uint32*)lanes.facts;
    lengths[0] = __builtin_reduce_max(is_small ? slack : F{{}});
    lengths[1] = __builtin_reduce_max(is_small ? root + reach : F{{}});
    masks[2] = bits_of(is_finite);
    masks[3] = bits_of(is_small & is_finite);
    masks[4] = 0;
"""


@wp.func_native(
    FUSED
    + f"    const wp::float32 largest = {float(LARGEST_VALUE)}f;"
    + """
    F* rows = (F*)lanes.frames;
    const wp::float32* roots = (const wp::float32*)lanes.poses;
    const wp::float32* joints = (const wp::float32*)lanes.joints;
    const int n_frames = robot.n_frames;
    int lane[8];
    for (int i = 0; i < 8; ++i) lane[i] = i < lanes.count ? i : 0;
    for (int k = 0; k < 12; ++k)
        for (int i = 0; i < 8; ++i) rows[k][i] = roots[lanes.pose_size * n_frames * lane[i] + k];
    F angles = {}, travel = {};
    I is_small = ~(I){}, is_finite = ~(I){};
    for (int k = 1; k < n_frames; ++k) {
        const auto& frame = frames.data[k];
        const F* parent = rows + 12 * frame.parent;
        F* row = rows + 12 * k;
        F value;
        for (int i = 0; i < 8; ++i) value[i] = joints[lane[i] * lanes.n_joints + frame.value];
        is_finite &= value * 0.0f == 0.0f;
        value *= frame.multiplier;
        const F size = size_of(value) + wp::abs(frame.shift);
        is_small &= size < largest;
        value += frame.shift;
        F turned[9];
        for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j)
            turned[3 * i + j] = parent[3 * i] * frame.rotation.data[0][j]
                + parent[3 * i + 1] * frame.rotation.data[1][j]
                + parent[3 * i + 2] * frame.rotation.data[2][j];
        const wp::float32 offset[3] = {frame.offset[0], frame.offset[1], frame.offset[2]};
        place(parent, offset, row + 9);
        if (frame.slides) {
            travel += size;
            for (int i = 0; i < 3; ++i) row[9 + i] += value * turned[3 * i + 2];
            for (int i = 0; i < 9; ++i) row[i] = turned[i];
            continue;
        }
        angles += size;
"""
    + _SINES
    + """
        for (int i = 0; i < 9; i += 3) {
            row[i] = cosine * turned[i] + sine * turned[i + 1];
            row[i + 1] = cosine * turned[i + 1] - sine * turned[i];
            row[i + 2] = turned[i + 2];
        }
    }
"""
    + _FACTS
)
def write_frames(robot: Robot, frames: wp.array[RobotFrame], lanes: Lanes):
    """Writes the frames of all lanes, by the roots in `poses`, and the facts about them."""
    ...


@wp.func_native(
    FUSED
    + """
    for (int b = 0; b < robot.n_bodies; ++b) {
        const auto& body = bodies.data[robot.first_body + b];
        const wp::float32 center[3] = {body.center[0], body.center[1], body.center[2]};
        F* ball = (F*)lanes.balls + 5 * b;
        place((const F*)lanes.frames + 12 * body.frame, center, ball);
        ball[3] = F{} + (body.radius + margin);
        ball[4] = F{};
    }
"""
)
def write_balls(robot: Robot, bodies: wp.array[RobotBody], lanes: Lanes, margin: float):
    """Writes the balls of all bodies, with a margin; no spheres are placed yet."""
    ...


@wp.func
def with_facts(lanes: Lanes) -> Lanes:
    """Lanes whose frames were written, with what is known of them."""
    lengths = wp.array(ptr=lanes.facts, shape=(8,), dtype=wp.float32)
    masks = wp.array(ptr=lanes.facts, shape=(8,), dtype=wp.uint32)
    lanes.slack = lengths[0]
    lanes.far = lengths[1]
    lanes.finite = masks[2]
    lanes.known = masks[3]
    return lanes


@wp.func
def place_lanes(robot: Robot, lanes: Lanes) -> Lanes:
    """Frames and balls of a block, whose roots are there."""
    frames = wp.array(ptr=robot.frames, shape=(robot.n_frames,), dtype=RobotFrame)
    n_rows = robot.first_body + robot.n_bodies
    bodies = wp.array(ptr=robot.bodies, shape=(n_rows,), dtype=RobotBody)
    write_frames(robot, frames, lanes)
    lanes = with_facts(lanes)
    write_balls(robot, bodies, lanes, lanes.slack + SHAPE_ROUNDING * lanes.far)
    return lanes


@wp.func
def write_pose(lanes: Lanes, lane: int, n_frames: int, frame_pose: FramePose):
    """Writes the root of a lane."""
    poses = wp.array(ptr=lanes.poses, shape=(8, n_frames), dtype=FramePose)
    poses[lane, 0] = frame_pose


@wp.func
def pose_of_lane(robot: Robot, lanes: Lanes, lane: int, k: int) -> FramePose:
    """The pose of a frame in one lane, by the scalar functions, to the last bit.

    All are written when the first one is asked for.
    """
    poses = wp.array(ptr=lanes.poses, shape=(8, robot.n_frames), dtype=FramePose)
    masks = wp.array(ptr=lanes.facts, shape=(8,), dtype=wp.uint32)
    bit = wp.uint32(1) << wp.uint32(lane)
    if masks[4] & bit == wp.uint32(0):
        masks[4] = masks[4] | bit
        joints = wp.array(ptr=lanes.joints, shape=(8, lanes.n_joints), dtype=wp.float32)
        for i in range(1, robot.n_frames):
            frame = frame_of(robot, i)
            value = joints[lane, frame.value]
            poses[lane, i] = frame_at_value(frame, poses[lane, frame.parent], value)
    return poses[lane, k]

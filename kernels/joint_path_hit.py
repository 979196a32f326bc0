"""Collision checks of robots on joint paths, certified, and at single configurations.

A segment is bisected. At the middle of an interval each body and each pair of bodies is certified
free over the interval, or stays open and is checked again in both halves. The first intervals are
those in the middle of the segment: motions that collide, such as a planner asks for, often begin
and end where the robot is free.
"""

import warp as wp

from warp_collision.kernels.bisection import (
    NONE,
    Lane,
    Share,
    bit_of,
    first_of,
    half_of,
    has_ended,
    next_interval,
    outward_middle_of,
    parts_of_segment,
    share_of,
    tell,
)
from warp_collision.kernels.body_check import (
    CLEAR,
    DISTANCE_ROUNDING,
    HIT,
    BodyCheck,
    Interval,
    body_collides,
    body_in_motion,
    check_body,
    interval_around,
)
from warp_collision.kernels.compiling import FEW_THREADS, named, resident_warps, runs_on_cpu
from warp_collision.kernels.forward_kinematics import (
    FramePose,
    frame_at_value,
    point_in_world,
    xyz,
)
from warp_collision.kernels.precision import is_finite3, uncertainty
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    Segment,
    acceleration_bound,
    begin_of,
    bodies_of_frame,
    body_of,
    end_of,
    frame_of,
    rate_of_frame,
    resting_root,
    robot_in_env,
    root_at,
    segment_of,
    write_frames,
    write_root,
    write_root_at,
)
from warp_collision.kernels.robot_pairs import (
    BodyPair,
    approach_of_spheres,
    balls_meet,
    balls_of_pair,
    bodies_touch,
    check_body_pair,
    gap_of_balls,
    motion_of_pair,
)
from warp_collision.kernels.scene_walk import Scene, env_of_row, is_env

wp.set_module_options(FEW_THREADS)

# Sum of the joints' changes of the first parts of a segment [rad], and their largest level. Most
# longer parts of free motions of a Panda are halved, so that looking at them is lost time.
LONGEST_PART = wp.constant(1.6)
MOST_FIRST_LEVEL = wp.constant(6)
# Bounds of derivatives over a segment for each radian of its joints' changes, and at most: bounds
# over shorter intervals are tighter. These are 2 % above those of eight everywhere.
BOUNDS_PER_TURN = wp.constant(2.0)
MOST_BOUNDS = wp.constant(8.0)


@wp.struct
class Open:
    """Bodies, or pairs of bodies, that are not certified free over an interval."""

    mask: wp.uint64  # bit i % 64 for number i
    is_hit: bool


def make_open_bodies(body_at, check, kind):
    """The function that checks the bodies of a robot against obstacles over an interval.

    Args:
        body_at: device function (segment, body, interval) -> BodyCheck, as `body_in_motion`.
        check: device function (check: BodyCheck, robot: Robot, scene: Scene, env: int) -> int.
        kind: ends its name.
    """

    def open_bodies(
        segment: Segment,
        interval: Interval,
        scene: Scene,
        env: int,
        share: Share,
        requested: wp.uint64,
        goes_on: bool,
        balls: wp.array[wp.vec4],
    ) -> Open:
        """The requested bodies that are not certified free of obstacles; writes their balls.

        Up to the first hit, or all of them.
        """
        robot = segment.robot
        result = Open(NONE, False)
        for b in range(share.begin, robot.n_bodies, share.step):
            if requested & bit_of(b) != NONE and (goes_on or not result.is_hit):
                body = body_of(robot, b)
                if body.radius >= 0.0:
                    state = body_at(segment, body, interval)
                    center = state.center
                    balls[b] = wp.vec4(center[0], center[1], center[2], state.ball_travel)
                    verdict = check(state, robot, scene, env)
                    if verdict != CLEAR:
                        result.mask = result.mask | bit_of(b)
                    result.is_hit = result.is_hit or verdict == HIT
        return result

    return named(open_bodies, kind)


@wp.func
def check_spheres_of_body(check: BodyCheck, robot: Robot, scene: Scene, env: int) -> int:
    """Checks a body by its spheres."""
    return check_body(check, scene, env)


open_bodies = make_open_bodies(body_in_motion, check_spheres_of_body, "spheres")


@wp.func
def check_pair(
    segment: Segment, pair: BodyPair, interval: Interval, left_out: wp.array[wp.vec2i]
) -> int:
    """Checks two bodies: the balls of both first."""
    robot = segment.robot
    motion = motion_of_pair(segment, pair, interval)
    near = balls_of_pair(robot, motion)
    margin = approach_of_spheres(robot, motion, near)[0]
    if near.gap > wp.max(margin, motion.interval.tolerance):
        return CLEAR
    return check_body_pair(robot, motion, left_out, near)


@wp.func
def is_beyond(segment: Segment, gap: wp.vec2, tolerance: float) -> bool:
    """Whether two bodies cannot meet, and are farther apart than the tolerance.

    Args:
        segment: on which they move. Where joints have errors, these are part of the approach.
        gap: distance of their balls, and bound of how much they approach [m].
        tolerance: [m].
    """
    if segment.errors != wp.uint64(0):
        return gap[0] > gap[1] + tolerance
    return gap[0] > wp.max(gap[1], tolerance)


@wp.func
def open_pairs(
    segment: Segment,
    interval: Interval,
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    share: Share,
    requested: wp.uint64,
    goes_on: bool,
    balls: wp.array[wp.vec4],
    bodies: wp.uint64,
) -> Open:
    """The requested pairs of bodies that are not certified free of each other.

    Up to the first hit, or all of them. The balls of some bodies are known.
    """
    robot = segment.robot
    result = Open(NONE, False)
    for k in range(first_of(share, robot.n_bodies), body_pairs.shape[0], share.step):
        if requested & bit_of(k) != NONE and (goes_on or not result.is_hit):
            pair = body_pairs[k]
            both = bit_of(pair.first) | bit_of(pair.second)
            if bodies & both == both:
                gap = gap_of_balls(pair, robot, balls[pair.first], balls[pair.second], interval)
                if is_beyond(segment, gap, interval.tolerance):
                    continue
            verdict = check_pair(segment, pair, interval, left_out)
            if verdict != CLEAR:
                result.mask = result.mask | bit_of(k)
            result.is_hit = result.is_hit or verdict == HIT
    return result


@wp.func
def first_level(segment: Segment) -> int:
    """Into how many parts, 2^level, a segment is cut at once: few longer ones can be proven free.

    By the sum of all joints' changes, of sliding ones in units of the robot's reach.
    """
    robot = segment.robot
    change = float(0.0)
    for k in range(1, robot.n_frames):
        rate = rate_of_frame(segment, k)
        change += wp.where(frame_of(robot, k).slides != 0, rate / robot.reach, rate)
    level = int(0)
    while level < MOST_FIRST_LEVEL and change > LONGEST_PART:
        change *= 0.5
        level += 1
    return level


def make_segment_collides(open_bodies, kind):
    """The function that tells whether a segment is not proven free; see `make_open_bodies`."""

    def segment_collides(
        segment: Segment,
        base: wp.array2d[MovingFrame],
        row: int,
        index: int,
        slack: float,
        tolerance: float,
        scene: Scene,
        env: int,
        body_pairs: wp.array[BodyPair],
        left_out: wp.array[wp.vec2i],
        lane: Lane,
        balls: wp.array[wp.vec4],
    ) -> bool:
        """Whether what a lane has of a segment is not proven free, by bisection."""
        collides = bool(False)
        level = first_level(segment)
        share = share_of(lane, level)
        search = parts_of_segment(level, share, segment.robot.n_bodies)
        while not (collides or search.is_done or has_ended(lane)):
            middle = outward_middle_of(search)
            write_root_at(segment, root_at(base, row, index), middle)
            write_frames(segment, middle, half_of(search))
            interval = interval_around(middle, half_of(search), slack, DISTANCE_ROUNDING, tolerance)
            bodies = search.bodies[search.level]
            world = open_bodies(segment, interval, scene, env, share, bodies, False, balls)
            itself = Open(NONE, False)
            if not world.is_hit:
                # fmt: off
                itself = open_pairs(
                    segment, interval, body_pairs, left_out, share, search.pairs[search.level],
                    False, balls, bodies,
                )
                # fmt: on
            search = next_interval(search, world.mask, itself.mask)
            collides = world.is_hit or itself.is_hit or search.is_exhausted
        return collides

    return named(segment_collides, kind)


segment_collides = make_segment_collides(open_bodies, "spheres")


@wp.kernel(**resident_warps(16, block=32))
def joint_path_hit(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, n, n_joints) [rad or m], see `segment_of`
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, horizon - 1 or 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],  # pairs of spheres that are not checked
    # parameters
    tolerance: wp.array[wp.float32],  # (1,) for all paths, or (batch,) [m]
    n_segments: wp.array[wp.int32],  # (batch,) of each path up to its first hit; empty: all of all
    launch_offset: wp.vec3i,  # of this launch in the segments and their lanes
    # outputs
    states: wp.array4d[MovingFrame],  # (batch, horizon - 1, n_lanes, n_frames) scratch
    balls: wp.array4d[wp.vec4],  # (batch, horizon - 1, n_lanes, n_bodies) scratch
    hit: wp.array2d[wp.bool],  # (batch, horizon - 1), False before if there are several lanes
):
    """One thread per segment and lane.

    With `n_segments` all beyond that many of a path are hits, and those behind a hit may be: on a
    CPU they are not looked at.
    """
    row, index, number = wp.tid()
    row += launch_offset[0]
    index += launch_offset[1]
    if n_segments.shape[0] > 0:
        is_behind = bool(False)
        if runs_on_cpu() and index > 0:
            is_behind = hit[row, index - 1]
        if is_behind or index >= n_segments[row]:
            hit[row, index] = True
            return
    env = env_of_row(env_index, row)
    lane = Lane(number, balls.shape[2], hit[row], index)
    frames = states[row, index, number]
    segment = segment_of(robot_in_env(robot, env), joints, row, index, hit.shape[1], frames)
    slack = write_root(segment, root_at(base, row, index))
    collides = not is_env(scene, env) or not wp.isfinite(slack)
    if not collides:
        kept = tolerance[wp.min(row, tolerance.shape[0] - 1)]
        own = balls[row, index, number]
        collides = segment_collides(
            segment, base, row, index, slack, kept, scene, env, body_pairs, left_out, lane, own
        )
    tell(lane, collides)


def make_collides(body_collides, kind):
    """The function that tells whether a configuration collides.

    Args:
        body_collides: device function, see `body_check`, or another one of its arguments.
        kind: ends its name.
    """

    def collides_at(
        joints: wp.array3d[wp.float32],
        row: int,
        waypoint: int,
        scene: Scene,
        env: int,
        robot: Robot,
        root: FramePose,
        body_pairs: wp.array[BodyPair],
        left_out: wp.array[wp.vec2i],
        lane: Lane,
        frame_poses: wp.array[FramePose],
        balls: wp.array[wp.vec4],
    ) -> bool:
        """Whether what a lane has of it does, with its frames and balls as scratch."""
        env_robot = robot_in_env(robot, env)
        collides = not is_env(scene, env)
        frame_pose = root
        # Of the distance of two bodies, whose positions are those in the world.
        rounding = uncertainty(2.0 * wp.length(frame_pose.origin), 0.0)
        for k in range(env_robot.n_frames):
            if k > 0:
                frame = frame_of(env_robot, k)
                if frame.parent != k - 1:
                    frame_pose = frame_poses[frame.parent]
                # Also of joints that move no spheres: such a configuration is not valid.
                value = joints[row, waypoint, frame.value]
                collides = collides or not is_finite3(wp.vec3(value))
                frame_pose = frame_at_value(frame, frame_pose, value)
            frame_poses[k] = frame_pose
            span = bodies_of_frame(env_robot, k)
            for b in range(span[0], span[1]):
                body = body_of(env_robot, b)
                center = point_in_world(frame_pose, body.center)
                balls[b] = wp.vec4(center[0], center[1], center[2], body.radius)
        # Lanes check at the same time what each of them has: loops of their own.
        b = int(lane.index)
        while b < env_robot.n_bodies and not (collides or has_ended(lane)):
            body = body_of(env_robot, b)
            if body.radius >= 0.0:
                at = frame_poses[body.frame]
                collides = body_collides(env_robot, body, at, xyz(balls[b]), scene, env)
            b += lane.count
        m = first_of(Share(lane.index, lane.count, 0, 0), env_robot.n_bodies)
        while m < body_pairs.shape[0] and not (collides or has_ended(lane)):
            pair = body_pairs[m]
            pair.buffer += rounding
            if balls_meet(balls[pair.first], balls[pair.second], pair.buffer):
                one = frame_poses[body_of(env_robot, pair.first).frame]
                other = frame_poses[body_of(env_robot, pair.second).frame]
                collides = bodies_touch(env_robot, pair, left_out, one, other)
            m += lane.count
        return collides

    return named(collides_at, kind)


spheres_collide = make_collides(body_collides, "spheres")


@wp.kernel(**resident_warps(16, block=32))
def configuration_hit(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, horizon, n_joints) [rad or m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, horizon or 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    # parameters
    launch_offset: wp.vec3i,  # of this launch in the configurations and their lanes
    # outputs
    frame_poses: wp.array4d[FramePose],  # (batch, horizon, n_lanes, n_frames) scratch
    balls: wp.array4d[wp.vec4],  # (batch, horizon, n_lanes, n_bodies) scratch
    hit: wp.array2d[wp.bool],  # (batch, horizon), False before if there are several lanes
):
    """One thread per configuration and lane; it ends at the first hit."""
    row, waypoint, number = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    env = env_of_row(env_index, row)
    root = root_at(base, row, waypoint).frame_pose
    lane = Lane(number, balls.shape[2], hit[row], waypoint)
    poses = frame_poses[row, waypoint, number]
    own = balls[row, waypoint, number]
    collides = spheres_collide(
        joints, row, waypoint, scene, env, robot, root, body_pairs, left_out, lane, poses, own
    )
    tell(lane, collides)


@wp.kernel
def segment_acceleration_bound(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, horizon, n_joints) [rad or m]
    robot: Robot,
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the segments
    # outputs
    states: wp.array3d[MovingFrame],  # (batch, horizon - 1, n_frames) scratch
    bounds: wp.array2d[wp.float32],  # (batch, horizon - 1) bound of |c''| of all spheres [m]
):
    """One thread per segment; 0 where joints are not finite."""
    row, index = wp.tid()
    row += launch_offset[0]
    index += launch_offset[1]
    turn = float(0.0)
    is_known = bool(True)
    segment = segment_of(robot, joints, row, index, states.shape[1], states[row, index])
    for joint in range(joints.shape[2]):
        begin, end = begin_of(segment, joint), end_of(segment, joint)
        is_known = is_known and is_finite3(wp.vec3(begin, end, 0.0))
        turn += wp.abs(end - begin)
    largest = float(0.0)
    # The shorter the motion, the less a bound over all of it is above those over its parts.
    n_parts = int(wp.ceil(wp.clamp(turn * BOUNDS_PER_TURN, 1.0, MOST_BOUNDS)))
    if not is_known:
        n_parts = 0
    half = 0.5 / float(n_parts)
    frames = segment.frames
    frames[0] = resting_root()
    for part in range(n_parts):
        write_frames(segment, (2.0 * float(part) + 1.0) * half, half)
        for b in range(robot.n_bodies):
            body = body_of(robot, b)
            center = point_in_world(frames[body.frame].frame_pose, body.center)
            bound = acceleration_bound(segment, body, center, 0, half)
            if not (bound <= largest) and not wp.isnan(largest):
                largest = bound
    bounds[row, index] = largest

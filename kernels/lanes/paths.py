"""Collision checks of robots on joint paths: intervals of segments in lanes.

The segments of an env share one list of intervals, so that lanes stay filled. The intervals of a
segment are those of `segment_collides`, and so is what is decided for each. Segments are straight,
or pieces of curves.
"""

import warp as wp

from warp_collision.kernels.bisection import ALL, MAX_LEVEL, NONE, Lane, bit_of
from warp_collision.kernels.body_check import (
    CLEAR,
    DISTANCE_ROUNDING,
    HIT,
    Interval,
    body_in_motion,
    check_obstacle,
    interval_around,
)
from warp_collision.kernels.box_blocks import lowest_bit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import RobotFrame
from warp_collision.kernels.joint_path_hit import check_pair, first_level, segment_collides
from warp_collision.kernels.lanes.bodies import (
    LARGEST_SIZE,
    balls_near_shape,
    box_of,
    make_walk_in_lanes,
)
from warp_collision.kernels.lanes.configurations import behind, row_from
from warp_collision.kernels.lanes.frames import Lanes, with_facts
from warp_collision.kernels.lanes.frames import write_frames as write_frames_in_lanes
from warp_collision.kernels.lanes.motions import (
    body_beside_shape,
    pair_in_motion,
    write_motions,
    write_twists,
    write_values,
)
from warp_collision.kernels.lanes.vectors import EPSILON, LANES
from warp_collision.kernels.mesh_record import ExactShape, is_exact, load_exact
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    RobotBody,
    Segment,
    body_of,
    robot_in_env,
    root_at,
    segment_of,
    write_frames,
    write_root,
)
from warp_collision.kernels.robot_pairs import BodyPair, gap_of_balls
from warp_collision.kernels.scene_walk import Obstacle, Scene, env_of_row, is_env, is_never_over

wp.set_module_options(OPTIONS)

# Segments of a thread, and intervals in its list: those of one segment at first, seven others, and
# eight more on each level below.
SEGMENTS = wp.constant(16)
MOST_INTERVALS = wp.constant(256)
# Intervals of a segment in lanes, before the scalar functions take it.
MOST_EVALUATIONS = wp.constant(4096)
# Rounding of distances in lanes and in the scalar functions, relative to coordinates.
MOTION_ROUNDING = wp.constant(30.0 * EPSILON)
EIGHT = wp.constant(255)
# Bytes of a vector, a `MovingFrame`, and a `Part`.
VECTOR_BYTES = wp.constant(32)
STATE_BYTES = wp.constant(72)
PART_BYTES = wp.constant(32)


@wp.struct
class Part:
    """An interval of a segment, and the bodies and pairs that are open in it."""

    index: int  # of the segment
    level: int
    number: int  # among those of its level, see `outward_middle_of`
    bodies: wp.uint64
    pairs: wp.uint64


@wp.struct
class Motions:
    """What a launch checks, and the scratch memory of a thread."""

    joints: wp.array3d[wp.float32]  # control points, see `segment_of`
    count: int  # segments of a path
    degree: int  # of their polynomials
    base: wp.array2d[MovingFrame]
    scene: Scene
    robot: Robot
    body_pairs: wp.array[BodyPair]
    left_out: wp.array[wp.vec2i]
    tolerance: wp.array[wp.float32]
    env: int
    owner: int  # row of all paths in the base and tolerance; -1: each has its own
    first: int  # segment of the list
    end: int  # behind its last segment
    lanes: Lanes
    stack: wp.uint64  # to MOST_INTERVALS Part
    active: wp.uint64  # to (8,) Part, those in the lanes
    counts: wp.uint64  # to (SEGMENTS,) int32, evaluated intervals; -1: decided
    slacks: wp.uint64  # to (SEGMENTS,) float32 [m]
    balls: wp.uint64  # to (n_bodies,) vec4
    opened: wp.uint64  # to (16,) uint64, the bodies that are open in each lane, and the pairs


def scratch_of_paths(n_frames: int, n_bodies: int, n_spheres: int, n_joints: int) -> int:
    """Bytes of scratch memory of a thread, see `motions_of`."""
    vectors = 20 * n_frames + 10 * n_bodies + 3 * n_spheres + 5 * n_joints + 16
    rest = 16 * STATE_BYTES * n_frames + PART_BYTES * (MOST_INTERVALS + 8) + 16 * n_bodies
    return VECTOR_BYTES * vectors + rest + 8 * SEGMENTS


@wp.func
def motions_of(robot: Robot, scratch: wp.uint64, n_joints: int) -> Motions:
    """Motions with scratch memory."""
    lanes = Lanes()
    lanes.n_joints = n_joints
    lanes.pose_size = 36  # the second half is for bounds of joints' motion, see `Segment`
    lanes.frames = scratch
    lanes.twists = behind(lanes.frames, 12 * VECTOR_BYTES * robot.n_frames)
    lanes.balls = behind(lanes.twists, 8 * VECTOR_BYTES * robot.n_frames)
    lanes.motions = behind(lanes.balls, 5 * VECTOR_BYTES * robot.n_bodies)
    lanes.facts = behind(lanes.motions, 5 * VECTOR_BYTES * robot.n_bodies)
    lanes.window = behind(lanes.facts, VECTOR_BYTES)
    lanes.rates = behind(lanes.window, 7 * VECTOR_BYTES)
    lanes.joints = behind(lanes.rates, 4 * VECTOR_BYTES * n_joints)
    lanes.poses = behind(lanes.joints, VECTOR_BYTES * n_joints)
    motions = Motions()
    motions.opened = behind(lanes.poses, 16 * STATE_BYTES * robot.n_frames)
    motions.stack = behind(motions.opened, 4 * VECTOR_BYTES)
    motions.active = behind(motions.stack, PART_BYTES * MOST_INTERVALS)
    motions.counts = behind(motions.active, 8 * PART_BYTES)
    motions.slacks = behind(motions.counts, 4 * SEGMENTS)
    motions.balls = behind(motions.slacks, 4 * SEGMENTS)
    lanes.spheres = behind(motions.balls, 16 * robot.n_bodies)
    motions.lanes = lanes
    return motions


@wp.struct
class MovingBody:
    """A body in all lanes. One for all bodies: copies of structs are slow."""

    motions: Motions
    lanes: Lanes
    index: int
    bits: wp.uint32  # lanes that ask for it


@wp.func
def middle_of_part(part: Part) -> float:
    """As `outward_middle_of`."""
    middle = (2.0 * float(part.number) + 1.0) * (0.5 / float(1 << part.level))
    if part.level == 0:
        return middle
    return wp.where(middle < 0.5, 0.5 + middle, 1.0 - middle)


@wp.func
def row_of(motions: Motions, index: int) -> int:
    """The path of a segment."""
    return index / motions.count


@wp.func
def owner_of(motions: Motions, index: int) -> int:
    """The row of a segment in the base and tolerance."""
    return wp.where(motions.owner < 0, row_of(motions, index), motions.owner)


@wp.func
def segment_in_lane(motions: Motions, lane: int, index: int) -> Segment:
    """A segment with the scalar functions' frames of a lane."""
    robot = motions.robot
    states = wp.array(ptr=motions.lanes.poses, shape=(8, 2 * robot.n_frames), dtype=MovingFrame)
    row = row_of(motions, index)
    number = index - row * motions.count
    return segment_of(robot, motions.joints, row, number, motions.count, states[lane])


@wp.func
def root_of_segment(motions: Motions, index: int) -> MovingFrame:
    """The root, which is at rest."""
    number = index - row_of(motions, index) * motions.count
    return root_at(motions.base, owner_of(motions, index), number)


@wp.func
def part_in_lane(motions: Motions, lane: int) -> Part:
    """The interval in a lane."""
    return wp.array(ptr=motions.active, shape=(8,), dtype=Part)[lane]


@wp.func
def interval_of(motions: Motions, part: Part) -> Interval:
    """An interval as the scalar functions have it."""
    slacks = wp.array(ptr=motions.slacks, shape=(SEGMENTS,), dtype=wp.float32)
    owner = owner_of(motions, part.index)
    kept = motions.tolerance[wp.min(owner, motions.tolerance.shape[0] - 1)]
    slack = slacks[part.index - motions.first]
    half = 0.5 / float(1 << part.level)
    return interval_around(middle_of_part(part), half, slack, DISTANCE_ROUNDING, kept)


@wp.func
def placed_segment(motions: Motions, lane: int) -> Segment:
    """The segment in a lane, with frames at the middle of the interval, by the scalar functions."""
    part = part_in_lane(motions, lane)
    segment = segment_in_lane(motions, lane, part.index)
    masks = wp.array(ptr=motions.lanes.facts, shape=(8,), dtype=wp.uint32)
    bit = wp.uint32(1) << wp.uint32(lane)
    if masks[4] & bit == wp.uint32(0):
        masks[4] = masks[4] | bit
        interval = interval_of(motions, part)
        write_frames(segment, interval.middle, interval.half)
    return segment


@wp.func
def with_verdict(found: wp.uint32, verdict: int, lane: int) -> wp.uint32:
    """Results with that of the scalar functions in one lane."""
    bit = wp.uint32(1) << wp.uint32(lane)
    if verdict == HIT:
        found |= bit
    elif verdict != CLEAR:
        found |= bit << wp.uint32(8)
    return found


@wp.func
def check_in_lanes(obstacle: Obstacle, query: MovingBody, found: wp.uint32) -> wp.uint32:
    """Adds the lanes in which an obstacle is hit; behind these those in which a body is open."""
    motions = query.motions
    lanes = query.lanes
    pose = obstacle.mesh_from_world
    bits = query.bits & ~(found & wp.uint32(EIGHT))
    shape_is_exact = is_exact(obstacle.record)
    shape = ExactShape()
    if shape_is_exact:
        shape = load_exact(obstacle.record)
    else:
        shape = box_of(obstacle)
    size = lanes.far + wp.length(wp.transform_get_translation(pose)) + wp.length(shape.center)
    size += wp.length(shape.size) + wp.abs(obstacle.padding)
    rounding = MOTION_ROUNDING * size
    unsure = bits
    if size < LARGEST_SIZE:
        if shape_is_exact:
            body = body_of(motions.robot, query.index)
            some = body_beside_shape(
                shape, pose, obstacle.padding, motions.robot, body, lanes, query.index,
                rounding, bits,
            )  # fmt: skip
            found |= some & wp.uint32(65535)
            unsure = some >> wp.uint32(16)
        else:
            extra = obstacle.padding + rounding
            unsure = balls_near_shape(shape, pose, lanes, query.index, extra, bits)
    while unsure != wp.uint32(0):
        lane = lowest_bit(unsure)
        unsure &= unsure - wp.uint32(1)
        segment = placed_segment(motions, lane)
        interval = interval_of(motions, part_in_lane(motions, lane))
        check = body_in_motion(segment, body_of(motions.robot, query.index), interval)
        found = with_verdict(found, check_obstacle(obstacle, check, CLEAR), lane)
    return found


walk_in_lanes = make_walk_in_lanes(check_in_lanes, MovingBody, is_never_over)


@wp.func
def pair_in_lane(motions: Motions, pair: BodyPair, lane: int, is_known: bool) -> int:
    """What the scalar functions find of a pair of bodies, as in `open_pairs`."""
    segment = placed_segment(motions, lane)
    robot = motions.robot
    interval = interval_of(motions, part_in_lane(motions, lane))
    if is_known:
        one = body_in_motion(segment, body_of(robot, pair.first), interval)
        other = body_in_motion(segment, body_of(robot, pair.second), interval)
        here = wp.vec4(one.center[0], one.center[1], one.center[2], one.ball_travel)
        there = wp.vec4(other.center[0], other.center[1], other.center[2], other.ball_travel)
        gap = gap_of_balls(pair, robot, here, there, interval)
        if gap[0] > wp.max(gap[1], interval.tolerance):
            return CLEAR
    return check_pair(segment, pair, interval, motions.left_out)


@wp.func_native("""
    wp::uint32 lanes = 0;
    for (int i = 0; i < 8; ++i) {
        const wp::uint64 mask = of_pairs ? parts.data[i].pairs : parts.data[i].bodies;
        lanes |= (wp::uint32)((mask & bits) == bits) << i;
    }
    return lanes & ((1u << count) - 1);
""")
def parts_asking(parts: wp.array[Part], count: int, bits: wp.uint64, of_pairs: bool) -> wp.uint32:
    """Which of the first eight intervals ask for all of some bits, of bodies or pairs."""
    ...


@wp.func
def lanes_asking(motions: Motions, bits: wp.uint64, of_pairs: bool) -> wp.uint32:
    """The lanes whose intervals ask for all of some bits, of bodies or pairs."""
    parts = wp.array(ptr=motions.active, shape=(8,), dtype=Part)
    return parts_asking(parts, motions.lanes.count, bits, of_pairs)


@wp.func_native("return (wp::uint64)&joints.data[index * (wp::int64)joints.shape[2]];")
def points_from(joints: wp.array3d[wp.float32], index: int) -> wp.uint64:
    """Pointer to a control point."""
    ...


@wp.func
def activate(motions: Motions):
    """Writes what the lanes read of their intervals; empty ones have what the first one has."""
    lanes = motions.lanes
    n_states = 2 * motions.robot.n_frames
    n_points = motions.joints.shape[1]
    window = wp.array(ptr=lanes.window, shape=(5, 8), dtype=wp.float32)
    points = wp.array(ptr=lanes.window + wp.uint64(160), shape=(8,), dtype=wp.uint64)
    states = wp.array(ptr=lanes.poses, shape=(8, n_states), dtype=MovingFrame)
    for lane in range(8):
        part = part_in_lane(motions, wp.where(lane < lanes.count, lane, 0))
        interval = interval_of(motions, part)
        window[0, lane] = interval.half
        window[1, lane] = interval.tolerance
        window[2, lane] = interval.slack
        window[4, lane] = interval.middle
        row = row_of(motions, part.index)
        first = motions.degree * (part.index - row * motions.count)
        points[lane] = points_from(motions.joints, row * n_points + first)
        if lane < lanes.count:
            states[lane, 0] = root_of_segment(motions, part.index)
    write_values(lanes, motions.degree)


@wp.func
def push(motions: Motions, top: int, part: Part) -> int:
    """Adds an interval to the list; returns how many there are."""
    stack = wp.array(ptr=motions.stack, shape=(MOST_INTERVALS,), dtype=Part)
    stack[top] = part
    return top + 1


@wp.func
def pop(motions: Motions, top: int) -> wp.vec2i:
    """Moves up to eight intervals of segments that are not decided to the lanes.

    Returns how many are left in the list, and how many are in the lanes.
    """
    stack = wp.array(ptr=motions.stack, shape=(MOST_INTERVALS,), dtype=Part)
    active = wp.array(ptr=motions.active, shape=(8,), dtype=Part)
    counts = wp.array(ptr=motions.counts, shape=(SEGMENTS,), dtype=wp.int32)
    count = int(0)
    while top > 0 and count < LANES:
        top -= 1
        part = stack[top]
        number = part.index - motions.first
        if counts[number] >= 0:
            counts[number] = counts[number] + 1
            active[count] = part
            count += 1
    return wp.vec2i(top, count)


@wp.func
def decide_alone(motions: Motions, lane: int, index: int) -> bool:
    """Whether a segment is not proven free, by the scalar functions, in the memory of a lane."""
    segment = segment_in_lane(motions, lane, index)
    balls = wp.array(ptr=motions.balls, shape=(motions.robot.n_bodies,), dtype=wp.vec4)
    owner = owner_of(motions, index)
    number = index - row_of(motions, index) * motions.count
    slack = write_root(segment, root_of_segment(motions, index))
    kept = motions.tolerance[wp.min(owner, motions.tolerance.shape[0] - 1)]
    alone = Lane()
    alone.count = 1
    return segment_collides(
        segment, motions.base, owner, number, slack, kept, motions.scene, motions.env,
        motions.body_pairs, motions.left_out, alone, balls,
    )  # fmt: skip


@wp.struct
class Found:
    """What is found in the lanes; what is open is in `Motions.opened`."""

    hits: wp.uint32
    known: wp.uint32  # lanes that were evaluated


@wp.func
def keep_open(motions: Motions, found: wp.uint32, bit: wp.uint64, offset: int):
    """Keeps a body, or with an offset of 8 a pair, that is open in some lanes."""
    opened = wp.array(ptr=motions.opened, shape=(16,), dtype=wp.uint64)
    open = (found >> wp.uint32(8)) & wp.uint32(EIGHT)
    while open != wp.uint32(0):
        lane = offset + lowest_bit(open)
        open &= open - wp.uint32(1)
        opened[lane] = opened[lane] | bit


@wp.func
def check_bodies(motions: Motions, asked: wp.uint64, known: wp.uint32) -> wp.uint32:
    """Checks the bodies that some lanes ask for; returns the lanes with hits."""
    robot = motions.robot
    hits = wp.uint32(0)
    query = MovingBody(motions, motions.lanes, 0, wp.uint32(0))
    for b in range(robot.n_bodies):
        if asked & bit_of(b) != NONE:
            body = body_of(robot, b)
            bits = lanes_asking(motions, bit_of(b), False) & known & ~hits
            if body.radius >= 0.0 and bits != wp.uint32(0):
                query.index = b
                query.bits = bits
                found = walk_in_lanes(
                    query, motions.scene, motions.env, body.begin, bits, wp.uint32(0)
                )
                hits |= found & wp.uint32(EIGHT)
                keep_open(motions, found, bit_of(b), 0)
    return hits


@wp.func
def check_pairs(
    motions: Motions,
    frames: wp.array[RobotFrame],
    bodies: wp.array[RobotBody],
    asked: wp.uint64,
    known: wp.uint32,
) -> wp.uint32:
    """Checks the pairs that some lanes ask for; returns the lanes with hits."""
    robot = motions.robot
    lanes = motions.lanes
    rounding = MOTION_ROUNDING * 2.0 * lanes.far
    hits = wp.uint32(0)
    for k in range(motions.body_pairs.shape[0]):
        if asked & bit_of(k) != NONE:
            bits = lanes_asking(motions, bit_of(k), True) & known & ~hits
            if bits != wp.uint32(0):
                pair = motions.body_pairs[k]
                both = bit_of(pair.first) | bit_of(pair.second)
                of_both = lanes_asking(motions, both, False)
                found = pair_in_motion(
                    pair, motions.left_out, frames, bodies, robot, lanes, rounding, of_both, bits
                )
                unsure = found >> wp.uint32(16)
                while unsure != wp.uint32(0):
                    lane = lowest_bit(unsure)
                    unsure &= unsure - wp.uint32(1)
                    is_known = (of_both >> wp.uint32(lane)) & wp.uint32(1) != wp.uint32(0)
                    found = with_verdict(found, pair_in_lane(motions, pair, lane, is_known), lane)
                hits |= found & wp.uint32(EIGHT)
                keep_open(motions, found, bit_of(k), 8)
    return hits


@wp.func
def evaluate(motions: Motions) -> Found:
    """Checks the intervals in the lanes."""
    robot = motions.robot
    lanes = motions.lanes
    opened = wp.array(ptr=motions.opened, shape=(16,), dtype=wp.uint64)
    frames = wp.array(ptr=robot.frames, shape=(robot.n_frames,), dtype=RobotFrame)
    n_rows = robot.first_body + robot.n_bodies
    bodies = wp.array(ptr=robot.bodies, shape=(n_rows,), dtype=RobotBody)
    activate(motions)
    write_frames_in_lanes(robot, frames, lanes)
    lanes = with_facts(lanes)
    motions.lanes = lanes
    write_twists(robot, frames, lanes, motions.degree)
    asked_bodies = wp.uint64(0)
    asked_pairs = wp.uint64(0)
    for lane in range(lanes.count):
        part = part_in_lane(motions, lane)
        asked_bodies |= part.bodies
        asked_pairs |= part.pairs
        opened[lane] = wp.uint64(0)
        opened[8 + lane] = wp.uint64(0)
    write_motions(robot, frames, bodies, lanes, asked_bodies)
    known = lanes.known & ((wp.uint32(1) << wp.uint32(lanes.count)) - wp.uint32(1))
    hits = check_bodies(motions, asked_bodies, known)
    hits |= check_pairs(motions, frames, bodies, asked_pairs, known & ~hits)
    return Found(hits, known)


@wp.func
def step(
    motions: Motions, top: int, count: int, n_segments: wp.array[wp.int32], hit: wp.array2d[wp.bool]
) -> int:
    """Evaluates the intervals in the lanes, and adds the halves of what is open to the list."""
    motions.lanes.count = count
    found = evaluate(motions)
    opened = wp.array(ptr=motions.opened, shape=(16,), dtype=wp.uint64)
    counts = wp.array(ptr=motions.counts, shape=(SEGMENTS,), dtype=wp.int32)
    horizon = hit.shape[1]
    for lane in range(count):
        part = part_in_lane(motions, lane)
        part.bodies = opened[lane]
        part.pairs = opened[8 + lane]
        number = part.index - motions.first
        bit = wp.uint32(1) << wp.uint32(lane)
        is_hit = found.hits & bit != wp.uint32(0)
        is_open = part.bodies != NONE or part.pairs != NONE
        if counts[number] >= 0:
            alone = found.known & bit == wp.uint32(0) or counts[number] > MOST_EVALUATIONS
            alone = alone or top + 2 > MOST_INTERVALS
            if alone and not is_hit:
                is_hit = decide_alone(motions, lane, part.index)
                counts[number] = -1
            elif is_open and not is_hit:
                if part.level == MAX_LEVEL:
                    is_hit = True
                else:
                    part.level += 1
                    part.number = 2 * part.number + 1
                    top = push(motions, top, part)
                    part.number -= 1
                    top = push(motions, top, part)
            if is_hit:
                counts[number] = -1
                row = part.index / horizon
                hit[row, part.index - row * horizon] = True
                if n_segments.shape[0] > 0:  # those behind it are hits, too
                    behind = part.index + 1
                    while behind < (row + 1) * horizon and behind < motions.end:
                        counts[behind - motions.first] = -1
                        hit[row, behind - row * horizon] = True
                        behind += 1
    return top


@wp.func
def begin_segment(
    motions: Motions, top: int, index: int, n_segments: wp.array[wp.int32], hit: wp.array2d[wp.bool]
) -> int:
    """Adds the first intervals of a segment to the list, if it is not decided at once."""
    counts = wp.array(ptr=motions.counts, shape=(SEGMENTS,), dtype=wp.int32)
    slacks = wp.array(ptr=motions.slacks, shape=(SEGMENTS,), dtype=wp.float32)
    horizon = hit.shape[1]
    number = index - motions.first
    row = index / horizon
    segment = segment_in_lane(motions, 0, index)
    is_hit = not is_env(motions.scene, motions.env)
    place = index - row * horizon
    if n_segments.shape[0] > 0:
        is_hit = is_hit or place >= n_segments[row]
        if place > 0:
            is_hit = is_hit or hit[row, place - 1]
    if not is_hit:
        slack = write_root(segment, root_of_segment(motions, index))
        slacks[number] = slack
        is_hit = not wp.isfinite(slack)
    level = int(0)
    is_decided = bool(is_hit)
    if not is_hit:
        level = first_level(segment)
        if level == 0 and hit.shape[0] * horizon == 1:  # seven lanes would be empty
            is_hit = decide_alone(motions, 0, index)
            is_decided = True
    hit[row, place] = is_hit
    counts[number] = wp.where(is_decided, -1, 0)
    if not is_decided:
        last = 1 << level
        for i in range(last):
            top = push(motions, top, Part(index, level, last - 1 - i, ALL, ALL))
    return top


@wp.func
def check_segments(
    motions: Motions, first: int, end: int, n_segments: wp.array[wp.int32], hit: wp.array2d[wp.bool]
):
    """Decides up to `SEGMENTS` segments, from the first one on, of an env."""
    motions.first = first
    motions.end = end
    top = int(0)
    index = int(first)
    while top > 0 or index < end:
        while index < end and top < LANES:
            top = begin_segment(motions, top, index, n_segments, hit)
            index += 1
        left = pop(motions, top)
        top = left[0]
        if left[1] > 0:
            top = step(motions, top, left[1], n_segments, hit)


@wp.kernel
def segments_hit(
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
    n_segments: wp.array[wp.int32],  # see `joint_path_hit`
    launch_offset: wp.vec2i,  # of this launch in the threads
    # outputs
    scratch: wp.array2d[wp.uint8],  # (threads, `scratch_of_paths`)
    hit: wp.array2d[wp.bool],  # (batch, horizon - 1)
):
    """As `joint_path_hit` of a root at rest; a thread has `SEGMENTS`."""
    _row, thread = wp.tid()
    thread += launch_offset[1]
    first = thread * SEGMENTS
    end = wp.min(first + SEGMENTS, hit.shape[0] * hit.shape[1])
    motions = motions_of(robot, row_from(scratch, thread), joints.shape[2])
    motions.joints = joints
    motions.count = hit.shape[1]
    motions.degree = (joints.shape[1] - 1) / hit.shape[1]
    motions.base = base
    motions.scene = scene
    motions.body_pairs = body_pairs
    motions.left_out = left_out
    motions.tolerance = tolerance
    motions.owner = -1
    index = int(first)
    while index < end:  # those of one env after the other
        env = env_of_row(env_index, index / hit.shape[1])
        behind = int(index + 1)
        while behind < end and env_of_row(env_index, behind / hit.shape[1]) == env:
            behind += 1
        motions.env = env
        motions.robot = robot_in_env(robot, env)
        check_segments(motions, index, behind, n_segments, hit)
        index = behind

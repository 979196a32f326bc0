"""Distances of links of eight configurations at once: which sphere and obstacle are nearest.

Frames are those of the scalar functions. Lanes do the operations of these, so the rounding of their
distances is the same. What has no formula is left to the scalar functions, and so are many
obstacles, pairs of links, and derivatives.
"""

import warp as wp

from warp_collision.kernels.body_check import DISTANCE_ROUNDING
from warp_collision.kernels.box_blocks import FEW, lowest_bit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import FramePose, RobotFrame
from warp_collision.kernels.lanes.configurations import (
    BLOCKS,
    POSE_BYTES,
    VECTOR_BYTES,
    behind,
    row_from,
)
from warp_collision.kernels.lanes.sphere_blocks import SHAPE
from warp_collision.kernels.lanes.vectors import LANES, PREAMBLE
from warp_collision.kernels.mesh_record import FAR, ExactShape, is_exact, load_exact
from warp_collision.kernels.nearest_of_links import (
    FOUND_BYTES,
    HEAD,
    LARGER,
    Configuration,
    all_of,
    rows_of,
    write_poses,
    write_rows,
)
from warp_collision.kernels.precision import FARTHEST
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    RobotBody,
    body_of,
    robot_in_env,
    root_at,
)
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import (
    Scene,
    env_of_row,
    filled_slots,
    is_checked,
    is_env,
    load_obstacle,
    tree_of,
)

wp.set_module_options(OPTIONS)


def scratch_of_links(n_frames: int, n_rows: int) -> int:
    """Scratch memory of a thread [bytes], see `scratch_at`."""
    of_frame = 13 * VECTOR_BYTES + LANES * POSE_BYTES
    return LANES * 4 + n_frames * of_frame + n_rows * FOUND_BYTES


@wp.struct
class LinksInLanes:
    """A block of up to eight configurations in scratch memory, by pointers."""

    robot: Robot
    count: int
    frames: wp.uint64  # to (n_frames, 12) vectors: rotation, by rows, and origin
    poses: wp.uint64  # to (8, n_frames) FramePose
    arms: wp.uint64  # to (n_frames,) vectors
    rounding: wp.uint64  # to (8,) float32, see `Configuration`
    found: wp.uint64  # to (n_rows, FOUND) vectors


@wp.func
def links_in_lanes(robot: Robot, scratch: wp.uint64) -> LinksInLanes:
    """A block with scratch memory."""
    lanes = LinksInLanes()
    lanes.robot = robot
    lanes.rounding = scratch
    lanes.frames = behind(scratch, 4 * LANES)
    lanes.poses = behind(lanes.frames, 12 * VECTOR_BYTES * robot.n_frames)
    lanes.arms = behind(lanes.poses, LANES * POSE_BYTES * robot.n_frames)
    lanes.found = behind(lanes.arms, VECTOR_BYTES * robot.n_frames)
    return lanes


@wp.func
def in_lane(lanes: LinksInLanes, lane: int) -> Configuration:
    """The configuration of a lane."""
    n = lanes.robot.n_frames
    poses = behind(lanes.poses, POSE_BYTES * n * lane)
    rounding = wp.array(ptr=lanes.rounding, shape=(LANES,), dtype=wp.float32)[lane]
    return Configuration(
        lanes.robot,
        wp.array(ptr=poses, shape=(n,), dtype=FramePose),
        wp.array(ptr=lanes.arms, shape=(n,), dtype=wp.float32),
        rounding,
    )


@wp.func
def place_lane(
    lanes: LinksInLanes,
    lane: int,
    values: wp.array[wp.float32],
    root: FramePose,
):
    """Writes the frames of a configuration."""
    at = in_lane(lanes, lane)
    rounding = wp.array(ptr=lanes.rounding, shape=(LANES,), dtype=wp.float32)
    rounding[lane] = write_poses(lanes.robot, values, root, at.frame_poses)


@wp.func_native(
    PREAMBLE
    + """
    F* frames = (F*)lanes.frames;
    const wp::float32* poses = (const wp::float32*)lanes.poses;
    const int size = 12 * lanes.robot.n_frames;
    for (int k = 0; k < size; ++k)
        for (int i = 0; i < 8; ++i) frames[k][i] = poses[size * (i < lanes.count ? i : 0) + k];
"""
)
def write_lanes(lanes: LinksInLanes):
    """Writes the frames of all lanes; those behind the last configuration are the first one's."""
    ...


# What is found for a row, see `FOUND`.
_ROW = """
    struct Row { F distance; I slot, body; F normal[3], here[3], radius; I left; };
    Row& row = *(Row*)found;
"""


@wp.func_native(
    PREAMBLE
    + _ROW
    + f"""
    row.distance = F{{}} + {float(FAR)}f;
    row.slot = I{{}} - 1;
    row.left = I{{}} + (wp::int32)slots;
"""
)
def begin_row(found: wp.uint64, slots: wp.uint32):
    """Nothing was found yet for a row; some slots are left to the scalar functions, as bits."""
    ...


@wp.func_native(PREAMBLE + _ROW + "row.left |= 1 << index;")
def leave(found: wp.uint64, index: int):
    """Leaves a slot of a row to the scalar functions."""
    ...


@wp.func_native(PREAMBLE + _ROW + "return bits_of(row.slot >= 0);")
def lanes_found(found: wp.uint64) -> wp.uint32:
    """In which lanes something was found for a row."""
    ...


@wp.func_native(PREAMBLE + _ROW + "return row.slot[lane];")
def slot_of_lane(found: wp.uint64, lane: int) -> int:
    """The slot that was found for a row in a lane."""
    ...


@wp.func_native(
    PREAMBLE
    + _ROW
    + f"""
    const wp::float32 center[3] = {{body.center[0], body.center[1], body.center[2]}};
    F ball[3];
    place((const F*)lanes.frames + 12 * body.frame, center, ball);
    const F from_origin = root_of(ball[0] * ball[0] + ball[1] * ball[1] + ball[2] * ball[2]);
    row.distance = from_origin < {float(FARTHEST)}f ? row.distance : F{{}} + __builtin_nanf("");
    const F radius = body.radius + {float(DISTANCE_ROUNDING)}f * (from_origin + body.radius);
    const F reach = row.distance + radius, square_of_reach = reach * reach;
"""
    + """
    const F* corners = (const F*)blocks;
    F least = F{} + 3.0e38f;
    I nearest = {};
    wp::uint32 near = 0;
    for (int i = 0; i < count; ++i) {
        const F* box = corners + 6 * (i / 8);
        F square = {};
        for (int k = 0; k < 3; ++k) {
            const F beyond = larger(box[k][i % 8] - ball[k], ball[k] - box[3 + k][i % 8]);
            const F outside = larger(beyond, F{});
            square += outside * outside;
        }
        nearest = square < least ? I{} + (1 << i) : nearest;
        least = square < least ? square : least;
        // In a box it may be at any depth.
        if (any((square <= 0.0f) | ((reach > 0.0f) & (square < square_of_reach)))) near |= 1u << i;
    }
    return nearest_alone ? (wp::uint32)__builtin_reduce_or(nearest) : near;
"""
)
def boxes_near_body(
    blocks: wp.uint64,
    count: int,
    lanes: LinksInLanes,
    body: RobotBody,
    found: wp.uint64,
    nearest_alone: bool,
) -> wp.uint32:
    """Which of the first boxes, `FEW` at most, a body may be nearer to than found so far.

    Args:
        blocks: the boxes.
        count: how many.
        lanes: with frames.
        body: which one.
        found: for its row; NaN where the body is out of range.
        nearest_alone: in each lane the nearest one alone.
    """
    ...


# A center in the frame of a shape, from `placed`, and whether it is out of range.
_LOCAL = f"""
        F local[3], turned[3], normal[3];
        rotate(pose.q, placed, 1.0f, local);
        for (int k = 0; k < 3; ++k) local[k] = local[k] + pose.p[k];
        const F square = local[0] * local[0] + local[1] * local[1] + local[2] * local[2];
        const I is_known = square < {float(FARTHEST)}f * {float(FARTHEST)}f;
        for (int k = 0; k < 3; ++k) turned[k] = local[k] = local[k] - exact.center[k];
        if (exact.is_rotated) rotate(exact.rotation, turned, 1.0f, local);
"""


@wp.func_native(
    PREAMBLE
    + SHAPE
    + _ROW
    + """
    const F* frame = (const F*)lanes.frames + 12 * body.frame;
    const wp::float32* sphere = (const wp::float32*)lanes.robot.spheres + 4 * body.begin;
    F distance = row.distance;
    for (int s = body.begin; s < body.end; ++s, sphere += 4) {
        if (sphere[3] < 0.0f) continue;
        F placed[3];
        place(frame, sphere, placed);
"""
    + _LOCAL
    + """
        const F gap = shape_distance(local, normal) - padding - sphere[3];
        const I is_less = gap < distance;
        distance = is_known ? (is_less ? gap : distance) : F{} + __builtin_nanf("");
        if (!any(is_less)) continue;
        row.slot = is_less ? I{} + slot : row.slot;
        row.body = is_less ? I{} + index : row.body;
        row.radius = is_less ? F{} + sphere[3] : row.radius;
        for (int k = 0; k < 3; ++k) row.here[k] = is_less ? placed[k] : row.here[k];
    }
    row.distance = distance;
"""
)
def nearer_of_shape(
    exact: ExactShape,
    pose: wp.transform,
    padding: float,
    lanes: LinksInLanes,
    body: RobotBody,
    index: int,
    slot: int,
    found: wp.uint64,
):
    """Updates what is found for a row by the spheres of a body over a shape.

    NaN, which stays, where a sphere is out of range.

    Args:
        exact: a shape with a formula.
        pose: to its mesh, from the world.
        padding: of the shape [m].
        lanes: with frames.
        body: whose spheres.
        index: of the body.
        slot: of the shape.
        found: for its row.
    """
    ...


@wp.func_native(
    PREAMBLE
    + SHAPE
    + _ROW
    + """
    const F* placed = row.here;
    const wp::quat_t<wp::float32> none(0.0f, 0.0f, 0.0f, 1.0f);
"""
    + _LOCAL
    + """
    shape_distance(local, normal);
    rotate(exact.is_rotated ? exact.rotation : none, normal, -1.0f, local);
    rotate(pose.q, local, -1.0f, normal);
    const I is_own = row.slot == slot;
    for (int k = 0; k < 3; ++k) row.normal[k] = is_own ? normal[k] : row.normal[k];
    (void)is_known;
    return bits_of(is_own);
"""
)
def write_normals(exact: ExactShape, pose: wp.transform, slot: int, found: wp.uint64) -> wp.uint32:
    """Writes the normals of a row in the lanes in which the shape of a slot is nearest."""
    ...


@wp.func
def look_at_body(
    lanes: LinksInLanes,
    index: int,
    scene: Scene,
    slots: wp.vec2i,
    blocks: wp.uint64,
    found: wp.uint64,
):
    """Updates what is found for a row by a body, first by the boxes that are nearest in lanes."""
    body = body_of(lanes.robot, index)
    if body.radius < 0.0:
        return
    done = wp.uint32(0)
    for part in range(2):
        near = boxes_near_body(blocks, slots[1] - slots[0], lanes, body, found, part == 0)
        near &= ~done
        done |= near
        while near != wp.uint32(0):
            bit = lowest_bit(near)
            near &= near - wp.uint32(1)
            slot = slots[0] + bit
            if is_checked(scene, slot, body.begin):
                obstacle = load_obstacle(scene, slot)
                if not obstacle.is_present:
                    continue
                pose = obstacle.mesh_from_world
                if is_exact(obstacle.record):
                    exact = load_exact(obstacle.record)
                    nearer_of_shape(exact, pose, obstacle.padding, lanes, body, index, slot, found)
                else:
                    leave(found, bit)


@wp.func
def finish_row(scene: Scene, slots: wp.vec2i, found: wp.uint64):
    """Writes the normals of a row; all is left to the scalar functions where a shape has gone."""
    rest = lanes_found(found)
    while rest != wp.uint32(0):
        slot = slot_of_lane(found, lowest_bit(rest))
        obstacle = load_obstacle(scene, slot)
        if not obstacle.is_present or not is_exact(obstacle.record):
            begin_row(found, all_of(slots))
            return
        exact = load_exact(obstacle.record)
        rest &= ~write_normals(exact, obstacle.mesh_from_world, slot, found)


@wp.func
def look_at_rows(
    lanes: LinksInLanes,
    scene: Scene,
    env: int,
    rows: wp.array[wp.vec3i],
    members: wp.array[wp.int32],
) -> bool:
    """Finds what is nearest for all rows of links; whether obstacles are few enough for it."""
    if not is_env(scene, env):
        return False
    slots = filled_slots(scene, env)
    tree = tree_of(scene, env)
    if tree.bvh == wp.uint64(0) or slots[1] - slots[0] > FEW:
        return False
    found = lanes.found
    for r in range(rows.shape[0]):
        row = rows[r]
        if row[2] == 0:
            begin_row(found, wp.uint32(0))
            for m in range(row[0], row[1]):
                look_at_body(lanes, members[m], scene, slots, tree.blocks, found)
            finish_row(scene, slots, found)
            found = behind(found, FOUND_BYTES)
    return True


# Makes the arms of the joints that a body hangs on as long as its spheres need them.
_WIDEN = (
    f"    const wp::float32 larger_by = {float(LARGER)}f;"
    + """
    const F* placed = (const F*)lanes.frames;
    F* arms = (F*)lanes.arms;
    const F rounding = *(const F*)lanes.rounding;
    wp::float32* values = (wp::float32*)result;
    F distance = {};
    for (int i = 0; i < lanes.count; ++i)
        if (values[stride * i + 1] < INFINITY) distance[i] = values[stride * i + 1];
    for (int k = 0; k < lanes.robot.n_frames; ++k) arms[k] = F{};
    const auto widen = [&](int index, int ancestor) {
        const auto& body = bodies.data[lanes.robot.first_body + index];
        if (body.radius < 0.0f) return;
        const wp::float32 center[3] = {body.center[0], body.center[1], body.center[2]};
        F at[3], drift = {};
        place(placed + 12 * body.frame, center, at);
        for (int k = body.frame; k != ancestor; k = frames.data[k].parent) {
            F arm = F{} + 1.0f;
            if (!frames.data[k].slides) {
                const F* frame = placed + 12 * k;
                const F x = at[0] - frame[9], y = at[1] - frame[10], z = at[2] - frame[11];
                const F u = frame[5] * z - frame[8] * y, v = frame[8] * x - frame[2] * z;
                const F w = frame[2] * y - frame[5] * x;
                arm = larger_by * (root_of(u * u + v * v + w * w) + body.spread + drift) + rounding;
            }
            arms[k] = larger(arm, arms[k]);  // NaN is dropped
            drift = distance;
        }
    };
"""
)


@wp.func_native(
    PREAMBLE
    + _WIDEN
    + f"    const int n_joints = (width - {int(HEAD)}) / 2, first = width - n_joints;"
    + """
    for (int m = row[0]; m < row[1]; ++m) {
        const int member = members.data[m];
        if (row[2]) {
            const auto& pair = body_pairs.data[member];
            widen(pair.first, pair.ancestor);
            widen(pair.second, pair.ancestor);
        } else
            widen(member, 0);
    }
    for (int i = 0; i < lanes.count; ++i) {
        wp::float32* weights = values + stride * i + first;
        if (!(bits >> i & 1)) continue;
        for (int j = 0; j < n_joints; ++j) weights[j] = 0.0f;
        for (int k = 1; k < lanes.robot.n_frames; ++k)
            weights[frames.data[k].value] += wp::abs(frames.data[k].multiplier) * arms[k][i];
    }
"""
)
def write_weights_of_row(
    lanes: LinksInLanes,
    frames: wp.array[RobotFrame],
    bodies: wp.array[RobotBody],
    body_pairs: wp.array[BodyPair],
    members: wp.array[wp.int32],
    row: wp.vec3i,
    result: wp.uint64,
    stride: int,
    width: int,
    bits: wp.uint32,
):
    """As `write_weights`, in some lanes.

    Args:
        lanes: with frames.
        frames: of the robot.
        bodies: likewise.
        body_pairs: see `link_distances`.
        members: likewise.
        row: likewise.
        result: pointer to the numbers of the first lane, with the radius.
        stride: numbers from lane to lane.
        width: numbers of a row.
        bits: the lanes.
    """
    ...


@wp.func
def write_weights_in_lanes(
    lanes: LinksInLanes,
    body_pairs: wp.array[BodyPair],
    rows: wp.array[wp.vec3i],
    members: wp.array[wp.int32],
    result: wp.uint64,
    width: int,
    bits: wp.uint32,
):
    """Writes the weights of all rows in some lanes; see `write_weights_of_row`."""
    robot = lanes.robot
    frames = wp.array(ptr=robot.frames, shape=(robot.n_frames,), dtype=RobotFrame)
    n_bodies = robot.first_body + robot.n_bodies
    bodies = wp.array(ptr=robot.bodies, shape=(n_bodies,), dtype=RobotBody)
    stride = rows.shape[0] * width
    for r in range(rows.shape[0]):
        own = behind(result, 4 * r * width)
        write_weights_of_row(
            lanes, frames, bodies, body_pairs, members, rows[r], own, stride, width, bits
        )


@wp.kernel
def link_distances_in_lanes(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, horizon, n_joints) [rad or m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, horizon or 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    # parameters
    rows: wp.array[wp.vec3i],
    members: wp.array[wp.int32],
    launch_offset: wp.vec2i,  # of this launch in the threads
    # outputs
    scratch: wp.array2d[wp.uint8],  # (threads, `scratch_of_links`)
    values: wp.array4d[wp.float32],
    obstacle: wp.array3d[wp.int32],
):
    """As `link_distances`, with the same answers; one thread for each `BLOCKS` of lanes."""
    _row, thread = wp.tid()
    thread += launch_offset[1]
    horizon = values.shape[1]
    n = values.shape[0] * horizon
    memory = row_from(scratch, thread)
    for block in range(thread * BLOCKS, wp.min((thread + 1) * BLOCKS, (n + LANES - 1) / LANES)):
        first = block * LANES
        lanes = links_in_lanes(robot, memory)
        lanes.count = wp.min(LANES, n - first)
        for lane in range(lanes.count):
            row = (first + lane) / horizon
            waypoint = first + lane - row * horizon
            root = root_at(base, row, waypoint).frame_pose
            place_lane(lanes, lane, joints[row, waypoint], root)
        write_lanes(lanes)
        rest = (wp.uint32(1) << wp.uint32(lanes.count)) - wp.uint32(1)
        while rest != wp.uint32(0):
            # Lanes of the same env.
            env = env_of_row(env_index, (first + lowest_bit(rest)) / horizon)
            lanes.robot = robot_in_env(robot, env)
            are_few = look_at_rows(lanes, scene, env, rows, members)
            own = wp.uint32(0)
            for lane in range(lanes.count):
                row = (first + lane) / horizon
                bit = wp.uint32(1) << wp.uint32(lane)
                if rest & bit != wp.uint32(0) and env_of_row(env_index, row) == env:
                    own |= bit
                    waypoint = first + lane - row * horizon
                    found = wp.where(are_few, behind(lanes.found, 4 * lane), wp.uint64(0))
                    result = rows_of(values, row, waypoint)
                    # fmt: off
                    write_rows(
                        in_lane(lanes, lane), rows, members, body_pairs, left_out, scene, env,
                        found, result, values.shape[3], obstacle[row, waypoint], False,
                    )
                    # fmt: on
            row = first / horizon
            result = rows_of(values, row, first - row * horizon)
            write_weights_in_lanes(lanes, body_pairs, rows, members, result, values.shape[3], own)
            rest &= ~own

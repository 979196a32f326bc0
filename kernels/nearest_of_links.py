"""Signed distances of links to obstacles and to each other, with their derivatives by joints.

By joint values the distance of a sphere's center c from an obstacle with normal n, or from another
center in the direction n, changes at the rates n (a_j x (c - o_j)), or n a_j where joint j slides.

How far may joints move before a positive distance d is used up? A joint's lever arm, rho_j, changes
by what the joints distal to it move the sphere. As long as a motion uses up less than d, that is
less than d. So with w_j = rho_j + d, without d for the most distal joint and 1 for a sliding one,
every motion with sum w_j |dq_j| < d moves the sphere by less than d: by induction from the tip, the
arms of the joints proximal to those that are known to move it by less are at most w_j.
"""

import warp as wp

from warp_collision.kernels.body_check import DISTANCE_ROUNDING, padded_distance
from warp_collision.kernels.box_blocks import FEW, nearest_box
from warp_collision.kernels.compiling import FEW_THREADS, compiled_once, runs_on_cpu
from warp_collision.kernels.forward_kinematics import (
    FramePose,
    axis_of,
    frame_at_value,
    point_in_world,
    xyz,
)
from warp_collision.kernels.mesh_distance import SdfSample, nothing_nearer
from warp_collision.kernels.mesh_record import FAR, is_exact, load_exact
from warp_collision.kernels.pair_cost import COINCIDENT
from warp_collision.kernels.precision import is_in_range
from warp_collision.kernels.robot_motion import (
    EPSILON,
    MovingFrame,
    Robot,
    RobotBody,
    body_of,
    frame_of,
    group_ball,
    group_span,
    kinematic_rounding,
    n_groups_of,
    robot_in_env,
    root_at,
    sphere_of,
)
from warp_collision.kernels.robot_pairs import BodyPair, is_left_out
from warp_collision.kernels.scene_walk import (
    Obstacle,
    Scene,
    distance_to_root,
    env_of_row,
    filled_slots,
    is_checked,
    is_env,
    load_obstacle,
    make_walk,
    record_of,
    tree_of,
)
from warp_collision.kernels.shape_distance import height_over_shape
from warp_collision.kernels.sphere_lanes import lowest_sphere
from warp_collision.kernels.transforms import to_world

wp.set_module_options(FEW_THREADS)

# Numbers of a row before its derivative, see `write_row`.
HEAD = wp.constant(11)
# All obstacles of an env with few of them, as bits.
ALL_SLOTS = wp.constant(wp.uint32(0xFFFFFFFF))
# Vectors of what lanes found for a row: distance, slot, body, normal, center of the sphere, its
# radius, and the slots that are left to the scalar functions, as bits.
FOUND = wp.constant(11)
FOUND_BYTES = wp.constant(11 * 32)
# Of weights, by more than their rounding.
LARGER = wp.constant(1.0 + 1.0e-5)


@wp.struct
class Nearest:
    """The smallest clearance of a row so far, and where it is."""

    distance: float  # [m]; FAR: nothing was found
    normal: wp.vec3  # from the other side to the sphere, unit
    here: wp.vec3  # center of the sphere
    radius: float  # of the sphere [m]
    there: wp.vec3  # of the other sphere, if it is one of the robot
    body: int  # of the sphere
    other: int  # slot of the obstacle, through all envs, or body of the other sphere; -1: none
    ancestor: int  # frame that both sides hang on


@wp.struct
class BodyAtRest:
    """A body at a configuration."""

    spheres: wp.uint64  # pointer, see `Robot`
    body: RobotBody
    index: int  # of the body
    frame_pose: FramePose
    center: wp.vec3  # of the body's ball, in the world


@wp.struct
class Configuration:
    """A robot at joint values, and scratch memory."""

    robot: Robot
    frame_poses: wp.array[FramePose]  # (n_frames,)
    arms: wp.array[wp.float32]  # (n_frames,)
    rounding: float  # of positions [m]; NaN where joint values are not finite


@wp.func
def nothing_near() -> Nearest:
    """Nothing was found."""
    zero = wp.vec3(0.0)
    return Nearest(FAR, zero, zero, 0.0, zero, -1, -1, 0)


@wp.func
def not_known() -> Nearest:
    """NaN: joint values or poses are not finite."""
    nearest = nothing_near()
    nearest.distance = wp.nan
    nearest.normal = wp.vec3(wp.nan)
    return nearest


@wp.func
def write_poses(
    robot: Robot, values: wp.array[wp.float32], root: FramePose, frame_poses: wp.array[FramePose]
) -> float:
    """Writes the frames at joint values; returns the rounding of positions, NaN if not finite."""
    frame_pose = root
    frame_poses[0] = root
    angles = float(0.0)
    travel = float(0.0)
    for k in range(1, robot.n_frames):
        frame = frame_of(robot, k)
        if frame.parent != k - 1:
            frame_pose = frame_poses[frame.parent]
        value = values[frame.value]
        size = wp.abs(frame.multiplier * value) + wp.abs(frame.shift) + 0.0 * value
        if frame.slides != 0:
            travel += size
        else:
            angles += size
        frame_pose = frame_at_value(frame, frame_pose, value)
        frame_poses[k] = frame_pose
    rounding = kinematic_rounding(robot, angles, travel)
    return rounding + EPSILON * float(robot.n_frames) * wp.length(root.origin)


# -- links and obstacles --------------------------------------------------------------------------


@wp.func
def least_of_sphere(
    rest: BodyAtRest, sphere: wp.vec4, ball: SdfSample, slope: wp.vec3, is_convex: bool
) -> float:
    """A lower bound of the clearance of a sphere, by the distance at the center of its body's ball.

    Of a convex obstacle the distance is above its tangent, `slope`, which is in the body's frame.
    """
    arm = xyz(sphere) - rest.body.center
    if is_convex:
        return ball.distance + wp.dot(slope, arm) - sphere[3]
    return ball.distance - wp.length(arm) - sphere[3]


@wp.func
def near_sample(obstacle: Obstacle, point: wp.vec3, limit: float) -> SdfSample:
    """`padded_distance`, which asks a formula for the distance alone first."""
    if is_exact(obstacle.record):
        height = height_over_shape(load_exact(obstacle.record), point)
        if height >= limit + obstacle.padding:
            return nothing_nearer(limit)
    return padded_distance(obstacle, point, limit)


@wp.func
def with_sphere(obstacle: Obstacle, rest: BodyAtRest, sphere: wp.vec4, best: Nearest) -> Nearest:
    """The nearer of a sphere and the best so far."""
    center = point_in_world(rest.frame_pose, xyz(sphere))
    local = wp.transform_point(obstacle.mesh_from_world, center)
    sample = near_sample(obstacle, local, best.distance + sphere[3])
    if sample.found:
        best.distance = sample.distance - sphere[3]
        best.normal = to_world(obstacle.mesh_from_world, sample.gradient)
        best.here = center
        best.radius = sphere[3]
        best.body = rest.index
        best.other = obstacle.slot
    return best


@wp.func
def nearer_of_spheres(
    obstacle: Obstacle, rest: BodyAtRest, ball: SdfSample, error: float, best: Nearest
) -> Nearest:
    """The nearest sphere of a body, or the best so far: first that of the least bound."""
    body = rest.body
    is_convex = is_exact(obstacle.record)
    slope = to_world(obstacle.mesh_from_world, ball.gradient)
    slope = wp.transpose(rest.frame_pose.rotation) * slope
    first = int(-1)
    least = best.distance + error
    for index in range(body.begin, body.end):
        sphere = sphere_of(rest.spheres, index)
        if not (sphere[3] < 0.0):
            bound = least_of_sphere(rest, sphere, ball, slope, is_convex)
            if bound < least:
                least = bound
                first = index
    if first >= 0:
        best = with_sphere(obstacle, rest, sphere_of(rest.spheres, first), best)
        for index in range(body.begin, body.end):
            sphere = sphere_of(rest.spheres, index)
            if index != first and not (sphere[3] < 0.0):
                bound = least_of_sphere(rest, sphere, ball, slope, is_convex)
                if bound < best.distance + error:
                    best = with_sphere(obstacle, rest, sphere, best)
    return best


@wp.func
def nearer_of_body(obstacle: Obstacle, rest: BodyAtRest, best: Nearest) -> Nearest:
    """Updates the nearest by the spheres of a body against one obstacle; NaN stays."""
    if wp.isnan(best.distance):
        return best
    point = wp.transform_point(obstacle.mesh_from_world, rest.center)
    if not is_in_range(point):
        return not_known()
    error = DISTANCE_ROUNDING * (wp.length(point) + wp.length(rest.center) + rest.body.radius)
    ball = SdfSample()
    ball.distance = -FAR  # of open meshes, whose signed distance is not Lipschitz
    is_closed = is_exact(obstacle.record)
    if not is_closed:
        is_closed = not (record_of(obstacle).inside_reach > 0.0)
    if is_closed:
        ball = near_sample(obstacle, point, best.distance + rest.body.radius + error)
        if not ball.found:
            return best
    return nearer_of_spheres(obstacle, rest, ball, error, best)


nearest_obstacles = make_walk(nearer_of_body, BodyAtRest, Nearest)


@wp.func
def nearest_of_few(
    rest: BodyAtRest,
    scene: Scene,
    slots: wp.vec2i,
    blocks: wp.uint64,
    left: wp.uint32,
    radius: float,
    best: Nearest,
) -> Nearest:
    """Updates the nearest by a body against few obstacles, in the order of their boxes: on CPUs.

    Args:
        rest: the body.
        scene: the obstacles.
        slots: of its env, see `filled_slots`.
        blocks: their boxes.
        left: which of them, as bits.
        radius: of the body's ball, and more than the rounding of distances [m].
        best: so far.
    """
    body = rest.body
    while left != wp.uint32(0):
        box = nearest_box(blocks, left, rest.center)
        # In a box it may be at any depth.
        if box[0] > 0.0 and box[0] >= best.distance + radius:
            break
        slot = slots[0] + int(box[1])
        left &= ~(wp.uint32(1) << wp.uint32(box[1]))
        if not is_checked(scene, slot, body.begin):
            continue
        obstacle = load_obstacle(scene, slot)
        if not obstacle.is_present:
            continue
        pose = obstacle.mesh_from_world
        if not is_exact(obstacle.record):
            best = nearer_of_body(obstacle, rest, best)
            continue
        point = wp.transform_point(pose, rest.center)
        height = height_over_shape(load_exact(obstacle.record), point) - obstacle.padding
        # By more than its rounding: radius has that of the other coordinates.
        if height >= best.distance + radius + DISTANCE_ROUNDING * wp.length(point):
            continue
        # fmt: off
        found = lowest_sphere(
            load_exact(obstacle.record), pose, obstacle.padding, rest.frame_pose, rest.spheres,
            body, best.distance,
        )
        # fmt: on
        if wp.isnan(found[0]):
            return not_known()
        if found[1] >= 0.0:
            best.distance = found[0]
            best.normal = wp.vec3(found[2], found[3], found[4])
            best.here = wp.vec3(found[5], found[6], found[7])
            best.radius = sphere_of(rest.spheres, int(found[1]))[3]
            best.body = rest.index
            best.other = slot
    return best


@wp.func
def all_of(slots: wp.vec2i) -> wp.uint32:
    """The slots of an env, `FEW` at most, as bits."""
    return wp.uint32((wp.uint64(1) << wp.uint64(slots[1] - slots[0])) - wp.uint64(1))


@wp.func
def nearest_of_body(
    rest: BodyAtRest, scene: Scene, env: int, few: wp.uint32, best: Nearest
) -> Nearest:
    """Updates the nearest by a body against all enabled obstacles of its env.

    With a tree it looks into boxes of growing size, until the nearest lies within the last one.

    Args:
        rest: the body.
        scene: the obstacles.
        env: its env, which there is.
        few: on a CPU, of few obstacles those that are looked at, as bits.
        best: so far.
    """
    if not is_in_range(rest.center):
        return not_known()
    radius = rest.body.radius
    radius += DISTANCE_ROUNDING * (wp.length(rest.center) + radius)
    reach = best.distance + radius
    tree = tree_of(scene, env)
    if tree.bvh != wp.uint64(0):
        slots = filled_slots(scene, env)
        if runs_on_cpu() and slots[1] - slots[0] <= FEW:
            left = few & all_of(slots)
            return nearest_of_few(rest, scene, slots, tree.blocks, left, radius, best)
        box_distance = distance_to_root(tree, rest.center)
        # In a box it may be at any depth.
        if box_distance > 0.0 and box_distance >= reach:
            return best
        reach = box_distance + radius
    searched = float(-FAR)
    while searched < best.distance + radius:
        searched = wp.min(reach, wp.max(best.distance + radius, 0.0))
        best = nearest_obstacles(scene, env, rest.body.begin, rest.center, searched, rest, best)
        reach = wp.where(best.distance < FAR, best.distance + radius, 4.0 * searched)
    return best


@wp.func
def found_in_lane(found: wp.uint64) -> Nearest:
    """What lanes found for a row."""
    numbers = wp.array(ptr=found, shape=(FOUND, 8), dtype=wp.float32)
    indices = wp.array(ptr=found, shape=(FOUND, 8), dtype=wp.int32)
    best = nothing_near()
    if wp.isnan(numbers[0, 0]):
        return not_known()
    if indices[1, 0] >= 0:
        best.distance = numbers[0, 0]
        best.other = indices[1, 0]
        best.body = indices[2, 0]
        best.normal = wp.vec3(numbers[3, 0], numbers[4, 0], numbers[5, 0])
        best.here = wp.vec3(numbers[6, 0], numbers[7, 0], numbers[8, 0])
        best.radius = numbers[9, 0]
    return best


@wp.func
def nearest_of_row(
    at: Configuration,
    members: wp.array[wp.int32],
    row: wp.vec3i,
    scene: Scene,
    env: int,
    found: wp.uint64,
) -> Nearest:
    """The nearest of some bodies to the obstacles of an env.

    Args:
        at: the robot.
        members: bodies of all rows.
        row: begin and end of those of this one.
        scene: the obstacles.
        env: which env.
        found: pointer to what lanes found, see `FOUND`, in one lane; 0: nothing was looked at.
    """
    best = nothing_near()
    if not is_env(scene, env) or not wp.isfinite(at.rounding):
        return not_known()
    few = ALL_SLOTS
    if runs_on_cpu() and found != wp.uint64(0):
        best = found_in_lane(found)
        few = wp.array(ptr=found, shape=(FOUND, 8), dtype=wp.uint32)[FOUND - 1, 0]
        if few == wp.uint32(0) or wp.isnan(best.distance):
            return best
    for m in range(row[0], row[1]):
        body = body_of(at.robot, members[m])
        if body.radius >= 0.0:
            frame_pose = at.frame_poses[body.frame]
            center = point_in_world(frame_pose, body.center)
            rest = BodyAtRest(at.robot.spheres, body, members[m], frame_pose, center)
            best = nearest_of_body(rest, scene, env, few, best)
    return best


# -- links and links ------------------------------------------------------------------------------


@wp.func
def nearer_of_groups(
    at: Configuration,
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    span: wp.vec2i,
    other_span: wp.vec2i,
    best: Nearest,
) -> Nearest:
    """Updates the nearest by the spheres of two groups of two bodies."""
    one = at.frame_poses[body_of(at.robot, pair.first).frame]
    other = at.frame_poses[body_of(at.robot, pair.second).frame]
    for i in range(span[0], span[1]):
        a = sphere_of(at.robot.spheres, i)
        here = point_in_world(one, xyz(a))
        for j in range(other_span[0], other_span[1]):
            b = sphere_of(at.robot.spheres, j)
            offset = here - point_in_world(other, xyz(b))
            square = wp.dot(offset, offset)
            gap = wp.sqrt(square) - a[3] - b[3] - pair.buffer
            is_off = a[3] < 0.0 or b[3] < 0.0
            if gap < best.distance and not is_off and not is_left_out(pair, left_out, i, j):
                normal = wp.vec3(1.0, 0.0, 0.0)
                if square > COINCIDENT:
                    normal = offset / wp.sqrt(square)
                there = here - offset + (b[3] + 0.5 * pair.buffer) * normal
                radius = a[3] + 0.5 * pair.buffer
                best = Nearest(
                    gap, normal, here, radius, there, pair.first, pair.second, pair.ancestor
                )
    return best


@compiled_once
def nearest_of_pair(
    at: Configuration, pair: BodyPair, left_out: wp.array[wp.vec2i], best: Nearest
) -> Nearest:
    """Updates the nearest by the spheres of two bodies, by the balls of their groups first."""
    one = body_of(at.robot, pair.first)
    other = body_of(at.robot, pair.second)
    if one.radius < 0.0 or other.radius < 0.0:
        return best
    for g in range(n_groups_of(one)):
        ball = group_ball(at.robot, one, g)
        here = point_in_world(at.frame_poses[one.frame], xyz(ball))
        for h in range(n_groups_of(other)):
            near = group_ball(at.robot, other, h)
            there = point_in_world(at.frame_poses[other.frame], xyz(near))
            apart = wp.length(here - there)
            gap = apart * (1.0 - DISTANCE_ROUNDING) - ball[3] - near[3] - pair.buffer
            if gap < best.distance and not (ball[3] < 0.0 or near[3] < 0.0):
                span = group_span(one, g)
                other_span = group_span(other, h)
                best = nearer_of_groups(at, pair, left_out, span, other_span, best)
    return best


@wp.func
def nearest_of_pairs(
    at: Configuration,
    members: wp.array[wp.int32],
    row: wp.vec3i,
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
) -> Nearest:
    """The nearest spheres of some pairs of bodies."""
    best = nothing_near()
    if not wp.isfinite(at.rounding):
        return not_known()
    for m in range(row[0], row[1]):
        best = nearest_of_pair(at, body_pairs[members[m]], left_out, best)
    return best


# -- derivatives and weights ----------------------------------------------------------------------


@wp.func
def add_gradient(
    at: Configuration, body: int, ancestor: int, point: wp.vec3, force: wp.vec3,
    values: wp.array[wp.float32],
):  # fmt: skip
    """Adds the derivative of force times point, a point of a body, by the joints it hangs on."""
    k = body_of(at.robot, body).frame
    while k != ancestor:
        frame = frame_of(at.robot, k)
        frame_pose = at.frame_poses[k]
        axis = axis_of(frame_pose)
        rate = wp.dot(force, axis)
        if frame.slides == 0:
            rate = wp.dot(force, wp.cross(axis, point - frame_pose.origin))
        values[HEAD + frame.value] += frame.multiplier * rate
        k = frame.parent


@wp.func
def widen_arms(at: Configuration, index: int, ancestor: int, distance: float):
    """Makes the arms of the joints that a body hangs on as long as its spheres need them."""
    body = body_of(at.robot, index)
    if body.radius < 0.0:
        return
    center = point_in_world(at.frame_poses[body.frame], body.center)
    drift = float(0.0)
    arms = at.arms
    k = body.frame
    while k != ancestor:
        arm = float(1.0)
        if frame_of(at.robot, k).slides == 0:
            frame_pose = at.frame_poses[k]
            far = wp.length(wp.cross(axis_of(frame_pose), center - frame_pose.origin))
            arm = LARGER * (far + body.spread + drift) + at.rounding
        arms[k] = wp.max(arms[k], arm)
        drift = distance
        k = frame_of(at.robot, k).parent


@wp.func
def write_weights(
    at: Configuration,
    members: wp.array[wp.int32],
    row: wp.vec3i,
    body_pairs: wp.array[BodyPair],
    distance: float,
    values: wp.array[wp.float32],
):
    """Writes how far each joint moves the spheres of a row at most, in motions below a distance."""
    arms = at.arms
    for k in range(at.robot.n_frames):
        arms[k] = 0.0
    for m in range(row[0], row[1]):
        for side in range(1 + row[2]):
            body = members[m]
            ancestor = int(0)
            if row[2] != 0:
                pair = body_pairs[body]
                body = wp.where(side == 0, pair.first, pair.second)
                ancestor = pair.ancestor
            widen_arms(at, body, ancestor, distance)
    first = (values.shape[0] + HEAD) / 2
    for j in range(first, values.shape[0]):
        values[j] = 0.0
    for k in range(1, at.robot.n_frames):
        frame = frame_of(at.robot, k)
        values[first + frame.value] += wp.abs(frame.multiplier) * arms[k]


@wp.func
def radius_of(at: Configuration, nearest: Nearest) -> float:
    """A lower bound of a distance by its rounding, at least 0; infinite where nothing is near."""
    if nearest.other < 0:
        return wp.where(nearest.distance >= FAR, wp.inf, 0.0)
    size = 2.0 * wp.length(nearest.here) + wp.abs(nearest.distance) + nearest.radius
    error = 2.0 * at.rounding + 2.0 * DISTANCE_ROUNDING * size
    least = nearest.distance - error
    return wp.where(least > 0.0, least, 0.0)


@wp.func
def write_gradient(at: Configuration, nearest: Nearest, n_sides: int, values: wp.array[wp.float32]):
    """Writes the derivative of a row's distance; NaN where it is not known."""
    for j in range((values.shape[0] - HEAD) / 2):
        values[HEAD + j] = 0.0 * nearest.normal[0]
    if nearest.other >= 0 and nearest.body >= 0:
        body = int(nearest.body)
        point = wp.vec3(nearest.here)
        force = wp.vec3(nearest.normal)
        for _side in range(n_sides):
            add_gradient(at, body, nearest.ancestor, point, force, values)
            body = nearest.other
            point = nearest.there
            force = -nearest.normal


@wp.func
def write_point(values: wp.array[wp.float32], first: int, point: wp.vec3):
    """Writes three coordinates."""
    for i in range(3):
        values[first + i] = point[i]


@wp.func
def write_row(
    at: Configuration, row: wp.vec3i, nearest: Nearest, values: wp.array[wp.float32]
) -> float:
    """Writes distance, radius, the points of both sides, the normal and the derivative.

    Returns how far motions within the radius may move a sphere [m].
    """
    safe = radius_of(at, nearest)
    values[0] = wp.where(nearest.distance >= FAR, wp.inf, nearest.distance)
    values[1] = safe
    here = nearest.here - nearest.radius * nearest.normal
    write_point(values, 2, here)
    write_point(values, 5, here - nearest.distance * nearest.normal)
    write_point(values, 8, nearest.normal)
    write_gradient(at, nearest, 1 + row[2], values)
    return wp.where(nearest.other >= 0, safe, 0.0)


@wp.func_native("""
    const size_t first = (size_t)values.shape[1] * row + column;
    return (wp::uint64)(values.data + first * values.shape[2] * values.shape[3]);
""")
def rows_of(values: wp.array4d[wp.float32], row: int, column: int) -> wp.uint64:
    """Pointer to the rows of a configuration."""
    ...


@wp.func
def write_rows(
    at: Configuration,
    rows: wp.array[wp.vec3i],
    members: wp.array[wp.int32],
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    scene: Scene,
    env: int,
    found: wp.uint64,
    result: wp.uint64,
    width: int,
    obstacle: wp.array[wp.int32],
    weigh: bool,
):
    """Writes all rows of a configuration, see `link_distances`.

    `found` points to what lanes found in one lane, see `FOUND`, or is 0. `result` points to
    (n_rows, width) numbers. Weights are left out unless `weigh`.
    """
    for r in range(rows.shape[0]):
        nearest = nothing_near()
        of_pairs = rows[r][2] != 0
        if of_pairs:
            nearest = nearest_of_pairs(at, members, rows[r], body_pairs, left_out)
        else:
            nearest = nearest_of_row(at, members, rows[r], scene, env, found)
            if found != wp.uint64(0):
                found += wp.uint64(FOUND_BYTES)
        own = wp.array(ptr=result + wp.uint64(4 * r * width), shape=(width,), dtype=wp.float32)
        drift = write_row(at, rows[r], nearest, own)
        if weigh:
            write_weights(at, members, rows[r], body_pairs, drift, own)
        is_obstacle = nearest.other >= 0 and not of_pairs
        obstacle[r] = wp.where(is_obstacle, nearest.other - env * scene.n_slots, -1)


@wp.kernel
def link_distances(
    # operands
    joints: wp.array3d[wp.float32],  # (batch, horizon, n_joints) [rad or m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (batch or 1, horizon or 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],  # pairs of spheres that are not checked
    # parameters
    rows: wp.array[wp.vec3i],  # (n_rows,) begin and end of their members; 1: these are pairs
    members: wp.array[wp.int32],  # bodies, and indices of pairs of bodies
    launch_offset: wp.vec2i,  # of this launch in the configurations
    # outputs
    frame_poses: wp.array3d[FramePose],  # (batch, horizon, n_frames) scratch
    arms: wp.array3d[wp.float32],  # (batch, horizon, n_frames) scratch
    values: wp.array4d[wp.float32],  # (batch, horizon, n_rows, HEAD + 2 n_joints), see `write_row`
    obstacle: wp.array3d[wp.int32],  # (batch, horizon, n_rows) -1: none
):
    """One thread per configuration."""
    row, waypoint = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    env = env_of_row(env_index, row)
    at = Configuration(
        robot_in_env(robot, env), frame_poses[row, waypoint], arms[row, waypoint], 0.0
    )
    root = root_at(base, row, waypoint).frame_pose
    at.rounding = write_poses(at.robot, joints[row, waypoint], root, at.frame_poses)
    result = rows_of(values, row, waypoint)
    # fmt: off
    write_rows(
        at, rows, members, body_pairs, left_out, scene, env, wp.uint64(0), result, values.shape[3],
        obstacle[row, waypoint], True,
    )
    # fmt: on

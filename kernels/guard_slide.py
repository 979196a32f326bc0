"""What of a command goes along the surfaces that a guarded robot would rest near.

The rows are those of `nearest_of_links` where the present braking ends. Velocities w are turned
such that no distance d of them, with derivative g, shrinks faster than it has room for:
g w >= -gain (d - room). Each row in turn moves w the least way to that, in a norm in which a joint
that was asked to be faster is cheaper: joints that were not asked to move do not.

Along a curved surface, or on arcs, distances shrink all the same. What is left of w is therefore
turned a little away from surfaces that are nearer than the room.
"""

import warp as wp

from warp_collision.kernels.forward_kinematics import point_in_world
from warp_collision.kernels.guard_motion import FOUND_AT, Guarded, GuardRules, Joints, limits_of
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.nearest_of_links import (
    ALL_SLOTS,
    HEAD,
    BodyAtRest,
    Configuration,
    Nearest,
    add_gradient,
    nearest_of_body,
    nearest_of_pair,
    nothing_near,
    write_poses,
)
from warp_collision.kernels.robot_motion import body_of
from warp_collision.kernels.robot_pairs import balls_meet

# Surfaces that count at once, and how near [m].
N_NEAR = wp.constant(4)
NEARBY = wp.constant(5.0e-3)
# Sum of the joints' changes up to which rows are used again [rad or m]: surfaces that they leave
# out have come less than NEARBY nearer where links are shorter than 5 m.
USED_AGAIN = wp.constant(1.0e-3)
# Rate at which room may be used up [1/s].
GAIN = wp.constant(10.0)
# Metres for each radian by which what is left is turned away.
LIFT = wp.constant(0.02)
N_SWEEPS = wp.constant(8)
# Of what was asked, a smaller part is nothing.
SMALL = wp.constant(wp.float64(1.0e-3))


@wp.func
def keep_row(
    at: Configuration, near: wp.array2d[wp.float32], count: int, found: Nearest, of_pair: bool
) -> int:
    """Keeps a row where there is room, or in the place of the farthest; returns how many there are.

    Its number 0 is the distance, number 1 what that is by now, its derivative begins at HEAD.
    """
    place = int(count)
    if count == N_NEAR:
        place = 0
        for r in range(1, N_NEAR):
            if near[r, 0] > near[place, 0]:
                place = r
        if near[place, 0] <= found.distance:
            return count
    for i in range(near.shape[1]):
        near[place, i] = 0.0
    near[place, 0] = found.distance
    add_gradient(at, found.body, found.ancestor, found.here, found.normal, near[place])
    if of_pair:
        add_gradient(at, found.other, found.ancestor, found.there, -found.normal, near[place])
    return wp.min(count + 1, N_NEAR)


@wp.func
def share_of(rules: GuardRules, slot: int) -> float:
    """The speed of an obstacle as a share of the fastest one."""
    if rules.speeds == wp.uint64(0):
        return 1.0
    return wp.array(ptr=rules.speeds, shape=(slot + 1,), dtype=wp.float32)[slot]


@wp.func
def near_rows(
    guarded: Guarded, at: Configuration, rules: GuardRules, within: float, closing: float
) -> int:
    """Writes the rows of what is near a robot at rest; returns how many there are.

    Args:
        guarded: the robot.
        at: its configuration.
        rules: of the guard.
        within: how near [m].
        closing: how far the fastest obstacles may move until it is at rest [m].
    """
    near = guarded.scratch.near
    balls = guarded.scratch.balls
    count = int(0)
    for b in range(at.robot.n_bodies):
        body = body_of(at.robot, b)
        balls[b] = wp.vec4(0.0, 0.0, 0.0, -FAR)
        if body.radius >= 0.0:
            pose = at.frame_poses[body.frame]
            center = point_in_world(pose, body.center)
            balls[b] = wp.vec4(center[0], center[1], center[2], body.radius)
            found = nothing_near()
            found.distance = within + closing
            rest = BodyAtRest(at.robot.spheres, body, b, pose, center)
            found = nearest_of_body(rest, guarded.scene, guarded.env, ALL_SLOTS, found)
            if found.other >= 0:
                found.distance -= closing * share_of(rules, found.other)
                count = keep_row(at, near, count, found, False)
    for k in range(guarded.body_pairs.shape[0]):
        pair = guarded.body_pairs[k]
        if balls_meet(balls[pair.first], balls[pair.second], pair.buffer + within + at.rounding):
            found = nothing_near()
            found.distance = within
            found = nearest_of_pair(at, pair, guarded.left_out, found)
            if found.other >= 0:
                count = keep_row(at, near, count, found, True)
    return count


@wp.func
def turn(joints: Joints, row: wp.array[wp.float32], least: wp.float64, rules: GuardRules):
    """Turns velocities the least way to where a distance grows at least at a rate.

    `next_v` has for each joint how cheap it is to turn.
    """
    wanted = joints.wanted
    rate = wp.float64(0.0)
    square = wp.float64(0.0)
    for j in range(rules.n_joints):
        slope = wp.float64(row[HEAD + j])
        rate += slope * wanted[j]
        square += slope * slope * joints.next_v[j]
    if rate < least and square > wp.float64(1.0e-12):
        for j in range(rules.n_joints):
            slope = wp.float64(row[HEAD + j])
            wanted[j] = wanted[j] + (least - rate) / square * slope * joints.next_v[j]


@wp.func
def largest(values: wp.array[wp.float64], count: int) -> wp.float64:
    """The largest absolute value."""
    most = wp.float64(0.0)
    for j in range(count):
        most = wp.max(most, wp.abs(values[j]))
    return most


@wp.func
def moved_since(guarded: Guarded, rules: GuardRules, end: int) -> float:
    """By how much joints have moved in all since rows were found."""
    points = guarded.scratch.points
    moved = float(0.0)
    for j in range(rules.n_joints):
        moved += wp.abs(points[end, j] - points[FOUND_AT, j])
    return moved


@wp.func
def rows_at(
    guarded: Guarded, rules: GuardRules, end: int, within: float, closing: float, known: int
) -> int:
    """Writes the rows of what is near a control point, or keeps them; returns how many there are.

    Args:
        guarded: the robot.
        rules: of the guard.
        end: the control point.
        within: how near [m].
        closing: how far the fastest obstacles may move until the robot is at rest [m].
        known: rows of the last call, if nothing but the robot has moved since; negative: none.
    """
    scratch = guarded.scratch
    near = scratch.near
    values = scratch.points[end]
    found_at = scratch.points[FOUND_AT]
    count = int(known)
    if known < 0 or closing > 0.0 or not (moved_since(guarded, rules, end) <= USED_AGAIN):
        at = Configuration(guarded.robot, scratch.poses, near[0], 0.0)
        at.rounding = write_poses(at.robot, values, guarded.root.frame_pose, scratch.poses)
        for j in range(rules.n_joints):
            found_at[j] = values[j]
        count = 0
        if wp.isfinite(at.rounding):
            count = near_rows(guarded, at, rules, within, closing)
    for r in range(count):
        distance = near[r, 0]
        for j in range(rules.n_joints):
            distance += near[r, HEAD + j] * (values[j] - found_at[j])
        near[r, 1] = distance
    return count


@wp.func
def turn_along(
    guarded: Guarded, joints: Joints, rules: GuardRules, count: int, floor: float
) -> bool:
    """Turns velocities that were asked for along what is near; returns whether some are left.

    Args:
        guarded: the robot.
        joints: of it; `next_v` is overwritten.
        rules: of the guard.
        count: rows of what is near.
        floor: clearance that is kept at rest [m].
    """
    scratch = guarded.scratch
    asked = largest(joints.wanted, rules.n_joints)
    room = 2.0 * floor
    if count == 0 or not (asked > wp.float64(0.0)):
        return False
    weights = joints.next_v
    for j in range(rules.n_joints):
        weights[j] = wp.abs(joints.wanted[j])
    for sweep in range(2 * N_SWEEPS):
        left = float(largest(joints.wanted, rules.n_joints))
        if left < float(SMALL * asked):
            return False
        for r in range(count):
            spare = scratch.near[r, 1] - room
            least = -GAIN * wp.max(spare, 0.0)
            if sweep >= N_SWEEPS and spare < 0.0:
                least = LIFT * left * wp.min(-spare / floor, 1.0)
            turn(joints, scratch.near[r], wp.float64(least), rules)
    wanted = joints.wanted
    for j in range(rules.n_joints):
        limit = limits_of(rules, j)[0]
        wanted[j] = wp.clamp(wanted[j], -limit, limit)
    return True

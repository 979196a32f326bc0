"""One step of a guard: a command is passed on where it and the braking after it are proven free.

The state of a robot is its joint values q and velocities v. Braking brings all joints to rest at
the same moment, as hard as the slowest one can: T = max |v_j| / a_j later, on a straight line. For
a while, the latency, velocities may go on before that: the line then ends at
q + v (latency + T / 2). What is proven is the line, so that a robot may brake earlier, too.

A step changes velocities at constant rates, so its joints are polynomials of degree 2; with the
braking it is a curve of two such pieces. If it is not proven, smaller parts of the change are
tried, towards the velocities that the braking has at the end of the step. Otherwise the robot goes
on with its braking, which was proven before.

At rest a robot keeps a clearance, the floor, of the tolerance or, where it begins nearer, half of
it, a quarter, and so on. Motions are proven with half the floor as tolerance: so every one that
leads away from where it rests can be proven.
"""

import warp as wp

from warp_collision.kernels.bisection import (
    NONE,
    everything,
    half_of,
    next_interval,
    outward_middle_of,
    parts_of_segment,
)
from warp_collision.kernels.body_check import DISTANCE_ROUNDING, interval_around
from warp_collision.kernels.compiling import FEW_THREADS, compiled_once, resident_warps
from warp_collision.kernels.joint_path_hit import first_level, open_parts
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    Segment,
    robot_in_env,
    root_at,
    write_frames,
    write_root,
)
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Scene, env_of_row, is_env

wp.set_module_options(FEW_THREADS)

# Why not all of a command was passed on.
PASSED = wp.constant(0)
NOT_PROVEN = wp.constant(1)
BEYOND_LIMITS = wp.constant(2)  # the braking would end beyond a joint's limit
NOT_FINITE = wp.constant(3)
RAN_OUT = wp.constant(4)  # of evaluations

# Control points of a step and its braking, and the index of the braking's first one.
N_POINTS = wp.constant(5)
BRAKING = wp.constant(2)
# Parts of a change of velocities that are tried, each half of the one before.
N_SHARES = wp.constant(3)
ZERO = wp.constant(wp.float64(0.0))
HALF = wp.constant(wp.float64(0.5))
# Of times, by more than their rounding.
LATER = wp.constant(1.0 + 1.0e-6)
ROUNDING = wp.constant(1.0e-6)
NO_PROOF = wp.constant(-1)
NO_DECISION = wp.constant(-2)

vec4d = wp.types.vector(length=4, dtype=wp.float64)


@wp.struct
class GuardRules:
    """What holds for all steps; tables are given by their pointers."""

    limits: wp.uint64  # to (n_joints,) vec4d: velocity, acceleration, lowest and highest value
    errors: wp.uint64  # to (n_joints,) float32, how far a joint may be from its value
    dt: wp.float64  # length of a step [s]
    latency: wp.float64  # for how long its last velocities may go on after it [s]
    speed: float  # of obstacles, at most [m/s]
    tolerance: float  # the largest floor [m]
    least: float  # the smallest one [m]
    max_evaluations: int  # of a step
    is_position: int  # 1 where commands are joint values, 0 where they are velocities
    n_joints: int


@wp.struct
class Timing:
    """When a robot is at a position of a piece, at the latest."""

    begin: float  # at its begin, from now [s]
    duration: float  # of its motion, if nothing goes on [s]
    latency: float  # for how long its first velocity may go on [s]
    speed: float  # of obstacles [m/s]


@wp.struct
class Scratch:
    """What checks of a robot write."""

    points: wp.array2d[wp.float32]  # (2 N_POINTS, n_joints) control points of two curves
    frames: wp.array[MovingFrame]
    balls: wp.array[wp.vec4]


@wp.struct
class Guarded:
    """A robot in its env, with what its checks read and write."""

    robot: Robot
    scene: Scene
    env: int
    root: MovingFrame
    scratch: Scratch
    body_pairs: wp.array[BodyPair]  # for self-collision
    left_out: wp.array[wp.vec2i]  # pairs of spheres that are not checked


@wp.struct
class Joints:
    """Joint values and velocities of a robot, (n_joints,) each."""

    q: wp.array[wp.float64]
    v: wp.array[wp.float64]
    wanted: wp.array[wp.float64]  # velocities at the end of the step
    next_q: wp.array[wp.float64]  # at the end of the step
    next_v: wp.array[wp.float64]


@wp.func
def limits_of(rules: GuardRules, joint: int) -> vec4d:
    """Largest velocity and acceleration of a joint, its lowest and its highest value."""
    return wp.array(ptr=rules.limits, shape=(rules.n_joints,), dtype=vec4d)[joint]


@wp.func
def error_of(rules: GuardRules, joint: int) -> wp.float64:
    """How far a joint may be from its value."""
    return wp.float64(wp.array(ptr=rules.errors, shape=(rules.n_joints,), dtype=wp.float32)[joint])


@wp.func
def stopping_time(velocities: wp.array[wp.float64], rules: GuardRules) -> wp.float64:
    """How long all joints brake, as hard as the slowest one can [s]."""
    longest = wp.float64(0.0)
    for j in range(rules.n_joints):
        longest = wp.max(longest, wp.abs(velocities[j]) / limits_of(rules, j)[1])
    return longest


@wp.func
def speed_to_stop(distance: wp.float64, acceleration: wp.float64, dt: wp.float64) -> wp.float64:
    """The speed v from which a joint stops within a distance, in steps: v² / (2 a) + v dt."""
    return acceleration * (wp.sqrt(dt * dt + wp.float64(2.0) * distance / acceleration) - dt)


@wp.func
def write_asked(joints: Joints, command: wp.array[wp.float64], rules: GuardRules):
    """Writes the velocities that a command asks for: towards values all joints arrive together."""
    longest = wp.float64(0.0)
    wanted = joints.wanted
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        wanted[j] = wp.clamp(command[j], -limits[0], limits[0])
        if rules.is_position != 0:
            goal = wp.clamp(command[j], limits[2], limits[3])
            wanted[j] = goal - joints.q[j] - HALF * rules.dt * joints.v[j]
            distance = wp.abs(wanted[j])
            fastest = wp.min(limits[0], speed_to_stop(distance, limits[1], rules.dt))
            if distance > ZERO and fastest > ZERO:
                longest = wp.max(longest, distance / fastest)
    if rules.is_position != 0 and longest > ZERO:
        for j in range(rules.n_joints):
            wanted[j] = wanted[j] / longest


@wp.func
def limit_asked(joints: Joints, rules: GuardRules):
    """Makes of velocities asked for those that joints can have at the end of the step.

    No faster than that braking ends within the joints' limits, and as near to what was asked as
    accelerations allow, along the straight line from the present velocities.
    """
    wanted = joints.wanted
    stops = wp.max(stopping_time(wanted, rules), stopping_time(joints.v, rules))
    way = HALF * (stops + rules.dt) + rules.latency
    share = wp.float64(1.0)
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        at = joints.q[j] + HALF * rules.dt * joints.v[j]
        lowest = -wp.max(at - limits[2], ZERO) / way
        highest = wp.max(limits[3] - at, ZERO) / way
        wanted[j] = wp.clamp(wanted[j], lowest, highest)
        change = wp.abs(wanted[j] - joints.v[j])
        if change > limits[1] * rules.dt:
            share = wp.min(share, limits[1] * rules.dt / change)
    for j in range(rules.n_joints):
        wanted[j] = joints.v[j] + share * (wanted[j] - joints.v[j])


@wp.func
def write_braking(
    points: wp.array2d[wp.float32],
    first: int,
    q: wp.array[wp.float64],
    v: wp.array[wp.float64],
    rules: GuardRules,
) -> bool:
    """Writes the control points of a braking; returns whether it ends within the joints' limits.

    A joint beyond its limit may not go farther beyond.
    """
    way = rules.latency + HALF * stopping_time(v, rules)
    is_within = bool(True)
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        end = q[j] + way * v[j]
        points[first, j] = float(q[j])
        points[first + 1, j] = float(end)
        points[first + 2, j] = float(end)
        is_within = is_within and end >= wp.min(limits[2], q[j]) and end <= wp.max(limits[3], q[j])
    return is_within


@wp.func
def latest(timing: Timing, s: float) -> float:
    """The latest moment at which a robot that still moves is at s of a piece [s].

    At a constant speed for a part of the latency and then braking, it is there the later the
    shorter that part is.
    """
    beyond = 2.0 * timing.latency * s * (2.0 - s) - timing.duration * (1.0 - s) * (1.0 - s)
    if timing.latency > 0.0:  # a difference: by more than its rounding
        beyond += ROUNDING * (timing.duration + 2.0 * timing.latency)
    time = timing.duration + 0.5 * beyond
    if beyond < 0.0:
        time = timing.duration - wp.sqrt(-timing.duration * beyond)
    return LATER * (timing.begin + time)


@wp.func
def piece_of(guarded: Guarded, first: int, rules: GuardRules) -> Segment:
    """A piece of degree 2 by its first control point."""
    return Segment(
        guarded.robot, guarded.scratch.points, first, 2, guarded.scratch.frames, rules.errors
    )


@compiled_once
def proof_of(
    guarded: Guarded, segment: Segment, timing: Timing, tolerance: float, at_end: bool, most: int
) -> int:
    """Evaluations that prove a piece free; negative where it is not proven.

    Args:
        guarded: the robot.
        segment: the piece.
        timing: when the robot is where on it.
        tolerance: of the clearance at configurations [m].
        at_end: look at the end alone.
        most: evaluations.
    """
    slack = write_root(segment, guarded.root)
    if not wp.isfinite(slack):
        return NO_PROOF
    search = parts_of_segment(first_level(segment), everything(), 0)
    while not search.is_done:
        if search.evaluations >= most:
            return NO_DECISION
        middle = outward_middle_of(search)
        half = half_of(search)
        if at_end:
            middle = 1.0
            half = 0.0
        write_frames(segment, middle, half)
        interval = interval_around(middle, half, slack, DISTANCE_ROUNDING, tolerance)
        if timing.speed > 0.0:
            near = latest(timing, middle)
            far = latest(timing, wp.min(middle + half, 1.0))
            interval.closing = timing.speed * wp.vec2(near, far)
        bodies = search.bodies[search.level]
        pairs = search.pairs[search.level]
        # fmt: off
        found = open_parts(
            segment, interval, guarded.scene, guarded.env, guarded.body_pairs, guarded.left_out,
            bodies, pairs, guarded.scratch.balls,
        )
        # fmt: on
        is_open = found.bodies != NONE or found.pairs != NONE
        if found.is_hit or (at_end and is_open):
            return NO_PROOF
        search = next_interval(search, found.bodies, found.pairs)
        if at_end:
            return 1
        if search.is_exhausted:
            return NO_DECISION
    return search.evaluations


@wp.func
def braking_proof(
    guarded: Guarded,
    rules: GuardRules,
    first: int,
    begin: wp.float64,
    stops: wp.float64,
    floor: float,
    most: int,
) -> int:
    """As `proof_of`, of a braking: its end keeps the floor, and it is free on the way there."""
    piece = piece_of(guarded, first, rules)
    late = rules.latency
    timing = Timing(float(begin + late), float(stops), float(late), rules.speed)
    ended = proof_of(guarded, piece, timing, floor, True, most)
    if ended < 0:
        return ended
    way = proof_of(guarded, piece, timing, 0.5 * floor, False, most - ended)
    return wp.where(way < 0, way, way + ended)


@wp.func
def step_proof(
    guarded: Guarded, rules: GuardRules, first: int, stops: wp.float64, floor: float, most: int
) -> int:
    """As `proof_of`, of a step and the braking after it, whose control points are written."""
    used = braking_proof(guarded, rules, first + BRAKING, rules.dt, stops, floor, most)
    if used < 0:
        return used
    timing = Timing(float(rules.latency), float(rules.dt), 0.0, rules.speed)
    piece = piece_of(guarded, first, rules)
    way = proof_of(guarded, piece, timing, 0.5 * floor, False, most - used)
    return wp.where(way < 0, way, way + used)


@wp.func
def kept_floor(guarded: Guarded, joints: Joints, rules: GuardRules) -> float:
    """The largest floor with which braking at once is proven free; 0 if it is with none."""
    first = N_POINTS + BRAKING
    write_braking(guarded.scratch.points, first, joints.q, joints.v, rules)
    stops = stopping_time(joints.v, rules)
    floor = rules.tolerance
    while floor >= rules.least:
        most = rules.max_evaluations
        if braking_proof(guarded, rules, first, ZERO, stops, floor, most) >= 0:
            return floor
        floor *= 0.5
    return 0.0


@wp.func
def higher_floor(guarded: Guarded, joints: Joints, rules: GuardRules, floor: float) -> float:
    """Twice the floor, up to the tolerance, where the end of the braking keeps it."""
    if floor >= rules.tolerance:
        return floor
    first = N_POINTS + BRAKING
    write_braking(guarded.scratch.points, first, joints.q, joints.v, rules)
    late = float(rules.dt + rules.latency)
    timing = Timing(late, float(stopping_time(joints.v, rules)), float(rules.latency), rules.speed)
    higher = wp.min(2.0 * floor, rules.tolerance)
    found = proof_of(guarded, piece_of(guarded, first, rules), timing, higher, True, 1)
    return wp.where(found < 0, floor, higher)


@wp.func
def write_step(
    points: wp.array2d[wp.float32],
    first: int,
    share: wp.float64,
    joints: Joints,
    rules: GuardRules,
) -> bool:
    """Writes a step and its braking; returns whether this ends within the joints' limits.

    Args:
        points: control points, to write.
        first: the first of them.
        share: of the change of velocities, from those of braking to those that are wanted.
        joints: what is known of them; the end of the step is written.
        rules: of the guard.
    """
    stops = stopping_time(joints.v, rules)
    left = wp.float64(0.0)
    if stops > rules.dt:
        left = wp.float64(1.0) - rules.dt / stops
    next_q = joints.next_q
    next_v = joints.next_v
    for j in range(rules.n_joints):
        q = joints.q[j]
        v = joints.v[j]
        next_v[j] = left * v + share * (joints.wanted[j] - left * v)
        next_q[j] = q + HALF * rules.dt * (v + next_v[j])
        points[first, j] = float(q)
        points[first + 1, j] = float(q + HALF * rules.dt * v)
    return write_braking(points, first + BRAKING, next_q, next_v, rules)


@wp.struct
class Choice:
    """What is passed on of a command."""

    share: wp.float64  # 0: nothing
    why: int  # not all
    left: int  # evaluations that were not used


@wp.func
def choose(guarded: Guarded, joints: Joints, rules: GuardRules, floor: float) -> Choice:
    """The largest of some parts of a change of velocities that is proven free."""
    why = int(PASSED)
    share = wp.float64(1.0)
    most = rules.max_evaluations
    for attempt in range(N_SHARES):
        first = wp.where(attempt == 0, 0, N_POINTS)
        refusal = int(BEYOND_LIMITS)
        if write_step(guarded.scratch.points, first, share, joints, rules):
            stops = stopping_time(joints.next_v, rules)
            used = step_proof(guarded, rules, first, stops, floor, most)
            if used >= 0:
                return Choice(share, why, most - used)
            refusal = wp.where(used == NO_DECISION, RAN_OUT, NOT_PROVEN)
            most = wp.where(used == NO_DECISION, 0, most)
        if attempt == 0:
            why = refusal
        share *= HALF
    return Choice(ZERO, why, most)


@wp.func
def accept(joints: Joints, rules: GuardRules):
    """Moves the state to the end of the step."""
    q = joints.q
    v = joints.v
    for j in range(rules.n_joints):
        q[j] = joints.next_q[j]
        v[j] = joints.next_v[j]


@wp.func
def brake(joints: Joints, rules: GuardRules):
    """Goes on with the braking for a step, or up to its end."""
    stops = stopping_time(joints.v, rules)
    q = joints.q
    v = joints.v
    if stops > ZERO:
        time = wp.min(rules.dt, stops)
        for j in range(rules.n_joints):
            q[j] = q[j] + v[j] * time * (wp.float64(1.0) - HALF * time / stops)
            v[j] = v[j] * (wp.float64(1.0) - time / stops)


@wp.func
def is_at(
    joints: Joints, measured: wp.array[wp.float64], time: wp.float64, rules: GuardRules
) -> bool:
    """Whether measured joint values are where velocities lead in a time, within the errors."""
    is_near = bool(True)
    for j in range(rules.n_joints):
        offset = measured[j] - joints.q[j] - time * joints.v[j]
        is_near = is_near and wp.abs(offset) <= error_of(rules, j)
    return is_near


@wp.func
def follow(joints: Joints, given: wp.array2d[wp.float64], rules: GuardRules) -> bool:
    """Moves the state to measured values; returns whether its braking is still the proven one.

    It is where the robot is as far as it was passed on, or on the way on which velocities may go on
    for the latency. Elsewhere the state begins anew.
    """
    measured = given[0]
    if is_at(joints, measured, ZERO, rules):
        return True
    q = joints.q
    v = joints.v
    along = wp.float64(0.0)
    size = wp.float64(0.0)
    for j in range(rules.n_joints):
        along += (measured[j] - q[j]) * v[j]
        size += v[j] * v[j]
    if size > ZERO:
        time = wp.clamp(along / size, ZERO, rules.latency)
        if is_at(joints, measured, time, rules):
            for j in range(rules.n_joints):
                q[j] = q[j] + time * v[j]
            return True
    for j in range(rules.n_joints):
        q[j] = measured[j]
        v[j] = given[1, j]
    return False


@wp.func
def are_finite(first: wp.array[wp.float64], second: wp.array[wp.float64], count: int) -> bool:
    """Whether all values of two arrays are."""
    total = wp.float64(0.0)
    for j in range(count):
        total += ZERO * (first[j] + second[j])
    return total == ZERO


@wp.kernel(**resident_warps(16, block=32))
def guard_step(
    # operands
    env_index: wp.array[wp.int32],  # (n_envs,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (n_envs or 1, 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],  # pairs of spheres that are not checked
    # parameters
    rules: GuardRules,
    call: wp.array[wp.int32],  # (2,) whether to prove the brakings again, and evaluations at most
    launch_offset: wp.vec2i,  # of this launch in the envs
    # outputs
    # (n_envs, 8, n_joints) measured values, velocities, command; `Joints`, q, v before and after
    state: wp.array3d[wp.float64],
    points: wp.array3d[wp.float32],  # (n_envs, 2 N_POINTS, n_joints) first what was asked for
    frames: wp.array2d[MovingFrame],  # (n_envs, 2 n_frames) scratch
    balls: wp.array2d[wp.vec4],  # (n_envs, n_bodies) scratch
    report: wp.array2d[wp.float64],  # (n_envs, 5), see below
):
    """One thread per env.

    Reports the floor, before and after [m], 0 where no braking is proven; the share passed on, the
    time to rest [s], why not all was passed on, and evaluations.
    """
    row, column = wp.tid()
    row += launch_offset[0] + column
    env = env_of_row(env_index, row)
    joints = Joints(state[row, 3], state[row, 4], state[row, 5], state[row, 6], state[row, 7])
    root = root_at(base, row, 0)
    scratch = Scratch(points[row], frames[row], balls[row])
    guarded = Guarded(robot_in_env(robot, env), scene, env, root, scratch, body_pairs, left_out)
    floor = float(report[row, 0])
    rules.max_evaluations = call[1]
    choice = Choice(ZERO, NOT_FINITE, call[1])
    command = state[row, 2]
    if are_finite(state[row, 0], state[row, 1], rules.n_joints) and is_env(scene, env):
        if not follow(joints, state[row], rules):
            floor = 0.0
        if are_finite(command, command, rules.n_joints):
            write_asked(joints, command, rules)
            limit_asked(joints, rules)
            tried = wp.where(floor > 0.0, floor, rules.tolerance)
            choice = choose(guarded, joints, rules, tried)
            if choice.share > ZERO:
                floor = tried
    if choice.share > ZERO:
        accept(joints, rules)
        floor = higher_floor(guarded, joints, rules, floor)
    else:
        if (floor == 0.0 or call[0] != 0) and is_env(scene, env):
            floor = kept_floor(guarded, joints, rules)
        brake(joints, rules)
    report[row, 0] = wp.float64(floor)
    report[row, 1] = choice.share
    report[row, 2] = stopping_time(joints.v, rules)
    report[row, 3] = wp.float64(choice.why)
    report[row, 4] = wp.float64(call[1] - choice.left)

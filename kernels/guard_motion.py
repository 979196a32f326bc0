"""How a guarded robot moves: what a command asks for within the limits, and how it brakes.

A braking brings all joints to rest at the same moment, in three phases that last as long for all of
them. Accelerations go to those of the braking, a joint's b, at a constant rate, stay there, and go
to zero. With velocities v and accelerations a at first, and phases of t1, t2 and t3,

    b = -(v + a t1 / 2) / (t1 / 2 + t2 + t3 / 2)

So velocities, accelerations and what is left of the phases determine what is left of a braking.

For any choice of 0 < p <= acceleration as the largest |b| of each joint, these phases keep all
limits: t3 is the largest p / jerk, t1 the largest change of acceleration by its jerk, and t2 so
long that no |b| is above p. p is the acceleration, or what a slow joint needs for its stop:
accelerations up to p and back to zero change velocities by p² / jerk.

Where jerk has no limit, t1 and t3 are zero: the braking is a straight line in joint space.
"""

import warp as wp

from warp_collision.kernels.compiling import compiled_once
from warp_collision.kernels.forward_kinematics import FramePose
from warp_collision.kernels.robot_motion import MovingFrame, Robot
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Scene

# Control points of a step and its braking, for four polynomials of degree 3.
N_POINTS = wp.constant(13)
# Behind those of two curves: the line of `guard_step`, and joint values of `guard_slide`.
LINE = wp.constant(26)
FOUND_AT = wp.constant(29)
N_ROWS = wp.constant(30)
ZERO = wp.constant(wp.float64(0.0))
HALF = wp.constant(wp.float64(0.5))
TWO = wp.constant(wp.float64(2.0))
THIRD = wp.constant(wp.float64(1.0 / 3.0))
# Limits of velocity, by more than their rounding.
ABOVE = wp.constant(wp.float64(1.0 + 1.0e-9))

vec3d = wp.types.vector(length=3, dtype=wp.float64)
vec5d = wp.types.vector(length=5, dtype=wp.float64)


@wp.struct
class GuardRules:
    """What holds for all steps; tables are given by their pointers."""

    # To (n_joints,) vec5d: velocity, acceleration, jerk, lowest and highest value.
    limits: wp.uint64
    errors: wp.uint64  # to (n_joints,) float32, how far a joint may be from its value
    speeds: wp.uint64  # to float32, of each slot's obstacle as a share of the fastest; 0: all alike
    poses: wp.uint64  # to (n_envs, n_frames) FramePose, scratch
    near: wp.uint64  # to (n_envs, N_NEAR, HEAD + n_joints) float32, scratch of `guard_slide`
    dt: wp.float64  # length of a step [s]
    latency: wp.float64  # for how long its last velocities may go on after it [s]
    speed: float  # of the fastest obstacles [m/s]
    tolerance: float  # the largest floor [m]
    least: float  # the smallest one [m]
    max_evaluations: int  # of a step
    is_position: int  # 1 where commands are joint values, 0 where they are velocities
    may_slide: int  # 1 where the part along surfaces of a command may be passed on
    degree: int  # of polynomials: 3 with limits of jerk, 2 without
    n_joints: int


@wp.struct
class Joints:
    """Joint values, velocities and accelerations of a robot, (n_joints,) each."""

    q: wp.array[wp.float64]
    v: wp.array[wp.float64]
    a: wp.array[wp.float64]  # 0 without limits of jerk
    wanted: wp.array[wp.float64]  # velocities at the end of the step; of jerks: accelerations
    next_q: wp.array[wp.float64]  # at the end of the step
    next_v: wp.array[wp.float64]
    next_a: wp.array[wp.float64]
    braked_v: wp.array[wp.float64]  # there, if the present braking goes on
    braked_a: wp.array[wp.float64]


@wp.struct
class Scratch:
    """What checks of a robot write."""

    points: wp.array2d[wp.float32]  # (N_ROWS, n_joints) control points of two curves
    frames: wp.array[MovingFrame]
    balls: wp.array[wp.vec4]
    poses: wp.array[FramePose]
    near: wp.array2d[wp.float32]  # (N_NEAR, HEAD + n_joints), see `guard_slide`


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


@wp.func
def limits_of(rules: GuardRules, joint: int) -> vec5d:
    """Largest velocity, acceleration and jerk of a joint, its lowest and its highest value."""
    return wp.array(ptr=rules.limits, shape=(rules.n_joints,), dtype=vec5d)[joint]


@wp.func
def error_of(rules: GuardRules, joint: int) -> wp.float64:
    """How far a joint may be from its value."""
    return wp.float64(wp.array(ptr=rules.errors, shape=(rules.n_joints,), dtype=wp.float32)[joint])


@wp.func
def total(phases: vec3d) -> wp.float64:
    """How long a braking takes [s]."""
    return phases[0] + phases[1] + phases[2]


# -- braking --------------------------------------------------------------------------------------


@wp.func
def peak_of(limits: vec5d, v: wp.float64, a: wp.float64) -> wp.float64:
    """The largest acceleration that a joint brakes with; 0 at rest."""
    speed = wp.abs(v) + HALF * a * a / limits[2]
    if speed == ZERO:
        return ZERO
    return wp.min(limits[1], wp.sqrt(limits[2] * speed))


@wp.func
def rise_of(
    v: wp.array[wp.float64], a: wp.array[wp.float64], rules: GuardRules, is_sure: bool
) -> wp.float64:
    """How long accelerations take to become those of a braking [s].

    Of an acceleration that brakes already only the rest counts, unless it would turn a joint round:
    then it is not sure which way the joint brakes.
    """
    longest = wp.float64(0.0)
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        size = wp.abs(a[j])
        change = size + peak_of(limits, v[j], a[j])
        if is_sure and a[j] * v[j] < ZERO:
            change = wp.max(size, change - TWO * size)
        longest = wp.max(longest, change / limits[2])
    return longest


@wp.func
def turns_round(
    v: wp.array[wp.float64], a: wp.array[wp.float64], rise: wp.float64, rules: GuardRules
) -> bool:
    """Whether what the first phase takes from a velocity is more than all of it."""
    found = bool(False)
    for j in range(rules.n_joints):
        found = found or v[j] * (v[j] + HALF * rise * a[j]) < ZERO
    return found


@wp.func
def straight_braking(v: wp.array[wp.float64], rules: GuardRules) -> wp.float64:
    """How long a braking lasts without limits of jerk [s]."""
    longest = wp.float64(0.0)
    for j in range(rules.n_joints):
        longest = wp.max(longest, wp.abs(v[j]) / limits_of(rules, j)[1])
    return longest


@compiled_once
def braking_phases(v: wp.array[wp.float64], a: wp.array[wp.float64], rules: GuardRules) -> vec3d:
    """How long the phases of a braking last, as hard as the slowest joint can [s]."""
    if rules.degree == 2:
        return vec3d(ZERO, straight_braking(v, rules), ZERO)
    rise = rise_of(v, a, rules, True)
    if turns_round(v, a, rise, rules):
        rise = rise_of(v, a, rules, False)
    fall = wp.float64(0.0)
    hold = wp.float64(0.0)
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        peak = peak_of(limits, v[j], a[j])
        fall = wp.max(fall, peak / limits[2])
        if peak > ZERO:
            hold = wp.max(hold, wp.abs(v[j] + HALF * rise * a[j]) / peak)
    return vec3d(rise, wp.max(hold - HALF * (rise + fall), ZERO), fall)


@wp.func
def braking_acceleration(v: wp.float64, a: wp.float64, phases: vec3d) -> wp.float64:
    """The acceleration of a joint in the second phase of a braking."""
    time = HALF * (phases[0] + phases[2]) + phases[1]
    if time > ZERO:
        return -(v + HALF * phases[0] * a) / time
    return ZERO


@wp.func
def after(at: vec3d, end: wp.float64, phase: wp.float64, time: wp.float64) -> vec3d:
    """Value, velocity and acceleration of a joint some time after the begin of a phase.

    Args:
        at: value, velocity and acceleration at its begin.
        end: acceleration at its end.
        phase: how long it lasts [s].
        time: since its begin; no more than that.
    """
    if time <= ZERO:
        return at
    change = (end - at[2]) * time / phase
    v = at[1] + time * (at[2] + HALF * change)
    q = at[0] + time * (at[1] + HALF * time * (at[2] + THIRD * change))
    return vec3d(q, v, at[2] + change)


@wp.func
def braked(at: vec3d, phases: vec3d, time: wp.float64) -> vec3d:
    """Value, velocity and acceleration of a joint after some time of its braking."""
    b = braking_acceleration(at[1], at[2], phases)
    first = wp.min(time, phases[0])
    at = after(at, b, phases[0], first)
    second = wp.min(time - first, phases[1])
    at = after(vec3d(at[0], at[1], wp.where(second > ZERO, b, at[2])), b, phases[1], second)
    return after(at, ZERO, phases[2], wp.min(time - first - second, phases[2]))


@wp.func
def left_of(phases: vec3d, time: wp.float64) -> vec3d:
    """What is left of the phases of a braking after some time."""
    first = wp.min(time, phases[0])
    second = wp.min(time - first, phases[1])
    third = wp.min(time - first - second, phases[2])
    return phases - vec3d(first, second, third)


@wp.func
def brake(joints: Joints, phases: vec3d, rules: GuardRules) -> vec3d:
    """Goes on with the braking for a step, or up to its end; returns what is left of it."""
    left = left_of(phases, rules.dt)
    is_over = total(left) <= ZERO
    q = joints.q
    v = joints.v
    a = joints.a
    for j in range(rules.n_joints):
        at = braked(vec3d(q[j], v[j], a[j]), phases, rules.dt)
        q[j] = at[0]
        v[j] = wp.where(is_over, ZERO, at[1])
        a[j] = wp.where(is_over or rules.degree == 2, ZERO, at[2])
    return left


# -- control points -------------------------------------------------------------------------------


@wp.func
def write_piece(
    points: wp.array2d[wp.float32],
    first: int,
    joint: int,
    at: vec3d,
    end: wp.float64,
    time: wp.float64,
) -> vec3d:
    """Writes four control points of a joint on a phase; returns value, velocity, acceleration.

    Args:
        points: control points.
        first: the first of them.
        joint: which one.
        at: value, velocity and acceleration at its begin.
        end: acceleration at its end.
        time: that it lasts [s].
    """
    at_end = after(at, end, time, time)
    points[first, joint] = float(at[0])
    points[first + 1, joint] = float(at[0] + THIRD * time * at[1])
    points[first + 2, joint] = float(at_end[0] - THIRD * time * at_end[1])
    points[first + 3, joint] = float(at_end[0])
    return at_end


@wp.func
def is_within(value: wp.float64, q: wp.float64, limits: vec5d) -> bool:
    """Whether a joint is within its limits, or no farther beyond than at q."""
    return value >= wp.min(limits[3], q) and value <= wp.max(limits[4], q)


@wp.func
def piece_within(at: vec3d, at_end: vec3d, time: wp.float64, q: wp.float64, limits: vec5d) -> bool:
    """Whether the control points of `write_piece` are; a joint may turn round on a braking."""
    second = at[0] + THIRD * time * at[1]
    third = at_end[0] - THIRD * time * at_end[1]
    found = is_within(second, q, limits) and is_within(third, q, limits)
    return found and is_within(at_end[0], q, limits)


@wp.func
def keeps_velocity(at: vec3d, end: wp.float64, time: wp.float64, limits: vec5d) -> bool:
    """Whether a joint that goes on to accelerate for a while keeps its limit, see `after`."""
    fastest = wp.abs(at[1])
    if at[2] * end < ZERO:
        fastest = wp.abs(at[1] + HALF * time * at[2] * at[2] / (at[2] - end))
    return fastest <= ABOVE * wp.max(limits[0], wp.abs(at[1]))


@compiled_once
def write_braking(
    points: wp.array2d[wp.float32],
    first: int,
    q: wp.array[wp.float64],
    v: wp.array[wp.float64],
    a: wp.array[wp.float64],
    phases: vec3d,
    rules: GuardRules,
) -> bool:
    """Writes the control points of a braking; returns whether it keeps limits of the joints.

    Those of their values, of which a joint beyond its limit may not go farther beyond, and while
    accelerations change those of the velocities. Without limits of jerk the velocities may go on
    for the latency before it: the line is then longer, and what is proven is the line.
    """
    way = rules.latency + HALF * phases[1]
    keeps = bool(True)
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        if rules.degree == 2:
            end = q[j] + way * v[j]
            points[first, j] = float(q[j])
            points[first + 1, j] = float(end)
            points[first + 2, j] = float(end)
            keeps = keeps and is_within(end, q[j], limits)
        else:
            b = braking_acceleration(v[j], a[j], phases)
            at = vec3d(q[j], v[j], a[j])
            keeps = keeps and keeps_velocity(at, b, phases[0], limits)
            for phase in range(3):
                if phase > 0:
                    at = vec3d(at[0], at[1], b)
                end = wp.where(phase == 2, ZERO, b)
                at_end = write_piece(points, first + 3 * phase, j, at, end, phases[phase])
                keeps = keeps and piece_within(at, at_end, phases[phase], q[j], limits)
                at = at_end
    return keeps


@wp.func
def write_braked(joints: Joints, phases: vec3d, rules: GuardRules):
    """Writes velocities and accelerations that braking has at the end of the step."""
    braked_v = joints.braked_v
    braked_a = joints.braked_a
    for j in range(rules.n_joints):
        if rules.degree == 2:  # on a straight line
            b = braking_acceleration(joints.v[j], ZERO, phases)
            braked_v[j] = joints.v[j] + wp.min(rules.dt, phases[1]) * b
        else:
            at = braked(vec3d(joints.q[j], joints.v[j], joints.a[j]), phases, rules.dt)
            braked_v[j] = at[1]
            braked_a[j] = at[2]


@wp.func
def write_step(
    points: wp.array2d[wp.float32],
    first: int,
    share: wp.float64,
    joints: Joints,
    rules: GuardRules,
) -> vec3d:
    """Writes a step; returns the phases of the braking after it.

    Args:
        points: control points, to write.
        first: the first of them.
        share: of the change of velocities, or accelerations, from those of braking to those wanted.
        joints: what is known of them, also by `write_braked`; the end of the step is written.
        rules: of the guard.
    """
    dt = rules.dt
    next_q = joints.next_q
    next_v = joints.next_v
    next_a = joints.next_a
    for j in range(rules.n_joints):
        at = vec3d(joints.q[j], joints.v[j], joints.a[j])
        if rules.degree == 2:
            next_v[j] = joints.braked_v[j] + share * (joints.wanted[j] - joints.braked_v[j])
            next_q[j] = at[0] + HALF * dt * (at[1] + next_v[j])
            next_a[j] = ZERO
            points[first, j] = float(at[0])
            points[first + 1, j] = float(at[0] + HALF * dt * at[1])
            points[first + 2, j] = float(next_q[j])
        else:
            end = joints.braked_a[j] + share * (joints.wanted[j] - joints.braked_a[j])
            at = write_piece(points, first, j, at, end, dt)
            next_q[j] = at[0]
            next_v[j] = at[1]
            next_a[j] = end
    return braking_phases(next_v, next_a, rules)


@wp.func
def step_keeps_limits(joints: Joints, rules: GuardRules) -> bool:
    """Whether velocities and values of joints keep their limits on all of a step."""
    found = bool(True)
    for j in range(rules.n_joints):
        at = vec3d(joints.q[j], joints.v[j], joints.a[j])
        limits = limits_of(rules, j)
        end = wp.abs(joints.next_v[j])
        found = found and end <= ABOVE * wp.max(limits[0], wp.abs(at[1]))
        found = found and keeps_velocity(at, joints.next_a[j], rules.dt, limits)
        at_end = vec3d(joints.next_q[j], joints.next_v[j], joints.next_a[j])
        found = found and piece_within(at, at_end, rules.dt, at[0], limits)
    return found


@wp.func
def accept(joints: Joints, rules: GuardRules):
    """Moves the state to the end of the step."""
    q = joints.q
    v = joints.v
    a = joints.a
    for j in range(rules.n_joints):
        q[j] = joints.next_q[j]
        v[j] = joints.next_v[j]
        a[j] = joints.next_a[j]


# -- what a command asks for ----------------------------------------------------------------------


@wp.func
def speed_to_stop(distance: wp.float64, acceleration: wp.float64, dt: wp.float64) -> wp.float64:
    """The speed v from which a joint stops within a distance, in steps: v² / (2 a) + v dt."""
    if not wp.isfinite(acceleration):
        return wp.where(dt > ZERO, distance / dt, acceleration)
    return acceleration * (wp.sqrt(dt * dt + TWO * distance / acceleration) - dt)


@wp.func
def fastest_towards(distance: wp.float64, limits: vec5d, rules: GuardRules) -> wp.float64:
    """The speed at which a joint may be at a distance from where it is to stop.

    Limits of jerk delay a braking by less than twice the time that accelerations take. So late it
    begins there, with half the acceleration.
    """
    acceleration = limits[1]
    late = rules.dt
    if rules.degree != 2:
        late += TWO * acceleration / limits[2]
        acceleration *= HALF
    return wp.min(limits[0], speed_to_stop(distance, acceleration, late))


@wp.func
def write_asked(joints: Joints, command: wp.array[wp.float64], rules: GuardRules):
    """Writes the velocities that a command asks for: towards values all joints arrive together."""
    longest = wp.float64(0.0)
    wanted = joints.wanted
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        wanted[j] = wp.clamp(command[j], -limits[0], limits[0])
        if rules.is_position != 0:
            goal = wp.clamp(command[j], limits[3], limits[4])
            wanted[j] = goal - joints.q[j] - HALF * rules.dt * joints.v[j]
            distance = wp.abs(wanted[j])
            fastest = fastest_towards(distance, limits, rules)
            if distance > ZERO and fastest > ZERO:
                longest = wp.max(longest, distance / fastest)
    if rules.is_position != 0 and longest > ZERO:
        for j in range(rules.n_joints):
            wanted[j] = wanted[j] / longest


@wp.func
def slowest_stop(v: wp.array[wp.float64], rules: GuardRules) -> wp.float64:
    """How long a braking from velocities takes, or longer [s]."""
    longest = wp.float64(0.0)
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        time = wp.abs(v[j]) / limits[1]
        if rules.degree != 2:  # both ends of it, and as late as `fastest_towards` says
            time = TWO * time + wp.float64(4.0) * limits[1] / limits[2]
        longest = wp.max(longest, time)
    return longest


@wp.func
def limit_asked(joints: Joints, rules: GuardRules):
    """Makes of velocities asked for those that joints can have at the end of the step.

    No faster than that braking ends within the joints' limits, and as near to what was asked as
    accelerations allow, along the straight line from the present velocities. With limits of jerk
    they become the accelerations at the end of the step, from which velocities settle there.
    """
    wanted = joints.wanted
    way = HALF * wp.max(slowest_stop(wanted, rules), slowest_stop(joints.v, rules))
    way += HALF * rules.dt + rules.latency
    longest = wp.float64(0.0)
    for j in range(rules.n_joints):
        limits = limits_of(rules, j)
        at = joints.q[j] + HALF * rules.dt * joints.v[j]
        lowest = -wp.max(at - limits[3], ZERO) / way
        highest = wp.max(limits[4] - at, ZERO) / way
        wanted[j] = wp.clamp(wanted[j], lowest, highest)
        change = wp.abs(wanted[j] - joints.v[j])
        fastest = limits[1]
        if rules.degree != 2:  # half of the jerk is left for the braking
            fastest = wp.min(fastest, speed_to_stop(change, HALF * limits[2], rules.dt))
        if change > ZERO and fastest > ZERO:
            longest = wp.max(longest, change / fastest)
    if rules.degree != 2:
        write_accelerations(joints, longest, rules)
        return
    share = wp.float64(1.0)
    if longest > rules.dt:
        share = rules.dt / longest
    for j in range(rules.n_joints):
        wanted[j] = joints.v[j] + share * (wanted[j] - joints.v[j])


@wp.func
def write_accelerations(joints: Joints, time: wp.float64, rules: GuardRules):
    """Makes of velocities asked for the accelerations at the end of the step.

    Those that reach them in a time, as near as jerks allow, along the straight line from the
    present ones.
    """
    wanted = joints.wanted
    share = wp.float64(1.0)
    for j in range(rules.n_joints):
        wanted[j] = wp.where(time > ZERO, (wanted[j] - joints.v[j]) / time, ZERO)
        change = wp.abs(wanted[j] - joints.a[j])
        most = limits_of(rules, j)[2] * rules.dt
        if change > most:
            share = wp.min(share, most / change)
    for j in range(rules.n_joints):
        wanted[j] = joints.a[j] + share * (wanted[j] - joints.a[j])


# -- where a robot is ------------------------------------------------------------------------------


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
def follow(joints: Joints, given: wp.array2d[wp.float64], rules: GuardRules) -> wp.float64:
    """Moves the state to measured values; returns for how long velocities went on before [s].

    Up to the latency the robot is on the proven line, and so is the present braking. Elsewhere the
    state begins anew, with -1.
    """
    measured = given[0]
    if is_at(joints, measured, ZERO, rules):
        return ZERO
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
            return time
    a = joints.a
    for j in range(rules.n_joints):
        q[j] = measured[j]
        v[j] = given[1, j]
        a[j] = ZERO
    return wp.float64(-1.0)


@wp.func
def are_finite(first: wp.array[wp.float64], second: wp.array[wp.float64], count: int) -> bool:
    """Whether all values of two arrays are."""
    total = wp.float64(0.0)
    for j in range(count):
        total += ZERO * (first[j] + second[j])
    return total == ZERO

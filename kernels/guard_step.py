"""One step of a guard: a command is passed on where it and the braking after it are proven free.

The state of a robot is its joint values q, velocities v, and with limits of jerk accelerations,
see `guard_motion`. Without such limits velocities may go on for a while, the latency, before a
braking: its line then ends at q + v (latency + T / 2). What is proven is the line, so that a robot
may brake earlier, too.

A step changes velocities, or accelerations, at constant rates, so its joints are polynomials of
degree 2 or 3; with the braking it is a curve of two or four such pieces. If it is not proven,
smaller parts of the change are tried, towards what the braking has at the end of the step, then
what of it goes along the nearest surfaces, see `guard_slide`. Otherwise the robot goes on with its
braking, which was proven before.

Most motions are proven on one interval. A polynomial is in the hull of its control points. These
are near the line from the first to the last one, and all that is as near to the line is convex. So
the line is checked, with the distance of control points as an error of the joints, see
`tracking_deviation`: bodies that keep the floor there keep it on the step and its braking. Only for
the others are the pieces looked at.

A command that leads into something is mostly refused for what refused the last one, the suspects:
where the braking ends, they are looked at before all else.

At rest a robot keeps a clearance, the floor, of the tolerance or, where it begins nearer, half of
it, a quarter, and so on. Motions are proven with half the floor as tolerance: so every one that
leads away from where it rests can be proven.
"""

import warp as wp

from warp_collision.kernels.bisection import (
    ALL,
    NONE,
    everything,
    half_of,
    masks,
    next_interval,
    outward_middle_of,
    parts_of_segment,
)
from warp_collision.kernels.body_check import DISTANCE_ROUNDING, interval_around
from warp_collision.kernels.compiling import FEW_THREADS, compiled_once, resident_warps
from warp_collision.kernels.forward_kinematics import FramePose
from warp_collision.kernels.guard_check import open_parts
from warp_collision.kernels.guard_motion import (
    HALF,
    LINE,
    N_POINTS,
    ZERO,
    Guarded,
    GuardRules,
    Joints,
    Scratch,
    accept,
    are_finite,
    brake,
    braking_phases,
    error_of,
    follow,
    limit_asked,
    step_keeps_limits,
    total,
    vec3d,
    write_asked,
    write_braked,
    write_braking,
    write_step,
)
from warp_collision.kernels.guard_slide import N_NEAR, NEARBY, rows_at, turn_along
from warp_collision.kernels.joint_path_hit import first_level
from warp_collision.kernels.nearest_of_links import HEAD
from warp_collision.kernels.robot_motion import (
    EPSILON,
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

# Parts of a change of velocities that are tried, each half of the one before.
N_SHARES = wp.constant(3)
# As many less of what goes along surfaces.
N_SLIDES = wp.constant(2)
# Checks at a configuration take its clearance as larger by its rounding: twice the slack for pairs
# of links. Where a robot rests it is taken as smaller by that. The slack grows with the length of
# the piece that ends there, so what leads away from there later is proven, too.
BEYOND_ROUNDING = wp.constant(4.0)
# Of times, by more than their rounding.
LATER = wp.constant(1.0 + 1.0e-6)
ROUNDING = wp.constant(1.0e-6)
# Beside the floor, how far a step and its braking may be from their line to be proven by it.
NEAR_LINE = wp.constant(0.1)
NO_PROOF = wp.constant(-1)
NO_DECISION = wp.constant(-2)
SUSPECTS = wp.constant(-2)  # the part of a proof that looks at them


@wp.struct
class Timing:
    """When a robot is at a position of a piece, at the latest."""

    begin: float  # at its begin, from now [s]
    duration: float  # of its motion, if nothing goes on [s]
    latency: float  # for how long its first velocity may go on [s]
    speed: float  # of the fastest obstacles [m/s]


@wp.func
def latest(timing: Timing, way: float) -> float:
    """The latest moment at which a robot that still moves is at a part of the way of a piece [s].

    At a constant speed for a part of the latency and then braking, it is there the later the
    shorter that part is. Without a latency it is at s of the time at s (2 - s) of the way.
    """
    beyond = 2.0 * timing.latency * way - timing.duration * (1.0 - way)
    if timing.latency > 0.0:  # a difference: by more than its rounding
        beyond += ROUNDING * (timing.duration + 2.0 * timing.latency)
    time = timing.duration + 0.5 * beyond
    if beyond < 0.0:
        time = timing.duration - wp.sqrt(-timing.duration * beyond)
    return LATER * (timing.begin + time)


@wp.func
def way_of(segment: Segment, s: float) -> float:
    """What `latest` takes at s of a piece: straight ones are brakings, others go by time."""
    return wp.where(segment.degree == 1, s, s * (2.0 - s))


@wp.struct
class Piece:
    """A piece of a motion, and how it is proven."""

    segment: Segment
    timing: Timing  # when the robot is where on it
    tolerance: float  # the clearance that is kept [m]
    place: float  # look at the configuration there alone; negative: at all
    is_around: bool  # at once, from this place on; what is not proven is asked about again


@wp.struct
class Proof:
    """What a proof has found out."""

    used: int  # evaluations; negative where it is not proven
    bodies: wp.uint64  # that are left to prove, or for which it is not proven
    pairs: wp.uint64


@wp.func
def piece_proof(guarded: Guarded, piece: Piece, proof: Proof, most: int) -> Proof:
    """Proves a piece free, for bodies and pairs that are left.

    Args:
        guarded: the robot.
        piece: with its segment.
        proof: so far.
        most: evaluations, with those before.
    """
    segment = piece.segment
    slack = write_root(segment, guarded.root)
    tolerance = piece.tolerance
    at_place = piece.place >= 0.0
    if at_place:
        tolerance += BEYOND_ROUNDING * slack
    if not wp.isfinite(tolerance + slack):
        return Proof(NO_PROOF, proof.bodies, proof.pairs)
    level = int(0)
    if not at_place:
        level = first_level(segment)
    search = parts_of_segment(level, everything(), 0)
    search.bodies = masks(proof.bodies)
    search.pairs = masks(proof.pairs)
    while not search.is_done:
        if proof.used + search.evaluations >= most:
            return Proof(NO_DECISION, proof.bodies, proof.pairs)
        middle = outward_middle_of(search)
        half = half_of(search)
        if at_place:
            middle = piece.place
            half = wp.where(piece.is_around, 0.5, 0.0)
        write_frames(segment, middle, half)
        interval = interval_around(middle, half, slack, DISTANCE_ROUNDING, tolerance)
        if piece.is_around:  # whatever proves it free keeps the tolerance
            interval.deviation = tolerance
            interval.kept = 0.0
        if piece.timing.speed > 0.0:
            near = latest(piece.timing, way_of(segment, middle))
            far = latest(piece.timing, way_of(segment, wp.min(middle + half, 1.0)))
            interval.closing = piece.timing.speed * wp.vec2(near, far)
        # fmt: off
        found = open_parts(
            segment, interval, guarded.scene, guarded.env, guarded.body_pairs, guarded.left_out,
            search.bodies[search.level], search.pairs[search.level], piece.is_around,
            guarded.scratch.balls,
        )
        # fmt: on
        if piece.is_around:
            return Proof(proof.used + 1, found.bodies, found.pairs)
        is_open = found.bodies != NONE or found.pairs != NONE
        if found.is_hit or (at_place and is_open):
            return Proof(NO_PROOF, found.bodies, found.pairs)
        search = next_interval(search, found.bodies, found.pairs)
        search.is_done = search.is_done or at_place
        if search.is_exhausted:
            return Proof(NO_DECISION, proof.bodies, proof.pairs)
    proof.used += search.evaluations
    return proof


@wp.func
def parts_of(rules: GuardRules) -> int:
    """Parts of a braking, see `proof_of`."""
    return wp.where(rules.degree == 2, 2, 4)


@wp.func_native("return (wp::uint64)values.data;")
def address_of(values: wp.array[wp.float32]) -> wp.uint64:
    """Pointer to the first of some values."""
    ...


@wp.func
def write_line(guarded: Guarded, rules: GuardRules, first: int) -> float:
    """Writes the line from the begin of a step to the end of its braking, and how far both are off.

    A control point is as far from it as from the point at its share of the way. The points from
    LINE on are how far joints are from it, with their errors, and its ends.

    Args:
        guarded: the robot.
        rules: of the guard.
        first: of the control points.

    Returns:
        A bound of how far any of its points is from the line [m], but for sliding joints.
    """
    points = guarded.scratch.points
    last = first + rules.degree * parts_of(rules)
    size = float(0.0)
    for j in range(rules.n_joints):
        way = points[last, j] - points[first, j]
        size += way * way
        points[LINE, j] = 0.0
        points[LINE + 1, j] = points[first, j]
        points[LINE + 2, j] = points[last, j]
    for i in range(first + 1, last):
        share = float(0.0)
        if size > 0.0:
            for j in range(rules.n_joints):
                way = points[LINE + 2, j] - points[LINE + 1, j]
                share += (points[i, j] - points[LINE + 1, j]) * (way / size)
        share = wp.clamp(share, 0.0, 1.0)
        for j in range(rules.n_joints):
            off = (
                points[i, j]
                - points[LINE + 1, j]
                - share * (points[LINE + 2, j] - points[LINE + 1, j])
            )
            points[LINE, j] = wp.max(points[LINE, j], wp.abs(off))
    total_off = float(0.0)
    for j in range(rules.n_joints):
        total_off += points[LINE, j]
        rounding = EPSILON * (wp.abs(points[LINE + 1, j]) + wp.abs(points[LINE + 2, j]))
        points[LINE, j] = LATER * (float(error_of(rules, j)) + points[LINE, j]) + rounding
    return total_off * guarded.robot.reach


@wp.func
def piece_of(
    guarded: Guarded,
    rules: GuardRules,
    first: int,
    begin: wp.float64,
    phases: vec3d,
    floor: float,
    part: int,
) -> Piece:
    """One of the parts of a braking and the step before it, see `proof_of`."""
    late = float(rules.latency)
    n_pieces = parts_of(rules) - 1
    number = wp.where(part == 0, n_pieces, part)  # of the piece, from 1
    piece = Piece()
    piece.place = wp.where(part == 0, 1.0, -1.0)
    piece.tolerance = wp.where(part == 0, floor, 0.5 * floor)
    # fmt: off
    piece.segment = Segment(
        guarded.robot, guarded.scratch.points, first + rules.degree * number, rules.degree,
        guarded.scratch.frames, rules.errors, rules.speeds,
    )
    # fmt: on
    if part > n_pieces:  # the step
        piece.segment.first = first
        piece.timing = Timing(late, float(rules.dt), 0.0, rules.speed)
        return piece
    if n_pieces == 1:  # a straight line, see `write_braking`
        piece.segment.degree = 1
    phase = wp.where(n_pieces == 1, 1, number - 1)
    since = wp.float64(begin)
    for earlier in range(phase):
        since += phases[earlier]
    piece.timing = Timing(float(since) + late, float(phases[phase]), late, rules.speed)
    return piece


@wp.func
def on_line(guarded: Guarded, segment: Segment) -> Segment:
    """The segment of `write_line`."""
    segment.first = LINE + 1
    segment.degree = 1
    segment.errors = address_of(guarded.scratch.points[LINE])
    return segment


@wp.func
def all_at_once(guarded: Guarded, piece: Piece) -> Piece:
    """All of the line, at once, while obstacles move for as long as the robot may.

    Args:
        guarded: the robot.
        piece: the end of the braking, with the rounding of which the line is looked at.
    """
    piece.tolerance += BEYOND_ROUNDING * write_root(piece.segment, guarded.root)
    piece.segment = on_line(guarded, piece.segment)
    piece.timing = Timing(latest(piece.timing, 1.0), 0.0, 0.0, piece.timing.speed)
    piece.is_around = True
    piece.place = 0.5
    return piece


@compiled_once
def proof_of(
    guarded: Guarded,
    rules: GuardRules,
    first: int,
    begin: wp.float64,
    phases: vec3d,
    floor: float,
    most: int,
    n_parts: int,
    suspects: Proof,
) -> Proof:
    """The proof of a braking, and of the step before it.

    Its parts are the end of the braking, which keeps the floor, the braking's pieces on the way
    there, and the step. With a step there is one before: all of it at once, by the line from its
    begin to that end. What keeps the floor there keeps it on all parts. All are proven at one
    place, which is compiled once.

    Args:
        guarded: the robot.
        rules: of the guard.
        first: control point at which the step begins; behind its own are those of the braking.
        begin: of the braking, from now [s].
        phases: of the braking.
        floor: clearance that is to be kept at rest [m].
        most: evaluations.
        n_parts: how many of the parts are proven, see `parts_of`.
        suspects: bodies and pairs that are looked at first where it ends.
    """
    proof = Proof(0, ALL, ALL)
    is_line = bool(False)
    part = wp.where(n_parts > parts_of(rules), -1, 0)
    if suspects.bodies != NONE or suspects.pairs != NONE:
        proof = suspects
        part = SUSPECTS
    while part < n_parts and proof.used >= 0 and (proof.bodies != NONE or proof.pairs != NONE):
        piece = piece_of(guarded, rules, first, begin, phases, floor, wp.max(part, 0))
        if part == -1:
            is_line = write_line(guarded, rules, first) <= NEAR_LINE * floor
            is_line = is_line and rules.degree == 2 and rules.speed == 0.0
            piece = all_at_once(guarded, piece)
        if part == 1 and is_line:  # its intervals prove the step, too
            piece.segment = on_line(guarded, piece.segment)
            n_parts = 2
        if part <= 0 or piece.timing.duration > 0.0 or is_line:
            proof = piece_proof(guarded, piece, proof, most)
        part += 1
        if part == SUSPECTS + 1 and proof.used >= 0:
            proof = Proof(proof.used, ALL, ALL)
    return proof


@wp.func
def write_present_braking(guarded: Guarded, joints: Joints, phases: vec3d, rules: GuardRules):
    """Writes the braking of the state behind a step from N_POINTS on."""
    first = N_POINTS + rules.degree
    points = guarded.scratch.points
    write_braking(points, first, joints.q, joints.v, joints.a, phases, rules)


@wp.func
def kept_floor(guarded: Guarded, joints: Joints, phases: vec3d, rules: GuardRules) -> float:
    """The largest floor with which braking at once is proven free; 0 if it is with none."""
    write_present_braking(guarded, joints, phases, rules)
    most = rules.max_evaluations
    floor = rules.tolerance
    while floor >= rules.least:
        n_parts = parts_of(rules)
        found = proof_of(guarded, rules, N_POINTS, ZERO, phases, floor, most, n_parts, Proof())
        if found.used >= 0:
            return floor
        floor *= 0.5
    return 0.0


@wp.func
def higher_floor(
    guarded: Guarded, joints: Joints, phases: vec3d, rules: GuardRules, floor: float
) -> float:
    """Twice the floor, up to the tolerance, where the end of the braking keeps it."""
    if floor >= rules.tolerance:
        return floor
    write_present_braking(guarded, joints, phases, rules)
    higher = wp.min(2.0 * floor, rules.tolerance)
    found = proof_of(guarded, rules, N_POINTS, rules.dt, phases, higher, 1, 1, Proof())
    return wp.where(found.used < 0, floor, higher)


@wp.struct
class Choice:
    """What is passed on of a command."""

    share: wp.float64  # 0: nothing
    why: int  # not all
    left: int  # evaluations that were not used
    phases: vec3d  # of the braking after it
    slides: bool  # along surfaces
    suspects: Proof  # for which it was not proven last
    rows: int  # of what is near, see `rows_at`; negative: they are not known


@wp.func
def tried(
    guarded: Guarded,
    joints: Joints,
    rules: GuardRules,
    floor: float,
    first: int,
    share: wp.float64,
    choice: Choice,
) -> Choice:
    """Tries a part of a change, and passes it on if it is proven free.

    Args:
        guarded: the robot.
        joints: its state; the end of the step is written.
        rules: of the guard.
        floor: clearance that it is to keep at rest [m].
        first: where its control points are written.
        share: of the change.
        choice: so far: nothing.
    """
    points = guarded.scratch.points
    after = write_step(points, first, share, joints, rules)
    braking = first + rules.degree
    end = joints.next_q
    refusal = int(BEYOND_LIMITS)
    keeps = write_braking(points, braking, end, joints.next_v, joints.next_a, after, rules)
    if keeps and step_keeps_limits(joints, rules):
        # fmt: off
        found = proof_of(
            guarded, rules, first, rules.dt, after, floor, choice.left, parts_of(rules) + 1,
            choice.suspects,
        )
        # fmt: on
        if found.used >= 0:
            if choice.why == PASSED:
                choice.suspects = Proof()  # what refuses nothing is looked at no more
            choice.share = share
            choice.left -= found.used
            choice.phases = after
            return choice
        refusal = int(NOT_PROVEN)
        choice.suspects = Proof(0, found.bodies, found.pairs)
        if found.used == NO_DECISION:
            refusal = int(RAN_OUT)
            choice.left = 0
            choice.suspects = Proof()  # next time all evaluations are for the proof
    if choice.why == PASSED:
        choice.why = refusal
    return choice


@wp.func
def floor_to_keep(floor: float, rules: GuardRules) -> float:
    """The floor of the braking that goes on, or the tolerance where none is proven [m]."""
    return wp.where(floor > 0.0, floor, rules.tolerance)


@wp.func
def choose(
    guarded: Guarded,
    joints: Joints,
    command: wp.array[wp.float64],
    phases: vec3d,
    rules: GuardRules,
    floor: float,
    choice: Choice,
) -> Choice:
    """The largest of some parts of what a command asks for that is proven free."""
    floor = floor_to_keep(floor, rules)
    write_braked(joints, phases, rules)
    write_asked(joints, command, rules)
    limit_asked(joints, rules)
    choice.why = PASSED
    share = wp.float64(1.0)
    attempt = int(0)
    while attempt < N_SHARES + N_SLIDES:  # a loop that is not unrolled
        if attempt == N_SHARES:
            if rules.may_slide == 0 or choice.why != NOT_PROVEN or choice.left == 0:
                return choice
            write_present_braking(guarded, joints, phases, rules)
            end = N_POINTS + wp.where(rules.degree == 2, 4, 12)
            write_asked(joints, command, rules)
            time = float(rules.dt + rules.latency + total(phases))
            within = 2.0 * floor + NEARBY
            closing = rules.speed * time
            choice.rows = rows_at(guarded, rules, end, within, closing, choice.rows)
            if not turn_along(guarded, joints, rules, choice.rows, floor):
                return choice
            limit_asked(joints, rules)
            choice.slides = True
            share = wp.float64(1.0)
        first = wp.where(attempt == 0, 0, N_POINTS)
        choice = tried(guarded, joints, rules, floor, first, share, choice)
        if choice.share > ZERO:
            return choice
        share *= HALF
        attempt += 1
    return choice


@wp.func
def scratch_of(
    points: wp.array3d[wp.float32],
    frames: wp.array2d[MovingFrame],
    balls: wp.array2d[wp.vec4],
    rules: GuardRules,
    n_frames: int,
    row: int,
) -> Scratch:
    """What the checks of a robot write."""
    n = points.shape[0]
    poses = wp.array(ptr=rules.poses, shape=(n, n_frames), dtype=FramePose)
    near = wp.array(ptr=rules.near, shape=(n, N_NEAR, HEAD + rules.n_joints), dtype=wp.float32)
    return Scratch(points[row], frames[row], balls[row], poses[row], near[row])


@wp.func
def joints_of(state: wp.array2d[wp.float64]) -> Joints:
    """The state of a robot, behind what is given."""
    # fmt: off
    return Joints(
        state[3], state[4], state[5], state[6], state[7], state[8], state[9], state[10], state[11]
    )
    # fmt: on


@wp.func
def write_report(
    report: wp.array[wp.float64],
    floor: float,
    choice: Choice,
    phases: vec3d,
    evaluations: int,
    late: wp.float64,
):
    """Writes what is said of a step, see `guard_step`."""
    report[0] = wp.float64(floor)
    report[1] = choice.share
    report[2] = total(phases)
    report[3] = wp.float64(choice.why)
    report[4] = wp.float64(evaluations)
    report[5] = wp.float64(wp.where(choice.slides and choice.share > ZERO, 1, 0))
    for phase in range(3):
        report[6 + phase] = phases[phase]
    report[9] = late
    report[10] = wp.cast(choice.suspects.bodies, wp.float64)
    report[11] = wp.cast(choice.suspects.pairs, wp.float64)
    report[12] = wp.float64(choice.rows + 1)


@wp.func
def no_choice(report: wp.array[wp.float64], phases: vec3d, call: wp.array[wp.int32]) -> Choice:
    """Nothing yet, with what the last step has left in its report."""
    suspects = Proof(0, wp.cast(report[10], wp.uint64), wp.cast(report[11], wp.uint64))
    rows = wp.where(call[0] != 0, 0, int(report[12])) - 1
    return Choice(ZERO, NOT_FINITE, call[1], phases, False, suspects, rows)


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
    state: wp.array3d[wp.float64],  # (n_envs, 12, n_joints) measured motion, command; `Joints`
    points: wp.array3d[wp.float32],  # (n_envs, N_ROWS, n_joints) first what was asked for
    frames: wp.array2d[MovingFrame],  # (n_envs, 2 n_frames) scratch
    balls: wp.array2d[wp.vec4],  # (n_envs, n_bodies) scratch
    report: wp.array2d[wp.float64],  # (n_envs, 13), see below
):
    """One thread per env.

    Reports the floor, before and after [m], 0 where no braking is proven; the share passed on, time
    to rest [s], why not all was, evaluations, whether along surfaces, phases of the braking, for
    how long velocities went on since it was proven [s], suspects, and 1 + surfaces that are near.
    """
    row, column = wp.tid()
    row += launch_offset[0] + column
    env = env_of_row(env_index, row)
    of_row = state[row]
    joints = joints_of(of_row)
    root = root_at(base, row, 0)
    scratch = scratch_of(points, frames, balls, rules, robot.n_frames, row)
    guarded = Guarded(robot_in_env(robot, env), scene, env, root, scratch, body_pairs, left_out)
    floor = float(report[row, 0])
    phases = vec3d(report[row, 6], report[row, 7], report[row, 8])
    rules.max_evaluations = call[1]
    choice = no_choice(report[row], phases, call)
    command = of_row[2]
    late = report[row, 9]
    if are_finite(of_row[0], of_row[1], rules.n_joints) and is_env(scene, env):
        by = follow(joints, of_row, rules)
        late += by
        if by < ZERO:
            floor = 0.0
            phases = braking_phases(joints.v, joints.a, rules)
        if are_finite(command, command, rules.n_joints):
            choice = choose(guarded, joints, command, phases, rules, floor, choice)
    if choice.share > ZERO:
        accept(joints, rules)
        late = ZERO
        phases = choice.phases
        floor = higher_floor(guarded, joints, phases, rules, floor_to_keep(floor, rules))
    else:
        # The steps of a braking may together be as late as its line is longer.
        if (floor == 0.0 or call[0] != 0 or late > rules.latency) and is_env(scene, env):
            late = ZERO
            floor = kept_floor(guarded, joints, phases, rules)
        phases = brake(joints, phases, rules)
    write_report(report[row], floor, choice, phases, call[1] - choice.left, late)

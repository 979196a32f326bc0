"""Trees of configurations with the proofs of their motions: many rounds of RRT-Connect at once.

One thread has a problem. It does what the kernels of `trees` and the check between them do in a
launch for each step, and finds the same paths. It leaves out what does not change them: proofs of
motions whose ends are in collision, and lines between the trees that make longer paths than one
that is free.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import vec1i
from warp_collision.kernels.lanes.configurations import behind, free_in_env, lanes_of, row_from
from warp_collision.kernels.lanes.frames import place_lanes, write_pose
from warp_collision.kernels.lanes.paths import (
    SEGMENTS,
    VECTOR_BYTES,
    Motions,
    check_segments,
    motions_of,
)
from warp_collision.kernels.lanes.vectors import LANES
from warp_collision.kernels.robot_motion import MovingFrame, Robot, robot_in_env, root_at
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Scene, env_of_row
from warp_collision.kernels.trees import (
    Trees,
    connect,
    count_of,
    extend,
    join,
    length_along,
    length_to,
    smaller_tree,
    vertices_of,
    write_joints,
)

wp.set_module_options(OPTIONS)


@wp.struct
class Rounds:
    """How many rounds problems get, and random configurations in each of these."""

    begin: int  # round that they begin with
    end: int  # round before which they end
    first: int  # configurations in the first round
    more: int  # in each further round, ...
    most: int  # ... up to so many
    parts: int  # of a line, at most
    n_bytes: int  # of their steps, see `scratch_of_steps`


@wp.struct
class Steps:
    """What a problem's round writes, of up to m random configurations.

    The first three are of motions, and then of the parts of lines that are looked at.
    """

    motions: wp.array3d[wp.float32]  # (m, 2, n_joints)
    motion_hit: wp.array2d[wp.bool]  # (m, 1)
    near: wp.array[wp.int32]  # (m,) nodes that they begin at; how many parts
    open: wp.array[wp.int32]  # (m,) lines that are looked at
    order: wp.array[wp.int32]  # (m,) lines, those of short paths first
    lengths: wp.array[wp.float32]  # (m,) of the paths by lines
    lines: wp.array3d[wp.float32]  # (m, most_parts + 1, n_joints)
    line_hit: wp.array2d[wp.bool]  # (m, most_parts)
    parts: wp.array[wp.int32]  # (m,) of each line
    links: wp.array[wp.vec2i]  # (m,) see `join`
    memory: wp.uint64  # to the motions
    flags: wp.uint64  # to the hits of motions


def scratch_of_steps(most: int, parts: int, n_joints: int) -> int:
    """Bytes of `Steps`, rounded up to vectors, so that what follows is aligned."""
    n_bytes = most * (4 * (2 + parts + 1) * n_joints + 4 * 7 + 1 + parts)
    return -(-n_bytes // VECTOR_BYTES) * VECTOR_BYTES


@wp.func
def steps_of(scratch: wp.uint64, rounds: Rounds, n_joints: int) -> Steps:
    """Steps in scratch memory."""
    m = rounds.most
    parts = rounds.parts
    steps = Steps()
    steps.memory = scratch
    steps.motions = wp.array(ptr=scratch, shape=(m, 2, n_joints), dtype=wp.float32)
    at = behind(scratch, 4 * 2 * m * n_joints)
    steps.lines = wp.array(ptr=at, shape=(m, parts + 1, n_joints), dtype=wp.float32)
    at = behind(at, 4 * m * (parts + 1) * n_joints)
    steps.near = wp.array(ptr=at, shape=(m,), dtype=wp.int32)
    steps.open = wp.array(ptr=behind(at, 4 * m), shape=(m,), dtype=wp.int32)
    steps.parts = wp.array(ptr=behind(at, 8 * m), shape=(m,), dtype=wp.int32)
    steps.links = wp.array(ptr=behind(at, 12 * m), shape=(m,), dtype=wp.vec2i)
    steps.order = wp.array(ptr=behind(at, 20 * m), shape=(m,), dtype=wp.int32)
    steps.lengths = wp.array(ptr=behind(at, 24 * m), shape=(m,), dtype=wp.float32)
    steps.flags = behind(at, 28 * m)
    steps.motion_hit = wp.array(ptr=steps.flags, shape=(m, 1), dtype=wp.bool)
    steps.line_hit = wp.array(ptr=behind(steps.flags, m), shape=(m, parts), dtype=wp.bool)
    return steps


@wp.func
def check_all(
    motions: Motions,
    joints: wp.array3d[wp.float32],
    count: int,
    n_segments: wp.array[wp.int32],
    hit: wp.array2d[wp.bool],
):
    """Decides the segments of the first paths of some."""
    motions.joints = joints
    motions.count = hit.shape[1]
    motions.degree = 1
    n_all = count * hit.shape[1]
    begin = int(0)
    while begin < n_all:
        end = wp.min(begin + SEGMENTS, n_all)
        check_segments(motions, begin, end, n_segments, hit)
        begin = end


@wp.func
def keep_free_ends(
    motions: Motions, joints: wp.array3d[wp.float32], count: int, n_segments: wp.array[wp.int32]
):
    """Leaves no segments of those paths whose first one ends in collision: no proof finds it free.

    Most motions that are not free end like that, which is known sooner than by a proof.
    """
    robot = motions.robot
    n_joints = joints.shape[2]
    lanes = lanes_of(robot, motions.lanes.frames)
    lanes.n_joints = joints.shape[1] * n_joints  # from one end to the next
    root = root_at(motions.base, motions.owner, 0)
    begin = int(0)
    while begin < count:
        lanes.count = wp.min(LANES, count - begin)
        lanes.joints = joints.ptr + wp.uint64(4 * (begin * lanes.n_joints + n_joints))
        for lane in range(lanes.count):
            write_pose(lanes, lane, robot.n_frames, root.frame_pose)
        every = (wp.uint32(1) << wp.uint32(lanes.count)) - wp.uint32(1)
        placed = place_lanes(robot, lanes)
        free = free_in_env(
            robot, placed, motions.scene, motions.env, motions.body_pairs, motions.left_out, every
        )
        for lane in range(lanes.count):
            if free & (wp.uint32(1) << wp.uint32(lane)) == wp.uint32(0):
                n_segments[begin + lane] = 0
        begin += LANES


@wp.func
def order_lines(trees: Trees, problem: int, steps: Steps, count: int) -> int:
    """Lists the lines by the lengths of the paths that they make; returns how many there are."""
    tree = smaller_tree(trees, problem)
    n_lines = int(0)
    for sample in range(count):
        parts = steps.parts[sample]
        if parts > 0:
            link = steps.links[sample]
            beyond = length_along(steps.lines[sample], parts, length_to(trees, tree ^ 1, link[1]))
            length = length_to(trees, tree, link[0]) + beyond
            steps.lengths[sample] = length
            at = int(n_lines)
            while at > 0 and steps.lengths[steps.order[at - 1]] > length:
                steps.order[at] = steps.order[at - 1]
                at -= 1
            steps.order[at] = sample
            n_lines += 1
    return n_lines


@wp.func
def open_lines(steps: Steps, begin: int, end: int, done: int) -> int:
    """Of some lines lists those that have more parts, and are free so far; returns how many."""
    n_open = int(0)
    for i in range(begin, end):
        sample = steps.order[i]
        is_open = steps.parts[sample] > done
        if done > 0 and is_open:
            is_open = not steps.line_hit[sample, done - 1]
        if is_open:
            steps.open[n_open] = sample
            n_open += 1
    return n_open


@wp.func
def check_some(motions: Motions, steps: Steps, begin: int, end: int) -> float:
    """Looks at the parts of some lines up to the first hit of each.

    Returns the length of the shortest path by one that is free.
    """
    n_joints = steps.lines.shape[2]
    done = int(0)
    n_open = open_lines(steps, begin, end, done)
    shortest = float(wp.inf)
    while n_open > 0:
        width = wp.max(SEGMENTS / n_open, 1)
        # At most twice as many configurations, and as many parts, as there are motions.
        joints = wp.array(ptr=steps.memory, shape=(n_open, width + 1, n_joints), dtype=wp.float32)
        hit = wp.array(ptr=steps.flags, shape=(n_open, width), dtype=wp.bool)
        for i in range(n_open):
            line = steps.lines[steps.open[i]]
            steps.near[i] = steps.parts[steps.open[i]] - done
            for k in range(wp.min(width, steps.near[i]) + 1):
                write_joints(line[done + k], joints[i, k])
        keep_free_ends(motions, joints, n_open, steps.near)
        check_all(motions, joints, n_open, steps.near, hit)
        for i in range(n_open):
            sample = steps.open[i]
            left = steps.parts[sample] - done
            last = wp.min(width, left)
            for k in range(last):
                steps.line_hit[sample, done + k] = hit[i, k]
            if last == left and not hit[i, last - 1]:
                shortest = wp.min(shortest, steps.lengths[sample])
        done += width
        n_open = open_lines(steps, begin, end, done)
    return shortest


@wp.func
def check_lines(motions: Motions, steps: Steps, n_lines: int):
    """Looks at lines, some at a time, until the others make longer paths than a free one."""
    shortest = float(wp.inf)
    begin = int(0)
    while begin < n_lines:
        end = wp.min(begin + SEGMENTS, n_lines)
        if steps.lengths[steps.order[begin]] < shortest:
            shortest = wp.min(shortest, check_some(motions, steps, begin, end))
        else:  # trees that have met grow no more
            for i in range(begin, end):
                steps.line_hit[steps.order[i], 0] = True
        begin = end


@wp.func
def grow_once(
    motions: Motions,
    trees: Trees,
    problem: int,
    seed: int,
    count: int,
    low: wp.array[wp.float32],
    high: wp.array[wp.float32],
    steps: Steps,
) -> wp.vec2i:
    """A round with some random configurations; returns where the trees meet, or -1."""
    for sample in range(count):
        state = wp.rand_init(seed, problem * count + sample)
        steps.near[sample] = extend(trees, problem, state, low, high, steps.motions[sample])
        steps.parts[sample] = 1
    keep_free_ends(motions, steps.motions, count, steps.parts)
    check_all(motions, steps.motions, count, steps.parts, steps.motion_hit)
    new = count_of(trees, smaller_tree(trees, problem))
    for sample in range(count):
        steps.parts[sample] = 0
        if not steps.motion_hit[sample, 0]:
            motion = steps.motions[sample]
            line = connect(trees, problem, new, steps.near[sample], motion, steps.lines[sample])
            steps.parts[sample] = line[0]
            steps.links[sample] = wp.vec2i(new, line[1])
            new += 1
    check_lines(motions, steps, order_lines(trees, problem, steps, count))
    return join(trees, problem, count, steps.lines, steps.parts, steps.links, steps.line_hit)


@wp.func
def grow(
    motions: Motions,
    trees: Trees,
    problem: int,
    rounds: Rounds,
    low: wp.array[wp.float32],
    high: wp.array[wp.float32],
    steps: Steps,
) -> wp.vec3i:
    """Rounds until the trees meet, or some; returns where they meet, or -1, and the next round."""
    met = wp.vec2i(-1, -1)
    round = int(rounds.begin)
    while met[0] < 0 and round < rounds.end:
        count = wp.min(rounds.most, rounds.first + rounds.more * round)
        met = grow_once(motions, trees, problem, trees.seed + round, count, low, high, steps)
        round += 1
    return wp.vec3i(met[0], met[1], round)


@wp.func
def write_state(trees: Trees, problem: int, found: wp.vec3i, state: wp.array[wp.int32]):
    """Writes what `grow` has found of a problem."""
    n = trees.n_trees / 2
    state[5 * n + problem] = found[2]
    if found[0] >= 0:
        state[2 * n + 2 * problem] = found[0]
        state[2 * n + 2 * problem + 1] = found[1]
        state[4 * n + problem] = vertices_of(trees, problem, wp.vec2i(found[0], found[1]))


@wp.func
def motions_of_problem(
    problem: int,
    scratch: wp.uint64,
    n_joints: int,
    env_index: wp.array[wp.int32],
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    tolerance: wp.array[wp.float32],
) -> Motions:
    """What motions of a problem are checked by, in scratch memory."""
    env = env_of_row(env_index, problem)
    motions = motions_of(robot, scratch, n_joints)
    motions.robot = robot_in_env(robot, env)
    motions.env = env
    motions.owner = problem
    motions.scene = scene
    motions.base = base
    motions.body_pairs = body_pairs
    motions.left_out = left_out
    motions.tolerance = tolerance
    return motions


@wp.kernel
def grow_trees(
    # operands
    low: wp.array2d[wp.float32],  # (n, n_joints) range of the random joint values [rad or m]
    high: wp.array2d[wp.float32],
    trees: Trees,
    rounds: Rounds,
    env_index: wp.array[wp.int32],  # (n,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (n or 1, 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    tolerance: wp.array[wp.float32],  # (n or 1,) [m]
    launch_offset: vec1i,  # of this launch in the problems
    # outputs
    scratch: wp.array2d[wp.uint8],  # (n, `scratch_of_steps` and `scratch_of_paths`)
    state: wp.array[wp.int32],  # (6 n,) of the trees: where they meet, vertices, rounds
):
    """One thread per problem, from its round until its trees meet, or for some rounds."""
    problem = wp.tid()
    problem += launch_offset[0]
    own = row_from(scratch, problem)
    steps = steps_of(own, rounds, trees.n_joints)
    check = motions_of_problem(
        problem, behind(own, rounds.n_bytes), trees.n_joints,
        env_index, scene, robot, base, body_pairs, left_out, tolerance,
    )  # fmt: skip
    found = grow(check, trees, problem, rounds, low[problem], high[problem], steps)
    write_state(trees, problem, found, state)

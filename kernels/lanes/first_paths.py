"""First paths of problems in one launch: ends, straight lines, rounds of trees, and proofs.

One thread has a problem. It does what `with_margins`, `Search` and `BestPaths` of the planner do
with several launches, for problems without peculiarities, and finds the same paths.
"""

import warp as wp

from warp_collision.kernels.best_paths import cost_of_path, resample
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import vec1i
from warp_collision.kernels.lanes.configurations import behind, row_from
from warp_collision.kernels.lanes.growing_trees import (
    Rounds,
    Steps,
    check_all,
    grow,
    motions_of_problem,
    steps_of,
    write_state,
)
from warp_collision.kernels.lanes.paths import SEGMENTS, Motions, check_segments
from warp_collision.kernels.robot_motion import MovingFrame, Robot
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Scene
from warp_collision.kernels.trees import (
    Trees,
    node_of,
    put_node,
    vertices_of,
    write_joints,
    write_path,
)

wp.set_module_options(OPTIONS)

# Rounds of a problem that is left to the planner's other functions.
PECULIAR = wp.constant(-1)


@wp.struct
class Asked:
    """What is asked for n problems, given by pointers as a `Scene`."""

    start: wp.uint64  # to (n, n_joints) float32 [rad or m]
    goal: wp.uint64
    joint_range: wp.uint64  # to (2, n_joints) float32: of usual ends, and of random joint values
    body_pairs: wp.uint64  # to (n_pairs,) BodyPair that are to keep the preferred clearance
    left_out: wp.uint64  # to (n_left_out,) vec2i
    clearance: wp.uint64  # to (1,) float32, preferred [m]
    pace: wp.uint64  # to (n_pace,) float32, see `cost_of`
    n_pairs: int
    n_left_out: int
    n_pace: int


@wp.struct
class Paths:
    """What is found of n problems, given by pointers."""

    joints: wp.uint64  # to (n, horizon, n_joints) float32
    costs: wp.uint64  # to (n,) float32; infinite where there is no path
    far: wp.uint64  # to (n,) bool, whether paths keep the preferred clearance
    flags: wp.uint64  # to (n, 2, horizon - 1) bool, scratch: what is nearer, and not proven free
    n_problems: int
    horizon: int


@wp.func
def row_at(pointer: wp.uint64, row: int, n: int) -> wp.array[wp.float32]:
    """A row of n numbers."""
    return wp.array(ptr=pointer + wp.uint64(row * 4 * n), shape=(n,), dtype=wp.float32)


@wp.func
def is_within(
    joints: wp.array[wp.float32], low: wp.array[wp.float32], high: wp.array[wp.float32]
) -> bool:
    """Whether joint values are within a range; false for NaN."""
    within = bool(True)
    for v in range(joints.shape[0]):
        within = within and joints[v] >= low[v] and joints[v] <= high[v]
    return within


@wp.func
def check_ends(
    motions: Motions, steps: Steps, start: wp.array[wp.float32], goal: wp.array[wp.float32]
) -> wp.vec2i:
    """Whether both ends are proven free, and whether the line between them is."""
    for i in range(3):
        steps.parts[i] = 1
        for v in range(start.shape[0]):
            steps.motions[i, 0, v] = wp.where(i == 1, goal[v], start[v])
            steps.motions[i, 1, v] = wp.where(i == 0, start[v], goal[v])
    check_all(motions, steps.motions, 3, steps.parts, steps.motion_hit)
    are_free = not (steps.motion_hit[0, 0] or steps.motion_hit[1, 0])
    return wp.vec2i(int(are_free), int(not steps.motion_hit[2, 0]))


@wp.func
def plant(trees: Trees, problem: int, start: wp.array[wp.float32], goal: wp.array[wp.float32]):
    """Writes the roots of a problem's trees."""
    counts = wp.array(ptr=trees.counts, shape=(trees.n_trees,), dtype=wp.int32)
    put_node(trees, 2 * problem, 0, 0, 0.0, start)
    put_node(trees, 2 * problem + 1, 0, 0, 0.0, goal)
    counts[2 * problem] = 1
    counts[2 * problem + 1] = 1


@wp.func
def find_near(
    motions: Motions, joints: wp.array3d[wp.float32], asked: Asked, near: wp.array2d[wp.bool]
):
    """Which segments of a path (1, horizon, n_joints) may be nearer than is preferred."""
    every = wp.array(ptr=wp.uint64(0), shape=(0,), dtype=wp.int32)
    motions.body_pairs = wp.array(ptr=asked.body_pairs, shape=(asked.n_pairs,), dtype=BodyPair)
    motions.left_out = wp.array(ptr=asked.left_out, shape=(asked.n_left_out,), dtype=wp.vec2i)
    motions.tolerance = wp.array(ptr=asked.clearance, shape=(1,), dtype=wp.float32)
    check_all(motions, joints, 1, every, near)


@wp.func
def find_hits(
    motions: Motions,
    joints: wp.array3d[wp.float32],
    near: wp.array2d[wp.bool],
    hit: wp.array2d[wp.bool],
):
    """Which of the near segments of a path are not proven free."""
    every = wp.array(ptr=wp.uint64(0), shape=(0,), dtype=wp.int32)
    motions.joints = joints
    motions.count = near.shape[1]
    motions.degree = 1
    begin = int(0)
    while begin < near.shape[1]:
        end = int(begin)
        while end < wp.min(begin + SEGMENTS, near.shape[1]) and near[0, end]:
            end += 1
        if end > begin:
            check_segments(motions, begin, end, every, hit)
        begin = wp.max(end, begin + 1)


@wp.func
def polyline(
    trees: Trees, problem: int, met: wp.vec2i, n: int, steps: Steps
) -> wp.array2d[wp.float32]:
    """The path of n vertices where trees have met, or the line between roots that have not."""
    path = wp.array(ptr=steps.memory, shape=(n, trees.n_joints), dtype=wp.float32)
    if met[0] >= 0:
        write_path(trees, problem, met, path)
    else:
        write_joints(node_of(trees, 2 * problem, 0), path[0])
        write_joints(node_of(trees, 2 * problem + 1, 0), path[1])
    return path


@wp.func
def write_first(
    motions: Motions,
    trees: Trees,
    problem: int,
    met: wp.vec2i,
    steps: Steps,
    asked: Asked,
    paths: Paths,
) -> float:
    """Writes the path where trees have met, or the straight line, and whether it is far.

    Returns its cost, infinite where it is not proven free or has too many vertices.
    """
    horizon = paths.horizon
    n = int(2)
    if met[0] >= 0:
        n = vertices_of(trees, problem, met)
    if n > wp.min(horizon, steps.motions.shape[0]):
        return wp.inf
    size = wp.uint64(4 * horizon * trees.n_joints)
    at = paths.joints + wp.uint64(problem) * size
    path = wp.array(ptr=at, shape=(1, horizon, trees.n_joints), dtype=wp.float32)
    at = paths.flags + wp.uint64(2 * problem * (horizon - 1))
    flags = wp.array(ptr=at, shape=(2, 1, horizon - 1), dtype=wp.bool)
    resample(polyline(trees, problem, met, n, steps), steps.near, path[0])
    find_near(motions, path, asked, flags[0])
    find_hits(motions, path, flags[0], flags[1])
    is_far = bool(True)
    for i in range(horizon - 1):
        is_far = is_far and not flags[0, 0, i]
    far = wp.array(ptr=paths.far, shape=(paths.n_problems,), dtype=wp.bool)
    far[problem] = is_far
    pace = wp.array(ptr=asked.pace, shape=(asked.n_pace,), dtype=wp.float32)
    return cost_of_path(path[0], flags[0, 0], flags[1, 0], pace)


@wp.kernel
def first_paths(
    # operands
    asked: Asked,
    trees: Trees,  # without nodes
    rounds: Rounds,
    env_index: wp.array[wp.int32],  # (n,) or empty
    scene: Scene,
    robot: Robot,
    base: wp.array2d[MovingFrame],  # (n or 1, 1) of the root, or empty
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    tolerance: wp.array[wp.float32],  # (1,) [m]
    launch_offset: vec1i,  # of this launch in the problems
    # outputs
    scratch: wp.array2d[wp.uint8],  # see `grow_trees`
    state: wp.array[wp.int32],  # (6 n,) of the trees, see `grow_trees`; rounds or `PECULIAR`
    paths: Paths,
):
    """One thread per problem, until its trees meet or for some rounds."""
    problem = wp.tid()
    problem += launch_offset[0]
    own, n_joints = row_from(scratch, problem), trees.n_joints
    steps = steps_of(own, rounds, n_joints)
    motions = motions_of_problem(
        problem, behind(own, rounds.n_bytes), n_joints,
        env_index, scene, robot, base, body_pairs, left_out, tolerance,
    )  # fmt: skip
    start, goal = row_at(asked.start, problem, n_joints), row_at(asked.goal, problem, n_joints)
    low, high = row_at(asked.joint_range, 0, n_joints), row_at(asked.joint_range, 1, n_joints)
    costs = wp.array(ptr=paths.costs, shape=(paths.n_problems,), dtype=wp.float32)
    costs[problem] = wp.inf
    found = wp.vec3i(-1, -1, PECULIAR)
    if is_within(start, low, high) and is_within(goal, low, high):
        free = check_ends(motions, steps, start, goal)
        if free[0] != 0:
            found[2] = 0
            plant(trees, problem, start, goal)
            if free[1] == 0:
                found = grow(motions, trees, problem, rounds, low, high, steps)
            met = wp.vec2i(found[0], found[1])
            if met[0] >= 0 or free[1] != 0:
                costs[problem] = write_first(motions, trees, problem, met, steps, asked, paths)
                if wp.isinf(costs[problem]):
                    found[2] = PECULIAR
    write_state(trees, problem, found, state)

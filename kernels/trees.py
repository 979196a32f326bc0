"""Trees of configurations that grow towards each other: a round of RRT-Connect.

Between these kernels `joint_path_hit` checks the motions. Of each problem i, tree 2 i grows from
its start and tree 2 i + 1 from its goal.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import vec1i

wp.set_module_options(OPTIONS)

# Longest motion between a node and its parent [rad, prismatic: m].
RANGE = wp.constant(1.0)


@wp.struct
class Trees:
    """Two trees for each of n problems, given by pointers as a `Scene`, and what they grow by."""

    nodes: wp.uint64  # to (2 n, capacity, n_joints) float32 [rad or m]
    lengths: wp.uint64  # to (2 n, capacity) float32, from the root
    parents: wp.uint64  # to (2 n, capacity) int32
    counts: wp.uint64  # to (2 n,) int32, nodes
    n_trees: int
    capacity: int
    n_joints: int
    seed: int  # of the random configurations of a round


@wp.func
def count_of(trees: Trees, tree: int) -> int:
    """Nodes of a tree."""
    return wp.array(ptr=trees.counts, shape=(trees.n_trees,), dtype=wp.int32)[tree]


@wp.func
def smaller_tree(trees: Trees, problem: int) -> int:
    """The tree of a problem with fewer nodes, which is in the narrower space."""
    first = 2 * problem
    return wp.where(count_of(trees, first + 1) < count_of(trees, first), first + 1, first)


@wp.func
def node_of(trees: Trees, tree: int, node: int) -> wp.array[wp.float32]:
    """The joint values (n_joints,) of a node."""
    offset = wp.uint64(tree * trees.capacity + node) * wp.uint64(4 * trees.n_joints)
    return wp.array(ptr=trees.nodes + offset, shape=(trees.n_joints,), dtype=wp.float32)


@wp.func
def length_to(trees: Trees, tree: int, node: int) -> float:
    """Length of the branch from the root to a node."""
    offset = wp.uint64(tree * trees.capacity) * wp.uint64(4)
    return wp.array(ptr=trees.lengths + offset, shape=(node + 1,), dtype=wp.float32)[node]


@wp.func
def parent_of(trees: Trees, tree: int, node: int) -> int:
    """The node that a node was reached from; the root's is itself."""
    offset = wp.uint64(tree * trees.capacity) * wp.uint64(4)
    return wp.array(ptr=trees.parents + offset, shape=(node + 1,), dtype=wp.int32)[node]


@wp.func
def depth_of(trees: Trees, tree: int, node: int) -> int:
    """Number of motions between the root and a node."""
    depth = int(0)
    at = int(node)
    while at != 0:
        at = parent_of(trees, tree, at)
        depth += 1
    return depth


@wp.func
def put_node(
    trees: Trees, tree: int, node: int, parent: int, length: float, joints: wp.array[wp.float32]
):
    """Writes a node."""
    write_joints(joints, node_of(trees, tree, node))
    offset = wp.uint64(tree * trees.capacity) * wp.uint64(4)
    lengths = wp.array(ptr=trees.lengths + offset, shape=(node + 1,), dtype=wp.float32)
    parents = wp.array(ptr=trees.parents + offset, shape=(node + 1,), dtype=wp.int32)
    lengths[node] = length
    parents[node] = parent


@wp.func
def write_joints(joints: wp.array[wp.float32], result: wp.array[wp.float32]):
    """Copies joint values."""
    for v in range(joints.shape[0]):
        result[v] = joints[v]


@wp.func
def distance(first: wp.array[wp.float32], second: wp.array[wp.float32], n_joints: int) -> float:
    """Euclidean distance of two configurations."""
    total = float(0.0)
    for v in range(n_joints):
        offset = first[v] - second[v]
        total += offset * offset
    return wp.sqrt(total)


@wp.func
def nearest_node(trees: Trees, tree: int, joints: wp.array[wp.float32]) -> int:
    """The node of a tree that is nearest to a configuration."""
    nearest = int(0)
    least = distance(node_of(trees, tree, 0), joints, trees.n_joints)
    for node in range(1, count_of(trees, tree)):
        away = distance(node_of(trees, tree, node), joints, trees.n_joints)
        if away < least:
            least = away
            nearest = node
    return nearest


@wp.func
def extend(
    trees: Trees,
    problem: int,
    state: wp.uint32,
    low: wp.array[wp.float32],
    high: wp.array[wp.float32],
    motion: wp.array2d[wp.float32],
) -> int:
    """Writes a motion (2, n_joints) of the smaller tree towards a random target.

    Args:
        trees: the trees.
        problem: which problem.
        state: of the random numbers.
        low: range of the random joint values [rad or m].
        high: the same.
        motion: the motion.

    Returns:
        The node that it begins at.
    """
    target = motion[1]
    for v in range(trees.n_joints):
        target[v] = low[v] + wp.randf(state) * (high[v] - low[v])
    tree = smaller_tree(trees, problem)
    node = nearest_node(trees, tree, target)
    begin = node_of(trees, tree, node)
    scale = wp.min(RANGE / distance(begin, target, trees.n_joints), 1.0)
    for v in range(trees.n_joints):
        motion[0, v] = begin[v]
        target[v] = begin[v] + scale * (target[v] - begin[v])
    return node


@wp.func
def lead_to(
    trees: Trees, tree: int, end: wp.array[wp.float32], line: wp.array2d[wp.float32]
) -> wp.vec2i:
    """Writes a line (most_parts + 1, n_joints) from the nearest node of a tree.

    Returns how many parts it has, and the node.
    """
    node = nearest_node(trees, tree, end)
    begin = node_of(trees, tree, node)
    count = int(wp.ceil(distance(begin, end, trees.n_joints) / RANGE))
    count = wp.clamp(count, 1, line.shape[0] - 1)
    for k in range(count + 1):
        fraction = float(k) / float(count)
        for v in range(trees.n_joints):
            line[k, v] = (1.0 - fraction) * begin[v] + fraction * end[v]  # both ends are exact
    return wp.vec2i(count, node)


@wp.func
def connect(
    trees: Trees,
    problem: int,
    new: int,
    parent: int,
    motion: wp.array2d[wp.float32],
    line: wp.array2d[wp.float32],
) -> wp.vec2i:
    """Makes the end of a motion a node of the smaller tree; see `lead_to` of the other one."""
    tree = smaller_tree(trees, problem)
    end = motion[1]
    step = distance(motion[0], end, trees.n_joints)
    put_node(trees, tree, new, parent, length_to(trees, tree, parent) + step, end)
    return lead_to(trees, tree ^ 1, end, line)


@wp.func
def length_along(line: wp.array2d[wp.float32], count: int, length: float) -> float:
    """Adds the lengths of the first parts of a line to a length, one after the other."""
    total = float(length)
    for k in range(count):
        total += distance(line[k], line[k + 1], line.shape[1])
    return total


@wp.func
def join(
    trees: Trees,
    problem: int,
    n_samples: int,
    lines: wp.array3d[wp.float32],
    parts: wp.array[wp.int32],
    links: wp.array[wp.vec2i],
    hit: wp.array2d[wp.bool],
) -> wp.vec2i:
    """The larger tree grows along lines, up to the first part of each that is not free.

    Args:
        trees: the trees, which have new nodes then.
        problem: which problem.
        n_samples: lines that are looked at.
        lines: (m, most_parts + 1, n_joints).
        parts: (m,) of each line, 0 where there is none.
        links: (m,) the new node that a line leads to, and the node that it begins at.
        hit: (m, most_parts) whether parts of lines are not free.

    Returns:
        Nodes at which the trees meet, or -1. Of the lines that reach their end the one that makes
        the shortest path is taken.
    """
    tree = smaller_tree(trees, problem)
    other = tree ^ 1
    n_new = int(0)
    count = count_of(trees, other)
    shortest = float(wp.inf)
    meeting = wp.vec2i(-1, -1)
    for sample in range(n_samples):
        link = links[sample]
        if parts[sample] > 0:
            n_new += 1
            node = link[1]
            part = int(0)
            while part < parts[sample] and not hit[sample, part]:
                end = lines[sample, part + 1]
                step = distance(lines[sample, part], end, trees.n_joints)
                put_node(trees, other, count, node, length_to(trees, other, node) + step, end)
                node = count
                count += 1
                part += 1
            length = length_to(trees, tree, link[0]) + length_to(trees, other, node)
            if part == parts[sample] and length < shortest:
                shortest = length
                is_first = tree % 2 == 0
                first = wp.where(is_first, link[0], node)
                meeting = wp.vec2i(first, wp.where(is_first, node, link[0]))
    counts = wp.array(ptr=trees.counts, shape=(trees.n_trees,), dtype=wp.int32)
    counts[tree] = counts[tree] + n_new
    counts[other] = count
    return meeting


@wp.func
def vertices_of(trees: Trees, problem: int, meeting: wp.vec2i) -> int:
    """Vertices of the path where trees meet; both branches have the common one."""
    first = depth_of(trees, 2 * problem, meeting[0])
    return 1 + first + depth_of(trees, 2 * problem + 1, meeting[1])


@wp.func
def write_path(trees: Trees, problem: int, met: wp.vec2i, path: wp.array2d[wp.float32]):
    """Writes a path (n, n_joints) between roots, with the start repeated before it."""
    first = 2 * problem
    second = first + 1
    most = path.shape[0]
    common = most - 1 - depth_of(trees, second, met[1])
    node = int(met[1])
    for vertex in range(common + 1, most):
        node = parent_of(trees, second, node)
        write_joints(node_of(trees, second, node), path[vertex])
    node = int(met[0])
    for back in range(common + 1):
        write_joints(node_of(trees, first, node), path[common - back])
        node = parent_of(trees, first, node)


@wp.kernel
def extend_trees(
    # operands
    low: wp.array2d[wp.float32],  # (n, n_joints) range of the random joint values [rad or m]
    high: wp.array2d[wp.float32],
    trees: Trees,
    meeting: wp.array[wp.vec2i],  # (n,) nodes at which the trees of a problem meet, or -1
    # outputs
    motions: wp.array4d[wp.float32],  # (n, m, 2, n_joints), NaN where the trees have met
    near: wp.array2d[wp.int32],  # (n, m) nodes that they begin at
):
    """One thread per motion, to a random target from the nearest node of the smaller tree."""
    problem, sample = wp.tid()
    if meeting[problem][0] >= 0:
        for v in range(trees.n_joints):
            motions[problem, sample, 0, v] = wp.nan
            motions[problem, sample, 1, v] = wp.nan
        return
    state = wp.rand_init(trees.seed, problem * motions.shape[1] + sample)
    motion = motions[problem, sample]
    near[problem, sample] = extend(trees, problem, state, low[problem], high[problem], motion)


@wp.kernel
def connect_trees(
    # operands
    motions: wp.array4d[wp.float32],  # see `extend_trees`
    near: wp.array2d[wp.int32],
    hit: wp.array2d[wp.bool],  # (n, m) whether motions are not free
    trees: Trees,
    # outputs
    lines: wp.array4d[wp.float32],  # (n, m, most_parts + 1, n_joints)
    parts: wp.array2d[wp.int32],  # (n, m) of each line, 0 where there is none
    links: wp.array2d[wp.vec2i],  # (n, m) new node, and the nearest one of the other tree
):
    """One thread per motion: its end is a new node, and the other tree is led to it by a line."""
    problem, sample = wp.tid()
    count = int(0)
    link = wp.vec2i(-1, -1)
    if not hit[problem, sample]:
        new = count_of(trees, smaller_tree(trees, problem))
        for before in range(sample):
            new += wp.where(hit[problem, before], 0, 1)
        motion = motions[problem, sample]
        parent = near[problem, sample]
        line = connect(trees, problem, new, parent, motion, lines[problem, sample])
        count = line[0]
        link = wp.vec2i(new, line[1])
    parts[problem, sample] = count
    links[problem, sample] = link


@wp.kernel
def join_trees(
    # operands
    lines: wp.array4d[wp.float32],  # see `connect_trees`
    parts: wp.array2d[wp.int32],
    links: wp.array2d[wp.vec2i],
    hit: wp.array3d[wp.bool],  # (n, m, most_parts) whether parts of lines are not free
    trees: Trees,
    # outputs
    n_vertices: wp.array[wp.int32],  # (n,) of the path where trees meet, or kept
    meeting: wp.array[wp.vec2i],  # (n,) nodes of both trees at which they meet, or kept
):
    """One thread per problem: the other tree grows along the lines, see `join`."""
    problem = wp.tid()
    met = join(
        trees, problem, lines.shape[1], lines[problem], parts[problem], links[problem], hit[problem]
    )
    if met[0] >= 0:
        meeting[problem] = met
        n_vertices[problem] = vertices_of(trees, problem, met)


@wp.kernel
def copy_trees(
    # operands
    trees: Trees,
    problems: wp.array[wp.int64],  # (n,) whose trees have not met
    launch_offset: wp.vec2i,  # of this launch in the nodes
    # outputs
    copied: Trees,  # two trees for each of these
):
    """One thread per node of a new tree."""
    tree, node = wp.tid()
    tree += launch_offset[0]
    node += launch_offset[1]
    old = 2 * int(problems[tree / 2]) + tree % 2
    count = count_of(trees, old)
    if node < count:
        joints, length = node_of(trees, old, node), length_to(trees, old, node)
        put_node(copied, tree, node, parent_of(trees, old, node), length, joints)
    if node == 0:
        counts = wp.array(ptr=copied.counts, shape=(copied.n_trees,), dtype=wp.int32)
        counts[tree] = count


@wp.kernel
def paths_of_trees(
    # operands
    trees: Trees,
    meeting: wp.array[wp.vec2i],  # (n,) nodes at which the trees of a problem meet
    chosen: wp.array[wp.int64],  # (rows,) problems
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    paths: wp.array3d[wp.float32],  # (rows, most vertices, n_joints), the start repeated before
):
    """One thread per path: from the root of the first tree to that of the second."""
    row = wp.tid()
    row += launch_offset[0]
    problem = int(chosen[row])
    write_path(trees, problem, meeting[problem], paths[row])

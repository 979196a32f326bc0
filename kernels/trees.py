"""Trees of configurations that grow towards each other: a round of RRT-Connect.

Between these kernels `joint_path_hit` checks the motions. Of each problem i, tree 2 i grows from
its start and tree 2 i + 1 from its goal.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)

# Longest motion between a node and its parent [rad, prismatic: m].
RANGE = wp.constant(1.0)


@wp.struct
class Trees:
    """Two trees for each of n problems, given by pointers as a `Scene`."""

    nodes: wp.uint64  # to (2 n, capacity, n_joints) float32 [rad or m]
    lengths: wp.uint64  # to (2 n, capacity) float32, from the root
    parents: wp.uint64  # to (2 n, capacity) int32
    counts: wp.uint64  # to (2 n,) int32, nodes
    n_trees: int
    capacity: int
    n_joints: int


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
def put_node(
    trees: Trees, tree: int, node: int, parent: int, length: float, joints: wp.array[wp.float32]
):
    """Writes a node."""
    values = node_of(trees, tree, node)
    for v in range(trees.n_joints):
        values[v] = joints[v]
    offset = wp.uint64(tree * trees.capacity) * wp.uint64(4)
    lengths = wp.array(ptr=trees.lengths + offset, shape=(node + 1,), dtype=wp.float32)
    parents = wp.array(ptr=trees.parents + offset, shape=(node + 1,), dtype=wp.int32)
    lengths[node] = length
    parents[node] = parent


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


@wp.kernel
def extend_trees(
    # operands
    targets: wp.array3d[wp.float32],  # (n, m, n_joints) random [rad or m]
    trees: Trees,
    meeting: wp.array[wp.vec2i],  # (n,) nodes at which the trees of a problem meet, or -1
    # outputs
    motions: wp.array4d[wp.float32],  # (n, m, 2, n_joints), NaN where the trees have met
    near: wp.array2d[wp.int32],  # (n, m) nodes that they begin at
):
    """One thread per target: a motion towards it from the nearest node of the smaller tree."""
    problem, sample = wp.tid()
    tree = smaller_tree(trees, problem)
    target = targets[problem, sample]
    node = nearest_node(trees, tree, target)
    begin = node_of(trees, tree, node)
    scale = wp.min(RANGE / distance(begin, target, trees.n_joints), 1.0)
    if meeting[problem][0] >= 0:
        scale = wp.nan
    for v in range(trees.n_joints):
        motions[problem, sample, 0, v] = begin[v]
        motions[problem, sample, 1, v] = begin[v] + scale * (target[v] - begin[v])
    near[problem, sample] = node


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
        tree = smaller_tree(trees, problem)
        new = count_of(trees, tree)
        for before in range(sample):
            new += wp.where(hit[problem, before], 0, 1)
        parent = near[problem, sample]
        end = motions[problem, sample, 1]
        step = distance(motions[problem, sample, 0], end, trees.n_joints)
        put_node(trees, tree, new, parent, length_to(trees, tree, parent) + step, end)
        other = tree ^ 1
        node = nearest_node(trees, other, end)
        begin = node_of(trees, other, node)
        count = int(wp.ceil(distance(begin, end, trees.n_joints) / RANGE))
        count = wp.clamp(count, 1, lines.shape[2] - 1)
        link = wp.vec2i(new, node)
        for k in range(count + 1):
            fraction = float(k) / float(count)
            for v in range(trees.n_joints):
                # Both ends are exact.
                value = (1.0 - fraction) * begin[v] + fraction * end[v]
                lines[problem, sample, k, v] = value
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
    meeting: wp.array[wp.vec2i],  # (n,) nodes of both trees at which they meet, or kept
):
    """One thread per problem: the other tree grows up to the first part that is not free.

    Of the lines that reach their end the one that makes the shortest path is taken.
    """
    problem = wp.tid()
    tree = smaller_tree(trees, problem)
    other = tree ^ 1
    n_new = int(0)
    count = count_of(trees, other)
    shortest = float(wp.inf)
    for sample in range(lines.shape[1]):
        link = links[problem, sample]
        if parts[problem, sample] > 0:
            n_new += 1
            node = link[1]
            part = int(0)
            while part < parts[problem, sample] and not hit[problem, sample, part]:
                end = lines[problem, sample, part + 1]
                step = distance(lines[problem, sample, part], end, trees.n_joints)
                put_node(trees, other, count, node, length_to(trees, other, node) + step, end)
                node = count
                count += 1
                part += 1
            length = length_to(trees, tree, link[0]) + length_to(trees, other, node)
            if part == parts[problem, sample] and length < shortest:
                shortest = length
                is_first = tree % 2 == 0
                first = wp.where(is_first, link[0], node)
                meeting[problem] = wp.vec2i(first, wp.where(is_first, node, link[0]))
    counts = wp.array(ptr=trees.counts, shape=(trees.n_trees,), dtype=wp.int32)
    counts[tree] = counts[tree] + n_new
    counts[other] = count

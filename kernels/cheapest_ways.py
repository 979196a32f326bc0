"""Shortcuts of joint paths: nodes on a path, the motions between them, and the cheapest way.

The vertices of a path are at the end of its row; the start is repeated before them.
"""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import vec1i
from warp_collision.kernels.trees import distance

wp.set_module_options(FEW_THREADS)

# Cost of a segment, as a fraction of the length: removes vertices that do not shorten the path.
PER_SEGMENT = wp.constant(1.0e-4)
OTHER_JOINTS = wp.constant(0.5)  # of the time of all joints, beside that of the slowest one
NOWHERE = wp.constant(-1.0)  # position of a node that is not used


@wp.struct
class Draw:
    """Random points on paths."""

    seed: int
    n_nodes: int  # of a path with its vertices, if it does not have more of them


@wp.func
def first_vertex(path: wp.array2d[wp.float32]) -> int:
    """Index of the first vertex, before which it is repeated."""
    first = int(0)
    is_repeated = bool(True)
    while is_repeated and first < path.shape[0] - 1:
        for v in range(path.shape[1]):
            is_repeated = is_repeated and path[first + 1, v] == path[0, v]
        if is_repeated:
            first += 1
    return first


@wp.func
def interpolate(
    begin: wp.array[wp.float32],
    end: wp.array[wp.float32],
    fraction: float,
    result: wp.array[wp.float32],
):
    """The point at a fraction of a segment; at 0 it is the begin."""
    for v in range(begin.shape[0]):
        result[v] = begin[v] + fraction * (end[v] - begin[v])


@wp.func
def cost_of(
    first: wp.array[wp.float32], second: wp.array[wp.float32], pace: wp.array[wp.float32]
) -> float:
    """What a motion costs: its length, or with paces [s/rad or s/m] the time it takes.

    That is the time of the slowest joint, and a little of all others, which decides between motions
    that take as long.
    """
    cost = distance(first, second, first.shape[0])
    if pace.shape[0] > 0:
        slowest = float(0.0)
        total = float(0.0)
        for v in range(first.shape[0]):
            seconds = pace[v] * wp.abs(first[v] - second[v])
            slowest = wp.max(slowest, seconds)
            total += seconds * seconds
        cost = slowest + OTHER_JOINTS * wp.sqrt(total)
    return cost


@wp.func
def length_of(path: wp.array2d[wp.float32]) -> float:
    """Sum of the lengths of the segments."""
    length = float(0.0)
    for i in range(path.shape[0] - 1):
        length += distance(path[i], path[i + 1], path.shape[1])
    return length


@wp.func
def are_of_one_segment(position: float, later: float) -> bool:
    """Whether the motion between two positions on a path is part of a segment of it."""
    return wp.ceil(later) - wp.floor(position) <= 1.0


@wp.kernel
def place_nodes(
    # operands
    paths: wp.array3d[wp.float32],  # (rows, n, n_joints) [rad or m]
    draw: Draw,
    # outputs
    nodes: wp.array3d[wp.float32],  # (rows, n_nodes, n_joints), the used ones at the end
    positions: wp.array2d[wp.float32],  # (rows, n_nodes) on the path, integers at its vertices
    begins: wp.array[wp.int32],  # (rows,) index of the first node that is used
):
    """One thread per path: its vertices in order, and random points between them.

    The points are stratified: one in each of equal parts of the length.
    """
    row = wp.tid()
    path = paths[row]
    first = first_vertex(path)
    last = path.shape[0] - 1
    n_points = wp.max(draw.n_nodes - (last + 1 - first), 0)
    node = nodes.shape[1] - (last + 1 - first) - n_points
    begins[row] = node
    for unused in range(node):
        positions[row, unused] = NOWHERE
    part = length_of(path) / float(wp.max(n_points, 1))
    state = wp.rand_init(draw.seed, row)
    point = int(0)
    ahead = part * wp.randf(state)  # length up to the next point
    passed = float(0.0)
    for vertex in range(first, last):
        interpolate(path[vertex], path[vertex + 1], 0.0, nodes[row, node])
        positions[row, node] = float(vertex)
        node += 1
        step = distance(path[vertex], path[vertex + 1], path.shape[1])
        while point < n_points and ahead < passed + step:
            fraction = wp.clamp((ahead - passed) / step, 0.0, 1.0)
            interpolate(path[vertex], path[vertex + 1], fraction, nodes[row, node])
            positions[row, node] = float(vertex) + fraction
            node += 1
            point += 1
            ahead = part * (float(point) + wp.randf(state))
        passed += step
    # Of points that rounding leaves over, and of a path without length, there is the last vertex.
    for left in range(node, nodes.shape[1]):
        interpolate(path[last], path[last], 0.0, nodes[row, left])
        positions[row, left] = float(last)


@wp.kernel
def connect_nodes(
    # operands
    nodes: wp.array3d[wp.float32],  # see `place_nodes`
    positions: wp.array2d[wp.float32],
    begins: wp.array[wp.int32],
    launch_offset: wp.vec2i,  # of this launch in the pairs
    # outputs
    motions: wp.array4d[wp.float32],  # (rows, n_pairs, 2, n_joints)
    n_segments: wp.array2d[wp.int32],  # (rows, n_pairs) 1 for motions to check, 0 for the others
):
    """One thread per pair of nodes i < j, in the order of j, then i: the motion between them."""
    row, pair = wp.tid()
    row += launch_offset[0]
    pair += launch_offset[1]
    j = int(0.5 * (1.0 + wp.sqrt(1.0 + 8.0 * float(pair))))
    while j * (j - 1) / 2 > pair:  # of rounding
        j -= 1
    while j * (j + 1) / 2 <= pair:
        j += 1
    i = pair - j * (j - 1) / 2
    count = int(0)
    if i >= begins[row] and not are_of_one_segment(positions[row, i], positions[row, j]):
        count = 1
        for v in range(nodes.shape[2]):
            motions[row, pair, 0, v] = nodes[row, i, v]
            motions[row, pair, 1, v] = nodes[row, j, v]
    n_segments[row, pair] = count


@wp.kernel
def cheapest_ways(
    # operands
    paths: wp.array3d[wp.float32],  # see `place_nodes`
    nodes: wp.array3d[wp.float32],
    positions: wp.array2d[wp.float32],
    begins: wp.array[wp.int32],
    hit: wp.array2d[wp.bool],  # (rows, n_pairs) motions that are not free; see `connect_nodes`
    pace: wp.array[wp.float32],  # (n_joints,), or (0,) for lengths; see `cost_of`
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    totals: wp.array2d[wp.float32],  # (rows, n_nodes) scratch: cost up to each node
    before: wp.array2d[wp.int32],  # (rows, n_nodes) scratch: node before each node
    shorter: wp.array3d[wp.float32],  # (rows, n, n_joints)
):
    """One thread per path: the cheapest one through its nodes, if it has no more than n vertices.

    A segment costs what its motion costs, and a little for being one.
    """
    row = wp.tid()
    row += launch_offset[0]
    begin = begins[row]
    n_nodes = nodes.shape[1]
    per_segment = PER_SEGMENT * length_of(paths[row])
    totals[row, begin] = 0.0
    before[row, begin] = begin
    for j in range(begin + 1, n_nodes):
        least = float(wp.inf)
        before[row, j] = j - 1  # its segment is part of the path
        for i in range(begin, j):
            is_part = are_of_one_segment(positions[row, i], positions[row, j])
            if is_part or not hit[row, j * (j - 1) / 2 + i]:
                step = cost_of(nodes[row, i], nodes[row, j], pace)
                total = totals[row, i] + step + per_segment
                if total < least:
                    least = total
                    before[row, j] = i
        totals[row, j] = least
    n_vertices = int(1)
    node = n_nodes - 1
    while node != begin:
        node = before[row, node]
        n_vertices += 1
    n = paths.shape[1]
    node = n_nodes - 1
    for k in range(n):
        vertex = n - 1 - k
        if n_vertices > n:
            interpolate(paths[row, vertex], paths[row, vertex], 0.0, shorter[row, vertex])
        else:
            interpolate(nodes[row, node], nodes[row, node], 0.0, shorter[row, vertex])
            node = before[row, node]

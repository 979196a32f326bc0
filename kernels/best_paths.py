"""The best path of each problem: paths of equal numbers of waypoints, their costs, the cheapest."""

import warp as wp

from warp_collision.kernels.cheapest_ways import cost_of, first_vertex, interpolate
from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import vec1i
from warp_collision.kernels.trees import distance

wp.set_module_options(FEW_THREADS)


@wp.func
def resample(path: wp.array2d[wp.float32], parts: wp.array[wp.int32], fine: wp.array2d[wp.float32]):
    """Writes all vertices of a path, and points between them, as even as these allow.

    Args:
        path: (n, n_joints), see `place_nodes`.
        parts: (n - 1,) scratch: parts that each segment is divided into.
        fine: (horizon, n_joints), NaN where the path has more vertices.
    """
    horizon = fine.shape[0]
    first, last = first_vertex(path), path.shape[0] - 1
    first = wp.min(first, last - 1)  # also a path without length has a segment
    n_spare = horizon - 1 - (last - first)
    for vertex in range(first, last):
        parts[vertex] = 1
    for _spare in range(n_spare):  # the widest part is halved, thirded, ... one after another
        widest = float(-1.0)
        chosen = int(first)
        for vertex in range(first, last):
            step = distance(path[vertex], path[vertex + 1], path.shape[1])
            width = step / float(parts[vertex])
            if width > widest:
                widest = width
                chosen = vertex
        parts[chosen] += 1
    waypoint = int(0)
    for vertex in range(first, last):
        count = parts[vertex]
        for k in range(count):
            if waypoint < horizon - 1:
                fraction = float(k) / float(count)
                interpolate(path[vertex], path[vertex + 1], fraction, fine[waypoint])
                waypoint += 1
    interpolate(path[last], path[last], 0.0, fine[horizon - 1])
    if n_spare < 0:
        for v in range(path.shape[1]):
            fine[0, v] = wp.nan


@wp.func
def cost_of_path(
    path: wp.array2d[wp.float32],
    near: wp.array[wp.bool],
    hit: wp.array[wp.bool],
    pace: wp.array[wp.float32],
) -> float:
    """What a path's motions cost, where parts near something count twice.

    Infinite where it is not proven free.
    """
    cost = float(0.0)
    for i in range(near.shape[0]):
        step = cost_of(path[i], path[i + 1], pace)
        if near[i]:
            step = wp.where(hit[i], wp.inf, 2.0 * step)
        cost += step
    return wp.where(wp.isnan(cost), wp.inf, cost)


@wp.kernel
def resample_paths(
    # operands
    paths: wp.array3d[wp.float32],  # see `resample`
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    parts: wp.array2d[wp.int32],  # (rows, n - 1) scratch
    fine: wp.array3d[wp.float32],  # (rows, horizon, n_joints)
):
    """One thread per path."""
    row = wp.tid()
    row += launch_offset[0]
    resample(paths[row], parts[row], fine[row])


@wp.kernel
def costs_of_paths(
    # operands
    paths: wp.array3d[wp.float32],  # (rows, horizon, n_joints)
    near: wp.array2d[wp.bool],  # (rows, horizon - 1) segments that count twice
    hit: wp.array2d[wp.bool],  # (rows, horizon - 1) whether these are not proven free
    pace: wp.array[wp.float32],  # (n_joints,), or (0,) for lengths; see `cost_of`
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    costs: wp.array[wp.float32],  # (rows,)
):
    """One thread per path, see `cost_of_path`."""
    row = wp.tid()
    row += launch_offset[0]
    costs[row] = cost_of_path(paths[row], near[row], hit[row], pace)


@wp.kernel
def keep_best(
    # operands
    paths: wp.array3d[wp.float32],  # (rows, horizon, n_joints)
    near: wp.array2d[wp.bool],  # (rows, horizon - 1)
    costs: wp.array[wp.float32],  # (rows,)
    problems: wp.array[wp.int64],  # (rows,) of which each is
    rounds: wp.array[wp.int64],  # (rows,) of trees up to each
    launch_offset: vec1i,  # of this launch in the rows
    # outputs, which are kept where no path is better
    joints: wp.array3d[wp.float32],  # (batch, horizon, n_joints)
    far: wp.array[wp.bool],  # (batch,) whether nothing is near
    iterations: wp.array[wp.int64],  # (batch,) rounds until the first path
    best: wp.array[wp.float32],  # (batch,) costs
):
    """One thread per path: the first one of the cheapest of a problem replaces what it had."""
    row = wp.tid()
    row += launch_offset[0]
    problem, cost = problems[row], costs[row]
    if not (cost < best[problem]):
        return
    for other in range(costs.shape[0]):
        if problems[other] == problem and other != row:
            if costs[other] < cost or (costs[other] == cost and other < row):
                return
    if wp.isinf(best[problem]):
        iterations[problem] = rounds[row]
    best[problem] = cost
    is_far = bool(True)
    for i in range(near.shape[1]):
        is_far = is_far and not near[row, i]
    far[problem] = is_far
    for i in range(joints.shape[1]):
        for v in range(joints.shape[2]):
            joints[problem, i, v] = paths[row, i, v]

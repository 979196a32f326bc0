"""The best path of each problem: paths of equal numbers of waypoints, their costs, the cheapest."""

import warp as wp

from warp_collision.kernels.cheapest_ways import cost_of, first_vertex, interpolate
from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import vec1i
from warp_collision.kernels.trees import distance

wp.set_module_options(FEW_THREADS)


@wp.kernel
def resample_paths(
    # operands
    paths: wp.array3d[wp.float32],  # see `place_nodes`
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    parts: wp.array2d[wp.int32],  # (rows, n - 1) scratch: parts that each segment is divided into
    fine: wp.array3d[wp.float32],  # (rows, horizon, n_joints), NaN where a path has more vertices
):
    """One thread per path: all its vertices, and points between them, as even as these allow."""
    row = wp.tid()
    row += launch_offset[0]
    path = paths[row]
    first, last = first_vertex(path), path.shape[0] - 1
    first = wp.min(first, last - 1)  # also a path without length has a segment
    n_spare = fine.shape[1] - 1 - (last - first)
    for vertex in range(first, last):
        parts[row, vertex] = 1
    for _spare in range(n_spare):  # the widest part is halved, thirded, ... one after another
        widest = float(-1.0)
        chosen = int(first)
        for vertex in range(first, last):
            step = distance(path[vertex], path[vertex + 1], path.shape[1])
            width = step / float(parts[row, vertex])
            if width > widest:
                widest = width
                chosen = vertex
        parts[row, chosen] += 1
    waypoint = int(0)
    for vertex in range(first, last):
        count = parts[row, vertex]
        for k in range(count):
            if waypoint < fine.shape[1] - 1:
                fraction = float(k) / float(count)
                interpolate(path[vertex], path[vertex + 1], fraction, fine[row, waypoint])
                waypoint += 1
    interpolate(path[last], path[last], 0.0, fine[row, fine.shape[1] - 1])
    if n_spare < 0:
        for v in range(path.shape[1]):
            fine[row, 0, v] = wp.nan


@wp.kernel
def costs_of_paths(
    # operands
    paths: wp.array3d[wp.float32],  # (rows, horizon, n_joints)
    near: wp.array2d[wp.bool],  # (rows, horizon - 1) segments that count twice
    hit: wp.array2d[wp.bool],  # (rows, horizon - 1) whether these are not proven free
    pace: wp.array[wp.float32],  # (n_joints,), or (0,) for lengths; see `cost_of`
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    costs: wp.array[wp.float32],  # (rows,), infinite where a path is not proven free
):
    """One thread per path: what its motions cost, where parts near something count twice."""
    row = wp.tid()
    row += launch_offset[0]
    cost = float(0.0)
    for i in range(near.shape[1]):
        step = cost_of(paths[row, i], paths[row, i + 1], pace)
        if near[row, i]:
            step = wp.where(hit[row, i], wp.inf, 2.0 * step)
        cost += step
    costs[row] = wp.where(wp.isnan(cost), wp.inf, cost)


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

"""Gradient descent on the inner waypoints of joint paths, with a smoothness metric.

Half the squared velocity of a path is `x^T A x / 2` in the offsets x of its inner waypoints from
the straight line. With `A = L L^T` a path has the coordinates `z = L^T x`, in which that is half
the squared norm. The gradient by z is the preconditioned gradient by x: a step along it changes the
path smoothly. A has `2 c` on its diagonal and `-c` beside it, c the number of segments, so L has
`sqrt(c (k + 1) / k)` on its diagonal and `-sqrt(c k / (k + 1))` below it, k from 1 on.
"""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import (
    FramePose,
    RobotFrame,
    Wrench,
    write_gradient_by_joints,
)
from warp_collision.kernels.swept_cost import gathered, mat23

wp.set_module_options(FEW_THREADS)

LEARNING_RATE = wp.constant(0.03)
# Of half the squared distance beyond joint limits; that of smoothness is 1.
LIMITS_WEIGHT = wp.constant(100.0)
# Adam's decay of the mean and of the square of gradients (Kingma and Ba, 2015).
MEAN = wp.constant(0.9)
SQUARE = wp.constant(0.99)
SMALL = wp.constant(1.0e-8)


@wp.kernel
def path_cost_vjp(
    # operands
    upstream: wp.array3d[wp.float32],  # (batch, horizon, 1) d loss / d cost; empty: ones
    gradient: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres), as `swept_cost` writes them
    neighbours: wp.array3d[mat23],
    by_pairs: wp.array3d[wp.vec4],  # d cost of self-collisions / d sphere, or empty
    frame_poses: wp.array3d[FramePose],  # (batch, horizon, n_frames), as of `place_points`
    frames: wp.array[RobotFrame],
    ranges: wp.array[wp.vec2i],
    points: wp.array[wp.vec4],
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the paths
    # outputs
    by_spheres: wp.array3d[wp.vec4],  # the sum; may be `gradient` itself
    wrenches: wp.array3d[Wrench],  # (batch, horizon, n_frames) scratch
    total: wp.array3d[wp.float32],  # (batch, horizon, n_joints) d sum of all costs / d joint value
):
    """One thread per waypoint: the gradients by its spheres, then by its joints."""
    row, waypoint = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    own = float(1.0)
    if upstream.shape[0] > 0:
        own = upstream[row, waypoint, 0]
    for index in range(points.shape[0]):
        by_sphere = gathered(upstream, gradient, neighbours, row, waypoint, index)
        if by_pairs.shape[0] > 0:
            by_sphere += own * by_pairs[row, waypoint, index]
        by_spheres[row, waypoint, index] = by_sphere
    # fmt: off
    write_gradient_by_joints(
        by_spheres[row], frame_poses[row], frames, ranges, points, waypoint, wrenches[row],
        total[row],
    )
    # fmt: on


@wp.func
def is_finite_row(gradient: wp.array2d[wp.float32]) -> bool:
    """Whether all numbers of a path are finite."""
    total = float(0.0)
    for waypoint in range(gradient.shape[0]):
        for joint in range(gradient.shape[1]):
            total += 0.0 * gradient[waypoint, joint]  # NaN for NaN and infinity
    return total == 0.0


@wp.kernel
def descend(
    # operands
    gradient: wp.array3d[wp.float32],  # (rows, horizon, n_joints) d cost / d joint value
    cost: wp.array[wp.float32],  # (rows,), which has to be finite, or empty
    limits: wp.array2d[wp.float32],  # (n_joints, 2) [rad or m]
    # outputs, which are read too
    steps: wp.array2d[wp.int32],  # (rows, n_joints) steps so far
    moments: wp.array3d[wp.vec2],  # (rows, horizon, n_joints) mean and square of gradients
    paths: wp.array3d[wp.float32],  # (rows, horizon, n_joints) [rad or m]
):
    """A step of Adam; one thread per path and joint. Paths stay where a number is not finite."""
    row, joint = wp.tid()
    is_finite = is_finite_row(gradient[row])
    if cost.shape[0] > 0:
        is_finite = is_finite and 0.0 * cost[row] == 0.0
    if not is_finite:
        return
    step = steps[row, joint] + 1
    steps[row, joint] = step
    rate = LEARNING_RATE * wp.sqrt(1.0 - wp.pow(SQUARE, float(step)))
    rate /= 1.0 - wp.pow(MEAN, float(step))
    segments = float(paths.shape[1] - 1)
    here = paths[row, 0, joint]
    change = float(0.0)
    by_coordinate = float(0.0)
    coupling = float(0.0)
    for k in range(1, paths.shape[1] - 1):
        previous = here
        here = paths[row, k, joint]
        own = segments * (2.0 * here - previous - paths[row, k + 1, joint])
        own += LIMITS_WEIGHT * (here - wp.clamp(here, limits[joint, 0], limits[joint, 1]))
        pivot = wp.sqrt(segments * float(k + 1) / float(k))
        by_coordinate = (own + gradient[row, k, joint] + coupling * by_coordinate) / pivot
        coupling = segments / pivot
        moment = moments[row, k, joint]
        mean = moment[0] + (1.0 - MEAN) * (by_coordinate - moment[0])
        square = SQUARE * moment[1] + (1.0 - SQUARE) * by_coordinate * by_coordinate
        moments[row, k, joint] = wp.vec2(mean, square)
    for i in range(2, paths.shape[1]):
        k = paths.shape[1] - i
        pivot = wp.sqrt(segments * float(k + 1) / float(k))
        moment = moments[row, k, joint]
        scale = wp.sqrt(moment[1]) + SMALL
        change = (rate * moment[0] / scale + segments / pivot * change) / pivot
        paths[row, k, joint] = paths[row, k, joint] - change

"""Products that backward needs, as launches: few numbers, or what a capture has to see."""

import warp as wp


@wp.kernel(enable_backward=False)
def sphere_vjp(
    # operands
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) d loss / d cost; empty: ones
    gradient: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) d cost / d (x, y, z, radius)
    # outputs
    total: wp.array3d[wp.vec4],  # d loss / d (x, y, z, radius)
):
    """The vector-Jacobian product of costs that each depend on their own sphere alone."""
    row, waypoint, index = wp.tid()
    factor = float(1.0)
    if upstream.shape[0] > 0:
        factor = upstream[row, waypoint, index]
    total[row, waypoint, index] = factor * gradient[row, waypoint, index]


@wp.kernel(enable_backward=False)
def point_vjp(
    # operands
    upstream: wp.array2d[wp.float32],  # (batch, n_points) d loss / d distance
    gradient: wp.array2d[wp.vec3],  # (batch, n_points) d distance / d (x, y, z)
    # outputs
    total: wp.array2d[wp.vec3],  # d loss / d (x, y, z)
):
    """The vector-Jacobian product of the distances of points."""
    row, index = wp.tid()
    total[row, index] = upstream[row, index] * gradient[row, index]


@wp.kernel(enable_backward=False)
def share_of(
    # operands
    whole: wp.array[wp.float32],  # (1,)
    # parameters
    share: wp.array[wp.float32],  # (1,)
    least: wp.array[wp.float32],  # (1,)
    # outputs
    part: wp.array[wp.float32],  # (1,)
):
    """A share of a number, at least another number."""
    index = wp.tid()
    part[index] = wp.max(share[index] * whole[index], least[index])

"""A lower bound of the signed distance that a grid of someone else's distances is of.

Where a value is at most an error above the signed distance at the center of its cell, the trilinear
interpolation T is a mean of 1-Lipschitz bounds: the distance is nowhere below T less the error less
the mean distance of the corners, which is at most half the diagonal of a cell.
"""

import warp as wp

from warp_collision.kernels.mesh_record import ROUNDING, distance_to_box
from warp_collision.kernels.shape_distance import ShapeSample


@wp.struct
class EsdfMap:
    """Signed distances at the centers of cubic cells, x running fastest."""

    values: wp.uint64  # pointer to (nz, ny, nx) float32 [m]
    origin: wp.vec3  # center of the first cell [m]
    cell: float  # edge of a cell [m]
    shape: wp.vec3i  # nx, ny, nz, each at least 2
    slack: float  # error and half the diagonal of a cell [m]


@wp.func
def cell_before(place: float, count: int) -> int:
    """The index of the last center before a place, which is in the grid, that has a next one."""
    return wp.min(int(place), count - 2)


@wp.func
def interpolated(values: wp.array3d[wp.float32], place: wp.vec3, shape: wp.vec3i) -> wp.vec4:
    """Trilinear interpolation and its slopes along x, y, z, of a place in cells."""
    x = cell_before(place[0], shape[0])
    y = cell_before(place[1], shape[1])
    z = cell_before(place[2], shape[2])
    u = place[0] - float(x)
    v = place[1] - float(y)
    w = place[2] - float(z)
    # Along x first: pairs at y, z.
    a = wp.vec4(values[z, y, x], values[z, y + 1, x], values[z + 1, y, x], values[z + 1, y + 1, x])
    b = wp.vec4(
        values[z, y, x + 1],
        values[z, y + 1, x + 1],
        values[z + 1, y, x + 1],
        values[z + 1, y + 1, x + 1],
    )
    c = a + u * (b - a)
    d = b - a
    low = c[0] + v * (c[1] - c[0])
    high = c[2] + v * (c[3] - c[2])
    by_x = (1.0 - w) * (d[0] + v * (d[1] - d[0])) + w * (d[2] + v * (d[3] - d[2]))
    by_y = (1.0 - w) * (c[1] - c[0]) + w * (c[3] - c[2])
    return wp.vec4(low + w * (high - low), by_x, by_y, high - low)


@wp.func
def esdf_distance(pointer: wp.uint64, point: wp.vec3, limit: float) -> ShapeSample:
    """The bound where it is below a limit, with its gradient; else the limit without one."""
    grid = wp.array(ptr=pointer, shape=(1,), dtype=EsdfMap)[0]
    shape = grid.shape
    last = wp.vec3(float(shape[0] - 1), float(shape[1] - 1), float(shape[2] - 1))
    place = (point - grid.origin) / grid.cell
    inside = wp.min(wp.max(place, wp.vec3(0.0)), last)
    values = wp.array(ptr=grid.values, shape=(shape[2], shape[1], shape[0]), dtype=wp.float32)
    found = interpolated(values, inside, shape)
    sample = ShapeSample()
    sample.gradient = wp.vec3(found[1], found[2], found[3]) / grid.cell
    rounding = ROUNDING * (wp.length(point) + wp.length(grid.origin) + wp.abs(found[0]))
    sample.distance = found[0] - grid.slack - rounding
    # Beyond the centers the bound falls, until all of the grid is as far as that.
    way = grid.cell * (place - inside)
    beyond = wp.length(way)
    if beyond > 0.0:
        half = wp.vec3(0.5 * grid.cell)
        corner = grid.origin + grid.cell * last + half
        outside = distance_to_box(point, grid.origin - half, corner)
        sample.distance -= beyond
        if outside >= sample.distance:
            sample.distance = outside
            sample.gradient = way / beyond
    if not (sample.distance < limit):
        sample.distance = limit
        sample.gradient = wp.vec3(0.0)
    return sample

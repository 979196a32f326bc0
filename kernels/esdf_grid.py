"""A lower bound of the signed distance that a grid of someone else's distances is of.

Where a value is at most an error above the signed distance at the center of its cell, the trilinear
interpolation T is a mean of 1-Lipschitz bounds: the distance is nowhere below T less the error less
the mean distance of the corners, which is at most half the diagonal of a cell. Values of float16
are taken to be rounded to nearest, and are lowered by what that can be.
"""

import warp as wp

from warp_collision.kernels.mesh_record import ROUNDING
from warp_collision.kernels.shape_distance import ShapeSample, cuboid_distance

# Half of the last bit of a float16: of its value, and of numbers too small for all bits.
HALF_BIT = wp.constant(0.00048828125)
HALF_SMALLEST = wp.constant(2.98023224e-8)


@wp.struct
class EsdfMap:
    """Signed distances at the centers of cubic cells, x running fastest."""

    values: wp.uint64  # pointer to (nz, ny, nx) float32, or float16 [m]
    is_half: bool  # whether they are float16
    origin: wp.vec3  # center of the first cell [m]
    cell: float  # edge of a cell [m]
    shape: wp.vec3i  # nx, ny, nz, each at least 2
    slack: float  # error and half the diagonal of a cell [m]


@wp.func
def cell_before(place: float, count: int) -> int:
    """The index of the last center before a place, which is in the grid, that has a next one."""
    return wp.min(int(place), count - 2)


@wp.func
def value_at(grid: EsdfMap, x: int, y: int, z: int) -> float:
    """The value at a center, lowered where it may have been rounded up [m]."""
    shape = (grid.shape[2], grid.shape[1], grid.shape[0])
    if grid.is_half:
        value = float(wp.array(ptr=grid.values, shape=shape, dtype=wp.float16)[z, y, x])
        return value - (HALF_BIT * wp.abs(value) + HALF_SMALLEST)
    return wp.array(ptr=grid.values, shape=shape, dtype=wp.float32)[z, y, x]


@wp.func
def values_along(grid: EsdfMap, x: int, y: int, z: int) -> wp.vec4:
    """Values at x of the pairs at y, z."""
    return wp.vec4(
        value_at(grid, x, y, z),
        value_at(grid, x, y + 1, z),
        value_at(grid, x, y, z + 1),
        value_at(grid, x, y + 1, z + 1),
    )


@wp.func
def interpolated(grid: EsdfMap, place: wp.vec3) -> wp.vec4:
    """Trilinear interpolation and its slopes along x, y, z, of a place in cells."""
    x = cell_before(place[0], grid.shape[0])
    y = cell_before(place[1], grid.shape[1])
    z = cell_before(place[2], grid.shape[2])
    u = place[0] - float(x)
    v = place[1] - float(y)
    w = place[2] - float(z)
    a = values_along(grid, x, y, z)
    b = values_along(grid, x + 1, y, z)
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
    found = interpolated(grid, inside)
    sample = ShapeSample()
    sample.gradient = wp.vec3(found[1], found[2], found[3]) / grid.cell
    rounding = ROUNDING * (wp.length(point) + wp.length(grid.origin) + wp.abs(found[0]))
    sample.distance = found[0] - grid.slack - rounding
    # Beyond the centers the bound falls, but not below the distance to the box of the grid.
    way = grid.cell * (place - inside)
    beyond = wp.length(way)
    if beyond > 0.0:
        half = 0.5 * grid.cell * last
        box = cuboid_distance(half + wp.vec3(0.5 * grid.cell), point - grid.origin - half)
        sample.distance -= beyond
        for axis in range(3):
            if way[axis] != 0.0:
                sample.gradient[axis] = -way[axis] / beyond
        if box.distance >= sample.distance:
            sample = box
    if not (sample.distance < limit):
        return ShapeSample(limit, wp.vec3(0.0))
    return sample

"""Signed distance of a height field: triangles over a grid of nodes, solid down to a flat base.

A column of the grid tells inside from outside, and how near the surface is at most. What is as
near as that lies in at most four blocks of cells, which their least and largest heights bound. From
each of them the walk goes down to cells, the nearer quarter first; it needs no stack, as a block
knows its parent.
"""

import warp as wp

from warp_collision.kernels.mesh_record import ROUNDING
from warp_collision.kernels.shape_distance import POINT, ShapeSample


@wp.struct
class HeightMap:
    """Heights at the nodes of a grid; blocks of level k are of 2**k x 2**k cells."""

    heights: wp.uint64  # pointer to (nx + 1, ny + 1) float32 [m]
    highest: wp.uint64  # pointer to (n,) float32: of the blocks of levels from 1 on, in a row [m]
    lowest: wp.uint64  # likewise, times -1 [m]
    levels: wp.uint64  # pointer to (top,) vec2i: where each begins there, and its count along y
    top: int  # level of the one block that is the whole
    shape: wp.vec2i  # nx, ny cells
    lower: wp.vec2  # corner of the first cell [m]
    cell: wp.vec2  # edges of a cell [m]
    base: float  # height of the bottom [m]


@wp.struct
class Nearest:
    """The closest point of the surface so far."""

    distance: float  # to it, or how far is searched [m]
    way: wp.vec3  # from it to the point
    normal: wp.vec3  # of its face, unit and outward; 0: none was found


@wp.func
def load_heights(pointer: wp.uint64) -> HeightMap:
    """The grid that an exact shape points to."""
    return wp.array(ptr=pointer, shape=(1,), dtype=HeightMap)[0]


@wp.func
def node_height(field: HeightMap, i: int, j: int) -> float:
    """Height of a node."""
    shape = (field.shape[0] + 1, field.shape[1] + 1)
    return wp.array(ptr=field.heights, shape=shape, dtype=wp.float32)[i, j]


@wp.func
def node_at(field: HeightMap, i: int, j: int) -> wp.vec2:
    """Where a node is, seen from above [m]."""
    return field.lower + wp.cw_mul(field.cell, wp.vec2(float(i), float(j)))


@wp.func
def height_at(field: HeightMap, place: wp.vec2) -> float:
    """Height of the surface over a place of the grid, in cells."""
    i = wp.min(int(place[0]), field.shape[0] - 1)
    j = wp.min(int(place[1]), field.shape[1] - 1)
    u = place[0] - float(i)
    v = place[1] - float(j)
    first = node_height(field, i, j)
    last = node_height(field, i + 1, j + 1)
    if u >= v:
        beside = node_height(field, i + 1, j)
        return first + u * (beside - first) + v * (last - beside)
    beside = node_height(field, i, j + 1)
    return first + v * (beside - first) + u * (last - beside)


@wp.func
def way_from_segment(a: wp.vec3, b: wp.vec3) -> wp.vec3:
    """From the closest point of a segment to the origin."""
    along = b - a
    share = wp.clamp(-wp.dot(a, along) / wp.dot(along, along), 0.0, 1.0)
    return -(a + share * along)


@wp.func
def nearer_on_triangle(a: wp.vec3, b: wp.vec3, c: wp.vec3, best: Nearest) -> Nearest:
    """The nearer one to the origin of a triangle, counter-clockwise from outside, and the best."""
    normal = wp.normalize(wp.cross(b - a, c - a))
    way = -wp.dot(normal, a) * normal
    # The foot of the perpendicular is in the triangle where it is left of all edges.
    foot = -way
    is_over = wp.dot(wp.cross(b - a, foot - a), normal) >= 0.0
    is_over = is_over and wp.dot(wp.cross(c - b, foot - b), normal) >= 0.0
    is_over = is_over and wp.dot(wp.cross(a - c, foot - c), normal) >= 0.0
    if not is_over:
        # No edge is nearer than the plane.
        if wp.length(way) >= best.distance:
            return best
        way = way_from_segment(a, b)
        other = way_from_segment(b, c)
        if wp.length_sq(other) < wp.length_sq(way):
            way = other
        other = way_from_segment(c, a)
        if wp.length_sq(other) < wp.length_sq(way):
            way = other
    distance = wp.length(way)
    if distance < best.distance:
        best.distance = distance
        best.way = way
        best.normal = normal
    return best


@wp.func
def nearer_in_cell(field: HeightMap, point: wp.vec3, i: int, j: int, best: Nearest) -> Nearest:
    """The nearer one of the two triangles of a cell and the best."""
    low = node_at(field, i, j)
    high = node_at(field, i + 1, j + 1)
    a = wp.vec3(low[0], low[1], node_height(field, i, j)) - point
    b = wp.vec3(high[0], low[1], node_height(field, i + 1, j)) - point
    c = wp.vec3(high[0], high[1], node_height(field, i + 1, j + 1)) - point
    d = wp.vec3(low[0], high[1], node_height(field, i, j + 1)) - point
    return nearer_on_triangle(a, c, d, nearer_on_triangle(a, b, c, best))


@wp.func
def heights_of_block(field: HeightMap, level: int, i: int, j: int) -> wp.vec2:
    """The least and the largest height of a block."""
    if level == 0:
        a = wp.vec2(node_height(field, i, j), node_height(field, i + 1, j))
        b = wp.vec2(node_height(field, i, j + 1), node_height(field, i + 1, j + 1))
        return wp.vec2(wp.min(wp.min(a, b)), wp.max(wp.max(a, b)))
    begin = wp.array(ptr=field.levels, shape=(field.top,), dtype=wp.vec2i)[level - 1]
    index = begin[0] + i * begin[1] + j
    lowest = wp.array(ptr=field.lowest, shape=(index + 1,), dtype=wp.float32)[index]
    highest = wp.array(ptr=field.highest, shape=(index + 1,), dtype=wp.float32)[index]
    return wp.vec2(-lowest, highest)


@wp.func
def is_block_near(
    field: HeightMap, point: wp.vec3, level: int, i: int, j: int, limit: float
) -> bool:
    """Whether the box around a block of cells, which need not exist, is nearer than a limit."""
    x = i << level
    y = j << level
    if x >= field.shape[0] or y >= field.shape[1]:
        return False
    heights = heights_of_block(field, level, i, j)
    low = node_at(field, x, y)
    size = 1 << level
    high = node_at(field, wp.min(x + size, field.shape[0]), wp.min(y + size, field.shape[1]))
    lower = wp.vec3(low[0], low[1], heights[0])
    upper = wp.vec3(high[0], high[1], heights[1])
    way = wp.max(wp.max(lower - point, point - upper), wp.vec3(0.0))
    return wp.dot(way, way) < limit * limit


@wp.func
def nearer_in_block(
    field: HeightMap, point: wp.vec3, top: int, x: int, y: int, any: bool, best: Nearest
) -> Nearest:
    """The nearer one of the surface over a block and the best.

    Args:
        field: the grid.
        point: in its frame.
        top: level of the block.
        x: index of the block at its level.
        y: likewise.
        any: whether anything nearer than the best will do.
        best: so far.
    """
    level = int(top)
    i = int(x)
    j = int(y)
    limit = best.distance
    local = wp.cw_div(wp.vec2(point[0], point[1]) - field.lower, field.cell)
    while level <= top:
        is_near = is_block_near(field, point, level, i, j, best.distance)
        if is_near and level == 0:
            best = nearer_in_cell(field, point, i, j, best)
            if any and best.distance < limit:
                return best
        if is_near and level > 0:
            # To the quarter that is closest, seen from above.
            level -= 1
            i = 2 * i + wp.where(local[0] > float((2 * i + 1) << level), 1, 0)
            j = 2 * j + wp.where(local[1] > float((2 * j + 1) << level), 1, 0)
        else:
            # To the next quarter, or to one of the block around, or around that.
            turn = int(3)
            while level < top and turn == 3:
                parent_x = i >> 1
                parent_y = j >> 1
                first_x = wp.where(local[0] > float((2 * parent_x + 1) << level), 1, 0)
                first_y = wp.where(local[1] > float((2 * parent_y + 1) << level), 1, 0)
                turn = ((i & 1) ^ first_x) + 2 * ((j & 1) ^ first_y)
                if turn == 3:
                    level += 1
                    i = parent_x
                    j = parent_y
                else:
                    i = 2 * parent_x + (((turn + 1) & 1) ^ first_x)
                    j = 2 * parent_y + (((turn + 1) >> 1) ^ first_y)
            if turn == 3:
                return best
    return best


@wp.func
def nearer_on_top(field: HeightMap, point: wp.vec3, any: bool, best: Nearest) -> Nearest:
    """The nearer one of the whole terrain and the best."""
    # Of blocks that are twice as wide as what is searched, two lie in it at most, each way.
    width = 2.0 * best.distance / wp.min(field.cell[0], field.cell[1])
    level = wp.clamp(int(wp.ceil(wp.log2(wp.max(width, 1.0)))), 0, field.top)
    reach = wp.vec2(best.distance)
    last = wp.vec2(float(field.shape[0] - 1), float(field.shape[1] - 1))
    flat = wp.vec2(point[0], point[1]) - field.lower
    low = wp.min(wp.max(wp.cw_div(flat - reach, field.cell), wp.vec2(0.0)), last)
    high = wp.min(wp.max(wp.cw_div(flat + reach, field.cell), wp.vec2(0.0)), last)
    limit = best.distance
    for i in range(int(low[0]) >> level, (int(high[0]) >> level) + 1):
        for j in range(int(low[1]) >> level, (int(high[1]) >> level) + 1):
            if not (any and best.distance < limit):
                best = nearer_in_block(field, point, level, i, j, any, best)
    return best


@wp.func
def nearest_of_sides(field: HeightMap, point: wp.vec3) -> Nearest:
    """The nearest one of the sides and the base, of a point in the column of a cell and above."""
    upper = node_at(field, field.shape[0], field.shape[1])
    best = Nearest(point[2] - field.base, wp.vec3(0.0), wp.vec3(0.0, 0.0, -1.0))
    for axis in range(2):
        if point[axis] - field.lower[axis] < best.distance:
            best.distance = point[axis] - field.lower[axis]
            best.normal = wp.vec3(0.0)
            best.normal[axis] = -1.0
        if upper[axis] - point[axis] < best.distance:
            best.distance = upper[axis] - point[axis]
            best.normal = wp.vec3(0.0)
            best.normal[axis] = 1.0
    best.way = -best.distance * best.normal
    return best


@wp.func
def search_field(field: HeightMap, point: wp.vec3, limit: float, any: bool) -> ShapeSample:
    """Signed distance where it is below a limit, else the limit without a gradient.

    With `any` set it may be anything from the signed distance up to the limit.
    """
    sample = ShapeSample(limit, wp.vec3(0.0))
    upper = node_at(field, field.shape[0], field.shape[1])
    flat = wp.vec2(point[0], point[1])
    inside = wp.min(wp.max(flat, field.lower), upper)
    place = wp.cw_div(inside - field.lower, field.cell)
    height = height_at(field, place)
    # A point of the solid; of the sides and the base it is the closest one.
    column = wp.vec3(inside[0], inside[1], wp.clamp(point[2], field.base, height))
    way = point - column
    is_inside = point[2] == column[2] and inside == flat
    rounding = ROUNDING * (wp.length(point) + wp.length(field.lower) + wp.abs(height))
    best = Nearest()
    if is_inside:
        if any and limit > 0.0:
            sample.distance = 0.0
            return sample
        best = nearest_of_sides(field, point)
        # Where the terrain is nearer, a side counts that is not there. Over and under the terrain a
        # face has a point as near as the column, and gives the gradient.
        over = height - point[2] + rounding
        if over < best.distance:
            best.distance = over
            best.normal = wp.vec3(0.0, 0.0, 1.0)
            best.way = -over * best.normal
        best = nearer_on_top(field, point, False, best)
    else:
        best.distance = wp.length(way)
        if any and best.distance < limit:
            sample.distance = best.distance
            return sample
        best.way = way
        best.normal = way / wp.max(best.distance, POINT)
        if point[2] > height:
            best.distance += rounding
        if best.distance >= limit:
            best.distance = limit
            best.normal = wp.vec3(0.0)
        if limit > 0.0:
            best = nearer_on_top(field, point, any, best)
    if wp.length_sq(best.normal) > 0.0:
        side = wp.where(is_inside, -1.0, 1.0)
        sample.distance = side * best.distance
        # Over a face the gradient is its normal, however near the point is.
        sample.gradient = side * best.way / wp.max(best.distance, POINT)
        if best.distance * (1.0 - 1.0e-6) <= wp.abs(wp.dot(best.way, best.normal)):
            sample.gradient = best.normal
    return sample


@wp.func
def field_distance(pointer: wp.uint64, point: wp.vec3, limit: float) -> ShapeSample:
    """Signed distance of a height field where it is below a limit, else the limit."""
    return search_field(load_heights(pointer), point, limit, False)


@wp.func
def is_nearer_to_field(pointer: wp.uint64, point: wp.vec3, limit: float) -> bool:
    """Whether the signed distance of a height field is below a limit."""
    return search_field(load_heights(pointer), point, limit, True).distance < limit

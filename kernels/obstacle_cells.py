"""Obstacles without a formula as convex cells, and the walk over those within a box.

| obstacle | cells | what else is inside |
|---|---|---|
| mesh | triangles | by winding number |
| point cloud | balls | |
| voxels, unseen space | rectangles between free and solid ones | by the voxel of a point |
| height field | prisms below triangles, down to the base | |

A convex body that is apart from all cells has no point of the surface: then all of it is on the
side of any of its points. Open meshes with an inside, which ends where there is no surface, have no
cells, and neither have grids of distances.
"""

import warp as wp

from warp_collision.kernels.cloud_distance import load_tree
from warp_collision.kernels.compiling import named
from warp_collision.kernels.height_distance import (
    HeightMap,
    heights_of_block,
    load_heights,
    node_at,
    node_height,
)
from warp_collision.kernels.mesh_distance import side_by_bounds
from warp_collision.kernels.mesh_record import (
    SHEET,
    MeshRecord,
    Shape,
    bounds_of_distance,
    cell_along,
)
from warp_collision.kernels.near_parts import AT_ONCE, faces_in_box, near_parts, parts_in_box
from warp_collision.kernels.nearest_part import PartTree, part_vector
from warp_collision.kernels.piece_separation import nearest_in_triangle
from warp_collision.kernels.scene_walk import is_never_over
from warp_collision.kernels.shape_distance import with_signs_of
from warp_collision.kernels.voxel_distance import load_map, side_at
from warp_collision.kernels.winding import side_of_mesh

# Kinds of cells.
TRIANGLE = wp.constant(0)
PRISM = wp.constant(1)
BOX = wp.constant(2)  # a ball is one without edges

# Cells of a block of a height field, along each axis, that is passed over at once: 2^3.
BLOCK_LEVEL = wp.constant(3)


@wp.struct
class Cell:
    """A convex body in the frame of the mesh of an obstacle."""

    kind: int  # TRIANGLE, PRISM or BOX
    a: wp.vec3  # corners; of a box its center [m]
    b: wp.vec3  # of a box half its edges
    c: wp.vec3
    base: float  # height of the bottom of a prism, whose top is the triangle [m]
    radius: float  # by which it is widened [m]


@wp.func
def support_of_cell(_pieces: wp.uint64, cell: Cell, direction: wp.vec3) -> wp.vec3:
    """The point of a cell without its radius that is farthest along a direction."""
    if cell.kind == BOX:
        return cell.a + with_signs_of(cell.b, direction)
    along = wp.vec3(direction)
    is_below = cell.kind == PRISM and direction[2] < 0.0
    if is_below:
        along[2] = 0.0
    best = wp.vec3(cell.a)
    if wp.dot(along, cell.b) > wp.dot(along, best):
        best = cell.b
    if wp.dot(along, cell.c) > wp.dot(along, best):
        best = cell.c
    if is_below:
        best[2] = cell.base
    return best


@wp.func
def way_from_cell(cell: Cell, point: wp.vec3) -> wp.vec3:
    """About from the closest point of a cell to a point; the point itself may be inside."""
    if cell.kind == BOX:
        local = point - cell.a
        return local - wp.min(wp.max(local, -cell.b), cell.b)
    a = cell.a - point
    b = cell.b - point
    c = cell.c - point
    weights = nearest_in_triangle(a, b, c)
    return -(weights[0] * a + weights[1] * b + weights[2] * c)


@wp.func
def coordinates_of_cell(cell: Cell) -> float:
    """Length that distances from a cell are rounded by [m]."""
    if cell.kind == BOX:
        return wp.length(cell.a) + wp.length(cell.b) + cell.radius
    farthest = wp.max(wp.max(wp.length(cell.a), wp.length(cell.b)), wp.length(cell.c))
    return farthest + wp.abs(cell.base)


@wp.func
def face_cell(mesh_id: wp.uint64, face: int) -> Cell:
    """A triangle of a mesh."""
    mesh = wp.mesh_get(mesh_id)
    a = mesh.points[mesh.indices[3 * face]]
    b = mesh.points[mesh.indices[3 * face + 1]]
    return Cell(TRIANGLE, a, b, mesh.points[mesh.indices[3 * face + 2]], 0.0, 0.0)


@wp.func
def part_cell(tree: PartTree, index: int) -> Cell:
    """A ball of a cloud, or a rectangle between voxels."""
    low = part_vector(tree, index, 0)
    high = part_vector(tree, index, tree.stride - 1)
    below = wp.vec3(low[0], low[1], low[2])
    above = wp.vec3(high[0], high[1], high[2])
    middle = 0.5 * (below + above)
    return Cell(BOX, middle, wp.max(above - middle, middle - below), wp.vec3(0.0), 0.0, low[3])


@wp.func
def field_cell(field: HeightMap, i: int, j: int, second: bool) -> Cell:
    """What is below one of the two triangles of a cell of a height field."""
    low = node_at(field, i, j)
    high = node_at(field, i + 1, j + 1)
    a = wp.vec3(low[0], low[1], node_height(field, i, j))
    c = wp.vec3(high[0], high[1], node_height(field, i + 1, j + 1))
    b = wp.vec3(high[0], low[1], node_height(field, i + 1, j))
    if second:
        b = wp.vec3(low[0], high[1], node_height(field, i, j + 1))
    return Cell(PRISM, a, b, c, field.base, 0.0)


@wp.func
def has_cells(record: MeshRecord) -> bool:
    """Whether an obstacle without a formula is the union of its cells and what these enclose."""
    kind = record.exact.kind
    if kind == Shape.MESH:
        return record.inside_reach == 0.0
    return kind != Shape.ESDF_GRID


@wp.func
def is_point_inside(record: MeshRecord, point: wp.vec3) -> bool:
    """Whether a point that is not near any cell is inside of the obstacle."""
    kind = record.exact.kind
    if kind == Shape.VOXEL_GRID:
        return side_at(load_map(record.exact.data), point) < 0.0
    if kind != Shape.MESH or record.sign_method == SHEET:
        return False
    side = side_by_bounds(bounds_of_distance(record, point))
    if side == 0.0:
        side = side_of_mesh(record, point)
    return not (side > 0.0)


@wp.struct
class FieldRange:
    """Cells of a height field, seen from above, within a box: from, and to and with."""

    x: wp.vec2i
    y: wp.vec2i
    is_empty: bool


@wp.func
def cells_within(field: HeightMap, lower: wp.vec3, upper: wp.vec3) -> FieldRange:
    """The cells whose columns meet a box, and some beside it."""
    shape = field.shape
    high = node_at(field, shape[0], shape[1])
    is_empty = lower[0] > high[0] or lower[1] > high[1] or upper[2] < field.base
    is_empty = is_empty or upper[0] < field.lower[0] or upper[1] < field.lower[1]
    first = wp.cw_div(wp.vec2(lower[0], lower[1]) - field.lower, field.cell) - wp.vec2(0.01)
    last = wp.cw_div(wp.vec2(upper[0], upper[1]) - field.lower, field.cell) + wp.vec2(0.01)
    x = wp.vec2i(cell_along(first[0], shape[0]), cell_along(last[0], shape[0]))
    y = wp.vec2i(cell_along(first[1], shape[1]), cell_along(last[1], shape[1]))
    return FieldRange(x, y, is_empty)


@wp.func
def passed_over(field: HeightMap, i: int, j: int, height: float) -> int:
    """How many cells along y, from one on, are in a block that is below a height; 0: none.

    Of a block that reaches higher, 1 for a cell that does not.
    """
    level = wp.min(BLOCK_LEVEL, field.top)
    if heights_of_block(field, level, i >> level, j >> level)[1] < height:
        return (((j >> level) + 1) << level) - j
    return wp.where(heights_of_block(field, 0, i, j)[1] < height, 1, 0)


def make_cell_walk(visit, Query, State, is_over=is_never_over):
    """A device function that walks over the cells of an obstacle within a box.

    Args:
        visit: device function (cell: Cell, query: Query, state: State) -> State.
        Query: type of the constant argument of the visitor.
        State: type of the state that it updates.
        is_over: device function (state: State) -> bool, whether the walk ends.
    """

    def walk_over_field(
        pointer: wp.uint64, lower: wp.vec3, upper: wp.vec3, query: Query, state: State
    ) -> State:
        """Visits the cells of a height field."""
        field = load_heights(pointer)
        within = cells_within(field, lower, upper)
        if within.is_empty:
            return state
        for i in range(within.x[0], within.x[1] + 1):
            j = int(within.y[0])
            while j <= within.y[1] and not is_over(state):
                passed = passed_over(field, i, j, lower[2])
                if passed == 0:
                    for half in range(2):
                        state = visit(field_cell(field, i, j, half == 1), query, state)
                    passed = 1
                j += passed
        return state

    over_field = named(walk_over_field, visit.key)

    def walk_over_cells(
        record: MeshRecord,
        lower: wp.vec3,
        upper: wp.vec3,
        query: Query,
        state: State,
        failed: State,
    ) -> State:
        """Visits all cells that meet a box, in any order, and some more.

        Args:
            record: of the obstacle.
            lower: corners of the box, in the frame of its mesh [m].
            upper: likewise.
            query: for the visitor.
            state: for the visitor.
            failed: the state where the cells could not be found.
        """
        kind = record.exact.kind
        if kind == Shape.HEIGHT_FIELD:
            return over_field(record.exact.data, lower, upper, query, state)
        tree = PartTree()
        if kind == Shape.POINT_CLOUD:
            tree = load_tree(record.exact.data)
        elif kind == Shape.VOXEL_GRID:
            tree = load_map(record.exact.data).faces
        skip = int(0)
        more = bool(True)
        while more:
            near = near_parts(0)
            if kind == Shape.MESH:
                near = faces_in_box(record.mesh_id, lower, upper, skip)
            else:
                near = parts_in_box(tree, lower, upper, skip)
            if near[0] < 0:
                return failed
            for k in range(near[0]):
                if not is_over(state):
                    cell = Cell()
                    if kind == Shape.MESH:
                        cell = face_cell(record.mesh_id, near[k + 1])
                    else:
                        cell = part_cell(tree, near[k + 1])
                    state = visit(cell, query, state)
            skip += near[0]
            more = near[0] == AT_ONCE and not is_over(state)
        return state

    return named(walk_over_cells, visit.key)

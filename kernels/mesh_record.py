"""The record of a mesh: sign method, exact shape, bounding box and grid, and bounds from them."""

from enum import IntEnum

import warp as wp

# Larger than any distance in a scene; its square is finite in float32.
FAR = wp.constant(1.0e15)
# Rounding of a closest point, relative to the coordinates it was computed from.
ROUNDING = wp.constant(4.0e-6)

# How far vertices may lie before the faces of a convex mesh, relative to its size: more than
# `topology.is_convex` allows.
NOT_CONVEX = wp.constant(2.0e-6)

# Sign methods: inside or outside.
WINDING = wp.constant(0)  # winding number, approximated by a tree
EXACT_WINDING = wp.constant(1)  # the same, summed over all triangles where the tree leaves a doubt
CONVEX = wp.constant(2)  # inside is behind the face of the closest point
SHEET = wp.constant(3)  # nothing is inside: both sides of the surface are outside
UNORIENTED = wp.constant(4)  # EXACT_WINDING, of faces that all may look inwards


class Shape(IntEnum):
    """Geometry of an obstacle: its triangles, or what queries see instead of them.

    Those before the point cloud are convex and have a formula; the others are sensed.
    """

    MESH = 0
    CUBOID = 1
    SPHERE = 2
    CAPSULE = 3
    CYLINDER = 4
    HALF_SPACE = 5
    CONE = 6
    POINT_CLOUD = 100
    VOXEL_GRID = 101
    ESDF_GRID = 102
    HEIGHT_FIELD = 103


@wp.struct
class DistanceGrid:
    """Signed distances at the centers of cubic cells, x running fastest.

    The signed distance of an open mesh jumps where the winding number passes 1/2. So only cells in
    which all points are on the side of the center have a value there, the others `FAR`.
    """

    values: wp.uint64  # pointer to (nz, ny, nx) float32 [m]; 0: no grid
    origin: wp.vec3  # lower corner of the first cell [m]
    cell: float  # edge of a cell [m]
    shape: wp.vec3i  # nx, ny, nz


@wp.struct
class ExactShape:
    """What queries see instead of the triangles of a mesh, in the frame of the mesh."""

    kind: int  # a Shape
    is_rotated: bool  # whether its axes are not those of the mesh
    center: wp.vec3  # of a half space a point of its plane
    # Of a cuboid half its edges, of a half space its unit normal; else radius, radius, half length
    # along z; of a cone the length of its side is the second [m].
    size: wp.vec3
    rotation: wp.quat  # shape_from_mesh, used where is_rotated
    data: wp.uint64  # pointer to what a shape without a formula is made of, as a PointTree


@wp.struct
class MeshRecord:
    """The obstacle of a slot; one for equal geometry, shared by all envs."""

    mesh_id: wp.uint64  # the Warp mesh of its triangles; 0: it has none
    exact: ExactShape  # its exact shape, if it has one
    lower: wp.vec3  # corners of the bounding box [m]
    upper: wp.vec3
    inside_reach: float  # farthest that a point outside the box can count as inside the mesh [m]
    sign_method: int  # WINDING, EXACT_WINDING, CONVEX or SHEET
    grid: DistanceGrid


@wp.func
def unknown_record(mesh_id: wp.uint64) -> MeshRecord:
    """The record of a mesh of which nothing is known but its id: queries are slow, and right."""
    record = MeshRecord()
    record.mesh_id = mesh_id
    record.lower = wp.vec3(-FAR, -FAR, -FAR)
    record.upper = wp.vec3(FAR, FAR, FAR)
    record.inside_reach = FAR
    record.sign_method = UNORIENTED
    return record


@wp.func
def load_record(pointer: wp.uint64) -> MeshRecord:
    """The record at a pointer."""
    return wp.array(ptr=pointer, shape=(1,), dtype=MeshRecord)[0]


@wp.func
def kind_of(pointer: wp.uint64) -> int:
    """The shape in the record at a pointer."""
    return wp.array(ptr=pointer, shape=(1,), dtype=MeshRecord)[0].exact.kind


@wp.func
def is_exact(pointer: wp.uint64) -> bool:
    """Whether the record at a pointer has a shape with a formula."""
    kind = kind_of(pointer)
    return kind > Shape.MESH and kind < Shape.POINT_CLOUD


@wp.func
def convexity(pointer: wp.uint64) -> float:
    """How far a shape may be from a convex one [m]; negative where that is not known.

    0 for those with a formula; vertices of a mesh may lie before its faces by rounding.
    """
    kind = kind_of(pointer)
    if kind >= Shape.POINT_CLOUD:
        return -1.0
    if kind != Shape.MESH:
        return 0.0
    record = wp.array(ptr=pointer, shape=(1,), dtype=MeshRecord)
    if record[0].sign_method != CONVEX:
        return -1.0
    return NOT_CONVEX * wp.max(record[0].upper - record[0].lower)


@wp.func
def knows_surface(pointer: wp.uint64, is_outside: bool) -> bool:
    """Whether closest points are of the surface, so that distances to them bound the depth.

    Inside a union of balls the closest point of one ball may be deep in another; a bound of a
    distance has none.
    """
    kind = kind_of(pointer)
    if kind == Shape.POINT_CLOUD:
        return is_outside
    return kind != Shape.ESDF_GRID


@wp.func
def load_exact(pointer: wp.uint64) -> ExactShape:
    """The exact shape in the record at a pointer."""
    return wp.array(ptr=pointer, shape=(1,), dtype=MeshRecord)[0].exact


@wp.func
def distance_to_box(point: wp.vec3, lower: wp.vec3, upper: wp.vec3) -> float:
    """Distance to an axis-aligned box, 0 inside."""
    return wp.length(wp.max(wp.max(lower - point, point - upper), wp.vec3(0.0)))


@wp.func
def part_in_box(
    begin: wp.vec3, direction: wp.vec3, length: float, lower: wp.vec3, upper: wp.vec3
) -> wp.vec2:
    """From where to where a straight path is in a box [m]; the first is larger if nowhere."""
    part = wp.vec2(0.0, length)
    for axis in range(3):
        to_lower = lower[axis] - begin[axis]
        to_upper = upper[axis] - begin[axis]
        if direction[axis] != 0.0:
            first = to_lower / direction[axis]
            second = to_upper / direction[axis]
            part[0] = wp.max(part[0], wp.min(first, second))
            part[1] = wp.min(part[1], wp.max(first, second))
        elif to_lower > 0.0 or to_upper < 0.0:
            part[1] = -1.0
    return part


@wp.func
def cell_center(origin: wp.vec3, edge: float, x: int, y: int, z: int) -> wp.vec3:
    """Center of a cell of a grid of cubes."""
    return origin + edge * wp.vec3(float(x) + 0.5, float(y) + 0.5, float(z) + 0.5)


@wp.func
def cell_around(point: wp.vec3, origin: wp.vec3, edge: float, shape: wp.vec3i) -> wp.vec3i:
    """Index x, y, z of the cell around a point; -1 outside of the grid."""
    scaled = (point - origin) / edge
    x = int(wp.floor(scaled[0]))
    y = int(wp.floor(scaled[1]))
    z = int(wp.floor(scaled[2]))
    inside = x >= 0 and y >= 0 and z >= 0
    if not inside or x >= shape[0] or y >= shape[1] or z >= shape[2]:
        return wp.vec3i(-1, -1, -1)
    return wp.vec3i(x, y, z)


@wp.func
def cell_along(place: float, count: int) -> int:
    """Index of the cell along one axis that is closest to a place, in cells; 0 for NaN."""
    return int(wp.where(place > 0.0, wp.min(place, float(count) - 0.5), 0.0))


@wp.func
def bounds_from_grid(grid: DistanceGrid, point: wp.vec3) -> wp.vec2:
    """Certified bounds of the signed distance, 1-Lipschitz, by the value at the cell's center."""
    cell = cell_around(point, grid.origin, grid.cell, grid.shape)
    if cell[0] < 0:
        return wp.vec2(-FAR, FAR)
    shape = (grid.shape[2], grid.shape[1], grid.shape[0])
    value = wp.array(ptr=grid.values, shape=shape, dtype=wp.float32)[cell[2], cell[1], cell[0]]
    if value >= FAR:
        return wp.vec2(-FAR, FAR)
    center = cell_center(grid.origin, grid.cell, cell[0], cell[1], cell[2])
    reach = wp.length(point - center) + ROUNDING * (wp.length(center) + wp.abs(value))
    return wp.vec2(value - reach, value + reach)


@wp.func
def bounds_of_distance(record: MeshRecord, point: wp.vec3) -> wp.vec2:
    """Certified lower and upper bound of the signed distance, without looking at a triangle."""
    outside = distance_to_box(point, record.lower, record.upper)
    # Points beside the box are outside of a closed mesh, but may count as inside of an open one.
    if outside > record.inside_reach:
        return wp.vec2(outside, FAR)
    if record.grid.values == wp.uint64(0):
        return wp.vec2(-FAR, FAR)
    return bounds_from_grid(record.grid, point)

"""What is known of a mesh beside its triangles, and what that says about a distance for free."""

from enum import IntEnum

import warp as wp

# Farther than anything in a scene, yet its square is finite in float32.
FAR = wp.constant(1.0e15)
# Rounding of a closest point, relative to the coordinates it was computed from.
ROUNDING = wp.constant(4.0e-6)

# How inside is told from outside.
WINDING = wp.constant(0)  # winding number, approximated by a tree
EXACT_WINDING = wp.constant(1)  # the same, summed over all triangles where the tree leaves a doubt
CONVEX = wp.constant(2)  # inside is behind the face of the closest point


class Shape(IntEnum):
    """What a mesh stands for: its triangles, or the exact shape that they are tessellated from."""

    MESH = 0
    CUBOID = 1
    SPHERE = 2
    CAPSULE = 3
    CYLINDER = 4


@wp.struct
class DistanceGrid:
    """Signed distances at the centers of cubic cells, x running fastest.

    Of an open mesh, whose signed distance jumps where the winding number passes 1/2, only cells in
    which no point has another side than the center have a value; the others have `FAR`.
    """

    values: wp.uint64  # pointer to (nz, ny, nx) float32 [m]; 0: no grid
    origin: wp.vec3  # lower corner of the first cell [m]
    cell: float  # edge of a cell [m]
    shape: wp.vec3i  # nx, ny, nz


@wp.struct
class ExactShape:
    """A shape that has a formula, in the frame of its mesh."""

    kind: int  # a Shape
    is_turned: bool  # whether its axes are not those of the mesh
    center: wp.vec3
    size: wp.vec3  # of a cuboid half its edges; else radius, radius, half length along z [m]
    turn: wp.quat  # rotation to the shape's frame from the mesh's, where it is turned


@wp.struct
class MeshRecord:
    """What is known of a mesh; one per mesh, shared by all envs."""

    mesh_id: wp.uint64  # the mesh that all this is about
    exact: ExactShape  # what it stands for, if that has a formula
    lower: wp.vec3  # corners of the bounding box [m]
    upper: wp.vec3
    inside_reach: float  # farthest that a point outside the box can count as inside the mesh [m]
    sign_method: int  # WINDING, EXACT_WINDING or CONVEX
    grid: DistanceGrid
    candidates: wp.uint64  # pointer to a CandidateGrid; 0: none


@wp.func
def load_record(mesh_id: wp.uint64, pointer: wp.uint64) -> MeshRecord:
    """The record behind a pointer, if it is that of the mesh; else one that knows nothing."""
    if pointer != wp.uint64(0):
        known = wp.array(ptr=pointer, shape=(1,), dtype=MeshRecord)[0]
        if known.mesh_id == mesh_id:
            return known
    record = MeshRecord()
    record.mesh_id = mesh_id
    record.lower = wp.vec3(-FAR, -FAR, -FAR)
    record.upper = wp.vec3(FAR, FAR, FAR)
    record.inside_reach = FAR
    record.sign_method = EXACT_WINDING
    return record


@wp.func
def is_exact(mesh_id: wp.uint64, pointer: wp.uint64) -> bool:
    """Whether the record behind a pointer is that of the mesh, and says that it has a formula."""
    if pointer == wp.uint64(0):
        return False
    record = wp.array(ptr=pointer, shape=(1,), dtype=MeshRecord)
    return record[0].exact.kind != Shape.MESH and record[0].mesh_id == mesh_id


@wp.func
def load_exact(pointer: wp.uint64) -> ExactShape:
    """The exact shape in the record behind a pointer."""
    return wp.array(ptr=pointer, shape=(1,), dtype=MeshRecord)[0].exact


@wp.func
def distance_to_box(point: wp.vec3, lower: wp.vec3, upper: wp.vec3) -> float:
    """Distance to an axis-aligned box, 0 inside."""
    return wp.length(wp.max(wp.max(lower - point, point - upper), wp.vec3(0.0)))


@wp.func
def cell_center(origin: wp.vec3, edge: float, x: int, y: int, z: int) -> wp.vec3:
    """Center of a cell of a grid of cubes."""
    return origin + edge * wp.vec3(float(x) + 0.5, float(y) + 0.5, float(z) + 0.5)


@wp.func
def cell_around(point: wp.vec3, origin: wp.vec3, edge: float, shape: wp.vec3i) -> wp.vec3i:
    """The cell x, y, z that a point is in; x is -1 where that is none of the grid."""
    place = (point - origin) / edge
    x = int(wp.floor(place[0]))
    y = int(wp.floor(place[1]))
    z = int(wp.floor(place[2]))
    inside = x >= 0 and y >= 0 and z >= 0
    if not inside or x >= shape[0] or y >= shape[1] or z >= shape[2]:
        return wp.vec3i(-1, -1, -1)
    return wp.vec3i(x, y, z)


@wp.func
def bounds_from_grid(grid: DistanceGrid, point: wp.vec3) -> wp.vec2:
    """Certified bounds of the signed distance: it changes by no more than the way to the center."""
    cell = cell_around(point, grid.origin, grid.cell, grid.shape)
    if cell[0] < 0:
        return wp.vec2(-FAR, FAR)
    shape = (grid.shape[2], grid.shape[1], grid.shape[0])
    value = wp.array(ptr=grid.values, shape=shape, dtype=wp.float32)[cell[2], cell[1], cell[0]]
    if value >= FAR:
        return wp.vec2(-FAR, FAR)
    center = cell_center(grid.origin, grid.cell, cell[0], cell[1], cell[2])
    way = wp.length(point - center) + ROUNDING * (wp.length(center) + wp.abs(value))
    return wp.vec2(value - way, value + way)


@wp.func
def bounds_of_distance(record: MeshRecord, point: wp.vec3) -> wp.vec2:
    """Certified lower and upper bound of the signed distance, without looking at a triangle."""
    outside = distance_to_box(point, record.lower, record.upper)
    # Outside of its box a closed mesh is not; an open one may count as inside for some way.
    if outside > record.inside_reach:
        return wp.vec2(outside, FAR)
    if record.grid.values == wp.uint64(0):
        return wp.vec2(-FAR, FAR)
    return bounds_from_grid(record.grid, point)

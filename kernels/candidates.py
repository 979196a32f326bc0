"""Closest triangle of a point, from a list of all candidates in a cell of a grid.

Triangles are listed in groups of neighbours; the finer a mesh is, the larger are its groups.
"""

import warp as wp

from warp_collision.kernels.mesh_record import MeshRecord, cell_around, cell_center

# The direction of a candidate is stored in this many steps to each side, its height in this many.
STEPS = wp.constant(127.0)
HEIGHTS = wp.constant(255.0)


@wp.struct
class Candidate:
    """A group that can hold the closest triangle in a cell, and a lower bound of its distance.

    The bytes of the bound are, from the lowest, h, x + 128, y + 128 and z + 128: a point at p from
    the center of the cell is at least ``low + h * step + dot((x, y, z) / STEPS, p)`` away.
    """

    group: int
    bound: wp.uint32


@wp.struct
class CandidateCell:
    """The list of one cell."""

    first: int  # where it begins among all candidates
    count: int  # 0: the cell has no list
    low: float  # what all its bounds begin with [m]


@wp.struct
class CandidateGrid:
    """The candidates of each cell of a grid of cubes."""

    cells: wp.uint64  # pointer to (nz * ny * nx,) CandidateCell, x running fastest
    candidates: wp.uint64  # pointer to (n_candidates,) Candidate
    corners: wp.uint64  # pointer to (n_triangles, 3) vec3, corners of triangles by group [m]
    faces: wp.uint64  # pointer to (n_triangles,) int32, which faces of the mesh these are
    n_candidates: int
    n_triangles: int
    group_size: int  # triangles of a group
    origin: wp.vec3  # lower corner of the first cell [m]
    cell: float  # edge of a cell [m]
    shape: wp.vec3i  # nx, ny, nz


@wp.struct
class ClosestPoint:
    """Closest point of a mesh: triangle and barycentric coordinates."""

    found: bool
    is_known: bool  # if not found: whether that proves that nothing is nearer
    face: int
    u: float
    v: float


@wp.func
def corners_of(grid: CandidateGrid, triangle: int) -> wp.mat33:
    """Corners of a triangle, as rows."""
    corners = wp.array(ptr=grid.corners, shape=(grid.n_triangles, 3), dtype=wp.vec3)
    return wp.matrix_from_rows(corners[triangle, 0], corners[triangle, 1], corners[triangle, 2])


@wp.func
def height_step(grid: CandidateGrid) -> float:
    """One step of the height of a bound: all of them are the diagonal of a cell [m]."""
    return grid.cell * (1.7320508 / HEIGHTS)


@wp.func
def closest_on_triangle(a: wp.vec3, b: wp.vec3, c: wp.vec3, point: wp.vec3) -> wp.vec2:
    """Barycentric coordinates u, v of the closest point of a triangle.

    Ericson, Real-Time Collision Detection, 2005, section 5.1.5. The order and the rounding are
    those of Warp's queries, so that both find the same point to the last bit.
    """
    ab = b - a
    ac = c - a
    ap = point - a
    d1 = wp.dot(ab, ap)
    d2 = wp.dot(ac, ap)
    if d1 <= 0.0 and d2 <= 0.0:
        return wp.vec2(1.0, 0.0)
    bp = point - b
    d3 = wp.dot(ab, bp)
    d4 = wp.dot(ac, bp)
    if d3 >= 0.0 and d4 <= d3:
        return wp.vec2(0.0, 1.0)
    vc = d1 * d4 - d3 * d2
    if vc <= 0.0 and d1 >= 0.0 and d3 <= 0.0:
        v = d1 / (d1 - d3)
        return wp.vec2(1.0 - v, v)
    cp = point - c
    d5 = wp.dot(ab, cp)
    d6 = wp.dot(ac, cp)
    if d6 >= 0.0 and d5 <= d6:
        return wp.vec2(0.0, 0.0)
    vb = d5 * d2 - d1 * d6
    if vb <= 0.0 and d2 >= 0.0 and d6 <= 0.0:
        return wp.vec2(1.0 - d2 / (d2 - d6), 0.0)
    va = d3 * d6 - d5 * d4
    if va <= 0.0 and d4 - d3 >= 0.0 and d5 - d6 >= 0.0:
        w = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        return wp.vec2(1.0 - (1.0 - w) - w, 1.0 - w)
    scale = 1.0 / (va + vb + vc)
    return wp.vec2(1.0 - vb * scale - vc * scale, vb * scale)


@wp.func
def closest_in_list(
    grid: CandidateGrid, cell: CandidateCell, offset: wp.vec3, point: wp.vec3, limit: float
) -> ClosestPoint:
    """Closest point among the triangles of a list whose bound is below the least distance so far.

    Args:
        grid: all lists.
        cell: with a list.
        offset: from the center of the cell to the point [m].
        point: in the cell.
        limit: only triangles that are nearer count [m].
    """
    candidates = wp.array(ptr=grid.candidates, shape=(grid.n_candidates,), dtype=Candidate)
    closest = ClosestPoint()
    closest.is_known = True
    along = offset / STEPS
    low = cell.low - 128.0 * (along[0] + along[1] + along[2])
    step = height_step(grid)
    least = float(limit)
    least_sq = limit * limit
    for index in range(cell.first, cell.first + cell.count):
        candidate = candidates[index]
        code = candidate.bound
        bound = (
            low
            + step * float(code & wp.uint32(255))
            + along[0] * float((code >> wp.uint32(8)) & wp.uint32(255))
            + along[1] * float((code >> wp.uint32(16)) & wp.uint32(255))
            + along[2] * float(code >> wp.uint32(24))
        )
        if bound < least:
            first = candidate.group * grid.group_size
            for triangle in range(first, first + grid.group_size):
                abc = corners_of(grid, triangle)
                uv = closest_on_triangle(abc[0], abc[1], abc[2], point)
                w = 1.0 - uv[0] - uv[1]
                distance_sq = wp.length_sq(uv[0] * abc[0] + uv[1] * abc[1] + w * abc[2] - point)
                if distance_sq < least_sq:
                    least_sq = distance_sq
                    closest.found = True
                    closest.face = triangle
                    closest.u = 1.0 - uv[1] - w
                    closest.v = uv[1]
            least = wp.sqrt(least_sq)
    if closest.found:
        closest.face = wp.array(ptr=grid.faces, shape=(grid.n_triangles,), dtype=int)[closest.face]
    return closest


@wp.func_native("""
#if defined(__CUDA_ARCH__) || WP_TILE_BLOCK_DIM > 1
    return false;
#else
    return true;
#endif
""")
def runs_on_cpu() -> bool:
    """Constant in a compiled kernel: a GPU has no lists, which would cost registers.

    On a CPU a block has one thread. Compiled for more, kernels do there what they do on a GPU.
    """
    ...


@wp.func
def closest_listed(record: MeshRecord, point: wp.vec3, limit: float) -> ClosestPoint:
    """Closest point of a mesh nearer than a limit; not known if the cell has no list."""
    if not runs_on_cpu() or record.candidates == wp.uint64(0):
        return ClosestPoint()
    grid = wp.array(ptr=record.candidates, shape=(1,), dtype=CandidateGrid)[0]
    index = cell_around(point, grid.origin, grid.cell, grid.shape)
    if index[0] < 0:
        return ClosestPoint()
    shape = (grid.shape[0] * grid.shape[1] * grid.shape[2],)
    cells = wp.array(ptr=grid.cells, shape=shape, dtype=CandidateCell)
    cell = cells[(index[2] * grid.shape[1] + index[1]) * grid.shape[0] + index[0]]
    if cell.count == 0:
        return ClosestPoint()
    center = cell_center(grid.origin, grid.cell, index[0], index[1], index[2])
    return closest_in_list(grid, cell, point - center, point, limit)

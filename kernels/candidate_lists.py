"""Finds the candidates of each cell of a grid: triangles that are closest to some point in it.

The distance of a point p to a group of triangles is bounded from below by planes: for a unit vector
g it is at least g . (p - t) for the t of the group that makes this least, a corner. A group is
ruled out in a cube where a triangle, its rival, is nearer everywhere. The plane of the one minus
the distance of the other, which is convex, is concave in p, so that its least value in the cube is
at a corner: eight comparisons prove it. The error of a plane is of second order in the size of the
cube, which is why cubes are halved until they are small.
"""

import warp as wp

from warp_collision.kernels.candidates import (
    HEIGHTS,
    STEPS,
    Candidate,
    CandidateCell,
    CandidateGrid,
    closest_on_triangle,
    corners_of,
    height_step,
)
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_record import FAR, ROUNDING, MeshRecord, cell_center

# Loops over corners within loops over rivals, unrolled, would take half a minute to compile.
wp.set_module_options({**OPTIONS, "max_unroll": 1})

# Cells are filled in blocks of 4 x 4 x 4, which share a query of the tree.
BLOCK = wp.constant(4)
SQRT_3 = wp.constant(1.7320509)
# Longer lists are left out: each would take the memory of many others.
LONGEST = wp.constant(1500)
# Rivals of a cube: the nearest triangle at its center, and those by their planes at the corners.
RIVALS = wp.constant(9)
RivalDistances = wp.types.matrix(shape=(9, 8), dtype=wp.float32)
AtCorners = wp.types.vector(length=8, dtype=wp.float32)


@wp.struct
class Stack:
    """Lists of groups on top of each other, each for a part of the cube of the one below."""

    groups: wp.array[wp.int32]
    planes: wp.array[wp.vec4]  # g, and its least product with (center - t) [m]
    distances: wp.array[wp.float32]  # from the center [m]
    needed: wp.array[wp.int32]  # whether a part of the cube needs the group
    group_of: wp.array[wp.int32]  # (n_faces,) the group of a face of the mesh, -1: none
    seen: wp.array[wp.int32]  # (n_groups,) the last block that visited it


@wp.struct
class Cube:
    """A cube, somewhat enlarged for rounding."""

    center: wp.vec3
    half: float  # half of an edge [m]


@wp.func
def corner_of(k: int, half: float) -> wp.vec3:
    """Corner k of a cube, from its center."""
    return wp.vec3(
        wp.where((k & 1) == 0, -half, half),
        wp.where((k & 2) == 0, -half, half),
        wp.where((k & 4) == 0, -half, half),
    )


@wp.func
def part_of(cube: Cube, k: int) -> Cube:
    """Eighth k of a cube."""
    part = Cube()
    part.half = 0.5 * cube.half
    part.center = cube.center + corner_of(k, part.half)
    return part


@wp.func
def offset_from(grid: CandidateGrid, triangle: int, point: wp.vec3) -> wp.vec3:
    """Offset of a point from the closest point of a triangle."""
    abc = corners_of(grid, triangle)
    uv = closest_on_triangle(abc[0], abc[1], abc[2], point)
    return point - (uv[0] * abc[0] + uv[1] * abc[1] + (1.0 - uv[0] - uv[1]) * abc[2])


@wp.func
def nearest_in(grid: CandidateGrid, group: int, point: wp.vec3) -> int:
    """The triangle of a group that is nearest to a point."""
    first = group * grid.group_size
    nearest = int(first)
    least = float(FAR)
    for triangle in range(first, first + grid.group_size):
        distance = wp.length(offset_from(grid, triangle, point))
        if distance < least:
            least = distance
            nearest = triangle
    return nearest


@wp.func
def height_over(grid: CandidateGrid, group: int, g: wp.vec3, point: wp.vec3) -> float:
    """Least product of a vector with the offsets of a point from the corners of a group."""
    least = float(FAR)
    first = group * grid.group_size
    for triangle in range(first, first + grid.group_size):
        offsets = wp.matrix_from_rows(point, point, point) - corners_of(grid, triangle)
        least = wp.min(least, wp.min(offsets * g))
    return least


@wp.func
def plane_at(plane: wp.vec4, offset: wp.vec3) -> float:
    """Lower bound of the distance at an offset from the center."""
    return plane[0] * offset[0] + plane[1] * offset[1] + plane[2] * offset[2] + plane[3]


@wp.func
def push(grid: CandidateGrid, stack: Stack, at: int, group: int, center: wp.vec3) -> float:
    """Pushes a group on the stack; returns its distance from the center."""
    offset = offset_from(grid, nearest_in(grid, group, center), center)
    distance = wp.length(offset)
    g = offset / wp.max(distance, 1.0e-20)
    stack.groups[at] = group
    stack.planes[at] = wp.vec4(g[0], g[1], g[2], height_over(grid, group, g, center))
    stack.distances[at] = distance
    return distance


@wp.func
def move(stack: Stack, source: int, target: int):
    """Copies an entry of the stack."""
    stack.groups[target] = stack.groups[source]
    stack.planes[target] = stack.planes[source]
    stack.distances[target] = stack.distances[source]


@wp.func
def rivals_in(
    grid: CandidateGrid, stack: Stack, first: int, last: int, cube: Cube, rivals: int
) -> RivalDistances:
    """Distances of the rivals to the corners of a cube."""
    found = RivalDistances()
    for rival in range(rivals):
        least = float(FAR)
        group = int(0)
        at = wp.vec3(0.0)
        if rival > 0:
            at = corner_of(rival - 1, cube.half)
        for i in range(first, last):
            value = stack.distances[i]
            if rival > 0:
                value = plane_at(stack.planes[i], at)
            if value < least:
                least = value
                group = stack.groups[i]
        triangle = nearest_in(grid, group, cube.center + at)
        for k in range(8):
            offset = offset_from(grid, triangle, cube.center + corner_of(k, cube.half))
            found[rival, k] = wp.length(offset)
    return found


@wp.func
def is_ruled_out(distances: RivalDistances, rivals: int, plane: wp.vec4, half: float) -> bool:
    """Whether a rival is nearer at every corner of a cube."""
    bounds = AtCorners()
    for k in range(8):
        bounds[k] = plane_at(plane, corner_of(k, half))
    for rival in range(rivals):
        k = int(0)
        while k < 8 and bounds[k] > distances[rival, k]:
            k += 1
        if k == 8:
            return True
    return False


@wp.func
def drop_ruled_out(
    grid: CandidateGrid, stack: Stack, first: int, last: int, cube: Cube, rivals: int
) -> int:
    """Keeps the candidates of a cube in their order; returns the new end of the list."""
    distances = rivals_in(grid, stack, first, last, cube, rivals)
    rounding = ROUNDING * (wp.length(cube.center) + distances[0, 0] + 4.0 * cube.half)
    end = int(first)
    for i in range(first, last):
        plane = stack.planes[i]
        plane[3] = plane[3] - rounding
        if not is_ruled_out(distances, rivals, plane, cube.half):
            move(stack, i, end)
            end += 1
    return end


@wp.func
def narrow(
    grid: CandidateGrid, stack: Stack, first: int, last: int, cube: Cube, rivals: int
) -> int:
    """Pushes what remains of the topmost list in a part of its cube."""
    for i in range(first, last):
        push(grid, stack, last + i - first, stack.groups[i], cube.center)
    return drop_ruled_out(grid, stack, last, 2 * last - first, cube, rivals)


@wp.func
def gather(mesh_id: wp.uint64, grid: CandidateGrid, stack: Stack, cube: Cube, block: int) -> int:
    """Begins the stack with the candidates of a cube; returns how many, 0 if they do not fit."""
    query = wp.mesh_query_point_no_sign(mesh_id, cube.center, FAR)
    if not query.result:
        return 0
    closest = wp.mesh_eval_position(mesh_id, query.face, query.u, query.v)
    # No candidate is farther from the center than the closest triangle there and twice the distance
    # to a corner.
    reach = wp.length(closest - cube.center) + 2.0 * SQRT_3 * cube.half
    reach += ROUNDING * (wp.length(cube.center) + reach)
    near = wp.mesh_query_aabb(mesh_id, cube.center - wp.vec3(reach), cube.center + wp.vec3(reach))
    count = int(0)
    face = int(0)
    while wp.mesh_query_aabb_next(near, face):
        # Room for three more lists: of an eighth, of an eighth of it, and of one of that.
        if 4 * (count + 1) > stack.groups.shape[0]:
            return 0
        group = stack.group_of[face]
        if group >= 0:
            if stack.seen[group] != block:
                stack.seen[group] = block
                if push(grid, stack, count, group, cube.center) <= reach:
                    count += 1
    if count == 0:
        return 0
    return drop_ruled_out(grid, stack, 0, count, cube, RIVALS)


@wp.func
def drop_unneeded(grid: CandidateGrid, stack: Stack, first: int, last: int, cube: Cube) -> int:
    """Keeps the groups that some eighth of the cube needs; returns the new end of the list."""
    for i in range(first, last):
        stack.needed[i] = 0
    for k in range(8):
        end = narrow(grid, stack, first, last, part_of(cube, k), 1)
        i = int(first)
        for j in range(last, end):
            while stack.groups[i] != stack.groups[j]:
                i += 1
            stack.needed[i] = 1
    end = int(first)
    for i in range(first, last):
        if stack.needed[i] != 0:
            move(stack, i, end)
            end += 1
    return end


@wp.func
def sort_by_distance(stack: Stack, first: int, last: int):
    """Orders a list such that the least distance is likely to come early."""
    for i in range(first + 1, last):
        group = stack.groups[i]
        plane = stack.planes[i]
        distance = stack.distances[i]
        j = int(i)
        while j > first and stack.distances[j - 1] > distance:
            move(stack, j - 1, j)
            j -= 1
        stack.groups[j] = group
        stack.planes[j] = plane
        stack.distances[j] = distance


@wp.func
def rounded(grid: CandidateGrid, group: int, plane: wp.vec4, center: wp.vec3) -> wp.vec4:
    """A plane as it is stored: the steps of a g that is at most 1 long, and the height over it."""
    steps = wp.vec3(
        float(int(plane[0] * STEPS)), float(int(plane[1] * STEPS)), float(int(plane[2] * STEPS))
    )
    return wp.vec4(steps[0], steps[1], steps[2], height_over(grid, group, steps / STEPS, center))


@wp.func
def encoded(plane: wp.vec4, height: float) -> wp.uint32:
    """The bound of a candidate from a rounded plane and its height in steps, rounded down."""
    return (
        wp.uint32(wp.min(height, HEIGHTS))
        | (wp.uint32(int(plane[0]) + 128) << wp.uint32(8))
        | (wp.uint32(int(plane[1]) + 128) << wp.uint32(16))
        | (wp.uint32(int(plane[2]) + 128) << wp.uint32(24))
    )


@wp.func
def store(
    grid: CandidateGrid, stack: Stack, first: int, last: int, center: wp.vec3, begin: int
) -> CandidateCell:
    """Writes a list, from `begin` on."""
    candidates = wp.array(ptr=grid.candidates, shape=(grid.n_candidates,), dtype=Candidate)
    sort_by_distance(stack, first, last)
    low = float(FAR)
    for i in range(first, last):
        stack.planes[i] = rounded(grid, stack.groups[i], stack.planes[i], center)
        low = wp.min(low, stack.planes[i][3])
    for i in range(first, last):
        candidate = Candidate()
        candidate.group = stack.groups[i]
        height = (stack.planes[i][3] - low) / height_step(grid)
        candidate.bound = encoded(stack.planes[i], height)
        candidates[begin + i - first] = candidate
    cell = CandidateCell()
    cell.first = begin
    cell.count = last - first
    cell.low = low - ROUNDING * (wp.length(center) + wp.abs(low) + 4.0 * grid.cell)
    return cell


@wp.func
def fill_cell(
    grid: CandidateGrid, stack: Stack, first: int, last: int, cell: wp.vec3i, used: int
) -> int:
    """Fills one cell from the topmost list, that of a cube around it; returns where lists end."""
    if cell[0] >= grid.shape[0] or cell[1] >= grid.shape[1] or cell[2] >= grid.shape[2]:
        return used
    cube = Cube()
    cube.center = cell_center(grid.origin, grid.cell, cell[0], cell[1], cell[2])
    # Somewhat larger: rounding may put a point into the neighbouring cell.
    cube.half = 0.5001 * grid.cell + ROUNDING * wp.length(cube.center)
    end = narrow(grid, stack, first, last, cube, RIVALS)
    if end - last > 3:
        end = drop_unneeded(grid, stack, last, end, cube)
    count = end - last
    if count > LONGEST:
        return used
    if used + count > grid.n_candidates:
        return used + count  # more than fit; the host sees it
    n_cells = grid.shape[0] * grid.shape[1] * grid.shape[2]
    cells = wp.array(ptr=grid.cells, shape=(n_cells,), dtype=CandidateCell)
    index = (cell[2] * grid.shape[1] + cell[1]) * grid.shape[0] + cell[0]
    cells[index] = store(grid, stack, last, end, cube.center, used)
    return used + count


@wp.kernel
def fill_candidates(
    # operands
    record: wp.array[MeshRecord],  # (1,)
    grids: wp.array[CandidateGrid],  # (1,) what `cells` and `candidates` point to is written
    # workspace, see `Stack`
    groups: wp.array[wp.int32],
    planes: wp.array[wp.vec4],
    distances: wp.array[wp.float32],
    needed: wp.array[wp.int32],
    group_of: wp.array[wp.int32],
    seen: wp.array[wp.int32],
    # outputs
    progress: wp.array[wp.int32],  # (2,) blocks done, and candidates that they need
):
    """Each thread fills the next block. One thread at a time: for the CPU."""
    grid = grids[0]
    stack = Stack()
    stack.groups = groups
    stack.planes = planes
    stack.distances = distances
    stack.needed = needed
    stack.group_of = group_of
    stack.seen = seen
    block = progress[0]
    progress[0] = block + 1
    across = (grid.shape[0] + BLOCK - 1) // BLOCK
    along = (grid.shape[1] + BLOCK - 1) // BLOCK
    first = BLOCK * wp.vec3i(block % across, block // across % along, block // (across * along))
    if first[2] >= grid.shape[2]:
        return
    cube = Cube()
    cube.half = 2.001 * grid.cell
    corner_center = cell_center(grid.origin, grid.cell, first[0], first[1], first[2])
    cube.center = corner_center + wp.vec3(1.5 * grid.cell)
    cube.half += ROUNDING * wp.length(cube.center)
    whole = gather(record[0].mesh_id, grid, stack, cube, block)
    if whole == 0:
        return
    for k in range(8):
        end = narrow(grid, stack, 0, whole, part_of(cube, k), RIVALS)
        corner = first + 2 * wp.vec3i(k & 1, (k >> 1) & 1, k >> 2)
        for j in range(8):
            cell = corner + wp.vec3i(j & 1, (j >> 1) & 1, j >> 2)
            progress[1] = fill_cell(grid, stack, whole, end, cell, progress[1])

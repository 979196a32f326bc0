"""Carves what a depth image saw through out of a map of voxels, and marks what it hit.

A voxel is seen through where the nearest depth of a window of pixels is beyond its farthest point.
The window has all pixels that the voxel covers, and those within `BESIDE` of it. Blocks of voxels
are asked first: most are free, or hidden, as a whole. Of a voxel that is neither its eight parts
are asked, and kept as the bits of a byte: other images may see through the others.

Nearest and farthest depths of windows come from tables: level k has at each pixel that of the 2^k x
2^k pixels from there on. Four of them, which overlap, are exactly the window.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS, compiled_once, runs_on_cpu
from warp_collision.kernels.mesh_record import ROUNDING, distance_to_box

wp.set_module_options(OPTIONS)

UNSEEN = wp.constant(0)
FREE = wp.constant(1)
OCCUPIED = wp.constant(2)
BLOCK = wp.constant(8)  # voxels along an edge of a block
ALL_PARTS = wp.constant(255)  # eight bits
HALF_DIAGONAL = wp.constant(0.8660255)  # of a cube of edge 1, rounded up
# A solid with a straight edge that reaches into a voxel fills the whole square of a pixel whose
# center is at most this far from there, right and down: half a pixel more than its own ray needs.
BESIDE = wp.constant(1.5)


@wp.struct
class View:
    """A pinhole camera, z forward and y down, or a scanner, z up; and the tables of its depths.

    Depths of a scanner are distances. Its columns are angles around z, its rows those below the
    horizon; all columns are there twice, so that a window may begin at each.
    """

    rotation: wp.mat33  # of the map in the camera
    place: wp.vec3  # of the map's origin in the camera [m]
    eye: wp.vec3  # of the camera in the map [m]
    focal: wp.vec2  # pixels; of a scanner pixels in a radian
    middle: wp.vec2  # of the image, where the center of the first pixel is 0, 0
    width: int
    height: int
    extent: wp.vec3  # half edges of the box in the camera's axes around a cube of edge 1
    levels: int  # of the tables; the first is the image
    is_strict: int  # 1: one image sees through a whole voxel, and hits stay
    steepest: float  # tangent up to which a scanner's rows are straight; 0 of a camera
    beside: float  # pixels around a voxel that have to see through it, too


@wp.struct
class VoxelBlock:
    """The grid of a map."""

    origin: wp.vec3  # lower corner [m]
    cell: float  # edge of a voxel [m]
    shape: wp.vec3i  # nx, ny, nz


@wp.struct
class Seen:
    """What an image says of a cube."""

    is_through: bool  # all of it was seen through
    is_hidden: bool  # no part of it was seen through


@wp.struct
class Outline:
    """Where the image of a cube ends at most, and at which depths it is."""

    low: wp.vec2  # column and row, of any size
    high: wp.vec2
    near: float  # [m]
    far: float
    is_open: bool  # it has no end: the cube is beside the camera, or above a scanner


@wp.struct
class Window:
    """Pixels from the first to the last, in the image."""

    x0: int
    y0: int
    x1: int
    y1: int


@wp.func
def end_of_window(focal: float, end: float, scale: wp.vec2) -> float:
    """Where the image of a box ends at most, from the middle on.

    Args:
        focal: length [pixels].
        end: of the box, from the optical axis on [m].
        scale: inverse of its nearest and its farthest depth [1 / m].
    """
    return focal * end * wp.where(end > 0.0, scale[0], scale[1])


@wp.func
def depths_in(
    camera: View,
    windows: wp.array[wp.vec2],
    window: Window,
) -> wp.vec2:
    """Nearest and farthest depth in a window."""
    shorter = wp.min(window.x1 - window.x0, window.y1 - window.y0) + 1
    level = int(0)
    while level + 1 < camera.levels and (2 << level) <= shorter:
        level += 1
    size = 1 << level
    offset = level * camera.width * camera.height
    ends = wp.vec2(-1.0e9, 0.0)
    y = window.y0
    while y <= window.y1:
        # The last of a row or column ends with the window.
        row = offset + wp.min(y, window.y1 + 1 - size) * camera.width
        x = window.x0
        while x <= window.x1:
            index = row + wp.min(x, window.x1 + 1 - size)
            ends = wp.max(ends, windows[index])
            x += size
        y += size
    return wp.vec2(-ends[0], ends[1])


@wp.func
def outline_before(camera: View, at: wp.vec3, half: wp.vec3) -> Outline:
    """Of a box in the axes of a camera."""
    outline = Outline()
    outline.near = at[2] - half[2]
    outline.far = at[2] + half[2]
    outline.is_open = at[2] <= 1.01 * half[2]
    if not outline.is_open:
        scale = wp.vec2(1.0 / outline.near, 1.0 / outline.far)
        for axis in range(2):
            focal = camera.focal[axis]
            middle = camera.middle[axis]
            outline.low[axis] = middle - end_of_window(focal, half[axis] - at[axis], scale)
            outline.high[axis] = middle + end_of_window(focal, half[axis] + at[axis], scale)
    return outline


@compiled_once
def outline_around(camera: View, at: wp.vec3, radius: float) -> Outline:
    """Of a ball in the axes of a scanner."""
    outline = Outline()
    away = wp.length(at)
    across = wp.sqrt(at[0] * at[0] + at[1] * at[1])
    outline.near = away - radius
    outline.far = away + radius
    outline.is_open = across <= 1.01 * radius or radius + wp.abs(at[2]) > camera.steepest * (
        across - radius
    )
    if not outline.is_open:
        angle = wp.vec2(wp.atan2(at[1], at[0]), -wp.atan2(at[2], across))
        reach = wp.vec2(wp.asin(radius / across), wp.asin(radius / away))
        outline.low = camera.middle + wp.cw_mul(camera.focal, angle - reach)
        outline.high = camera.middle + wp.cw_mul(camera.focal, angle + reach)
    return outline


@wp.func
def look_at(
    camera: View,
    windows: wp.array[wp.vec2],
    at: wp.vec3,
    edge: float,
    is_part: bool,
) -> Seen:
    """What an image says of a cube around a point in the axes of the camera.

    Of a part it is not asked whether it is hidden.
    """
    seen = Seen()
    outline = Outline()
    if camera.steepest > 0.0:
        outline = outline_around(camera, at, HALF_DIAGONAL * edge)
    else:
        outline = outline_before(camera, at, edge * camera.extent)
    if outline.is_open:  # what is behind a camera is hidden
        seen.is_hidden = outline.far <= 0.0
        return seen
    # The first and the last pixel are there, and what they are the edges of.
    left = wp.ceil(outline.low[0] - camera.beside)
    right = wp.floor(outline.high[0] + camera.beside)
    top = wp.ceil(outline.low[1] - camera.beside)
    bottom = wp.floor(outline.high[1] + camera.beside)
    width = float(camera.width)
    height = float(camera.height)
    if right < 0.0 or bottom < 0.0 or left >= width or top >= height:
        seen.is_hidden = True
        return seen
    is_whole = left >= 0.0 and top >= 0.0 and right < width and bottom < height
    if is_part and not is_whole:
        return seen
    window = Window()
    window.x0 = int(wp.max(left, 0.0))
    window.y0 = int(wp.max(top, 0.0))
    window.x1 = int(wp.min(right, width - 1.0))
    window.y1 = int(wp.min(bottom, height - 1.0))
    depths = depths_in(camera, windows, window)
    seen.is_through = is_whole and outline.far < depths[0]
    seen.is_hidden = outline.near > depths[1]
    return seen


@wp.func
def corner_of(part: int) -> wp.vec3i:
    """Which of the eight halves of a cube, along each axis, a part is."""
    return wp.vec3i(part & 1, (part >> 1) & 1, part >> 2)


@wp.func
def is_blocked(camera: View, windows: wp.array[wp.vec2], at: wp.vec3, depth: float) -> bool:
    """Whether no cube with a point in it that reaches to a depth is seen through; False if unknown.

    Its pixel, and those beside that, are among those that have to see through it. Not asked of
    scanners, and on CPUs alone: others have no registers for it.
    """
    found = bool(False)
    if runs_on_cpu():
        found = camera.steepest == 0.0
    if found and at[2] > 0.0:
        column = wp.floor(camera.middle[0] + camera.focal[0] * at[0] / at[2] + 0.5)
        row = wp.floor(camera.middle[1] + camera.focal[1] * at[1] / at[2] + 0.5)
        is_in = column >= 1.0 and column < float(camera.width - 1)
        if is_in and row >= 1.0 and row < float(camera.height - 1):
            found = windows[int(row) * camera.width + int(column)][1] <= depth
    return found


@wp.func
def parts_through(
    camera: View,
    windows: wp.array[wp.vec2],
    corner: wp.vec3,
    cell: float,
    known: int,
) -> int:
    """Which eighths of a voxel an image sees through, as bits; those known are not asked.

    All eighths have the middle of the voxel, and reach as far at least.
    """
    at = camera.rotation * (corner + wp.vec3(0.5 * cell)) + camera.place
    if is_blocked(camera, windows, at, at[2]):
        return 0
    whole = look_at(camera, windows, at, cell, False)
    found = wp.where(whole.is_through, ALL_PARTS, 0)
    if not whole.is_through and not whole.is_hidden and camera.is_strict == 0:
        for part in range(8):
            if (known & (1 << part)) == 0:
                side = wp.vec3(float(part & 1), float((part >> 1) & 1), float(part >> 2))
                place = at + camera.rotation * (0.5 * cell * side - wp.vec3(0.25 * cell))
                far = place[2] + 0.5 * cell * camera.extent[2]
                if not is_blocked(camera, windows, place, far):
                    eighth = look_at(camera, windows, place, 0.5 * cell, True)
                    found |= wp.where(eighth.is_through, 1 << part, 0)
    return found


@wp.func
def see_voxel(
    here: int,
    now: float,
    place: int,
    states: wp.array[wp.uint8],
    parts: wp.array[wp.uint8],
    stamps: wp.array[wp.float32],
):
    """Keeps which eighths of a voxel an image saw through."""
    if here == ALL_PARTS:
        stamps[place] = now
    before = int(parts[place])
    if here != 0 and before != ALL_PARTS:
        parts[place] = wp.uint8(before | here)
        if (before | here) == ALL_PARTS:
            states[place] = wp.uint8(FREE)
        elif before == 0 and states[place] == wp.uint8(UNSEEN):
            stamps[place] = now


@wp.func
def see_cube(
    first: wp.vec3i,
    size: int,
    is_strict: int,
    shape: wp.vec3i,
    now: float,
    states: wp.array[wp.uint8],
    parts: wp.array[wp.uint8],
    stamps: wp.array[wp.float32],
):
    """Keeps that an image saw through all voxels of a cube, row by row."""
    end = wp.min(first[0] + size, shape[0])
    for k in range(first[2], wp.min(first[2] + size, shape[2])):
        for j in range(first[1], wp.min(first[1] + size, shape[1])):
            row = (k * shape[1] + j) * shape[0]
            for place in range(row + first[0], row + end):
                if is_strict == 0 or states[place] != wp.uint8(OCCUPIED):
                    stamps[place] = now
                    parts[place] = wp.uint8(ALL_PARTS)
                    states[place] = wp.uint8(FREE)


@wp.func
def place_of(index: int) -> wp.vec3i:
    """Where in a block a voxel is: the eighths of each cube are one after the other."""
    return corner_of(index & 7) + 2 * corner_of((index >> 3) & 7) + 4 * corner_of(index >> 6)


@wp.kernel
def carve(
    # operands
    camera: wp.array[View],  # (1,)
    grid: wp.array[VoxelBlock],  # (1,)
    windows: wp.array[wp.vec2],  # see `widen_windows`, of depths before which nothing is
    now: wp.array[wp.float32],  # (1,) [s]
    # outputs
    states: wp.array[wp.uint8],  # (voxels,) UNSEEN, FREE or OCCUPIED, x running fastest
    parts: wp.array[wp.uint8],  # (voxels,) eighths that were seen through since the last hit
    stamps: wp.array[wp.float32],  # (voxels,) when a voxel was last seen to be that [s]
):
    """One thread per block of voxels, in rows along x: the whole, then its eighths, and so on.

    A voxel that became free by parts has the stamp of its first one, or of the hit before.
    """
    z, y, x = wp.tid()
    shape = grid[0].shape
    cell = grid[0].cell
    index = int(0)
    size = int(BLOCK)
    while index < BLOCK * BLOCK * BLOCK:
        first = BLOCK * wp.vec3i(x, y, z) + place_of(index)
        low = grid[0].origin + cell * wp.vec3(float(first[0]), float(first[1]), float(first[2]))
        edge = cell * float(size)
        cube = Seen()
        cube.is_hidden = first[0] >= shape[0] or first[1] >= shape[1] or first[2] >= shape[2]
        if not cube.is_hidden:
            middle = camera[0].rotation * (low + wp.vec3(0.5 * edge)) + camera[0].place
            cube = look_at(camera[0], windows, middle, edge, False)
        if size > 2 and not cube.is_hidden and not cube.is_through:
            size /= 2
            continue
        if cube.is_through:
            see_cube(first, size, camera[0].is_strict, shape, now[0], states, parts, stamps)
        elif not cube.is_hidden:
            for part in range(8):
                at = first + corner_of(part)
                if at[0] < shape[0] and at[1] < shape[1] and at[2] < shape[2]:
                    place = (at[2] * shape[1] + at[1]) * shape[0] + at[0]
                    if camera[0].is_strict == 0 or states[place] != wp.uint8(OCCUPIED):
                        side = at - first
                        corner = low + cell * wp.vec3(
                            float(side[0]), float(side[1]), float(side[2])
                        )
                        here = parts_through(camera[0], windows, corner, cell, int(parts[place]))
                        see_voxel(here, now[0], place, states, parts, stamps)
        index += size * size * size
        while size < BLOCK and index % (8 * size * size * size) == 0:
            size *= 2


@wp.func
def hit(
    place: int,
    now: float,
    states: wp.array[wp.uint8],
    parts: wp.array[wp.uint8],
    stamps: wp.array[wp.float32],
):
    """A voxel with a point in it is occupied, whatever was seen through it before."""
    # Most points are in voxels that others have hit.
    is_new = states[place] != wp.uint8(OCCUPIED) or stamps[place] != now
    if is_new or parts[place] != wp.uint8(0):
        states[place] = wp.uint8(OCCUPIED)
        parts[place] = wp.uint8(0)
        stamps[place] = now


# Compiled for many lanes: no branches.
@wp.func_native("""
    const wp::float32* z = depth.data + (wp::int64)row * depth.shape[1];
    wp::int32* out = places.data ? places.data + (wp::int64)row * depth.shape[1] : nullptr;
    int last = -1;
    const wp::float32 y = (row - view.middle[1]) / view.focal[1];
    for (int i = begin; i < end; ++i) {
        const wp::float32 x = (i - view.middle[0]) / view.focal[0];
        bool is_in = z[i] > 0.0f;
        int place = 0;
        for (int axis = 2; axis >= 0; --axis) {
            const wp::float32 way = x * view.rotation.data[0][axis]
                + (y * view.rotation.data[1][axis] + view.rotation.data[2][axis]);
            const wp::float32 at
                = (z[i] * way + (view.eye[axis] - grid.origin[axis])) / grid.cell;
            const bool is_there = at >= 0.0f && at < (wp::float32)grid.shape[axis];
            is_in = is_in & is_there;
            place = place * grid.shape[axis] + (is_there ? (int)at : 0);
        }
        last = is_in ? place : -1;
        if (out) out[i] = last;
    }
    return last;
""")
def find_places(
    view: View,
    depth: wp.array2d[wp.float32],
    grid: VoxelBlock,
    row: int,
    begin: int,
    end: int,
    places: wp.array2d[wp.int32],
) -> int:
    """Voxels that the points of pixels are in; returns that of the last one.

    Args:
        view: a camera.
        depth: see `mark_hits`.
        grid: of the map.
        row: of the image.
        begin: first of its pixels.
        end: the first one that is left to others.
        places: (height, width) indices of voxels, -1 outside of the map and without a point; or
            no array.
    """
    ...


@wp.kernel
def mark_hits(
    # operands
    camera: wp.array[View],  # (1,)
    depth: wp.array2d[wp.float32],  # (height, width) of surfaces [m], else 0
    grid: wp.array[VoxelBlock],  # (1,)
    now: wp.array[wp.float32],  # (1,) [s]
    # scratch
    places: wp.array2d[wp.int32],  # (height, width), on a CPU alone
    # outputs
    states: wp.array[wp.uint8],  # see `carve`
    parts: wp.array[wp.uint8],
    stamps: wp.array[wp.float32],
):
    """One thread per pixel, on a CPU per row."""
    row, begin = wp.tid()
    end = wp.where(runs_on_cpu(), depth.shape[1], begin + 1)
    place = find_places(camera[0], depth, grid[0], row, begin, end, places)
    before = int(-1)
    for column in range(begin, end):
        if runs_on_cpu():
            place = places[row, column]
        if place >= 0 and place != before:
            hit(place, now[0], states, parts, stamps)
            before = place


@wp.func
def first_cell(place: float, count: int) -> int:
    """The first cell along an axis that ends beyond a place, in cells, with room for rounding."""
    return int(wp.clamp(wp.floor(place - 0.01), 0.0, float(count)))


@wp.func
def end_cell(place: float, count: int) -> int:
    """The first cell that begins beyond a place."""
    return int(wp.clamp(wp.ceil(place + 0.01), 0.0, float(count)))


@wp.kernel
def clear_spheres(
    # operands
    spheres: wp.array[wp.vec4],  # (n,) x, y, z, radius [m] in the frame of the map
    grid: wp.array[VoxelBlock],  # (1,)
    now: wp.array[wp.float32],  # (1,) [s]
    # outputs
    states: wp.array[wp.uint8],  # see `carve`
    parts: wp.array[wp.uint8],
    stamps: wp.array[wp.float32],
):
    """One thread per sphere; voxels that it reaches into and nobody has seen become free."""
    sphere = spheres[wp.tid()]
    voxels = grid[0]
    cell = voxels.cell
    shape = voxels.shape
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    reach = sphere[3] + ROUNDING * (wp.length(center) + wp.length(voxels.origin) + sphere[3])
    low = (center - wp.vec3(reach) - voxels.origin) / cell
    high = (center + wp.vec3(reach) - voxels.origin) / cell
    for k in range(first_cell(low[2], shape[2]), end_cell(high[2], shape[2])):
        for j in range(first_cell(low[1], shape[1]), end_cell(high[1], shape[1])):
            for i in range(first_cell(low[0], shape[0]), end_cell(high[0], shape[0])):
                corner = voxels.origin + cell * wp.vec3(float(i), float(j), float(k))
                place = (k * shape[1] + j) * shape[0] + i
                is_near = distance_to_box(center, corner, corner + wp.vec3(cell)) <= reach
                if is_near and states[place] != wp.uint8(OCCUPIED):
                    states[place] = wp.uint8(FREE)
                    parts[place] = wp.uint8(ALL_PARTS)
                    stamps[place] = now[0]

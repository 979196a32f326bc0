"""Faces between the solid and the free cells of a grid, as rectangles.

A run of faces in a row of a plane is one, and so are equal runs in rows beside each other. Where a
rectangle begins, and how far it goes, is read from the cells themselves: no plane needs another.
They are counted first, and written once it is known where.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)


@wp.struct
class FacePlanes:
    """The planes across an axis, between cells and beside the outermost ones."""

    solid: wp.uint64  # pointer to cells, 0 or 1, rows without gaps
    count: int  # cells across: one plane less than there are
    first: int  # plane of the first thread
    plane_stride: int  # from a cell to the next one across
    rows: int  # of a plane
    row_stride: int
    length: int  # cells of a row
    outside: int  # 1: what is beyond the grid is solid
    axes: wp.vec3i  # across, from row to row, along rows
    origin: wp.vec3d  # lower corner of the grid [m]
    cell: wp.float64  # edge of a cell [m]


# 1 where a plane has a face before a free cell, -1 before a solid one, else 0.
_STEP = """
    typedef const wp::uint8* Cells;
    const int rows = planes.rows, length = planes.length;
    const bool has_before = plane > 0, has_behind = plane < planes.count;
    const auto cell_behind = [&](const int row, const int i) {
        return (Cells)planes.solid + (wp::int64)plane * planes.plane_stride
            + (wp::int64)row * planes.row_stride + i;
    };
    const auto step = [&](const int row, const int i) -> int {
        if (i < 0 || i >= length || row < 0 || row >= rows) return 0;
        const Cells behind = cell_behind(row, i);
        return (has_before ? behind[-(wp::int64)planes.plane_stride] : planes.outside)
            - (has_behind ? *behind : planes.outside);
    };
    // Whether eight cells have no face.
    const auto are_same = [&](const int row, const int i) {
        if (!has_before || !has_behind || i + 8 > length) return false;
        const Cells behind = cell_behind(row, i), before = behind - planes.plane_stride;
        wp::uint8 differ = 0;
        for (int k = 0; k < 8; ++k) differ |= behind[k] ^ before[k];
        return !differ;
    };
"""
# Whether faces of a sign in a row are exactly those from a begin to an end.
_IS_RUN = """
    const auto is_run = [&](const int row, const int begin, const int end, const int sign) {
        if (step(row, begin - 1) == sign || step(row, end) == sign) return false;
        for (int i = begin; i < end; ++i)
            if (step(row, i) != sign) return false;
        return true;
    };
"""
_WRITE = """
    const auto write = [&](const int index, const int row, const int last, const int begin,
                           const int end, const int sign) {
        wp::float32* face = faces.data + 8 * (wp::int64)index;
        const int low[3] = {plane, row, begin}, high[3] = {plane, last, end};
        for (int k = 0; k < 3; ++k) {
            const int axis = planes.axes[k];
            face[axis] = (wp::float32)(planes.origin[axis] + planes.cell * low[k]);
            face[4 + axis] = (wp::float32)(planes.origin[axis] + planes.cell * high[k]);
        }
        face[3] = 0.0f, face[7] = (wp::float32)sign;
    };
"""


@wp.func_native(
    _STEP
    + _IS_RUN
    + _WRITE
    + """
    int found = 0;
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < length;) {
            const int sign = step(row, i), begin = i;
            if (sign == 0) {
                i += are_same(row, i) ? 8 : 1;
                continue;
            }
            while (i < length && step(row, i) == sign) ++i;
            if (row > 0 && is_run(row - 1, begin, i, sign)) continue;
            if (first >= 0) {
                int last = row + 1;
                while (last < rows && is_run(last, begin, i, sign)) ++last;
                write(first + found, row, last, begin, i, sign);
            }
            ++found;
        }
    }
    return found;
"""
)
def faces_in_plane(planes: FacePlanes, plane: int, first: int, faces: wp.array[wp.float32]) -> int:
    """How many rectangles a plane has.

    Args:
        planes: across an axis.
        plane: before the cell of this index, 0 to `count`.
        first: which of all rectangles its first one is; -1: none is written.
        faces: (n x 8,) lower corner and 0, upper corner and the sign of the normal [m].
    """
    ...


@wp.kernel
def count_faces(
    # operands
    planes: wp.array[FacePlanes],  # (1,)
    # outputs
    counts: wp.array[wp.int32],  # (threads,)
):
    """One thread per plane."""
    plane = wp.tid()
    nothing = wp.array(ptr=wp.uint64(0), shape=(0,), dtype=wp.float32)
    counts[plane] = faces_in_plane(planes[0], planes[0].first + plane, -1, nothing)


@wp.kernel
def write_faces(
    # operands
    planes: wp.array[FacePlanes],  # (1,)
    first: wp.array[wp.int32],  # (threads,) where the rectangles of a plane begin
    # outputs
    faces: wp.array[wp.float32],  # (n x 8,)
):
    """One thread per plane."""
    plane = wp.tid()
    faces_in_plane(planes[0], planes[0].first + plane, first[plane], faces)

"""Rows of the grid of signed distances of an obstacle; what it is of is up to a device function."""

import warp as wp

from warp_collision.kernels.compiling import named
from warp_collision.kernels.mesh_record import FAR, MeshRecord, cell_center

# Neighbouring centers differ by an edge at most; and what rounding adds to that.
ROOM = wp.constant(1.0 + 2.0e-5)


def make_fill_row(distance_at):
    """A device function (mesh: MeshRecord, z: int, y: int, values: array3d) that fills a row.

    The bound of a cell limits the search of the next one.

    Args:
        distance_at: device function (mesh: MeshRecord, center: vec3, limit: float, side: float) ->
            vec2: the signed distance, which is below the limit, and the side at the next cell if it
            is certain, else 0, as before the first one.
    """

    def fill_row(mesh: MeshRecord, z: int, y: int, values: wp.array3d[wp.float32]):
        """Writes the signed distances at the centers of the cells of a row [m]."""
        grid = mesh.grid
        limit = float(FAR)
        side = float(0.0)
        for x in range(grid.shape[0]):
            center = cell_center(grid.origin, grid.cell, x, y, z)
            found = distance_at(mesh, center, limit, side)
            values[z, y, x] = found[0]
            side = found[1]
            limit = (wp.abs(found[0]) + grid.cell) * ROOM + 1.0e-5 * wp.length(center)

    return named(fill_row, distance_at.key)

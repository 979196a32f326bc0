"""What stands in a world: geometry on a device, with what the kernels know of it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
import trimesh
import warp as wp
from torch import Tensor

from warp_collision import launch
from warp_collision.geometry import Geometry, MeshLike
from warp_collision.kernels.distance_grid import fill_distance_grid
from warp_collision.kernels.mesh_record import CONVEX, EXACT_WINDING, WINDING, MeshRecord

PoseLike = Any  # 7 numbers: a sequence, a NumPy array or a tensor
MeshAndPose = Any  # a mesh, or a pair of mesh and pose


# Most cells of the distance grid of a mesh, how many a face is worth, and how many a mesh gets that
# has few faces.
GRID_CELLS = 32_768
_CELLS_PER_FACE = 64
_FEWEST_CELLS = 512
_SIGN_METHODS = {"winding": WINDING, "exact_winding": EXACT_WINDING, "convex": CONVEX}
# Where the address of a grid stands in a record, counted in words of eight bytes.
_VALUES_AT = (
    MeshRecord.numpy_dtype()["offsets"][MeshRecord.numpy_dtype()["names"].index("grid")] // 8
)


class MeshObstacle:
    """A mesh on a device: the Warp mesh, its record for the kernels, and its report.

    Shared by all slots of all envs that hold the same geometry, and alive as long as one of them,
    or a launch that may still read it.
    """

    def __init__(self, geometry: Geometry, device: torch.device, grid_cells: int = GRID_CELLS):
        """Uploads a mesh.

        Args:
            geometry: the triangles.
            device: where to.
            grid_cells: most cells of its distance grid, 4 bytes each; 0 for none.
        """
        target = str(device)
        self.report = geometry.report
        with launch.quiet_warp():
            self.mesh = wp.Mesh(
                wp.array(geometry.vertices, dtype=wp.vec3, device=target),
                wp.array(geometry.faces.ravel(), dtype=wp.int32, device=target),
                support_winding_number=True,
                bvh_constructor="sah" if device.type == "cpu" else None,
                bvh_leaf_size=4 if device.type == "cpu" else None,
            )
        lower, upper = geometry.vertices.min(axis=0), geometry.vertices.max(axis=0)
        record = MeshRecord()
        record.mesh_id = self.mesh_id
        record.lower, record.upper = wp.vec3(*lower), wp.vec3(*upper)
        record.sign_method = _SIGN_METHODS[geometry.report.sign_method]
        # A closed mesh has its inside in its box. An open one has winding numbers above 1/2 at most
        # as far as its whole area, seen face on, fills half of all directions.
        closed = geometry.report.closed
        record.inside_reach = 0.0 if closed else float(np.sqrt(geometry.area / (2.0 * np.pi)))
        self.grid: Tensor | None = None
        if closed and grid_cells > 0:
            self.grid = _add_grid(record, lower, upper, grid_cells, len(geometry.faces), device)
        self.record = _upload(record, device)

    def fill_grid(self) -> None:
        """Computes the distance grid; queries are right without it, and faster with it."""
        if self.grid is None:
            return
        launch.launch(
            fill_distance_grid,
            self.grid.shape[:2],
            *(self.record, self.grid),
            device=self.grid.device,
            items=self.grid.numel(),
        )
        # The kernels use the grid once they see its address: eight bytes, written at once.
        self.record.view(torch.int64)[0, _VALUES_AT] = self.grid.data_ptr()

    @property
    def mesh_id(self) -> int:
        """Warp's id of the mesh."""
        return int(self.mesh.id)


def split_pose(value: Any) -> tuple[MeshLike, PoseLike | None]:
    """A mesh, or a pair of mesh and pose; a pair of arrays is a mesh itself."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first = value[0]
        is_mesh = isinstance(first, (trimesh.Trimesh, str, os.PathLike))
        is_pair = isinstance(first, (tuple, list)) and len(first) == 2
        if is_mesh or value[1] is None or (is_pair and not _has_rows(value[1])):
            return first, value[1]
    return value, None


def _has_rows(value: Any) -> bool:
    """Whether something is like the faces of a mesh, and not like a pose."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and isinstance(value[0], (tuple, list, np.ndarray))
    return getattr(value, "ndim", 0) > 1


def _grid_shape(extents: np.ndarray, cells: int) -> tuple[float, tuple[int, int, int]]:
    """Edge of the cubic cells and their counts nx, ny, nz: as fine as a number of cells allows.

    One layer of cells more on each side keeps points of the surface, rounded, in the grid.
    """
    edge = float(extents.max()) / max(cells, 27) ** (1.0 / 3.0)
    while True:
        shape = np.ceil(extents / edge).astype(int) + 2
        if shape.prod() <= max(cells, 27):
            return edge, (int(shape[0]), int(shape[1]), int(shape[2]))
        edge *= 1.05


def _add_grid(
    record: Any,
    lower: np.ndarray,
    upper: np.ndarray,
    most: int,
    n_faces: int,
    device: torch.device,
) -> Tensor:
    """Lays a grid over the box of a mesh, described in its record; returns its empty values."""
    extents = (upper - lower).astype(np.float64)
    edge, shape = _grid_shape(extents, min(most, max(_CELLS_PER_FACE * n_faces, _FEWEST_CELLS)))
    values = torch.empty(shape[::-1], dtype=torch.float32, device=device)
    record.grid.origin = wp.vec3(*(0.5 * (lower + upper) - 0.5 * edge * np.array(shape)))
    record.grid.cell = edge
    record.grid.shape = wp.vec3i(*shape)
    return values


def _upload(record: Any, device: torch.device) -> Tensor:
    """A record as bytes (1, n) on a device."""
    host = wp.array([record], dtype=MeshRecord, device="cpu").numpy()
    return torch.from_numpy(np.frombuffer(host.tobytes(), np.uint8).copy()).to(device)[None]

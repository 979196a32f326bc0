"""Obstacles on a device: a record each for the kernels, and a Warp mesh where one is read."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
import warp as wp

from warp_collision.devices import require_memory
from warp_collision.kernels.mesh_record import CONVEX, EXACT_WINDING, SHEET, WINDING, MeshRecord
from warp_collision.launching import launch
from warp_collision.launching.deferred_free import wait_for_launches
from warp_collision.launching.edit import Edit
from warp_collision.launching.graph_memory import keep_for_graphs
from warp_collision.launching.structs import offset_in, sent_struct, upload_struct
from warp_collision.obstacles.distance_grid import GRID_CELLS, create_grid
from warp_collision.obstacles.geometry import Geometry, MeshLike
from warp_collision.obstacles.mesh_report import MeshReport
from warp_collision.obstacles.part_tree import PartBuffers
from warp_collision.obstacles.point_cloud import PointCloud
from warp_collision.obstacles.sensed import Sensed, Uploaded
from warp_collision.obstacles.shapes import PlacedShape, Shape
from warp_collision.poses import PoseLike
from warp_collision.validate import is_trimesh

if TYPE_CHECKING:
    import trimesh

MeshAndPose = MeshLike | tuple[MeshLike, PoseLike]

_SIGN_METHODS = {
    "winding": WINDING,
    "exact_winding": EXACT_WINDING,
    "convex": CONVEX,
    "sheet": SHEET,
}


class MeshObstacle:
    """An obstacle on a device: its record for the kernels, its triangles, and its report.

    An exact or a sensed shape has no triangles, and no Warp mesh, unless others ask for one.

    Shared by all slots of all envs that hold the same geometry, and alive as long as one of them,
    or a launch that may still read it.

    Attributes:
        placed: the exact shape that it stands for, None for a mesh.
        mesh: the Warp mesh, which its own kernels read of meshes alone; or None.
        is_padded: whether a slot holds, or held, it with a padding.
        has_jumps: see `Geometry.has_jumps`; of a mesh.
    """

    def __init__(self, geometry: Geometry, device: torch.device, grid_cells: int = GRID_CELLS):
        """Uploads a mesh.

        Args:
            geometry: the triangles.
            device: where to.
            grid_cells: most cells of its distance grid, 4 bytes each; 0 for none.
        """
        self._report = geometry.report
        self.placed = geometry.shape
        self._sensed = geometry.sensed
        self._area, self._border = geometry.area, geometry.border
        self._uploaded: Uploaded | None = None
        self._spare: Uploaded | None = None  # of a cloud with a capacity: what was read before
        self._is_captured = False  # whether graphs write the sensed shape
        self.is_padded = self.has_jumps = False
        self.mesh: wp.Mesh | None = None
        self._grid = None
        record = MeshRecord()
        if geometry.shape is not None:
            describe_shape(record, geometry.shape)  # its formula needs no grid
        elif geometry.sensed is not None:
            self._describe(record, geometry.sensed, device)
            self._grid = create_grid(geometry, record, grid_cells, device)
        else:
            self.mesh = upload_mesh(geometry.vertices, geometry.faces, device)
            record.mesh_id = self.mesh_id
            lower, upper = geometry.vertices.min(axis=0), geometry.vertices.max(axis=0)
            record.lower, record.upper = wp.vec3(*lower), wp.vec3(*upper)
            record.sign_method = _SIGN_METHODS[geometry.report.sign_method]
            # A closed mesh has its inside in its box. An open one has winding numbers above 1/2 at
            # most as far as its whole area, seen face on, fills half of all directions.
            reach = float(np.sqrt(geometry.area / (2.0 * np.pi)))
            self.has_jumps = geometry.has_jumps
            record.inside_reach = reach if self.has_jumps else 0.0
            self._grid = create_grid(geometry, record, grid_cells, device)
        self.record = upload_struct(record, device)

    @property
    def mesh_id(self) -> int:
        """Warp's id of its mesh, 0 without one."""
        return 0 if self.mesh is None else int(self.mesh.id)

    @property
    def sensed(self) -> Sensed | None:
        """The sensed shape that it stands for; waits for the device where graphs write it."""
        if not self._is_captured:
            return self._sensed
        assert isinstance(self._sensed, PointCloud)
        assert isinstance(self._uploaded, PartBuffers)
        return self._sensed.with_balls(self._uploaded.read()[:, 0])

    @property
    def report(self) -> MeshReport:
        """What was found in the mesh."""
        return replace(self._report, shape=self.sensed) if self._is_captured else self._report

    def updated(self, edit: Edit, sensed: Sensed) -> MeshObstacle:
        """Stages the same mesh with another sensed shape of the kind, by a new record.

        Once graphs write the shape, all that is new is written where they read it.

        Args:
            edit: what stages the writes.
            sensed: the shape.

        Returns:
            What slots hold from then on.
        """
        device = self.record.device
        new = copy.copy(self)
        new._sensed = sensed
        new._report = replace(self._report, shape=sensed)
        new._grid = None
        record = MeshRecord()
        if self._is_captured:
            assert isinstance(sensed, PointCloud)
            assert isinstance(self._uploaded, PartBuffers)
            describe_sensed(record, sensed, self._uploaded)
            edit.then(wait_for_launches, device)
            self._uploaded.write(edit, sensed.balls_on(device)[:, None])
            edit.then(self.record.copy_, sent_struct(record, device))
            edit.then(vars(self).update, vars(new))
            return self
        new._uploaded, new._spare = self._spare, None
        if sensed.capacity is not None:
            new._spare = self._uploaded
        new._describe(record, sensed, device, self)
        new.record = sent_struct(record, device)
        return new

    def capture_update(self, name: str, points: Any) -> None:
        """Lets the graph that is captured write the points of a cloud, see `MeshWorld.update`."""
        cloud, device = self._sensed, self.record.device
        if not isinstance(cloud, PointCloud):
            raise ValueError(f"{name!r} must be a PointCloud to be updated in a graph")
        balls = cloud.captured(name, points, device)
        assert isinstance(self._uploaded, PartBuffers)
        edit = Edit()
        self._uploaded.write(edit, balls[:, None])
        edit.run()
        radii = balls[:, 3:]
        has_place = radii >= 0.0
        lower = torch.where(has_place, balls[:, :3] - radii, torch.inf).amin(dim=0)
        upper = torch.where(has_place, balls[:, :3] + radii, -torch.inf).amax(dim=0)
        for corner, field in ((lower, "lower"), (upper, "upper")):
            place = offset_in(MeshRecord, field) // 4
            self.record.view(torch.float32)[0, place : place + 3].copy_(corner)
        self._is_captured = True
        keep_for_graphs(self, device)

    def _describe(
        self, record: Any, sensed: Sensed, device: torch.device, before: MeshObstacle | None = None
    ) -> None:
        """Uploads a sensed shape, into what nobody reads if that is there, and describes it.

        Args:
            record: of the obstacle.
            sensed: its shape.
            device: where to.
            before: what it takes the place of.
        """
        if isinstance(self._uploaded, PartBuffers) and isinstance(sensed, PointCloud):
            edit = Edit()
            self._uploaded.write(edit, sensed.balls_on(device)[:, None])
            wait_for_launches(device)
            edit.run()
        else:
            require_memory(f"a {type(sensed).__name__}", sensed.n_bytes, device)
            if before is None or before._sensed is None or before._uploaded is None:
                self._uploaded = sensed.upload(device)
            else:
                self._uploaded = sensed.upload_after(before._sensed, before._uploaded, device)
        describe_sensed(record, sensed, self._uploaded)

    def fill_grid(self) -> None:
        """Computes the distance grid; queries are right without it, and faster with it.

        On a GPU it is there once the current stream has come so far.
        """
        if self._grid is not None:
            self._grid.fill(self.record)

    @property
    def grid_kernels(self) -> list[Any]:
        """The kernels that `fill_grid` launches."""
        return [] if self._grid is None else [self._grid.kernel]

    @property
    def geometry(self) -> Geometry:
        """What makes it again; waits for the device."""
        if self.placed is not None or self._sensed is not None:
            return Geometry.of_shape(self.report, self.placed, self.sensed)
        assert self.mesh is not None
        vertices, faces = self.mesh.points.numpy(), self.mesh.indices.numpy().reshape(-1, 3)
        return Geometry(vertices, faces, self.report, self._area, self._border)

    def mesh_for_others(self) -> wp.Mesh:
        """Its mesh, or a new one for kernels that know triangles only: the box around a shape."""
        if self.mesh is not None:
            return self.mesh
        return upload_mesh(*self.geometry.box(), self.record.device)

    def to_trimesh(self) -> trimesh.Trimesh:
        """The triangles of a mesh."""
        import trimesh

        assert self.mesh is not None
        vertices, faces = self.mesh.points.numpy(), self.mesh.indices.numpy()
        return trimesh.Trimesh(vertices, faces.reshape(-1, 3), process=False)


def upload_mesh(vertices: np.ndarray, faces: np.ndarray, device: torch.device) -> wp.Mesh:
    """A Warp mesh that queries find closest points and winding numbers of."""
    target, on_cpu = str(device), device.type == "cpu"
    return launch.with_memory(
        device,
        lambda: wp.Mesh(
            wp.array(vertices.astype(np.float32), dtype=wp.vec3, device=target),
            wp.array(faces.astype(np.int32).ravel(), dtype=wp.int32, device=target),
            support_winding_number=True,
            bvh_constructor="sah" if on_cpu else None,
            bvh_leaf_size=4 if on_cpu else None,
        ),
    )


def split_pose(value: Any) -> tuple[MeshLike, PoseLike | None]:
    """A mesh, or a pair of mesh and pose; a pair of arrays is a mesh itself."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first = value[0]
        kinds = (*get_args(Shape), Sensed, str, os.PathLike)
        is_mesh = is_trimesh(first) or isinstance(first, kinds)
        is_pair = isinstance(first, (tuple, list)) and len(first) == 2 and _has_rows(first[0])
        if is_mesh or value[1] is None or is_pair:
            return first, value[1]
    return value, None


def _has_rows(value: Any) -> bool:
    """Whether something is like the faces of a mesh, and not like a pose."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and isinstance(value[0], (tuple, list, np.ndarray))
    return getattr(value, "ndim", 0) > 1


def describe_sensed(record: Any, sensed: Sensed, uploaded: Uploaded) -> None:
    """Describes a sensed shape in the `MeshRecord` of its mesh."""
    lower, upper = sensed.bounds
    record.lower, record.upper = wp.vec3(*lower), wp.vec3(*upper)
    record.exact.kind = int(sensed.kind)
    record.exact.data = uploaded.pointer


def record_of_shape(placed: PlacedShape, device: torch.device) -> torch.Tensor:
    """The bytes of a record of an exact shape."""
    record = MeshRecord()
    describe_shape(record, placed)
    return upload_struct(record, device)


def describe_shape(record: Any, placed: PlacedShape) -> None:
    """Describes an exact shape in the `MeshRecord` of its mesh."""
    is_aligned = placed.is_axis_aligned
    if not is_aligned:
        placed = placed.axis_aligned()
        is_aligned = placed.is_axis_aligned
    half, middle = placed.shape.half_extents, placed.shape.kernel_center
    if is_aligned:
        middle = middle + placed.center
    else:
        matrix = placed.matrix
        half, middle = np.abs(matrix[:3, :3]) @ half, (matrix @ [*middle, 1.0])[:3]
    record.lower, record.upper = wp.vec3(*(placed.center - half)), wp.vec3(*(placed.center + half))
    record.exact.kind = int(placed.shape.kind)
    record.exact.center = wp.vec3(*middle)
    record.exact.size = wp.vec3(*placed.shape.kernel_size)
    record.exact.is_rotated = not is_aligned
    w, x, y, z = placed.rotation
    record.exact.rotation = wp.quat(-x, -y, -z, w)

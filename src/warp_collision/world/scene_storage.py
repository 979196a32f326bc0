"""The device tables of a world: records, inverse poses, masks and counts, by env and slot."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from warp_collision.devices import CPU, is_capturing, synchronize
from warp_collision.launching.deferred_free import wait_for_launches
from warp_collision.launching.edit import Edit
from warp_collision.launching.graph_memory import is_kept, keep_for_graphs, memory_key
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.obstacles.mesh_obstacle import MeshObstacle, record_of_shape
from warp_collision.obstacles.shapes import PlacedShape, Sphere
from warp_collision.poses import invert_pose, to_rows
from warp_collision.world.ignored_spheres import IgnoredTables
from warp_collision.world.obstacle_cache import Entry
from warp_collision.world.scene import Scene

_IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)


class SceneStorage:
    """Tables of one size on one device, written in place; growing makes a larger copy.

    Any thread may read the tables while one writes them. Methods that take an `Edit` stage what it
    writes: they allocate, and change nothing.

    Attributes:
        shape: number of envs, and of slots of each.
        tables: the tensors that kernels read, without a tree.
        mesh_ids: (n_envs, max_obstacles) int64, Warp's ids of meshes, for others.
        records: (n_envs, max_obstacles) int64, pointers to the records, a table.
        padding: (n_envs, max_obstacles) float32 [m], one of the tables.
        ignored: tables of allowed contacts, which a query may add.
        is_outgrown: (1,) uint8, 1 where graphs find all of space in collision.
        scene: what queries are asked of.
    """

    def __init__(self, n_envs: int, max_obstacles: int, device: torch.device):
        self.shape = shape = n_envs, max_obstacles
        with torch.inference_mode(False):
            identity = torch.tensor(_IDENTITY, dtype=torch.float32, device=device)
            self.mesh_ids = torch.zeros(shape, dtype=torch.int64, device=device)
            self.records = torch.zeros(shape, dtype=torch.int64, device=device)
            self.padding = torch.zeros(shape, dtype=torch.float32, device=device)
            self.is_outgrown = torch.zeros(1, dtype=torch.uint8, device=device)
            self.tables = SceneTables(
                mesh_from_world=identity.expand(*shape, 8).contiguous(),
                enabled=torch.zeros(shape, dtype=torch.uint8, device=device),
                n_meshes=torch.zeros(n_envs, dtype=torch.int32, device=device),
                records=self.records,
                padding=self.padding,
            )
        self.ignored = IgnoredTables(n_envs, max_obstacles, device)
        self.scene = Scene.living(self.tables, mesh_ids=self.mesh_ids)
        # The drop-in Functions get tensors alone: the memory of the ids knows what belongs to it.
        ids: Any = self.mesh_ids.untyped_storage()
        ids.padding, ids.scene = self.padding, weakref.ref(self.scene)
        synchronize(device)  # the tables are read on other streams, too

    def keep_alive(self, holder: object) -> None:
        """Ties an object to the memory of ids and records: either keeps the obstacles alive."""
        for table in (self.mesh_ids, self.records):
            memory: Any = table.untyped_storage()
            memory.holder = holder

    def enlarged(self, n_envs: int, max_obstacles: int) -> SceneStorage:
        """Larger tables that begin with what these hold."""
        larger = SceneStorage(n_envs, max_obstacles, self.mesh_ids.device)
        rows, slots = self.shape
        tables = zip(larger._tables(), self._tables(), strict=True)
        for new, previous in tables:
            target = new[:rows] if new.ndim == 1 else new[:rows, :slots]
            target.copy_(previous)
        larger.ids_are_written()
        larger.scene.source = self.scene.source
        synchronize(self.mesh_ids.device)
        return larger

    def _tables(self) -> list[Tensor]:
        """All tables by env, and by slot."""
        return [self.mesh_ids, *(table for table in self.tables if table is not None)]

    def block_graphs(self, edit: Edit) -> None:
        """Stages obstacles without end in all slots, if a graph reads these tables.

        They are written no more: its replays must not call free what is added from now on.
        """
        tables = self.tables
        if not is_kept(memory_key(self.records)):
            return
        everywhere = record_of_shape(PlacedShape(Sphere(1.0)), self.records.device)
        memory: Any = self.records.untyped_storage()
        memory.everywhere = everywhere
        edit.then(wait_for_launches, self.records.device)
        edit.then(self.padding.fill_, math.inf)  # a contact everywhere, whatever the pose
        edit.then(self.is_outgrown.fill_, 1)  # first: graphs write masks, too
        edit.then(tables.enabled.fill_, 1)
        edit.then(self.ignored.check_all)
        is_empty = self.records == 0
        edit.then(self.records.masked_fill_, is_empty, everywhere.data_ptr())
        edit.then(tables.n_meshes.fill_, self.shape[1])

    def fill(self, edit: Edit, env: int, first: int, entries: Sequence[Entry]) -> Tensor:
        """Stages all of consecutive slots from `first`; returns their rows of mesh_from_world."""
        _, obstacles, poses, _, enabled, padding = zip(*entries, strict=True)
        ids, records = zip(*[(o.mesh_id, o.record.data_ptr()) for o in obstacles], strict=True)
        slots, inverse = slice(first, first + len(entries)), self._inverse(torch.stack(poses))
        targets, contents = [], []
        for table, values in (
            (self.mesh_ids, ids),
            (self.records, records),
            (self.tables.enabled, enabled),
            (self.padding, padding),
        ):
            targets.append(table[env, slots])
            contents.append(torch.tensor(values, dtype=table.dtype).to(table.device))
        rows = self.tables.mesh_from_world[env, slots]
        edit.then(_write, [*targets, rows], [*contents, inverse])
        return inverse

    def replace_geometry(self, edit: Edit, env: int, index: int, obstacle: MeshObstacle) -> None:
        """Stages id and record of a slot, which keeps its mask and padding."""
        edit.then(self.mesh_ids[env, index].fill_, obstacle.mesh_id)
        edit.then(self.records[env, index].fill_, obstacle.record.data_ptr())

    def write_ids(self, edit: Edit, env: int, ids: Sequence[int]) -> None:
        """Stages the ids of all filled slots of an env."""
        content = torch.tensor(ids, dtype=torch.int64).to(self.records.device)
        edit.then(self.mesh_ids[env, : len(ids)].copy_, content)

    def move(self, edit: Edit, env: int, slots: slice, poses: Tensor) -> Tensor:
        """Stages poses (n, 7), inverted: float64 on the host, float32 on the device.

        Returns:
            (n, 8) the rows of mesh_from_world that will be written.
        """
        inverse = self._inverse(poses)
        edit.then(self.tables.mesh_from_world[env, slots].copy_, inverse)
        return inverse

    def _inverse(self, poses: Tensor) -> Tensor:
        """Rows of mesh_from_world for poses (n, 7)."""
        with torch.no_grad():
            inverse = to_rows(invert_pose(poses.detach().view(-1, 7)))
            return inverse.to(self.records.device, torch.float32)

    def ids_are_written(self) -> None:
        """Tells the scene that its table of ids is what it is by the world, not by others."""
        self.scene.version_of_ids = self.mesh_ids._version
        if self.mesh_ids.device == CPU:
            self.scene.content_of_ids = self.mesh_ids.numpy().tobytes()

    def truncate(self, edit: Edit, env: int, count: int) -> None:
        """Stages empty slots from `count` on."""
        edit.then(self.tables.n_meshes[env].fill_, count)
        for table in (self.mesh_ids, self.tables.enabled, self.records, self.padding):
            edit.then(table[env, count:].zero_)

    def remove(self, edit: Edit, env: int, index: int, count: int) -> None:
        """Stages that one of `count` filled slots goes; those behind it move up by one."""
        if index + 1 < count:
            to, moved = slice(index, count - 1), (env, slice(index + 1, count))
            rows, enabled = self.tables.mesh_from_world, self.tables.enabled
            for table in (self.mesh_ids, self.records, rows, enabled, self.padding):
                edit.then(table[env, to].copy_, table[moved].clone())
        self.truncate(edit, env, count - 1)

    def write_enabled(self, env: int, slots: slice, mask: Tensor) -> None:
        """Writes masks (n,) of any dtype: what is not 0 is enabled.

        In the replays of a graph nothing is disabled any more once the world has outgrown it.
        """
        enabled, is_on = self.tables.enabled, mask != 0
        if is_capturing(enabled.device):
            for table in (enabled, self.is_outgrown):
                keep_for_graphs(table, enabled.device, memory_key(table))
            is_on = is_on | self.is_outgrown
        enabled[env, slots].copy_(is_on)


def _write(tables: Sequence[Tensor], contents: Sequence[Tensor]) -> None:
    for table, content in zip(tables, contents, strict=True):
        table.copy_(content)

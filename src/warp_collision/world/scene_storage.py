"""The device tables of a world: mesh ids, inverse poses, masks and counts, by env and slot."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from warp_collision.devices import synchronize
from warp_collision.launching.edit import Edit
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
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
        tables: the tensors that kernels read, without a tree.
        records: (n_envs, max_obstacles) int64, pointers to the records, a table.
        padding: (n_envs, max_obstacles) float32 [m], one of the tables.
        ignored: tables of allowed contacts, which a query may add.
        scene: what queries are asked of.
    """

    def __init__(self, n_envs: int, max_obstacles: int, device: torch.device):
        shape = (n_envs, max_obstacles)
        with torch.inference_mode(False):
            identity = torch.tensor(_IDENTITY, dtype=torch.float32, device=device)
            self.records = torch.zeros(shape, dtype=torch.int64, device=device)
            self.padding = torch.zeros(shape, dtype=torch.float32, device=device)
            self.tables = SceneTables(
                mesh_ids=torch.zeros(shape, dtype=torch.int64, device=device),
                mesh_from_world=identity.expand(*shape, 8).contiguous(),
                enabled=torch.zeros(shape, dtype=torch.uint8, device=device),
                n_meshes=torch.zeros(n_envs, dtype=torch.int32, device=device),
                records=self.records,
                padding=self.padding,
            )
        self.ignored = IgnoredTables(n_envs, max_obstacles, device)
        self.scene = Scene.living(self.tables)
        # The drop-in Functions get tensors alone: the memory of the ids knows what belongs to it.
        ids: Any = self.tables.mesh_ids.untyped_storage()
        ids.padding, ids.scene = self.padding, weakref.ref(self.scene)
        synchronize(device)  # the tables are read on other streams, too

    def keep_alive(self, holder: object) -> None:
        """Ties an object to the memory of the ids: that tensor keeps the meshes alive."""
        storage = self.tables.mesh_ids.untyped_storage()
        storage.holder = holder  # pyright: ignore[reportAttributeAccessIssue]

    def enlarged(self, n_envs: int, max_obstacles: int) -> SceneStorage:
        """Larger tables that begin with what these hold."""
        old = self.tables
        larger = SceneStorage(n_envs, max_obstacles, old.mesh_ids.device)
        rows, slots = old.mesh_ids.shape
        for new, previous in zip(larger.tables.tensors(), old.tensors(), strict=True):
            target = new[:rows] if new.ndim == 1 else new[:rows, :slots]
            target.copy_(previous)
        larger.scene.source = self.scene.source
        synchronize(old.mesh_ids.device)
        return larger

    def fill(self, edit: Edit, env: int, first: int, entries: Sequence[Entry]) -> Tensor:
        """Stages all of consecutive slots from `first`; returns their rows of mesh_from_world."""
        slots = slice(first, first + len(entries))
        for table, values in (
            (self.tables.mesh_ids, [entry.obstacle.mesh_id for entry in entries]),
            (self.records, [entry.obstacle.record.data_ptr() for entry in entries]),
            (self.tables.enabled, [int(entry.enabled) for entry in entries]),
            (self.padding, [entry.padding for entry in entries]),
        ):
            content = torch.tensor(values, dtype=table.dtype).to(table.device)
            edit.then(table[env, slots].copy_, content)
        return self.move(edit, env, slots, torch.stack([entry.pose for entry in entries]))

    def replace_geometry(self, edit: Edit, env: int, index: int, obstacle: MeshObstacle) -> None:
        """Stages id and record of one slot, which keeps its mask and padding."""
        edit.then(self.records[env, index].fill_, obstacle.record.data_ptr())
        edit.then(self.tables.mesh_ids[env, index].fill_, obstacle.mesh_id)

    def move(self, edit: Edit, env: int, slots: slice, poses: Tensor) -> Tensor:
        """Stages poses (n, 7), inverted: float64 on the host, float32 on the device.

        Returns:
            (n, 8) the rows of mesh_from_world that will be written.
        """
        rows = self.tables.mesh_from_world
        with torch.no_grad():
            inverse = to_rows(invert_pose(poses.detach().view(-1, 7)))
            inverse = inverse.to(rows.device, torch.float32)
        edit.then(rows[env, slots].copy_, inverse)
        return inverse

    def set_count(self, edit: Edit, env: int, count: int) -> None:
        """Stages the number of filled slots."""
        edit.then(self.tables.n_meshes[env].fill_, count)

    def truncate(self, edit: Edit, env: int, count: int) -> None:
        """Stages empty slots from `count` on."""
        self.set_count(edit, env, count)
        for table in (self.tables.mesh_ids, self.tables.enabled, self.records, self.padding):
            edit.then(table[env, count:].zero_)

    def remove(self, edit: Edit, env: int, index: int, count: int) -> None:
        """Stages that one of `count` filled slots goes; those behind it move up by one."""
        if index + 1 < count:
            for table in (*self.tables[:3], self.records, self.padding):
                moved = table[env, index + 1 : count].clone()
                edit.then(table[env, index : count - 1].copy_, moved)
        self.truncate(edit, env, count - 1)

    def write_enabled(self, env: int, slots: slice, mask: Tensor) -> None:
        """Writes masks (n,) of any dtype: what is not 0 is enabled."""
        self.tables.enabled[env, slots].copy_(mask != 0)

"""The device tables of a world: mesh ids, inverse poses, masks and counts, by env and slot."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from weakref import WeakSet, WeakValueDictionary

import torch
import warp as wp
from torch import Tensor

from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.poses import invert_pose, to_rows
from warp_collision.world.ignored_spheres import IgnoredTables

_IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)

# By the address of the table of ids, alive as long as that table: the drop-in Functions get
# ids alone, and a table that the world has outgrown still has the padding of its meshes.
_paddings: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
_living: WeakSet[SceneStorage] = WeakSet()
_living_lock = threading.Lock()


def padding_of(mesh_ids: Tensor) -> Tensor | None:
    """The paddings that belong to a table of ids, if it is one of a world or a view of one."""
    padding = _paddings.get(mesh_ids.data_ptr())
    if padding is not None and padding.shape == mesh_ids.shape:
        return padding
    padding = _paddings.get(mesh_ids.untyped_storage().data_ptr())
    if padding is None:
        return None
    return padding.as_strided(mesh_ids.shape, mesh_ids.stride(), mesh_ids.storage_offset())


def has_padding(mesh_ids: Tensor) -> bool:
    """Whether a slot of any world has one of some ids and a padding; waits for the device."""
    with _living_lock:
        worlds = [world for world in _living if world.padding.device == mesh_ids.device]
    return any(
        bool(torch.isin(world.tables.mesh_ids[world.padding != 0.0], mesh_ids).any())
        for world in worlds
    )


class SceneStorage:
    """Tables of one size on one device, written in place; growing makes a larger copy.

    Any thread may read the tables while one writes them.

    Attributes:
        tables: the tensors that kernels read, without a tree.
        records: (n_envs, max_obstacles) int64, pointers to the records, a table.
        padding: (n_envs, max_obstacles) float32 [m], one of the tables.
        ignored: tables of allowed contacts, which a query may add.
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
        _paddings[self.tables.mesh_ids.data_ptr()] = self.padding
        ids = self.tables.mesh_ids.untyped_storage()
        ids.padding = self.padding  # pyright: ignore[reportAttributeAccessIssue]
        with _living_lock:
            _living.add(self)

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
        return larger

    def write_obstacles(
        self,
        env: int,
        first: int,
        obstacles: Sequence[MeshObstacle],
        enabled: Sequence[bool],
        padding: Sequence[float],
    ) -> None:
        """Writes ids, records, masks and paddings of consecutive slots from `first`."""
        slots = slice(first, first + len(obstacles))
        for table, values in (
            (self.tables.mesh_ids, [obstacle.mesh_id for obstacle in obstacles]),
            (self.records, [obstacle.record.data_ptr() for obstacle in obstacles]),
            (self.tables.enabled, [int(on) for on in enabled]),
            (self.padding, padding),
        ):
            table[env, slots] = torch.tensor(values, dtype=table.dtype).to(table.device)

    def write_geometry(self, env: int, index: int, obstacle: MeshObstacle) -> None:
        """Writes id and record of one slot, which keeps its mask and padding."""
        self.records[env, index] = obstacle.record.data_ptr()
        self.tables.mesh_ids[env, index] = obstacle.mesh_id

    def write_poses(self, env: int, slots: slice, poses: Tensor) -> None:
        """Writes poses (n, 7), inverted: float64 on the host, float32 on the device."""
        rows = self.tables.mesh_from_world
        with torch.no_grad():
            inverse = to_rows(invert_pose(poses.detach()))
            rows[env, slots] = inverse.to(rows.device, torch.float32)

    def write_enabled(self, env: int, slots: slice, mask: Tensor) -> None:
        """Writes masks (n,) of any dtype: what is not 0 is enabled."""
        self.tables.enabled[env, slots].copy_(mask != 0)

    def set_count(self, env: int, count: int) -> None:
        """Sets the number of filled slots."""
        self.tables.n_meshes[env].fill_(count)

    def truncate(self, env: int, count: int) -> None:
        """Empties the slots from `count` on."""
        self.set_count(env, count)
        for table in (self.tables.mesh_ids, self.tables.enabled, self.records, self.padding):
            table[env, count:] = 0

    def remove(self, env: int, index: int, count: int) -> None:
        """Removes one of `count` filled slots; those behind it move up by one."""
        if index + 1 < count:
            for table in (*self.tables[:3], self.records, self.padding):
                table[env, index : count - 1] = table[env, index + 1 : count].clone()
        self.truncate(env, count - 1)


def check_values(tables: SceneTables, *, poses: str, ids: str, counts: str) -> None:
    """Checks the values of the tables; waits for the device.

    Args:
        tables: of a world, or of a caller of the drop-in Functions.
        poses: what messages call the inverse poses.
        ids: what they call the mesh ids.
        counts: what they call the numbers of filled slots.
    """
    slots = tables.mesh_ids.shape[1]
    bad = (tables.n_meshes < 0) | (tables.n_meshes > slots)
    if bad.any():
        raise ValueError(f"{counts} must be in [0, {slots}], got {tables.n_meshes[bad][0].item()}")
    filled = torch.arange(slots, device=bad.device) < tables.n_meshes[:, None]
    checked = filled & (tables.enabled != 0) & (tables.mesh_ids != 0)
    for env, slot in torch.nonzero(checked).tolist():
        row = tables.mesh_from_world[env, ..., slot, :7].detach()
        bad = row[~torch.isfinite(row)]
        if len(bad):
            raise ValueError(
                f"{poses} must be finite, got {bad[0].item()} in env {env}, slot {slot}"
            )
        if (row[..., 3:].norm(dim=-1) < 1e-6).any():
            raise ValueError(
                f"{poses} must have quaternions other than 0, got 0 in env {env}, slot {slot}"
            )
    # By type: `isinstance` reads `__class__`, at which some objects emit warnings.
    living = {thing.id for thing in gc.get_objects() if issubclass(type(thing), wp.Mesh)}
    for mesh_id in tables.mesh_ids[checked].tolist():
        if mesh_id not in living:
            raise ValueError(f"{ids} must hold ids of living wp.Mesh objects, got {mesh_id}")

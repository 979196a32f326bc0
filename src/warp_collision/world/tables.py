"""The device tensors of a world: mesh ids, inverse poses, masks and counts, by env and slot."""

from __future__ import annotations

import gc
import threading
from typing import Any, NamedTuple
from weakref import WeakSet, WeakValueDictionary

import torch
import warp as wp
from torch import Tensor

from warp_collision.devices import is_capturing
from warp_collision.launching.deferred_free import free_with, retire
from warp_collision.launching.launch import SceneTables, share
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.poses import invert_pose, to_rows
from warp_collision.world.broad_phase import MIN_MESHES, BroadPhase, no_tree

# Worlds by the address of their id table, so that the drop-in Functions find what a world knows of
# its meshes when they are handed its tensors.
_worlds: WeakValueDictionary[int, WorldTables] = WeakValueDictionary()

_IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)


class _Tables(NamedTuple):
    """The tables of one size with what belongs to them, replaced all at once.

    Attributes:
        tables: without a tree.
        without_tree: the same for many calls, with an empty tree.
        with_tree: the same with the tree of the broad phase.
        broad_phase: keeps that tree.
    """

    tables: SceneTables
    without_tree: SceneTables
    with_tree: SceneTables
    broad_phase: BroadPhase

    @classmethod
    def of(cls, tables: SceneTables, broad_phase: BroadPhase) -> _Tables:
        """Tables with records and a broad phase for them."""
        assert tables.records is not None
        empty = tables.complete(tables.records, no_tree(tables.mesh_ids.device))
        return cls(tables, empty, tables.complete(tables.records, broad_phase.tree), broad_phase)


class WorldTables:
    """Tables of one device, updated in place; new tensors only when they grow.

    Any thread may read the tables while another, under the lock, changes them.

    Attributes:
        device: where they live.
    """

    def __init__(self, n_envs: int, max_meshes: int, device: torch.device):
        self.device = device
        self._lock = threading.RLock()
        self._unfinished: WeakSet[MeshObstacle] = WeakSet()
        self._without_lists: WeakSet[MeshObstacle] = WeakSet()
        self._most_meshes = 0
        # Nothing is left to be made for the next query, nor will be before the meshes change.
        self._is_settled = True
        self._of_graphs: list[BroadPhase] = []
        self._held: list[Any] = []
        free_with(self, self._held, device)
        self._now: _Tables
        self._use(self._allocate(n_envs, max_meshes))

    def _allocate(self, n_envs: int, max_meshes: int) -> SceneTables:
        """Tables of empty slots."""
        shape = (n_envs, max_meshes)
        with torch.inference_mode(False):
            identity = torch.tensor(_IDENTITY, dtype=torch.float32, device=self.device)
            return SceneTables(
                mesh_ids=torch.zeros(shape, dtype=torch.int64, device=self.device),
                mesh_from_world=identity.expand(*shape, 8).contiguous(),
                enabled=torch.zeros(shape, dtype=torch.uint8, device=self.device),
                n_meshes=torch.zeros(n_envs, dtype=torch.int32, device=self.device),
                records=torch.zeros(shape, dtype=torch.int64, device=self.device),
            )

    def _use(self, tables: SceneTables) -> None:
        """Makes tables those of the world, all at once: other threads may be asking for them."""
        # A tree belongs to tables of one shape; who still reads the old ones does without.
        previous = getattr(self, "_now", None)
        _worlds[tables.mesh_ids.data_ptr()] = self
        if previous is None:
            self._publish(_Tables.of(tables, BroadPhase(self.device)))
            return
        moved = previous.broad_phase.moved_by_graphs
        self._publish(_Tables.of(tables, BroadPhase(self.device, moved_by_graphs=moved)))
        previous.broad_phase.forget()
        # Launches of other streams may still read the old tensors.
        retire([previous], self.device)

    def _forget_tree(self) -> None:
        """The meshes are about to change: whatever knows their old places is not asked again."""
        old = self._now.broad_phase
        old.forget()
        if old.is_captured:
            # Graphs go on with its tensor, which says that there is no tree, for good: a new tree
            # would be one that they do not refit.
            self._of_graphs.append(old)
            new = BroadPhase(self.device, moved_by_graphs=old.moved_by_graphs)
            self._publish(_Tables.of(self._now.tables, new))

    def _publish(self, tables: _Tables) -> None:
        self._now = tables
        self._held[:] = [tables, *self._of_graphs]

    @property
    def mesh_ids(self) -> Tensor:
        """(n_envs, max_meshes) int64, Warp mesh ids, 0 where a slot is empty."""
        return self._now.tables.mesh_ids

    @property
    def mesh_from_world(self) -> Tensor:
        """(n_envs, max_meshes, 8) float32, inverse poses x, y, z, qw, qx, qy, qz and padding."""
        return self._now.tables.mesh_from_world

    @property
    def enabled(self) -> Tensor:
        """(n_envs, max_meshes) uint8, 1 where queries check the mesh."""
        return self._now.tables.enabled

    @property
    def n_meshes(self) -> Tensor:
        """(n_envs,) int32, filled slots."""
        return self._now.tables.n_meshes

    @property
    def _records(self) -> Tensor:
        """(n_envs, max_meshes) int64, pointers to what is known of each mesh."""
        records = self._now.tables.records
        assert records is not None
        return records

    @property
    def _broad_phase(self) -> BroadPhase:
        """The tree over the present tables."""
        return self._now.broad_phase

    @property
    def n_envs(self) -> int:
        """Number of envs."""
        return self.mesh_ids.shape[0]

    @property
    def max_meshes(self) -> int:
        """Slots per env."""
        return self.mesh_ids.shape[1]

    def tables(self) -> SceneTables:
        """The device tables that the kernels read, which belong together."""
        return self._now.tables

    def owns(self, tables: SceneTables) -> bool:
        """Whether tables have the mesh ids of this world."""
        same = self.mesh_ids.data_ptr() == tables.mesh_ids.data_ptr()
        return same and self.mesh_ids.shape == tables.mesh_ids.shape

    def complete(self, tables: SceneTables) -> SceneTables:
        """Adds the records, and the tree where the poses are this world's too."""
        now = self._now
        has_tree = False if self._is_settled else self._prepare(tables, now)
        known = now.with_tree if has_tree else now.without_tree
        if (
            tables.mesh_from_world is known.mesh_from_world
            and tables.enabled is known.enabled
            and tables.n_meshes is known.n_meshes
        ):
            return known
        return tables._replace(records=known.records, tree=known.tree)

    def _prepare(self, tables: SceneTables, now: _Tables) -> bool:
        """Makes what is still missing; whether there is a tree for the poses of these tables."""
        with self._lock:
            if not is_capturing(self.device):
                self._fill_grids()
            if self._most_meshes < MIN_MESHES:
                self._is_settled = not self._unfinished
                return False
            # Grown meanwhile, the world has a tree that counts other slots.
            if now is not self._now:
                return False
            if tables.mesh_from_world.data_ptr() != now.tables.mesh_from_world.data_ptr():
                return False
            return now.broad_phase.make_fresh(now.tables)

    def _fill_grids(self) -> None:
        for obstacle in list(self._unfinished):
            obstacle.fill_grid()
            # Not before: who finds a mesh here waits for its grid, and all see the same.
            self._unfinished.discard(obstacle)
            self._without_lists.add(obstacle)

    def prepare(self) -> None:
        """Makes now what queries would make, and on the CPU candidate lists, which they would not.

        Lists make queries near and inside single meshes 1.3 to 4 times faster, and take some
        seconds for ten thousands of faces; several meshes share torch's CPU threads. Where two
        triangles are equally near lists may take the other one: the distance is the same to
        rounding, the gradient as good.

        Example:
            >>> import trimesh
            >>> from warp_collision import MeshWorld
            >>> world = MeshWorld(device="cpu")
            >>> world.add("ball", trimesh.creation.icosphere(2))
            0
            >>> world.prepare()
        """
        self.complete(self.tables())
        # Not under the lock: meanwhile other threads may query.
        share(MeshObstacle.build_lists, self._take_without_lists(), torch.get_num_threads())

    def _take_without_lists(self) -> list[MeshObstacle]:
        """Takes all meshes that nobody has begun to build lists for, the largest first."""
        taken = []
        while self._without_lists:
            try:
                taken.append(self._without_lists.pop())
            except KeyError:  # another thread was quicker
                break
        return sorted(taken, key=lambda obstacle: -obstacle.list_bytes)

    def refit(self) -> None:
        """Takes notice of writes to the tables that torch does not see.

        Poses written by `set_pose`, `set_poses` or any torch operation are noticed. Call this after
        a Warp kernel, or a replayed CUDA graph that does not go through `set_poses`, has written
        `mesh_from_world`, or capture it together with that. It does not wait for the device.

        Example:
            >>> from warp_collision import MeshWorld
            >>> MeshWorld().refit()
        """
        with self._lock:
            self._broad_phase.refit(self._now.tables)

    def _enlarged(self, n_envs: int, max_meshes: int) -> SceneTables:
        """Larger tables that begin with what the present ones hold."""
        old, larger = self._now.tables, self._allocate(n_envs, max_meshes)
        rows, slots = old.mesh_ids.shape
        for new, previous in zip(larger.tensors(), old.tensors(), strict=True):
            target = new[:rows] if new.ndim == 1 else new[:rows, :slots]
            target.copy_(previous)
        return larger

    def _move_up(self, env: int, index: int, count: int) -> None:
        """Overwrites a slot by those behind it."""
        for table in (self.mesh_ids, self.mesh_from_world, self.enabled, self._records):
            assert table is not None
            table[env, index : count - 1] = table[env, index + 1 : count].clone()

    def _empty(self, env: int, count: int) -> None:
        """Empties the slots from `count` on."""
        self.n_meshes[env].fill_(count)
        for table in (self.mesh_ids, self.enabled, self._records):
            assert table is not None
            table[env, count:] = 0

    def _write_poses(self, env: int, place: slice, poses: Tensor) -> None:
        """Inverts (float64 on the host, float32 on the device) and stores poses."""
        with torch.no_grad():
            rows = to_rows(invert_pose(poses.detach()))
            self.mesh_from_world[env, place] = rows.to(self.device, torch.float32)
            self.refit()


def completed(tables: SceneTables) -> SceneTables:
    """The tables with all that a world knows, if they are those of a living world.

    What is dear and only saves work is made here, at the first query: distance grids, and the tree
    over the meshes, which is fit to the poses again when they have changed.
    """
    if tables.token:
        return tables
    world = _worlds.get(tables.mesh_ids.data_ptr())
    if world is None or not world.owns(tables):
        return tables._replace(tree=no_tree(tables.mesh_ids.device))
    return world.complete(tables)


def check_values(tables: SceneTables, *, poses: str, ids: str, counts: str) -> None:
    """Checks what only the values of the tables can tell; waits for the device.

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
        row = tables.mesh_from_world[env, slot, :7].detach()
        bad = row[~torch.isfinite(row)]
        if len(bad):
            raise ValueError(
                f"{poses} must be finite, got {bad[0].item()} in env {env}, slot {slot}"
            )
        if row[3:].norm() < 1e-6:
            raise ValueError(
                f"{poses} must have quaternions other than 0, got 0 in env {env}, slot {slot}"
            )
    # By type: `isinstance` asks objects for their class, and some of all there are warn then.
    living = {thing.id for thing in gc.get_objects() if issubclass(type(thing), wp.Mesh)}
    for mesh_id in tables.mesh_ids[checked].tolist():
        if mesh_id not in living:
            raise ValueError(f"{ids} must hold ids of living wp.Mesh objects, got {mesh_id}")

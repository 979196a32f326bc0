"""The content of the envs of a world: slots, tables and acceleration, which change together."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.devices import synchronize
from warp_collision.launching.deferred_free import retire
from warp_collision.world.acceleration import Acceleration
from warp_collision.world.obstacle_cache import Entry
from warp_collision.world.scene_storage import SceneStorage
from warp_collision.world.slots import Slot, Slots


class Contents:
    """Fills, empties and moves slots, for one thread at a time; any number may query meanwhile.

    Attributes:
        storage: the current tables; growing replaces them.
    """

    def __init__(self, slots: Slots, storage: SceneStorage, acceleration: Acceleration):
        """Takes the parts of a world, without obstacles."""
        self.storage = storage
        self._slots = slots
        self._acceleration = acceleration
        storage.keep_alive(slots.envs)

    def fill(self, env: int, first: int, entries: list[Entry]) -> None:
        """Writes consecutive slots from `first`, then frees what they held."""
        slots, last = self._slots.envs[env], first + len(entries)
        dropped = slots[first:last]
        self._acceleration.drop_tree()
        slots[first:last] = [Slot(entry.name, entry.obstacle) for entry in entries]
        if entries:
            obstacles = [entry.obstacle for entry in entries]
            for entry in entries:
                entry.obstacle.is_padded |= entry.padding > 0.0
            self._acceleration.add(obstacles)
            self.storage.write_obstacles(
                env, first, obstacles, [e.enabled for e in entries], [e.padding for e in entries]
            )
            self.write_poses(env, slice(first, last), torch.stack([e.pose for e in entries]))
            rows = self.storage.tables.mesh_from_world
            for index, entry in enumerate(entries, first):
                self._slots.track(env, slice(index, index + 1), entry.given, rows)
        self.storage.set_count(env, len(slots))
        self._changed(env, dropped)

    def truncate(self, env: int, count: int) -> None:
        """Empties the slots from `count` on."""
        slots = self._slots.envs[env]
        dropped = slots[count:]
        self._acceleration.drop_tree()
        del slots[count:]
        self.storage.truncate(env, count)
        self._changed(env, dropped)

    def remove(self, env: int, index: int) -> None:
        """Removes a slot; those behind it move up by one."""
        slots = self._slots.envs[env]
        self._acceleration.drop_tree()
        self.storage.remove(env, index, len(slots))
        self._changed(env, [slots.pop(index)])

    def grow(self, n_envs: int, max_meshes: int) -> None:
        """Makes the tables larger; what they hold stays."""
        # The old tensors may still be read: they keep the meshes that they name.
        self.storage.keep_alive([list(slots) for slots in self._slots.envs])
        larger = self.storage.enlarged(n_envs, max_meshes)
        larger.keep_alive(self._slots.envs)
        self._slots.envs += [[] for _ in range(n_envs - len(self._slots.envs))]
        # In this order: records of larger tables fit smaller ones, but not the reverse.
        self._acceleration.use(larger.tables)
        self.storage = larger

    def write_poses(self, env: int, slots: slice, poses: Tensor) -> None:
        """Writes poses (n, 7) of consecutive slots."""
        self.storage.write_poses(env, slots, poses)
        self._acceleration.refit()

    def _changed(self, env: int, dropped: list[Slot]) -> None:
        self.storage.ignored.slots_changed(env, self._slots.envs[env])
        device = self.storage.tables.mesh_ids.device
        self._acceleration.meshes_changed(self._slots.most)
        retire(dropped, device)
        synchronize(device)

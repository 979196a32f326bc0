"""What a world holds as plain data, from which another process or a copy makes the same world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from warp_collision.obstacles.geometry import Geometry
from warp_collision.poses import invert_pose
from warp_collision.world.obstacle_cache import Entry, ObstacleCache
from warp_collision.world.scene_storage import SceneStorage
from warp_collision.world.slots import Slots


@dataclass
class WorldContent:
    """All that decides the answers of a world.

    Attributes:
        device: where it lives, as text.
        grid_cells: most cells of the distance grid of a mesh.
        geometries: of its obstacles, each once.
        keys: by which equal obstacles are found, of some of them.
        slots: name and number of the geometry of each slot, for each env.
        rows: (n_envs, max_obstacles, 8) float32, the inverse poses.
        enabled: (n_envs, max_obstacles) uint8.
        padding: (n_envs, max_obstacles) float32 [m].
    """

    device: str
    grid_cells: int
    geometries: list[Geometry]
    keys: dict[str, int]
    slots: list[list[tuple[str, int]]]
    rows: np.ndarray
    enabled: np.ndarray
    padding: np.ndarray

    @classmethod
    def of(cls, slots: Slots, cache: ObstacleCache, storage: SceneStorage) -> WorldContent:
        """What the parts of a world hold; waits for its device."""
        tables, envs = storage.tables, slots.envs
        obstacles = list({id(s.obstacle): s.obstacle for env in envs for s in env}.values())
        number = {id(obstacle): index for index, obstacle in enumerate(obstacles)}
        rows = slots.differentiable_rows(tables.mesh_from_world).detach()
        return cls(
            str(rows.device),
            cache.grid_cells,
            [obstacle.geometry for obstacle in obstacles],
            {key: number[id(o)] for key, o in cache.shared() if id(o) in number},
            [[(slot.name, number[id(slot.obstacle)]) for slot in env] for env in envs],
            *(table.cpu().numpy().copy() for table in (rows, tables.enabled, storage.padding)),
        )

    def entries(self, cache: ObstacleCache) -> list[list[Entry]]:
        """The content of the slots of each env, with obstacles that a cache makes."""
        obstacles = [cache.make(geometry) for geometry in self.geometries]
        cache.share({key: obstacles[index] for key, index in self.keys.items()})
        envs = []
        for env, slots in enumerate(self.slots):
            poses = invert_pose(torch.from_numpy(self.rows[env, :, :7]).double())
            states = zip(slots, poses, self.enabled[env], self.padding[env], strict=False)
            envs.append(
                [
                    Entry(name, obstacles[index], pose, pose, bool(on), float(padding))
                    for (name, index), pose, on, padding in states
                ]
            )
        return envs

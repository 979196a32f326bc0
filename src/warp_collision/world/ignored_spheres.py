"""Allowed contacts: tables of the spheres of robots that obstacles are not checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warp_collision.launching.deferred_free import retire
from warp_collision.launching.edit import Edit
from warp_collision.launching.graph_memory import is_kept, memory_key
from warp_collision.world.scene import Scene
from warp_collision.world.slots import Slot

# So many tables are kept for further calls, besides those that graphs read.
MOST_TABLES = 64


class IgnoredSpheres:
    """One table, written in place as obstacles come and go.

    Attributes:
        table: see `SceneTables.ignored`.
        scene: that of the world with this table.
        is_checked: whether its obstacles were looked up since the content of the world changed.
        is_named: whether compiled graphs have a name for it.
    """

    def __init__(self, by_obstacle: Mapping[str, np.ndarray], table: Tensor, scene: Scene):
        """Takes the spheres (n_spheres,) bool by name of the obstacle, zeros, and the scene."""
        self._by_obstacle = dict(by_obstacle)
        self.table = table
        self.scene = Scene.living(scene.tables.ignoring(table), scene.source)
        self.is_checked = True
        self.is_named = False

    @property
    def is_in_graph(self) -> bool:
        """Whether a graph reads the table."""
        return self.is_named or is_kept(memory_key(self.table))

    def rows(self, slots: Sequence[Slot]) -> Tensor:
        """The rows of an env that holds these obstacles."""
        rows = np.zeros(self.table.shape[1:], dtype=np.uint8)
        for index, slot in enumerate(slots):
            rows[index] = self._by_obstacle.get(slot.name, 0)
        return torch.from_numpy(rows).to(self.table.device)


class _OfGraphs:
    """Tables as attributes: compilers see those that appear while they trace, not items."""


class IgnoredTables:
    """The tables that fit the tables of one size, by what was asked for.

    Attributes:
        of_graphs: those of compiled graphs, by the names that `name_in_graphs` gives them.
    """

    def __init__(self, n_envs: int, max_obstacles: int, device: torch.device):
        self.of_graphs = _OfGraphs()
        self._n_envs, self._max_meshes, self._device = n_envs, max_obstacles, device
        self._tables: dict[Any, IgnoredSpheres] = {}

    def find(self, key: Any) -> Scene | None:
        """The scene with the table of a key; None if its obstacles are to be looked up first."""
        known = self._tables.get(key)
        if known is None or not known.is_checked:
            return None
        return known.scene

    def add(
        self,
        scene: Scene,
        key: Any,
        by_obstacle: Mapping[str, np.ndarray],
        n_spheres: int,
        envs: Sequence[Sequence[Slot]],
    ) -> IgnoredSpheres:
        """The table of a key, under the lock of the world.

        Args:
            scene: of the world.
            key: whatever determines the other arguments, but for the envs.
            by_obstacle: spheres (n_spheres,) bool by the name of the obstacle.
            n_spheres: of the robot.
            envs: the slots of all envs.
        """
        known = self._tables.get(key)
        if known is None:
            shape = self._n_envs, self._max_meshes, n_spheres
            with torch.inference_mode(False):
                zeros = torch.zeros(shape, dtype=torch.uint8, device=self._device)
            known = IgnoredSpheres(by_obstacle, zeros, scene)
            for env, slots in enumerate(envs):
                known.table[env].copy_(known.rows(slots))
            self._drop_oldest()
            self._tables[key] = known
        known.is_checked = True
        return known

    def _drop_oldest(self) -> None:
        if len(self._tables) < MOST_TABLES:
            return
        free = [key for key, known in self._tables.items() if not known.is_in_graph]
        excess = max(0, len(free) + 1 - MOST_TABLES)
        retire([self._tables.pop(key) for key in free[:excess]], self._device)

    def name_in_graphs(self, known: IgnoredSpheres) -> str:
        """The name of a table as an attribute of `of_graphs`."""
        known.is_named = True  # and kept
        name = f"table_{id(known)}"
        setattr(self.of_graphs, name, known)
        return name

    def check_all(self) -> None:
        """Lets all obstacles be checked against all spheres."""
        for known in self._tables.values():
            known.table.zero_()

    def stage(self, edit: Edit, env: int, slots: Sequence[Slot]) -> None:
        """Stages the rows of an env with other slots."""
        for known in self._tables.values():
            edit.then(setattr, known, "is_checked", False)
            edit.then(known.table[env].copy_, known.rows(slots))

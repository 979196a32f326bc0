"""A scene: the obstacles of all envs at their poses, as one operand of queries.

Eager code passes the object. Operators of torch take its handle, a number by which they find it in
the table of living scenes, and the tensors that a graph may write or differentiate by: poses and
masks. Handles are random, so that a graph that was saved finds no scene of another process.
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from warp_collision.launching.recorded_launch import SceneTables

_HANDLE_BITS = 62

_living: WeakValueDictionary[int, Scene] = WeakValueDictionary()


class Source(Protocol):
    """What the acceleration structures of a scene come from."""

    def complete(self, tables: SceneTables, kernel: Any = None, n_queries: int = 0) -> SceneTables:
        """Tables with acceleration structures, see `Scene.completed`."""
        ...


class Scene:
    """Obstacles at poses.

    Attributes:
        tables: what kernels read, without acceleration structures.
        mesh_from_world: the poses among the tables, (n_envs, slots, 8), or (n_envs, horizon, slots,
            8) for obstacles that move.
        is_moving: whether obstacles have a pose for each waypoint.
        source: of the acceleration structures; None: kernels read the tables as they are.
        handle: the number for operators; 0: the scene is for direct launches alone.
        mesh_ids: (n_envs, slots) int64, of a world, whose memory keeps its obstacles; or None.
        version_of_ids: of that tensor, as the world wrote it last.
        content_of_ids: its bytes then, on the CPU, by which writes past torch show; or None.
        kept: the scene that operators find by the handle, if it is another.
    """

    def __init__(self, tables: SceneTables, source: Source | None = None, handle: int = 0):
        self.tables, self.source, self.handle = tables, source, handle
        self.mesh_ids: Tensor | None = None
        self.version_of_ids = 0
        self.content_of_ids: bytes | None = None
        self.kept: Scene | None = None
        self.mesh_from_world = tables.mesh_from_world
        self.is_moving = self.mesh_from_world.ndim == 4

    @classmethod
    def living(
        cls, tables: SceneTables, source: Source | None = None, mesh_ids: Tensor | None = None
    ) -> Scene:
        """The scene of a world, which operators find as long as somebody keeps it."""
        scene = cls(tables, source, 2 + secrets.randbits(_HANDLE_BITS))
        scene.mesh_ids = mesh_ids
        _living[scene.handle] = scene
        return scene

    @property
    def n_envs(self) -> int:
        """Number of envs."""
        return self.mesh_from_world.shape[0]

    def at(self, mesh_from_world: Tensor) -> Scene:
        """The same obstacles at other poses."""
        if mesh_from_world is self.mesh_from_world:
            return self
        scene = Scene(self.tables.at(mesh_from_world), self.source, self.handle)
        scene.kept = self.kept or self  # another thread may let the world grow before the query
        return scene

    def completed(self, kernel: Any = None, n_queries: int = 0) -> SceneTables:
        """The tables with acceleration structures, for a launch.

        They are built lazily, here, at the first query: distance grids, and the tree over the
        obstacles, which is refit when poses have changed.

        Args:
            kernel: the kernel to launch, compiled together with those that build the structures.
            n_queries: how many spheres or points are asked about.
        """
        source = self.source
        return self.tables if source is None else source.complete(self.tables, kernel, n_queries)

    def operands(self) -> tuple[int, Tensor, Tensor]:
        """The arguments of operators."""
        return self.handle, self.mesh_from_world, self.tables.enabled

    @classmethod
    def of(cls, handle: int, mesh_from_world: Tensor, enabled: Tensor) -> Scene:
        """From the arguments of operators; a batching rule may have repeated the envs.

        Raises:
            RuntimeError: the scene is no more.
        """
        scene = find_scene(handle)
        known = scene.tables
        copies = len(enabled) // len(known.enabled)
        if copies == 1:
            if mesh_from_world is known.mesh_from_world and enabled is known.enabled:
                return scene
            tables = known.at(mesh_from_world)._replace(enabled=enabled)
            return cls(tables, scene.source, handle)
        tables = known.rearranged(
            lambda table: table.repeat(copies, *(1,) * (table.ndim - 1)),
            mesh_from_world,
            known.n_meshes.repeat(copies),
        )
        return cls(tables._replace(enabled=enabled))


def find_scene(handle: int) -> Scene:
    """The living scene of a handle."""
    scene = _living.get(handle)
    if scene is None:
        raise RuntimeError(
            "a graph must run as long as its world lives, in the process that made it, and until "
            "the world grows; this one's scene is no more: keep the world, and trace again"
        )
    return scene


def living_scenes(device: torch.device) -> list[Scene]:
    """The living scenes on a device."""
    scenes = [scene() for scene in _living.valuerefs()]
    return [s for s in scenes if s is not None and s.mesh_from_world.device == device]

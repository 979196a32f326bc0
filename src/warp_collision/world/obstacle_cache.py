"""Obstacles of a world on its device, shared by content."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.io.scene_builder import Obstacle
from warp_collision.messages import depth_of_caller
from warp_collision.obstacles.geometry import Geometry, MeshLike, SignMethod
from warp_collision.obstacles.mesh_obstacle import MeshObstacle, split_pose
from warp_collision.obstacles.mesh_report import OpenMeshWarning
from warp_collision.obstacles.recognition import read_obstacle
from warp_collision.poses import PoseLike

_IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


class Entry(NamedTuple):
    """The new content of a slot, validated.

    Attributes:
        name: of the slot.
        obstacle: the obstacle of the slot.
        pose: (7,) float64 on the host.
        given: the pose as it came, if it was a tensor.
        enabled: whether queries check it.
        padding: what it is inflated by [m].
    """

    name: str
    obstacle: MeshObstacle
    pose: Tensor
    given: Tensor
    enabled: bool
    padding: float


class ObstacleCache:
    """Makes obstacles; equal geometry is stored once, as long as a slot holds it.

    Attributes:
        grid_cells: most cells of the distance grid of a mesh.
        with_meshes: whether shapes have Warp meshes, as somebody reads ids.
    """

    def __init__(self, device: torch.device, grid_cells: int):
        self._device = device
        self.grid_cells = grid_cells
        self.with_meshes = False
        self._obstacles: WeakValueDictionary[str, MeshObstacle] = WeakValueDictionary()

    def entry(
        self,
        name: str,
        mesh: MeshLike,
        pose: PoseLike | None,
        enabled: bool = True,
        repair: bool = True,
        sign: SignMethod = "auto",
        padding: float = 0.0,
    ) -> Entry:
        """The new content of a slot; arguments and errors are those of `MeshWorld.add`."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a non-empty string, got {name!r}")
        checked = validate.check_pose(f"pose of {name!r}", _IDENTITY if pose is None else pose)
        padding = validate.check_padding(f"padding of {name!r}", padding)
        obstacle = self.obstacle(name, mesh, repair, sign)
        given = pose if isinstance(pose, Tensor) else checked
        return Entry(name, obstacle, checked, given, validate.flag("enabled", enabled), padding)

    def entry_of(self, name: str, value: Any, padding: float = 0.0) -> Entry:
        """The new content of a slot, from a value of the mapping that `MeshWorld.load` takes."""
        padding = validate.check_padding("padding", padding)
        if isinstance(value, Obstacle):
            own = validate.check_padding(f"padding of {name!r}", value.padding)
            pose, enabled, padding = value.pose, value.enabled, own + padding
            return self.entry(name, value.geometry, pose, enabled, sign=value.sign, padding=padding)
        return self.entry(name, *split_pose(value), padding=padding)

    def make(self, geometry: Geometry) -> MeshObstacle:
        """A new obstacle on the device."""
        return MeshObstacle(geometry, self._device, self.grid_cells)

    def shared(self) -> list[tuple[str, MeshObstacle]]:
        """Obstacles by the key of their content."""
        return list(self._obstacles.items())

    def share(self, obstacles: Mapping[str, MeshObstacle]) -> None:
        """Has these for content of these keys."""
        self._obstacles.update(obstacles)

    def forget(self, obstacle: MeshObstacle) -> None:
        """Shares an obstacle no more, as its mesh is about to stand for something else."""
        for key, known in list(self._obstacles.items()):
            if known is obstacle:
                del self._obstacles[key]

    def obstacle(
        self, name: str, mesh: MeshLike, repair: bool = True, sign: SignMethod = "auto"
    ) -> MeshObstacle:
        """The obstacle of a mesh; arguments and errors are those of `MeshWorld.add`."""
        source = read_obstacle(name, mesh, repair=repair, sign=sign)
        obstacle = self._obstacles.get(source.key)
        if obstacle is None:
            geometry = source.examine()
            if sign == "auto" and geometry.shape is None and geometry.has_jumps:
                border = geometry.border.astype(np.float64)
                length = float(np.linalg.norm(border[:, 1] - border[:, 0], axis=1).sum())
                warnings.warn(OpenMeshWarning(name, length), stacklevel=depth_of_caller())
            obstacle = self.make(geometry)
            if geometry.sensed is None or geometry.sensed.capacity is None:
                self._obstacles[source.key] = obstacle
        if self.with_meshes and obstacle.mesh is None:
            obstacle.mesh = obstacle.mesh_for_others()
        return obstacle

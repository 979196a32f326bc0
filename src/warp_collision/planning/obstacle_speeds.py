"""How fast each obstacle of a world may move, as a table that kernels read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import short_repr
from warp_collision.world import MeshWorld

# One speed of all obstacles, or those of some by name [m/s].
ObstacleSpeeds = float | Mapping[str, float]


class SpeedTable:
    """The speeds of a world's obstacles; those that are not named rest.

    Args:
        world: the obstacles.
        speeds: of all, or of some by name [m/s].

    Attributes:
        fastest: the largest speed [m/s].
        shares: (n_envs, max_obstacles) float32, speeds as shares of it; None where all are alike.

    Raises:
        TypeError, ValueError: no speeds, or names that no obstacle has.
    """

    def __init__(self, world: MeshWorld, speeds: Any):
        self._world = world
        self._shares_of: dict[str, float] | None = None
        self.shares: Tensor | None = None
        if not isinstance(speeds, Mapping):
            validate.require_number("obstacle_speed", speeds)
            self.fastest = float(speeds)
            return
        for name, speed in speeds.items():
            if name not in world:
                raise ValueError(
                    f"obstacle_speed must name obstacles of the world, got {short_repr(name)}"
                )
            validate.require_number(f"obstacle_speed[{short_repr(name)}]", speed)
        self.fastest = float(max(speeds.values(), default=0.0))
        if self.fastest > 0.0:
            self._shares_of = {name: speed / self.fastest for name, speed in speeds.items()}
        self._known: list[Any] = []
        self.update((world.n_envs, world.max_obstacles))

    def update(self, shape: tuple[int, int]) -> bool:
        """Brings the table up to date with the names of the world; whether anything changed.

        Args:
            shape: envs and slots of the scene that is asked; another thread may make the world
                larger.
        """
        if self._shares_of is None:
            return False
        envs = self._world._slots.envs
        if self.shares is None or self.shares.shape != shape:
            with torch.inference_mode(False):
                self.shares = torch.ones(shape, device=self._world.device)
            self._known = [None] * shape[0]
        changed = False
        for env, slots in enumerate(envs[: shape[0]]):
            if slots is not self._known[env]:  # such a list is never changed
                row = [self._shares_of.get(slot.name, 0.0) for slot in slots]
                # What no name stands for yet counts as the fastest.
                row = (row + [1.0] * shape[1])[: shape[1]]
                self.shares[env] = torch.tensor(row, device=self._world.device)
                self._known[env], changed = slots, True
        return changed

"""Scenes of moving obstacles, which have a pose for each waypoint.

Rows of mesh_from_world are (n_envs, horizon, slots, 8) then. Queries at waypoints only are queries
of more envs at rest: one for each env and waypoint.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.world.acceleration import with_acceleration


def is_moving(mesh_from_world: Tensor) -> bool:
    """Whether obstacles have a pose for each waypoint."""
    return mesh_from_world.ndim == 4


def env_of_waypoint(mesh_from_world: Tensor, batch: int, env_index: Tensor | None) -> Tensor:
    """(batch * horizon,) int32, the env of each row and waypoint; -1 if out of range."""
    n_envs, horizon = mesh_from_world.shape[:2]
    waypoints = torch.arange(horizon, dtype=torch.int32, device=mesh_from_world.device)
    if env_index is None:
        return waypoints.repeat(batch)
    is_env = (env_index >= 0) & (env_index < n_envs)
    index = torch.where(is_env[:, None], env_index[:, None] * horizon + waypoints, -1)
    return index.flatten().to(torch.int32)


def tables_at_waypoints(tables: SceneTables) -> SceneTables:
    """Tables with an env for each env and waypoint."""
    tables = with_acceleration(tables)
    horizon = tables.mesh_from_world.shape[1]

    def repeated(table: Tensor | None) -> Any:
        return None if table is None else table.repeat_interleave(horizon, dim=0)

    ids, _, *others = tables.operands()
    rows = tables.mesh_from_world.detach().flatten(0, 1)
    return SceneTables(repeated(ids), rows, *map(repeated, others)).complete(None)


def at_waypoints(
    spheres: Tensor, tables: SceneTables, env_index: Tensor | None
) -> tuple[Tensor, SceneTables, Tensor]:
    """Spheres or points as rows of one waypoint each; tables and env index for them.

    Spheres are (batch, horizon, n_spheres, 4); points (batch, horizon * n, 3), by waypoint.
    """
    if spheres.ndim == 3:
        rows = spheres.unflatten(1, (tables.mesh_from_world.shape[1], -1)).flatten(0, 1)
    else:
        rows = spheres.flatten(0, 1).unsqueeze(1)
    index = env_of_waypoint(tables.mesh_from_world, spheres.shape[0], env_index)
    return rows, tables_at_waypoints(tables), index

"""Scenes of moving obstacles, which have a pose for each waypoint.

Rows of mesh_from_world are (n_envs, horizon, slots, 8) then. Queries at waypoints only are queries
of more envs at rest: one for each env and waypoint.
"""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.world.scene import Scene


def env_of_waypoint(mesh_from_world: Tensor, batch: int, env_index: Tensor | None) -> Tensor:
    """(batch * horizon,) int32, the env of each row and waypoint; -1 if out of range."""
    n_envs, horizon = mesh_from_world.shape[:2]
    waypoints = torch.arange(horizon, dtype=torch.int32, device=mesh_from_world.device)
    if env_index is None:
        return waypoints.repeat(batch)
    is_env = (env_index >= 0) & (env_index < n_envs)
    index = torch.where(is_env[:, None], env_index[:, None] * horizon + waypoints, -1)
    return index.flatten().to(torch.int32)


def scene_at_waypoints(scene: Scene) -> Scene:
    """A scene with an env for each env and waypoint."""
    tables = scene.completed()
    horizon = tables.mesh_from_world.shape[1]
    return Scene(
        tables.rearranged(
            lambda table: table.repeat_interleave(horizon, dim=0),
            tables.mesh_from_world.detach().flatten(0, 1),
            tables.n_meshes.repeat_interleave(horizon),
        )
    )


def at_waypoints(
    spheres: Tensor, scene: Scene, env_index: Tensor | None
) -> tuple[Tensor, Scene, Tensor]:
    """Spheres or points as rows of one waypoint each; scene and env index for them.

    Spheres are (batch, horizon, n_spheres, 4); points (batch, horizon * n, 3), by waypoint.
    """
    if spheres.ndim == 3:
        rows = spheres.unflatten(1, (scene.mesh_from_world.shape[1], -1)).flatten(0, 1)
    else:
        rows = spheres.flatten(0, 1).unsqueeze(1)
    index = env_of_waypoint(scene.mesh_from_world, spheres.shape[0], env_index)
    return rows, scene_at_waypoints(scene), index

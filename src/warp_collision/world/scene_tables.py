"""The scene of a world, at its poses or at others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.poses import invert_pose, pose_rows, to_rows
from warp_collision.world.scene import Scene
from warp_collision.world.scene_storage import check_values

if TYPE_CHECKING:
    from warp_collision.world.mesh_world import MeshWorld


def scene_of(world: MeshWorld, poses: Tensor | None = None, horizon: int | None = None) -> Scene:
    """The scene of a world, differentiable by its poses, or by others that replace them.

    Args:
        world: the world.
        poses: (n_envs, max_obstacles, 7), or (n_obstacles, 7) for a world of one env; 4 x 4
            matrices in place of the 7 numbers. For each waypoint: (n_envs, horizon, max_obstacles,
            7), or (horizon, n_obstacles, 7) for a world of one env, which makes mesh_from_world
            (n_envs, horizon, slots, 8).
        horizon: how many waypoints there are; None where poses must be the same at all times.
    """
    scene = world._storage.scene
    if poses is None:
        rows = world._slots.differentiable_rows(scene.mesh_from_world)
    else:
        rows = _replaced_rows(world, scene.tables, poses, horizon)
    scene = scene.at(rows)
    if validate.is_checking():
        name = "mesh_from_world" if poses is None else "poses"
        check_values(scene.tables, poses=name, ids="mesh_ids", counts="n_meshes")
    return scene


def _replaced_rows(
    world: MeshWorld, tables: SceneTables, poses: Tensor, horizon: int | None
) -> Tensor:
    """Rows of mesh_from_world, differentiable, for poses that replace those of a world."""
    n_envs, slots = tables.mesh_ids.shape
    full, count = (n_envs, slots, 7), len(world.names(0))
    if not isinstance(poses, Tensor):  # graphs of any shape have no text of one
        validate.require_tensor("poses", poses, str(full))
    validate.require_device("poses", poses, world.device)
    if not poses.dtype.is_floating_point:
        raise TypeError(f"poses must be floating point, got {poses.dtype}")
    is_matrix = poses.shape[-2:] == (4, 4)
    leading = tuple(poses.shape[: -2 if is_matrix else -1])
    fits = is_matrix or poses.shape[-1:] == (7,)
    times = () if horizon is None else (horizon,)
    if fits and n_envs == 1 and leading in ((count,), (*times, count)):
        times = leading[:-1] or (1,)
        rest = tables.mesh_from_world[:, count:].expand(*times, -1, 8)
        rows = to_rows(invert_pose(pose_rows(poses.float()))).view(*times, count, 8)
        rows = torch.cat((rows, rest), dim=1)
        if len(leading) > 1 and leading != (n_envs, slots):
            rows = rows[None]
    elif fits and leading in ((n_envs, slots), (n_envs, *times, slots)):
        # Empty slots may hold anything: an inverse of zeros would have gradients of NaN.
        used = torch.arange(slots, device=poses.device) < tables.n_meshes[:, None]
        used = used.view(n_envs, *(1,) * (len(leading) - 2), slots)
        size = 4 if is_matrix else 7
        one = torch.eye(size, dtype=poses.dtype, device=poses.device)
        one = one if is_matrix else one[3]
        valid = torch.where(used.view(*used.shape, *(1,) * one.ndim), poses, one)
        rows = to_rows(invert_pose(pose_rows(valid.float()))).view(*leading, 8)
    else:
        shapes = _shapes_of_poses(n_envs, slots, count, horizon)
        raise ValueError(
            f"poses must have shape {shapes}, or (4, 4) in place of 7, got "
            f"{validate.shape_of(poses)}"
        )
    if validate.is_checking():
        at_rest = poses.reshape(n_envs, -1, *poses.shape[len(leading) - 1 :])
        for env, slot in ((e, s) for e in range(n_envs) for s in range(len(world.names(e)))):
            for given in at_rest[env, :, slot]:
                validate.check_pose(f"poses of env {env}, slot {slot}", given)
    return rows.contiguous()


def _shapes_of_poses(n_envs: int, slots: int, count: int, horizon: int | None) -> str:
    """The shapes that poses may have."""
    short = f" or {(count, 7)}" if n_envs == 1 else ""
    rule = f"{(n_envs, slots, 7)}{short}"
    if horizon is not None:
        short = f" or {(horizon, count, 7)}" if n_envs == 1 else ""
        rule += f", or for each waypoint {(n_envs, horizon, slots, 7)}{short}"
    return rule

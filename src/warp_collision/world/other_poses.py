"""Poses that replace those of a world in a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.poses import invert_pose, pose_rows, to_rows

if TYPE_CHECKING:
    from warp_collision.world.mesh_world import MeshWorld


def rows_of_poses(
    world: MeshWorld, tables: SceneTables, poses: Tensor, horizon: int | None
) -> Tensor:
    """Rows of mesh_from_world, differentiable, for poses that replace those of a world.

    Args:
        world: the world.
        tables: of it.
        poses: see `scene_of`.
        horizon: see `scene_of`.
    """
    n_envs, slots = tables.shape
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

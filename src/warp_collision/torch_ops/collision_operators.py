"""Collision checks as torch operators: `torch.ops.warp_collision.*in_collision`.

They have no derivative; callers pass detached tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import collision as kernels
from warp_collision.kernels import moving_collision
from warp_collision.launching.launch import SceneTables, launch
from warp_collision.torch_ops.operators import batch_over_envs
from warp_collision.torch_ops.waypoints import at_waypoints, is_moving
from warp_collision.world.acceleration import with_acceleration


def run_in_collision(spheres: Tensor, tables: SceneTables, env_index: Tensor | None) -> Tensor:
    """Which spheres (b, h, n, 4) collide: (b, h, n) bool."""
    shape = spheres.shape[:-1]
    if is_moving(tables.mesh_from_world):
        return run_in_collision(*at_waypoints(spheres, tables, env_index)).view(shape)
    return _run(kernels.in_collision, spheres, tables, env_index, shape)


def run_any_in_collision(spheres: Tensor, tables: SceneTables, env_index: Tensor | None) -> Tensor:
    """At which waypoints any of the spheres (b, h, n, 4) collides: (b, h) bool."""
    shape = spheres.shape[:2]
    if is_moving(tables.mesh_from_world):
        return run_any_in_collision(*at_waypoints(spheres, tables, env_index)).view(shape)
    return _run(kernels.any_in_collision, spheres, tables, env_index, shape)


def run_swept_in_collision(
    spheres: Tensor, tables: SceneTables, env_index: Tensor | None, tolerance: Tensor
) -> Tensor:
    """Which spheres (b, h, n, 4) are not proven free on their half segments: (b, h, n) bool."""
    shape = spheres.shape[:-1]
    if is_moving(tables.mesh_from_world):
        kernel, parameters = moving_collision.moving_swept_in_collision, (tables.mesh_from_world,)
    else:
        kernel, parameters = kernels.swept_in_collision, ()
    return _run(
        kernel, spheres, tables, env_index, shape, *parameters, tolerance, work_per_sphere=8
    )


def _run(
    kernel: Any,
    spheres: Tensor,
    tables: SceneTables,
    env_index: Tensor | None,
    shape: torch.Size,
    *parameters: Tensor,
    work_per_sphere: int = 1,
) -> Tensor:
    """Launches a kernel; `work_per_sphere` is its run time relative to that at rest."""
    hit = torch.empty(shape, dtype=torch.bool, device=spheres.device)
    n_spheres = spheres.shape[:-1].numel()
    launch(
        kernel,
        (1, hit.numel()) if kernel is kernels.in_collision else shape,
        *(spheres, env_index, with_acceleration(tables, kernel, n_spheres), *parameters, hit),
        device=spheres.device,
        items=work_per_sphere * n_spheres,
    )
    return hit


@torch.library.custom_op("warp_collision::in_collision", mutates_args=())
def in_collision(
    spheres: Tensor,
    mesh_ids: Tensor,
    mesh_from_world: Tensor,
    enabled: Tensor,
    n_meshes: Tensor,
    records: Tensor | None,
    padding: Tensor | None,
    env_index: Tensor | None,
) -> Tensor:
    """Which spheres collide."""
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding)
    return run_in_collision(spheres.contiguous(), tables, env_index)


@torch.library.custom_op("warp_collision::any_in_collision", mutates_args=())
def any_in_collision(
    spheres: Tensor,
    mesh_ids: Tensor,
    mesh_from_world: Tensor,
    enabled: Tensor,
    n_meshes: Tensor,
    records: Tensor | None,
    padding: Tensor | None,
    env_index: Tensor | None,
) -> Tensor:
    """At which waypoints any sphere collides."""
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding)
    return run_any_in_collision(spheres.contiguous(), tables, env_index)


@torch.library.custom_op("warp_collision::swept_in_collision", mutates_args=())
def swept_in_collision(
    spheres: Tensor,
    mesh_ids: Tensor,
    mesh_from_world: Tensor,
    enabled: Tensor,
    n_meshes: Tensor,
    records: Tensor | None,
    padding: Tensor | None,
    env_index: Tensor | None,
    tolerance: Tensor,
) -> Tensor:
    """Which spheres are not proven free on their half segments."""
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding)
    return run_swept_in_collision(spheres.contiguous(), tables, env_index, tolerance)


@in_collision.register_fake
@swept_in_collision.register_fake
def _(spheres: Tensor, *_: Any) -> Tensor:
    return spheres.new_empty(spheres.shape[:-1], dtype=torch.bool)


@any_in_collision.register_fake
def _(spheres: Tensor, *_: Any) -> Tensor:
    return spheres.new_empty(spheres.shape[:2], dtype=torch.bool)


def _batched(operator: Any) -> Any:
    rule = batch_over_envs(lambda *operands: (operator(*operands),))

    def single_output(
        info: Any, in_dims: tuple[int | None, ...], *operands: Any
    ) -> tuple[Tensor, int]:
        (hit,), (dim,) = rule(info, in_dims, *operands)
        return hit, dim

    return single_output


for _operator in (in_collision, any_in_collision, swept_in_collision):
    _operator.register_vmap(_batched(_operator))

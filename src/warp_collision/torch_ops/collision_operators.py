"""Collision checks as torch operators: `torch.ops.warp_collision.*in_collision`.

They have no derivative; callers pass detached tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import collision as kernels
from warp_collision.kernels import moving_collision
from warp_collision.launching.launch import SceneTables, launch
from warp_collision.torch_ops.operators import batch_over_envs
from warp_collision.torch_ops.waypoints import at_waypoints, is_moving
from warp_collision.world.acceleration import with_acceleration

# The tables of a scene, and the env index.
_SCENE = (
    "Tensor mesh_ids, Tensor mesh_from_world, Tensor enabled, Tensor n_meshes, "
    "Tensor? records, Tensor? padding, Tensor? ignored, Tensor? env_index"
)


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


def _operator(run: Callable[..., Tensor], n_axes: int, parameters: str = "") -> Any:
    """The operator of a `run_*` function, with a fake implementation and a batching rule.

    Args:
        run: the function.
        n_axes: how many axes of the spheres its result has.
        parameters: schema of its further parameters.
    """

    @torch.library.custom_op(
        f"warp_collision::{run.__name__.removeprefix('run_')}",
        mutates_args=(),
        schema=f"(Tensor spheres, {_SCENE}{parameters}) -> Tensor",
    )
    def operator(spheres: Tensor, *operands: Any) -> Tensor:
        return run(spheres.contiguous(), SceneTables(*operands[:7]), *operands[7:])

    @operator.register_fake
    def fake(spheres: Tensor, *_: Any) -> Tensor:
        return spheres.new_empty(spheres.shape[:n_axes], dtype=torch.bool)

    rule = batch_over_envs(lambda *operands: (operator(*operands),))

    @operator.register_vmap
    def batched(info: Any, in_dims: tuple[int | None, ...], *operands: Any) -> tuple[Tensor, int]:
        (hit,), (dim,) = rule(info, in_dims, *operands)
        return hit, dim

    return operator


in_collision = _operator(run_in_collision, 3)
any_in_collision = _operator(run_any_in_collision, 2)
swept_in_collision = _operator(run_swept_in_collision, 3, ", Tensor tolerance")

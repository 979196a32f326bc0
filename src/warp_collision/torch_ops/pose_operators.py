"""Gradients with respect to poses as torch operators: `torch.ops.warp_collision.*_pose_vjp`.

Each takes the operands of a cost or distance and the gradient of a loss by it, and returns the
gradient of the loss by the rows of `mesh_from_world`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import moving_gradient
from warp_collision.kernels import pose_gradient as kernels
from warp_collision.launching.launch import SceneTables, launch
from warp_collision.poses import quaternion_rotate
from warp_collision.torch_ops.operators import one_by_one
from warp_collision.torch_ops.second_derivatives import refuse_recording
from warp_collision.torch_ops.waypoints import at_waypoints, env_of_waypoint, is_moving


def _run(
    kernel: Any,
    spheres: Tensor,
    tables: SceneTables,
    parameters: tuple[Tensor | None, ...],
    env_index: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    count = upstream.numel()
    partial = spheres.new_zeros((*tables.mesh_ids.shape, _parts(spheres, count), 8))
    if count:
        launch(
            kernel,
            partial.shape[:-1],
            *(spheres, env_index, tables, *parameters, upstream, partial),
            device=spheres.device,
        )
    return partial.sum(2)


def _parts(spheres: Tensor, count: int) -> int:
    """Number of partial sums per slot, 32 bytes each: they occupy a GPU without atomics."""
    return max(1, min(256, count // 64)) if spheres.is_cuda else 1


def _run_moving(
    spheres: Tensor,
    tables: SceneTables,
    parameters: tuple[Tensor | None, ...],
    env_index: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    """Gradient (n_envs, horizon, slots, 8) of a swept cost by poses for each waypoint."""
    rows = tables.mesh_from_world
    shape = (*rows.shape[:3], _parts(spheres, upstream[:, 0].numel()), 8)
    previous, here, following = (spheres.new_zeros(shape) for _ in range(3))
    if upstream.numel():
        launch(
            moving_gradient.moving_cost_pose_vjp,
            shape[:-1],
            *(spheres, env_index, tables, rows, *parameters, upstream),
            *(previous, here, following),
            device=spheres.device,
        )
    total = here.sum(3)
    total[:, :-1] += previous[:, 1:].sum(3)
    total[:, 1:] += following[:, :-1].sum(3)
    return total


@torch.library.custom_op("warp_collision::sphere_cost_pose_vjp", mutates_args=())
def sphere_cost_pose_vjp(
    spheres: Tensor,
    mesh_ids: Tensor,
    mesh_from_world: Tensor,
    enabled: Tensor,
    n_meshes: Tensor,
    records: Tensor | None,
    padding: Tensor | None,
    ignored: Tensor | None,
    env_index: Tensor | None,
    weight: Tensor,
    activation_distance: Tensor,
    upstream: Tensor,
) -> Tensor:
    """Gradient (n_envs, slots, 8) of a loss by the rows of mesh_from_world."""
    refuse_recording()
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding, ignored)
    spheres = spheres.contiguous()
    if is_moving(mesh_from_world):
        spheres, tables, env_index = at_waypoints(spheres, tables, env_index)
        upstream = upstream.flatten(0, 1).unsqueeze(1)
    total = _run(
        kernels.sphere_cost_pose_vjp,
        spheres,
        tables,
        (weight, activation_distance),
        env_index,
        upstream.contiguous(),
    )
    return total.view(mesh_from_world.shape)


@torch.library.custom_op("warp_collision::swept_cost_pose_vjp", mutates_args=())
def swept_cost_pose_vjp(
    spheres: Tensor,
    mesh_ids: Tensor,
    mesh_from_world: Tensor,
    enabled: Tensor,
    n_meshes: Tensor,
    records: Tensor | None,
    padding: Tensor | None,
    ignored: Tensor | None,
    env_index: Tensor | None,
    weight: Tensor,
    activation_distance: Tensor,
    tolerance: Tensor,
    dt: Tensor | None,
    min_speed: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    """Gradient (n_envs, slots, 8) of a loss by the rows of mesh_from_world."""
    refuse_recording()
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding, ignored)
    spheres, upstream = spheres.contiguous(), upstream.contiguous()
    parameters = weight, activation_distance, tolerance, dt, min_speed
    if is_moving(mesh_from_world):
        return _run_moving(spheres, tables, parameters, env_index, upstream)
    kernel = kernels.swept_cost_pose_vjp
    return _run(kernel, spheres, tables, parameters, env_index, upstream)


@torch.library.custom_op("warp_collision::scene_distance_pose_vjp", mutates_args=())
def scene_distance_pose_vjp(
    points: Tensor,
    mesh_from_world: Tensor,
    env_index: Tensor | None,
    gradient: Tensor,
    slot: Tensor,
    upstream: Tensor,
) -> Tensor:
    """Gradient of a loss by the rows of mesh_from_world (n_envs, slots, 8).

    In the frame of the nearest mesh a point is ``R(q) point + t``; the change of the distance is
    the product of its motion there and the gradient (b, n, 3). Points (b, n, 3) without a nearest
    mesh have the slot (b, n) -1 and do not contribute.
    """
    refuse_recording()
    shape = mesh_from_world.shape
    if is_moving(mesh_from_world):
        env_index = env_of_waypoint(mesh_from_world, len(points), env_index)
        mesh_from_world = mesh_from_world.flatten(0, 1)
        points, gradient, slot, upstream = (
            part.reshape(len(env_index), -1, *part.shape[2:])
            for part in (points, gradient, slot, upstream)
        )
    # Masks, not selections: the size of a selection would wait for the device.
    env = torch.zeros_like(slot) if env_index is None else env_index[:, None].expand_as(slot)
    index = (env.long().clamp(0, mesh_from_world.shape[0] - 1), slot.long().clamp(min=0))
    quaternion = mesh_from_world[*index, 3:7]
    length = torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    quaternion = quaternion / length
    along = upstream.unsqueeze(-1) * quaternion_rotate(quaternion, gradient)
    by_quaternion = _rotation_vjp(quaternion, points, along)
    # Only the component orthogonal to the quaternion changes the rotation.
    orthogonal = by_quaternion - quaternion * (quaternion * by_quaternion).sum(-1, keepdim=True)
    parts = torch.cat((along, orthogonal / length, torch.zeros_like(length)), dim=-1)
    parts = torch.where((slot >= 0).unsqueeze(-1), parts, 0.0)
    total = torch.zeros_like(mesh_from_world).index_put_(index, parts, accumulate=True)
    return total.view(shape)


def _rotation_vjp(quaternion: Tensor, vector: Tensor, upstream: Tensor) -> Tensor:
    """Derivative (..., 4) of ``upstream . R(q) vector`` by q, with R of `quaternion_rotate`."""
    w, u = quaternion[..., :1], quaternion[..., 1:]

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(-1, keepdim=True)

    by_w = 2.0 * dot(upstream, torch.linalg.cross(u, vector))
    by_u = 2.0 * (
        w * torch.linalg.cross(vector, upstream)
        + dot(u, vector) * upstream
        + dot(u, upstream) * vector
        - 2.0 * dot(upstream, vector) * u
    )
    return torch.cat((by_w, by_u), dim=-1)


@sphere_cost_pose_vjp.register_fake
@swept_cost_pose_vjp.register_fake
def _(spheres: Tensor, mesh_ids: Tensor, mesh_from_world: Tensor, *_: Any) -> Tensor:
    return mesh_from_world.new_empty(mesh_from_world.shape)


@scene_distance_pose_vjp.register_fake
def _(points: Tensor, mesh_from_world: Tensor, *_: Any) -> Tensor:
    return mesh_from_world.new_empty(mesh_from_world.shape)


for _operator in (sphere_cost_pose_vjp, swept_cost_pose_vjp, scene_distance_pose_vjp):
    _operator.register_vmap(one_by_one(_operator))

"""Gradients with respect to poses as torch operators: `torch.ops.warp_collision.*_pose_vjp`.

Each takes the operands of a cost or distance and the gradient of a loss by it, and returns the
gradient of the loss by the rows of `mesh_from_world`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from warp_collision.devices import is_gpu
from warp_collision.kernels import moving_gradient, pose_gradient
from warp_collision.launching.launch import SceneTables, launch
from warp_collision.poses import quaternion_rotate
from warp_collision.queries.operator import (
    COST,
    N_TABLES,
    SCENE,
    SWEPT_COST,
    define_operator,
    one_by_one,
)
from warp_collision.queries.second_derivatives import refuse_recording
from warp_collision.queries.waypoints import at_waypoints, env_of_waypoint, is_moving

# Of a partial sum on a GPU, and how many sums there are at most, 64 MB.
_SPHERES_PER_PART = 64
_MAX_SUMS = 1 << 21


def _run(
    kernel: Any,
    spheres: Tensor,
    tables: SceneTables,
    parameters: Sequence[Tensor | None],
    env_index: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    slots = tables.mesh_ids.shape
    partial = spheres.new_zeros((*slots, _parts(upstream, slots), 8))
    if upstream.numel():
        launch(
            kernel,
            partial.shape[:-1],
            *(spheres, *_by_env(env_index, slots[0]), tables, *parameters, upstream, partial),
            device=spheres.device,
        )
    return partial.sum(2)


def _parts(upstream: Tensor, slots: Sequence[int]) -> int:
    """Number of partial sums of each slot, 32 bytes each: they occupy a GPU without atomics.

    Args:
        upstream: with an element for each sphere.
        slots: n_envs and further axes; so many sums there are of each part.
    """
    if not is_gpu(upstream.device):
        return 1
    by_work = upstream.numel() // (slots[0] * _SPHERES_PER_PART)
    return max(1, min(256, by_work, _MAX_SUMS // math.prod(slots)))


def _by_env(env_index: Tensor | None, n_envs: int) -> tuple[Tensor | None, Tensor | None]:
    """Batch rows sorted by env, and where those of each env begin, (n_envs + 1,); int32.

    Rows of one env keep their order, in which gradients are added.
    """
    if env_index is None:
        return None, None
    envs, order = torch.sort(env_index, stable=True)
    bounds = torch.arange(n_envs + 1, dtype=envs.dtype, device=envs.device)
    return order.int(), torch.searchsorted(envs, bounds, out_int32=True)


def _run_moving_swept(
    _: Any,
    spheres: Tensor,
    tables: SceneTables,
    parameters: Sequence[Tensor | None],
    env_index: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    """Gradient (n_envs, horizon, slots, 8) of a swept cost by poses for each waypoint."""
    rows = tables.mesh_from_world
    shape = (*rows.shape[:3], _parts(upstream[:, 0], rows.shape[:3]), 8)
    previous, here, following = (spheres.new_zeros(shape) for _ in range(3))
    if upstream.numel():
        launch(
            moving_gradient.moving_cost_pose_vjp,
            shape[:-1],
            *(spheres, *_by_env(env_index, len(rows)), tables, rows, *parameters, upstream),
            *(previous, here, following),
            device=spheres.device,
        )
    total = here.sum(3)
    total[:, :-1] += previous[:, 1:].sum(3)
    total[:, 1:] += following[:, :-1].sum(3)
    return total


def _run_at_waypoints(
    kernel: Any,
    spheres: Tensor,
    tables: SceneTables,
    parameters: Sequence[Tensor | None],
    env_index: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    """As `_run` for obstacles with a pose for each waypoint, where each is an env at rest."""
    spheres, at_rest, env_index = at_waypoints(spheres, tables, env_index)
    upstream = upstream.flatten(0, 1).unsqueeze(1)
    total = _run(kernel, spheres, at_rest, parameters, env_index, upstream)
    return total.view(tables.mesh_from_world.shape)


def _define_cost_product(
    name: str,
    kernel: Any,
    parameters: tuple[str, ...],
    run_moving: Callable[..., Tensor] = _run_at_waypoints,
) -> Any:
    """The operator of the gradient of a cost by poses.

    Args:
        name: of the cost.
        kernel: for obstacles at rest.
        parameters: schema of the parameters of the cost.
        run_moving: as `_run`, for obstacles with a pose for each waypoint.
    """

    def run(spheres: Tensor, *operands: Any) -> Tensor:
        refuse_recording()
        tables = SceneTables(*operands[:N_TABLES])
        env_index, *further, upstream = operands[N_TABLES:]
        chosen = run_moving if is_moving(tables.mesh_from_world) else _run
        operands = spheres.contiguous(), tables, further, env_index, upstream.contiguous()
        return chosen(kernel, *operands)

    return define_operator(
        f"{name}_pose_vjp",
        ", ".join(("Tensor spheres", SCENE, *parameters, "Tensor upstream")),
        run,
        lambda spheres, ids, mesh_from_world, *_: mesh_from_world.new_empty(mesh_from_world.shape),
        one_by_one,
    )


sphere_cost_pose_vjp = _define_cost_product("sphere_cost", pose_gradient.sphere_cost_pose_vjp, COST)
swept_cost_pose_vjp = _define_cost_product(
    "swept_cost", pose_gradient.swept_cost_pose_vjp, SWEPT_COST, _run_moving_swept
)


def _run_scene_distance(
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


scene_distance_pose_vjp = define_operator(
    "scene_distance_pose_vjp",
    "Tensor points, Tensor mesh_from_world, Tensor? env_index, Tensor gradient, Tensor slot, "
    "Tensor upstream",
    _run_scene_distance,
    lambda points, mesh_from_world, *_: mesh_from_world.new_empty(mesh_from_world.shape),
    one_by_one,
)


def of_cost(operator: Any) -> Callable[[Sequence[Any], Sequence[Tensor], Tensor], Tensor]:
    """The gradient of a cost by poses, see `Derivative`, from one of the operators above."""
    return lambda operands, _, upstream: operator(*operands, upstream)


def of_distance(operands: Sequence[Any], further: Sequence[Tensor], upstream: Tensor) -> Tensor:
    """The gradient of `scene_distance` by poses."""
    points, rows, env_index = operands[0], operands[2], operands[N_TABLES + 1]
    return scene_distance_pose_vjp(points, rows, env_index, *further, upstream)


def of_clearance(operands: Sequence[Any], further: Sequence[Tensor], upstream: Tensor) -> Tensor:
    """The gradient of `clearance` by poses: that of the distance of the centers."""
    spheres, gradient, slot = operands[0], *further
    points, along = (part[..., :3].flatten(1, 2) for part in (spheres, gradient))
    further = along, slot.flatten(1, 2)
    return of_distance((points, *operands[1:]), further, upstream.flatten(1, 2))

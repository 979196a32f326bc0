"""What the library is measured against: straightforward kernels, written in an afternoon.

One thread per sphere, a loop over all meshes of the env, one query with the winding-number sign for
each, arguments converted in every call. The search distance is unlimited, because a query that is
cut off cannot tell deep inside from far outside. Right, and exact at every depth.
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from warp_collision import MeshWorld
from warp_collision.launching.launch import quiet_warp

UNLIMITED = 1.0e6  # [m]
SPACING = 1.0e-3  # [m] between the samples of a path


@wp.func
def distance_and_gradient(mesh_id: wp.uint64, point: wp.vec3, limit: float) -> wp.vec4:
    """Gradient and signed distance of one mesh; 0 and the limit where nothing is nearer."""
    query = wp.mesh_query_point_sign_winding_number(mesh_id, point, limit, 2.0, 0.5)
    if not query.result:
        return wp.vec4(0.0, 0.0, 0.0, limit)
    offset = point - wp.mesh_eval_position(mesh_id, query.face, query.u, query.v)
    gradient = query.sign * wp.normalize(offset)
    return wp.vec4(gradient[0], gradient[1], gradient[2], query.sign * wp.length(offset))


@wp.func
def smooth_hinge(overlap: float, eta: float) -> wp.vec2:
    """Returns (cost, d cost / d overlap)."""
    if overlap <= 0.0:
        return wp.vec2(0.0, 0.0)
    if overlap < eta:
        return wp.vec2(0.5 * overlap * overlap / eta, overlap / eta)
    return wp.vec2(overlap - 0.5 * eta, 1.0)


@wp.func
def pose_of(rows: wp.array3d[wp.float32], env: int, slot: int) -> wp.transform:
    """Reads x, y, z, qw, qx, qy, qz."""
    return wp.transform(
        wp.vec3(rows[env, slot, 0], rows[env, slot, 1], rows[env, slot, 2]),
        wp.quat(rows[env, slot, 4], rows[env, slot, 5], rows[env, slot, 6], rows[env, slot, 3]),
    )


@wp.kernel(enable_backward=False)
def point_cost(
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,)
    mesh_ids: wp.array2d[wp.uint64],  # (n_envs, slots)
    mesh_from_world: wp.array3d[wp.float32],  # (n_envs, slots, 8)
    n_meshes: wp.array[wp.int32],  # (n_envs,)
    eta: float,  # [m]
    limit: float,  # [m]
    cost: wp.array3d[wp.float32],  # (batch, horizon, n_spheres)
    gradient: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres)
):
    """Cost of resting spheres."""
    b, h, s = wp.tid()
    sphere = spheres[b, h, s]
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    env = env_index[b]
    total = float(0.0)
    by_radius = float(0.0)
    by_center = wp.vec3(0.0)
    for slot in range(n_meshes[env]):
        pose = pose_of(mesh_from_world, env, slot)
        found = distance_and_gradient(mesh_ids[env, slot], wp.transform_point(pose, center), limit)
        term = smooth_hinge(sphere[3] + eta - found[3], eta)
        total += term[0]
        by_radius += term[1]
        outward = wp.vec3(found[0], found[1], found[2])
        by_center -= term[1] * wp.transform_vector(wp.transform_inverse(pose), outward)
    cost[b, h, s] = total
    gradient[b, h, s] = wp.vec4(by_center[0], by_center[1], by_center[2], by_radius)


@wp.kernel(enable_backward=False)
def sampled_sweep_cost(
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,)
    mesh_ids: wp.array2d[wp.uint64],  # (n_envs, slots)
    mesh_from_world: wp.array3d[wp.float32],  # (n_envs, slots, 8)
    n_meshes: wp.array[wp.int32],  # (n_envs,)
    eta: float,  # [m]
    spacing: float,  # [m] between samples
    cost: wp.array3d[wp.float32],  # (batch, horizon, n_spheres)
    gradient: wp.array4d[wp.vec4],  # (batch, horizon, n_spheres, 3) by waypoint before, this, after
):
    """Cost of moving spheres: the lowest of the samples of both half segments."""
    b, h, s = wp.tid()
    sphere = spheres[b, h, s]
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    env = env_index[b]
    total = float(0.0)
    for slot in range(n_meshes[env]):
        pose = pose_of(mesh_from_world, env, slot)
        lowest = wp.vec4(0.0, 0.0, 0.0, UNLIMITED)
        share = float(0.0)
        side = int(1)
        for end in range(0, 3, 2):
            other = spheres[b, wp.clamp(h + end - 1, 0, spheres.shape[1] - 1), s]
            way = 0.5 * (wp.vec3(other[0], other[1], other[2]) - center)
            samples = int(wp.ceil(wp.length(way) / spacing))
            for i in range(samples + 1):
                along = float(i) / float(wp.max(samples, 1))
                point = wp.transform_point(pose, center + along * way)
                found = distance_and_gradient(mesh_ids[env, slot], point, UNLIMITED)
                if found[3] < lowest[3]:
                    lowest = found
                    share = 0.5 * along
                    side = end
        term = smooth_hinge(sphere[3] + eta - lowest[3], eta)
        total += term[0]
        outward = wp.vec3(lowest[0], lowest[1], lowest[2])
        push = -term[1] * wp.transform_vector(wp.transform_inverse(pose), outward)
        own = (1.0 - share) * push
        gradient[b, h, s, 1] += wp.vec4(own[0], own[1], own[2], term[1])
        gradient[b, h, s, side] += wp.vec4(share * push[0], share * push[1], share * push[2], 0.0)
    cost[b, h, s] = total


def _tables(world: MeshWorld, spheres: Tensor, env_index: Tensor | None) -> list[Any]:
    if env_index is None:
        env_index = torch.zeros(len(spheres), dtype=torch.int32, device=spheres.device)
    return [
        wp.from_torch(spheres, dtype=wp.vec4),
        wp.from_torch(env_index),
        wp.from_torch(world.mesh_ids, dtype=wp.uint64),
        wp.from_torch(world.mesh_from_world),
        wp.from_torch(world.n_meshes),
    ]


def _launch(kernel: Any, spheres: Tensor, arguments: list[Any]) -> None:
    stream = wp.stream_from_torch() if spheres.is_cuda else None
    with quiet_warp():
        wp.launch(kernel, spheres.shape[:3], arguments, device=str(spheres.device), stream=stream)


class _PointCost(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        spheres: Tensor,
        world: MeshWorld,
        env_index: Tensor | None,
        eta: float,
        limit: float,
    ) -> Tensor:
        spheres = spheres.detach()
        cost, gradient = spheres.new_empty(spheres.shape[:3]), torch.empty_like(spheres)
        outputs = [wp.from_torch(cost), wp.from_torch(gradient, dtype=wp.vec4)]
        _launch(point_cost, spheres, [*_tables(world, spheres, env_index), eta, limit, *outputs])
        ctx.save_for_backward(gradient)
        return cost

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return upstream.unsqueeze(-1) * gradient, None, None, None, None


class _SampledSweepCost(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        spheres: Tensor,
        world: MeshWorld,
        env_index: Tensor | None,
        eta: float,
        spacing: float,
    ) -> Tensor:
        spheres = spheres.detach()
        cost = spheres.new_empty(spheres.shape[:3])
        gradient = spheres.new_zeros((*cost.shape, 3, 4))
        outputs = [wp.from_torch(cost), wp.from_torch(gradient, dtype=wp.vec4)]
        tables = _tables(world, spheres, env_index)
        _launch(sampled_sweep_cost, spheres, [*tables, eta, spacing, *outputs])
        ctx.save_for_backward(gradient)
        return cost

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        terms = upstream[..., None, None] * gradient
        total = terms[..., 1, :].clone()
        total[:, :-1] += terms[:, 1:, :, 0]
        total[:, 1:] += terms[:, :-1, :, 2]
        return total, None, None, None, None


def sphere_cost(
    spheres: Tensor,
    world: MeshWorld,
    *,
    activation_distance: float = 0.02,
    env_index: Tensor | None = None,
    limit: float = UNLIMITED,
) -> Tensor:
    """Cost (b, h, n) of resting spheres (b, h, n, 4), float32 and contiguous.

    Args:
        spheres: x, y, z, radius [m].
        world: the meshes, all of which must be enabled.
        activation_distance: eta [m].
        env_index: (batch,) int32; env 0 for all if None.
        limit: search distance of the queries [m]. A small one is fast, and reads as free what is
            deeper inside than that.
    """
    return _PointCost.apply(spheres, world, env_index, activation_distance, limit)


def swept_sphere_cost(
    spheres: Tensor,
    world: MeshWorld,
    *,
    activation_distance: float = 0.02,
    env_index: Tensor | None = None,
    spacing: float = SPACING,
) -> Tensor:
    """Cost (b, h, n) of moving spheres (b, h, n, 4), sampled; `spacing` [m] between samples."""
    return _SampledSweepCost.apply(spheres, world, env_index, activation_distance, spacing)

"""What the library is measured against: straightforward kernels, written in an afternoon.

One thread per sphere, a loop over all meshes of the env, one query for each, arguments converted in
every call. With the winding-number sign and unlimited search distance, because a query that is cut
off cannot tell deep inside from far outside, they are right and exact at every depth. *Short* ones
search radius + eta alone, by either sign, and read as free what is deeper than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

from benchmarks.harness import Call
from benchmarks.scenes import ACTIVATION_DISTANCE, Placed
from warp_collision import MeshWorld
from warp_collision.poses import invert_pose, to_rows

UNLIMITED = 1.0e6  # [m]
SAMPLES = 2  # of each half segment, beside the waypoint itself


@wp.func
def slope_and_distance(
    query: wp.MeshQueryPoint, mesh_id: wp.uint64, point: wp.vec3, limit: float
) -> wp.vec4:
    """Gradient and signed distance of one mesh; 0 and the limit where nothing is nearer."""
    if not query.result:
        return wp.vec4(0.0, 0.0, 0.0, limit)
    offset = point - wp.mesh_eval_position(mesh_id, query.face, query.u, query.v)
    gradient = query.sign * wp.normalize(offset)
    return wp.vec4(gradient[0], gradient[1], gradient[2], query.sign * wp.length(offset))


@wp.func
def by_winding(mesh_id: wp.uint64, point: wp.vec3, limit: float) -> wp.vec4:
    """The same by the sign of the winding number."""
    query = wp.mesh_query_point_sign_winding_number(mesh_id, point, limit, 2.0, 0.5)
    return slope_and_distance(query, mesh_id, point, limit)


@wp.func
def by_default(mesh_id: wp.uint64, point: wp.vec3, limit: float) -> wp.vec4:
    """The same by Warp's default sign."""
    query = wp.mesh_query_point(mesh_id, point, limit)
    return slope_and_distance(query, mesh_id, point, limit)


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


@wp.func
def center_of(sphere: wp.vec4) -> wp.vec3:
    """Its first three entries."""
    return wp.vec3(sphere[0], sphere[1], sphere[2])


def _summed(distance: Any, name: str) -> Any:
    """A kernel: the cost at a waypoint, plus those at samples of both half segments, if any."""

    def summed_cost(
        spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
        env_index: wp.array[wp.int32],  # (batch,)
        mesh_ids: wp.array2d[wp.uint64],  # (n_envs, slots)
        mesh_from_world: wp.array3d[wp.float32],  # (n_envs, slots, 8)
        enabled: wp.array2d[wp.uint8],  # (n_envs, slots)
        n_meshes: wp.array[wp.int32],  # (n_envs,)
        eta: float,  # [m]
        limit: float,  # search distance [m]; radius + eta if negative
        samples: int,  # of each half segment, beside the waypoint itself
        cost: wp.array3d[wp.float32],  # (batch, horizon, n_spheres)
        gradient: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres)
    ):
        b, h, s = wp.tid()
        sphere = spheres[b, h, s]
        center = center_of(sphere)
        parts = 2.0 * float(wp.max(samples, 1))
        back = (center_of(spheres[b, wp.max(h - 1, 0), s]) - center) / parts
        ahead = (center_of(spheres[b, wp.min(h + 1, spheres.shape[1] - 1), s]) - center) / parts
        env = env_index[b]
        reach = sphere[3] + eta
        total = wp.vec4(0.0)
        by_radius = float(0.0)
        for slot in range(n_meshes[env]):
            if enabled[env, slot] == wp.uint8(1):
                pose = pose_of(mesh_from_world, env, slot)
                for step in range(-samples, samples + 1):
                    way = wp.where(step < 0, -float(step) * back, float(step) * ahead)
                    point = wp.transform_point(pose, center + way)
                    found = distance(
                        mesh_ids[env, slot], point, wp.where(limit < 0.0, reach, limit)
                    )
                    term = smooth_hinge(reach - found[3], eta)
                    push = wp.transform_vector(
                        wp.transform_inverse(pose), -term[1] * center_of(found)
                    )
                    total += wp.vec4(push[0], push[1], push[2], term[0])
                    by_radius += term[1]
        cost[b, h, s] = total[3]
        gradient[b, h, s] = wp.vec4(total[0], total[1], total[2], by_radius)

    summed_cost.__name__ = summed_cost.__qualname__ = name
    return wp.kernel(summed_cost, enable_backward=False, module="unique")


summed_by_winding = _summed(by_winding, "summed_by_winding")
summed_by_default = _summed(by_default, "summed_by_default")


@wp.kernel(enable_backward=False, module="unique")
def any_hit(
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres)
    mesh_ids: wp.array2d[wp.uint64],  # (1, slots)
    mesh_from_world: wp.array3d[wp.float32],  # (1, slots, 8)
    n_meshes: wp.array[wp.int32],  # (1,)
    hit: wp.array2d[wp.bool],  # (batch, horizon)
):
    """One thread per waypoint, one query per sphere and mesh until one is hit."""
    b, h = wp.tid()
    found = bool(False)
    s = int(0)
    while s < spheres.shape[2] and not found:
        sphere = spheres[b, h, s]
        slot = int(0)
        while slot < n_meshes[0] and not found:
            local = wp.transform_point(pose_of(mesh_from_world, 0, slot), center_of(sphere))
            found = wp.mesh_query_point(mesh_ids[0, slot], local, sphere[3]).result
            slot += 1
        s += 1
    hit[b, h] = found


class Tables(NamedTuple):
    """Ids, poses, enabled slots and counts of meshes, as callers have them, by a world's names."""

    mesh_ids: Tensor  # (n_envs, slots) int64
    mesh_from_world: Tensor  # (n_envs, slots, 8)
    enabled: Tensor  # (n_envs, slots) uint8
    n_meshes: Tensor  # (n_envs,) int32


_kept: list[wp.Mesh] = []  # what ids of tables stand for


def callers_meshes(placed: Sequence[Placed], device: torch.device) -> Tables:
    """Meshes as a caller makes them, without trees of winding numbers, kept until the end."""
    meshes = [
        wp.Mesh(
            wp.array(np.array(p.mesh.vertices), dtype=wp.vec3, device=str(device)),
            wp.array(np.array(p.mesh.faces).ravel(), dtype=wp.int32, device=str(device)),
        )
        for p in placed
    ]
    _kept.extend(meshes)
    rows = to_rows(invert_pose(torch.tensor(np.array([p.pose for p in placed]))))
    return Tables(
        torch.tensor([[mesh.id for mesh in meshes]], dtype=torch.int64, device=device),
        rows.float()[None].contiguous().to(device),
        torch.ones((1, len(placed)), dtype=torch.uint8, device=device),
        torch.tensor([len(placed)], dtype=torch.int32, device=device),
    )


def launch(kernel: Any, dim: Sequence[int], arguments: Sequence[Any], device: torch.device) -> None:
    """Converts the arguments and launches a kernel on torch's stream."""
    given = [
        wp.from_torch(a.detach(), dtype=v.type.dtype) if isinstance(a, Tensor) else a
        for a, v in zip(arguments, kernel.adj.args, strict=True)
    ]
    stream = wp.stream_from_torch() if device.type == "cuda" else None
    wp.launch(kernel, dim, given, device=str(device), stream=stream)


class _Cost(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, spheres: Tensor, kernel: Any, tables: Any, env_index: Tensor | None, *more: Any
    ) -> Tensor:
        if env_index is None:
            env_index = torch.zeros(len(spheres), dtype=torch.int32, device=spheres.device)
        cost, gradient = spheres.new_empty(spheres.shape[:3]), torch.empty_like(spheres)
        arguments = (spheres, env_index, *tables, *more, cost, gradient)
        launch(kernel, cost.shape, arguments, spheres.device)
        ctx.save_for_backward(gradient)
        return cost

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return upstream[..., None] * gradient, *(None,) * (len(ctx.needs_input_grad) - 1)


def sphere_cost(
    spheres: Tensor,
    world: MeshWorld | Tables,
    *,
    activation_distance: float = ACTIVATION_DISTANCE,
    env_index: Tensor | None = None,
    limit: float = UNLIMITED,
    kernel: Any = summed_by_winding,
    samples: int = 0,
) -> Tensor:
    """Cost (b, h, n) of spheres (b, h, n, 4), float32 and contiguous.

    Args:
        spheres: x, y, z, radius [m].
        world: the meshes, or the tables of a caller's.
        activation_distance: eta [m].
        env_index: (batch,) int32; env 0 for all if None.
        limit: search distance of the queries [m], radius + eta if negative. A small one is fast,
            and reads as free what is deeper inside than that.
        kernel: `summed_by_winding` or `summed_by_default`.
        samples: of each half segment of the paths; their costs are added.
    """
    tables = [getattr(world, name) for name in Tables._fields]
    more = activation_distance, limit, samples
    return _Cost.apply(spheres, kernel, tables, env_index, *more)


def short_search(spheres: Tensor, tables: Tables, *, swept: bool = False) -> Call:
    """What users have: Warp's default sign within radius + eta, summed at samples of the way."""
    options = {"limit": -1.0, "kernel": summed_by_default, "samples": SAMPLES if swept else 0}
    return differentiated(partial(sphere_cost, world=tables, **options), spheres)


def differentiated(cost: Callable[[Tensor], Tensor], given: Tensor) -> Call:
    """A cost, forward and backward, that returns cost and gradient; per row of the last axis."""
    leaf = given.detach().requires_grad_(True)

    def run() -> tuple[Tensor, Tensor]:
        leaf.grad = None
        value = cost(leaf)
        value.backward(_ones(value.shape, value.device))
        assert leaf.grad is not None
        return value.detach(), leaf.grad

    return Call(run, given[..., 0].numel())


@cache
def _ones(shape: torch.Size, device: torch.device) -> Tensor:
    return torch.ones(shape, device=device)

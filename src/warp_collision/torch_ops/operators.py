"""The kernels as torch operators: `torch.ops.warp_collision.*`.

Each operator allocates its outputs, has a fake implementation for tracing, and a batching rule. The
`run_*` functions underneath are what the eager path calls without the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import scene_distance as distance_kernels
from warp_collision.kernels import sphere_cost as sphere_kernels
from warp_collision.kernels import swept_cost as swept_kernels
from warp_collision.launching.launch import SceneTables, launch
from warp_collision.torch_ops.second_derivatives import refuse_tangents
from warp_collision.torch_ops.waypoints import at_waypoints, is_moving, launch_moving
from warp_collision.world.acceleration import with_acceleration

# Default sweep tolerance: this fraction of the activation distance, at least the minimum [m].
_TOLERANCE_FRACTION = 0.05
_MIN_TOLERANCE = 1.0e-4


def default_tolerance(activation_distance: Tensor) -> Tensor:
    """Tolerance (1,) of a sweep, well below the activation distance (1,)."""
    return (_TOLERANCE_FRACTION * activation_distance).clamp(min=_MIN_TOLERANCE)


def run_sphere_cost(
    spheres: Tensor,
    tables: SceneTables,
    weight: Tensor,
    activation_distance: Tensor,
    env_index: Tensor | None,
    with_gradient: bool,
    *,
    cost: Tensor | None = None,
    gradient: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Cost (b, h, n) and its gradient (b, h, n, 4), written to the caller's buffers if given."""
    shape, device = spheres.shape, spheres.device
    rows = shape[:-1]
    if is_moving(tables.mesh_from_world):
        resting, tables, index = at_waypoints(spheres, tables, env_index)
        found = run_sphere_cost(resting, tables, weight, activation_distance, index, with_gradient)
        return found[0].view(rows), None if found[1] is None else found[1].view(shape)
    if cost is None:
        cost = spheres.new_empty(*rows)  # quicker than of one size
    if with_gradient and gradient is None:
        gradient = torch.empty_like(spheres)  # quicker than `torch.empty`
    n_spheres = rows.numel()
    launch(
        sphere_kernels.sphere_cost,
        (1, n_spheres),
        spheres,
        env_index,
        with_acceleration(tables, sphere_kernels.sphere_cost, n_spheres),
        weight,
        activation_distance,
        cost,
        gradient,
        active,
        device=device,
        items=n_spheres,
    )
    return cost, gradient


def run_swept_cost(
    spheres: Tensor,
    tables: SceneTables,
    weight: Tensor,
    activation_distance: Tensor,
    tolerance: Tensor,
    dt: Tensor | None,
    min_speed: Tensor | None,
    env_index: Tensor | None,
    with_gradient: bool,
    *,
    cost: Tensor | None = None,
    gradient: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Swept cost (b, h, n), its gradient (b, h, n, 4), and that to neighbours (b, h, n, 2, 3).

    With ``dt`` (1,) costs are scaled by the speed, at least by ``min_speed`` (1,); without
    ``min_speed`` the factor is 1 at the ends of a path and at rest.
    """
    shape, device = spheres.shape, spheres.device
    rows = shape[:-1]
    neighbours = None
    if cost is None:
        cost = torch.empty(rows, dtype=torch.float32, device=device)
    if with_gradient:
        if gradient is None:
            gradient = torch.empty_like(spheres)
        neighbours = torch.empty((*rows, 2, 3), dtype=torch.float32, device=device)
    if is_moving(tables.mesh_from_world):
        parameters = weight, activation_distance, tolerance, dt, min_speed
        launch_moving(spheres, tables, env_index, *parameters, cost, gradient, neighbours)
        return cost, gradient, neighbours
    n_spheres = rows.numel()
    launch(
        swept_kernels.swept_cost,
        rows,
        *(spheres, env_index, with_acceleration(tables, swept_kernels.swept_cost, n_spheres)),
        *(weight, activation_distance, tolerance),
        *(dt, min_speed),
        *(cost, gradient, neighbours, active),
        device=device,
        items=8 * n_spheres,
    )
    return cost, gradient, neighbours


def run_swept_vjp(
    upstream: Tensor | None, gradient: Tensor, neighbours: Tensor, total: Tensor | None = None
) -> Tensor:
    """Vector-Jacobian product (b, h, n, 4) of the swept cost; upstream None means ones."""
    if total is None:
        total = torch.empty_like(gradient)
    upstream = _contiguous(upstream)
    launch(
        swept_kernels.swept_vjp,
        gradient.shape[:-1],
        *(upstream, gradient, neighbours, total),
        device=gradient.device,
    )
    return total


def _contiguous(upstream: Tensor | None) -> Tensor | None:
    return None if upstream is None else upstream.contiguous()


def run_scene_distance(
    points: Tensor, tables: SceneTables, env_index: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Distance (b, n), gradient (b, n, 3) and slot (b, n) int32 of points (b, n, 3).

    With poses for each waypoint the points are ordered by waypoint.
    """
    shape = points.shape[:-1]
    if is_moving(tables.mesh_from_world):
        by_waypoint = points.unflatten(1, (tables.mesh_from_world.shape[1], -1))
        resting, tables, index = at_waypoints(by_waypoint, tables, env_index)
        distance, gradient, slot = run_scene_distance(resting.squeeze(1), tables, index)
        return distance.view(shape), gradient.view(points.shape), slot.view(shape)
    distance = points.new_empty(shape)
    gradient = torch.empty_like(points)
    slot = points.new_empty(shape, dtype=torch.int32)
    launch(
        distance_kernels.scene_distance,
        shape,
        *(points, env_index, with_acceleration(tables, distance_kernels.scene_distance)),
        *(distance, gradient, slot),
        device=points.device,
        items=shape.numel(),
    )
    return distance, gradient, slot


def run_clearance(
    spheres: Tensor, tables: SceneTables, env_index: Tensor | None, max_distance: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Clearance (b, h, n), gradient (b, h, n, 4) and slot (b, h, n) int32 of spheres."""
    rows = spheres.shape[:-1]
    if is_moving(tables.mesh_from_world):
        resting, tables, index = at_waypoints(spheres, tables, env_index)
        clearance, gradient, slot = run_clearance(resting, tables, index, max_distance)
        return clearance.view(rows), gradient.view(spheres.shape), slot.view(rows)
    clearance = spheres.new_empty(rows)
    gradient = torch.empty_like(spheres)
    slot = spheres.new_empty(rows, dtype=torch.int32)
    kernel = distance_kernels.sphere_clearance
    launch(
        kernel,
        (1, rows.numel()),
        *(spheres, env_index, with_acceleration(tables, kernel, rows.numel()), max_distance),
        *(clearance, gradient, slot),
        device=spheres.device,
        items=rows.numel(),
    )
    return clearance, gradient, slot


# -- operators ----------------------------------------------------------------------------------


@torch.library.custom_op("warp_collision::sphere_cost", mutates_args=())
def sphere_cost(
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
) -> tuple[Tensor, Tensor]:
    """Cost and gradient of resting spheres."""
    refuse_tangents()
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding, ignored)
    cost, gradient = run_sphere_cost(
        spheres.contiguous(), tables, weight, activation_distance, env_index, True
    )
    assert gradient is not None
    return cost, gradient


@torch.library.custom_op("warp_collision::swept_cost", mutates_args=())
def swept_cost(
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Cost of moving spheres, gradient, and gradient to the neighbouring waypoints."""
    refuse_tangents()
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding, ignored)
    cost, gradient, neighbours = run_swept_cost(
        spheres.contiguous(),
        tables,
        weight,
        activation_distance,
        tolerance,
        dt,
        min_speed,
        env_index,
        True,
    )
    assert gradient is not None
    assert neighbours is not None
    return cost, gradient, neighbours


@torch.library.custom_op("warp_collision::scene_distance", mutates_args=())
def scene_distance(
    points: Tensor,
    mesh_ids: Tensor,
    mesh_from_world: Tensor,
    enabled: Tensor,
    n_meshes: Tensor,
    records: Tensor | None,
    padding: Tensor | None,
    ignored: Tensor | None,
    env_index: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Signed distance, gradient and slot of the nearest mesh."""
    refuse_tangents()
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding, ignored)
    return run_scene_distance(points.contiguous(), tables, env_index)


@torch.library.custom_op("warp_collision::clearance", mutates_args=())
def clearance(
    spheres: Tensor,
    mesh_ids: Tensor,
    mesh_from_world: Tensor,
    enabled: Tensor,
    n_meshes: Tensor,
    records: Tensor | None,
    padding: Tensor | None,
    ignored: Tensor | None,
    env_index: Tensor | None,
    max_distance: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Clearance of spheres, gradient and slot of the nearest mesh."""
    refuse_tangents()
    tables = SceneTables(mesh_ids, mesh_from_world, enabled, n_meshes, records, padding, ignored)
    return run_clearance(spheres.contiguous(), tables, env_index, max_distance)


@sphere_cost.register_fake
def _(spheres: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return spheres.new_empty(spheres.shape[:-1]), spheres.new_empty(spheres.shape)


@swept_cost.register_fake
def _(spheres: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape = spheres.shape
    return (
        spheres.new_empty(shape[:-1]),
        spheres.new_empty(shape),
        spheres.new_empty((*shape[:-1], 2, 3)),
    )


@clearance.register_fake
@scene_distance.register_fake
def _(points: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape = points.shape[:-1]
    return (
        points.new_empty(shape),
        points.new_empty(points.shape),
        points.new_empty(shape, dtype=torch.int32),
    )


# -- batching -----------------------------------------------------------------------------------


def _batch_first(value: Any, dim: int | None, size: int) -> Any:
    """Moves the mapped axis to the front; an operand without one is expanded."""
    if value is None:
        return None
    if dim is None:
        return value.expand(size, *value.shape)
    return value.movedim(dim, 0)


def _fold(value: Any, dim: int | None, size: int) -> Any:
    """Merges the mapped axis into the first one."""
    value = _batch_first(value, dim, size)
    return None if value is None else value.flatten(0, 1).contiguous()


def select_call(i: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    """The arguments of one mapped call."""
    return [a if d is None else a.select(d, i) for a, d in zip(args, in_dims, strict=True)]


def batch_over_envs(operator: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    """A batching rule: a mapped axis of spheres adds rows, one of the tables adds envs.

    The operator takes spheres, the seven tables and the env index first. Further parameters are
    scalars to the kernels: with a mapped axis there the calls run one after another.
    """

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        size = info.batch_size
        if any(dim is not None for dim in in_dims[9:]):
            calls = [operator(*select_call(i, in_dims, args)) for i in range(size)]
            outputs = tuple(torch.stack(parts) for parts in zip(*calls, strict=True))
            return outputs, (0,) * len(outputs)
        spheres, env_index = args[0], args[8]
        rows = spheres.shape[0] if in_dims[0] is None else spheres.movedim(in_dims[0], 0).shape[1]
        tables, index_dim = args[1:8], in_dims[8]
        if any(dim is not None for dim in in_dims[1:8]):
            if env_index is None:
                env_index = spheres.new_zeros(rows, dtype=torch.int32)
            n_envs = tables[0].numel() // tables[0].shape[-1]
            n_envs = n_envs // size if in_dims[1] is not None else n_envs
            offset = torch.arange(size, device=spheres.device, dtype=torch.int32) * n_envs
            env_index = _batch_first(env_index, index_dim, size)
            # An index out of range stays out of range, instead of selecting another call's env.
            is_env = (env_index >= 0) & (env_index < n_envs)
            env_index = torch.where(is_env, env_index + offset[:, None], -1)
            index_dim = 0
            tables = [_fold(t, d, size) for t, d in zip(tables, in_dims[1:8], strict=True)]
        env_index = _fold(env_index, index_dim, size)
        outputs = operator(_fold(spheres, in_dims[0], size), *tables, env_index, *args[9:])
        return tuple(o.unflatten(0, (size, rows)) for o in outputs), (0,) * len(outputs)

    return rule


def one_by_one(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A batching rule that runs the mapped calls one after another."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        calls = [operator(*select_call(i, in_dims, args)) for i in range(info.batch_size)]
        return torch.stack(calls), 0

    return rule


for _operator in (sphere_cost, swept_cost, scene_distance, clearance):
    _operator.register_vmap(batch_over_envs(_operator))

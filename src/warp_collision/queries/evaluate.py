"""Evaluation of queries: by a direct launch, or by the operator that transforms support."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.queries import dispatch
from warp_collision.queries.autograd import Direct, DirectWithGradients
from warp_collision.queries.query import Query
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world
from warp_collision.world.scene_tables import scene_tables

SPHERES_SHAPE = "(batch, horizon, n_spheres, 4)"


def sphere_operands(
    spheres: Tensor, world: MeshWorld, poses: Tensor | None
) -> tuple[Tensor, SceneTables]:
    """Validated spheres, float32 and contiguous, and the tables of a world."""
    require_world(world)
    device = world.device
    spheres = validate.float_operand("spheres", spheres, 4, SPHERES_SHAPE, device, ndim=4)
    return spheres, scene_tables(world, poses, spheres.shape[1])


def evaluate(
    query: Query,
    spheres: Tensor,
    tables: SceneTables,
    env_index: Tensor | None,
    parameters: tuple[Tensor | None, ...] = (),
    weight: Tensor | None = None,
) -> Any:
    """The first output of a query, or all of them where it reports gradients.

    Args:
        query: the query.
        spheres: (batch, horizon, n_spheres, 4), or points; float32, contiguous.
        tables: of a world, or of a part of it.
        env_index: (batch,) int32, or None.
        parameters: of the query, but for a weight.
        weight: (1,) factor of a cost, which is differentiable by it; None if the query has none.
    """
    operands = parameters if weight is None else (weight, *parameters)
    rows = tables.mesh_from_world
    if dispatch.is_plain(spheres, env_index, *operands):
        records = torch.is_grad_enabled()
        if not records or not (rows.requires_grad or (weight is not None and weight.requires_grad)):
            reports = query.reports_gradients
            if records and spheres.requires_grad:
                function = DirectWithGradients if reports else Direct
                return function.apply(spheres, (query, tables, env_index, operands))
            outputs = query.run(spheres, tables, env_index, operands, reports)
            return outputs if reports else outputs[0]
    if query.derivative is None:
        tables = tables.at(rows.detach())
        return query.operator(spheres, *tables.operands(), env_index, *operands)
    if weight is None:
        return dispatch.apply(
            "query", query.name, spheres, *tables.operands(), env_index, *operands
        )
    unit = validate.scalar_operand("weight", 1.0, rows.device)
    operands = spheres, *tables.operands(), env_index, unit, *parameters
    return dispatch.apply("query", query.name, *operands)[0] * weight

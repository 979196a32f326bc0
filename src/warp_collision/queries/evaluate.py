"""Evaluation of queries: by a direct launch, or by the operator that transforms support."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.queries import dispatch
from warp_collision.queries.autograd import Direct, DirectWithGradients
from warp_collision.queries.query import Query
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world
from warp_collision.world.scene import Scene
from warp_collision.world.scene_tables import scene_of

SPHERES_SHAPE = "(batch, horizon, n_spheres, 4)"


def sphere_operands(
    spheres: Tensor, world: MeshWorld, poses: Tensor | None
) -> tuple[Tensor, Scene]:
    """Validated spheres, float32 and contiguous, and the scene of a world."""
    require_world(world)
    device = world.device
    spheres = validate.float_operand("spheres", spheres, 4, SPHERES_SHAPE, device, ndim=4)
    return spheres, scene_of(world, poses, spheres.shape[1])


def evaluate(
    query: Query,
    spheres: Tensor,
    scene: Scene,
    env_index: Tensor | None,
    parameters: tuple[Tensor | None, ...] = (),
    weight: Tensor | None = None,
) -> Any:
    """The first output of a query, or all of them where it reports gradients.

    Args:
        query: the query.
        spheres: (batch, horizon, n_spheres, 4), or points; float32, contiguous.
        scene: of a world.
        env_index: (batch,) int32, or None.
        parameters: of the query, but for a weight.
        weight: (1,) factor of a cost, which is differentiable by it; None if the query has none.
    """
    operands = parameters if weight is None else (weight, *parameters)
    rows = scene.mesh_from_world
    if dispatch.is_plain(spheres, env_index, *operands):
        records = torch.is_grad_enabled()
        if not records or not (rows.requires_grad or (weight is not None and weight.requires_grad)):
            reports = query.reports_gradients
            if records and spheres.requires_grad:
                function = DirectWithGradients if reports else Direct
                return function.apply(spheres, (query, scene, env_index, operands))
            outputs = query.run(spheres, scene, env_index, operands, reports)
            return outputs if reports else outputs[0]
    if query.derivative is None:
        return query.operator(spheres, *scene.at(rows.detach()).operands(), env_index, *operands)
    if weight is None:
        return dispatch.apply("query", query.name, spheres, *scene.operands(), env_index, *operands)
    unit = validate.scalar_operand("weight", 1.0, rows.device)
    operands = spheres, *scene.operands(), env_index, unit, *parameters
    return dispatch.apply("query", query.name, *operands)[0] * weight

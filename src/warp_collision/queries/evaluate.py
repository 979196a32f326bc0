"""Evaluation of queries: by a direct launch, or by the operator that transforms support."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision import torch_private, validate
from warp_collision.queries import dispatch
from warp_collision.queries.autograd import Direct, DirectWithGradients
from warp_collision.queries.query import Query
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world
from warp_collision.world.other_poses import rows_of_poses
from warp_collision.world.scene import Scene
from warp_collision.world.table_values import check_values

SPHERES_SHAPE = "(batch, horizon, n_spheres, 4)"


def sphere_operands(
    spheres: Tensor, world: MeshWorld, poses: Tensor | None
) -> tuple[Tensor, Scene]:
    """Validated spheres, float32 and contiguous, and the scene of a world."""
    if not isinstance(world, MeshWorld):
        require_world(world)
    device = world.device
    spheres = validate.float_operand("spheres", spheres, 4, SPHERES_SHAPE, device, ndim=4)
    return spheres, scene_of(world, poses, spheres.shape[1])


def scene_of(world: MeshWorld, poses: Tensor | None = None, horizon: int | None = None) -> Scene:
    """The scene of a world, differentiable by its poses, or by others that replace them.

    Args:
        world: the world.
        poses: (n_envs, max_obstacles, 7), or (n_obstacles, 7) for a world of one env; 4 x 4
            matrices in place of the 7 numbers. For each waypoint: (n_envs, horizon, max_obstacles,
            7), or (horizon, n_obstacles, 7) for a world of one env, which makes mesh_from_world
            (n_envs, horizon, slots, 8).
        horizon: how many waypoints there are; None where poses must be the same at all times.
    """
    scene = world._storage.scene
    if poses is not None:
        scene = scene.at(rows_of_poses(world, scene.tables, poses, horizon))
    elif world._slots.tracks_poses:
        scene = scene.at(world._slots.differentiable_rows(scene.mesh_from_world))
    if validate.is_checking():
        name = "mesh_from_world" if poses is None else "poses"
        check_values(scene.tables, poses=name, counts="n_meshes")
    return scene


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
                call = query, scene, env_index, operands
                return torch_private.apply_outside(function, spheres, call)
            outputs = query.run(spheres, scene, env_index, operands, reports)
            return outputs if reports else outputs[0]
    if query.derivative is None:
        return query.operator(spheres, *scene.at(rows.detach()).operands(), env_index, *operands)
    if weight is None:
        return dispatch.apply("query", query.name, spheres, *scene.operands(), env_index, *operands)
    unit = validate.scalar_operand("weight", 1.0, rows.device)
    operands = spheres, *scene.operands(), env_index, unit, *parameters
    return dispatch.apply("query", query.name, *operands)[0] * weight

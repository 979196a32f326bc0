"""Collision checks of spheres, at rest and in motion."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.queries.evaluate import evaluate, sphere_operands
from warp_collision.queries.query import Query
from warp_collision.queries.sphere_queries import (
    ANY_IN_COLLISION,
    IN_COLLISION,
    SWEPT_IN_COLLISION,
)
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world


def in_collision(
    spheres: Tensor,
    world: MeshWorld,
    *,
    env_index: Tensor | None = None,
    poses: Tensor | None = None,
) -> Tensor:
    """Whether spheres touch an obstacle: true where the clearance is below 0.

    The search ends at the first obstacle hit. A surface nearer than the radius is a hit from inside
    or outside.

    Args:
        spheres: (batch, horizon, n_spheres, 4); see `sphere_cost`.
        world: the obstacles.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        poses: see `sphere_cost`.

    Returns:
        (batch, horizon, n_spheres) bool. True also where a sphere or a pose is not finite, and
        where there is no such env. Kilometres from the origin float32 rounds by more than a
        millimetre: what may be a contact is true there. False for disabled spheres.

    Raises:
        TypeError, ValueError: as `sphere_cost`.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, in_collision
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> spheres = torch.tensor([[[[0.7, 0.0, 0.0, 0.05], [0.7, 0.0, 0.0, 0.25]]]])
        >>> in_collision(spheres, world).flatten().tolist()
        [False, True]
    """
    return _check(IN_COLLISION, spheres, world, env_index, poses)


def any_in_collision(
    spheres: Tensor,
    world: MeshWorld,
    *,
    env_index: Tensor | None = None,
    poses: Tensor | None = None,
) -> Tensor:
    """Whether any sphere of a waypoint touches an obstacle: `in_collision` over all of its spheres.

    The search ends at the first sphere hit: put spheres that often collide first.

    Args:
        spheres: (batch, horizon, n_spheres, 4); see `sphere_cost`.
        world: the obstacles.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        poses: see `sphere_cost`.

    Returns:
        (batch, horizon) bool, with the rules of `in_collision`; False without spheres.

    Raises:
        TypeError, ValueError: as `sphere_cost`.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, any_in_collision
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> spheres = torch.tensor([[[[0.7, 0.0, 0.0, 0.05], [0.7, 0.0, 0.0, 0.25]]]])
        >>> any_in_collision(spheres, world).tolist()
        [[True]]
    """
    return _check(ANY_IN_COLLISION, spheres, world, env_index, poses)


def swept_in_collision(
    spheres: Tensor,
    world: MeshWorld,
    *,
    tolerance: float | Tensor = 1e-4,
    env_index: Tensor | None = None,
    poses: Tensor | None = None,
) -> Tensor:
    """Whether spheres that move in straight lines between waypoints touch an obstacle.

    A waypoint owns the half segment before it and the half segment after it, as in
    `swept_sphere_cost`. False is a proof that both are free, however thin the obstacles are; True
    is a collision, or a clearance below the tolerance.

    On open meshes the sign of the distance jumps away from the surface; there the proof holds for
    the distance to the surface. Obstacles with a pose for each waypoint move as in
    `swept_sphere_cost`.

    Args:
        spheres: (batch, horizon, n_spheres, 4); see `sphere_cost`. A disabled neighbour ends the
            path.
        world: the obstacles.
        tolerance: clearance below which a collision may be reported [m]; at least the rounding of
            distances, about 5e-7 of the coordinates.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        poses: see `sphere_cost`.

    Returns:
        (batch, horizon, n_spheres) bool, with the rules of `in_collision` where something is not
        finite.

    Raises:
        TypeError, ValueError: as `sphere_cost`.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, in_collision, swept_in_collision
        >>> world = MeshWorld()
        >>> world.add("plate", trimesh.creation.box((1.0, 1.0, 0.0005)))
        0
        >>> path = torch.tensor([[[[0.1, 0.0, -0.5, 0.05]], [[0.1, 0.0, 0.6, 0.05]]]])
        >>> in_collision(path, world).any().item(), swept_in_collision(path, world).any().item()
        (False, True)
    """
    require_world(world)
    tau = validate.scalar_operand("tolerance", tolerance, world.device, positive=True)
    return _check(SWEPT_IN_COLLISION, spheres, world, env_index, poses, tau.detach())


def _check(
    query: Query,
    spheres: Tensor,
    world: MeshWorld,
    env_index: Tensor | None,
    poses: Tensor | None,
    *parameters: Tensor,
) -> Tensor:
    """Validates the operands and evaluates a query, which has no derivative."""
    with torch.no_grad():
        spheres, scene = sphere_operands(spheres, world, poses)
    env_index = validate.env_operand(env_index, spheres.shape[0], world.n_envs, world.device)
    return evaluate(query, spheres.detach(), scene, env_index, parameters)

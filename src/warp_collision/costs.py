"""Collision costs and distances, as differentiable torch functions."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.queries.evaluate import evaluate, scene_of, sphere_operands
from warp_collision.queries.query import Query
from warp_collision.queries.sphere_queries import (
    CLEARANCE,
    SCENE_DISTANCE,
    SPHERE_COST,
    SWEPT_COST,
    default_tolerance,
)
from warp_collision.summaries import summary
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world
from warp_collision.world.scene import Scene

Scalar = float | Tensor


class SignedDistance(NamedTuple):
    """Result of `signed_distance`.

    Attributes:
        distance: (batch, ...) [m], negative inside, +inf in an env without enabled obstacles.
        gradient: (batch, ..., 3), unit, outward; 0 where the distance is infinite.
        obstacle: (batch, ...) int32, index of the nearest obstacle in `MeshWorld.names`, -1: none.
    """

    distance: Tensor
    gradient: Tensor
    obstacle: Tensor

    __repr__ = summary


class Clearance(NamedTuple):
    """Result of `clearance`.

    Attributes:
        clearance: (batch, horizon, n_spheres) [m], signed distance of the center minus radius; +inf
            for disabled spheres, beyond `max_distance`, and in an env without enabled obstacles.
        gradient: (batch, horizon, n_spheres, 3), unit, outward: d clearance / d center.
        obstacle: (batch, horizon, n_spheres) int32, index of the nearest obstacle, -1 for none.
    """

    clearance: Tensor
    gradient: Tensor
    obstacle: Tensor

    __repr__ = summary


def sphere_cost(
    spheres: Tensor,
    world: MeshWorld,
    *,
    weight: Scalar = 1.0,
    activation_distance: Scalar = 0.02,
    env_index: Tensor | None = None,
    poses: Tensor | None = None,
) -> Tensor:
    """Collision cost of spheres at rest: ``weight * sum of h(r + eta - sdf(center))`` by obstacle.

    h is 0 up to 0, then ``d^2 / (2 eta)``, and ``d - eta / 2`` beyond the activation distance eta:
    the smoothed hinge of CHOMP (Ratliff et al., 2009), exact at every depth. The gradient with
    respect to centers and radii is exact for any incoming gradient; a second derivative raises.

    Args:
        spheres: (batch, horizon, n_spheres, 4) x, y, z, radius [m] in the world. float32 and
            contiguous is fastest, other floating dtypes and layouts are converted once. A radius
            below 0 disables a sphere: cost and gradient are 0.
        world: the obstacles.
        weight: factor of the cost; a tensor may require a gradient.
        activation_distance: eta [m], the clearance below which a sphere costs.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None. Its values are
            not read: a row of an env that does not exist costs NaN; `checking` raises instead.
        poses: (n_envs, max_obstacles, 7), or (n_obstacles, 7) for a world of one env: poses to use
            instead of the world's, which may require a gradient. Quaternions of any length but 0
            are normalised. Or 4 x 4 matrices in place of the 7 numbers; those that are not rigid
            give NaN. Moving obstacles have a pose for each waypoint: (n_envs, horizon,
            max_obstacles, 7) or (horizon, n_obstacles, 7).

    Returns:
        (batch, horizon, n_spheres) float32. NaN, not 0, where a sphere or a pose is not finite or
        beyond 1e9 m, and where rounding above 1 mm and the activation distance may hide a contact.

    Raises:
        TypeError: an argument of another dtype or type.
        ValueError: another shape or device, or a value out of range; values of device tensors are
            checked in the mode `checking` only.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, sphere_cost
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((4.0, 4.0, 4.0)))
        0
        >>> spheres = torch.tensor([[[[1.5, 0.1, 0.2, 0.1]]]], requires_grad=True)
        >>> cost = sphere_cost(spheres, world, activation_distance=0.02)
        >>> cost.sum().backward()
        >>> round(cost.item(), 4), spheres.grad.flatten().tolist()
        (0.61, [-1.0, 0.0, 0.0, 1.0])
    """
    spheres, scene = sphere_operands(spheres, world, poses)
    options = resting_options(world.device, weight, activation_distance)
    return options.cost(spheres, scene, env_index)


def swept_sphere_cost(
    spheres: Tensor,
    world: MeshWorld,
    *,
    weight: Scalar = 1.0,
    activation_distance: Scalar = 0.02,
    tolerance: Scalar | None = None,
    dt: Scalar | None = None,
    speed_metric: bool = False,
    min_speed: Scalar = 0.01,
    env_index: Tensor | None = None,
    poses: Tensor | None = None,
) -> Tensor:
    """Collision cost of spheres that move in straight lines between waypoints.

    A waypoint owns the half segment before it and the half segment after it. Its cost is that of
    `sphere_cost`, with the smallest signed distance along them in place of that at the center. The
    minimum is certified: nowhere on the path is the distance lower by more than the tolerance,
    however thin the obstacle. At rest this is exactly `sphere_cost`, and it is never lower. A
    disabled neighbour ends the path. The gradient includes that by the neighbouring waypoints.

    On open meshes the sign of the distance jumps away from the surface; there the certificate holds
    for the distance to the surface.

    With poses for each waypoint obstacles move too: between waypoints each rotates at a constant
    rate about a fixed axis, by the smaller angle, and its origin moves on a straight line. The
    minimum is that of the relative motion. The direction of a rotation by 180 degrees depends on
    the signs of the quaternions: add a waypoint in its middle.

    Chords are not arcs: with joint values interpolated linearly between waypoints the spheres of a
    robot move on arcs; use `joint_path_cost` and `joint_path_in_collision`.

    Args:
        spheres: (batch, horizon, n_spheres, 4) x, y, z, radius [m]; see `sphere_cost`.
        world: the obstacles.
        weight: factor of the cost; a tensor may require a gradient.
        activation_distance: eta [m].
        tolerance: of the smallest distance [m]; by default 1/20 of the activation distance, at
            least 0.1 mm. Rounding bounds it from below by 5e-7 of the coordinates and the segment.
        dt: seconds between waypoints; required for the speed metric.
        speed_metric: scale each cost by ``max(speed, min_speed)`` of its sphere: central difference
            inside, one-sided at the ends of the path.
        min_speed: minimum of that scale [m/s], so that a sphere at rest costs.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        poses: see `sphere_cost`.

    Returns:
        (batch, horizon, n_spheres) float32.

    Raises:
        TypeError, ValueError: as `sphere_cost`; also a speed metric without dt.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, sphere_cost, swept_sphere_cost
        >>> world = MeshWorld()
        >>> world.add("plate", trimesh.creation.box((1.0, 1.0, 0.0005)))
        0
        >>> path = torch.tensor([[[[0.1, 0.0, -0.5, 0.05]], [[0.1, 0.0, 0.6, 0.05]]]])
        >>> sphere_cost(path, world).sum().item(), swept_sphere_cost(path, world).sum().item() > 0
        (0.0, True)
    """
    spheres, scene = sphere_operands(spheres, world, poses)
    speed = None
    if speed_metric:
        if dt is None:
            raise ValueError("dt must be given for the speed metric, got None")
        speed = dt, min_speed
    options = swept_options(world.device, weight, activation_distance, tolerance, speed)
    return options.cost(spheres, scene, env_index)


def signed_distance(
    points: Tensor,
    world: MeshWorld,
    *,
    env_index: Tensor | None = None,
    poses: Tensor | None = None,
) -> SignedDistance:
    """Signed distance of points to the nearest enabled obstacle: negative inside, positive outside.

    Args:
        points: (batch, ..., 3) [m] in the world; floating dtypes and layouts other than contiguous
            float32 are converted once.
        world: the obstacles.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        poses: see `sphere_cost`; for each waypoint with points (batch, horizon, ..., 3).

    Returns:
        Distance, gradient and index of the nearest obstacle; see `SignedDistance`. Differentiable
        with respect to the points, through `distance`; differentiating `gradient` raises.

    Raises:
        TypeError, ValueError: as `sphere_cost`.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, signed_distance
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> result = signed_distance(torch.tensor([[0.4, 0.1, 0.0], [0.0, 0.0, 2.0]]), world)
        >>> [round(d, 4) for d in result.distance.tolist()], result.obstacle.tolist()
        ([-0.1, 1.5], [0, 0])
    """
    require_world(world)
    points = validate.float_operand("points", points, 3, "(batch, ..., 3)", world.device)
    scene = scene_of(world, poses, points.shape[1] if points.ndim > 2 else None)
    batch = points.shape[0]
    env_index = validate.env_operand(env_index, batch, world.n_envs, world.device)
    flat = points.reshape(batch, math.prod(points.shape[1:-1]), 3)
    distance, gradient, obstacle = evaluate(SCENE_DISTANCE, flat, scene, env_index)
    shape = points.shape[:-1]
    return SignedDistance(
        distance.reshape(shape), gradient.reshape(points.shape), obstacle.reshape(shape)
    )


def clearance(
    spheres: Tensor,
    world: MeshWorld,
    *,
    max_distance: Scalar | None = None,
    env_index: Tensor | None = None,
    poses: Tensor | None = None,
) -> Clearance:
    """Clearance of spheres: signed distance of the center to an obstacle, minus the radius.

    Args:
        spheres: (batch, horizon, n_spheres, 4); see `sphere_cost`.
        world: the obstacles.
        max_distance: [m]; a larger clearance is reported as +inf, with gradient 0 and obstacle -1.
            It takes the time of `sphere_cost` with this activation distance.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        poses: see `sphere_cost`.

    Returns:
        Clearance, its gradient by the center, and the nearest obstacle; see `Clearance`.

    Raises:
        TypeError, ValueError: as `sphere_cost`.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, clearance
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> spheres = torch.tensor([[[[0.7, 0.0, 0.0, 0.05]]]])
        >>> round(clearance(spheres, world).clearance.item(), 4)
        0.15
        >>> clearance(spheres, world, max_distance=0.1).clearance.item()
        inf
    """
    spheres, scene = sphere_operands(spheres, world, poses)
    limit = None
    if max_distance is not None:
        limit = validate.scalar_operand("max_distance", max_distance, world.device)
    return clearance_to(scene, spheres, env_index, limit)


def clearance_to(
    scene: Scene, spheres: Tensor, env_index: Tensor | None, limit: Tensor | None = None
) -> Clearance:
    """`clearance` of float32 spheres to the obstacles of a scene, up to a limit (1,)."""
    if env_index is not None:
        env_index = _env_operand(env_index, scene, spheres)
    value, gradient, obstacle = evaluate(CLEARANCE, spheres, scene, env_index, (limit,))
    return Clearance(value, gradient[..., :3], obstacle)


class CostOptions(NamedTuple):
    """Validated options of a cost; tensors are (1,), on its device.

    Attributes:
        query: what is asked of each sphere.
        parameters: of the query.
        weight: factor of the cost.
    """

    query: Query
    parameters: tuple[Tensor | None, ...]
    weight: Tensor

    def cost(self, spheres: Tensor, scene: Scene, env_index: Tensor | None) -> Tensor:
        """The cost (batch, horizon, n_spheres) of float32 spheres among obstacles."""
        if env_index is not None:
            env_index = _env_operand(env_index, scene, spheres)
        return evaluate(self.query, spheres, scene, env_index, self.parameters, self.weight)


def resting_options(
    device: torch.device, weight: Scalar, activation_distance: Scalar
) -> CostOptions:
    """Those of `sphere_cost`."""
    eta = validate.scalar_operand("activation_distance", activation_distance, device)
    return CostOptions(SPHERE_COST, (eta,), weight_operand("weight", weight, device))


def swept_options(
    device: torch.device,
    weight: Scalar,
    activation_distance: Scalar,
    tolerance: Scalar | None,
    speed: tuple[Scalar, Scalar] | None = None,
) -> CostOptions:
    """Those of `swept_sphere_cost`; the speed metric has a time step and a lowest speed."""
    eta = validate.scalar_operand("activation_distance", activation_distance, device)
    if tolerance is None:
        tau = _default_tolerance(activation_distance, eta)
    else:
        tau = validate.scalar_operand("tolerance", tolerance, device, positive=True)
    factor = weight_operand("weight", weight, device)
    step = lowest = None
    if speed is not None:
        step = validate.scalar_operand("dt", speed[0], device, positive=True)
        lowest = validate.scalar_operand("min_speed", speed[1], device, positive=True)
    return CostOptions(SWEPT_COST, (eta, tau, step, lowest), factor)


# A factor of a cost (1,), of any sign, which may require a gradient: of name, weight and device.
weight_operand = partial(validate.scalar_operand, any_sign=True, differentiable=True)


def _env_operand(env_index: Tensor, scene: Scene, spheres: Tensor) -> Tensor | None:
    return validate.env_operand(env_index, spheres.shape[0], scene.n_envs, spheres.device)


def _default_tolerance(activation_distance: Scalar, eta: Tensor) -> Tensor:
    """Default sweep tolerance."""
    if isinstance(activation_distance, Tensor) or torch.compiler.is_compiling():
        return default_tolerance(eta)
    name = "tolerance by activation_distance"
    tolerance = validate.known_scalar(name, activation_distance, eta.device)
    if tolerance is None:
        with torch.inference_mode(False):
            tolerance = default_tolerance(eta)
        validate.keep_scalar(name, activation_distance, tolerance)
    return tolerance

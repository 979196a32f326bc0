"""The queries of spheres and points, and their Jacobian products."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from warp_collision.kernels import (
    collision,
    moving_collision,
    moving_cost,
    scene_distance,
    sphere_cost,
    swept_cost,
)
from warp_collision.launching.launch import launch
from warp_collision.queries import operator, pose_products
from warp_collision.queries.query import Derivative, Output, Query

# Default sweep tolerance: this fraction of the activation distance, at least the minimum [m].
_TOLERANCE_FRACTION = 0.05
_MIN_TOLERANCE = 1.0e-4


def default_tolerance(activation_distance: Tensor) -> Tensor:
    """Tolerance (1,) of a sweep, well below the activation distance (1,)."""
    return (_TOLERANCE_FRACTION * activation_distance).clamp(min=_MIN_TOLERANCE)


# -- Jacobian products ----------------------------------------------------------------------------


def pointwise_vjp(upstream: Tensor, gradient: Tensor) -> Tensor:
    """Gradient by the spheres of values that each depend on one sphere."""
    return upstream.unsqueeze(-1) * gradient


def pointwise_jvp(tangent: Tensor, gradient: Tensor) -> Tensor:
    """Tangent of values that each depend on one sphere."""
    return (gradient * tangent).sum(-1)


def swept_vjp(upstream: Tensor, gradient: Tensor, neighbours: Tensor) -> Tensor:
    """Gradient by the spheres of swept costs, which depend on the neighbouring waypoints too."""
    to_neighbours = upstream[..., None, None] * neighbours
    # Padding turns centers into spheres on the last axis and shifts waypoints on the second.
    from_before = pad(to_neighbours[:, :-1, :, 1], (0, 1, 0, 0, 1, 0))
    from_after = pad(to_neighbours[:, 1:, :, 0], (0, 1, 0, 0, 0, 1))
    return upstream.unsqueeze(-1) * gradient + from_before + from_after


def swept_jvp(tangent: Tensor, gradient: Tensor, neighbours: Tensor) -> Tensor:
    """Tangent of swept costs."""
    center = tangent[..., :3]
    before = pad(center[:, :-1], (0, 0, 0, 0, 1, 0))
    after = pad(center[:, 1:], (0, 0, 0, 0, 0, 1))
    adjacent = torch.stack((before, after), dim=-2)
    return (gradient * tangent).sum(-1) + (neighbours * adjacent).sum((-2, -1))


def launched_swept_vjp(
    upstream: Tensor | None, gradient: Tensor, neighbours: Tensor, total: Tensor | None = None
) -> Tensor:
    """`swept_vjp` by a kernel; upstream None means ones."""
    if total is None:
        total = torch.empty_like(gradient)
    launch(
        swept_cost.swept_vjp,
        gradient.shape[:-1],
        *(None if upstream is None else upstream.contiguous(), gradient, neighbours, total),
        device=gradient.device,
    )
    return total


# -- queries --------------------------------------------------------------------------------------

_VALUE, _GRADIENT, _SLOT = Output(), Output(like_spheres=True), Output(dtype=torch.int32)
_HIT = Output(dtype=torch.bool)

SPHERE_COST = Query(
    "sphere_cost",
    sphere_cost.sphere_cost,
    (_VALUE, _GRADIENT),
    operator.COST,
    Derivative(
        pointwise_vjp,
        pointwise_jvp,
        pose_products.of_cost(pose_products.sphere_cost_pose_vjp),
    ),
    is_flat=True,
    has_flags=True,
)

# The outputs behind the cost are its gradient (b, h, n, 4), and that to the centers at the waypoint
# before and after (b, h, n, 2, 3). With `dt` costs are scaled by the speed, at least by
# `min_speed`; without `min_speed` the factor is 1 at the ends of a path and at rest.
SWEPT_COST = Query(
    "swept_cost",
    swept_cost.swept_cost,
    (_VALUE, _GRADIENT, Output((2, 3))),
    operator.SWEPT_COST,
    Derivative(
        swept_vjp,
        swept_jvp,
        pose_products.of_cost(pose_products.swept_cost_pose_vjp),
        launched_swept_vjp,
    ),
    moving_kernel=moving_cost.moving_swept_cost,
    has_flags=True,
    work=8,
)

# Distance, gradient and slot of the nearest obstacle. With poses for each waypoint the points are
# ordered by waypoint.
SCENE_DISTANCE = Query(
    "scene_distance",
    scene_distance.scene_distance,
    (_VALUE, _GRADIENT, _SLOT),
    derivative=Derivative(pointwise_vjp, pointwise_jvp, pose_products.of_distance),
    reports_gradients=True,
    uses_field=False,
)

CLEARANCE = Query(
    "clearance",
    scene_distance.sphere_clearance,
    (_VALUE, _GRADIENT, _SLOT),
    ("Tensor? max_distance",),
    Derivative(pointwise_vjp, pointwise_jvp, pose_products.of_clearance),
    is_flat=True,
    reports_gradients=True,
)

IN_COLLISION = Query("in_collision", collision.in_collision, (_HIT,), is_flat=True)

ANY_IN_COLLISION = Query(
    "any_in_collision",
    collision.any_in_collision,
    (_HIT._replace(per_waypoint=True),),
)

SWEPT_IN_COLLISION = Query(
    "swept_in_collision",
    collision.swept_in_collision,
    (_HIT,),
    ("Tensor tolerance",),
    moving_kernel=moving_collision.moving_swept_in_collision,
    work=8,
)

# Those with a derivative, by name.
QUERIES = {query.name: query for query in (SPHERE_COST, SWEPT_COST, SCENE_DISTANCE, CLEARANCE)}

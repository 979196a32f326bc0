"""The queries of spheres and points, and their Jacobian products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from warp_collision.devices import CPU, is_gpu
from warp_collision.kernels import (
    collision,
    moving_collision,
    moving_cost,
    moving_gradient,
    pose_gradient,
    scene_distance,
    sphere_cost,
    swept_cost,
)
from warp_collision.kernels.lanes.resting_costs import sphere_costs
from warp_collision.kernels.lanes.swept_costs import swept_costs, swept_vjp_of_eight
from warp_collision.kernels.lanes.touching_spheres import (
    spheres_in_collision,
    waypoints_in_collision,
)
from warp_collision.launching.launch import launch
from warp_collision.poses import quaternion_rotate
from warp_collision.queries import operator
from warp_collision.queries.operator import ENV_INDEX, ROWS, SCENE, define_operator, one_by_one
from warp_collision.queries.query import Derivative, Output, Query, blocks_of
from warp_collision.queries.second_derivatives import refuse_recording
from warp_collision.queries.waypoints import at_waypoints, env_of_waypoint
from warp_collision.world.scene import Scene

# Of a partial sum on a GPU, and how many sums there are at most, 64 MB.
_SPHERES_PER_PART = 64
_MAX_SUMS = 1 << 21
# Default sweep tolerance: this fraction of the activation distance, at least the minimum [m].
_TOLERANCE_FRACTION = 0.05
_MIN_TOLERANCE = 1.0e-4


def default_tolerance(activation_distance: Tensor) -> Tensor:
    """Tolerance (1,) of a sweep, well below the activation distance (1,)."""
    return (_TOLERANCE_FRACTION * activation_distance).clamp(min=_MIN_TOLERANCE)


# -- Jacobian products by spheres -----------------------------------------------------------------


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
    kernel, dim = swept_cost.swept_vjp, gradient.shape[:-1]
    if gradient.device == CPU:
        kernel, dim = swept_vjp_of_eight, blocks_of(dim)
    launch(
        kernel,
        dim,
        None if upstream is None else upstream.contiguous(),
        gradient,
        neighbours,
        total,
        device=gradient.device,
    )
    return total


# -- gradients by poses ---------------------------------------------------------------------------
#
# `torch.ops.warp_collision.*_pose_vjp` take the operands of a cost or distance and the gradient of
# a loss by it, and return the gradient of the loss by the rows of `mesh_from_world`.


class _Asked(NamedTuple):
    """A cost: its operands, and the gradient of a loss by it."""

    spheres: Tensor
    scene: Scene
    env_index: Tensor | None
    parameters: Sequence[Tensor | None]
    upstream: Tensor


def _run(kernel: Any, asked: _Asked) -> Tensor:
    spheres, scene, env_index, parameters, upstream = asked
    slots = scene.tables.shape
    partial = spheres.new_zeros((*slots, _parts(upstream, slots), 8))
    if upstream.numel():
        launch(
            kernel,
            partial.shape[:-1],
            spheres,
            *_by_env(env_index, slots[0]),
            scene.tables,
            *parameters,
            upstream,
            partial,
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


def _run_moving_swept(_: Any, asked: _Asked) -> Tensor:
    """Gradient (n_envs, horizon, slots, 8) of a swept cost by poses for each waypoint."""
    spheres, scene, env_index, parameters, upstream = asked
    rows = scene.mesh_from_world
    shape = (*rows.shape[:3], _parts(upstream[:, 0], rows.shape[:3]), 8)
    previous, here, following = (spheres.new_zeros(shape) for _ in range(3))
    if upstream.numel():
        launch(
            moving_gradient.moving_cost_pose_vjp,
            shape[:-1],
            spheres,
            *_by_env(env_index, len(rows)),
            scene.tables,
            rows,
            *parameters,
            upstream,
            previous,
            here,
            following,
            device=spheres.device,
        )
    total = here.sum(3)
    total[:, :-1] += previous[:, 1:].sum(3)
    total[:, 1:] += following[:, :-1].sum(3)
    return total


def _run_at_waypoints(kernel: Any, asked: _Asked) -> Tensor:
    """As `_run` for obstacles with a pose for each waypoint, where each is an env at rest."""
    at_rest = at_waypoints(asked.spheres, asked.scene, asked.env_index)
    upstream = asked.upstream.flatten(0, 1).unsqueeze(1)
    total = _run(kernel, _Asked(*at_rest, asked.parameters, upstream))
    return total.view(asked.scene.mesh_from_world.shape)


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
        scene = Scene.of(*operands[:3])
        env_index, *parameters, upstream = operands[3:]
        chosen = run_moving if scene.is_moving else _run
        asked = spheres.contiguous(), scene, env_index, parameters, upstream.contiguous()
        return chosen(kernel, _Asked(*asked))

    return define_operator(
        f"{name}_pose_vjp",
        ", ".join(("Tensor spheres", SCENE, *parameters, "Tensor upstream")),
        run,
        lambda spheres, scene, mesh_from_world, *_: mesh_from_world.new_empty(
            mesh_from_world.shape
        ),
        one_by_one,
    )


sphere_cost_pose_vjp = _define_cost_product(
    "sphere_cost", pose_gradient.sphere_cost_pose_vjp, operator.COST
)
swept_cost_pose_vjp = _define_cost_product(
    "swept_cost", pose_gradient.swept_cost_pose_vjp, operator.SWEPT_COST, _run_moving_swept
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
    if mesh_from_world.ndim == 4:  # a pose for each waypoint
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


def _of_cost(product: Any) -> Callable[[Sequence[Any], Sequence[Tensor], Tensor], Tensor]:
    """The gradient of a cost by poses, see `Derivative`, from one of the operators above."""
    return lambda operands, _, upstream: product(*operands, upstream)


def _of_distance(operands: Sequence[Any], further: Sequence[Tensor], upstream: Tensor) -> Tensor:
    """The gradient of `scene_distance` by poses."""
    points, rows, env_index = operands[0], operands[ROWS], operands[ENV_INDEX]
    return scene_distance_pose_vjp(points, rows, env_index, *further, upstream)


def _of_clearance(operands: Sequence[Any], further: Sequence[Tensor], upstream: Tensor) -> Tensor:
    """The gradient of `clearance` by poses: that of the distance of the centers."""
    spheres, gradient, slot = operands[0], *further
    points, along = (part[..., :3].flatten(1, 2) for part in (spheres, gradient))
    further = along, slot.flatten(1, 2)
    return _of_distance((points, *operands[1:]), further, upstream.flatten(1, 2))


# -- queries --------------------------------------------------------------------------------------

_VALUE, _GRADIENT, _SLOT = Output(), Output(like_spheres=True), Output(dtype=torch.int32)
_HIT = Output(dtype=torch.bool)

SPHERE_COST = Query(
    "sphere_cost",
    sphere_cost.sphere_cost,
    (_VALUE, _GRADIENT),
    operator.COST,
    Derivative(pointwise_vjp, pointwise_jvp, _of_cost(sphere_cost_pose_vjp)),
    is_flat=True,
    in_lanes=sphere_costs,
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
    Derivative(swept_vjp, swept_jvp, _of_cost(swept_cost_pose_vjp), launched_swept_vjp),
    moving_kernel=moving_cost.moving_swept_cost,
    in_lanes=swept_costs,
    has_flags=True,
    work=8,
)

# Distance, gradient and slot of the nearest obstacle. With poses for each waypoint the points are
# ordered by waypoint.
SCENE_DISTANCE = Query(
    "scene_distance",
    scene_distance.scene_distance,
    (_VALUE, _GRADIENT, _SLOT),
    derivative=Derivative(pointwise_vjp, pointwise_jvp, _of_distance),
    reports_gradients=True,
    uses_field=False,
)

CLEARANCE = Query(
    "clearance",
    scene_distance.sphere_clearance,
    (_VALUE, _GRADIENT, _SLOT),
    ("Tensor? max_distance",),
    Derivative(pointwise_vjp, pointwise_jvp, _of_clearance),
    is_flat=True,
    reports_gradients=True,
)

IN_COLLISION = Query(
    "in_collision", collision.in_collision, (_HIT,), is_flat=True, in_lanes=spheres_in_collision
)

ANY_IN_COLLISION = Query(
    "any_in_collision",
    collision.any_in_collision,
    (_HIT._replace(per_waypoint=True),),
    in_lanes=waypoints_in_collision,
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

"""Drop-in Functions: torch autograd Functions that write cost and gradient buffers in place.

`SdfMeshWarpPy` and `SweptSdfMeshWarpPy` take the positional arguments that callers of Functions of
these names already hold, buffers included; results follow this library's contract.

===================  ===========================  =================================================
argument             shape, dtype                 meaning
===================  ===========================  =================================================
query_spheres        (b, h, n, 4) f32             x, y, z, radius [m]; radius < 0: disabled
out_cost             (b, h, n) f32                written, and returned as a view
out_grad             (b, h, n, 4) f32             d (sum of costs) / d (x, y, z, r); written where
                                                  query_spheres requires a gradient
sparsity_idx         (b, h, n) u8                 after each call 1 where the cost is not 0, else 0
weight               (1,) f32                     factor of the cost
activation_distance  (1,) f32                     eta [m]
speed_dt             (1,) f32                     seconds between waypoints, for the speed metric
mesh_idx             (n_envs, max_meshes) i64     Warp mesh ids; 0 is skipped
mesh_pose_inverse    (n_envs, max_meshes, 8) f32  x, y, z, qw, qx, qy, qz, pad: world to mesh
mesh_enable          (n_envs, max_meshes) u8      1: checked, 0: skipped
n_env_mesh           (n_envs,) i32                filled slots of each env
max_dist             (1,) f32                     clamps the ESDF outside [m]; never cuts a cost off
env_query_idx        b integers or None           env of each row, (b,) or (b, 1); None: env 0
sweep_steps          int                          0: no sweep; 1 or more: the certified sweep
enable_speed_metric  bool                         scale by the speed; 1 at the ends, below 1e-3 m/s
return_loss          bool                         backward applies the incoming gradient, or 1
compute_esdf         bool                         cost is weight times the distance, positive inside
===================  ===========================  =================================================

Spheres of other floating dtypes and layouts are converted once. All else is read and written in
place. It must be contiguous and of the dtype above (ids also as u64). Neighbouring axes may be
merged, as in a flat buffer. The cost is returned in the shape of `out_cost`.

The padding of a `MeshWorld` belongs to its slots: it counts with its `mesh_ids` and views of them;
copies of ids of padded obstacles raise.

Mesh ids may be those of a `MeshWorld` or of the caller's own `wp.Mesh`, with or without winding
numbers. A mesh must have a face, and live until the kernel has run. Meshes of the caller are read
at their first use and compared before each launch, so that a refit or another mesh under the same
id is detected; see `world.external_meshes`. In filled and enabled slots an id that is neither 0 nor
a living mesh crashes the process; the mode `warp_collision.checking` raises before.

A buffer that is overwritten between forward and backward raises in backward. A call with spheres
that require no gradient, or under `torch.no_grad`, as in a line search, leaves `out_grad` alone. So
backward of the call before is right. The cost of that call is overwritten, and using it raises from
then on. Second derivatives,
`torch.func` transforms and `torch.jit.trace` raise: a buffer of the caller has no batched or
differentiable form.
"""

from __future__ import annotations

import itertools
import math
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from warp_collision import devices, torch_private, validate
from warp_collision.kernels.scene_distance import sphere_esdf
from warp_collision.launching.launch import launch
from warp_collision.queries.dispatch import outside_graphs
from warp_collision.queries.second_derivatives import FirstOrderOnly
from warp_collision.queries.sphere_queries import (
    SPHERE_COST,
    SWEPT_COST,
    default_tolerance,
    launched_swept_vjp,
)
from warp_collision.world.external_meshes import MeshTables, scene_of_tables
from warp_collision.world.scene import Scene
from warp_collision.world.table_values import check_values

__all__ = ["SdfMeshWarpPy", "SweptSdfMeshWarpPy"]

_NO_GRAPH = (
    "the drop-in Functions write buffers of the caller, which a graph cannot track; use "
    "sphere_cost, swept_sphere_cost or signed_distance, or let the graph break here"
)

# The cost that the last call with a gradient returned, by the address of its buffer.
_COSTS: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
_IS_STALE = "has been modified inplace"  # in what torch says
_OVERWRITTEN = (
    "this cost is a view of out_cost, and a later call of a drop-in Function has written another "
    "cost there: use it, as by cost.sum(), before that call, clone it, or give each call buffers "
    "of its own"
)


class _OverwrittenCost(Tensor):
    """A cost whose buffer a later call has written; what torch refuses to do with it says so."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            with torch_private.as_plain_tensors():
                return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            if _IS_STALE not in str(error):
                raise
            raise RuntimeError(_OVERWRITTEN) from error


class _WritesBuffers(torch.autograd.Function):
    """A Function that writes buffers of its caller, the second to fourth argument."""

    @classmethod
    @outside_graphs(_NO_GRAPH)
    def apply(cls, *args: Any) -> Any:
        """Calls the Function.

        Under `torch.no_grad` without a gradient: torch tells a Function only what its arguments
        require.
        """
        if args and isinstance(args[0], Tensor) and not torch.is_grad_enabled():
            args = (args[0].detach(), *args[1:])
        cost = super().apply(*args)
        if cost.numel() and type(cost) is Tensor:
            place = cost.data_ptr()
            earlier = _COSTS.pop(place, None)
            if earlier is not None and type(earlier) is Tensor:
                earlier.__class__ = _OverwrittenCost
            if cost.requires_grad:
                _COSTS[place] = cost
        return cost


class SdfMeshWarpPy(_WritesBuffers):
    """Collision cost of resting spheres, or their ESDF; see the module for the arguments.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld
        >>> from warp_collision.warp_primitives import SdfMeshWarpPy
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> spheres = torch.tensor([[[[0.45, 0.0, 0.0, 0.1]]]], requires_grad=True)
        >>> one, eta = torch.ones(1), torch.full((1,), 0.02)
        >>> cost = SdfMeshWarpPy.apply(
        ...     spheres, torch.empty(1, 1, 1), torch.empty(1, 1, 1, 4),
        ...     torch.empty(1, 1, 1, dtype=torch.uint8), one, eta, world.mesh_ids,
        ...     world.mesh_from_world, world.enabled, world.n_meshes, one,
        ... )
        >>> cost.sum().backward()
        >>> round(cost.item(), 4), spheres.grad.flatten().tolist()
        (0.16, [-1.0, 0.0, 0.0, 1.0])
    """

    @staticmethod
    @outside_graphs(_NO_GRAPH)
    def forward(  # noqa: D102
        ctx: Any,
        query_spheres: Tensor,
        out_cost: Tensor,
        out_grad: Tensor,
        sparsity_idx: Tensor,
        weight: Tensor,
        activation_distance: Tensor,
        mesh_idx: Tensor,
        mesh_pose_inverse: Tensor,
        mesh_enable: Tensor,
        n_env_mesh: Tensor,
        max_dist: Tensor,
        env_query_idx: Tensor | None = None,
        return_loss: bool = False,
        compute_esdf: bool = False,
    ) -> Tensor:
        _refuse_tracing()
        spheres, needs_gradient = _check_spheres(query_spheres), ctx.needs_input_grad[0]
        weight, activation_distance, max_dist = _check_scalars(
            spheres, weight=weight, activation_distance=activation_distance, max_dist=max_dist
        )
        cost, gradient, active = _check_buffers(spheres, out_cost, out_grad, sparsity_idx)
        scene = _check_tables(spheres, mesh_idx, mesh_pose_inverse, mesh_enable, n_env_mesh)
        env_index = _check_env_index(env_query_idx, spheres, scene)
        if compute_esdf:
            launch(
                sphere_esdf,
                spheres.shape[:-1],
                spheres,
                env_index,
                scene.completed(),
                weight,
                max_dist,
                cost,
                gradient if needs_gradient else None,
                active,
                device=spheres.device,
                items=cost.numel(),
            )
        else:
            parameters = weight, activation_distance
            outputs = cost, gradient if needs_gradient else None
            SPHERE_COST.run(spheres, scene, env_index, parameters, needs_gradient, outputs, active)
        _mark_written(needs_gradient, out_cost, sparsity_idx, out_grad)
        ctx.return_loss = return_loss
        ctx.query_spheres = query_spheres
        if needs_gradient:
            ctx.save_for_backward(out_grad)
        return out_cost.view_as(out_cost)

    @staticmethod
    @outside_graphs(_NO_GRAPH)
    def backward(ctx: Any, grad_cost: Tensor) -> tuple[Any, ...]:  # noqa: D102
        if not ctx.needs_input_grad[0]:
            return (None,) * 14
        (gradient,) = ctx.saved_tensors
        gradient = gradient.view(ctx.query_spheres.shape)
        if ctx.return_loss:
            gradient = _by_sphere(grad_cost, ctx).unsqueeze(-1) * gradient
        return _returned(gradient, ctx), *(None,) * 13


class SweptSdfMeshWarpPy(_WritesBuffers):
    """Collision cost of moving spheres; see the module for the arguments.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld
        >>> from warp_collision.warp_primitives import SweptSdfMeshWarpPy
        >>> world = MeshWorld()
        >>> world.add("plate", trimesh.creation.box((1.0, 1.0, 0.001)))
        0
        >>> spheres = torch.tensor([[[[0.1, 0.0, -0.6, 0.05]], [[0.1, 0.0, 0.3, 0.05]]]])
        >>> one, eta = torch.ones(1), torch.full((1,), 0.02)
        >>> cost = SweptSdfMeshWarpPy.apply(
        ...     spheres, torch.empty(1, 2, 1), torch.empty(1, 2, 1, 4),
        ...     torch.empty(1, 2, 1, dtype=torch.uint8), one, eta, one, world.mesh_ids,
        ...     world.mesh_from_world, world.enabled, world.n_meshes, one,
        ... )
        >>> (cost > 0).flatten().tolist()
        [False, True]
    """

    @staticmethod
    @outside_graphs(_NO_GRAPH)
    def forward(  # noqa: D102
        ctx: Any,
        query_spheres: Tensor,
        out_cost: Tensor,
        out_grad: Tensor,
        sparsity_idx: Tensor,
        weight: Tensor,
        activation_distance: Tensor,
        speed_dt: Tensor,
        mesh_idx: Tensor,
        mesh_pose_inverse: Tensor,
        mesh_enable: Tensor,
        n_env_mesh: Tensor,
        max_dist: Tensor,
        sweep_steps: int = 1,
        enable_speed_metric: bool = False,
        env_query_idx: Tensor | None = None,
        return_loss: bool = False,
    ) -> Tensor:
        _refuse_tracing()
        spheres, needs_gradient = _check_spheres(query_spheres), ctx.needs_input_grad[0]
        weight, activation_distance, speed_dt, _ = _check_scalars(
            spheres,
            weight=weight,
            activation_distance=activation_distance,
            speed_dt=speed_dt,
            max_dist=max_dist,
        )
        cost, gradient, active = _check_buffers(spheres, out_cost, out_grad, sparsity_idx)
        scene = _check_tables(spheres, mesh_idx, mesh_pose_inverse, mesh_enable, n_env_mesh)
        env_index = _check_env_index(env_query_idx, spheres, scene)
        if not isinstance(sweep_steps, int) or sweep_steps < 0:
            raise ValueError(f"sweep_steps must be an int, 0 or more, got {sweep_steps!r}")
        if sweep_steps == 0:
            tolerance = validate.scalar_operand(
                "tolerance without a sweep", torch.inf, spheres.device, finite=False
            )
        else:
            tolerance = default_tolerance(activation_distance)
        # With an incoming gradient, backward weighs the gradients of three waypoints separately.
        own = neighbours = None
        if needs_gradient:
            own = torch.empty_like(gradient) if return_loss else gradient
            neighbours = gradient.new_empty((*cost.shape, 2, 3))
        dt = speed_dt if enable_speed_metric else None
        parameters = weight, activation_distance, tolerance, dt, None
        outputs = cost, own, neighbours
        SWEPT_COST.run(spheres, scene, env_index, parameters, needs_gradient, outputs, active)
        _mark_written(needs_gradient, out_cost, sparsity_idx, out_grad)
        ctx.return_loss = return_loss
        ctx.query_spheres = query_spheres
        if own is not None and neighbours is not None:
            launched_swept_vjp(None, own, neighbours, gradient)
            # The buffer is saved in both cases, so that overwriting it raises in both.
            ctx.save_for_backward(out_grad, *((own, neighbours) if return_loss else ()))
        return out_cost.view_as(out_cost)

    @staticmethod
    @outside_graphs(_NO_GRAPH)
    def backward(ctx: Any, grad_cost: Tensor) -> tuple[Any, ...]:  # noqa: D102
        if not ctx.needs_input_grad[0]:
            return (None,) * 16
        gradient, *parts = ctx.saved_tensors
        gradient = gradient.view(ctx.query_spheres.shape)
        if ctx.return_loss:
            gradient = launched_swept_vjp(_by_sphere(grad_cost.detach(), ctx), *parts)
        return _returned(gradient, ctx), *(None,) * 15


def _refuse_tracing() -> None:
    """Raises under `torch.jit.trace`, which records operators of torch alone."""
    if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        raise RuntimeError(
            "torch.jit.trace cannot record the drop-in Functions, which write buffers of the "
            "caller: call them outside of it, or compile around them with torch.compile"
        )


def _mark_written(with_gradient: bool, cost: Tensor, active: Tensor, gradient: Tensor) -> None:
    """Tells torch, which does not see Warp's writes, so that stale buffers raise in backward."""
    written = (cost, active, gradient) if with_gradient else (cost, active)
    torch.autograd.graph.increment_version(written)


def _by_sphere(grad_cost: Tensor, ctx: Any) -> Tensor:
    """The incoming gradient (b, h, n), which has the shape of the caller's buffer."""
    return grad_cost.reshape(ctx.query_spheres.shape[:-1])


def _returned(gradient: Tensor, ctx: Any) -> Tensor:
    """The gradient that backward returns: never the buffer itself; its own derivative raises."""
    if torch.is_grad_enabled():  # create_graph
        return FirstOrderOnly.apply(gradient, ctx.query_spheres)
    # A leaf may keep the returned tensor as its .grad, and the next call overwrites the buffer.
    return gradient if ctx.return_loss else gradient.clone()


# -- validation of the arguments ------------------------------------------------------------------


def _check_spheres(spheres: Tensor) -> Tensor:
    """Spheres (b, h, n, 4) float32, contiguous and without a gradient."""
    shape = "(b, h, n, 4)"
    device = validate.require_tensor("query_spheres", spheres, shape).device
    if not devices.is_known(device):
        raise ValueError(f"query_spheres must be on a {devices.TYPES} device, got {device}")
    return validate.float_operand("query_spheres", spheres.detach(), 4, shape, device, ndim=4)


def _require(
    name: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype, like: Tensor
) -> Tensor:
    """A view of a buffer in the layout of the kernels; other dtypes and layouts raise."""
    if (
        isinstance(value, Tensor)
        and value.shape == shape
        and value.dtype is dtype
        and value.device == like.device
        and value.is_contiguous()
    ):
        return value
    validate.require_tensor(name, value, str(shape))
    if not _merges(tuple(value.shape), shape):
        raise ValueError(
            f"{name} must have shape {shape}, got {validate.shape_of(value)}; only "
            "neighbouring axes may be merged"
        )
    if value.dtype is not dtype:
        raise TypeError(f"{name} must be {dtype}, got {value.dtype}")
    if value.device != like.device:
        raise ValueError(
            f"{name} must be on device {like.device} like query_spheres, got {value.device}"
        )
    if not value.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {value.stride()}")
    return value.view(shape)


def _merges(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape is the wanted one with neighbouring axes merged, apart from axes of size 1.

    Then the elements are in the same order.
    """
    if math.prod(shape) != math.prod(wanted) or 0 in wanted:
        return math.prod(shape) == math.prod(wanted)
    axes = iter(wanted)
    for extent in shape:
        merged = 1
        while merged < extent:
            merged *= next(axes)
        if merged != extent:
            return False
    return True


def _check_scalars(spheres: Tensor, **scalars: Tensor) -> list[Tensor]:
    """Views (1,) of parameters by name; only the weight may be negative."""
    checked = []
    for name, value in scalars.items():
        checked.append(_require(name, value, (1,), torch.float32, spheres))
        if validate.is_checking():
            validate.require_finite(name, checked[-1])
            if name != "weight" and value.item() < 0.0:
                raise ValueError(f"{name} must not be negative, got {value.item()}")
    return checked


def _check_buffers(
    spheres: Tensor, cost: Tensor, grad: Tensor, active: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of the buffers by sphere, which share no memory with each other or the spheres."""
    shape = tuple(spheres.shape[:-1])
    views = (
        _require("out_cost", cost, shape, torch.float32, spheres),
        _require("out_grad", grad, (*shape, 4), torch.float32, spheres),
        _require("sparsity_idx", active, shape, torch.uint8, spheres),
    )
    named = {"query_spheres": spheres, "out_cost": cost, "out_grad": grad, "sparsity_idx": active}
    spans = sorted(
        (value.data_ptr(), value.data_ptr() + value.nbytes, name)
        for name, value in named.items()
        if value.nbytes
    )
    for (_, end, first), (begin, _, second) in itertools.pairwise(spans):
        if begin < end:
            raise ValueError(f"{first} and {second} must not share memory")
    for name, value in (("out_cost", cost), ("out_grad", grad)):
        if value.requires_grad:
            raise ValueError(f"{name} must not require a gradient, it is overwritten; detach it")
    return views


def _check_tables(
    spheres: Tensor, mesh_ids: Tensor, poses: Tensor, enabled: Tensor, n_meshes: Tensor
) -> Scene:
    """The scene of the meshes; the shape of the ids is (n_envs, max_meshes)."""
    validate.require_tensor("mesh_idx", mesh_ids, "(n_envs, max_meshes)")
    if mesh_ids.ndim != 2 or 0 in mesh_ids.shape:
        raise ValueError(
            "mesh_idx must have shape (n_envs, max_meshes), both above 0, "
            f"got {validate.shape_of(mesh_ids)}"
        )
    if mesh_ids.dtype is torch.uint64:
        mesh_ids = mesh_ids.view(torch.int64)
    shape = tuple(mesh_ids.shape)
    tables = MeshTables(
        _require("mesh_idx", mesh_ids, shape, torch.int64, spheres),
        _require("mesh_pose_inverse", poses, (*shape, 8), torch.float32, spheres),
        _require("mesh_enable", enabled, shape, torch.uint8, spheres),
        _require("n_env_mesh", n_meshes, shape[:1], torch.int32, spheres),
    )
    if validate.is_checking():
        check_values(tables, poses="mesh_pose_inverse", counts="n_env_mesh")
    return scene_of_tables(tables, spheres.numel() // 4)


def _check_env_index(value: Tensor | None, spheres: Tensor, scene: Scene) -> Tensor | None:
    """The env of each row as int32 (b,), from b integers of any type."""
    name, batch = "env_query_idx", spheres.shape[0]
    if value is not None:
        validate.require_tensor(name, value, f"({batch},)")
        if value.numel() != batch:
            raise ValueError(
                f"{name} must have {batch} elements, got shape {validate.shape_of(value)}"
            )
        if value.dtype is torch.bool or value.is_floating_point() or value.is_complex():
            raise TypeError(f"{name} must be integers, got {value.dtype}")
        if value.device != spheres.device:
            raise ValueError(
                f"{name} must be on device {spheres.device} like query_spheres, got {value.device}"
            )
        value = value.reshape(batch)
        if value.dtype is not torch.int32:
            value = value.to(torch.int64)
    return validate.env_operand(value, batch, scene.n_envs, spheres.device, name=name)

"""Drop-in Functions: torch autograd Functions that write cost and gradient buffers in place.

`SdfMeshWarpPy` and `SweptSdfMeshWarpPy` take the positional arguments that callers of Functions of
these names already hold, buffers included; results follow this library's contract.

| argument | shape, dtype | meaning |
|---|---|---|
| query_spheres | (b, h, n, 4) f32 | x, y, z, radius [m]; radius < 0: disabled |
| out_cost | (b, h, n) f32 | written in place, and returned as a view |
| out_grad | (b, h, n, 4) f32 | written in place: d (sum of costs) / d (x, y, z, radius) |
| sparsity_idx | (b, h, n) u8 | 1 where the cost is not 0, else 0, after every call |
| weight | (1,) f32 | factor of the cost |
| activation_distance | (1,) f32 | eta [m] |
| speed_dt | (1,) f32 | seconds between waypoints, for the speed metric |
| mesh_idx | (n_envs, max_meshes) i64 | Warp mesh ids; 0 is skipped |
| mesh_pose_inverse | (n_envs, max_meshes, 8) f32 | x, y, z, qw, qx, qy, qz, pad: world to mesh |
| mesh_enable | (n_envs, max_meshes) u8 | 1: checked, 0: skipped |
| n_env_mesh | (n_envs,) i32 | filled slots of each env |
| max_dist | (1,) f32 | clamps the ESDF outside [m]; never cuts a cost off |
| env_query_idx | (b,) i32 or None | env of each row; None: env 0 |
| sweep_steps | int | 0: no sweep; 1 or more: the certified sweep |
| enable_speed_metric | bool | scale by max(speed, 0.01 m/s) |
| return_loss | bool | backward applies the incoming gradient, or takes it for 1 |
| compute_esdf | bool | cost is weight times the distance, positive inside |

Spheres of other floating dtypes and layouts are converted once; the rest must be as it says.

Mesh ids may be those of a `MeshWorld` or of the caller's own `wp.Mesh`, which must be alive until
the kernel has run, hold a face, and be built with ``support_winding_number=True``; without
that Warp's ray method tells the sign, which errs on flipped and overlapping bodies. An id that is
neither 0 nor a living mesh ends the process; the mode `warp_collision.checking` finds it first.

A buffer that is overwritten between forward and backward raises in backward. Second derivatives and
`torch.func` transforms raise: a buffer of the caller has no batched or differentiable form.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.kernels.scene_distance import sphere_esdf
from warp_collision.launching.launch import SceneTables, launch
from warp_collision.torch_ops import operators
from warp_collision.torch_ops.second_derivatives import FirstOrderOnly, outside_graphs
from warp_collision.world.acceleration import with_acceleration
from warp_collision.world.queries import check_values

_NO_GRAPH = (
    "the drop-in Functions write buffers of the caller, which a graph cannot keep apart; use "
    "sphere_cost, swept_sphere_cost or signed_distance, or let the graph break here"
)


class SdfMeshWarpPy(torch.autograd.Function):
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
        spheres = _check_spheres(query_spheres)
        _check_scalars(
            spheres, weight=weight, activation_distance=activation_distance, max_dist=max_dist
        )
        _check_buffers(spheres, out_cost, out_grad, sparsity_idx)
        tables = _check_tables(spheres, mesh_idx, mesh_pose_inverse, mesh_enable, n_env_mesh)
        env_index = _check_env_index(env_query_idx, spheres, tables)
        if compute_esdf:
            launch(
                sphere_esdf,
                spheres.shape[:-1],
                *(spheres, env_index, with_acceleration(tables), weight, max_dist),
                *(out_cost, out_grad, sparsity_idx),
                device=spheres.device,
                items=out_cost.numel(),
            )
        else:
            operators.run_sphere_cost(
                spheres,
                tables,
                weight,
                activation_distance,
                env_index,
                True,
                cost=out_cost,
                gradient=out_grad,
                active=sparsity_idx,
            )
        # Warp writes behind torch's back: without this a stale buffer would go unnoticed.
        torch.autograd.graph.increment_version((out_cost, out_grad, sparsity_idx))
        ctx.return_loss = return_loss
        ctx.query_spheres = query_spheres
        ctx.save_for_backward(out_grad)
        return out_cost.view_as(out_cost)

    @staticmethod
    @outside_graphs(_NO_GRAPH)
    def backward(ctx: Any, grad_cost: Tensor) -> tuple[Any, ...]:  # noqa: D102
        (gradient,) = ctx.saved_tensors
        if ctx.return_loss:
            gradient = operators.run_pointwise_vjp(grad_cost, gradient)
        return _returned(gradient, ctx), *(None,) * 13


class SweptSdfMeshWarpPy(torch.autograd.Function):
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
        spheres = _check_spheres(query_spheres)
        _check_scalars(
            spheres,
            weight=weight,
            activation_distance=activation_distance,
            speed_dt=speed_dt,
            max_dist=max_dist,
        )
        _check_buffers(spheres, out_cost, out_grad, sparsity_idx)
        tables = _check_tables(spheres, mesh_idx, mesh_pose_inverse, mesh_enable, n_env_mesh)
        env_index = _check_env_index(env_query_idx, spheres, tables)
        if not isinstance(sweep_steps, int) or sweep_steps < 0:
            raise ValueError(f"sweep_steps must be an int, 0 or more, got {sweep_steps!r}")
        if sweep_steps == 0:
            tolerance = validate.scalar_operand(
                "tolerance without a sweep", torch.inf, spheres.device, finite=False
            )
        else:
            tolerance = operators.default_tolerance(activation_distance)
        # With an incoming gradient the parts of three waypoints are weighted apart in backward.
        own = torch.empty_like(out_grad) if return_loss else out_grad
        _, _, neighbours = operators.run_swept_cost(
            spheres,
            tables,
            weight,
            activation_distance,
            tolerance,
            speed_dt if enable_speed_metric else None,
            env_index,
            True,
            cost=out_cost,
            gradient=own,
            active=sparsity_idx,
        )
        assert neighbours is not None
        operators.run_swept_vjp(None, own, neighbours, out_grad)
        torch.autograd.graph.increment_version((out_cost, out_grad, sparsity_idx))
        ctx.return_loss = return_loss
        ctx.query_spheres = query_spheres
        # The buffer is saved in both cases, so that overwriting it raises in both.
        ctx.save_for_backward(out_grad, *((own, neighbours) if return_loss else ()))
        return out_cost.view_as(out_cost)

    @staticmethod
    @outside_graphs(_NO_GRAPH)
    def backward(ctx: Any, grad_cost: Tensor) -> tuple[Any, ...]:  # noqa: D102
        gradient, *parts = ctx.saved_tensors
        if ctx.return_loss:
            gradient = operators.run_swept_vjp(grad_cost.detach(), *parts)
        return _returned(gradient, ctx), *(None,) * 15


def _returned(gradient: Tensor, ctx: Any) -> Tensor:
    """What backward may return of a gradient: not the buffer, and nothing twice differentiable."""
    if torch.is_grad_enabled():  # create_graph
        return FirstOrderOnly.apply(gradient, ctx.query_spheres)
    # A leaf may keep what it is given as its .grad, and the next call writes the buffer.
    return gradient if ctx.return_loss else operators.run_pointwise_vjp(None, gradient)


# -- checks -------------------------------------------------------------------------------------


def _check_spheres(spheres: Tensor) -> Tensor:
    shape = "(b, h, n, 4)"
    device = validate.require_tensor("query_spheres", spheres, shape).device
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"query_spheres must be on a cpu or cuda device, got {device}")
    return validate.float_operand("query_spheres", spheres.detach(), 4, shape, device, ndim=4)


def _require(
    name: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype, like: Tensor
) -> None:
    """Requires exactly what a kernel reads or writes: there is no converting a buffer in place."""
    if (
        isinstance(value, Tensor)
        and value.shape == shape
        and value.dtype is dtype
        and value.device == like.device
        and value.is_contiguous()
    ):
        return
    validate.require_tensor(name, value, str(shape))
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {validate.shape_of(value)}")
    if value.dtype is not dtype:
        raise TypeError(f"{name} must be {dtype}, got {value.dtype}")
    if value.device != like.device:
        raise ValueError(
            f"{name} must be on device {like.device} like query_spheres, got {value.device}"
        )
    if not value.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {value.stride()}")


def _check_scalars(spheres: Tensor, **scalars: Tensor) -> None:
    for name, value in scalars.items():
        _require(name, value, (1,), torch.float32, spheres)
        if validate.is_checking():
            validate.require_finite(name, value)
            if name != "weight" and value.item() < 0.0:
                raise ValueError(f"{name} must not be negative, got {value.item()}")


def _check_buffers(spheres: Tensor, cost: Tensor, grad: Tensor, active: Tensor) -> None:
    shape = tuple(spheres.shape[:-1])
    _require("out_cost", cost, shape, torch.float32, spheres)
    _require("out_grad", grad, (*shape, 4), torch.float32, spheres)
    _require("sparsity_idx", active, shape, torch.uint8, spheres)
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


def _check_tables(
    spheres: Tensor, mesh_ids: Tensor, poses: Tensor, enabled: Tensor, n_meshes: Tensor
) -> SceneTables:
    validate.require_tensor("mesh_idx", mesh_ids, "(n_envs, max_meshes)")
    if mesh_ids.ndim != 2 or 0 in mesh_ids.shape:
        raise ValueError(
            "mesh_idx must have shape (n_envs, max_meshes), both above 0, "
            f"got {validate.shape_of(mesh_ids)}"
        )
    shape = tuple(mesh_ids.shape)
    _require("mesh_idx", mesh_ids, shape, torch.int64, spheres)
    _require("mesh_pose_inverse", poses, (*shape, 8), torch.float32, spheres)
    _require("mesh_enable", enabled, shape, torch.uint8, spheres)
    _require("n_env_mesh", n_meshes, shape[:1], torch.int32, spheres)
    tables = SceneTables(mesh_ids, poses, enabled, n_meshes, None)
    if validate.is_checking():
        check_values(tables, poses="mesh_pose_inverse", ids="mesh_idx", counts="n_env_mesh")
    return tables


def _check_env_index(value: Tensor | None, spheres: Tensor, tables: SceneTables) -> Tensor | None:
    if value is not None:
        _require("env_query_idx", value, (spheres.shape[0],), torch.int32, spheres)
    return validate.env_operand(
        value, spheres.shape[0], tables.mesh_ids.shape[0], spheres.device, name="env_query_idx"
    )

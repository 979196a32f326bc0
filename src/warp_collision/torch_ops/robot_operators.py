"""Forward kinematics as torch operators, with Jacobian products.

Operands other than constants have a row for each configuration. The eager path calls the `run_*`
functions, without the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import kinematics as kinematics_kernels
from warp_collision.launching.launch import launch
from warp_collision.torch_ops.second_derivatives import refuse_tangents

# Sizes in float32 of the structs that kernels store for each frame.
_FRAME_POSE, _WRENCH, _TWIST = 12, 6, 6


def run_forward_kinematics(
    joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor
) -> tuple[Tensor, Tensor]:
    """Points (n, n_points, 4) of frames at joint values (n, n_joints), and poses of the frames."""
    n = joints.shape[0]
    moved = joints.new_empty((n, points.shape[0], 4))
    frame_poses = joints.new_empty((n, frames.shape[0], _FRAME_POSE))
    launch(
        kinematics_kernels.place_points,
        (n,),
        *(joints, frames, ranges, points, moved, frame_poses),
        device=joints.device,
        items=n,
    )
    return moved, frame_poses


def run_forward_kinematics_vjp(
    upstream: Tensor,
    joints: Tensor,
    frame_poses: Tensor,
    frames: Tensor,
    ranges: Tensor,
    points: Tensor,
) -> Tensor:
    """Gradient (n, n_joints) by the joint values from that by the points (n, n_points, 4)."""
    n = joints.shape[0]
    wrenches = joints.new_empty((n, frames.shape[0], _WRENCH))
    total = torch.empty_like(joints)
    launch(
        kinematics_kernels.place_points_vjp,
        (n,),
        *(upstream.contiguous(), frame_poses, frames, ranges, points, wrenches, total),
        device=joints.device,
        items=n,
    )
    return total


def run_forward_kinematics_jvp(
    rates: Tensor,
    joints: Tensor,
    frame_poses: Tensor,
    frames: Tensor,
    ranges: Tensor,
    points: Tensor,
) -> Tensor:
    """Velocity (n, n_points, 4) of the points from rates (n, n_joints) of the joint values."""
    n = joints.shape[0]
    twists = joints.new_empty((n, frames.shape[0], _TWIST))
    velocity = rates.new_empty((n, points.shape[0], 4))
    launch(
        kinematics_kernels.place_points_jvp,
        (n,),
        *(rates.contiguous(), frame_poses, frames, ranges, points, twists, velocity),
        device=joints.device,
        items=n,
    )
    return velocity


def run_forward_kinematics_jacobian(
    joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor
) -> Tensor:
    """Jacobian (n, n_points, 3, n_joints) of the points by the joint values (n, n_joints)."""
    frame_poses = run_forward_kinematics(joints, frames, ranges, points)[1]
    columns = []
    for value in range(joints.shape[1]):
        rates = torch.zeros_like(joints)
        rates[:, value] = 1.0
        velocity = run_forward_kinematics_jvp(rates, joints, frame_poses, frames, ranges, points)
        columns.append(velocity[..., :3])
    return torch.stack(columns, dim=-1)


# -- operators ----------------------------------------------------------------------------------


@torch.library.custom_op("warp_collision::forward_kinematics", mutates_args=())
def forward_kinematics(
    joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor
) -> tuple[Tensor, Tensor]:
    """Points on the frames of a robot in the world, and poses of the frames."""
    refuse_tangents()
    return run_forward_kinematics(joints.contiguous(), frames, ranges, points)


def _product(name: str, run: Callable[..., Tensor]) -> Any:
    """The operator of a Jacobian product."""

    @torch.library.custom_op(
        f"warp_collision::forward_kinematics_{name}",
        mutates_args=(),
        schema="(Tensor vector, Tensor joints, Tensor frame_poses, "
        "Tensor frames, Tensor ranges, Tensor points) -> Tensor",
    )
    def product(vector: Tensor, joints: Tensor, frame_poses: Tensor, *robot: Tensor) -> Tensor:
        refuse_tangents()
        return run(vector, joints.contiguous(), frame_poses.contiguous(), *robot)

    return product


forward_kinematics_vjp = _product("vjp", run_forward_kinematics_vjp)
forward_kinematics_jvp = _product("jvp", run_forward_kinematics_jvp)


@torch.library.custom_op("warp_collision::forward_kinematics_jacobian", mutates_args=())
def forward_kinematics_jacobian(
    joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor
) -> Tensor:
    """Jacobian of the points, which has no derivative; callers pass detached joints."""
    return run_forward_kinematics_jacobian(joints.contiguous(), frames, ranges, points)


@forward_kinematics.register_fake
def _(joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    n = joints.shape[0]
    frame_poses = joints.new_empty((n, frames.shape[0], _FRAME_POSE))
    return joints.new_empty((n, points.shape[0], 4)), frame_poses


@forward_kinematics_jacobian.register_fake
def _(joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor) -> Tensor:
    return joints.new_empty((joints.shape[0], points.shape[0], 3, joints.shape[1]))


@forward_kinematics_vjp.register_fake
def _(upstream: Tensor, joints: Tensor, *_: Tensor) -> Tensor:
    return joints.new_empty(joints.shape)


@forward_kinematics_jvp.register_fake
def _(rates: Tensor, joints: Tensor, _: Tensor, __: Tensor, ___: Tensor, points: Tensor) -> Tensor:
    return rates.new_empty((joints.shape[0], points.shape[0], 4))


# -- batching -----------------------------------------------------------------------------------


def batch_over_rows(operator: Callable[..., Any], n_rowwise: int) -> Callable[..., Any]:
    """A batching rule: a mapped axis adds rows.

    Args:
        operator: its first operands have a row for each configuration, the others are constants.
        n_rowwise: number of the first ones.
    """

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        if any(dim is not None for dim in in_dims[n_rowwise:]):
            raise NotImplementedError("the constants of a robot cannot be mapped by vmap")
        size = info.batch_size
        folded = [
            (arg.expand(size, *arg.shape) if dim is None else arg.movedim(dim, 0)).flatten(0, 1)
            for arg, dim in zip(args[:n_rowwise], in_dims, strict=False)
        ]
        found = operator(*folded, *args[n_rowwise:])
        if isinstance(found, Tensor):
            return found.unflatten(0, (size, -1)), 0
        return tuple(part.unflatten(0, (size, -1)) for part in found), (0,) * len(found)

    return rule


forward_kinematics.register_vmap(batch_over_rows(forward_kinematics, 1))
forward_kinematics_jacobian.register_vmap(batch_over_rows(forward_kinematics_jacobian, 1))
forward_kinematics_vjp.register_vmap(batch_over_rows(forward_kinematics_vjp, 3))
forward_kinematics_jvp.register_vmap(batch_over_rows(forward_kinematics_jvp, 3))

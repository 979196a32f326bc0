"""Kinematics and self-collision as torch operators, with their products with the Jacobian.

All operands but constants have a row for each configuration. The `run_*` functions underneath are
what the eager path calls without the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import kinematics as kinematics_kernels
from warp_collision.launching.launch import launch
from warp_collision.torch_ops.second_derivatives import refuse_tangents

# Numbers of float32 in the structs that kernels keep for each frame.
_FRAME_POSE, _WRENCH, _TWIST = 12, 6, 6


def run_place_points(
    joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor
) -> tuple[Tensor, Tensor]:
    """Points (n, n_points, 4) of frames at joint values (n, n_joints), and poses of the frames."""
    n = joints.shape[0]
    placed = joints.new_empty((n, points.shape[0], 4))
    frame_poses = joints.new_empty((n, frames.shape[0], _FRAME_POSE))
    launch(
        kinematics_kernels.place_points,
        (n,),
        *(joints, frames, ranges, points, placed, frame_poses),
        device=joints.device,
        items=n,
    )
    return placed, frame_poses


def run_place_points_vjp(
    upstream: Tensor,
    joints: Tensor,
    frame_poses: Tensor,
    frames: Tensor,
    ranges: Tensor,
    points: Tensor,
) -> Tensor:
    """Gradient (n, n_joints) from that by the points (n, n_points, 4)."""
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


def run_place_points_jvp(
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


# -- operators ----------------------------------------------------------------------------------


@torch.library.custom_op("warp_collision::place_points", mutates_args=())
def place_points(
    joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor
) -> tuple[Tensor, Tensor]:
    """Points on the frames of a robot in the world, and the frames."""
    refuse_tangents()
    return run_place_points(joints.contiguous(), frames, ranges, points)


@torch.library.custom_op("warp_collision::place_points_vjp", mutates_args=())
def place_points_vjp(
    upstream: Tensor,
    joints: Tensor,
    frame_poses: Tensor,
    frames: Tensor,
    ranges: Tensor,
    points: Tensor,
) -> Tensor:
    """Gradient by the joint values."""
    refuse_tangents()
    joints, frame_poses = joints.contiguous(), frame_poses.contiguous()
    return run_place_points_vjp(upstream, joints, frame_poses, frames, ranges, points)


@torch.library.custom_op("warp_collision::place_points_jvp", mutates_args=())
def place_points_jvp(
    rates: Tensor,
    joints: Tensor,
    frame_poses: Tensor,
    frames: Tensor,
    ranges: Tensor,
    points: Tensor,
) -> Tensor:
    """Velocity of the points."""
    refuse_tangents()
    joints, frame_poses = joints.contiguous(), frame_poses.contiguous()
    return run_place_points_jvp(rates, joints, frame_poses, frames, ranges, points)


@place_points.register_fake
def _(joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    n = joints.shape[0]
    frame_poses = joints.new_empty((n, frames.shape[0], _FRAME_POSE))
    return joints.new_empty((n, points.shape[0], 4)), frame_poses


@place_points_vjp.register_fake
def _(upstream: Tensor, joints: Tensor, *_: Tensor) -> Tensor:
    return joints.new_empty(joints.shape)


@place_points_jvp.register_fake
def _(rates: Tensor, joints: Tensor, _: Tensor, __: Tensor, ___: Tensor, points: Tensor) -> Tensor:
    return rates.new_empty((joints.shape[0], points.shape[0], 4))


# -- batching -----------------------------------------------------------------------------------


def batch_over_rows(operator: Callable[..., Any], n_rowwise: int) -> Callable[..., Any]:
    """A batching rule: a mapped axis makes more rows.

    Args:
        operator: its first operands have a row for each configuration, the others are constants.
        n_rowwise: how many do.
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


place_points.register_vmap(batch_over_rows(place_points, 1))
place_points_vjp.register_vmap(batch_over_rows(place_points_vjp, 3))
place_points_jvp.register_vmap(batch_over_rows(place_points_jvp, 3))

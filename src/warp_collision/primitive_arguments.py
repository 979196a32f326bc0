"""Validation of the arguments of the drop-in Functions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from warp_collision import devices, validate
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.world.scene_storage import check_values


def check_spheres(spheres: Tensor) -> Tensor:
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


def check_scalars(spheres: Tensor, **scalars: Tensor) -> list[Tensor]:
    """Views (1,) of parameters by name; only the weight may be negative."""
    checked = []
    for name, value in scalars.items():
        checked.append(_require(name, value, (1,), torch.float32, spheres))
        if validate.is_checking():
            validate.require_finite(name, checked[-1])
            if name != "weight" and value.item() < 0.0:
                raise ValueError(f"{name} must not be negative, got {value.item()}")
    return checked


def check_buffers(
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


def check_tables(
    spheres: Tensor, mesh_ids: Tensor, poses: Tensor, enabled: Tensor, n_meshes: Tensor
) -> SceneTables:
    """The tables of the meshes; the shape of the ids is (n_envs, max_meshes)."""
    validate.require_tensor("mesh_idx", mesh_ids, "(n_envs, max_meshes)")
    if mesh_ids.ndim != 2 or 0 in mesh_ids.shape:
        raise ValueError(
            "mesh_idx must have shape (n_envs, max_meshes), both above 0, "
            f"got {validate.shape_of(mesh_ids)}"
        )
    if mesh_ids.dtype is torch.uint64:
        mesh_ids = mesh_ids.view(torch.int64)
    shape = tuple(mesh_ids.shape)
    tables = SceneTables(
        _require("mesh_idx", mesh_ids, shape, torch.int64, spheres),
        _require("mesh_pose_inverse", poses, (*shape, 8), torch.float32, spheres),
        _require("mesh_enable", enabled, shape, torch.uint8, spheres),
        _require("n_env_mesh", n_meshes, shape[:1], torch.int32, spheres),
        None,
    )
    if validate.is_checking():
        check_values(tables, poses="mesh_pose_inverse", ids="mesh_idx", counts="n_env_mesh")
    return tables


def check_env_index(value: Tensor | None, spheres: Tensor, tables: SceneTables) -> Tensor | None:
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
    return validate.env_operand(value, batch, tables.mesh_ids.shape[0], spheres.device, name=name)

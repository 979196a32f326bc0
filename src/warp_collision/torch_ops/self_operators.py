"""The cost of a robot's spheres against each other as torch operators; see `robot_operators`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import self_collision as kernels
from warp_collision.launching.launch import launch
from warp_collision.torch_ops.robot_operators import batch_over_rows
from warp_collision.torch_ops.second_derivatives import refuse_tangents

_PAIRS = "Tensor groups, Tensor group_pairs, Tensor pairs"
_CONSTANTS = f"{_PAIRS}, Tensor weight, Tensor activation_distance"


def _launch(
    spheres: Tensor,
    constants: tuple[Tensor, ...],
    *outputs: Tensor | None,
    upstream: Tensor | None = None,
    rates: Tensor | None = None,
) -> None:
    balls = spheres.new_empty((spheres.shape[0], constants[0].shape[0], 4))
    launch(
        kernels.self_collision,
        spheres.shape[:1],
        *(spheres, *constants, upstream, rates, balls, *outputs),
        device=spheres.device,
        items=8 * spheres.shape[0],
    )


def run_self_collision(spheres: Tensor, *constants: Tensor) -> tuple[Tensor]:
    """Cost (n, n_spheres) of spheres (n, n_spheres, 4)."""
    cost = spheres.new_empty(spheres.shape[:-1])
    _launch(spheres, constants, cost, None)
    return (cost,)


def run_self_collision_vjp(upstream: Tensor, spheres: Tensor, *constants: Tensor) -> Tensor:
    """Gradient (n, n_spheres, 4) by the spheres from that by the costs."""
    total = torch.empty_like(spheres)
    upstream = upstream.contiguous()
    _launch(spheres, constants, None, total, upstream=upstream)
    return total


def run_self_collision_jvp(rates: Tensor, spheres: Tensor, *constants: Tensor) -> Tensor:
    """Rates of the costs from those of the spheres."""
    cost = spheres.new_empty(spheres.shape[:-1])
    _launch(spheres, constants, cost, None, rates=rates.contiguous())
    return cost


def _operator(name: str, operands: str) -> Any:
    """Makes a function an operator with one output."""
    return torch.library.custom_op(
        f"warp_collision::{name}", mutates_args=(), schema=f"({operands}) -> Tensor"
    )


@_operator("self_collision", f"Tensor spheres, {_CONSTANTS}")
def self_collision(spheres: Tensor, *constants: Tensor) -> Tensor:
    """Cost of each sphere: half the cost of each of its pairs."""
    refuse_tangents()
    return run_self_collision(spheres.contiguous(), *constants)[0]


@_operator("self_collision_vjp", f"Tensor upstream, Tensor spheres, {_CONSTANTS}")
def self_collision_vjp(upstream: Tensor, spheres: Tensor, *constants: Tensor) -> Tensor:
    """Gradient by the spheres."""
    refuse_tangents()
    return run_self_collision_vjp(upstream, spheres.contiguous(), *constants)


@_operator("self_collision_jvp", f"Tensor rates, Tensor spheres, {_CONSTANTS}")
def self_collision_jvp(rates: Tensor, spheres: Tensor, *constants: Tensor) -> Tensor:
    """Rates of the costs."""
    refuse_tangents()
    return run_self_collision_jvp(rates, spheres.contiguous(), *constants)


@_operator("closest_pair", f"Tensor spheres, {_PAIRS}")
def closest_pair(spheres: Tensor, groups: Tensor, group_pairs: Tensor, pairs: Tensor) -> Tensor:
    """The pair of spheres (n, 2) int32 of each row with the smallest clearance; -1: no pairs."""
    spheres = spheres.contiguous()
    balls = spheres.new_empty((spheres.shape[0], groups.shape[0], 4))
    closest = spheres.new_empty((spheres.shape[0], 2), dtype=torch.int32)
    launch(
        kernels.closest_pair,
        spheres.shape[:1],
        *(spheres, groups, group_pairs, pairs, balls, closest),
        device=spheres.device,
        items=8 * spheres.shape[0],
    )
    return closest


@self_collision.register_fake
def _(spheres: Tensor, *_: Tensor) -> Tensor:
    return spheres.new_empty(spheres.shape[:-1])


@self_collision_vjp.register_fake
def _(_: Tensor, spheres: Tensor, *__: Tensor) -> Tensor:
    return spheres.new_empty(spheres.shape)


@self_collision_jvp.register_fake
def _(_: Tensor, spheres: Tensor, *__: Tensor) -> Tensor:
    return spheres.new_empty(spheres.shape[:-1])


@closest_pair.register_fake
def _(spheres: Tensor, *_: Any) -> Tensor:
    return spheres.new_empty((spheres.shape[0], 2), dtype=torch.int32)


self_collision.register_vmap(batch_over_rows(self_collision, 1))
self_collision_vjp.register_vmap(batch_over_rows(self_collision_vjp, 2))
self_collision_jvp.register_vmap(batch_over_rows(self_collision_jvp, 2))
closest_pair.register_vmap(batch_over_rows(closest_pair, 1))

"""The cost of a robot's spheres against each other as torch operators; see `robot_operators`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import self_collision as kernels
from warp_collision.launching.launch import launch
from warp_collision.torch_ops.robot_operators import batch_over_rows
from warp_collision.torch_ops.second_derivatives import refuse_tangents

# Constants of all operators: groups, group pairs, pairs, weight and activation distance.
_Constants = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _launch(
    spheres: Tensor,
    constants: _Constants,
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
    _launch(spheres, constants, cost, None)  # pyright: ignore[reportArgumentType]
    return (cost,)


def run_self_collision_vjp(upstream: Tensor, spheres: Tensor, *constants: Tensor) -> Tensor:
    """Gradient (n, n_spheres, 4) by the spheres from that by the costs."""
    total = torch.empty_like(spheres)
    upstream = upstream.contiguous()
    _launch(spheres, constants, None, total, upstream=upstream)  # pyright: ignore[reportArgumentType]
    return total


def run_self_collision_jvp(rates: Tensor, spheres: Tensor, *constants: Tensor) -> Tensor:
    """Rates of the costs from those of the spheres."""
    cost = spheres.new_empty(spheres.shape[:-1])
    _launch(spheres, constants, cost, None, rates=rates.contiguous())  # pyright: ignore[reportArgumentType]
    return cost


@torch.library.custom_op("warp_collision::self_collision", mutates_args=())
def self_collision(
    spheres: Tensor,
    groups: Tensor,
    group_pairs: Tensor,
    pairs: Tensor,
    weight: Tensor,
    activation_distance: Tensor,
) -> Tensor:
    """Cost of each sphere: half the cost of each of its pairs."""
    refuse_tangents()
    constants = groups, group_pairs, pairs, weight, activation_distance
    return run_self_collision(spheres.contiguous(), *constants)[0]


@torch.library.custom_op("warp_collision::self_collision_vjp", mutates_args=())
def self_collision_vjp(
    upstream: Tensor,
    spheres: Tensor,
    groups: Tensor,
    group_pairs: Tensor,
    pairs: Tensor,
    weight: Tensor,
    activation_distance: Tensor,
) -> Tensor:
    """Gradient by the spheres."""
    refuse_tangents()
    constants = groups, group_pairs, pairs, weight, activation_distance
    return run_self_collision_vjp(upstream, spheres.contiguous(), *constants)


@torch.library.custom_op("warp_collision::self_collision_jvp", mutates_args=())
def self_collision_jvp(
    rates: Tensor,
    spheres: Tensor,
    groups: Tensor,
    group_pairs: Tensor,
    pairs: Tensor,
    weight: Tensor,
    activation_distance: Tensor,
) -> Tensor:
    """Rates of the costs."""
    refuse_tangents()
    constants = groups, group_pairs, pairs, weight, activation_distance
    return run_self_collision_jvp(rates, spheres.contiguous(), *constants)


@torch.library.custom_op("warp_collision::closest_pair", mutates_args=())
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
def _(upstream: Tensor, spheres: Tensor, *_: Tensor) -> Tensor:
    return spheres.new_empty(spheres.shape)


@self_collision_jvp.register_fake
def _(rates: Tensor, spheres: Tensor, *_: Tensor) -> Tensor:
    return spheres.new_empty(spheres.shape[:-1])


@closest_pair.register_fake
def _(spheres: Tensor, *_: Any) -> Tensor:
    return spheres.new_empty((spheres.shape[0], 2), dtype=torch.int32)


self_collision.register_vmap(batch_over_rows(self_collision, 1))
self_collision_vjp.register_vmap(batch_over_rows(self_collision_vjp, 2))
self_collision_jvp.register_vmap(batch_over_rows(self_collision_jvp, 2))
closest_pair.register_vmap(batch_over_rows(closest_pair, 1))

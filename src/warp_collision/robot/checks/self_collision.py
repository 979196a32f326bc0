"""Self-collision of a robot: cost and clearance of pairs of its spheres."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.kernels.pair_cost import COINCIDENT
from warp_collision.queries import robot_queries
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.summaries import summary

_SPHERES_SHAPE = "(batch, horizon, n_spheres, 4)"


class SelfClearance(NamedTuple):
    """Result of `self_clearance`.

    Attributes:
        clearance: (batch, horizon) [m], smallest distance between the surfaces of two spheres,
            negative where they overlap; +inf without pairs.
        first: (batch, horizon) int32, one of the two spheres, -1 for none.
        second: (batch, horizon) int32, the other one.
    """

    clearance: Tensor
    first: Tensor
    second: Tensor

    __repr__ = summary


def self_collision_cost(
    spheres: Tensor,
    pairs: SelfCollisionPairs,
    *,
    weight: float | Tensor = 1.0,
    activation_distance: float | Tensor = 0.01,
) -> Tensor:
    """Cost of a robot's spheres against each other.

    Spheres that were fitted to shapes are seen smaller, by half of how far those of their link
    stick out at most, as links would cost that only stand near each other: the cost guides, and
    checks prove what is free.

    The cost of a pair is `h(r + r' + eta - |c - c'|)` with the hinge of `sphere_cost`, half of it
    for each of the two spheres. The gradient is exact for any incoming gradient; where two centers
    coincide it has a fixed direction.

    Args:
        spheres: (batch, horizon, n_spheres, 4) x, y, z, radius [m] of the robot; a radius below 0
            disables a sphere.
        pairs: the pairs to check, from `RobotSpheres.self_collision_pairs`.
        weight: factor of the cost; a tensor may require a gradient.
        activation_distance: eta [m], the clearance below which a pair costs.

    Returns:
        (batch, horizon, n_spheres) float32; NaN for spheres of pairs that are not finite.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range.

    Example:
        >>> import torch
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.robot import self_collision_cost
        >>> panda = load_panda()
        >>> pairs = panda.self_collision_pairs()
        >>> joints = torch.tensor([[[0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8]]])
        >>> self_collision_cost(panda.spheres(joints), pairs).sum().item()
        0.0
        >>> folded = torch.tensor([[[0.0, 1.7, 0.0, -3.0, 0.0, 0.0, 0.8]]])
        >>> self_collision_cost(panda.spheres(folded), pairs).sum().item() > 0.1
        True
    """
    spheres = spheres_operand(spheres, pairs)
    device = spheres.device
    eta = validate.scalar_operand("activation_distance", activation_distance, device)
    factor = validate.scalar_operand("weight", weight, device, any_sign=True, differentiable=True)
    unit = validate.scalar_operand("weight", 1.0, device)
    tables = pairs.tables(device)
    flat = spheres.flatten(0, 1)
    cost = robot_queries.SELF_COLLISION.evaluate(flat, *tables, unit, eta)
    return (cost if factor is unit else cost * factor).reshape(spheres.shape[:-1])


def self_clearance(spheres: Tensor, pairs: SelfCollisionPairs) -> SelfClearance:
    """Smallest clearance between two spheres of a robot, as `self_collision_cost` sees them.

    No bound for robots with fitted spheres: `joint_path_clearance` has those of their shapes.

    Args:
        spheres: (batch, horizon, n_spheres, 4); see `self_collision_cost`.
        pairs: the pairs to check.

    Returns:
        The clearance, differentiable with respect to the spheres, and the pair; see
        `SelfClearance`. Where the two centers coincide its gradient has the fixed direction of
        `self_collision_cost`.

    Raises:
        TypeError, ValueError: as `self_collision_cost`.

    Example:
        >>> import torch
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.robot import self_clearance
        >>> panda = load_panda()
        >>> joints = torch.tensor([[[0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8]]])
        >>> closest = self_clearance(panda.spheres(joints), panda.self_collision_pairs())
        >>> links = [panda.sphere_links[i] for i in (closest.first.item(), closest.second.item())]
        >>> closest.clearance.item() > 0.01, links
        (True, ['panda_link5', 'panda_link7'])
    """
    spheres = spheres_operand(spheres, pairs)
    flat = spheres.flatten(0, 1)
    closest = robot_queries.closest_pair(flat.detach(), *pairs.tables(spheres.device))
    chosen = closest.clamp(min=0).long().unsqueeze(-1).expand(-1, -1, 4)
    if flat.shape[1] == 0:
        gap = flat.new_full(flat.shape[:1], torch.inf)
    else:
        first, second = flat.gather(1, chosen).unbind(1)
        gap = _distance(first, second) - first[:, 3] - second[:, 3]
        gap = torch.where(closest[:, 0] < 0, torch.inf, gap)
    shape = spheres.shape[:2]
    return SelfClearance(gap.reshape(shape), *(c.reshape(shape) for c in closest.unbind(-1)))


def _distance(first: Tensor, second: Tensor) -> Tensor:
    """Distance between the centers of spheres (n, 4); where they coincide, with a gradient along x.

    That is the direction of the cost there; the gradient of a norm would be 0.
    """
    offset = first[:, :3] - second[:, :3]
    coincide = offset.square().sum(-1) < COINCIDENT
    apart = torch.where(coincide[:, None], 1.0, offset)
    return torch.where(coincide, offset[:, 0], torch.linalg.vector_norm(apart, dim=-1))


def spheres_operand(spheres: Tensor, pairs: SelfCollisionPairs) -> Tensor:
    """Spheres as their pairs are checked; requires that they belong together."""
    if not isinstance(pairs, SelfCollisionPairs):
        raise TypeError(f"pairs must be SelfCollisionPairs, got {type(pairs).__name__}")
    validate.require_tensor("spheres", spheres, _SPHERES_SHAPE)
    spheres = validate.float_operand("spheres", spheres, 4, _SPHERES_SHAPE, spheres.device, ndim=4)
    if spheres.shape[2] != pairs.n_spheres:
        raise ValueError(
            f"spheres must have shape {_SPHERES_SHAPE} with n_spheres = {pairs.n_spheres} as the "
            f"pairs, got {validate.shape_of(spheres)}"
        )
    return pairs.drawn_in(spheres)

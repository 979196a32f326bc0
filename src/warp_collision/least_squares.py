"""Curvature for optimizers, without second derivatives: Gauss-Newton on residuals.

The second derivative of a collision cost is not defined. Second-order methods can use a cost that
is half the sum of squared residuals: the product of their Jacobian with itself is positive
semi-definite, and near a solution close to the Hessian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class GaussNewton(NamedTuple):
    """The model ``1/2 |residual + jacobian @ step|^2`` of a cost around a point x.

    Attributes:
        residual: (m,).
        jacobian: (m, n), d residual / d x, with x flattened.
        gradient: (n,), ``jacobian.T @ residual``: the exact gradient of ``1/2 |residual|^2``.
        hessian: (n, n), ``jacobian.T @ jacobian``: its Hessian without the residuals' curvature.
    """

    residual: Tensor
    jacobian: Tensor
    gradient: Tensor
    hessian: Tensor

    def step(self, damping: float | Tensor = 1e-3) -> Tensor:
        """The step (n,) of Levenberg and Marquardt: ``-(hessian + damping I)^-1 gradient``.

        Args:
            damping: above 0, in units of the Hessian. The larger it is, the shorter the step and
                the closer to steepest descent: a small enough step always lowers the cost.

        Raises:
            ValueError: a damping that is not above 0. Without damping the step is not bounded in
                directions that no residual depends on.
        """
        if not isinstance(damping, Tensor) and not damping > 0.0:
            raise ValueError(f"damping must be positive, got {damping}")
        identity = torch.eye(
            self.hessian.shape[-1], dtype=self.hessian.dtype, device=self.hessian.device
        )
        return -torch.linalg.solve(self.hessian + damping * identity, self.gradient)


def cost_residuals(cost: Tensor) -> Tensor:
    """Residuals ``sqrt(2 cost)``: half the sum of their squares is the sum of the costs.

    At a cost of 0 the square root has no derivative. A collision cost is ``d^2 / (2 eta)`` near
    there, so its residual is ``max(0, d) / sqrt(eta)``, with a kink: slope 0 on the free side,
    1 / sqrt(eta) on the other. At 0 the derivative is that of the free side, 0, and never NaN.

    Args:
        cost: any shape, not negative.

    Returns:
        Same shape; NaN where the cost is negative or NaN.

    Example:
        >>> import torch
        >>> from warp_collision import cost_residuals
        >>> cost = torch.tensor([0.0, 2.0], requires_grad=True)
        >>> cost_residuals(cost).sum().backward()
        >>> cost.grad.tolist()
        [0.0, 0.5]
    """
    free = cost == 0.0
    # Square root of 1 instead of 0, where the infinite derivative times the mask's 0 is NaN.
    return torch.where(free, 0.0, torch.sqrt(2.0 * torch.where(free, 1.0, cost)))


def clearance_residuals(clearance: Tensor, margin: float | Tensor = 0.0) -> Tensor:
    """Residuals ``max(0, margin - clearance)``: the violation of a margin [m].

    Args:
        clearance: any shape [m], as from `clearance`; +inf (no obstacle) gives 0.
        margin: clearance to keep [m], broadcast.

    Returns:
        Same shape. Its derivative is 0 where the margin is kept, also at the kink.

    Example:
        >>> import torch
        >>> from warp_collision import clearance_residuals
        >>> clearance_residuals(torch.tensor([0.01, 0.5, torch.inf]), margin=0.02).tolist()
        [0.009999999776482582, 0.0, 0.0]
    """
    return torch.relu(margin - clearance)


def gauss_newton(
    residuals: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    mode: Literal["reverse", "forward"] = "reverse",
    chunk_size: int | None = None,
) -> GaussNewton:
    """Linearises residuals around a point.

    Args:
        residuals: maps x to residuals of any shape, differentiable once; see `cost_residuals` and
            `clearance_residuals`, and join terms with `torch.cat`.
        x: any shape, floating point: what to optimise, such as the waypoints of one trajectory.
            `torch.func.vmap` gives one model per trajectory of a batch.
        mode: of differentiation: "reverse" takes a pass per residual, "forward" one per element of
            x, batched; forward mode is not defined for poses of meshes.
        chunk_size: number of passes in a batch in reverse mode, to bound the memory; None for all
            of them.

    Returns:
        The model; see `GaussNewton`.

    Raises:
        ValueError: another mode, or a chunk size in forward mode.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, cost_residuals, gauss_newton, sphere_cost
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> def residuals(center):
        ...     sphere = torch.cat((center, torch.tensor([0.1]))).reshape(1, 1, 1, 4)
        ...     return cost_residuals(sphere_cost(sphere, world, activation_distance=0.05))
        >>> center = torch.tensor([0.63, 0.0, 0.0])  # 2 cm to go until the cost is 0
        >>> step = gauss_newton(residuals, center).step(damping=1e-6)
        >>> round(step.norm().item(), 3)
        0.02
    """
    if mode not in ("reverse", "forward"):
        raise ValueError(f"mode must be 'reverse' or 'forward', got {mode!r}")
    if mode == "forward" and chunk_size is not None:
        raise ValueError(f"chunk_size must be None in forward mode, got {chunk_size}")

    def flat(values: Tensor) -> tuple[Tensor, Tensor]:
        result = residuals(values.reshape(x.shape)).reshape(-1)
        return result, result

    if mode == "reverse":
        linearise = torch.func.jacrev(flat, has_aux=True, chunk_size=chunk_size)
    else:
        linearise = torch.func.jacfwd(flat, has_aux=True)
    jacobian, residual = linearise(x.reshape(-1))
    transposed = jacobian.mT
    return GaussNewton(residual, jacobian, transposed @ residual, transposed @ jacobian)

"""Autograd of the operators: exact vector-Jacobian products; second derivatives raise.

Each operator has two paths, see `dispatch`: in plain eager code a Function launches the kernel
directly, everything else goes through one Function over the custom operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from warp_collision import torch_private
from warp_collision.torch_ops import operators, pose_operators
from warp_collision.torch_ops.second_derivatives import (
    NO_SECOND,
    FirstOrderOnly,
    NoDerivative,
    Refused,
)

_NO_PARAMETERS = (
    "activation_distance, max_distance, tolerance, dt and min_speed must not require a gradient, "
    "none is defined; detach them"
)
_NO_FORWARD = (
    "forward mode is defined for spheres and points only; use reverse mode for poses, and detach "
    "activation_distance, max_distance, tolerance, dt and min_speed"
)


def _first_order(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [FirstOrderOnly.apply(t, None) if t.is_floating_point() else t for t in tensors]


# -- products with the Jacobian of an operator with respect to its spheres ------------------------


def _pointwise_vjp(upstream: Tensor, gradient: Tensor, _: Any = None) -> Tensor:
    return upstream.unsqueeze(-1) * gradient


def _pointwise_jvp(tangent: Tensor, gradient: Tensor, _: Any = None) -> Tensor:
    return (gradient * tangent).sum(-1)


def _swept_vjp(upstream: Tensor, gradient: Tensor, neighbours: Tensor) -> Tensor:
    to_neighbours = upstream[..., None, None] * neighbours
    # Padding turns centers into spheres on the last axis and shifts waypoints on the second.
    from_before = pad(to_neighbours[:, :-1, :, 1], (0, 1, 0, 0, 1, 0))
    from_after = pad(to_neighbours[:, 1:, :, 0], (0, 1, 0, 0, 0, 1))
    return upstream.unsqueeze(-1) * gradient + from_before + from_after


def _swept_jvp(tangent: Tensor, gradient: Tensor, neighbours: Tensor) -> Tensor:
    center = tangent[..., :3]
    before = pad(center[:, :-1], (0, 0, 0, 0, 1, 0))
    after = pad(center[:, 1:], (0, 0, 0, 0, 0, 1))
    adjacent = torch.stack((before, after), dim=-2)
    return (gradient * tangent).sum(-1) + (neighbours * adjacent).sum((-2, -1))


class _Rule(NamedTuple):
    operator: Callable[..., tuple[Tensor, ...]]
    vjp: Callable[..., Tensor]
    jvp: Callable[..., Tensor]
    # Takes the inputs and further outputs of the operator, and the gradient by its first output.
    pose_vjp: Callable[[Sequence[Any], Sequence[Tensor], Tensor], Tensor]


def _distance_pose_vjp(inputs: Sequence[Any], linear: Sequence[Tensor], upstream: Tensor) -> Tensor:
    points, _, rows, _, _, _, _, _, env_index = inputs
    gradient, slot = linear
    return pose_operators.scene_distance_pose_vjp(points, rows, env_index, gradient, slot, upstream)


def _clearance_pose_vjp(
    inputs: Sequence[Any], linear: Sequence[Tensor], upstream: Tensor
) -> Tensor:
    spheres, _, rows, _, _, _, _, _, env_index, _ = inputs
    gradient, slot = linear
    points, along = (part[..., :3].flatten(1, 2) for part in (spheres, gradient))
    return pose_operators.scene_distance_pose_vjp(
        points, rows, env_index, along, slot.flatten(1, 2), upstream.flatten(1, 2)
    )


_RULES = {
    "sphere_cost": _Rule(
        operators.sphere_cost,
        _pointwise_vjp,
        _pointwise_jvp,
        lambda inputs, _, upstream: pose_operators.sphere_cost_pose_vjp(*inputs, upstream),
    ),
    "swept_cost": _Rule(
        operators.swept_cost,
        _swept_vjp,
        _swept_jvp,
        lambda inputs, _, upstream: pose_operators.swept_cost_pose_vjp(*inputs, upstream),
    ),
    "scene_distance": _Rule(
        operators.scene_distance, _pointwise_vjp, _pointwise_jvp, _distance_pose_vjp
    ),
    "clearance": _Rule(operators.clearance, _pointwise_vjp, _pointwise_jvp, _clearance_pose_vjp),
}
# Indices of the inputs of the Function: the spheres, the rows of mesh_from_world, and the first of
# those without a derivative.
_SPHERES, _ROWS, _PARAMETERS = 2, 4, 11


class _PoseGradient(NoDerivative):
    """Gradient with respect to the rows of mesh_from_world; its own derivative raises."""

    @staticmethod
    def forward(name: str, n_linear: int, *operands: Any) -> Tensor:
        *inputs, upstream = operands
        cut = len(inputs) - n_linear
        return _RULES[name].pose_vjp(inputs[:cut], inputs[cut:], upstream)


class Operator(torch.autograd.Function):
    """One of the operators: its name, whether a graph is being traced, and its operands."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, traced: bool, *operands: Any) -> tuple[Tensor, ...]:  # noqa: D102
        return _RULES[name].operator(*operands)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: D102
        ctx.set_materialize_grads(False)
        ctx.name, ctx.traced = inputs[:2]
        ctx.n_inputs, ctx.n_linear = len(inputs), len(output) - 1
        # Not `requires_grad` of the rows, which is always False under `vmap`. The inputs are saved
        # only for gradients by poses, since the tables of a world may change before backward; a
        # graph drops what it does not need.
        ctx.keeps_inputs = ctx.traced or ctx.needs_input_grad[_ROWS]
        saved = output[1:] + (inputs[_SPHERES:] if ctx.keeps_inputs else ())
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        ctx.mark_non_differentiable(*(o for o in output if not o.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:  # noqa: D102
        if any(ctx.needs_input_grad[_PARAMETERS:]):
            raise RuntimeError(_NO_PARAMETERS)
        grads: list[Tensor | None] = [None] * ctx.n_inputs
        saved = ctx.saved_tensors  # read once: checkpointing allows no second access
        linear, inputs = saved[: ctx.n_linear], saved[ctx.n_linear :]
        if upstream is not None and ctx.needs_input_grad[_SPHERES]:
            vjp = _RULES[ctx.name].vjp
            if ctx.traced:
                grads[_SPHERES] = FirstOrderOnly.apply(vjp(upstream, *linear), inputs[0])
            else:
                grads[_SPHERES] = vjp(upstream, *_first_order(linear))
        if upstream is not None and ctx.needs_input_grad[_ROWS]:
            operands = (*inputs, *linear, upstream)
            grads[_ROWS] = _PoseGradient.apply(ctx.name, ctx.n_linear, *operands)
        for other in others:
            if other is not None:
                _refuse(ctx, other, grads, inputs)
        return tuple(grads)

    @staticmethod
    def jvp(  # noqa: D102
        ctx: Any, name: None, traced: None, spheres: Tensor | None, *others: Any
    ) -> tuple[Tensor | None, ...]:
        if any(other is not None for other in others):
            raise RuntimeError(_NO_FORWARD)
        linear = ctx.saved_tensors[: ctx.n_linear]
        # The gradients get a tangent, so that differentiating them does not give silent zeros.
        # Forward mode cannot raise, as values of tangents may not be read here: they are NaN.
        marks = tuple(torch.full_like(t, nan) if t.is_floating_point() else None for t in linear)
        if spheres is None:
            return None, *marks
        return _RULES[ctx.name].jvp(spheres, *_first_order(linear)), *marks


def _refuse(ctx: Any, other: Tensor, grads: list[Tensor | None], inputs: Sequence[Any]) -> None:
    """Refuses a second derivative: raises, or in a traced graph lets it raise when it runs."""
    if not ctx.traced or other.shape != inputs[0].shape:
        raise RuntimeError(NO_SECOND)
    refused = Refused.apply(other)
    for index, part in ((_SPHERES, refused), (_ROWS, refused.sum().expand(inputs[2].shape))):
        if ctx.needs_input_grad[index]:
            known = grads[index]
            grads[index] = part if known is None else known + part


# -- direct launches ------------------------------------------------------------------------------
#
# Operands without a derivative come in one tuple, as torch inspects every tensor argument.


def is_launched(upstream: Tensor) -> bool:
    """Whether a launch may compute a product: it is not recorded, nor batched over gradients."""
    return not torch_private.is_batched_gradient(upstream) and not torch.is_grad_enabled()


class DirectSphereCost(torch.autograd.Function):
    """The resting cost in plain eager code; `operands` are the other arguments of the kernel."""

    @staticmethod
    def forward(ctx: Any, spheres: Tensor, operands: tuple[Any, ...]) -> Tensor:  # noqa: D102
        cost, gradient = operators.run_sphere_cost(spheres, *operands, with_gradient=True)
        ctx.spheres = spheres
        ctx.save_for_backward(gradient)
        return cost

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:  # noqa: D102
        (gradient,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = _recorded(ctx, gradient)
        return _pointwise_vjp(upstream, gradient), None


class DirectSweptCost(torch.autograd.Function):
    """The swept cost in plain eager code; `operands` are the other arguments of the kernel."""

    @staticmethod
    def forward(ctx: Any, spheres: Tensor, operands: tuple[Any, ...]) -> Tensor:  # noqa: D102
        cost, gradient, neighbours = operators.run_swept_cost(
            spheres, *operands, with_gradient=True
        )
        ctx.spheres = spheres
        ctx.save_for_backward(gradient, neighbours)
        return cost

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:  # noqa: D102
        gradient, neighbours = ctx.saved_tensors
        if not is_launched(upstream):
            return _swept_vjp(upstream, *_recorded(ctx, gradient, neighbours)), None
        return operators.run_swept_vjp(upstream, gradient, neighbours), None


def _recorded(ctx: Any, *gradients: Tensor) -> list[Tensor]:
    """Gradients for a recorded product; differentiating them by the spheres raises."""
    return [FirstOrderOnly.apply(gradient, ctx.spheres) for gradient in gradients]


class DirectDistance(torch.autograd.Function):
    """A signed distance or a clearance in plain eager code.

    Its gradient is an output too: saved as one, it stays connected to this Function, so that a
    second derivative arrives here as a gradient by the second output, and raises.
    """

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        points: Tensor,
        run: Callable[..., tuple[Tensor, Tensor, Tensor]],
        operands: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        distance, gradient, slot = run(points, *operands)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(slot)
        return distance, gradient, slot

    @staticmethod
    def backward(  # noqa: D102
        ctx: Any, upstream: Tensor | None, second: Tensor | None, _: None
    ) -> tuple[Any, ...]:
        if second is not None:
            raise RuntimeError(NO_SECOND)
        if upstream is None:
            return None, None, None
        (gradient,) = ctx.saved_tensors
        return _pointwise_vjp(upstream, gradient), None, None

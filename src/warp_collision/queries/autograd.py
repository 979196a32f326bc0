"""Autograd of queries: exact vector-Jacobian products; second derivatives raise.

A query has two paths, see `dispatch`: in plain eager code `Direct` launches the kernel,
everything else goes through `Transformed`, a Function over the custom operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.queries import operator
from warp_collision.queries.functions import FUNCTIONS
from warp_collision.queries.query import Derivative, Query
from warp_collision.queries.second_derivatives import (
    NO_SECOND,
    FirstOrderOnly,
    NoDerivative,
    UndefinedSecondDerivative,
)
from warp_collision.queries.sphere_queries import QUERIES
from warp_collision.world.scene import find_scene

_NO_PARAMETERS = (
    "activation_distance, max_distance, tolerance, dt and min_speed must not require a gradient, "
    "none is defined; detach them"
)
_NO_FORWARD = (
    "forward mode is defined for spheres and points only; use reverse mode for poses, and detach "
    "activation_distance, max_distance, tolerance, dt and min_speed"
)
# Indices of the inputs of `Transformed`: the spheres, the handle of the scene, the rows of
# mesh_from_world, and the first of those without a derivative.
_SPHERES, _HANDLE = 2, 3
_ROWS, _PARAMETERS = _SPHERES + operator.ROWS, _SPHERES + operator.AFTER_SCENE


def _derivative(query: Query) -> Derivative:
    assert query.derivative is not None
    return query.derivative


def is_launched(upstream: Tensor) -> bool:
    """Whether a launch may compute a product: it is not recorded, nor batched over gradients."""
    return not torch_private.is_batched_gradient(upstream) and not torch.is_grad_enabled()


# -- in transforms and graphs ---------------------------------------------------------------------


class _PoseGradient(NoDerivative):
    """Gradient with respect to the rows of mesh_from_world; its own derivative raises."""

    @staticmethod
    def forward(name: str, n_operands: int, *values: Any) -> Tensor:
        operands, (*further, upstream) = values[:n_operands], values[n_operands:]
        return _derivative(QUERIES[name]).pose_vjp(operands, further, upstream)


class Transformed(torch.autograd.Function):
    """A query by its operator: whether a graph is being traced, its name, and its operands."""

    generate_vmap_rule = True

    @staticmethod
    def forward(traced: bool, name: str, *operands: Any) -> tuple[Tensor, ...]:  # noqa: D102
        return QUERIES[name].operator(*operands)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: D102
        ctx.set_materialize_grads(False)
        ctx.traced, name = inputs[:2]
        ctx.query, ctx.n_inputs = QUERIES[name], len(inputs)
        # Not `requires_grad` of the rows, which is always False under `vmap`. The inputs are saved
        # only for gradients by poses, since the tables of a world may change before backward; a
        # graph drops what it does not need.
        keeps_inputs = ctx.traced or ctx.needs_input_grad[_ROWS]
        ctx.handle = inputs[_HANDLE]
        if not ctx.traced:
            ctx.scene = find_scene(ctx.handle)  # for backward
        tensors = (inputs[_SPHERES], *inputs[_ROWS:]) if keeps_inputs else ()
        saved = output[1:] + tensors
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        ctx.mark_non_differentiable(*output[ctx.query.n_floats :])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:  # noqa: D102
        if any(ctx.needs_input_grad[_PARAMETERS:]):
            raise RuntimeError(_NO_PARAMETERS)
        grads: list[Tensor | None] = [None] * ctx.n_inputs
        saved = ctx.saved_tensors  # read once: checkpointing allows no second access
        further, inputs = saved[: ctx.query.n_further], saved[ctx.query.n_further :]
        if upstream is not None and ctx.needs_input_grad[_SPHERES]:
            gradients, vjp = further[: ctx.query.n_floats - 1], _derivative(ctx.query).vjp
            if ctx.traced:
                grads[_SPHERES] = FirstOrderOnly.apply(vjp(upstream, *gradients), inputs[0])
            else:
                grads[_SPHERES] = vjp(upstream, *_first_order(gradients))
        if upstream is not None and ctx.needs_input_grad[_ROWS]:
            operands = (inputs[0], ctx.handle, *inputs[1:], *further, upstream)
            grads[_ROWS] = _PoseGradient.apply(ctx.query.name, len(inputs) + 1, *operands)
        for other in others:
            if other is not None:
                _refuse_second(ctx, other, grads, inputs)
        return tuple(grads)

    @staticmethod
    def jvp(  # noqa: D102
        ctx: Any, traced: None, name: None, spheres: Tensor | None, *others: Any
    ) -> tuple[Tensor | None, ...]:
        if any(other is not None for other in others):
            raise RuntimeError(_NO_FORWARD)
        further = ctx.saved_tensors[: ctx.query.n_further]
        gradients = further[: ctx.query.n_floats - 1]
        # The gradients get a tangent, so that differentiating them does not give silent zeros.
        # Forward mode cannot raise, as values of tangents may not be read here: they are NaN.
        undefined = [torch.full_like(gradient, nan) for gradient in gradients]
        undefined += [None] * (len(further) - len(gradients))
        if spheres is None:
            return None, *undefined
        return _derivative(ctx.query).jvp(spheres, *_first_order(gradients)), *undefined


def _first_order(gradients: Sequence[Tensor], spheres: Tensor | None = None) -> list[Tensor]:
    """Gradients for a recorded product; differentiating them, by the spheres too, raises."""
    return [FirstOrderOnly.apply(gradient, spheres) for gradient in gradients]


def _refuse_second(
    ctx: Any, other: Tensor, grads: list[Tensor | None], inputs: Sequence[Any]
) -> None:
    """Refuses a second derivative: raises, or in a traced graph lets it raise when it runs."""
    if not ctx.traced or other.shape != inputs[0].shape:
        raise RuntimeError(NO_SECOND)
    undefined = UndefinedSecondDerivative.apply(other)
    for index, part in ((_SPHERES, undefined), (_ROWS, undefined.sum().expand(inputs[1].shape))):
        if ctx.needs_input_grad[index]:
            first = grads[index]
            grads[index] = part if first is None else first + part


# -- in plain eager code --------------------------------------------------------------------------


class Direct(torch.autograd.Function):
    """A query by its launch; `call` is the query and the other operands of `Query.run`.

    They come in one tuple, as torch inspects every argument.
    """

    @staticmethod
    def forward(ctx: Any, spheres: Tensor, call: tuple[Any, ...]) -> Tensor:  # noqa: D102
        query, scene, env_index, parameters = call
        value, *gradients = query.run(spheres, scene, env_index, parameters)
        ctx.derivative, ctx.spheres = query.derivative, spheres
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:  # noqa: D102
        gradients, derivative = ctx.saved_tensors, ctx.derivative
        if torch.is_grad_enabled():
            gradients = _first_order(gradients, ctx.spheres)
        elif derivative.launched_vjp is not None and is_launched(upstream):
            return derivative.launched_vjp(upstream, *gradients), None
        return derivative.vjp(upstream, *gradients), None


class DirectWithGradients(torch.autograd.Function):
    """As `Direct`, with all outputs of a query: value, gradient and index.

    Saved as an output, the gradient stays connected to this Function, so that a second derivative
    arrives here as a gradient by the second output, and raises.
    """

    @staticmethod
    def forward(ctx: Any, spheres: Tensor, call: tuple[Any, ...]) -> tuple[Tensor, ...]:  # noqa: D102
        query, scene, env_index, parameters = call
        value, gradient, index = query.run(spheres, scene, env_index, parameters)
        ctx.set_materialize_grads(False)
        ctx.vjp = query.derivative.vjp
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(index)
        return value, gradient, index

    @staticmethod
    def backward(  # noqa: D102
        ctx: Any, upstream: Tensor | None, second: Tensor | None, _: None
    ) -> tuple[Tensor | None, None]:
        if second is not None:
            raise RuntimeError(NO_SECOND)
        if upstream is None:
            return None, None
        return ctx.vjp(upstream, *ctx.saved_tensors), None


FUNCTIONS["query"] = Transformed.apply

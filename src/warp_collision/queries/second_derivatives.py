"""Makes derivatives that are not defined raise, in every mode of torch.

Otherwise torch would silently take them for zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.devices import is_gpu
from warp_collision.queries.operator import batch_first, define_operator

NO_SECOND = (
    "the second derivative of a collision cost or distance is not defined: it is zero almost "
    "everywhere and misleading where it is not; see gauss_newton for what to use instead"
)

# -- in eager code and transforms -----------------------------------------------------------------


class NoDerivative(torch.autograd.Function):
    """Base of Functions whose derivative raises, in both modes."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: D102
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # noqa: D102
        raise RuntimeError(NO_SECOND)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:  # noqa: D102
        raise RuntimeError(NO_SECOND)


class FirstOrderOnly(NoDerivative):
    """Identity on a gradient, whose own derivative raises.

    The second input is the operand of the gradient: differentiating by that raises too, also where
    the gradient itself has no history.
    """

    @staticmethod
    def forward(gradient: Tensor, operand: Tensor | None) -> Tensor:  # noqa: D102
        return first_order_only(gradient, operand)


class UndefinedSecondDerivative(NoDerivative):
    """The derivative of a gradient in a compiled graph; see `undefined_second_derivative`."""

    @staticmethod
    def forward(upstream: Tensor) -> Tensor:  # noqa: D102
        return undefined_second_derivative(upstream)


# -- in compiled graphs, which run without Functions ----------------------------------------------


def _copy(gradient: Tensor, _: Tensor | None) -> Tensor:
    refuse_recording()
    return gradient.clone(memory_format=torch.contiguous_format)


def _zero_or_raise(upstream: Tensor) -> Tensor:
    if not is_gpu(upstream.device) and upstream.any():
        raise RuntimeError(NO_SECOND)
    return torch.where(upstream.contiguous() != 0.0, torch.nan, 0.0)


def _like(gradient: Tensor, *_: Any) -> Tensor:
    return gradient.new_empty(gradient.shape)


# A copy of a gradient; raises where a compiled backward is being differentiated.
first_order_only = define_operator(
    "first_order_only",
    "Tensor gradient, Tensor? operand",
    _copy,
    _like,
    lambda operator, size, in_dims, gradient, _: operator(
        batch_first(gradient, in_dims[0], size), None
    ),
)

# Zeros; raises where the incoming gradient of a gradient is not 0. The backward of a graph that
# returns a gradient contains this, since tracing cannot know whether the gradient will be
# differentiated. On a GPU the result is NaN instead, without waiting.
undefined_second_derivative = define_operator(
    "undefined_second_derivative",
    "Tensor upstream",
    _zero_or_raise,
    _like,
    lambda operator, size, in_dims, upstream: operator(batch_first(upstream, in_dims[0], size)),
)


def refuse_tangents() -> None:
    """Raises in forward mode, which reaches an operator only through a compiled graph.

    Otherwise a Function with a `jvp` handles the tangents, and runs the operator without them. The
    operator cannot determine which operands have tangents.
    """
    if torch_private.has_forward_tangents():
        raise RuntimeError(
            "forward mode through a compiled function is not defined: use torch.func.jvp inside "
            "of it, or forward mode without torch.compile"
        )


def refuse_recording() -> None:
    """Raises where the backward of a compiled graph runs with `create_graph=True`.

    Torch itself raises only where it can see that the result depends on the input of the second
    derivative; otherwise it takes the result for a constant (2.13, with any compiled function).
    """
    if torch_private.is_double_backward_of_graph():
        raise RuntimeError(NO_SECOND)

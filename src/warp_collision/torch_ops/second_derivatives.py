"""How derivatives that are not defined are refused, on every way to them.

A derivative that torch takes for zero, because nobody told it otherwise, is worse than none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from warp_collision import torch_private

NO_SECOND = (
    "the second derivative of a collision cost or distance is not defined: it is zero almost "
    "everywhere and misleading where it is not; see gauss_newton for what to use instead"
)

Function = TypeVar("Function", bound=Callable[..., Any])


# -- in eager code and transforms -----------------------------------------------------------------


class FirstOrderOnly(torch.autograd.Function):
    """Identity on a gradient, whose own derivative raises.

    Its second input is the operand that the gradient belongs to, for where the gradient itself has
    no history: differentiating by that raises too.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, operand: Tensor | None) -> Tensor:  # noqa: D102
        return first_order_only(gradient, operand)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: D102
        pass

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:  # noqa: D102
        raise RuntimeError(NO_SECOND)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:  # noqa: D102
        raise RuntimeError(NO_SECOND)


class Refused(torch.autograd.Function):
    """What a compiled graph computes for the derivative of a gradient; see `refused`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(upstream: Tensor) -> Tensor:  # noqa: D102
        return refused(upstream)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: D102
        pass

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:  # noqa: D102
        raise RuntimeError(NO_SECOND)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:  # noqa: D102
        raise RuntimeError(NO_SECOND)


# -- in front of the compiler ---------------------------------------------------------------------


def outside_graphs(reason: str) -> Callable[[Function], Function]:
    """Keeps the compiler out of a function: graphs break at it, and a full graph raises.

    As `torch.compiler.disable`, which would load the compiler, for seconds, at the first import.

    Args:
        reason: for whoever asked for a full graph.
    """

    def decorate(function: Function) -> Function:
        disabled: Any = None

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            nonlocal disabled
            if torch.compiler.is_compiling():
                torch_private.break_graph(reason)
                if torch.compiler.is_exporting():  # which need not go through the compiler
                    raise RuntimeError(reason)
            disabled = disabled or torch_private.keep_compiler_out(function, reason)
            return (disabled or function)(*args)

        return call  # pyright: ignore[reportReturnType]

    return decorate


# -- in compiled graphs, which run without Functions ----------------------------------------------


@torch.library.custom_op("warp_collision::first_order_only", mutates_args=())
def first_order_only(gradient: Tensor, operand: Tensor | None) -> Tensor:
    """A copy of a gradient; raises where a compiled backward is being differentiated."""
    refuse_recording()
    return gradient.clone()


@torch.library.custom_op("warp_collision::refused", mutates_args=())
def refused(upstream: Tensor) -> Tensor:
    """Raises where the incoming gradient of a gradient is not 0.

    A graph that returns a gradient has this in its backward, since tracing cannot tell whether
    anyone will differentiate that. A GPU is not waited for: there the result is NaN.
    """
    if not upstream.is_cuda and upstream.any():
        raise RuntimeError(NO_SECOND)
    return torch.where(upstream != 0.0, torch.nan, 0.0)


@first_order_only.register_fake
@refused.register_fake
def _(gradient: Tensor, *_: Any) -> Tensor:
    return gradient.new_empty(gradient.shape)


@first_order_only.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], gradient: Tensor, operand: Any) -> Any:
    return first_order_only(gradient, None), in_dims[0]


@refused.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], upstream: Tensor) -> Any:
    return refused(upstream), in_dims[0]


def refuse_tangents() -> None:
    """Raises in forward mode, which reaches an operator itself only through a compiled graph.

    Everywhere else a Function with a `jvp` has met the tangents, and runs the operator without.
    Under the dispatcher there is no telling which operands have one.
    """
    if torch_private.has_forward_tangents():
        raise RuntimeError(
            "forward mode through a compiled function is not defined: use torch.func.jvp inside "
            "of it, or forward mode without torch.compile"
        )


def refuse_recording() -> None:
    """Raises where the backward of a compiled graph is run by `create_graph=True`.

    Torch refuses to differentiate the backward of a compiled graph, but only where it sees that the
    result depends on what it is differentiated by; else it takes it for a constant (2.13, with any
    compiled function).
    """
    if torch_private.is_double_backward_of_graph():
        raise RuntimeError(NO_SECOND)

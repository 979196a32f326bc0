"""Makes derivatives that are not defined raise, in every mode of torch.

Otherwise torch would silently take them for zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.devices import is_gpu

NO_SECOND = (
    "the second derivative of a collision cost or distance is not defined: it is zero almost "
    "everywhere and misleading where it is not; see gauss_newton for what to use instead"
)

Function = TypeVar("Function", bound=Callable[..., Any])


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


class Refused(NoDerivative):
    """The derivative of a gradient in a compiled graph; see `refused`."""

    @staticmethod
    def forward(upstream: Tensor) -> Tensor:  # noqa: D102
        return refused(upstream)


# -- functions that are not compiled --------------------------------------------------------------


def outside_graphs(reason: str) -> Callable[[Function], Function]:
    """Excludes a function from compilation: graphs break at it, and a full graph raises.

    Like `torch.compiler.disable`, which would load the compiler at import, for seconds.

    Args:
        reason: the message of that error.
    """

    def decorate(function: Function) -> Function:
        disabled: Any = None

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            nonlocal disabled
            if torch.compiler.is_compiling():
                torch_private.break_graph(reason)
                if torch.compiler.is_exporting():  # may export without the compiler
                    raise RuntimeError(reason)
            disabled = disabled or torch_private.keep_compiler_out(function, reason)
            return (disabled or function)(*args, **options)

        return call  # pyright: ignore[reportReturnType]

    return decorate


def reads_values(function: Function) -> Function:
    """Excludes a function that reads values of tensors from transforms and from compilation.

    Under transforms of `torch.func` and in full graphs it raises.
    """
    reason = (
        f"{function.__name__} reads values of tensors, which it cannot under transforms of "
        "torch.func and in compiled graphs: call it outside of them"
    )

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if torch_private.is_func_transformed():
            raise RuntimeError(reason)
        return function(*args, **options)

    return outside_graphs(reason)(call)  # pyright: ignore[reportReturnType]


# -- in compiled graphs, which run without Functions ----------------------------------------------


@torch.library.custom_op("warp_collision::first_order_only", mutates_args=())
def first_order_only(gradient: Tensor, operand: Tensor | None) -> Tensor:
    """A copy of a gradient; raises where a compiled backward is being differentiated."""
    refuse_recording()
    return gradient.clone()


@torch.library.custom_op("warp_collision::refused", mutates_args=())
def refused(upstream: Tensor) -> Tensor:
    """Raises where the incoming gradient of a gradient is not 0.

    The backward of a graph that returns a gradient contains this, since tracing cannot know whether
    the gradient will be differentiated. On a GPU the result is NaN instead, without waiting.
    """
    if not is_gpu(upstream.device) and upstream.any():
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

"""Autograd of operators that have Jacobian products in both modes.

Each has one differentiable operand, and constants. Its first output is differentiable to first
order; further outputs are saved for the products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.torch_ops import robot_operators, self_operators
from warp_collision.torch_ops.autograd import is_launched
from warp_collision.torch_ops.second_derivatives import NO_SECOND, FirstOrderOnly

_NO_SECOND_KINEMATICS = (
    "the second derivative of float32 kinematics is not defined; joints of float64 have all "
    "derivatives"
)


class _Rule(NamedTuple):
    """An operator and its Jacobian products.

    The operator takes (operand, *constants), the products take (vector, operand, *further outputs,
    *constants). `run` and `run_vjp` are the same without the dispatcher.
    """

    operator: Callable[..., tuple[Tensor, ...]]
    vjp: Callable[..., Tensor]
    jvp: Callable[..., Tensor]
    run: Callable[..., tuple[Tensor, ...]]
    run_vjp: Callable[..., Tensor]
    no_second: str = NO_SECOND


_RULES = {
    "forward_kinematics": _Rule(
        robot_operators.forward_kinematics,
        robot_operators.forward_kinematics_vjp,
        robot_operators.forward_kinematics_jvp,
        robot_operators.run_forward_kinematics,
        robot_operators.run_forward_kinematics_vjp,
        _NO_SECOND_KINEMATICS,
    ),
    "self_collision": _Rule(
        lambda *operands: (self_operators.self_collision(*operands),),
        self_operators.self_collision_vjp,
        self_operators.self_collision_jvp,
        self_operators.run_self_collision,
        self_operators.run_self_collision_vjp,
    ),
}


class Product(torch.autograd.Function):
    """A Jacobian product: linear in the vector; its derivative by the operand raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, forward: bool, vector: Tensor, *saved: Tensor) -> Tensor:  # noqa: D102
        rule = _RULES[name]
        return (rule.jvp if forward else rule.vjp)(vector, *saved)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        ctx.name, ctx.forward_mode = inputs[:2]
        ctx.n_inputs = len(inputs)
        ctx.save_for_backward(*inputs[3:])
        ctx.save_for_forward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:  # noqa: D102
        if any(ctx.needs_input_grad[3:]):
            raise RuntimeError(_RULES[ctx.name].no_second)
        # The transpose of each product is the other one.
        transposed = Product.apply(ctx.name, not ctx.forward_mode, upstream, *ctx.saved_tensors)
        return None, None, transposed, *[None] * (ctx.n_inputs - 3)

    @staticmethod
    def jvp(ctx: Any, name: None, forward: None, tangent: Tensor | None, *others: Any) -> Tensor:  # noqa: D102
        if tangent is None or any(other is not None for other in others):
            raise RuntimeError(_RULES[ctx.name].no_second)
        return Product.apply(ctx.name, ctx.forward_mode, tangent, *ctx.saved_tensors)


class Linearized(torch.autograd.Function):
    """An operator: its name, whether a graph is being traced, its operand and its constants."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, traced: bool, operand: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        return _RULES[name].operator(operand, *constants)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: D102
        ctx.set_materialize_grads(False)
        ctx.name, ctx.traced, operand, *constants = inputs
        ctx.n_constants, ctx.n_further = len(constants), len(output) - 1
        ctx.save_for_backward(operand, *output[1:], *constants)
        ctx.save_for_forward(operand, *output[1:], *constants)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Any, ...]:  # noqa: D102
        gradient = None
        if upstream is not None:
            operand, *rest = ctx.saved_tensors
            gradient = Product.apply(ctx.name, False, upstream, operand, *rest)
            if ctx.traced:
                gradient = FirstOrderOnly.apply(gradient, operand)
        return None, None, gradient, *[None] * ctx.n_constants

    @staticmethod
    def jvp(  # noqa: D102
        ctx: Any, name: None, traced: None, tangent: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        further = [None] * ctx.n_further
        if tangent is None:
            return None, *further
        return Product.apply(ctx.name, True, tangent, *ctx.saved_tensors), *further


class DirectLinearized(torch.autograd.Function):
    """An operator in plain eager code, with its constants in one tuple."""

    @staticmethod
    def forward(ctx: Any, name: str, operand: Tensor, constants: tuple[Tensor, ...]) -> Tensor:  # noqa: D102
        value, *further = _RULES[name].run(operand, *constants)
        ctx.name, ctx.further, ctx.constants = name, further, constants
        ctx.save_for_backward(operand)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, Tensor, None]:  # noqa: D102
        saved = *ctx.saved_tensors, *ctx.further, *ctx.constants
        if is_launched(upstream):
            return None, _RULES[ctx.name].run_vjp(upstream, *saved), None
        return None, Product.apply(ctx.name, False, upstream, *saved), None


def run_directly(name: str, operand: Tensor, constants: tuple[Tensor, ...]) -> Tensor:
    """The first output of an operator in plain eager code."""
    if operand.requires_grad and torch.is_grad_enabled():
        return DirectLinearized.apply(name, operand, constants)
    return _RULES[name].run(operand, *constants)[0]

"""Operators with Jacobian products in both modes, which are operators too.

Each has one differentiable operand, and constants; all but constants have a row for each
configuration. The first output is differentiable to first order; further outputs are saved for the
products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warp_collision.queries import dispatch
from warp_collision.queries.autograd import is_launched
from warp_collision.queries.functions import FUNCTIONS
from warp_collision.queries.operator import BatchingRule, Outputs, define_operator, over_rows
from warp_collision.queries.second_derivatives import NO_SECOND, FirstOrderOnly, refuse_tangents


@dataclass(eq=False)
class FirstOrderQuery:
    """A function of rows, and its Jacobian products.

    Attributes:
        name: of the operator.
        run: (operand, *constants), returns a tuple of outputs.
        run_vjp: (gradient by the first output, operand, *further outputs, *constants).
        run_jvp: (tangent of the operand, operand, *further outputs, *constants).
        allocate: (operand, *constants), returns a tuple of outputs without values.
        operands: the schema: operand, further outputs, constants.
        no_second: message where a second derivative is asked for.
        batched: the batching rule, from the number of the first operands that have rows.
    """

    name: str
    run: Callable[..., tuple[Tensor, ...]]
    run_vjp: Callable[..., Tensor]
    run_jvp: Callable[..., Tensor]
    allocate: Callable[..., tuple[Tensor, ...]]
    operands: tuple[str, tuple[str, ...], str]
    no_second: str = NO_SECOND
    batched: Callable[[int], BatchingRule] = over_rows

    def __post_init__(self) -> None:
        """Defines the operator and those of its products."""
        _QUERIES[self.name] = self
        operand, further, constants = self.operands
        n_further = len(further)
        self.operator = define_operator(
            self.name,
            f"{operand}, {constants}",
            lambda *operands: _one_or_all(_by_rows(self.run, 1)(*operands)),
            lambda *operands: _one_or_all(self.allocate(*operands)),
            self.batched(1),
            n_outputs=1 + n_further,
        )

        def tangent(vector: Tensor, operand: Tensor, *others: Tensor) -> Tensor:
            return self.allocate(operand, *others[n_further:])[0]

        schema = ", ".join(("Tensor vector", operand, *further, constants))
        self.vjp, self.jvp = (
            define_operator(
                f"{self.name}_{suffix}",
                schema,
                _by_rows(run, 2 + n_further),
                fake,
                self.batched(2 + n_further),
            )
            for suffix, run, fake in (
                ("vjp", self.run_vjp, lambda _, operand, *__: operand.new_empty(operand.shape)),
                ("jvp", self.run_jvp, tangent),
            )
        )


def _one_or_all(outputs: tuple[Tensor, ...]) -> Outputs:
    return outputs[0] if len(outputs) == 1 else outputs


def _by_rows(run: Callable[..., Any], n_rowwise: int) -> Callable[..., Any]:
    """The implementation of an operator, whose first operands have rows of any layout."""

    def call(*operands: Tensor) -> Any:
        refuse_tangents()
        rows = (operand.contiguous() for operand in operands[:n_rowwise])
        return run(*rows, *operands[n_rowwise:])

    return call


# By name, as graphs refer to them.
_QUERIES: dict[str, FirstOrderQuery] = {}


class JacobianProduct(torch.autograd.Function):
    """A Jacobian product: linear in the vector; its derivative by the operand raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, forward: bool, vector: Tensor, *saved: Tensor | None) -> Tensor:  # noqa: D102
        query = _QUERIES[name]
        return (query.jvp if forward else query.vjp)(vector, *saved)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        ctx.name, ctx.forward_mode = inputs[:2]
        ctx.n_inputs = len(inputs)
        ctx.save_for_backward(*inputs[3:])
        ctx.save_for_forward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:  # noqa: D102
        if any(ctx.needs_input_grad[3:]):
            raise RuntimeError(_QUERIES[ctx.name].no_second)
        # The transpose of each product is the other one.
        saved = ctx.saved_tensors
        transposed = JacobianProduct.apply(ctx.name, not ctx.forward_mode, upstream, *saved)
        return None, None, transposed, *[None] * (ctx.n_inputs - 3)

    @staticmethod
    def jvp(ctx: Any, name: None, forward: None, tangent: Tensor | None, *others: Any) -> Tensor:  # noqa: D102
        if tangent is None or any(other is not None for other in others):
            raise RuntimeError(_QUERIES[ctx.name].no_second)
        return JacobianProduct.apply(ctx.name, ctx.forward_mode, tangent, *ctx.saved_tensors)


class TransformedFirstOrder(torch.autograd.Function):
    """A query by its operator: whether a graph is being traced, its name, operand and constants."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # noqa: D102
        traced: bool, name: str, operand: Tensor, *constants: Tensor | None
    ) -> tuple[Tensor, ...]:
        outputs = _QUERIES[name].operator(operand, *constants)
        return (outputs,) if isinstance(outputs, Tensor) else outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: D102
        ctx.set_materialize_grads(False)
        ctx.traced, ctx.name, operand, *constants = inputs
        ctx.n_constants, ctx.n_further = len(constants), len(output) - 1
        ctx.save_for_backward(operand, *output[1:], *constants)
        ctx.save_for_forward(operand, *output[1:], *constants)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Any, ...]:  # noqa: D102
        gradient = None
        if upstream is not None:
            operand, *rest = ctx.saved_tensors
            gradient = JacobianProduct.apply(ctx.name, False, upstream, operand, *rest)
            if ctx.traced:
                gradient = FirstOrderOnly.apply(gradient, operand)
        return None, None, gradient, *[None] * ctx.n_constants

    @staticmethod
    def jvp(  # noqa: D102
        ctx: Any, traced: None, name: None, tangent: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        further = [None] * ctx.n_further
        if tangent is None:
            return None, *further
        return JacobianProduct.apply(ctx.name, True, tangent, *ctx.saved_tensors), *further


class DirectFirstOrder(torch.autograd.Function):
    """A query by its launch, with its constants in one tuple."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, operand: Tensor, query: FirstOrderQuery, constants: tuple[Tensor | None, ...]
    ) -> Tensor:
        value, *further = query.run(operand, *constants)
        ctx.query, ctx.further, ctx.constants = query, further, constants
        ctx.save_for_backward(operand)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:  # noqa: D102
        saved = *ctx.saved_tensors, *ctx.further, *ctx.constants
        if is_launched(upstream):
            return ctx.query.run_vjp(upstream.contiguous(), *saved), None, None
        return JacobianProduct.apply(ctx.query.name, False, upstream, *saved), None, None


FUNCTIONS["first_order"] = TransformedFirstOrder.apply


def evaluate_first_order(
    query: FirstOrderQuery, operand: Tensor, *constants: Tensor | None
) -> Tensor:
    """The first output of a query, differentiable in its operand, which is contiguous."""
    if not dispatch.is_plain(operand):
        return dispatch.apply("first_order", query.name, operand, *constants)[0]
    if operand.requires_grad and torch.is_grad_enabled():
        return DirectFirstOrder.apply(operand, query, constants)
    return query.run(operand, *constants)[0]

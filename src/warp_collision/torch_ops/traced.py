"""Calls of Functions in graphs of `torch.compile` and `torch.export`.

The compiler puts these calls into its graph untraced, and runs them to take derivatives. A traced
Function would have neither forward mode nor batching, and would lose its backward inside
`torch.func.grad`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision.torch_ops.autograd import Operator
from warp_collision.torch_ops.linearized import Linearized
from warp_collision.torch_ops.sampling_functions import FUNCTIONS


@torch.compiler.allow_in_graph
def apply_in_graph(name: str, *operands: Any) -> tuple[Tensor, ...]:
    """Calls an operator by name; see `dispatch.apply`."""
    return Operator.apply(name, True, *operands)


@torch.compiler.allow_in_graph
def linearized_in_graph(name: str, operand: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
    """Calls an operator of `linearized` by name; see `dispatch.apply_linearized`."""
    return Linearized.apply(name, True, operand, *constants)


@torch.compiler.allow_in_graph
def draw_in_graph(name: str, *operands: Any) -> Tensor:
    """Calls one of the Functions of `sampling_functions` by name."""
    return FUNCTIONS[name].apply(*operands)

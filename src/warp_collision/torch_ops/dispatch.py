"""Which way a call goes: a direct launch, or an operator that all of torch's transforms know.

In plain eager code a direct launch is several times cheaper than the dispatcher. Transforms of
`torch.func`, forward mode, `torch.compile` and `torch.export` need the operator.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import Parameter

from warp_collision import torch_private
from warp_collision.torch_ops.autograd import Operator
from warp_collision.torch_ops.linearized import Linearized, run_directly


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether a call is ordinary eager code, so that a direct launch may serve it."""
    if is_compiling():
        return False
    for tensor in tensors:
        if tensor is not None and type(tensor) is not Tensor and type(tensor) is not Parameter:
            return False
    return not torch_private.is_transformed()


def apply(name: str, *operands: Any) -> tuple[Tensor, ...]:
    """Calls an operator by name, differentiable by whatever transform is at work.

    Args:
        name: "sphere_cost", "swept_cost" or "scene_distance".
        operands: those of the operator.

    Returns:
        The outputs of the operator; differentiating any but the first raises.
    """
    if is_compiling():
        # Imported by the compiler when it gets here: this loads the compiler, for seconds.
        from warp_collision.torch_ops.traced import apply_in_graph

        return apply_in_graph(name, *operands)
    return Operator.apply(name, False, *operands)


def apply_linearized(name: str, operand: Tensor, *constants: Tensor) -> Tensor:
    """The first output of an operator of `linearized`, differentiable by its operand."""
    if is_plain(operand):
        return run_directly(name, operand, constants)
    if is_compiling():
        from warp_collision.torch_ops.traced import linearized_in_graph

        return linearized_in_graph(name, operand, *constants)[0]
    return Linearized.apply(name, False, operand, *constants)[0]

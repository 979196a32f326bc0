"""Dispatch of calls: to a direct launch, or to an operator that torch's transforms support.

In plain eager code a direct launch is several times faster than torch's dispatcher. Transforms of
`torch.func`, forward mode, `torch.compile` and `torch.export` need the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import Parameter

from warp_collision import torch_private
from warp_collision.devices import CPU, synchronize
from warp_collision.torch_ops.autograd import Operator
from warp_collision.torch_ops.linearized import Linearized, run_directly

_T = TypeVar("_T")


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether a call is plain eager code, where a direct launch is possible."""
    if is_compiling():
        return False
    for tensor in tensors:
        if tensor is not None and type(tensor) is not Tensor and type(tensor) is not Parameter:
            return False
    return not torch_private.is_transformed()


def run_outside(prepare: Callable[[], _T], device: torch.device = CPU) -> _T:
    """Runs a function outside of transforms and modes, whose tensors could not be kept.

    Transforms and modes belong to a thread, so under them the function runs in another one.

    Args:
        prepare: the function.
        device: where it puts tensors.
    """
    if is_plain():
        return prepare()

    def prepared() -> _T:
        found = prepare()
        synchronize(device)
        return found

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(prepared).result()


def apply(name: str, *operands: Any) -> tuple[Tensor, ...]:
    """Calls an operator by name, differentiable under all transforms.

    Args:
        name: "sphere_cost", "swept_cost", "scene_distance" or "clearance".
        operands: arguments of the operator.

    Returns:
        The outputs of the operator; differentiating any but the first raises.
    """
    if is_compiling():
        # Imported while compiling only: the import loads the compiler, which takes seconds.
        from warp_collision.torch_ops.traced import apply_in_graph

        return apply_in_graph(name, *operands)
    return Operator.apply(name, False, *operands)


def apply_linearized(name: str, operand: Tensor, *constants: Tensor) -> Tensor:
    """The first output of an operator of `linearized`, differentiable in its operand."""
    if is_plain(operand):
        return run_directly(name, operand, constants)
    if is_compiling():
        from warp_collision.torch_ops.traced import linearized_in_graph

        return linearized_in_graph(name, operand, *constants)[0]
    return Linearized.apply(name, False, operand, *constants)[0]

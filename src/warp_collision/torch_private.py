"""All uses of private parts of torch, in one place.

Each function documents what it is for; its tests fail first when torch changes. No other module
uses `torch._C`, `torch._dynamo` or a private attribute of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

Method = TypeVar("Method", bound=Callable[..., Any])


def is_transformed() -> bool:
    """Whether a transform of `torch.func`, forward mode or a dispatch mode is active.

    A direct launch would bypass it: no batching, zero tangents, nothing traced.
    """
    return (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack() > 0
    )


def is_func_transformed() -> bool:
    """Whether a transform of `torch.func` is active: new tensors may belong to it."""
    return torch._C._are_functorch_transforms_active()


def apply_outside(function: Any, tensor: Tensor, *others: Any) -> Any:
    """`function.apply` of an autograd Function where no transform is active, in half the time.

    As there, a tensor that has left its transform is the one inside of it.
    """
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    beneath: Any = super(torch.autograd.Function, function)
    return beneath.apply(functorch.unwrap_if_dead(tensor), *others)


def has_hidden_values(tensor: Tensor) -> bool:
    """Whether code cannot read the values of a tensor: batched by `vmap`, or without any.

    A batched tensor may be inside of other transforms, as in ``vmap(grad(f))``.
    """
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return not isinstance(tensor, Parameter) and type(tensor) is not Tensor


def may_have_derivatives(tensor: Tensor) -> bool:
    """Whether derivatives by a tensor may be asked for, in any mode, inside of `vmap` too."""
    if forward_ad._current_level >= 0:
        return True
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    while functorch.is_functorch_wrapped_tensor(tensor):
        if not functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return tensor.requires_grad


def is_batched_gradient(upstream: Tensor) -> bool:
    """Whether a gradient is a batch of gradients, as with ``is_grads_batched=True``.

    Its memory layout is not that of one gradient, so that kernels cannot read it.
    """
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    return functorch.is_legacy_batchedtensor(upstream)


def has_forward_tangents() -> bool:
    """Whether forward mode is active where an operator runs, below all Functions.

    The operator cannot determine which operands have tangents.
    """
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def as_plain_tensors() -> Any:
    """A context in which subclasses of tensors are tensors: their `__torch_function__` is off."""
    return torch._C.DisableTorchFunctionSubclass()


def break_graph(reason: str) -> None:
    """Breaks the graph that is being compiled; a full graph raises with the reason."""
    torch._dynamo.graph_break(msg=reason)


def run_while_tracing(method: Method) -> Method:
    """Decorates a method that prepares what graphs read: compilers call it instead of tracing it.

    Its arguments must be constants. `torch.compiler.assume_constant_result` does the same, but
    loads the compiler, which takes seconds.
    """
    method._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return method


def keep_compiler_out(function: Callable[..., Any], reason: str) -> Callable[..., Any] | None:
    """Excludes a function from compilation; None while the compiler is not loaded.

    `torch.compiler.disable` does the same, but loads the compiler, which takes seconds.
    """
    if "torch._dynamo" not in sys.modules:
        return None
    return torch._dynamo.disable(function, reason=reason)


def is_double_backward_of_graph() -> bool:
    """Whether a compiled backward is being differentiated, by the call stack.

    Torch calls `_double_backward` then. Before 2.13 it does not where no saved tensor requires a
    gradient, but gradients are enabled in `_backward_impl`.
    """
    recording = torch.is_grad_enabled()
    frame: FrameType | None = sys._getframe(1)
    for _ in range(64):
        if frame is None:
            return False
        name = frame.f_code.co_name
        if name == "_double_backward" or (recording and name == "_backward_impl"):
            return True
        frame = frame.f_back
    return False

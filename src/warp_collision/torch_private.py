"""All private parts of torch that this library uses, in one place.

Each function says what it uses of torch, and what goes wrong without it; its tests fail first when
torch changes. Nothing else in the library names `torch._C`, `torch._dynamo` or an attribute of
torch with an underscore.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Whether a transform of `torch.func`, forward mode or a dispatch mode is at work.

    A direct launch would pass by it: no batching rule, a tangent of zero, nothing traced.
    """
    return (
        is_func_transformed()
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack() > 0
    )


def is_func_transformed() -> bool:
    """Whether a transform of `torch.func` is at work: what is made now may belong to it."""
    return torch._C._are_functorch_transforms_active()


def is_batched_gradient(upstream: Tensor) -> bool:
    """Whether a gradient stands for a batch of them, as with ``is_grads_batched=True``.

    Its memory is not that of one gradient: a kernel that reads it would read too little.
    """
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    return functorch.is_legacy_batchedtensor(upstream)


def has_forward_tangents() -> bool:
    """Whether forward mode is at work where an operator runs, below all Functions.

    Under the dispatcher there is no telling which operands have a tangent.
    """
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def break_graph(reason: str) -> None:
    """Breaks the graph that the compiler is tracing; a full graph raises with the reason."""
    torch._dynamo.graph_break(msg=reason)


def keep_compiler_out(function: Callable[..., Any], reason: str) -> Callable[..., Any] | None:
    """A function that the compiler does not trace; None while the compiler is not loaded.

    `torch.compiler.disable` does the same, and loads the compiler, for seconds.
    """
    if "torch._dynamo" not in sys.modules:
        return None
    try:
        return torch._dynamo.disable(function, reason=reason)
    except TypeError:  # torch 2.6 takes no reason
        return torch._dynamo.disable(function)


def is_double_backward_of_graph() -> bool:
    """Whether a compiled backward is being differentiated, somewhere up the call stack.

    Nothing but the call stack tells: `_double_backward` is how torch gets there. Before 2.13 it
    goes past that, with gradients enabled, where no saved tensor requires one.
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

"""Dispatch of calls: to a direct launch, or to an operator that torch's transforms support.

In plain eager code a direct launch is several times faster than torch's dispatcher. Transforms of
`torch.func`, forward mode, `torch.compile` and `torch.export` need the operator. What they cannot
do at all is excluded from them here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import Parameter

from warp_collision import torch_private
from warp_collision.devices import CPU, synchronize
from warp_collision.queries.functions import FUNCTIONS

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether a call is plain eager code, where a direct launch is possible."""
    if is_compiling():
        return False
    for tensor in tensors:
        if tensor is not None and type(tensor) is not Tensor and type(tensor) is not Parameter:
            return False
    return not torch_private.is_transformed()


def run_outside(prepare: Callable[[], T], device: torch.device = CPU) -> T:
    """Runs a function outside of transforms and modes, whose tensors could not be kept.

    Transforms and modes belong to a thread, so under them the function runs in another one.

    Args:
        prepare: the function.
        device: where it puts tensors.
    """
    if is_plain():
        return prepare()

    def prepared() -> T:
        result = prepare()
        synchronize(device)
        return result

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(prepared).result()


def apply(function: str, *operands: Any) -> Any:
    """Calls one of `FUNCTIONS`, which are differentiable under all transforms."""
    if is_compiling():
        # Imported while compiling only: the import loads the compiler, which takes seconds.
        from warp_collision.queries.in_graph import apply_in_graph

        return apply_in_graph(function, *operands)
    return FUNCTIONS[function](False, *operands)


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

"""Warp's runtime: started quietly, and its own capture of launches on the CPU.

`wp.ScopedCapture(device="cpu")` records the launches of kernels without running them, and
`wp.capture_launch` replays them. It knows nothing of torch, whose part runs once and at once, on
results that are not there yet. So whatever needs torch between launches is refused inside of it.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import warp as wp

# Comparing devices is a good deal cheaper than asking one for its type.
CPU = torch.device("cpu")


class _Quiet:
    """How many blocks of all threads ask for quiet, and the level before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.level = 0


_quiet = _Quiet()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _quiet
    _quiet = _Quiet()


os.register_at_fork(after_in_child=_forget_threads)


@contextmanager
def quiet_warp() -> Iterator[None]:
    """Keeps Warp's banner and its notes on compiling out of the caller's standard output."""
    with _quiet.lock:
        if _quiet.blocks == 0:
            _quiet.level = wp.config.log_level
        _quiet.blocks += 1
        wp.config.log_level = max(_quiet.level, wp.LOG_WARNING)
        wp.init()
    try:
        yield
    finally:
        with _quiet.lock:
            _quiet.blocks -= 1
            if _quiet.blocks == 0:
                wp.config.log_level = _quiet.level


@functools.cache
def _cpu() -> Any:
    with quiet_warp():
        return wp.get_device("cpu")


def is_recording() -> bool:
    """Whether launches on the CPU are being captured."""
    return _cpu().is_capturing


def is_capturing(device: torch.device) -> bool:
    """Whether work on a device goes into a graph: a CUDA graph, or Warp's own of the CPU."""
    if device == CPU:
        return is_recording()
    return torch.cuda.is_current_stream_capturing()


def settle(device: torch.device) -> None:
    """Waits until what torch's current stream was given is done, so that any stream may read it."""
    if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream(device).synchronize()


def refuse_unrecorded(device: torch.device, what: str) -> None:
    """Raises inside Warp's capture of the CPU, which would miss what torch is about to compute.

    Args:
        device: where it would compute.
        what: the rule that the caller has to follow there.
    """
    if device == CPU and not torch.compiler.is_compiling() and is_recording():
        raise RuntimeError(
            f"inside Warp's capture on the CPU, which records launches alone, {what}"
        )


def record(kernel: Any, dim: tuple[int, ...], arguments: Sequence[Any]) -> None:
    """Launches a kernel on the CPU so that a capture sees it, from the first index on.

    The graph keeps the memory of the tensors as long as it lives.

    Args:
        kernel: the kernel.
        dim: extents of the launch.
        arguments: tensors, None for an empty array, and the fields of a struct in order.
    """
    operands = iter(arguments)
    given = []
    for variable in kernel.adj.args:
        kind = variable.type
        given.append(_as_warp(kind, next(operands) if is_array(kind) or is_struct(kind) else None))
    with quiet_warp():
        wp.launch(kernel, dim, given, device="cpu")


def is_array(kind: Any) -> bool:
    """Whether a parameter of a kernel is an array."""
    return hasattr(kind, "ndim") and hasattr(kind, "dtype")


def is_struct(kind: Any) -> bool:
    """Whether a parameter of a kernel is a struct."""
    return hasattr(kind, "vars") and not is_array(kind)


def _as_warp(kind: Any, value: Any) -> Any:
    if is_array(kind):
        if value is None:
            return wp.empty((0,) * kind.ndim, dtype=kind.dtype, device="cpu")
        return wp.from_torch(value.detach(), dtype=kind.dtype)
    made = kind()
    if is_struct(kind):
        for (name, variable), field in zip(kind.vars.items(), value, strict=False):
            setattr(made, name, _as_warp(variable.type, field))
    return made

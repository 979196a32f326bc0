"""Constants on devices: made once for each, outside of transforms, of traces and of captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch.compiler import is_compiling

from warp_collision import torch_private
from warp_collision.devices import CPU, is_capturing
from warp_collision.launching.graph_memory import keep_for_graphs
from warp_collision.queries import dispatch

T = TypeVar("T")


class _Made:
    """By device, as attributes: compilers see those that appear while they trace, not items."""


class Constant(Generic[T]):
    """What is the same in every call: tensors that are copied to a device once.

    Args:
        make: makes it for a device.
    """

    def __init__(self, make: Callable[[torch.device], T]):
        self._make = make
        self._made = _Made()
        self._on_cpu: T | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies make it anew: torch moves what is sent, and kernels read it by its address."""
        return Constant, (self._make,)

    def on(self, device: torch.device) -> T:
        """The constant on a device; captured graphs keep it."""
        # Not while compiling: a guard on what `_prepare` sets would fail.
        if device == CPU and not is_compiling() and self._on_cpu is not None:
            return self._on_cpu
        name = str(device)
        self._prepare(name, device)
        made = getattr(self._made, name, None)
        return keep_for_graphs(self._made_for(device) if made is None else made, device)

    @torch_private.run_while_tracing
    def _prepare(self, name: str, device: torch.device) -> None:
        if not hasattr(self._made, name) and not is_capturing(device):
            made = dispatch.run_outside(lambda: self._made_for(device), device)
            setattr(self._made, name, made)
            self._on_cpu = made if device == CPU else self._on_cpu

    def _made_for(self, device: torch.device) -> Any:
        with torch.inference_mode(False):  # later calls may need gradients
            return self._make(device)

"""What `torch.cuda` is for CUDA: streams, events and graphs of the simulated GPU.

Names and rules are those of `torch.cuda`, as far as the library and its tests use them.
"""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from simulated_cuda import building

_device = building.extension()
_stream_ids = itertools.count(1)

is_current_stream_capturing = _device.is_capturing


def index_of(device: Any) -> int:
    """The index of a device; the current one for None or a device without an index."""
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return _device.device() if index is None else index


class Stream:
    """An order of work on one device."""

    def __init__(self, device: Any = None, priority: int = 0, number: int | None = None):
        self.device_index = index_of(device)
        self.device = torch.device("simulated", self.device_index)
        self.cuda_stream = next(_stream_ids) if number is None else number

    @property
    def key(self) -> tuple[int, int]:
        """Device and number."""
        return self.device_index, self.cuda_stream

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def synchronize(self) -> None:
        _device.synchronize_stream(*self.key)

    def query(self) -> bool:
        return _device.is_idle(*self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Event:
    """A point in the order of a stream."""

    def __init__(self, enable_timing: bool = False):
        self._event = _device.Event()

    def record(self, stream: Stream | None = None) -> None:
        self._event.record(*(stream or current_stream()).key)

    def wait(self, stream: Stream | None = None) -> None:
        self._event.wait(*(stream or current_stream()).key)

    def query(self) -> bool:
        return self._event.query()

    def synchronize(self) -> None:
        self._event.synchronize()


def current_stream(device: Any = None) -> Stream:
    index = index_of(device)
    return Stream(index, number=_device.stream(index))


def default_stream(device: Any = None) -> Stream:
    return Stream(device, number=0)


@contextmanager
def stream(chosen: Stream | None) -> Iterator[None]:
    """Work in the block goes to a stream, whose device is the current one."""
    if chosen is None:
        yield
        return
    index, before = _device.device(), _device.stream(chosen.device_index)
    _device.set_device(chosen.device_index)
    _device.set_stream(*chosen.key)
    try:
        yield
    finally:
        _device.set_stream(chosen.device_index, before)
        _device.set_device(index)


@contextmanager
def device(chosen: Any) -> Iterator[None]:
    """A device is the current one in the block."""
    before = _device.device()
    _device.set_device(index_of(chosen))
    try:
        yield
    finally:
        _device.set_device(before)


def synchronize(device: Any = None) -> None:
    _device.synchronize_device(index_of(device))


class CUDAGraph:
    """Work that was captured."""

    def __init__(self) -> None:
        self._graph = _device.Graph()

    def replay(self) -> None:
        _device.count("replay")
        self._graph.replay()

    def reset(self) -> None:
        self._graph = None


@functools.cache
def _capture_stream(device: int) -> Stream:
    """One for all captures, so that a backward pass can be captured after its forward pass."""
    return Stream(device)


@contextmanager
def graph(captured: CUDAGraph, stream: Stream | None = None) -> Iterator[None]:
    """Captures the block on a stream of its own, after a wait for the device."""
    synchronize()
    gc.collect()
    with globals()["stream"](stream or _capture_stream(current_device())):
        captured._graph.begin()
        try:
            yield
        finally:
            captured._graph.end()


def make_graphed_callables(module: Any, sample_args: tuple[torch.Tensor, ...]) -> Any:
    """A function like a module, whose forward and backward pass are replays of two graphs."""
    leaves = [each for each in sample_args if each.requires_grad]
    for _ in range(3):
        torch.autograd.grad(module(*sample_args).sum(), leaves)
    forward, backward = CUDAGraph(), CUDAGraph()
    with graph(forward):
        values = module(*sample_args)
    upstream = torch.empty_like(values)
    with graph(backward):
        gradients = torch.autograd.grad(values, leaves, upstream)

    class Graphed(torch.autograd.Function):
        """Copies its operands to where the graphs read them."""

        @staticmethod
        def forward(ctx: Any, *given: torch.Tensor) -> torch.Tensor:
            for sample, each in zip(sample_args, given, strict=True):
                sample.detach().copy_(each)
            forward.replay()
            return values.detach()

        @staticmethod
        def backward(ctx: Any, given: torch.Tensor) -> Any:
            upstream.copy_(given)
            backward.replay()
            made = iter(gradients)
            return tuple(next(made) if each.requires_grad else None for each in sample_args)

    return Graphed.apply


def set_sync_debug_mode(mode: str) -> None:
    """Waits of the host raise in the mode "error"."""
    _device.refuse_waits(mode == "error")


def counts() -> dict[str, int]:
    """How often what has happened: operator, launch, allocation, wait, replay."""
    return _device.counts()


def memory_allocated(device: Any = None) -> int:
    """Bytes of all tensors on both devices."""
    return _device.live_bytes()


def limit_memory(most: int | None) -> None:
    """Allocations beyond so many bytes of both devices fail from now on; None for no limit."""
    _device.limit_memory(2**64 - 1 if most is None else most)


def empty_cache() -> None:
    """Unused memory is not kept."""
    _device.count("empty cache")


def memory_stats(device: Any = None) -> dict[str, int]:
    return {"allocation.all.allocated": counts().get("allocation", 0), "num_device_alloc": 0}


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return _device.n_devices


def current_device() -> int:
    return _device.device()


def get_device_properties(device: Any) -> Any:
    """Multiprocessors of an H100; memory of the host, with no limit but that of `limit_memory`."""
    return SimpleNamespace(total_memory=2**60, multi_processor_count=132)


def set_device(device: Any) -> None:
    _device.set_device(index_of(device))


def _sleep(cycles: int) -> None:
    """Launches run as late as they may anyway."""


def _is_in_bad_fork() -> bool:
    return False


def manual_seed_all(seed: int) -> None:
    """It draws no numbers."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """It draws no numbers."""

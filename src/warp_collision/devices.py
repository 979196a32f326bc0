"""Devices: what is a GPU, its streams and events, and whether a stream is captured in a graph.

No other module of the package names a type of device. Work on a GPU is ordered by streams and
outlives the call that launched it; on a CPU it is over when the call returns.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch
import warp as wp

from warp_collision import torch_private

# Comparing devices is faster than reading the type of one.
CPU = torch.device("cpu")

# Torch's module for each type of device that is a GPU.
GPUS: dict[str, ModuleType] = {"cuda": torch.cuda}

# The library of the driver of each, with the functions of CUDA's driver.
DRIVERS: dict[str, str] = {"cuda": "libcuda.so.1"}

Event = torch.cuda.Event

# For messages.
TYPES = "cpu or cuda"

# NVIDIA's first driver for what a Warp is built with, by the major version of CUDA.
_DRIVERS = {12: "R525", 13: "R580"}


def is_gpu(device: torch.device) -> bool:
    """Whether work on a device outlives the call that launched it."""
    return device.type in GPUS


def is_known(device: torch.device) -> bool:
    """Whether kernels run on this type of device."""
    return device.type == "cpu" or device.type in GPUS


def canonical_device(device: torch.device | str | int | None) -> torch.device:
    """A known device with its index; torch's default device for None."""
    chosen = torch.get_default_device() if device is None else torch.device(device)
    if not is_known(chosen):
        raise ValueError(f"device must be a {TYPES} device, got {chosen}")
    if not is_gpu(chosen):
        return CPU  # tensors on it report no index
    gpu: Any = GPUS[chosen.type]
    if not gpu.is_available():
        raise ValueError(f"device must be available, got {chosen} without a CUDA GPU")
    if chosen.index is None:
        chosen = torch.device(chosen.type, gpu.current_device())
    if chosen.index >= gpu.device_count():
        raise ValueError(f"device must be below {gpu.device_count()}, got {chosen}")
    return chosen


def require_warp(device: torch.device) -> None:
    """Raises where torch finds a CUDA device and Warp does not: it may need a newer driver.

    Raises:
        ValueError: with the driver that Warp needs, and the one that is there.
    """
    if device.type == "cuda" and device not in _of_warp:
        if wp.get_cuda_device_count() <= (device.index or 0):
            raise ValueError(unknown_to_warp(device))
        _of_warp.add(device)


_of_warp: set[torch.device] = set()


def unknown_to_warp(device: torch.device) -> str:
    """Why Warp does not find a device that torch finds."""
    found = f"{device} must be known to Warp, which finds no such device: Warp {wp.__version__}"
    toolkit, driver = wp.get_cuda_toolkit_version(), wp.get_cuda_driver_version()
    if toolkit is None:
        return f"{found} is built without CUDA; install warp-lang from PyPI"
    needed = _DRIVERS.get(toolkit[0], f"for CUDA {toolkit[0]}")
    known = "none that it can load" if driver is None else f"one for CUDA {driver[0]}.{driver[1]}"
    return (
        f"{found} is built with CUDA {toolkit[0]} and needs NVIDIA's driver {needed} or newer, got "
        f"{known}; update the driver, or install a +cu12 wheel of "
        "https://github.com/NVIDIA/warp/releases"
    )


def preferred_device() -> torch.device:
    """A CUDA GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def describe_gpus() -> str:
    """What names of GPUs there are, for messages."""
    count = torch.cuda.device_count()
    return f"cuda:N with N < {count}" if count else "there is no CUDA device here"


@torch_private.run_while_tracing
def is_capturing(device: torch.device) -> bool:
    """Whether work on a device is captured in a graph; not while a compiler traces."""
    return device.type in GPUS and GPUS[device.type].is_current_stream_capturing()


def stream_handle(device: torch.device) -> int:
    """The address of torch's current stream; the default streams of all devices have the same."""
    return GPUS[device.type].current_stream(device).cuda_stream


@functools.cache
def _has_several(kind: str) -> bool:
    return GPUS[kind].device_count() > 1


def is_current(device: torch.device) -> bool:
    """Whether torch's current device of this thread is a GPU, or the only one there is."""
    return not _has_several(device.type) or GPUS[device.type].current_device() == device.index


def as_current(device: torch.device) -> Any:
    """Makes a GPU the current device of this thread within a block."""
    return GPUS[device.type].device(device)


def record_event(device: torch.device) -> Event:
    """An event after all that was launched on torch's current stream."""
    event = GPUS[device.type].Event()
    event.record(GPUS[device.type].current_stream(device))
    return event


def wait_event(device: torch.device, event: Event) -> None:
    """Lets torch's current stream wait for an event of another, but not the host."""
    GPUS[device.type].current_stream(device).wait_event(event)


def require_memory(what: str, n_bytes: int, device: torch.device) -> None:
    """Raises before anything is allocated that is larger than all memory of a device.

    Args:
        what: for the message.
        n_bytes: which it takes at least.
        device: where.
    """
    if is_gpu(device):
        total = GPUS[device.type].get_device_properties(device).total_memory
    else:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if n_bytes > total:
        raise ValueError(
            f"{what} must fit into the memory of {device}, {total / 2**30:.1f} GiB, got "
            f"{n_bytes / 2**30:.1f} GiB"
        )


@functools.cache
def n_multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a GPU has; 1 for a CPU."""
    if not is_gpu(device):
        return 1
    return GPUS[device.type].get_device_properties(device).multi_processor_count


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host on a device, for work on torch's current stream.

    The host waits neither for that stream nor for the copy, which other streams must not read yet.
    """
    if not is_gpu(device) or is_capturing(device):
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def synchronize(device: torch.device) -> None:
    """Waits for torch's current stream, so that other streams may read its results."""
    if device.type in GPUS and not is_capturing(device):
        GPUS[device.type].current_stream(device).synchronize()


def empty_cache(device: torch.device) -> None:
    """Gives memory of a GPU back that torch keeps unused, once all streams have come so far."""
    synchronize_all(device)
    GPUS[device.type].empty_cache()


def synchronize_all(device: torch.device) -> None:
    """Waits for all streams of a device."""
    if device.type in GPUS:
        GPUS[device.type].synchronize(device)

"""Warp on the simulated GPU: its kernels run on the CPU, when their stream gets to them.

Kernels are compiled for blocks of two threads, by which they know that they are not on a CPU, and
run one thread after another; or they run by their PTX, see `ptx_kernels`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import warp as wp
import warp._src.context as context
import warp._src.torch as interop

from simulated_cuda import building, ptx_kernels, torch_module
from warp_collision.launching.warp_runtime import quiet_warp

_device = building.extension()
_BLOCK = 2  # threads


class _Launch(context.Launch):
    """A recorded launch; each launch of it has its own copy of the arguments."""

    def launch(self, stream: _Stream | None = None) -> None:
        stream = stream or _current_stream(self.device)
        params = [type(p).from_buffer_copy(p) for p in self.params]
        torch_module.set_device(stream.key[0])  # as Warp leaves it behind
        _device.count("launch")
        _device.count(f"launch: {self.kernel.key}")
        _device.count(f"block of {self.block_dim}: {self.kernel.key}")
        by_ptx = ptx_kernels.function_of(self.kernel)
        if by_ptx is None:
            submit(stream.key, lambda: context.invoke(self.kernel, self.hooks, params, False))
        else:
            pointers = (ctypes.c_void_p * len(params))(*map(ctypes.addressof, params))
            submit(stream.key, lambda: by_ptx(pointers, params[0].size))


class _Device(str):
    """The name of a simulated device, as that of a launch."""

    is_cpu = False


def submit(key: tuple[int, int], work: Any) -> None:
    """Adds work to the graph that is captured, or to the end of a stream."""
    if _device.is_capturing():
        _device.add_to_graph(work)
    else:
        _device.enqueue(*key, work)


class _Stream:
    """Warp's name for a stream of torch."""

    def __init__(self, device: str, cuda_stream: int):
        self.device = device
        self.key = torch.device(device).index, cuda_stream


def _current_stream(device: str) -> _Stream:
    return _Stream(device, torch_module.current_stream(torch.device(device)).cuda_stream)


class _ScopedStream:
    """Warp's own work in the block belongs to a stream."""

    current: _Stream | None = None

    def __init__(self, stream: _Stream, sync_enter: bool = True):
        self._stream = stream

    def __enter__(self) -> None:
        # Building a tree reads boxes: it runs at once, after what was launched before.
        _device.run(*self._stream.key)
        torch_module.set_device(self._stream.key[0])
        self._before, _ScopedStream.current = _ScopedStream.current, self._stream

    def __exit__(self, *error: object) -> None:
        _ScopedStream.current = self._before


def install(name: str) -> None:
    """Makes devices of this name known to Warp."""
    with quiet_warp():
        cpu = wp.get_device("cpu")
    for index in range(torch_module.device_count()):
        context.runtime.device_map[f"{name}:{index}"] = cpu
    launch, device_from_torch = wp.launch, interop.device_from_torch
    stream, scoped_stream = wp.Stream, wp.ScopedStream

    def is_ours(device: Any) -> bool:
        return str(device).startswith(name)

    def launch_or_record(
        kernel: Any, dim: Any, inputs: Any, *, device: Any, block_dim: int = 256, **options: Any
    ) -> Any:
        if not is_ours(device):
            return launch(kernel, dim, inputs, device=device, block_dim=block_dim, **options)
        is_recorded = options.pop("record_cmd", False)
        chosen = options.pop("stream", None)
        made = launch(
            kernel,
            dim,
            inputs,
            device="cpu",
            block_dim=context._ResolvedBlockDim(_BLOCK),
            record_cmd=True,
            **options,
        )
        if _device.is_capturing() and (None, _BLOCK) not in kernel.module.execs:
            raise RuntimeError("operation not permitted when stream is capturing: loads a module")
        made.__class__, made.block_dim = _Launch, block_dim  # Warp has set it to 1, as on every CPU
        made.module_exec = kernel.module.load(cpu, _BLOCK)
        made.device = _Device(device)
        return made if is_recorded else made.launch(chosen)

    def in_turn(change: Any) -> Any:
        def change_in_turn(tree: wp.Bvh) -> None:
            if _ScopedStream.current is None:
                change(tree)
            else:
                submit(_ScopedStream.current.key, lambda: change(tree))

        return change_in_turn

    wp.launch = launch_or_record
    interop.device_from_torch = lambda device: cpu if is_ours(device) else device_from_torch(device)
    wp.Bvh.refit, wp.Bvh.rebuild = in_turn(wp.Bvh.refit), in_turn(wp.Bvh.rebuild)
    wp.Stream = lambda device=None, **options: (
        _Stream(device, **options) if is_ours(device) else stream(device, **options)
    )
    wp.ScopedStream = lambda chosen, **options: (
        _ScopedStream if isinstance(chosen, _Stream) else scoped_stream
    )(chosen, **options)

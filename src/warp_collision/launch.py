"""Launches of the kernels on torch tensors: streams, recorded launches and CPU threads.

A launch through `wp.launch` spends most of its time on wrapping arguments. Here a launch is
recorded once per kernel, device and Python thread; later calls patch pointers and shapes into it.
Nothing in this file checks its arguments: a wrong dtype or layout would read foreign memory, so the
callers validate first.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import warp as wp

from warp_collision.lifetime import begin_reading, end_reading

# Below this many points, about 1 ms of work, a launch is not worth waking a second CPU thread.
_MIN_PARALLEL_ITEMS = 4096
# More chunks than threads even out spheres that are dearer than others.
_CHUNKS_PER_THREAD = 4


class SceneTables(NamedTuple):
    """Device tables of the meshes of all envs, in the order of the kernels' `Scene` struct.

    Attributes:
        mesh_ids: (n_envs, slots) int64 Warp mesh ids.
        mesh_from_world: (n_envs, slots, 8) float32.
        enabled: (n_envs, slots) uint8.
        n_meshes: (n_envs,) int32.
        records: (n_envs, slots) int64 pointers to what is known of each mesh, or None.
        tree: (2,) int64 id of a tree over the world boxes of all slots, grouped by env, or 0, and
            id of an empty tree; or None, until it is known.
    """

    mesh_ids: torch.Tensor
    mesh_from_world: torch.Tensor
    enabled: torch.Tensor
    n_meshes: torch.Tensor
    records: torch.Tensor | None
    tree: torch.Tensor | None = None


Argument = torch.Tensor | SceneTables | None


class _Quiet:
    """How many blocks of all threads ask for quiet, and the level before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.level = 0


_quiet = _Quiet()


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


class _ArraySlot:
    """The place of one array argument in a recorded launch."""

    def __init__(self, descriptor: Any, dtype: Any, ndim: int):
        self._descriptor = descriptor
        self._itemsize = wp.types.type_size_in_bytes(dtype)
        self._ndim = ndim
        self._shape: tuple[int, ...] | None = None

    def patch(self, tensor: torch.Tensor | None) -> None:
        if tensor is None:
            self._descriptor.data = 0
            self._reshape((0,) * self._ndim)
        else:
            self._descriptor.data = tensor.data_ptr()
            # Vectors and matrices are the trailing axes of a tensor, and one item in Warp.
            self._reshape(tensor.shape)

    def _reshape(self, shape: tuple[int, ...]) -> None:
        if shape == self._shape:
            return
        self._shape = shape
        stride = self._itemsize
        for axis in reversed(range(self._ndim)):
            self._descriptor.shape[axis] = shape[axis]
            self._descriptor.strides[axis] = stride
            stride *= shape[axis]


class _Command:
    """A launch of one kernel on one device, recorded once; its last input is its first index."""

    def __init__(self, kernel: Any, device: str):
        dim = (1,) * _launch_ndim(kernel)
        # Recording loads the module, which two threads must not do at once.
        with _record_lock, quiet_warp():
            arguments = [_placeholder(variable.type, device) for variable in kernel.adj.args]
            self._launch: Any = wp.launch(kernel, dim, arguments, device=device, record_cmd=True)
        self._dim: tuple[int, ...] = dim
        self._slots: list[Any] = []
        for variable, parameter in zip(kernel.adj.args, self._launch.params[1:], strict=True):
            self._slots.append(_slots_of(variable.type, parameter))

    def run(
        self,
        dim: tuple[int, ...],
        arguments: tuple[Argument, ...],
        first: tuple[int, ...] | None,
        stream: wp.Stream | None,
    ) -> None:
        operands: Iterator[Any] = iter(arguments)
        for slot in self._slots:
            if isinstance(slot, _ArraySlot):
                slot.patch(next(operands))
            elif isinstance(slot, list):
                for field, tensor in zip(slot, next(operands), strict=True):
                    field.patch(tensor)
            elif first is not None:
                for axis, start in enumerate(first):
                    slot[axis] = start
        if dim != self._dim:
            self._launch.set_dim(dim)
            self._dim = dim
        self._launch.launch(stream)


def _is_array(kind: Any) -> bool:
    return hasattr(kind, "ndim") and hasattr(kind, "dtype")


def _placeholder(kind: Any, device: str) -> Any:
    if _is_array(kind):
        return wp.empty((1,) * kind.ndim, dtype=kind.dtype, device=device)
    if hasattr(kind, "vars"):
        struct = kind()
        for name, variable in kind.vars.items():
            setattr(struct, name, _placeholder(variable.type, device))
        return struct
    return kind()


def _slots_of(kind: Any, parameter: Any) -> Any:
    if _is_array(kind):
        return _ArraySlot(parameter, kind.dtype, kind.ndim)
    if hasattr(kind, "vars"):
        return [_slots_of(v.type, getattr(parameter, name)) for name, v in kind.vars.items()]
    return parameter


def _launch_ndim(kernel: Any) -> int:
    """As many axes as the index at which a launch begins, or as the last output."""
    kinds = [variable.type for variable in kernel.adj.args]
    begins = [len(kind()) for kind in kinds if not _is_array(kind) and not hasattr(kind, "vars")]
    return begins[0] if begins else kinds[-1].ndim


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.commands: dict[tuple[Any, str], _Command] = {}
        self.streams: dict[int, wp.Stream] = {}


_state = _ThreadState()
_record_lock = threading.RLock()
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _pool_lock, _record_lock, _quiet
    _pool = None
    _quiet = _Quiet()
    _pool_lock = threading.Lock()
    _record_lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_threads)


def _workers(count: int) -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None or _pool._max_workers < count:
            _pool = ThreadPoolExecutor(count, thread_name_prefix="warp-collision")
        return _pool


def _command(kernel: Any, device: str) -> _Command:
    key = (kernel, device)
    command = _state.commands.get(key)
    if command is None:
        command = _state.commands[key] = _Command(kernel, device)
    return command


def _current_stream(device: torch.device) -> wp.Stream:
    handle = torch.cuda.current_stream(device).cuda_stream
    stream = _state.streams.get(handle)
    if stream is None:
        stream = wp.Stream(str(device), cuda_stream=handle)
        _state.streams[handle] = stream
    return stream


@contextmanager
def warp_stream(device: torch.device) -> Iterator[None]:
    """Lets Warp's own work on a device follow torch's current stream."""
    if device.type == "cpu":
        yield
    else:
        with wp.ScopedStream(_current_stream(device)):
            yield


def launch(
    kernel: Any,
    dim: tuple[int, ...],
    *arguments: Argument,
    device: torch.device,
    items: int = 0,
) -> None:
    """Runs a kernel over ``dim`` on torch's current stream, or on the CPU.

    Args:
        kernel: a kernel whose array and struct parameters come in the order of ``arguments``; a
            vector parameter, if it has one, is the index at which a launch begins.
        dim: extents of the launch; one of them 0 launches nothing.
        arguments: contiguous tensors of the kernel's dtypes, None for an empty array.
        device: where the tensors live.
        items: work of the launch in queried points; large launches use all of torch's CPU
            threads. Every output element has one owner, so the result does not depend on them.
    """
    if 0 in dim:
        return
    token = begin_reading()
    try:
        _launch(kernel, dim, arguments, device, items)
    finally:
        end_reading(token)


def _launch(
    kernel: Any,
    dim: tuple[int, ...],
    arguments: tuple[Argument, ...],
    device: torch.device,
    items: int,
) -> None:
    if device.type != "cpu":
        _command(kernel, str(device)).run(dim, arguments, (0,) * len(dim), _current_stream(device))
        return
    threads = torch.get_num_threads()
    if items < _MIN_PARALLEL_ITEMS or threads == 1:
        _command(kernel, "cpu").run(dim, arguments, (0,) * len(dim), None)
    else:
        _launch_chunks(kernel, dim, arguments, threads)


def _launch_chunks(
    kernel: Any, dim: tuple[int, ...], arguments: tuple[Argument, ...], threads: int
) -> None:
    axis = max(range(len(dim)), key=lambda i: dim[i])
    chunks = min(dim[axis], threads * _CHUNKS_PER_THREAD)
    bounds = [dim[axis] * i // chunks for i in range(chunks + 1)]

    def run(begin: int, end: int) -> None:
        part = (*dim[:axis], end - begin, *dim[axis + 1 :])
        first = tuple(begin if i == axis else 0 for i in range(len(dim)))
        _command(kernel, "cpu").run(part, arguments, first, None)

    pool = _workers(threads - 1)
    remaining = iter(list(itertools.pairwise(bounds)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                chunk = next(remaining, None)
            if chunk is None:
                return
            run(*chunk)

    helpers = [pool.submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        helper.result()


__all__ = ["SceneTables", "launch", "quiet_warp", "warp_stream"]

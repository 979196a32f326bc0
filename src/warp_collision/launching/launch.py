"""Launches of the kernels on torch tensors: streams, CPU threads, recorded commands.

Nothing in this file checks its arguments: a wrong dtype or layout would read foreign memory, so the
callers validate first.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
import warp as wp

from warp_collision.devices import (
    CPU,
    as_current,
    empty_cache,
    is_capturing,
    is_current,
    is_gpu,
    stream_handle,
)
from warp_collision.launching import graph_memory
from warp_collision.launching.deferred_free import (
    free_unread,
    launch_times,
    readers,
    retired,
)
from warp_collision.launching.graph_memory import keep_for_graphs, memory_key
from warp_collision.launching.recorded_launch import Argument, Command
from warp_collision.launching.warp_runtime import (
    compiling_announced,
    objects_loaded_in_turn,
    quiet_warp,
)

T = TypeVar("T")

# Below this many points, or where less work than this is left after the first chunk [s], a second
# CPU thread costs more than it gains: points take from 20 to some 1,000 ns.
_MIN_PARALLEL_ITEMS = 4096
_MIN_PARALLEL_SECONDS = 3.0e-4
# More chunks than threads balance spheres of different cost, and cores that are busy
# elsewhere; large launches have more, as long as their overhead is negligible.
_CHUNKS_PER_THREAD = 8
_MAX_CHUNKS_PER_THREAD = 64
_ITEMS_PER_CHUNK = 4096
_MIN_ITEMS_PER_CHUNK = 1024  # so that the first one tells

# While there are graphs, one launch of so many looks for those that are gone.
_LAUNCHES_PER_LOOK = 64


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.commands: dict[tuple[Any, str], Command] = {}


_state = _ThreadState()
# Shared by all threads and never dropped: Warp registers a stream once, by its handle.
_streams: dict[tuple[torch.device, int], wp.Stream] = {}
_record_lock = threading.RLock()
# Modules that are loaded, each with its device.
_loaded: set[tuple[Any, str]] = set()
# Threads that compile at once.
_MAX_COMPILERS = 4
_stream_lock = threading.RLock()
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _pool_lock, _record_lock, _stream_lock
    _pool = None
    _pool_lock = threading.Lock()
    _record_lock = threading.RLock()
    _stream_lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_threads)


def _workers(count: int) -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None or _pool._max_workers < count:
            _pool = ThreadPoolExecutor(count, thread_name_prefix="warp-collision")
        return _pool


def _command(kernel: Any, device: str) -> Command:
    key = (kernel, device)
    command = _state.commands.get(key)
    if command is None:
        # Recording loads the module, which two threads must not do at once.
        with _record_lock, compiling_announced(device):
            _require_loadable(kernel, device)
            command = _state.commands[key] = Command(kernel, device)
            _loaded.add((kernel.module, device))
    return command


def _require_loadable(kernel: Any, device: str) -> None:
    """A graph cannot be captured while its kernels are compiled and loaded, which may take minutes.

    Raises:
        RuntimeError: the kernel's module is not loaded, and a graph is captured.
    """
    if (kernel.module, device) not in _loaded and is_capturing(torch.device(device)):
        raise RuntimeError(
            "kernels must be loaded before a graph is captured, make the same call once before it: "
            f"{kernel.key} is not loaded on {device}"
        )


def load_kernels(kernels: Sequence[Any], device: torch.device) -> None:
    """Loads the modules of kernels that are about to be launched, in several threads.

    A launch loads its module too, but one after another, which takes seconds, and for a GPU up to a
    minute each, where Warp has none of them in its kernel cache.

    Args:
        kernels: the one that takes longest to compile first.
        device: where they are launched. While a graph is captured on it nothing is loaded.
    """
    place = str(device)
    new = {kernel.module: kernel for kernel in kernels if (kernel.module, place) not in _loaded}
    if not new or is_capturing(device):
        return

    def load(some: Iterator[Any]) -> None:
        for kernel in some:
            Command(kernel, place)
            _loaded.add((kernel.module, place))

    first, *others = new.values()
    remaining = iter(others)  # of a list, so that threads may share it
    helpers = min(n_compilers(), len(new)) - 1
    current = nullcontext() if device == CPU else as_current(device)
    with _record_lock, compiling_announced(place), quiet_warp(), current:
        with objects_loaded_in_turn() as may_use_threads:
            # Threads of their own: those of the pool may be waiting for this lock.
            with ThreadPoolExecutor(max(1, helpers)) as pool:
                count = helpers if may_use_threads else 0
                helped = [pool.submit(load, remaining) for _ in range(count)]
                load(iter([first]))
                load(remaining)
                for each in helped:
                    each.result()


def n_compilers() -> int:
    """How many threads compile modules at once."""
    return min(_MAX_COMPILERS, _n_cores())


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _current_stream(device: torch.device) -> wp.Stream:
    # The default streams of all devices have the same handle.
    key = device, stream_handle(device)
    if key not in _streams:
        with _stream_lock:
            if key not in _streams:
                _streams[key] = wp.Stream(str(device), cuda_stream=key[1])
    return _streams[key]


@contextmanager
def warp_stream(device: torch.device) -> Iterator[None]:
    """Runs Warp's own work on a device on torch's current stream."""
    if device.type == "cpu":
        yield
    else:
        # Warp has one current stream for all threads. Waiting for the one before would be a wait
        # for work outside of a captured graph, which ends the capture.
        stream = _current_stream(device)
        with as_current(device), _stream_lock, wp.ScopedStream(stream, sync_enter=False):
            yield


def with_memory(device: torch.device, make: Callable[[], T]) -> T:
    """What Warp makes on a device, on torch's current stream.

    Torch keeps memory that it no longer uses. Where Warp finds none, that is given back, and Warp
    tries once more.
    """
    with quiet_warp(), warp_stream(device):
        try:
            return make()
        except RuntimeError:
            if not is_gpu(device) or is_capturing(device):
                raise
            empty_cache(device)
            return make()


def launch(
    kernel: Any, dim: tuple[int, ...], *arguments: Argument, device: torch.device, items: int = 0
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
    began = next(launch_times)
    try:
        readers.add(began)  # see there for the order
        if device != CPU:
            if is_capturing(device):
                _keep_tables(arguments, device)
            elif graph_memory.graphs and began % _LAUNCHES_PER_LOOK == 0:
                graph_memory.release()
            if is_current(device):
                _command(kernel, str(device)).run(dim, arguments, _current_stream(device))
            else:  # Warp makes it the current one, and would leave it so
                with as_current(device):
                    _command(kernel, str(device)).run(dim, arguments, _current_stream(device))
            return
        if items < _MIN_PARALLEL_ITEMS or (threads := torch.get_num_threads()) == 1:
            _command(kernel, "cpu").run(dim, arguments)
        else:
            chunks = min(items // _ITEMS_PER_CHUNK, threads * _MAX_CHUNKS_PER_THREAD)
            chunks = max(chunks, threads * _CHUNKS_PER_THREAD)
            chunks = min(chunks, max(2, items // _MIN_ITEMS_PER_CHUNK))
            _launch_chunks(kernel, dim, arguments, threads, chunks)
    finally:
        readers.discard(began)
        if retired:
            free_unread()


class RepeatedLaunch:
    """A launch on the CPU, by one thread, repeated with other arguments of equal shapes.

    Args:
        kernel: see `launch`.
        dim: see `launch`.
        arguments: see `launch`; None where they differ from call to call.
        changing: the indices of those.
    """

    def __init__(
        self,
        kernel: Any,
        dim: tuple[int, ...],
        arguments: Sequence[Argument],
        changing: Sequence[int],
    ):
        with _record_lock, compiling_announced("cpu"):
            self._command = Command(kernel, "cpu")
        self._dim, self._arguments, self._changing = dim, list(arguments), changing
        self._changes: list[Callable[[Any], None]] | None = None

    def __call__(self, *changed: Argument) -> None:
        """Runs it with these arguments.

        From the second call on None stands for the argument of the last call, in the same place.
        """
        began = next(launch_times)
        try:
            readers.add(began)  # see there for the order
            if self._changes is not None:
                for index, change in enumerate(self._changes):
                    if changed[index] is not None:
                        change(changed[index])
                self._command.rerun()
                return
            arguments = list(self._arguments)
            for index, argument in zip(self._changing, changed, strict=True):
                arguments[index] = argument
            self._command.run(self._dim, tuple(arguments))
            self._changes = [self._command.repoint(index) for index in self._changing]
        finally:
            readers.discard(began)
            if retired:
                free_unread()


def _keep_tables(arguments: tuple[Argument, ...], device: torch.device) -> None:
    """Keeps what structs of a captured launch point to; tensors are kept by whoever made them."""
    for tables in arguments:
        if isinstance(tables, tuple):
            for part in tables:
                if isinstance(part, torch.Tensor):
                    keep_for_graphs(part.detach(), device, memory_key(part))


def _launch_chunks(
    kernel: Any, dim: tuple[int, ...], arguments: tuple[Argument, ...], threads: int, chunks: int
) -> None:
    axis = max(range(len(dim)), key=lambda i: dim[i])
    chunks = min(dim[axis], chunks)
    bounds = [dim[axis] * i // chunks for i in range(chunks + 1)]

    def run(begin: int, end: int) -> None:
        part = (*dim[:axis], end - begin, *dim[axis + 1 :])
        first = tuple(begin if i == axis else 0 for i in range(len(dim)))
        _command(kernel, "cpu").run(part, arguments, first=first)

    began = time.perf_counter()
    run(*bounds[:2])
    remaining = (time.perf_counter() - began) * (chunks - 1)
    if remaining < _MIN_PARALLEL_SECONDS and chunks > 1:
        run(bounds[1], bounds[-1])
    else:
        parallel_for(lambda chunk: run(*chunk), list(itertools.pairwise(bounds[1:])), threads)


def parallel_for(run: Callable[[T], object], items: Sequence[T], threads: int) -> None:
    """Calls a function with each of some items, in their order, on this CPU thread and others.

    Args:
        run: for work that releases the GIL.
        items: what it is called with.
        threads: how many, this one included.
    """
    remaining = iter(items)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                item = next(remaining, None)
            if item is None:
                return
            run(item)

    count = min(threads, len(items)) - 1
    helpers: list[Future[None]] = []
    try:
        for _ in range(count):
            helpers.append(_workers(count).submit(work))
        work()
    except BaseException:  # of an interrupt too: what the others read may be freed after this call
        with lock:
            remaining = iter(())
        raise
    finally:
        wait(helpers)
    for helper in helpers:
        helper.result()

"""What captured graphs read, kept as long as the graphs are.

CUDA counts who refers to a graph: the graph itself, the executable that is replayed, and launches
of it in progress. When nobody does, it calls what was registered with the graph. Here that posts a
semaphore of C, as no Python may run on threads of CUDA, which may outlive the interpreter.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from typing import Any, TypeVar

import torch

from warp_collision.devices import DRIVERS, is_capturing, stream_handle

T = TypeVar("T")

_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_NO_DESTRUCTOR_SYNC = 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
_MOVE = 1  # CU_GRAPH_USER_OBJECT_MOVE: the graph owns the reference alone
_SEMAPHORE_BYTES = 64  # at least those of a sem_t

_lock = threading.Lock()
_names = itertools.count()  # of graphs that tell nothing
graphs: dict[Any, _OfGraph] = {}  # by the name of the capture


def _forget_threads() -> None:
    """A forked child has none of its parent's threads: no holder of the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


class _OfGraph:
    """What one graph keeps.

    Attributes:
        objects: by identity or key.
        device: where it was captured.
    """

    def __init__(self, device: torch.device, semaphore: int | None):
        self.objects: dict[Any, Any] = {}
        self.device = device
        self._semaphore = semaphore  # None: nobody tells when the graph is gone

    def is_gone(self) -> bool:
        """Whether the graph is gone; frees the semaphore then."""
        if self._semaphore is None or _libc().sem_trywait(self._semaphore) != 0:
            return False
        _libc().free(self._semaphore)
        self._semaphore = None
        return True


def keep_for_graphs(tables: T, device: torch.device, key: object = None) -> T:
    """Keeps tables as long as the graph that is captured, if one is: its replays read them.

    Args:
        tables: what is read.
        device: where the graph is captured.
        key: what tables that are the same have in common; if None, they are one object.
    """
    if is_capturing(device):
        with _lock:
            _of_capture(device).objects.setdefault(id(tables) if key is None else key, tables)
    return tables


def is_kept(key: object) -> bool:
    """Whether a graph that is still there keeps tables of a key."""
    release()
    return any(key in graph.objects for graph in list(graphs.values()))


def memory_key(tables: torch.Tensor) -> tuple[str, int]:
    """The key of tensors in the same memory."""
    return "memory", tables.data_ptr()


def release() -> None:
    """Lets go of what graphs kept that are gone, unless one is captured."""
    if not graphs or any(is_capturing(graph.device) for graph in list(graphs.values())):
        return
    with _lock:
        gone = [name for name, graph in graphs.items() if graph.is_gone()]
        dropped = [graphs.pop(name) for name in gone]
    del dropped  # not under the lock


def _of_capture(device: torch.device) -> _OfGraph:
    """What the graph keeps that is captured on the current stream of a device."""
    driver = _driver(device.type)
    status, name, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    stream = ctypes.c_void_p(stream_handle(device))
    found = (
        None
        if driver is None
        else driver.cuStreamGetCaptureInfo_v2(
            stream, *map(ctypes.byref, (status, name, graph)), None, None
        )
    )
    if driver is None or found != 0 or status.value != _ACTIVE:
        return graphs.setdefault("for good", _OfGraph(device, None))
    key = device.type, name.value
    if key not in graphs:
        graphs[key] = _OfGraph(device, _registered(driver, graph))
    return graphs[key]


def _registered(driver: Any, graph: ctypes.c_void_p) -> int | None:
    """A semaphore that is posted when a graph is gone; None where that cannot be had."""
    semaphore, held = _libc().calloc(1, _SEMAPHORE_BYTES), ctypes.c_void_p()
    _libc().sem_init(semaphore, 0, 0)
    post = ctypes.cast(_libc().sem_post, ctypes.c_void_p)
    made = driver.cuUserObjectCreate(
        ctypes.byref(held), ctypes.c_void_p(semaphore), post, 1, _NO_DESTRUCTOR_SYNC
    )
    if made == 0 and driver.cuGraphRetainUserObject(graph, held, 1, _MOVE) == 0:
        return semaphore
    return None


@functools.cache
def _driver(kind: str) -> Any:
    """The driver of a type of device; None where it cannot tell that a graph is gone."""
    try:
        driver, libc = ctypes.CDLL(DRIVERS[kind]), _libc()
        needed = (
            driver.cuStreamGetCaptureInfo_v2,
            driver.cuUserObjectCreate,
            driver.cuGraphRetainUserObject,
            libc.sem_init,
            libc.sem_post,
            libc.sem_trywait,
        )
    except (OSError, AttributeError, TypeError):
        return None
    return driver if all(needed) else None


@functools.cache
def _libc() -> Any:
    """The library of C, with the types that are not int."""
    library = ctypes.CDLL(None)
    library.calloc.argtypes, library.calloc.restype = [ctypes.c_size_t] * 2, ctypes.c_void_p
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    library.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    library.sem_trywait.argtypes = [ctypes.c_void_p]
    return library

"""Keeps what kernels read alive until no launch can read it any more.

Queries read mesh ids from device tables while another thread may take a mesh out of the world. What
is taken out is therefore retired, not dropped: it is freed once every launch that began before has
ended.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import torch

_lock = threading.Lock()
_clock = itertools.count()
_readers: set[int] = set()  # times at which the launches in progress began
_retired: list[tuple[int, Any]] = []


def _forget_threads() -> None:
    """A forked child has none of its parent's threads, so nobody who reads or holds the lock."""
    global _lock
    _lock = threading.Lock()
    _readers.clear()


os.register_at_fork(after_in_child=_forget_threads)


def begin_reading() -> int:
    """Starts a launch: nothing retired from now on is freed before `end_reading` of its token."""
    # Without the lock, for every launch comes here. What is retired between these two lines has
    # left the tables before, and this launch reads them after.
    token = next(_clock)
    _readers.add(token)
    return token


def end_reading(token: int) -> None:
    """Ends a launch, and frees what only it could still read."""
    _readers.discard(token)
    if _retired:
        with _lock:
            freed = _take_unread()
        del freed


def retire(objects: list[Any], device: torch.device) -> None:
    """Frees objects as soon as no launch can read them.

    On CUDA a launch goes on after its call: this waits for the device, which only structural
    changes of a world do.
    """
    if not objects:
        return
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    with _lock:
        _retired.append((next(_clock), list(objects)))
        freed = _take_unread()
    objects.clear()
    del freed


def _take_unread() -> list[Any]:
    """Removes from the retired what no launch in progress can read; freed outside the lock."""
    oldest = min(_readers.copy(), default=None)  # others come and go meanwhile
    unread = [entry for entry in _retired if oldest is None or entry[0] < oldest]
    if unread:
        _retired[:] = [entry for entry in _retired if not (oldest is None or entry[0] < oldest)]
    return unread

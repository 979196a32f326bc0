"""Deferred freeing: what kernels read stays alive until no launch can read it any more.

Queries read mesh ids from device tables while another thread may remove a mesh from the world. What
is removed is therefore retired, not dropped: it is freed once every launch that began before has
ended.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
import weakref
from collections.abc import Collection
from typing import Any

import torch

from warp_collision.devices import is_capturing, is_gpu, synchronize_all
from warp_collision.launching import graph_memory

_lock = threading.Lock()
launch_times = itertools.count()
# Times at which the launches in progress began. A launch adds its time first in a `try`, and
# discards it first in the `finally`. Python looks for Ctrl-C after calls and where functions
# begin: an interrupt leaves no time behind, for which others would wait forever. No lock is needed:
# what is retired between a time and its entry has left the tables, which the launch reads later.
readers: set[int] = set()
_abandoned: list[tuple[Any, torch.device]] = []  # of owners that were collected
retired: list[tuple[int, Any, torch.device]] = []


def _forget_threads() -> None:
    """A forked child has none of its parent's threads: no launches, no holder of the lock."""
    global _lock
    _lock = threading.Lock()
    readers.clear()


os.register_at_fork(after_in_child=_forget_threads)


def retire(objects: list[Any], device: torch.device) -> None:
    """Frees objects as soon as no launch can read them.

    On CUDA a launch outlives its call: this waits once for all streams of the device, which only
    structural changes of a world do. So other streams may read what was written before.
    """
    if not objects:
        return
    with _lock:
        retired.append((next(launch_times), list(objects), device))
    if device not in free_unread():
        synchronize_all(device)
    objects.clear()  # last: an edit that is interrupted before calls this once more


def wait_for_launches(device: torch.device) -> None:
    """Waits until every launch that has begun has ended, also those of other threads.

    What had left the tables before is read by nobody then, and may be written to.
    """
    begun = readers.copy()
    while not begun.isdisjoint(readers.copy()):
        time.sleep(1e-5)
    synchronize_all(device)


def free_with(owner: object, held: list[Any], device: torch.device) -> None:
    """Keeps what an owner holds until the launches in progress when it is collected have ended.

    It is freed when the next owner is made or a world is changed: the garbage collector runs in any
    thread at any time, and a wait for the device would end another thread's capture.

    Args:
        owner: an object that is garbage collected at any time.
        held: what it holds; the list may still change.
        device: on the CPU no launch outlives its call.
    """
    if is_gpu(device):
        _free_abandoned()
        weakref.finalize(owner, _abandoned.append, (held, device)).atexit = False


def _free_abandoned() -> None:
    """Frees what collected owners and graphs held, unless a graph is captured."""
    graph_memory.release()
    abandoned = list(_abandoned)
    if any(is_capturing(device) for _, device in abandoned):
        return
    for device in {device for _, device in abandoned}:
        synchronize_all(device)
    del _abandoned[: len(abandoned)]  # more may have come since


def free_unread() -> Collection[torch.device]:
    """Frees retired objects that no launch in progress can read. Each launch ends with it.

    Returns:
        The GPUs that it has waited for.
    """
    if not retired:
        return ()
    with _lock:
        oldest = min(readers.copy(), default=math.inf)  # other threads change it
        waits = [begins >= oldest or is_capturing(device) for begins, _, device in retired]
        unread = [entry for entry, is_kept in zip(retired, waits, strict=True) if not is_kept]
        retired[:] = [entry for entry, is_kept in zip(retired, waits, strict=True) if is_kept]
    devices = {entry[2] for entry in unread if is_gpu(entry[2])}
    for device in devices:
        synchronize_all(device)  # their launches may outlive the calls
    _free_abandoned()
    del unread  # not under the lock
    return devices

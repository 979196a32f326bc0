"""Work that can wait, done by one thread while the others go on.

Work comes as a generator: between its steps, of a few milliseconds each, it is given up as soon as
nobody needs it any more, or the program ends.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

_queue: deque[tuple[ref[Any], Callable[[Any], Iterator[None]]]] = deque()
_state = threading.Condition()
_thread: threading.Thread | None = None


def submit(owner: Any, work: Callable[[Any], Iterator[None]]) -> None:
    """Queues work that an owner needs.

    Args:
        owner: work is given up when it is no longer alive; it is not kept alive.
        work: makes the steps; what it yields from must not hold the owner.
    """
    global _thread
    with _state:
        _queue.append((ref(owner), work))
        if _thread is None:
            # Not a daemon, which the end of the program would kill in the middle of a kernel.
            _thread = threading.Thread(target=_work, name="warp-collision-background", daemon=False)
            _thread.start()


def wait() -> None:
    """Returns when all that was queued is done."""
    with _state:
        _state.wait_for(lambda: _thread is None)


def _work() -> None:
    global _thread
    try:
        while True:
            with _state:
                if not _queue or not threading.main_thread().is_alive():
                    return
                owner, work = _queue.popleft()
            _do(owner, work)
    finally:
        with _state:
            _thread = None
            _state.notify_all()


def _do(owner: ref[Any], work: Callable[[Any], Iterator[None]]) -> None:
    alive = owner()
    if alive is None:
        return
    steps = work(alive)
    del alive
    for _ in steps:
        if owner() is None or not threading.main_thread().is_alive():
            return


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _queue, _state, _thread
    _queue, _state, _thread = deque(), threading.Condition(), None


os.register_at_fork(after_in_child=_forget)

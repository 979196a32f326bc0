"""One thread that draws: the newest job of each kind, so that nothing piles up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Worker:
    """Runs jobs one after another in a thread of its own.

    A job of a name replaces one of the same name that has not begun, so that as many wait as there
    are names: callers never wait, and never fill the memory.

    Args:
        failed: called with an error of a job.
    """

    def __init__(self, failed: Callable[[Exception], None]):
        self._failed = failed
        self._jobs: dict[str, tuple[float, Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._is_busy = False
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="warp-collision viewer", daemon=True)
        self._thread.start()

    def put(self, name: str, job: Callable[[], None], delay: float = 0.0) -> None:
        """Adds a job, to begin no sooner than after a delay [s]; one that waits keeps its time."""
        with self._changed:
            begin = time.monotonic() + delay
            if name in self._jobs:  # it moves behind what was asked for meanwhile
                begin = min(begin, self._jobs.pop(name)[0])
            self._jobs[name] = (begin, job)
            self._changed.notify_all()

    def drop(self, name: str) -> None:
        """Removes a job that has not begun."""
        with self._changed:
            self._jobs.pop(name, None)

    def wait(self, seconds: float) -> bool:
        """Waits until all jobs are done; whether they are after so many seconds."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._jobs or self._is_busy:
                left = end - time.monotonic()
                if left <= 0.0 or not self._is_open:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """Ends the thread after the job that it does; others are dropped."""
        with self._changed:
            self._is_open = False
            self._jobs.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(10.0)

    def _next(self) -> Callable[[], None] | None:
        """Waits for the next job; None when closed."""
        with self._changed:
            while self._is_open:
                now = time.monotonic()
                ready = next((n for n, (begin, _) in self._jobs.items() if begin <= now), None)
                if ready is not None:
                    self._is_busy = True
                    return self._jobs.pop(ready)[1]
                begins = [begin for begin, _ in self._jobs.values()]
                self._changed.wait(min(begins) - now if begins else None)
        return None

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception as error:  # of any job: the thread goes on
                self._failed(error)
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

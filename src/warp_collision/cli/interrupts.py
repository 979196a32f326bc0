"""Signals that interrupt a command, whatever error a library makes of one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

INTERRUPTED = 130  # as shells have it for Ctrl+C


class _Interrupts:
    """Ctrl+C, and SIGTERM for commands that want it.

    NumPy has errors of its own for an interrupt in some of its functions: they end as one.

    Attributes:
        at_once: whether the process ends without cleaning up: modules that are being imported take
            an interrupt for an error of theirs, or pass over it.
    """

    def __init__(self) -> None:
        self.at_once = self._has_come = self._is_held = self._is_waiting = False

    def of_command(self, *, at_once: bool) -> contextlib.AbstractContextManager[None]:
        """Takes Ctrl+C, unless the process ignores it or has a handler of its own."""
        in_main = threading.current_thread() is threading.main_thread()
        is_free = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self.at_once = at_once and is_free
        return self.taken(*[signal.SIGINT] * is_free)

    @contextlib.contextmanager
    def taken(self, *numbers: int) -> Iterator[None]:
        """Lets signals interrupt what the block does."""
        self._has_come = self._is_waiting = False
        before = [signal.signal(number, self._receive) for number in numbers]
        try:
            yield
        except Exception as error:
            # What failed while files were closed after an interrupt, as by a full disk, has a
            # context.
            if self._has_come and error.__context__ is None:
                raise KeyboardInterrupt from error
            raise
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lets interrupts wait until the end of the block."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_waiting:
            self._is_waiting = False
            raise KeyboardInterrupt

    def _receive(self, *_: object) -> None:
        if self.at_once:
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        self._has_come = True
        if not self._is_held:
            raise KeyboardInterrupt
        self._is_waiting = True


INTERRUPTS = _Interrupts()

"""Warp's runtime, started quietly, and the kinds of its kernels' parameters."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import warp as wp

# Warp's verbosity: a log level from 1.14 on, before that a flag.
_SETTING, _QUIETEST = (
    ("log_level", wp.LOG_WARNING) if hasattr(wp.config, "log_level") else ("quiet", True)
)


class _Quiet:
    """How many blocks of all threads ask for quiet, and the level before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.level = 0


_quiet = _Quiet()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _quiet
    _quiet = _Quiet()


os.register_at_fork(after_in_child=_forget_threads)


def log_level() -> int:
    """Warp's log level, the higher the quieter."""
    return getattr(wp.config, _SETTING)


def silence_warp() -> None:
    """Lets Warp print no more than warnings from now on."""
    setattr(wp.config, _SETTING, max(log_level(), _QUIETEST))


@contextmanager
def quiet_warp() -> Iterator[None]:
    """Keeps Warp's banner and its notes on compiling out of the caller's standard output."""
    with _quiet.lock:
        if _quiet.blocks == 0:
            _quiet.level = log_level()
        _quiet.blocks += 1
        silence_warp()
        wp.init()
    try:
        yield
    finally:
        with _quiet.lock:
            _quiet.blocks -= 1
            if _quiet.blocks == 0:
                setattr(wp.config, _SETTING, _quiet.level)


@functools.cache
def _cpu() -> Any:
    with quiet_warp():
        return wp.get_device("cpu")


def refuse_cpu_capture() -> None:
    """Raises inside `wp.ScopedCapture(device="cpu")`, which direct calls of kernels pass by."""
    if _cpu().is_capturing:
        raise RuntimeError("launches on the CPU cannot be captured: leave wp.ScopedCapture")


def is_array(kind: Any) -> bool:
    """Whether a parameter of a kernel is an array."""
    return hasattr(kind, "ndim") and hasattr(kind, "dtype")


def is_struct(kind: Any) -> bool:
    """Whether a parameter of a kernel is a struct."""
    return hasattr(kind, "vars") and not is_array(kind)

"""Warp's runtime, started quietly, and the kinds of its kernels' parameters."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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


@contextmanager
def compiling_announced(device: str) -> Iterator[None]:
    """Says on standard error, once in a process, that kernels are being compiled.

    Modules of Warp's kernel cache are loaded without a word, and so are those that are compiled
    within a second. `WARP_COLLISION_QUIET=1` in the environment turns this off.
    """
    if _announced.is_set() or os.environ.get("WARP_COLLISION_QUIET", "0") not in ("", "0"):
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_announce, args=(device, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


_PATIENCE = 1.0  # [s]
_IMPORTED = time.time()
_announced = threading.Event()


def _is_compiling() -> bool:
    """Whether a thread of this process compiles a module: Warp does so in a folder of its cache.

    A process that was killed leaves such a folder, and another one may have its number.
    """
    cache = Path(wp.config.kernel_cache_dir or os.devnull)
    for folder in cache.glob(f"*_p{os.getpid()}*"):
        with suppress(FileNotFoundError):  # Warp renames it at the end
            if folder.stat().st_mtime > _IMPORTED:
                return True
    return False


def _announce(device: str, ended: threading.Event) -> None:
    while not ended.wait(_PATIENCE) and not _announced.is_set():
        if _is_compiling():
            _announced.set()
            print(
                f"warp-collision: compiling kernels for {device}, once for this version; "
                "`warp-collision compile` does it ahead",
                file=sys.stderr,
                flush=True,
            )


@contextmanager
def objects_loaded_in_turn() -> Iterator[bool]:
    """Lets threads compile modules for the CPU at once, and load what they compiled one by one.

    Warp makes its JIT compiler when it first loads an object. Threads that do that at once may make
    one each, of which all but one are forgotten, and looking up a kernel in those crashes. Older
    versions also generate code without a lock, and mix up that of two modules.

    Yields:
        Whether this version of Warp could be kept from it; otherwise one thread has to do it all.
    """
    try:
        context: Any = importlib.import_module("warp._src.context")
        library, load = context.runtime.llvm, context.runtime.llvm.wp_load_obj
        context._codegen_lock  # noqa: B018
    except (ImportError, AttributeError):
        yield False
        return
    lock = threading.Lock()

    def load_in_turn(*arguments: Any) -> Any:
        with lock:
            return load(*arguments)

    library.wp_load_obj = load_in_turn
    try:
        yield True
    finally:
        library.wp_load_obj = load


def is_array(kind: Any) -> bool:
    """Whether a parameter of a kernel is an array."""
    return hasattr(kind, "ndim") and hasattr(kind, "dtype")


def is_struct(kind: Any) -> bool:
    """Whether a parameter of a kernel is a struct."""
    return hasattr(kind, "vars") and not is_array(kind)

"""A worker process with limits of memory and time, for parsers that can crash, hang or fill memory.

OpenUSD, MuJoCo and some readers of trimesh believe sizes, counts and references in a file: a few
wrong bytes make them abort, loop or allocate without end. What they read is read in one process
beside this one, which is started with the first such file and kept for the next ones.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from warp_collision.formats.files import About, add_found, found_files
from warp_collision.messages import one_line

try:
    import resource
except ImportError:  # on Windows only the clock is a limit
    resource = None

_SECONDS, _SECONDS_PER_BYTE = 3.0, 2e-6  # of one CPU thread
_MEMORY, _MEMORY_PER_BYTE = 1 << 30, 64  # beyond the libraries themselves
_SLOWER = 100.0  # times as long by the clock: other programs may keep it waiting
# Each thread reserves memory of its own.
_ONE_EACH = ("PXR_WORK_THREAD_LIMIT", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX")
_SERVE = "from warp_collision.formats.worker import serve; serve()"
_VALUE, _ERROR, _OUT_OF_MEMORY = range(3)

T = TypeVar("T")


def run_limited(
    function: Callable[..., T], *arguments: Any, library: str, imports: Sequence[str] = ()
) -> T:
    """Calls a function in the worker process, with 3 s of one CPU thread and 1 GiB of memory.

    It calls `allow` for each file that it reads, and gets 2 s a megabyte and 64 times its size.

    Args:
        function: of a module; it and what it returns are pickled.
        *arguments: its arguments; paths are absolute.
        library: the parser, for messages.
        imports: modules that are imported before the limits count.

    Raises:
        ValueError: the function raises anything, or the process was ended.
    """
    if not sys.executable:  # an embedded interpreter
        return function(*arguments)
    return _worker.call(library, (tuple(imports), function, arguments))


def allow(n_bytes: int) -> None:
    """Raises the limits of the worker for a file that it reads; does nothing elsewhere."""
    if _limits is not None:
        _limits.allow(n_bytes)


class _Worker:
    """The worker of this process; started when it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._folder = ""

    def call(self, library: str, request: tuple[Any, ...]) -> Any:
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump(request, process.stdin)
                process.stdin.flush()
                kind, result, files = pickle.load(process.stdout)
            except (OSError, EOFError):
                _refuse(library, _ending(self.stop()))
            except BaseException:
                self.stop()
                raise
            if kind == _OUT_OF_MEMORY:
                self.stop()
                _refuse(library, "MemoryError")
        add_found(files)
        if kind == _ERROR:
            raise ValueError(result)
        return result

    def stop(self) -> int:
        """Ends the process; returns its exit status, of its own end if that came first."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            status = process.wait(1.0)  # without its pipes it ends by itself
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        return status

    def _running(self) -> subprocess.Popen[bytes]:
        # After a fork the process belongs to the parent.
        process = self._process
        if process is not None and self._owner == os.getpid() and process.poll() is None:
            return process
        self.stop()
        self._owner = os.getpid()
        # For what parsers write when they crash. A forked process must not clean up its parent's.
        self._folder = tempfile.mkdtemp()
        paths = (os.path.abspath(path) for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env={
                **os.environ,
                **dict.fromkeys(_ONE_EACH, "1"),
                "PYTHONPATH": os.pathsep.join(paths),
                "TMPDIR": self._folder,
            },
        )
        return self._process


def _refuse(library: str, ending: str) -> NoReturn:
    raise ValueError(
        f"{library} must get through it in {_SECONDS:g} s and {_MEMORY >> 20} MiB, and in 2 s more "
        f"a megabyte, got {ending}"
    )


def _ending(status: int) -> str:
    """How a process ended."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"status {status}"


class _Limits:
    """Limits of this process from now on; lifted by `lift`."""

    def __init__(self) -> None:
        self._n_bytes = self._memory = 0
        if resource is not None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            self._seconds = used.ru_utime + used.ru_stime
            with contextlib.suppress(OSError), open("/proc/self/statm") as file:  # of Linux alone
                self._memory = int(file.read().split()[0]) * resource.getpagesize()
        self.allow(0)

    def allow(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        seconds = _SECONDS + _SECONDS_PER_BYTE * self._n_bytes
        faulthandler.dump_traceback_later(_SLOWER * seconds, exit=True)
        if resource is not None:
            _set_limit(resource.RLIMIT_CPU, int(self._seconds + seconds) + 1)
            if self._memory:
                memory = _MEMORY + _MEMORY_PER_BYTE * self._n_bytes
                _set_limit(resource.RLIMIT_AS, self._memory + memory)

    def lift(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        if resource is not None:
            for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
                _set_limit(which, resource.RLIM_INFINITY)


def _set_limit(which: int, value: int) -> None:
    """Sets a soft limit, at most the hard one."""
    assert resource is not None
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = hard if value == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, hard))


def serve() -> None:
    """Answers requests until standard input ends; the main function of the worker."""
    global _limits
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # parsers print
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(EOFError, OSError):
        while True:
            imports, function, arguments = pickle.load(sys.stdin.buffer)
            files: dict[Path, About] = {}
            try:
                for module in imports:
                    importlib.import_module(module)
                _limits = _Limits()
                try:
                    with found_files() as files:
                        reply = _VALUE, function(*arguments)
                finally:
                    _limits.lift()
            except MemoryError:
                reply = _OUT_OF_MEMORY, None
            except Exception as error:
                text = str(error) if isinstance(error, ValueError) else one_line(error)
                reply = _ERROR, text
            pickle.dump((*reply, files), replies, pickle.HIGHEST_PROTOCOL)
            replies.flush()


_limits: _Limits | None = None
_worker = _Worker()
atexit.register(_worker.stop)

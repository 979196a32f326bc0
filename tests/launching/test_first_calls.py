"""What a first call says while it compiles, and that it says nothing while it only loads."""

import importlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warp as wp

from warp_collision.launching import warp_runtime
from warp_collision.launching.recorded_launch import Command
from warp_collision.launching.warp_runtime import compiling_announced

SAID = "warp-collision: compiling kernels for cpu, once for this version; `warp-collision compile`"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has said nothing, and looks each fiftieth of a second."""
    wp.init()
    monkeypatch.setattr(warp_runtime, "_PATIENCE", 0.02)
    monkeypatch.setattr(warp_runtime, "_announced", threading.Event())
    monkeypatch.delenv("WARP_COLLISION_QUIET", raising=False)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Counts how often the folder of what is compiled was looked for."""
    done, look = threading.Semaphore(0), warp_runtime._is_compiling

    def counted() -> bool:
        try:
            return look()
        finally:
            done.release()

    monkeypatch.setattr(warp_runtime, "_is_compiling", counted)
    yield done
    for thread in watching():
        thread.join(60.0)
        assert not thread.is_alive()


def watching() -> list[threading.Thread]:
    """Threads that will say something if a module is compiled."""
    return [
        t for t in threading.enumerate() if getattr(t, "_target", None) is warp_runtime._announce
    ]


@wp.kernel(module="unique")
def add_three(values: wp.array[wp.float32]):
    values[wp.tid()] += 3.0


def test_compiling_is_announced_once(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Warp has made the folder when it compiles; here it does not, which would take seconds."""
    build: Any = importlib.import_module("warp._src.build")

    def build_cpu(*arguments: Any, **options: Any) -> None:
        (thread,) = watching()
        thread.join(60.0)
        raise RuntimeError("compiles")

    monkeypatch.setattr(build, "build_cpu", build_cpu)
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    with pytest.raises(RuntimeError, match="compiles"), compiling_announced("cpu"):
        Command(add_three, "cpu")
    with compiling_announced("cpu"):
        assert not watching()
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.startswith(SAID)
    assert said.count("\n") == 1


def test_loading_is_silent(
    looks: threading.Semaphore,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Also where an earlier process of the same number was killed while it compiled."""
    left = tmp_path / f"wp_module_0123456_p{os.getpid()}_t1"
    left.mkdir()
    os.utime(left, (1e9, 1e9))
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    with compiling_announced("cpu"):
        for _ in range(3):
            assert looks.acquire(timeout=60.0)
    assert capsys.readouterr() == ("", "")


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARP_COLLISION_QUIET", "1")
    with compiling_announced("cpu"):
        assert not watching()


def test_the_end_of_a_load_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp_runtime, "_PATIENCE", 60.0)
    threads = []

    def load(error: Exception | None = None) -> None:
        with compiling_announced("cpu"):
            threads.extend(watching())
            if error is not None:
                raise error

    load()
    threads[0].join(30.0)  # else the next load sees it too, if it ends late
    with pytest.raises(ValueError, match="no kernel"):
        load(ValueError("no kernel"))
    assert len(threads) == 2
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()

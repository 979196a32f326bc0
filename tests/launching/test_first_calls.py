"""What a first call says while it compiles."""

import threading

import pytest

from warp_collision.launching import warp_runtime
from warp_collision.launching.warp_runtime import slow_loads_announced

SAID = "warp-collision: compiling kernels for cpu, once for this version; `warp-collision compile`"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has said nothing, and waits for a fiftieth of a second."""
    monkeypatch.setattr(warp_runtime, "_PATIENCE", 0.02)
    monkeypatch.setattr(warp_runtime, "_announced", threading.Event())
    monkeypatch.delenv("WARP_COLLISION_QUIET", raising=False)


def waiting() -> list[threading.Timer]:
    """Threads that will say something, unless the load ends first."""
    timers = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    return [timer for timer in timers if timer.function is warp_runtime._announce]


def load_slowly() -> int:
    """Loads until nobody waits any more; how many did."""
    with slow_loads_announced("cpu"):
        timers = waiting()
        for timer in timers:
            timer.join(60.0)
    return len(timers)


def test_a_slow_load_is_announced_once(capsys: pytest.CaptureFixture) -> None:
    assert load_slowly() == 1
    assert load_slowly() == 0
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.startswith(SAID)
    assert said.count("\n") == 1


def test_it_can_be_turned_off(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARP_COLLISION_QUIET", "1")
    assert load_slowly() == 0
    assert capsys.readouterr() == ("", "")


def test_the_end_of_a_load_ends_the_waiting(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warp_runtime, "_PATIENCE", 60.0)
    timers = []

    def load(error: Exception | None = None) -> None:
        with slow_loads_announced("cpu"):
            timers.extend(waiting())
            if error is not None:
                raise error

    load()
    with pytest.raises(ValueError, match="no kernel"):
        load(ValueError("no kernel"))
    assert len(timers) >= 2
    for timer in timers:
        timer.join(30.0)
        assert not timer.is_alive()
    assert capsys.readouterr() == ("", "")

"""What a first call says while it compiles."""

import threading
import time

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


def load(seconds: float) -> None:
    with slow_loads_announced("cpu"):
        time.sleep(seconds)


def test_a_slow_load_is_announced_once(capsys: pytest.CaptureFixture) -> None:
    load(0.3)
    load(0.3)
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.startswith(SAID)
    assert said.count("\n") == 1


def test_a_quick_load_says_nothing(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warp_runtime, "_PATIENCE", 60.0)
    load(0.0)
    assert capsys.readouterr() == ("", "")


def test_it_can_be_turned_off(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARP_COLLISION_QUIET", "1")
    load(0.3)
    assert capsys.readouterr() == ("", "")


def test_an_error_ends_the_waiting(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warp_runtime, "_PATIENCE", 0.2)
    with pytest.raises(ValueError, match="no kernel"), slow_loads_announced("cpu"):
        raise ValueError("no kernel")
    time.sleep(0.3)
    assert capsys.readouterr() == ("", "")

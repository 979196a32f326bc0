"""Calls that must be refused before any kernel runs."""

from collections.abc import Callable
from typing import Any

import pytest
import warp as wp

from warp_collision import warp_primitives
from warp_collision.queries import query


def forbid_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if a kernel is launched from now on."""

    def refuse(kernel: wp.Kernel, *_: Any, **__: Any) -> None:
        pytest.fail(f"{kernel.key} was launched")

    for module in (query, warp_primitives):
        monkeypatch.setattr(module, "launch", refuse)


def refuses(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    """The call raises exactly this kind of error, with a message of this pattern."""
    with pytest.raises(error, match=message) as caught:
        call()
    assert caught.type is error

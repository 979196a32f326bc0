"""Edits that are all or nothing: prepared first, then done without an end halfway."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class Edit:
    """Steps that change something that others see.

    Whatever may fail is done before the first step: memory is allocated and content computed while
    nothing has changed. A step only writes what is ready, and may be run twice. So an edit that is
    interrupted, as by Ctrl-C, is completed before the interrupt goes on.

    Example:
        >>> from warp_collision.launching.edit import Edit
        >>> shelf, edit = {"cup": 1}, Edit()
        >>> edit.then(shelf.update, {"plate": 2})
        >>> edit.then(shelf.pop, "cup", None)
        >>> edit.run()
        >>> shelf
        {'plate': 2}
    """

    def __init__(self) -> None:
        """Creates an edit without steps."""
        self._steps: list[Callable[[], Any]] = []

    def then(self, step: Callable[..., Any], *arguments: Any) -> None:
        """Adds a step: a call that allocates nothing, and that may be repeated."""
        self._steps.append(partial(step, *arguments))

    def run(self) -> None:
        """Runs all steps; those of an edit that is interrupted are all run once more."""
        try:
            for step in self._steps:
                step()
        except BaseException:
            for step in self._steps:
                step()
            raise

"""What notebooks show of worlds, robots and paths: the HTML that the viewer has registered.

The viewer stands above all that it draws, so what is drawn does not know it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_registered: list[Callable[[Any], str]] = []  # one at most


def show_in_notebooks(html_of: Callable[[Any], str]) -> None:
    """Registers what makes the HTML of a value."""
    _registered[:] = [html_of]


def notebook_html(value: Any) -> str | None:
    """A picture and a table of a world, a robot or planned paths, for `_repr_html_`."""
    return _registered[0](value) if _registered else None

"""Worlds, robots and paths as pictures, as films, and in a browser.

Names are imported when they are first used: the browser needs the extra `view`, pictures `viz`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warp_collision.viewer.browser import Viewer
    from warp_collision.viewer.contact_sheet import sphere_sheet
    from warp_collision.viewer.rendering import render

__all__ = ["Viewer", "render", "sphere_sheet"]

_MODULE_OF = {"Viewer": "browser", "render": "rendering", "sphere_sheet": "contact_sheet"}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'warp_collision.viewer' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"warp_collision.viewer.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, imported or not."""
    return sorted({*globals(), *__all__})

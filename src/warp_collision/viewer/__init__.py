"""Worlds, robots and paths as pictures, as films, and in a browser.

Names are imported when they are first used: the browser needs the extra `view`, pictures `viz`.
"""

from typing import TYPE_CHECKING

from warp_collision.lazy_names import lazy_names

if TYPE_CHECKING:
    from warp_collision.viewer.browser import Viewer
    from warp_collision.viewer.contact_sheet import sphere_sheet
    from warp_collision.viewer.rendering import render

__all__ = ["Viewer", "render", "sphere_sheet"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "browser": ("Viewer",),
        "contact_sheet": ("sphere_sheet",),
        "rendering": ("render",),
    },
)

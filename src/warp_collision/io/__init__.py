"""World files to obstacles with poses, and back; arrays of spheres.

Names are imported when they are first used: readers of files import trimesh.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warp_collision.io.arrays import load_joints, load_spheres
    from warp_collision.io.files import load_world_file, load_world_mapping
    from warp_collision.io.scene import obstacle_scene, scene_meshes
    from warp_collision.io.scene_builder import LeftOut, LeftOutWarning, Obstacle
    from warp_collision.io.writing import save_world_file

__all__ = [
    "LeftOut",
    "LeftOutWarning",
    "Obstacle",
    "load_joints",
    "load_spheres",
    "load_world_file",
    "load_world_mapping",
    "obstacle_scene",
    "save_world_file",
    "scene_meshes",
]

_MODULES = {
    "scene_builder": ("LeftOut", "LeftOutWarning", "Obstacle"),
    "arrays": ("load_joints", "load_spheres"),
    "files": ("load_world_file", "load_world_mapping"),
    "scene": ("obstacle_scene", "scene_meshes"),
    "writing": ("save_world_file",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'warp_collision.io' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"warp_collision.io.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, imported or not."""
    return sorted({*globals(), *__all__})
